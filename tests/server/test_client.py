"""Commands about clients and the server itself: CLIENT, MONITOR, SLOWLOG, LATENCY,
MEMORY, DEBUG, INFO, COMMAND, AUTH."""
import re
import socket
import time

import pytest
import redis

from mayfly import ENGINE, ReplyError, encode, eventually, in_one_of, sanitized

MB = 1 << 20


def clients(c, *filters):
    """CLIENT LIST as a list of dicts."""
    text = c.call('CLIENT', 'LIST', *filters).decode()
    return [dict(f.split('=', 1) for f in line.split(' ')) for line in text.splitlines()]


# -- CLIENT: names and lists -----------------------------------------------------------

LIST_FIELDS = ('id addr laddr fd name age idle flags db sub psub ssub multi watch qbuf qbuf-free argv-mem '
               'multi-mem rbs rbp obl oll omem tot-mem events cmd user redir resp lib-name lib-ver').split()


@pytest.mark.lone('a cluster has database 0 only')
def test_client_list(server, raw):
    a, b = raw(server.port), raw(server.port)
    a.call('CLIENT', 'SETNAME', 'ann')
    a.call('SELECT', 3)
    b.call('HELLO', 3)
    by_id = {c['id']: c for c in clients(b)}
    ann = by_id[str(a.call('CLIENT', 'ID'))]
    bob = by_id[str(b.call('CLIENT', 'ID'))]
    assert list(ann)[:len(LIST_FIELDS)] == LIST_FIELDS
    assert (ann['name'], ann['db'], ann['cmd'], ann['resp'], ann['flags']) == ('ann', '3', 'select', '2', 'N')
    assert (bob['name'], bob['cmd'], bob['resp'], bob['user']) == ('', 'client|list', '3', 'default')
    assert ann['addr'] == '%s:%d' % a.sock.getsockname()
    assert ann['laddr'] == '127.0.0.1:%d' % server.port
    ids = [int(c['id']) for c in clients(a)]
    assert ids == sorted(ids)


def test_the_size_of_a_reply_buffer_follows_the_replies(server, raw):
    a, b = raw(server.port), raw(server.port)
    ident = a.call('CLIENT', 'ID')
    size = lambda: int(clients(b, 'ID', ident)[0]['rbs'])
    assert size() == 1024
    a.call('SET', 'big', 'x' * 32768)
    assert a.call('GET', 'big') == b'x' * 32768
    eventually(lambda: size() == 16384)
    a.call('PING')
    eventually(lambda: size() == 1024)


def test_client_list_filters(server, raw):
    a, b = raw(server.port), raw(server.port)
    ids = [a.call('CLIENT', 'ID'), b.call('CLIENT', 'ID')]
    assert [int(c['id']) for c in clients(a, 'ID', ids[1], 10**9)] == [ids[1]]
    assert [int(c['id']) for c in clients(a, 'ID', ids[1], ids[0], ids[1])] == [ids[1], ids[0], ids[1]]
    assert clients(a, 'TYPE', 'pubsub') == clients(a, 'TYPE', 'replica') == clients(a, 'TYPE', 'master') == []
    assert {str(i) for i in ids} <= {c['id'] for c in clients(a, 'TYPE', 'NORMAL')}
    assert a.call('CLIENT', 'LIST', 'TYPE', 'foo') == "ERR Unknown client type 'foo'"
    assert a.call('CLIENT', 'LIST', 'ID', 'x') == 'ERR Invalid client ID'
    assert a.call('CLIENT', 'LIST', 'ID') == 'ERR syntax error'
    assert a.call('CLIENT', 'INFO').count(b'\n') == 1


def test_client_names(server, raw):
    c = raw(server.port)
    assert c.call('CLIENT', 'GETNAME') is None
    assert c.call('CLIENT', 'SETNAME', 'x') == b'OK'
    assert c.call('CLIENT', 'GETNAME') == b'x'
    assert c.call('CLIENT', 'SETNAME', 'a b') == \
        'ERR Client names cannot contain spaces, newlines or special characters.'
    assert c.call('CLIENT', 'SETNAME', '') == b'OK'
    assert c.call('CLIENT', 'GETNAME') is None
    assert c.call('CLIENT', 'SETINFO', 'LIB-NAME', 'lib') == b'OK'
    assert c.call('CLIENT', 'SETINFO', 'LIB-VER', '1.0') == b'OK'
    assert c.call('CLIENT', 'SETINFO', 'FOO', '1') == "ERR Unrecognized option 'FOO'"
    assert b'lib-name=lib lib-ver=1.0' in c.call('CLIENT', 'INFO')
    assert isinstance(c.call('CLIENT', 'MAINT_NOTIFICATIONS', 'on'), ReplyError)


def test_unix_socket_client(server, raw):
    c = raw(f'{server.dir}/mayfly.sock')
    me = c.call('CLIENT', 'INFO').decode()
    assert 'mayfly.sock:0 ' in me and ' flags=U ' in me


# -- CLIENT KILL -----------------------------------------------------------------------

def test_kill_by_address(server, raw):
    me, other = raw(server.port), raw(server.port)
    other.call('PING')
    assert me.call('CLIENT', 'KILL', '%s:%d' % other.sock.getsockname()) == b'OK'
    assert other.closed()
    assert me.call('CLIENT', 'KILL', '1.2.3.4:5') == 'ERR No such client'


