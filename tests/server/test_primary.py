"""Mayfly as a primary: redis-server follows it, redis-cli too, and bare sockets that misbehave."""
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

import everything
import mayfly
import redis_server
from mayfly import ReplyError, eventually

pytestmark = redis_server.needed

LIBRARY = "#!lua name=lib\nredis.register_function('f', function() return 'from a function' end)"
MODES = {'diskless': ('--repl-diskless-sync-delay', 0), 'disk': ('--repl-diskless-sync', 'no')}


@pytest.fixture
def primary(server_factory):
    """primary('--directive', value …): a server that syncs at once."""
    return lambda *args: server_factory(*MODES['diskless'], '--enable-debug-command', 'yes', *args)


def replication(server):
    return server.info('replication')


def follow(replica, primary):
    with replica.client() as c:
        c.execute_command('REPLICAOF', '127.0.0.1', primary.port)


def up(replica):
    return replication(replica).get('master_link_status') == 'up'


def in_step(primary, *replicas):
    """They have everything the primary has."""
    def there():
        end = replication(primary)['master_repl_offset']
        return all(up(r) and replication(r)['master_repl_offset'] == end for r in replicas)
    eventually(there, 30)


def attach(primary, *replicas):
    for r in replicas:
        follow(r, primary)
    eventually(lambda: all(up(r) for r in replicas), 30)


def equal(primary, *replicas):
    in_step(primary, *replicas)
    expected = everything.look(primary, encodings=False)
    for r in replicas:
        everything.same(expected, everything.look(r, encodings=False))


# -- with redis-server ------------------------------------------------------------------------------------

@pytest.mark.parametrize('mode', MODES)
def test_full_sync_and_stream(mode, server_factory, redis_factory):
    m, r = server_factory(*MODES[mode]), redis_factory()
    with m.raw() as c:
        everything.fill(c)
    attach(m, r)
    equal(m, r)
    with m.raw() as c:                                      # the stream carries the same, and more
        assert c.call('FLUSHALL') == b'OK'
        everything.fill(c)
        everything.run(c, [('SELECT', 5), ('SET', 'a', 1), ('SELECT', 0), ('INCR', 'n'), ('SADD', 's', 1, 2, 3),
                           ('SPOP', 's'), ('SET', 'short', 'x', 'PX', 20), ('EXPIRE', 'n', 1000),
                           ('INCRBYFLOAT', 'f', '0.1'), ('SETEX', 'e', 1000, 'x')])
    eventually(lambda: m.info('stats')['expired_keys'] >= 1)
    equal(m, r)
    assert m.info('stats')['sync_full'] == 1
    assert not any(name.startswith('temp-') for name in os.listdir(m.dir))


@pytest.mark.parametrize('command', ['FLUSHALL', 'FLUSHDB'])
def test_flushing_an_empty_dataset_is_replicated(command, primary, redis_factory):
    """A replica that takes writes may hold more than its primary."""
    m, r = primary(), redis_factory('--replica-read-only', 'no')
    attach(m, r)
    with m.raw() as c, r.client() as d:
        d.set('of its own', 1)
        assert c.call(command, 'SYNC') == b'OK'
        eventually(lambda: d.dbsize() == 0)


@pytest.mark.parametrize('mode', MODES)
def test_writes_during_the_sync(mode, server_factory, redis_factory):
    """What changes while the data is on its way comes by the stream, once."""
    m, r = server_factory(*MODES[mode], '--rdb-key-save-delay', 400), redis_factory()
    with m.raw() as c:
        everything.run(c, (('SET', f'k{i}', i) for i in range(3000)))
        everything.run(c, (('RPUSH', 'list', i) for i in range(500)))
        follow(r, m)
        eventually(lambda: 'Starting BGSAVE' in m.log)
        n = 0
        while not up(r):
            everything.run(c, [x for i in range(n, n + 50) for x in
                               (('INCR', f'k{i * 37 % 3000}'), ('RPUSH', 'list', i), ('LPOP', 'list'),
                                ('SET', f'new{i}', i, 'PX', 5 + i % 50), ('DEL', f'k{i * 91 % 3000}'))])
            n += 50
        assert n
        eventually(lambda: not c.call('KEYS', 'new*'))
    equal(m, r)


@pytest.mark.any_engine
def test_replicas_share_a_sync(server_factory, redis_factory):
    m = server_factory('--repl-diskless-sync-delay', 100, '--repl-diskless-sync-max-replicas', 3)
    replicas = [redis_factory() for _ in range(3)]
    with m.raw() as c:
        everything.run(c, (('SET', f'k{i}', 'x' * 1000) for i in range(5000)))
    attach(m, *replicas)
    equal(m, *replicas)
    assert m.log.count('Starting BGSAVE for SYNC') == 1
    info = replication(m)
    assert info['connected_slaves'] == 3
    assert sorted(info[f'slave{i}']['port'] for i in range(3)) == sorted(r.port for r in replicas)


