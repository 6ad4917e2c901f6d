"""A lone server's folder becomes the first node of a cluster. If the node is killed at any step, nothing is lost at the next
start."""
import glob
import os
import re
import shutil

import pytest
from nodes import ROOT, Node, eventually

POINTS = [f'cluster-start-{n}' for n in range(1, 6)]


@pytest.fixture(scope='module')
def lone(tmp_path_factory):
    """The folder of a lone server, with data."""
    node = Node(str(tmp_path_factory.mktemp('growing') / 'lone'), ['--cluster-enabled', 'no'])
    node.start()
    eventually(lambda: 'Ready to accept' in node.logged())
    with node.client() as c:
        for i in range(300):
            c.set(f'k{i}', i, px=10_000_000 + i)
        c.hset('h', mapping={f'f{i}': i for i in range(300)})
        c.rpush('l', *range(300))
        c.set('dying', 'x', px=1)
    assert node.stop() == 0
    os.remove(node.log)
    return node.folder


@pytest.fixture
def node(lone, tmp_path):
    shutil.copytree(lone, tmp_path / 'n')
    n = Node(str(tmp_path / 'n'))
    yield n
    if n.alive():
        n.kill()


def holds_everything(node):
    eventually(lambda: node.region().get('role') == 'leader' and node.region().get('voters') == 1)
    with node.client() as c:
        assert c.get('dying') is None
        eventually(lambda: c.dbsize() == 302)
        assert [c.get(f'k{i}') for i in range(0, 300, 7)] == [str(i) for i in range(0, 300, 7)]
        assert 0 < c.pttl('k5') <= 10_000_005
        assert c.hgetall('h') == {f'f{i}': str(i) for i in range(300)}
        assert c.lrange('l', 0, -1) == [str(i) for i in range(300)]
        assert c.set('written', 'here')


def test_no_point_is_left_out():
    names = set()
    for path in glob.glob(os.path.join(ROOT, 'src', 'cluster', '*.c')):
        with open(path, encoding='utf-8') as f:
            names |= set(re.findall(r'crash_point\("(cluster-start-[0-9]+)"\)', f.read()))
    assert names == set(POINTS)


@pytest.mark.parametrize('point', POINTS)
def test_killed_at(point, node):
    node.env = {'MAYFLY_CRASH_AT': point}
    node.start('--cluster-init', 'yes')
    assert node.proc.wait(60) == -9, node.logged()
    node.env = {}
    node.start('--cluster-init', 'yes')
    holds_everything(node)
    node.kill()
    node.start()
    eventually(lambda: node.region().get('role') == 'leader')
    with node.client() as c:
        assert c.get('written') == 'here' and c.hlen('h') == 300 and c.dbsize() == 303


def test_killed_at_all_of_them_in_a_row(node):
    for point in POINTS:
        node.env = {'MAYFLY_CRASH_AT': point}
        node.start('--cluster-init', 'yes')
        assert node.proc.wait(60) == -9, node.logged()
    node.env = {}
    node.start('--cluster-init', 'yes')
    holds_everything(node)
    with node.client() as c:
        name = c.execute_command('CLUSTER MYID')
    assert len(set(re.findall(r'Cluster mode: node (\w+)', node.logged()))) == 1
    assert name in node.logged()


def test_killed_before_anything_was_stored_it_is_still_a_lone_server(node):
    node.env = {'MAYFLY_CRASH_AT': POINTS[0]}
    node.start('--cluster-init', 'yes')
    assert node.proc.wait(60) == -9
    node.env, node.options = {}, ['--cluster-enabled', 'no']
    node.start()
    eventually(lambda: 'Ready to accept' in node.logged())
    with node.client() as c:
        assert c.get('k299') == '299' and c.llen('l') == 300
        eventually(lambda: c.dbsize() == 302)
