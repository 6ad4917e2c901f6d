"""Geo commands. Geo keys are written by this family only: decoding a score
that isn't a geohash (negative, infinite) is undefined in Redis."""
import compare as c
from gen import family
from op import Op

geo = family('geo', 0.6)

# Each edge position belongs to one member, or equal distances would leave the order open.
EDGES = {b'edge0': (b'180', b'85.05112878'), b'edge1': (b'-180', b'-85.05112878'),
         b'edge2': (b'0', b'0'), b'edge3': (b'179.9999', b'0'), b'edge4': (b'-179.9999', b'1')}
BAD = [(b'180.0001', b'0'), (b'0', b'85.06'), (b'0', b'-86'), (b'abc', b'1'), (b'nan', b'nan'),
       (b'', b''), (b'1e400', b'0'), (b'inf', b'0')]
UNITS = (b'm', b'km', b'km', b'ft', b'mi')


def place(g):
    return b'p%d' % g.n(25) if g.p(0.93) else g.pick(sorted(EDGES))


def position(g):
    if g.p(0.02):
        return g.pick(BAD)
    if g.p(0.8):        # around Sicily, so that radii of some km find several
        return b'%.6f' % (12 + 4 * g.random()), b'%.6f' % (36 + 3 * g.random())
    return b'%.6f' % (-180 + 360 * g.random()), b'%.6f' % (-85 + 170 * g.random())


def unit(g):
    return g.opt(g.pick(UNITS)) if g.p(0.98) else g.pick((b'yd', b''))


def distance(g):
    if g.p(0.03):
        return g.pick((b'-1', b'abc', b'nan', b'', b'0', b'1e400'))
    return g.pick((b'10', b'50', b'100.5', b'200', b'400', b'5000', b'30000', b'300000', b'1000000'))


@geo.add(6, mutate=False)
def geoadd(g):
    argv = [b'GEOADD', g.own('g', 0.02)] + g.options(b'NX', b'XX', b'CH', p=0.1)
    for _ in range(1 + g.n(5)):
        member = place(g)
        argv += list(EDGES.get(member) or position(g)) + [member]
    return argv


@geo.add(0.1, mutate=False)
def geoadd_bulk(g):
    argv = [b'GEOADD', g.own('g', 0)]
    for i in range(200):
        argv += [b'%.6f' % (12 + 4 * g.random()), b'%.6f' % (36 + 3 * g.random()), b'q%d' % i]
    return argv


@geo.add(2)
def geodist(g):
    return [b'GEODIST', g.own('g'), place(g), place(g)] + ([unit(g)] if g.p(0.6) else [])


@geo.add(2)
def geohash(g):
    return [g.pick((b'GEOHASH', b'GEOPOS')), g.own('g')] + g.some(lambda: place(g), 4, 0)


def with_options(g):
    return g.options(b'WITHCOORD', b'WITHDIST', b'WITHHASH', p=0.3)


def order_options(g):
    """(arguments, rule): without an order the reply is a bag; COUNT n implies
    the nearest n, COUNT n ANY whichever n come first."""
    argv = g.options(b'ASC', p=0.4) or g.options(b'DESC', p=0.4)
    rule = None if argv else c.unordered
    if g.p(0.35):
        argv += [g.opt(b'COUNT'), g.count()]
        rule = None
        if g.p(0.3):
            argv.append(g.opt(b'ANY'))
            rule = c.same_size
    return argv, rule


def radius_centre(g):
    if g.p(0.5):
        return b'GEORADIUS', [g.own('g')] + list(position(g))
    return b'GEORADIUSBYMEMBER', [g.own('g'), place(g)]


@geo.add(5, mutate=False)
def georadius(g):
    name, where = radius_centre(g)
    if g.p(0.5):
        name += b'_RO'
    tail, rule = order_options(g)
    return [name] + where + [distance(g), unit(g)] + with_options(g) + tail, rule


def stored(g, argv, rule, dest):
    if rule is c.same_size:     # ANY stores an arbitrary choice
        return Op(argv, [b'DEL', dest])
    return argv


@geo.add(2, mutate=False)
def georadius_store(g):
    name, where = radius_centre(g)
    dest = g.dest('z')
    tail, rule = order_options(g)
    argv = [name] + where + [distance(g), unit(g)] + g.options(b'WITHDIST', p=0.05) + tail + \
        [g.opt(g.pick((b'STORE', b'STOREDIST'))), dest]
    return stored(g, argv, rule, dest)


def search_args(g):
    if g.p(0.5):
        argv = [g.opt(b'FROMLONLAT')] + list(position(g))
    else:
        argv = [g.opt(b'FROMMEMBER'), place(g)]
    if g.p(0.5):
        argv += [g.opt(b'BYRADIUS'), distance(g), unit(g)]
    else:
        argv += [g.opt(b'BYBOX'), distance(g), distance(g), unit(g)]
    if g.p(0.03):
        argv += g.pick(([b'BYRADIUS', b'1', b'km'], [b'FROMMEMBER', b'p1'], [b'STORE', b'x']))
    return argv


@geo.add(5, mutate=False)
def geosearch(g):
    tail, rule = order_options(g)
    return [b'GEOSEARCH', g.own('g')] + search_args(g) + with_options(g) + tail, rule


@geo.add(2, mutate=False)
def geosearchstore(g):
    dest = g.dest('z')
    tail, rule = order_options(g)
    argv = [b'GEOSEARCHSTORE', dest, g.own('g')] + search_args(g) + tail + \
        g.options(b'STOREDIST', p=0.4) + g.options(b'WITHDIST', p=0.03)
    return stored(g, argv, rule, dest)


@geo.add(1, mutate=False)
def as_zset(g):
    key = g.own('g')
    return g.pick(([b'ZRANGE', key, b'0', b'-1', b'WITHSCORES'], [b'ZREM', key, place(g)],
                   [b'ZSCORE', key, place(g)], [b'ZCARD', key]))


@geo.add(0.3, mutate=False)
def forget(g):
    return [b'DEL', g.own('g', 0)]
