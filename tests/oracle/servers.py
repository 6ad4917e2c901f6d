"""Starts and stops the two servers that are compared."""
import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time

from resp import Conn, ConnectionLost

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'server'))

from cluster_args import CLUSTER, port_with_bus                          # noqa: E402
from ports import free_port                                              # noqa: E402


class Server:
    """One server process with a directory of its own; restart() after a crash."""

    def __init__(self, name, path, extra=()):
        threads = os.environ.get('MAYFLY_IO_THREADS') if name == 'mayfly' else None
        self.name, self.path, self.extra = name, path, [*extra, *(['--io-threads', threads] if threads else [])]
        self.proc = None
        self.dir = tempfile.mkdtemp(prefix='oracle-%s-' % name)
        self.log = os.path.join(self.dir, 'stdout.log')
        atexit.register(self.remove)
        self.start()

    def start(self):
        self.port = self.new_port()
        for left in 'rocksdb', 'appendonlydir':                                # always empty at first
            shutil.rmtree(os.path.join(self.dir, left), ignore_errors=True)
        args = [self.path, '--port', str(self.port), '--bind', '127.0.0.1',
                '--dir', self.dir, '--save', '', '--appendonly', 'no',
                '--enable-debug-command', 'yes', '--loglevel', 'warning'] + self.extra
        # SORT ALPHA follows the locale's collation: pin it.
        env = dict(os.environ, LC_ALL='C')
        with open(self.log, 'ab') as log:
            self.proc = subprocess.Popen(args, stdout=log, stderr=log, env=env,
                                         stdin=subprocess.DEVNULL)
        self.wait_ready()

    def new_port(self):
        return free_port()

    def wait_ready(self, seconds=60):
        deadline = time.time() + seconds
        while time.time() < deadline:
            if self.proc.poll() is not None:
                break
            try:
                c = Conn(self.port, 2)
                try:
                    if c.call('PING') == ('+', b'PONG'):
                        return
                finally:
                    c.close()
            except (OSError, ConnectionLost):
                pass
            time.sleep(0.02)
        raise SystemExit('%s did not start:\n%s' % (self.path, self.tail()))

    def tail(self, size=3000):
        with open(self.log, 'rb') as f:
            return f.read()[-size:].decode('utf-8', 'replace')

    def connect(self, timeout=30):
        return Conn(self.port, timeout)

    def alive(self):
        return self.proc.poll() is None

    def restart(self):
        self.stop()
        self.start()

    def stop(self):
        if self.proc and self.proc.poll() is None:
            self.proc.kill()        # nothing to save
            self.proc.wait()

    def remove(self):
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)


class Leader(Server):
    """The leader of a cluster of three nodes. When it dies, all of them start again."""

    def __init__(self, name, path, extra=()):
        self.followers = []
        super().__init__(name, path, [*extra, '--engine', 'rocksdb', *CLUSTER, '--cluster-init', 'yes'])

    def new_port(self):
        return port_with_bus()

    def start(self):
        super().start()
        join = ['--engine', 'rocksdb', *CLUSTER, '--cluster-join', '127.0.0.1:%d' % self.port]
        self.followers = [Follower('follower', self.path, join) for _ in range(2)]
        deadline = time.time() + 60
        while not all(b'voters=3,learners=0,joint=0' in f.ask('INFO', 'cluster') for f in self.followers):
            if time.time() > deadline:
                raise SystemExit('the cluster is not complete:\n' + self.tail())
            time.sleep(0.05)

    def stop(self):
        for follower in self.followers:
            follower.remove()
        self.followers = []
        super().stop()

    def digests(self):
        """Of the data of each node."""
        return [node.ask('DEBUG', 'DIGEST') for node in (self, *self.followers)]

    def ask(self, *command):
        conn = self.connect()
        try:
            return conn.call(*command)[1]
        finally:
            conn.close()


class Follower(Server):
    new_port, ask = Leader.new_port, Leader.ask
