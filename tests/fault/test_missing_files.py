"""Missing files of a database: the server refuses to start, says what is missing, and changes nothing.
Also: the folder of the other engine."""
import os
import re
import shutil
import signal

import pytest

import machine
import mayfly
from load import Link
from machine import MEMORY, ROCKS

KEYS = 3000


def folder_of(m):
    return os.path.join(m.dir, 'rocksdb')


def content(folder):
    """Every file with what it holds; without RocksDB's notes, which each attempt to open writes."""
    out = {}
    for name in os.listdir(folder):
        if not name.startswith('LOG') and name != 'LOCK':
            with open(os.path.join(folder, name), 'rb') as f:
                out[name] = f.read()
    return out


def refused(m, *more):
    """It ends with exit code 1; the log."""
    m.start(*more, wait=False)
    assert m.proc.wait(60) == 1, m.log
    return m.log


@pytest.fixture
def database(machines):
    """A machine whose database has tables and a log; stopped."""
    m = machines(ROCKS, 'no').start('--rocksdb-write-buffer-size', '1mb', '--rocksdb-blob-size', '4kb')
    with Link(m.port) as link:
        assert link.many([('SET', b'big:%d' % i, b'x' * 5000) for i in range(400)]) == [b'OK'] * 400
        assert link.many([('SET', b'k:%d' % i, b'%d' % i) for i in range(KEYS)]) == [b'OK'] * KEYS
    m.stop()
    m.start()                                        # what was in the log is in tables
    with Link(m.port) as link:
        assert link.call('SET', 'last', 'v') == b'OK'
    m.stop()
    return m


def first(folder, pattern):
    return next(n for n in sorted(os.listdir(folder)) if re.fullmatch(pattern, n))


@pytest.mark.parametrize('missing, says', [
    ('CURRENT', 'the file CURRENT, which names its MANIFEST, is missing'),
    (r'MANIFEST-\d+', 'CURRENT names MANIFEST-'),
    (r'\d+\.sst', "Can't start with engine rocksdb"),
], ids=['CURRENT', 'MANIFEST', 'sst'])
def test_missing(database, missing, says):
    """Refused, with everything that is left as it was; when it is back, so is the data."""
    folder = folder_of(database)
    name = first(folder, missing)
    os.rename(os.path.join(folder, name), os.path.join(database.dir, 'aside'))
    left = content(folder)
    assert says in refused(database)
    code, text = machine.rocks_checker(database.dir)
    assert code and 'Everything agrees' not in text, text
    assert content(folder) == left
    os.rename(os.path.join(database.dir, 'aside'), os.path.join(folder, name))
    database.start()
    with Link(database.port) as link:
        assert link.call('DBSIZE') == KEYS + 401 and link.call('GET', 'last') == b'v'


def test_current_comes_back(database):
    """The command in the log is right."""
    os.remove(os.path.join(folder_of(database), 'CURRENT'))
    command = re.search(r'echo (MANIFEST-\d+) > (\S+/CURRENT)\.', refused(database))
    with open(command[2], 'w', encoding='ascii') as f:
        f.write(command[1] + '\n')
    database.start()
    with Link(database.port) as link:
        assert link.call('DBSIZE') == KEYS + 401


@pytest.mark.parametrize('text', ['', 'MANIFEST-000005', 'nonsense\n'])
def test_current_without_a_name(database, text):
    with open(os.path.join(folder_of(database), 'CURRENT'), 'w', encoding='ascii') as f:
        f.write(text)
    left = content(folder_of(database))
    assert 'does not name a MANIFEST' in refused(database)
    assert content(folder_of(database)) == left


@pytest.mark.parametrize('left', [
    [], ['LOCK'], ['LOCK', 'IDENTITY'], ['LOCK', 'IDENTITY', 'MANIFEST-000001'],
    ['LOCK', 'IDENTITY', 'MANIFEST-000001', '000001.dbtmp']])
