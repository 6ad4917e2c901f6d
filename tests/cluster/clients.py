"""Clients that record what they did: the histories that linear.py checks.

Each client is a coroutine with one request at a time. It follows MOVED as a cluster client does. A request whose
outcome is unknown (`-UNCERTAIN`, a broken connection, no reply in time) is recorded as such, and the client continues
with another.
"""
import asyncio
import collections
import contextlib
import random
import threading
import time

from linear import NEVER, UNKNOWN, Op

CONNECT_SECONDS = 2.0
PAUSE = 0.05        # seconds between two requests of a client, at most
# Seconds for an answer. The hasty have long found a new leader when others still talk to the old one; the patient are
# still there when a node that was stopped wakes up.
PATIENCE = 0.5, 2.0, 2.0, 10.0
# Answers that say that nothing was done.
REFUSED = ('MOVED', 'CLUSTERDOWN', 'TRYAGAIN', 'EXECABORT', 'LOADING', 'READONLY', 'MISCONF')


class NotRun(Exception):
    """The request has certainly not been run."""


class Failure(Exception):
    """An error reply."""


class Connection:
    """RESP2 to one node, as little of it as is needed here."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, address):
        return cls(*await asyncio.wait_for(asyncio.open_connection(*address), CONNECT_SECONDS))

    def close(self):
        self.writer.transport.abort()

    async def reply(self):
        line = await self.reader.readline()
        if not line.endswith(b'\r\n'):
            raise ConnectionError('the connection ended')
        kind, rest = line[:1], line[1:-2]
        if kind == b'-':
            return Failure(rest.decode())
        if kind == b':':
            return int(rest)
        if kind == b'+':
            return rest.decode()
        size = int(rest)
        if size < 0:
            return None
        if kind == b'*':
            return [await self.reply() for _ in range(size)]
        return (await self.reader.readexactly(size + 2))[:-2].decode()

    async def ask(self, *commands, seconds):
        """The replies to several commands, sent at once."""
        self.writer.write(b''.join(encode(c) for c in commands))
        async with asyncio.timeout(seconds):
            return [await self.reply() for _ in commands]


def encode(command):
    parts = [str(part).encode() for part in command]
    return b'*%d\r\n' % len(parts) + b''.join(b'$%d\r\n%s\r\n' % (len(p), p) for p in parts)


class Client:
    """`load`: what it belongs to. Some only read: those don't wait for a majority that an old leader has lost. A client with
    `follower_reads` does so wherever it is connected."""

    def __init__(self, load, number, follower_reads=False):
        self.load, self.number, self.follower_reads = load, number, follower_reads
        self.rng = random.Random(f'{load.seed}/{number}')
        self.conn, self.serial, self.patience = None, 0, load.patience[number % len(load.patience)]
        self.only_reads = follower_reads or number % 5 == 4
        self.address = self.rng.choice(load.addresses)

    def unique(self):
        """A value that nobody else writes."""
        self.serial += 1
        return f'{self.number}.{self.serial}'

    async def connected(self):
        if not self.only_reads and self.address in self.load.out_of_reach:
            self.leave()
            raise NotRun
        if self.conn:
            return self.conn
        try:
            self.conn = await Connection.open(self.address)
            if self.follower_reads:
                await self.conn.ask(['READONLY'], seconds=self.patience)
        except (OSError, TimeoutError, EOFError) as e:
            self.leave()
            raise NotRun from e
        return self.conn

    def leave(self, address=None):
        """The next request goes elsewhere."""
        if self.conn:
            self.conn.close()
        self.conn, self.address = None, address or self.rng.choice(self.load.addresses)

    def refused(self, error):
        """Goes where the error says. Whether the request may have been run all the same."""
        words = str(error).split()
        moved = words[2].rsplit(':', 1) if words[0] == 'MOVED' else None
        self.leave((moved[0], int(moved[1])) if moved else None)
        if words[0] != 'UNCERTAIN' and words[0] not in REFUSED:
            self.load.surprises.append(str(error))
        return words[0] == 'UNCERTAIN'

    async def ask(self, *commands):
        """Replies, UNKNOWN, or NotRun."""
        conn = await self.connected()
        try:
            replies = await conn.ask(*commands, seconds=self.patience)
        except (OSError, TimeoutError, EOFError) as e:
            self.load.reasons[type(e).__name__] += 1
            self.leave()
            return UNKNOWN
        errors = [r for r in replies if isinstance(r, Failure)]
        if not errors:
            return replies
        if any([self.refused(e) for e in errors]):
            self.load.reasons['UNCERTAIN'] += 1
            return UNKNOWN
        raise NotRun

    async def do(self, group, run, *commands, result=lambda replies: replies[-1], writes=True):
        """One operation on a group of keys, written down. Returns its result, or UNKNOWN."""
        call = time.monotonic()
        replies = await self.ask(*commands)
        ret = time.monotonic()
        got = UNKNOWN if replies is UNKNOWN else result(replies)
        if got is not UNKNOWN or writes:
            self.load.count(got)
            text = '; '.join(' '.join(map(str, c)) for c in commands)
            what = f'{self.number}@{self.address[0]}: {text}'
            self.load.history.setdefault(group, []).append(Op(call, NEVER if got is UNKNOWN else ret, run, got, what, text))
        return got

    async def run(self):
        while not self.load.stopping.is_set():
            while self.load.writers_wait and not self.only_reads:
                await asyncio.sleep(0.01)
            try:
                await self.load.kind.step(self)
            except NotRun:
                self.load.not_run += 1
                await asyncio.sleep(0.03)
            await asyncio.sleep(self.rng.random() * PAUSE)
        self.leave()


class Load:
    """`with Load(kind, addresses) as load`: clients at work, in a thread of their own."""

    def __init__(self, kind, addresses, clients, readers=0, seed=1, patience=PATIENCE):
        self.kind, self.addresses, self.seed = kind, list(addresses), seed
        self.patience = patience
        self.history = {}       # by group of keys
        self.logs = {}          # by list: what its client appended, and whether that is sure
        self.done = self.unknown = self.not_run = 0
        self.surprises = []     # errors that nobody should get
        self.reasons = collections.Counter()    # of unknown outcomes
        self.stopping, self.failed = threading.Event(), None
        self.writers_wait, self.out_of_reach = False, ()    # for those who write: wait; and stay away from these addresses
        self.clients = [Client(self, i, follower_reads=i >= clients) for i in range(clients + readers)]
        self.thread = threading.Thread(target=self.work)

    def work(self):
        async def together():
            await asyncio.gather(*(c.run() for c in self.clients))
        try:
            asyncio.run(together())
        except BaseException as e:  # noqa: B902 # it is raised where the load is used  # pylint: disable=broad-except
            self.failed = e

    @contextlib.contextmanager
    def no_writes(self):
        """What is under way has had time to end."""
        self.writers_wait = True
        time.sleep(0.3)
        yield
        self.writers_wait = False

    def count(self, result):
        self.done += 1
        self.unknown += result is UNKNOWN

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()
        if self.failed:
            raise self.failed
