"""A planned change of leader causes no errors: requests wait for the next leader and are redirected to it."""
import threading
import time

import pytest
import redis
from nodes import Client, Cluster, Stopped, eventually
from test_regions import leader_of, node_id, regions, table, together

TIMEOUT_MS = 2000


@pytest.fixture(scope='module')
def four():
    with Cluster(3, ('--cluster-node-timeout', str(TIMEOUT_MS), '--cluster-regions', '4', '--cluster-balance', 'no')) as c:
        together(c, 4)
        yield c


class Load:
    """`with Load(cluster) as load`: threads count in keys of all slots, and read them. They follow MOVED, as any client of a
    cluster does; every other error ends the test. CLUSTERDOWN and TRYAGAIN count: not every client tries again."""

    def __init__(self, cluster, threads=4):
        self.ports = [n.port for n in cluster.nodes]
        self.counts, self.done, self.errors, self.moved = {}, 0, [], 0
        self.over, self.name = threading.Event(), time.monotonic_ns()
        self.threads = [threading.Thread(target=self.run, args=(i, threads)) for i in range(threads)]

    def run(self, number, step):
        clients = {p: Client(port=p, decode_responses=True, socket_timeout=60) for p in self.ports}
        at = dict.fromkeys((f'{self.name}:{i}' for i in range(number, 40, step)), self.ports[0])
        while not self.over.is_set():
            for key, port in at.items():
                for command in (('INCR', key), ('GET', key)):
                    port = self.ask(clients, key, port, command)
                at[key] = port
        for c in clients.values():
            c.close()

    def ask(self, clients, key, port, command):
        """Returns who answered."""
        while not self.over.is_set():
            try:
                value = int(clients[port].execute_command(*command))
                if command[0] == 'INCR':
                    self.counts[key] = self.counts.get(key, 0) + 1
                assert value == self.counts[key], f'{command} is {value} and not {self.counts[key]}'
                self.done += 1
                return port
            except Exception as e:
                if not str(e).startswith('MOVED '):
                    self.errors.append(f'{command} at {port}: {e!r}')
                    self.over.set()
                    return port
                self.moved += 1
                port = int(str(e).rsplit(':', 1)[1])
        return port

    def __enter__(self):
        for t in self.threads:
            t.start()
        eventually(lambda: self.done > 100 or self.errors)
        return self

    def __exit__(self, *_):
        self.over.set()
        for t in self.threads:
            t.join()
        assert not self.errors, self.errors
        assert self.moved > 0


def leads(node, number):
    return regions(node).get(number, {}).get('role') == 'leader'


def test_transfers(four):
    with Load(four):
        for i in range(12):
            number = 1 + i % 4
            at = leader_of(four, number)
            to = four.nodes[(four.nodes.index(at) + 1 + i % 2) % 3]
            with at.client() as c:
                assert c.execute_command('CLUSTER', 'TRANSFER', number, node_id(to)) == 'OK'
            eventually(lambda: leads(to, number), 30, 0.05)


def test_failover_of_all_regions(four):
    with Load(four):
        for i in range(6):
            to = four.nodes[i % 3]
            if not all(leads(to, r) for r in range(1, 5)):
                with to.client() as c:
                    assert c.execute_command('CLUSTER FAILOVER') in (True, 'OK')
            eventually(lambda: all(leads(to, r) for r in range(1, 5)), 30, 0.05)


def test_leaders_that_are_spread():
    with Cluster(3, ('--cluster-node-timeout', str(TIMEOUT_MS), '--cluster-regions', '6', '--cluster-balance', 'no')) as c:
        together(c, 6)
        for number in range(1, 7):
            at, to = leader_of(c, number), c.nodes[0]
            if at is not to:
                with at.client() as r:
                    r.execute_command('CLUSTER', 'TRANSFER', number, node_id(to))
            eventually(lambda: leads(to, number), 30, 0.05)
        with Load(c):
            for n in c.nodes:
                with n.client() as r:
                    r.config_set('cluster-balance', 'yes')
            eventually(lambda: [sum(leads(n, r) for r in range(1, 7)) for n in c.nodes] == [2, 2, 2], 60, 0.2)


def test_a_lost_majority_is_told_in_time(four):
    """Requests wait for another leader, and not for ever."""
    for number in range(1, 5):
        at, to = leader_of(four, number), four.nodes[0]
        if at is not to:
            with at.client() as c:
                c.execute_command('CLUSTER', 'TRANSFER', number, node_id(to))
            eventually(lambda: leads(to, number), 30, 0.05)
    node = four.nodes[1]
    with node.client(socket_timeout=60) as c, Stopped(four.nodes[0], four.nodes[2]):
        eventually(lambda: all(r['leader'] == '-' for r in table(node).values()), 30, 0.02)
        start = time.monotonic()
        with pytest.raises(redis.ResponseError, match='CLUSTERDOWN'):
            c.execute_command('SET', 'k', 'v')
        waited = time.monotonic() - start
        assert TIMEOUT_MS / 1000 < waited < 2 * TIMEOUT_MS / 1000 + 5, waited
        start = time.monotonic()
        with pytest.raises(redis.ResponseError, match='CLUSTERDOWN'):
            c.execute_command('SET', 'k', 'v')
        assert time.monotonic() - start < TIMEOUT_MS / 1000 # it is known by now
    together(four, 4)
