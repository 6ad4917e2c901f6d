"""The wire: hostile input as Redis answers it, requests cut anywhere, limits."""
import os
import random
import re
import resource
import socket
import time

import pytest

from mayfly import ReplyError, encode, eventually, in_one_of, not_in_a_cluster

PE = b'-ERR Protocol error: '
MB = 1024 * 1024

# What is sent, and everything that comes back before the server closes.
CLOSING = {
    'multibulk-not-a-number': (b'*abc\r\n', PE + b'invalid multibulk length\r\n'),
    'multibulk-over-int': (b'*2147483648\r\n', PE + b'invalid multibulk length\r\n'),
    'multibulk-over-long': (b'*99999999999999999999\r\n', PE + b'invalid multibulk length\r\n'),
    'multibulk-empty': (b'*\r\n', PE + b'invalid multibulk length\r\n'),
    'bulk-negative': (b'*1\r\n$-1\r\n', PE + b'invalid bulk length\r\n'),
    'bulk-over-limit': (b'*1\r\n$536870913\r\n', PE + b'invalid bulk length\r\n'),
    'bulk-not-a-number': (b'*1\r\n$x\r\n', PE + b'invalid bulk length\r\n'),
    'bulk-empty': (b'*1\r\n$\r\n', PE + b'invalid bulk length\r\n'),
    'no-dollar': (b'*1\r\nPING\r\n', PE + b"expected '$', got 'P'\r\n"),
    'no-dollar-second': (b'*2\r\n$4\r\nECHO\r\n:1\r\n', PE + b"expected '$', got ':'\r\n"),
    'big-inline': (b'A' * (64 * 1024 + 100), PE + b'too big inline request\r\n'),
    'big-multibulk-count': (b'*' + b'1' * (64 * 1024 + 100), PE + b'too big mbulk count string\r\n'),
    'big-bulk-count': (b'*1\r\n$' + b'1' * (64 * 1024 + 100), PE + b'too big bulk count string\r\n'),
    'quotes': (b'SET "a b\r\n', PE + b'unbalanced quotes in request\r\n'),
    'quotes-single': (b"SET 'a b\r\n", PE + b'unbalanced quotes in request\r\n'),
    'quotes-glued': (b'SET "a"b c\r\n', PE + b'unbalanced quotes in request\r\n'),
    'post': (b'POST / HTTP/1.1\r\nHost: x\r\n\r\n', b''),
    'host': (b'Host: example.com\r\n', b''),
    'post-multibulk': (encode('post', '/'), b''),
    'after-commands': (b'PING\r\nPING\r\n*x\r\nPING\r\n',
                       b'+PONG\r\n+PONG\r\n' + PE + b'invalid multibulk length\r\n'),
    'quit': (b'QUIT\r\nPING\r\n', b'+OK\r\n'),
}


@pytest.mark.parametrize('name', CLOSING)
def test_closes(server, raw, name):
    sent, answer = CLOSING[name]
    assert raw(server.port).try_send(sent).rest() == answer


# Not those that send more after the offence: what arrives after the close resets the
# connection, and the answer may be lost with it.
@pytest.mark.parametrize('name', [n for n in CLOSING if len(CLOSING[n][0]) < 1000
                                  and n not in ('post', 'quit', 'after-commands')])
def test_closes_byte_by_byte(server, raw, name):
    sent, answer = CLOSING[name]
    c = raw(server.port)
    try:
        for i in range(len(sent)):
            c.send(sent[i:i + 1])
    except (BrokenPipeError, ConnectionResetError):
        return
    assert c.rest() == answer


@pytest.mark.parametrize('nothing', [b'*0\r\n', b'*-1\r\n', b'*-10\r\n', b'\r\n', b'\n', b'   \r\n'])
def test_ignored(server, raw, nothing):
    c = raw(server.port).send(nothing * 3 + b'PING\r\n')
    assert c.line() == b'+PONG'
    assert c.silent()


def test_security_attack_is_logged(server, raw):
    assert raw(server.port).send(b'POST / HTTP/1.0\r\n').closed()
    assert 'Possible SECURITY ATTACK detected' in server.log


def test_security_attacks_do_not_fill_the_log(server_factory, raw):
    s = server_factory()
    for _ in range(5):
        assert raw(s.port).send(b'POST / HTTP/1.0\r\n').closed()
    assert s.log.count('Possible SECURITY ATTACK detected') == 1


