"""Rules for replies that may differ.

A rule is a function (ctx, a, b) -> bool on decoded replies, called only when
the raw bytes differ; no rule means byte for byte. ctx.earlier(i) gives the
pair of decoded replies of the i-th command of the same group, for rules that
need to know the contents of a key ("is this member really in the set?").
"""
from collections import Counter

FAR_MS = 4_000_000_000_000      # generators use deadlines beyond this only absolutely
TOLERANCE_MS = 5000


class Ctx:
    def __init__(self, earlier_a=(), earlier_b=(), loose_order=False, on_disk=False, excused=None):
        self.a, self.b, self.loose_order, self.on_disk = earlier_a, earlier_b, loose_order, on_disk
        self.excused = excused  # a function of versions.py

    def earlier(self, i):
        return self.a[i], self.b[i]


def is_error(r):
    return r[0] == '-'


def is_aggregate(r):
    return r[0] in '*~%>' and r[1] is not None


def pairs(r):
    """Flat [f v f v] (RESP2), a map, or [[f v] ...] (RESP3) as a list of pairs."""
    items = r[1]
    if items and r[0] == '*' and items[0][0] == '*':
        return [tuple(i[1]) for i in items]
    return list(zip(items[::2], items[1::2]))


def unordered(ctx, a, b):
    return (a[0] == b[0] and is_aggregate(a) and is_aggregate(b)
            and Counter(a[1]) == Counter(b[1]))


def unordered_pairs(ctx, a, b):
    return (a[0] == b[0] and is_aggregate(a) and is_aggregate(b)
            and len(a[1]) == len(b[1]) and Counter(pairs(a)) == Counter(pairs(b)))


def _packed(ctx):
    enc, _ = ctx.earlier(0)
    return enc[1] in (b'listpack', b'intset') and not ctx.loose_order


def packed_order(ctx, a, b):
    """After OBJECT ENCODING: packed collections have a defined order."""
    return not _packed(ctx) and unordered(ctx, a, b)


def intset_order(ctx, a, b):
    """Likewise of sets. What SUNIONSTORE and its like put into a listpack comes in the order of their walk."""
    return (ctx.earlier(0)[0][1] != b'intset' or ctx.loose_order) and unordered(ctx, a, b)


def packed_order_pairs(ctx, a, b):
    return not _packed(ctx) and unordered_pairs(ctx, a, b)


def normalize(r):
    if is_aggregate(r):
        return (r[0], tuple(sorted((normalize(i) for i in r[1]), key=repr)))
    return r


def deep_unordered(ctx, a, b):
    return normalize(a) == normalize(b)


def same_size(ctx, a, b):
    """Any choice of the same number of elements."""
    return a[0] == b[0] and is_aggregate(a) and is_aggregate(b) and len(a[1]) == len(b[1])


def same_type(ctx, a, b):
    return a[0] == b[0] and not is_error(a) and (a[1] is None) == (b[1] is None)


def near(tolerance):
    def rule(ctx, a, b):
        return (a[0] == b[0] == ':' and a[1] >= 0 and b[1] >= 0
                and abs(a[1] - b[1]) <= tolerance)
    return rule


