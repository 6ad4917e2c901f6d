"""A snapshot under load contains every key as it was at one moment, however it changes meanwhile."""
import os
import random
import shutil
import tempfile
import threading
import time

import pytest

import mayfly
from aof import save
from chooser import Chooser
from load import Link, Load, acknowledged
from machine import MEMORY, SNAPSHOTS

BULK_DB, BULK = 30, 30_000


class Big(Chooser):
    """Few keys, with thousands of elements or a megabyte, to which a little is added, or taken, at a time.
    Sometimes they go, or move, as a whole."""

    CHOICES = {
        None: dict(new_string=1, new_hash=1, new_list=1, new_set=1, new_zset=1),
        'string': dict(append=6, setrange=9, any=1),
        'hash': dict(hset=6, hdel=3, hincr=3, field_deadline=3, field_persist=1, any=1),
        'list': dict(push=6, pop=4, lset=2, ltrim=1, lrem=1, lmove=1, any=1),
        'set': dict(sadd=6, srem=4, smove=2, algebra=1, any=1),
        'zset': dict(zadd=6, zrem=3, zincr=3, zpop=2, zremrange=1, zunion=1, any=1),
        'any': dict(delete=2, rename=4, copy=2, move=4, expire=4, persist=2, brief=2),
    }

    def name(self):
        return b'k:%d' % self.rng.randrange(8)

    def few(self):
        return self.rng.randint(1, 8)

    def some(self, found):
        return range(self.few() if found else self.rng.choice((100, 5000, 9000)))

    def member(self):
        return b'm%d' % self.rng.randrange(20_000)

    def value(self):
        return b'%d.' % self.serial + self.rng.randbytes(self.rng.choice((8, 30)))

    def new_string(self, _db, key, _found):
        return [('SET', key, b'%d.' % self.serial + self.rng.randbytes(self.rng.choice((1000, 1_200_000))))]

    def new_hash(self, _db, key, found):
        return [('HSET', key, *(x for _ in self.some(found) for x in (self.member(), self.value())))]

    def new_list(self, _db, key, found):
        return [(self.rng.choice(('RPUSH', 'LPUSH')), key, *(self.value() for _ in self.some(found)))]

    def new_set(self, _db, key, found):
        return [('SADD', key, *(self.member() for _ in self.some(found)))]

    def new_zset(self, _db, key, found):
        return [('ZADD', key, *(x for _ in self.some(found) for x in (self.score(), self.member())))]

    hset, push, sadd, zadd = new_hash, new_list, new_set, new_zset


class Wide(Chooser):
    """One number, written to many keys by one command."""

    def next(self, db):
        self.serial += 1
        chance, keys = self.rng.random(), [b'w:%d' % i for i in range(300)]
        if chance < 0.9:
            return [('MSET', *(x for k in keys for x in (k, b'%d' % self.serial)))]
        if chance < 0.95:
            return [('DEL', *keys)]
        return [('SWAPDB',)] if chance < 0.98 else [('FLUSHDB', self.rng.choice(('SYNC', 'ASYNC')))]


class Deadlines(Chooser):
    """Values that tell their own deadline, near and far, of keys and of fields."""

    def next(self, db):
        self.serial += 1
        key, when = b'd:%d' % self.rng.randrange(200), self.later()
        if self.rng.random() < 0.3:
            return [('SET', b't:%d' % self.serial, b'x', 'PXAT', self.soon())]
        if self.rng.random() < 0.5:
            return [('SET', key, b'%d' % when, 'PXAT', when)]
        fields = [b'f%d' % i for i in range(self.rng.choice((2, 5, 300)))]
        return [('DEL', key), ('HSET', key, *(x for f in fields for x in (f, b'%d' % when))),
                ('HPEXPIREAT', key, when, 'FIELDS', len(fields), *fields)]


def put_bulk(m):
    with Link(m.port) as link:
        link.call('SELECT', BULK_DB)
        for i in range(0, BULK, 1000):
            link.many([('SET', b'bulk:%d' % n, b'%d.' % n * 20) for n in range(i, i + 1000)])