# -- commands that must refuse ---------------------------------------------------------

NOT_INT = 'ERR value is not an integer or out of range'


def bad_expire(command):
    return f"ERR invalid expire time in '{command}' command"


@pytest.mark.parametrize('command, answer', [
    ('SET k v EX 0', bad_expire('set')),
    ('SET k v EX -1', bad_expire('set')),
    ('SET k v PX 0', bad_expire('set')),
    ('SET k v EX 9223372036854775', bad_expire('set')),
    ('SET k v EX 9223372036854775807', bad_expire('set')),
    ('SET k v EX 1.5', NOT_INT),
    ('SET k v EX 10 KEEPTTL', 'ERR syntax error'),
    ('SET k v EX', 'ERR syntax error'),
    ('SETEX k 0 v', bad_expire('setex')),
    ('PSETEX k -5 v', bad_expire('psetex')),
    ('GETEX s EX 0', bad_expire('getex')),
    ('EXPIRE s 9223372036854775', bad_expire('expire')),
    ('PEXPIRE s 9223372036854775807', bad_expire('pexpire')),
    ('EXPIRE s 1.5', NOT_INT),
    ('RESTORE new 0 garbage', 'ERR DUMP payload version or checksum are wrong'),
    ('SETRANGE s 536870912 x', 'ERR string exceeds maximum allowed size (proto-max-bulk-len)'),
    ('SETRANGE s -1 x', 'ERR offset is out of range'),
    ('SETBIT s 4294967296 1', 'ERR bit offset is not an integer or out of range'),
    ('INCR max', 'ERR increment or decrement would overflow'),
    ('INCRBY max 9223372036854775808', NOT_INT),
    ('DECRBY s -9223372036854775808', 'ERR decrement would overflow'),
    ('ZADD z nan m', 'ERR value is not a valid float'),
    ('HELLO 9', 'NOPROTO unsupported protocol version'),
    ('HELLO x', 'ERR Protocol version is not an integer or out of range'),
    ('SELECT 16', 'ERR DB index is out of range'),
    ('SELECT x', NOT_INT),
    ('NOSUCH a b', "ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' "),
    ('GET', "ERR wrong number of arguments for 'get' command"),
    ('GET a b', "ERR wrong number of arguments for 'get' command"),
    ('CLIENT NOSUCH', "ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP."),
    ('OBJECT ENCODING', "ERR wrong number of arguments for 'object|encoding' command"),
])
def test_refusals(server, raw, command, answer):
    c = raw(server.port)
    c.call('SET', 'max', 2**63 - 1)
    c.call('SET', 's', 'text')
    words = command.split()
    if not_in_a_cluster(command):
        pytest.skip('it has one database')
    if words[0] == 'RESTORE' and c.call('COMMAND', 'INFO', 'restore') == [None]:
        pytest.skip('no RESTORE yet')
    reply = c.call(*words)
    assert isinstance(reply, ReplyError)
    assert reply == answer
    assert c.call('PING') == b'PONG'


def test_expireat_zero_deletes(server, raw):
    c = raw(server.port)
    c.call('SET', 'k', 'v')
    assert c.call('EXPIREAT', 'k', 0) == 1
    assert c.call('EXISTS', 'k') == 0


def test_config_set_dir_is_protected(server_factory, raw):
    c = raw(server_factory().port)
    reply = c.call('CONFIG', 'SET', 'dir', '/tmp')
    assert isinstance(reply, ReplyError) and "can't set protected config" in reply


# -- requests cut into pieces ----------------------------------------------------------

def test_every_cut_of_a_pipeline(server, raw):
    pipeline = (encode('SET', 'k', 'a\r\nb') + b'GET k\r\n' + encode('ECHO', b'\x00\xff') +
                b'\r\n*0\r\n' + encode('DEL', 'k'))
    answer = b'+OK\r\n$4\r\na\r\nb\r\n$2\r\n\x00\xff\r\n:1\r\n'
    for cut in range(1, len(pipeline)):
        with raw(server.port) as c:
            c.send(pipeline[:cut])
            c.send(pipeline[cut:])
            assert c.exactly(len(answer)) == answer, cut


