"""Expired keys in the files: what the increments say, word for word, and what comes back."""
import os
import re
import shutil
import signal
import time

import pytest

import rdb_bytes as rdb
import redis_server
from everything import FAR, look, many, run, script
from mayfly import Raw, eventually
from rdb_bytes import key, select, string
from redis_server import Redis, check_rdb

pytestmark = pytest.mark.engine('memory', 'the other engine keeps its data itself')
DEBUG = ('--enable-debug-command', 'yes', '--enable-protected-configs', 'yes')
LAZY = ('DEBUG', 'SET-ACTIVE-EXPIRE', 0)


def records(server, what='incr'):
    """The commands of the increments (or of a base), without annotations."""
    found = []
    folder = f'{server.dir}/appendonlydir'
    for name in sorted(os.listdir(folder)):
        if f'.{what}.' not in name:
            continue
        data, at = open(f'{folder}/{name}', 'rb').read(), 0
        while at < len(data):
            end = data.index(b'\n', at)
            if data[at:at + 1] == b'#':
                at = end + 1
                continue
            assert data[at:at + 1] == b'*', data[at:at + 80]
            argv, n, at = [], int(data[at + 1:end]), end + 1
            for _ in range(n):
                end = data.index(b'\r\n', at)
                size = int(data[at + 1:end])
                argv.append(data[end + 2:end + 2 + size])
                at = end + 4 + size
            found.append(tuple([argv[0].upper(), *argv[1:]]))
    return found


def about(server, name):
    """The records that speak of a key."""
    return [r for r in records(server) if name.encode() in r[1:]]


def set_to_die(c, *names, command='SET', value=('v',), ms=800):
    """Keys with a deadline, which it returns."""
    deadline = int(time.time() * 1000) + ms
    run(c, [x for n in names for x in ((command, n, *value), ('PEXPIREAT', n, deadline))])
    return deadline


def wait_for(deadline_ms):
    time.sleep(max(0, deadline_ms + 5 - time.time() * 1000) / 1000)


# -- DEL -----------------------------------------------------------------------------------------------

READS = {'GET': (), 'EXISTS': (), 'TTL': (), 'TYPE': (), 'STRLEN': (), 'OBJECT ENCODING': (), 'DUMP': (),
         'GETRANGE': (0, 1)}


def test_lazy_deletion_appends_del(server_factory):
    s = server_factory(*DEBUG)
    with Raw(s.port) as c:
        run(c, [LAZY])
        deadline = set_to_die(c, *[f'k{i}' for i in range(len(READS))], 'untouched')
        run(c, [('HSET', 'alive', 'f', 'v')])
        wait_for(deadline)
        many(c, [(*name.split(), f'k{i}', *more) for i, (name, more) in enumerate(READS.items())])
        assert c.call('DBSIZE') == 2
        for i in range(len(READS)):
            assert about(s, f'k{i}')[-1] == (b'DEL', b'k%d' % i), 'who meets a dead key says that it went'
            assert len(about(s, f'k{i}')) == 3
        assert len(about(s, 'untouched')) == 2, 'nobody has met it'
        many(c, [('GET', 'k0'), ('DEL', 'k1'), ('EXPIRE', 'k2', 10)])
        assert [len(about(s, k)) for k in ('k0', 'k1', 'k2')] == [3, 3, 3], 'once'


def test_active_deletion_appends_del(server_factory):
    s = server_factory()
    with Raw(s.port) as c:
        for i, (command, value) in enumerate((('SET', ('v',)), ('RPUSH', ('a', 'b')), ('SADD', (1, 2)),
                                              ('HSET', ('f', 'v')), ('ZADD', (1, 'm')))):
            set_to_die(c, f'k{i}', command=command, value=value)
        run(c, [('SELECT', 3)])
        set_to_die(c, 'elsewhere')
        eventually(lambda: s.info('stats')['expired_keys'] == 6)
        eventually(lambda: len([r for r in records(s) if r[0] == b'DEL']) == 6)
    for i in range(5):
        assert about(s, f'k{i}')[-1] == (b'DEL', b'k%d' % i)
    found = records(s)
    assert found.index((b'DEL', b'elsewhere')) > found.index((b'SELECT', b'3'))
    s.restart(signal.SIGKILL)
    assert look(s) == {}


