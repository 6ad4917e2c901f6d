"""A replica and its primary, seen from the primary: one of our own making, which says what we want it to, and
when; and a real redis-server."""
import glob
import os
import select
import socket
import time

import pytest

import everything
import mayfly
import rdb_bytes
import redis_server
from fake_primary import ID, Link, primary         # noqa: F401 # pylint: disable=unused-import
from mayfly import encode, eventually

ID2, ID3 = 'b2' * 20, 'c3' * 20
MARK = b'f3a9c0e417b25d8806e1fc94a7d230b58c6e9174'


def file_of(**strings):
    parts = [rdb_bytes.key(0, name, rdb_bytes.string(value)) for name, value in strings.items()]
    return rdb_bytes.file(10, rdb_bytes.select(0), *parts)


@pytest.fixture
def replica(server_factory, primary):
    """replica('--directive', value …): one of the primary above, and a client of it."""
    clients = []

    def start(*args):
        s = server_factory('--replicaof', f'127.0.0.1 {primary.port}', '--appendonly', 'no',
                           '--repl-retry-delay', 0, *args)
        clients.append(s.client())
        return s, clients[-1]

    yield start
    for c in clients:
        c.close()


def is_up(r):
    return r.info('replication')['master_link_status'] == 'up'


def nothing_left(server):
    """Files that are of no use any more go, off the loop."""
    return eventually(lambda: not glob.glob(os.path.join(server.dir, 'temp-*')))


# -- the handshake ------------------------------------------------------------------------------------------

@pytest.mark.any_engine
def test_handshake(primary, replica):
    server, r = replica()
    link = primary.accept()
    assert link.handshake(server.port) == ('?', '-1')
    info = r.info('replication')
    assert info['role'] == 'slave' and info['master_link_status'] == 'down'
    assert r.execute_command('ROLE')[3] == b'handshake'
    with server.raw() as c:
        hello = c.call('HELLO', 3)
    assert hello[b'role'] == b'replica'


@pytest.mark.any_engine
def test_introduction(primary, replica):
    replica('--masteruser', 'joe', '--masterauth', 'secret', '--replica-announce-ip', '10.1.2.3',
            '--replica-announce-port', '7777')
    link = primary.accept()
    link.expect('PING').send(b'-NOAUTH Authentication required.\r\n')
    link.expect('AUTH', 'joe', 'secret')
    link.expect('REPLCONF', 'listening-port', '7777').expect('REPLCONF', 'ip-address', '10.1.2.3')
    link.expect('REPLCONF', 'capa', 'eof', 'capa', 'psync2')
    link.send(b'+OK\r\n-ERR what\r\n-ERR what\r\n-ERR what\r\n').expect('PSYNC', '?', '-1')


@pytest.mark.any_engine
def test_password_alone(primary, replica):
    server, _ = replica('--masterauth', 'secret')
    link = primary.accept()
    link.expect('PING').send(b'+PONG\r\n').expect('AUTH', 'secret').send(b'-WRONGPASS no\r\n')
    assert link.left()
    assert 'Unable to AUTH to MASTER: -WRONGPASS no' in server.log
    primary.accept().expect('PING')                     # it tries again


@pytest.mark.any_engine
@pytest.mark.parametrize('user', ['', 'joe'])
def test_a_password_of_any_bytes(primary, replica, user):
    _, r = replica('--masteruser', user)
    link = primary.accept()
    r.config_set('masterauth', b'my\0pass\r\n')              # no argument of a process can hold it
    link.close()
    link = primary.accept()
    link.expect('PING').send(b'+PONG\r\n').expect('AUTH', *([user] if user else []), 'my\0pass\r\n')


