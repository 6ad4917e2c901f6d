"""Configuration: files, command line, CONFIG GET/SET/REWRITE, supervision."""
import os
import re
import shlex
import shutil
import socket
import stat
import subprocess

import pytest
import redis

import mayfly
from mayfly import eventually

pytestmark = pytest.mark.engine('memory', 'configuration is the same with every engine')

HEADER = r'\*\*\* FATAL CONFIG FILE ERROR \(Mayfly [\d.]+, Redis [\d.]+\) \*\*\*'


class Configured(mayfly.Server):
    """A server started with exactly these arguments, and a file if there is one."""

    def __init__(self, directory, *args, conf=None, env=None, wait=True):
        self.dir = str(directory)
        self.port = mayfly.free_port()
        self.log_path = os.path.join(self.dir, 'stdout.log')
        self.conf = os.path.join(self.dir, 'mayfly.conf')
        self.args, self.env = [mayfly.BINARY], env
        if conf is not None:
            with open(self.conf, 'w') as f:
                f.write(conf.replace('$PORT', str(self.port)))
            self.args.append(self.conf)
        self.args += map(str, args)
        self.start_first(wait)

    def text(self):
        with open(self.conf) as f:
            return f.read()


@pytest.fixture
def configured(tmp_path):
    started = []

    def start(*args, **options):
        s = Configured(tmp_path, *args, **options)
        started.append(s)
        return s

    yield start
    for s in started:
        if s.proc.poll() is None:
            assert s.stop() == 0, s.log
        s.check()


def run_server(*args, stdin=b'', cwd='/tmp'):
    """Runs a server that is expected to end by itself: exit code, output."""
    p = subprocess.run([mayfly.BINARY, *args], input=stdin, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, cwd=cwd, timeout=30)
    return p.returncode, p.stdout.decode()


def get(r, *names):
    values = dict(pairs(r, *names))
    return values if len(names) > 1 else values[names[0]]


def call(r, *args):
    """A reply, or an error's text with its code."""
    with mayfly.Raw(r.connection_pool.connection_kwargs['port']) as raw:
        value = raw.call(*args)
    return value.decode() if isinstance(value, bytes) else value


def pairs(r, *args):
    with mayfly.Raw(r.connection_pool.connection_kwargs['port']) as raw:
        flat = [x.decode() for x in raw.call('CONFIG', 'GET', *args)]
    return list(zip(flat[::2], flat[1::2]))


# -- mayfly.conf -----------------------------------------------------------------------------------

def directives():
    """Names and aliases, out of config.def itself."""
    with open(os.path.join(mayfly.ROOT, 'src', 'config', 'config.def')) as f:
        text = f.read().split('*/', 1)[1]
    found = re.findall(r'^[A-Z]+\(\w+,\s*"([^"]+)",\s*"([^"]*)"', text, re.M)
    assert len(found) > 150
    return found


def example():
    with open(os.path.join(mayfly.ROOT, 'mayfly.conf')) as f:
        return f.read()


def test_example_has_every_directive():
    shown = set(re.findall(r'^#([a-z_-]+) ', example(), re.M))
    names = {name for name, _ in directives()}
    assert names - shown == set() and shown - names == set()


def test_example_shows_the_defaults(configured):
    plain = configured('--port', '0', '--unixsocket', 'a.sock')
    with redis.Redis(unix_socket_path=os.path.join(plain.dir, 'a.sock')) as r:
        defaults = r.config_get('*')
    assert plain.stop() == 0
    stated = configured('--port', '0', '--unixsocket', 'a.sock',
                        conf=re.sub(r'^#([a-z])', r'\1', example(), flags=re.M))
    with redis.Redis(unix_socket_path=os.path.join(stated.dir, 'a.sock')) as r:
        assert r.config_get('*') == defaults


def test_example_loads_as_it_is(configured):
    s = configured('--port', mayfly.free_port(), conf=example())
    assert f'Configuration loaded from {s.conf}' in s.log


# -- CONFIG GET ------------------------------------------------------------------------------------

def listens(path):
    """Whether somebody accepts connections there; the file itself appears a little before that."""
    with socket.socket(socket.AF_UNIX) as s:
        return s.connect_ex(path) == 0


