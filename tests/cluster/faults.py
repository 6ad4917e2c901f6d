"""What happens to a cluster while clients are at work. A fault begins, lasts a while, and is mended. Needs machines.py."""
import os
import shutil
import signal
import time

import redis
from nodes import eventually, process_state

SKEW = 0.1      # seconds between a client's clock and a server's: they are the same, but a busy machine delays


class Fault:
    """`options`: directives that nodes get for it."""
    needs, skew, options = (), SKEW, ()
    lasts = 1.0, 4.0

    def __init__(self, cluster, machines, rng, load):
        self.cluster, self.machines, self.rng, self.load = cluster, machines, rng, load
        self.nodes = cluster.nodes

    def begin(self):
        raise NotImplementedError

    def end(self):
        raise NotImplementedError

    def some_node(self, leader=0.7):
        """The leader, with this probability, or another one."""
        nodes = [self.cluster.leader()] if self.rng.random() < leader else self.cluster.followers()
        return self.rng.choice(nodes)

    def number(self, node):
        return self.nodes.index(node)


class Kill(Fault):
    leader = 1.0

    def begin(self):
        self.victim = self.some_node(self.leader)
        self.victim.kill()

    def end(self):
        if not self.victim.alive():     # a change of members may have started it
            self.victim.start()


class KillFollower(Kill):
    leader = 0.0


class Stop(Fault):
    """SIGSTOP, as a machine that swaps or migrates. It wakes up and believes that no time has passed."""
    lasts = 1.0, 6.0

    def begin(self):
        self.victim = self.some_node()
        self.victim.proc.send_signal(signal.SIGSTOP)
        eventually(lambda: process_state(self.victim.proc.pid) == 'T')

    def end(self):
        self.victim.proc.send_signal(signal.SIGCONT)


class Partition(Fault):
    """Two halves that don't hear each other. Clients reach both. Or those who write reach one only: a leader on the other side
    that has nothing under way has no reason to doubt itself, and must not answer reads."""
    needs = ('network',)

    def begin(self):
        alone = {self.number(self.some_node())}
        while self.rng.random() < 0.5 and len(alone) < len(self.nodes) // 2:
            alone.add(self.rng.randrange(len(self.nodes)))
        if self.rng.random() < 0.5:
            self.cut(alone)
            return
        with self.load.no_writes():
            self.cut(alone)
            self.load.out_of_reach = [self.nodes[i].address for i in alone]

    def cut(self, alone):
        for i in range(len(self.nodes)):
            self.silence(i, [j for j in range(len(self.nodes)) if (j in alone) != (i in alone)])

    def silence(self, i, to):
        self.machines.network.filter(i, [self.machines.network.hosts[j] for j in to])

    def end(self):
        self.load.out_of_reach = ()
        self.machines.network.heal()


class StaleLeader(Partition):
    """The leader alone on its side, with readers only: until it steps down, others may have another leader, and write there."""
    lasts = 2.2, 2.8

    def begin(self):
        with self.load.no_writes():
            alone = self.number(self.cluster.leader())
            self.cut({alone})
            self.load.out_of_reach = [self.nodes[alone].address]


class OneWay(Partition):
    """One node is not heard by others, or does not hear them; or just one other."""

    def begin(self):
        one = self.number(self.some_node())
        others = [i for i in range(len(self.nodes)) if i != one]
        if self.rng.random() < 0.3:
            others = [self.rng.choice(others)]
        if self.rng.random() < 0.5:
            self.silence(one, others)
        else:
            for i in others:
                self.silence(i, [one])


class Loss(Partition):
    """Every node loses some of what it sends, to clients too."""
    lasts = 2.0, 5.0

    def begin(self):
        loss = self.rng.choice((0.05, 0.15, 0.3))
        for i in range(len(self.nodes)):
            self.machines.network.filter(i, loss=loss)


class SlowDisk(Fault):
    needs = ('sync',)

    def begin(self):
        slow = {self.number(self.some_node(0.5))}
        if self.rng.random() < 0.4:
            slow.add(self.rng.randrange(len(self.nodes)))
        for i in slow:
            self.machines.dials['sync', i].turn(self.rng.choice((20, 100, 500, 2500)))

    def end(self):
        for i in range(len(self.nodes)):
            self.machines.dials['sync', i].turn(0)


