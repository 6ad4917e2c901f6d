"""RocksDB's write-ahead logs, emptied, removed, truncated and with flipped bits at every position, and power cuts with several
logs: synced data is there, or the server says what is missing; it never shows a state that never existed."""
import os
import re
import shutil
import struct
import tempfile

import pytest

import machine
import mayfly
from load import Link, Load
from machine import ROCKS, LossyDisk, Setup
from test_power import EVERYSEC_MAY_LOSE, one_cut, whatever_is_there

SMALL = '--rocksdb-write-buffer-size', '1mb', '--rocksdb-blob-size', '0'
SMALL_ROCKS = Setup('rocksdb', [*ROCKS.args, *SMALL], checker=ROCKS.checker, busy=ROCKS.busy)
VALUE = b'v' * 1000
ASIDE = 'lost-logs'
BLOCK = 32768


def folder_of(m):
    return os.path.join(m.dir, 'rocksdb')


def logs_of(m):
    """All logs, the oldest first. Those that tables have replaced may be among them for a moment."""
    return sorted(n for n in os.listdir(folder_of(m)) if re.fullmatch(r'\d+\.log', n))


def write(link, first, n):
    """Transactions of three writes each, in three families: a state is right if they agree."""
    for i in range(first, first + n):
        replies = link.many([('MULTI',), ('SET', b'k:%d' % i, VALUE), ('RPUSH', 'list', i), ('INCR', 'counter'),
                             ('EXEC',)])
        assert replies[-1] == [b'OK', i + 1, i + 1], replies


def state(link):
    """How many of these transactions there are: all from the first to the last of them, each as a whole."""
    keys, items, counter = link.many([('DBSIZE',), ('LRANGE', 'list', 0, -1), ('GET', 'counter')])
    n = int(counter or 0)
    assert items == [b'%d' % i for i in range(n)]
    assert keys == (n + 2 if n else 0)
    return n


def content(folder):
    out = {}
    for name in os.listdir(folder):
        if not name.startswith('LOG') and name != 'LOCK' and os.path.isfile(os.path.join(folder, name)):
            with open(os.path.join(folder, name), 'rb') as f:
                out[name] = f.read()
    return out


def refused(m, *more):
    m.start(*more, wait=False)
    assert m.proc.wait(60) == 1, m.log
    return m.log


class Copy:
    """A copy of a machine's folder, with a machine on it."""

    def __init__(self, m, machines):
        self.folder = tempfile.mkdtemp(prefix='mayfly-logs-')
        shutil.copytree(m.dir, self.folder, dirs_exist_ok=True)
        self.machine = machines(m.setup, m.fsync, self.folder)

    def __enter__(self):
        return self.machine

    def __exit__(self, *_):
        self.machine.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


WRITES = 1500          # too few for the limit on all logs, which would make the oldest ones needless


def filled(machines, fsync):
    """A machine with several logs; it runs."""
    m = machines(SMALL_ROCKS, fsync).start()
    with Link(m.port) as link:
        write(link, 0, WRITES)
    return m


def stopped(machines, fsync):
    """A machine that was shut down with more than three logs: how many are left depends on how far flushes have got."""
    def attempt():
        m = filled(machines, fsync)
        m.stop()
        assert len(logs_of(m)) > 3
        return m
    return mayfly.in_one_of(10, attempt)


def spoil(path, how, rng):
    size = os.path.getsize(path)
    if how == 'removed':
        os.remove(path)
        return how
    at = 0 if how == 'emptied' else rng.randrange(1, size)
    if how == 'flipped' and at % BLOCK >= BLOCK - 6:     # may be padding, which is never read
        at -= 6
    with open(path, 'r+b') as f:
        if how != 'flipped':
            f.truncate(at)
        else:
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes([byte ^ 1 << rng.randrange(8)]))
    return f'{how} at {at} of {size}'


