"""Client-side caching: which clients get which invalidations, and when, as in Redis."""
import pytest

import duo
import mayfly
import redis_server


@pytest.fixture
def pair(server, redis_factory):
    d = duo.Duo(server, redis_factory('--enable-debug-command', 'yes'))
    d.talk('z: CONFIG SET maxmemory 0')
    yield d
    d.close()


@redis_server.needed
@redis_server.until((7, 2), 'FLUSHALL invalidates before its own reply')
def test_invalidation(pair):
    pair.talk('''
        a: HELLO 3 | CLIENT TRACKING ON
        a: GET k
        b: SET k 1
        b: SET k 2
        a: GET k | MGET k l m
        b: MSET k 1 l 2 n 3
        b: DEL m
        a: GET k
        a: SET k own
        a: SET k again
        a: GET k | SET k one | GET k | SET k two
        a: MULTI | GET k | SET k in | INCR n | GET n | EXEC
        b: SET k 1 | SET n 1
        a: HGET h f | LRANGE l2 0 -1 | SMEMBERS s | ZRANGE z 0 -1 | TTL t | EXISTS e | TYPE y | OBJECT ENCODING o
        b: HSET h f v | RPUSH l2 a | SADD s a | ZADD z 1 a | SET t 1 | SET e 1 | SET y 1 | SET o 1
        a: GET t
        b: EXPIRE t 100
        a: GET t
        b: PERSIST t
        a: GET t | GET u
        b: RENAME t u
        a: GET u
        b: COPY u v | MOVE u 1
        a: GET k
        b: SELECT 3 | SET k otherdb | SELECT 0
        a: KEYS nothing* | DBSIZE
        a: LPOP l2
        b: RPUSH l2 x
        a: GET h
        b: DEL h
        a: GET gone
        b: DEL gone
        b: SETNX gone 1
        a: GET k | GET l
        b: FLUSHDB
        b: SET k 1
        a: GET k
        b: FLUSHALL
        a: GET k | FLUSHALL | GET k
        a: GET k
        b: SWAPDB 0 1 | SWAPDB 0 1
        b: SET k 1
        a: GET k | CLIENT TRACKING OFF
        b: SET k 2
        a: CLIENT TRACKING ON
        b: SET k 3
    ''')


@redis_server.needed
@pytest.mark.engine('memory', 'on disk, reads leave the dead to the cycle')
def test_expiry_on_access(pair):
    pair.talk('''
        b: DEBUG SET-ACTIVE-EXPIRE 0
        a: HELLO 3 | CLIENT TRACKING ON
        b: SET k v PX 500
        a: GET k
        b: DEBUG SLEEP 0.52
        b: GET k
        b: SET k v PX 500
        a: GET k
        a: DEBUG SLEEP 0.52
        a: GET k
        b: SET k v PX 500
        a: GET k
        b: DEBUG SLEEP 0.52
        a: SET k w
        b: DEBUG SET-ACTIVE-EXPIRE 1
    ''')


def test_expiry(server):
    """No command is needed."""
    with server.raw() as a, server.raw() as b:
        a.call('HELLO', '3')
        a.call('CLIENT', 'TRACKING', 'ON')
        b.call('SET', 'k', 'v', 'PX', '800')
        b.call('HSET', 'h', 'f', 'v', 'g', 'v')
        b.call('HPEXPIRE', 'h', '800', 'FIELDS', '1', 'f')
        a.call('GET', 'k')
        a.call('HGETALL', 'h')
        assert sorted(a.reply() for _ in range(2)) == [[b'invalidate', [b'h']], [b'invalidate', [b'k']]]


@pytest.mark.engine('memory', 'data on disk is not evicted')
def test_eviction(server):
    with server.raw() as a, server.client() as r:
        a.call('HELLO', '3')
        a.call('CLIENT', 'TRACKING', 'ON', 'BCAST', 'PREFIX', 'evict:')
        for i in range(100):
            r.set(f'evict:{i}', b'x' * 10000)
        told = set()
        while len(told) < 100:
            told |= set(a.reply()[1])
        try:
            r.config_set('maxmemory-policy', 'allkeys-lru')
            r.config_set('maxmemory', 1)
            told = set()
            while len(told) < 100:
                told |= set(a.reply()[1])
        finally:
            r.config_set('maxmemory', 0)
            r.config_set('maxmemory-policy', 'noeviction')