@pytest.mark.any_engine
@pytest.mark.parametrize('says, logged', [
    (b'-LOADING busy', 'Master is currently unable to PSYNC but should be in the future: -LOADING busy'),
    (b'-NOMASTERLINK none', 'Master is currently unable to PSYNC but should be in the future: -NOMASTERLINK none'),
    (b'-NOAUTH no', 'Unexpected reply to PSYNC from master: -NOAUTH no'),
    (b'-NOPERM no', 'Unexpected reply to PSYNC from master: -NOPERM no'),
    (b'+WHAT', 'Unexpected reply to PSYNC from master: +WHAT'),
    (b'+FULLRESYNC', 'Master replied with wrong +FULLRESYNC syntax.'),
    (b'+FULLRESYNC short 1', 'Master replied with wrong +FULLRESYNC syntax.'),
    (b'+FULLRESYNC ' + ID.encode() + b' x', 'Master replied with wrong +FULLRESYNC syntax.'),
    pytest.param(b'x' * 5000, 'a line without end', id='endless'),
])
def test_not_now(primary, replica, says, logged):
    server, _ = replica()
    link = primary.accept()
    link.handshake()
    link.send(b'\n\n', says, b'\r\n')
    assert link.left()
    assert logged in server.log
    primary.accept().full(file_of(a='1')).reached(0)


@pytest.mark.any_engine
def test_error_to_ping(primary, replica):
    server, _ = replica()
    link = primary.accept()
    link.expect('PING').send(b'-ERR no way\r\n')
    assert link.left()
    assert "Error reply to PING from master: '-ERR no way'" in server.log


@pytest.mark.any_engine
def test_primary_without_psync(primary, replica):
    _, r = replica()
    link = primary.accept()
    link.handshake()
    link.send(b"-ERR unknown command 'PSYNC'\r\n")
    assert link.command() == [b'SYNC']
    data = file_of(a='1')
    link.send(b'$%d\r\n' % len(data), data, encode('SET', 'b', '2'))
    eventually(lambda: is_up(r))
    eventually(lambda: r.mget('a', 'b') == [b'1', b'2'])
    assert not select.select([link.sock], [], [], 1.2)[0]   # it does not know REPLCONF ACK


@pytest.mark.any_engine
def test_silent_primary(primary, replica):
    server, _ = replica('--repl-timeout', '2')
    assert primary.accept().left()
    assert 'Timeout connecting to the MASTER...' in server.log
    link = primary.accept()
    link.handshake()
    link.send(b'+FULLRESYNC %s 0\r\n$1000\r\nREDIS' % ID.encode())
    assert link.left()
    assert 'Timeout receiving bulk data from MASTER' in server.log
    link = primary.accept().full(file_of(a='1'))
    assert link.left()
    assert 'MASTER timeout: no data nor PING received...' in server.log


@pytest.mark.any_engine
def test_no_primary_at_the_address(server_factory, primary):
    primary.listener.close()
    server = server_factory()
    with server.client() as r:
        assert r.execute_command('REPLICAOF', 'localhost', primary.port)
        eventually(lambda: 'Connection refused' in server.log)
        r.execute_command('REPLICAOF', 'no-such-host.invalid', primary.port)
        eventually(lambda: 'Unable to connect to MASTER' in server.log, 60)
        assert r.ping()
        r.execute_command('REPLICAOF', 'NO', 'ONE')
        assert r.set('a', 1)


@pytest.mark.any_engine
def test_name_with_several_addresses(server_factory, primary):
    """`localhost` may be ::1 first, where nothing listens."""
    server = server_factory('--replicaof', f'localhost {primary.port}', '--appendonly', 'no')
    primary.accept().full(file_of(a='1'))
    with server.client() as r:
        eventually(lambda: is_up(r))
        assert r.get('a') == b'1'


# -- full sync ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize('marked', [False, True])
@pytest.mark.parametrize('in_pieces', [False, True])
def test_full_sync(primary, replica, marked, in_pieces):
    server, r = replica()
    link = primary.accept()
    link.handshake()
    data, stream = file_of(a='1', b='2'), encode('SET', 'c', '3')
    sent = b'+FULLRESYNC %s 100\r\n\n\n' % ID.encode()
    sent += b'$EOF:%s\r\n' % MARK + data + MARK if marked else b'$%d\r\n' % len(data) + data
    (link.dribble if in_pieces else link.send)(sent + stream)
    link.reached(100 + len(stream))
    assert r.mget('a', 'b', 'c') == [b'1', b'2', b'3']
    assert r.info('replication')['master_replid'] == ID
    assert is_up(r) and r.execute_command('ROLE')[3:] == [b'connected', 100 + len(stream)]
    assert nothing_left(server)