def test_a_file_under_way_serves_late_comers(server_factory, redis_factory):
    m = server_factory(*MODES['disk'], '--rdb-key-save-delay', 20_000)
    a, b = redis_factory(), redis_factory()
    with m.raw() as c:
        everything.run(c, (('SET', f'k{i}', 'x' * 100) for i in range(1000)))
        follow(a, m)
        eventually(lambda: 'Starting BGSAVE' in m.log)
        everything.run(c, (('SET', f'k{i}', 'y') for i in range(0, 1000, 7)))
        follow(b, m)
        everything.run(c, (('SET', f'k{i}', 'z') for i in range(0, 1000, 5)))
        eventually(lambda: m.log.count('asks for synchronization') == 2)
        assert c.call('CONFIG', 'SET', 'rdb-key-save-delay', 0) == b'OK'
    equal(m, a, b)
    assert m.log.count('Starting BGSAVE for SYNC') == 1


@pytest.mark.any_engine
def test_partial_resync(primary, redis_factory):
    m, r = primary(), redis_factory()
    attach(m, r)
    with m.client() as c:
        for i in range(5):
            in_step(m, r)
            assert c.execute_command('CLIENT', 'KILL', 'TYPE', 'REPLICA') == 1
            c.set(f'k{i}', 'x' * 1000)
            eventually(lambda: m.info('stats')['sync_partial_ok'] == i + 1)     # pylint: disable=W0640
    equal(m, r)
    assert m.info('stats')['sync_full'] == 1


@pytest.mark.any_engine
def test_too_far_behind_for_a_partial_resync(primary, redis_factory):
    m, r = primary('--repl-backlog-size', '16kb'), redis_factory()
    attach(m, r)
    with m.client() as c, r.client() as rc:
        rc.execute_command('DEBUG', 'SLEEP', 0)             # it is there
        rc.execute_command('REPLICAOF', '127.0.0.1', 1)     # and away
        eventually(lambda: replication(m)['connected_slaves'] == 0)
        for i in range(200):
            c.set(f'k{i}', 'x' * 10000)
    eventually(lambda: replication(m)['repl_backlog_histlen'] < 1 << 20)    # it is trimmed ten times a second
    follow(r, m)
    equal(m, r)
    assert m.info('stats')['sync_full'] == 2
    assert replication(m)['repl_backlog_histlen'] < 1 << 20


@pytest.mark.any_engine
def test_info_and_role_as_redis_prints_them(primary, redis_factory):
    m, theirs, a, b = primary(), redis_factory('--repl-diskless-sync-delay', 0), redis_factory(), redis_factory()
    attach(m, a)
    attach(theirs, b)

    def shape(server):
        with server.raw() as c:
            lines = c.call('INFO', 'replication').decode().split('\r\n')
            role = c.call('ROLE')
        return [x.split(':')[0] for x in lines], role[0], [[type(x) for x in one] for one in role[2]]

    eventually(lambda: shape(m)[2] and shape(theirs)[2])    # online, that is
    assert shape(m) == shape(theirs)
    for s in m, theirs:
        with s.client() as c:
            c.config_set('min-replicas-to-write', 1)
    assert shape(m) == shape(theirs)
    one = replication(m)['slave0']
    assert (one['ip'], one['port'], one['state']) == ('127.0.0.1', a.port, 'online') and one['lag'] <= 10
    in_step(m, a)
    with m.client() as c:
        c.set('x', 1)
        assert c.execute_command('WAIT', 1, 20_000) == 1
        role = c.execute_command('ROLE')
        assert role[2][0][:2] == [b'127.0.0.1', str(a.port).encode()]
        assert 0 < int(role[2][0][2]) <= role[1]


@pytest.mark.any_engine
def test_min_replicas(primary, redis_factory):
    m, r = primary('--min-replicas-to-write', 1, '--min-replicas-max-lag', 2), redis_factory()
    with m.raw() as c:
        assert c.call('SET', 'x', 1) == ReplyError('NOREPLICAS Not enough good replicas to write.')
        assert c.call('GET', 'x') is None
        attach(m, r)
        eventually(lambda: c.call('SET', 'x', 1) == b'OK')
        assert replication(m)['min_slaves_good_slaves'] == 1
        r.stop()
        eventually(lambda: c.call('SET', 'x', 1) == ReplyError('NOREPLICAS Not enough good replicas to write.'))


