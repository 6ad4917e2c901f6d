"""A mixed load of several clients, each of which knows what its databases must hold afterwards.

A client has two databases of its own and remembers every command it sent and when it was answered.
After a crash the server must show the state after some number of these commands (`settle`): all
that were answered, or as many as the durability asked for demands. A command with an unknown
outcome may or may not have happened, but none may have happened by half, and none before an
earlier one. Across clients the same holds by the clock: if something was answered before something
else was sent, the second can't be there without the first.
"""
import random
import threading
import time

import mayfly
from model import Model, Refused, Value, same, surely_dead

NAMES = 24                  # keys a client plays with, per database
FAR_MS = 3_600_000          # deadlines from here on don't come during a test


class Link(mayfly.Raw):
    """A connection whose end is an exception of its own."""

    def exactly(self, n):
        data = self.file.read(n)
        if len(data) != n:
            raise ConnectionError
        return data

    def line(self):
        line = self.file.readline()
        if not line.endswith(b'\r\n'):
            raise ConnectionError
        return line[:-2]

    def many(self, commands):
        self.send(b''.join(mayfly.encode(*c) for c in commands))
        return [self.reply() for _ in commands]


# -- what to do next ---------------------------------------------------------------------------------

class Chooser:
    """Random commands that make sense on a client's state, as it will be once all sent ones have run."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.serial = 0
        self.model = Model()
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
        """A key that dies soon, of any type; nobody touches it any more."""
        name = b't:%d' % self.serial
        if self.rng.random() < 0.4:
            return [('SET', name, self.value(), 'PXAT', self.soon())]
        make = self.rng.choice((self.new_string, self.new_hash, self.new_list, self.new_set, self.new_zset))
        return make(db, name, None) + [('PEXPIREAT', name, self.soon())]

    def brief_field(self, _db, _key, _found):
        name = b'ht:%d' % self.serial
        fields = [b'f%d' % i for i in range(self.rng.randint(1, 12))]
        dying = self.rng.sample(fields, self.rng.randint(1, len(fields)))
        return [('HSET', name, *(x for f in fields for x in (f, self.value()[:40]))),
                ('HPEXPIREAT', name, self.soon(), 'FIELDS', len(dying), *dying)]

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


# -- a client ----------------------------------------------------------------------------------------

class Sent:
    """A command on its way: what it was, when, and whether it was answered (with an error)."""
    __slots__ = ('db', 'args', 'sent', 'answered', 'refused', 'foreseen')

    def __init__(self, db, args):
        self.db, self.args, self.sent, self.answered = db, args, 0, None
        self.refused = self.foreseen = False


class Client:
    def __init__(self, number, seed, databases_from=0):
        self.first_db = databases_from + 2 * number
        self.chooser = Chooser(f'{seed}/{number}')
        self.base = Model()           # what the server was seen to hold before …
        self.history = []             # … these
        self.problem = None           # an exception in the thread
        self.pause = 0                # seconds between batches

    @property
    def answered(self):
        return sum(s.answered is not None for s in self.history)

    def wire(self, s):
        """The command as it is sent: databases by their real numbers."""
        name, first = s.args[0], self.first_db
        if name == 'SWAPDB':
            return 'SWAPDB', first, first + 1
        if name == 'MOVE':
            return *s.args[:2], first + s.args[2]
        if name == 'COPY' and s.args[3] == 'DB':
            return *s.args[:4], first + s.args[4], s.args[5]
        return s.args

    def batch(self, n):
        """The next n or so commands, of one database, applied to what the chooser foresees."""
        out, db = [], int(self.chooser.rng.random() < 0.3)
        while len(out) < n:
            for args in self.chooser.next(db):
                s = Sent(db, args)
                out.append(s)
                try:
                    self.chooser.model.apply(db, args)
                except Refused:
                    s.foreseen = True
        return out

    def select(self, link, db):
        """By itself: if it is refused, nothing must go to another database."""
        if db == self.selected:
            return
        self.selected = None
        for _ in range(200):
            reply = link.call('SELECT', self.first_db + db)
            if reply == b'OK':
                self.selected = db
                return
            time.sleep(0.01)
        raise AssertionError(f'SELECT, which writes nothing, is refused: {reply}')

    def send(self, link, batch):
        self.select(link, batch[0].db)
        data = b''.join(mayfly.encode(*self.wire(s)) for s in batch)
        now = time.monotonic()
        for s in batch:
            s.sent = now
        self.history += batch
        link.send(data)
        for s in batch:
            reply = link.reply()
            s.answered = time.monotonic()
            s.refused = isinstance(reply, mayfly.ReplyError)
            if s.refused and not s.foreseen:
                self.errors.append((s, reply))

    def run(self, port, stop):
        """Until the server goes away, or `stop` is set."""
        self.selected, self.errors, self.problem = None, [], None
        try:
            with Link(port) as link:
                while not stop.is_set():
                    seen = len(self.errors)
                    self.send(link, self.batch(self.chooser.rng.choice((1, 1, 2, 5, 20))))
                    if len(self.errors) > seen:
                        self.foresee()
                    if self.pause:
                        time.sleep(self.pause)
        except OSError:
            pass
        except Exception as e:  # pylint: disable=broad-except
            self.problem = e

    def foresee(self):
        """The chooser's model anew: some commands were refused."""
        self.chooser.model = self.state_after(len(self.history))

    def state_after(self, n):
        m = self.base.copy()
        for s in self.history[:n]:
            apply(m, s)
        return m

    def real_errors(self):
        """Refusals that the model does not explain."""
        m, out, errors = self.base.copy(), [], {id(s): reply for s, reply in self.errors}
        for s in self.history if errors else ():
            if id(s) in errors and not refuses(m, s):
                out.append((s.args, errors[id(s)]))
            apply(m, s)
        return out

    # -- afterwards ---------------------------------------------------------------------------

    def matches(self, seen, at_least):
        """After how many commands the state is what a server showed; the state after the last such."""
        m = self.base.copy()
        wrong = differences(m, seen)
        found, state, closest = [], None, (len(wrong), 0, wrong)
        for n in range(len(self.history) + 1):
            if n:
                touched = apply(m, self.history[n - 1])
                if touched is None:
                    wrong = differences(m, seen)
                else:
                    for at in touched:
                        compare(m, seen, at, wrong)
            if n >= at_least:
                if len(wrong) <= closest[0] or closest[1] < at_least:
                    closest = (len(wrong), n, set(wrong))
                if not wrong:
                    found.append(n)
        if not found:
            raise AssertionError(self.explain(seen, at_least, closest))
        state = self.state_after(found[-1])
        return found, state

    def explain(self, seen, at_least, closest):
        _, n, wrong = closest
        m = self.state_after(n)
        lines = [f'databases {self.first_db} and {self.first_db + 1}: no state after {at_least} to '
                 f'{len(self.history)} commands is what the server shows. After {n} this differs:']
        for db, key in sorted(wrong)[:10]:
            lines.append(f'  database {self.first_db + db}, key {key!r}:\n    expected '
                         f'{m.dbs[db].get(key)!r}\n    found    {seen.get(db, key)!r}')
            last = [(i, s.args) for i, s in enumerate(self.history) if key in s.args or len(s.args) < 3][-4:]
            lines += [f'    command {i}: {args!r:.300}' for i, args in last]
        return '\n'.join(lines)

    def accept(self, state, from_ms):
        """Goes on from this state; what has died by then is forgotten."""
        for db in state.dbs:
            for key, v in list(db.items()):
                if v.kind == 'hash':
                    v.data = {f: x for f, x in v.data.items() if not surely_dead(x[1], from_ms)}
                if surely_dead(v.deadline, from_ms) or v.kind == 'hash' and not v.data:
                    del db[key]
        self.base, self.history = state, []
        self.chooser.model = state.copy()


