"""Compares the whole dataset: every key of every database."""
import compare as c
from op import Op

DATABASES = 16


def value_cmds(kind, key):
    """Commands that read the value; packed collections have a defined order."""
    if kind == b'string':
        return [[b'GET', key]]
    if kind == b'list':
        return [[b'LRANGE', key, b'0', b'-1']]
    if kind == b'hash':
        return [[b'OBJECT', b'ENCODING', key], ([b'HGETALL', key], c.packed_order_pairs)]
    if kind == b'set':
        return [[b'OBJECT', b'ENCODING', key], ([b'SMEMBERS', key], c.intset_order)]
    if kind == b'zset':
        return [[b'ZRANGE', key, b'0', b'-1', b'WITHSCORES']]
    if kind == b'stream':
        full = c.restored_stream_times if key.startswith(b'xd') else c.stream_times
        return [[b'XRANGE', key, b'-', b'+'], ([b'XINFO', b'STREAM', key, b'FULL', b'COUNT', b'0'], full)]
    return []


def listing(databases, with_dbsize):
    ops = []
    for db in range(databases):
        tail = [[b'DBSIZE']] if with_dbsize else []
        ops.append(Op([b'SELECT', b'%d' % db], ([b'KEYS', b'*'], c.unordered), *tail))
    return ops


def check(pair, with_dbsize=True):
    """(number of commands, difference, operation to reproduce it with)."""
    ops = listing(pair.databases, with_dbsize)
    count, width = sum(len(op.cmds) for op in ops), len(ops[0].cmds)
    diff, replies = pair.replies(ops)
    if diff:
        return count, diff, ops[diff.index]
    for db in range(pair.databases):
        keys = sorted(r[1] for r in replies[db * width + 1][1])
        if not keys:
            continue
        n, diff, op = check_keys(pair, db, keys)
        count += n
        if diff:
            return count, diff, op
    return count, None, None


def check_keys(pair, db, keys):
    select = [b'SELECT', b'%d' % db]
    types = [Op(select, [b'TYPE', k]) for k in keys]
    diff, replies = pair.replies(types)
    if diff:
        return len(replies), diff, types[diff.index]
    ops = []
    for key, kind in zip(keys, replies[1::2]):
        ops.append(Op(select, *value_cmds(kind[1], key)))
        ops.append(Op(select, ([b'PEXPIRETIME', key], c.deadline_ms)))
        if not key.startswith((b'so_z', b'x')):     # SORT converts sorted sets, see gen_key.py
            ops[-1].cmds.append(([b'OBJECT', b'ENCODING', key], None))
    diff, more = pair.replies(ops)
    return len(replies) + len(more), diff, ops[diff.index] if diff else None


def digest(conn):
    """A digest of the value of every key of one server, and its deadlines."""
    found = {}
    for db in range(DATABASES):
        conn.call(b'SELECT', b'%d' % db)
        for key in (r[1] for r in conn.call(b'KEYS', b'*')[1]):
            value = conn.call(b'DEBUG', b'DIGEST-VALUE', key)[1][0][1]
            fields = ()
            if conn.call(b'TYPE', key)[1] == b'hash':
                names = [r[1] for r in conn.call(b'HKEYS', key)[1]]
                fields = tuple(r[1] for r in conn.call(b'HPEXPIRETIME', key, b'FIELDS', b'%d' % len(names), *names)[1])
            found[db, key] = (value, conn.call(b'PEXPIRETIME', key)[1], tuple(sorted(map(str, fields))))
    return found
