"""Publish/subscribe: what every client hears is what Redis would have told it."""
import socket
import time

import pytest

import duo
import mayfly
import redis_server

pytestmark = pytest.mark.any_engine


@pytest.fixture
def pair(server, redis_factory):
    d = duo.Duo(server, redis_factory())
    yield d
    d.close()


@redis_server.needed
def test_conversations(pair):
    pair.talk('''
        a: SUBSCRIBE x y x
        b: PUBLISH x hello
        b: PUBLISH nobody hello
        b: PUBLISH "" empty
        a: SUBSCRIBE ""
        b: PUBLISH "" ""
        a: PSUBSCRIBE x* [yz] x*
        b: PUBLISH x twice
        b: PUBLISH xy once
        b: PUBLISH y pattern
        c: SUBSCRIBE x
        c: PSUBSCRIBE x*
        b: PUBLISH x many
        b: PUBSUB NUMSUB x y nobody
        b: PUBSUB NUMSUB
        b: PUBSUB NUMPAT
        b: PUBSUB CHANNELS y*
        b: PUBSUB CHANNELS nothing*
        b: PUBSUB CHANNELS a b
        b: PUBSUB SHARDCHANNELS
        b: PUBSUB nope
        b: PUBSUB
        a: UNSUBSCRIBE nosuch
        a: UNSUBSCRIBE x y
        a: PUNSUBSCRIBE nosuch
        a: PUNSUBSCRIBE [yz]
        b: PUBLISH x rest
        a: UNSUBSCRIBE
        a: UNSUBSCRIBE
        a: PUNSUBSCRIBE
        a: PUNSUBSCRIBE
        a: SUNSUBSCRIBE
        a: SET k v
        b: SSUBSCRIBE
        b: SUBSCRIBE
        b: PUBLISH x
        b: SPUBLISH x y z
    ''')


@redis_server.needed
def test_shard_channels(pair):
    pair.talk('''
        a: SSUBSCRIBE s
        a: SUBSCRIBE s
        a: PSUBSCRIBE s*
        b: SPUBLISH s shard
        b: PUBLISH s plain
        b: PUBSUB SHARDCHANNELS
        b: PUBSUB SHARDCHANNELS s
        b: PUBSUB SHARDCHANNELS x*
        b: PUBSUB SHARDNUMSUB s x
        a: SSUBSCRIBE s
        a: UNSUBSCRIBE
        a: PUNSUBSCRIBE
        a: GET k
        a: SUNSUBSCRIBE x s
        a: SUNSUBSCRIBE
        a: GET k
    ''')


@redis_server.needed
def test_what_a_subscriber_may_do(pair):
    pair.talk('''
        a: SUBSCRIBE x
        a: GET k
        a: CLIENT ID
        a: PUBLISH x 1
        a: PING
        a: PING hello
        a: PING 1 2
        a: HELLO 3
        a: MULTI
        a: nosuchcommand
        a: GET
        a: SUBSCRIBE y | PSUBSCRIBE p | UNSUBSCRIBE x
        b: PUBLISH y 1
        a: RESET
        a: GET k
        b: PUBLISH y 1
        a: HELLO 3 | SUBSCRIBE z
        a: GET k
        a: PING
        b: PUBLISH z 1
        a: HELLO 2
        a: GET k
        a: RESET
        a: SUBSCRIBE z
        b: PUBLISH z 1 | PUBLISH z 2 | PUBLISH z 3
        b: PUBSUB NUMSUB z
    ''')


@redis_server.needed
def test_messages_and_replies_of_one_client(pair):
    """CLIENT REPLY silences replies, not messages."""
    pair.talk('''
        a: CONFIG SET notify-keyspace-events KEA
        a: HELLO 3 | SUBSCRIBE x | PSUBSCRIBE __key*:k
        a: CLIENT REPLY OFF | PUBLISH x off | SUBSCRIBE y | CLIENT REPLY ON
        a: CLIENT REPLY SKIP | PUBLISH x skip
        a: CLIENT REPLY SKIP | SUBSCRIBE z
        a: CONFIG SET notify-keyspace-events ""
        a: MULTI | SUBSCRIBE m | SSUBSCRIBE m | PSUBSCRIBE m* | UNSUBSCRIBE m | EXEC
        b: MULTI | PUBLISH x 1 | SPUBLISH x 1 | EXEC
        b: MULTI | SUBSCRIBE m | EXEC
        b: MULTI
        b: UNSUBSCRIBE
    ''')


def test_own_messages_come_after_the_reply(server):
    """As in 7.4; 7.0 writes them before it."""
    events = [[b'pmessage', b'__key*:k', b'__keyspace@0__:k', b'set'], [b'message', b'x', b'2']]
    script = "redis.call('PUBLISH', 'x', '1') redis.call('PUBLISH', 'x', '2') return 'done'"
    with server.raw() as c:
        c.call('CONFIG', 'SET', 'notify-keyspace-events', 'K$')
        c.call('HELLO', '3')
        c.call('SUBSCRIBE', 'x')
        c.call('PSUBSCRIBE', '__key*:k')
        for command in (['PUBLISH', 'x', 'self'], ['SET', 'k', 'v'], ['EVAL', script, '0']):
            c.command(*command)
        assert [c.reply() for _ in range(7)] == [
            1, [b'message', b'x', b'self'], b'OK', events[0], b'done', [b'message', b'x', b'1'], events[1]]
        c.call('CONFIG', 'SET', 'notify-keyspace-events', '')