def apply(m, s):
    """A command's effect on a model, whatever came of it: what it touched."""
    if s.refused:
        return []
    try:
        return m.apply(s.db, s.args)
    except Refused:
        return []


def refuses(m, s):
    try:
        m.copy().apply(s.db, s.args)
        return False
    except Refused:
        return True


def compare(m, seen, at, wrong):
    db, key = at
    if same(m.dbs[db].get(key), seen.get(db, key), seen.from_ms, seen.until_ms):
        wrong.discard(at)
    else:
        wrong.add(at)


def differences(m, seen):
    wrong = set()
    for at in {(db, key) for db in (0, 1) for key in m.dbs[db]} | set(seen.values):
        compare(m, seen, at, wrong)
    return wrong


# -- what a server shows -----------------------------------------------------------------------------

class Seen:
    """Everything in two databases, and when it was read."""

    READ = {b'string': ('GET',), b'hash': ('HGETALL',), b'list': ('LRANGE', 0, -1), b'set': ('SMEMBERS',),
            b'zset': ('ZRANGE', 0, -1, 'WITHSCORES')}
    COUNT = {b'list': 'LLEN', b'set': 'SCARD', b'zset': 'ZCARD', b'string': 'STRLEN'}

    def __init__(self, link, first_db):
        self.values = {}
        self.from_ms = int(time.time() * 1000)
        for db in (0, 1):
            self.read(link, first_db, db)
        self.until_ms = int(time.time() * 1000)

    def get(self, db, key):
        return self.values.get((db, key))

    def read(self, link, first_db, db):
        _, keys = link.many([('SELECT', first_db + db), ('KEYS', '*')])
        kinds = link.many([('TYPE', k) for k in keys]) if keys else []
        known = [(k, kind) for k, kind in zip(keys, kinds) if kind != b'none']
        ask = []
        for k, kind in known:
            command = self.READ[kind]
            ask += [('PEXPIRETIME', k), (command[0], k, *command[1:])]
            if kind in self.COUNT:
                ask.append((self.COUNT[kind], k))
        answers = iter(link.many(ask)) if ask else iter(())
        for k, kind in known:
            deadline, data = next(answers), next(answers)
            for reply in (deadline, data):
                assert not isinstance(reply, mayfly.ReplyError), f'{kind} {k}: {reply}'
            count = next(answers) if kind in self.COUNT else None
            if deadline == -2 or not data and kind != b'string' or data is None:
                continue                            # it died meanwhile
            v = self.decode(kind, data, max(deadline, 0))
            assert count in (None, 0, len(v.data)), f'{kind} {k} of {count} elements has {len(v.data)}'
            self.values[db, k] = v
        hashes = [k for k, kind in known if kind == b'hash' and (db, k) in self.values]
        for k in hashes:
            self.read_field_deadlines(link, self.values[db, k], k)
            if not self.values[db, k].data:
                del self.values[db, k]

    @staticmethod
    def read_field_deadlines(link, v, key):
        fields = list(v.data)
        deadlines = link.call('HPEXPIRETIME', key, 'FIELDS', len(fields), *fields)
        assert not isinstance(deadlines, mayfly.ReplyError), deadlines
        for f, when in zip(fields, deadlines or [-2] * len(fields)):
            if when == -2:
                del v.data[f]                       # it died meanwhile
            else:
                v.data[f] = (v.data[f][0], max(when, 0))

    @staticmethod
    def decode(kind, data, deadline):
        if kind == b'hash':
            data = {f: (v, 0) for f, v in zip(data[::2], data[1::2])}
        elif kind == b'set':
            data = set(data)
        elif kind == b'zset':
            pairs = [(float(s), m) for m, s in zip(data[::2], data[1::2])]
            assert pairs == sorted(pairs), f'not in order: {pairs}'
            data = {m: s for s, m in pairs}
        return Value(kind.decode(), data, deadline)