class FullDisk(Fault):
    """The node ends, because it can't keep the log. It is started again when there is room."""
    needs = ('small disk',)

    def begin(self):
        self.victim = self.some_node(0.6)
        self.ballast = os.path.join(self.machines.disks[self.number(self.victim)].path, 'ballast')
        with open(self.ballast, 'wb', buffering=0) as f:
            size = 1 << 20
            while size:
                try:
                    f.write(bytes(size))
                except OSError:
                    size //= 2

    def end(self):
        os.remove(self.ballast)
        if not self.victim.alive():
            self.victim.start()


class Clock(Fault):
    """A wall clock steps, by 400 seconds back or ahead, or to what it should be. Keys may live that much longer or shorter, but
    a key that was seen dead stays dead."""
    needs, skew = ('clock',), 401.0
    lasts = 1.0, 3.0

    def begin(self):
        self.machines.dials['clock', self.number(self.some_node())].turn(self.rng.choice((-400, 400, -400, 0)))
        if self.rng.random() < 0.5:       # a leader with another clock
            self.move_leader()

    def move_leader(self):
        try:
            with self.rng.choice(self.cluster.followers()).client() as c:
                c.execute_command('CLUSTER FAILOVER')
        except (redis.RedisError, IndexError):
            pass

    def end(self):
        """Nothing is mended: the clocks stay as they are."""


class ClockAhead(Fault):
    """The clock of a follower is ahead. It applies entries at their stamps all the same."""
    needs, skew = ('clock',), 401.0
    lasts = 2.0, 4.0

    def begin(self):
        self.machines.dials['clock', self.number(self.rng.choice(self.cluster.followers()))].turn(400)

    def end(self):
        for i in range(len(self.nodes)):
            self.machines.dials['clock', i].turn(0)


class Power(Fault):
    """All machines lose power at once, when their disks are behind: those of followers, or all. First they stop: what they say
    after their disk has gone would not have been said."""
    needs = 'lossy disk', 'sync'
    lasts = 0.0, 0.5

    def begin(self):
        if self.rng.random() < 0.5:
            self.slow_down(self.cluster.followers(), self.rng.choice((0, 20, 100, 100)))
        else:
            self.slow_down(self.nodes, self.rng.choice((100, 1000)))
        time.sleep(0.5)
        self.cut()

    def slow_down(self, nodes, sync_ms):
        for n in nodes:
            self.machines.dials['sync', self.number(n)].turn(sync_ms)

    def cut(self):
        running = [n for n in self.nodes if n.alive()]
        for n in running:
            n.proc.send_signal(signal.SIGSTOP)
        for n in running:
            eventually(lambda n=n: process_state(n.proc.pid) == 'T')
        for disk in self.machines.disks:
            disk.cut()
        for n in running:
            n.kill()
        for disk in self.machines.disks:
            disk.power_on()
        self.slow_down(self.nodes, 0)

    def end(self):
        for n in self.nodes:
            if not n.alive():
                n.start()


class PowerDead(Power):
    """Followers have slow disks and clocks that are behind. Keys die, are seen dead on the leader, and nothing else is written.
    Then all lose power, and the followers come back without the leader. What was seen dead stays dead."""
    needs, skew = ('lossy disk', 'sync', 'clock'), 401.0
    lasts = 2.0, 3.0

    def begin(self):
        others = self.cluster.followers()
        for n in others:
            self.machines.dials['clock', self.number(n)].turn(-400)
        with self.load.no_writes():
            self.slow_down(others, 5000)
            time.sleep(self.rng.uniform(1.0, 2.0))
            self.cut()
        for n in others:
            n.start()
        self.cluster.leader()

    def end(self):
        for i in range(len(self.nodes)):
            self.machines.dials['clock', i].turn(0)
        super().end()


class PowerCompacted(Power):
    """The same, when the log has just forgotten entries of which the data is not synced: RocksDB has to bring back both, or
    neither. Memtables are flushed several times a second, those of the log and of the data at different times."""
    options = '--cluster-log-keep-entries', '1', '--rocksdb-write-buffer-size', '65536'