def test_kill_filters(server, raw):
    me, a, b = (raw(server.port) for _ in range(3))
    a_id, me_id = a.call('CLIENT', 'ID'), me.call('CLIENT', 'ID')
    b.call('PING')
    assert me.call('CLIENT', 'KILL', 'ID', a_id, 'ADDR', '1.1.1.1:1') == 0
    assert me.call('CLIENT', 'KILL', 'ID', a_id) == 1
    assert a.closed()
    assert me.call('CLIENT', 'KILL', 'ID', me_id) == 0          # SKIPME yes is the default
    assert me.call('CLIENT', 'KILL', 'ADDR', '%s:%d' % b.sock.getsockname(), 'TYPE', 'normal',
                   'USER', 'default', 'LADDR', f'127.0.0.1:{server.port}') == 1
    assert b.closed()
    assert me.call('CLIENT', 'KILL', 'ID', me_id, 'SKIPME', 'no') == 1
    assert me.closed()


@pytest.mark.parametrize('options, text', [
    ('ID 0', 'client-id should be greater than 0'),
    ('ID x', 'client-id should be greater than 0'),
    ('ID 1 ADDR', 'syntax error'),
    ('FOO bar', 'syntax error'),
    ('SKIPME maybe', 'syntax error'),
    ('TYPE foo', "Unknown client type 'foo'"),
    ('USER nosuch', "No such user 'nosuch'"),
])
def test_kill_errors(server, raw, options, text):
    assert raw(server.port).call('CLIENT', 'KILL', *options.split()) == f'ERR {text}'


def test_kill_in_the_middle_of_a_pipeline(server, raw):
    me, other = raw(server.port), raw(server.port)
    other.send(encode('SET', 'k', 'v') * 100)
    me.call('CLIENT', 'KILL', 'TYPE', 'normal')
    assert other.rest() in (b'', b'+OK\r\n' * 100)
    assert me.call('PING') == b'PONG'


# -- CLIENT PAUSE, REPLY, NO-TOUCH -------------------------------------------------------

def test_pause_all(server, raw):
    a, b = raw(server.port), raw(server.port)
    assert b.call('PING') == b'PONG'
    start = time.monotonic()
    assert a.call('CLIENT', 'PAUSE', 1500) == b'OK'
    b.send(encode('SET', 'k', 'v') + encode('GET', 'k'))
    assert b.silent(0.1)
    assert b.reply() == b'OK' and b.reply() == b'v'
    assert 1.48 < time.monotonic() - start < 20


def test_pause_writes_and_unpause(server, raw):
    a, b, c = (raw(server.port) for _ in range(3))
    a.call('SET', 'k', 'old')
    assert a.call('CLIENT', 'PAUSE', 20_000, 'WRITE') == b'OK'
    b.call('CLIENT', 'SETNAME', 'paused')
    b.send(encode('SET', 'k', 'new') + encode('GET', 'k'))
    assert c.call('GET', 'k') == b'old'
    assert b.silent()
    assert b'blocked_clients:1\r\n' in a.call('INFO', 'clients')
    assert re.search(rb'name=paused .* flags=b ', a.call('CLIENT', 'LIST'))
    assert a.call('CLIENT', 'UNPAUSE') == b'OK'
    assert b.reply() == b'OK' and b.reply() == b'new'
    assert b'blocked_clients:0\r\n' in a.call('INFO', 'clients')


def test_a_client_disconnects_during_a_pause(server, raw):
    a, b = raw(server.port), raw(server.port)
    a.call('CLIENT', 'PAUSE', 20_000)
    b.send(encode('SET', 'k', 'v'))
    time.sleep(0.02)
    b.close()
    a.call('CLIENT', 'UNPAUSE')
    assert a.call('PING') == b'PONG'


def test_requests_of_clients_that_left_during_a_pause_are_not_run(server_factory, raw):
    s = server_factory()
    admin, stays = raw(s.port), raw(s.port)
    assert admin.call('CLIENT', 'PAUSE', 100_000, 'WRITE') == b'OK'
    leaving = [raw(s.port).send(encode('PING') + encode('INCR', 'n')) for _ in range(20)]
    stays.command('INCR', 'n')
    assert all(c.reply() == b'PONG' for c in leaving)
    for c in leaving[:10]:
        c.close()
    for c in leaving[10:]:
        c.sock.shutdown(socket.SHUT_WR)
        assert c.closed()
    eventually(lambda: b'connected_clients:2\r\n' in admin.call('INFO', 'clients'))
    assert admin.call('CLIENT', 'UNPAUSE') == b'OK'
    assert stays.reply() == 1 and admin.call('GET', 'n') == b'1'


@pytest.mark.parametrize('args, text', [
    ('x', 'timeout is not an integer or out of range'), ('-1', 'timeout is negative'),
    ('1 FOO', 'CLIENT PAUSE mode must be WRITE or ALL'),
    ('1 WRITE x', "unknown subcommand or wrong number of arguments for 'PAUSE'. Try CLIENT HELP."),
])
def test_pause_errors(server, raw, args, text):
    assert raw(server.port).call('CLIENT', 'PAUSE', *args.split()) == f'ERR {text}'


