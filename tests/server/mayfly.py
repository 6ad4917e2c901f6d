"""Shared by the black-box tests: a server process, and a raw socket to it."""
import functools
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import redis
from redis.backoff import NoBackoff
from redis.connection import DefaultParser
from redis.retry import Retry

from ports import free_port        # noqa: F401 # pylint: disable=unused-import

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.environ.get('MAYFLY_SERVER', os.path.join(ROOT, 'build', 'mayfly-server'))
# cluster: servers with engine rocksdb that lead a cluster of three nodes (leader.py).
LEADER = os.environ.get('MAYFLY_ENGINE') == 'cluster'
ENGINE = 'rocksdb' if LEADER else os.environ.get('MAYFLY_ENGINE', 'memory')
# Small caches, so that the disk is used; and few threads, because many servers run in a row.
ENGINES = {
    'memory': [],
    'rocksdb': ['--engine', 'rocksdb', '--rocksdb-block-cache-size', '16mb', '--rocksdb-row-cache-size', '4mb',
                '--rocksdb-write-buffer-size', '16mb', '--rocksdb-background-threads', '2'],
}
# MAYFLY_IO_THREADS: every server has so many threads for reading and writing.
IO_THREADS = int(os.environ.get('MAYFLY_IO_THREADS', 1))
ENGINE_ARGS = ENGINES[ENGINE] + (['--io-threads', str(IO_THREADS)] if IO_THREADS > 1 else [])
PATIENCE = 45       # seconds a test waits for something that is immediate unless the machine is overloaded


@functools.lru_cache(maxsize=None)
def sanitized():
    """Whether the server under test is a sanitizer build: many times slower."""
    with open(BINARY, 'rb') as f:
        program = f.read()
    return b'__asan_init' in program or b'__tsan_init' in program


def not_in_a_cluster(commands):
    """Whether they are about other databases or about replicas, and the server under test leads a cluster."""
    return LEADER and re.search(r'\b(select|swapdb|move|db \d+|replicaof|wait)\b', str(commands), re.IGNORECASE) is not None


def eventually(condition, seconds=PATIENCE, pause=0.01):
    """Waits until condition() is true and returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f'not within {seconds} s'
        time.sleep(pause)


def process_state(pid):
    """The state ps shows: 'S' asleep, 'T' stopped. A signal may be delivered after kill() has returned."""
    with open(f'/proc/{pid}/stat', encoding='ascii') as f:
        return f.read().rsplit(')', 1)[1].split()[0]


def cpu_seconds(server):
    """CPU time of the thread that serves clients, which does not depend on the machine's load."""
    with open(f'/proc/{server.proc.pid}/task/{server.proc.pid}/schedstat', encoding='ascii') as f:
        return int(f.read().split()[0]) / 1e9


def in_one_of(rounds, attempt):
    """For limits on time: attempt() has to succeed in one of the rounds, because load may spoil a few."""
    for left in reversed(range(rounds)):
        try:
            return attempt()
        except AssertionError:
            if not left:
                raise


class Parser(DefaultParser):
    """redis-py 5 and later drop the first word of these errors, as redis-py 4 does only in its cluster client."""
    EXCEPTION_CLASSES = {word: kind for word, kind in DefaultParser.EXCEPTION_CLASSES.items()
                         if word not in ('ASK', 'CLUSTERDOWN', 'CROSSSLOT', 'MASTERDOWN', 'MOVED', 'TRYAGAIN')}


class Client(redis.Redis):
    """redis-py's client, but closing it closes its connections, failed commands are not retried, errors begin with their
    word, and a connection says nothing by itself (CLIENT SETINFO of redis-py 5: an error before AUTH)."""

    def __init__(self, **options):
        silent = {} if redis.__version__ < '5' else {'lib_name': None, 'lib_version': None}
        super().__init__(**{'retry': Retry(NoBackoff(), 0), **silent, **options})
        self.connection_pool.connection_kwargs['parser_class'] = Parser

    def close(self):
        super().close()
        if getattr(self, 'connection_pool', None):
            self.connection_pool.disconnect()


