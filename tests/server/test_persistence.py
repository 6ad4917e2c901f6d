"""RDB and AOF as a user of the server meets them: commands, restarts, refusals, what INFO and the log say."""
import os
import shutil
import signal
import subprocess
import tempfile
import time

import pytest
import redis

import mayfly
import redis_server
from mayfly import Raw, encode, eventually

memory_only = pytest.mark.engine('memory', 'the other engine keeps its data itself')
rocks_only = pytest.mark.engine('rocksdb', 'about that engine')

NO_AOF = ('--appendonly', 'no')
SLOW = ('--rdb-key-save-delay', 200_000)        # five keys a second: time to look at a snapshot
SLOWER = ('--rdb-key-save-delay', 10_000_000)   # … of few keys
DEBUG = ('--enable-debug-command', 'yes', '--enable-protected-configs', 'yes')


def persistence(c):
    return {k: v for k, v in (line.split(':', 1) for line in c.call('INFO', 'persistence').decode().splitlines()
                              if ':' in line)}


def no_job(c):
    info = persistence(c)
    return info['rdb_bgsave_in_progress'] == '0' and info['aof_rewrite_in_progress'] == '0' and info


def fast(c):
    """Lets a snapshot go on at full speed; what INFO says when it is done."""
    assert c.call('CONFIG', 'SET', 'rdb-key-save-delay', 0) == b'OK'
    return eventually(lambda: no_job(c))


def fill(r):
    """Something of every type, on both sides of the thresholds, with deadlines of keys and fields."""
    for n in 3, 1000:
        r.set(f'str{n}', b'x\x00' * n)
        r.rpush(f'list{n}', *[f'e{i}' * (i % 7 + 1) for i in range(n)])
        r.sadd(f'ints{n}', *range(n))
        r.sadd(f'set{n}', *[f'm{i}' for i in range(n)])
        r.hset(f'hash{n}', mapping={f'f{i}': f'v{i}' for i in range(n)})
        r.zadd(f'zset{n}', {f'z{i}': i / 3 for i in range(n)})
    for i in range(100):
        r.set(f'int{i}', i * 12345678901)
    r.expire('str3', 1000)
    r.pexpireat('list1000', 4_000_000_000_123)
    r.execute_command('HPEXPIREAT', 'hash3', 4_000_000_000_456, 'FIELDS', 1, 'f1')
    r.execute_command('HPEXPIREAT', 'hash1000', 4_000_000_000_789, 'FIELDS', 2, 'f1', 'f2')
    r.execute_command('SELECT', 3)
    r.set('elsewhere', 1)
    r.execute_command('SELECT', 0)


def look(r):
    """The whole data: a digest, and the deadlines, which it does not cover."""
    keys = sorted(r.keys())
    fields = {k: [r.execute_command('HPEXPIRETIME', k, 'FIELDS', 2, 'f1', 'f2') for k in ('hash3', 'hash1000')]
              for k in keys if k.startswith(b'hash')}
    return (r.execute_command('DEBUG', 'DIGEST'), r.dbsize(), [r.pexpiretime(k) for k in keys], fields)


def one(s, **options):
    """A client with a single connection: SELECT stays."""
    return redis.Redis(port=s.port, socket_timeout=30, single_connection_client=True, **options)


# -- commands --------------------------------------------------------------------------------------

def test_save_and_lastsave(server_factory):
    s = server_factory()
    with Raw(s.port) as c:
        before = c.call('LASTSAVE')
        assert abs(before - time.time()) < 60
        assert c.call('SET', 'k', 'v') == b'OK'
        assert persistence(c)['rdb_changes_since_last_save'] == '1'
        eventually(lambda: int(time.time()) > before)
        assert c.call('SAVE') == b'OK'
        assert c.call('LASTSAVE') > before
        info = persistence(c)
        assert info['rdb_changes_since_last_save'] == '0' and info['rdb_saves'] == '1'
        assert c.call('SAVE', 'x') == "ERR wrong number of arguments for 'save' command"
        assert c.call('LASTSAVE', 'x') == "ERR wrong number of arguments for 'lastsave' command"
    assert os.path.getsize(f'{s.dir}/dump.rdb') > 50
    assert 'DB saved on disk' in s.log


def test_bgsave(server_factory):
    s = server_factory(*SLOW)
    with Raw(s.port) as c:
        c.call('MSET', *[x for i in range(50) for x in (f'k{i}', i)])
        assert c.call('BGSAVE') == b'Background saving started'
        info = persistence(c)
        assert info['rdb_bgsave_in_progress'] == '1' and int(info['rdb_current_bgsave_time_sec']) >= 0
        again = 'ERR Background save already in progress'
        assert c.call('BGSAVE') == again and c.call('SAVE') == again and c.call('BGSAVE', 'SCHEDULE') == again
        assert c.call('BGSAVE', 'NOW') == 'ERR syntax error'
        assert c.call('BGSAVE', 'SCHEDULE', 'x') == 'ERR syntax error'
        info = eventually(lambda: (lambda i: int(i['current_save_keys_processed']) > 0 and i)(persistence(c)))
        assert info['current_save_keys_total'] == '50' and 0 < float(info['current_fork_perc']) < 100
        assert not os.path.exists(f'{s.dir}/dump.rdb')
        c.call('SET', 'later', 1)
        info = fast(c)
        assert info['rdb_last_bgsave_status'] == 'ok' and int(info['rdb_last_bgsave_time_sec']) >= 0
        assert info['rdb_changes_since_last_save'] == '1', 'what came after the moment is not saved'
        assert info['rdb_current_bgsave_time_sec'] == '-1' and info['rdb_saves'] == '1'
        assert [f for f in os.listdir(s.dir) if f.startswith('temp')] == []
    for line in 'Background saving started', 'DB saved on disk', 'Background saving terminated with success':
        assert line in s.log


def test_the_snapshot_is_of_one_moment(server_factory):
    """Everything is changed while it is saved: the file holds what was there before."""
    s = server_factory(*SLOW, *DEBUG)
    with one(s) as r, Raw(s.port) as c:
        fill(r)
        before = look(r)
        assert c.call('BGSAVE') == b'Background saving started'
        eventually(lambda: int(persistence(c)['current_save_keys_total']) > 100)
        for n in 3, 1000:
            r.append(f'str{n}', 'more')
            r.lpop(f'list{n}')
            r.sadd(f'ints{n}', 'word')
            r.delete(f'set{n}')
            r.hset(f'hash{n}', 'f1', 'new')
            r.zadd(f'zset{n}', {'z1': 99})
        for i in range(0, 100, 2):
            r.incr(f'int{i}')
        r.expire('int1', 5000)
        r.rename('int3', 'int5')
        r.execute_command('SWAPDB', 0, 3)
        r.flushdb()
        r.set('new', 1)
        assert fast(c)['rdb_last_bgsave_status'] == 'ok'
        assert c.call('DEBUG', 'RELOAD', 'NOSAVE') == b'OK'
        assert look(r) == before


