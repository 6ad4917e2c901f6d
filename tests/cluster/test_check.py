"""CLUSTER CHECK: members compare their data, and a member that differs stops serving."""
import time

import pytest
import redis
from nodes import Cluster, eventually


def cluster_info(node):
    try:
        with node.client() as c:
            return c.info('cluster')
    except redis.ConnectionError:
        return {}


def checked(trio, before):
    leader = trio.leader()
    found = cluster_info(leader)
    return found if found.get('digest_checks', 0) > before else None


def check(trio):
    """Runs a check; INFO of the leader after it."""
    before = cluster_info(trio.leader())['digest_checks']
    with trio.leader().client() as c:
        c.execute_command('CLUSTER', 'CHECK')
    return eventually(lambda: checked(trio, before), 60, 0.05)


@pytest.fixture
def trio():
    with Cluster(3, ('--cluster-node-timeout', '4000')) as c:
        with c.leader().client() as w:
            with w.pipeline(transaction=False) as p:
                for i in range(3000):
                    p.set(f'k{i}', 'x' * 100)
                p.execute()
            w.set('dying', 1, px=200)
            w.hset('h', mapping={f'f{i}': i for i in range(400)})
            w.execute_command('HPEXPIRE', 'h', 200, 'FIELDS', 2, 'f1', 'f2')
            w.zadd('z', {f'm{i}': i / 3 for i in range(400)})
            w.rpush('l', *range(400))
            w.sadd('s', *range(400))
            w.execute_command('XADD', 'x', '*', 'a', 'b')
            w.execute_command('XGROUP', 'CREATE', 'x', 'g', '0')
            w.execute_command('XREADGROUP', 'GROUP', 'g', 'c', 'STREAMS', 'x', '>')
        c.settled(3)
        yield c


def test_a_check_in_the_tick_of_a_request_that_takes_long(trio):
    """Its entry comes first, and must not be later by the clock than what the request changed."""
    with trio.leader().client() as c, c.pipeline(transaction=False) as p:
        p.eval("for i = 1, 3000000 do end return redis.call('INCR', KEYS[1])", 1, 'n')
        p.execute_command('CLUSTER', 'CHECK')
        assert p.execute() == [1, 'OK']
    trio.settled(3)


def test_equal_members_are_equal_while_clients_write_and_keys_die(trio):
    with trio.leader().client() as w:
        for round_ in range(3):
            for i in range(50):
                w.set(f'n{i}', round_, px=100)
            found = check(trio)
            assert found['digest']['state'] == 'compared' and found['digest']['members'] == 3
            assert found['digest_mismatches'] == 0
            time.sleep(0.05)
    values = {cluster_info(n)['digest']['value'] for n in trio.nodes}
    assert len(values) == 1
    with trio.followers()[0].client() as c, pytest.raises(redis.ResponseError, match='node that leads'):
        c.execute_command('CLUSTER', 'CHECK')


def test_members_are_compared_by_time(trio):
    before = cluster_info(trio.leader())['digest_checks']
    assert before == 0  # a day has not passed
    for node in trio.nodes:
        with node.client() as c:
            c.config_set('cluster-check-period', 1)
    found = eventually(lambda: checked(trio, before + 1), 60, 0.05)
    assert found['digest_mismatches'] == 0


def test_a_difference_is_found_and_its_member_refuses_to_serve(trio):
    bad = trio.followers()[0]
    with bad.client() as c:
        c.execute_command('DEBUG', 'RAFT-DIVERGE', 'k1234')
        c.execute_command('READONLY')
        assert c.get('k1234') is None and c.get('k1') is not None
    found = check(trio)
    assert found['digest_mismatches'] == 1
    eventually(lambda: cluster_info(bad)['digest_diverged_at'] > 0)
    assert 'differs from that of most' in trio.leader().logged() and 'refuses to serve' in bad.logged()
    with bad.client() as c:
        c.execute_command('READONLY')
        for command in (['GET', 'k1'], ['KEYS', '*'], ['SET', 'k', 'v']):
            with pytest.raises(redis.ResponseError, match='differs'):
                c.execute_command(*command)
    bad.kill()
    bad.start()
    eventually(lambda: cluster_info(bad).get('digest_diverged_at', 0) > 0)  # it has not forgotten
    trio.settled(3)
    with bad.client() as c, pytest.raises(redis.ResponseError, match='differs'):
        c.execute_command('CLUSTER', 'FAILOVER')
    trio.try_all('SET', 'k', 'v')