def test_byte_by_byte(server, raw):
    c = raw(server.port)
    for byte in encode('SET', 'key', 'value') + b'  get   "k\\x65y"  \r\n' + encode('STRLEN', 'key'):
        c.send(bytes([byte]))
    assert [c.reply() for _ in range(3)] == [b'OK', b'value', 5]


@pytest.mark.parametrize('first, second, replies', [
    (b'PING\r\n\r\nGE', b'T k\r\n', [b'PONG', b'v']),
    (b'PING\r\n*0\r\n*2\r\n$3\r\nGET', b'\r\n$1\r\nk\r\n', [b'PONG', b'v']),
    (b'PING\r\n\r\nPING\r\n\r\n\r\nP', b'ING\r\n', [b'PONG'] * 3),
    (b'PING\r\n\r\n', b'PING\r\n\r\nGET k\r\n', [b'PONG', b'PONG', b'v']),
])
def test_inline_blank_and_a_beginning(server, raw, first, second, replies):
    """An inline request, nothing, and a part of the next request in one read."""
    c = raw(server.port)
    c.call('SET', 'k', 'v')
    c.send(first)
    time.sleep(0.02)
    c.send(second)
    assert [c.reply() for _ in replies] == replies
    assert c.silent(0.02)


def test_unfinished_request_then_close(server, raw):
    for part in (b'*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nval', b'*', b'GET k', b'*2\r\n$3\r\nGE'):
        raw(server.port).send(part).close()
    assert raw(server.port).call('EXISTS', 'k') == 0


def freeze(other):
    """What arrives meanwhile, the server finds all at once."""
    other.command('DEBUG', 'SLEEP', 0.1)
    time.sleep(0.02)


def well_known(raw, port):
    """A connection the server has heard several times, and listens to as to most."""
    c = raw(port)
    for _ in range(4):
        assert c.call('PING') == b'PONG'
    return c


@pytest.mark.parametrize('extra', [-1, 0, 1])
@pytest.mark.parametrize('buffers', [0, 1, 3])
@pytest.mark.parametrize('ends', [True, False])
def test_all_arrived_input_is_read(server, raw, buffers, extra, ends):
    c = well_known(raw, server.port)
    n, long = divmod(max(buffers * 16384 + extra, 6), 6)
    freeze(raw(server.port))
    c.send(b'PING\r\n' * (n - 1) + b'PING' + b' ' * long + b'\r\n')
    if ends:
        c.sock.shutdown(socket.SHUT_WR)
        assert c.rest() == b'+PONG\r\n' * n
    else:
        assert [c.line() for _ in range(n)] == [b'+PONG'] * n
        assert c.call('ECHO', 'more') == b'more'


@pytest.mark.parametrize('last_words', [b'', b'PING\r\n', b'PI'])
def test_disconnected_clients_are_freed(server, raw, last_words):
    other = raw(server.port)
    clients = [well_known(raw, server.port) for _ in range(20)]
    freeze(other)
    for c in clients:
        c.send(last_words).close()
    assert other.reply() == b'OK'
    assert eventually(lambda: other.call('CLIENT', 'LIST').count(b'\n') == 1)


@pytest.mark.parametrize('leave', ['shutdown', 'close'])
def test_held_requests_run_after_their_client_has_left(server_factory, raw, leave):
    """Requests that are held back for a moment run, also if their client sends nothing more."""
    s = server_factory('--requirepass', 'secret')
    other = raw(s.port)
    assert other.call('AUTH', 'secret') == b'OK'
    guesser, c = raw(s.port), raw(s.port)
    guesser.send(encode('AUTH', 'wrong') * 9)
    assert all(guesser.reply().startswith('WRONGPASS') for _ in range(9))   # AUTH has to wait for a second now
    c.send(encode('AUTH', 'secret') + encode('SET', 'k', 'v') + encode('GET', 'k'))
    if leave == 'shutdown':
        c.sock.shutdown(socket.SHUT_WR)
        assert c.rest() == b'+OK\r\n+OK\r\n$1\r\nv\r\n'
    else:
        c.close()
        eventually(lambda: other.call('GET', 'k') == b'v')