class Server:
    """A server process with a directory and a log of its own."""
    crashes = own_dir = False
    proc = env = None

    def __init__(self, *args, port=None, wait=True, stdin=None, name='mayfly', directory=None, before=(),
                 crashes=False):
        """directory: an existing one, which stays; before: a command that runs the server; crashes: intended."""
        self.crashes = crashes
        self.own_dir = directory is None
        self.dir = directory or tempfile.mkdtemp(prefix=f'{name}-')
        self.port = free_port() if port is None else port
        self.log_path = os.path.join(self.dir, f'stdout-{self.port}.log')
        self.args = [*before, BINARY, '--port', str(self.port), '--dir', self.dir, '--save', '',
                     *ENGINE_ARGS, *map(str, args)]
        self.start_first(wait, stdin)

    def start_first(self, wait=True, stdin=None):
        """If it does not start, nobody has got it yet: it leaves nothing."""
        try:
            self.start(wait, stdin)
        except BaseException:
            self.remove()
            raise

    def start(self, wait=True, stdin=None):
        with open(self.log_path, 'wb') as log:
            self.proc = subprocess.Popen(self.args, stdout=log, stderr=log, cwd=self.dir, env=self.env,
                                         stdin=subprocess.DEVNULL if stdin is None else stdin)
        if wait:
            self.wait_ready()

    def restart(self, how=signal.SIGTERM):
        """Ends the server and starts it again, in the same directory."""
        code = self.stop(how)
        assert code == (0 if how == signal.SIGTERM else -how), self.log
        self.check()
        self.start()

    @property
    def log(self):
        with open(self.log_path, 'rb') as f:
            return f.read().decode('utf-8', 'replace')

    def wait_ready(self, seconds=60):
        end = time.monotonic() + seconds
        while 'Ready to accept connections' not in self.log:
            assert self.proc.poll() is None, f'the server ended: {self.log}'
            assert time.monotonic() < end, f'the server did not start: {self.log}'
            time.sleep(0.005)

    def client(self, **options):
        return Client(port=self.port, socket_timeout=PATIENCE, **options)

    def raw(self):
        return Raw(self.port)

    def info(self, section='everything'):
        with self.client() as r:
            return r.info(section)

    def stop(self, how=signal.SIGTERM, seconds=60):
        """Ends the process and returns its exit code."""
        if self.proc.poll() is None:
            self.proc.send_signal(how)
        return self.proc.wait(seconds)

    def remove(self):
        if self.proc and self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()
        if self.own_dir:
            shutil.rmtree(self.dir, ignore_errors=True)

    def check(self):
        """Asserts that the log has no report of a sanitizer or an assertion."""
        if self.crashes:
            return
        found = re.search(r'.*(AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error:|ASSERTION FAILED|'
                          r'BUG REPORT).*', self.log)
        assert not found, self.log[max(0, found.start() - 200):found.start() + 4000]


    def agrees(self):
        """Asserts that the other members, if there are any, have the same data."""


def new_server(*args, **options):
    """A server as MAYFLY_ENGINE wants it."""
    if LEADER:
        from leader import Leader       # pylint: disable=import-outside-toplevel # it is made of this file's
        return Leader(*args, **options)
    return Server(*args, **options)


# -- bodies of fixtures ---------------------------------------------------------------------

def for_a_session(*args):
    """A server for all tests."""
    s = new_server(*args)
    yield s
    try:
        s.agrees()
        assert s.stop(signal.SIGTERM) == 0, s.log
        s.check()
    finally:
        s.remove()


def for_a_test():
    """A function that starts a server which lives until the test ends."""
    started = []

    def start(*args, **options):
        s = new_server(*args, **options)
        started.append(s)
        return s

    yield start
    try:
        for s in started:
            if s.proc.poll() is None:
                s.agrees()
                assert s.stop(signal.SIGTERM) == 0, s.log
            s.check()
    finally:
        for s in started:
            s.remove()


def emptied(server):
    """Empties the shared server for a test. A test that changes its configuration restores it."""
    assert server.proc.poll() is None, f'the shared server crashed: {server.log}'
    server.agrees()
    with server.client() as c:
        c.flushall()
    return server


# -- sockets -------------------------------------------------------------------------------

class ReplyError(str):
    """An error reply, without its '-'."""


