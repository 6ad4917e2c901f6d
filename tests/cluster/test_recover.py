"""--cluster-recover: two of three nodes are lost for good."""
import os
import re
import shutil

import pytest
import redis
from nodes import Cluster, Node, Stopped, eventually

from mayfly import Raw      # of tests/server, which nodes has found


def fill(leader):
    with leader.client() as c:
        for i in range(300):
            c.set(f'k{i}', i, ex=10_000)
        c.execute_command('FUNCTION', 'LOAD', "#!lua name=lib\nredis.register_function('one', function() return 1 end)")


@pytest.fixture
def left():
    """A cluster whose third node is the only one left, with its data."""
    with Cluster(3) as c:
        fill(c.leader())
        c.settled(3)
        last = c.followers()[0]
        for n in [n for n in c.nodes if n is not last]:
            n.kill()
            shutil.rmtree(n.folder)
            c.nodes.remove(n)
        yield c


def started(node, *options):
    """Started once with these options: its exit code, and what it says."""
    if node.alive():
        node.kill()
    before = len(node.logged()) if os.path.exists(node.log) else 0
    node.start(*options)
    return node.proc.wait(30), node.logged()[before:]


def is_down(node):
    with node.client() as c:
        try:
            return c.get('k1') and False
        except redis.ResponseError as e:
            return 'CLUSTERDOWN' in str(e)


def word_for(node):
    code, said = started(node, '--cluster-recover', 'yes')
    assert code == 1 and 'may lack' in said
    return re.search(r'--cluster-recover (accept-data-loss-of-[0-9a-f]+)', said).group(1)


def serves(node):
    eventually(lambda: node.region().get('role') == 'leader')
    with node.client() as c:
        assert [c.get(f'k{i}') for i in range(300)] == [str(i) for i in range(300)]
        assert 0 < c.ttl('k0') <= 10_000 and c.fcall('one', 0) == 1
        assert c.execute_command('CLUSTER INFO')['cluster_known_nodes'] == '1'


def test_the_last_node_goes_on_and_new_ones_join(left, tmp_path):
    last, = left.nodes
    eventually(lambda: is_down(last))
    word = word_for(last)
    last.start()            # the question has changed nothing
    eventually(lambda: 'voters' in last.region())
    assert last.region()['voters'] == 3
    last.kill()
    last.start('--cluster-recover', word)
    serves(last)
    said = last.logged()
    assert 'goes on alone' in said and said.count('is given up') == 2
    last.kill()
    last.start('--cluster-recover', word)       # it was left in a script: nothing happens
    serves(last)
    assert 'names another cluster' in last.logged() and last.logged().count('goes on alone') == 1
    for i in range(2):
        n = Node(str(tmp_path / f'new{i}'), last.options)
        n.start('--cluster-join', f'127.0.0.1:{last.port}')
        left.nodes.append(n)
    left.settled(3)
    last.kill()
    left.settled(3)
    assert left.try_all('GET', 'k299') == '299' and left.try_all('SET', 'k299', 'x') in (True, 'OK')


def test_what_is_in_the_log_and_not_committed_counts(tmp_path):
    """Two of four nodes stop, so nothing is committed any more: the last node has a write, a change of members and the address
    of a node in its log. It takes the write, and nobody else into its cluster."""
    with Cluster(4, ('--cluster-node-timeout', '4000')) as c:
        new = Node(str(tmp_path / 'new'), c.nodes[0].options)
        leader, (last, *others) = c.leader(), c.followers()
        fill(leader)
        with others[0].client() as x:
            name = x.execute_command('CLUSTER', 'MYID')
        before, before_meta = (int(last.region(r)['last']) for r in ('region1', 'meta'))
        with leader.client() as x, Stopped(*others):
            assert x.execute_command('CLUSTER', 'FORGET', name) in (True, 'OK')
            new.start('--cluster-join', f'127.0.0.1:{leader.port}')
            with Raw(leader.port) as raw:
                raw.command('SET', 'late', 'x')
                eventually(lambda: int(last.region()['last']) > before and int(last.region('meta')['last']) >= before_meta + 2)
                leader.kill()
        for n in (last, new, *others):
            n.kill()
        c.nodes[:] = [last]
        last.start('--cluster-recover', word_for(last))
        serves(last)
        with last.client() as x:
            assert x.get('late') == 'x'
        assert last.region()['voters'] == 1 and not last.region()['joint']


def test_only_what_has_data_recovers(tmp_path):
    n = Node(str(tmp_path / 'n'))
    code, said = started(n, '--cluster-recover', 'yes')
    assert code == 1 and 'no data of a cluster' in said