@pytest.mark.skipif(not shutil.which('redis-server'), reason='needs redis-server')
def test_all_of_redis_7_0s_parameters(configured, tmp_path):
    sock = str(tmp_path / 'redis.sock')
    version = subprocess.run(['redis-server', '--version'], capture_output=True, text=True).stdout
    if 'v=7.0' not in version:
        pytest.skip('redis-server is not 7.0')
    proc = subprocess.Popen(['redis-server', '--port', '0', '--unixsocket', sock, '--dir', tmp_path],
                            stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: listens(sock))
        with redis.Redis(unix_socket_path=sock) as r:
            theirs = r.config_get('*')
    finally:
        proc.kill()
        proc.wait()
    configured('--port', '0', '--unixsocket', 'a.sock', '--dir', tmp_path)
    with redis.Redis(unix_socket_path=str(tmp_path / 'a.sock')) as r:
        ours = r.config_get('*')
    for both in theirs, ours:
        del both['unixsocket']
    # The defaults that differ: only the loopback interface, until told otherwise; durable; Raft's timeout.
    assert ours.pop('cluster-node-timeout') == '1000' and theirs.pop('cluster-node-timeout') == '15000'
    assert ours.pop('bind') == '127.0.0.1 -::1' and theirs.pop('bind')
    assert ours.pop('appendonly') == 'yes' and theirs.pop('appendonly') == 'no'
    assert {k: v for k, v in ours.items() if k in theirs} == theirs
    assert {name for name in set(ours) - set(theirs) if not name.startswith('rocksdb-')} == {
        'engine', 'engine-start-empty', 'active-expire-source', 'ttl-cleanup-interval', 'ttl-cleanup-batch', 'import-rdb',
        'load-expired', 'rdb-skip-unsupported', 'aof-load-unchecked', 'replica-expired-reads', 'metrics-port', 'metrics-bind',
        'script-memory-limit', 'expiry-stream', 'cluster-init', 'cluster-join', 'cluster-recover', 'cluster-secret',
        'cluster-replicas', 'cluster-regions', 'cluster-balance', 'cluster-region-max-size', 'cluster-region-min-size', 'cluster-region-max-load',
        'cluster-node-dead-after', 'cluster-allow-stale-reads', 'cluster-check-period', 'cluster-log-keep-entries',
        'cluster-snapshot-rate-limit', 'site-id', 'site-peer', 'site-backlog-size', 'site-pending-max-size', 'site-max-clock-skew',
        'site-expire-delay', 'site-drop-metadata',
        # of 7.2 and 7.4
        'set-max-listpack-entries', 'set-max-listpack-value', 'max-new-connections-per-cycle',
        'max-new-tls-connections-per-cycle', 'locale-collate', 'cluster-announce-human-nodename', 'server-cpulist',
        'bio-cpulist', 'aof-rewrite-cpulist', 'bgsave-cpulist', 'hide-user-data-from-log'}


def test_get_patterns(r):
    assert pairs(r, 'maxmemory') == [('maxmemory', '0')]
    assert pairs(r, 'MaxMemory', 'maxmemory') == [('MaxMemory', '0')]
    assert pairs(r, 'nosuch') == []
    assert pairs(r, 'maxmem?ry', 'maxmemory', 'h[z]') == [('maxmemory', '0'), ('hz', '10')]
    assert [k for k, _ in pairs(r, 'maxmemory-*')] == \
        ['maxmemory-policy', 'maxmemory-samples', 'maxmemory-eviction-tenacity', 'maxmemory-clients']
    assert dict(pairs(r, '*priority')) == {'replica-priority': '100', 'slave-priority': '100'}
    assert pairs(r, 'slave-priority') == [('slave-priority', '100')]
    assert len(pairs(r, '*', '*', 'hz', 'HZ')) == len(pairs(r, '*'))


def test_hidden_directives_need_their_full_name(r):
    assert pairs(r, 'watchdog-period') == [('watchdog-period', '0')]
    assert pairs(r, 'watchdog*') == []


def test_get_is_a_map_in_resp3(server, raw):
    c = raw(server.port)
    c.call('HELLO', '3')
    assert c.call('CONFIG', 'GET', 'hz', 'maxmemory') == {b'hz': b'10', b'maxmemory': b'0'}


# -- CONFIG SET ------------------------------------------------------------------------------------

def refused(name, why):
    return f"ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"


def unknown(name):
    return f"ERR Unknown option or number of arguments for CONFIG SET - '{name}'"


INT = "argument couldn't be parsed into an integer"
SAVE = 'Invalid save parameters'
LIMIT = 'buffer limit configuration.'