class Merge(Fault):
    """The region is split somewhere, and merged again. Sometimes a node is killed or stopped right then: the merge may have
    happened, or is given up."""
    signals = ()
    options = '--cluster-balance', 'no'
    lasts = 0.5, 3.0

    def begin(self):
        self.victim, self.signal = None, self.rng.choice(self.signals) if self.signals else None
        eventually(self.split, 60, 0.1)
        if self.rng.random() < 0.5:
            self.part()
        self.merge()
        if self.signal:
            time.sleep(self.rng.random() * 0.1)
            self.victim = self.rng.choice(self.nodes)
            self.victim.proc.send_signal(self.signal)

    def end(self):
        if self.signal == signal.SIGKILL:
            self.victim.proc.wait()
            self.victim.start()
        elif self.signal:
            self.victim.proc.send_signal(signal.SIGCONT)
        eventually(lambda: all(self.regions(n) == 1 for n in self.known()) or self.merge(), 60, 0.3)

    def known(self):
        """The nodes of the cluster: a change of members may have removed one, which is started anew only afterwards."""
        with self.cluster.leader().client() as c:
            known = c.execute_command('CLUSTER', 'NODES')
        return [n for n in self.nodes if any(row.startswith(f'{n.host}:{n.port}') for row in known)]

    @staticmethod
    def regions(node):
        return len([r for r in node.regions().values() if r['slots'] != '-'])

    def ask(self, *command):
        """Of whoever takes it."""
        for n in self.nodes:
            try:
                with n.client(socket_timeout=3) as c:
                    if n.alive() and c.execute_command('CLUSTER', *command) == 'OK':
                        return True
            except (redis.ResponseError, redis.ConnectionError, redis.TimeoutError):
                pass
        return False

    def split(self):
        if max(self.regions(n) for n in self.nodes) == 1 and not self.ask('SPLIT', self.rng.randrange(1, 16384)):
            return False
        return all(self.regions(n) == 2 for n in self.nodes)

    def part(self):
        """Leadership of the two has to be brought together before the merge."""
        with self.rng.choice(self.nodes).client(socket_timeout=3) as c:
            to = c.execute_command('CLUSTER', 'MYID')
        self.ask('TRANSFER', self.upper(), to)

    def upper(self):
        return max((number for n in self.nodes for number in n.regions()), default=1)

    def merge(self):
        self.ask('MERGE', self.upper())


class MergeBroken(Merge):
    signals = signal.SIGKILL, signal.SIGSTOP


FAULTS = {'kill-leader': Kill, 'kill-follower': KillFollower, 'stop': Stop, 'partition': Partition, 'stale-leader': StaleLeader,
          'one-way': OneWay, 'loss': Loss, 'slow-disk': SlowDisk, 'full-disk': FullDisk, 'clock': Clock,
          'clock-ahead': ClockAhead, 'power-dead': PowerDead, 'power': Power, 'power-compacted': PowerCompacted, 'merge': Merge,
          'merge-broken': MergeBroken}


# -- members -----------------------------------------------------------------------------------------------------


class Change:
    """A member is removed and comes back as a new one, with nothing: while a fault lasts, if the cluster can do it then, or
    else afterwards."""

    def __init__(self, cluster, rng):
        self.cluster, self.rng = cluster, rng
        self.victim = self.name = None
        self.done = False

    def begin(self):
        self.victim = self.rng.choice(self.cluster.followers())
        with self.victim.client() as c:
            self.name = c.execute_command('CLUSTER MYID')

    def step(self):
        """Whether it is done: removed, and started anew. Once."""
        leader = next((n for n in self.cluster.nodes if n.leads()), None)
        if self.done or not leader:
            return self.done
        if leader is self.victim:       # it was elected: another time
            self.done = True
            return True
        region = leader.region()
        try:
            with leader.client(socket_timeout=3) as c:
                if not region.get('joint') and not self.is_member(c):
                    self.start_anew(leader)
                    self.done = True
                    return True
                c.execute_command('CLUSTER FORGET', self.name)
        except redis.ResponseError as e:
            if not any(w in str(e) for w in ('TRYAGAIN', 'node that leads', 'not a member')):
                raise
        except (redis.ConnectionError, redis.TimeoutError):
            pass
        return False

    def is_member(self, c):
        return any(self.name == node[2] for slots in c.execute_command('CLUSTER', 'SLOTS') for node in slots[2:])

    def start_anew(self, leader):
        if self.victim.alive():
            self.victim.kill()
        shutil.rmtree(self.victim.folder)
        os.makedirs(self.victim.folder)
        self.victim.start('--cluster-join', f'{leader.host}:{leader.port}')

    def finish(self, seconds=60):
        end = time.monotonic() + seconds
        while not self.step():
            assert time.monotonic() < end, f'node {self.name} is not forgotten within {seconds} s'
            time.sleep(0.2)