@memory_only
def test_jobs_are_scheduled(server_factory):
    s = server_factory(*SLOW)
    with Raw(s.port) as c:
        c.call('MSET', *[x for i in range(50) for x in (f'k{i}', i)])
        assert c.call('BGSAVE') == b'Background saving started'
        assert c.call('BGREWRITEAOF') == b'Background append only file rewriting scheduled'
        info = persistence(c)
        assert (info['aof_rewrite_scheduled'], info['aof_rewrite_in_progress']) == ('1', '0')
        info = fast(c)
        eventually(lambda: persistence(c)['aof_rewrites'] == '1' and no_job(c))
        c.call('CONFIG', 'SET', 'rdb-key-save-delay', 200_000)
        assert c.call('BGREWRITEAOF') == b'Background append only file rewriting started'
        assert c.call('BGREWRITEAOF') == 'ERR Background append only file rewriting already in progress'
        assert c.call('BGSAVE').startswith('ERR Another child process is active (AOF?): can\'t BGSAVE right now. Use '
                                           'BGSAVE SCHEDULE in order to schedule a BGSAVE whenever possible.')
        assert c.call('BGSAVE', 'SCHEDULE') == b'Background saving scheduled'
        assert persistence(c)['aof_rewrite_in_progress'] == '1'
        assert c.call('SAVE') == b'OK', 'needs no snapshot'
        fast(c)
        info = eventually(lambda: (lambda i: i['rdb_saves'] == '3' and no_job(c))(persistence(c)))
        assert info['aof_last_bgrewrite_status'] == 'ok' and info['aof_rewrites'] == '2'
    assert 'Background AOF rewrite finished successfully' in s.log


@memory_only
def test_a_job_that_ends_by_flushall(server_factory):
    s = server_factory(*SLOW, *DEBUG)
    with Raw(s.port) as c:
        c.call('MSET', *[x for i in range(50) for x in (f'k{i}', i)])
        assert c.call('BGSAVE') == b'Background saving started'
        eventually(lambda: int(persistence(c)['current_save_keys_processed']) > 0)
        assert c.call('FLUSHALL') == b'OK'
        assert persistence(c)['rdb_bgsave_in_progress'] == '0'
        assert not os.path.exists(f'{s.dir}/dump.rdb')
        assert persistence(c)['rdb_last_bgsave_status'] == 'ok', 'killed on purpose'
        # With save points the file is emptied, too.
        c.call('CONFIG', 'SET', 'save', '3600 1', 'rdb-key-save-delay', 0)
        c.call('SET', 'k', 'v')
        assert c.call('SAVE') == b'OK' and b'\x01k\x01v' in open(f'{s.dir}/dump.rdb', 'rb').read()
        assert c.call('FLUSHALL') == b'OK'
        assert b'\x01k\x01v' not in open(f'{s.dir}/dump.rdb', 'rb').read()
        eventually(lambda: no_job(c))
    eventually(lambda: not [f for f in os.listdir(s.dir) if f.startswith('temp')])     # a thread removes them


def save_a_huge_key(c):
    """Begins a snapshot of a list of 200 000 elements (and a small one); the digest of what it saves."""
    c.call('RPUSH', 'small', 1)
    for i in range(10):
        c.call('RPUSH', 'huge', *[f'{i}:{j}' for j in range(20_000)])
    digest = c.call('DEBUG', 'DIGEST')
    assert c.call('BGSAVE') == b'Background saving started'
    eventually(lambda: persistence(c)['current_save_keys_total'] == '2')
    return digest


def test_commands_that_change_a_huge_key_wait(server_factory):
    """The writer waits until the key was saved; other clients continue."""
    s = server_factory(*SLOWER, *DEBUG)
    with Raw(s.port) as c, Raw(s.port) as waits, Raw(s.port) as also:
        digest = save_a_huge_key(c)
        waits.send(encode('RPUSH', 'huge', 'more') + encode('LLEN', 'huge') + encode('GET', 'x'))
        also.command('LPOP', 'huge')
        if mayfly.ENGINE == 'memory':
            assert waits.silent(0.3) and also.silent(0.1)
        assert c.call('LLEN', 'huge') in (200_000, 200_001) and c.call('RPUSH', 'small', 2) == 2
        assert c.call('DEL', 'nothing') == 0
        fast(c)
        assert waits.reply() == 200_001 and waits.reply() in (200_000, 200_001) and waits.reply() is None
        assert also.reply() == b'0:0'
        assert c.call('LLEN', 'huge') == 200_000
        assert c.call('DEBUG', 'RELOAD', 'NOSAVE') == b'OK'
        assert c.call('DEBUG', 'DIGEST') == digest


def cpu_seconds(c):
    info = dict(line.split(':', 1) for line in c.call('INFO', 'cpu').decode().splitlines() if ':' in line)
    return float(info['used_cpu_user']) + float(info['used_cpu_sys'])


@memory_only
def test_a_large_request_that_waits_for_a_huge_key_is_not_copied(server_factory):
    """It is tried again every few milliseconds, whatever its size: fifty times cost less than running it three times."""
    s = server_factory(*SLOWER, *NO_AOF)
    with Raw(s.port, 60) as c, Raw(s.port, 60) as waits:
        big, more = b'b' * (2 << 20), b'm' * (64 << 20)
        assert c.call('SET', 'huge', big) == b'OK'
        before = cpu_seconds(c)
        assert c.call('APPEND', 'other', more) == len(more)
        once = cpu_seconds(c) - before
        assert c.call('DEL', 'other') == 1
        assert c.call('BGSAVE') == b'Background saving started'
        eventually(lambda: persistence(c)['current_save_keys_total'] == '1')
        waits.command('APPEND', 'huge', more)
        eventually(lambda: int(c.call('INFO', 'stats').split(b'total_net_input_bytes:')[1].split()[0]) > 2 * len(more))
        assert waits.silent(0.1)
        before = cpu_seconds(c)
        for _ in range(50):
            time.sleep(0.006)   # so that each PING's turn of the loop tries it again
            assert c.call('PING') == b'PONG'
        assert cpu_seconds(c) - before < 3 * once
        fast(c)
        assert waits.reply() == len(big) + len(more)


def test_a_huge_key_that_goes_does_not_wait(server_factory):
    s = server_factory(*SLOWER, *DEBUG)
    with Raw(s.port) as c:
        for key in 'a', 'b', 'c':
            for i in range(5):
                c.call('RPUSH', key, *[f'{i}:{j}' for j in range(20_000)])
        digest = c.call('DEBUG', 'DIGEST')
        assert c.call('BGSAVE') == b'Background saving started'
        eventually(lambda: persistence(c)['current_save_keys_total'] == '3')
        assert c.call('DEL', 'a') == 1 and c.call('SET', 'b', 'x') == b'OK' and c.call('FLUSHDB') == b'OK'
        assert persistence(c)['rdb_bgsave_in_progress'] == '1'
        fast(c)
        assert c.call('DEBUG', 'RELOAD', 'NOSAVE') == b'OK'
        assert c.call('DEBUG', 'DIGEST') == digest


