"""What is not data, on a cluster of three nodes: pub/sub, sharded pub/sub, functions, users; and figures about it."""
import contextlib
import re

import pytest
import redis
from nodes import Cluster, Stopped, eventually

from mayfly import Raw, ReplyError       # of tests/server, which nodes has found

LIBRARY = "#!lua name=%s\nredis.register_function('%s_f', function(keys) return redis.call('INCR', keys[1]) end)"


@pytest.fixture(scope='module')
def trio():
    with Cluster(3, ('--cluster-node-timeout', '2000')) as c:
        yield c


@pytest.fixture
def raw(trio):
    """Connections to all nodes, the leader's first."""
    with contextlib.ExitStack() as open_ones:
        nodes = [trio.leader(), *trio.followers()]
        yield [open_ones.enter_context(contextlib.closing(Raw(n.port))) for n in nodes]


def more(node):
    return contextlib.closing(Raw(node.port))


# -- pub/sub --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('publisher', [0, 1, 2])
def test_a_message_reaches_subscribers_of_all_nodes(trio, raw, publisher):
    for c in raw:
        assert c.call('SUBSCRIBE', 'news')[0] == b'subscribe'
        assert c.call('PSUBSCRIBE', 'n*')[0] == b'psubscribe'
    with more([trio.leader(), *trio.followers()][publisher]) as c:
        for i in range(20):
            assert c.call('PUBLISH', 'news', f'm{i}') == 2      # as in Redis: those of this node
    for c in raw:
        got = [c.reply() for _ in range(40)]
        assert [m[-1] for m in got if m[0] == b'message'] == [b'm%d' % i for i in range(20)]
        assert [m[-1] for m in got if m[0] == b'pmessage'] == [b'm%d' % i for i in range(20)]


def test_a_message_from_a_transaction_and_a_script(trio, raw):
    leader, *followers = raw
    for c in followers:
        c.call('SUBSCRIBE', 'c')
    leader.call('MULTI')
    leader.call('SET', 'k', 'v')
    leader.call('PUBLISH', 'c', 'from exec')
    assert leader.call('EXEC')[0] == b'OK'
    leader.call('EVAL', "return redis.call('PUBLISH', 'c', 'from script')", 0)
    for c in followers:
        assert [c.reply()[-1] for _ in range(2)] == [b'from exec', b'from script']


def test_shard_channels(trio, raw):
    """Every member of the slot takes subscribers and messages; a message reaches all of them, and no ordinary subscriber."""
    for c in raw:
        assert c.call('SSUBSCRIBE', '{t}1', '{t}2') == [b'ssubscribe', b'{t}1', 1]
        assert c.reply() == [b'ssubscribe', b'{t}2', 2]
    ordinary = [more(n) for n in trio.nodes]
    with contextlib.ExitStack() as stack:
        others = [stack.enter_context(o) for o in ordinary]
        for o in others:
            o.call('SUBSCRIBE', '{t}1')
        for i, n in enumerate(trio.nodes):
            with more(n) as c:
                assert c.call('SPUBLISH', '{t}1', str(i)) == 1
        for c in raw:
            assert sorted(c.reply() for _ in range(3)) == [[b'smessage', b'{t}1', b'%d' % i] for i in range(3)]
        for o in others:
            assert o.call('PING', 'nothing came') == [b'pong', b'nothing came']
    with more(trio.nodes[1]) as c:
        assert sorted(c.call('PUBSUB', 'SHARDCHANNELS')) == [b'{t}1', b'{t}2']
        assert c.call('PUBSUB', 'SHARDNUMSUB', '{t}1') == [b'{t}1', 1]
        for command in ('SSUBSCRIBE', 'SUNSUBSCRIBE'):
            reply = c.call(command, 'a', 'b')
            assert isinstance(reply, ReplyError) and 'CROSSSLOT' in str(reply), (command, reply)


def test_shard_channels_without_a_majority(trio, raw):
    """cluster-allow-pubsubshard-when-down: messages are no data."""
    leader, follower, _ = [trio.leader(), *trio.followers()]
    with Stopped(*[n for n in trio.nodes if n is not follower]):
        assert raw[1].call('SSUBSCRIBE', 'c') == [b'ssubscribe', b'c', 1]
        with more(follower) as c:
            assert c.call('SPUBLISH', 'c', 'm') == 1
        assert raw[1].reply() == [b'smessage', b'c', b'm']
    trio.settled(3)
    assert leader.alive()


