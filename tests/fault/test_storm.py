"""kill -9 in the middle of a mass expiry: the deadline index is half drained and still exact; no dead
key is visible, deleted or not, and in the end all are deleted."""
import time

import pytest

import mayfly
from load import Link
from machine import ROCKS

KEYS, FIELDS = 6000, 3000


def now_ms():
    return int(time.time() * 1000)


def prepare(link, rng, serial):
    """Keys of all sorts, some of which die around the same moment, and some that stay. On a busy machine they may die while
    they are written; then there is more time for them."""
    for lead_ms in (1500, 6000, 24_000):
        at = now_ms() + lead_ms
        write(link, rng, serial, at)
        if now_ms() < at:
            return at
        link.call('FLUSHALL')
    raise AssertionError('too slow: they die already')


def write(link, rng, serial, at):
    link.call('SELECT', 0)
    commands = []
    for i in range(KEYS):
        when = at + rng.choice((0, 0, 0, 1, 40, 64, 200, 3000, 10**7))
        name = b'k:%d:%d' % (serial, i)
        if i % 10:
            commands.append(('SET', name, b'v', 'PXAT', when))
        else:
            commands += [('SADD', name, b'a', b'b'), ('PEXPIREAT', name, when)]
    fields = [b'f%d' % i for i in range(FIELDS)]
    commands += [('HSET', b'h:%d' % serial, *(x for f in fields for x in (f, b'v'))),
                 ('HPEXPIREAT', b'h:%d' % serial, at, 'FIELDS', FIELDS - 1, *fields[1:]),
                 ('PEXPIREAT', b'h:%d' % serial, at + 10**7)]
    for start in range(0, len(commands), 500):
        for c, reply in zip(commands[start:], link.many(commands[start:start + 500])):
            assert not isinstance(reply, mayfly.ReplyError), (c[:3], reply)


def keys_left(port):
    with Link(port) as link:
        return link.call('DBSIZE')


@pytest.mark.parametrize('setup', [ROCKS], ids=lambda s: s.name)
def test_storm(setup, machines, rounds):
    rng = rounds.rng
    m = machines(setup, 'everysec', rng=rng).start()
    for i in rounds.run(full=20, short=1):
        with Link(m.port) as link:
            at = prepare(link, rng, i)
        kills = 0
        time.sleep(max(0, at - now_ms()) / 1000 + rng.uniform(0, 0.1))
        for _ in range(4 if rounds.full else 2):
            m.kill()
            m.check()
            m.start()
            kills += 1
            with Link(m.port) as link:
                assert link.call('HLEN', b'h:%d' % i) == 1
                assert link.call('HGETALL', b'h:%d' % i) == [b'f0', b'v']
            time.sleep(rng.uniform(0, 0.05))
        with Link(m.port) as link:
            mayfly.eventually(lambda: now_ms() > at + 3100)
            live = [k for k in link.call('KEYS', '*')]
            deadlines = link.many([('PEXPIRETIME', k) for k in live])
            assert all(d > at + 10**6 for d in deadlines)
            mayfly.eventually(lambda: link.call('DBSIZE') == len(live))
        m.kill()
        m.check()
        m.start()
        with Link(m.port) as link:
            link.call('FLUSHALL')
        rounds.add(kills=kills + 1, keys_expired=KEYS - len(live))
    m.stop()
    m.check()


def dropped(link, family):
    """Rows that a compaction filter has taken out of a family."""
    info = link.call('INFO', 'rocksdb').decode()
    line = next(x for x in info.split('\r\n') if x.startswith(f'family_{family}:'))
    return int(line.split('dropped=')[1].split(',')[0])


def rewrite(link, serial):
    """Enough writes for compactions to come by; of keys that stay, and of collections that go."""
    for i in range(40):
        link.many([('SET', b'stays:%d' % j, b'%d.%d' % (serial, i) * 200) for j in range(100)])
        link.many([('DEL', b'goes'), ('SADD', b'goes', *range(200))])


def test_compactions_take_the_dead(machines, rounds):
    """With the cycle off, compactions drop the values of dead keys by themselves, and rows of collections that are
    no more. The keys stay, and are counted, until the cycle takes them."""
    for i in rounds.run(full=10, short=1):
        m = machines(ROCKS, 'no').start('--ttl-cleanup-interval', 0, '--rocksdb-write-buffer-size', '1mb')
        with Link(m.port) as link:
            at = now_ms() + 500
            for start in range(0, KEYS, 500):
                link.many([('SET', b'k:%d' % n, b'x' * 200, 'PXAT', at + n % 50 * 10)
                           for n in range(start, start + 500)])
            for n in range(100):
                rewrite(link, n)
                if dropped(link, 'redis_metadata') and dropped(link, 'data'):
                    break
            taken = dropped(link, 'redis_metadata')
            assert taken and dropped(link, 'data')
            assert link.call('DBSIZE') == KEYS + 101
        m.kill()
        code, text = m.setup.checker(m.dir)
        assert code == 0 and 'emptied' in text, text
        m.start()                                       # with the cycle
        with Link(m.port) as link:
            mayfly.eventually(lambda: link.call('DBSIZE') == 101)
        m.kill()
        code, text = m.setup.checker(m.dir)
        assert code == 0 and 'emptied' not in text, text
        rounds.add(keys_taken=taken)
        if i % 2:
            m.start()
            m.stop()
            m.check()
