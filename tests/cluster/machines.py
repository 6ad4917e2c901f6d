"""Machines for the nodes of a cluster: network namespaces, disks that fill up or lose power, clocks that step.

Features that need root raise Unavailable. in_namespaces() restarts this program in its own namespaces, in which bridges, mounts
and processes end with it.
"""
import os
import struct
import subprocess
import sys
import tempfile

from nodes import Node, eventually

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(os.path.dirname(HERE), 'fault'))
from machine import LossyDisk, SmallDisk, Unavailable, run  # noqa: E402

CLIENTS = '10.99.0.254'
DROP, PASS = 2, 0       # what a filter answers: TC_ACT_SHOT, TC_ACT_OK


# -- network -------------------------------------------------------------------------------------------------


def inside():
    return bool(os.environ.get('MAYFLY_IN_NAMESPACES'))


def in_namespaces():
    """Starts this program again, in namespaces of its own. Without root it goes on as it is."""
    if os.geteuid() or inside():
        return
    os.environ['MAYFLY_IN_NAMESPACES'] = '1'
    within = ['unshare', '--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc']
    if subprocess.run([*within, 'true'], check=False).returncode == 0:
        os.execvp(within[0], [*within, sys.executable, *sys.argv])
    del os.environ['MAYFLY_IN_NAMESPACES']


def filter_code(blocked, loss):
    """A packet filter, as tc wants it: drops IPv4 to these addresses, and of the rest this fraction."""
    code, n = [(40, 0, 0, 12)], len(blocked)                # the type of the frame
    code.append((21, 0, n + 3, 0x0800))                     # IPv4, or else it passes
    code.append((32, 0, 0, 30))                             # where to
    for i, address in enumerate(blocked):
        ip = int.from_bytes(bytes(map(int, address.split('.'))), 'big')
        code.append((21, n - i + 2, 0, ip))
    code.append((32, 0, 0, 0xfffff038))                     # a random number
    code.append((53, 1, 0, min(int((1 - loss) * 2**32), 2**32 - 1)))
    code += [(6, 0, 0, PASS), (6, 0, 0, DROP)]
    return f'{len(code)},' + ','.join('%d %d %d %d' % c for c in code)


class Network:
    """Each node in a namespace of its own, on one bridge; clients are where this program is."""

    def __init__(self, size):
        if not inside():
            raise Unavailable('needs root, for network namespaces')
        run('ip', 'link', 'set', 'lo', 'up')
        run('ip', 'link', 'add', 'br0', 'type', 'bridge')
        run('ip', 'link', 'set', 'br0', 'up')
        run('ip', 'addr', 'add', f'{CLIENTS}/24', 'dev', 'br0')
        self.hosts = [f'10.99.0.{i + 1}' for i in range(size)]
        self.holders = [self.plug_in(i) for i in range(size)]

    def plug_in(self, i):
        """A process that keeps the namespace."""
        holder = subprocess.Popen(['unshare', '--net', 'sleep', 'infinity'])
        own = os.readlink('/proc/self/ns/net')
        eventually(lambda: os.readlink(f'/proc/{holder.pid}/ns/net') != own)
        run('ip', 'link', 'add', f'v{i}', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', holder.pid)
        run('ip', 'link', 'set', f'v{i}', 'up', 'master', 'br0')
        inside = self.enter(holder)
        run(*inside, 'ip', 'link', 'set', 'lo', 'up')
        run(*inside, 'ip', 'link', 'set', 'eth0', 'up')
        run(*inside, 'ip', 'addr', 'add', f'{self.hosts[i]}/24', 'dev', 'eth0')
        run(*inside, 'tc', 'qdisc', 'add', 'dev', 'eth0', 'clsact')
        return holder

    @staticmethod
    def enter(holder):
        return ['nsenter', f'--net=/proc/{holder.pid}/ns/net', '--']

    def filter(self, i, blocked=(), loss=0.0):
        """What node i sends to these hosts is lost, and this fraction of the rest."""
        run(*self.enter(self.holders[i]), 'tc', 'filter', 'replace', 'dev', 'eth0', 'egress', 'prio', 1, 'handle', 1, 'bpf', 'da',
            'bytecode', filter_code(list(blocked), loss))

    def heal(self):
        for i in range(len(self.hosts)):
            self.filter(i)

    def close(self):
        for i, holder in enumerate(self.holders):
            run('ip', 'link', 'del', f'v{i}')
            holder.kill()
            holder.wait()
        run('ip', 'link', 'del', 'br0')


# -- clocks and slow disks -------------------------------------------------------------------------------------


class Dial:
    """A number that a preloaded library reads."""

    def __init__(self, path):
        self.path = path
        self.turn(0, 'wb')

    def turn(self, number, mode='r+b'):
        with open(self.path, mode) as f:
            f.write(struct.pack('=q', number))


PRELOADED = {'clock': (os.path.join(os.path.dirname(HERE), 'server', 'stepping_clock.c'), 'CLOCK_STEP_FILE'),
             'sync': (os.path.join(HERE, 'slow_disk.c'), 'SLOW_DISK_FILE')}


# -- all of it -------------------------------------------------------------------------------------------------


class Machines:
    """What the nodes of one cluster run on. `needs`: 'network', 'small disk', 'lossy disk', 'clock', 'sync'. Within namespaces each
    node has one of its own, needed or not."""

    def __init__(self, size, needs=()):
        self.folder = tempfile.mkdtemp(prefix='mayfly-machines-')
        self.needs, self.disks, self.dials, self.network = needs, [], {}, None
        try:
            if 'small disk' in needs:
                self.disks = [SmallDisk(256) for _ in range(size)]
            if 'lossy disk' in needs:
                self.disks = [LossyDisk(512) for _ in range(size)]
            self.network = Network(size) if 'network' in needs or inside() else None
        except BaseException:
            self.close()
            raise
        self.libraries = {what: self.build(what) for what in PRELOADED if what in needs}

    def build(self, what):
        path = os.path.join(self.folder, f'{what}.so')
        run(os.environ.get('CC', 'gcc').split()[-1], '-shared', '-fPIC', '-O1', '-o', path, PRELOADED[what][0])
        return path

    def dial(self, what, i):
        self.dials[what, i] = Dial(os.path.join(self.folder, f'{what}{i}'))
        return self.dials[what, i]

    def node(self, i, folder, options):
        env = {}
        for what, path in self.libraries.items():
            env.update({'LD_PRELOAD': path, PRELOADED[what][1]: self.dial(what, i).path})
        where = {'host': self.network.hosts[i], 'port': 7001, 'before': Network.enter(self.network.holders[i])} \
            if self.network else {}
        data = os.path.join(self.disks[i].path, 'data') if self.disks else folder
        return Node(data, options, env=env, log=os.path.join(self.folder, f'log{i}'), **where)

    def close(self):
        if self.network:
            self.network.close()
        for d in self.disks:
            d.remove()
        subprocess.run(['rm', '-rf', self.folder], check=False)
