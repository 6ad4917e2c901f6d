"""WAIT and WAITAOF on a leader count the acknowledgements of the group's members."""
import pytest
import redis
from nodes import Cluster, Stopped, eventually


@pytest.fixture(scope='module')
def trio():
    with Cluster(3, ('--cluster-node-timeout', '5000')) as c:
        yield c


@pytest.fixture
def leader(trio):
    with trio.leader().client() as c:
        yield c


def test_every_other_member_counts(leader):
    leader.set('k', 'v')
    assert leader.execute_command('WAIT', 2, 0) == 2
    assert leader.execute_command('WAIT', 0, 0) == 2
    assert leader.execute_command('WAITAOF', 1, 2, 0) == [1, 2]


def test_a_write_of_the_same_pipeline(leader):
    with leader.pipeline(transaction=False) as p:
        for i in range(20):
            p.set('k', i)
            p.execute_command('WAIT', 2, 0)
            p.execute_command('WAITAOF', 1, 2, 0)
        assert p.execute() == [True, 2, [1, 2]] * 20


def test_a_member_that_is_late(trio, leader):
    late = trio.followers()[0]
    with Stopped(late):
        leader.set('k', 'v')
        assert leader.execute_command('WAIT', 1, 0) == 1
        assert leader.execute_command('WAIT', 2, 300) == 1
        assert leader.execute_command('WAITAOF', 1, 2, 300) == [1, 1]
    assert leader.execute_command('WAIT', 2, 0) == 2


def test_more_than_there_are(leader):
    leader.set('k', 'v')
    assert leader.execute_command('WAIT', 7, 200) == 2


def test_a_follower_refuses(trio):
    with trio.followers()[0].client() as c:
        for command in (['WAIT', 1, 0], ['WAITAOF', 1, 1, 0]):
            with pytest.raises(redis.ResponseError, match='cannot be used with replica instances'):
                c.execute_command(*command)


def test_a_leader_that_steps_down_lets_go():
    with Cluster(3) as c:
        node = c.leader()
        with node.client(socket_timeout=60) as w, Stopped(*c.followers()):
            with pytest.raises((redis.ResponseError, redis.ConnectionError), match='UNBLOCKED|closed'):
                w.execute_command('WAIT', 3, 0)
        eventually(lambda: node.alive() and node.region())
