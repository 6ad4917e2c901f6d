"""A model of what a client's databases hold: the commands the load uses, on Python's own structures.

Time does not pass in the model. Keys and fields keep their deadlines, and whoever compares (`same`)
says at what time the server was asked. So that no command's effect depends on the very moment it
ran at, the load leaves a key alone once its deadline is near (load.py).
"""

NEAR_MS = 600_000   # a deadline that is further away does not come during a test
TOLERANCE_MS = 20   # between the clock a test reads and the one the server froze for its tick


class Value:
    __slots__ = ('kind', 'data', 'deadline')

    def __init__(self, kind, data, deadline=0):
        self.kind, self.data, self.deadline = kind, data, deadline

    def copy(self):
        data = self.data if self.kind == 'string' else self.data.copy()
        return Value(self.kind, data, self.deadline)

    def near(self, before):
        """Whether it has deadlines that may not have passed (later than `before`), and may come during a test."""
        deadlines = [self.deadline] + [d for _, d in self.data.values()] if self.kind == 'hash' else [self.deadline]
        return any(before < d < before + NEAR_MS for d in deadlines)

    def without_dead(self, before):
        """What is left when everything with a deadline up to then is gone; None: nothing."""
        if self.deadline and self.deadline <= before:
            return None
        if self.kind == 'hash':
            self.data = {f: x for f, x in self.data.items() if not x[1] or x[1] > before}
        return self if self.kind == 'string' or self.data else None

    def __repr__(self):
        text = repr(self.data)
        text = text if len(text) < 600 else f'{text[:600]}… ({len(self.data)})'
        return f'<{self.kind} deadline={self.deadline} {text}>'


class Refused(Exception):
    """A real server answers with an error and does nothing."""


EMPTY = {'hash': dict, 'list': list, 'set': set, 'zset': dict}