@pytest.mark.parametrize('wrong, error', [
    (b'*1\r\n+bad\r\n', b"expected '$', got '+'"),
    (b'*99999999999\r\n', b'invalid multibulk length'),
    (b'GET "x\r\n', b'unbalanced quotes in request'),
])
def test_a_protocol_error_after_a_blocking_command(server, raw, wrong, error):
    c = raw(server.port).send(encode('BLPOP', 'nothing', '0.05') + wrong + b'PING\r\n')
    assert c.rest() == b'*-1\r\n' + PE + error + b'\r\n'


def test_deep_pipelines(server, raw):
    n = 10_000
    c = raw(server.port)
    c.send(b''.join(encode('SET', f'k{i}', i) for i in range(n)))
    assert all(c.line() == b'+OK' for _ in range(n))
    c.send(b''.join(b'GET k%d\r\n' % i for i in range(n)))
    assert all(c.reply() == b'%d' % i for i in range(n))
    assert c.call('DBSIZE') == n


@pytest.mark.lone('a cluster has database 0 only')
def test_pipeline_keeps_order_between_databases(server, raw):
    c = raw(server.port)
    for i in range(500):
        c.send(encode('SELECT', i % 16) + encode('SET', 'k', i) + encode('GET', 'k'))
    for i in range(500):
        assert [c.reply() for _ in range(3)] == [b'OK', b'OK', b'%d' % i]


# -- inline commands -------------------------------------------------------------------

@pytest.mark.parametrize('line, value', [
    (b'ECHO hello', b'hello'),
    (b'   echo \t hello   ', b'hello'),
    (b'ECHO "two words"', b'two words'),
    (b"ECHO 'it\\'s'", b"it's"),
    (b'ECHO "\\x41\\n\\t\\"\\\\q"', b'A\n\t"\\q'),
    (b'ECHO ""', b''),
    (b"ECHO a'b'", b'ab'),
    (b'ECHO a"b c"', b'ab c'),
])
def test_inline(server, raw, line, value):
    for end in (b'\r\n', b'\n'):
        assert raw(server.port).send(line + end).reply() == value


# -- big things ------------------------------------------------------------------------

def test_big_bulk(server, raw):
    c = raw(server.port)
    value = b'0123456789abcdef' * (4 * MB)
    assert c.call('SET', 'big', value) == b'OK'
    assert c.call('STRLEN', 'big') == 64 * MB
    assert c.call('GET', 'big') == value
    assert c.call('GETRANGE', 'big', 64 * MB - 3, -1) == b'def'
    assert c.call('DEL', 'big') == 1


def test_many_arguments(server, raw):
    c = raw(server.port)
    n = 200_000
    assert c.call('RPUSH', 'l', *range(n)) == n
    assert c.call('LINDEX', 'l', -1) == b'%d' % (n - 1)


def test_promised_but_never_sent(server, raw):
    """A client may promise 512 MB or two billion arguments; nothing is set aside for it."""
    def rss():
        with open(f'/proc/{server.proc.pid}/statm') as f:
            return int(f.read().split()[1]) * 4096

    before = rss()
    held = [raw(server.port).send(b'*2147483647\r\n$3\r\nSET\r\n') for _ in range(20)]
    held += [raw(server.port).send(b'*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nabc') for _ in range(4)]
    assert raw(server.port).call('PING') == b'PONG'
    time.sleep(0.1)
    assert rss() - before < 64 * MB
    for c in held:
        c.close()


# -- RESP3 -----------------------------------------------------------------------------

def test_hello(server, raw):
    c = raw(server.port)
    flat = c.call('HELLO')
    assert dict(zip(flat[::2], flat[1::2]))[b'proto'] == 2
    hello = c.call('HELLO', 3, 'SETNAME', 'me')
    assert list(hello) == [b'server', b'version', b'proto', b'id', b'mode', b'role', b'modules']
    assert (hello[b'server'], hello[b'proto'], hello[b'mode'], hello[b'role'], hello[b'modules']) == \
        (b'redis', 3, b'standalone', b'master', [])
    assert c.call('CLIENT', 'GETNAME') == b'me'
    assert c.call('HELLO', 2)[4:6] == [b'proto', 2]
    assert c.call('HELLO', 3, 'FOO') == "ERR Syntax error in HELLO option 'FOO'"
    assert c.call('HELLO', 2, 'AUTH', 'x') == "ERR Syntax error in HELLO option 'AUTH'"


