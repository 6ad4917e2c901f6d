"""maxmemory: the eight policies, what is refused when nothing may go, and that dead keys go
before live ones."""
import time

import pytest

from mayfly import encode, eventually, in_one_of

pytestmark = pytest.mark.engine('memory', 'nothing is evicted from a disk')

MB = 1024 * 1024
OOM = "OOM command not allowed when used memory > 'maxmemory'."
VALUE = b'x' * 1000


def fill(c, prefix, n, *options):
    c.send(b''.join(encode('SET', f'{prefix}{i}', VALUE, *options) for i in range(n)))
    return [c.reply() for _ in range(n)]


def used(c):
    return next(int(line.split(b':')[1]) for line in c.call('INFO', 'memory').split(b'\r\n')
                if line.startswith(b'used_memory:'))


def stat(c, name):
    return next(int(line.split(b':')[1]) for line in c.call('INFO', 'stats').split(b'\r\n')
                if line.startswith(name.encode() + b':'))


def survivors(c, prefix):
    return {k[len(prefix):] for k in c.call('KEYS', prefix + '*')}


@pytest.fixture
def limited(server_factory, raw):
    """limited(policy) gives a connection to a server that has room for `room` more bytes."""
    def start(policy, room=2 * MB, *args):
        s = server_factory('--maxmemory-policy', policy, '--enable-debug-command', 'yes', *args)
        c = raw(s.port)
        fill(c, 'warm', 100)    # so that buffers have their usual size
        c.call('FLUSHALL')
        time.sleep(0.02)
        c.call('CONFIG', 'SET', 'maxmemory', used(c) + room)
        return c
    return start


POLICIES = ['noeviction', 'allkeys-lru', 'allkeys-lfu', 'allkeys-random',
            'volatile-lru', 'volatile-lfu', 'volatile-random', 'volatile-ttl']


@pytest.mark.parametrize('policy', POLICIES)
def test_keeps_below_the_limit(limited, policy):
    c = limited(policy)
    limit = int(c.call('CONFIG', 'GET', 'maxmemory')[1])
    assert b'maxmemory_policy:' + policy.encode() in c.call('INFO', 'memory')
    options = ('EX', 1000) if policy.startswith('volatile') else ()
    replies = fill(c, 'k', 5000, *options)
    if policy == 'noeviction':
        assert OOM in replies and stat(c, 'evicted_keys') == 0
    else:
        assert set(replies) == {b'OK'}
        assert stat(c, 'evicted_keys') > 2000
        assert abs(c.call('DBSIZE') + stat(c, 'evicted_keys') - 5000) < 20  # INFO may evict too
    assert 500 < c.call('DBSIZE') < 2500
    # One command at a time is let in above the limit; the buffers of this connection come on top.
    assert used(c) < limit + MB // 2


def test_noeviction_refuses_only_what_needs_memory(limited):
    c = limited('noeviction')
    fill(c, 'k', 5000)
    for command in (('SET', 'new', 'v'), ('LPUSH', 'l', 'a'), ('HSET', 'h', 'f', 'v'), ('APPEND', 'k1', 'x'),
                    ('SETRANGE', 'k1', 0, 'x'), ('INCR', 'n'), ('COPY', 'k1', 'k2x')):
        assert c.call(*command) == OOM, command
    for command in (('GET', 'k1'), ('EXPIRE', 'k2', 100), ('DEL', 'k3'), ('PING',),
                    ('CONFIG', 'GET', 'maxmemory'), ('RENAME', 'k4', 'k4x'), ('PERSIST', 'k2')):
        assert c.call(*command) != OOM, command
    assert 'errorstat_OOM' in c.call('INFO', 'errorstats').decode()
    c.call('FLUSHALL')
    eventually(lambda: c.call('SET', 'new', 'v') == b'OK')


@pytest.mark.parametrize('policy', [p for p in POLICIES if p.startswith('volatile')])
def test_volatile_policies_spare_keys_without_deadline(limited, policy):
    c = limited(policy)
    assert set(fill(c, 'keep', 500)) == {b'OK'}
    assert set(fill(c, 'v', 3000, 'EX', 1000)) == {b'OK'}
    assert len(survivors(c, 'keep')) == 500
    # With nothing left that may go, writes are refused.
    assert OOM in fill(c, 'keep', 5000)
    assert survivors(c, 'v') == set()


def test_volatile_ttl_takes_the_nearest(limited):
    c = limited('volatile-ttl', 3 * MB, '--maxmemory-samples', 10)
    fill(c, 'far', 1000, 'EX', 100_000)
    fill(c, 'near', 1000, 'EX', 100)
    fill(c, 'middle', 1200, 'EX', 5_000)
    far, near = len(survivors(c, 'far')), len(survivors(c, 'near'))
    assert stat(c, 'evicted_keys') > 100
    assert far > 950 and near < 950