class Model:
    """Two databases, 0 and 1. Values of hashes are (value, deadline), of sorted sets scores."""

    def __init__(self):
        self.dbs = [{}, {}]

    def copy(self):
        m = Model()
        m.dbs = [{k: v.copy() for k, v in db.items()} for db in self.dbs]
        return m

    def apply(self, db, args):
        """Runs a command; returns the (db, key) it may have changed, or None: all of them."""
        keys = getattr(self, 'do_' + args[0].lower())(db, *args[1:])
        return None if keys is None else [k if isinstance(k, tuple) else (db, k) for k in keys]

    # -- helpers -----------------------------------------------------------------------------

    def at(self, db, key, kind, make=False):
        v = self.dbs[db].get(key)
        if v is None:
            if not make:
                return None
            v = self.dbs[db][key] = Value(kind, EMPTY[kind]() if kind in EMPTY else b'')
        if v.kind != kind:
            raise Refused(key)
        return v

    def tidy(self, db, key):
        v = self.dbs[db].get(key)
        if v is not None and v.kind != 'string' and not v.data:
            del self.dbs[db][key]
        return [key]

    def put(self, db, key, value):
        if value.kind != 'string' and not value.data:
            self.dbs[db].pop(key, None)
        else:
            self.dbs[db][key] = value
        return [key]

    # -- strings -----------------------------------------------------------------------------

    def do_set(self, db, key, value, *options):
        deadline = 0
        if options and options[0] == 'PXAT':
            deadline = options[1]
        elif options:                                  # KEEPTTL
            old = self.dbs[db].get(key)
            deadline = old.deadline if old else 0
        return self.put(db, key, Value('string', value, deadline))

    def do_mset(self, db, *pairs):
        for key, value in zip(pairs[::2], pairs[1::2]):
            self.put(db, key, Value('string', value))
        return pairs[::2]

    def do_append(self, db, key, value):
        self.at(db, key, 'string', make=True).data += value
        return [key]

    def do_incrby(self, db, key, n):
        v = self.dbs[db].get(key)
        if v is not None and v.kind != 'string':
            raise Refused(key)
        try:
            number = int(v.data) if v else 0
        except ValueError:
            raise Refused(key) from None
        self.at(db, key, 'string', make=True).data = b'%d' % (number + n)
        return [key]

    def do_setrange(self, db, key, offset, value):
        v = self.at(db, key, 'string', make=True)
        data = v.data.ljust(offset, b'\0')
        v.data = data[:offset] + value + data[offset + len(value):]
        return [key]

    def do_getdel(self, db, key):
        self.at(db, key, 'string')
        self.dbs[db].pop(key, None)
        return [key]

    # -- keys ----------------------------------------------------------------------------------

    def do_del(self, db, *keys):
        for k in keys:
            self.dbs[db].pop(k, None)
        return keys

    do_unlink = do_del

    def do_rename(self, db, a, b):
        if a not in self.dbs[db]:
            raise Refused(a)
        self.dbs[db][b] = self.dbs[db].pop(a)
        return [a, b]

    def do_copy(self, db, a, b, *options):             # COPY a b [DB n] REPLACE: n is 0 or 1 here
        to = options[1] if options[0] == 'DB' else db
        if a in self.dbs[db]:
            self.dbs[to][b] = self.dbs[db][a].copy()
        return [(db, a), (to, b)]

    def do_move(self, db, key, to):
        if key in self.dbs[db] and key not in self.dbs[to]:
            self.dbs[to][key] = self.dbs[db].pop(key)
        return [(db, key), (to, key)]

    def do_pexpireat(self, db, key, when):
        if key in self.dbs[db]:
            self.dbs[db][key].deadline = when
        return [key]

    def do_persist(self, db, key):
        return self.do_pexpireat(db, key, 0)

    def do_dead(self, db, before, *args):
        """A command on a key of which everything with a deadline up to then is known to be gone."""
        found = self.dbs[db].get(args[1])
        if found is not None and found.without_dead(before) is None:
            del self.dbs[db][args[1]]
        return getattr(self, 'do_' + args[0].lower())(db, *args[1:])

    def do_flushdb(self, db, *_):
        self.dbs[db].clear()

    def do_swapdb(self, db, *_):
        self.dbs.reverse()

    # -- hashes ----------------------------------------------------------------------------------

    def do_hset(self, db, key, *pairs):
        v = self.at(db, key, 'hash', make=True)
        for field, value in zip(pairs[::2], pairs[1::2]):
            v.data[field] = (value, 0)
        return [key]

    def do_hdel(self, db, key, *fields):
        v = self.at(db, key, 'hash')
        for f in fields if v else ():
            v.data.pop(f, None)
        return self.tidy(db, key)

    def do_hincrby(self, db, key, field, n):
        v = self.at(db, key, 'hash')
        value, deadline = v.data.get(field, (b'0', 0)) if v else (b'0', 0)
        try:
            number = int(value) + n
        except ValueError:
            raise Refused(key) from None
        self.at(db, key, 'hash', make=True).data[field] = (b'%d' % number, deadline)
        return [key]

    def do_hpexpireat(self, db, key, when, _fields, _n, *fields):
        v = self.at(db, key, 'hash')
        for f in fields if v else ():
            if f in v.data:
                v.data[f] = (v.data[f][0], when)
        return [key]

    def do_hpersist(self, db, key, _fields, _n, *fields):
        return self.do_hpexpireat(db, key, 0, None, 0, *fields)

    # -- lists -------------------------------------------------------------------------------------

    def do_rpush(self, db, key, *values):
        self.at(db, key, 'list', make=True).data.extend(values)
        return [key]

    def do_lpush(self, db, key, *values):
        v = self.at(db, key, 'list', make=True)
        v.data[:0] = values[::-1]
        return [key]

    def do_lpop(self, db, key, n):
        v = self.at(db, key, 'list')
        if v:
            del v.data[:n]
        return self.tidy(db, key)

    def do_rpop(self, db, key, n):
        v = self.at(db, key, 'list')
        if v:
            del v.data[max(0, len(v.data) - n):]
        return self.tidy(db, key)

    def do_lset(self, db, key, index, value):
        v = self.at(db, key, 'list')
        if v is None or index >= len(v.data):
            raise Refused(key)
        v.data[index] = value
        return [key]

    def do_ltrim(self, db, key, start, stop):           # both counted from the head
        v = self.at(db, key, 'list')
        if v:
            v.data = v.data[start:stop + 1]
        return self.tidy(db, key)

    def do_linsert(self, db, key, _before, pivot, value):
        v = self.at(db, key, 'list')
        if v and pivot in v.data:
            v.data.insert(v.data.index(pivot), value)
        return [key]

    def do_lrem(self, db, key, count, value):           # count > 0
        v = self.at(db, key, 'list')
        for _ in range(count):
            if v and value in v.data:
                v.data.remove(value)
        return self.tidy(db, key)

    def do_lmove(self, db, a, b, _left, _right):        # LEFT RIGHT
        source, target = self.at(db, a, 'list'), self.at(db, b, 'list')
        if source:
            target = target or self.at(db, b, 'list', make=True)
            target.data.append(source.data.pop(0))
        return self.tidy(db, a) + self.tidy(db, b)

    # -- sets ----------------------------------------------------------------------------------------

    def do_sadd(self, db, key, *members):
        self.at(db, key, 'set', make=True).data.update(members)
        return [key]

    def do_srem(self, db, key, *members):
        v = self.at(db, key, 'set')
        if v:
            v.data.difference_update(members)
        return self.tidy(db, key)

    def do_smove(self, db, a, b, member):
        source, target = self.at(db, a, 'set'), self.at(db, b, 'set')
        if source and member in source.data:
            source.data.discard(member)
            (target or self.at(db, b, 'set', make=True)).data.add(member)
        return self.tidy(db, a) + [b]

    def algebra(self, db, to, keys, combine):
        found = [self.at(db, k, 'set') for k in keys]
        sets = [v.data if v else set() for v in found]
        return self.put(db, to, Value('set', combine(*sets)))

    def do_sunionstore(self, db, to, *keys):
        return self.algebra(db, to, keys, set().union)

    def do_sdiffstore(self, db, to, *keys):
        return self.algebra(db, to, keys, lambda first, *rest: first.difference(*rest))

    # -- sorted sets -----------------------------------------------------------------------------------

    def do_zadd(self, db, key, *pairs):
        v = self.at(db, key, 'zset', make=True)
        for score, member in zip(pairs[::2], pairs[1::2]):
            v.data[member] = float(score)
        return [key]

    def do_zincrby(self, db, key, n, member):
        v = self.at(db, key, 'zset', make=True)
        v.data[member] = v.data.get(member, 0.0) + n
        return [key]

    def do_zrem(self, db, key, *members):
        v = self.at(db, key, 'zset')
        for m in members if v else ():
            v.data.pop(m, None)
        return self.tidy(db, key)

    def do_zremrangebyrank(self, db, key, start, stop):  # both counted from the low end
        v = self.at(db, key, 'zset')
        for _, member in ranked(v.data)[start:stop + 1] if v else ():
            del v.data[member]
        return self.tidy(db, key)

    def do_zpopmin(self, db, key, n):
        return self.do_zremrangebyrank(db, key, 0, n - 1)

    def do_zunionstore(self, db, to, _n, *keys):
        found = [self.at(db, k, 'zset') for k in keys]
        out = {}
        for v in found:
            for member, score in v.data.items() if v else ():
                out[member] = out.get(member, 0.0) + score
        return self.put(db, to, Value('zset', out))


