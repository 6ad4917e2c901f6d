"""redis-cli and redis-benchmark, in the modes their manuals show."""
import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import termios
import time

import mayfly
import pytest

pytestmark = pytest.mark.skipif(not shutil.which('redis-cli'), reason='redis-cli is not installed (redis-tools)')

MANY = 10000 if mayfly.sanitized() else 100000


def cli(server, *args, code=0, **options):
    """Runs redis-cli; returns what it prints. stderr must stay empty."""
    done = subprocess.run(['redis-cli', '-p', str(server.port), *map(str, args)], capture_output=True, timeout=60,
                          **options)
    assert done.returncode == code, done
    assert code or not done.stderr, done.stderr
    return (done.stdout + done.stderr).decode()


class Terminal:
    """redis-cli at a terminal, where it edits lines, asks for COMMAND DOCS and gives hints."""

    def __init__(self, server, *args):
        self.fd, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack('4H', 50, 200, 0, 0))
        env = dict(os.environ, TERM='xterm', HOME=server.dir)
        self.proc = subprocess.Popen(['redis-cli', '-p', str(server.port), *args], stdin=child, stdout=child,
                                     stderr=child, env=env, start_new_session=True)
        os.close(child)
        self.seen = ''

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.proc.kill()
        self.proc.wait()
        os.close(self.fd)

    def type(self, text):
        os.write(self.fd, text.encode())
        return self

    def expect(self, pattern, seconds=20):
        """Reads until the pattern shows; returns its match."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen, re.S)):
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready, f'no {pattern!r} in {self.seen!r}'
            self.seen += re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', os.read(self.fd, 65536).decode())
        self.seen = self.seen[found.end():]
        return found


# -- single commands -------------------------------------------------------------------------------

def test_commands_and_exit_codes(server):
    assert cli(server, 'PING') == 'PONG\n'
    assert cli(server, 'SET', 'greeting', 'hello world', 'EX', 100) == 'OK\n'
    assert cli(server, '--no-raw', 'GET', 'greeting') == '"hello world"\n'
    assert 0 < int(cli(server, 'TTL', 'greeting')) <= 100
    assert cli(server, '--no-raw', 'GET', 'nobody') == '(nil)\n'
    assert cli(server, '--no-raw', 'DEL', 'greeting', 'nobody') == '(integer) 1\n'
    assert cli(server, 'NOSUCH', 'x').startswith("ERR unknown command 'NOSUCH'")
    assert 'wrong number of arguments' in cli(server, '-e', 'GET', code=1)


def test_input_from_pipe(server):
    script = b'SET a "two words"\nGET a\nLPUSH a 1\nRPUSH l 1 2 3\n\nLRANGE l 0 -1\nSELECT 3\nDBSIZE\nQUIT\n'
    assert cli(server, input=script).splitlines() == [
        'OK', 'two words', 'WRONGTYPE Operation against a key holding the wrong kind of value', '', '3',
        '1', '2', '3', 'OK', '0']
    assert cli(server, '-x', 'SET', 'blob', input=b'\x00\xff\r\n') == 'OK\n'
    assert cli(server, '--no-raw', 'GET', 'blob') == '"\\x00\\xff\\r\\n"\n'
    assert cli(server, '-X', 'here', 'SET', 'here', 'v', input=b'key') == 'OK\n'
    assert cli(server, 'GET', 'key') == 'v\n'


def test_repeat(server):
    assert cli(server, '-r', 3, '-i', '0.01', 'INCR', 'n') == '1\n2\n3\n'


def test_ways_to_connect(server, own_server):
    cli(server, '-n', 3, 'SET', 'there', 'yes')
    assert cli(server, '-u', f'redis://127.0.0.1:{server.port}/3', 'GET', 'there') == 'yes\n'
    sock = os.path.join(server.dir, 'mayfly.sock')
    assert cli(server, '-s', sock, '-n', 3, 'GET', 'there') == 'yes\n'

    locked = own_server('--requirepass', 'secret')
    assert cli(locked, 'GET', 'x').startswith('NOAUTH')
    assert cli(locked, '-a', 'secret', '--no-auth-warning', 'PING') == 'PONG\n'
    assert cli(locked, '--user', 'default', '-a', 'secret', '--no-auth-warning', 'PING') == 'PONG\n'
    assert cli(locked, 'PING', env=dict(os.environ, REDISCLI_AUTH='secret')) == 'PONG\n'
    assert 'WRONGPASS' in subprocess.run(['redis-cli', '-p', str(locked.port), '-a', 'wrong', 'PING'],
                                         capture_output=True).stderr.decode()


def test_shutdown(own_server):
    s = own_server()
    assert cli(s, 'SHUTDOWN', 'NOSAVE') == ''
    assert s.proc.wait(mayfly.PATIENCE) == 0


# -- output formats --------------------------------------------------------------------------------

def test_formats(server):
    cli(server, 'HSET', 'h', 'f', 'v')
    cli(server, 'RPUSH', 'l', 'a', 'b"c')
    cli(server, 'ZADD', 'z', '1.5', 'm', 'inf', 'n')
    assert cli(server, '--csv', 'LRANGE', 'l', 0, -1) == '"a","b\\"c"\n'
    assert cli(server, '--csv', 'GET', 'nobody') == 'NULL\n'
    assert json.loads(cli(server, '--json', 'HGETALL', 'h')) == {'f': 'v'}
    assert json.loads(cli(server, '--json', 'LRANGE', 'l', 0, -1)) == ['a', 'b"c']
    assert json.loads(cli(server, '--json', 'GET', 'nobody')) is None
    assert json.loads(cli(server, '-2', '--json', 'HGETALL', 'h')) == ['f', 'v']
    assert cli(server, '-3', '--no-raw', 'HGETALL', 'h') == '1# "f" => "v"\n'
    assert cli(server, '-3', '--no-raw', 'ZSCORE', 'z', 'm') == '(double) 1.5\n'
    assert cli(server, '-3', '--no-raw', 'ZRANGE', 'z', 0, 0, 'WITHSCORES') == '1) 1) "m"\n   2) (double) 1.5\n'
    assert cli(server, '-3', '--no-raw', 'SMEMBERS', 'nobody') == '(empty set)\n'
    assert cli(server, '-3', '--no-raw', 'GET', 'nobody') == '(nil)\n'
    assert json.loads(cli(server, '--json', 'COMMAND', 'INFO', 'get'))[0][:2] == ['get', 2]
    assert json.loads(cli(server, '--json', 'CONFIG', 'GET', 'port')) == {'port': str(server.port)}


# -- at a terminal ---------------------------------------------------------------------------------

def test_interactive(server):
    with Terminal(server) as t:
        def enter(line, reply):
            """Types only behind the prompt: what comes earlier, redis-cli throws away."""
            t.expect(rf'127\.0\.0\.1:{server.port}(\[\d+\])?> $')
            t.type(line + '\r')
            return t.expect(re.escape(line) + r'[\r\n]+' + reply)
        enter('SET a 1', r'OK\r\n')
        enter('INCR a', r'\(integer\) 2\r\n')
        enter('SELECT 2', r'OK\r\n')
        enter('HELLO 3', r'.*"proto" => \(integer\) 3\r\n')
        enter('help SETEX', r' *SETEX key seconds value\s+summary: \w+.*since: 2.0.0\s+group: string')
        enter('help SET', r' *SET key value \[NX\|XX\] \[GET\] \[EX seconds\|PX milliseconds\|EXAT [\w-]+\|PXAT [\w-]+'
                          r'\|KEEPTTL\]\s+summary: ')
        t.expect('> $')
        t.type('HEXPIRE ')
        t.expect(r'HEXPIRE *key seconds \[NX\|XX\|GT\|LT\] FIELDS numfields field \[field \.\.\.\]')  # the hint
        t.type('\x15PING\r')  # Ctrl-U: the line is empty again
        t.expect('PONG\r\n')
        enter('help @hash', r' *HDEL.*HEXPIRE.*HGETALL')
        enter('GET nobody', r'\(nil\)\r\n')
        enter('quit', '')
        assert t.proc.wait(mayfly.PATIENCE) == 0


def test_stat(server):
    with Terminal(server, '--stat', '-i', '0.1') as t:
        t.expect('keys +mem +clients +blocked +requests +connections')
        for _ in range(3):
            keys, mem, clients = t.expect(r'\n(\d+) +([\d.]+[MGK]) +(\d+) +(\d+) +\d+ \(\+\d+\) +\d+').groups()[:3]
            assert keys == '0' and float(mem[:-1]) > 0 and int(clients) >= 1


def test_monitor(server):
    with Terminal(server, 'MONITOR') as t:
        t.expect('OK')
        cli(server, 'SET', 'seen', 'yes')
        t.expect(r'\d+\.\d{6} \[0 127\.0\.0\.1:\d+\] "SET" "seen" "yes"')


# -- looking at the keyspace -----------------------------------------------------------------------

@pytest.fixture
def keys(server):
    with server.client() as c:
        c.set('string', 'x' * 1000)
        c.rpush('list', *range(50))
        c.sadd('set', *range(60))
        c.hset('hash', mapping={f'f{i}': i for i in range(70)})
        c.zadd('zset', {f'm{i}': i for i in range(80)})
        c.mset({f'small:{i}': i for i in range(1000)})
    return server


def test_bigkeys(keys):
    out = cli(keys, '--bigkeys')
    assert 'Sampled 1005 keys in the keyspace!' in out
    for kind, size in ('string', '1000 bytes'), ('list', '50 items'), ('set', '60 members'), ('hash', '70 fields'), \
                      ('zset', '80 members'):
        assert re.search(f"Biggest +{kind} found '?\"{kind}\"'? has {size}", out), out     # quoted once in 8.0
    assert '1001 strings' in out


def test_memkeys(keys):
    out = cli(keys, '--memkeys')
    assert 'Sampled 1005 keys in the keyspace!' in out
    sizes = dict(re.findall(r'Biggest +(\w+) found \S+ has (\d+) bytes', out))
    assert sizes.keys() == {'string', 'list', 'set', 'hash', 'zset'}
    assert int(sizes['string']) > 1000 and all(int(n) > 50 for n in sizes.values())
    assert 'Sampled 1005' in cli(keys, '--memkeys-samples', 2)


def test_hotkeys(keys):
    assert 'ERR An LFU maxmemory policy is not selected' in cli(keys, '--hotkeys', code=1)
    with keys.client() as c:
        c.config_set('maxmemory-policy', 'allkeys-lfu')
        try:
            for _ in range(1000):
                c.get('small:7')
            out = cli(keys, '--hotkeys')
        finally:
            c.config_set('maxmemory-policy', 'noeviction')
    assert 'Sampled 1005 keys in the keyspace!' in out
    counter, name = re.search(r'summary -+\s+.*?hot key found with counter: (\d+)\s+keyname: (\S+)', out, re.S).groups()
    assert name == '"small:7"' and int(counter) > 10


def test_scan(keys):
    assert sorted(cli(keys, '--scan', '--pattern', 'small:99?').split()) == [f'small:{i}' for i in range(990, 1000)]
    assert len(cli(keys, '--scan').split()) == 1005
    assert sorted(cli(keys, '--scan', '--pattern', '*s*t').split()) == ['list', 'set', 'zset']


# -- load ------------------------------------------------------------------------------------------

def test_pipe(server):
    data = b''.join(mayfly.encode('SET', f'key:{i}', i, 'PX', 10 ** 7) for i in range(MANY))
    out = cli(server, '--pipe', input=data)
    assert f'errors: 0, replies: {MANY}' in out
    with server.client() as c:
        assert c.dbsize() == MANY and c.get(f'key:{MANY - 1}') == b'%d' % (MANY - 1)
    broken = b''.join(mayfly.encode('SET', 'a', 1) + mayfly.encode('LPUSH', 'a', 1) for _ in range(100))
    out = cli(server, '--pipe', input=broken, code=1)
    assert 'errors: 100, replies: 200' in out


def test_latency(server):
    low, high, mean, count = map(float, cli(server, '--latency', '-i', '0.3').split())
    assert 0 <= low <= mean <= high and count >= 1


@pytest.mark.skipif(not shutil.which('redis-benchmark'), reason='redis-benchmark is not installed (redis-tools)')
@pytest.mark.parametrize('depth', [1, 16])
def test_benchmark(server, depth):
    done = subprocess.run(['redis-benchmark', '-p', str(server.port), '-n', '1000', '-c', '20', '-P', str(depth),
                           '-r', '100', '-d', '64', '--csv'], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done
    assert 'ERR' not in done.stdout + done.stderr and 'WARN' not in done.stderr, done
    tests = [line.split('"')[1] for line in done.stdout.splitlines()[1:]]
    assert {'PING_INLINE', 'SET', 'GET', 'INCR', 'LPUSH', 'SPOP', 'ZPOPMIN', 'MSET (10 keys)'} <= set(tests)


# -- reports ---------------------------------------------------------------------------------------

def test_info_and_docs(server):
    sections = re.findall(r'^# (\w+)', cli(server, 'INFO'), re.M)
    assert sections[:7] == ['Server', 'Clients', 'Memory', 'Persistence', 'Stats', 'Replication', 'CPU']
    assert cli(server, 'INFO', 'server').startswith('# Server')
    assert cli(server, 'INFO', 'nosuch').strip() == ''
    docs = json.loads(cli(server, '--json', 'COMMAND', 'DOCS', 'set', 'expire'))
    assert docs['set']['group'] == 'string' and docs['expire']['summary']
    assert len(json.loads(cli(server, '--json', 'COMMAND', 'DOCS'))) == int(cli(server, 'COMMAND', 'COUNT'))
    for container in ('CONFIG', 'CLIENT', 'OBJECT', 'MEMORY', 'COMMAND', 'SLOWLOG', 'LATENCY'):
        assert cli(server, container, 'HELP').startswith(f'{container} <subcommand>'), container
    for report in (['MEMORY', 'DOCTOR'], ['LATENCY', 'DOCTOR'], ['MEMORY', 'STATS'], ['LOLWUT']):
        assert cli(server, '-e', *report).strip(), report
