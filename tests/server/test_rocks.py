"""The rocksdb engine as its users see it: what is there after a restart, what a full disk or a
second server on the same directory does, and what INFO tells."""
import contextlib
import glob
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest

from mayfly import BINARY, PATIENCE, Raw, ReplyError, check_forecast, cpu_seconds, encode, eventually, in_one_of, sanitized

pytestmark = pytest.mark.engine('rocksdb', 'about the rocksdb engine')

SLOW = sanitized()
RESTARTS = pytest.mark.parametrize('how', [signal.SIGTERM, signal.SIGKILL], ids=['shutdown', 'kill -9'])


def now_ms():
    return time.time_ns() // 1_000_000


def field(s, section, name):
    return s.info(section)[name]


# -- datasets --------------------------------------------------------------------------------------

def fill(c, n=300):
    """Keys of every type in several databases, with and without deadlines."""
    later = now_ms() + 1_000_000
    for db in (0, 3, 15):
        c.call('SELECT', db)
        c.call('SET', 'empty', '')
        c.call('SET', b'bin\x00\xff\r\n', bytes(range(256)))
        c.call('SET', 'int', -5)
        c.call('SET', 'big', b'x' * 200_000)
        c.call('SET', 'dead-later', 'v', 'PXAT', later + db)
        c.call('INCRBYFLOAT', 'float', '3.25')
        c.call('SETBIT', 'bits', 1000, 1)
        c.call('PFADD', 'hll', *range(100))
        c.call('GEOADD', 'geo', 13.36, 38.11, 'Palermo')
        for size in (3, n):
            c.call('HSET', f'hash{size}', *[x for i in range(size) for x in (f'f{i}', f'v{i}')])
            c.call('RPUSH', f'list{size}', *range(size))
            c.call('LPUSH', f'list{size}', *range(size))
            c.call('LSET', f'list{size}', 1, 'changed')
            c.call('SADD', f'set{size}', *[f'm{i}' for i in range(size)])
            c.call('SADD', f'ints{size}', *range(-size, size))
            c.call('ZADD', f'zset{size}', *[x for i in range(size) for x in ((i * 37 % 100) - 50.5, f'm{i}')])
            c.call('ZADD', f'inf{size}', '-inf', 'a', 'inf', 'b', 0, 'c')
            c.call('HPEXPIREAT', f'hash{size}', later + 7, 'FIELDS', 2, 'f0', 'f1')
            c.call('PEXPIREAT', f'zset{size}', later + size)
    c.call('SELECT', 0)


READ = {
    b'string': lambda c, k: c.call('GET', k),
    b'hash': lambda c, k: sorted(zip(*[iter(c.call('HGETALL', k))] * 2)),
    b'list': lambda c, k: c.call('LRANGE', k, 0, -1),
    b'set': lambda c, k: sorted(c.call('SMEMBERS', k)),
    b'zset': lambda c, k: c.call('ZRANGE', k, 0, -1, 'WITHSCORES'),
}
COUNT = {b'string': 'STRLEN', b'hash': 'HLEN', b'list': 'LLEN', b'set': 'SCARD', b'zset': 'ZCARD'}


def fields_with_deadline(c, key):
    names = sorted(c.call('HKEYS', key))
    return c.call('HPEXPIRETIME', key, 'FIELDS', len(names), *names)


def contents(c):
    """Everything a client can see, by database."""
    found = {}
    for db in range(16):
        c.call('SELECT', db)
        keys = {}
        for key in c.call('KEYS', '*'):
            kind = c.call('TYPE', key)
            keys[key] = [kind, c.call('PEXPIRETIME', key), c.call(COUNT[kind], key), READ[kind](c, key)]
            if kind == b'hash':
                keys[key].append(fields_with_deadline(c, key))
        found[db] = keys, c.call('DBSIZE')
    c.call('SELECT', 0)
    return found


# -- restarts --------------------------------------------------------------------------------------

@RESTARTS
def test_a_restart_keeps_everything(server_factory, how):
    s = server_factory('--enable-debug-command', 'yes')
    with Raw(s.port) as c:
        fill(c)
        before, digest = contents(c), c.call('DEBUG', 'DIGEST')
        assert len(before[3][0]) == before[3][1] > 20
    s.restart(how)
    with Raw(s.port) as c:
        assert contents(c) == before
        assert c.call('DEBUG', 'DIGEST') == digest
        # … and it is no museum: everything can be changed and deleted.
        for key in c.call('KEYS', '*'):
            assert c.call('COPY', key, b'copy of ' + key) == 1
            assert c.call('RENAME', key, b'new ' + key) == b'OK'
        assert c.call('DBSIZE') == 2 * before[0][1]
        assert c.call('DEL', *c.call('KEYS', '*')) == 2 * before[0][1]
        assert c.call('DBSIZE') == 0
    s.restart(how)
    with Raw(s.port) as c:
        assert contents(c) == {**before, 0: ({}, 0)}


@RESTARTS
def test_swapped_and_flushed_databases(server_factory, how):
    s = server_factory()
    with Raw(s.port) as c:
        fill(c, 100)
        c.call('SWAPDB', 0, 1)
        c.call('SWAPDB', 3, 15)
        c.call('SET', 'here', 'now')
        c.call('SELECT', 3)
        c.call('FLUSHDB')
        c.call('SET', 'after', 'the flush')
        c.call('SWAPDB', 3, 4)
        before = contents(c)
        assert before[0][1] == 1 and before[1][1] > 20 and before[3][1] == 0 and before[4][1] == 1
    s.restart(how)
    with Raw(s.port) as c:
        assert contents(c) == before
        c.call('FLUSHALL')
        c.call('SET', 'left', 1)
    s.restart(how)
    with Raw(s.port) as c:
        assert contents(c) == {**{db: ({}, 0) for db in range(16)},
                               0: ({b'left': [b'string', -1, 1, b'1']}, 1)}