@pytest.mark.any_engine
def test_a_smaller_max_lag_counts_at_once(primary):
    m = primary('--min-replicas-to-write', 1, '--min-replicas-max-lag', 1000)
    with m.raw() as c, m.raw() as r:
        receive(greet(r, 'eof').command('PSYNC', '?', -1))
        r.command('REPLCONF', 'ACK', 0)                     # the last word from it
        eventually(lambda: c.call('SET', 'x', 1) == b'OK')
        eventually(lambda: int(replication(m)['slave0']['lag']) >= 2)
        assert c.call('SET', 'x', 1) == b'OK'
        assert c.call('CONFIG', 'SET', 'min-replicas-max-lag', 1) == b'OK'
        assert c.call('SET', 'x', 1) == ReplyError('NOREPLICAS Not enough good replicas to write.')


@pytest.mark.any_engine
def test_a_sync_counts_as_a_save(server_factory):
    m = server_factory('--repl-diskless-sync-delay', 0, '--rdb-key-save-delay', 20_000)
    with m.raw() as c, m.raw() as r:
        everything.run(c, (('SET', f'k{i}', 1) for i in range(200)))
        r.command('SYNC')
        eventually(lambda: m.info('persistence')['rdb_bgsave_in_progress'] == 1)
        assert m.info('persistence')['rdb_current_bgsave_time_sec'] >= 0
        r.close()
        eventually(lambda: m.info('persistence')['rdb_bgsave_in_progress'] == 0)
        assert m.info('stats')['sync_full'] == 1
        c.call('CONFIG', 'RESETSTAT')
        stats = m.info('stats')
        assert (stats['sync_full'], stats['sync_partial_ok'], stats['sync_partial_err']) == (0, 0, 0)


# -- when nothing may change ---------------------------------------------------------------------------------

@pytest.mark.parametrize('begin, end', [
    ('CLIENT PAUSE 60000 WRITE', 'CLIENT UNPAUSE'),
    ('FAILOVER', 'FAILOVER ABORT'),
])
def test_while_writes_are_held_the_data_stays_as_it_is(begin, end, primary):
    """Neither reads, nor the cycle, nor a limit deletes anything: a replica could never catch up otherwise."""
    m = primary('--repl-ping-replica-period', 1000)
    with m.raw() as c, m.raw() as r, m.raw() as held:
        r.command('SYNC')
        eventually(lambda: replication(m)['connected_slaves'] == 1)
        assert c.call('SET', 'kept', 1) == b'OK'
        assert c.call('PFADD', 'p', 'a') == 1
        assert c.call('SET', 'dying', 1, 'PX', 1000) == b'OK'
        assert c.call(*begin.split()) == b'OK'
        at = replication(m)['master_repl_offset']
        held.command('PFCOUNT', 'p')                       # which leaves its result in the key
        c.call('CONFIG', 'SET', 'maxmemory', 1, 'maxmemory-policy', 'allkeys-random')
        eventually(lambda: c.call('EXISTS', 'dying') == 0)
        time.sleep(0.2)
        assert c.call('GET', 'kept') == b'1'
        assert (c.call('DBSIZE'), replication(m)['master_repl_offset']) == (3, at)
        c.call('CONFIG', 'SET', 'maxmemory', 0)
        assert c.call(*end.split()) == b'OK'
        eventually(lambda: c.call('DBSIZE') == 2)
        assert c.call('GET', 'kept') == b'1' and held.reply() == 1


# -- WAIT ---------------------------------------------------------------------------------------------------

@pytest.mark.any_engine
def test_wait(primary, redis_factory):
    m, r = primary(), redis_factory()
    attach(m, r)
    with m.raw() as c, r.raw() as rc:
        for i in range(20):
            c.command('SET', f'k{i}', i).command('WAIT', 1, 20_000).command('PING')
            assert [c.reply() for _ in range(3)] == [b'OK', 1, b'PONG']
            assert rc.call('GET', f'k{i}') == str(i).encode()
        before = time.monotonic()
        assert c.call('WAIT', 2, 150) == 1
        assert 0.14 < time.monotonic() - before < 20
        assert c.call('WAIT', 0, 0) == 1
        assert c.call('WAIT', 'x', 0) == ReplyError('ERR value is not an integer or out of range')
        assert c.call('WAIT', 1, 'x') == ReplyError('ERR timeout is not an integer or out of range')
        assert c.call('WAIT', 1, -1) == ReplyError('ERR timeout is negative')
        assert rc.call('WAIT', 1, 1).startswith('ERR WAIT cannot be used with replica instances.')


