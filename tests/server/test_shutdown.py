"""Starting and stopping: signals, SHUTDOWN, exit codes, what the log says."""
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from mayfly import BINARY, PATIENCE, encode, eventually


def test_start_log(server_factory):
    s = server_factory()
    pid = s.proc.pid
    assert re.search(rf'^{pid}:\w \d\d \w{{3}} \d{{4}} [\d:.]+ [.\-*#] ', s.log, re.M)
    assert f'PID: {pid}' in s.log and 'version' in s.log
    assert s.log.index('version') < s.log.index('Ready to accept connections')


@pytest.mark.parametrize('how', [signal.SIGTERM, signal.SIGINT], ids=['SIGTERM', 'SIGINT'])
def test_signals(server_factory, raw, how):
    s = server_factory('--unixsocket', 'here.sock')
    c = raw(s.port)
    assert c.call('SET', 'k', 'v') == b'OK'
    assert s.stop(how) == 0
    assert c.closed()
    assert f'Received {how.name} scheduling shutdown...' in s.log
    assert 'User requested shutdown...' in s.log
    assert s.log.rstrip().endswith('bye bye...')
    assert not os.path.exists(f'{s.dir}/here.sock')


@pytest.mark.parametrize('options', ['NOSAVE', 'nosave now force', 'SAVE FORCE', ''])
def test_shutdown(server_factory, raw, options):
    s = server_factory()
    c = raw(s.port).command('SHUTDOWN', *options.split())
    assert c.closed()
    assert s.proc.wait(PATIENCE) == 0
    assert 'User requested shutdown...' in s.log and s.log.rstrip().endswith('bye bye...')


@pytest.mark.parametrize('options, text', [
    ('FOO', 'ERR syntax error'), ('SAVE NOSAVE', 'ERR syntax error'), ('ABORT NOW', 'ERR syntax error'),
    ('NOSAVE ABORT', 'ERR syntax error'), ('ABORT', 'ERR No shutdown in progress.'),
])
def test_shutdown_errors(server, raw, options, text):
    c = raw(server.port)
    assert c.call('SHUTDOWN', *options.split()) == text
    assert c.call('PING') == b'PONG'


def test_replies_before_a_shutdown_arrive(server_factory, raw):
    s = server_factory()
    c = raw(s.port).send(encode('SET', 'k', 'v') + encode('GET', 'k') + encode('SHUTDOWN', 'NOSAVE'))
    assert c.rest() == b'+OK\r\n$1\r\nv\r\n'
    assert s.proc.wait(PATIENCE) == 0


def test_clients_that_close_without_reading(server_factory, raw):
    """Writing to a closed socket raises SIGPIPE: that must not end the server."""
    s = server_factory()
    for _ in range(50):
        raw(s.port).send(encode('ECHO', 'x' * 10_000) * 20).close()
    s.proc.send_signal(signal.SIGHUP)
    s.proc.send_signal(signal.SIGPIPE)
    assert raw(s.port).call('PING') == b'PONG'


def test_shutdown_with_much_going_on(server_factory, raw):
    s = server_factory()
    with s.client() as r:
        r.set('big', b'x' * 1_000_000)
    slow = raw(s.port)
    slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.send(encode('GET', 'big') * 20)
    half = raw(s.port).send(b'*2\r\n$3\r\nGET\r\n$100\r\nab')
    paused = raw(s.port)
    paused.call('CLIENT', 'PAUSE', 100_000, 'WRITE')
    paused.command('SET', 'k', 'v')
    monitor = raw(s.port)
    monitor.call('MONITOR')
    start = time.monotonic()
    assert s.stop() == 0
    assert time.monotonic() - start < 20
    assert half.closed()