def test_debug_reload(server_factory):
    s = server_factory(*DEBUG)
    with one(s) as r, Raw(s.port) as c:
        fill(r)
        before = look(r)
        assert c.call('DEBUG', 'RELOAD') == b'OK' and look(r) == before
        assert 'DB reloaded by DEBUG RELOAD' in s.log
        c.call('SET', 'int1', 'changed')
        c.call('SET', 'more', 1)
        assert c.call('DEBUG', 'RELOAD', 'NOFLUSH', 'NOSAVE') == \
            'ERR Error trying to load the RDB dump, check server logs.', 'a key is there already'
        assert c.call('DEBUG', 'RELOAD', 'noflush', 'nosave', 'merge') == b'OK'
        assert c.call('GET', 'int1') == b'12345678901' and c.call('GET', 'more') == b'1'
        assert c.call('DEBUG', 'RELOAD', 'NOSAVE') == b'OK' and look(r) == before
        assert c.call('DEBUG', 'RELOAD', 'x') == \
            'ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.'
        os.truncate(f'{s.dir}/dump.rdb', 100)
        assert c.call('DEBUG', 'RELOAD', 'NOSAVE').startswith('ERR Error trying to load the RDB dump')


@memory_only
def test_debug_loadaof(server_factory):
    s = server_factory(*DEBUG)
    with one(s) as r, Raw(s.port) as c:
        fill(r)
        before = look(r)
        assert c.call('DEBUG', 'LOADAOF') == b'OK' and look(r) == before
        assert c.call('BGREWRITEAOF') == b'Background append only file rewriting started'
        eventually(lambda: no_job(c))
        r.incr('int1')
        before = look(r)
        assert c.call('DEBUG', 'LOADAOF') == b'OK' and look(r) == before
        assert 'Append Only File loaded by DEBUG LOADAOF' in s.log
        c.call('CONFIG', 'SET', 'appendonly', 'no')
        assert c.call('DEBUG', 'LOADAOF') == b'OK' and look(r) == before, 'the files are still there'
    s.check()


# -- restarts --------------------------------------------------------------------------------------

def everything_is_back(s, how):
    with one(s) as r:
        fill(r)
        before = look(r)
    s.restart(how)
    with one(s) as r:
        assert look(r) == before


@pytest.mark.parametrize('how', [signal.SIGTERM, signal.SIGKILL], ids=['SIGTERM', 'SIGKILL'])
@pytest.mark.parametrize('sync', ['always', 'everysec', 'no'])
def test_restart_keeps_the_data(server_factory, sync, how):
    s = server_factory('--appendfsync', sync, *DEBUG)
    everything_is_back(s, how)
    everything_is_back(s, how)


@memory_only
@pytest.mark.parametrize('preamble', ['yes', 'no'])
def test_restart_after_a_rewrite(server_factory, preamble):
    s = server_factory('--aof-use-rdb-preamble', preamble, *DEBUG)
    with one(s) as r, Raw(s.port) as c:
        fill(r)
        assert c.call('BGREWRITEAOF') == b'Background append only file rewriting started'
        r.set('int7', 'after')
        eventually(lambda: no_job(c))
        r.delete('int8')
        before = look(r)
    bases = [f for f in os.listdir(f'{s.dir}/appendonlydir') if '.base.' in f]
    assert len(bases) == 1 and bases[0].endswith('rdb' if preamble == 'yes' else 'aof')
    s.restart(signal.SIGKILL)
    with one(s) as r:
        assert look(r) == before
        assert 'DB loaded from append only file: ' in s.log
    s.restart()
    with one(s) as r:
        assert look(r) == before


@memory_only
def test_restart_from_a_snapshot(server_factory):
    s = server_factory('--save', '3600 1', *NO_AOF, *DEBUG)
    everything_is_back(s, signal.SIGTERM)
    assert 'DB loaded from disk: ' in s.log
    assert not os.path.exists(f'{s.dir}/appendonlydir')
    info = s.info('persistence')
    assert info['rdb_last_load_keys_loaded'] > 100 and info['rdb_last_load_keys_expired'] == 0
    with one(s) as r:
        r.set('lost', 1)
    s.restart(signal.SIGKILL)
    with one(s) as r:
        assert not r.exists('lost')


@memory_only
def test_without_options_it_is_durable(tmp_path):
    """Exactly as a newcomer starts it; killed, not stopped."""
    port = mayfly.free_port()

    def start():
        proc = subprocess.Popen([mayfly.BINARY, '--port', str(port)], cwd=tmp_path, stdout=subprocess.DEVNULL)
        eventually(lambda: ready(port))
        return proc

    def ready(at):
        try:
            with Raw(at) as c:
                return c.call('PING') == b'PONG'
        except OSError:
            return False
    proc = start()
    try:
        with Raw(port) as c:
            assert c.call('SET', 'k', 'v', 'PX', 4_000_000) == b'OK' and c.call('RPUSH', 'l', 1, 2) == 2
        proc.kill()
        proc.wait()
        proc = start()
        with Raw(port) as c:
            assert c.call('GET', 'k') == b'v' and c.call('LRANGE', 'l', 0, -1) == [b'1', b'2']
            assert 3_900_000 < c.call('PTTL', 'k') <= 4_000_000
            assert persistence(c)['aof_enabled'] == '1'
    finally:
        proc.kill()
        proc.wait()


def save_with(server_factory, *commands, args=()):
    """A dump.rdb with what these commands make, and the folder that holds it."""
    s = server_factory('--dbfilename', 'made.rdb', *args)
    with Raw(s.port) as c:
        for command in commands:
            assert not isinstance(c.call(*command), mayfly.ReplyError)
        assert c.call('SAVE') == b'OK'
    return f'{s.dir}/made.rdb'


@memory_only
def test_the_aof_begins_with_the_snapshot(server_factory, tmp_path):
    """A dump.rdb and no AOF: Redis would begin empty."""
    made = save_with(server_factory, ('SET', 'k', 'v'), ('RPUSH', 'l', 1, 2))
    shutil.copy(made, tmp_path / 'dump.rdb')
    s = server_factory(directory=str(tmp_path))
    assert s.log.index('DB loaded from disk') < s.log.index('Background AOF rewrite finished') < \
        s.log.index('Ready to accept')
    with Raw(s.port) as c:
        assert c.call('GET', 'k') == b'v' and c.call('RPUSH', 'l', 3) == 3
        assert persistence(c)['aof_enabled'] == '1' and persistence(c)['aof_pending_rewrite'] == '0'
    os.unlink(tmp_path / 'dump.rdb')
    s.restart(signal.SIGKILL)
    with Raw(s.port) as c:
        assert c.call('GET', 'k') == b'v' and c.call('LLEN', 'l') == 3


@memory_only
def test_a_crash_before_the_aof_has_begun(server_factory, tmp_path):
    """… leaves the snapshot what it was: the only place where the data is."""
    made = save_with(server_factory, *[('SET', f'k{i}', i) for i in range(50)])
    shutil.copy(made, tmp_path / 'dump.rdb')
    s = server_factory(*SLOW, directory=str(tmp_path), wait=False)
    eventually(lambda: 'Background append only file rewriting started' in s.log)
    with Raw(s.port) as c:
        assert c.call('GET', 'k1') == 'LOADING Redis is loading the dataset in memory'
        assert persistence(c)['loading'] == '1'
    s.proc.kill()
    s.proc.wait()
    s = server_factory(directory=str(tmp_path))
    with Raw(s.port) as c:
        assert c.call('DBSIZE') == 50