@pytest.mark.parametrize('how', ['emptied', 'removed', 'truncated', 'flipped'])
def test_spoiled(how, machines, rounds):
    """After a shutdown all logs are synced: whatever is missing of them is missed."""
    rng = rounds.rng
    m = stopped(machines, rng.choice(('no', 'everysec', 'always')))
    names = logs_of(m)
    for _ in rounds.run(full=10, short=1):
        for name in names if rounds.full else {*names[:1], *names[-2:]}:
            with Copy(m, machines) as c:
                did = spoil(os.path.join(folder_of(c), name), how, rng)
                left = content(folder_of(c))
                code, text = machine.rocks_checker(c.dir)
                assert code == 1 and 'logs' in text, (name, names, did, text)
                said = refused(c)
                assert "RocksDB's logs" in said and 'are damaged' in said, (name, names, did, said)
                assert content(folder_of(c)) == left
                rounds.add(refused=1)


def test_spoiled_after_a_crash(machines, rounds):
    """Older logs are synced as soon as they are complete, also with `no`: after kill -9 they are missed as well."""
    rng = rounds.rng
    m = filled(machines, 'no')
    mayfly.eventually(lambda: noted(m) == logs_of(m)[-1])
    m.kill()
    names = logs_of(m)
    for how in ('emptied', 'removed', 'truncated', 'flipped') if rounds.full else ('emptied', 'removed'):
        with Copy(m, machines) as c:
            name = rng.choice(names[:-1])
            did = spoil(os.path.join(folder_of(c), name), how, rng)
            assert 'are damaged' in refused(c), (name, names, did, c.log)
            assert machine.rocks_checker(c.dir)[0] == 1
    m.start()
    with Link(m.port) as link:
        assert state(link) == WRITES


def noted(m):
    """The newest log that the server had begun when it last wrote its note."""
    with open(os.path.join(folder_of(m), 'mayfly-synced'), 'rb') as f:
        return '%06d.log' % struct.unpack('>8Q', f.read()[8:72])[5]


@pytest.mark.parametrize('how', ['truncated', 'flipped'])
def test_newest_log_before_it_is_synced(how, machines, rounds):
    """A torn end is dropped, and logged. A flip in front of sound records is damage, synced or not."""
    m = filled(machines, 'no')
    m.kill()
    name = logs_of(m)[-1]
    path = os.path.join(folder_of(m), name)
    size = os.path.getsize(path)
    assert size > 5000
    with open(path, 'r+b') as f:
        if how == 'truncated':
            f.truncate(size - 700)
        else:
            f.seek(size // 2)
            byte = f.read(1)[0]
            f.seek(size // 2)
            f.write(bytes([byte ^ 0x20]))
    code, text = machine.rocks_checker(m.dir)
    if how == 'flipped':
        assert code == 1 and 'with sound ones behind it' in text, text
        assert f'{name} has a bad record at offset' in refused(m)
        return
    assert code == 0 and 'torn end' in text, text
    m.start()
    assert f'{name} ends in the middle of a record' in m.log
    with Link(m.port) as link:
        assert 0 < state(link) < WRITES
    m.stop()
    m.check()
    rounds.add(torn=1)


@pytest.mark.parametrize('fsync', ['always', 'everysec'])
def test_flip_at_the_start(fsync, machines):
    """One bit near the start of the only log: what is behind it is not given up unless somebody says so; then the log
    is kept."""
    m = machines(ROCKS, fsync).start('--rocksdb-write-buffer-size', '64mb')
    with Link(m.port) as link:
        write(link, 0, 500)
    m.kill()
    name = logs_of(m)[-1]
    path = os.path.join(folder_of(m), name)
    with open(path, 'r+b') as f:
        f.seek(os.path.getsize(path) // 50)
        byte = f.read(1)[0]
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte ^ 1]))
        f.seek(0)
        spoiled = f.read()
    code, text = machine.rocks_checker(m.dir)
    assert code == 1 and f'{name} has a bad record at offset' in text, text
    said = refused(m)
    assert f'{name} has a bad record at offset' in said and '--rocksdb-load-damaged-log yes' in said, said
    assert refused(m)                                # it stays so
    m.start('--rocksdb-load-damaged-log', 'yes')
    assert 'damaged part' in m.log
    with Link(m.port) as link:
        n = state(link)
        assert 0 < n < 50
        write(link, n, 10)
    m.stop()
    with open(os.path.join(folder_of(m), ASIDE, name + '.0'), 'rb') as f:
        assert f.read() == spoiled
    m.check()
    m.start()
    with Link(m.port) as link:
        assert state(link) == n + 10