def test_changes_before_and_after_many_restarts(server_factory):
    s = server_factory()
    for n in range(4):
        with Raw(s.port) as c:
            assert c.call('INCR', 'n') == n + 1
            assert c.call('RPUSH', 'list', n) == n + 1
            assert c.call('ZADD', 'zset', n, f'm{n}') == 1 and c.call('ZRANK', 'zset', f'm{n}') == n
            assert c.call('HSET', 'hash', f'f{n}', n) == 1 and c.call('HLEN', 'hash') == n + 1
            assert c.call('SADD', 'set', n) == 1 and c.call('SCARD', 'set') == n + 1
            assert c.call('SET', f'k{n}', 'v') == b'OK'
            assert c.call('DBSIZE') == 6 + n
        s.restart(signal.SIGKILL if n % 2 else signal.SIGTERM)


def test_encodings_and_memory_commands(server_factory):
    s = server_factory('--enable-debug-command', 'yes')
    with Raw(s.port) as c:
        fill(c)
    for _ in range(2):
        with Raw(s.port) as c:
            encoding = {k: c.call('OBJECT', 'ENCODING', k) for k in c.call('KEYS', '*')}
            assert encoding[b'int'] == b'int' and encoding[b'empty'] == b'embstr' and encoding[b'big'] == b'raw'
            assert encoding[b'list3'] == encoding[b'list300'] == b'listpack'
            assert encoding[b'hash3'] == b'listpackex' and encoding[b'zset300'] == b'skiplist'
            assert encoding[b'ints3'] == b'intset' and encoding[b'set3'] == b'listpack'
            for key in encoding:
                assert c.call('MEMORY', 'USAGE', key, 'SAMPLES', 0) > 0
                assert c.call('DEBUG', 'OBJECT', key).startswith(b'Value at:')
            assert c.call('MEMORY', 'USAGE', 'big') > 100_000
            assert isinstance(c.call('MEMORY', 'STATS'), list)
        s.restart()


# -- durability ------------------------------------------------------------------------------------

def write_until_cut_off(port, name, acknowledged):
    """Sets keys one after the other, in small pipelines, and notes what was acknowledged."""
    n = acknowledged[name] = 0
    try:
        with Raw(port) as c:
            while True:
                batch = range(n, n + random.randint(1, 8))
                c.send(b''.join(encode('SET', f'{name}:{i}', i) + encode('INCR', f'n:{name}') for i in batch))
                for i in batch:
                    assert c.reply() == b'OK'
                    assert c.reply() == i + 1
                    acknowledged[name] = i + 1
                n = batch[-1] + 1
    except (OSError, AssertionError) as e:
        assert not isinstance(e, AssertionError) or 'the connection ended' in str(e), e


def test_kill_loses_nothing_that_was_acknowledged(server_factory):
    s = server_factory('--appendfsync', 'always')
    for _ in range(2 if SLOW else 5):
        acknowledged = {}
        with Raw(s.port) as c:
            c.call('FLUSHALL')
        writers = [threading.Thread(target=write_until_cut_off, args=(s.port, f'w{i}', acknowledged))
                   for i in range(3)]
        for w in writers:
            w.start()
        time.sleep(random.uniform(0.1, 0.5))
        s.proc.kill()
        for w in writers:
            w.join()
        s.restart(signal.SIGKILL)
        with Raw(s.port) as c:
            total = 0
            for name, n in acknowledged.items():
                got = int(c.call('GET', f'n:{name}') or 0)
                assert n <= got <= n + 8
                values = c.call('MGET', f'n:{name}', *[f'{name}:{i}' for i in range(got)])[1:]
                assert values == [b'%d' % i for i in range(got)]    # SET and INCR: both or none … or SET alone
                total += got + (got > 0)
            # A tick is all or nothing, but may end between a SET and its INCR.
            assert total <= c.call('DBSIZE') <= total + len(acknowledged)


def test_sync_modes(server_factory):
    s = server_factory()
    with s.client() as r:
        assert r.config_get('appendfsync')['appendfsync'] == 'everysec'
        for mode in ('always', 'no', 'everysec', 'always'):
            assert r.config_set('appendfsync', mode)
            assert r.config_get('appendfsync')['appendfsync'] == mode
            before = field(s, 'rocksdb', 'wal_syncs')
            assert r.set(mode, 1) and field(s, 'rocksdb', 'wal_sync') == mode
            if mode != 'no':    # with always, to note what each commit has synced
                eventually(lambda: field(s, 'rocksdb', 'wal_syncs') > before)   # pylint: disable=cell-var-from-loop
            else:
                time.sleep(1.3)
                assert field(s, 'rocksdb', 'wal_syncs') == before
        with pytest.raises(Exception, match='one of the following: everysec, always, no'):
            r.config_set('appendfsync', 'sometimes')
        assert r.config_set('appendonly', 'yes')        # without effect: the engine's log is always on
        assert field(s, 'persistence', 'aof_enabled') == 0


# -- expiry ----------------------------------------------------------------------------------------

def reclaimed(c, left):
    return eventually(lambda: c.call('DBSIZE') == left)


