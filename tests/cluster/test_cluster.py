"""Three servers, one replicated region: what clients see."""
import socket
import threading
import time

import pytest
import redis
from nodes import Client, Cluster, Node, eventually, in_one_of


@pytest.fixture(scope='module')
def trio():
    """Patient enough that a busy machine does not make it elect another leader in the middle of a test."""
    with Cluster(3, ('--cluster-node-timeout', '5000')) as c:
        yield c


@pytest.fixture
def leader(trio):
    with trio.leader().client() as c:
        c.flushall()
        yield c


def test_a_write_is_on_every_member(trio, leader):
    leader.set('k', 'v', px=600000)
    leader.rpush('l', *range(50))
    leader.zadd('z', {f'm{i}': i for i in range(50)})
    trio.settled(3)
    for n in trio.followers():
        with n.client() as c:
            c.execute_command('READONLY')
            assert c.get('k') == 'v'
            assert c.lrange('l', 0, -1) == [str(i) for i in range(50)]
            assert c.zcard('z') == 50
            assert c.execute_command('PEXPIRETIME', 'k') == leader.execute_command('PEXPIRETIME', 'k')


def test_a_follower_sends_clients_to_the_leader(trio, leader):
    at = f'127.0.0.1:{trio.leader().port}'
    for n in trio.followers():
        with n.client() as c:
            for command in (['GET', 'k'], ['SET', 'k', 'v'], ['EVAL', 'return 1', '1', 'k']):
                with pytest.raises(redis.ResponseError, match=f'MOVED 7629 {at}'):
                    c.execute_command(*command)
            c.execute_command('READONLY')
            with pytest.raises(redis.ResponseError, match='MOVED'):
                c.set('k', 'v')
            assert c.get('k') is None
            c.execute_command('READWRITE')
            with pytest.raises(redis.ResponseError, match='MOVED'):
                c.get('k')
            assert c.ping()


def test_a_follower_read_is_never_stale(trio, leader):
    readers = [n.client() for n in trio.followers()]
    for r in readers:
        r.execute_command('READONLY')
    for i in range(50):
        leader.set('k', i)
        for r in readers:
            assert r.get('k') == str(i)
    for r in readers:
        r.close()


def test_a_pipeline_of_follower_reads_does_not_wait_for_timers(trio, leader):
    """Each read asks the leader. The question leaves at once, not when something else wakes the node up."""
    leader.set('k', 'v')

    def attempt():
        with trio.followers()[0].client() as c:
            c.execute_command('READONLY')
            with c.pipeline(transaction=False) as p:
                for _ in range(40):
                    p.get('k')
                started = time.monotonic()
                assert p.execute() == ['v'] * 40
                assert time.monotonic() - started < 1.5     # with a timer's 100 ms each: 4 s
    in_one_of(10, attempt)


def test_keys_of_several_slots(leader):
    with pytest.raises(redis.ResponseError, match='CROSSSLOT'):
        leader.mset({'a': 1, 'b': 2})
    leader.mset({'{t}a': 1, '{t}b': 2})
    assert leader.mget('{t}a', '{t}b') == ['1', '2']
    with pytest.raises(redis.ResponseError, match='not allowed in cluster mode'):
        leader.execute_command('SELECT', '1')


def test_transactions_and_scripts(leader):
    with leader.pipeline(transaction=True) as p:
        p.set('{t}a', 1)
        p.incrby('{t}a', 5)
        p.get('{t}a')
        assert p.execute() == [True, 6, '6']
    script = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])"
    assert leader.eval(script, 1, 'k', 'x') == 'x'
    with leader.pipeline() as p:
        p.watch('k')
        leader.set('k', 'changed')
        p.multi()
        p.set('k', 'lost')
        with pytest.raises(redis.WatchError):
            p.execute()
    leader.function_load("#!lua name=lib\nredis.register_function('f', function(k, a) return a[1] end)", replace=True)
    assert leader.fcall('f', 0, 'hello') == 'hello'


def test_functions_reach_every_member(trio, leader):
    leader.function_load("#!lua name=lib\nredis.register_function{function_name='g', flags={'no-writes'}, "
                         "callback=function(k, a) return 7 end}", replace=True)
    trio.settled(3)
    for n in trio.followers():
        with n.client() as c:
            assert 'g' in str(c.function_list())


def test_a_blocked_client_is_served(trio, leader):
    got = []

    def wait():
        with trio.leader().client(socket_timeout=60) as c:
            got.append(c.blpop('list', 50))
    t = threading.Thread(target=wait)
    t.start()
    eventually(lambda: leader.info('clients')['blocked_clients'] == 1)
    leader.rpush('list', 'x')
    t.join(60)
    assert got == [('list', 'x')]


