"""WAITAOF: what a connection wrote is on disk, here and on replicas."""
import pytest

from mayfly import ENGINE, ReplyError, eventually

ROCKS = ENGINE == 'rocksdb'
LOG = () if ROCKS else ('--appendonly', 'yes')
NO_LOG = ReplyError('ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.')


@pytest.fixture
def start(server_factory):
    return lambda *args: server_factory('--repl-diskless-sync-delay', 0, '--appendfsync', 'everysec', *LOG, *args)


def follow(replica, primary):
    with replica.raw() as c:
        assert c.call('REPLICAOF', '127.0.0.1', primary.port) == b'OK'
    eventually(lambda: replica.info('replication').get('master_link_status') == 'up', 30)


def blocked(server):
    return server.info('clients')['blocked_clients']


def test_arguments(r, server):
    with server.raw() as c:
        for args, error in (
                (('x', 0, 0), 'value is not an integer or out of range'),
                ((2, 0, 0), 'value is out of range, value must between 0 and 1'),
                ((0, -1, 0), 'value is out of range, must be positive'),
                ((0, 'x', 0), 'value is out of range, must be positive'),
                ((0, 0, -1), 'timeout is negative'),
                ((0, 0, 'x'), 'timeout is not an integer or out of range')):
            assert c.call('WAITAOF', *args) == ReplyError('ERR ' + error)


def test_the_local_disk(start):
    """everysec: the answer comes with the sync; a client that wrote nothing has nothing to wait for."""
    m = start()
    with m.raw() as c:
        assert c.call('WAITAOF', 1, 0, 0) == [1, 0]
        for _ in range(2):
            c.command('SET', 'k', 'v').command('WAITAOF', 1, 0, 60_000).command('PING')
            assert [c.reply() for _ in range(3)] == [b'OK', [1, 0], b'PONG']
        assert c.call('WAITAOF', 0, 0, 0) == [1, 0]


def test_no_sync_no_answer(start):
    m = start('--appendfsync', 'no')
    with m.raw() as c, m.raw() as other:
        number = c.call('CLIENT', 'ID')
        c.call('SET', 'k', 'v')
        assert c.call('WAITAOF', 1, 0, 50) == [0, 0]
        assert c.call('WAITAOF', 0, 0, 0) == [0, 0]
        for how, reply in ('TIMEOUT', [0, 0]), ('ERROR', ReplyError('UNBLOCKED client unblocked via CLIENT UNBLOCK')):
            c.command('WAITAOF', 1, 0, 0)
            eventually(lambda: blocked(m) == 1)
            assert other.call('CLIENT', 'UNBLOCK', number, how) == 1
            assert c.reply() == reply
        c.command('WAITAOF', 1, 0, 0)
        eventually(lambda: blocked(m) == 1)
        assert other.call('CONFIG', 'SET', 'appendfsync', 'everysec') == b'OK'
        assert c.reply() == [1, 0]


def test_always(start):
    """The reply to a write comes after the sync: nothing is left to wait for, even in the same tick."""
    m = start('--appendfsync', 'always')
    with m.raw() as c:
        for i in range(20):
            c.command('INCR', 'n').command('WAITAOF', 1, 0, 60_000)
            assert [c.reply(), c.reply()] == [i + 1, [1, 0]]


def test_within_transactions_and_scripts(start):
    m = start('--appendfsync', 'no')
    with m.raw() as c:
        c.call('SET', 'k', 'v')
        assert c.call('EVAL', "return redis.call('WAITAOF', 1, 0, 0)", 0) == [0, 0]
        for line in ('MULTI', 'SET k w', 'WAITAOF 1 0 0'):
            c.call(*line.split())
        assert c.call('EXEC') == [b'OK', [0, 0]]


@pytest.mark.skipif(ROCKS, reason='it has a log, always')
def test_without_an_aof(server_factory):
    m = server_factory('--appendonly', 'no')
    with m.raw() as c, m.raw() as other:
        c.call('SET', 'k', 'v')
        assert c.call('WAITAOF', 1, 0, 0) == NO_LOG
        assert c.call('WAITAOF', 0, 0, 0) == [0, 0]
        for value in 'yes', 'no':
            assert other.call('CONFIG', 'SET', 'appendfsync', 'no', 'appendonly', value) == b'OK'
            if value == 'yes':
                eventually(lambda: m.info('persistence')['aof_rewrite_in_progress'] == 0
                           and m.info('persistence')['aof_enabled'] == 1)
                c.call('SET', 'k', 'v')
                c.command('WAITAOF', 1, 0, 0)
                eventually(lambda: blocked(m) == 1)
        assert c.reply() == NO_LOG


def test_replicas(start):
    """A replica counts when its own disk has it, which it tells with its acknowledgements."""
    m, s = start(), start('--appendfsync', 'no')
    follow(s, m)
    with m.raw() as c, s.raw() as rc:
        assert rc.call('WAITAOF', 0, 0, 0).startswith('ERR WAITAOF cannot be used with replica instances.')
        c.call('SET', 'k', 'v')
        assert c.call('WAIT', 1, 60_000) == 1
        assert c.call('WAITAOF', 1, 1, 50)[1] == 0
        c.command('WAITAOF', 1, 1, 60_000)
        eventually(lambda: blocked(m) == 1)
        assert rc.call('CONFIG', 'SET', 'appendfsync', 'always') == b'OK'
        assert c.reply() == [1, 1]
        for _ in range(3):
            c.call('INCR', 'n')
            assert c.call('WAITAOF', 0, 1, 60_000)[1] == 1
            assert rc.call('GET', 'n') is not None