def ranked(scores):
    return sorted((score, member) for member, score in scores.items())


# -- comparing -----------------------------------------------------------------------------------------

def surely_alive(deadline, until_ms):
    return not deadline or until_ms + TOLERANCE_MS < deadline


def surely_dead(deadline, from_ms):
    return bool(deadline) and from_ms - TOLERANCE_MS >= deadline


def same(expected, actual, from_ms, until_ms):
    """Whether what a server showed (None: nothing) between two times is what the model says."""
    if expected is None:
        return actual is None
    may_be_gone = not surely_alive(expected.deadline, until_ms)
    if actual is None:
        if expected.kind == 'hash':
            may_be_gone |= all(not surely_alive(d, until_ms) for _, d in expected.data.values())
        return may_be_gone
    if surely_dead(expected.deadline, from_ms):
        return False
    if (expected.kind, expected.deadline) != (actual.kind, actual.deadline):
        return False
    if expected.kind == 'hash':
        return same_fields(expected.data, actual.data, from_ms, until_ms)
    return expected.data == actual.data


def same_fields(expected, actual, from_ms, until_ms):
    if actual.keys() - expected.keys():
        return False
    for field, (value, deadline) in expected.items():
        if field not in actual:
            if surely_alive(deadline, until_ms):
                return False
        elif actual[field] != (value, deadline) or surely_dead(deadline, from_ms):
            return False
    return True