def test_reply_modes(server, raw):
    c = raw(server.port)
    c.send(b'CLIENT REPLY OFF\r\nSET a 1\r\nNOSUCH\r\nCLIENT REPLY SKIP\r\nPING\r\nCLIENT REPLY ON\r\n')
    assert c.reply() == b'OK'
    assert c.call('GET', 'a') == b'1'
    c.send(b'CLIENT REPLY SKIP\r\nSET a 2\r\nGET a\r\n')
    assert c.reply() == b'2'
    assert c.silent()
    c.send(encode('CLIENT', 'REPLY', 'SKIP') + encode('INCR', 'a') + encode('INCR', 'a'))
    assert c.reply() == 4
    assert c.call('CLIENT', 'REPLY', 'FOO') == 'ERR syntax error'


@pytest.mark.parametrize('mode', ['OFF', 'SKIP'])
def test_reply_modes_hold_for_protocol_errors(server, raw, mode):
    assert raw(server.port).send(encode('CLIENT', 'REPLY', mode) + b'*x\r\n').rest() == b''


def test_no_touch(server, raw):
    c, other = raw(server.port), raw(server.port)
    c.call('SET', 'k', 'v')
    eventually(lambda: other.call('OBJECT', 'IDLETIME', 'k') >= 1, pause=0.1)
    assert c.call('CLIENT', 'NO-TOUCH', 'ON') == b'OK'
    c.call('GET', 'k')
    assert other.call('OBJECT', 'IDLETIME', 'k') >= 1
    assert c.call('TOUCH', 'k') == 1                       # which is what it is for
    assert other.call('OBJECT', 'IDLETIME', 'k') == 0
    eventually(lambda: other.call('OBJECT', 'IDLETIME', 'k') >= 1, pause=0.1)
    c.call('GET', 'k')
    assert other.call('OBJECT', 'IDLETIME', 'k') >= 1
    assert c.call('CLIENT', 'NO-TOUCH', 'OFF') == b'OK'
    eventually(lambda: c.call('GET', 'k') and other.call('OBJECT', 'IDLETIME', 'k') == 0)
    assert c.call('CLIENT', 'NO-EVICT', 'on') == b'OK'
    assert c.call('CLIENT', 'NO-EVICT', 'maybe') == 'ERR syntax error'


def test_reset(server, raw):
    c = raw(server.port)
    c.call('HELLO', 3, 'SETNAME', 'me')
    c.call('SELECT', 5)
    assert c.call('RESET') == b'RESET'
    assert c.call('CLIENT', 'GETNAME') is None
    assert b' db=0 ' in c.call('CLIENT', 'INFO')
    assert c.command('GET', 'absent').line() == b'$-1'


# -- MONITOR ---------------------------------------------------------------------------

def monitored(m):
    line = m.line().decode()
    found = re.fullmatch(r'\+(\d{10}\.\d{6}) \[(\d+) (\S+)\] (.*)', line)
    assert found, line
    return found.groups()[1:]


@pytest.mark.lone('a cluster has database 0 only')
def test_monitor(server, raw):
    m, c = raw(server.port), raw(server.port)
    address = '%s:%d' % c.sock.getsockname()
    assert m.call('MONITOR') == b'OK'
    c.call('SELECT', 2)
    c.call('SET', 'k', b'\x00\xff"\\\r\n\t x')
    c.call('GET')                       # refused: not shown
    c.call('NOSUCH', 'x')               # nor what is no command
    c.call('CONFIG', 'GET', 'port')     # nor what administrators do
    c.call('CLIENT', 'ID')
    c.call('HELLO', 3, 'AUTH', 'default', 'hush')
    assert monitored(m) == ('2', address, '"SELECT" "2"')
    assert monitored(m) == ('2', address, r'"SET" "k" "\x00\xff\"\\\r\n\t x"')
    assert monitored(m) == ('2', address, '"CLIENT" "ID"')
    assert monitored(m) == ('2', address, '"HELLO" "3" "AUTH" "(redacted)" "(redacted)"')
    raw(f'{server.dir}/mayfly.sock').call('PING')
    assert monitored(m)[1].startswith('unix:') and m.silent(0.05)
    assert m.call('RESET') == b'RESET'
    c.call('PING')
    assert m.silent(0.05)


def test_a_monitor_only_looks_on(server, raw):
    m = raw(server.port)
    address = '%s:%d' % m.sock.getsockname()
    assert m.call('MONITOR') == b'OK'
    for args in (('GET', 'k'), ('SET', 'k', 'v'), ('DBSIZE',), ('PUBLISH', 'c', 'm'), ('EVAL', 'return 1', 0)):
        assert m.call(*args) == "ERR Replica can't interact with the keyspace"
    assert m.call('PING') == b'PONG'    # what is refused is not shown, either
    assert monitored(m) == ('0', address, '"PING"')
    assert m.call('RESET') == b'RESET'
    assert m.call('SET', 'k', 'v', 'GET') is None


def test_several_monitors(server, raw):
    m, c = [raw(server.port) for _ in range(3)], raw(server.port)
    for x in m:
        assert x.call('MONITOR') == b'OK'
    for x in m:
        x.sock.settimeout(5)
    m[0].close()
    eventually(lambda: sum(x['flags'] == 'O' for x in clients(c)) == 2)
    assert m[1].call('RESET') == b'RESET'
    c.call('ECHO', 'last')
    while monitored(m[2])[2] != '"ECHO" "last"':
        pass
    assert m[1].silent(0.05)


