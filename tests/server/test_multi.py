"""Transactions: MULTI EXEC DISCARD WATCH UNWATCH. Where nothing else is said, redis-server is asked the same, step
by step, and must answer the same."""
import glob
import hashlib
import pathlib
import re
import time

import pytest

import mayfly
import redis_server
from mayfly import ReplyError, eventually
from test_persistence import DEBUG, SLOWER, fast, save_a_huge_key
from test_persistence import small_disk               # noqa: F401 # pylint: disable=unused-import

COMMON = ('--enable-debug-command', 'yes', '--enable-protected-configs', 'yes', '--slowlog-log-slower-than', '0')


@pytest.fixture(scope='module')
def both():
    """Mayfly and Redis."""
    servers = [mayfly.new_server(*COMMON), redis_server.Redis('--slowlog-log-slower-than', '0')]
    yield servers
    for s in servers:
        s.check()
        s.remove()


def play(port, steps):
    """The replies to steps 'who: WORD WORD …', each by a connection of its own name."""
    clients, replies = {}, []
    try:
        for step in steps:
            who, command = step.split(': ', 1)
            if who == 'sleep':
                time.sleep(float(command))
                continue
            if who not in clients:
                clients[who] = mayfly.Raw(port)
            replies.append((step, clients[who].call(*command.split(' '))))
    finally:
        for c in clients.values():
            c.close()
    return replies


def alone(*commands):
    return [f'a: {c}' for c in commands]


