"""Sets."""
import compare as c
from gen import BIG, family
from op import Op

set_ = family('set', 1.3)


def member(g, key):
    """Half of the sets hold mostly integers, so that intsets live for a while."""
    if key[-1:] in b'02468' and g.p(0.97):
        return g.intset_member()
    return g.member()


@set_.add(11)
def sadd(g):
    key = g.key('t')
    return [b'SADD', key] + g.some(lambda: member(g, key), 5)


@set_.add(4)
def srem(g):
    key = g.key('t')
    return [b'SREM', key] + g.some(lambda: member(g, key), 5)


@set_.add(2)
def sismember(g):
    key = g.key('t')
    if g.p(0.5):
        return [b'SISMEMBER', key, member(g, key)]
    return [b'SMISMEMBER', key] + g.some(lambda: member(g, key), 5)


@set_.add(1)
def scard(g):
    return [b'SCARD', g.key('t')]


@set_.add(3)
def smembers(g):
    key = g.key('t')
    if g.p(0.5):
        return [b'SMEMBERS', key], c.unordered
    return Op([b'OBJECT', b'ENCODING', key], ([b'SMEMBERS', key], c.intset_order))


@set_.add(2)
def smove(g):
    key = g.key('t')
    return [b'SMOVE', key, g.key('t'), member(g, key)]


@set_.add(3)
def algebra(g):
    return [g.pick((b'SINTER', b'SUNION', b'SDIFF'))] + g.some(lambda: g.key('t', 0.03), 4), c.unordered


@set_.add(3)
def algebra_store(g):
    return [g.pick((b'SINTERSTORE', b'SUNIONSTORE', b'SDIFFSTORE')), g.dest('t')] + \
        g.some(lambda: g.key('t', 0.03), 4)


@set_.add(2)
def sintercard(g):
    keys = g.some(lambda: g.key('t', 0.03), 3)
    count = b'%d' % len(keys) if g.p(0.95) else g.count()
    return [b'SINTERCARD', count] + keys + g.options(lambda: [b'LIMIT', g.count()])


@set_.add(1.5, mutate=False)
def srandmember(g):
    key = g.key('t')
    argv, distinct = [b'SRANDMEMBER', key], True
    if g.p(0.7):
        count = -30 + g.n(61)
        argv.append(b'%d' % count if g.p(0.95) else g.pick((b'abc', b'9223372036854775808', b'')))
        distinct = count >= 0
    return Op(([b'SMEMBERS', key], c.unordered), (argv, c.random_pick(distinct=distinct)))


@set_.add(1, mutate=False)
def spop(g):
    # A partial SPOP leaves different sets behind: check it, then drop the key.
    key = g.key('t')
    if g.p(0.4):
        return Op(([b'SPOP', key, g.pick((b'100000', b'9223372036854775807'))], c.unordered),
                  [b'EXISTS', key])
    argv = [b'SPOP', key]
    if g.p(0.6):
        argv.append(g.num(0, 20) if g.p(0.9) else g.pick((b'-1', b'abc', b'9223372036854775808')))
    return Op(([b'SMEMBERS', key], c.unordered), (argv, c.random_pick()),
              [b'SCARD', key], [b'DEL', key])


@set_.add(0.15)
def sadd_bulk(g):
    """Around set-max-intset-entries (512)."""
    size = g.pick((100, 510, 511, 512, 513, 600))
    return [b'SADD', g.key('t')] + [b'%d' % i for i in range(size)]


@set_.add(0.02)
def sadd_big(g):
    base = g.n(3000)
    return [b'SADD', g.pick(BIG['t'])] + [b'x%d' % (base + i) for i in range(1000)]


@set_.add(1)
def encoding(g):
    return [b'OBJECT', b'ENCODING', g.key('t')]


@set_.add(1)
def forget(g):
    return [g.pick((b'DEL', b'UNLINK')), g.key('t', 0)]