def test_monitor_ends_with_its_connection(server, raw):
    m, c = raw(server.port), raw(server.port)
    m.call('MONITOR')
    m.close()
    for _ in range(50):
        assert c.call('PING') == b'PONG'


# -- SLOWLOG ---------------------------------------------------------------------------

@pytest.fixture
def slow(server_factory, raw):
    s = server_factory('--slowlog-log-slower-than', 0, '--slowlog-max-len', 5, '--enable-debug-command', 'yes')
    return raw(s.port)


def test_slowlog(slow):
    slow.call('CLIENT', 'SETNAME', 'bob')
    slow.call('ECHO', 'a' * 168)
    slow.call('DEL', *range(40))
    got = slow.call('SLOWLOG', 'GET')
    ids = [e[0] for e in got]
    assert ids == sorted(ids, reverse=True) and ids[-1] == 0
    delete, echo, _ = got
    assert echo[3] == [b'ECHO', b'a' * 128 + b'... (40 more bytes)']
    assert len(delete[3]) == 32 and delete[3][-1] == b'... (10 more arguments)'
    assert abs(delete[1] - time.time()) < 60 and 0 <= delete[2] < 10_000_000
    assert delete[4] == b'%s:%d' % (slow.sock.getsockname()[0].encode(), slow.sock.getsockname()[1])
    assert delete[5] == b'bob'


def test_slowlog_is_bounded(slow):
    for i in range(20):
        slow.call('ECHO', i)
    assert slow.call('SLOWLOG', 'LEN') == 5
    assert [e[0] for e in slow.call('SLOWLOG', 'GET', 2)] == [20, 19]
    assert len(slow.call('SLOWLOG', 'GET', -1)) == 5
    assert len(slow.call('SLOWLOG', 'GET', 10**12)) == 5
    assert slow.call('SLOWLOG', 'GET', 0) == []
    for bad in (-2, 'x', '9' * 30):
        assert slow.call('SLOWLOG', 'GET', bad) == 'ERR count should be greater than or equal to -1'
    assert slow.call('SLOWLOG', 'RESET') == b'OK'
    assert slow.call('SLOWLOG', 'LEN') == 1                      # RESET itself
    assert slow.call('CONFIG', 'SET', 'slowlog-max-len', 0) == b'OK'
    assert slow.call('SLOWLOG', 'LEN') == 0


def test_slowlog_hides_secrets(slow):
    slow.call('AUTH', 'default', 'hush')
    slow.call('HELLO', 3, 'AUTH', 'default', 'hush', 'SETNAME', 'x')
    slow.call('CONFIG', 'SET', 'requirepass', 'hush', 'masterauth', 'hush')
    slow.call('CONFIG', 'SET', 'requirepass', '')
    assert 'hush' not in str(slow.call('SLOWLOG', 'GET'))
    assert 'redacted' in str(slow.call('SLOWLOG', 'GET'))


def test_slowlog_threshold(server_factory, raw):
    c = raw(server_factory('--slowlog-log-slower-than', 500_000, '--enable-debug-command', 'yes').port)
    c.call('PING')
    c.call('DEBUG', 'SLEEP', '0.6')
    got = c.call('SLOWLOG', 'GET')
    assert [e[3] for e in got] == [[b'DEBUG', b'SLEEP', b'0.6']]
    assert got[0][2] >= 600_000


# -- LATENCY ---------------------------------------------------------------------------

def test_latency(server_factory, raw):
    c = raw(server_factory('--latency-monitor-threshold', 500, '--enable-debug-command', 'yes').port)
    assert c.call('LATENCY', 'LATEST') == []
    assert c.call('LATENCY', 'HISTORY', 'command') == []
    assert c.call('LATENCY', 'GRAPH', 'command') == "ERR No samples available for event 'command'"
    assert c.call('LATENCY', 'DOCTOR')
    c.call('DEBUG', 'SLEEP', '0.6')
    [[event, at, latest, worst]] = c.call('LATENCY', 'LATEST')
    assert event == b'command' and abs(at - time.time()) < 60 and 600 <= latest == worst < 10_000
    assert c.call('LATENCY', 'HISTORY', 'command') == [[at, latest]]
    graph = c.call('LATENCY', 'GRAPH', 'command').decode().splitlines()
    assert graph[0] == f'command - high {latest} ms, low {latest} ms (all time high {worst} ms)'
    assert graph[1] == '-' * 80
    assert graph[2:7] == [' ', ' ', ' ', '_', ' '] and graph[7].isdigit() and graph[8] == 's'
    assert 'command: 1 latency spikes' in c.call('LATENCY', 'DOCTOR').decode()
    assert c.call('LATENCY', 'RESET', 'nosuch', 'command') == 1
    assert c.call('LATENCY', 'RESET') == 0