@RESTARTS
def test_what_dies_while_the_server_is_down(server_factory, how):
    in_one_of(3, lambda: dies_while_down(server_factory(), how))    # a slow machine may not be done in time


def dies_while_down(s, how):
    with Raw(s.port) as c:
        at = now_ms() + 3000
        c.send(b''.join(encode('SET', f'dead{i}', 'v', 'PXAT', at + i % 100) +
                        encode('SET', f'live{i}', 'v', 'EX', 1000) for i in range(500)))
        for _ in range(1000):
            assert c.reply() == b'OK'
        c.call('HSET', 'half', 'dies', 1, 'stays', 1)
        c.call('HPEXPIREAT', 'half', at, 'FIELDS', 1, 'dies')
        c.call('HSET', 'hollow', 'dies', 1)
        c.call('HPEXPIREAT', 'hollow', at, 'FIELDS', 1, 'dies')
        assert c.call('DBSIZE') == 1002
    assert s.stop(how) in (0, -9)
    time.sleep(max(0, (at + 150 - now_ms()) / 1000))
    s.start()
    with Raw(s.port) as c:
        assert c.call('EXISTS', *[f'dead{i}' for i in range(500)]) == 0
        assert c.call('EXISTS', *[f'live{i}' for i in range(500)]) == 500
        assert c.call('HGETALL', 'half') == [b'stays', b'1'] and c.call('EXISTS', 'hollow') == 0
        reclaimed(c, 501)
        # One may have been met by a write or by the cycle, but each is counted once.
        eventually(lambda: field(s, 'stats', 'expired_keys') == 500)
        lag = field(s, 'expiry', 'expiry_oldest_overdue_ms')
        assert lag == 0


def test_reads_leave_the_dead_to_the_cleaner(server_factory):
    s = server_factory('--enable-debug-command', 'yes')
    with Raw(s.port) as c:
        c.call('DEBUG', 'SET-ACTIVE-EXPIRE', 0)
        for i in range(10):
            c.call('SET', f'k{i}', 'v', 'PX', 1)
        time.sleep(0.01)
        assert c.call('MGET', *[f'k{i}' for i in range(10)]) == [None] * 10
        assert c.call('DBSIZE') == 10 and field(s, 'stats', 'expired_keys') == 0
        assert c.call('SET', 'k0', 'new') == b'OK'                              # a write buries it
        assert field(s, 'stats', 'expired_keys') == 1
        c.call('DEBUG', 'SET-ACTIVE-EXPIRE', 1)
        reclaimed(c, 1)
        assert field(s, 'stats', 'expired_keys') == 10


def test_forecast_and_lag_after_a_restart(server_factory):
    s = server_factory()
    ttls = [*range(500, 600), *range(50_000, 50_100)]
    start = now_ms()
    with Raw(s.port) as c:
        for ttl in ttls:
            c.call('SET', f'in{ttl}', 'v', 'EX', ttl)
        c.call('SET', 'for-ever', 'v')
    for how in (signal.SIGTERM, signal.SIGKILL):
        with Raw(s.port) as c:
            check_forecast(c, ttls, start)
            assert b'expires=200' in c.call('INFO', 'keyspace')
            lag = dict(zip(*[iter(c.call('EXPIRY', 'LAG'))] * 2))
            assert lag[b'overdue_keys'] == 0
        s.restart(how)


def test_union_of_many_sorted_sets_needs_few_iterators(server_factory):
    """One after another is walked to its end: an iterator each would cost more than the walks."""
    s = server_factory()
    with Raw(s.port) as c:
        n = 2000
        for i in range(n):
            c.command('ZADD', f'z{i}', 1, f'm{i}')
        assert all(c.reply() == 1 for _ in range(n))
        before = field(s, 'rocksdb', 'iterators_made')
        assert c.call('ZUNIONSTORE', 'd', n, *[f'z{i}' for i in range(n)]) == n
        assert field(s, 'rocksdb', 'iterators_made') - before < 50


def test_unions_of_many_sets(server_factory):
    """Scores are added up in Redis's order, whatever order the sources are read in; a source may come twice."""
    s = server_factory()
    rng = random.Random(5)
    with Raw(s.port) as c:
        scores = {}
        for i in range(200):
            for member in rng.sample('abcdefgh', 1 + i % 4):
                scores[i, member] = rng.uniform(-1e9, 1e9) if i % 5 else 1.0
                c.command(*(('ZADD', f'u{i}', repr(scores[i, member]), member) if i % 5 else ('SADD', f'u{i}', member)))
                assert c.reply() == 1
        given = [rng.randrange(220) for _ in range(300)]  # some are absent
        by_size = sorted(given, key=lambda i: len([m for m in 'abcdefgh' if (i, m) in scores]))
        total = {}
        for i in by_size:
            for member in 'abcdefgh':
                if (i, member) in scores:
                    total[member] = total[member] + scores[i, member] if member in total else scores[i, member]
        assert c.call('ZUNIONSTORE', 'd', len(given), *[f'u{i}' for i in given]) == len(total)
        assert {m: float(c.call('ZSCORE', 'd', m)) for m in total} == total
        sets = [f'u{i}' for i in range(0, 200, 5)]
        members = sorted({m for i, m in scores if i % 5 == 0})
        assert sorted(m.decode() for m in c.call('SUNION', *sets, *sets)) == members