@memory_only
def test_expired_keys_in_a_snapshot(server_factory, tmp_path):
    """A primary ignores them; load-expired keeps them, though they stay hidden."""
    def saved_in_time():
        at = time.time() + 1.5
        made = save_with(server_factory, ('SET', 'dies', 1, 'PXAT', int(at * 1000)), ('SET', 'lives', 1, 'EX', 1000),
                         ('SET', 'stays', 1), ('HSET', 'h', 'dies', 1, 'stays', 2),
                         ('HPEXPIREAT', 'h', int(at * 1000), 'FIELDS', 1, 'dies'))
        assert time.time() < at, 'a slow machine: once more'
        shutil.copy(made, tmp_path / 'dump.rdb')
        return at
    at = mayfly.in_one_of(5, saved_in_time)
    time.sleep(max(0, at + 0.1 - time.time()))
    s = server_factory(*NO_AOF, directory=str(tmp_path))
    info = s.info('persistence')
    assert (info['rdb_last_load_keys_loaded'], info['rdb_last_load_keys_expired']) == (3, 1)
    with one(s) as r:
        assert r.dbsize() == 3 and r.hgetall('h') == {b'stays': b'2'} and r.ttl('lives') > 900
    assert s.stop() == 0
    s = server_factory(*NO_AOF, '--load-expired', 'yes', directory=str(tmp_path))
    info = s.info('persistence')
    assert (info['rdb_last_load_keys_loaded'], info['rdb_last_load_keys_expired']) == (4, 0)
    with one(s) as r:
        assert r.get('dies') is None
        eventually(lambda: r.dbsize() == 3)


@memory_only
def test_expired_keys_in_the_aof(server_factory):
    s = server_factory(*DEBUG)
    with one(s) as r:
        r.execute_command('DEBUG', 'SET-ACTIVE-EXPIRE', 0)
        r.set('lazy', 1, px=50)
        r.set('untouched', 1, px=50)
        r.set('replaced', 'old', px=50)
        time.sleep(0.1)
        assert r.get('lazy') is None
        r.append('replaced', 'new')
    text = b''.join(open(f'{s.dir}/appendonlydir/{f}', 'rb').read() for f in sorted(os.listdir(f'{s.dir}/appendonlydir')))
    assert b'DEL\r\n$4\r\nlazy' in text and b'DEL\r\n$8\r\nreplaced' in text
    assert b'DEL\r\n$9\r\nuntouched' not in text and b'PXAT' in text and b'\r\nPX\r\n' not in text
    s.restart(signal.SIGKILL)
    with one(s) as r:
        assert r.get('replaced') == b'new' and r.ttl('replaced') == -1
        assert r.get('untouched') is None and r.get('lazy') is None
        eventually(lambda: r.dbsize() == 1)


# -- save points -----------------------------------------------------------------------------------

@memory_only
def test_save_points(server_factory):
    s = server_factory('--save', '1 3', *NO_AOF)
    with Raw(s.port) as c:
        time.sleep(2.2)
        c.call('MSET', 'a', 1, 'b', 2)
        time.sleep(0.5)
        assert not os.path.exists(f'{s.dir}/dump.rdb')
        c.call('SET', 'c', 3)
        eventually(lambda: os.path.exists(f'{s.dir}/dump.rdb'))
        assert '3 changes in 1 seconds. Saving...' in s.log
        info = eventually(lambda: no_job(c))
        assert info['rdb_changes_since_last_save'] == '0' and info['rdb_saves'] == '1'


CHANGES = """
RPUSH l a b c; LTRIM l 0 -1; LTRIM l 0 1; LTRIM l 5 6; RPUSH l a b c a a; LPUSHX l x y; LINSERT l BEFORE b y; LREM l 0 a
LSET l 0 z; LPOP l 2; RPOP l; LPOP l 0; RPUSH l a b c d; LMOVE l l LEFT RIGHT; LMOVE l m LEFT LEFT; RPOPLPUSH l m
BLMOVE l m LEFT LEFT 1; RPUSH l a b c; LMPOP 1 l LEFT COUNT 2; BLPOP l 1; LPOP l 9; COPY m n; RENAME m o; RENAMENX o m
MOVE m 5; SADD s a b c d; SADD s a b e; SREM s a b; SREM s a; SMOVE s t c; SPOP s; SADD s a b c; SPOP s 2; SPOP s 9
SADD s a b c; SUNIONSTORE d s t; SDIFFSTORE d t t; SORT s ALPHA STORE d; SORT no STORE d; HSET h a 1 b 2; HSET h a 1 c 3
HMSET h a 1 b 2; HSETNX h a 1; HDEL h a b no; HINCRBY h n 1; ZADD z 1 a 2 b 3 c; ZADD z 1 a 5 b 6 d; ZINCRBY z 1 a
ZREM z a b no; ZADD z 1 a 2 b 3 c; ZPOPMAX z 2; ZADD z 1 a 2 b 3 c; ZMPOP 1 z MIN COUNT 2; ZREMRANGEBYRANK z 0 1
ZADD z 1 a 2 b; BZPOPMIN z 1; ZUNIONSTORE d 1 z; ZRANGESTORE d z 0 -1; PFADD p a b c; PFADD p a; PFADD p a d; PFADD q
PFMERGE q p; PFCOUNT p; GEOADD g 1 1 a 2 2 b; GEOSEARCHSTORE d g FROMLONLAT 1 1 BYRADIUS 1000 km
GEORADIUS g 9 9 1 m STORE d; SETBIT b 1 1; BITFIELD b SET u8 0 1 INCRBY u8 0 1; MSET a 1 b 2; DEL a b no; XADD x 1-1 a b; XADD x 2-1 a b
XDEL x 1-1 2-1; SWAPDB 0 0; SWAPDB 0 1; SWAPDB 0 1
"""


@redis_server.needed
def test_changes_are_counted_as_redis_counts_them(server, redis_factory):
    """Save points go by their number."""
    def counts(port):
        told = []
        with Raw(port) as c:
            before = int(persistence(c)['rdb_changes_since_last_save'])
            for step in CHANGES.replace('\n', '; ').strip('; ').split('; '):
                c.call(*step.split())
                after = int(persistence(c)['rdb_changes_since_last_save'])
                told.append((step, after - before))
                before = after
        return told
    assert counts(server.port) == counts(redis_factory().port)


@memory_only
def test_a_save_that_fails_refuses_writes(server_factory):
    mayfly.in_one_of(3, lambda: save_that_fails(server_factory('--save', '3600 1', *NO_AOF, *DEBUG)))


