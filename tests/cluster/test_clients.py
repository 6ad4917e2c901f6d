"""Applications with redis-py's cluster client, while nodes are restarted: no wrong answer and no error."""
import contextlib
import random
import shutil
import subprocess
import threading
import time

import pytest
import redis
import redis.cluster
from nodes import Cluster, Node, eventually

OPTIONS = ('--cluster-node-timeout', '500')
PATIENT = 60        # attempts of the client, a quarter of a second each while there is no leader


class Nodes(redis.cluster.NodesManager):
    """redis-py before 4.4.2 keeps a node a replica when CLUSTER SLOTS calls it the primary. With one region no primary may be
    left after a failover: an IndexError."""

    def _get_or_create_cluster_node(self, host, port, role, *more):
        node = super()._get_or_create_cluster_node(host, port, role, *more)
        node.server_type = role
        return node


class Client(redis.RedisCluster):
    """redis-py 4.3 copies its options, and with them itself, when it asks a node again that it has lost. Its lock can't be
    copied."""

    def __init__(self, **options):
        super().__init__(**options)
        self.nodes_manager.__class__ = Nodes

    def __deepcopy__(self, memo):
        return self

    def _execute_command(self, *args, **options):
        """redis-py 6 does not wait before it asks again."""
        try:
            return super()._execute_command(*args, **options)
        except (redis.ConnectionError, redis.TimeoutError):
            time.sleep(0.25)
            raise


class Application(threading.Thread):
    """One client and its keys, which nobody else writes. What is read must be what was written last. All their
    commands may run twice: the client sends them again if it has lost the answer."""

    def __init__(self, cluster, number, pipelines):
        super().__init__()
        self.pipelines = pipelines
        node = random.choice(cluster.nodes)
        self.client = Client(host=node.host, port=node.port, decode_responses=True, socket_timeout=10,
                             cluster_error_retry_attempts=PATIENT)
        self.rng, self.name, self.turn = random.Random(number), f'app{number}', 0
        self.stopping, self.done, self.wrong, self.deadlines = threading.Event(), 0, [], {}

    def check(self, what, got, wanted):
        if got != wanted:
            self.wrong.append(f'{what}: {got} and not {wanted}')

    def strings(self):
        key, value = f'{self.name}:{self.rng.randrange(50)}', str(self.turn)
        self.client.set(key, value, ex=1000)
        self.check(key, self.client.get(key), value)
        ttl = self.client.ttl(key)
        if not 900 < ttl <= 1000:
            self.wrong.append(f'{key} has a TTL of {ttl}')

    def expiry(self):
        key = f'{self.name}:soon:{self.turn}'
        before = time.monotonic()
        self.client.set(key, 'x', px=200)
        self.deadlines[key] = time.monotonic() + 0.2
        seen = self.client.get(key)
        if seen is None and time.monotonic() < before + 0.2:
            self.wrong.append(f'{key} died before its time')
        for old in [k for k, at in self.deadlines.items() if at < time.monotonic()]:
            self.check(old, self.client.get(old), None)
            del self.deadlines[old]

    def collections(self):
        tag = f'{{{self.name}:{self.rng.randrange(10)}}}'
        self.client.sadd(f'{tag}:set', self.turn)
        self.client.hset(f'{tag}:hash', 'turn', self.turn)
        self.check(f'{tag}:hash', self.client.hget(f'{tag}:hash', 'turn'), str(self.turn))
        self.check(f'{tag}:set', bool(self.client.sismember(f'{tag}:set', self.turn)), True)

    def pipeline(self):
        with self.client.pipeline() as p:
            for i in range(10):
                p.set(f'{self.name}:p{i}', self.turn)
                p.get(f'{self.name}:p{i}')
            self.check('a pipeline', p.execute(), [True, str(self.turn)] * 10)

    def run(self):
        kinds = [self.strings, self.strings, self.expiry, self.collections] + [self.pipeline] * self.pipelines
        try:
            while not self.stopping.is_set():
                self.turn += 1
                self.rng.choice(kinds)()
                self.done += 1
                time.sleep(0.005)
        except Exception as e:      # noqa: B902 # pylint: disable=broad-except
            self.wrong.append(f'{type(e).__name__}: {e}')
        self.client.close()


class Applications:
    """`with Applications(cluster) as apps`: several at work. At the end nothing may be wrong. `pipelines`: they use some, too;
    redis-py 4 does not repeat one whose node was killed."""

    def __init__(self, cluster, count=3, pipelines=False):
        self.apps = [Application(cluster, i, pipelines) for i in range(count)]

    def __enter__(self):
        for a in self.apps:
            a.start()
        return self

    def __exit__(self, kind, *_):
        for a in self.apps:
            a.stopping.set()
        for a in self.apps:
            a.join()
        if not kind:
            assert not self.wrong, self.wrong

    @property
    def wrong(self):
        return [w for a in self.apps for w in a.wrong]

    def some(self, turns=30):
        """Each of them has done something since."""
        goals = [a.done + turns for a in self.apps]
        eventually(lambda: self.wrong or all(a.done >= g for a, g in zip(self.apps, goals)), 120)
        assert not self.wrong, self.wrong


@pytest.fixture
def trio():
    with Cluster(3, OPTIONS) as c:
        yield c


def restart(node):
    with node.client() as c, contextlib.suppress(redis.ConnectionError):
        c.execute_command('SHUTDOWN')
    assert node.proc.wait(60) == 0
    node.start()


def test_rolling_restart(trio):
    """No command fails."""
    with Applications(trio, pipelines=True) as apps:
        for n in sorted(trio.nodes, key=Node.leads):
            apps.some()
            restart(n)
            trio.settled(3)
        apps.some()


def test_leaders_are_killed(trio):
    with Applications(trio) as apps:
        for _ in range(2):
            apps.some()
            killed = trio.leader()
            killed.kill()
            apps.some(10)
            killed.start()
            trio.settled(3)
        apps.some()


def test_all_nodes_stopped_and_started(trio):
    """An orderly end of all of them, then power is back: everything is there."""
    with contextlib.closing(redis.RedisCluster(port=trio.nodes[0].port, host='127.0.0.1')) as c:
        for i in range(200):
            c.set(f'k{i}', i, ex=1000)
    for n in trio.nodes:
        n.proc.terminate()
    assert [n.proc.wait(60) for n in trio.nodes] == [0, 0, 0]
    for n in trio.nodes:
        n.start()
    trio.settled(3)
    with contextlib.closing(redis.RedisCluster(port=trio.nodes[0].port, host='127.0.0.1')) as c:
        assert [c.get(f'k{i}') for i in range(200)] == [str(i).encode() for i in range(200)]
        assert all(0 < c.ttl(f'k{i}') <= 1000 for i in range(200))
    if shutil.which('redis-cli'):
        done = subprocess.run(['redis-cli', '--cluster', 'check', f'127.0.0.1:{trio.nodes[2].port}'], capture_output=True,
                              text=True, timeout=60, check=False)
        assert done.returncode == 0 and 'All 16384 slots covered' in done.stdout, done.stdout