def test_latency_histogram(server, raw):
    c = raw(server.port)
    c.call('CONFIG', 'RESETSTAT')
    for _ in range(10):
        c.call('ECHO', 'x')
    c.call('CLIENT', 'ID')
    flat = c.call('LATENCY', 'HISTOGRAM', 'echo', 'nosuch')
    assert flat[0] == b'echo' and flat[1][:3] == [b'calls', 10, b'histogram_usec']
    edges, counts = flat[1][3][::2], flat[1][3][1::2]
    assert counts == sorted(counts) and counts[-1] == 10 and edges == sorted(edges)
    assert set(edges) <= {1, 2, 4, 8, 16, 33, 66, 132, 264, 528, 1056, 2113, 4227, 8454, 16908, 33816, 67633,
                          135266, 270532, 541065, 1082130, 2164260}
    assert c.call('LATENCY', 'HISTOGRAM', 'client')[0] == b'client|id'
    assert c.call('LATENCY', 'HISTOGRAM', 'client|id')[0] == b'client|id'
    assert c.call('LATENCY', 'HISTOGRAM', 'get') == []
    c.call('HELLO', 3)
    assert {b'echo', b'client|id', b'config|resetstat'} <= set(c.call('LATENCY', 'HISTOGRAM'))


# -- MEMORY ----------------------------------------------------------------------------

def test_memory_usage(r):
    r.set('small', 'x')
    r.set('big', b'x' * 100_000)
    r.rpush('list', *range(10_000))
    assert 0 < r.memory_usage('small') < 200
    assert 100_000 < r.memory_usage('big') < 140_000
    assert r.memory_usage('list', samples=0) > 10_000
    r.config_resetstat()
    assert r.memory_usage('absent') is None and r.memory_usage('small')
    r.execute_command('DEBUG', 'POPULATE', 2, 'small')
    r.execute_command('DEBUG', 'OBJECT', 'small')
    r.execute_command('DEBUG', 'DIGEST-VALUE', 'small', 'absent')
    assert r.info('stats')['keyspace_hits'] == r.info('stats')['keyspace_misses'] == 0
    for bad in (('SAMPLES',), ('FOO', '1'), ('SAMPLES', '-1')):
        with pytest.raises(redis.ResponseError, match='syntax error'):
            r.execute_command('MEMORY', 'USAGE', 'small', *bad)


@pytest.mark.parametrize('command', [('SETRANGE', 'k', 99_999, 'x'), ('SETBIT', 'k', 799_999, 1),
                                     ('BITFIELD', 'k', 'SET', 'u8', 799_992, 1)], ids=lambda c: c[0])
def test_memory_usage_of_a_new_key(r, command):
    """A key that is made at its full length has no room to grow; one that grows has some."""
    r.execute_command(*command)
    assert r.strlen('k') == 100_000
    assert 100_000 < r.memory_usage('k') < 140_000
    r.append('k', 'x')
    assert 100_000 < r.memory_usage('k') < 280_000


def test_refcount(r):
    """Of small integers, which Redis shares, unless there is a limit and each needs a clock of its own."""
    for policy, limit, shown in (('noeviction', 0, 2147483647), ('allkeys-lru', 0, 2147483647),
                                 ('volatile-lfu', 0, 2147483647), ('volatile-lfu', '1gb', 1),
                                 ('allkeys-lru', '1gb', 1), ('allkeys-random', '1gb', 2147483647)):
        r.config_set('maxmemory', limit)
        r.config_set('maxmemory-policy', policy)
        r.set('k', 5)
        assert (policy, limit, r.object('refcount', 'k')) == (policy, limit, shown)
    r.config_set('maxmemory', 0)
    r.config_set('maxmemory-policy', 'noeviction')


MEMORY_STATS = ('peak.allocated total.allocated startup.allocated replication.backlog clients.slaves '
                'clients.normal cluster.links aof.buffer lua.caches functions.caches overhead.total '
                'keys.count keys.bytes-per-key dataset.bytes dataset.percentage peak.percentage '
                'allocator.allocated allocator.active allocator.resident allocator-fragmentation.ratio '
                'allocator-fragmentation.bytes allocator-rss.ratio allocator-rss.bytes rss-overhead.ratio '
                'rss-overhead.bytes fragmentation fragmentation.bytes').split()


def test_memory_stats(r):
    r.mset({f'k{i}': i for i in range(100)})
    stats = r.memory_stats()
    assert set(MEMORY_STATS) <= set(stats)
    assert stats['keys.count'] == 100
    assert 'db.0' in stats
    for text in ('DOCTOR', 'MALLOC-STATS', 'HELP'):
        assert r.execute_command('MEMORY', text)
    assert r.memory_purge() is True


@pytest.mark.skipif(ENGINE != 'memory' or sanitized(), reason='about jemalloc and values in memory')
def test_much_memory_goes_back_off_the_loop(r):
    """The kernel needs a millisecond for 10 MB: the client who frees them, and everybody behind, does not wait."""
    def allocator():
        stats = r.memory_stats()
        return stats['allocator.allocated'], stats['allocator.resident']

    def attempt():
        r.execute_command('DEBUG', 'POPULATE', 1, 'big', 32 * MB)
        allocated, resident = allocator()
        assert r.delete('big:0') == 1
        freed = eventually(lambda: (now := allocator())[0] < allocated - 30 * MB and now, pause=0)
        eventually(lambda: allocator()[1] < resident - 28 * MB)
        assert freed[1] > resident - 8 * MB

    in_one_of(5, attempt)       # a machine that stops for a third of a second may find some gone already


# -- DEBUG -----------------------------------------------------------------------------