@pytest.mark.parametrize('keep', ['disabled', 'swapdb'])
def test_broken_file(primary, replica, keep):
    server, r = replica('--repl-diskless-load', keep)
    primary.accept().full(file_of(a='1'), 100).reached(100).close()
    broken = bytearray(file_of(a='2', b='2'))
    broken[-1] ^= 1
    link = primary.accept()
    assert link.handshake() == (ID, '101')
    link.send(b'+FULLRESYNC %s 500\r\n$%d\r\n' % (ID2.encode(), len(broken)), broken)
    assert link.left()
    assert 'Failed trying to load the MASTER synchronization DB' in server.log
    link = primary.accept()
    if keep == 'swapdb':
        assert r.get('a') == b'1' and link.handshake() == (ID, '101')
    else:                                               # it must not go on from where it was without the data
        assert link.handshake() in ((ID, '101'), ('?', '-1')) and r.get('a') in (b'1', None)
    data = file_of(c='3')
    link.send(b'+FULLRESYNC %s 500\r\n$%d\r\n' % (ID2.encode(), len(data)), data).reached(500)
    assert r.keys() == [b'c']
    assert nothing_left(server)


@pytest.mark.engine('memory', 'whose data goes first')
def test_old_data_is_gone(primary, replica):
    _, r = replica()
    primary.accept().full(file_of(a='1'), 100).reached(100).close()
    link = primary.accept()
    link.handshake()
    link.send(b'+FULLRESYNC %s 500\r\n$20\r\n' % ID2.encode(), b'x' * 20)
    assert link.left()
    assert r.dbsize() == 0
    assert primary.accept().handshake() == ('?', '-1')


@pytest.mark.any_engine
@pytest.mark.parametrize('says, logged', [
    (b'-ERR no memory\r\n', 'MASTER aborted replication with an error: ERR no memory'),
    (b'$-1\r\n', 'Bad protocol from MASTER'),
    (b'$12345678901234567890\r\n', 'Bad protocol from MASTER'),
    (b'$EOF:tooshort\r\n', 'Bad protocol from MASTER'),
    (b'HTTP/1.1 400 Bad Request\r\n', 'Bad protocol from MASTER'),
    pytest.param(b'$' * 3000, 'Bad protocol from MASTER', id='endless'),
    (b'$0\r\n', 'Failed trying to load the MASTER synchronization DB'),
    (b'$100\r\n' + b'x' * 100, 'Failed trying to load the MASTER synchronization DB'),
    (b'$EOF:' + MARK + b'\r\n' + MARK, 'Failed trying to load the MASTER synchronization DB'),
])
def test_no_data(primary, replica, says, logged):
    server, r = replica()
    link = primary.accept()
    link.handshake()
    link.send(b'+FULLRESYNC %s 0\r\n' % ID.encode(), says)
    assert link.left()
    assert logged in server.log
    primary.accept().full(file_of(a='1')).reached(0)
    assert r.get('a') == b'1'
    assert nothing_left(server)


@pytest.mark.parametrize('header', [b'$1000000', b'$EOF:' + MARK])
def test_half_a_transfer(primary, replica, header):
    """The old data is there until all of the new has come."""
    server, r = replica()
    primary.accept().full(file_of(a='1'), 100).reached(100).close()
    link = primary.accept()
    link.handshake()
    link.send(b'+FULLRESYNC %s 500\r\n' % ID2.encode(), header, b'\r\n', b'REDIS0010' + b'x' * 50_000)
    eventually(lambda: r.info('replication').get('master_sync_read_bytes', 0) > 0)
    info = r.info('replication')
    assert info['master_sync_in_progress'] and info['master_sync_read_bytes'] <= 50_009 and r.get('a') == b'1'
    assert r.execute_command('ROLE')[3:] == [b'sync', -1]
    link.close()
    link = primary.accept()
    assert link.handshake() == (ID, '101') and r.get('a') == b'1'
    assert nothing_left(server)