SET_ERRORS = [
    ('maxmemory 1 hz', 'ERR syntax error'),
    ('nosuch 1', unknown('nosuch')),
    ('Nosuch 1', unknown('Nosuch')),
    ('hz 11 nosuch 1', unknown('nosuch')),
    ('nosuch 1 databases 2', unknown('nosuch')),
    ('databases 2 nosuch 1', refused('databases', "can't set immutable config")),
    ('replicaof a|1', refused('replicaof', "can't set immutable config")),
    ('hz 11 hz 12', refused('hz', 'duplicate parameter')),
    ('MAXMEMORY 1x', refused('maxmemory', 'argument must be a memory value')),
    ('maxmemory 1.5gb', refused('maxmemory', 'argument must be a memory value')),
    ('maxmemory -1', refused('maxmemory', 'argument must be a memory value')),
    *[(f'{name} {value}', refused(name, f'argument must be between {least} and 9223372036854775807 inclusive'))
      for value in (2 ** 63, 2 ** 64 - 1, '8589934592gb')
      for name, least in {'repl-backlog-size': 1, 'hash-max-listpack-value': 0, 'zset-max-listpack-value': 0,
                          'proto-max-bulk-len': 1048576, 'client-query-buffer-limit': 1048576,
                          'stream-node-max-bytes': 0, 'hll-sparse-max-bytes': 0, 'auto-aof-rewrite-min-size': 0,
                          'active-defrag-ignore-bytes': 1}.items()],
    ('maxmemory-clients 9223372036854775808', refused('maxmemory-clients',
                                                      'percentage argument must be less or equal to 100')),
    ('slave-priority x', refused('slave-priority', INT)),
    ('timeout 1|', refused('timeout', INT)),
    ('timeout +1', refused('timeout', INT)),
    ('timeout -1', refused('timeout', 'argument must be between 0 and 2147483647 inclusive')),
    ('port 65536', refused('port', 'argument must be between 0 and 65535 inclusive')),
    ('appendonly maybe', refused('appendonly', "argument must be 'yes' or 'no'")),
    ('loglevel x', refused('loglevel', 'argument(s) must be one of the following: debug, verbose, notice, '
                                       'warning')),
    ('active-expire-source x', refused('active-expire-source', 'argument(s) must be one of the following: '
                                                               'index, sample')),
    ('appendfsync x', refused('appendfsync', 'argument(s) must be one of the following: everysec, always, no')),
    ('maxmemory-clients 101%', refused('maxmemory-clients', 'percentage argument must be less or equal to 100')),
    ('maxmemory-clients x', refused('maxmemory-clients', 'argument must be a memory or percent value')),
    ('save 900', refused('save', SAVE)),
    ('save 900||1', refused('save', SAVE)),
    ('save 0|1', refused('save', SAVE)),
    ('save 1|-1', refused('save', SAVE)),
    ('notify-keyspace-events Kq', refused('notify-keyspace-events',
                                          "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")),
    ('client-output-buffer-limit normal|1|2', refused('client-output-buffer-limit',
                                                      'Wrong number of arguments in ' + LIMIT)),
    ('client-output-buffer-limit master|1|2|3', refused('client-output-buffer-limit',
                                                        'Invalid client class specified in ' + LIMIT)),
    ('client-output-buffer-limit normal|1|2|-3', refused(
        'client-output-buffer-limit', 'Error in hard, soft or soft_seconds setting in ' + LIMIT)),
    ('oom-score-adj-values 1|2', refused('oom-score-adj-values', 'wrong number of arguments')),
    ('oom-score-adj-values 1|2|3000', refused(
        'oom-score-adj-values', 'Invalid oom-score-adj-values, elements must be between -2000 and 2000.')),
    ('latency-tracking-info-percentiles x', refused('latency-tracking-info-percentiles',
                                                    'Invalid latency-tracking-info-percentiles parameters')),
    ('latency-tracking-info-percentiles 101', refused(
        'latency-tracking-info-percentiles',
        'latency-tracking-info-percentiles parameters should sit between [0.0,100.0]')),
    ('shutdown-on-sigterm save|nosave', refused(
        'shutdown-on-sigterm', "shutdown options SAVE and NOSAVE can't be used simultaneously")),
    ('proc-title-template {x}', refused('proc-title-template',
                                        'template format is invalid or contains unknown variables')),
    ('dir /nosuch', refused('dir', 'No such file or directory')),
    ('dbfilename a/b', refused('dbfilename', "dbfilename can't be a path, just a filename")),
]


@pytest.mark.parametrize('line,error', SET_ERRORS, ids=[line for line, _ in SET_ERRORS])
def test_set_errors(r, line, error):
    before = pairs(r, '*')
    assert call(r, 'CONFIG', 'SET', *[w.replace('|', ' ') for w in line.split(' ')]) == error
    assert pairs(r, '*') == before


SET_VALUES = [
    ('maxmemory', '1500mb', '1572864000'), ('maxmemory', '1GB', '1073741824'), ('maxmemory', '1k', '1000'),
    ('maxmemory', '18446744073709551615', '18446744073709551615'), ('maxmemory', '8589934592gb', '9223372036854775808'),
    ('maxmemory', '', '0'), ('maxmemory-clients', '5%', '5%'), ('maxmemory-clients', '1mb', '1048576'),
    ('hz', '0', '1'), ('hz', '1000', '500'), ('appendfsync', 'ALWAYS', 'always'),
    ('maxmemory-policy', 'allkeys-LRU', 'allkeys-lru'), ('save', '900 1 300 10', '900 1 300 10'),
    ('save', '', ''), ('notify-keyspace-events', 'KEA', 'AKE'), ('notify-keyspace-events', 'Kx$gE', 'g$xKE'),
    ('notify-keyspace-events', 'Kxnmt', 'xtnKm'), ('notify-keyspace-events', 'g$lshzxetd', 'A'),
    ('client-output-buffer-limit', 'replica 1mb 2k 3', 'normal 0 0 0 slave 1048576 2000 3 pubsub 33554432 8388608 60'),
    ('latency-tracking-info-percentiles', '50.123456789 0.0 99.90', '50.123457 0 99.9'),
    ('latency-tracking-info-percentiles', '', ''), ('oom-score-adj-values', '3 -2 1', '3 -2 1'),
    ('shutdown-on-sigint', 'now save', 'save now'), ('shutdown-on-sigint', 'default', 'default'),
    ('min-slaves-to-write', '2', '2'), ('masterauth', 'a"b\n', 'a"b\n'), ('repl-backlog-size', '1', '16384'),
    ('active-expire-source', 'sample', 'sample'), ('hash-max-ziplist-value', '70', '70'),
]


@pytest.mark.parametrize('name,value,shown', SET_VALUES)
def test_set_values(r, name, value, shown):
    before = get(r, name)
    assert r.config_set(name, value)
    assert get(r, name) == shown
    r.config_set(name, before)
    assert get(r, name) == before


def test_aliases_share_a_value_but_are_not_duplicates(r):
    assert call(r, 'CONFIG', 'SET', 'replica-priority', '5', 'slave-priority', '6') == 'OK'
    assert get(r, 'replica-priority', 'slave-priority') == {'replica-priority': '6', 'slave-priority': '6'}
    r.config_set('replica-priority', 100)


