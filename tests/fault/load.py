"""A mixed load of several clients, each of which knows what its databases must hold afterwards.

A client has two databases of its own and remembers every command it sent and when it was answered.
After a crash the server must show the state after some number of these commands (`settle`): all
that were answered, or as many as the durability asked for demands. A command with an unknown
outcome may or may not have happened, but none may have happened by half, and none before an
earlier one. Across clients the same holds by the clock: if something was answered before something
else was sent, the second can't be there without the first.

A server may do a command and then find that it can't write it down: it says so (`doubtful`), and the
client looks whether it happened. If so it counts as one without an answer.
"""
import random
import threading
import time

import mayfly
from chooser import Chooser
from model import Model, Refused, Value, same, surely_dead


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


# -- a client ----------------------------------------------------------------------------------------

class Sent:
    """A command on its way: what it was, when, and whether it was answered (with an error)."""
    __slots__ = ('db', 'args', 'sent', 'answered', 'refused', 'foreseen')

    def __init__(self, db, args):
        self.db, self.args, self.sent, self.answered = db, args, 0, None
        self.refused = self.foreseen = False


def acknowledged(s):
    """Whether the command was answered with success: it must survive."""
    return s.answered is not None and not s.refused


class Client:
    doubtful = ()                     # errors that leave open whether a command was done

    def __init__(self, number, seed, databases_from=0, chooser=Chooser):
        self.first_db = databases_from + 2 * number
        self.chooser = chooser(f'{seed}/{number}')
        self.base = Model()           # what the server was seen to hold before …
        self.history = []             # … these
        self.problem = None           # an exception in the thread
        self.pause = 0                # seconds between batches

    @property
    def answered(self):
        return sum(acknowledged(s) for s in self.history)

    def wire(self, s):
        """The command as it is sent: databases by their real numbers."""
        name, first = s.args[0], self.first_db
        if name == 'SWAPDB':
            return 'SWAPDB', first, first + 1
        if name == 'MOVE':
            return *s.args[:2], first + s.args[2]
        if name == 'COPY' and s.args[3] == 'DB':
            return *s.args[:4], first + s.args[4], s.args[5]
        if name == 'DEAD':
            return s.args[2:]
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
        doubts = []
        for s in batch:
            reply = link.reply()
            s.answered = time.monotonic()
            s.refused = isinstance(reply, mayfly.ReplyError)
            if s.refused and not s.foreseen:
                self.errors.append((s, reply))
            if s.refused and reply.startswith(self.doubtful or 'no error'):
                doubts.append(s)
        if not doubts:
            return
        try:
            self.find_out(link, len(batch), doubts)
        except OSError:                             # the server is gone: they may have been done
            for s in doubts:
                s.answered, s.refused = None, False
            raise

    def find_out(self, link, n, doubts):
        """Which of the last n commands, of these, were done all the same: some in a row, as the server stops
        doing any as soon as it knows."""
        self.selected = None
        seen = Seen(link, self.first_db)
        before = self.state_after(len(self.history) - n)
        rows = [(i, j) for i in range(len(doubts)) for j in range(i + 1, len(doubts) + 1)]
        for i, j in [(0, 0), *sorted(rows, key=lambda row: (row[0], row[0] - row[1]))]:
            for at, s in enumerate(doubts):
                s.refused = not i <= at < j
            m = before.copy()
            for s in self.history[-n:]:
                apply(m, s)
            if not differences(m, seen):
                break
        else:
            raise AssertionError(f'database {self.first_db}: after {[s.args for s in doubts]!r:.500} were refused, '
                                 f'this differs: {differences(m, seen)}')
        for s in doubts[i:j]:
            s.answered = None

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
        """Rebuilds the chooser's model: some commands were refused."""
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

    def matches(self, seen, at_least, at_most):
        """After how many commands the state is what a server showed; the state after the last such."""
        m = self.base.copy()
        wrong = differences(m, seen)
        found, state, closest = [], None, (len(wrong), 0, wrong)
        for n in range(at_most + 1):
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
            raise AssertionError(self.explain(seen, at_least, at_most, closest))
        state = self.state_after(found[-1])
        return found, state

    def explain(self, seen, at_least, at_most, closest):
        _, n, wrong = closest
        m = self.state_after(n)
        lines = [f'databases {self.first_db} and {self.first_db + 1}: no state after {at_least} to '
                 f'{at_most} commands is what the server shows. After {n} this differs:']
        for db, key in sorted(wrong)[:10]:
            lines.append(f'  database {self.first_db + db}, key {key!r}:\n    expected '
                         f'{m.dbs[db].get(key)!r}\n    found    {seen.get(db, key)!r}')
            last = [(i, s.args) for i, s in enumerate(self.history) if key in s.args or len(s.args) < 3][-4:]
            lines += [f'    command {i}: {args!r:.300}' for i, args in last]
        return '\n'.join(lines)

    def accept(self, state, from_ms):
        """Continues from this state; keys dead by then are forgotten."""
        for db in state.dbs:
            for key, v in list(db.items()):
                if v.kind == 'hash':
                    v.data = {f: x for f, x in v.data.items() if not surely_dead(x[1], from_ms)}
                if surely_dead(v.deadline, from_ms) or v.kind == 'hash' and not v.data:
                    del db[key]
        self.base, self.history = state, []
        self.chooser.model = state.copy()