@pytest.mark.any_engine
def test_signs_of_life(primary, replica):
    """While it is busy with loading, the primary hears of it."""
    server, r = replica('--key-load-delay', '100000')
    link = primary.accept().full(file_of(**{f'k{i}': '1' for i in range(200)}))
    assert link.file.read(1) == b'\n'
    assert not is_up(r)
    r.config_set('key-load-delay', 0)
    link.acknowledged(0)
    assert is_up(r)
    assert r.dbsize() == 200 and nothing_left(server)


def test_primary_that_dies_meanwhile(primary, replica):
    """All of its data is here: that it is gone must not cost us what we have."""
    server, r = replica('--key-load-delay', '100000')
    link = primary.accept().full(file_of(**{f'k{i}': '1' for i in range(35)}), 100)
    assert link.file.read(1) == b'\n'
    link.close()                                        # the next sign of life is answered by a reset
    assert primary.accept().handshake() == (ID, '101')
    assert r.dbsize() == 35 and server.log.count('Loading DB in memory') == 1


@pytest.mark.parametrize('when', ['receiving', 'loading'])
@pytest.mark.parametrize('how', ['promoted', 'another', 'stopped'])
def test_given_up(primary, replica, when, how):
    server, r = replica('--key-load-delay', '200000', '--repl-diskless-load', 'swapdb')
    link = primary.accept()
    data = file_of(**{f'k{i}': '1' for i in range(1000)})
    link.handshake()
    link.send(b'+FULLRESYNC %s 500\r\n$%d\r\n' % (ID.encode(), len(data)), data[:-1 if when == 'receiving' else None])
    eventually(lambda: r.info('replication')['master_sync_in_progress'])
    if when == 'loading':
        eventually(lambda: 'Loading DB in memory' in server.log)
    if how == 'stopped':
        assert server.stop() == 0, server.log
    elif how == 'promoted':
        assert r.execute_command('REPLICAOF', 'NO', 'ONE')
        assert r.set('a', 1) and r.dbsize() == 1
    else:
        with socket.create_server(('127.0.0.1', 0)) as other:
            r.execute_command('REPLICAOF', '127.0.0.1', other.getsockname()[1])
            second = Link(other.accept()[0])
            second.full(file_of(z='1'), 7)
            eventually(lambda: r.keys() == [b'z'])
            second.reached(7).close()
    assert link.left()
    assert nothing_left(server)


def test_database_in_the_file(primary, replica):
    """A primary that is a replica itself says which database the stream is in: no SELECT will come."""
    server, _ = replica()
    data = rdb_bytes.file(10, rdb_bytes.aux('repl-stream-db', '3'), rdb_bytes.select(0),
                          rdb_bytes.key(0, 'a', rdb_bytes.string('1')))
    stream = encode('SET', 'b', '2')
    primary.accept().full(data, 100).send(stream).reached(100 + len(stream))
    with server.client(db=3) as three:
        assert three.get('b') == b'2'


def test_file_becomes_the_dump(primary, replica):
    server, r = replica()
    data = file_of(a='1')
    primary.accept().full(data).reached(0)
    dump = os.path.join(server.dir, 'dump.rdb')
    if mayfly.ENGINE == 'rocksdb':
        assert not os.path.exists(dump)
    else:
        with open(dump, 'rb') as f:
            assert f.read() == data
    assert r.get('a') == b'1'