def test_cleaner_counters(server_factory):
    s = server_factory()
    with Raw(s.port) as c:
        start = now_ms()
        c.send(b''.join(encode('SET', f'k{i}', 'v', 'PXAT', start + 3000) for i in range(2000)))
        for _ in range(2000):
            assert c.reply() == b'OK'
        reclaimed(c, 0)
    info = s.info('expiry')
    assert info['ttl_cleanup_total'] == 2000
    assert 0 < info['ttl_cleanup_last_count'] <= 2000
    assert start < info['ttl_cleanup_last_start_ms'] <= now_ms()
    assert info['ttl_cleanup_last_took_us'] > 0
    assert 0 <= info['ttl_cleanup_last_lag_ms'] <= 20_000


def test_the_cleaner_stops_at_once(server_factory):
    """A shutdown in the middle of a storm does not wait for it to end."""
    in_one_of(3, lambda: stops_at_once(server_factory))


def stops_at_once(server_factory):
    n = 20_000 if SLOW else 100_000
    s = server_factory('--active-expire-effort', 1, '--ttl-cleanup-batch', 10)
    with Raw(s.port) as c:
        at = now_ms() + (8000 if SLOW else 3000)
        for first in range(0, n, 1000):
            c.send(b''.join(encode('SET', f'k{i}', 'v', 'PXAT', at) for i in range(first, first + 1000)))
            c.exactly(5 * 1000)
        while now_ms() < at + 100:
            time.sleep(0.01)
    began = time.monotonic()
    assert s.stop() == 0
    assert time.monotonic() - began < 3


# -- big values and walks ----------------------------------------------------------------------------

def test_deleting_is_quick(server_factory):
    s = server_factory()
    with Raw(s.port) as c:
        for name in ('del', 'unlink', 'overwrite', 'expire'):
            for first in range(0, 100_000, 5000):
                c.call('HSET', name, *[x for i in range(first, first + 5000) for x in (f'f{i}', i)])
            assert c.call('HLEN', name) == 100_000
        times = {}
        for command in (('DEL', 'del'), ('UNLINK', 'unlink'), ('SET', 'overwrite', 1), ('PEXPIRE', 'expire', -1)):
            began = cpu_seconds(s)
            c.call(*command)
            times[command[0]] = cpu_seconds(s) - began
        assert max(times.values()) < (0.1 if SLOW else 0.02), times
        assert c.call('KEYS', '*') == [b'overwrite']
        assert c.call('HSET', 'del', 'f1', 'new') == 1 and c.call('HGETALL', 'del') == [b'f1', b'new']


@pytest.mark.parametrize('what', ['SCAN', 'HSCAN', 'SSCAN', 'ZSCAN'])
def test_cursors_survive_restarts(server_factory, what):
    s = server_factory()
    names = {b'name%d' % i for i in range(1000)}
    with Raw(s.port) as c:
        if what == 'SCAN':
            for name in names:
                c.command('SET', name, 1)
            for _ in names:
                c.reply()
        else:
            add, value = {'HSCAN': ('HSET', True), 'SSCAN': ('SADD', False), 'ZSCAN': ('ZADD', True)}[what]
            args = [x for n in names for x in ((n, 1) if add == 'HSET' else (1, n) if value else (n,))]
            c.call(add, 'key', *args)
    seen, cursor, steps = [], b'0', 0
    while True:
        with Raw(s.port) as c:
            for _ in range(10):
                steps += 1
                cursor, found = c.call(*([what] if what == 'SCAN' else [what, 'key']), cursor, 'COUNT', 20)
                seen += found[::2] if what in ('HSCAN', 'ZSCAN') else found
                if cursor == b'0':
                    break
        if cursor == b'0':
            break
        s.restart()
    assert sorted(seen) == sorted(names) and steps > 20     # none twice, as nothing has changed


# -- information -------------------------------------------------------------------------------------

def test_info(server_factory):
    s = server_factory()
    assert s.info('server')['mayfly_engine'] == 'rocksdb'
    assert f'Storage engine: rocksdb, in {s.dir}/rocksdb' in s.log and 'engine=rocksdb' in s.log
    with Raw(s.port) as c:
        fill(c)
        text = c.call('INFO', 'rocksdb').decode()
        assert text.startswith('# Rocksdb\r\n') and len(text.splitlines()) > 10
        assert '# Rocksdb' in c.call('INFO').decode()
        assert all(re.fullmatch(r'[a-z0-9_]+:[^\r\n]*', line) for line in text.splitlines()[1:]), text
        info = s.info('rocksdb')
        assert info['row_cache_rows'] > 0 and info['row_cache_bytes'] <= info['row_cache_max_bytes']
    used = s.info('memory')
    assert used['used_memory'] > 0 and used['used_memory_rss'] > 0


def test_settings_that_make_no_sense(server_factory):
    s = server_factory('--appendonly', 'yes')
    assert s.log.count('appendonly has no effect with engine rocksdb') == 1
    with Raw(s.port) as c:
        assert c.call('SET', 'k', 'v') == b'OK'
        for value in 'no', 'yes':
            assert c.call('CONFIG', 'SET', 'appendonly', value) == b'OK'
            assert c.call('CONFIG', 'GET', 'appendonly') == [b'appendonly', value.encode()]
    assert s.log.count('appendonly has no effect with engine rocksdb') == 2
    assert field(s, 'persistence', 'aof_enabled') == 0 and not os.path.exists(f'{s.dir}/appendonlydir')
    s.restart()
    with Raw(s.port) as c:
        assert c.call('GET', 'k') == b'v'
    s = server_factory('--maxmemory', '1mb', '--maxmemory-policy', 'allkeys-lru')
    assert 'maxmemory has no effect with engine rocksdb' in s.log
    with Raw(s.port) as c:
        for i in range(100):
            assert c.call('SET', f'k{i}', b'x' * 50_000) == b'OK'
        assert c.call('DBSIZE') == 100 and field(s, 'stats', 'evicted_keys') == 0
    assert 'data is not persisted' not in s.log