SCENARIOS = {
    'runs': alone('MULTI', 'SET k v', 'INCR k', 'GET k', 'SADD k 1', 'MGET k nosuch', 'EXEC', 'GET k', 'EXEC'),
    'empty': alone('MULTI', 'EXEC', 'MULTI', 'DISCARD', 'DISCARD'),
    'nested': alone('MULTI', 'MULTI', 'PING', 'EXEC'),
    'watch inside': alone('MULTI', 'WATCH x', 'PING', 'EXEC'),
    'unknown': alone('MULTI', 'SET k w', 'NOSUCH a b', 'GET k', 'EXEC', 'GET k', 'EXEC'),
    'arity': alone('MULTI', 'GET', 'EXEC', 'MULTI', 'CLIENT', 'EXEC', 'MULTI', 'CLIENT NOSUCH', 'EXEC',
                   'MULTI', 'CONFIG GET', 'EXEC', 'MULTI', 'DISCARD x', 'EXEC', 'MULTI', 'MULTI x', 'EXEC'),
    'exec arity': alone('EXEC x', 'MULTI', 'EXEC x', 'EXEC', 'WATCH x', 'EXEC x', 'SET x 1', 'MULTI', 'EXEC'),
    'not inside': alone('MULTI', 'SAVE', 'EXEC', 'MULTI', 'SHUTDOWN NOSAVE', 'EXEC', 'MULTI', 'PSYNC ? -1', 'EXEC',
                        'MULTI', 'SYNC', 'EXEC'),
    'monitor': alone('MULTI', 'MONITOR', 'PING', 'EXEC', 'PING'),
    'wait': alone('MULTI', 'WAIT 1 0', 'EXEC'),
    'blocking': alone('MULTI', 'BLPOP nosuch 0', 'BRPOPLPUSH nosuch a 0', 'BZPOPMIN nosuch 0', 'BLMOVE nosuch b LEFT '
                      'LEFT 0', 'BLMPOP 0 1 nosuch LEFT', 'EXEC'),
    'select': alone('MULTI', 'SELECT 3', 'SET sk 1', 'SELECT 99', 'SELECT x', 'EXEC', 'GET sk', 'SELECT 0', 'GET sk'),
    'null in RESP3': alone('HELLO 3', 'WATCH k', 'SET k 1', 'MULTI', 'PING', 'EXEC', 'MULTI', 'HGETALL nosuch',
                           'GET nosuch', 'EXEC')[1:],
    'auth': alone('MULTI', 'AUTH x', 'AUTH default x', 'EXEC'),
    'reset': alone('WATCH x', 'MULTI', 'SET x 1', 'RESET', 'EXEC', 'SET x 2', 'MULTI', 'PING', 'EXEC'),
    'reset unwatches': ['a: WATCH x', 'a: RESET', 'b: SET x 2', 'a: MULTI', 'a: PING', 'a: EXEC'],
    'quit': alone('MULTI', 'PING', 'QUIT'),
    'names': alone('MULTI', 'CLIENT SETNAME foo', 'CLIENT GETNAME', 'EXEC'),
    'unwatch inside': alone('WATCH x', 'MULTI', 'UNWATCH', 'EXEC', 'SET x 1', 'MULTI', 'PING', 'EXEC'),
    'subscribe': alone('MULTI', 'SUBSCRIBE x', 'UNSUBSCRIBE x', 'EXEC'),
    'flush': alone('SET x 1', 'MULTI', 'FLUSHALL', 'SET x 2', 'EXEC', 'DBSIZE'),
    'dirty, then wrong': alone('WATCH x', 'SET x 5', 'MULTI', 'SET y 1', 'NOSUCH', 'EXEC'),
    'scripts': alone('MULTI', 'EVAL return(redis.call("incr",KEYS[1])) 1 n', 'INCR n', 'EXEC'),
    'bgsave': alone('MULTI', 'BGSAVE', 'EXEC'),
    'watch': ['a: SET k 1', 'a: WATCH k', 'b: GET k', 'a: MULTI', 'a: INCR k', 'a: EXEC', 'b: INCR k', 'a: WATCH k',
              'b: INCR k', 'a: MULTI', 'a: INCR k', 'a: EXEC', 'a: GET k', 'a: MULTI', 'a: INCR k', 'a: EXEC'],
    'watch, changed within MULTI': ['a: WATCH k', 'a: MULTI', 'a: GET k', 'b: SET k x', 'a: GET k', 'a: EXEC'],
    'watch twice': ['a: WATCH k k', 'a: WATCH k', 'a: UNWATCH', 'b: SET k 1', 'a: MULTI', 'a: PING', 'a: EXEC'],
    'watch what a transaction changes': ['b: WATCH k', 'a: MULTI', 'a: SET k 1', 'a: EXEC', 'b: MULTI', 'b: PING',
                                         'b: EXEC'],
    'watch one, change another': ['a: WATCH k l', 'b: SET m 1', 'b: SELECT 1', 'b: SET k 1', 'a: MULTI', 'a: PING',
                                  'a: EXEC', 'b: FLUSHDB'],
    'discard unwatches': ['a: WATCH k', 'b: SET k 1', 'a: MULTI', 'a: DISCARD', 'a: MULTI', 'a: PING', 'a: EXEC'],
    'flush of a watched key': ['a: SET k 1', 'a: WATCH k', 'b: FLUSHALL', 'a: MULTI', 'a: PING', 'a: EXEC'],
    'flush of an absent watched key': ['a: DEL k', 'a: SET other 1', 'a: WATCH k', 'b: FLUSHDB', 'a: MULTI', 'a: PING',
                                       'a: EXEC'],
    'flush of another database': ['a: SET k 1', 'a: WATCH k', 'b: SELECT 1', 'b: SET k 1', 'b: FLUSHDB', 'a: MULTI',
                                  'a: PING', 'a: EXEC'],
    'swapdb takes a watched key away': ['a: SET k 1', 'a: WATCH k', 'b: SWAPDB 0 1', 'a: MULTI', 'a: PING', 'a: EXEC',
                                        'b: SWAPDB 0 1'],
    'swapdb brings one': ['b: SELECT 1', 'b: SET n 1', 'a: DEL n', 'a: WATCH n', 'b: SWAPDB 1 0', 'a: MULTI',
                          'a: GET n', 'a: EXEC', 'b: FLUSHALL'],
    'swapdb of others': ['a: SET k 1', 'a: WATCH k', 'b: SWAPDB 2 3', 'a: MULTI', 'a: PING', 'a: EXEC'],
    'swapdb of an absent key': ['a: DEL k', 'a: WATCH k', 'b: SWAPDB 0 1', 'a: MULTI', 'a: PING', 'a: EXEC',
                                'b: SWAPDB 0 1'],
    'dies between': ['a: SET k 1 PX 500', 'a: WATCH k', 'sleep: 0.6', 'a: MULTI', 'a: GET k', 'a: EXEC'],
    'dies unseen': ['b: DEBUG SET-ACTIVE-EXPIRE 0', 'a: SET k 1 PX 500', 'a: WATCH k', 'sleep: 0.52', 'a: MULTI',
                    'a: GET k', 'a: EXEC', 'b: DEBUG SET-ACTIVE-EXPIRE 1'],
    'is dead already': ['b: DEBUG SET-ACTIVE-EXPIRE 0', 'a: SET k 1 PX 20', 'sleep: 0.04', 'a: WATCH k', 'a: MULTI',
                        'a: GET k', 'a: EXEC', 'b: DEBUG SET-ACTIVE-EXPIRE 1'],
    'is dead already, then found': ['b: DEBUG SET-ACTIVE-EXPIRE 0', 'a: SET k 1 PX 20', 'sleep: 0.04', 'a: WATCH k',
                                    'b: GET k', 'a: MULTI', 'a: GET k', 'a: EXEC', 'b: DEBUG SET-ACTIVE-EXPIRE 1'],
    'is dead already, then made': ['b: DEBUG SET-ACTIVE-EXPIRE 0', 'a: SET k 1 PX 20', 'sleep: 0.04', 'a: WATCH k',
                                   'b: SET k 2', 'a: MULTI', 'a: GET k', 'a: EXEC', 'b: DEBUG SET-ACTIVE-EXPIRE 1'],
    'is dead already, then flushed': ['b: DEBUG SET-ACTIVE-EXPIRE 0', 'a: SET k 1 PX 20', 'sleep: 0.04', 'a: WATCH k',
                                      'b: FLUSHALL', 'a: MULTI', 'a: GET k', 'a: EXEC',
                                      'b: DEBUG SET-ACTIVE-EXPIRE 1'],
    'expire of a watched key': ['a: SET k 1', 'a: WATCH k', 'b: EXPIRE k 100', 'a: MULTI', 'a: PING', 'a: EXEC',
                                'a: WATCH k', 'b: PERSIST k', 'a: MULTI', 'a: PING', 'a: EXEC'],
    'all alive still': ['a: SET k 1 EX 100', 'a: WATCH k', 'a: MULTI', 'a: TTL k', 'a: EXEC'],
    'read only from here': ['a: MULTI', 'a: SET k 1', 'b: REPLICAOF 127.0.0.1 1', 'a: EXEC', 'a: EXEC', 'a: MULTI',
                            'a: SET k 1', 'a: GET k', 'a: EXEC', 'a: MULTI', 'a: PING', 'a: EXEC',
                            'b: REPLICAOF NO ONE'],
    'too few replicas': ['a: MULTI', 'a: SET k 1', 'b: CONFIG SET min-replicas-to-write 1', 'a: EXEC', 'a: MULTI',
                         'a: SET k 1', 'a: EXEC', 'a: MULTI', 'a: GET k', 'a: EXEC',
                         'b: CONFIG SET min-replicas-to-write 0'],
    'out of memory': ['a: MULTI', 'a: SET k 1', 'b: CONFIG SET maxmemory 1', 'a: EXEC', 'a: MULTI', 'a: GET k',
                      'a: EXEC', 'a: MULTI', 'b: CONFIG SET maxmemory 0', 'a: GET k', 'b: CONFIG SET maxmemory 1',
                      'a: EXEC', 'a: MULTI', 'a: DISCARD', 'a: MULTI', 'a: RESET', 'b: CONFIG SET maxmemory 0'],
}