def test_debug_is_off_by_default(server_factory, raw):
    text = 'ERR DEBUG command not allowed. If the enable-debug-command option is set to "local"'
    assert raw(server_factory().port).call('DEBUG', 'SLEEP', 0).startswith(text)
    assert raw(server_factory('--enable-debug-command', 'local').port).call('DEBUG', 'SLEEP', 0) == b'OK'


@pytest.mark.parametrize('kind, resp2, resp3', [
    ('string', b'$11\r\nHello World\r\n', None),
    ('integer', b':12345\r\n', None),
    ('double', b'$5\r\n3.141\r\n', b',3.141\r\n'),
    ('null', b'$-1\r\n', b'_\r\n'),
    ('array', b'*3\r\n:0\r\n:1\r\n:2\r\n', None),
    ('set', b'*3\r\n:0\r\n:1\r\n:2\r\n', b'~3\r\n:0\r\n:1\r\n:2\r\n'),
    ('map', b'*6\r\n:0\r\n:0\r\n:1\r\n:1\r\n:2\r\n:0\r\n', b'%3\r\n:0\r\n#f\r\n:1\r\n#t\r\n:2\r\n#f\r\n'),
    ('attrib', b'$39\r\nSome real reply following the attribute\r\n',
     b'|1\r\n$14\r\nkey-popularity\r\n*2\r\n$7\r\nkey:123\r\n:90\r\n'
     b'$39\r\nSome real reply following the attribute\r\n'),
    ('push', b'-ERR RESP2 is not supported by this command\r\n',
     b'>2\r\n$16\r\nserver-cpu-usage\r\n:42\r\n$40\r\nSome real reply following the push reply\r\n'),
    ('verbatim', b'$25\r\nThis is a verbatim\nstring\r\n', b'=29\r\ntxt:This is a verbatim\nstring\r\n'),
    ('true', b':1\r\n', b'#t\r\n'),
    ('false', b':0\r\n', b'#f\r\n'),
    ('bignum', b'$37\r\n1234567999999999999999999999999999999\r\n',
     b'(1234567999999999999999999999999999999\r\n'),
])
def test_debug_protocol(server, raw, kind, resp2, resp3):
    c = raw(server.port).command('DEBUG', 'PROTOCOL', kind)
    assert c.exactly(len(resp2)) == resp2
    c.call('HELLO', 3)
    c.command('DEBUG', 'PROTOCOL', kind)
    resp3 = resp3 or resp2
    assert c.exactly(len(resp3)) == resp3
    assert c.call('PING') == b'PONG'


def fill(c):
    c.call('SET', 'str', 'abcdef', 'EX', 1000)
    c.call('HSET', 'h', 'f', 'v', 'g', 'w')
    c.call('RPUSH', 'l', 'a', 'b', 'c')
    c.call('SADD', 's', 'a', 'b', '1')
    c.call('ZADD', 'z', '1.5', 'm', '2', 'n', '-inf', 'x')
    c.call('SELECT', 3)
    c.call('SADD', 'ints', 3, 1, 2)
    c.call('SELECT', 0)


@pytest.mark.lone('a cluster has database 0 only')
def test_debug_digest(server, raw):
    """The digests are Redis's own: these constants come from a Redis 7.0.15."""
    c = raw(server.port)
    assert c.call('DEBUG', 'DIGEST') == b'0' * 40
    fill(c)
    digest = c.call('DEBUG', 'DIGEST')
    values = c.call('DEBUG', 'DIGEST-VALUE', 'str', 'h', 'absent', 'l', 's', 'z')
    assert digest == b'49bdef9bdb8b2eb4648c0daed43ae61775a4467e'
    assert values == [
        b'605fee7ac084b64a9ade610e302ea4aac7122b3d',
        b'd127864ed50239662bf61bafc9bda63c17da5b37',
        b'0000000000000000000000000000000000000000',
        b'8bf72d812571eea9b927f3c11beb0c4165a6ff89',
        b'e8f32bbb1ad9bf537c8867de4f19fec9e001296d',
        b'3270c538f4b15b5260a8d33aaf78581a470e472a',
    ]
    c.call('PERSIST', 'str')
    assert c.call('DEBUG', 'DIGEST') != digest
    c.call('EXPIRE', 'str', 5)
    assert c.call('DEBUG', 'DIGEST') == digest      # that there is a deadline counts, not which
    c.call('FLUSHALL')
    fill(c)
    assert c.call('DEBUG', 'DIGEST') == digest


def test_debug_digest_of_the_dead(server, raw):
    c = raw(server.port)
    c.call('DEBUG', 'SET-ACTIVE-EXPIRE', 0)
    try:
        c.call('SET', 'k', 'v', 'PX', 10)
        time.sleep(0.03)
        assert c.call('DEBUG', 'DIGEST') == b'0' * 40
        assert c.call('DEBUG', 'OBJECT', 'k').startswith(b'Value at:'), 'as in Redis: what is stored'
        assert c.call('EXISTS', 'k') == 0
    finally:
        c.call('DEBUG', 'SET-ACTIVE-EXPIRE', 1)


def test_debug_populate(server, raw):
    c = raw(server.port)
    c.call('SET', 'key:1', 'mine')
    assert c.call('DEBUG', 'POPULATE', 3) == b'OK'
    assert c.call('MGET', 'key:0', 'key:1', 'key:2', 'key:3') == [b'value:0', b'mine', b'value:2', None]
    assert c.call('DEBUG', 'POPULATE', 2, 'p', 10) == b'OK'
    assert c.call('GET', 'p:1') == b'value:1\0\0\0'
    assert c.call('DEBUG', 'POPULATE', 2, 'q', 3) == b'OK'
    assert c.call('GET', 'q:1') == b'val'
    assert c.call('DBSIZE') == 7
    assert c.call('DEBUG', 'POPULATE', -1) == 'ERR value is out of range, must be positive'


