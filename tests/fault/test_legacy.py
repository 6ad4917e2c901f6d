"""A foreign database with strings in the old format: Mayfly migrates them, and is killed meanwhile.
No string is lost, and no deleted one reappears."""
import os
import time

import mayfly
from load import Link
from machine import ROCKS
from rocks import DATA, DEADLINE, INFO, META, RANK, Store, row_of, u64

STRINGS = 3000
LATER = 4_000_000_000_000


def make_foreign(directory):
    """Takes everything out of a database that only Mayfly writes, and puts old strings in."""
    expected = {}
    with Store(os.path.join(directory, 'rocksdb')) as s:
        for family in (INFO, DEADLINE, RANK):
            for key, _ in s.rows(family):
                s.delete(family, key)
        for i in range(STRINGS):
            name, deadline = b'old:%d' % i, LATER + i if i % 3 == 0 else 0
            s.put(DATA, row_of(name) + b'S', u64(deadline) + b'old %d' % i)
            expected[name] = (b'old %d' % i, deadline or -1)
            if i % 10 == 0:                            # there is newer metadata: the old form does not count
                s.put(META, row_of(name), b'\x81' + u64(0) + b'new')
                expected[name] = (b'new', -1)
        s.put(DATA, row_of(b'old:dead') + b'S', u64(5) + b'long gone')
    return expected


def see(link, names):
    replies = link.many([c for n in names for c in (('GET', n), ('PEXPIRETIME', n))])
    return {n: (value, deadline) for n, value, deadline in zip(names, replies[::2], replies[1::2])}


def test_old_strings(machines, rounds):
    for _ in rounds.run(full=20, short=1):
        m = machines(ROCKS, 'no').start()
        with Link(m.port) as link:
            link.many([('HSET', 'hash', 'f', 'v'), ('SET', 'timed', 'v', 'PXAT', LATER), ('RPUSH', 'list', 1, 2)])
        m.stop()
        expected = make_foreign(m.dir)
        expected[b'timed'] = (b'v', LATER)
        m.check()
        kills = 0
        for attempt in range(8 if rounds.full else 3):
            m.start('--appendfsync', 'always')
            with Link(m.port) as link:
                name = b'old:%d' % (3 * attempt + 1)
                assert link.call('DEL', name) == 1      # gone, and stays gone
                expected[name] = (None, -2)
                link.call('SADD', b'old:%d' % (3 * attempt + 2), 'x')
                assert see(link, expected) == expected
            time.sleep(rounds.rng.uniform(0, 0.2))
            m.kill()
            m.check()
            kills += 1
        m.start()
        with Link(m.port) as link:
            info = lambda: dict(x.split(':', 1) for x in link.call('INFO', 'rocksdb').decode().split() if ':' in x)
            mayfly.eventually(lambda: info()['legacy_migration'] == 'done', 30)
            assert see(link, expected) == expected
            there = sum(v is not None for v, _ in expected.values())
            assert link.call('DBSIZE') == there + 2, 'hash and list'
        m.stop()
        m.check()
        with Store(os.path.join(m.dir, 'rocksdb')) as s:
            assert not [k for k, _ in s.rows(DATA) if k.endswith(b'S') and b'old:' in k]
        rounds.add(kills=kills, strings_moved=STRINGS)