def test_resp3_types(server, raw):
    c = raw(server.port)
    c.call('HELLO', 3)
    c.call('HSET', 'h', 'f', 'v')
    c.call('SADD', 's', 'm')
    c.call('ZADD', 'z', 1.5, 'm')
    for command, wire in [
        (('GET', 'absent'), b'_\r\n'),
        (('HGETALL', 'h'), b'%1\r\n$1\r\nf\r\n$1\r\nv\r\n'),
        (('SMEMBERS', 's'), b'~1\r\n$1\r\nm\r\n'),
        (('ZSCORE', 'z', 'm'), b',1.5\r\n'),
        (('ZRANGE', 'z', 0, -1, 'WITHSCORES'), b'*1\r\n*2\r\n$1\r\nm\r\n,1.5\r\n'),
    ]:
        c.command(*command)
        assert c.exactly(len(wire)) == wire
    assert c.command('INFO', 'server').line().startswith(b'=')


# -- limits ----------------------------------------------------------------------------

def test_query_buffer_limit(server_factory, raw):
    s = server_factory('--client-query-buffer-limit', '1mb')
    c = raw(s.port).send(b'*2\r\n$4\r\nECHO\r\n$20000000\r\n')
    assert c.try_send(b'x' * (3 * MB)).closed()
    assert s.info('stats')['client_query_buffer_limit_disconnections'] == 1


def test_output_buffer_limit(server_factory, raw):
    s = server_factory('--client-output-buffer-limit', 'normal 1mb 0 0')
    with s.client() as r:
        r.set('big', b'x' * 100_000)
    c = raw(s.port)
    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.send(encode('GET', 'big') * 400)
    eventually(lambda: s.info('stats')['client_output_buffer_limit_disconnections'] == 1)
    eventually(lambda: s.info('clients')['connected_clients'] == 1)


@pytest.mark.parametrize('before, behind', [(b'', b''), (encode('MULTI'), encode('EXEC'))])
def test_output_limit_within_a_tick(server_factory, raw, before, behind):
    s = server_factory('--client-output-buffer-limit', 'normal 1mb 0 0')
    other = raw(s.port)
    other.call('SET', 'big', b'x' * 100_000)

    def peak():
        with open(f'/proc/{s.proc.pid}/status') as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith('VmHWM:'))

    before_all = peak()
    c = raw(s.port).send(before + encode('GET', 'big') * 400 + behind)  # they arrive together
    assert len(c.rest()) < 2 * MB
    assert s.info('stats')['client_output_buffer_limit_disconnections'] == 1
    assert peak() < before_all + 20 * MB


def test_soft_output_limit(server_factory, raw):
    """Also of a client on which nothing happens any more."""
    in_one_of(3, lambda: soft_output_limit(server_factory('--client-output-buffer-limit', 'normal 0 1mb 2'), raw))


def soft_output_limit(s, raw):
    with s.client() as r:
        r.set('big', b'x' * 100_000)
    c = raw(s.port)
    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.send(encode('GET', 'big') * 200)
    time.sleep(0.3)
    assert s.info('stats')['client_output_buffer_limit_disconnections'] == 0
    eventually(lambda: s.info('stats')['client_output_buffer_limit_disconnections'] == 1)


@pytest.mark.parametrize('seed', range(3))
def test_a_slow_reader_gets_all_in_order(server, raw, seed):
    """Output waits in pieces, behind which more comes: some of it little, some much, some while it is read."""
    rng = random.Random(seed)
    other, c = raw(server.port), raw(server.port)
    values = [bytes([ord('a') + i]) * size for i, size in enumerate([1, 5_000, 40_000, 70_000, 300_000])]
    for i, value in enumerate(values):
        assert other.call('SET', f'v{i}', value) == b'OK'
    me = c.call('CLIENT', 'ID')
    expected, got = bytearray(), bytearray()

    def client_list():
        line = other.call('CLIENT', 'LIST', 'ID', me).decode()
        return {k: int(v) for k, v in re.findall(r'(obl|oll|omem|tot-mem)=(\d+)', line)}

    most = 0
    for _ in range(60):
        chosen = [rng.choice(range(len(values))) for _ in range(rng.randrange(30))]
        c.send(b''.join(encode('GET', f'v{i}') for i in chosen))
        for i in chosen:
            expected += b'$%d\r\n%b\r\n' % (len(values[i]), values[i])
        facts = client_list()       # answered, however much the other one leaves unread
        assert facts['obl'] <= facts['omem'] <= facts['tot-mem']
        assert facts['omem'] <= len(expected) - len(got)
        most = max(most, facts['oll'])
        wanted = rng.randrange(len(expected) - len(got) + 1) // 4
        got += c.exactly(wanted)
    got += c.exactly(len(expected) - len(got))
    assert got == expected
    assert most > 1
    eventually(lambda: client_list() | {'tot-mem': 0} == {'obl': 0, 'oll': 0, 'omem': 0, 'tot-mem': 0})
    assert c.call('PING') == b'PONG'