@pytest.mark.any_engine
def test_wait_is_ended(primary):
    m = primary()
    with m.raw() as c, m.raw() as other:
        number = c.call('CLIENT', 'ID')
        for how, expected in ('TIMEOUT', 0), ('ERROR', ReplyError('UNBLOCKED client unblocked via CLIENT UNBLOCK')):
            c.command('WAIT', 1, 0).command('PING')
            eventually(lambda: m.info('clients')['blocked_clients'] == 1)
            assert other.call('CLIENT', 'UNBLOCK', number, how) == 1
            assert c.reply() == expected
            assert c.reply() == b'PONG'
        assert other.call('CLIENT', 'UNBLOCK', number) == 0
        with m.raw() as gone:
            gone.command('WAIT', 1, 0)
            eventually(lambda: m.info('clients')['blocked_clients'] == 1)
        eventually(lambda: m.info('clients')['blocked_clients'] == 0)
        c.command('WAIT', 1, 0)
        eventually(lambda: m.info('clients')['blocked_clients'] == 1)
        assert other.call('REPLICAOF', '127.0.0.1', 1) == b'OK'
        assert c.reply().startswith('UNBLOCKED force unblock from blocking operation, instance state changed')
        assert c.closed()


@pytest.mark.any_engine
def test_wait_and_the_end_of_the_server(primary):
    m = primary()
    with m.raw() as c, m.raw() as d:
        c.command('WAIT', 1, 0)
        d.command('WAIT', 1, 100_000)
        eventually(lambda: m.info('clients')['blocked_clients'] == 2)
        assert m.stop() == 0


# -- redis-cli ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize('mode', MODES)
def test_cli_rdb(mode, server_factory, tmp_path, redis_factory):
    m = server_factory(*MODES[mode])
    with m.raw() as c:
        everything.fill(c)
    path = tmp_path / 'dump.rdb'
    subprocess.run(['redis-cli', '-p', str(m.port), '--rdb', str(path)], check=True, capture_output=True, timeout=60)
    redis_server.check_rdb(path)
    r = redis_factory()
    r.stop()
    shutil.copy(path, f'{r.dir}/dump.rdb')
    r.start()
    everything.same(everything.look(m, encodings=False), everything.look(r, encodings=False))
    eventually(lambda: replication(m)['connected_slaves'] == 0)


@pytest.mark.any_engine
def test_cli_functions_rdb(primary, redis_factory, tmp_path):
    m = primary()
    with m.raw() as c:
        everything.run(c, [('SET', 'a key', 'v'), ('FUNCTION', 'LOAD', LIBRARY)])
    path = tmp_path / 'functions.rdb'
    subprocess.run(['redis-cli', '-p', str(m.port), '--functions-rdb', str(path)], check=True, capture_output=True,
                   timeout=60)
    redis_server.check_rdb(path)
    assert b'a key' not in path.read_bytes()
    path.rename(tmp_path / 'dump.rdb')
    with redis_factory(directory=str(tmp_path)).client() as c:
        assert c.dbsize() == 0 and c.execute_command('FCALL', 'f', 0) == b'from a function'


