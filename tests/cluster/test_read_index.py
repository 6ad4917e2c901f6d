"""NeoKV's seven cases of linearizable reads and conditional writes."""
import threading

import pytest
import redis
from nodes import Cluster, Stopped, eventually


@pytest.fixture(scope='module')
def trio():
    with Cluster(3, ('--cluster-node-timeout', '2000')) as c:
        yield c


@pytest.fixture
def leader(trio):
    with trio.leader().client() as c:
        c.flushall()
        yield c


@pytest.fixture
def follower(trio):
    with trio.followers()[0].client(socket_timeout=60) as c:
        yield c


def test_follower_read_off_is_moved(trio, leader, follower):
    leader.set('k', 'v')
    with pytest.raises(redis.ResponseError, match=f'MOVED 7629 127.0.0.1:{trio.leader().port}'):
        follower.get('k')


def test_follower_read_on_has_the_value(leader, follower):
    follower.execute_command('READONLY')
    for i in range(30):
        leader.set('k', i)
        assert follower.get('k') == str(i)
    leader.set('k', 'v', px=50)
    eventually(lambda: follower.get('k') is None)
    assert leader.get('k') is None


def test_read_index_fails(trio, leader):
    """Nobody can say how far the follower has to be: it must not answer with what it happens to have."""
    leader.set('k', 'v')
    trio.settled(3)
    node, *others = trio.followers()
    with node.client(socket_timeout=60) as c:
        c.execute_command('READONLY')
        assert c.get('k') == 'v'
        with Stopped(trio.leader(), *others), pytest.raises(redis.ResponseError, match='^(CLUSTERDOWN|MOVED)'):
            c.get('k')
        eventually(lambda: can_read(c, 'k') == 'v')      # the connection is as good as before
    trio.settled(3)


def can_read(client, key):
    try:
        return client.get(key)
    except redis.ResponseError as e:
        assert str(e).startswith(('CLUSTERDOWN', 'MOVED')), e
        return None


def test_slot_not_served(trio, leader):
    """There is no leader, so no slot has one."""
    trio.settled(3)
    node, *others = trio.followers()
    with node.client() as c:
        with Stopped(trio.leader(), *others):
            eventually(lambda: not node.region() or c.cluster('info')['cluster_state'] == 'fail', 60, 0.1)
            for command in ('GET k', 'SET k v', 'DEL k', 'EVAL return 1 k'):
                with pytest.raises(redis.ResponseError, match='CLUSTERDOWN'):
                    c.execute_command(*command.replace('1 k', '1|1|k').replace(' ', '|').split('|'))
    trio.settled(3)


def test_set_nx(leader):
    assert leader.set('k', 'first', nx=True) is True
    assert leader.set('k', 'second', nx=True) is None
    assert leader.get('k') == 'first'
    leader.set('k', 'short', px=100)
    eventually(lambda: leader.set('k', 'third', nx=True))
    assert leader.get('k') == 'third'


def test_set_xx(leader):
    assert leader.set('k', 'v', xx=True) is None and leader.get('k') is None
    leader.set('k', 'v')
    assert leader.set('k', 'w', xx=True) is True
    assert leader.set('k', 'x', xx=True, get=True) == 'w'
    assert leader.get('k') == 'x'


def test_concurrent_set_nx_has_one_winner(trio, leader):
    won, start = [], threading.Barrier(16)

    def contend(number):
        with trio.leader().client() as c:
            start.wait()
            for i in range(20):
                if c.set(f'lock{i}', number, nx=True):
                    won.append((f'lock{i}', str(number)))
    threads = [threading.Thread(target=contend, args=(n,)) for n in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(k for k, _ in won) == sorted(f'lock{i}' for i in range(20))
    assert all(leader.get(k) == v for k, v in won)
