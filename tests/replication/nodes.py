"""Servers that replicate, of three kinds: redis, memory and rocks (Mayfly on either engine)."""
import os
import signal
import tempfile
import time

import mayfly
from mayfly import Raw, ReplyError, eventually

COMMON = ['--save', '', '--enable-debug-command', 'yes', '--repl-diskless-sync-delay', '0']
SOON = ['--repl-retry-delay', '100']
KINDS = {
    'redis': ['redis-server', '--hz', '100', '--appendonly', 'no'],
    'memory': [mayfly.BINARY, '--engine', 'memory', '--appendonly', 'no', *SOON],
    'rocks': [mayfly.BINARY, *mayfly.ENGINES['rocksdb'], *SOON],
}


def now_ms():
    return int(time.time() * 1000)


class Node(mayfly.Server):
    def __init__(self, kind, *args, port=None):                 # pylint: disable=super-init-not-called
        self.kind = kind
        self.own_dir, self.dir = True, tempfile.mkdtemp(prefix=f'repl-{kind}-')
        self.port = port or mayfly.free_port()
        self.log_path = os.path.join(self.dir, 'server.log')
        self.args = [*KINDS[kind], *COMMON, '--port', str(self.port), '--dir', self.dir, *map(str, args)]
        self.start_first()

    def __repr__(self):
        return f'{self.kind}:{self.port}'

    def start(self, wait=True, stdin=None):
        if os.path.exists(self.log_path):
            self.check()                                # start() truncates the log
        super().start(wait, stdin)

    # -- asking -----------------------------------------------------------------------------------

    def ask(self, *command):
        """The reply, also if it is an error."""
        with Raw(self.port, 60) as c:
            return c.call(*command)

    def call(self, *command):
        reply = self.ask(*command)
        assert not isinstance(reply, ReplyError), (self, command, reply)
        return reply

    def config(self, **directives):
        for name, value in directives.items():
            self.call('CONFIG', 'SET', name.replace('_', '-'), value)

    def fields(self, section='replication'):
        """INFO's lines of a section, in order."""
        lines = self.call('INFO', section).decode().split('\r\n')
        return dict(line.split(':', 1) for line in lines if ':' in line)

    def stat(self, name):
        return int(self.fields('stats')[name])

    @property
    def offset(self):
        return int(self.fields()['master_repl_offset'])

    # -- doing ------------------------------------------------------------------------------------

    def follow(self, other):
        """Becomes a replica of a node, or of what a proxy leads to; not while it is loading."""
        eventually(lambda: self.accepts('REPLICAOF', '127.0.0.1', other.port))

    def accepts(self, *command):
        """Whether it is run now: False while the node is loading."""
        reply = self.ask(*command)
        loading = isinstance(reply, ReplyError) and str(reply).startswith('LOADING')
        assert loading or not isinstance(reply, ReplyError), (self, command, reply)
        return not loading

    def promote(self):
        self.call('REPLICAOF', 'NO', 'ONE')

    def kill(self):
        self.stop(signal.SIGKILL)

    def shut_down(self):
        """A clean shutdown; the data is there after a restart."""
        with Raw(self.port, 60) as c:
            c.command('SHUTDOWN', *([] if self.kind == 'rocks' else ['SAVE']))
            assert c.closed()
        assert self.proc.wait(60) == 0, self.log


def linked(replica):
    f = replica.fields()
    return f.get('master_link_status') == 'up' and f['master_sync_in_progress'] == '0'


def online(primary):
    """Whether its first replica counts, for WAIT and min-replicas-to-write: from the replica's first acknowledgement on,
    which Redis 8 may get after the replica has all data."""
    return 'state=online' in primary.fields().get('slave0', '')


def synced(primary, replica):
    p, r = primary.fields(), replica.fields()
    return (r.get('master_link_status') == 'up' and r['master_sync_in_progress'] == '0'
            and all(p[f] == r[f] for f in ('master_replid', 'master_repl_offset')))


def wait_synced(primary, *replicas, seconds=60):
    """Waits until replicas (of it, or of its replicas) have caught up. Nothing may write meanwhile."""
    for r in replicas:
        try:
            eventually(lambda replica=r: synced(primary, replica), seconds, 0.02)
        except AssertionError:
            raise AssertionError(f'{r} does not catch up with {primary}:\n{primary.fields()}\n{r.fields()}\n'
                                 f'--- {primary}\n{primary.log[-3000:]}\n--- {r}\n{r.log[-3000:]}') from None


class Syncs:
    """How many full and partial resyncs a primary has given since."""

    def __init__(self, primary):
        self.primary, self.before = primary, self.count(primary)

    @staticmethod
    def count(node):
        return [node.stat('sync_full'), node.stat('sync_partial_ok')]

    def since(self):
        """(full, partial), since this was asked last."""
        before, self.before = self.before, self.count(self.primary)
        return tuple(b - a for a, b in zip(before, self.before))