@redis_server.needed
def test_options(pair):
    pair.talk('''
        a: CLIENT TRACKINGINFO | CLIENT GETREDIR
        a: HELLO 3
        a: CLIENT TRACKINGINFO | CLIENT GETREDIR
        a: CLIENT CACHING YES
        a: CLIENT TRACKING
        a: CLIENT TRACKING maybe
        a: CLIENT TRACKING ON nonsense
        a: CLIENT TRACKING ON REDIRECT
        a: CLIENT TRACKING ON REDIRECT 999999
        a: CLIENT TRACKING ON REDIRECT x
        a: CLIENT TRACKING ON PREFIX a
        a: CLIENT TRACKING ON BCAST OPTIN
        a: CLIENT TRACKING ON OPTIN OPTOUT
        a: CLIENT TRACKING ON BCAST PREFIX foo PREFIX foobar
        a: CLIENT TRACKING ON BCAST PREFIX foobar PREFIX foo
        a: CLIENT TRACKING ON BCAST PREFIX x PREFIX y
        a: CLIENT TRACKINGINFO
        a: CLIENT TRACKING ON BCAST PREFIX xx
        a: CLIENT TRACKING ON BCAST PREFIX ""
        a: CLIENT TRACKING ON
        a: CLIENT TRACKING ON BCAST PREFIX z NOLOOP
        a: CLIENT TRACKINGINFO
        a: CLIENT TRACKING ON BCAST
        a: CLIENT TRACKINGINFO
        a: CLIENT CACHING YES
        a: CLIENT TRACKING OFF | CLIENT TRACKING OFF
        a: CLIENT TRACKINGINFO
        a: CLIENT TRACKING ON OPTIN
        a: CLIENT TRACKING ON OPTOUT
        a: CLIENT TRACKING ON OPTIN NOLOOP
        a: CLIENT CACHING NO
        a: CLIENT CACHING maybe
        a: CLIENT CACHING YES | CLIENT TRACKINGINFO
        a: CLIENT TRACKINGINFO
        b: CLIENT TRACKING ON REDIRECT #a
        b: CLIENT TRACKING ON REDIRECT #a REDIRECT #a
        b: CLIENT GETREDIR | CLIENT TRACKINGINFO
        a: RESET
        a: CLIENT TRACKINGINFO
    ''')


@redis_server.needed
@redis_server.until((7, 2), 'FLUSHALL invalidates before its own reply')
def test_opt_in_and_out(pair):
    pair.talk('''
        a: HELLO 3 | CLIENT TRACKING ON OPTIN
        a: GET k | CLIENT CACHING YES | GET l | GET m
        b: SET k 1 | SET l 1 | SET m 1
        a: CLIENT CACHING YES | CLIENT ID | GET k
        b: SET k 1
        a: CLIENT CACHING YES | MULTI | GET k | GET l | EXEC | GET m
        b: SET k 1 | SET l 1 | SET m 1
        a: CLIENT CACHING YES | nosuchcommand | GET k
        b: SET k 1
        a: CLIENT TRACKING OFF | CLIENT TRACKING ON OPTOUT
        a: GET k | CLIENT CACHING NO | GET l | GET m
        b: SET k 1 | SET l 1 | SET m 1
        a: CLIENT TRACKING OFF | CLIENT TRACKING ON NOLOOP
        a: GET k | SET k own | GET l
        b: SET k 2 | SET l 2
        a: GET k | FLUSHALL
    ''')


