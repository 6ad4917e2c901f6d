"""Streams. IDs are explicit and mostly ascend; delivery times are either given (long ago) or now, and idle times are
asked for as 0 or an hour, so that both servers must decide alike."""
from compare import pending_times, stream_times
from gen import BIG, DEDICATED, GENERAL, NASTY, family
from gen_dump import DumpOp
from op import Op

stream = family('stream', 1.5)

GROUPS = [b'g1', b'g2', b'g3', b'g\x00', b'g\x00\x01', b'']
CONSUMERS = [b'alice', b'bob', b'carol', b'al', b'al\x00', b'\xff\xfe', b'']
HOUR = b'3600000'


def fresh_id(g):
    """Ascending in the long run; at times too low, or with a sequence to be made up."""
    g.stream_clock = getattr(g, 'stream_clock', 0) + g.pick((0, 0, 1, 1, 2, 40))
    r = g.random()
    if r < 0.45:
        return b'%d-%d' % (g.stream_clock, g.n(400))
    if r < 0.85:
        return b'%d-*' % g.stream_clock
    if r < 0.93:
        return b'%d' % g.stream_clock
    odd = odd_id(g) if r < 0.96 else known_id(g)
    # Not the clock's, and none of the highest: deleted again, XSETID goes below it, and Redis's node is out of order.
    return odd if odd != b'*' and b'18446744073709551615' not in odd and b'9223372036854775808' not in odd else b'0-*'


def known_id(g):
    """One that is likely to be there, or near one."""
    at = max(0, getattr(g, 'stream_clock', 0) - int(g.random() ** 2 * 60))
    return b'%d-%d' % (at, g.pick((0, 0, 0, 1, 1, 2, 3, 5))) if g.p(0.9) else b'%d' % at


def odd_id(g):
    if g.p(0.3):
        return g.pick(NASTY)
    return g.pick((b'0-0', b'0', b'0-1', b'-', b'+', b'$', b'>', b'*', b'5-', b'-5', b'+5', b'05-01', b'5-*', b'1-1-1',
                   b'5--3',
                   b'18446744073709551615-18446744073709551615', b'18446744073709551615', b'18446744073709551616-1',
                   b'18446744073709551615-*', b'9223372036854775808-5', b'(5', b'1' * 130))


def some_id(g):
    return known_id(g) if g.p(0.94) else odd_id(g)


def edge(g, low):
    r = g.random()
    if r < 0.4:
        return b'-' if low else b'+'
    if r < 0.5:
        return b'(' + some_id(g)
    return some_id(g)


def group(g):
    r = g.random()
    return GROUPS[int(r * r * len(GROUPS))]


def consumer(g):
    r = g.random()
    return CONSUMERS[int(r * r * len(CONSUMERS))]


def fields(g):
    r = g.random()
    if r < 0.5:
        return [b'name', g.val(), b'n', g.val()]
    if r < 0.7:
        return [b'f', g.member()]
    return [x for _ in range(1 + g.n(5)) for x in (g.member(), g.val())]


def count(g):
    return g.options(lambda: [b'COUNT', g.count()], p=0.4)


def trim(g):
    how = g.pick((b'MAXLEN', b'MAXLEN', b'MINID'))
    out = [g.opt(how)] + g.pick(([], [b'='], [b'~'], [b'~']))
    if how == b'MAXLEN':
        out.append(g.num(0, 250) if g.p(0.95) else g.integer())
    else:
        out.append(some_id(g))
    limits = b'0', b'1', b'50', b'100', b'150', b'1000', b'-1', b'x'
    return out + g.options(lambda: [b'LIMIT', g.pick(limits)], p=0.2)


# --- entries ------------------------------------------------------------------------

@stream.add(12, mutate=False)      # an ID of * is the clock's
def xadd(g):
    options = g.options(b'NOMKSTREAM', p=0.06)
    if g.p(0.12):
        options += trim(g)
    return [b'XADD', g.key('x')] + options + [fresh_id(g)] + fields(g)


@stream.add(1.2, mutate=False)
def xadd_many(g):
    """Fills nodes, which hold 100 entries or 4096 bytes."""
    key, same = g.key('x', 0), fields(g)
    return Op(*[[b'XADD', key, b'%d-*' % getattr(g, 'stream_clock', 0)] + (same if g.p(0.8) else fields(g))
                for _ in range(g.pick((20, 60, 130)))])