# -- functions and users --------------------------------------------------------------------------------------


def test_functions_reach_all_nodes(trio, raw):
    leader, *followers = raw
    assert leader.call('FUNCTION', 'LOAD', LIBRARY % ('one', 'one')) == b'one'
    for c in followers:
        eventually(lambda c=c: b'one' in str(c.call('FUNCTION', 'LIST')).encode())
        refused = c.call('FUNCTION', 'LOAD', LIBRARY % ('two', 'two'))
        assert isinstance(refused, ReplyError) and 'MOVED 0 ' in str(refused)
        moved = c.call('FCALL', 'one_f', 1, 'counter')
        assert isinstance(moved, ReplyError) and 'MOVED' in str(moved)
    leader.call('DEL', 'counter')
    assert leader.call('FCALL', 'one_f', 1, 'counter') == 1
    node = trio.followers()[0]
    with node.client() as c:
        c.execute_command('CLUSTER', 'FAILOVER')
        eventually(node.leads)
        assert c.fcall('one_f', 1, 'counter') == 2
        eventually(lambda: node.region('meta').get('role') == 'leader')     # it follows, if that takes a moment
        assert c.function_load(LIBRARY % ('two', 'two')) == 'two'
        c.function_delete('one')
    for n in trio.nodes:
        with n.client() as c:
            eventually(lambda c=c: [library[1] for library in c.function_list()] == ['two'])
    assert trio.try_all('FUNCTION', 'FLUSH') in (True, 'OK')


def test_users_are_a_nodes_own(trio, raw):
    """As in Redis Cluster: ACL SETUSER is sent to every node."""
    assert raw[0].call('ACL', 'SETUSER', 'ann', 'on', '>pw', '~a*', '&a*', '+@all') == b'OK'
    assert isinstance(raw[1].call('AUTH', 'ann', 'pw'), ReplyError)
    assert raw[1].call('ACL', 'SETUSER', 'ann', 'on', '>pw', '~a*', '&a*', '+@all') == b'OK'
    for c in raw[:2]:
        assert c.call('AUTH', 'ann', 'pw') == b'OK'
        assert 'NOPERM' in str(c.call('GET', 'b'))          # before MOVED: a user learns nothing of other keys
        assert 'NOPERM' in str(c.call('SSUBSCRIBE', 'b'))
    assert raw[0].call('SET', 'a1', 'x') == b'OK' and 'MOVED' in str(raw[1].call('GET', 'a1'))
    for n in trio.nodes:
        with n.client() as c:
            c.acl_deluser('ann')


# -- figures --------------------------------------------------------------------------------------------------

CLUSTER_INFO = '''cluster_slots_assigned cluster_slots_ok cluster_slots_pfail cluster_slots_fail cluster_known_nodes cluster_size
    cluster_current_epoch cluster_my_epoch cluster_stats_messages_sent cluster_stats_messages_received
    total_cluster_links_buffer_limit_exceeded'''.split()


def test_info_as_an_exporter_reads_it(trio):
    """CLUSTER INFO has Redis's fields, all of them numbers but one; INFO says which mode it is."""
    for n in trio.nodes:
        with more(n) as c:
            lines = dict(line.split(':') for line in c.call('CLUSTER', 'INFO').decode().split('\r\n') if line)
            assert lines.pop('cluster_state') == 'ok'
            assert set(CLUSTER_INFO) <= set(lines)
            assert all(re.fullmatch(r'\d+', v) for v in lines.values()), lines
            assert lines['cluster_slots_assigned'] == lines['cluster_slots_ok'] == '16384'
            assert lines['cluster_known_nodes'] == '3' and int(lines['cluster_size']) >= 1
            info = c.call('INFO', 'everything').decode()
            fields = dict(line.split(':', 1) for line in info.split('\r\n') if line and line[0] != '#')
            assert fields['cluster_enabled'] == '1' and fields['redis_mode'] == 'cluster'
            assert fields['redis_version'].startswith('7.4.')


def test_redis_py_reads_the_same(trio):
    with contextlib.closing(redis.RedisCluster(host='127.0.0.1', port=trio.nodes[2].port, decode_responses=True)) as c:
        assert c.cluster_info()['cluster_state'] == 'ok'
        assert len(c.cluster_nodes()) == 3 and len(c.get_primaries()) == 1 and len(c.get_replicas()) == 2
        assert c.publish('nobody', 'hears') == 0
        assert c.set('k', 1) and c.incr('k') == 2