@redis_server.needed
def test_redirection(pair):
    pair.talk('''
        r: SUBSCRIBE __redis__:invalidate
        a: CLIENT TRACKING ON REDIRECT #r
        a: GET k | GET l
        b: SET k 1
        b: FLUSHALL
        a: GET k | SET k 2
        r: UNSUBSCRIBE
        a: GET k
        b: SET k 1
        r: SUBSCRIBE other
        a: GET k
        b: SET k 1
        r: RESET | HELLO 3
        a: GET k
        b: SET k 1
        a: CLIENT TRACKING OFF | HELLO 3 | CLIENT TRACKING ON REDIRECT #r
        a: GET k
        b: SET k 1
        a: GET k | CLIENT TRACKINGINFO
    ''')
    pair.leave('r')
    pair.talk('''
        b: SET k 1
        a: CLIENT TRACKINGINFO
        a: GET k
        b: SET k 1
        a: GET k | SET k 2
        a: CLIENT TRACKING ON
        a: CLIENT TRACKINGINFO
        a: GET k
        b: SET k 1
    ''')


@redis_server.needed
def test_broadcast(pair):
    pair.talk('''
        a: HELLO 3 | CLIENT TRACKING ON BCAST PREFIX u: PREFIX o:
        b: HELLO 3 | CLIENT TRACKING ON BCAST NOLOOP
        c: SET u:2 1
        c: MSET u:2 1 u:1 1 o:1 1 x 1
        c: SET u:3 1 | SET u:3 2 | DEL u:3
        b: SET u:4 1
        b: MULTI | SET u:4 1 | SET u:5 1 | EXEC
        c: FLUSHALL
        a: SET o:1 1
        a: GET o:1 | SET o:1 2 | GET o:1
        c: SET "" 1
        a: CLIENT TRACKING OFF
        c: SET u:1 1
        b: RESET
        c: SET u:1 1
    ''')


@pytest.mark.parametrize('mode', ([], ['BCAST']))
@pytest.mark.parametrize('waits, own', (('BLMOVE src dst LEFT RIGHT 0', [b'dst', b'src']), ('BLPOP src 0', [b'src'])))
def test_noloop_and_blocked_clients(server, r, waits, own, mode):
    """A blocked client's own changes count as its own. It gets invalidations for keys others changed, too."""
    with server.raw() as waiter, server.raw() as pusher, server.raw() as other:
        for c in (waiter, pusher, other):
            c.call('HELLO', '3')
            c.call('CLIENT', 'TRACKING', 'ON', *mode, *(() if c is other else ('NOLOOP',)))
            c.call('EXISTS', 'src', 'dst')
        waiter.command(*waits.split())
        mayfly.eventually(lambda: r.info('clients')['blocked_clients'] == 1)
        pusher.call('RPUSH', 'src', 'a', 'b')
        heard = {c: [] for c in (waiter, pusher, other)}
        for c, keys in heard.items():
            c.command('PING')
            while (message := c.reply()) != b'PONG':
                if message[0] == b'invalidate':
                    keys += message[1]
        assert heard[waiter] == [b'src'] and sorted(heard[other]) == own
        # Not BCAST: with its own push the pusher's copy of src was forgotten, without a word.
        assert heard[pusher] == (own if mode else own[:-1])


@redis_server.needed
def test_scripts(pair):
    pair.talk('''
        a: HELLO 3 | CLIENT TRACKING ON
        a: EVAL "return redis.call('get', KEYS[1])" 1 k
        b: SET k 1 | SET l 1
        a: EVAL "return 1" 1 k
        b: SET k 1
        a: EVAL "return redis.call('set', KEYS[1], 'x')" 1 k
        b: SET k 1
        a: EVAL_RO "return 1" 1 k
        b: SET k 1
        a: EVAL_RO "return redis.call('get', KEYS[1])" 1 k
        b: SET k 1
    ''')


def test_of_a_script_the_keys_it_reads_are_tracked(server, r):
    """As in 7.4; 7.0 takes all that were declared."""
    with server.raw() as a:
        a.call('HELLO', '3')
        a.call('CLIENT', 'TRACKING', 'ON')
        for eval_ in 'EVAL', 'EVAL_RO':
            a.call(eval_, "return redis.call('get', KEYS[2])", 2, 'declared', 'read')
            r.mset({'declared': 1, 'read': 1})
            assert a.reply() == [b'invalidate', [b'read']] and a.call('PING') == b'PONG'