near_ms = near(TOLERANCE_MS)
near_s = near(TOLERANCE_MS // 1000)


def deadline_ms(ctx, a, b):
    """Absolute deadlines were all chosen beyond FAR_MS and must be exact."""
    return near_ms(ctx, a, b) and max(a[1], b[1]) < FAR_MS


def deadline_s(ctx, a, b):
    return near_s(ctx, a, b) and max(a[1], b[1]) < FAR_MS // 1000


def hello(ctx, a, b):
    """Same fields; values only where they don't name the server."""
    if a[0] != b[0] or not is_aggregate(a) or not is_aggregate(b):
        return False
    da, db = dict(pairs(a)), dict(pairs(b))
    return set(da) == set(db) and all(
        da[k] == db[k] for k in da
        if k[1] in (b'proto', b'mode', b'role', b'modules'))


def _c_string(r):
    return r[0], r[1].split(b'\0')[0] if isinstance(r[1], bytes) else r[1]


def alpha(limited):
    """SORT ALPHA uses strcoll, for which strings end at NUL: ties may swap."""
    def rule(ctx, a, b):
        return (same_size(ctx, a, b)
                and [_c_string(i) for i in a[1]] == [_c_string(i) for i in b[1]]
                and (limited or unordered(ctx, a, b)))
    return rule


def random_pick(with_pairs=False, distinct=True, pool_pairs=False):
    """Members chosen at random: both sides must answer in the same shape and
    only with members listed by the first command of the group."""
    def rule(ctx, a, b):
        if a[0] != b[0] or is_error(a) or (a[1] is None) != (b[1] is None):
            return False
        if a[1] is None:
            return True
        if is_aggregate(a) and len(a[1]) != len(b[1]):
            return False
        return all(_picked(r, ctx.earlier(0)[i], with_pairs, distinct, pool_pairs)
                   for i, r in enumerate((a, b)))
    return rule


def _picked(reply, pool, with_pairs, distinct, pool_pairs):
    members = pairs(pool) if pool_pairs else pool[1]
    if not is_aggregate(reply):
        got = [reply]
    elif with_pairs:
        got = pairs(reply)
    else:
        got = list(reply[1])
    if pool_pairs and not with_pairs:
        members = [m for m, _ in members]
    return set(got) <= set(members) and (not distinct or len(set(got)) == len(got))


def exec_rule(queued):
    """EXEC's array, element by element: queued commands with the rule of each."""
    def same(ctx, argv, r, x, y):
        if ctx.on_disk:
            x, y = one_zero(argv, x), one_zero(argv, y)
            if later_dbsize(argv, x, y) or fresh_encoding(argv, x, y):
                return True
        if ctx.excused and ctx.excused(argv, x, y):
            return True
        return x == y or (r is not None and r(Ctx(loose_order=ctx.loose_order), x, y))

    def rule(ctx, a, b):
        return (same_size(ctx, a, b) and len(a[1]) == len(queued)
                and all(same(ctx, argv, r, x, y) for x, y, (argv, r) in zip(a[1], b[1], queued)))
    return rule


def one_zero(argv, r):
    """What a sorted set command answers, with -0 as 0: the score as rocksdb stores it. And ZSCAN's
    numbers in one form, which in Redis tells the encoding."""
    name = argv[0].upper()
    if not name.startswith((b'Z', b'BZ')):
        return r
    if name == b'ZSCAN' and is_aggregate(r) and len(r[1]) == 2 and is_aggregate(r[1][1]):
        cursor, found = r[1]
        return r[0], (cursor, (found[0], tuple(_plain_number(i) for i in found[1])))
    if is_aggregate(r):
        return r[0], tuple(one_zero(argv, i) for i in r[1])
    return (r[0], b'0') if r[0] in '$,' and r[1] == b'-0' else r


def _plain_number(r):
    try:
        return r[0], b'%r' % (float(r[1]) + 0.0)
    except ValueError:
        return r


FRESH_ENCODING = {b'raw': (b'embstr', b'int'), b'embstr': (b'int',), b'hashtable': (b'listpack', b'intset'),
                  b'skiplist': (b'listpack',), b'quicklist': (b'listpack',), b'listpack': (b'intset',)}


def fresh_encoding(argv, a, b):
    """A value that once was larger, or was changed in place, keeps its encoding in Redis; rocksdb
    reports that of an equal value created again. Of a list it counts what its elements take, Redis those that are
    added by their length."""
    if argv[0].upper() != b'OBJECT':
        return False
    return a[1] in FRESH_ENCODING.get(b[1], ()) or (a[1], b[1]) == (b'quicklist', b'listpack')


def later_dbsize(argv, a, b):
    """Reads don't delete what they find dead: it is counted until the cleaner comes, within 100 ms."""
    return argv[0].upper() == b'DBSIZE' and a[0] == b[0] == ':' and 0 < a[1] - b[1] < 20


NODES = (b'radix-tree-nodes',)


def same_but_times(a, b, skipped):
    """Alike, but for times of about now, idle times, and the values of these fields."""
    if a[0] != b[0]:
        return False
    if not is_aggregate(a) or not is_aggregate(b):
        return a == b or (a[0] == ':' and min(a[1], b[1]) > 10**12 and abs(a[1] - b[1]) <= TOLERANCE_MS)
    if len(a[1]) != len(b[1]):
        return False
    name = None
    for x, y in zip(a[1], b[1]):
        idle = name in (b'idle', b'inactive') and x[0] == y[0] == ':' and abs(x[1] - y[1]) <= TOLERANCE_MS
        if name not in skipped and not idle and not same_but_times(x, y, skipped):
            return False
        name = x[1] if x[0] == '$' else None
    return True


def stream_times(ctx, a, b):
    return same_but_times(a, b, NODES)


def restored_stream_times(ctx, a, b):
    """7.0's payloads, which are also ours, lack the time a consumer was last active."""
    return same_but_times(a, b, NODES + (b'radix-tree-keys', b'active-time', b'inactive'))


def pending_times(ctx, a, b):
    """XPENDING's (id, consumer, idle time, count)."""
    if not same_size(ctx, a, b):
        return False
    return all(same_size(ctx, x, y) and len(x[1]) == 4 and x[1][:2] + x[1][3:] == y[1][:2] + y[1][3:]
               and near_ms(ctx, x[1][2], y[1][2]) for x, y in zip(a[1], b[1]))
