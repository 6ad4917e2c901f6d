"""Chooses the next command of a load client: random commands that make sense with its data."""
import collections
import random
import time

from model import Model

NAMES = 24                  # keys a client plays with, per database
FAR_MS = 3_600_000          # deadlines from here on don't come during a test


class Chooser:
    """Random commands that make sense on a client's state, as it will be once all sent ones have run."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.serial = 0
        self.model = Model()
        self.mortal = collections.deque(maxlen=64)     # names of keys that die soon, or have
        self.kinds = {kind: self.weigh(choices) for kind, choices in self.CHOICES.items()}

    @staticmethod
    def weigh(choices):
        return [name for name, weight in choices.items() for _ in range(weight)]

    CHOICES = {
        None: dict(new_string=4, new_hash=3, new_list=3, new_set=3, new_zset=4),
        'string': dict(overwrite=6, append=3, incr=3, setrange=2, getdel=1, mset=2, any=5),
        'hash': dict(hset=6, hdel=3, hincr=3, field_deadline=3, field_persist=1, any=4),
        'list': dict(push=6, pop=4, lset=2, ltrim=1, linsert=2, lrem=2, lmove=2, any=4),
        'set': dict(sadd=6, srem=4, smove=2, algebra=2, any=4),
        'zset': dict(zadd=6, zrem=3, zincr=3, zpop=2, zremrange=1, zunion=2, any=4),
        'any': dict(delete=6, overwrite=2, rename=3, copy=3, move=2, expire=4, persist=2, brief=10, brief_field=4),
    }

    def next(self, db):
        """Commands that belong together."""
        r = self.rng
        self.serial += 1
        chance = r.random()
        if chance < 0.001:
            return [('FLUSHDB', r.choice(('SYNC', 'ASYNC')))]
        if chance < 0.003:
            return [('SWAPDB',)]
        if chance < 0.03:
            return self.on_the_dead(db)
        key = self.name()
        found = self.model.dbs[db].get(key)
        what = r.choice(self.kinds[found.kind if found else None])
        if what == 'any':
            what = r.choice(self.kinds['any'])
        return getattr(self, what)(db, key, found)

    # -- names, values -----------------------------------------------------------------------

    def name(self):
        return b'k:%d' % self.rng.randrange(NAMES)

    def other(self, db, kind):
        """A key of this type, or an absent one."""
        for _ in range(8):
            key = self.name()
            v = self.model.dbs[db].get(key)
            if v is None or v.kind == kind:
                return key
        return b'k:%s:0' % kind.encode()

    def value(self):
        r = self.rng
        size = r.choice((0, 8, 30, 100)) if r.random() < 0.97 else r.choice((1000, 5000, 20000, 70000))
        return b'%d.' % self.serial + r.randbytes(size)

    def few(self):
        return self.rng.randint(1, 8) if self.rng.random() < 0.97 else self.rng.randint(200, 900)

    def members(self):
        n = self.few()
        return [b'm%d' % self.rng.randrange(30 if n < 10 else 3000) for _ in range(n)]

    def some_of(self, found):
        """Members that are there, and others."""
        there = list(found.data)
        n = min(self.few(), len(there))
        chosen = self.rng.sample(there, n) if self.rng.random() < 0.8 else self.members()
        return chosen or [b'none']

    def later(self):
        return int(time.time() * 1000) + FAR_MS + self.rng.randrange(10**10)

    def soon(self):
        return int(time.time() * 1000) + self.rng.randint(40, 2500)

    # -- new keys ------------------------------------------------------------------------------

    def new_string(self, _db, key, _found):
        if self.rng.random() < 0.2:
            return [('SET', key, self.value(), 'PXAT', self.later())]
        return [('SET', key, self.value())]

    def new_hash(self, _db, key, _found):
        return [('HSET', key, *(x for m in self.members() for x in (m, self.value())))]

    def new_list(self, _db, key, _found):
        return [(self.rng.choice(('RPUSH', 'LPUSH')), key, *(self.value()[:50] for _ in range(self.few())))]

    def new_set(self, _db, key, _found):
        return [('SADD', key, *self.members())]

    def new_zset(self, _db, key, _found):
        return [('ZADD', key, *(x for m in self.members() for x in (self.score(), m)))]

    def score(self):
        r = self.rng
        return r.choice((r.randrange(-20, 20), r.randrange(-20, 20), r.uniform(-1e3, 1e3), r.random() * 1e-200))

    overwrite, hset, push, sadd, zadd = new_string, new_hash, new_list, new_set, new_zset

    # -- any key -------------------------------------------------------------------------------

    def delete(self, _db, key, _found):
        if self.rng.random() < 0.3:
            return [('DEL', key, self.name())]
        return [(self.rng.choice(('DEL', 'UNLINK')), key)]

    def rename(self, _db, key, _found):
        return [('RENAME', key, self.name())]

    def copy(self, db, key, _found):
        to = self.name()
        if self.rng.random() < 0.5 or to == key:
            return [('COPY', key, to, 'DB', 1 - db, 'REPLACE')]
        return [('COPY', key, to, 'REPLACE')]

    def move(self, db, key, _found):
        return [('MOVE', key, 1 - db)]

    def expire(self, _db, key, _found):
        return [('PEXPIREAT', key, self.later())]

    def persist(self, _db, key, _found):
        return [('PERSIST', key)]

    def brief(self, db, key, found):
        """A key that dies soon, of any type; no command touches it again before it is surely dead."""
        name = b't:%d' % self.serial
        self.mortal.append(name)
        if self.rng.random() < 0.4:
            return [('SET', name, self.value(), 'PXAT', self.soon())]
        make = self.rng.choice((self.new_string, self.new_hash, self.new_list, self.new_set, self.new_zset))
        return make(db, name, None) + [('PEXPIREAT', name, self.soon())]

    def brief_field(self, _db, _key, _found):
        name = b'ht:%d' % self.serial
        self.mortal.append(name)
        fields = [b'f%d' % i for i in range(self.rng.randint(1, 12))]
        dying = self.rng.sample(fields, self.rng.randint(1, len(fields)))
        return [('HSET', name, *(x for f in fields for x in (f, self.value()[:40]))),
                ('HPEXPIREAT', name, self.soon(), 'FIELDS', len(dying), *dying)]

    def on_the_dead(self, db):
        """A command that meets a key, or fields, that died: they go, and it does what it does without them.
        Two effects, or more, that belong together."""
        before = int(time.time() * 1000) - 100
        for _ in range(8):
            key = self.rng.choice(self.mortal) if self.mortal else b'none'
            found = self.model.dbs[db].get(key)
            if found is None or found.near(before):
                continue
            what = {'hash': [('HSET', key, b'n%d' % self.serial, self.value()), ('HINCRBY', key, b'n', 7)],
                    'string': [('APPEND', key, self.value()), ('SETRANGE', key, 3, b'%d' % self.serial)],
                    'list': [('RPUSH', key, self.value()[:50]), ('LPUSH', key, b'a', b'b')],
                    'set': [('SADD', key, *self.members())],
                    'zset': [('ZADD', key, 1, b'a', 2, b'b'), ('ZINCRBY', key, 3, b'a')]}[found.kind]
            return [('DEAD', before, *self.rng.choice(what))]
        return [('GETDEL', b'none')]

    # -- strings -----------------------------------------------------------------------------------

    def append(self, _db, key, _found):
        return [('APPEND', key, self.value()[:200])]

    def incr(self, _db, key, found):
        if found.data.lstrip(b'-').isdigit() and len(found.data) < 15:
            return [('INCRBY', key, self.rng.randint(-1000, 1000))]
        return [('SET', key, b'%d' % self.rng.randrange(10**6), 'KEEPTTL')]

    def setrange(self, _db, key, _found):
        return [('SETRANGE', key, self.rng.randrange(300), b'%d.' % self.serial)]

    def getdel(self, _db, key, _found):
        return [('GETDEL', key)]

    def mset(self, _db, key, _found):
        return [('MSET', key, self.value(), self.name(), self.value(), self.name(), self.value())]

    # -- hashes -------------------------------------------------------------------------------------

    def hdel(self, _db, key, found):
        return [('HDEL', key, *self.some_of(found))]

    def hincr(self, _db, key, _found):
        return [('HINCRBY', key, b'n%d' % self.rng.randrange(4), self.rng.randint(1, 100))]

    def field_deadline(self, _db, key, found):
        fields = list(dict.fromkeys(self.some_of(found)))[:50]
        return [('HPEXPIREAT', key, self.later(), 'FIELDS', len(fields), *fields)]

    def field_persist(self, _db, key, found):
        fields = list(dict.fromkeys(self.some_of(found)))[:50]
        return [('HPERSIST', key, 'FIELDS', len(fields), *fields)]

    # -- lists ----------------------------------------------------------------------------------------

    def pop(self, _db, key, _found):
        return [(self.rng.choice(('LPOP', 'RPOP')), key, self.few())]

    def lset(self, _db, key, found):
        return [('LSET', key, self.rng.randrange(len(found.data)), self.value()[:50])]

    def ltrim(self, _db, key, found):
        n = len(found.data)
        start = self.rng.randrange(1 + n // 3)
        return [('LTRIM', key, start, n - 1 - self.rng.randrange(1 + n // 3))]

    def linsert(self, _db, key, found):
        return [('LINSERT', key, 'BEFORE', self.rng.choice(found.data), self.value()[:50])]

    def lrem(self, _db, key, found):
        return [('LREM', key, self.rng.randint(1, 2), self.rng.choice(found.data))]

    def lmove(self, db, key, _found):
        return [('LMOVE', key, self.other(db, 'list'), 'LEFT', 'RIGHT')]

    # -- sets, sorted sets ----------------------------------------------------------------------------

    def srem(self, _db, key, found):
        return [('SREM', key, *self.some_of(found))]

    def smove(self, db, key, found):
        return [('SMOVE', key, self.other(db, 'set'), self.some_of(found)[0])]

    def algebra(self, db, key, _found):
        return [(self.rng.choice(('SUNIONSTORE', 'SDIFFSTORE')), self.name(), key, self.other(db, 'set'))]

    def zrem(self, _db, key, found):
        return [('ZREM', key, *self.some_of(found))]

    def zincr(self, _db, key, found):
        return [('ZINCRBY', key, self.rng.randint(-9, 9), self.some_of(found)[0])]

    def zpop(self, _db, key, _found):
        return [('ZPOPMIN', key, self.few())]

    def zremrange(self, _db, key, found):
        start = self.rng.randrange(len(found.data))
        return [('ZREMRANGEBYRANK', key, start, start + self.few())]

    def zunion(self, db, key, _found):
        return [('ZUNIONSTORE', self.name(), 2, key, self.other(db, 'zset'))]