def test_several_or_none(r):
    before = pairs(r, '*')
    assert call(r, 'CONFIG', 'SET', 'maxmemory', '1gb', 'save', '1 1', 'timeout', 'x') == refused('timeout', INT)
    assert pairs(r, '*') == before
    assert call(r, 'CONFIG', 'SET', 'maxmemory', '1gb', 'timeout', '5') == 'OK'
    assert get(r, 'maxmemory', 'timeout') == {'maxmemory': '1073741824', 'timeout': '5'}
    assert call(r, 'CONFIG', 'SET', 'maxmemory', '0', 'timeout', '0') == 'OK'


def test_protected_directives(server_factory, tmp_path):
    closed = server_factory().client()
    for name in 'dir', 'dbfilename':
        assert call(closed, 'CONFIG', 'SET', name, 'x') == refused(name, "can't set protected config")
    local = server_factory('--enable-protected-configs', 'local').client()
    assert call(local, 'CONFIG', 'SET', 'dir', tmp_path, 'dbfilename', 'x') == 'OK'
    assert get(local, 'dir', 'dbfilename') == {'dir': str(tmp_path), 'dbfilename': 'x'}


def test_dir_is_absolute_and_comes_back_after_a_failure(server_factory):
    s = server_factory('--enable-protected-configs', 'yes')
    with s.client() as r:
        here = get(r, 'dir')
        assert here == s.dir
        assert call(r, 'CONFIG', 'SET', 'dir', '/', 'timeout', 'x') == refused('timeout', INT)
        assert os.readlink(f'/proc/{s.proc.pid}/cwd') == here
        assert r.config_set('dir', '..')
        assert get(r, 'dir') == os.path.dirname(here)


def test_a_new_port(server_factory):
    s = server_factory('--bind', '127.0.0.1')
    with s.client() as r:
        r.ping()
        other = mayfly.free_port()
        r.config_set('port', other)
        assert r.ping(), 'an open connection stays'
        with redis.Redis(port=other) as r2:
            assert r2.ping()
        with pytest.raises(redis.ConnectionError):
            redis.Redis(port=s.port).ping()
        r.config_set('port', 0)
        with pytest.raises(redis.ConnectionError):
            redis.Redis(port=other).ping()
        r.config_set('port', s.port)
        with redis.Redis(port=s.port) as r2:
            assert r2.ping()


def test_a_port_or_address_that_cannot_be_had(server_factory):
    s = server_factory('--bind', '127.0.0.1')
    with socket.socket() as taken, s.raw() as c:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert c.call('CONFIG', 'SET', 'hz', '20', 'port', port) == \
            refused('port', 'Unable to listen on this port. Check server logs.')
        assert c.call('CONFIG', 'SET', 'bind', '127.0.0.1 192.0.2.1') == \
            refused('bind', 'Failed to bind to specified addresses.')
        assert c.call('CONFIG', 'GET', 'port', 'bind', 'hz') == \
            [b'port', str(s.port).encode(), b'bind', b'127.0.0.1', b'hz', b'10']
    with s.client() as r:
        assert r.ping(), 'listening as before'
        assert r.config_set('bind', '127.0.0.1 -192.0.2.1')
    with s.client() as r:
        assert r.ping()


def test_maxclients_within_the_limit_of_files(r):
    before = get(r, 'maxclients')       # 10000, or what the limit leaves
    error = call(r, 'CONFIG', 'SET', 'maxclients', '4000000000')
    assert re.fullmatch(re.escape(refused('maxclients', 'The operating system is not able to handle the '
                                                        'specified number of clients, try with ')) + r'\d+', error)
    assert get(r, 'maxclients') == before


def test_settings_take_effect(server_factory):
    s = server_factory()
    with s.client() as r:
        r.rpush('small', *range(10))
        r.config_set('hash-max-ziplist-entries', 1)
        r.hset('h', mapping={'a': 1, 'b': 2})
        assert r.object('encoding', 'h') == b'hashtable'
        r.config_set('slowlog-log-slower-than', 0)
        r.ping()
        assert r.slowlog_len() > 0
        r.config_set('maxmemory', 1)
        with pytest.raises(redis.ResponseError, match='command not allowed when used memory'):
            r.set('a', 1)
        assert 'is smaller than the current memory usage' in s.log
        r.config_set('maxmemory', 0)
        r.config_set('requirepass', 'secret')
        assert r.ping(), 'who is connected stays so'
    with s.client() as r:
        with pytest.raises(redis.AuthenticationError):
            r.ping()
    with s.client(password='secret') as r:
        assert r.ping()


def answers(port):
    try:
        with mayfly.Raw(port) as c:
            return c.call('PING') == b'PONG'
    except ConnectionRefusedError:
        return False


def test_loglevel(configured):
    s = configured('--loglevel', 'warning', conf='port $PORT\n', wait=False)
    eventually(lambda: answers(s.port))
    assert 'starting' in s.log and 'Ready to accept' not in s.log


def test_passwords_stay_out_of_the_slow_log(server_factory):
    with server_factory('--slowlog-log-slower-than', '0').raw() as c:
        c.call('CONFIG', 'SET', 'masterauth', 'secret', 'timeout', '0')
        c.call('CONFIG', 'SET', 'masterauth', 'secret', 'nosuch', '1')
        entries = c.call('SLOWLOG', 'GET', '2')
        assert b'secret' not in repr(entries).encode()
        assert entries[1][3] == [b'CONFIG', b'SET', b'masterauth', b'(redacted)', b'timeout', b'0']
        c.call('CONFIG', 'SET', 'masteruser', 'secret')
        assert c.call('SLOWLOG', 'GET', '1')[0][3] == [b'CONFIG', b'SET', b'masteruser', b'(redacted)']