@redis_server.needed
@pytest.mark.parametrize('name', SCENARIOS)
def test_as_redis(both, name):
    if name == 'out of memory' and redis_server.version() >= (7, 2):
        pytest.skip('since 7.2 MULTI queues reads when memory is full')
    if name == 'out of memory' and mayfly.ENGINE == 'rocksdb':
        pytest.skip('its data is on disk')
    if mayfly.not_in_a_cluster(SCENARIOS[name]):
        pytest.skip('of other databases, or of replicas')
    ours, theirs = both
    expected = play(theirs.port, alone('FLUSHALL') + SCENARIOS[name])
    assert play(ours.port, alone('FLUSHALL') + SCENARIOS[name]) == expected


# -- what is counted and shown -------------------------------------------------------------------------------------

def monitor_lines(port, commands):
    with mayfly.Raw(port) as watcher, mayfly.Raw(port) as c:
        assert watcher.call('MONITOR') == b'OK'
        for command in commands:
            c.call(*command.split())
        c.call('ECHO', 'end')
        lines = []
        while not lines or 'end' not in lines[-1]:
            lines.append(re.sub(r'^[\d.]+ \[(\d+) .*?\]', r'\1', watcher.line().decode()[1:]))
        return lines


def commandstats(port, names):
    with mayfly.Raw(port) as c:
        text = c.call('INFO', 'commandstats').decode() + c.call('INFO', 'errorstats').decode()
    found = {}
    for name in names:
        m = re.search(rf'cmdstat_{name}:calls=(\d+),.*rejected_calls=(\d+),failed_calls=(\d+)', text)
        found[name] = m and m.groups()
    return found, sorted(re.findall(r'errorstat_(\w+):count=(\d+)', text))