@pytest.mark.any_engine
def test_cli_replica(primary):
    m = primary()
    with m.raw() as c:
        everything.run(c, [('SET', 'before', 'v')])
        cli = subprocess.Popen(['redis-cli', '-p', str(m.port), '--replica'], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
        try:
            eventually(lambda: replication(m).get('slave0', {}).get('state') == 'online')
            seen = b''
            for i in range(3):
                everything.run(c, [('SET', f'after{i}', 'v')])
            while b'after2' not in seen:
                line = cli.stdout.readline()
                assert line, seen
                seen += line
            assert b'"SET","after0","v"' in seen            # redis-cli keeps SELECT to itself
        finally:
            cli.kill()
            cli.wait()
            cli.stdout.close()


# -- bare sockets -------------------------------------------------------------------------------------------

def greet(c, *capabilities):
    for name in capabilities:
        assert c.call('REPLCONF', 'capa', name) == b'OK'
    assert c.call('REPLCONF', 'listening-port', 7777) == b'OK'
    return c


def next_line(c):
    """Without the empty ones, which only say that the primary lives."""
    while (line := c.file.readline()) == b'\n':
        pass
    assert line.endswith(b'\r\n'), f'the connection ended after {line!r}'
    return line[:-2]


def receive(c, old=False):
    """The data of a full sync; and the position it is of."""
    position = None
    line = next_line(c)
    if not old:
        word, _, position = line.split()
        assert word == b'+FULLRESYNC'
        line = next_line(c)
    if line.startswith(b'$EOF:'):
        mark, data = line[5:], b''
        assert len(mark) == 40
        while not data.endswith(mark):
            data += c.exactly(1)
        return data[:-40], position
    return c.exactly(int(line[1:])), position


@pytest.mark.parametrize('mode', MODES)
def test_the_stream_follows_the_data(mode, server_factory):
    """Without a disk the stream has to wait for the first acknowledgement, as Redis's does."""
    m = server_factory(*MODES[mode])
    with m.raw() as c, m.raw() as r:
        everything.run(c, [('SET', 'before', 'v')])
        greet(r, 'eof', 'psync2').command('PSYNC', '?', -1)
        data, position = receive(r)
        assert data.startswith(b'REDIS0010') and b'before' in data
        everything.run(c, [('SET', 'after', 'v')])
        if mode == 'diskless':
            assert r.silent()
            r.command('REPLCONF', 'ACK', position)
        assert r.reply() == [b'SELECT', b'0']
        assert r.reply() == [b'SET', b'after', b'v']
        everything.run(c, [('SET', 'more', 'v')])
        assert r.reply() == [b'SET', b'more', b'v']
        r.command('SET', 'more', 'w').command('DEL', 'after')
        assert r.closed()
        assert (c.call('GET', 'more'), c.call('GET', 'after')) == (b'v', b'v')


@pytest.mark.any_engine
def test_sync_of_the_old_kind(server_factory):
    m = server_factory('--repl-diskless-sync-delay', 100)
    with m.raw() as c, m.raw() as r:
        everything.run(c, [('SET', 'before', 'v')])
        data, _ = receive(r.command('SYNC'), old=True)      # no capa: from a file, and at once
        assert b'before' in data
        everything.run(c, [('SET', 'after', 'v')])
        assert r.reply() == [b'SELECT', b'0']
        assert r.reply() == [b'SET', b'after', b'v']


@pytest.mark.any_engine
def test_while_waiting_there_are_empty_lines(server_factory):
    m = server_factory('--repl-diskless-sync-delay', 4)
    with m.raw() as r:
        greet(r, 'eof').command('PSYNC', '?', -1)
        assert r.exactly(1) == b'\n'
        assert replication(m)['slave0']['state'] == 'wait_bgsave'
        while (first := r.exactly(1)) == b'\n':
            pass
        assert first == b'+'


@pytest.mark.any_engine
def test_pings(primary):
    m = primary('--repl-ping-replica-period', 1)
    with m.raw() as r:
        receive(greet(r, 'eof').command('PSYNC', '?', -1))
        r.command('REPLCONF', 'ACK', 0)
        assert r.reply() == [b'PING']
        assert r.reply() == [b'PING']


@pytest.mark.any_engine
def test_fack(primary):
    """WAITAOF counts what a replica says of its disk; an acknowledgement alone says nothing of that."""
    m = primary()
    with m.raw() as c, m.raw() as r:
        receive(greet(r, 'eof').command('PSYNC', '?', -1))
        r.command('REPLCONF', 'ACK', 0)
        c.call('SET', 'k', 'v')
        end = replication(m)['master_repl_offset']
        r.command('REPLCONF', 'ACK', end)
        assert c.call('WAIT', 1, 60_000) == 1
        assert c.call('WAITAOF', 0, 1, 50)[1] == 0
        r.command('REPLCONF', 'ACK', end, 'FACK', end - 1)
        assert c.call('WAITAOF', 0, 1, 50)[1] == 0
        c.command('WAITAOF', 0, 1, 60_000)
        r.command('REPLCONF', 'ACK', end, 'FACK', end)
        assert c.reply()[1] == 1


@pytest.mark.any_engine
def test_continue(primary):
    m = primary()
    with m.raw() as c, m.raw() as r, m.raw() as again, m.raw() as old:
        _, position = receive(greet(r, 'eof', 'psync2').command('PSYNC', '?', -1))
        r.command('REPLCONF', 'ACK', position)
        everything.run(c, [('SET', 'a', 1), ('SET', 'b', 2)])
        name = replication(m)['master_replid']
        size = len(b'*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n')
        greet(again, 'psync2').command('PSYNC', name, int(position) + size + 1)
        assert again.line() == b'+CONTINUE ' + name.encode()
        assert again.reply() == [b'SET', b'a', b'1']
        greet(old).command('PSYNC', name.upper(), int(position) + 1)
        assert old.line() == b'+CONTINUE'
        assert old.reply() == [b'SELECT', b'0']
        assert m.info('stats')['sync_partial_ok'] == 2
        for wrong in ((name, int(position) + 1000), (name, 0), (name, -5), ('x' * 40, 1), (name[:-1], 1), ('', 1)):
            with m.raw() as x:
                greet(x, 'eof').command('PSYNC', *wrong)
                assert next_line(x).startswith(b'+FULLRESYNC')
        with m.raw() as x:
            assert x.call('PSYNC', name, 'y') == ReplyError('ERR value is not an integer or out of range')
            assert x.call('PSYNC', name) == ReplyError("ERR wrong number of arguments for 'psync' command")


@pytest.mark.any_engine
def test_replconf(primary, redis_factory):
    """Redis's words for what it does not understand; and a name that is not to be printed as it is."""
    m, theirs = primary(), redis_factory()
    words = [('REPLCONF',), ('REPLCONF', 'a'), ('REPLCONF', 'a', 'b'), ('REPLCONF', 'listening-port', 'x'),
             ('REPLCONF', 'rdb-only', 2), ('REPLCONF', 'rdb-only', 1, 'capa', 'x'), ('REPLCONF', 'capa', 'eof', 'a'),
             ('REPLCONF', 'ip-address', 'x' * 255), ('REPLCONF', 'ip-address', 'x' * 256), ('REPLCONF', 'rdb-filter-only', 'x')]
    with m.raw() as a, theirs.raw() as b:
        for one in words:
            assert a.call(*one) == b.call(*one), one
        for one in ('ACK', 5), ('GETACK', '*'), ('ACK', 'x'):
            assert a.command('REPLCONF', *one).call('PING') == b'PONG'
    with m.raw() as r:
        assert r.call('REPLCONF', 'ip-address', 'a\r\nrole:x', 'listening-port', 5) == b'OK'
        receive(greet(r, 'eof').command('PSYNC', '?', -1))
        with m.raw() as c:
            assert b'ip=a??role:x,port=7777' in c.call('INFO', 'replication')


@pytest.mark.any_engine
@pytest.mark.parametrize('words, stays', [
    ('REPLCONF ACK 0', True), ('REPLCONF GETACK *', True), ('PSYNC ? -1', True), ('SYNC', True), ('MONITOR', True),
    ('PING', False), ('REPLCONF listening-port 1', False), ('CLIENT REPLY ON', False), ('RESET', False),
    ('SUBSCRIBE c', False), ('HELLO 3', False), ('CLIENT TRACKING ON', False), ('MULTI', False), ('NONSENSE', False),
])
def test_a_replica_that_would_be_answered_is_dropped(words, stays, primary, redis_factory):
    """As in Redis: there is no place for answers among the bytes of the stream."""
    args = '--repl-ping-replica-period', 1000
    for m in primary(*args), redis_factory(*MODES['disk'], *args):
        with m.raw() as r, m.raw() as c:
            receive(r.command('SYNC'), old=True)
            r.command(*words.split())
            if not stays:
                assert r.closed()
                continue
            assert c.call('SET', 'k', 'v') == b'OK'
            assert [r.reply(), r.reply()] == [[b'SELECT', b'0'], [b'SET', b'k', b'v']]


@pytest.mark.any_engine
def test_a_monitor_is_no_replica(primary, redis_factory):
    for m in primary(), redis_factory():
        with m.raw() as c:
            assert c.call('MONITOR') == b'OK'
            for words in ('PSYNC', '?', -1), ('SYNC',), ('MONITOR',):
                assert c.command(*words).call('PING') == b'PONG'
                assert b'PING' in c.reply()
            why = 'ERR Command is not valid when client is a replica.'
            assert c.call('REPLICAOF', '127.0.0.1', 1) == ReplyError(why)
            assert replication(m)['connected_slaves'] == 0


@pytest.mark.any_engine
@pytest.mark.parametrize('words', ['SUBSCRIBE c', 'CLIENT TRACKING ON BCAST'])
def test_a_replica_gets_no_messages(words, primary):
    m = primary('--repl-ping-replica-period', 1000)
    with m.raw() as r, m.raw() as c:
        r.call('HELLO', 3)
        r.call(*words.split())
        receive(r.command('SYNC'), old=True)
        assert c.call('PUBLISH', 'c', 'x') == 0
        assert c.call('SET', 'k', 'v') == b'OK'
        assert [r.reply()[0] for _ in range(4)] == [b'SELECT', b'publish', b'SELECT', b'SET']


@pytest.mark.any_engine
def test_a_replica_that_does_not_read_is_dropped(server_factory):
    """In the full sync: the others get on meanwhile, and the server does not keep all of it."""
    m = server_factory('--repl-diskless-sync-delay', 100, '--repl-diskless-sync-max-replicas', 2,
                       '--repl-timeout', 3)
    with m.raw() as c, m.raw() as lazy, m.raw() as r:
        everything.run(c, (('SET', f'k{i}', everything.noise(100_000)) for i in range(600)))
        greet(lazy, 'eof').command('PSYNC', '?', -1)
        greet(r, 'eof').command('PSYNC', '?', -1)
        taken = [0]

        def read():
            while taken[0] < 60_000_000:
                data = r.sock.recv(1 << 20)
                if not data:
                    return
                taken[0] += len(data)
            r.send(b'\n')                                   # it lives

        thread = threading.Thread(target=read)
        thread.start()
        eventually(lambda: 'Disconnecting timedout replica (full sync)' in m.log)
        thread.join(30)
        assert taken[0] >= 60_000_000
        assert replication(m)['connected_slaves'] == 1
        assert m.info('memory')['mem_total_replication_buffers'] < 16 << 20
        lazy.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\1\0\0\0\0\0\0\0')


@pytest.mark.parametrize('mode', MODES)
def test_all_leave_during_the_sync(mode, server_factory, redis_factory):
    m = server_factory(*MODES[mode], '--rdb-key-save-delay', 20000)
    with m.raw() as c:
        everything.run(c, (('SET', f'k{i}', 'v') for i in range(1000)))
        with m.raw() as r:
            greet(r, 'eof').command('PSYNC', '?', -1)
            eventually(lambda: 'Starting BGSAVE' in m.log)
        eventually(lambda: 'the full sync is given up' in m.log)
        assert c.call('CONFIG', 'SET', 'rdb-key-save-delay', 0) == b'OK'
        assert c.call('SAVE') == b'OK'
    r = redis_factory()
    attach(m, r)
    equal(m, r)


def test_a_sync_waits_for_a_bgsave(primary, redis_factory):
    m, r = primary('--rdb-key-save-delay', 1000), redis_factory()
    with m.raw() as c:
        everything.run(c, (('SET', f'k{i}', 'v') for i in range(500)))
        assert c.call('BGSAVE').startswith(b'Background saving started')
        follow(r, m)
        eventually(lambda: 'asks for synchronization' in m.log)
        everything.run(c, (('SET', f'k{i}', 'w') for i in range(0, 500, 3)))
    equal(m, r)
    assert m.log.index('Background saving terminated with success') < m.log.index('Starting BGSAVE for SYNC')


@pytest.mark.any_engine
def test_output_limit_of_replicas(primary):
    m = primary('--client-output-buffer-limit', 'replica 2mb 0 0', '--repl-backlog-size', '16kb')
    with m.raw() as c, m.raw() as r:
        receive(greet(r, 'eof').command('PSYNC', '?', -1))
        r.command('REPLCONF', 'ACK', 0)
        eventually(lambda: replication(m)['slave0']['state'] == 'online')
        everything.run(c, (('SET', 'k', everything.noise(100_000)) for _ in range(300)))
        eventually(lambda: replication(m)['connected_slaves'] == 0)
        assert m.info('stats')['client_output_buffer_limit_disconnections'] == 1
        eventually(lambda: m.info('memory')['mem_total_replication_buffers'] < 4 << 20)


@pytest.mark.any_engine
def test_a_silent_replica_is_dropped(primary):
    m = primary('--repl-timeout', 3)
    with m.raw() as r, m.raw() as loading:
        receive(greet(r, 'eof').command('PSYNC', '?', -1))
        receive(greet(loading, 'eof').command('PSYNC', '?', -1))
        end = time.monotonic() + 20
        while 'Disconnecting' not in m.log:                 # a replica that loads sends empty lines
            assert time.monotonic() < end
            loading.send(b'\n')
            time.sleep(0.1)
        time.sleep(0.3)                                     # it has been there for as long
        assert m.log.count('Disconnecting timedout replica (streaming sync)') == 1
        assert replication(m)['connected_slaves'] == 1


@pytest.mark.any_engine
def test_a_sync_without_a_writable_directory(server_factory, redis_factory, tmp_path):
    m, r = server_factory(*MODES['disk'], '--enable-protected-configs', 'yes'), redis_factory()
    with m.raw() as c:
        everything.run(c, [('SET', 'k', 'v')])
        gone = tmp_path / 'gone'
        gone.mkdir()
        assert c.call('CONFIG', 'SET', 'dir', gone) == b'OK'
        gone.rmdir()
        follow(r, m)
        eventually(lambda: 'SYNC failed' in m.log)
        assert c.call('SET', 'k', 'w') == b'OK'
        gone.mkdir()
    equal(m, r)


@pytest.mark.any_engine
def test_shutdown_waits_for_replicas(primary, redis_factory):
    """What clients were told is done is with the replica when the primary is gone."""
    m, r = primary(), redis_factory()
    attach(m, r)
    with m.raw() as c, r.client() as rc, r.raw() as sleeper:
        sleeper.command('DEBUG', 'SLEEP', 1)
        time.sleep(0.1)
        for i in range(3000):
            c.command('SET', f'k{i}', 'x' * 10000)
        assert [c.reply() for _ in range(3000)] == [b'OK'] * 3000
        assert m.stop() == 0
        assert '1 of 1 replicas are in sync when shutting down.' in m.log
        eventually(lambda: not up(r))
        assert rc.dbsize() == 3000


@pytest.mark.any_engine
def test_shutdown_waits_no_longer_than_it_should(primary):
    m = primary('--shutdown-timeout', 3)
    with m.raw() as c, m.raw() as asks, m.raw() as r:
        receive(greet(r, 'eof').command('PSYNC', '?', -1))
        r.command('REPLCONF', 'ACK', 0)                     # the last word from it
        everything.run(c, [('SET', 'x', 1)])
        eventually(lambda: replication(m)['slave0']['state'] == 'online')
        asks.command('SHUTDOWN')
        eventually(lambda: 'Waiting for replicas before shutting down.' in m.log)
        assert 0 <= m.info('server')['shutdown_in_milliseconds'] <= 3000
        c.command('SET', 'x', 2)
        assert c.silent()                                   # no write is taken any more
        with m.raw() as other:
            assert other.call('GET', 'x') == b'1'
            assert other.call('SHUTDOWN', 'ABORT') == b'OK'
            assert asks.reply() == ReplyError('ERR Errors trying to SHUTDOWN. Check logs.')
            assert other.call('SHUTDOWN', 'ABORT') == ReplyError('ERR No shutdown in progress.')
        assert c.reply() == b'OK'
        asks.command('SHUTDOWN')
        assert m.proc.wait(mayfly.PATIENCE) == 0
        assert '0 of 1 replicas are in sync when shutting down.' in m.log


@pytest.mark.any_engine
def test_shutdown_by_signals_that_waits(primary):
    """A replica that leaves changes nothing; another SIGINT ends the wait, unless it was given up before."""
    m = primary('--shutdown-timeout', 100)
    with m.raw() as c, m.raw() as leaving, m.raw() as r:
        receive(greet(r, 'eof').command('PSYNC', '?', -1))
        r.command('REPLCONF', 'ACK', 0)
        everything.run(c, [('SET', 'x', 1)])
        eventually(lambda: replication(m)['slave0']['state'] == 'online')

        def wait(how, times):
            m.proc.send_signal(how)
            eventually(lambda: m.log.count('Waiting for replicas before shutting down.') == times)

        wait(signal.SIGTERM, 1)
        connected = m.info('clients')['connected_clients']
        leaving.send(mayfly.encode('PING') + mayfly.encode('SET', 'x', 2))
        assert leaving.reply() == b'PONG'
        leaving.close()
        eventually(lambda: m.info('clients')['connected_clients'] == connected - 1)
        assert c.call('SHUTDOWN', 'ABORT') == b'OK' and c.call('GET', 'x') == b'1'
        wait(signal.SIGINT, 2)
        m.proc.send_signal(signal.SIGINT)
        assert m.proc.wait(mayfly.PATIENCE) == 1 and 'You insist... exiting now.' in m.log


# -- what is kept across a restart --------------------------------------------------------------------------

@pytest.fixture
def known_to_a_replica(primary):
    """A server, a bare replica of it, and the history that the replica knows."""
    s = primary('--repl-backlog-ttl', 1, '--appendonly', 'no')
    with s.raw() as c:
        greet(c, 'eof', 'psync2').command('PSYNC', '?', -1)
        receive(c)
        c.command('REPLCONF', 'ACK', 0)
        yield s, c, replication(s)['master_replid']


def test_writes_without_a_backlog(known_to_a_replica):
    """With repl-backlog-ttl over, writes are in no history: no replica resumes from before them."""
    s, c, name = known_to_a_replica
    with s.client() as r:
        r.set('a', 1)
        end = replication(s)['master_repl_offset']
        c.close()
        eventually(lambda: not replication(s)['repl_backlog_active'])
        r.set('b', 1)
    s.restart()
    with s.raw() as back:
        greet(back, 'eof', 'psync2')
        assert next_line(back.command('PSYNC', name, end + 1)).startswith(b'+FULLRESYNC')


def test_database_of_the_stream(known_to_a_replica, server_factory):
    """A primary that comes back as the replica of another knows which one its stream had selected."""
    s, _, name = known_to_a_replica
    with s.client(db=3) as r:
        r.set('a', 1)
        if mayfly.ENGINE == 'memory':
            r.save()
    end = replication(s)['master_repl_offset']
    with socket.create_server(('127.0.0.1', 0)) as listener:
        s.args += ['--replicaof', f'127.0.0.1 {listener.getsockname()[1]}']
        s.restart(9)
        listener.settimeout(20)
        with listener.accept()[0] as link:
            link.settimeout(20)
            said = b''
            for last, answer in ((b'PING', b'+PONG'), (b'capa', b'+OK\r\n+OK'), (b'PSYNC', b'+CONTINUE')):
                while last not in said or not said.endswith(b'\r\n'):
                    said += link.recv(65536)
                link.sendall(answer + b'\r\n')
            assert name.encode() in said and b'%d' % (end + 1) in said
            link.sendall(mayfly.encode('SET', 'b', '2'))
            with s.client(db=3) as r:
                eventually(lambda: r.get('b') == b'2')