def test_flip_in_the_manifest(machines, rounds):
    """RocksDB takes some of these for a torn end, and deletes all tables that the rest of the MANIFEST names."""
    m = filled(machines, 'no')
    m.stop()
    with open(os.path.join(folder_of(m), 'CURRENT'), encoding='utf-8') as f:
        name = f.read().strip()
    path = os.path.join(folder_of(m), name)
    with open(path, 'rb') as f:
        whole = f.read()
    for _ in rounds.run(full=100, short=4):
        at = rounds.rng.randrange(len(whole) * 3 // 4)
        with open(path, 'r+b') as f:
            f.seek(at)
            f.write(bytes([whole[at] ^ 1 << rounds.rng.randrange(8)]))
        left = content(folder_of(m))
        code, text = machine.rocks_checker(m.dir)
        assert code == 1 and f'{name}, the log of its tables, has a bad record at offset' in text, (at, text)
        said = refused(m, '--rocksdb-load-damaged-log', 'yes')
        assert f'{name}, the log of its tables, has a bad record at offset' in said, (at, said)
        assert content(folder_of(m)) == left and not os.path.exists(os.path.join(folder_of(m), ASIDE))
        with open(path, 'wb') as f:
            f.write(whole)
    m.start()
    with Link(m.port) as link:
        assert state(link) == WRITES


def test_accepted_loss(machines, rounds):
    """Whichever log it is: with the loss accepted there is the state of a moment before it, or the server says that
    there is none."""
    rng = rounds.rng
    m = filled(machines, 'no')
    m.stop()
    names = logs_of(m)
    for _ in rounds.run(full=10, short=1):
        for how in ('emptied', 'removed', 'truncated', 'flipped') if rounds.full else ('emptied', 'flipped'):
            with Copy(m, machines) as c:
                name = rng.choice(names)
                did = spoil(os.path.join(folder_of(c), name), how, rng)
                was = content(folder_of(c))
                c.start('--rocksdb-load-damaged-log', 'yes', wait=False)
                try:
                    c.wait_ready()
                except AssertionError:
                    assert 'There is no way to start without it' in c.log, (did, c.log)
                    assert content(folder_of(c)) == was
                    rounds.add(hopeless=1)
                    continue
                with Link(c.port) as link:
                    assert state(link) < WRITES, did
                c.stop()
                c.check()
                kept_in = os.path.join(folder_of(c), ASIDE)
                aside = content(kept_in) if os.path.exists(kept_in) else {}
                for kept, data in aside.items():
                    assert data == was[kept[:-2]]
                rounds.add(started=1, kept=len(aside))


def test_power_cuts(machines, disks, rounds):
    """Small buffers and `everysec`: at each cut there are several logs, the newest of them not synced."""
    disk = disks(LossyDisk)
    m = machines(SMALL_ROCKS, 'everysec', disk.path, rng=rounds.rng).start()
    load = Load(rounds.seed, setup=SMALL_ROCKS)
    for _ in rounds.run(full=100, short=2):
        when, missing, numbers = one_cut(m, disk, load, rounds.rng.uniform(0.3, 2), whatever_is_there)
        age = when - load.oldest_lost if missing else 0
        rounds.add(**numbers, lost_at_the_end=missing, with_a_gap='lost-logs' in m.log, torn='torn end' in m.log)
        rounds.most(ms_between_the_oldest_lost_write_and_the_cut=int(1000 * age))
        assert age <= EVERYSEC_MAY_LOSE[ROCKS] or numbers['slow_disks']