def test_interrupted_creation(machines, left):
    """What RocksDB has made by the time it names its first MANIFEST holds nothing: it is created again."""
    m = machines(ROCKS, 'no')
    os.mkdir(folder_of(m))
    for name in left:
        with open(os.path.join(folder_of(m), name), 'wb') as f:
            f.write(b'' if name == 'LOCK' else b'some')
    m.start()
    assert ('was interrupted' in m.log) == ('MANIFEST-000001' in left)
    with Link(m.port) as link:
        assert link.call('SET', 'k', 'v') == b'OK'
    m.stop()
    m.check()
    m.start()
    with Link(m.port) as link:
        assert link.call('GET', 'k') == b'v'


def test_killed_while_creating(machines, rounds):
    """At whatever moment: the next start has an empty database."""
    moments = [(call, n) for n in (1, 2, 3) for call in ('rename', 'fdatasync', 'fsync', 'mkdir')]
    for i in rounds.run(full=len(moments), short=2):
        call, n = moments[i]
        m = machines(ROCKS, 'no')
        m.start(wait=False, before=machine.failing(f'{call}:signal=SIGKILL:when={n}'))
        try:
            m.wait_ready(20)
            m.kill()                                 # that was later than the creation
        except AssertionError:
            assert m.proc.wait(mayfly.PATIENCE) == -signal.SIGKILL, m.log
        m.start()
        with Link(m.port) as link:
            assert link.call('DBSIZE') == 0 and link.call('SET', 'k', 'v') == b'OK'
        m.stop()
        m.check()


# -- the other engine's data ---------------------------------------------------------------------------

def test_memory_on_rocksdb_data(database, machines):
    m = machines(MEMORY, 'no', database.dir)
    left = content(folder_of(database))
    said = refused(m)
    assert f'{folder_of(m)} holds a database of the rocksdb engine' in said and '--engine-start-empty yes' in said
    m.start('--engine-start-empty', 'yes')
    with Link(m.port) as link:
        assert link.call('DBSIZE') == 0 and link.call('SET', 'mine', 1) == b'OK'
    m.stop()
    m.start()                                        # it has data of its own now
    assert 'which is not used' in m.log
    with Link(m.port) as link:
        assert link.call('DBSIZE') == 1
    m.stop()
    assert content(folder_of(database)) == left
    database.start()
    with Link(database.port) as link:
        assert link.call('DBSIZE') == KEYS + 401


@pytest.mark.parametrize('kept', ['aof', 'dump'])
def test_rocksdb_on_memory_data(machines, kept):
    m = machines(MEMORY if kept == 'aof' else machine.SNAPSHOTS, 'no').start()
    with Link(m.port) as link:
        assert link.call('SET', 'k', 'v') == b'OK'
        if kept == 'dump':
            assert link.call('SAVE') == b'OK'
    m.stop()
    r = machines(ROCKS, 'no', m.dir)
    said = refused(r)
    assert os.path.join(m.dir, 'appendonlydir' if kept == 'aof' else 'dump.rdb') in said and '--import-rdb' in said
    assert not os.path.exists(folder_of(r))
    r.start('--engine-start-empty', 'yes')
    with Link(r.port) as link:
        assert link.call('DBSIZE') == 0
    r.stop()
    r.start()
    r.stop()
    m.start('--engine-start-empty', 'no')
    with Link(m.port) as link:
        assert link.call('GET', 'k') == b'v'


def test_import_needs_no_more(machines):
    m = machines(machine.SNAPSHOTS, 'no').start()
    with Link(m.port) as link:
        assert link.many([('SET', 'k', 'v'), ('SAVE',)]) == [b'OK', b'OK']
    m.stop()
    r = machines(ROCKS, 'no', m.dir).start('--import-rdb', os.path.join(m.dir, 'dump.rdb'))
    with Link(r.port) as link:
        assert link.call('GET', 'k') == b'v'
    r.stop()
    shutil.rmtree(folder_of(r))
