"""Random schedules of clients that wait for lists, sorted sets and streams, and of clients that add to them."""
from schedule import CLOSE, CLOSED, RESP3, replies_in

CLIENTS = 'ABCDEFGH'
LISTS = ('l1', 'l2', 'l3')
ZSETS = ('z1', 'z2')
STREAMS = ('s1', 's2')
KEYS = LISTS + ZSETS + STREAMS + ('x',)


class Generator:
    """Knows which clients wait for an answer, so that other clients add something."""
    keys_waited_for = 3         # by one command, at most

    def __init__(self, rng, known):
        self.rng, self.known = rng, known
        self.owed = dict.fromkeys(CLIENTS, 0)       # replies that have not come yet
        self.serial = 0

    # -- parts of commands ---------------------------------------------------
    def value(self):
        self.serial += 1
        return 'v%d' % self.serial

    def pick(self, usual):
        """A key; now and then one of those others use."""
        return self.rng.choice(usual if self.rng.random() < 0.9 else KEYS)

    def some(self, usual, most=3):
        return ' '.join(self.pick(usual) for _ in range(self.rng.randint(1, most)))

    def side(self):
        return self.rng.choice(('LEFT', 'RIGHT'))

    def values(self):
        return ' '.join(self.value() for _ in range(self.rng.choice((1, 1, 1, 2, 3, 5))))

    def count(self):
        return self.rng.choice(('', '', ' COUNT %d' % self.rng.randint(1, 3)))

    def any_of(self, usual):
        """Keys to wait for."""
        return self.some(usual, self.keys_waited_for)

    def counted(self, usual):
        keys = self.any_of(usual)
        return '%d %s' % (len(keys.split()), keys)

    # -- commands ------------------------------------------------------------
    def waits(self):
        r = self.rng
        if 'xread' in self.known and r.random() < 0.2:
            return self.waits_for_stream()
        return r.choice((
            lambda: 'BLPOP %s 0' % self.any_of(LISTS),
            lambda: 'BLPOP %s 0' % self.any_of(LISTS),
            lambda: 'BRPOP %s 0' % self.any_of(LISTS),
            lambda: 'BLMOVE %s %s %s %s 0' % (self.pick(LISTS), self.pick(LISTS), self.side(), self.side()),
            lambda: 'BRPOPLPUSH %s %s 0' % (self.pick(LISTS), self.pick(LISTS)),
            lambda: 'BLMPOP 0 %s %s%s' % (self.counted(LISTS), self.side(), self.count()),
            lambda: 'BZPOPMIN %s 0' % self.any_of(ZSETS),
            lambda: 'BZPOPMAX %s 0' % self.any_of(ZSETS),
            lambda: 'BZMPOP 0 %s %s%s' % (self.counted(ZSETS), r.choice(('MIN', 'MAX')), self.count()),
        ))()

    def waits_for_stream(self):
        r = self.rng
        keys = r.sample(STREAMS, r.randint(1, min(2, self.keys_waited_for)))
        if r.random() < 0.5:
            return 'XREAD%s BLOCK 0 STREAMS %s %s' % (self.count(), ' '.join(keys),
                                                      ' '.join(r.choice(('$', '$', '0-0')) for _ in keys))
        return 'XREADGROUP GROUP g c%d%s BLOCK 0%s STREAMS %s %s' % (
            r.randint(1, 2), self.count(), r.choice(('', ' NOACK')), ' '.join(keys), ' '.join('>' for _ in keys))

    def brings_stream(self):
        r, key = self.rng, self.pick(STREAMS)
        self.serial += 1
        return r.choice((
            'XADD %s %d-1 f v' % (key, self.serial), 'XADD %s %d-1 f v' % (key, self.serial),
            'XADD %s MAXLEN 2 %d-1 f v' % (key, self.serial), 'XTRIM %s MAXLEN 1' % key,
            'XGROUP CREATE %s g %s MKSTREAM' % (key, r.choice(('$', '0'))), 'XGROUP CREATE %s g $ MKSTREAM' % key,
            'XGROUP DESTROY %s g' % key if r.random() < 0.3 else 'XLEN %s' % key, 'XGROUP SETID %s g 0' % key,
            'XDEL %s %d-1' % (key, self.serial - 1), 'XREADGROUP GROUP g c1 STREAMS %s >' % key,
            'DEL %s' % key if r.random() < 0.3 else 'TYPE %s' % key))

    def brings(self):
        r = self.rng
        if 'xread' in self.known and r.random() < 0.2:
            return self.brings_stream()
        return r.choice((
            lambda: 'RPUSH %s %s' % (self.pick(LISTS), self.values()),
            lambda: 'RPUSH %s %s' % (self.pick(LISTS), self.values()),
            lambda: 'LPUSH %s %s' % (self.pick(LISTS), self.values()),
            lambda: 'LPUSHX %s %s' % (self.pick(LISTS), self.values()),
            lambda: 'LMOVE %s %s %s %s' % (self.pick(LISTS), self.pick(LISTS), self.side(), self.side()),
            lambda: 'LPOP %s' % self.pick(LISTS),
            lambda: 'LREM %s 0 v%d' % (self.pick(LISTS), self.serial),
            lambda: 'ZADD %s %d %s' % (self.pick(ZSETS), r.randint(1, 9), self.value()),
            lambda: 'ZADD %s %d %s %d %s' % (self.pick(ZSETS), r.randint(1, 9), self.value(), r.randint(1, 9),
                                             self.value()),
            lambda: 'ZINCRBY %s 2 %s' % (self.pick(ZSETS), self.value()),
            lambda: 'DEL %s' % self.some(KEYS),
            lambda: 'SET %s %s' % (self.pick(('x',)), self.value()),
            lambda: 'SADD %s %s' % (self.pick(('x',)), self.value()),
            lambda: 'RENAME %s %s' % (self.pick(KEYS), self.pick(KEYS)),
            lambda: 'COPY %s %s REPLACE' % (self.pick(KEYS), self.pick(KEYS)),
            lambda: 'MOVE %s 1' % self.pick(KEYS),
            lambda: 'EXPIRE %s 0' % self.pick(KEYS),
            lambda: 'GETDEL %s' % self.pick(('x',)),
            lambda: 'FLUSHDB' if r.random() < 0.2 else 'PING',
        ))()

    def script(self):
        """Several pushes in one command, which then serves all of them."""
        calls = ' '.join("redis.call('%s','%s','%s');" % (self.rng.choice(('RPUSH', 'LPUSH')), self.pick(LISTS),
                                                          self.value()) for _ in range(self.rng.randint(1, 3)))
        return 'EVAL %s 0' % calls.replace(' ', '')

    def transaction(self):
        inner = [self.brings() if self.rng.random() < 0.8 else self.waits() for _ in range(self.rng.randint(1, 5))]
        # An entry that was deleted again serves no client in Mayfly: see docs/compatibility.md.
        return ['MULTI', *(line for line in inner if not line.startswith('XDEL')), 'EXEC']

    # -- steps ---------------------------------------------------------------
    def next(self):
        r = self.rng
        free = [c for c in CLIENTS if not self.owed[c]]
        waiting = [c for c in CLIENTS if self.owed[c]]
        if not free or (waiting and r.random() < 0.04):
            return self.interfere(r.choice(waiting), free)
        who = r.choice(free)
        if r.random() < 0.03:
            return (who, RESP3)
        dice = r.random()
        if dice < 0.42 and len(free) > 2:
            lines = [self.waits()]
            if r.random() < 0.15:
                lines.append(self.brings())         # which has to wait its turn
        elif dice < 0.88:
            lines = [self.brings() for _ in range(r.choice((1, 1, 1, 2)))]
        elif dice < 0.97 or 'eval' not in self.known:
            lines = self.transaction()
        else:
            lines = [self.script()]
        self.owed[who] += len(lines)
        return (who, *lines)

    def interfere(self, victim, free):
        """Something happens to a waiting client."""
        if not free or self.rng.random() < 0.4:
            self.owed[victim] = 0
            return (victim, CLOSE)
        who = self.rng.choice(free)
        self.owed[who] += 1
        how = self.rng.choice(('CLIENT UNBLOCK {%s}', 'CLIENT UNBLOCK {%s} ERROR', 'CLIENT UNBLOCK {%s} TIMEOUT',
                               'CLIENT KILL ID {%s}'))
        return (who, how % victim)

    def saw(self, heard):
        for name, data in heard.items():
            self.owed[name] = 0 if data.endswith(CLOSED) else self.owed[name] - replies_in(data)
            assert self.owed[name] >= 0, (name, data)

    def final(self):
        """What is left, seen by a client of its own."""
        look = ['LRANGE %s 0 -1' % k for k in KEYS] + ['ZRANGE %s 0 -1 WITHSCORES' % k for k in KEYS] + ['DBSIZE']
        if 'xread' in self.known:
            look += [line % k for k in STREAMS for line in ('XRANGE %s - +', 'XPENDING %s g')]
        return [('Z', *look)]
