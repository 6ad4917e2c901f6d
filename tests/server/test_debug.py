"""Subcommands of DEBUG that the test suites of others rely on, each with what it does."""
import os
import re
import struct

import pytest

import mayfly
from mayfly import eventually, sanitized
from test_acl import with_file

WRONG = "ERR unknown subcommand or wrong number of arguments for '%s'. Try DEBUG HELP."


@pytest.fixture
def debug(server_factory, raw):
    def start(*options):
        s = server_factory('--enable-debug-command', 'yes', *options)
        c = raw(s.port)
        c.server = s
        return c
    return start


@pytest.mark.parametrize('args, answer', [
    ('DICT-RESIZING 0', b'OK'),
    ('JMAP', b'OK'),
    ('LEAK x', b'OK'),
    ('REPLYBUFFER PEAK-RESET-TIME 100', b'OK'),
    ('REPLYBUFFER PEAK-RESET-TIME never', b'OK'),
    ('REPLYBUFFER PEAK-RESET-TIME x', 'ERR value is not an integer or out of range'),
    ('REPLYBUFFER RESIZING 1', b'OK'),
    ('REPLYBUFFER FOO 1', WRONG % 'REPLYBUFFER'),
    ('REPLICATE', WRONG % 'REPLICATE'),
    ('REPLICATE SET a b', b'OK'),
    ('SET-DISABLE-DENY-SCRIPTS', WRONG % 'SET-DISABLE-DENY-SCRIPTS'),
    ('STRINGMATCH-LEN h*llo hello', 1),
    ('STRINGMATCH-LEN h?llo Hello', 0),
    ('STRINGMATCH-TEST', b'Apparently Redis did not crash: test passed'),
    ('LISTPACK nosuch', 'ERR no such key'),
    ('LISTPACK string', 'ERR Not a listpack encoded object.'),
    ('LISTPACK hash', b'Listpack structure printed on stdout'),
    ('LISTPACK list', 'ERR Not a listpack encoded object.'),
    ('LISTPACK short', b'Listpack structure printed on stdout'),
    ('QUICKLIST short', 'ERR Not a quicklist encoded object.'),
    ('QUICKLIST hash', 'ERR Not a quicklist encoded object.'),
    ('QUICKLIST list 1', b'Quicklist structure printed on stdout'),
    ('HTSTATS 99', 'ERR Out of range database'),
    ('HTSTATS 0', b'[Dictionary HT]\nHash table 0 stats (main hash table):\n number of elements: 5\n'
                  b'[Expires HT]\nNo stats available for empty dictionaries\n'),
    ('HTSTATS-KEY hash', 'ERR The value stored at the specified key is not represented using an hash table'),
    ('HTSTATS-KEY set', b'Hash table 0 stats (main hash table):\n number of elements: 600\n'),
    ('CONFIG-REWRITE-FORCE-ALL', 'ERR CONFIG-REWRITE-FORCE-ALL failed: no configuration file'),
])
def test_answers(server, raw, args, answer):
    if args.startswith('LEAK') and sanitized():
        pytest.skip('the sanitizer would report it')
    c = raw(server.port)
    c.call('FLUSHALL')
    c.call('SET', 'string', 'x')
    c.call('HSET', 'hash', 'f', 'v')
    c.call('RPUSH', 'list', *['x' * 100] * 200)
    c.call('RPUSH', 'short', 'x')
    c.call('SADD', 'set', *(f'm{i}' for i in range(600)))
    assert c.call('DEBUG', *args.split()) == answer


@pytest.mark.any_engine
def test_scripts_may_call_debug(debug):
    c = debug()
    call = "return redis.pcall('DEBUG', 'PROTOCOL', 'integer')"
    refused = 'ERR This Redis command is not allowed from script'
    assert c.call('EVAL', call, 0).startswith(refused)
    assert c.call('DEBUG', 'SET-DISABLE-DENY-SCRIPTS', 1) == b'OK'
    assert c.call('EVAL', call, 0) == 12345
    attribute = "redis.setresp(3) return redis.call('DEBUG', 'PROTOCOL', 'attrib')"
    assert c.call('EVAL', attribute, 0) == b'Some real reply following the attribute'
    assert b'cmd=eval' in c.call('EVAL', "return redis.call('CLIENT', 'LIST')", 0)
    for command in ('EVAL return 1', 'MULTI', 'SUBSCRIBE x', 'AUTH x', 'MONITOR', 'SHUTDOWN', 'DEBUG RELOAD', 'DEBUG LOADAOF'):
        words = ', '.join(f"'{w}'" for w in command.split() + (['0'] if 'EVAL' in command else []))
        assert c.call('EVAL', f'return redis.pcall({words})', 0).startswith(refused), command
    assert c.call('DEBUG', 'SET-DISABLE-DENY-SCRIPTS', 0) == b'OK'
    assert c.call('EVAL', call, 0).startswith(refused)