def save_that_fails(s):
    with Raw(s.port) as c:
        c.call('SET', 'k', 'v')
        deadline = time.monotonic() + 1.5       # by then it has failed, or the machine is slow
        c.call('SET', 'dies', 'v', 'PX', 1500)
        c.call('PFADD', 'p', 'a', 'b')
        hll = c.call('GET', 'p')
        os.mkdir(f'{s.dir}/dir.rdb')
        assert c.call('CONFIG', 'SET', 'dbfilename', 'dir.rdb') == b'OK'
        assert c.call('SAVE') == 'ERR'
        assert c.call('SET', 'k', 'v2') == b'OK', 'a SAVE that fails is its caller\'s concern'
        assert c.call('BGSAVE') == b'Background saving started'
        info = eventually(lambda: (lambda i: i['rdb_last_bgsave_status'] == 'err' and i)(persistence(c)))
        assert int(info['rdb_changes_since_last_save']) == 6
        refused = c.call('SET', 'k', 'v3')
        assert refused.startswith('MISCONF Redis is configured to save RDB snapshots, but it\'s currently unable to '
                                  'persist to disk. Commands that may modify the data set are disabled, because')
        assert c.call('GET', 'k') == b'v2', 'reads go on'
        assert c.call('PFCOUNT', 'p') == 2 and c.call('GET', 'p') == hll, 'which leave nothing behind'
        assert c.call('PUBLISH', 'c', 'm') == 0 and c.call('EVAL', 'return redis.call("publish", "c", "m")', 0) == 0
        time.sleep(max(0, deadline + 0.2 - time.monotonic()))       # it would be reclaimed by then
        assert c.call('GET', 'dies') is None and c.call('DBSIZE') == 3, 'hidden, and left'
        c.call('CONFIG', 'SET', 'stop-writes-on-bgsave-error', 'no')
        assert c.call('SET', 'k', 'v3') == b'OK'
        c.call('CONFIG', 'SET', 'stop-writes-on-bgsave-error', 'yes')
        assert c.call('SET', 'k', 'v4').startswith('MISCONF')
        assert c.call('SHUTDOWN') == 'ERR Errors trying to SHUTDOWN. Check logs.'
        s.proc.send_signal(signal.SIGTERM)
        eventually(lambda: 'SIGTERM received but errors trying to shut down the server' in s.log)
        assert c.call('GET', 'k') == b'v3'
        c.call('CONFIG', 'SET', 'dbfilename', 'good.rdb')
        assert c.call('SAVE') == b'OK' and c.call('SET', 'k', 'v4') == b'OK'
        eventually(lambda: c.call('DBSIZE') == 2)
    assert 'Background saving error' in s.log and "can't exit" in s.log


# -- loading ---------------------------------------------------------------------------------------

@memory_only
def test_loading(server_factory, tmp_path):
    made = save_with(server_factory, *[('SET', f'k{i}', i) for i in range(100)])
    shutil.copy(made, tmp_path / 'dump.rdb')
    slow = ('--key-load-delay', 100_000, *NO_AOF, *DEBUG)
    s = server_factory(*slow, '--requirepass', 'secret', directory=str(tmp_path), wait=False)
    with eventually(lambda: connected(s.port)) as c:
        loading = 'LOADING Redis is loading the dataset in memory'
        assert c.call('GET', 'k1') == 'NOAUTH Authentication required.'
        assert c.call('AUTH', 'secret') == b'OK'
        for command in ('GET', 'k1'), ('SET', 'k', 'v'), ('PING',), ('DBSIZE',), ('BGSAVE',), ('SAVE',), ('FLUSHALL',), \
                ('BGREWRITEAOF',), ('DEBUG', 'RELOAD'), ('DEBUG', 'LOADAOF'):
            assert c.call(*command) == loading, command
        for directive in ('dir', str(tmp_path)), ('appendonly', 'no'), ('repl-diskless-load', 'swapdb'):
            assert c.call('CONFIG', 'SET', 'maxmemory-samples', 7, *directive) == loading, directive
        assert c.call('CONFIG', 'GET', 'maxmemory-samples') == [b'maxmemory-samples', b'5']
        assert c.call('GET') == "ERR wrong number of arguments for 'get' command"
        info = persistence(c)
        assert info['loading'] == '1' and info['loading_total_bytes'] == str(os.path.getsize(tmp_path / 'dump.rdb'))
        for field in 'loading_start_time', 'loading_loaded_bytes', 'loading_loaded_perc', 'loading_eta_seconds', \
                'loading_rdb_used_mem':
            assert float(info[field]) >= 0
        assert c.call('ECHO', 'x') == b'x' and c.call('CONFIG', 'GET', 'port') and c.call('LASTSAVE') > 0
        eventually(lambda: float(persistence(c)['loading_loaded_perc']) > 10)
        assert c.call('CONFIG', 'SET', 'key-load-delay', 0) == b'OK'
        s.wait_ready()
        assert c.call('DBSIZE') == 100 and persistence(c)['loading'] == '0'
        assert 'loading_start_time' not in persistence(c)
    assert s.stop() == 0
    size = os.path.getsize(tmp_path / 'dump.rdb')
    # SIGTERM, or SHUTDOWN, while loading: nothing is saved over the file.
    for end in (lambda s, c: s.proc.send_signal(signal.SIGTERM), lambda s, c: c.command('SHUTDOWN'),
                lambda s, c: c.command('SHUTDOWN', 'SAVE')):
        s = server_factory(*slow, '--save', '1 1', directory=str(tmp_path), wait=False)
        with eventually(lambda: connected(s.port)) as c:
            eventually(lambda: persistence(c)['loading'] == '1')
            end(s, c)
            assert s.proc.wait(mayfly.PATIENCE) == 0
        assert os.path.getsize(tmp_path / 'dump.rdb') == size


def connected(port):
    try:
        return Raw(port)
    except OSError:
        return None


@memory_only
@pytest.mark.parametrize('aof', ['yes', 'no'])
def test_a_damaged_snapshot(server_factory, tmp_path, aof):
    made = save_with(server_factory, *[('SET', f'key{i}', 'x' * 50) for i in range(50)])
    data = open(made, 'rb').read()
    for damaged, why in (data[:-20], 'unexpected end'), (data[:300] + b'\x7f' + data[301:], ''), \
            (b'', 'this is not an RDB file: it is empty'), (b'hello', 'this is not an RDB file'), \
            (b'RED', 'unexpected end'), (b'REDIS00x', 'this is not an RDB file'), (data + b'x', ''):
        (tmp_path / 'dump.rdb').write_bytes(damaged)
        s = server_factory('--appendonly', aof, directory=str(tmp_path), wait=False)
        assert s.proc.wait(mayfly.PATIENCE) == 1
        assert 'Error loading' in s.log and 'Exiting.' in s.log and 'Ready' not in s.log
        assert why in s.log and 'bye bye' not in s.log, s.log
        assert (tmp_path / 'dump.rdb').read_bytes() == damaged, 'untouched'
        assert not os.path.exists(tmp_path / 'appendonlydir' / 'appendonly.aof.manifest')
    (tmp_path / 'dump.rdb').unlink()
    (tmp_path / 'dump.rdb').mkdir()
    s = server_factory('--appendonly', aof, directory=str(tmp_path), wait=False)
    assert s.proc.wait(mayfly.PATIENCE) == 1 and 'Is a directory' in s.log


@memory_only
def test_debug_aof_flush_sleep(server_factory):
    with Raw(server_factory(*DEBUG).port) as c:
        assert c.call('DEBUG', 'AOF-FLUSH-SLEEP', 200_000) == b'OK'
        start = time.monotonic()
        assert c.call('SET', 'key', 'value') == b'OK'
        assert time.monotonic() - start >= 0.2, 'written before it is answered'
        assert c.call('DEBUG', 'AOF-FLUSH-SLEEP', 0) == b'OK'