def test_lru_takes_the_longest_unused(limited):
    c = limited('allkeys-lru', 3 * MB, '--maxmemory-samples', 10)
    fill(c, 'old', 1000)
    fill(c, 'used', 1000)
    time.sleep(1.1)
    for i in range(1000):       # one by one: answers that wait take memory, too
        assert c.call('GET', f'used{i}') == VALUE
    fill(c, 'new', 1200)
    assert stat(c, 'evicted_keys') > 100
    assert len(survivors(c, 'used')) > 950 and len(survivors(c, 'old')) < 950


def test_lfu_takes_the_rarely_used(limited):
    c = limited('allkeys-lfu', 3 * MB, '--maxmemory-samples', 10, '--lfu-decay-time', 0)
    fill(c, 'hot', 1000)
    for _ in range(50):
        c.send(b''.join(encode('TOUCH', f'hot{i}') for i in range(1000)))
        c.exactly(4 * 1000)
    fill(c, 'cold', 2500)
    freqs = [c.call('OBJECT', 'FREQ', f'hot{i}') or 0 for i in range(101)]
    assert sorted(freqs)[50] > 6        # each counter moves by chance
    assert stat(c, 'evicted_keys') > 100
    assert len(survivors(c, 'hot')) > 950


@pytest.mark.parametrize('policy', ['noeviction', 'allkeys-lru', 'volatile-ttl'])
def test_dead_keys_go_first(limited, policy):
    """The active cycle is off, so that the dead are still there when the memory is needed."""
    c = limited(policy)
    c.call('DEBUG', 'SET-ACTIVE-EXPIRE', 0)
    fill(c, 'dead', 1000, 'PX', 30)
    fill(c, 'live', 200, 'EX', 100)
    time.sleep(0.15)
    replies = fill(c, 'more', 900, 'EX', 100)
    assert set(replies) == {b'OK'}
    assert len(survivors(c, 'live')) == 200 and len(survivors(c, 'more')) == 900
    assert stat(c, 'evicted_keys') == 0 and stat(c, 'expired_keys') >= 100


def test_lowering_the_limit(limited):
    c = limited('allkeys-random', 4 * MB)
    fill(c, 'k', 3000)
    assert c.call('DBSIZE') > 2500
    limit = used(c) - 2 * MB
    assert c.call('CONFIG', 'SET', 'maxmemory', limit) == b'OK'
    eventually(lambda: c.call('PING') and used(c) < limit + MB // 4)
    assert c.call('DBSIZE') < 2000
    assert c.call('CONFIG', 'SET', 'maxmemory', 0) == b'OK'
    assert set(fill(c, 'z', 3000)) == {b'OK'} and len(survivors(c, 'z')) == 3000


def test_lowering_the_limit_of_an_idle_server(limited):
    def attempt():
        c = limited('allkeys-random', 4 * MB)
        fill(c, 'k', 3000)
        limit = used(c) - 2 * MB
        assert c.call('CONFIG', 'SET', 'maxmemory', limit) == b'OK'
        time.sleep(0.5)
        assert c.call('DBSIZE') < 2000      # without any command in between
        assert used(c) < limit + MB // 4
    in_one_of(3, attempt)


def test_nothing_goes_during_a_pause(limited, raw):
    """Neither by itself nor for a command that is held, or one that only reads."""
    c = limited('allkeys-random', 4 * MB)
    writer = raw(c.sock.getpeername()[1])
    fill(c, 'k', 2000)
    assert c.call('CLIENT', 'PAUSE', 100_000, 'WRITE') == b'OK'
    assert c.call('CONFIG', 'SET', 'maxmemory', used(c) - MB) == b'OK'
    writer.command('SET', 'new', VALUE)
    assert writer.silent(0.2) and c.call('GET', 'k0') == VALUE
    assert c.call('DBSIZE') == 2000 and stat(c, 'evicted_keys') == 0
    assert c.call('CLIENT', 'UNPAUSE') == b'OK'
    assert writer.reply() == b'OK' and stat(c, 'evicted_keys') > 0


def test_big_values_go_too(limited):
    c = limited('allkeys-lru', 8 * MB)
    for i in range(50):
        assert c.call('RPUSH', f'list{i}', *[VALUE] * 1000) == 1000
    assert stat(c, 'evicted_keys') >= 40
    assert c.call('LLEN', 'list49') == 1000