def test_resetstat(server_factory):
    s = server_factory()
    with s.client() as r:
        r.set('a', 1)
        r.get('a')
        r.get('b')
        assert r.info('stats')['keyspace_hits'] == 1
        r.config_resetstat()
        stats = r.info('stats')
        assert stats['keyspace_hits'] == stats['keyspace_misses'] == 0
        assert stats['total_commands_processed'] <= 2


def test_help(r):
    with mayfly.Raw(r.connection_pool.connection_kwargs['port']) as c:
        lines = c.call('CONFIG', 'HELP')
    assert lines[0] == b'CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:'
    assert lines[-2:] == [b'HELP', b'    Prints this help.']


# -- files and the command line -----------------------------------------------------------------------

BAD = 'Bad directive or wrong number of arguments'

LINE_ERRORS = [
    ('foo   bar baz', BAD), ('port "0', 'Unbalanced quotes in configuration line'),
    ('port 0 1', 'wrong number of arguments'), ('port', 'wrong number of arguments'), ('port abc', INT),
    ('include', BAD), ('rename-command nosuch x', 'No such command in rename-command'),
    ('rename-command get set', 'Target command name already exists'), ('rename-command get', BAD),
    ('dir /nosuch', 'No such file or directory'),
    ('databases 0', 'argument must be between 1 and 2147483647 inclusive'),
    ('unixsocketperm 999', "argument couldn't be parsed as an octal number"),
    ('unixsocketperm 7777', 'argument must be between 0 and 777 inclusive'),
    ('supervised x', 'argument(s) must be one of the following: upstart, systemd, auto, no'),
    ('appendfilename a/b', "appendfilename can't be a path, just a filename"),
    ('appenddirname ""', "appenddirname can't be empty"), ('replicaof a', 'wrong number of arguments'),
    ('replicaof a b', 'Invalid master port'), ('save 900 1 1', 'Invalid save parameters'),
    ('bind ' + ' '.join(['1'] * 17), 'Too many bind addresses specified.'),
    ('engine rocks', 'argument(s) must be one of the following: memory, rocksdb'),
    ('loadmodule x.so', 'not supported by this build'),
]


@pytest.mark.parametrize('line,why', LINE_ERRORS, ids=[line[:40] for line, _ in LINE_ERRORS])
def test_errors_in_a_file(tmp_path, line, why):
    conf = tmp_path / 'a.conf'
    conf.write_text(f'# a comment\n\n  {line}  \nport 0\n')
    code, out = run_server(str(conf))
    assert code == 1
    assert re.fullmatch(f"\n{HEADER}\nReading the configuration file, at line 3\n>>> '{re.escape(line)}'\n"
                        f'{re.escape(why)}\n', out), out


@pytest.mark.parametrize('args,shown,why', [
    (['--port', 'abc'], '--port "abc"', INT),
    (['--port', '0', '--foo-bar'], '--foo-bar', BAD),
    (['--port'], '--port', 'wrong number of arguments'),
    (['--save', '--port', 'x'], '--port "x"', INT),
    (['--maxmemory', '1mb', 'foo'], '--maxmemory "1mb" "foo"', 'wrong number of arguments'),
    (['-p', '7000'], '"-p" "7000"', BAD),
    (['--port 0', '--hz x'], '--hz x', INT),
    (['--port', '--hz', '3'], '--port "--hz" "3"', 'wrong number of arguments'),
    (['-', '--port', 'abc'], '--port "abc"', INT),
    (['--hz', 'a"b'], r'--hz "a\"b"', INT),
    (['--prot', '7000'], '--prot "7000"', BAD + ". Did you mean '--port'?"),
    (['--max-memory', '1gb'], '--max-memory "1gb"', BAD + ". Did you mean '--maxmemory'?"),
    (['--append_only', 'no'], '--append_only "no"', BAD + ". Did you mean '--appendonly'?"),
    (['--slave_read-onyl', 'no'], '--slave_read-onyl "no"', BAD + ". Did you mean '--slave-read-only'?"),
])
def test_errors_on_the_command_line(args, shown, why):
    code, out = run_server(*args)
    assert code == 1
    header = HEADER.replace('CONFIG FILE', 'COMMAND LINE')
    assert re.fullmatch(f"\n{header}\n>>> '{re.escape(shown)}'\n{re.escape(why)}\n"
                        'mayfly-server --help shows how it is started.\n', out), out


def test_a_directive_that_is_nearly_one(tmp_path):
    (tmp_path / 'a.conf').write_text('hz 10\nmaxmemory-polcy allkeys-lru\n')
    code, out = run_server('a.conf', cwd=tmp_path)
    assert code == 1 and "line 2\n>>> 'maxmemory-polcy allkeys-lru'\n" in out
    assert out.endswith("Bad directive or wrong number of arguments. Did you mean 'maxmemory-policy'?\n")


def test_files_that_cannot_be_read(tmp_path):
    assert run_server('nosuch.conf', cwd=tmp_path) == \
        (1, f"Fatal error, can't open config file '{tmp_path}/nosuch.conf': No such file or directory\n")
    (tmp_path / 'a.conf').write_text('include b.conf\n')
    (tmp_path / 'b.conf').write_text('include a.conf\n')
    code, out = run_server('a.conf', cwd=tmp_path)
    assert code == 1 and 'include each other too deeply' in out
    code, out = run_server('--logfile', '/nosuch/x', '--port', '0')
    assert code == 1 and "Can't open the log file: No such file or directory" in out