def test_max_clients(server_factory, raw):
    s = server_factory('--maxclients', 3)
    first = [raw(s.port) for _ in range(3)]
    assert all(c.call('PING') == b'PONG' for c in first)
    assert raw(s.port).rest() == b'-ERR max number of clients reached\r\n'
    first.pop().close()
    eventually(lambda: 'ERR' not in str(raw(s.port).call('PING')))
    assert b'rejected_connections:0' not in first[0].call('INFO', 'stats')


def test_out_of_files(server_factory, raw):
    """Connections that can't be accepted wait in the queue, and the server sleeps meanwhile."""
    s = server_factory('--maxclients', 100)
    c = raw(s.port)
    assert c.call('PING') == b'PONG'
    files = len(os.listdir(f'/proc/{s.proc.pid}/fd'))
    resource.prlimit(s.proc.pid, resource.RLIMIT_NOFILE, (files + 2, files + 2))
    got_in = [raw(s.port) for _ in range(2)]
    assert all(x.call('PING') == b'PONG' for x in got_in)
    late = raw(s.port).command('PING')

    def cpu_ticks():
        with open(f'/proc/{s.proc.pid}/stat') as f:
            return sum(map(int, f.read().rsplit(')', 1)[1].split()[11:13]))

    before = cpu_ticks()
    assert late.silent(1)
    assert cpu_ticks() - before < 30
    assert c.call('PING') == b'PONG'
    got_in.pop().close()
    assert late.reply() == b'PONG'


def test_big_requests_leave_nothing_behind(server, raw):
    c = raw(server.port)

    def taken():
        used = next(int(line.split(b':')[1]) for line in c.call('INFO', 'memory').split(b'\r\n')
                    if line.startswith(b'used_memory:'))
        mine = c.call('CLIENT', 'INFO').decode()
        return used, int(re.search(r'tot-mem=(\d+)', mine)[1])

    used, mine = taken()
    assert c.call('EXISTS', *['k'] * 300_000) == 0
    eventually(lambda: taken()[0] < used + 2_000_000)
    assert taken()[1] < mine + 50_000


def test_idle_timeout(server_factory, raw):
    s = server_factory('--timeout', 1)
    c = raw(s.port)
    assert c.call('PING') == b'PONG'
    start = time.monotonic()
    assert c.closed()
    assert 0.9 < time.monotonic() - start < 10


def upload(port, raw):
    c = raw(port).send(b'*2\r\n$4\r\nECHO\r\n$40\r\n')
    for _ in range(20):
        time.sleep(0.2)
        c.try_send(b'xx')
    assert c.try_send(b'\r\n').sock.recv(100) == b'$40\r\n' + b'x' * 40 + b'\r\n'


def download(port, raw):
    n = 60 * MB
    c = raw(port)
    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    c.command('SETRANGE', 'big', n - 1, 'x').command('GET', 'big')
    left, start, chunk = n + len(b':%d\r\n$%d\r\n\r\n' % (n, n)), time.monotonic(), True
    while left and chunk:
        left -= len(chunk := c.sock.recv(65536))
        time.sleep(0.01 if time.monotonic() - start < 4 else 0)
    assert not left


@pytest.mark.parametrize('transfer', [upload, download])
def test_a_slow_transfer_is_not_idleness(server_factory, raw, transfer):
    """`timeout` is for connections on which nothing moves."""
    s = server_factory('--timeout', 2)
    in_one_of(3, lambda: transfer(s.port, raw))


# -- before authentication -------------------------------------------------------------

@pytest.fixture(scope='module')
def locked():
    import mayfly
    s = mayfly.new_server('--requirepass', 'secret')
    yield s
    assert s.stop() == 0
    s.check()
    s.remove()