@memory_only
def test_one_folder_one_server(server_factory):
    s = server_factory()
    with Raw(s.port) as c:
        assert c.call('SET', 'key', 'value') == b'OK'
        other = server_factory(directory=s.dir, wait=False)
        assert other.proc.wait(mayfly.PATIENCE) == 1 and 'another server uses' in other.log
        assert c.call('SET', 'key', 'later') == b'OK'
    s.restart(signal.SIGKILL)
    with Raw(s.port) as c:
        assert c.call('GET', 'key') == b'later'


@memory_only
def test_a_damaged_aof(server_factory):
    s = server_factory()
    with Raw(s.port) as c:
        for i in range(20):
            c.call('SET', f'key{i}', 'x' * 50)
    assert s.stop() == 0
    path = f'{s.dir}/appendonlydir/appendonly.aof.1.incr.aof'
    good = open(path, 'rb').read()
    with open(path, 'wb') as f:
        f.write(good[:500] + bytes([good[500] ^ 1]) + good[501:])
    s.start(wait=False)
    assert s.proc.wait(mayfly.PATIENCE) == 1 and 'Exiting.' in s.log
    # A torn end: the rest is there, or nothing at all if so configured.
    with open(path, 'wb') as f:
        f.write(good[:-10])
    s.args += ['--aof-load-truncated', 'no']
    s.start(wait=False)
    assert s.proc.wait(mayfly.PATIENCE) == 1 and 'Exiting.' in s.log
    s.args[-1] = 'yes'
    s.start()
    with Raw(s.port) as c:
        assert c.call('DBSIZE') == 19


@memory_only
@pytest.mark.skipif(not shutil.which('redis-server'), reason='needs redis-server')
def test_streams_and_functions_of_redis(server_factory, tmp_path):
    port = mayfly.free_port()
    proc = subprocess.Popen(['redis-server', '--port', str(port), '--save', '', '--dir', str(tmp_path)],
                            stdout=subprocess.DEVNULL)
    with eventually(lambda: connected(port)) as c:
        c.call('SET', 'k', 'v')
        c.call('XADD', 'stream', '*', 'f', 'v')
        c.call('FUNCTION', 'LOAD', "#!lua name=l\nredis.register_function('f', function() return 1 end)")
        assert c.call('SAVE') == b'OK'
    proc.kill()
    proc.wait()
    s = server_factory(directory=str(tmp_path))
    with Raw(s.port) as c:
        assert c.call('DBSIZE') == 2 and c.call('GET', 'k') == b'v'
        assert c.call('XLEN', 'stream') == 1 and c.call('FCALL', 'f', 0) == 1


# -- the AOF at run time ---------------------------------------------------------------------------

@memory_only
def test_appendonly_on_and_off(server_factory):
    s = server_factory(*NO_AOF, *SLOW, *DEBUG)
    with one(s) as r, Raw(s.port) as c:
        fill(r)
        assert persistence(c)['aof_enabled'] == '0' and 'aof_current_size' not in persistence(c)
        assert c.call('CONFIG', 'SET', 'appendonly', 'yes') == b'OK'
        info = persistence(c)
        assert info['aof_enabled'] == '1' and info['aof_pending_rewrite'] == '1'
        assert info['aof_rewrite_in_progress'] == '1'
        r.set('meanwhile', 1)
        assert c.call('SHUTDOWN') == 'ERR Errors trying to SHUTDOWN. Check logs.', 'the files are not complete'
        assert fast(c)['aof_pending_rewrite'] == '0'
        r.set('after', 1)
        before = look(r)
        s.proc.kill()
        s.proc.wait()
        s.args += ['--appendonly', 'yes', '--rdb-key-save-delay', '0']
        s.start()
    with one(s) as r, Raw(s.port) as c:
        assert look(r) == before
        assert c.call('CONFIG', 'SET', 'appendonly', 'no') == b'OK'
        assert persistence(c)['aof_enabled'] == '0'
        r.set('not logged', 1)
        # On again: what was not logged is in the new base.
        assert c.call('CONFIG', 'SET', 'appendonly', 'yes') == b'OK'
        eventually(lambda: persistence(c)['aof_pending_rewrite'] == '0')
        r.set('logged', 1)
        before = look(r)
    s.restart(signal.SIGKILL)
    with one(s) as r:
        assert look(r) == before


@memory_only
def test_appendonly_off_while_its_first_base_is_written(server_factory):
    s = server_factory(*NO_AOF, *SLOW)
    with Raw(s.port) as c:
        c.call('MSET', *[x for i in range(50) for x in (f'k{i}', i)])
        for _ in range(3):
            assert c.call('CONFIG', 'SET', 'appendonly', 'yes') == b'OK'
            eventually(lambda: int(persistence(c)['current_save_keys_processed']) > 0)
            assert c.call('CONFIG', 'SET', 'appendonly', 'no') == b'OK'
            info = persistence(c)
            assert (info['aof_enabled'], info['aof_rewrite_in_progress'], info['aof_rewrite_scheduled']) == ('0', '0', '0')
        with open(f'{s.dir}/appendonlydir/appendonly.aof.manifest') as f:
            assert 'file ' not in f.read()
        # While something else is under way it has to wait.
        eventually(lambda: c.call('BGSAVE') == b'Background saving started')
        assert c.call('CONFIG', 'SET', 'appendonly', 'yes') == b'OK'
        assert persistence(c)['aof_rewrite_scheduled'] == '1'
        assert c.call('SET', 'k', 'v') == b'OK'
        fast(c)
        eventually(lambda: persistence(c)['aof_pending_rewrite'] == '0' and no_job(c))
    s.proc.kill()
    s.proc.wait()
    s.args += ['--appendonly', 'yes']
    s.start()
    with Raw(s.port) as c:
        assert c.call('DBSIZE') == 51


@memory_only
def test_bgrewriteaof_without_aof(server_factory):
    """As in Redis: a base is written, and that is all."""
    s = server_factory(*NO_AOF)
    with Raw(s.port) as c:
        c.call('SET', 'k', 'v')
        assert c.call('BGREWRITEAOF') == b'Background append only file rewriting started'
        assert eventually(lambda: no_job(c))['aof_enabled'] == '0'
        c.call('SET', 'later', 1)
    assert s.stop() == 0
    s.start()
    assert 'There is an append only file' in s.log and 'appendonly is no' in s.log
    assert s.stop() == 0
    s.args += ['--appendonly', 'yes']
    s.start()
    with Raw(s.port) as c:
        assert c.call('DBSIZE') == 1


@memory_only
def test_automatic_rewrite(server_factory):
    def rewritten():
        info = no_job(c)
        return info and int(info['aof_current_size']) < 100_000 and info['aof_rewrites']

    s = server_factory('--auto-aof-rewrite-min-size', '100kb', '--auto-aof-rewrite-percentage', 100)
    with Raw(s.port) as c:
        for _ in range(30):
            c.call('SET', 'k', 'x' * 10_000)
        rewrites = eventually(rewritten)        # once, or oftener if the first one came in the middle
        assert rewrites in '123'
        assert 'Starting automatic rewriting of AOF on' in s.log
        c.call('CONFIG', 'SET', 'auto-aof-rewrite-percentage', 0)
        for _ in range(30):
            c.call('SET', 'k', 'x' * 10_000)
        time.sleep(0.3)
        assert persistence(c)['aof_rewrites'] == rewrites
    s.restart(signal.SIGKILL)
    with Raw(s.port) as c:
        assert c.call('STRLEN', 'k') == 10_000


