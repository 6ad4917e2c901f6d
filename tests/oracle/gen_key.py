"""Keys, expiry, SORT, and the SCAN family."""
import compare as c
from gen import DELETABLE, GENERAL, family
from op import Op
from scanop import ScanOp

key = family('key', 1.0)
expire = family('expire', 1.0)
sort = family('sort', 0.5)
scan = family('scan', 0.05)


@key.add(2)
def delete(g):
    return [g.pick((b'DEL', b'DEL', b'UNLINK'))] + g.some(lambda: g.pick(DELETABLE), 3)


@key.add(2)
def exists(g):
    return [g.pick((b'EXISTS', b'TOUCH'))] + g.some(lambda: g.pick(DELETABLE), 5)


@key.add(2)
def type_(g):
    return [b'TYPE', g.pick(DELETABLE)]


@key.add(2)
def encoding(g):
    k = g.pick(DELETABLE)
    return [b'OBJECT', g.opt(b'ENCODING'), k if not k.startswith((b'so_z', b'x')) else b'so_l0']


@key.add(0.3)
def object_other(g):
    k = g.any_key()
    return g.pick((([b'OBJECT', b'FREQ', k], None), ([b'OBJECT', b'IDLETIME', k], c.near(1000)),
                   ([b'OBJECT', b'NOSUCH', k], None), ([b'OBJECT', b'ENCODING'], None),
                   ([b'OBJECT', b'ENCODING', k, k], None), ([b'OBJECT'], None)))


@key.add(0.4)
def keys(g):
    return [b'KEYS', g.pick((b'*', b's*', b'?1', b'[hl]*', b'[^s]?', b'*0', b'[a-h]?', b'\\s1', b'nokey',
                             b'', b'[', b'[a-', b's[0-9]', b'**', b'*[', b'[\\h]1', b'z?*', b'k\xff*',
                             b'[z-a]3', b'*\x00*', b's1\\'))], c.unordered


@key.add(0.5, mutate=False)
def randomkey(g):
    return Op(([b'KEYS', b'*'], c.unordered), ([b'RANDOMKEY'], c.random_pick()))


def same_kind(g):
    """Source and destination usually of one type, so that types don't mix up."""
    if g.p(0.9):
        pool = GENERAL[g.pick('shltz')]
        return g.pick(pool), g.pick(pool)
    return g.any_key(), g.any_key()


@key.add(2, mutate=False)
def rename(g):
    a, b = same_kind(g)
    return [g.pick((b'RENAME', b'RENAMENX')), a, b]


@key.add(2, mutate=False)
def copy(g):
    a, b = same_kind(g)
    db = lambda: [b'DB', g.num(0, 16) if g.p(0.95) else g.integer()]
    return [b'COPY', a, b] + g.options(b'REPLACE', db, p=0.4)


@key.add(1, mutate=False)
def move(g):
    return [b'MOVE', g.any_key(), g.num(0, 16) if g.p(0.95) else g.integer()]


@key.add(0.5)
def dbsize(g):
    return [b'DBSIZE']


@key.add(1.2, mutate=False)
def select(g):
    # Mostly database 0, so that keys meet there.
    return [b'SELECT', g.pick((b'0', b'0', b'0', b'0', b'0', b'1')) if g.p(0.93) else
            g.pick((b'2', b'5', b'15', b'16', b'-1', b'abc', b'', b'9223372036854775808'))]


@key.add(0.03, mutate=False)
def swapdb(g):
    return [b'SWAPDB', g.num(0, 3) if g.p(0.9) else g.integer(), g.num(0, 3) if g.p(0.9) else b'99']


@key.add(0.02, mutate=False)
def flush(g):
    return [g.pick((b'FLUSHDB', b'FLUSHDB', b'FLUSHALL'))] + \
        g.pick(([], [b'SYNC'], [b'ASYNC'], [b'foo'], [b'SYNC', b'ASYNC']))


# --- expiry -----------------------------------------------------------------------

def condition(g):
    return g.options(b'NX', b'XX', b'GT', b'LT', p=0.15)


@expire.add(6, mutate=False)
def expire_relative(g):
    if g.p(0.5):
        return [b'EXPIRE', g.any_key(), g.rel_s()] + condition(g)
    return [b'PEXPIRE', g.any_key(), g.rel_ms()] + condition(g)


@expire.add(6, mutate=False)
def expire_absolute(g):
    name = g.pick((b'EXPIREAT', b'PEXPIREAT'))
    r = g.random()
    if r < 0.93:
        when = g.abs_s() if name == b'EXPIREAT' else g.abs_ms()
    elif r < 0.96:      # the past deletes at once
        when = g.pick((b'0', b'1', b'-1', b'-9223372036854775', b'1600000000'))
    else:
        when = g.pick((b'9223372036854775', b'9223372036854775807', b'abc', b'', b'1.5', b'9223372036854775808'))
    return [name, g.any_key(), when] + condition(g)


@expire.add(3)
def persist(g):
    return [b'PERSIST', g.any_key()]


TTL_RULES = {b'TTL': c.near_s, b'PTTL': c.near_ms, b'EXPIRETIME': c.deadline_s, b'PEXPIRETIME': c.deadline_ms}


@expire.add(8)
def ttl(g):
    name = g.pick(sorted(TTL_RULES))
    return [name, g.any_key()], TTL_RULES[name]


# --- SORT ---------------------------------------------------------------------------

