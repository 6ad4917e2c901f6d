"""Strings, bitmaps, HyperLogLog, LCS."""
from gen import DEDICATED, family
from op import Op

string = family('string', 1.6)
bitmap = family('bitmap', 0.8)
hll = family('hll', 0.4)
lcs = family('lcs', 0.15)


@string.add(6)
def get(g):
    return [g.pick((b'GET', b'GET', b'GET', b'STRLEN', b'GETDEL')), g.key('s')]


@string.add(6, mutate=False)
def set_plain(g):
    return [b'SET', g.dest('s'), g.val()]


def set_ttl(g):
    kind = g.pick((b'EX', b'PX', b'EXAT', b'PXAT'))
    if kind == b'EX':
        value = g.rel_s()
    elif kind == b'PX':
        value = g.rel_ms()
    elif g.p(0.1):
        value = g.bad_abs()
    else:
        value = g.abs_s() if kind == b'EXAT' else g.abs_ms()
    return [kind, value]


@string.add(6, mutate=False)
def set_options(g):
    return [b'SET', g.dest('s'), g.val()] + g.options(
        b'NX', b'XX', b'GET', b'KEEPTTL', lambda: set_ttl(g), p=0.25)


@string.add(1, mutate=False)
def set_past(g):
    # Redis keeps such a key until somebody looks: EXISTS does, or DBSIZE would race.
    key = g.dest('s')
    tail = g.pick(([b'EXAT', b'1'], [b'PXAT', b'1000'], [b'PXAT', b'1600000000000', b'GET']))
    return Op([b'SET', key, g.val()] + tail, [b'EXISTS', key])


@string.add(4, mutate=False)
def getex(g):
    key = g.key('s')
    r = g.random()
    if r < 0.2:
        return [b'GETEX', key]
    if r < 0.3:
        return [b'GETEX', key, g.opt(b'PERSIST')]
    if r < 0.4:
        return [b'GETEX', key] + g.pick(([b'EXAT', b'1'], [b'PXAT', b'1000']))
    argv = [b'GETEX', key] + set_ttl(g)
    return argv + g.options(b'PERSIST', b'KEEPTTL', b'NX', p=0.05)


@string.add(3, mutate=False)
def setex(g):
    if g.p(0.5):
        return [b'SETEX', g.dest('s'), g.rel_s(), g.val()]
    return [b'PSETEX', g.dest('s'), g.rel_ms(), g.val()]


@string.add(3)
def setnx_getset(g):
    return [g.pick((b'SETNX', b'GETSET', b'APPEND', b'APPEND')), g.key('s'), g.val()]


@string.add(2, mutate=False)
def setrange(g):
    r = g.random()
    if r < 0.9:
        offset = g.num(0, 120)
    elif r < 0.93:
        offset = g.num(0, 20000)
    else:
        offset = g.pick((b'-1', b'536870912', b'536870911', b'9223372036854775807', b'abc', b''))
    value = g.pick((b'', b'x', b'hello', b'\x00\xff'))
    if offset == b'536870911' and len(value) < 2:
        value = b'xx'       # one byte there would allocate 512 MB
    return [b'SETRANGE', g.key('s'), offset, value]


@string.add(3)
def getrange(g):
    return [g.pick((b'GETRANGE', b'GETRANGE', b'SUBSTR')), g.key('s'), g.index(), g.index()]


@string.add(6)
def incr(g):
    r = g.random()
    if r < 0.4:
        return [g.pick((b'INCR', b'DECR')), g.key('s')]
    if r < 0.75:
        return [g.pick((b'INCRBY', b'DECRBY')), g.key('s'), g.integer()]
    return [b'INCRBYFLOAT', g.key('s'), g.float()]


@string.add(3)
def incr_fresh(g):
    # Most pool strings aren't numbers; start from one so that arithmetic gets deep.
    key = g.pick((b's0', b's1', b's2'))
    start = g.pick((g.integer(), g.float()))
    argv = g.pick(([b'INCR', key], [b'DECR', key], [b'INCRBY', key, g.integer()],
                   [b'DECRBY', key, g.integer()], [b'INCRBYFLOAT', key, g.float()]))
    return Op([b'SET', key, start], argv, [b'GET', key], [b'OBJECT', b'ENCODING', key])


@string.add(2)
def mget(g):
    return [b'MGET'] + g.some(lambda: g.key('s'), 5)


@string.add(2)
def mset(g):
    argv = [g.pick((b'MSET', b'MSETNX'))]
    for _ in range(1 + g.n(4)):
        argv += [g.dest('s'), g.val()]
    return argv


@string.add(1)
def encoding(g):
    return [b'OBJECT', g.opt(b'ENCODING'), g.key('s')]


@string.add(0.5)
def refcount(g):
    key = g.dest('s')
    return Op([b'SET', key, g.pick((b'1', b'9999', b'10000', b'-1', b'abc', b''))],
              [b'OBJECT', b'REFCOUNT', key])


# --- bitmaps ------------------------------------------------------------------

def bit_offset(g):
    r = g.random()
    if r < 0.9:
        return g.num(0, 300)
    if r < 0.94:
        return g.num(0, 70000)
    return g.pick((b'-1', b'4294967296', b'9223372036854775807', b'abc', b'', b'#5', b'1.5'))