COUNTED = ['MULTI', 'SET k v', 'INCR k', 'GET', 'EXEC', 'MULTI', 'SET k v', 'INCR k', 'SELECT 1', 'GET k', 'EXEC',
           'MULTI', 'GET k', 'DISCARD', 'EXEC', 'EXEC x']


@pytest.mark.lone('a cluster has database 0 only')
@redis_server.needed
def test_counted_and_shown_as_redis(both):
    seen = []
    for s in both:
        with mayfly.Raw(s.port) as c:
            c.call('FLUSHALL')
            c.call('CONFIG', 'RESETSTAT')
            c.call('SLOWLOG', 'RESET')
            lines = monitor_lines(s.port, COUNTED)
            slow = [b' '.join(entry[3]) for entry in c.call('SLOWLOG', 'GET', '-1')]
            seen.append((lines, slow, commandstats(s.port, ('multi', 'exec', 'set', 'incr', 'get', 'discard', 'select'))))
    assert seen[0] == seen[1]


@redis_server.needed
@pytest.mark.parametrize('queue', ['SET k v', 'GET k|SET k v', 'SET k v|GET k', 'SET k v|SET k v', 'INCR s|SET k v'])
def test_what_is_not_permitted_any_more_is_counted_as_redis(both, queue):
    seen = []
    for s in both:
        with mayfly.Raw(s.port) as admin, mayfly.Raw(s.port) as c:
            admin.call('SET', 's', 'x')
            admin.call('ACL', 'SETUSER', 'bob', 'reset', 'on', 'nopass', '~*', '+@all')
            c.call('AUTH', 'bob', 'x')
            admin.call('CONFIG', 'RESETSTAT')
            c.call('MULTI')
            for command in queue.split('|'):
                c.call(*command.split())
            admin.call('ACL', 'SETUSER', 'bob', '-set')
            seen.append((c.call('EXEC'), commandstats(s.port, ('exec', 'set', 'get', 'incr'))))
            admin.call('ACL', 'DELUSER', 'bob')
    assert seen[0] == seen[1]


def test_exec_takes_as_long_as_what_it_runs(both):
    with both[0].client() as r:
        r.config_resetstat()
        with r.pipeline(transaction=True) as p:
            p.execute_command('DEBUG', 'SLEEP', '0.02')
            p.ping()
            p.execute()
        stats = r.info('commandstats')
        assert stats['cmdstat_exec']['usec'] >= 20000 and stats['cmdstat_debug']['usec'] >= 20000
        assert stats['cmdstat_ping']['usec'] < 20000


def test_client_list(both):
    found = []
    for s in both:
        with mayfly.Raw(s.port) as a, mayfly.Raw(s.port) as b:
            a.call('CLIENT', 'SETNAME', 'me')
            lines = []

            def look(b=b, lines=lines):
                line, = (i for i in b.call('CLIENT', 'LIST').decode().splitlines() if ' name=me ' in i)
                fields = dict(f.split('=', 1) for f in line.split(' '))
                lines.append((fields['flags'], fields['multi'], fields['cmd'], fields['multi-mem'] != '0'))
                return fields

            idle = look()
            a.call('WATCH', 'k')
            look()
            a.call('MULTI')
            look()
            a.call('SET', 'k', 'x' * 50000)
            full = look()
            assert int(full['multi-mem']) >= 50000
            assert int(full['tot-mem']) >= int(idle['tot-mem']) + 50000
            b.call('SET', 'k', '1')
            a.call('SET', 'k', 'x' * 50000)
            look()
            a.call('EXEC')
            look()
            found.append(lines)
    assert found[0] == found[1]