def test_order_within_exec(server):
    """Messages stand behind EXEC's reply, never in the middle of it."""
    with server.raw() as c:
        c.call('HELLO', '3')
        c.call('SUBSCRIBE', 'x')
        for command in (['MULTI'], ['PUBLISH', 'x', '1'], ['INCR', 'n'], ['EXEC']):
            c.command(*command)
        assert [c.reply() for _ in range(5)] == [b'OK', b'QUEUED', b'QUEUED', [1, 1], [b'message', b'x', b'1']]
    with server.raw() as c:
        mayfly.eventually(lambda: c.call('PUBSUB', 'NUMSUB', 'x') == [b'x', 0])     # the first one is gone
        for command in (['MULTI'], ['SUBSCRIBE', 'x'], ['PUBLISH', 'x', '1'], ['EXEC']):
            c.command(*command)
        assert [c.reply() for _ in range(5)] == [
            b'OK', b'QUEUED', b'QUEUED', [[b'subscribe', b'x', 1], 1], [b'message', b'x', b'1']]


def test_disconnects(server, r):
    """What a client was subscribed to goes with it."""
    before = r.info('stats')
    with server.raw() as c:
        for i in range(500):
            c.command('SUBSCRIBE', f'c{i}', f'd{i}').command('PSUBSCRIBE', f'p{i}*').command('SSUBSCRIBE', f's{i}')
        for i in range(2000):
            c.reply()
        stats = r.info('stats')
        assert stats['pubsub_channels'] - before['pubsub_channels'] == 1000
        assert stats['pubsub_patterns'] - before['pubsub_patterns'] == 500
        assert stats['pubsubshard_channels'] - before['pubsubshard_channels'] == 500
        mine = next(x for x in r.client_list() if x['sub'] == '1000')
        assert (mine['psub'], mine['ssub'], mine['flags'], mine['cmd']) == ('500', '500', 'P', 'ssubscribe')
        assert int(mine['id']) in {int(x['id']) for x in r.client_list(_type='pubsub')}
    mayfly.eventually(lambda: r.info('stats')['pubsub_channels'] == before['pubsub_channels'])
    stats = r.info('stats')
    assert stats['pubsub_patterns'] == before['pubsub_patterns']
    assert stats['pubsubshard_channels'] == before['pubsubshard_channels']
    assert r.publish('c1', 'x') == 0


def test_kill_and_timeouts(server_factory):
    s = server_factory('--timeout', '1')
    with s.raw() as subscriber, s.raw() as other, s.client() as r:
        subscriber.call('SUBSCRIBE', 'x')
        other.call('PING')
        mayfly.eventually(lambda: r.info('clients')['connected_clients'] == 2)
        time.sleep(0.3)
        assert r.publish('x', 'still here') == 1
        assert subscriber.reply() == [b'message', b'x', b'still here']
        assert r.execute_command('CLIENT', 'KILL', 'TYPE', 'pubsub') == 1
        assert subscriber.closed()


def test_output_limits(server_factory):
    """A subscriber that does not read is cut off at its limit, also within one command."""
    s = server_factory('--client-output-buffer-limit', 'pubsub 1mb 0 0')
    with s.raw() as c, s.raw() as publisher, s.client() as r:
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.call('SUBSCRIBE', 'x')
        publisher.command('MULTI')
        for _ in range(600):
            publisher.command('PUBLISH', 'x', b'y' * 10000)
        publisher.command('EXEC')
        for _ in range(601):
            publisher.reply()
        counts = publisher.reply()
        assert counts[0] == 1 and counts[-1] == 0
        mayfly.eventually(lambda: r.execute_command('PUBSUB', 'NUMSUB', 'x') == [b'x', 0])
        assert r.info('stats')['client_output_buffer_limit_disconnections'] == 1
    with s.raw() as c, s.client() as r:               # the limit of normal clients is another one
        c.call('SUBSCRIBE', 'x')
        c.call('UNSUBSCRIBE', 'x')
        r.set('big', b'z' * (3 << 20))
        assert len(c.call('GET', 'big')) == 3 << 20


def test_redis_py(server, r):
    """A client library at work."""
    p = r.pubsub()
    heard = []
    p.subscribe('news')
    p.psubscribe(**{'n*': lambda m: heard.append(m['data'])})
    mayfly.eventually(lambda: r.publish('news', 'hello') == 2)
    messages = []

    def look():
        m = p.get_message(timeout=0.1)
        if m:
            messages.append((m['type'], m['data']))
        return heard and ('message', b'hello') in messages
    mayfly.eventually(look)
    assert heard == [b'hello']
    p.unsubscribe()
    p.punsubscribe()
    p.close()