@stream.add(0.1, mutate=False)
def small_nodes(g):
    key, clock = g.key('x', 0), b'%d-*' % getattr(g, 'stream_clock', 0)
    name = g.pick((b'stream-node-max-entries', b'stream-node-max-bytes'))
    value, before = (g.pick((b'3', b'1', b'0', b'300')), b'100') if name.endswith(b'entries') else \
        (g.pick((b'100', b'1', b'0')), b'4096')
    adds = [[b'XADD', key, clock] + fields(g) for _ in range(g.pick((7, 20)))]
    return Op([b'CONFIG', b'SET', name, value], *adds, [b'XTRIM', key, b'MAXLEN', b'~', g.num(0, 30)],
              [b'CONFIG', b'SET', name, before])


@stream.add(0.2, mutate=False)
def xadd_auto(g):
    key = g.pick(DEDICATED['xa'])
    return Op(([b'XADD', key, b'*', b'f', b'v'], lambda ctx, a, b: a[0] == b[0] == '$'), [b'XLEN', key], [b'DEL', key])


@stream.add(2)
def xtrim(g):
    return [b'XTRIM', g.key('x')] + trim(g)


@stream.add(4)
def xdel(g):
    return [b'XDEL', g.key('x')] + g.some(lambda: some_id(g), 4)


@stream.add(1)
def xlen(g):
    return [b'XLEN', g.key('x')]


@stream.add(4)
def xrange(g):
    if g.p(0.6):
        return [b'XRANGE', g.key('x'), edge(g, True), edge(g, False)] + count(g)
    return [b'XREVRANGE', g.key('x'), edge(g, False), edge(g, True)] + count(g)


@stream.add(0.4)
def xsetid(g):
    return [b'XSETID', g.key('x'), some_id(g)] + g.options(
        lambda: [b'ENTRIESADDED', g.num(-1, 400)], lambda: [b'MAXDELETEDID', some_id(g)])


# --- reading ------------------------------------------------------------------------

@stream.add(4)
def xread(g):
    keys = g.some(lambda: g.key('x'), 3)
    ids = [some_id(g) if g.p(0.85) else b'$' for _ in keys]
    if g.p(0.03):
        ids.pop()
    return [b'XREAD'] + count(g) + [g.opt(b'STREAMS')] + keys + ids


def group_read(g):
    keys = g.some(lambda: g.key('x'), 2)
    ids = [b'>' if g.p(0.75) else some_id(g) for _ in keys]
    return [b'XREADGROUP', g.opt(b'GROUP'), group(g), consumer(g)] + count(g) + g.options(b'NOACK', p=0.15) + \
        [g.opt(b'STREAMS')] + keys + ids


@stream.add(8)
def xreadgroup(g):
    return group_read(g)


@stream.add(0.5, mutate=False)
def blocking_in_multi(g):
    argv = group_read(g) if g.p(0.5) else xread(g)
    return Op([b'MULTI'], argv[:1] + [b'BLOCK', g.pick((b'0', b'10'))] + argv[1:], [b'EXEC'])


@stream.add(0.1, mutate=False)
def blocking(g):
    argv = group_read(g) if g.p(0.5) else xread(g)
    return Op(argv[:1] + [b'BLOCK', g.pick((b'1', b'1', b'-1', b'abc', b'1.5', b''))] + argv[1:])


# --- groups -------------------------------------------------------------------------

@stream.add(2)
def xgroup_create(g):
    return [b'XGROUP', g.opt(b'CREATE'), g.key('x'), group(g), g.pick((b'0', b'$', some_id(g)))] + g.options(
        b'MKSTREAM', lambda: [b'ENTRIESREAD', g.num(-2, 50)], p=0.2)


@stream.add(1)
def xgroup_setid(g):
    return [b'XGROUP', g.opt(b'SETID'), g.key('x'), group(g), g.pick((b'0', b'$', some_id(g)))] + g.options(
        lambda: [b'ENTRIESREAD', g.num(-2, 50)], p=0.2)


@stream.add(1)
def xgroup_others(g):
    r = g.random()
    if r < 0.15:
        return [b'XGROUP', b'DESTROY', g.key('x'), group(g)]
    if r < 0.6:
        return [b'XGROUP', b'CREATECONSUMER', g.key('x'), group(g), consumer(g)]
    if r < 0.95:
        return [b'XGROUP', b'DELCONSUMER', g.key('x'), group(g), consumer(g)]
    return g.pick(([b'XGROUP'], [b'XGROUP', b'CREATE', b'x0'], [b'XGROUP', b'NO', b'x0', b'g1'],
                   [b'XGROUP', b'CREATE', b'x0', b'g1', b'$', b'FOO'],
                   [b'XGROUP', b'SETID', b'x0', b'g1', b'0', b'MKSTREAM']))