def test_time_stands_still(both):
    with both[0].client() as r, r.pipeline() as p:
        p.time()
        p.execute_command('DEBUG', 'SLEEP', '0.01')
        p.time()
        p.set('k', 'v', px=100000)
        p.execute_command('DEBUG', 'SLEEP', '0.01')
        p.pttl('k')
        before, _, after, _, _, left = p.execute()
        assert before == after and left == 100000


# -- holding back ----------------------------------------------------------------------------------------------------

@redis_server.needed
def test_pause_holds_a_transaction_that_writes(both):
    for s in both:
        with mayfly.Raw(s.port) as a, mayfly.Raw(s.port) as reader, mayfly.Raw(s.port) as b:
            a.call('MULTI')
            a.call('SET', 'paused', '1')
            reader.call('MULTI')
            reader.call('GET', 'paused')
            b.call('DEL', 'paused')
            assert b.call('CLIENT', 'PAUSE', '10000', 'WRITE') == b'OK'
            a.command('EXEC')
            assert reader.call('EXEC') == [None]
            assert a.silent(0.05)
            assert b.call('CLIENT', 'UNPAUSE') == b'OK'
            assert a.reply() == [b'OK']


NO_WRITES = '#!lua flags=no-writes\nreturn 1'
LIBRARY = ("#!lua name=lib\nredis.register_function{function_name='reads', callback=function() return 1 end, "
           "flags={'no-writes'}} redis.register_function('writes', function() return 2 end)")
LOCKED = [('RESET',)]                # before a password is set


def answers_in_a_pause(port, mode, before, requests):
    """What each request is told at once, by a client of its own that said something before; None: nothing."""
    with mayfly.Raw(port) as admin:
        admin.call('PFADD', 'p', 'a')
        admin.call('FUNCTION', 'LOAD', 'REPLACE', LIBRARY)
        admin.call('SCRIPT', 'LOAD', NO_WRITES)
        admin.call('ACL', 'SETUSER', 'bob', 'on', '>x', '~p', '+@all', '-lpush')
        clients = [mayfly.Raw(port) for _ in requests]
        for c in clients:
            for command in before:
                c.call(*command)
        if before == LOCKED:
            admin.call('CONFIG', 'SET', 'requirepass', 'secret')
        assert admin.call('CLIENT', 'PAUSE', 100_000 if mode == 'WRITE' else 2000, mode) == b'OK'
        for c, request in zip(clients, requests):
            c.command(*request)
        time.sleep(0.1)
        answers = [(request, None if c.silent(0.01) else c.reply()) for c, request in zip(clients, requests)]
        admin.call('CLIENT', 'UNPAUSE')
        admin.call('CONFIG', 'SET', 'requirepass', '')
        for c in clients:
            c.close()
    return answers


@redis_server.needed
@pytest.mark.parametrize('before', [
    [], LOCKED, [('AUTH', 'bob', 'x')], [('SUBSCRIBE', 'c')], [('MULTI',)], [('MULTI',), ('NOSUCH',)],
    [('MULTI',), ('EVAL', NO_WRITES, 0), ('FCALL', 'reads', 0)], [('MULTI',), ('FCALL', 'writes', 0)],
    [('MULTI',), ('PFCOUNT', 'p')],
], ids=str)
def test_pause_holds_writes_but_not_requests_that_would_be_refused(both, before):
    requests = [
        ('SET', 'k', 1), ('SET',), ('LPUSH', 'p'), ('LPUSH', 'p', 1), ('GET', 'p'), ('XGROUP', 'CREATE'), ('NOSUCH',),
        ('PFCOUNT', 'p'), ('PFCOUNT',), ('PUBLISH', 'c', 'm'), ('EVAL', NO_WRITES, 0), ('EVAL', NO_WRITES, 'x'),
        ('EVAL', '#!lua flags=bad\nreturn 1', 0), ('EVAL', 'return 1', 0), ('EVAL', '#!lua\nreturn 1', 0),
        ('EVALSHA', hashlib.sha1(NO_WRITES.encode()).hexdigest(), 0), ('EVALSHA', 'a' * 40, 0), ('FCALL', 'reads', 0),
        ('FCALL', 'writes', 0), ('FCALL', 'nosuch', 0), ('EVAL_RO', 'return 1', 0), ('WATCH', 'k'), ('EXEC',),
    ]
    ours, theirs = (answers_in_a_pause(s.port, 'WRITE', before, requests) for s in both)
    assert ours == [(request, redis_server.in_new_words(reply, 'bob')) for request, reply in theirs]