def test_a_write_on_a_dead_key_deletes_first(server_factory):
    """Otherwise a replay at another time would append to the old value."""
    s = server_factory(*DEBUG)
    writes = {'APPEND': ('x',), 'RPUSH': ('x',), 'SADD': ('x',), 'HSET': ('f', 'x'), 'ZADD': (1, 'x'), 'INCR': (),
              'SETRANGE': (3, 'x'), 'SETNX': ('x',), 'PFADD': ('x',), 'SETBIT': (1, 1)}
    with Raw(s.port) as c:
        run(c, [LAZY])
        deadline = set_to_die(c, *writes)
        wait_for(deadline)
        run(c, [(name, name, *args) for name, args in writes.items()])
        wanted = look(s)
        for name in writes:
            found = about(s, name)
            assert found[2] == (b'DEL', name.encode()) and len(found) == 4, found
        deadline = set_to_die(c, 'a', 'b', 'c')
        wait_for(deadline)
        run(c, [('SET', 'a', 'new'), ('MSET', 'b', 'new')])
        assert about(s, 'a')[-1] == (b'SET', b'a', b'new') and len(about(s, 'c')) == 2
    assert {v[3] for v in wanted.values()} == {-1} and len(wanted) == len(writes)
    s.restart(signal.SIGKILL)
    assert {k: v for k, v in look(s).items() if k[1] not in (b'a', b'b')} == wanted


def test_a_reload_deletes_the_dead_first(server_factory):
    """It leaves them out, and what is written under their names then must not meet them again in the AOF."""
    s = server_factory(*DEBUG, '--appendfsync', 'always')
    with Raw(s.port) as c:
        run(c, [LAZY, ('HSET', 'h', 'dead', 5, 'alive', 5)])
        deadline = set_to_die(c, 'k', 'in-multi')
        run(c, [('HPEXPIREAT', 'h', deadline, 'FIELDS', 1, 'dead'),
                ('HSETEX', 'hollow', 'PXAT', deadline, 'FIELDS', 1, 'f', 'v')])
        wait_for(deadline)
        run(c, [('MULTI',), ('SET', 'in-multi', 1), ('DEBUG', 'RELOAD'), ('EXEC',), ('DEBUG', 'RELOAD')])
        assert (b'DEL', b'k') in about(s, 'k') and (b'HDEL', b'h', b'dead') in about(s, 'h')
        assert s.info('expiry')['expired_fields'] == 2 and s.info('stats')['expired_keys'] == 2
        run(c, [('HSET', 'k', 'f', 1), ('HINCRBY', 'h', 'dead', 1), ('SET', 'hollow', 1)])
    wanted = {k: v[2:] for k, v in look(s).items()}
    assert len(wanted) == 4
    s.restart(signal.SIGKILL)
    assert {k: v[2:] for k, v in look(s).items()} == wanted


def test_dead_and_not_deleted_leaves_no_trace(server_factory):
    s = server_factory(*DEBUG, '--aof-use-rdb-preamble', 'no')
    with Raw(s.port) as c:
        run(c, [LAZY, ('SET', 'stays', 1), ('HSET', 'h', 'a', 1, 'b', 2)])
        before = len(records(s))
        deadline = set_to_die(c, 'dies')
        c.call('HPEXPIREAT', 'h', deadline, 'FIELDS', 1, 'a')
        assert len(records(s)) == before + 3
        wait_for(deadline)
        time.sleep(0.2)
        assert c.call('DBSIZE') == 3 and len(records(s)) == before + 3
        assert c.call('SAVE') == b'OK'
        assert b'dies' not in open(f'{s.dir}/dump.rdb', 'rb').read()
        for preamble in 'no', 'yes':
            run(c, [('CONFIG', 'SET', 'aof-use-rdb-preamble', preamble), ('BGREWRITEAOF',)])
            eventually(lambda: b'aof_rewrite_in_progress:0' in c.call('INFO', 'persistence'))
            eventually(lambda: len(os.listdir(f'{s.dir}/appendonlydir')) == 3)
            folder = f'{s.dir}/appendonlydir'
            text = b''.join(open(f'{folder}/{f}', 'rb').read() for f in os.listdir(folder))
            assert b'stays' in text and b'dies' not in text, 'a rewrite drops it'
            if preamble == 'no':
                assert [r[1:] for r in records(s, 'base') if r[0] in (b'HMSET', b'HSET')] == [(b'h', b'b', b'2')]
            assert c.call('DBSIZE') == 3, 'it is still there, and nobody sees it'
            assert records(s) == [], 'and nobody was told'
    s.restart(signal.SIGKILL)
    assert {k for _, k in look(s)} == {b'stays', b'h'}