def test_a_file_with_everything(configured, tmp_path):
    (tmp_path / 'conf.d').mkdir()
    (tmp_path / 'conf.d' / '1.conf').write_text('timeout 30\nhz 20\n')
    (tmp_path / 'conf.d' / '2.conf').write_text('hz 30\n')
    conf = '\n'.join([
        '# first', '  PORT 1', 'include conf.d/*.conf', 'include conf.d/nothing-*.conf', 'timeout 31',
        'maxmemory 1mb', 'save 900 1', 'save 300 10 60 1000', 'slave-priority 7', r'masterauth "a b\x41\n"',
        r"masteruser 'it\'s'", 'list-max-ziplist-entries 1', 'lua-time-limit 77\r',
        'client-output-buffer-limit pubsub 1mb 1kb 5', 'unixsocketperm 0700'])
    port = mayfly.free_port()
    s = configured('--maxmemory', '2mb', '--port', port, conf=conf)
    s.port = port
    with s.client() as r:
        assert get(r, 'port', 'timeout', 'hz', 'maxmemory', 'save', 'replica-priority', 'masterauth', 'masteruser',
                   'busy-reply-threshold', 'client-output-buffer-limit', 'unixsocketperm') == {
            'port': str(port), 'timeout': '31', 'hz': '30', 'maxmemory': str(2 << 20),
            'save': '900 1 300 10 60 1000', 'replica-priority': '7', 'masterauth': 'a bA\n', 'masteruser': "it's",
            'busy-reply-threshold': '77', 'unixsocketperm': '700',
            'client-output-buffer-limit': 'normal 0 0 0 slave 268435456 67108864 60 pubsub 1048576 1024 5'}


def test_standard_input_comes_between_the_file_and_the_command_line(tmp_path):
    (tmp_path / 'a.conf').write_text('hz 1\ntimeout 1\nmaxmemory 1\nport 0\nfoo-file\n')
    _, out = run_server('a.conf', '--port', 'x', '-', stdin=b'', cwd=tmp_path)
    assert "at line 5\n>>> 'foo-file'" in out
    (tmp_path / 'a.conf').write_text('hz 1\n')
    _, out = run_server('a.conf', '--port', 'x', '-', stdin=b'foo-stdin\n', cwd=tmp_path)
    assert "at line 2\n>>> 'foo-stdin'" in out
    _, out = run_server('a.conf', '--port', 'x', '-', stdin=b'hz 2\n', cwd=tmp_path)
    assert "COMMAND LINE" in out and ">>> '--port \"x\"'" in out


@pytest.mark.parametrize('args,saved', [
    (['--save', ''], ''), (['--save'], ''), (['--save', '900 1'], '900 1'), (['--save', '1', '2', '3', '4'], '1 2 3 4'),
    (['--save', '1', '2', '--save', '3', '4'], '1 2 3 4'), ([], '3600 1 300 100 60 10000'),
    (['--save 5 6'], '5 6'), (['--save', '1', '2', '--save', ''], ''),
])
def test_save_on_the_command_line(configured, args, saved):
    port = mayfly.free_port()
    s = configured('--port', port, *args)
    s.port = port
    with s.client() as r:
        assert get(r, 'save') == saved


def test_rename_command(configured):
    s = configured(conf='port $PORT\nrename-command GET fetch\nrename-command DEL ""\n')
    with s.client() as r:
        r.set('a', 1)
        assert r.execute_command('FETCH', 'a') == b'1'
        for gone in 'GET', 'DEL':
            with pytest.raises(redis.ResponseError, match='unknown command'):
                r.execute_command(gone, 'a')


def test_a_port_that_is_taken():
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, out = run_server('--port', str(port), '--bind', '127.0.0.1')
        assert code == 1 and f'Failed listening on port {port} (tcp), aborting.' in out, out


def test_usage():
    code, out = run_server('--version')
    assert code == 0 and re.fullmatch(
        r'Redis server v=7\.4\.\d+ sha=[0-9a-f]{8}:\d malloc=\S+ bits=64 build=[0-9a-f]+ mayfly=\d+\.\d+\.\d+\n', out)
    assert run_server('-v') == (code, out)
    code, out = run_server('--help')
    assert code == 0 and 'Usage: mayfly-server' in out
    assert run_server('-h') == (code, out)


# -- CONFIG REWRITE ------------------------------------------------------------------------------------

OLD = '''# my file
port $PORT

# memory
maxmemory 100mb   
MaxMemory-Policy allkeys-lru
save 900 1
save 300 10
slave-priority 50
hz 10
hz 20
include inc.conf
rename-command DEBUG ""
# bind 1.2.3.4
bind 127.0.0.1
requirepass "a b"
hash-max-ziplist-entries 512
notify-keyspace-events ""
# the end'''

NEW = '''# my file
port $PORT

# memory
maxmemory 1500mb
maxmemory-policy noeviction
save 60 1
save 70 2
save 80 3
replica-priority 50
hz 10
include inc.conf
rename-command DEBUG ""
# bind 1.2.3.4
bind 127.0.0.1
requirepass "a\\"b\\n\\x01"
hash-max-listpack-entries 512
notify-keyspace-events "xKE"
# the end

# Generated by CONFIG REWRITE
timeout 30
dir "$DIR"
shutdown-on-sigint save now
maxmemory-clients 5%
'''