@stream.add(3)
def xack(g):
    return [b'XACK', g.key('x'), group(g)] + g.some(lambda: some_id(g), 5)


def idle(g):
    return g.pick((b'0', b'0', HOUR, b'-1', b'x') if g.p(0.1) else (b'0', HOUR))


@stream.add(4)
def xclaim(g):
    argv = [b'XCLAIM', g.key('x'), group(g), consumer(g), idle(g)] + g.some(lambda: some_id(g), 4)
    return argv + g.options(lambda: [b'TIME', g.num(1, 1_000_000)], lambda: [b'RETRYCOUNT', g.num(-1, 9)], b'FORCE',
                            b'JUSTID', lambda: [b'LASTID', some_id(g)], lambda: [b'IDLE', g.pick((b'0', b'x'))], p=0.25)


@stream.add(3)
def xautoclaim(g):
    return [b'XAUTOCLAIM', g.key('x'), group(g), consumer(g), idle(g), g.pick((b'0', b'-', edge(g, True)))] + \
        g.options(lambda: [b'COUNT', g.count()], b'JUSTID', p=0.4)


@stream.add(4)
def xpending(g):
    argv = [b'XPENDING', g.key('x'), group(g)]
    if g.p(0.4):
        return argv
    argv += g.options(lambda: [b'IDLE', idle(g)], p=0.2)
    argv += [edge(g, True), edge(g, False), g.count()] + ([consumer(g)] if g.p(0.3) else [])
    return argv, pending_times


@stream.add(3)
def xinfo(g):
    r = g.random()
    if r < 0.3:
        return [b'XINFO', b'STREAM', g.key('x')], stream_times
    if r < 0.6:
        return [b'XINFO', b'STREAM', g.key('x'), g.opt(b'FULL')] + count(g), stream_times
    if r < 0.8:
        return [b'XINFO', g.opt(b'GROUPS'), g.key('x')]
    if r < 0.98:
        return [b'XINFO', b'CONSUMERS', g.key('x'), group(g)], stream_times
    wrong = ([b'XINFO'], [b'XINFO', b'NO', b'x0'], [b'XINFO', b'STREAM', b'x0', b'EMPTY'], [b'XINFO', b'STREAM'])
    return g.pick(wrong), stream_times     # which becomes right when mutate() takes its last argument away


# --- whole streams ------------------------------------------------------------------

@stream.add(0.3)
def forget(g):
    return [g.pick((b'DEL', b'UNLINK')), g.key('x', 0)]


@stream.add(0.4)
def whole(g):
    return g.pick(([b'TYPE', g.key('x')], [b'COPY', g.key('x'), g.key('x')],
                   [b'COPY', g.key('x'), g.key('x'), b'REPLACE'], [b'RENAME', g.key('x'), g.key('x')],
                   [b'DEBUG', b'DIGEST-VALUE', g.key('x')], [b'SORT', g.key('x', 0)],
                   [b'EXPIRE', g.key('x'), g.rel_s()]))


@stream.add(0.5, mutate=False)
def crosswise(g):
    """Into keys that are only read, and trimmed exactly: what Redis dumps has its deleted entries in it, so that
    nodes are not the same any more."""
    source, target = g.pick(GENERAL['x'] + BIG['x']), g.pick(DEDICATED['xd'])
    return Op(special=DumpOp(source, [b'RESTORE', target, b'0'], [b'REPLACE']))


@stream.add(1.5)
def restored(g):
    key = g.pick(DEDICATED['xd'])
    return g.pick(([b'XRANGE', key, b'-', b'+'], [b'XLEN', key], [b'XDEL', key, some_id(g)],
                   [b'XTRIM', key, b'MAXLEN', g.num(0, 100)], [b'XADD', key, fresh_id(g)] + fields(g),
                   [b'XACK', key, group(g), some_id(g)], [b'XINFO', b'GROUPS', key], [b'DEBUG', b'DIGEST-VALUE', key],
                   [b'XREADGROUP', b'GROUP', group(g), consumer(g), b'COUNT', b'3', b'STREAMS', key, b'>'],
                   ([b'XPENDING', key, group(g), b'-', b'+', b'100'], pending_times)))


@stream.add(0.05)
def big(g):
    return [b'XADD', g.pick(BIG['x']), fresh_id(g)] + [x for i in range(300) for x in (b'field%d' % i, g.val())]