@pytest.mark.any_engine
def test_no_place_for_the_file(primary, replica):
    server, r = replica()
    link = primary.accept()
    link.handshake()
    away = server.dir + '.away'
    os.rename(server.dir, away)
    try:
        link.send(b'+FULLRESYNC %s 500\r\n' % ID.encode())
        assert link.left()
    finally:
        os.rename(away, server.dir)
    assert 'Opening the temp file needed for MASTER <-> REPLICA synchronization' in server.log
    primary.accept().full(file_of(a='1')).acknowledged(0)
    assert r.get('a') == b'1'


# -- the stream ---------------------------------------------------------------------------------------------

@pytest.fixture
def follower(primary, replica):
    """A replica at position 100 of ID, its client, and the primary's end of the link."""
    server, r = replica()
    link = primary.accept().full(file_of(a='1'), 100).reached(100)
    return server, r, link


@pytest.mark.any_engine
def test_getack(follower):
    """As Redis 7.0 answers: what came before the question counts, the question does not."""
    _, _, link = follower
    before, ask = encode('SELECT', '0') + encode('SET', 'b', '2'), encode('REPLCONF', 'GETACK', '*')
    link.send(before + ask)
    says = link.command()
    while says[2] == '100':                             # the one that is sent every second
        says = link.command()
    assert says == ['REPLCONF', 'ACK', str(100 + len(before))]
    link.acknowledged(100 + len(before) + len(ask))