def test_rewrite_keeps_comments_and_order(configured, tmp_path):
    (tmp_path / 'inc.conf').write_text('timeout 30\n')
    s = configured(conf=OLD)
    os.chmod(s.conf, 0o640)
    with s.client(password='a b') as r:
        r.execute_command('CONFIG SET', 'maxmemory', '1500mb', 'maxmemory-policy', 'noeviction', 'hz', '10', 'save',
                          '60 1 70 2 80 3', 'notify-keyspace-events', 'KEx', 'maxmemory-clients', '5%',
                          'shutdown-on-sigint', 'save now', 'requirepass', 'a"b\n\x01')
        r.config_rewrite()
        expected = NEW.replace('$PORT', str(s.port)).replace('$DIR', s.dir)

        def written():
            return re.sub(r'^maxclients \d+\n', '', s.text(), flags=re.M)     # there if open files are limited
        assert written() == expected
        assert stat.S_IMODE(os.stat(s.conf).st_mode) == 0o640
        assert sorted(os.listdir(s.dir)) == ['appendonlydir', 'inc.conf', 'mayfly.conf', 'stdout.log']
        r.config_rewrite()
        assert written() == expected, 'writing it again changes nothing'
        assert 'CONFIG REWRITE executed with success.' in s.log
        r.config_set('save', '')
        r.config_set('timeout', 0)
        r.config_rewrite()
        assert 'save ""\nreplica-priority 50' in s.text() and '\ntimeout 0\n' in s.text()


def test_every_changed_directive_survives_a_rewrite(configured):
    """Whatever CONFIG SET accepts, a server started with the rewritten file has again."""
    s = configured(conf='port $PORT\n')
    with s.client() as r:
        for name, value in r.config_get('*').items():
            if name in ('port', 'bind', 'maxclients', 'timeout') or name.startswith('tls-'):
                continue
            for other in (str(int(value) + 1) if value.isdigit() else '', 'no' if value == 'yes' else 'yes', 'a "b\n',
                          'allkeys-lfu', 'debug', '7 8', 'normal 1 2 3', 'KA', '1 2 3', 'force', 'sample'):
                try:
                    if other and r.config_set(name, other):
                        break
                except redis.ResponseError:
                    pass
        wanted = r.config_get('*')
        password = wanted['requirepass']
        r.config_rewrite()
    assert s.stop() == 0
    proc = configured(s.conf)
    proc.port = s.port
    with proc.client(password=password) as r:
        assert r.config_get('*') == wanted


def test_rewrite_without_a_file(r):
    assert call(r, 'CONFIG', 'REWRITE') == 'ERR The server is running without a config file'


def test_a_failed_rewrite(configured, tmp_path):
    s = configured(conf='port $PORT\n')
    with s.client() as r:
        os.unlink(s.conf)
        r.config_set('hz', 20)
        r.config_rewrite()
        assert '\nhz 20\n' in s.text(), 'a file that was removed is made again'
        os.unlink(s.conf)
        os.mkdir(s.conf)
        assert call(r, 'CONFIG', 'REWRITE') == 'ERR Rewriting config file: Is a directory'
        assert sorted(os.listdir(s.dir)) == ['appendonlydir', 'mayfly.conf', 'stdout.log']


# -- the process ------------------------------------------------------------------------------------------

def test_daemonize(tmp_path):
    pidfile, log, port = tmp_path / 'a.pid', tmp_path / 'a.log', mayfly.free_port()
    code, out = run_server('--daemonize', 'yes', '--port', str(port), '--dir', str(tmp_path), '--pidfile', str(pidfile),
                           '--logfile', 'a.log')
    assert (code, out) == (0, '')
    eventually(pidfile.exists)
    pid = int(eventually(pidfile.read_text))
    try:
        assert os.getsid(pid) == pid
        with redis.Redis(port=port) as r:
            assert r.info('server')['process_id'] == pid
            assert get(r, 'daemonize') == 'yes'
            r.shutdown(nosave=True)
    finally:
        eventually(lambda: not os.path.exists(f'/proc/{pid}') or zombie(pid))
    assert not pidfile.exists()
    assert 'Ready to accept connections' in log.read_text()


def zombie(pid):
    with open(f'/proc/{pid}/stat') as f:
        return f.read().rsplit(')', 1)[1].split()[0] == 'Z'


@pytest.mark.parametrize('abstract', [False, True])
@pytest.mark.parametrize('how', ['systemd', 'auto'])
def test_systemd(configured, tmp_path, how, abstract):
    path = str(tmp_path / 'notify')
    name = f'@mayfly-{os.getpid()}-{how}' if abstract else path
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind('\0' + name[1:] if abstract else path)
        supervisor.settimeout(10)
        s = configured('--port', mayfly.free_port(), '--supervised', how, '--daemonize', 'no',
                       env={**os.environ, 'NOTIFY_SOCKET': name})
        assert supervisor.recv(4096).startswith(b'STATUS=')
        assert b'READY=1' in supervisor.recv(4096).split(b'\n')
        assert s.stop() == 0
        assert b'STOPPING=1' in supervisor.recv(4096).split(b'\n')


def test_a_supervised_server_stays_in_the_foreground(configured, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / 'notify'))
        s = configured('--port', mayfly.free_port(), '--supervised', 'systemd', '--daemonize', 'yes',
                       env={**os.environ, 'NOTIFY_SOCKET': str(tmp_path / 'notify')})
        assert s.proc.poll() is None