def test_tuning_is_accepted(server_factory):
    s = server_factory('--rocksdb-compression', 'zstd', '--rocksdb-rate-limit', '100mb', '--rocksdb-blob-size', 0,
                       '--rocksdb-write-buffer-size', '8mb')
    with s.client() as r:
        assert r.config_get('rocksdb-compression')['rocksdb-compression'] == 'zstd'
        assert r.set('k', 'v')
        for name in r.config_get('rocksdb-*'):
            with pytest.raises(Exception, match='immutable'):
                r.config_set(name, 'lz4' if name == 'rocksdb-compression' else 7)
    for compression in ('none', 'snappy', 'lz4'):
        s.args[s.args.index('--rocksdb-compression') + 1] = compression
        s.restart()
        with s.client() as r:
            assert r.get('k') == b'v'


# -- trouble -----------------------------------------------------------------------------------------

def test_a_second_server_on_the_same_directory(server_factory):
    first = server_factory()
    with first.client() as r:
        r.set('k', 'v')
    log = max(glob.glob(os.path.join(first.dir, 'rocksdb', '*.log')))
    with open(log, 'ab') as f:              # as if a write were under way: nothing to judge, or to put aside
        f.write(b'torn')
    second = server_factory(directory=first.dir, wait=False)
    assert second.proc.wait(PATIENCE) == 1
    assert 'torn end' not in second.log
    assert re.search(rf"Can't start with engine rocksdb: .*{first.dir}/rocksdb: another process has it open", second.log), second.log
    with first.client() as r:
        assert r.get('k') == b'v' and r.set('k', 'w')


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which('setpriv'), reason='needs root and setpriv')
@pytest.mark.parametrize('existing', [False, True], ids=['empty', 'a database'])
def test_a_directory_that_cannot_be_written(server_factory, existing):
    s = server_factory()
    with Raw(s.port) as c:
        c.call('SET', 'k', 'v')
    assert s.stop() == 0
    if not existing:
        shutil.rmtree(f'{s.dir}/rocksdb')
    subprocess.run(['chmod', '-R', 'a+rX', s.dir], check=True)
    other = server_factory(directory=s.dir, wait=False,
                           before=['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'])
    assert other.proc.wait(PATIENCE) == 1
    assert re.search(rf"Can't start with engine rocksdb: .*{s.dir}/rocksdb: .*must be writable", other.log), other.log
    s.start()
    with Raw(s.port) as c:
        assert c.call('GET', 'k') == (b'v' if existing else None)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 96 MB with half of it taken by a file `ballast`."""
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=96m', 'none', tmp_path], capture_output=True).returncode:
        pytest.skip('no right to mount')
    with open(tmp_path / 'ballast', 'wb') as f:
        f.write(b'\0' * (48 << 20))
    yield tmp_path
    subprocess.run(['umount', '-l', tmp_path])


def test_disk_full(small_disk, server_factory):
    """Writes get an error, reads go on; with room again writes go on, and nothing that was
    acknowledged is lost."""
    s = server_factory('--rocksdb-write-buffer-size', '4mb', '--rocksdb-compression', 'none', '--rocksdb-blob-size', 0,
                       directory=str(small_disk))
    kept, errors = {}, []
    with Raw(s.port) as c:
        for i in range(100_000):
            value = os.urandom(10_000)
            reply = c.call('SET', f'k{i}', value)
            if reply == b'OK':
                kept[b'k%d' % i] = value
            else:
                errors.append(reply)
                if len(errors) == 20:
                    break
        assert errors and len(kept) > 500
        assert all(re.match(r'(IOERR|MISCONF) ', e) for e in errors), set(errors)
        for key, value in random.sample(sorted(kept.items()), 200):
            assert c.call('GET', key) == value
        assert c.call('PING') == b'PONG' and c.call('DBSIZE') == len(kept)
        os.unlink(small_disk / 'ballast')
        eventually(lambda: c.call('SET', 'again', 'v') == b'OK', seconds=30, pause=0.2)
        kept[b'again'] = b'v'
    for how in (signal.SIGKILL, signal.SIGTERM):
        s.restart(how)
        with Raw(s.port) as c:
            assert c.call('DBSIZE') == len(kept)
            assert all(c.call('GET', key) == value for key, value in kept.items())
            assert c.call('SET', 'again', 'w') == b'OK'
            kept[b'again'] = b'w'


def test_check(server_factory):
    s = server_factory()
    with Raw(s.port) as c:
        fill(c)
    busy = subprocess.run([BINARY, '--check', s.dir], capture_output=True, text=True, timeout=60)
    assert s.stop() == 0
    sound = subprocess.run([BINARY, '--check', s.dir], capture_output=True, text=True, timeout=60)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    nothing = subprocess.run([BINARY, '--check', s.dir + '/nothing'], capture_output=True, text=True, timeout=60)
    assert nothing.returncode == 2 and busy.returncode in (0, 2)


# -- long strings --------------------------------------------------------------------------------------

def test_long_strings_in_one_tick(server_factory):
    """Long strings are written apart from all else. What the same tick does to them, and to other keys, counts."""
    s = server_factory()
    long = {f'long{i}': b'%d' % i * (200_000 + 100_000 * i) for i in range(5)}
    with Raw(s.port) as c:
        commands = [('SET', 'short', 'v'), *(('SET', key, value) for key, value in long.items()),
                    ('APPEND', 'long1', 'end'), ('DEL', 'long2'), ('SET', 'long3', 'short now'), ('RENAME', 'long4', 'new'),
                    ('PEXPIREAT', 'long0', 4_102_444_800_000), ('MULTI',), ('SET', 'only', b'x' * 300_000), ('EXEC',),
                    ('INCR', 'n')]
        c.sock.sendall(b''.join(encode(*command) for command in commands))
        replies = [c.reply() for _ in commands]
        assert not any(isinstance(reply, ReplyError) for reply in replies), replies
    for _ in range(2):
        with Raw(s.port) as c:
            assert c.call('DBSIZE') == 7
            assert c.call('GET', 'long0') == long['long0'] and c.call('PEXPIRETIME', 'long0') == 4_102_444_800_000
            assert c.call('GET', 'long1') == long['long1'] + b'end'
            assert c.call('MGET', 'long2', 'long3', 'new', 'only', 'short', 'n') == [
                None, b'short now', long['long4'], b'x' * 300_000, b'v', b'1']
        s.restart(signal.SIGKILL)


def test_values_taken_over_from_the_input(server_factory):
    """A value of a megabyte that ends a client's input is not copied, but that memory kept. Whatever happens to it
    next finds the right bytes, in the cache and after a restart."""
    s = server_factory()
    value = random.Random(1).randbytes(3_000_000)
    expected = {}
    with Raw(s.port) as c:
        for i in range(9):
            assert c.call('SET', f'k{i}', value) == b'OK'
            expected[f'k{i}'] = value
        assert c.call('APPEND', 'k0', 'end') == len(value) + 3
        expected['k0'] = value + b'end'
        assert c.call('SETRANGE', 'k1', 5, 'in between') == len(value)
        expected['k1'] = value[:5] + b'in between' + value[15:]
        assert c.call('RENAME', 'k2', 'renamed') == b'OK'
        expected['renamed'] = expected.pop('k2')
        assert c.call('COPY', 'k3', 'copied') == 1
        expected['copied'] = value
        assert c.call('APPEND', 'copied', 'end') == len(value) + 3 and c.call('APPEND', 'renamed', 'end') == len(value) + 3
        expected['copied'] = expected['renamed'] = value + b'end'
        assert c.call('SET', 'k4', 'short') == b'OK' and isinstance(c.call('INCR', 'k4'), ReplyError)
        expected['k4'] = b'short'
        assert c.call('SET', 'k5', '41') == b'OK' and c.call('INCR', 'k5') == 42
        expected['k5'] = b'42'
        assert c.call('GETSET', 'k6', value[:-1]) == value and c.call('SET', 'k7', value[1:]) == b'OK'
        expected['k6'], expected['k7'] = value[:-1], value[1:]
        assert c.call('DEL', 'k8') == 1 and c.call('RPUSH', 'k8', 'x') == 1 and c.call('DEL', 'k8') == 1
        del expected['k8']
        assert c.call('MSET', 'twice', value, 'twice', value[2:]) == b'OK'
        expected['twice'] = value[2:]
    for _ in range(2):
        with Raw(s.port) as c:
            assert c.call('DBSIZE') == len(expected)
            assert {key: c.call('GET', key) for key in expected} == expected
        s.restart(signal.SIGKILL)


def test_values_that_wait_for_memory(server_factory):
    """Requests with very long values are held back while their memory is made ready, one after the other. What was
    sent after them waits its turn, others are served, and a client that leaves does not keep the next one waiting."""
    s = server_factory()
    values = [random.Random(i).randbytes(1000) * 70_000 for i in range(3)]
    many = [Raw(s.port) for _ in values]
    for i, (c, value) in enumerate(zip(many, values)):
        c.sock.sendall(encode('SET', f'k{i}', value) + encode('STRLEN', f'k{i}') + encode('APPEND', f'k{i}', 'end'))
    with Raw(s.port) as c:
        assert c.call('PING') == b'PONG'
    many[1].close()
    for c, value in (many[0], values[0]), (many[2], values[2]):
        assert [c.reply() for _ in range(3)] == [b'OK', len(value), len(value) + 3]
        assert c.call('PING') == b'PONG'
    with Raw(s.port) as c:
        assert c.call('SETEX', 'k3', 1000, values[1]) == b'OK' and c.call('ECHO', values[0]) == values[0]
        assert c.call('RPUSH', 'list', 'x', values[1]) == 2 and c.call('LINDEX', 'list', 1) == values[1]
        assert c.call('MULTI') == b'OK' and c.call('SET', 'k4', values[2]) == b'QUEUED' and c.call('EXEC') == [b'OK']
    for _ in range(2):
        with Raw(s.port) as c:
            assert c.call('GET', 'k0') == values[0] + b'end' and c.call('GET', 'k2') == values[2] + b'end'
            assert c.call('GET', 'k3') == values[1] and c.call('GET', 'k4') == values[2]
            assert c.call('GET', 'k1') in (None, values[1], values[1] + b'end')
        s.restart(signal.SIGTERM)


# -- a backlog of flushes -----------------------------------------------------------------------------

SLOW_DISK = ('--rocksdb-write-buffer-size', '1mb', '--rocksdb-compression', 'none', '--rocksdb-blob-size', 0,
             '--rocksdb-rate-limit', '500kb')


class Flood(threading.Thread):
    """Writes one string of 10 kB after the other, until it is ended."""

    def __init__(self, port, prefix):
        super().__init__(daemon=True)
        self.port, self.prefix, self.written, self.replies, self.ended = port, prefix, 0, set(), False
        self.start()

    def run(self):
        with Raw(self.port) as c, contextlib.suppress(ConnectionError):
            while not self.ended:
                c.command('SET', f'{self.prefix}{self.written}', b'x' * 10_000)
                if not c.file.peek(1):  # the server has been stopped
                    return
                self.replies.add(c.reply())
                self.written += 1

    def end(self):
        """Returns what was answered apart from OK."""
        self.ended = True
        self.join(60)
        assert not self.is_alive()
        return self.replies - {b'OK'}


def is_stalled(s):
    return int(field(s, 'rocksdb', 'write_stalled'))


def test_a_backlog_makes_writers_wait(server_factory):
    """When flushes can't follow, whatever writes waits, and is done then: nothing is refused. Reads go on."""
    s = server_factory(*SLOW_DISK)
    floods = [Flood(s.port, name) for name in 'ab']
    with Raw(s.port) as reader, Raw(s.port) as script, Raw(s.port) as multi, Raw(s.port) as pipeline, \
            Raw(s.port) as listener:
        ident = pipeline.call('CLIENT', 'ID')
        listener.call('SUBSCRIBE', 'news')
        eventually(lambda: is_stalled(s), pause=0.002)
        script.command('EVAL', "return redis.call('SET', 's', redis.call('GET', KEYS[1]))", 1, 'a0')
        for command in (('MULTI',), ('SET', 'm', 1), ('INCR', 'm'), ('EXEC',)):
            multi.command(*command)
        for command in (('SET', 'p', 1), ('INCR', 'p'), ('GET', 'p')):
            pipeline.command(*command)

        def held():
            line = reader.call('CLIENT', 'LIST', 'ID', ident).decode()
            return is_stalled(s) and ' flags=b ' in line
        eventually(held, pause=0.002)
        assert reader.call('GET', 'a0') == b'x' * 10_000
        assert reader.call('EVAL_RO', "return redis.call('STRLEN', KEYS[1])", 1, 'a0') == 10_000
        assert reader.call('PUBLISH', 'news', 'now') == 1
        assert int(field(s, 'clients', 'blocked_clients')) >= 1
        assert script.reply() == b'OK'
        assert [multi.reply() for _ in range(4)] == [b'OK', b'QUEUED', b'QUEUED', [b'OK', 2]]
        assert [pipeline.reply() for _ in range(3)] == [b'OK', 2, b'2']
        assert [f.end() for f in floods] == [set(), set()]
        assert int(field(s, 'rocksdb', 'write_stalls')) >= 1
        assert int(field(s, 'rocksdb', 'writes_held')) >= 4
        assert reader.call('DBSIZE') == sum(f.written for f in floods) + 3