def test_checksums_may_be_skipped(debug):
    c = debug()
    c.call('RPUSH', 'l', 'a', 'b')
    payload = c.call('DUMP', 'l')
    wrong = payload[:-8] + bytes(8)
    newer = payload[:-10] + struct.pack('<H', 999) + bytes(8)
    refused = 'ERR DUMP payload version or checksum are wrong'
    assert c.call('RESTORE', 'k', 0, wrong) == refused
    assert c.call('DEBUG', 'SET-SKIP-CHECKSUM-VALIDATION', 1) == b'OK'
    assert c.call('RESTORE', 'k', 0, wrong) == b'OK' and c.call('LRANGE', 'k', 0, -1) == [b'a', b'b']
    assert c.call('RESTORE', 'other', 0, newer) == refused
    assert c.call('RESTORE', 'other', 0, b'\xff\xff\xff' + wrong[3:]) == 'ERR Bad data format', 'all else is checked'
    assert c.call('DEBUG', 'SET-SKIP-CHECKSUM-VALIDATION', 0) == b'OK'
    if mayfly.ENGINE == 'memory':
        assert c.call('DEBUG', 'LOADAOF') == b'OK', 'what was journalled has a good one'
    assert c.call('LRANGE', 'k', 0, -1) == [b'a', b'b']


def test_checksums_of_files_may_be_skipped(debug):
    if mayfly.ENGINE != 'memory':
        pytest.skip('its data is in no RDB file')
    c = debug('--appendonly', 'no')
    c.call('SET', 'k', 'v')
    assert c.call('SAVE') == b'OK'
    path = os.path.join(c.call('CONFIG', 'GET', 'dir')[1].decode(), 'dump.rdb')
    with open(path, 'rb+') as f:
        f.seek(-8, os.SEEK_END)
        f.write(b'\1' * 8)
    assert c.call('DEBUG', 'RELOAD', 'NOSAVE') == 'ERR Error trying to load the RDB dump, check server logs.'
    assert c.call('DEBUG', 'SET-SKIP-CHECKSUM-VALIDATION', 1) == b'OK'
    assert c.call('DEBUG', 'RELOAD', 'NOSAVE') == b'OK' and c.call('GET', 'k') == b'v'


def test_the_aof_of_earlier_is_loaded(debug):
    if mayfly.ENGINE != 'memory':
        pytest.skip('there is no append only file')
    c = debug('--appendonly', 'no')
    c.call('SET', 'k', 'v')
    failed = 'ERR Error trying to load the AOF files, check server logs.'
    assert c.call('DEBUG', 'LOADAOF') == failed and c.call('GET', 'k') == b'v', 'nothing is lost for nothing'
    assert c.call('BGREWRITEAOF') == b'Background append only file rewriting started'
    eventually(lambda: b'aof_rewrite_in_progress:0' in c.call('INFO', 'persistence') and
               b'aof_rewrite_scheduled:0' in c.call('INFO', 'persistence'))
    c.call('SET', 'later', 1)
    assert c.call('DEBUG', 'LOADAOF') == b'OK'
    assert c.call('GET', 'k') == b'v' and c.call('EXISTS', 'later') == 0
    assert c.call('SET', 'k', 'new') == b'OK'


@pytest.mark.lone('a cluster loads no files')
def test_loadaof_of_an_engine_with_its_own_log(debug):
    """The database is closed and opened again: all of it is read back from disk, and nothing else changes."""
    if mayfly.ENGINE == 'memory':
        pytest.skip('it has no log of its own')
    c = debug('--appendonly', 'no')
    c.call('SET', 'k', 'v', 'EX', 1000)
    assert c.call('DEBUG', 'LOADAOF').startswith('ERR there is no append only file to load')
    assert c.call('CONFIG', 'SET', 'appendonly', 'yes') == b'OK'
    c.call('CONFIG', 'SET', 'hash-max-listpack-entries', 1)
    c.call('HSET', 'h', 'f', 1, 'g', 2)
    c.call('FUNCTION', 'LOAD', "#!lua name=l\nredis.register_function('f', function() return 'here' end)")
    with mayfly.Raw(c.server.port) as other, mayfly.Raw(c.server.port) as waiting:
        def cached():
            return int(re.search(rb'element_cache_bytes:(\d+)', other.call('INFO', 'rocksdb')).group(1))
        waiting.command('BLPOP', 'list', 0)
        eventually(lambda: b'blocked_clients:1' in other.call('INFO', 'clients'))
        assert other.call('HGET', 'h', 'f') == b'1' and cached() > 0
        other.call('WATCH', 'k')
        for command in ('MULTI',), ('SET', 'new', 1), ('DEBUG', 'LOADAOF'), ('SET', 'newer', 1):
            other.call(*command)
        assert other.call('EXEC') == [b'OK'] * 3 and cached() == 0
        assert other.call('DBSIZE') == 4 and other.call('GET', 'k') == b'v' and 0 < other.call('TTL', 'k') <= 1000
        assert other.call('HGETALL', 'h') == [b'f', b'1', b'g', b'2']
        assert other.call('OBJECT', 'ENCODING', 'h') == b'hashtable'
        assert other.call('MGET', 'new', 'newer') == [b'1', b'1'] and other.call('FCALL', 'f', 0) == b'here'
        assert other.call('RPUSH', 'list', 'x') == 1 and waiting.reply() == [b'list', b'x']
        for i in range(3):
            assert other.call('INCR', 'n') == i + 1 and other.call('DEBUG', 'LOADAOF') == b'OK'


