"""Torn or changed files: the server starts with the valid data in order, or
says why it can't; it never shows wrong data."""
import os
import shutil
import tempfile
import time

import pytest

import machine
import mayfly
import rocks
from load import Link, Load, Seen
from model import same


def files(m, ending):
    folder = os.path.join(m.dir, 'rocksdb')
    return [os.path.join(folder, f) for f in sorted(os.listdir(folder)) if f.endswith(ending)]


def run_load(m, load, seconds):
    load.start(m.port)
    time.sleep(seconds)


class Copy:
    """A copy of a machine's folder, with a machine on it."""

    def __init__(self, m, machines):
        self.folder = tempfile.mkdtemp(prefix='mayfly-copy-')
        shutil.rmtree(self.folder)
        shutil.copytree(m.dir, self.folder)
        self.machine = machines(m.setup, m.fsync, self.folder)

    def __enter__(self):
        return self.machine

    def __exit__(self, *_):
        self.machine.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


# -- the log -------------------------------------------------------------------------------------------

def tear(rng, path):
    """Damages the end of a log in one of the ways a crash, or a disk, can; says how."""
    size = os.path.getsize(path)
    at = rng.randrange(size) if rng.random() < 0.7 else max(0, size - rng.randrange(1, 200))
    how = rng.choice(('cut', 'cut', 'zeros', 'noise', 'flip'))
    with open(path, 'r+b') as f:
        if how == 'cut':
            f.truncate(at)
        else:
            f.seek(at)
            n = 1 if how == 'flip' else size - at
            old = f.read(n)
            f.seek(at)
            f.write(bytes([old[0] ^ 0x10]) if how == 'flip' else rng.randbytes(n) if how == 'noise' else bytes(n))
    return f'{how} at {at} of {size}'


def test_torn_log(machines, rounds):
    """Whatever happens to the end of the newest log: the server starts with a prefix of what was written. If sound
    records are behind the damage it is no end, and the server says so."""
    rng = rounds.rng
    for _ in rounds.run(full=12, short=1):
        m = machines(machine.ROCKS, 'no').start('--rocksdb-write-buffer-size', rng.choice(('1mb', '64mb')))
        load = Load(f'{rounds.seed}/{rng.random()}')
        run_load(m, load, 0.3)
        load.join(ask=True)
        load.settle(m.port)
        m.stop()
        m.start()
        run_load(m, load, 0.5)
        m.kill()
        load.join()
        for _ in range(10 if rounds.full else 3):
            with Copy(m, machines) as torn:
                newest = files(torn, '.log')[-1]
                if os.path.getsize(newest) == 0:       # older ones were synced before it was begun:
                    break                              # they have no torn end
                how = tear(rng, newest)
                code, text = machine.rocks_checker(torn.dir)
                torn.start(wait=False)
                if code:
                    assert torn.proc.wait(60) == 1 and 'are damaged' in torn.log, (how, text, torn.log)
                    assert how.startswith('flip'), (how, text)
                    rounds.add(refused=1)
                    continue
                torn.wait_ready()
                try:
                    there, missing = load.settle(torn.port, must=lambda s: False, accept=False)
                except AssertionError as e:
                    raise AssertionError(f'{how}: {e}') from None
                torn.stop()
                torn.check()
                rounds.add(torn_logs=1, writes_found=there, writes_cut_off=missing)


# -- tables and blobs -----------------------------------------------------------------------------------

def flip(rng, path, part):
    """Changes one bit of the first part of a file, which is data; further back it has indexes and filters."""
    with open(path, 'r+b') as f:
        at = rng.randrange(max(1, int(os.path.getsize(path) * part)))
        f.seek(at)
        old = f.read(1)
        f.seek(at)
        f.write(bytes([old[0] ^ 1 << rng.randrange(8)]))
    return at


def read_all(m, load):
    """Every key on its own: how many could be read, how many gave an error. What can be read is right."""
    good = bad = 0
    with Link(m.port) as link:
        for c in load.clients:
            for db in (0, 1):
                link.call('SELECT', c.first_db + db)
                for key, expected in c.base.dbs[db].items():
                    reply = read_one(link, key, expected)
                    good += reply
                    bad += not reply
    return good, bad


def read_one(link, key, expected):
    kind = expected.kind.encode()
    command = Seen.READ[kind]
    from_ms = int(time.time() * 1000)
    fields = list(expected.data) if expected.kind == 'hash' else []
    replies = link.many([('PEXPIRETIME', key), (command[0], key, *command[1:]),
                         ('HPEXPIRETIME', key, 'FIELDS', len(fields), *fields) if fields else ('PING',)])
    errors = [r for r in replies if isinstance(r, mayfly.ReplyError)]
    if errors:
        assert all(e.startswith('IOERR') for e in errors), (key, errors)
        return False
    deadline, data, deadlines = replies
    found = None
    if deadline != -2 and (data or kind == b'string') and data is not None:
        found = Seen.decode(kind, data, max(deadline, 0))
        for f, when in zip(fields, deadlines if fields else ()):
            if f in found.data:
                found.data[f] = (found.data[f][0], max(when, 0))
    assert same(expected, found, from_ms, int(time.time() * 1000)), f'{key}: expected {expected}, found {found}'
    return True