@pytest.mark.parametrize('sent, text', [
    (b'*11\r\n', b'unauthenticated multibulk length'),
    (b'*1\r\n$16385\r\n', b'unauthenticated bulk length'),
])
def test_unauthenticated_limits(locked, raw, sent, text):
    assert raw(locked.port).send(sent).rest() == PE + text + b'\r\n'
    c = raw(locked.port)
    assert c.call('AUTH', 'secret') == b'OK'
    assert c.call('ECHO', b'x' * 20_000) == b'x' * 20_000
    assert c.call('DEL', *range(20)) == 0


def test_limits_go_with_authentication_in_a_pipeline(locked, raw):
    c = raw(locked.port)
    c.send(encode('AUTH', 'secret') + encode('ECHO', b'x' * 20_000) + encode('DEL', *range(20)))
    assert [c.reply() for _ in range(3)] == [b'OK', b'x' * 20_000, 0]
    c = raw(locked.port)
    c.send(encode('AUTH', 'wrong') + b'*1\r\n$16385\r\n')
    assert c.reply().startswith('WRONGPASS')
    assert c.rest() == PE + b'unauthenticated bulk length\r\n'


def test_unauthenticated_output(locked, raw):
    """Strangers who don't read what they are answered."""
    other = raw(locked.port)
    assert other.call('AUTH', 'secret') == b'OK'
    c = raw(locked.port).send(b'GET k\r\n' * 100)
    assert [c.reply() for _ in range(100)] == ['NOAUTH Authentication required.'] * 100
    assert raw(locked.port).try_send(b'GET k\r\n' * 2000).closed()
    assert b'client_output_buffer_limit_disconnections:1\r' in other.call('INFO', 'stats')
    assert other.send(encode('ECHO', b'x' * 1000) * 500).exactly(500 * 1009).endswith(b'x\r\n')


# -- one client doesn't disturb another --------------------------------------------------

def worst_ping(c, seconds, meanwhile=lambda: None):
    worst, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        meanwhile()
        start = time.monotonic()
        assert c.call('PING') == b'PONG'
        worst = max(worst, time.monotonic() - start)
    return worst


def quick(c, meanwhile=lambda: None):
    assert worst_ping(c, 0.5, meanwhile) < 0.5


def test_slow_reader_does_not_delay_others(server, raw):
    with server.client() as r:
        r.set('big', b'x' * MB)
    slow = raw(server.port)
    slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.send(encode('GET', 'big') * 8)         # never read
    half = raw(server.port).send(b'*2\r\n$4\r\nECHO\r\n$100\r\nhalf')
    in_one_of(5, lambda: quick(raw(server.port)))
    half.close()


def test_at_most_a_buffer_is_read_after_a_blocking_command(server, raw):
    """Each time such a client continues, the bytes it sent so far are moved: they must be few."""
    c, other, pings = raw(server.port), raw(server.port), 30_000
    big = encode('SET', 'k', b'x' * (9 * MB // 8))      # the server's buffer for it is larger
    c.send(big[:-2])
    eventually(lambda: b' qbuf=%d ' % (len(big) - 2) in other.call('CLIENT', 'LIST'))
    freeze(other)
    c.send(big[-2:] + encode('BLPOP', 'q', 0) + b'PING\r\n' * pings)
    assert other.reply() == b'OK'
    eventually(lambda: b'blocked_clients:1\r\n' in other.call('INFO', 'clients'))
    waits = max(int(x) for x in re.findall(rb' qbuf=(\d+)', other.call('CLIENT', 'LIST')))
    assert other.call('RPUSH', 'q', 'v') == 1
    assert c.reply() == b'OK' and c.reply() == [b'q', b'v']
    assert c.exactly(7 * pings) == b'+PONG\r\n' * pings
    assert 0 < waits < 32_768


def test_pipeliner_does_not_starve_others(server, raw):
    busy = raw(server.port)
    busy.sock.setblocking(False)
    flood = encode('SET', 'k', 'v') * 2000
    sent = received = 0

    def pour():
        nonlocal sent, received
        try:
            sent += busy.sock.send(flood[sent % len(flood):])
            received += len(busy.sock.recv(1 << 20))
        except BlockingIOError:
            pass

    in_one_of(5, lambda: quick(raw(server.port), pour))
    assert sent > len(flood) and received