def test_systemd_without_a_socket(configured):
    env = {k: v for k, v in os.environ.items() if k != 'NOTIFY_SOCKET'}
    s = configured('--port', mayfly.free_port(), '--supervised', 'systemd', env=env)
    assert 'systemd supervision error: NOTIFY_SOCKET not found!' in s.log


def test_pidfile_without_daemonize(configured, tmp_path):
    s = configured('--port', mayfly.free_port(), '--pidfile', 'a.pid')
    path = tmp_path / 'a.pid'
    eventually(lambda: path.exists() and path.read_text() == f'{s.proc.pid}\n')
    assert s.stop() == 0
    assert not (tmp_path / 'a.pid').exists()


def test_a_password_may_hold_any_byte(configured):
    """From a file, by CONFIG SET, and from what CONFIG REWRITE has written."""
    first, second = b'my\0pass\r\n"\xff end', b'\0'
    s = configured(conf='port $PORT\nrequirepass "my\\x00pass\\r\\n\\"\\xff end"\n')
    with mayfly.Raw(s.port) as c:
        assert c.call('AUTH', b'my').startswith('WRONGPASS')
        assert c.call('AUTH', first) == b'OK'
        assert c.call('CONFIG', 'GET', 'requirepass') == [b'requirepass', first]
        assert c.call('CONFIG', 'SET', 'requirepass', second, 'masterauth', first) == b'OK'
        assert c.call('CONFIG', 'REWRITE') == b'OK'
    assert s.stop() == 0
    s = configured(conf=s.text().replace(f'port {s.port}', 'port $PORT'))
    with mayfly.Raw(s.port) as c:
        assert c.call('AUTH', b'').startswith('WRONGPASS')
        assert c.call('AUTH', second) == b'OK'
        assert c.call('CONFIG', 'GET', 'masterauth') == [b'masterauth', first]


# What Redis refuses to set, even to what it is; and what is protected.
NOT_SET = set('''aclfile always-show-logo appenddirname appendfilename cluster-config-file cluster-enabled cluster-port daemonize
    databases dbfilename dir disable-thp enable-debug-command enable-module-command enable-protected-configs io-threads
    io-threads-do-reads logfile pidfile rdbchecksum replicaof set-proc-title slaveof socket-mark-id supervised syslog-enabled
    syslog-facility syslog-ident tcp-backlog unixsocket unixsocketperm'''.split())


def test_everything_can_be_set_to_what_it_is(r):
    """Everything but what Redis refuses: our own directives, the CPU lists, tls-cluster."""
    for name, value in pairs(r, '*'):
        if name not in NOT_SET:
            assert call(r, 'CONFIG', 'SET', name, value) == 'OK', name
    assert call(r, 'CONFIG', 'SET', 'metrics-port', '1') == \
        "ERR CONFIG SET failed (possibly related to argument 'metrics-port') - can't set immutable config"
    assert call(r, 'CONFIG', 'SET', 'daemonize', 'no').endswith("can't set immutable config")
    assert call(r, 'CONFIG', 'SET', 'server-cpulist', '') == 'OK'
    assert call(r, 'CONFIG', 'SET', 'server-cpulist', '0').endswith("can't set immutable config")


def test_the_unit_can_rewrite_its_configuration(tmp_path):
    """The commands of systemd's unit, with other folders: what CONFIG REWRITE writes counts after a restart."""
    state, prefix = tmp_path / 'state', tmp_path / 'prefix'
    (prefix / 'bin').mkdir(parents=True)
    (prefix / 'etc').mkdir()
    state.mkdir()
    (prefix / 'bin' / 'mayfly-server').symlink_to(mayfly.BINARY)
    given = f'port {mayfly.free_port()}\nmaxmemory 1mb\n'
    (prefix / 'etc' / 'mayfly.conf').write_text(given)
    with open(os.path.join(mayfly.ROOT, 'scripts', 'mayfly-server.service')) as f:
        unit = f.read().replace('@PREFIX@', str(prefix)).replace('/var/lib/mayfly', str(state))
    before, start = (shlex.split(re.search(rf'^{name}=(.*)', unit, re.M)[1]) for name in ('ExecStartPre', 'ExecStart'))
    for maxmemory in '1048576', '2097152':
        subprocess.run(before, check=True)
        with open(tmp_path / 'log', 'wb') as log, subprocess.Popen(start, stdout=log, stderr=log) as p:
            with mayfly.eventually(lambda: connected(int(given.split()[1]))) as c:
                assert c.call('CONFIG', 'GET', 'maxmemory')[1] == maxmemory.encode()
                assert c.call('CONFIG', 'SET', 'maxmemory', '2mb') == b'OK'
                assert c.call('CONFIG', 'REWRITE') == b'OK'
                c.command('SHUTDOWN')
            assert p.wait(30) == 0
    assert (prefix / 'etc' / 'mayfly.conf').read_text() == given


def connected(port):
    try:
        return mayfly.Raw(port)
    except OSError:
        return None


def test_make_help_describes_every_target():
    with open(os.path.join(mayfly.ROOT, 'Makefile')) as f:
        targets = {name for names in re.findall(r'^([a-z][a-z -]*):(?!=)', f.read(), re.M) for name in names.split()}
    told = subprocess.run(['make', '-s', 'help'], cwd=mayfly.ROOT, capture_output=True, text=True, check=True).stdout
    assert targets == set(re.findall(r'^  ([a-z-]+)  ? *\S', told.split('Targets:')[1], re.M))