def test_cut_anywhere(primary, follower):
    """Every command once, wherever the link breaks; of a block nothing, or all."""
    _, r, link = follower
    block = [encode('MULTI'), encode('INCR', 'n'), encode('SELECT', '1'), encode('INCR', 'm'), encode('EXEC')]
    parts = [encode('SELECT', '0'), encode('INCR', 'x'), b''.join(block), b'\r\n', encode('SELECT', '0'),
             encode('PING'), encode('INCR', 'x')]
    stream, ends = b''.join(parts), [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    at = 0
    for cut in range(1, len(stream), 7):
        link.send(stream[at:cut])
        reached = max(e for e in ends if e <= cut)
        link.reached(100 + reached).close()
        link = primary.accept()
        assert link.handshake() == (ID, str(101 + reached))
        link.send(b'+CONTINUE\r\n')
        at = reached
        assert r.get('n') in ((b'1', ) if reached >= ends[3] else (None, ))
    link.send(stream[at:]).reached(100 + len(stream))
    assert r.mget('x', 'n') == [b'2', b'1']
    with mayfly.Raw(r.connection_pool.connection_kwargs['port']) as c:
        c.call('SELECT', 1)
        assert c.call('GET', 'm') == b'1'


def test_database_is_remembered(primary, follower):
    server, _, link = follower
    stream = encode('SELECT', '5') + encode('SET', 'k', '1')
    link.send(stream).reached(100 + len(stream)).close()
    link = primary.accept()
    assert link.handshake() == (ID, str(101 + len(stream)))
    more = encode('SET', 'l', '2')
    link.send(b'+CONTINUE %s\r\n' % ID.encode(), more).reached(100 + len(stream + more))
    with server.client(db=5) as five:
        assert five.mget('k', 'l') == [b'1', b'2']


@pytest.mark.any_engine
def test_client_kill(primary, follower):
    _, r, link = follower
    assert r.execute_command('CLIENT', 'KILL', 'TYPE', 'master') == 1
    link.left()
    link = primary.accept()
    assert link.handshake() == (ID, '101')
    assert r.execute_command('CLIENT', 'KILL', 'TYPE', 'master') == 0


@pytest.mark.any_engine
def test_the_primary_is_a_client(primary, follower):
    """CLIENT LIST and CLIENT KILL know the link, as Redis's do."""
    _, r, link = follower
    command = encode('SET', 'k', 'v')
    link.send(command).reached(100 + len(command))

    def clients(*which):
        lines = r.execute_command('CLIENT', 'LIST', *which).decode().splitlines()
        return [dict(word.split('=', 1) for word in line.split(' ')) for line in lines]

    eventually(lambda: len(clients()) == 2)                 # clients that polled its state are gone
    line, own = clients()
    assert (line['flags'], own['flags'], list(line)) == ('M', 'N', list(own))
    assert (line['addr'], line['user'], line['cmd']) == (f'127.0.0.1:{primary.port}', '(superuser)', 'set')
    assert line['laddr'] == f'127.0.0.1:{link.sock.getpeername()[1]}'
    assert r.info('clients')['connected_clients'] == 2
    for which in ['TYPE', 'master'], ['ID', line['id']]:
        assert [c['id'] for c in clients(*which)] == [line['id']]
    assert [c['flags'] for c in clients('TYPE', 'normal')] == ['N']
    assert r.execute_command('CLIENT', 'KILL', 'TYPE', 'normal') == 0
    for which in 'ID', 'ADDR', 'LADDR':
        line = clients('TYPE', 'master')[0]
        assert r.execute_command('CLIENT', 'KILL', which, line[which.lower()]) == 1
        link.left()
        assert not clients('TYPE', 'master')
        link = primary.accept()
        link.handshake()
        link.send(b'+CONTINUE\r\n').reached(100 + len(command))


@pytest.mark.any_engine
def test_monitor_and_slow_log(primary, follower):
    """They know what the primary sends, too."""
    server, r, link = follower
    r.config_set('slowlog-log-slower-than', 0)
    commands = ['SELECT 3', 'MULTI', 'SET k v', 'EXEC', 'PING', 'REPLCONF GETACK *', 'NONSENSE', 'DEL k']
    stream = b''.join(encode(*c.split()) for c in commands)
    with server.raw() as c:
        assert c.call('MONITOR') == b'OK'
        link.send(stream)
        shown = '"SELECT" "3"', '"MULTI"', '"SET" "k" "v"', '"EXEC"', '"PING"', '"DEL" "k"'
        for db, words in zip((0, 3, 3, 3, 3, 3), shown):
            assert c.reply().decode().split(' ', 1)[1] == f'[{db} 127.0.0.1:{primary.port}] {words}'
    link.reached(100 + len(stream))
    with server.raw() as c:
        slow = [one[3] for one in c.call('SLOWLOG', 'GET', 100) if one[4] == f'127.0.0.1:{primary.port}'.encode()]
    assert slow == [[b'DEL', b'k'], [b'SET', b'k', b'v']]


@pytest.mark.any_engine
def test_name_changes(primary, follower):
    server, r, link = follower
    link.close()
    link = primary.accept()
    assert link.handshake() == (ID, '101')
    link.send(b'+CONTINUE %s\r\n' % ID2.encode()).reached(100)
    info = r.info('replication')
    assert (info['master_replid'], info['master_replid2'], info['second_repl_offset']) == (ID2, ID, 101)
    assert f'Master replication ID changed to {ID2}' in server.log


@pytest.mark.any_engine
@pytest.mark.parametrize('what, why', [
    (b'SET a b\r\n', 'Master using the inline protocol. Desync?'),
    (b'*2\r\nxx\r\n', "expected '$', got 'x'"),
    (b'*1\r\n$99999999999\r\n', 'invalid bulk length'),
    (b'*x\r\n', 'invalid multibulk length'),
    pytest.param(b'*' * 70_000, 'too big mbulk count string', id='endless'),
])
def test_nonsense(primary, follower, what, why):
    server, r, link = follower
    link.send(encode('SELECT', '0') + encode('SET', 'b', '2'), what)
    assert link.left()
    assert f'Protocol error ({why}) from client' in server.log
    link = primary.accept()
    assert link.handshake() == ('?', '-1')
    data = file_of(c='3')
    link.send(b'+FULLRESYNC %s 300\r\n$%d\r\n' % (ID3.encode(), len(data)), data).reached(300)
    assert r.keys() == [b'c']


def test_commands_that_fail_are_forwarded(follower):
    """It is passed on, counted and logged once; the rest continues."""
    server, r, link = follower
    stream = b''.join([encode('SELECT', '0'), encode('NOSUCH', 'a', 'b'), encode('nosuch'), encode('GET', 'a'),
                       encode('LPUSH', 'a', 'x'), encode('SELECT', '99'), encode('SET', 'a', 'elsewhere'),
                       encode('SELECT', '0'), encode('PUBLISH', 'c', 'm'), encode('SET', 'b', '2')])
    link.send(stream).reached(100 + len(stream))
    assert r.mget('a', 'b') == [b'1', b'2']
    assert server.log.lower().count("can't run nosuch") == 1
    assert 'WRONGTYPE' in server.log and "can't run SET" in server.log and 'PUBLISH' not in server.log
    assert r.info('stats')['unexpected_error_replies'] == 5


def test_big_argument(follower):
    _, r, link = follower
    value = os.urandom(20_000_000)
    stream = encode('SELECT', '0') + encode('SET', 'big', value) + encode('APPEND', 'big', 'x')
    link.send(stream).reached(100 + len(stream))
    assert r.get('big') == value + b'x'


@pytest.mark.any_engine
def test_acknowledges_every_second(follower):
    _, _, link = follower
    def wait():
        start = time.monotonic()
        link.expect('REPLCONF', 'ACK', '100')
        return time.monotonic() - start

    def attempt():
        eventually(lambda: wait() > 0.3)                # those that have waited for us are read
        assert 0.5 < wait() + wait() < 5
    mayfly.in_one_of(3, attempt)


@pytest.mark.any_engine
def test_clients_go_on(primary, follower):
    """A primary that takes no acknowledgements, and sends half a command, delays no client."""
    _, r, link = follower
    link.send(b'*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$1000000\r\nxxx')
    assert r.get('a') == b'1'
    with pytest.raises(Exception, match="You can't write against a read only replica"):
        r.set('a', 2)
    assert r.execute_command('REPLICAOF', 'NO', 'ONE')
    assert r.set('a', 2)
    assert link.left()
    assert primary.port


# -- restarts, roles ----------------------------------------------------------------------------------------

def test_restart(primary, replica):
    """It resumes where it left off: the engine, or the file saved at the end, has the position."""
    server, _ = replica('--save', '3600 1')
    link = primary.accept().full(file_of(a='1'), 100).reached(100)
    stream = encode('SELECT', '3') + encode('SET', 'b', '2')
    link.send(stream).reached(100 + len(stream))
    server.restart()
    link = primary.accept()
    assert link.handshake() == (ID, str(101 + len(stream)))
    more = encode('SET', 'c', '3')
    link.send(b'+CONTINUE\r\n', more).reached(100 + len(stream + more))
    with server.client(db=3) as three:
        assert three.mget('b', 'c') == [b'2', b'3']


def test_writes_after_it_in_the_same_tick(server_factory, primary):
    """What is written when the server is a replica already must not be in the data, being in no stream."""
    server = server_factory()
    with server.raw() as c:
        c.send(encode('SET', 'a', '1') + encode('REPLICAOF', '127.0.0.1', str(primary.port)) + encode('SET', 'b', '2'))
        assert c.reply() == b'OK' and c.reply() == b'OK'
        assert c.reply() == "READONLY You can't write against a read only replica."
        c.send(encode('REPLICAOF', 'NO', 'ONE') + encode('SET', 'b', '2'))
        assert c.reply() == b'OK' and c.reply() == b'OK'


def test_promotion(primary, follower):
    """What it has had remains known under the old name."""
    server, r, link = follower
    assert r.execute_command('REPLICAOF', 'NO', 'ONE')
    assert link.left()
    info = r.info('replication')
    assert info['role'] == 'master' and info['master_replid'] != ID
    assert (info['master_replid2'], info['second_repl_offset']) == (ID, 101)
    assert r.set('b', 2)
    assert r.execute_command('REPLICAOF', '127.0.0.1', primary.port)
    name, position = primary.accept().handshake()       # of its own history now
    assert name == info['master_replid'] and int(position) > 101
    assert 'MASTER MODE enabled' in server.log


@pytest.mark.any_engine
def test_replies(server_factory, primary):
    server = server_factory()
    with server.raw() as c:
        assert c.call('REPLICAOF', '127.0.0.1', 'x') == 'ERR Invalid master port'
        assert c.call('REPLICAOF', '127.0.0.1', '65536') == 'ERR Invalid master port'
        assert c.call('REPLICAOF', 'NO', 'ONE') == b'OK'
        assert c.call('SLAVEOF', '127.0.0.1', primary.port) == b'OK'
        assert c.call('REPLICAOF', '127.0.0.1', primary.port) == b'OK Already connected to specified master'
        assert c.call('CONFIG', 'GET', 'replicaof') == [b'replicaof', b'127.0.0.1 %d' % primary.port]
        assert c.call('slaveof', 'no', 'one') == b'OK'
        assert c.call('CONFIG', 'GET', 'replicaof') == [b'replicaof', b'']


# -- a real one ---------------------------------------------------------------------------------------------

@pytest.fixture
def real():
    r = redis_server.Redis('--repl-diskless-sync-delay', '0')
    yield r
    r.remove()


@redis_server.needed
@pytest.mark.parametrize('diskless', ['yes', 'no'])
def test_everything_from_redis(real, server_factory, diskless):
    server = server_factory('--appendonly', 'no')
    with real.client() as p, server.client() as r, real.raw() as c:
        p.config_set('repl-diskless-sync', diskless)
        everything.fill(c)
        r.execute_command('REPLICAOF', '127.0.0.1', real.port)
        eventually(lambda: is_up(r))
        everything.run(c, [('SELECT', 0), ('DEL', 'int:1'), ('RENAME', 'int:12', 'int:13'), ('SPOP', 'set:512', 3)])
        p.execute_command('CLIENT', 'KILL', 'TYPE', 'replica')
        everything.run(c, [('EXPIRE', 'hash:512', 1000), ('SET', 'x', 1, 'EX', 1000), ('SWAPDB', 2, 3)])
        assert eventually(lambda: p.wait(1, 1000))
        everything.same(everything.look(real), everything.look(server))
        assert p.info('stats')['sync_full'] == 1 and p.info('stats')['sync_partial_ok'] == 1
        p.flushall()
        assert p.wait(1, 5000) and r.dbsize() == 0


def test_a_writable_replica_reclaims_its_own_keys(primary, replica):
    """Those the primary has given a deadline are left to it."""
    _, r = replica('--replica-read-only', 'no')
    link = primary.accept().full(file_of(a='1'))
    theirs = encode('SET', 'theirs', '1', 'PX', '20')
    link.send(theirs).reached(len(theirs))
    for i in range(100):
        r.set(f'mine:{i}', 1, px=20 + i)
    r.set('long', 1, ex=1000)
    assert 1 <= r.info('stats')['slave_expires_tracked_keys'] <= 101
    eventually(lambda: r.info('stats')['expired_keys'] == 100)
    assert r.info('stats')['slave_expires_tracked_keys'] == 1
    assert r.dbsize() == 3 and not r.exists('theirs')


@pytest.mark.any_engine
def test_replicas_in_a_loop(server_factory):
    """They wait for each other for ever, and the log says so: of oneself, of two, of three."""
    servers = [server_factory('--appendonly', 'no', '--repl-retry-delay', 0) for _ in range(6)]
    circles = [(servers[:1], 'This server is told to be a replica of itself (127.0.0.1:%d)'),
               (servers[1:3], 'The primary 127.0.0.1:%d is a replica of this server, in a loop'),
               (servers[3:], 'The primary 127.0.0.1:%d waits for its own primary, and 127.0.0.1:')]
    for circle, _ in circles:
        for s, of in zip(circle, circle[1:] + circle[:1]):
            with s.client() as c:
                c.execute_command('REPLICAOF', '127.0.0.1', of.port)
    for circle, text in circles:
        for s, of in zip(circle, circle[1:] + circle[:1]):
            eventually(lambda s=s, of=of: text % of.port in s.log, 60)
            assert s.log.count(' is told to be ') + s.log.count(' in a loop') == 1