@pytest.mark.parametrize('args, answer', [
    ('SLEEP', "ERR unknown subcommand or wrong number of arguments for 'SLEEP'. Try DEBUG HELP."),
    ('FOO', "ERR unknown subcommand or wrong number of arguments for 'FOO'. Try DEBUG HELP."),
    ('SLEEP x', b'OK'),
    ('ERROR MYCODE', 'MYCODE'),
    ('QUICKLIST-PACKED-THRESHOLD 100b', b'OK'),
    ('QUICKLIST-PACKED-THRESHOLD 5gb',
     'ERR argument must be a memory value bigger than 1 and smaller than 4gb'),
    ('CHANGE-REPL-ID', b'OK'),
    ('LOG hello-there', b'OK'),
    ('OBJECT absent', 'ERR no such key'),
    ('PROTOCOL foo', 'ERR Wrong protocol type name. Please use one of the following: string|integer|double|'
                     'bignum|null|array|set|map|attrib|push|verbatim|true|false'),
])
def test_debug_answers(server, raw, args, answer):
    assert raw(server.port).call('DEBUG', *args.split()) == answer
    if args.startswith('LOG'):
        assert 'DEBUG LOG: hello-there' in server.log


def test_debug_object(server, raw):
    c = raw(server.port)
    c.call('SET', 'k', 12)
    assert re.fullmatch(rb'Value at:0x[0-9a-f]+ refcount:\d+ encoding:int serializedlength:\d+ '
                        rb'lru:\d+ lru_seconds_idle:\d+', c.call('DEBUG', 'OBJECT', 'k'))


# -- INFO ------------------------------------------------------------------------------

SECTIONS = ('Server Clients Memory Persistence Stats Replication CPU Commandstats Errorstats Latencystats '
            'Cluster Keyspace').split()
FIELDS = ('redis_version redis_mode os arch_bits run_id tcp_port process_id uptime_in_seconds role '
          'master_replid maxmemory maxmemory_policy used_memory used_memory_rss used_memory_peak '
          'mem_fragmentation_ratio connected_clients blocked_clients total_connections_received '
          'total_commands_processed instantaneous_ops_per_sec keyspace_hits keyspace_misses expired_keys '
          'expired_stale_perc expired_time_cap_reached_count expire_cycle_cpu_milliseconds evicted_keys '
          'lazyfree_pending_objects loading mayfly_version').split()


@pytest.mark.lone('it is about a lone server')
def test_info(server, r):
    r.set('a', 1)
    r.set('b', 2, ex=1000)
    r.get('a')
    r.get('nosuch')
    with pytest.raises(redis.ResponseError):
        r.lpush('a', 1)
    info = r.info('everything')
    assert not [f for f in FIELDS if f not in info]
    assert info['redis_version'].startswith('7.4.')
    assert info['tcp_port'] == server.port and info['process_id'] == server.proc.pid
    assert (info['role'], info['redis_mode'], info['loading']) == ('master', 'standalone', 0)
    assert list(info['db0']) == ['keys', 'expires', 'avg_ttl', 'subexpiry']
    assert info['db0']['keys'] == 2 and info['db0']['expires'] == 1
    assert 990_000 < info['db0']['avg_ttl'] <= 1_000_000
    assert list(info['cmdstat_set']) == ['calls', 'usec', 'usec_per_call', 'rejected_calls', 'failed_calls']
    assert info['cmdstat_lpush']['failed_calls'] >= 1
    assert 'count' in info['errorstat_WRONGTYPE']          # text, or a dict: depends on redis-py
    assert re.fullmatch(r'p50=[\d.]+,p99=[\d.]+,p99.9=[\d.]+', str(info['latency_percentiles_usec_set'])) or \
        set(info['latency_percentiles_usec_set']) == {'p50', 'p99', 'p99.9'}


def test_info_sections(server, raw):
    c = raw(server.port)
    text = c.call('INFO', 'everything').decode()
    titles = re.findall(r'^# (\w+)\r$', text, re.M)
    assert [t for t in titles if t in SECTIONS] == SECTIONS
    assert text.count('\r\n') == text.count('\n')
    assert re.findall(r'^# (\w+)', c.call('INFO', 'stats', 'SERVER').decode(), re.M) == ['Server', 'Stats']
    assert c.call('INFO', 'nosuch') == b''
    assert b'# Commandstats' not in c.call('INFO')
    assert b'# Commandstats' in c.call('INFO', 'all')


def test_info_counts_rejections(server, raw):
    c = raw(server.port)
    c.call('CONFIG', 'RESETSTAT')
    c.call('GET')
    c.call('NOSUCH')
    text = c.call('INFO', 'commandstats').decode() + c.call('INFO', 'errorstats').decode()
    assert 'cmdstat_get:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0' in text
    assert 'errorstat_ERR:count=2' in text


# -- COMMAND ---------------------------------------------------------------------------