def test_clients_that_wait_to_write_can_go(server_factory):
    """While a backlog lasts, clients that wait can be killed, or leave; and the server can be stopped."""
    s = server_factory(*SLOW_DISK)
    flood = Flood(s.port, 'f')
    eventually(lambda: is_stalled(s), pause=0.002)
    with Raw(s.port) as admin:
        killed, gone = Raw(s.port), Raw(s.port)
        ids = [c.call('CLIENT', 'ID') for c in (killed, gone)]

        def hold():
            eventually(lambda: is_stalled(s), pause=0.002)
            for c, name in ((killed, 'killed'), (gone, 'gone')):
                c.command('SET', name, 1)
            return all(' flags=b ' in admin.call('CLIENT', 'LIST', 'ID', i).decode() for i in ids)
        eventually(hold, pause=0)
        assert admin.call('CLIENT', 'KILL', 'ID', ids[0]) == 1
        gone.close()
        eventually(lambda: not admin.call('CLIENT', 'LIST', 'ID', *ids))
        killed.close()
        eventually(lambda: is_stalled(s), pause=0.002)
        flood.ended = True
        assert s.stop() == 0
    assert flood.end() == set()


def test_a_replica_with_a_backlog_follows(server_factory):
    """It stops reading from its primary until it can write again: the link stays, and nothing is lost."""
    primary, replica = server_factory(), server_factory(*SLOW_DISK)
    written = 0
    with Raw(primary.port) as p, Raw(replica.port) as r:
        r.call('REPLICAOF', '127.0.0.1', primary.port)
        eventually(lambda: replica.info('replication')['master_link_status'] == 'up')
        while not int(field(replica, 'rocksdb', 'write_stalls')):  # as many as this machine needs
            for i in range(written, written + 50):
                p.command('SET', f'k{i}', b'%05d' % i * 2000)
            assert [p.reply() for _ in range(50)] == [b'OK'] * 50
            written += 50
            assert written < 20_000
        eventually(lambda: replica.info('replication')['master_repl_offset'] ==
                   primary.info('replication')['master_repl_offset'], seconds=60)
        assert r.call('DBSIZE') == written
        assert all(r.call('GET', f'k{i}') == b'%05d' % i * 2000 for i in range(written))
    assert int(primary.info('stats')['sync_full']) == 1 and int(primary.info('stats')['sync_partial_ok']) == 0