# -- all clients ---------------------------------------------------------------------------------------

class Load:
    def __init__(self, seed, clients=4):
        self.clients = [Client(i, seed) for i in range(clients)]
        self.threads, self.stop = [], threading.Event()

    def start(self, port):
        self.stop.clear()
        self.threads = [threading.Thread(target=c.run, args=(port, self.stop), daemon=True) for c in self.clients]
        for t in self.threads:
            t.start()

    def join(self, ask=False):
        """Waits for the clients, whose server went away, or who are asked to end."""
        if ask:
            self.stop.set()
        for t in self.threads:
            t.join(60)
            assert not t.is_alive(), 'a client got no answer for a minute'
        for c in self.clients:
            if c.problem:
                raise c.problem

    def forget_after(self, when):
        """What was answered later does not count: whether it happened is unknown."""
        for c in self.clients:
            for s in c.history:
                if s.answered is not None and s.answered >= when:
                    s.answered, s.refused = None, False
            c.errors = [(s, reply) for s, reply in c.errors if s.answered is not None]

    def refusals(self, *allowed):
        """How many commands were refused that the model would not have; only with these errors."""
        errors = [e for c in self.clients for e in c.real_errors()]
        for args, reply in errors:
            assert reply.startswith(allowed), f'{reply}: {args!r:.200}'
        return len(errors)

    def see(self, port):
        with Link(port) as link:
            return [Seen(link, c.first_db) for c in self.clients]

    def settle(self, port, must=lambda s: s.answered is not None, accept=True):
        """Reads everything, finds for each client the state it shows, and goes on from there.
        `must` says which commands may not be missing. Returns how many commands were verified to be
        there, and how many of those that were answered are missing."""
        seen = self.see(port)
        outcome = []
        for c, shown in zip(self.clients, seen):
            needed = max((i + 1 for i, s in enumerate(c.history) if must(s)), default=0)
            found, state = c.matches(shown, needed)
            outcome.append((c, shown, found, state))
        in_order([(c.history, found) for c, _, found, _ in outcome])
        there = sum(found[-1] for _, _, found, _ in outcome)
        missing = sum(max(c.answered - found[-1], 0) for c, _, found, _ in outcome)
        if accept:
            for c, shown, _, state in outcome:
                c.accept(state, shown.from_ms)
        return there, missing


def in_order(outcome):
    """Nothing is there that was sent after something missing had been answered: one log, one order.
    Where several states fit, the one that fits best counts."""
    first_lost = min((h[found[-1]].answered or float('inf') for h, found in outcome if found[-1] < len(h)),
                     default=float('inf'))
    last_there = max((h[found[0] - 1].sent for h, found in outcome if found[0]), default=0)
    assert last_there <= first_lost, 'a later command of one client is there, an earlier one of another is not'
