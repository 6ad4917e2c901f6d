"""Sorted sets."""
import compare as c
from gen import BIG, family
from gen_list import mpop_keys
from op import Op

zset = family('zset', 1.8)
zlex = family('zlex', 0.5)


@zset.add(13)
def zadd(g):
    argv = [b'ZADD', g.key('z')] + g.options(b'NX', b'XX', b'GT', b'LT', b'CH', p=0.12)
    pairs = 1 + g.n(4)
    if g.p(0.05):
        argv.append(g.opt(b'INCR'))
        pairs = 1 if g.p(0.9) else pairs
    for _ in range(pairs):
        argv += [g.score(), g.member()]
    return argv


@zset.add(2)
def zincrby(g):
    return [b'ZINCRBY', g.key('z'), g.score(), g.member()]


@zset.add(3)
def zrem(g):
    return [b'ZREM', g.key('z')] + g.some(g.member, 5)


@zset.add(4)
def one(g):
    if g.p(0.1):
        return [g.pick((b'ZRANK', b'ZREVRANK')), g.key('z'), g.member(), g.pick((b'WITHSCORE', b'withscore', b'x'))]
    return [g.pick((b'ZSCORE', b'ZRANK', b'ZREVRANK')), g.key('z'), g.member()]


@zset.add(1)
def zmscore(g):
    return [b'ZMSCORE', g.key('z')] + g.some(g.member, 5)


@zset.add(1)
def zcard(g):
    return [b'ZCARD', g.key('z')]


def bound(g):
    r = g.random()
    if r < 0.15:
        return g.pick((b'-inf', b'+inf', b'inf', b'(inf', b'(-inf'))
    value = g.num(-10, 30) if g.p(0.8) else g.pick((b'0.1', b'1.5', b'-2.25', b'4.9', b'1e5'))
    if r < 0.18:
        return g.pick((b'nan', b'abc', b'', b'(', b'((1', b'(nan', b' 1', b'[1', b'1\x00'))
    return b'(' + value if g.p(0.25) else value


def bounds(g, reverse=False):
    """Low before high most of the time: random ones are empty half of the time."""
    a, b = bound(g), bound(g)
    if g.p(0.5):
        a, b = (b'+inf', a) if reverse else (a, b'+inf')
    return [a, b]


def limit(g, p=0.3):
    if not g.p(p):
        return []
    return [g.opt(b'LIMIT'), g.num(0, 4) if g.p(0.9) else g.integer(),
            g.num(-1, 8) if g.p(0.9) else g.integer()]


@zset.add(2)
def zcount(g):
    return [b'ZCOUNT', g.key('z')] + bounds(g)


@zset.add(3)
def zrange_rank(g):
    return [g.pick((b'ZRANGE', b'ZREVRANGE')), g.key('z'), g.index(), g.index()] + \
        g.options(b'WITHSCORES', p=0.5)


@zset.add(1)
def zrange_all(g):
    return [b'ZRANGE', g.key('z'), b'0', b'-1', b'WITHSCORES']


@zset.add(3)
def zrangebyscore(g):
    reverse = g.p(0.5)
    return [b'ZREVRANGEBYSCORE' if reverse else b'ZRANGEBYSCORE', g.key('z')] + bounds(g, reverse) + \
        g.options(b'WITHSCORES', p=0.4) + limit(g)


def zrange_tail(g):
    """Arguments of ZRANGE and ZRANGESTORE, lex ranges left to the zlex family."""
    reverse = g.options(b'REV', p=0.3)
    if g.p(0.5):
        return [g.index(), g.index()] + reverse + limit(g, 0.05)
    return bounds(g, bool(reverse)) + [g.opt(b'BYSCORE')] + reverse + limit(g)


@zset.add(4)
def zrange(g):
    return [b'ZRANGE', g.key('z')] + zrange_tail(g) + g.options(b'WITHSCORES', p=0.4)


@zset.add(2)
def zrangestore(g):
    return [b'ZRANGESTORE', g.dest('z'), g.key('z')] + zrange_tail(g) + g.options(b'WITHSCORES', p=0.01)


def sources(g):
    """Sorted sets and sets alike, with their count, at times wrong."""
    keys = [g.key('z' if g.p(0.8) else 't', 0.02) for _ in range(1 + g.n(4))]
    count = len(keys) if g.p(0.97) else g.n(6) - 1
    return keys, [b'%d' % count] + keys


def weights(g, keys):
    argv = []
    if g.p(0.35):
        count = len(keys) if g.p(0.95) else g.n(4)
        argv += [g.opt(b'WEIGHTS')] + [g.pick((b'1', b'2', b'0', b'-1', b'0.5', b'inf', b'-inf', b'3', b'1e300'))
                                       if g.p(0.97) else g.float() for _ in range(count)]
    if g.p(0.35):
        argv += [g.opt(b'AGGREGATE'), g.opt(g.pick((b'SUM', b'MIN', b'MAX')))]
    return argv


@zset.add(3)
def algebra(g):
    keys, argv = sources(g)
    name = g.pick((b'ZUNION', b'ZINTER', b'ZDIFF'))
    tail = [] if name == b'ZDIFF' and g.p(0.95) else weights(g, keys)
    return [name] + argv + tail + g.options(b'WITHSCORES', p=0.5)