def test_a_message_reaches_subscribers_of_every_node(trio, leader):
    subscribers = [n.client().pubsub() for n in trio.nodes]
    for s in subscribers:
        s.subscribe('news')
        assert s.get_message(timeout=20)['type'] == 'subscribe'
    leader.publish('news', 'hello')
    for s in subscribers:
        assert eventually(lambda s=s: s.get_message(timeout=1))['data'] == 'hello'
        s.close()


def test_pipelines_answer_in_order(leader):
    with leader.pipeline(transaction=False) as p:
        for i in range(200):
            p.set(f'k{i}', i)
            p.get(f'k{i}')
            p.ping()
        replies = p.execute()
    assert replies == [r for i in range(200) for r in (True, str(i), True)]


def test_cluster_descriptions(trio, leader):
    nodes = {n['node_id']: n for n in leader.cluster('nodes').values()}
    assert len(nodes) == 3 and sum('master' in n['flags'] for n in nodes.values()) == 1
    slots = leader.execute_command('CLUSTER SLOTS')
    assert [s[:2] for s in slots] == [[0, 16383]] and len(slots[0]) == 5
    assert {n[2] for n in slots[0][2:]} == set(nodes)
    assert leader.execute_command('CLUSTER KEYSLOT', 'foo') == 12182
    leader.set('foo', 1)
    assert leader.execute_command('CLUSTER COUNTKEYSINSLOT', 12182) == 1
    assert leader.cluster('info')['cluster_state'] == 'ok'
    assert len(leader.execute_command('CLUSTER MYID')) == 40
    assert leader.info('server')['redis_mode'] == 'cluster'


def test_redis_py_cluster(trio, leader):
    c = redis.RedisCluster(host='127.0.0.1', port=trio.followers()[0].port, decode_responses=True)
    for i in range(100):
        c.set(f'key{i}', i, ex=100)
    assert [c.get(f'key{i}') for i in range(100)] == [str(i) for i in range(100)]
    c.close()


# -- expiry --------------------------------------------------------------------------------------------------


def test_dead_keys_go_on_every_member_without_a_word_in_the_log(trio, leader):
    deadline = int(time.time() * 1000) + 3000
    with leader.pipeline(transaction=False) as p:
        for i in range(2000):
            p.execute_command('SET', f'dying{i}', 'x' * 50, 'PXAT', deadline)
        p.execute()
    trio.settled(3)
    before = int(trio.leader().region()['last'])
    for n in trio.nodes:
        with n.client() as c:
            eventually(lambda c=c: c.dbsize() == 0)
    assert int(trio.leader().region()['last']) - before <= 12  # the clock moved now and then: no entry per key
    assert leader.get('dying0') is None


def fill_with_dying(trio, n, seconds):
    """So many keys with one deadline, which every member has."""
    with trio.leader().client() as c:
        c.execute_command('FLUSHALL')
        at_ms = int(time.time() * 1000) + seconds * 1000
        pipe = c.pipeline(transaction=False)
        for i in range(n):
            pipe.execute_command('SET', f'd{i}', i, 'PXAT', at_ms)
        pipe.execute()
    trio.settled(3)
    return at_ms


def reclaimed(node):
    """How many deaths the node counts. INFO is no request for the region: it moves nothing."""
    with node.client() as c:
        return c.info('stats')['expired_keys']


def test_idle_members_reclaim(trio):
    before = [reclaimed(n) for n in trio.nodes]
    at_ms = fill_with_dying(trio, 3000, 4)
    time.sleep(max(at_ms / 1000 - time.time(), 0))
    for n, b in zip(trio.nodes, before):
        eventually(lambda n=n, b=b: reclaimed(n) >= b + 3000, pause=0.5)


def test_a_busy_leader_reclaims(trio, leader):
    """It has an entry in flight nearly always: about one per request here."""
    before = reclaimed(trio.leader())
    at_ms = fill_with_dying(trio, 3000, 3)
    time.sleep(max(at_ms / 1000 - time.time(), 0))
    writes = 0
    while reclaimed(trio.leader()) < before + 3000:
        assert writes < 3000
        for _ in range(100):
            leader.set('busy', writes)
            writes += 1
    assert leader.dbsize() == 1


def test_a_key_is_hidden_at_its_deadline(leader):
    leader.set('k', 'v', px=300)
    assert leader.get('k') == 'v'
    eventually(lambda: leader.get('k') is None)
    assert leader.set('k', 'again', nx=True)


# -- faults ----------------------------------------------------------------------------------------------------