def test_table_limit_is_lowered(server, r):
    """No client sends anything meanwhile."""
    try:
        with server.raw() as a:
            a.call('HELLO', '3')
            a.call('CLIENT', 'TRACKING', 'ON')
            for i in range(3000):
                a.call('GET', f'k{i}')
            r.config_set('tracking-table-max-keys', 10)
            told = set()
            while len(told) < 2990:
                told |= set(a.reply()[1])
            assert r.info('stats')['tracking_total_keys'] == 10 and a.silent()
    finally:
        r.config_set('tracking-table-max-keys', 1000000)


@pytest.mark.engine('memory', 'the other engine evicts nothing')
def test_keys_that_a_command_evicts_are_invalidated_before_its_reply(server_factory):
    s = server_factory()
    with s.client() as c, s.raw() as a:
        a.call('HELLO', '3')
        a.call('CLIENT', 'TRACKING', 'ON')
        a.call('SETEX', 'volatile', 1000, 'x')
        a.call('GET', 'volatile')
        c.config_set('maxmemory-policy', 'volatile-random')
        a.send(mayfly.encode('CONFIG', 'SET', 'maxmemory', 1) + mayfly.encode('GET', 'other'))
        assert a.reply() == b'OK'
        assert [a.reply(), a.reply()] == [[b'invalidate', [b'volatile']], None]


def test_table_limit(server, r):
    """More keys than tracking-table-max-keys are not remembered: some are declared invalid instead."""
    r.config_set('tracking-table-max-keys', 50)
    try:
        with server.raw() as a:
            a.call('HELLO', '3')
            a.call('CLIENT', 'TRACKING', 'ON')
            told = set()
            for i in range(200):
                a.command('GET', f'k{i}')
                while isinstance(reply := a.reply(), list):
                    told |= set(reply[1])
            r.ping()
            info = r.info()
            assert info['tracking_clients'] == 1 and info['tracking_total_keys'] <= 50
            assert info['tracking_total_items'] == info['tracking_total_keys']
            for i in range(200):
                r.set(f'k{i}', 'v')
            while len(told) < 200:
                told |= set(a.reply()[1])
    finally:
        r.config_set('tracking-table-max-keys', 1000000)
    mayfly.eventually(lambda: r.info('clients')['tracking_clients'] == 0)
    assert r.info('stats')['tracking_total_keys'] == 0


def test_many_readers(server, r):
    """All clients that read a key get an invalidation, whichever have left meanwhile."""
    clients = [server.raw() for _ in range(40)]
    for c in clients:
        c.call('HELLO', '3')
        c.call('CLIENT', 'TRACKING', 'ON')
        c.call('GET', 'k')
    assert r.info('stats')['tracking_total_items'] == 40
    for c in clients[::2]:
        c.close()
    r.set('k', 'v')
    for c in clients[1::2]:
        assert c.reply() == [b'invalidate', [b'k']]
        assert 't' in c.call('CLIENT', 'INFO').decode().split('flags=')[1].split()[0]
        c.close()
    mayfly.eventually(lambda: r.info('clients')['tracking_clients'] == 0)


def test_prefix_counts(server, r):
    with server.raw() as a:
        a.call('HELLO', '3')
        prefixes = [w for i in range(5000) for w in ('PREFIX', f'p{i}:')]
        assert a.call('CLIENT', 'TRACKING', 'ON', 'BCAST', *prefixes) == b'OK'
        assert r.info('stats')['tracking_total_prefixes'] == 5000
        r.set('p4999:x', 1)
        assert a.reply() == [b'invalidate', [b'p4999:x']]
        assert len(a.call('CLIENT', 'TRACKINGINFO')[b'prefixes']) == 5000
    mayfly.eventually(lambda: r.info('stats')['tracking_total_prefixes'] == 0)