TTLS = """
    SET a 1 EX 100; SET b 1 PX 100000; SET c 1 EXAT 4000000000; SETEX d 100 1; PSETEX e 100000 1; SET f 1; EXPIRE f 100
    SET g 1; PEXPIRE g 100000; SET h 1; EXPIREAT h 4000000000; SET i 1; GETEX i EX 100; SET j 1
    GETEX j PXAT 4102444800123
    RPUSH m 1; EXPIRE m 100 NX; EXPIRE m 50 GT; HSET n f v; HEXPIRE n 100 FIELDS 1 f; HSET o f v
    HPEXPIRE o 100000 FIELDS 1 f; COPY a p; RENAME b q; SET r 1 EX 100; SET r 2 KEEPTTL; SET s 1 EX 100; PERSIST s
    SET t 1; EXPIRE t -5; SET u 1 PXAT 1; HSETEX w EX 100 FIELDS 1 f v; HGETEX w PX 90000 FIELDS 1 f
"""


def test_relative_ttls_are_absolute(server_factory):
    """No record depends on when it is read."""
    s = server_factory()
    with Raw(s.port) as c:
        run(c, [('SET', 'v', 1), ('DEL', 'nothing')])
        payload = c.call('DUMP', 'v')
        start = int(time.time() * 1000)
        run(c, [*script(TTLS, ''), ('RESTORE', 'k', 100_000, payload), ('RESTORE', 'l', FAR, payload, 'ABSTTL')])
        end = int(time.time() * 1000)
        deadlines = {name: c.call('PEXPIRETIME', name) for name in 'abcdefghijklmnopqrstu'}
        fields = [c.call('HPEXPIRETIME', name, 'FIELDS', 1, 'f') for name in 'now']
    relative = {b'EXPIRE', b'PEXPIRE', b'SETEX', b'PSETEX', b'HEXPIRE', b'HPEXPIRE', b'GETEX', b'HGETEX'}
    for r in records(s):
        assert r[0] not in relative and not {b'EX', b'PX', b'ex', b'px'} & set(r[2:]), r
        assert r[0] != b'RESTORE' or r[2] == b'0' or b'ABSTTL' in [x.upper() for x in r], r
        for number in (int(x) for x in r[1:] if re.fullmatch(rb'1\d{12}|4\d{9,12}', x)):
            assert number in (FAR, 4_000_000_000_000, 4_000_000_000) or start + 90_000 <= number <= end + 100_000, r
    for name in 'adefgikmr':
        assert start + 100_000 <= deadlines[name] <= end + 100_000
    assert deadlines['c'] == deadlines['h'] == 4_000_000_000_000 and deadlines['j'] == deadlines['l'] == FAR
    assert (b'DEL', b't') in records(s) and deadlines['t'] == deadlines['u'] == -2
    time.sleep(0.05)
    s.restart(signal.SIGKILL)
    with Raw(s.port) as c:
        assert {name: c.call('PEXPIRETIME', name) for name in deadlines} == deadlines
        assert [c.call('HPEXPIRETIME', name, 'FIELDS', 1, 'f') for name in 'now'] == fields