@sort.add(4, mutate=False)
def sort_data(g):
    numbers = [g.pick((b'%d', b'%d', b'%d.5')) % g.n(15) for _ in range(1 + g.n(5))]
    r = g.n(8)
    if r == 0:
        return [b'RPUSH', g.own('sol', 0)] + numbers
    if r == 1:
        return [b'SADD', g.own('sos', 0)] + numbers
    if r == 2:
        return [b'ZADD', g.own('soz', 0)] + [x for n in numbers for x in (b'%d' % g.n(10), n)]
    if r == 3:
        return [b'DEL', g.own(g.pick(('sol', 'sos', 'soz')), 0)]
    if r == 4:
        return [b'LTRIM', g.own('sol', 0), b'-20', b'-1']
    if r == 5:
        return [b'HSET', b'wh_%d' % g.n(15), b'f', g.num(-20, 20), b'g', g.val()]
    if r == 6 and g.p(0.3):
        return [b'DEL', b'w_%d' % g.n(15), b'wh_%d' % g.n(15)]
    return [b'SET', b'w_%d' % g.n(15), g.num(-20, 20) if g.p(0.99) else g.val()]


def sort_key(g):
    """(key, may be a set, numeric only)"""
    r = g.random()
    if r < 0.8:
        kind = g.pick(('sol', 'sos', 'soz'))
        return g.own(kind, 0), kind == 'sos', True
    return g.any_key() if r < 0.84 else g.pick(GENERAL[g.pick('ltz')]), True, False


def sort_rule(maybe_set, numeric, by, alpha, limited, gets):
    if by is not None and b'*' not in by:       # not sorted at all
        return (c.same_size if limited else c.unordered) if maybe_set else None
    if by is not None and alpha:                # equal weights leave the order open
        return c.same_size if limited else c.unordered
    if alpha and not numeric:
        return c.same_size if gets else c.alpha(limited)
    return None


@sort.add(7, mutate=False)
def sort_(g):
    k, maybe_set, numeric = sort_key(g)
    by = alpha = None
    parts, limited, gets = [], False, False
    if g.p(0.35):
        by = g.pick((b'w_*', b'w_*', b'wh_*->f', b'nosort', b'none_*', b'wh_*->none', b'*', b'wh_1->*'))
        parts.append([g.opt(b'BY'), by])
    if g.p(0.3):
        limited = True
        parts.append([g.opt(b'LIMIT'), g.num(-1, 4) if g.p(0.97) else g.integer(),
                      g.num(-1, 6) if g.p(0.97) else g.integer()])
    if g.p(0.3):
        gets = True
        parts += [[g.opt(b'GET'), g.pick((b'#', b'w_*', b'wh_*->g', b'none_*', b'wh_*->', b'x'))]
                  for _ in range(1 + g.n(2))]
    if g.p(0.4):
        parts.append([g.opt(g.pick((b'ASC', b'DESC')))])
    if g.p(0.9 if not numeric else 0.25):
        alpha = True
        parts.append([g.opt(b'ALPHA')])
    store = g.p(0.2)
    if store:
        parts.append([g.opt(b'STORE'), b'so_d'])
    g.rng.shuffle(parts)
    name = b'SORT_RO' if g.p(0.03 if store else 0.3) else b'SORT'
    argv = [name, k] + [x for p in parts for x in p]
    rule = sort_rule(maybe_set, numeric, by, alpha, limited, gets)
    cmds = [(argv, rule)]
    if store:
        cmds = [argv, [b'DEL', b'so_d'] if by is not None and alpha else [b'LRANGE', b'so_d', b'0', b'-1']]
    if not numeric:
        # SORT turns a packed sorted set into a skiplist, an accident nobody need
        # copy: don't leave one behind. (Of so_z* no encoding is compared.)
        cmds.append([b'DEL', k])
    # Redis's SORT takes a left-over errno of an earlier command (ZADD k 5e-324 m) for its
    # own and fails; reading a fraction right before it clears that, in every version.
    return Op([b'GEOSEARCH', b'so_errno', b'FROMLONLAT', b'1', b'1', b'BYRADIUS', b'1', b'm'], *cmds)


# --- SCAN: both iterate to the end, the sets must agree -------------------------------

SCANS = (b'SCAN', b'SSCAN', b'HSCAN', b'ZSCAN')
SCAN_KIND = {b'SSCAN': 't', b'HSCAN': 'h', b'ZSCAN': 'z'}


def scan_options(g, name):
    argv = g.options(lambda: [b'MATCH', g.pick((b'*', b'm*', b's?', b'[hl]*', b'*1*', b'nothing', b''))],
                     lambda: [b'COUNT', g.pick((b'1', b'5', b'10', b'100', b'1000'))], p=0.4)
    if name == b'SCAN' and g.p(0.4):
        argv += [g.opt(b'TYPE'), g.pick((b'string', b'hash', b'list', b'set', b'zset', b'stream', b'foo', b'HASH'))]
    return argv


@scan.add(4, mutate=False)
def scan_all(g):
    name = g.pick(SCANS)
    head = [name] if name == b'SCAN' else [name, g.key(SCAN_KIND[name])]
    return Op(special=ScanOp(head, scan_options(g, name)))


@scan.add(2, mutate=False)
def scan_bad(g):
    name = g.pick(SCANS)
    head = [name] if name == b'SCAN' else [name, g.key(SCAN_KIND[name])]
    return head + g.pick(([b'abc'], [b''], [b'-1x'], [b'0', b'COUNT', b'0'], [b'0', b'COUNT', b'-1'],
                          [b'0', b'COUNT', b'abc'], [b'0', b'MATCH'], [b'0', b'FOO', b'1'], [b' 0'],
                          [b'99999999999999999999999'], [b'0', b'NOVALUES'], [])), c.same_size