@memory_only
def test_a_rewrite_that_fails(server_factory):
    s = server_factory()
    with Raw(s.port) as c:
        c.call('SET', 'k', 'v')
        os.mkdir(f'{s.dir}/appendonlydir/appendonly.aof.1.base.rdb')
        for _ in range(3):
            assert c.call('BGREWRITEAOF') == b'Background append only file rewriting started'
            info = eventually(lambda: no_job(c))
            assert info['aof_last_bgrewrite_status'] == 'err'
        assert info['aof_rewrites_consecutive_failures'] == '3'
        assert 'will retry in 1 minutes' in s.log
        assert c.call('SET', 'k2', 'v') == b'OK', 'the files of before go on'
        os.rmdir(f'{s.dir}/appendonlydir/appendonly.aof.1.base.rdb')
        assert c.call('BGREWRITEAOF') == b'Background append only file rewriting started'
        info = eventually(lambda: no_job(c))
        assert info['aof_last_bgrewrite_status'] == 'ok' and info['aof_rewrites_consecutive_failures'] == '0'
    s.restart(signal.SIGKILL)
    with Raw(s.port) as c:
        assert c.call('DBSIZE') == 2


@pytest.fixture
def small_disk():
    """The folder of a file system with little room, and a function that gives it more."""
    where = tempfile.mkdtemp(prefix='mayfly-full-')
    made = subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', where], capture_output=True, check=False)
    if made.returncode:
        os.rmdir(where)
        pytest.skip('no tmpfs here')
    yield where, lambda: subprocess.run(['mount', '-o', 'remount,size=8m', where], check=True)
    subprocess.run(['umount', '-l', where], check=True)
    os.rmdir(where)


@memory_only
@pytest.mark.parametrize('sync', ['always', 'everysec'])
def test_a_full_disk(small_disk, server_factory, sync):
    """What can't be written to the AOF is not answered OK; reads are answered; with room again, writes continue."""
    where, give_room = small_disk
    s = server_factory('--appendfsync', sync, '--auto-aof-rewrite-percentage', 0, directory=where)
    with Raw(s.port) as c, Raw(s.port) as reader:
        c.call('SET', 'k', 'v')
        reply = b'OK'
        for n in range(100):
            reply = c.call('SET', f'k{n}', 'x' * 50_000)
            if reply != b'OK':
                break
        assert reply.startswith('MISCONF Errors writing to the AOF file: No space left on device')
        assert c.call('SET', 'k', 'no').startswith('MISCONF Errors writing to the AOF file')
        assert reader.call('GET', 'k') == b'v' and persistence(c)['aof_last_write_status'] == 'err'
        assert c.call('SHUTDOWN') == 'ERR Errors trying to SHUTDOWN. Check logs.'
        assert c.call('BGREWRITEAOF') == b'Background append only file rewriting started'
        assert eventually(lambda: no_job(c))['aof_last_bgrewrite_status'] == 'err'
        give_room()
        eventually(lambda: c.call('SET', 'k', 'yes') == b'OK')
        assert persistence(c)['aof_last_write_status'] == 'ok'
        size = c.call('DBSIZE')
    s.restart(signal.SIGKILL)
    with Raw(s.port) as c:
        assert c.call('DBSIZE') == size and c.call('GET', 'k') == b'yes'


# -- shutdown --------------------------------------------------------------------------------------

@pytest.mark.parametrize('save, options, saves', [
    ('', '', False), ('3600 1', '', True), ('3600 1', 'NOSAVE', False), ('', 'SAVE', True), ('3600 1', 'NOW FORCE', True),
])
def test_shutdown_saves(server_factory, save, options, saves):
    s = server_factory(*DEBUG, '--save', save)
    with Raw(s.port) as c:
        c.call('SET', 'k', 'v')
        assert c.command('SHUTDOWN', *options.split()).closed()
    assert s.proc.wait(mayfly.PATIENCE) == 0
    assert os.path.exists(f'{s.dir}/dump.rdb') == saves
    assert ('Saving the final RDB snapshot before exiting.' in s.log) == saves


@pytest.mark.parametrize('directive, saves', [('default', True), ('nosave', False)])
def test_signals_save(server_factory, directive, saves):
    s = server_factory('--save', '3600 1', '--shutdown-on-sigterm', directive)
    assert s.stop() == 0
    assert os.path.exists(f'{s.dir}/dump.rdb') == saves


@memory_only
def test_shutdown_that_can_not_save(server_factory):
    s = server_factory('--save', '3600 1', '--dbfilename', 'dir.rdb')
    with Raw(s.port) as c:
        c.call('SET', 'k', 'v')
        os.mkdir(f'{s.dir}/dir.rdb')
        assert c.call('SHUTDOWN') == 'ERR Errors trying to SHUTDOWN. Check logs.'
        assert c.call('SHUTDOWN', 'NOSAVE', 'SAVE') == 'ERR syntax error'
        assert c.call('SET', 'k', 'still here') == b'OK'
        assert c.command('SHUTDOWN', 'FORCE').closed()
    assert s.proc.wait(mayfly.PATIENCE) == 0 and 'Exit anyway.' in s.log
    os.rmdir(f'{s.dir}/dir.rdb')
    s.start()
    with Raw(s.port) as c:
        assert c.call('GET', 'k') == b'still here', 'the AOF has it'


@memory_only
def test_shutdown_while_saving(server_factory):
    """The snapshot under way is given up; the last one has all."""
    s = server_factory(*SLOW, *NO_AOF, '--save', '3600 1')
    with Raw(s.port) as c:
        c.call('MSET', *[x for i in range(50) for x in (f'k{i}', i)])
        assert c.call('BGSAVE') == b'Background saving started'
        eventually(lambda: int(persistence(c)['current_save_keys_processed']) > 0)
        c.call('SET', 'late', 1)
    assert s.stop() == 0
    assert [f for f in os.listdir(s.dir) if f.startswith('temp')] == []
    s.start()
    with Raw(s.port) as c:
        assert c.call('DBSIZE') == 51


@pytest.fixture(scope='session')
def slow_sync(tmp_path_factory):
    """What runs a server whose fsync takes its time."""
    if mayfly.sanitized() or not shutil.which('gcc'):
        pytest.skip('needs gcc, and a server without sanitizers')
    folder = tmp_path_factory.mktemp('slow')
    (folder / 'slow.c').write_text('#include <unistd.h>\nint fsync(int fd) { sleep(1); return fdatasync(fd); }\n')
    subprocess.run(['gcc', '-shared', '-fPIC', '-o', folder / 'slow.so', folder / 'slow.c'], check=True)
    return ('env', f'LD_PRELOAD={folder}/slow.so')