def test_a_follower_that_was_killed_catches_up(trio, leader):
    victim = trio.followers()[0]
    victim.kill()
    for i in range(300):
        leader.set(f'k{i}', i)
    victim.start()
    trio.settled(3)
    with victim.client() as c:
        c.execute_command('READONLY')
        assert [c.get(f'k{i}') for i in range(300)] == [str(i) for i in range(300)]


def test_a_leader_that_shuts_down_hands_over_first(trio):
    old = trio.leader()
    assert old.stop() == 0
    assert 'Handing leadership on' in old.logged()
    new = trio.leader()
    assert new is not old
    old.start()
    trio.settled(3)


def test_what_a_leader_has_run_is_answered_before_it_hands_over(trio, leader):
    old = trio.leader()
    with socket.create_connection(('127.0.0.1', old.port)) as c:
        c.sendall(b'SET k v\r\nGET k\r\nSHUTDOWN\r\n')
        c.settimeout(60)
        assert b''.join(iter(lambda: c.recv(100), b'')) == b'+OK\r\n$1\r\nv\r\n'
    assert old.proc.wait(60) == 0
    assert trio.try_all('GET', 'k') == 'v'
    old.start()
    trio.settled(3)


def test_a_node_takes_over_on_request(trio, leader):
    leader.set('k', 'v')
    node = trio.followers()[0]
    with node.client() as c:
        c.execute_command('CLUSTER FAILOVER')
        eventually(node.leads)
        assert c.get('k') == 'v'
        with pytest.raises(redis.ResponseError, match='to a replica'):
            c.execute_command('CLUSTER FAILOVER')


# -- growing ------------------------------------------------------------------------------------------------------


def test_a_lone_server_grows_into_a_cluster(tmp_path):
    lone = Node(str(tmp_path / 'lone'))
    lone.options = ['--cluster-enabled', 'no']
    lone.start()
    eventually(lambda: 'Ready to accept' in lone.logged())
    with lone.client() as c:
        for i in range(500):
            c.set(f'k{i}', i, ex=10000)
        c.hset('h', mapping={f'f{i}': i for i in range(300)})
    assert lone.stop() == 0
    lone.options = []
    lone.start('--cluster-init', 'yes')
    other = Node(str(tmp_path / 'other'))
    other.start('--cluster-join', f'127.0.0.1:{lone.port}')
    try:
        eventually(lambda: lone.region().get('voters') == 2, 90)
        with other.client() as c:
            c.execute_command('READONLY')
            assert c.get('k499') == '499' and c.hlen('h') == 300
            assert c.dbsize() == 501
    finally:
        other.kill()
        lone.kill()


def test_nodes_that_join_at_once_all_get_a_snapshot():
    """One is sent at a time; the others have to wait, and none may be forgotten."""
    for _ in range(3):
        with Cluster(6):
            pass


def test_what_can_not_be_a_cluster_says_why(tmp_path):
    node = Node(str(tmp_path / 'm'), ['--engine', 'memory'])
    node.start('--cluster-init', 'yes')
    assert node.proc.wait(60) == 1
    assert 'needs engine rocksdb' in node.logged()


def test_a_node_with_another_secret_stays_outside(trio, tmp_path):
    node = Node(str(tmp_path / 'n'), ['--cluster-secret', 'not the secret'])
    node.start('--cluster-join', f'127.0.0.1:{trio.nodes[0].port}')
    try:
        eventually(lambda: 'another cluster-secret' in node.logged() + ''.join(n.logged() for n in trio.nodes))
        assert int(trio.leader().region()['voters']) == 3
    finally:
        node.kill()


def forgotten(cluster, name):
    """Whether the node is out. If not, asks for it: again, if a change of leaders took an earlier try along."""
    leader = cluster.leader()
    region = leader.region()
    if region.get('voters') == 2 and not region.get('joint'):
        return True
    try:
        with leader.client() as c:
            c.execute_command('CLUSTER FORGET', name)
    except redis.ResponseError as e:
        assert 'TRYAGAIN' in str(e) or 'node that leads' in str(e) or 'not a member' in str(e), e
    return False


def test_a_member_is_forgotten(tmp_path):
    with Cluster(3, ('--cluster-node-timeout', '5000')) as c:
        gone = c.followers()[0]
        with gone.client() as g:
            name = g.execute_command('CLUSTER MYID')
        gone.kill()
        eventually(lambda: forgotten(c, name), 180, 0.2)
        c.try_all('SET', 'k', 'v')
        c.settled(2)
        new = Node(str(tmp_path / 'new'), c.nodes[0].options)
        new.start('--cluster-join', f'127.0.0.1:{c.leader().port}')
        c.nodes.append(new)
        c.settled(3)
        with Client(port=new.port, decode_responses=True) as r:
            r.execute_command('READONLY')
            assert r.get('k') == 'v'