def test_shutdown_frees_everything(server_factory, raw):
    """With a sanitizer build this is the test for leaks of every type."""
    s = server_factory('--slowlog-log-slower-than', 0, '--latency-monitor-threshold', 1)
    c = raw(s.port)
    for n in (5, 2000):
        c.call('RPUSH', f'l{n}', *range(n))
        c.call('SADD', f's{n}', *range(n))
        c.call('SADD', f'w{n}', *[f'w{i}' for i in range(n)])
        c.call('ZADD', f'z{n}', *[x for i in range(n) for x in (i, f'm{i}')])
        c.call('HSET', f'h{n}', *[x for i in range(n) for x in (f'f{i}', i)])
        c.call('HPEXPIRE', f'h{n}', 100_000, 'FIELDS', 2, 'f1', 'f2')
        c.call('SET', f'str{n}', 'x' * n, 'EX', 1000)
    c.call('CLIENT', 'SETNAME', 'me')
    for n in (5, 2000):
        c.call('DEL', f'l{n}')
    assert s.stop() == 0
    s.check()


def test_port_in_use(server_factory):
    first = server_factory()
    second = server_factory(port=first.port, wait=False)
    assert second.proc.wait(PATIENCE) == 1
    assert re.search(rf'Warning: Could not create server TCP listening socket .*:{first.port}: ', second.log)
    assert f'Failed listening on port {first.port} (tcp), aborting.' in second.log
    assert first.proc.poll() is None


@pytest.mark.parametrize('args, text', [
    (('--dir', '/nonexistent'), 'No such file or directory'),
    (('--nosuchdirective', '1'), 'Bad directive or wrong number of arguments'),
    (('--port', '70000'), 'argument must be between 0 and 65535 inclusive'),
    (('--port', 'x'), 'argument couldn\'t be parsed into an integer'),
])
def test_refuses_to_start(server_factory, args, text):
    s = server_factory(*args, wait=False)
    assert s.proc.wait(PATIENCE) == 1
    assert text in s.log


def test_nowhere_to_listen(server_factory):
    s = server_factory(port=0, wait=False)
    assert s.proc.wait(PATIENCE) == 1
    assert 'Configured to not listen anywhere, exiting.' in s.log


def test_unix_socket_only(server_factory, raw):
    s = server_factory('--unixsocket', 'only.sock', '--unixsocketperm', '700', port=0)
    path = f'{s.dir}/only.sock'
    assert os.stat(path).st_mode & 0o777 == 0o700
    assert raw(path).call('PING') == b'PONG'


def test_unix_socket_left_by_a_crash(server_factory, raw):
    first = server_factory('--unixsocket', 'left.sock', port=0)
    path = f'{first.dir}/left.sock'
    first.proc.kill()
    first.proc.wait()
    assert os.path.exists(path)
    server_factory('--unixsocket', path, port=0)
    assert raw(path).call('PING') == b'PONG'


@pytest.mark.parametrize('option', ['--version', '-v', '--help', '-h'])
def test_version_and_help(option):
    p = subprocess.run([BINARY, option], capture_output=True, text=True, timeout=20)
    assert p.returncode == 0
    assert re.search(r'Redis server v=\S+ .*mayfly=\S+' if 'v' in option.strip('-')[:1] else r'Usage: ', p.stdout)


def test_protected_mode(tmp_path):
    """Without a password only loopback may come in. The other host is an address in a network
    namespace made for this test."""
    made = subprocess.run(['unshare', '--net', 'ip', 'link', 'set', 'lo', 'up'], capture_output=True)
    if made.returncode:
        pytest.skip('no network namespaces here')
    server = subprocess.Popen(
        ['unshare', '--net', 'sh', '-c',
         'ip link set lo up && ip address add 192.0.2.7/32 dev lo && exec "$@"', 'sh',
         BINARY, '--port', '6379', '--bind', '*', '--dir', str(tmp_path)],
        stdout=subprocess.DEVNULL)

    def cli(host, *args):
        return subprocess.run(['nsenter', '--net', '--target', str(server.pid), 'redis-cli', '-h', host, *args],
                              capture_output=True, text=True, timeout=30).stdout
    try:
        eventually(lambda: 'PONG' in cli('127.0.0.1', 'PING'))
        assert cli('192.0.2.7', 'PING').startswith('DENIED ')
        assert 'OK' in cli('127.0.0.1', 'CONFIG', 'SET', 'protected-mode', 'no')
        assert 'PONG' in cli('192.0.2.7', 'PING')
    finally:
        server.terminate()
        assert server.wait(timeout=30) == 0