"""Lists, and their blocking commands where these can't block."""
from compare import exec_rule
from gen import BIG, family
from op import Op

list_ = family('list', 1.4)
blocking = family('blocking', 0.12)


def element(g):
    return g.member() if g.p(0.7) else g.val()


@list_.add(9)
def push(g):
    return [g.pick((b'LPUSH', b'LPUSH', b'LPUSH', b'RPUSH', b'RPUSH', b'RPUSH', b'LPUSHX', b'RPUSHX')), g.key('l')] + \
        g.some(lambda: element(g), 5)


@list_.add(4)
def pop(g):
    argv = [g.pick((b'LPOP', b'RPOP')), g.key('l')]
    if g.p(0.3):
        argv.append(g.count())
    return argv


@list_.add(1)
def llen(g):
    return [b'LLEN', g.key('l')]


@list_.add(4)
def lrange(g):
    if g.p(0.2):
        return [b'LRANGE', g.key('l'), b'0', b'-1']
    return [b'LRANGE', g.key('l'), g.index(), g.index()]


@list_.add(2)
def lindex(g):
    return [b'LINDEX', g.key('l'), g.index()]


@list_.add(2)
def lset(g):
    return [b'LSET', g.key('l'), g.index(), element(g)]


@list_.add(2)
def linsert(g):
    return [b'LINSERT', g.key('l'), g.opt(g.pick((b'BEFORE', b'AFTER'))), element(g), element(g)]


@list_.add(2)
def lrem(g):
    return [b'LREM', g.key('l'), g.count() if g.p(0.5) else g.num(-3, 3), element(g)]


@list_.add(1)
def ltrim(g):
    if g.p(0.5):
        return [b'LTRIM', g.key('l'), g.num(0, 1), g.num(-2, -1)]
    return [b'LTRIM', g.key('l'), g.index(), g.index()]


@list_.add(3)
def lpos(g):
    return [b'LPOS', g.key('l'), element(g)] + g.options(
        lambda: [b'RANK', g.num(-3, 3) if g.p(0.9) else g.integer()],
        lambda: [b'COUNT', g.count()], lambda: [b'MAXLEN', g.count()])


def side(g):
    return g.opt(g.pick((b'LEFT', b'RIGHT')))


@list_.add(3)
def lmove(g):
    if g.p(0.4):
        return [b'RPOPLPUSH', g.key('l'), g.key('l')]
    return [b'LMOVE', g.key('l'), g.key('l'), side(g), side(g)]


def mpop_keys(g, kind):
    keys = g.some(lambda: g.key(kind), 4)
    count = b'%d' % len(keys) if g.p(0.95) else g.count()
    return [count] + keys


@list_.add(2)
def lmpop(g):
    return [b'LMPOP'] + mpop_keys(g, 'l') + [side(g)] + g.options(lambda: [b'COUNT', g.count()], p=0.5)


@list_.add(0.2)
def push_bulk(g):
    """Enough to leave one 8 KB node."""
    if g.p(0.5):
        items = [b'%d' % i for i in range(g.pick((100, 128, 129, 300)))]
    else:
        items = [bytes([97 + i % 26]) * (100 + 37 * i % 400) for i in range(60)]
    return [g.pick((b'RPUSH', b'LPUSH')), g.key('l')] + items


@list_.add(0.02)
def push_big(g):
    return [b'RPUSH', g.pick(BIG['l'])] + [element(g) for _ in range(1000)]


@list_.add(0.1)
def push_large_values(g):
    return [g.pick((b'RPUSH', b'LPUSH')), g.key('l'), b'L' * g.pick((4000, 8100, 8191, 8192, 8193, 10000))]


@list_.add(0.5)
def encoding(g):
    return [b'OBJECT', b'ENCODING', g.key('l')]


@list_.add(0.8)
def forget(g):
    return [g.pick((b'DEL', b'UNLINK')), g.key('l', 0)]


# --- blocking -------------------------------------------------------------------

def blocking_command(g, timeout):
    kind = g.n(6)
    if kind == 0:
        return [g.pick((b'BLPOP', b'BRPOP'))] + g.some(lambda: g.key('l'), 3) + [timeout]
    if kind == 1:
        return [b'BLMOVE', g.key('l'), g.key('l'), side(g), side(g), timeout]
    if kind == 2:
        return [b'BRPOPLPUSH', g.key('l'), g.key('l'), timeout]
    if kind == 3:
        return [b'BLMPOP', timeout] + mpop_keys(g, 'l') + [side(g)] + \
            g.options(lambda: [b'COUNT', g.count()], p=0.5)
    if kind == 4:
        return [g.pick((b'BZPOPMIN', b'BZPOPMAX'))] + g.some(lambda: g.key('z'), 3) + [timeout]
    return [b'BZMPOP', timeout] + mpop_keys(g, 'z') + [g.opt(g.pick((b'MIN', b'MAX')))] + \
        g.options(lambda: [b'COUNT', g.count()], p=0.5)


@blocking.add(2, mutate=False)
def in_multi(g):
    # Inside MULTI nothing blocks, whatever the timeout says.
    argv = blocking_command(g, g.pick((b'0', b'1', b'0.5')))
    return Op([b'MULTI'], argv, ([b'EXEC'], exec_rule([(argv, None)])))


@blocking.add(0.4)
def outside(g):
    # mutate() may drop or add an argument: keep the group form, which it leaves alone.
    timeout = g.pick((b'0.001', b'0.001', b'-1', b'abc', b'', b'nan', b'1e400', b'0.002'))
    return Op(blocking_command(g, timeout))
