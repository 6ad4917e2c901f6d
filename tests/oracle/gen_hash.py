"""Hashes."""
import compare as c
from gen import BIG, family
from op import Op

hash_ = family('hash', 1.4)


@hash_.add(8)
def hset(g):
    argv = [g.pick((b'HSET', b'HSET', b'HSET', b'HMSET')), g.key('h')]
    for _ in range(1 + g.n(4)):
        argv += [g.member(), g.val()]
    return argv


@hash_.add(2)
def hsetnx(g):
    return [b'HSETNX', g.key('h'), g.member(), g.val()]


@hash_.add(5)
def hget(g):
    return [g.pick((b'HGET', b'HGET', b'HEXISTS', b'HSTRLEN')), g.key('h'), g.member()]


@hash_.add(2)
def hmget(g):
    return [b'HMGET', g.key('h')] + g.some(g.member, 6)


@hash_.add(3)
def hdel(g):
    return [b'HDEL', g.key('h')] + g.some(g.member, 6)


@hash_.add(1)
def hlen(g):
    return [b'HLEN', g.key('h')]


READ_ALL = ((b'HGETALL', c.unordered_pairs, c.packed_order_pairs),
            (b'HKEYS', c.unordered, c.packed_order),
            (b'HVALS', c.unordered, c.packed_order))


@hash_.add(3)
def read_all(g):
    name, loose, packed = g.pick(READ_ALL)
    key = g.key('h')
    if g.p(0.5):
        return [name, key], loose
    return Op([b'OBJECT', b'ENCODING', key], ([name, key], packed))


@hash_.add(4)
def hincrby(g):
    # Few fields, so that they are numbers often enough.
    field = g.pick((b'n1', b'n2', b'n3')) if g.p(0.8) else g.member()
    if g.p(0.6):
        return [b'HINCRBY', g.key('h'), field, g.integer()]
    return [b'HINCRBYFLOAT', g.key('h'), field, g.float()]


@hash_.add(1)
def hset_number(g):
    return [b'HSET', g.key('h'), g.pick((b'n1', b'n2', b'n3')), g.pick((g.integer(), g.float()))]


@hash_.add(1.5, mutate=False)
def hrandfield(g):
    key = g.key('h')
    argv, distinct, pairs = [b'HRANDFIELD', key], True, False
    if g.p(0.75):
        count = -30 + g.n(61) if g.p(0.95) else 0
        argv.append(b'%d' % count if g.p(0.95) else g.pick((b'abc', b'9223372036854775808', b'')))
        distinct = count >= 0
        if g.p(0.4):
            argv.append(g.opt(b'WITHVALUES'))
            pairs = True
    return Op(([b'HGETALL', key], c.unordered_pairs),
              (argv, c.random_pick(with_pairs=pairs, distinct=distinct, pool_pairs=True)))


@hash_.add(0.15)
def hset_bulk(g):
    """Around hash-max-listpack-entries (128), one way or the other."""
    argv = [b'HSET', g.key('h')]
    for i in range(g.pick((60, 120, 126, 127, 128, 129, 140))):
        argv += [b'b%d' % i, b'%d' % i]
    return argv


@hash_.add(0.02)
def hset_big(g):
    argv = [b'HSET', g.pick(BIG['h'])]
    base = g.n(3000)
    for i in range(1000):
        argv += [b'f%d' % (base + i), g.val()]
    return argv


@hash_.add(0.5)
def hdel_bulk(g):
    return [b'HDEL', g.key('h')] + [b'b%d' % i for i in range(g.n(140))] + [b'x']


@hash_.add(1)
def encoding(g):
    return [b'OBJECT', b'ENCODING', g.key('h')]


@hash_.add(1.3)
def forget(g):
    return [g.pick((b'DEL', b'UNLINK')), g.key('h', 0)]