@memory_only
@pytest.mark.parametrize('what', ['SHUTDOWN', 'SIGTERM', 'FLUSHALL', 'DEBUG RELOAD'])
def test_a_snapshot_that_gets_its_name_late(server_factory, slow_sync, what):
    """It must not replace what was saved after it."""
    s = server_factory(*NO_AOF, *DEBUG, '--save', '3600 1', before=slow_sync)
    with Raw(s.port) as c, Raw(s.port) as other:
        c.call('MSET', *[x for i in range(50) for x in (f'k{i}', i)])
        assert c.call('BGSAVE') == b'Background saving started'
        eventually(lambda: persistence(c)['current_save_keys_processed'] == '50')
        c.call('SET', 'late', 1)
        if what == 'SIGTERM':
            s.proc.send_signal(signal.SIGTERM)
        else:
            other.command(*what.split())
        assert other.silent(0.1)
        assert persistence(c)['rdb_bgsave_in_progress'] == '1' and c.call('GET', 'late') == b'1'
        if what in ('FLUSHALL', 'DEBUG RELOAD'):
            assert other.reply() == b'OK'
            assert c.call('DBSIZE') == (0 if what == 'FLUSHALL' else 51)
            s.proc.kill()
        s.proc.wait(mayfly.PATIENCE)
    s.start()
    with Raw(s.port) as c:
        assert c.call('DBSIZE') == (0 if what == 'FLUSHALL' else 51)


@memory_only
def test_commands_after_a_shutdown_are_not_answered(server_factory):
    """What was acknowledged is there: nothing runs once the files are closed."""
    s = server_factory()
    with Raw(s.port) as c:
        c.send(encode('SET', 'a', 1) + encode('SHUTDOWN') + encode('SET', 'b', 1))
        assert c.rest() == b'+OK\r\n'
    assert s.proc.wait(mayfly.PATIENCE) == 0
    s.start()
    with Raw(s.port) as c:
        assert c.call('MGET', 'a', 'b') == [b'1', None]


# -- configuration and INFO ------------------------------------------------------------------------

def test_dir_and_dbfilename_at_run_time(server_factory):
    s = server_factory(*DEBUG)
    with Raw(s.port) as c:
        os.mkdir(f'{s.dir}/sub')
        c.call('SET', 'k', 'v')
        assert c.call('CONFIG', 'SET', 'dir', f'{s.dir}/sub', 'dbfilename', 'other.rdb') == b'OK'
        assert c.call('SAVE') == b'OK' and os.path.exists(f'{s.dir}/sub/other.rdb')
        assert c.call('BGSAVE') == b'Background saving started'
        eventually(lambda: no_job(c))
        assert c.call('DEBUG', 'RELOAD', 'NOSAVE') == b'OK' and c.call('GET', 'k') == b'v'
        assert c.call('SET', 'k2', 'v') == b'OK', 'the AOF stays where it is'
    assert not os.path.exists(f'{s.dir}/sub/appendonlydir')
    s.restart(signal.SIGKILL)
    with Raw(s.port) as c:
        assert c.call('DBSIZE') == 2


REDIS_FIELDS = """loading async_loading current_cow_peak current_cow_size current_cow_size_age current_fork_perc
current_save_keys_processed current_save_keys_total rdb_changes_since_last_save rdb_bgsave_in_progress
rdb_last_save_time rdb_last_bgsave_status rdb_last_bgsave_time_sec rdb_current_bgsave_time_sec rdb_saves
rdb_last_cow_size rdb_last_load_keys_expired rdb_last_load_keys_loaded aof_enabled aof_rewrite_in_progress
aof_rewrite_scheduled aof_last_rewrite_time_sec aof_current_rewrite_time_sec aof_last_bgrewrite_status aof_rewrites
aof_rewrites_consecutive_failures aof_last_write_status aof_last_cow_size module_fork_in_progress
module_fork_last_cow_size""".split()
AOF_FIELDS = """aof_current_size aof_base_size aof_pending_rewrite aof_buffer_length aof_pending_bio_fsync
aof_delayed_fsync""".split()


def test_info_fields(server):
    with Raw(server.port) as c:
        fields = list(persistence(c))
    on = mayfly.ENGINE == 'memory'
    expected = REDIS_FIELDS + AOF_FIELDS * on
    assert fields[:len(expected)] == expected
    assert set(fields[len(expected):]) == {'current_save_bytes', 'current_save_keys_ahead', 'current_save_eta_seconds'}


@pytest.mark.skipif(not shutil.which('redis-server'), reason='needs redis-server')
def test_info_fields_are_redis_s(tmp_path):
    port = mayfly.free_port()
    proc = subprocess.Popen(['redis-server', '--port', str(port), '--save', '', '--appendonly', 'yes', '--dir',
                             str(tmp_path)], stdout=subprocess.DEVNULL)
    try:
        with eventually(lambda: connected(port)) as c:
            assert list(persistence(c)) == REDIS_FIELDS + AOF_FIELDS
    finally:
        proc.kill()
        proc.wait()


# -- the rocksdb engine ----------------------------------------------------------------------------

@rocks_only
def test_rocksdb_exports_and_imports(server_factory, tmp_path):
    s = server_factory(*DEBUG)
    with one(s) as r, Raw(s.port) as c:
        fill(r)
        before = look(r)
        assert c.call('CONFIG', 'GET', 'save') == [b'save', b''] and c.call('CONFIG', 'GET', 'appendonly')[1] == b'no'
        assert c.call('BGREWRITEAOF').startswith('ERR There is no append only file with engine rocksdb')
        assert c.call('BGSAVE') == b'Background saving started'
        eventually(lambda: no_job(c))
    exported = f'{s.dir}/dump.rdb'
    assert os.path.getsize(exported) > 1000
    other = server_factory(*DEBUG, '--import-rdb', exported, directory=str(tmp_path))
    with one(other) as r:
        assert look(r) == before
    assert 'DB loaded from disk' in other.log
    assert other.stop() == 0
    again = server_factory(*DEBUG, '--import-rdb', exported, directory=str(tmp_path), wait=False)
    assert again.proc.wait(mayfly.PATIENCE) == 1 and 'an empty one only' in again.log
    again = server_factory(*DEBUG, directory=str(tmp_path))
    with one(again) as r:
        assert look(r) == before


@rocks_only
def test_rocksdb_import_that_fails(server_factory, tmp_path):
    s = server_factory('--import-rdb', f'{tmp_path}/nothing.rdb', wait=False)
    assert s.proc.wait(mayfly.PATIENCE) == 1 and 'No such file or directory' in s.log
    (tmp_path / 'bad.rdb').write_bytes(b'REDIS0010\xfa\x09')
    s = server_factory('--import-rdb', f'{tmp_path}/bad.rdb', wait=False)
    assert s.proc.wait(mayfly.PATIENCE) == 1 and 'Error loading' in s.log


@rocks_only
def test_rocksdb_loads_nothing_by_itself(server_factory):
    s = server_factory()
    with Raw(s.port) as c:
        c.call('SET', 'k', 'v')
        assert c.call('SAVE') == b'OK'
        assert c.call('DEL', 'k') == 1
    s.restart()
    with Raw(s.port) as c:
        assert c.call('DBSIZE') == 0


@memory_only
def test_import_is_for_rocksdb(server_factory):
    s = server_factory('--import-rdb', 'x.rdb', wait=False)
    assert s.proc.wait(mayfly.PATIENCE) == 1 and 'import-rdb is for engine rocksdb' in s.log
