"""Random schedules of subscribers, of clients that cache what they read, and of clients that publish and write."""
from schedule import CLOSE, RESP3

WRITERS, LISTENERS = 'AB', 'CDEF'
CHANNELS = ('c1', 'c2', 'd')
KEYS = ('k1', 'k2', 'u:1', 'u:2')


class Generator:
    """Writers never subscribe, so that they may always do anything. Of patterns that match one and the same channel a
    client has one at most: in which order Redis goes through them is left to chance. REDIRECT is left to
    tests/server/test_tracking.py."""

    def __init__(self, rng, known):
        self.rng, self.known = rng, known
        self.resp3 = set()
        self.first = True

    def some(self, of):
        return ' '.join(self.rng.sample(of, self.rng.randint(1, len(of))))

    def key(self):
        return self.rng.choice(KEYS)

    def writes(self):
        r = self.rng
        return r.choice((
            lambda: 'SET %s %d' % (self.key(), r.randint(1, 9)),
            lambda: 'SET %s %d EX 100' % (self.key(), r.randint(1, 9)),
            lambda: 'MSET %s 1 %s 2' % (self.key(), self.key()),
            lambda: 'INCR %s' % self.key(),
            lambda: 'DEL %s' % self.some(KEYS),
            lambda: 'EXPIRE %s %d' % (self.key(), r.choice((0, 100))),
            lambda: 'RENAME %s %s' % (self.key(), self.key()),
            lambda: 'GETDEL %s' % self.key(),
            lambda: 'APPEND %s x' % self.key(),
            lambda: 'PUBLISH %s m%d' % (r.choice(CHANNELS), r.randint(1, 99)),
            lambda: 'SPUBLISH %s m%d' % (r.choice(CHANNELS), r.randint(1, 99)),
            lambda: 'FLUSHDB' if r.random() < 0.3 else 'PING',
        ))()

    def reads(self):
        return self.rng.choice((
            lambda: 'GET %s' % self.key(), lambda: 'MGET %s' % self.some(KEYS), lambda: 'TTL %s' % self.key(),
            lambda: 'EXISTS %s' % self.key(), lambda: 'STRLEN %s' % self.key(),
        ))()

    def subscribes(self):
        r = self.rng
        return r.choice((
            lambda: 'SUBSCRIBE %s' % self.some(CHANNELS),
            lambda: 'PSUBSCRIBE %s' % self.some(('c*', 'd*', '__keyspace@0__:k*', '__keyevent@0__:*')),
            lambda: 'SSUBSCRIBE %s' % self.some(CHANNELS),
            lambda: 'UNSUBSCRIBE %s' % self.some(CHANNELS),
            lambda: 'PUNSUBSCRIBE %s' % self.some(('c*', 'd*', '__keyspace@0__:k*', '__keyevent@0__:*')),
            lambda: 'SUNSUBSCRIBE %s' % self.some(CHANNELS),
            lambda: 'PING', lambda: 'PING hello', lambda: 'RESET',
        ))()

    def tracks(self):
        return self.rng.choice((
            'CLIENT TRACKING ON', 'CLIENT TRACKING ON NOLOOP', 'CLIENT TRACKING ON OPTIN', 'CLIENT TRACKING ON OPTOUT',
            'CLIENT TRACKING OFF', 'CLIENT TRACKING ON BCAST', 'CLIENT TRACKING ON BCAST PREFIX u: PREFIX k',
            'CLIENT TRACKING ON BCAST PREFIX u: NOLOOP', 'CLIENT CACHING YES', 'CLIENT CACHING NO',
        ))

    def next(self):
        r = self.rng
        if self.first:
            self.first = False
            return ('A', 'CONFIG SET notify-keyspace-events KEA')
        who = r.choice(WRITERS + LISTENERS)
        if r.random() < 0.04:
            how = r.choice((CLOSE, RESP3))
            (self.resp3.add if how == RESP3 else self.resp3.discard)(who)
            return (who, how)
        if who in LISTENERS:
            dice = r.random()
            if dice < 0.5:
                what = self.subscribes()
                if what == 'RESET':
                    self.resp3.discard(who)
                return (who, what)
            if dice < 0.6 and who in self.resp3:    # its own message, before the reply
                return (who, r.choice(('PUBLISH c1 own', 'SET k1 own', 'APPEND u:1 x', 'SPUBLISH d own')))
            return (who, self.tracks()) if dice < 0.7 else (who, self.reads())
        dice = r.random()
        if dice < 0.15:
            return (who, self.tracks())
        if dice < 0.35:
            return (who, *(self.reads() for _ in range(r.choice((1, 1, 2)))))
        if dice < 0.45:
            return (who, 'MULTI', *(self.writes() if r.random() < 0.6 else self.reads() for _ in range(3)), 'EXEC')
        return (who, *(self.writes() for _ in range(r.choice((1, 1, 1, 2)))))

    def saw(self, heard):
        """The outcome does not matter: no client waits for it."""

    def final(self):
        return [('A', 'PUBSUB NUMPAT'), ('A', 'PUBSUB NUMSUB c1 c2 d'), ('A', 'PUBSUB SHARDNUMSUB c1 c2 d'),
                ('A', 'CONFIG SET notify-keyspace-events ""')]
