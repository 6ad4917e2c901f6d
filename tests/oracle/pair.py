"""The two servers side by side: send the same operations, compare the replies."""
import re
import time

from compare import Ctx, fresh_encoding, later_dbsize, one_zero
import versions
from op import cli_line
from resp import ConnectionLost, ProtocolError, decode, encode, skip, split


NO_DATABASES = re.compile(rb'-ERR SELECT is not allowed in cluster mode')


class Diff:
    """One difference. index: position of the operation in the list that ran."""

    def __init__(self, argv, a, b, index=0, kind='reply'):
        self.argv, self.a, self.b, self.index, self.kind = argv, a, b, index, kind

    def name(self):
        return self.argv[0].upper().decode('latin-1') if self.argv else self.kind

    def signature(self):
        return self.kind if self.kind != 'reply' else self.name()


class SleepOp:
    """Lets short deadlines pass on both sides."""

    def __init__(self, seconds):
        self.seconds = seconds

    def run(self, pair):
        time.sleep(self.seconds)

    def __str__(self):
        return '# sleep %g' % self.seconds


def payload(ops):
    return b''.join([encode(argv) for op in ops for argv, _ in op.cmds])


class Pair:
    """a is the server under test, b the reference."""

    def __init__(self, server_a, server_b, loose_order=False, loose_hll=False,
                 timeout=30, stats=None, on_disk=False):
        self.server_a, self.server_b = server_a, server_b
        self.loose_order, self.loose_hll = loose_order, loose_hll
        self.timeout, self.stats = timeout, stats
        self.on_disk = on_disk          # the engine is rocksdb: see docs/compatibility.md
        self.kind = 'like'              # of the reference: versions.py
        self.databases = 16             # 1: the server under test is a node of a cluster
        self.a = self.b = None

    # --- connections ---------------------------------------------------------
    def connect(self, resp):
        self.disconnect()
        self.a = self.server_a.connect(self.timeout)
        self.b = self.server_b.connect(self.timeout)
        if resp == 3:
            for side, conn in (('server', self.a), ('other', self.b)):
                reply = conn.call('HELLO', '3')
                if reply[0] != '%':
                    raise SystemExit('%s: HELLO 3 failed: %r' % (side, reply))

    def disconnect(self):
        for conn in (self.a, self.b):
            if conn:
                conn.close()

    def fresh(self, resp):
        """Empty servers, new connections. Restarts a server that died."""
        for server in (self.server_a, self.server_b):
            if not server.alive():
                server.start()
        try:
            self._fresh(resp)
        except (ConnectionLost, OSError):       # hangs, or dies of it: start over
            self.server_a.restart()
            self.server_b.restart()
            self._fresh(resp)

    def _fresh(self, resp):
        self.connect(resp)
        for conn in (self.a, self.b):
            conn.call('FLUSHALL')
            conn.call('DEBUG', 'SET-ACTIVE-EXPIRE', '1')
        if self.kind == 'old':
            self.a.call(*versions.OLD_SETS)

    # --- running -------------------------------------------------------------
    def begin(self, ops):
        """Sends a batch of plain operations to both without waiting."""
        data = payload(ops)
        self.a.send(data)
        self.b.send(data)

    def finish(self, ops):
        """None, or the first difference in the oldest batch under way."""
        a, b = self.a.receive(), self.b.receive()
        if a == b and self.stats is None:
            return None
        return self.compare(ops, a, b)

    def compare(self, ops, a, b):
        """Walks both buffers reply by reply."""
        pos_a = pos_b = 0
        for index, op in enumerate(ops):
            earlier_a, earlier_b = [], []
            for argv, rule in op.cmds:
                if pos_a >= len(a) or pos_b >= len(b):
                    return Diff(argv, a[pos_a:], b[pos_b:] + b' (no more replies)', index, 'reply count')
                end_a = skip(a, pos_a)
                raw_a = raw_b = a[pos_a:end_a]
                # A reply ends where it says, so the same bytes are the same reply.
                if b.startswith(raw_a, pos_b):
                    pos_b += len(raw_a)
                else:
                    end_b = skip(b, pos_b)
                    raw_b = b[pos_b:end_b]
                    pos_b = end_b
                    if not self.allowed(argv, rule, earlier_a, earlier_b, raw_a, raw_b):
                        return Diff(argv, raw_a, raw_b, index)
                pos_a = end_a
                earlier_a.append(raw_a)
                earlier_b.append(raw_b)
                if self.stats is not None:
                    self.stats.add(argv, raw_b)
        if pos_a != len(a) or pos_b != len(b):
            return Diff([], a[pos_a:], b[pos_b:] + b' (too many replies)', len(ops) - 1, 'reply count')
        return None

    def allowed(self, argv, rule, earlier_a, earlier_b, a, b):
        a, b = self.reading(argv, a), self.reading(argv, b)
        if self.excused(argv, a, b):
            return True
        if self.on_disk and (a == b or later_dbsize(argv, a, b) or fresh_encoding(argv, a, b)):
            return True
        if rule is None:
            return self.loose_hll and all(r[0] == '$' and (r[1] or b'').startswith(b'HYLL') for r in (a, b))
        ctx = Ctx(*([self.reading(argv, r) for r in side] for side in (earlier_a, earlier_b)), self.loose_order,
                  self.on_disk, self.excused)
        return rule(ctx, a, b)

    def excused(self, argv, a, b):
        return versions.excused(self.kind, argv, a, b)

    def reading(self, argv, raw):
        if self.databases == 1:     # the reference has no other databases, either, and says so in other words
            raw = NO_DATABASES.sub(b'-ERR DB index is out of range', raw)
        reply = versions.reading(self.kind, argv, decode(raw))
        return one_zero(argv, reply) if self.on_disk else reply

    def run(self, ops, chunk=100):
        """Runs any operations in order; the first difference, or None."""
        start = 0
        while start < len(ops):
            if ops[start].special:
                end = start + 1
            else:
                end = start
                while end < len(ops) and end - start < chunk and not ops[end].special:
                    end += 1
            diff = self.run_batch(ops[start:end])
            if diff:
                diff.index += start
                return diff
            start = end
        return None

    def run_batch(self, ops):
        return self.guard(ops, self.run_special if ops[0].special else self.run_plain)

    def run_plain(self, ops):
        self.begin(ops)
        return self.finish(ops)

    def run_special(self, ops):
        return ops[0].special.run(self)

    def guard(self, ops, fn):
        """A crash, a hang or a protocol error is a difference like any other."""
        try:
            return fn(ops)
        except ConnectionLost as e:
            return Diff([], self.state(self.server_a), self.state(self.server_b) + b' (%s)' % str(e).encode(),
                        len(ops) - 1, 'connection lost')
        except (ProtocolError, ValueError) as e:
            return Diff([], str(e).encode(), b'', len(ops) - 1, 'protocol error')

    @staticmethod
    def state(server):
        time.sleep(0.1)     # a crashing process needs a moment to be gone
        if server.alive():
            return b'%s alive' % server.name.encode()
        return b'%s EXITED %d: %s' % (server.name.encode(), server.proc.returncode, server.tail(1500).encode())

    def replies(self, ops):
        """(difference, decoded replies of the reference), for plain operations."""
        self.begin(ops)
        a, b = self.a.receive(), self.b.receive()
        diff = None if a == b else self.compare(ops, a, b)
        return diff, [decode(r) for r in split(b)]

    @staticmethod
    def raw_difference(data, a, b):
        return Diff([b'(raw bytes)', data], a, b)

    def describe(self, argv, a, b):
        return Diff(argv, repr(a).encode(), repr(b).encode())


def op_lines(op):
    if op.special:
        return [str(op.special)]
    return [cli_line(argv) for argv, _ in op.cmds]
