"""Sites on machines of their own: network namespaces, clocks that step. Site 1 has a replica that can take its place."""
import os
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(HERE, '..', 'cluster'))

import mayfly                                                            # noqa: E402
from machines import Machines, Network                                   # noqa: E402
from mayfly import eventually                                            # noqa: E402
from sites import Group, Site                                            # noqa: E402

PORT = 7001
SPARE = 3                               # the machine of the replica


class MachineSite(Site):
    """A site that has the network and the clock of a machine."""

    def __init__(self, machines, at, gid, *args):
        self.host, self.at = machines.network.hosts[at], at
        self.env = {**os.environ, 'LD_PRELOAD': machines.libraries['clock'], 'CLOCK_STEP_FILE': machines.dials['clock', at].path}
        super().__init__(gid, '--bind', self.host, '--protected-mode', 'no', '--repl-timeout', 10, *args, port=PORT,
                         before=Network.enter(machines.network.holders[at]))

    def client(self, **options):
        return mayfly.Client(host=self.host, port=self.port, socket_timeout=mayfly.PATIENCE, **options)


class MachineGroup(Group):
    """As Group, without proxies."""

    def __init__(self, *args):              # pylint: disable=super-init-not-called
        self.sites, self.links, self.spare, self.blocked = [], {}, None, set()
        self.machines = Machines(4, ('network', 'clock'))
        try:
            for at in range(4):
                self.machines.dial('clock', at)
            self.sites = [MachineSite(self.machines, at, at + 1, *self.peers(at + 1), *args) for at in range(3)]
            self.settle()
            self.spare = MachineSite(self.machines, SPARE, 1, '--replicaof', self[1].host, PORT, *self.peers(1), *args)
            eventually(self.in_step)
        except BaseException:
            self.close()
            raise

    def peers(self, gid):
        hosts = self.machines.network.hosts
        return [a for g in (1, 2, 3) if g != gid for a in ('--site-peer', g, hosts[g - 1], PORT)]

    def hosts_of(self, gid):
        return {s.host for s in (*self.sites, self.spare) if s and s.gid == gid}

    def cut(self, a, b):
        self.cut_off(a, b)
        self.cut_off(b, a)

    def cut_off(self, a, b):
        """Nothing of site a reaches site b."""
        self.blocked.add((a, b))
        self.filter()

    def restore(self):
        self.blocked.clear()
        self.filter()

    def filter(self):
        for s in filter(None, (*self.sites, self.spare)):
            blocked = [h for a, b in self.blocked if a == s.gid for h in self.hosts_of(b)]
            self.machines.network.filter(s.at, blocked)

    def step_clock(self, at, seconds):
        self.machines.dials['clock', at].turn(seconds)

    def restart(self, gid, how):
        self[gid].restart(how)
        self.tell(self[gid])

    def tell(self, site):
        """Where site 1 is may have changed since the site was started."""
        if site.gid != 1:
            site.do('PEEROF', 1, self[1].host, PORT)

    def in_step(self):
        return self.spare.r.info('replication').get('master_link_status') == 'up'

    def take_over(self, kill):
        """The replica of site 1 becomes the site, and the old server its replica."""
        old, new = self[1], self.spare
        eventually(self.in_step)
        if kill:
            old.stop(signal.SIGKILL)
            old.check()
            new.do('REPLICAOF', 'NO', 'ONE')
            old.start()
            old.do('REPLICAOF', new.host, PORT)
        else:
            old.do('FAILOVER')
            eventually(lambda: new.r.info('replication')['role'] == 'master')
        if '--replicaof' in new.args:           # it would be one again when it is started
            at = new.args.index('--replicaof')
            del new.args[at:at + 3]
        self.sites[0], self.spare = new, old
        for s in self.sites:
            self.tell(s)

    def close(self):
        for s in filter(None, (*self.sites, self.spare)):
            s.remove()
        self.machines.close()

    def check(self):
        for s in (*self.sites, self.spare):
            if s.proc.poll() is None:
                assert s.stop() == 0, s.log
            s.check()