# -- garbage in blob files ----------------------------------------------------------------------------

SWEEP_BYTES_PER_S = 24 << 20


def test_garbage_in_blob_files_is_collected(server_factory):
    """Files of long strings that are mostly overwritten are given back. Each sweep rewrites all short strings too:
    of those it rewrites no more than 24 MB a second."""
    start = time.monotonic()
    s = server_factory('--rocksdb-write-buffer-size', '2mb', '--rocksdb-compression', 'none', '--rocksdb-blob-size', '4kb')
    with Raw(s.port) as c:
        for at in range(0, 32_000, 500):
            for i in range(at, at + 500):
                c.command('SET', f'short{i}', b'%04d' % (i % 10_000) * 250)
            assert all(c.reply() == b'OK' for _ in range(500))

        def overwrite(keys):
            for i in keys:
                assert c.call('SET', f'long{i}', os.urandom(20_000)) == b'OK'

        def collected():
            """The garbage is known when compactions have seen what was overwritten: more is, until then."""
            overwrite(i for i in range(1000) if i % 10)
            info = s.info('rocksdb')
            return int(info['sweeps']) and 3 * int(info['blob_garbage_bytes']) < int(info['blob_bytes'])
        # One of ten stays, in each of these files. What is overwritten again and again takes files of its own, which
        # RocksDB deletes as a whole: it must not be as much, or nothing may need a sweep.
        overwrite(range(3000))
        assert all(c.call('DEL', f'long{i}') == 1 for i in range(1000, 3000) if i % 10)
        eventually(collected, seconds=180, pause=0)
        swept = int(field(s, 'rocksdb', 'sweeps')) * 32_000_000
        assert swept <= SWEEP_BYTES_PER_S * (time.monotonic() - start + 2)
        assert c.call('STRLEN', 'long10') == 20_000 and c.call('STRLEN', 'short7') == 1000