@pytest.mark.parametrize('kind', ['sst', 'blob'])
def test_flipped_bit(kind, machines, rounds):
    rng = rounds.rng
    for _ in rounds.run(full=8, short=1):
        m = machines(machine.ROCKS, 'no').start('--rocksdb-blob-size', '2kb', '--rocksdb-write-buffer-size', '1mb')
        load = Load(f'{rounds.seed}/{rng.random()}')
        run_load(m, load, 1)
        load.join(ask=True)
        load.settle(m.port)
        with Link(m.port) as link:  # on a slow machine the load may have left nothing that goes into a blob
            assert link.many([('SELECT', 15), ('SET', 'long', rng.randbytes(8000))]) == [b'OK', b'OK']
        m.stop()
        for _ in range(10 if rounds.full else 3):
            with Copy(m, machines) as flipped:
                found = [f for f in files(flipped, '.' + kind) if os.path.getsize(f) > 2000]
                assert found, os.listdir(os.path.join(flipped.dir, 'rocksdb'))
                flip(rng, rng.choice(found), 0.5 if kind == 'sst' else 1)
                code, text = machine.rocks_checker(flipped.dir)
                assert code in (0, 1, 2), text
                reported = code != 0
                flipped.start(wait=False)
                try:
                    flipped.wait_ready()
                except AssertionError:
                    assert flipped.proc.wait(mayfly.PATIENCE) == 1 and "Can't start" in flipped.log, flipped.log
                    assert reported, text
                    rounds.add(did_not_start=1)
                    continue
                good, bad = read_all(flipped, load)
                flipped.healthy()
                assert reported or not bad, f'{bad} keys can not be read, but the checker said:\n{text}'
                if bad:
                    assert 'orruption' in flipped.log or 'checksum' in flipped.log, flipped.log
                rounds.add(flips=1, reported=reported, keys_read=good, keys_refused=bad)


def test_expiry_that_fails(machines):
    """Dead keys can't be read, again and again: a client that shares a tick with an attempt to reclaim them gets
    the answers to what it asked all the same."""
    more = '--rocksdb-compression', 'none', '--rocksdb-write-buffer-size', '1mb'
    m = machines(machine.ROCKS, 'no').start(*more, '--ttl-cleanup-interval', 0)
    value = b'a value to be found in files'
    with Link(m.port) as link:
        assert link.many([('SET', b'k:%d' % i, value, 'PX', 1) for i in range(2000)]) == [b'OK'] * 2000
    m.kill()
    m.start(*more, '--ttl-cleanup-interval', 0)      # moves the log's content into tables
    m.stop()
    for path in files(m, '.sst'):
        with open(path, 'r+b') as f:
            half = os.path.getsize(path) // 2        # the first rows are read by every start
            f.seek(half)
            content = f.read()
            f.seek(half)
            f.write(content.replace(value, value.upper()))
    m.start(*more)
    with Link(m.port) as link:
        end = time.monotonic() + 2.5                 # an attempt each second
        while time.monotonic() < end:
            assert link.many([('ECHO', b'%d' % i) for i in range(20)]) == [b'%d' % i for i in range(20)]
    m.healthy()
    assert m.log.count('Corruption') >= 2, m.log


def test_elements_that_are_missing(machines):
    """RocksDB may leave out rows it can't read without a word. Who was promised so many gets an error instead
    of too few, and what comes next is the reply to what was asked next."""
    m = machines(machine.ROCKS, 'no').start()
    numbers = list(range(300))
    with Link(m.port) as link:
        assert link.many([('HSET', 'hash', *(x for n in numbers for x in (n, 'v'))), ('SADD', 'set', *numbers),
                          ('RPUSH', 'list', *numbers), ('ZADD', 'zset', *(x for n in numbers for x in (n, n)))]) == [300] * 4
    m.stop()
    with rocks.Store(os.path.join(m.dir, 'rocksdb')) as s:
        for key, family in ((b'hash', rocks.DATA), (b'set', rocks.DATA), (b'list', rocks.DATA), (b'zset', rocks.SCORE)):
            s.delete(family, s.rows(family, rocks.prefix_of(s, key))[200][0])
    m.start()
    with Link(m.port) as link:
        for command in (('HGETALL', 'hash'), ('HKEYS', 'hash'), ('HVALS', 'hash'), ('SMEMBERS', 'set'),
                        ('LRANGE', 'list', 0, -1), ('LRANGE', 'list', 100, 250), ('ZRANGE', 'zset', 0, -1),
                        ('ZREVRANGE', 'zset', 0, -1, 'WITHSCORES'), ('ZRANGE', 'zset', 250, 299)):
            error, echo = link.many([command, ('ECHO', 'next')])
            assert isinstance(error, mayfly.ReplyError) and error.startswith('IOERR') and echo == b'next', command
        assert len(link.call('LRANGE', 'list', 0, 100)) == len(link.call('ZRANGE', 'zset', 0, 100)) == 101
    m.healthy()
    assert 'The database is damaged' in m.log
