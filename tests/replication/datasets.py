"""Two servers' data, compared key by key: type, value, PEXPIRETIME, and deadlines of fields if both know them.

Values are compared by DEBUG DIGEST-VALUE, which all kinds of servers compute alike; only where these differ they
are read. What dies while one looks is left out, but nothing may be seen after its deadline."""
import everything
from everything import content, many, reading
from mayfly import Raw, eventually
from nodes import now_ms

DATABASES = range(16)


def facts(c, db, with_fields):
    """{(db, key): [type, digest, PEXPIRETIME, {field: deadline}]} of what was there at first; of streams the digest
    and all that groups have."""
    start = now_ms()
    assert c.call('SELECT', db) == b'OK'
    keys = c.call('KEYS', '*')
    kinds = many(c, (('TYPE', k) for k in keys))
    times = many(c, (('PEXPIRETIME', k) for k in keys))
    # Before the digests: a field that dies between has its deadline here, and the difference is understood.
    fields = {k: field_deadlines(c, k) for k, kind in zip(keys, kinds) if with_fields and kind == b'hash'}
    digests = many(c, (('DEBUG', 'DIGEST-VALUE', k) for k in keys))
    found = {(db, k): [kind, digest[0], when, fields.get(k)]
             for k, kind, digest, when in zip(keys, kinds, digests, times)
             if kind != b'none' and when != -2 and fields.get(k, {}) is not None}
    late = {at: fact for at, fact in found.items() if 0 < fact[2] < start}
    assert not late, f'seen after their deadlines, at {start}: {late}'
    for at, fact in found.items():
        if fact[0] == b'stream':                      # the digest knows nothing of groups
            fact[1] = fact[1], groups(c, at[1], with_fields)
    return found


def groups(c, key, exactly):
    """How much a group has read, Redis does not always tell its replicas, nor of consumers that got nothing (XCLAIM)."""
    whole = c.call(*reading(b'stream', key))
    if not isinstance(whole, list):
        return None
    whole = content(b'stream', whole)
    for group in whole[b'groups']:
        if not exactly:
            for name in (b'entries-read', b'lag'):
                group.pop(name, None)
            group[b'consumers'] = [x for x in group[b'consumers'] if x[b'pending']]
    return whole


def field_deadlines(c, key):
    """None: all fields have died."""
    names = c.call('HKEYS', key)
    if not names:
        return None
    times = c.call('HPEXPIRETIME', key, 'FIELDS', len(names), *names)
    return {f: t for f, t in zip(names, times) if t > 0}


def read(node, with_fields):
    with Raw(node.port, 60) as c:
        return {at: fact for db in DATABASES for at, fact in facts(c, db, with_fields).items()}


def value(node, at, kind):
    with Raw(node.port, 60) as c:
        c.call('SELECT', at[0])
        reply = c.call(*reading(kind, at[1]))
    if kind == b'stream' and not isinstance(reply, list):
        return None                                   # it has died meanwhile
    found = content(kind, reply)
    return [b'0' if x == b'-0' else x for x in found] if kind == b'zset' else found    # rocks has no -0


def dying(fact, end):
    """It, or a field of it, may have died before `end`."""
    return fact and (0 < fact[2] <= end or any(t <= end for t in (fact[3] or {}).values()))


def compare(a, b):
    """Asserts that two nodes, to which nothing writes, have the same data. Returns how many keys."""
    with_fields = 'redis' not in (a.kind, b.kind)
    ours, theirs = read(a, with_fields), read(b, with_fields)
    for at in ours.keys() & theirs.keys():
        x, y = ours[at], theirs[at]
        if x[0] == y[0] and x[1] != y[1]:
            x[1], y[1] = value(a, at, x[0]), value(b, at, x[0])
    end = now_ms()
    ours, theirs = ({at: f for at, f in x.items() if not dying(f, end) and not dying(y.get(at), end)}
                    for x, y in ((ours, theirs), (theirs, ours)))
    everything.same(ours, theirs)
    return len(ours)


def sizes(node):
    with Raw(node.port) as c:
        return [c.call('DBSIZE') for db in DATABASES if c.call('SELECT', db) == b'OK']


def same(primary, *replicas):
    """The same data, and, once all dead keys are deleted, nothing more than that."""
    for r in replicas:
        count = compare(primary, r)
        eventually(lambda replica=r: sizes(primary) == sizes(replica), 20, 0.05)
    return count