class Dump:
    """A snapshot, put aside, and when it was asked for."""

    def __init__(self, m):
        self.sent, self.answered = save(m)
        self.took = time.monotonic() - self.sent
        self.ahead = int(m.log[m.log.rindex('DB saved on disk'):].split('bytes (')[1].split()[0])
        self.dir = tempfile.mkdtemp(prefix='mayfly-fault-dump-')
        shutil.move(os.path.join(m.dir, 'dump.rdb'), self.dir)

    def check(self, machines, load):
        """What it holds is what all clients had written at one moment, after it was asked for and before that
        was answered."""
        m = machines(SNAPSHOTS, 'no', self.dir).start()
        there, _ = load.settle(m.port, must=lambda s: acknowledged(s) and s.answered < self.sent,
                               must_not=lambda s: s.sent > self.answered, accept=False)
        with Link(m.port) as link:
            link.call('SELECT', BULK_DB)
            assert link.call('DBSIZE') == BULK
        m.kill()
        shutil.rmtree(self.dir)
        return there


def test_one_moment(machines, rounds):
    m = machines(MEMORY, 'no', rng=rounds.rng).start('--auto-aof-rewrite-percentage', 0)
    put_bulk(m)
    load = Load(rounds.seed, choosers=[Chooser, Big, Big, Wide, Deadlines])
    for _ in rounds.run(full=40, short=1):
        with Link(m.port) as link:
            link.call('CONFIG', 'SET', 'rdb-key-save-delay', rounds.rng.choice((0, 0, 2, 10)))
        load.start(m.port)
        load.stop.wait(rounds.rng.uniform(0.5, 2) if rounds.full else 0.5)
        dumps = []
        for _ in range(2):
            dumps.append(Dump(m))
            load.stop.wait(rounds.rng.uniform(0, 0.2))
        load.join(ask=True)
        load.refusals()
        m.healthy()
        for dump in dumps:
            rounds.add(snapshots=1, writes_in_them=dump.check(machines, load), keys_ahead_of_their_turn=dump.ahead,
                       ms_they_took=int(1000 * dump.took))
        load.settle(m.port)


class Overwriters:
    """Connections that write to random keys as fast as they can."""

    def __init__(self, port, keys, size, connections=3):
        self.stop, self.written = threading.Event(), 0
        self.threads = [threading.Thread(target=self.run, args=(port, keys, size, i)) for i in range(connections)]

    def run(self, port, keys, size, number):
        rng = random.Random(number)
        with Link(port) as link:
            while not self.stop.is_set():
                batch = [('SET', b'v:%d' % rng.randrange(keys), rng.randbytes(size)) for _ in range(50)]
                batch += [('DEL', b'v:%d' % rng.randrange(keys)), ('LPUSH', b'big', b'x'), ('LTRIM', b'big', 0, 9999)]
                link.many(batch)
                self.written += len(batch)

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for t in self.threads:
            t.join(60)


def memory_of(m):
    with open(f'/proc/{m.proc.pid}/status', encoding='utf-8') as f:
        return next(int(line.split()[1]) for line in f if line.startswith('VmRSS:')) >> 10


@pytest.mark.skipif(mayfly.sanitized(), reason='a sanitizer keeps what was freed')
def test_memory(machines, rounds):
    """However much is written meanwhile, a snapshot takes a part of the data's size at most: what has been
    written ahead and waits for the disk."""
    keys, size = (60_000, 4000) if rounds.full else (15_000, 4000)
    m = machines(SNAPSHOTS, 'no').start()
    with Link(m.port) as link:
        for i in range(0, keys, 500):
            link.many([('SET', b'v:%d' % n, os.urandom(size)) for n in range(i, i + 500)])
        link.call('RPUSH', b'big', *range(10_000))
    data = keys * size >> 20
    for _ in rounds.run(full=5, short=1):
        with Overwriters(m.port, keys, size) as others:
            time.sleep(0.5)
            before, written, peak = memory_of(m), others.written, [0]
            save(m, meanwhile=lambda: peak.append(memory_of(m)))
            written = others.written - written
        m.healthy()
        rounds.add(writes_meanwhile=written)
        rounds.most(MB_more=max(peak) - before, MB_of_data=data)
        assert written > 100 and max(peak) - before < data // 2