def apply(m, s):
    """Applies a command to a model, whatever its outcome; returns what it touched."""
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

    class Refused(Exception):
        """A read that met something dead, whose deletion could not be logged."""

    def __init__(self, link, first_db):
        end = time.monotonic() + 60
        while True:
            self.values = {}
            self.from_ms = int(time.time() * 1000)
            try:
                for db in (0, 1):
                    self.read(link, first_db, db)
                break
            except self.Refused:
                assert time.monotonic() < end, 'reads are refused for a minute'
                time.sleep(0.05)
        self.until_ms = int(time.time() * 1000)

    @classmethod
    def check(cls, reply, what):
        """Returns the reply, unless it is an error."""
        if isinstance(reply, mayfly.ReplyError) and 'MISCONF' in str(reply):
            raise cls.Refused(reply)
        assert not isinstance(reply, mayfly.ReplyError), f'{what}: {reply}'
        return reply

    def get(self, db, key):
        return self.values.get((db, key))

    def read(self, link, first_db, db):
        _, keys = link.many([('SELECT', first_db + db), ('KEYS', '*')])
        self.check(keys, 'KEYS')
        kinds = link.many([('TYPE', k) for k in keys]) if keys else []
        for k, kind in zip(keys, kinds):
            self.check(kind, k)
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
            count = next(answers) if kind in self.COUNT else None
            for reply in (deadline, data, count):
                self.check(reply, f'{kind} {k}')
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

    @classmethod
    def read_field_deadlines(cls, link, v, key):
        fields = list(v.data)
        deadlines = cls.check(link.call('HPEXPIRETIME', key, 'FIELDS', len(fields), *fields), key)
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

class Jobs:
    """Asks for snapshots and the like, at random times."""

    def __init__(self, seed, commands):
        self.rng, self.commands = random.Random(f'{seed}/jobs'), commands
        self.asked, self.problem = 0, None

    def run(self, port, stop):
        try:
            with Link(port) as link:
                while not stop.wait(self.rng.uniform(0, 0.2)):
                    reply = link.call(*self.rng.choice(self.commands).split())
                    self.asked += not isinstance(reply, mayfly.ReplyError)
        except OSError:
            pass
        except Exception as e:  # pylint: disable=broad-except
            self.problem = e


class Load:
    """`setup` says what the server does besides, and how it refuses."""

    def __init__(self, seed, clients=4, setup=None, choosers=()):
        choosers = choosers or [Chooser] * clients
        self.clients = [Client(i, seed, chooser=chooser) for i, chooser in enumerate(choosers)]
        self.others = [Jobs(seed, setup.jobs)] if setup and setup.jobs else []
        self.threads, self.stop = [], threading.Event()
        self.oldest_lost = None
        for c in self.clients:
            c.doubtful = setup.doubtful if setup else ()

    def start(self, port, others=True):
        self.stop.clear()
        self.threads = [threading.Thread(target=c.run, args=(port, self.stop), daemon=True)
                        for c in self.clients + (self.others if others else [])]
        for t in self.threads:
            t.start()

    def join(self, ask=False):
        """Waits for the clients, whose server went away, or who are asked to end."""
        if ask:
            self.stop.set()
        for t in self.threads:
            t.join(60)
            assert not t.is_alive(), 'a client got no answer for a minute'
        for c in self.clients + self.others:
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

    def settle(self, port, must=acknowledged, must_not=lambda s: False, accept=True):
        """Reads everything, finds for each client the state it shows, and continues from there.
        `must` says which commands may not be missing, `must_not` which may not be there. Returns how many
        commands were verified to be there, and how many of those that were answered are missing;
        `oldest_lost` is when the first of these was."""
        seen = self.see(port)
        outcome = []
        for c, shown in zip(self.clients, seen):
            needed = max((i + 1 for i, s in enumerate(c.history) if must(s)), default=0)
            allowed = min((i for i, s in enumerate(c.history) if must_not(s)), default=len(c.history))
            found, state = c.matches(shown, needed, allowed)
            outcome.append((c, shown, found, state))
        in_order([(c.history, found) for c, _, found, _ in outcome])
        there = sum(found[-1] for _, _, found, _ in outcome)
        lost = [s.answered for c, _, found, _ in outcome for s in c.history[found[-1]:] if acknowledged(s)]
        self.oldest_lost = min(lost, default=None)
        if accept:
            for c, shown, _, state in outcome:
                c.accept(state, shown.from_ms)
        return there, len(lost)


def in_order(outcome):
    """Asserts that no command survived which was sent after a lost one had been answered: there is one log.
    Where several states fit, the best one counts."""
    first_lost = min((s.answered for h, found in outcome for s in h[found[-1]:] if acknowledged(s)),
                     default=float('inf'))
    last_there = max((h[found[0] - 1].sent for h, found in outcome if found[0]), default=0)
    assert last_there <= first_lost, 'a later command of one client is there, an earlier one of another is not'