@pytest.mark.lone('a cluster loads no files')
def test_loadaof_waits_for_no_snapshot(debug):
    """A snapshot reads from the database, which can't be closed meanwhile."""
    if mayfly.ENGINE == 'memory':
        pytest.skip('its snapshot does not read from disk')
    c = debug('--appendonly', 'yes', '--rdb-key-save-delay', 10_000_000)
    c.call('MSET', 'a', 1, 'b', 2)
    c.call('BGSAVE')
    eventually(lambda: b'rdb_bgsave_in_progress:1' in c.call('INFO', 'persistence'))
    assert c.call('DEBUG', 'LOADAOF').startswith('ERR a snapshot is being written')
    assert c.call('CONFIG', 'SET', 'rdb-key-save-delay', 0) == b'OK'
    eventually(lambda: c.call('DEBUG', 'LOADAOF') == b'OK')
    assert c.call('MGET', 'a', 'b') == [b'1', b'2']


@pytest.mark.any_engine
def test_cron_pauses(debug):
    c = debug()

    def samples():
        return re.search(rb'instantaneous_ops_per_sec:(\d+)', c.call('INFO', 'stats')).group(1)
    eventually(lambda: samples() != b'0')
    assert c.call('DEBUG', 'PAUSE-CRON', 1) == b'OK'
    before = samples()
    assert all(samples() == before for _ in range(1000)), 'nobody counts'
    assert c.call('DEBUG', 'PAUSE-CRON', 0) == b'OK'
    eventually(lambda: samples() != before)
    c.call('DEBUG', 'PAUSE-CRON', 1)
    assert c.server.stop() == 0, 'SIGTERM ends it all the same'


@pytest.mark.any_engine
def test_all_directives_are_rewritten(server_factory, raw, tmp_path):
    conf = tmp_path / 'm.conf'
    s = server_factory()
    with s.raw() as c:
        names = c.call('CONFIG', 'GET', '*')[::2]
    conf.write_text('enable-debug-command yes\n')
    s = with_file(server_factory, conf)
    c = raw(s.port)
    assert c.call('DEBUG', 'CONFIG-REWRITE-FORCE-ALL') == b'OK'
    text = conf.read_text()
    missing = [n.decode() for n in names if not re.search(rf'^{re.escape(n.decode())} ', text, re.M)]
    assert 'hz' not in missing and 'maxmemory' not in missing and len(missing) < len(names) / 4, missing


@pytest.mark.lone('nodes of a cluster replicate by Raft')
def test_replicas_get_a_command_of_their_own(server_factory, raw):
    primary = server_factory('--enable-debug-command', 'yes', '--repl-diskless-sync-delay', 0)
    replica = server_factory('--replicaof', f'127.0.0.1 {primary.port}')
    c, r = raw(primary.port), raw(replica.port)
    eventually(lambda: b'master_link_status:up' in r.call('INFO', 'replication'))
    c.call('SET', 'k', 1)
    assert c.call('DEBUG', 'REPLICATE', 'SET', 'only', 'there') == b'OK'
    c.call('SET', 'k', 2)
    eventually(lambda: r.call('GET', 'k') == b'2')
    assert r.call('GET', 'only') == b'there' and c.call('GET', 'only') is None

    def id_of(x):
        return re.search(rb'master_replid:(\w+)', x.call('INFO', 'replication')).group(1)
    old = id_of(c)
    assert c.call('DEBUG', 'CHANGE-REPL-ID') == b'OK'
    assert id_of(c) != old and b'master_replid2:' + b'0' * 40 in c.call('INFO', 'replication')
    c.call('CLIENT', 'KILL', 'TYPE', 'replica')
    eventually(lambda: id_of(r) == id_of(c) and b'master_link_status:up' in r.call('INFO', 'replication'))
    assert r.call('GET', 'only') is None, 'it took all data again'
