"""Schedules: several clients take turns, and after every turn it is noted who was told what.

A schedule is a list of steps, run against one server:

    ('A', 'BLPOP k 0')                 client A sends a command; words are split at spaces, "" is an empty one
    ('A', 'MULTI', 'RPUSH k 1', 'EXEC')     … or several at once
    ('A', CLOSE)                       A goes away; when it sends again, it is a new connection
    ('A', RESP3)                       … or now, and it talks RESP3 (HELLO 3, whose reply is not shown)
    (None, 0.02)                       a pause of this many seconds

`{A}` in a command is the id of client A's connection. What a step shows is a dict: client -> the bytes that
came, with CLOSED at the end if the server closed the connection. A client that is not in it heard nothing: it
waits, or has nothing to wait for.

No step waits for a time: after what was sent, a fence of PINGs on a connection of its own makes sure that the
server has done it, and has told everybody who was to be told. (Bytes on the loopback have arrived when send()
returns; the first PONG says that the server has read on, the second that it has been round its loop.)

So the server must read all connections on one thread. With `io-threads` above 1 a fence says nothing about connections
of other threads, whose requests may come after it: these servers never have that.
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'oracle'))

import versions                                                          # noqa: E402
from resp import Conn, encode, split                                     # noqa: E402

CLOSE, RESP3 = '<close>', '<resp3>'
CLOSED = b'<closed>'
ROUNDS = 2      # of a fence
ANSWERED_LATE = ('FLUSHDB', 'FLUSHALL')     # by Redis 8: when another thread has freed what there was
LATE_S = 10


def words(line):
    return [b'' if w == '""' else w.encode() for w in line.split()]


class Client:
    """A connection that is read without waiting."""

    def __init__(self, port, resp=2):
        conn = Conn(port, 20)
        conn.call('HELLO', resp)
        self.id = conn.call('CLIENT', 'ID')[1]
        self.sock = conn.sock
        self.sock.setblocking(False)

    def send(self, data):
        try:
            self.sock.sendall(data)
        except OSError:
            pass        # closed by the server: what comes next shows it

    def heard(self):
        out = bytearray()
        while True:
            try:
                data = self.sock.recv(1 << 16)
            except BlockingIOError:
                return bytes(out)
            except OSError:
                data = b''
            if not data:
                return bytes(out) + CLOSED
            out += data

    def close(self):
        self.sock.close()


class Stage:
    """One server, and the clients of the schedule that runs there."""

    def __init__(self, server):
        self.server = server
        self.clients = {}
        self.fence_conn = None
        self.ping = encode([b'PING'])

    def open(self):
        self.close()
        self.fence_conn = Conn(self.server.port, 20)
        self.fence_conn.call('FLUSHALL')
        self.fence_conn.call('CONFIG', 'RESETSTAT')

    def close(self):
        for c in self.clients.values():
            c.close()
        self.clients = {}
        if self.fence_conn:
            self.fence()        # they are gone for the server, too
            self.fence_conn.close()
            self.fence_conn = None

    def fence(self):
        for _ in range(ROUNDS):
            self.fence_conn.sock.sendall(self.ping)
            got = b''
            while not got.endswith(b'\r\n'):
                data = self.fence_conn.sock.recv(4096)
                if not data:
                    raise ConnectionError('%s is gone: %s' % (self.server.name, self.server.tail()))
                got += data

    def client(self, name):
        if name not in self.clients:
            self.clients[name] = Client(self.server.port)
        return self.clients[name]

    def fill(self, line):
        for name, c in self.clients.items():
            line = line.replace('{%s}' % name, str(c.id))
        return line

    def act(self, name, lines):
        if lines[0] in (CLOSE, RESP3) and name in self.clients:
            self.clients.pop(name).close()
        if lines[0] == RESP3:
            self.clients[name] = Client(self.server.port, 3)
        elif lines[0] != CLOSE:
            c = self.client(name)
            c.send(b''.join(encode(words(self.fill(line))) for line in lines))

    def step(self, step):
        """Does it; returns who heard what."""
        name, *lines = step
        if name is None:
            time.sleep(lines[0])
        else:
            self.act(name, lines)
        heard, end = {}, time.monotonic() + LATE_S
        late = name is not None and any(line.split()[0].upper() in ANSWERED_LATE for line in lines)
        due = len(lines) if late else 0     # replies that have to be there before it goes on
        while True:     # what one hears may be what another waited for
            self.fence()
            more = self.gather()
            if not more and (replies_in(heard.get(name, b'')) >= due or time.monotonic() > end):
                return heard
            for who, data in more.items():
                heard[who] = heard.get(who, b'') + data

    def gather(self):
        heard = {}
        for name, c in list(self.clients.items()):
            data = c.heard()
            if data:
                heard[name] = data
            if data.endswith(CLOSED):
                self.clients.pop(name).close()
        return heard


class Difference(Exception):
    def __init__(self, steps, ours, theirs):
        super().__init__(steps, ours, theirs)
        self.steps, self.ours, self.theirs = steps, ours, theirs

    def text(self):
        lines = [show_step(s) for s in self.steps]
        return '\n'.join(lines + ['  ours:   ' + show_heard(self.ours), '  theirs: ' + show_heard(self.theirs)])


def show_step(step):
    return '# sleep %g' % step[1] if step[0] is None else '%s: %s' % (step[0], ' | '.join(step[1:]))


def show_heard(heard):
    return ', '.join('%s %r' % item for item in sorted(heard.items())) or 'nothing'


class Duet:
    """The same schedule on two servers, compared step by step."""

    def __init__(self, ours, theirs):
        self.stages = Stage(ours), Stage(theirs)
        self.done = []

    def open(self):
        self.done = []
        for stage in self.stages:
            stage.open()

    def close(self):
        for stage in self.stages:
            stage.close()

    def step(self, step):
        """What both heard. Difference if it was not the same."""
        self.done.append(step)
        ours, theirs = (stage.step(step) for stage in self.stages)
        if not versions.heard_alike(ours, theirs):
            raise Difference(list(self.done), ours, theirs)
        return theirs

    def run(self, steps):
        self.open()
        try:
            return [self.step(s) for s in steps]
        finally:
            self.close()

    def differs(self, steps):
        try:
            self.run(steps)
        except Difference as d:
            return d
        return None

    def shrink(self, difference, tries=400):
        """A schedule with fewer steps that ends in a difference, too."""
        best, size = difference, max(1, len(difference.steps) // 2)
        while size and tries:
            at = 0
            while at + size < len(best.steps) and tries:     # the last one stays: it shows the difference
                tries -= 1
                d = self.differs(best.steps[:at] + best.steps[at + size:])
                if d:
                    best = d
                else:
                    at += size
            size //= 2
        return best


def replies_in(data):
    """How many replies (RESP3 pushes not counted) these bytes are."""
    if data.endswith(CLOSED):
        data = data[:-len(CLOSED)]
    return sum(1 for r in split(data) if not r.startswith(b'>'))