@bitmap.add(5, mutate=False)
def setbit(g):
    return [b'SETBIT', g.key('s'), bit_offset(g), g.pick((b'0', b'1', b'1', b'1', b'2', b'-1', b'x'))
            if g.p(0.1) else g.pick((b'0', b'1'))]


@bitmap.add(3)
def getbit(g):
    return [b'GETBIT', g.key('s'), bit_offset(g)]


@bitmap.add(4)
def bitcount(g):
    argv = [b'BITCOUNT', g.key('s')]
    if g.p(0.7):
        argv += [g.index(), g.index()]
        argv += g.options(b'BIT', p=0.3) or g.options(b'BYTE', p=0.3)
    return argv


@bitmap.add(4)
def bitpos(g):
    argv = [b'BITPOS', g.key('s'), g.pick((b'0', b'1')) if g.p(0.95) else g.integer()]
    for _ in range(g.n(3)):
        argv.append(g.index())
    if len(argv) == 5:
        argv += g.options(b'BIT', p=0.3) or g.options(b'BYTE', p=0.3)
    return argv


@bitmap.add(4)
def bitop(g):
    op = g.opt(g.pick((b'AND', b'OR', b'XOR', b'NOT')))
    sources = g.some(lambda: g.key('s'), 1 if op == b'NOT' and g.p(0.9) else 4)
    return [b'BITOP', op, g.dest('s')] + sources


def bf_type(g):
    if g.p(0.05):
        return g.pick((b'u64', b'i65', b'u0', b'i0', b'x8', b'u', b'', b'u-1'))
    return g.pick((b'u', b'i')) + g.pick((b'1', b'2', b'3', b'5', b'8', b'16', b'31', b'32', b'33', b'63')) \
        if g.p(0.9) else b'i64'


def bf_offset(g):
    if g.p(0.05):
        return g.pick((b'-1', b'#-1', b'abc', b'', b'4294967296', b'#9223372036854775807', b'#'))
    return g.pick((b'#', b'')) + g.num(0, 60)


def bf_value(g):
    return g.pick((b'0', b'1', b'-1', b'7', b'255', b'256', b'127', b'128', b'-128', b'-129', b'65535',
                   b'4294967296', b'9223372036854775807', b'-9223372036854775808')) \
        if g.p(0.97) else g.integer()


@bitmap.add(8, mutate=False)
def bitfield(g):
    readonly = g.p(0.2)
    argv = [b'BITFIELD_RO' if readonly else b'BITFIELD', g.key('s')]
    for _ in range(g.n(5)):
        kind = b'GET' if readonly and g.p(0.9) else g.pick((b'GET', b'SET', b'SET', b'INCRBY', b'INCRBY', b'OVERFLOW'))
        if kind == b'OVERFLOW':
            argv += [g.opt(kind), g.opt(g.pick((b'WRAP', b'SAT', b'FAIL')))]
        elif kind == b'GET':
            argv += [g.opt(kind), bf_type(g), bf_offset(g)]
        else:
            argv += [g.opt(kind), bf_type(g), bf_offset(g), bf_value(g)]
    return argv


# --- HyperLogLog ----------------------------------------------------------------

@hll.add(6, mutate=False)
def pfadd(g):
    r = g.random()
    count = g.n(6) if r < 0.9 else g.n(200) if r < 0.99 else 2500
    return [b'PFADD', g.key('p', 0.02)] + [b'e%d' % g.n(20000) for _ in range(count)]


@hll.add(3)
def pfcount(g):
    return [b'PFCOUNT'] + g.some(lambda: g.key('p'), 1 if g.p(0.6) else 3)


@hll.add(2, mutate=False)
def pfmerge(g):
    return [b'PFMERGE', g.key('p', 0.01)] + g.some(lambda: g.key('p', 0.03), 3, 0)


@hll.add(0.5, mutate=False)
def pfdebug(g):
    what = g.pick((b'DECODE', b'DECODE', b'ENCODING', b'TODENSE', b'GETREG', b'NOSUCH'))
    return [b'PFDEBUG', g.opt(what), g.key('p', 0.03)]


@hll.add(1.5, mutate=False)
def pf_bytes(g):
    """The stored form itself; run.py drops these with --no-hll-bytes."""
    return [g.pick((b'GET', b'STRLEN')), g.key('p', 0)]


@hll.add(0.7, mutate=False)
def pf_forget(g):
    return [b'DEL', g.key('p', 0)]


# --- LCS ----------------------------------------------------------------------

@lcs.add(4, mutate=False)
def lcs_set(g):
    letters = g.pick((b'ab', b'abc', b'abcdefgh', b'\x00\x01a'))
    return [b'SET', g.pick(DEDICATED['lcs']), bytes(g.pick(letters) for _ in range(g.n(50)))]


@lcs.add(6, mutate=False)
def lcs_get(g):
    # At most one stray key: LCS of two long strings is quadratic.
    return [b'LCS', g.own('lcs'), g.pick(DEDICATED['lcs'])] + g.options(
        b'IDX', b'LEN', lambda: [b'MINMATCHLEN', g.count()], b'WITHMATCHLEN', p=0.4)