# -- memory -------------------------------------------------------------------------------------------

def test_a_very_long_value_after_a_shorter_one(server_factory):
    """It stays in the memory it was received in. That of the value before is freed: AddressSanitizer looks, at the end."""
    s = server_factory()
    with Raw(s.port) as c:
        for n in (300_000, 2_000_000, 300_000, 3_000_000, 10):
            assert c.call('SET', 'k', b'x' * n) == b'OK'
            assert c.call('GET', 'k') == b'x' * n


BIG = 300_000


def write_much(s, megabytes):
    """Long strings that don't compress; returns the most that the server held resident meanwhile, in bytes."""
    most, pieces = 0, [os.urandom(BIG) for _ in range(4)]
    with Raw(s.port) as c:
        for i in range(megabytes * 1_000_000 // BIG):
            assert c.call('SET', f'k{i}', pieces[i % 4], 'EX', 600) == b'OK'
            most = max(most, resident(s)) if i % 8 == 0 else most
    return most


def resident(s):
    with open(f'/proc/{s.proc.pid}/statm', encoding='ascii') as f:
        return int(f.read().split()[1]) * os.sysconf('SC_PAGESIZE')


@pytest.fixture
def small_cgroup():
    """A control group with 256 MB of memory: its folder."""
    name = f'mayfly-test-{os.getpid()}'
    for top, limit in (('/sys/fs/cgroup/memory', 'memory.limit_in_bytes'), ('/sys/fs/cgroup', 'memory.max')):
        group = f'{top}/{name}'
        with contextlib.suppress(OSError):
            if limit == 'memory.max':
                with open(f'{top}/cgroup.subtree_control', 'w', encoding='ascii') as f:
                    f.write('+memory')
            os.mkdir(group)
            try:
                with open(f'{group}/{limit}', 'r+', encoding='ascii') as f:
                    f.write(str(256 << 20))
                break
            except OSError:
                os.rmdir(group)
    else:
        pytest.skip('no memory cgroup can be created')
    entered = subprocess.run(['sh', '-c', f'echo $$ > {group}/cgroup.procs'], capture_output=True, check=False)
    if not entered.returncode:
        yield group
    eventually(lambda: removed(group))
    if entered.returncode:
        pytest.skip('no process can enter a memory cgroup')


def removed(group):
    """A control group lingers for a moment after its last process."""
    with contextlib.suppress(OSError):
        os.rmdir(group)
    return not os.path.exists(group)


@pytest.mark.skipif(SLOW, reason="a sanitizer's own memory is beyond any budget")
def test_memory_of_a_control_group(small_cgroup, server_factory):
    """With sizes of 0 the server fits the group it runs in, whatever the machine has, and keeps to its budget."""
    enter = ('sh', '-c', f'echo $$ > {small_cgroup}/cgroup.procs && exec "$@"', 'sh')
    s = server_factory('--rocksdb-block-cache-size', 0, '--rocksdb-row-cache-size', 0, '--rocksdb-write-buffer-size', 0,
                       before=enter)
    budget = int(field(s, 'rocksdb', 'memory_budget'))
    assert 32 << 20 < budget < 128 << 20
    assert write_much(s, 240) <= budget + (64 << 20)
    with Raw(s.port) as c:
        assert c.call('DBSIZE') == 800 and c.call('STRLEN', 'k0') == BIG
    assert s.stop() == 0


@pytest.mark.skipif(SLOW, reason="a sanitizer's own memory is beyond any budget")
def test_used_memory_is_what_is_held(server_factory):
    """Also when other threads free what the loop has allocated, as RocksDB's do."""
    s = server_factory()
    write_much(s, 150)

    def used_fits():
        memory = s.info('memory')
        return memory['used_memory'] <= memory['used_memory_rss']
    eventually(used_fits)
    full = s.info('memory')['used_memory']
    assert full < 100 << 20  # caches and memtables of some 36 MB, and not what went through them
    with Raw(s.port) as c:
        assert c.call('FLUSHALL') == b'OK'
        eventually(lambda: s.info('memory')['used_memory'] < full and used_fits())
        assert c.call('MEMORY', 'STATS')[3] < 100 << 20