@redis_server.needed
@pytest.mark.parametrize('before', [[], LOCKED, [('AUTH', 'bob', 'x')]], ids=str)
def test_a_pause_of_everything_holds_nothing_that_would_be_refused(both, before):
    requests = [('SET',), ('NOSUCH',), ('GET', 'p'), ('LPUSH', 'p', 1), ('PING',), ('EXEC',)]
    ours, theirs = (answers_in_a_pause(s.port, 'ALL', before, requests) for s in both)
    assert ours == [(request, redis_server.in_new_words(reply, 'bob')) for request, reply in theirs]


def test_client_reply_inside(both):
    """The bytes, for they make no sense as a reply."""
    replies = []
    for s in both:
        with mayfly.Raw(s.port) as c:
            c.call('FLUSHALL')
            for command in ('MULTI', 'SET k 1', 'CLIENT REPLY OFF', 'GET k', 'EXEC', 'GET k', 'MULTI',
                            'INCR k', 'CLIENT REPLY ON', 'GET k', 'EXEC', 'MULTI', 'CLIENT REPLY SKIP', 'GET k',
                            'EXEC', 'PING', 'ECHO end', 'QUIT'):
                c.command(*command.split())
            replies.append(c.rest())
    assert replies[0] == replies[1]


def test_queue_counts_as_input(server_factory):
    s = server_factory('--client-query-buffer-limit', '1mb')
    with s.raw() as c, s.client() as r:
        c.call('MULTI')
        sent = 0
        try:
            while sent < 64:
                assert c.call('SET', 'k', 'x' * 100000) == b'QUEUED'
                sent += 1
        except (AssertionError, ConnectionError):
            pass
        assert 8 <= sent <= 12
        assert r.info('clients')['connected_clients'] == 1
        assert not r.exists('k')


def test_disconnecting_ends_a_transaction(both):
    ours = both[0]
    with ours.client() as r:
        with mayfly.Raw(ours.port) as c:
            c.call('WATCH', 'a', 'b', 'c')
            c.call('MULTI')
            c.call('SET', 'a', '1')
        with mayfly.Raw(ours.port) as c:
            c.call('WATCH', 'a')
            c.command('MULTI').command('SET', 'a', '2')
        eventually(lambda: len(r.client_list()) == 1)
        r.set('a', 1)
        with r.pipeline() as p:
            p.watch('a')
            p.multi()
            p.get('a')
            assert p.execute() == [b'1']


def test_pipelined_at_once(both):
    """All in one packet, with other clients' requests in the same turn of the loop."""
    ours = both[0]
    with mayfly.Raw(ours.port) as a, mayfly.Raw(ours.port) as b:
        block = b''.join(mayfly.encode(*c) for c in (
            ('SET', 'n', '0'), ('MULTI',), *[('INCR', 'n')] * 500, ('EXEC',), ('GET', 'n'), ('MULTI',), ('NOSUCH',),
            ('EXEC',), ('PING',)))
        for _ in range(3):
            a.send(block)
            b.command('GET', 'n')
            assert b.reply() in (None, b'0', b'500')
            got = [a.reply() for _ in range(508)]
            assert got[:2] == [b'OK', b'OK'] and got[2:502] == [b'QUEUED'] * 500
            assert got[502] == list(range(1, 501)) and got[503] == b'500'
            assert got[504] == b'OK' and isinstance(got[506], ReplyError) and got[507] == b'PONG'


# -- the journal -------------------------------------------------------------------------------------------------------