def test_command_family(server, raw):
    c = raw(server.port)
    names = c.call('COMMAND', 'LIST')
    assert c.call('COMMAND', 'COUNT') == len(c.call('COMMAND')) == len([n for n in names if b'|' not in n])
    get, absent = c.call('COMMAND', 'INFO', 'get', 'nosuch')
    assert get[:6] == [b'get', 2, [b'readonly', b'fast'], 1, 1, 1] and absent is None
    assert c.call('COMMAND', 'GETKEYS', 'mset', 'a', 1, 'b', 2) == [b'a', b'b']
    assert c.call('COMMAND', 'GETKEYS', 'echo', 'x') == 'ERR The command has no key arguments'
    docs = c.call('COMMAND', 'DOCS', 'get')
    assert docs[0] == b'get' and b'summary' in docs[1]
    assert c.call('MODULE', 'LIST') == []
    assert c.call('LOLWUT').decode().rstrip().splitlines()[-1].startswith('Mayfly ver. ')
    assert c.call('LOLWUT', 'VERSION', 'x') == 'ERR value is not an integer or out of range'


@pytest.mark.parametrize('name', ['client', 'config', 'command', 'slowlog', 'latency', 'memory', 'debug',
                                  'module', 'object', 'expiry'])
def test_help(server, raw, name):
    lines = raw(server.port).call(name, 'HELP')
    assert lines[0] == b'%s <subcommand> [<arg> [value] [opt] ...]. Subcommands are:' % name.upper().encode()
    assert lines[-2:] == [b'HELP', b'    Prints this help.']


# -- AUTH ------------------------------------------------------------------------------

WRONGPASS = 'WRONGPASS invalid username-password pair or user is disabled.'


@pytest.fixture
def locked(server_factory):
    return server_factory('--requirepass', 'secret')


def test_auth(locked, raw):
    c = raw(locked.port)
    for command in (('GET', 'k'), ('PING',), ('CLIENT', 'ID'), ('INFO',), ('SHUTDOWN', 'NOSAVE')):
        assert c.call(*command) == 'NOAUTH Authentication required.'
    assert c.call('AUTH', 'wrong') == WRONGPASS
    assert c.call('AUTH', 'nobody', 'secret') == WRONGPASS
    assert c.call('AUTH', 'a', 'b', 'c') == 'ERR syntax error'
    assert c.call('AUTH', 'secret') == b'OK'
    assert c.call('PING') == b'PONG'
    assert raw(locked.port).call('AUTH', 'default', 'secret') == b'OK'
    assert c.call('AUTH', 'wrong') == WRONGPASS
    assert c.call('PING') == b'PONG'                # a failure doesn't log out
    assert c.call('RESET') == b'RESET'
    assert c.call('PING') == 'NOAUTH Authentication required.'
    assert c.call('QUIT') == b'OK' and c.closed()


def test_auth_by_hello(locked, raw):
    c = raw(locked.port)
    assert c.call('HELLO', 3) == 'NOAUTH HELLO must be called with the client already authenticated, otherwise the ' \
        'HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version ' \
        'at the same time'
    assert c.call('HELLO', 3, 'AUTH', 'default', 'wrong') == WRONGPASS
    assert c.call('HELLO', 3, 'AUTH', 'default', 'secret', 'SETNAME', 'me')[b'proto'] == 3
    assert c.call('CLIENT', 'GETNAME') == b'me'


def test_auth_without_password(server, raw):
    c = raw(server.port)
    assert c.call('AUTH', 'x') == ('ERR AUTH <password> called without any password configured for the default '
                                   'user. Are you sure your configuration is correct?')
    assert c.call('AUTH', 'default', 'anything') == b'OK'
    assert c.call('AUTH', 'nobody', 'x') == WRONGPASS


def test_auth_slows_down(locked, raw):
    """Guessing is slow after some failures, also from new connections; the others don't notice."""
    inside = raw(locked.port)
    assert inside.call('AUTH', 'secret') == b'OK'
    c = raw(locked.port)
    start = time.monotonic()
    for i in range(20):                             # nine at once, then about five a second
        guesses = c if i % 2 else raw(locked.port)
        guesses.command('AUTH', f'guess{i}')
        assert inside.call('PING') == b'PONG'
        assert guesses.reply() == WRONGPASS
    assert time.monotonic() - start > 0.8
    right = raw(locked.port)
    assert right.call('AUTH', 'secret') == b'OK'    # waits, but gets in
    assert right.call('PING') == b'PONG'


def test_password_by_config_set(server_factory, raw):
    s = server_factory()
    c = raw(s.port)
    assert c.call('CONFIG', 'SET', 'requirepass', 'new') == b'OK'
    assert c.call('PING') == b'PONG'                # who is in stays in
    assert raw(s.port).call('PING') == 'NOAUTH Authentication required.'
    with s.client(password='new') as r:
        assert r.ping()


def test_password_taken_away(server_factory, raw):
    """Who had not authenticated is no stranger any more: AUTH could not help him."""
    s = server_factory('--requirepass', 'old')
    admin, stranger = raw(s.port), raw(s.port)
    assert admin.call('AUTH', 'old') == b'OK'
    assert stranger.call('PING') == 'NOAUTH Authentication required.'
    assert admin.call('CONFIG', 'SET', 'requirepass', '') == b'OK'
    assert stranger.call('PING') == b'PONG'