@zset.add(3)
def algebra_store(g):
    keys, argv = sources(g)
    name = g.pick((b'ZUNIONSTORE', b'ZINTERSTORE', b'ZDIFFSTORE'))
    tail = [] if name == b'ZDIFFSTORE' and g.p(0.95) else weights(g, keys)
    return [name, g.dest('z')] + argv + tail


@zset.add(1)
def zintercard(g):
    _, argv = sources(g)
    return [b'ZINTERCARD'] + argv + g.options(lambda: [b'LIMIT', g.count()])


@zset.add(2)
def zpop(g):
    argv = [g.pick((b'ZPOPMIN', b'ZPOPMAX')), g.key('z')]
    if g.p(0.4):
        argv.append(g.count())
    return argv


@zset.add(1)
def zmpop(g):
    return [b'ZMPOP'] + mpop_keys(g, 'z') + [g.opt(g.pick((b'MIN', b'MAX')))] + \
        g.options(lambda: [b'COUNT', g.count()], p=0.5)


@zset.add(1)
def zremrange(g):
    if g.p(0.5):
        return [b'ZREMRANGEBYRANK', g.key('z'), g.index(), g.index()]
    return [b'ZREMRANGEBYSCORE', g.key('z')] + bounds(g)


@zset.add(1.2, mutate=False)
def zrandmember(g):
    key = g.key('z')
    argv, distinct, pairs = [b'ZRANDMEMBER', key], True, False
    if g.p(0.75):
        count = -30 + g.n(61)
        argv.append(b'%d' % count if g.p(0.95) else g.pick((b'abc', b'9223372036854775808', b'')))
        distinct = count >= 0
        if g.p(0.4):
            argv.append(g.opt(b'WITHSCORES'))
            pairs = True
    return Op([b'ZRANGE', key, b'0', b'-1', b'WITHSCORES'],
              (argv, c.random_pick(with_pairs=pairs, distinct=distinct, pool_pairs=True)))


@zset.add(0.15)
def zadd_bulk(g):
    """Around zset-max-listpack-entries (128)."""
    argv = [b'ZADD', g.key('z')]
    for i in range(g.pick((60, 120, 127, 128, 129, 140))):
        argv += [b'%d' % (i * 7 % 50), b'b%d' % i]
    return argv


@zset.add(0.02)
def zadd_big(g):
    argv, base = [b'ZADD', g.pick(BIG['z'])], g.n(3000)
    for i in range(1000):
        argv += [g.num(-1000, 1000), b'x%d' % (base + i)]
    return argv


@zset.add(1)
def encoding(g):
    return [b'OBJECT', b'ENCODING', g.key('z')]


@zset.add(1)
def forget(g):
    return [g.pick((b'DEL', b'UNLINK')), g.key('z', 0)]


# --- lexicographic ranges: all members of a key have the same score ---------------

def lex_member(g):
    if g.p(0.05):
        return g.val()
    return bytes(g.pick(b'abcAB') for _ in range(g.n(4)))


def lex_bound(g):
    r = g.random()
    if r < 0.2:
        return g.pick((b'-', b'+'))
    if r < 0.25:
        return g.pick((b'a', b'', b'-x', b'+x', b'-inf', b'\x00'))
    return g.pick((b'[', b'(')) + lex_member(g)


def lex_bounds(g, reverse=False):
    if g.p(0.3):
        return [b'+', lex_bound(g)] if reverse else [lex_bound(g), b'+']
    return [lex_bound(g), lex_bound(g)]


@zlex.add(6, mutate=False)
def lex_add(g):
    argv = [b'ZADD', g.own('zl', 0)]
    size = 1 + g.n(8) if g.p(0.99) else 150
    for _ in range(size):
        argv += [b'0', lex_member(g) if size < 100 else bytes(g.pick(b'abcdef') for _ in range(5))]
    return argv


@zlex.add(2, mutate=False)
def zlexcount(g):
    return [b'ZLEXCOUNT', g.own('zl')] + lex_bounds(g)


@zlex.add(4, mutate=False)
def zrangebylex(g):
    reverse = g.p(0.5)
    return [b'ZREVRANGEBYLEX' if reverse else b'ZRANGEBYLEX', g.own('zl')] + lex_bounds(g, reverse) + limit(g)


@zlex.add(4, mutate=False)
def zrange_bylex(g):
    reverse = g.options(b'REV', p=0.4)
    return [b'ZRANGE', g.own('zl')] + lex_bounds(g, bool(reverse)) + [g.opt(b'BYLEX')] + reverse + \
        limit(g) + g.options(b'WITHSCORES', p=0.03)


@zlex.add(1, mutate=False)
def zrangestore_bylex(g):
    return [b'ZRANGESTORE', g.dest('z'), g.own('zl')] + lex_bounds(g) + [g.opt(b'BYLEX')] + limit(g)


@zlex.add(1, mutate=False)
def zremrangebylex(g):
    return [b'ZREMRANGEBYLEX', g.own('zl')] + lex_bounds(g)


@zlex.add(1, mutate=False)
def lex_rem(g):
    return [b'ZREM', g.own('zl', 0)] + g.some(lambda: lex_member(g), 4)


@zlex.add(0.3, mutate=False)
def lex_forget(g):
    return [b'DEL', g.own('zl', 0)]
