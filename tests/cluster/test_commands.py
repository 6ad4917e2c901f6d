"""CLUSTER's subcommands, and Redis's own tools that use them."""
import shutil
import subprocess
import time

import pytest
import redis
from nodes import Cluster, Node, eventually

from mayfly import Raw       # of tests/server, which nodes has found


@pytest.fixture(scope='module')
def trio():
    with Cluster(3, ('--cluster-node-timeout', '5000')) as c:
        yield c


@pytest.fixture
def leader(trio):
    with trio.leader().client() as c:
        c.flushall()
        yield c


def node_lines(client):
    """CLUSTER NODES, by id, as words."""
    text = client.execute_command('CLUSTER NODES')
    if isinstance(text, dict):      # redis-py has parsed it
        return {v['node_id']: [v['node_id'], k, v['flags'], v['master_id'], v['last_ping_sent'], v['last_pong_rcvd'],
                               v['epoch']] for k, v in text.items()}
    return {line.split()[0]: line.split() for line in text.splitlines()}


def redis_cli(*args):
    done = subprocess.run(['redis-cli', *map(str, args)], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_keys_of_a_slot(trio, leader):
    names = {f'{{t}}{i}' for i in range(20)}
    slot = leader.execute_command('CLUSTER KEYSLOT', '{t}')
    for n in names:
        leader.set(n, 1)
    leader.set('{t}dead', 1, px=1)
    leader.set('elsewhere', 1)
    time.sleep(0.01)
    assert set(leader.execute_command('CLUSTER GETKEYSINSLOT', slot, 100)) == names
    assert len(set(leader.execute_command('CLUSTER GETKEYSINSLOT', slot, 7)) & names) == 7
    assert leader.execute_command('CLUSTER GETKEYSINSLOT', slot, 0) == []
    eventually(lambda: leader.execute_command('CLUSTER COUNTKEYSINSLOT', slot) == 20)
    trio.settled(3)
    for n in trio.followers():
        with n.client() as c:
            assert set(c.execute_command('CLUSTER GETKEYSINSLOT', slot, 100)) == names
    for bad in (['GETKEYSINSLOT', 16384, 1], ['GETKEYSINSLOT', 1, -1], ['COUNTKEYSINSLOT', -1]):
        with pytest.raises(redis.ResponseError, match='Invalid'):
            leader.execute_command('CLUSTER', *bad)


def test_slot_stats(leader):
    for i in range(5):
        leader.set(f'{{t}}{i}', 1)
    leader.set('one', 1)
    slot, other = (leader.execute_command('CLUSTER KEYSLOT', k) for k in ('{t}', 'one'))
    assert leader.execute_command('CLUSTER', 'SLOT-STATS', 'SLOTSRANGE', slot, slot) == [[slot, ['key-count', 5]]]
    assert len(leader.execute_command('CLUSTER', 'SLOT-STATS', 'SLOTSRANGE', 0, 16383)) == 16384
    assert leader.execute_command('CLUSTER', 'SLOT-STATS', 'ORDERBY', 'key-count', 'LIMIT', 2) == \
        [[slot, ['key-count', 5]], [other, ['key-count', 1]]]
    rising = leader.execute_command('CLUSTER', 'SLOT-STATS', 'ORDERBY', 'key-count', 'ASC')
    assert rising[-1] == [slot, ['key-count', 5]] and len(rising) == 16384
    for bad in (['SLOTSRANGE', 5, 4], ['ORDERBY', 'cpu-usec'], ['ORDERBY', 'key-count', 'LIMIT', 0]):
        with pytest.raises(redis.ResponseError):
            leader.execute_command('CLUSTER', 'SLOT-STATS', *bad)


def test_links(trio, leader):
    def both_ways():
        links = [dict(zip(v[::2], v[1::2])) for v in leader.execute_command('CLUSTER LINKS')]
        return links if {d['direction'] for d in links} == {'to', 'from'} else None
    links = eventually(both_ways)
    ids = set(node_lines(leader)) - {leader.execute_command('CLUSTER MYID')}
    assert {d['node'] for d in links} == ids
    for d in links:
        assert time.time() * 1000 - 600_000 < d['create-time'] <= time.time() * 1000 + 1000
        assert d['send-buffer-used'] <= d['send-buffer-allocated']


def test_shards(trio, leader):
    shard, = leader.execute_command('CLUSTER SHARDS')
    shard = dict(zip(shard[::2], shard[1::2]))
    assert shard['slots'] == [0, 16383] and len(shard['nodes']) == 3
    nodes = [dict(zip(n[::2], n[1::2])) for n in shard['nodes']]
    assert sorted(n['role'] for n in nodes) == ['master', 'replica', 'replica']
    assert {n['port'] for n in nodes} == {n.port for n in trio.nodes}
    assert all(n['health'] == 'online' and n['ip'] == '127.0.0.1' and n['replication-offset'] > 0 for n in nodes)


def test_nodes(trio, leader):
    lines = node_lines(leader)
    assert len(lines) == 3
    for n in trio.followers():
        with n.client() as c:
            name = c.execute_command('CLUSTER MYID')
        assert 'slave' in lines[name][2] and lines[name][3] == leader.execute_command('CLUSTER MYID')
        assert time.time() * 1000 - 60_000 < int(lines[name][5])    # it was heard from


def test_what_makes_no_sense_says_what_to_use(leader):
    for command, instead in ((['ADDSLOTS', 1], 'MEET'), (['SETSLOT', 1, 'STABLE'], 'MEET'), (['RESET'], 'FORGET'),
                             (['REPLICATE', 'x'], 'FAILOVER'), (['BUMPEPOCH'], 'term'), (['SAVECONFIG'], 'stored')):
        with pytest.raises(redis.ResponseError, match=instead):
            leader.execute_command('CLUSTER', *command)
    assert any('MEET' in line for line in leader.execute_command('CLUSTER HELP'))


@pytest.mark.skipif(not shutil.which('redis-cli'), reason='needs redis-cli')
def test_redis_cli_cluster(trio, leader):
    leader.set('k', 'v')
    for n in trio.nodes:
        at = f'127.0.0.1:{n.port}'
        code, text = redis_cli('--cluster', 'check', at)
        assert code == 0 and 'All 16384 slots covered' in text, text
        code, text = redis_cli('--cluster', 'info', at)
        assert code == 0 and '1 keys in 1 masters' in text, text
        code, text = redis_cli('--cluster', 'call', at, 'CLUSTER', 'MYID')
        assert code == 0 and all(name in text for name in node_lines(leader)), text
    code, text = redis_cli('-c', '-p', trio.followers()[0].port, 'GET', 'k')
    assert text.strip() == 'v'


def test_a_cluster_client_follows_a_failover(trio, leader):
    c = redis.RedisCluster(host='127.0.0.1', port=trio.nodes[0].port, decode_responses=True)
    old, new = trio.leader(), trio.followers()[0]
    c.set('k', 1)
    with new.client() as n:
        assert n.execute_command('CLUSTER FAILOVER') in (True, 'OK')
    eventually(new.leads)
    assert c.incr('k') == 2
    assert c.cluster_nodes()[f'127.0.0.1:{new.port}']['flags'].endswith('master')
    c.close()
    with new.client() as n, pytest.raises(redis.ResponseError, match='to a replica'):
        n.execute_command('CLUSTER FAILOVER')
    with old.client() as n:
        assert n.execute_command('CLUSTER FAILOVER', 'FORCE') in (True, 'OK')
        with pytest.raises(redis.ResponseError, match='majority'):
            n.execute_command('CLUSTER FAILOVER', 'TAKEOVER')


def test_a_transaction_goes_where_its_keys_are(trio, leader):
    """What clients look for, word by word: they send a transaction to another node if its commands, or EXEC, got MOVED."""
    follower = trio.followers()[0]
    moved = f'MOVED {leader.cluster("KEYSLOT", "k")} 127.0.0.1:{trio.leader().port}'
    spoiled = 'EXECABORT Transaction discarded because of previous errors.'
    with Raw(follower.port) as c:
        say = lambda *commands: [c.call(*words.split()) for words in commands]
        assert say('MULTI', 'SET k v', 'GET k', 'EXEC') == [b'OK', moved, moved, spoiled]
        assert say('EXEC', 'DISCARD') == ['ERR EXEC without MULTI', 'ERR DISCARD without MULTI']
        assert say('MULTI', 'PING', 'EXEC') == [b'OK', b'QUEUED', [b'PONG']]
        assert say('MULTI', 'EXEC') == [b'OK', []]
        leader.set('k', 'v')
        assert say('READONLY', 'MULTI', 'GET k', 'TTL k', 'EXEC') == [b'OK', b'OK', b'QUEUED', b'QUEUED', [b'v', -1]]
        assert say('MULTI', 'GET k', 'SET k w', 'EXEC') == [b'OK', b'QUEUED', moved, spoiled]
        assert say('MULTI', 'GET k', 'READWRITE', 'EXEC') == [b'OK', b'QUEUED', b'QUEUED', [b'v', b'OK']]
        assert say('MULTI', 'GET k', 'EXEC') == [b'OK', moved, spoiled]


def test_a_transaction_whose_leader_changes_before_exec(trio, leader):
    """The client is not in a transaction any more."""
    old, new = trio.leader(), trio.followers()[0]
    with Raw(old.port) as c:
        assert [c.call('MULTI'), c.call('SET', 'k', 1)] == [b'OK', b'QUEUED']
        with new.client() as other:
            other.execute_command('CLUSTER', 'FAILOVER')
        eventually(new.leads)
        moved = f'MOVED {leader.cluster("KEYSLOT", "k")} 127.0.0.1:{new.port}'
        assert eventually(lambda: c.call('EXEC')) == moved
        assert c.call('EXEC') == 'ERR EXEC without MULTI'


def test_a_node_that_knows_no_slots_is_not_taken_for_a_cluster_without_nodes(tmp_path):
    """redis-py and node-redis believe an empty list, and have no node left to ask. After an error they ask the next one."""
    node = Node(str(tmp_path / 'alone'))
    node.start()
    try:
        eventually(lambda: 'Ready to accept' in node.logged())
        with Raw(node.port) as c:
            assert c.call('CLUSTER', 'SLOTS') == 'CLUSTERDOWN This node knows no slots yet'
    finally:
        node.kill()


@pytest.mark.parametrize('who_asks', ['new', 'member'])
def test_meet(tmp_path, who_asks):
    with Cluster(1) as c:
        new = Node(str(tmp_path / 'new'), c.nodes[0].options)
        c.nodes.append(new)
        new.start()
        eventually(lambda: 'belongs to no cluster yet' in new.logged() and 'Ready to accept' in new.logged())
        with new.client() as n, pytest.raises(redis.ResponseError, match='CLUSTERDOWN'):
            n.get('k')
        sender, other = (new, c.nodes[0]) if who_asks == 'new' else (c.nodes[0], new)
        with sender.client() as s:
            with pytest.raises(redis.ResponseError, match='Invalid node address'):
                s.execute_command('CLUSTER', 'MEET', '127.0.0.1', 99999)
            s.execute_command('CLUSTER', 'MEET', '127.0.0.1', other.port)
        c.settled(2)
        c.try_all('SET', 'k', 'v')
        with new.client() as n:
            assert len(node_lines(n)) == 2


def test_a_node_that_was_forgotten_is_gone_and_a_new_one_joins(tmp_path):
    with Cluster(3, ('--cluster-node-timeout', '2000')) as c:
        gone = c.followers()[0]
        with gone.client() as g:
            name = g.execute_command('CLUSTER MYID')
        gone.kill()

        def forgotten():
            try:
                with c.leader().client() as leader:
                    leader.execute_command('CLUSTER FORGET', name)
                    return name not in node_lines(leader)
            except redis.ResponseError as e:
                assert 'TRYAGAIN' in str(e) or 'node that leads' in str(e), e
            return False
        eventually(forgotten, 90, 0.2)
        alive = [n for n in c.nodes if n is not gone]
        for n in alive:
            with n.client() as x:
                eventually(lambda x=x: name not in node_lines(x))
        alive[0].kill()             # what is stored says the same
        alive[0].start()
        c.nodes.remove(gone)
        c.settled(2)
        with alive[0].client() as x:
            assert name not in node_lines(x)
        shutil.rmtree(gone.folder)
        back = Node(gone.folder, gone.options)
        back.start('--cluster-join', f'127.0.0.1:{alive[0].port}')
        c.nodes.append(back)
        c.settled(3)
        with back.client() as x:
            assert len(node_lines(x)) == 3 and name not in node_lines(x)


@pytest.mark.skipif(not shutil.which('redis-cli'), reason='needs redis-cli')
def test_redis_cli_removes_a_node():
    """It sends CLUSTER FORGET to every node that remains, whichever of them leads, and wants OK from all of them."""
    with Cluster(4, ('--cluster-node-timeout', '10000')) as c:
        gone, asked = c.followers()[:2]
        remain = [asked, *(n for n in c.nodes if n not in (gone, asked))]
        with gone.client() as x:
            name = x.execute_command('CLUSTER MYID')
        code, text = redis_cli('--cluster', 'del-node', f'127.0.0.1:{asked.port}', name)
        assert 'Sending CLUSTER RESET' in text, text      # which comes after the last FORGET
        for n in remain:
            with n.client() as x:
                eventually(lambda x=x: name not in node_lines(x))
                assert x.execute_command('CLUSTER FORGET', name)        # it is done
                with pytest.raises(redis.ResponseError, match='Unknown node'):
                    x.execute_command('CLUSTER FORGET', name[::-1])
        assert int(c.leader().region()['voters']) == 3
        leader = c.leader()
        with leader.client() as x:
            leads = x.execute_command('CLUSTER MYID')
        with next(n for n in remain if n is not leader).client() as x: # one that leads hands on first
            assert x.execute_command('CLUSTER FORGET', leads)
            eventually(lambda: leads not in node_lines(x))
