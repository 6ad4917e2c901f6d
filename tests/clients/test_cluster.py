"""Cluster clients of other languages: they find the nodes, follow MOVED and survive a failover. `make clients` runs this;
npm, Go's proxy and Maven Central have the packages.

Each client is a program that writes and reads keys of its own, in pipelines and transactions too, and repeats what failed.
At the line `look` it prints how many turns it has done, how many commands failed, and how many answers were wrong."""
import contextlib
import os
import shutil
import subprocess
import sys
import threading

import pytest
from mayfly import ROOT, eventually
from test_node import modules       # noqa: F401 # a fixture # pylint: disable=unused-import

sys.path.insert(0, os.path.join(ROOT, 'tests', 'cluster'))
from nodes import Cluster       # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
PLACE = os.path.join(ROOT, 'build')


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
        return tuple(map(int, line.split()))

    def goes_on(self, turns=20):
        """It does so many turns more; how many commands have failed so far. No answer is ever wrong."""
        goal = self.look()[0] + turns
        eventually(lambda: self.look()[0] >= goal, 120, 0.1)
        _, errors, wrong = self.look()
        assert not wrong, ''.join(self.said[-20:])
        return errors


def through_events(command, env=None):
    with Cluster(3) as cluster:
        follower = cluster.followers()[0]
        with Program(command, f'127.0.0.1:{follower.port}', env) as program:
            assert program.goes_on() == 0, program.said
            with follower.client() as c:        # leadership moves: MOVED
                c.execute_command('CLUSTER', 'FAILOVER')
            eventually(follower.leads)
            assert program.goes_on() == 0, program.said
            follower.kill()                     # the leader dies: errors, but not for long
            cluster.leader()
            program.goes_on()
            follower.start()
            cluster.settled(3)
            before = program.goes_on()
            assert program.goes_on() == before, program.said


def test_ioredis(node_program):
    command, env = node_program
    through_events(command('cluster_ioredis.js'), env)


def test_node_redis(node_program):
    command, env = node_program
    through_events(command('cluster_node_redis.js'), env)


def test_go_redis(go_program):
    through_events(go_program)


def test_jedis(java_program):
    through_events(java_program)