def test_effects_do_not_depend_on_chance(server_factory):
    s = server_factory()
    with Raw(s.port) as c:
        run(c, [('SADD', 's', *range(100)), ('SPOP', 's'), ('SPOP', 's', 10), ('INCRBYFLOAT', 'f', '0.1'),
                ('HINCRBYFLOAT', 'h', 'f', '0.1')])
    names = {r[0] for r in records(s)}
    assert not names & {b'SPOP', b'INCRBYFLOAT', b'HINCRBYFLOAT'} and {b'SREM', b'SET', b'HSET'} <= names, names


# -- loading -------------------------------------------------------------------------------------------

def with_dead_keys(now_ms):
    return rdb.file(10, select(0), key(0, 'dead', string('v'), now_ms - 1), key(0, 'long dead', string('v'), 1),
                    key(0, 'alive', string('v'), now_ms + 600_000), key(0, 'stays', string('v')),
                    key(2, 'dead set', rdb.items('a', 'b'), now_ms - 1))


def test_loading_a_snapshot(server_factory, tmp_path):
    (tmp_path / 'dump.rdb').write_bytes(with_dead_keys(int(time.time() * 1000)))
    for keep in 'no', 'yes':
        s = server_factory('--appendonly', 'no', '--load-expired', keep, *DEBUG, directory=str(tmp_path))
        found = s.info('persistence')
        counts = found['rdb_last_load_keys_loaded'], found['rdb_last_load_keys_expired']
        assert counts == ((5, 0) if keep == 'yes' else (2, 3))
        assert {k for _, k in look(s)} == {b'alive', b'stays'}
        assert s.stop() == 0


@redis_server.needed
def test_dead_keys_that_redis_saved(server_factory, tmp_path):
    redis = Redis('--appendonly', 'yes')
    try:
        with Raw(redis.port) as c:
            run(c, [LAZY, ('SET', 'stays', 1)])
            deadline = set_to_die(c, 'dies', 'comes back')
            run(c, [('RENAME', 'comes back', 'other name'), ('COPY', 'dies', 'copy')])
            wait_for(deadline)
            run(c, [('SAVE',), ('BGREWRITEAOF',)])
            eventually(lambda: b'aof_rewrite_in_progress:0' in c.call('INFO', 'persistence'))
            run(c, [('PERSIST', 'copy'), ('SET', 'other name', 'again')])
        assert '3 already expired' in check_rdb(f'{redis.dir}/dump.rdb')
        shutil.copy(f'{redis.dir}/dump.rdb', tmp_path)
        s = server_factory('--appendonly', 'no', directory=str(tmp_path))
        assert {k for _, k in look(s)} == {b'stays'}
        assert s.info('persistence')['rdb_last_load_keys_expired'] == 3 and s.stop() == 0
        shutil.copytree(f'{redis.dir}/appendonlydir', tmp_path / 'appendonlydir')
    finally:
        redis.remove()
    s = server_factory(*DEBUG, directory=str(tmp_path))
    with Raw(s.port) as c:
        assert {k for _, k in look(s)} == {b'stays', b'other name'}
        eventually(lambda: c.call('DBSIZE') == 2)
        eventually(lambda: {r for r in records(s) if r[0] == b'DEL'} >= {(b'DEL', b'dies')})
    s.restart(signal.SIGKILL)
    assert {k for _, k in look(s)} == {b'stays', b'other name'}


@redis_server.needed
def test_our_dead_keys_never_reach_redis(server_factory, tmp_path):
    s = server_factory(*DEBUG)
    with Raw(s.port) as c:
        run(c, [LAZY, ('SET', 'stays', 1)])
        deadline = set_to_die(c, *[f'dies{i}' for i in range(50)])
        wait_for(deadline)
        run(c, [('SAVE',)])
    text = check_rdb(f'{s.dir}/dump.rdb')
    assert '[info] 1 keys read' in text and '0 already expired' in text
    # In the increments they are, with a deadline in the past: Redis does not show them either.
    shutil.copytree(f'{s.dir}/appendonlydir', tmp_path / 'appendonlydir')
    redis = Redis('--appendonly', 'yes', directory=str(tmp_path))
    try:
        assert {k for _, k in look(redis)} == {b'stays'}
    finally:
        redis.remove()