@pytest.mark.engine('memory', 'the AOF is its')
def test_one_block_in_the_aof(server_factory):
    s = server_factory('--appendonly', 'yes', '--appendfsync', 'always')
    with s.client() as r:
        with r.pipeline() as p:
            p.set('a', 1, ex=100)
            p.incr('a')
            p.execute_command('GETDEL', 'nosuch')
            p.sadd('s', 'x')
            p.spop('s')
            p.execute()
        with r.pipeline() as p:
            p.get('a')
            p.execute()
        with r.pipeline() as p:
            p.incr('single')
            p.get('a')
            p.execute()
    aof = b''.join(pathlib.Path(f).read_bytes() for f in sorted(glob.glob(f'{s.dir}/appendonlydir/*.incr.aof')))
    words = re.findall(rb'\r\n(MULTI|EXEC|SET|INCR|INCRBY|SADD|SREM|GET|DEL)\r\n', aof.upper())
    assert words == [b'MULTI', b'SET', b'INCRBY', b'SADD', b'SREM', b'EXEC', b'INCRBY'], aof
    s.restart()
    with s.client() as r:
        assert r.get('a') == b'2' and r.ttl('a') > 90 and not r.exists('s') and r.get('single') == b'1'


def test_survives_a_kill_whole(server_factory):
    """Transactions add the same to two keys: after any end both are equal."""
    s = server_factory('--appendonly', 'yes', '--appendfsync', 'everysec') if mayfly.ENGINE == 'memory' \
        else server_factory()
    with s.raw() as c:
        block = b''.join(mayfly.encode(*x) for x in (('MULTI',), ('INCR', 'x'), ('LPUSH', 'l', 'y'), ('EXEC',)))
        for _ in range(200):
            c.send(block * 5)
        for _ in range(4 * 300):
            c.reply()
    s.restart(9)
    with s.client() as r:
        assert int(r.get('x') or 0) == r.llen('l') > 0


# -- snapshots, full disks, replicas -------------------------------------------------------------------------------------

@pytest.mark.engine('memory', 'whose snapshot copies what is about to change')
def test_a_transaction_waits_for_a_huge_key_to_be_saved(server_factory):
    s = server_factory(*SLOWER, *DEBUG)
    with s.raw() as c, s.raw() as waits, s.raw() as reads:
        digest = save_a_huge_key(c)
        for command in (('MULTI',), ('SELECT', '1'), ('SELECT', '0'), ('SET', 'first', '1'), ('RPUSH', 'huge', 'more')):
            assert waits.call(*command) in (b'OK', b'QUEUED')
        waits.command('EXEC')
        reads.call('MULTI')
        reads.call('LLEN', 'huge')
        assert reads.call('EXEC') == [200_000]
        assert waits.silent(0.1) and not c.call('EXISTS', 'first')
        fast(c)
        assert waits.reply() == [b'OK', b'OK', b'OK', 200_001]
        assert c.call('DEBUG', 'RELOAD', 'NOSAVE') == b'OK'
        assert c.call('DEBUG', 'DIGEST') == digest, 'all of the transaction came later'


@pytest.mark.engine('memory', 'the AOF is its')
def test_a_full_disk(small_disk, server_factory):
    """Neither a transaction nor MULTI itself is answered by anything but the truth."""
    where, give_room = small_disk
    s = server_factory('--appendfsync', 'always', '--auto-aof-rewrite-percentage', 0, directory=where)
    big = 'x' * 50_000
    with s.raw() as c, s.raw() as other:
        other.call('WATCH', 'w')
        for n in range(100):
            # In one turn of the loop, mostly: what cannot be written fails with all that stands around it.
            replies = [c.send(mayfly.encode('SET', f'k{n}', big) + mayfly.encode('MULTI') +
                              mayfly.encode('GET', f'k{n}')) and c.reply(), c.reply(), c.reply()]
            if replies != [b'OK', b'OK', b'QUEUED']:
                break
            assert c.call('EXEC') == [big.encode()]
        assert all(r.startswith('MISCONF') for r in replies if isinstance(r, ReplyError))
        if isinstance(replies[1], ReplyError):
            assert c.call('EXEC') == 'ERR EXEC without MULTI', 'MULTI was answered by an error'
        else:
            assert c.call('DISCARD') == b'OK'
        assert c.call('MULTI') == b'OK' and c.call('SET', 'k', '1').startswith('MISCONF')
        assert c.call('EXEC') == 'EXECABORT Transaction discarded because of previous errors.'
        assert other.call('MULTI') == b'OK' and other.call('GET', 'k') == b'QUEUED' and other.call('EXEC') == [None]
        give_room()
        eventually(lambda: c.call('SET', 'k', 'yes') == b'OK')
        c.send(b''.join(mayfly.encode(*x) for x in (('MULTI',), ('SET', 'a', '1'), ('INCR', 'a'), ('EXEC',))))
        assert [c.reply() for _ in range(4)] == [b'OK', b'QUEUED', b'QUEUED', [b'OK', 2]]
    s.restart(9)
    with s.raw() as c:
        assert c.call('GET', 'a') == b'2'


