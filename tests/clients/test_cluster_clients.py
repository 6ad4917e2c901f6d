"""Cluster clients of other languages, while regions are split, leadership is transferred, and leaders are killed. `make clients`
runs this; the packages come from npm, Go's proxy and Maven Central. Also Debian's Prometheus exporter for Redis.

Each client is a program that writes and reads its own keys, also in pipelines, in transactions and with TTLs, and retries commands
that fail. At the line `look` it prints how many rounds it has done, how many commands failed, and how many replies were wrong. An
error that a client handles by itself, such as MOVED, is not a failure."""
import contextlib
import os
import shutil
import subprocess
import sys
import threading
import urllib.request

import pytest
from mayfly import ROOT, eventually, free_port
from test_node import modules       # noqa: F401 # a fixture # pylint: disable=unused-import

sys.path.insert(0, os.path.join(ROOT, 'tests', 'cluster'))
from nodes import Cluster       # noqa: E402
from test_regions import leader_of, node_id, regions, together      # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
PLACE = os.path.join(ROOT, 'build')
OPTIONS = ('--cluster-node-timeout', '1000', '--cluster-regions', '2', '--cluster-balance', 'no')


def needs(*tools):
    for tool in tools:
        if not shutil.which(tool):
            pytest.skip(f'{tool} is not installed')


def prepare(what, *command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)
    if done.returncode:
        pytest.skip(f'{what} can not be had: ' + (done.stderr or done.stdout).strip()[-300:])


@pytest.fixture(scope='module')
def go_program():
    needs('go')
    program = os.path.join(PLACE, 'clients-go')
    prepare('go-redis', 'go', 'build', '-o', program, '.', cwd=os.path.join(HERE, 'go'))
    return [program]


@pytest.fixture(scope='module')
def java_program():
    needs('java', 'mvn')
    path = os.path.join(PLACE, 'clients-java.classpath')
    prepare('jedis', 'mvn', '-q', '-B', 'dependency:build-classpath', f'-Dmdep.outputFile={path}', cwd=os.path.join(HERE, 'java'))
    with open(path, encoding='utf-8') as f:
        return ['java', '-cp', f.read().strip(), os.path.join(HERE, 'java', 'Events.java')]


@pytest.fixture(scope='module')
def node_program(modules):      # noqa: F811 # pylint: disable=redefined-outer-name
    return (lambda name: ['node', os.path.join(HERE, 'node', name)]), {'NODE_PATH': modules}


class Program:
    def __init__(self, command, address, env=None):
        self.said = []
        self.proc = subprocess.Popen([*command, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        self.reader = threading.Thread(target=lambda: self.said.extend(self.proc.stderr), daemon=True)
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.proc.stdin.close()
        self.proc.kill()
        self.proc.wait()

    def look(self):
        self.proc.stdin.write('look\n')
        self.proc.stdin.flush()
        line = self.proc.stdout.readline()
        assert line, ''.join(self.said[-20:])
        turns, errors, wrong = map(int, line.split())
        assert not wrong, ''.join(self.said[-20:])
        return turns, errors

    def goes_on(self, turns=20):
        """It does so many turns more."""
        goal = self.look()[0] + turns
        try:
            eventually(lambda: self.look()[0] >= goal, 60, 0.05)
        except AssertionError as e:
            raise AssertionError(''.join(self.said[-20:])) from e

    @contextlib.contextmanager
    def no_errors(self):
        """What happens within costs no command an error, nor do the turns after it."""
        before = self.look()[1]
        yield
        self.goes_on()
        assert self.look()[1] == before, ''.join(self.said[-20:])


def split(cluster, number, slot):
    count = len(regions(cluster.nodes[0]))
    with leader_of(cluster, number).client() as c:
        assert c.execute_command('CLUSTER', 'SPLIT', slot) == 'OK'
    together(cluster, count + 1)


def hand_over(cluster, number, to):
    with leader_of(cluster, number).client() as c:
        assert c.execute_command('CLUSTER', 'TRANSFER', number, node_id(to)) == 'OK'
    eventually(lambda: regions(to)[number]['role'] == 'leader', 30, 0.1)


def kill_a_leader(cluster, program, waits):
    """waits: the client goes on when the node is back, and not before."""
    victim = leader_of(cluster, 1)
    victim.kill()
    leader_of(cluster, 1)
    if not waits:
        program.goes_on()
    victim.start()
    together(cluster, len(regions(leader_of(cluster, 1))))
    program.goes_on()


def through_events(command, env=None, waits=False):
    with Cluster(3, OPTIONS) as cluster:
        together(cluster, 2)
        first, *others = cluster.nodes
        with Program(command, f'{first.host}:{first.port}', env) as program:
            program.goes_on()
            with program.no_errors():
                split(cluster, 1, 2000)
            for node in (*others, first):
                with program.no_errors():
                    for number in regions(first):
                        if leader_of(cluster, number) is not node:
                            hand_over(cluster, number, node)
            with program.no_errors():
                split(cluster, 2, 12000)
            for _ in range(2):
                kill_a_leader(cluster, program, waits)
            with program.no_errors():       # nothing is left of that
                pass


def test_ioredis(node_program):
    command, env = node_program
    through_events(command('cluster_ioredis.js'), env)


def test_node_redis(node_program):
    """It asks for the slots again when it is told MOVED, and so not while a node is gone."""
    command, env = node_program
    through_events(command('cluster_node_redis.js'), env, waits=True)


def test_go_redis(go_program):
    through_events(go_program)


def test_jedis(java_program):
    through_events(java_program)


# -- redis_exporter ----------------------------------------------------------------------------


def scraped(port):
    """The exporter's metrics by name, with their labels."""
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics', timeout=20) as reply:
            lines = reply.read().decode().splitlines()
            return dict(line.rsplit(' ', 1) for line in lines if line and line[0] != '#')
    return None


def test_redis_exporter():
    """Every node is scraped without an error."""
    exporter = 'prometheus-redis-exporter'
    needs(exporter)
    with Cluster(3, OPTIONS) as cluster:
        together(cluster, 2)
        for node in cluster.nodes:
            port = free_port()
            command = [exporter, '-is-cluster', '-redis.addr', f'redis://{node.host}:{node.port}', '-web.listen-address',
                       f'127.0.0.1:{port}', '-export-client-list', '-include-system-metrics', '-count-keys', 'k*']
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as proc:
                try:
                    metrics = eventually(lambda: scraped(port))     # noqa: B023 # pylint: disable=cell-var-from-loop
                finally:
                    proc.terminate()
                    said = proc.communicate()[0]
            assert 'level=error' not in said and 'level=warn' not in said, said
            assert metrics['redis_up'] == '1' and metrics['redis_exporter_last_scrape_error{err=""}'] == '0', metrics
            for name, value in (('state', 1), ('slots_ok', 16384), ('slots_fail', 0), ('known_nodes', 3)):
                assert float(metrics[f'redis_cluster_{name}']) == value, name