class Raw:
    """A bare connection: bytes out, bytes or parsed replies in."""

    def __init__(self, port, timeout=PATIENCE):
        address = port if isinstance(port, str) else ('127.0.0.1', port)
        family = socket.AF_UNIX if isinstance(port, str) else socket.AF_INET
        self.sock = socket.socket(family)
        self.timeout = timeout
        self.sock.settimeout(timeout)
        self.sock.connect(address)
        if family == socket.AF_INET:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.sock.makefile('rb')

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.file.close()
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)
        return self

    def try_send(self, data):
        """As send, to a peer that may close the connection before it has read everything."""
        try:
            self.send(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return self

    def command(self, *args):
        return self.send(encode(*args))

    def call(self, *args):
        return self.command(*args).reply()

    def exactly(self, n):
        data = self.file.read(n)
        assert len(data) == n, f'the connection ended after {data!r}'
        return data

    def line(self):
        line = self.file.readline()
        assert line.endswith(b'\r\n'), f'the connection ended after {line!r}'
        return line[:-2]

    def rest(self):
        """Everything until the server closes the connection."""
        try:
            return self.file.read()
        except ConnectionResetError:
            return b''

    def closed(self):
        return self.rest() == b''

    def silent(self, seconds=0.1):
        """True if nothing arrives (and the connection stays open) for so long."""
        self.sock.settimeout(seconds)
        try:
            self.sock.recv(1, socket.MSG_PEEK)
            return False
        except TimeoutError:
            return True
        finally:
            self.sock.settimeout(self.timeout)

    def reply(self):
        line = self.line()
        kind, rest = line[:1], line[1:]
        if kind == b'+':
            return rest
        if kind == b'-':
            return ReplyError(rest.decode(errors='backslashreplace'))
        if kind == b':':
            return int(rest)
        if kind == b'_':
            return None
        if kind == b'#':
            return rest == b't'
        if kind == b',':
            return float(rest)
        if kind == b'(':
            return int(rest)
        if kind == b'$':
            return None if rest == b'-1' else self.exactly(int(rest) + 2)[:-2]
        if kind == b'=':
            return self.exactly(int(rest) + 2)[4:-2]        # without "txt:"
        if kind in b'*>~':
            return None if rest == b'-1' else [self.reply() for _ in range(int(rest))]
        if kind == b'%':
            return {self.key(): self.reply() for _ in range(int(rest))}
        raise AssertionError(f'not a reply: {line!r}')

    def key(self):
        value = self.reply()
        return tuple(value) if isinstance(value, list) else value


def encode(*args):
    parts = [b'*%d\r\n' % len(args)]
    for a in args:
        a = a if isinstance(a, bytes) else str(a).encode()
        parts.append(b'$%d\r\n%s\r\n' % (len(a), a))
    return b''.join(parts)


INTERVALS_S = {'1s': 1, '10s': 10, '1m': 60, '10m': 600, '1h': 3600, '6h': 21_600, '1d': 86_400,
               '7d': 604_800, '30d': 2_592_000, '365d': 31_536_000, '+Inf': float('inf')}


def forecast(c, *db):
    """EXPIRY FORECAST by the names of its intervals."""
    entries = [dict(zip(*[iter(e)] * 2)) for e in c.call('EXPIRY', 'FORECAST', *db)]
    return {e[b'within'].decode(): e for e in entries}


def check_forecast(c, ttls, start_ms):
    """The forecast of keys that were given these TTLs (in seconds) at start_ms or later: each horizon counts all
    that expire from now until then. TTLs that are not within 1.6 % of a horizon are counted exactly."""
    got = forecast(c)
    took = time.time_ns() // 1_000_000 - start_ms
    assert list(got) == ['overdue', *INTERVALS_S]
    assert got.pop('overdue')[b'keys'] == 0
    for name, entry in got.items():
        ms = INTERVALS_S[name] * 1000
        assert entry[b'from_ms'] == 0 and entry.get(b'to_ms', float('inf')) == ms
        if b'to_ms' in entry:
            assert entry[b'to_unix_ms'] - entry[b'from_unix_ms'] == entry[b'to_ms']
        least = sum(ttl * 1000 <= ms * 0.984 for ttl in ttls)
        most = sum(ttl * 1000 - took <= ms * 1.016 for ttl in ttls)
        assert least <= entry[b'keys'] <= most, (name, ttls, got)
    assert got['+Inf'][b'keys'] == len(ttls)


# A write that makes a file longer than its process may have fails, if it does not mind the signal.
UNMINDFUL = ('sh', '-c', 'trap "" XFSZ; exec "$@"', 'sh')


def no_longer_files(s, size=0):
    resource.prlimit(s.proc.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
