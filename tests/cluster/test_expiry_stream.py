"""expiry-stream in cluster mode: every expired key is reported exactly once, whichever node leads."""
import collections
import threading
import time

import pytest
import redis
from nodes import Cluster, eventually

STREAM = ('--expiry-stream', 'died')


def now_ms():
    return int(time.time() * 1000)


def told(client):
    return [e[1]['key'] + e[1].get('field', '') for e in client.xrange('died')]


def load(client, keys, deadline):
    with client.pipeline(transaction=False) as p:
        for i, k in enumerate(keys):
            p.execute_command('SET', k, 'x', 'PXAT', deadline(i))
        p.execute()


@pytest.fixture(scope='module')
def trio():
    with Cluster(3, ('--cluster-node-timeout', '5000', *STREAM)) as c:
        yield c


@pytest.fixture
def leader(trio):
    with trio.leader().client() as c:
        c.flushall()
        yield c


def test_an_idle_leader_reclaims(tmp_path):
    with Cluster(1) as c, c.leader().client() as leader:
        load(leader, [f'k{i}' for i in range(500)], lambda i: now_ms() + 300)
        time.sleep(3)  # without a request that would start a tick
        assert leader.info('stats')['expired_keys'] == 500


def test_keys_and_fields_are_told_on_every_member(trio, leader):
    keys = [f'k{i}' for i in range(300)]
    load(leader, keys, lambda i: now_ms() + 500 + i)
    leader.hset('h', mapping={'stays': 1, 'goes': 2})
    leader.execute_command('HPEXPIRE', 'h', 700, 'FIELDS', 1, 'goes')
    eventually(lambda: leader.xlen('died') == 301)
    assert sorted(told(leader)) == sorted([*keys, 'hgoes'])
    assert leader.dbsize() == 2
    trio.settled(3)
    for n in trio.followers():
        with n.client() as c:
            c.execute_command('READONLY')
            assert told(c) == told(leader)
            assert c.dbsize() == 2


def test_a_write_that_meets_a_dead_key_tells_it(leader):
    leader.execute_command('CONFIG', 'SET', 'ttl-cleanup-interval', '100000')
    try:
        for i in range(20):
            leader.set(f'k{i}', 'old', px=1)
        time.sleep(0.01)
        for i in range(0, 20, 2):
            leader.set(f'k{i}', 'new')
        for i in range(1, 20, 2):
            assert leader.execute_command('GETDEL', f'k{i}') is None
        assert sorted(told(leader)) == sorted(f'k{i}' for i in range(20))
        assert leader.mget('k0') == ['new']
    finally:
        leader.execute_command('CONFIG', 'SET', 'ttl-cleanup-interval', '1')


def test_it_can_be_turned_off_and_on(trio, leader):
    for n in trio.nodes:
        with n.client() as c:
            c.config_set('expiry-stream', '')
    leader.set('warm', 1)
    eventually(lambda: not trio.leader().region().get('deaths_logged'))
    load(leader, ['silent1', 'silent2'], lambda i: now_ms() + 100)
    for n in trio.nodes:
        with n.client() as c:
            eventually(lambda c=c: c.dbsize() == 1)
    for n in trio.nodes:
        with n.client() as c:
            c.config_set('expiry-stream', 'died')
    eventually(lambda: trio.leader().region().get('deaths_logged'))
    load(leader, ['loud'], lambda i: now_ms() + 100)
    eventually(lambda: leader.xlen('died') == 1)
    assert told(leader) == ['loud']


def test_a_leader_killed_in_the_middle():
    """Keys die over some seconds, some of them met by writes, while leaders are killed."""
    with Cluster(3, ('--cluster-node-timeout', '1000', *STREAM)) as c:
        eventually(lambda: c.leader().region().get('deaths_logged'))
        keys = [f'k{i}' for i in range(4000)]
        with c.leader().client() as leader:
            start = now_ms() + 1500
            load(leader, keys, lambda i: start + 5 * i)
        stop = threading.Event()

        def meet():
            """Writes whose outcome nobody asks for: they meet keys that have just died."""
            while not stop.is_set():
                at = (now_ms() - start) // 50 * 10
                for n in c.nodes:
                    try:
                        with n.client(socket_timeout=2) as w:
                            if 0 <= at < len(keys):
                                w.execute_command('GETDEL', keys[at])
                    except (redis.ResponseError, redis.ConnectionError, redis.TimeoutError):
                        pass
                time.sleep(0.005)
        t = threading.Thread(target=meet)
        t.start()
        try:
            for _ in range(2):
                node = c.leader()
                with node.client() as leader:
                    before = leader.xlen('died')
                    eventually(lambda: leader.xlen('died') > before + 20, 60, 0.02)
                node.kill()
                eventually(lambda node=node: any(n.leads() for n in c.nodes if n is not node), 90)
                node.start()
        finally:
            stop.set()
            t.join(60)
        c.settled(3)
        with c.leader().client() as leader:
            eventually(lambda: leader.dbsize() == 1, 60)
            counts = collections.Counter(told(leader))
            met_alive = [k for k in keys if k not in counts]
            assert max(counts.values()) == 1, [k for k, n in counts.items() if n > 1]
            assert all(int(k[1:]) % 10 == 0 for k in met_alive), met_alive  # GETDEL found it just before its deadline
            assert len(counts) >= 3600