@pytest.mark.lone('nodes of a cluster replicate by Raft')
def test_on_a_replica(server_factory):
    """A replica's clients watch what its primary changes, and what a full sync replaces."""
    up, down = (server_factory('--repl-diskless-sync-delay', '0') for _ in range(2))
    with up.raw() as primary, down.raw() as a, down.raw() as b:
        primary.call('SET', 'k', '1')
        a.call('SET', 'old', '1')
        a.call('WATCH', 'old')
        b.call('WATCH', 'neither')
        assert a.call('REPLICAOF', '127.0.0.1', up.port) == b'OK'
        eventually(lambda: b'master_link_status:up' in a.call('INFO', 'replication'))
        for c, expected in ((a, None), (b, [None])):
            assert c.call('MULTI') == b'OK' and c.call('GET', 'neither') == b'QUEUED'
            assert c.call('EXEC') == expected
        eventually(lambda: a.call('GET', 'k') == b'1')

        # one record on the primary is one transaction here
        a.call('WATCH', 'k')
        for command in (('MULTI',), ('INCR', 'k'), ('RPUSH', 'l', 'x'), ('EXPIRE', 'k', '100'), ('EXEC',)):
            primary.call(*command)
        eventually(lambda: a.call('GET', 'k') == b'2')
        assert a.call('LLEN', 'l') == 1 and 0 < a.call('TTL', 'k') <= 100
        assert a.call('MULTI') == b'OK' and a.call('GET', 'k') == b'QUEUED'
        assert a.call('EXEC') is None, 'the primary has changed it'

        a.call('MULTI')
        a.call('GET', 'k')
        assert a.call('SET', 'k', '9').startswith('READONLY')
        assert a.call('EXEC').startswith('EXECABORT')
        assert primary.call('GET', 'k') == b'2'


@pytest.mark.lone('nodes of a cluster replicate by Raft')
def test_becoming_a_replica_within(server_factory):
    """What a transaction did before it said REPLICAOF is in the stream, what comes behind is not: no replica and
    no primary differ from one another for it."""
    first, second = (server_factory('--repl-diskless-sync-delay', '0') for _ in range(2))
    with first.raw() as a, second.raw() as b:
        assert b.call('REPLICAOF', '127.0.0.1', first.port) == b'OK'
        eventually(lambda: b'master_link_status:up' in b.call('INFO', 'replication'))
        a.call('SET', 'k', '1')
        eventually(lambda: b.call('GET', 'k') == b'1')
        assert b.call('REPLICAOF', 'NO', 'ONE') == b'OK'
        for command in (('MULTI',), ('SET', 'before', '1'), ('REPLICAOF', '127.0.0.1', second.port), ('EXEC',)):
            reply = a.call(*command)
        assert reply == [b'OK', b'OK']
        eventually(lambda: b'master_link_status:up' in a.call('INFO', 'replication'))
        b.call('SET', 'k', '2')
        eventually(lambda: a.call('GET', 'k') == b'2')
        assert a.call('GET', 'before') == b.call('GET', 'before')


@pytest.mark.lone('a cluster loads no files')
@redis_server.needed
def test_debug_reload_is_a_flush(both):
    for s in both:
        with mayfly.Raw(s.port) as a, mayfly.Raw(s.port) as b:
            b.call('SET', 'k', '1')
            b.call('CONFIG', 'SET', 'dir', s.dir)
            a.call('WATCH', 'k')
            assert b.call('DEBUG', 'RELOAD') == b'OK'
            a.call('MULTI')
            a.call('GET', 'k')
            assert a.call('EXEC') is None
            a.call('WATCH', 'nosuch')
            assert b.call('DEBUG', 'RELOAD') == b'OK'
            a.call('MULTI')
            a.call('GET', 'k')
            assert a.call('EXEC') == [b'1']
