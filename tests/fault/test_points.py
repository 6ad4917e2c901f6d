"""A server with the memory engine is killed under load at every step of starting, rewriting, saving, and converting an old
file: no acknowledged write is lost, no unfinished files stay, and the next rewrite works."""
import glob
import os
import re
import shutil

import pytest

import aof
import mayfly
from load import Link, Load
from machine import MEMORY, LossyDisk

FILE = ['file-written', 'file-synced', 'file-renamed', 'file-folder-synced']
REPLACE = ['replace-written', 'replace-synced', 'replace-renamed', 'replace-folder-synced']
START = ['aof-start-1', 'aof-start-2', 'aof-start-3']
REWRITE = [f'aof-rewrite-{n}' for n in (1, 2, 3, 7, 8, 9, 10)]
UPGRADE = ['aof-upgrade-1', 'aof-upgrade-2', 'aof-upgrade-3']
START_REWRITING = FILE + REPLACE + ['aof-rewrite-7', 'aof-rewrite-8']
MODES = ['always', 'everysec', 'no']


def test_no_point_is_left_out():
    names = set()
    for path in glob.glob(os.path.join(mayfly.ROOT, 'src', 'persist', '*.c')):
        with open(path, encoding='utf-8') as f:
            names |= set(re.findall(r'"((?:aof-(?:start|rewrite|upgrade)|file|replace)-[a-z0-9-]+)"', f.read()))
    assert names == {*FILE, *REPLACE, *START, *REWRITE, *UPGRADE}


def some(rounds, points, n):
    """All of them, or n: tests/unit/test_aof_crash.c has the others, without a server."""
    return points if rounds.full else rounds.rng.sample(points, n)


def crash_at(m, point, load=None, n=1):
    """Starts a server that dies when it comes by there for the n-th time."""
    m.start(wait=False, env={'MAYFLY_CRASH_AT': f'{point}:{n}'})
    if load:
        m.wait_ready()
        load.start(m.port)
    assert m.proc.wait(60) == -9, f'{point}: {m.log[-2000:]}'
    if load:
        load.join()
        load.refusals()


def rewrite(m):
    """One that succeeds, sooner or later."""
    before = m.log.count('rewrite finished successfully')
    with Link(m.port) as link:
        mayfly.eventually(lambda: not isinstance(link.call('BGREWRITEAOF'), mayfly.ReplyError))
        mayfly.eventually(lambda: m.log.count('rewrite finished successfully') > before)


def afterwards(m, load):
    """All is there; what the crash has left is gone; a rewrite works, and has all, too."""
    m.start()
    assert load.settle(m.port)[1] == 0
    aof.await_tidy(m.dir)
    rewrite(m)
    aof.await_tidy(m.dir)
    m.stop()
    m.start()
    load.settle(m.port)


@pytest.fixture
def loaded(machines, rounds):
    """loaded(directory=None): a machine with data, and the load that made it. Whichever fsync: what is
    killed has been written."""
    def make(directory=None):
        m = machines(MEMORY, 'always', directory, rng=rounds.rng).start()
        load = Load(rounds.seed, setup=MEMORY)
        load.start(m.port)
        load.stop.wait(0.2)
        load.join(ask=True)
        load.settle(m.port)
        return m, load
    return make


def test_running(loaded, rounds):
    m, load = loaded()
    for _ in rounds.run(full=5, short=1):
        for point in some(rounds, FILE + REPLACE + REWRITE, 6):
            m.kill()
            m.fsync = rounds.rng.choice(MODES)
            crash_at(m, point, load, rounds.rng.randint(1, 3))
            rounds.add(crashes=1, answered_writes=sum(c.answered for c in load.clients))
            afterwards(m, load)


def test_running_and_power_cut(loaded, disks, rounds):
    """The power goes as well: what a step relies on has to be on disk."""
    disk = disks(LossyDisk)
    m, load = loaded(disk.path)
    for _ in rounds.run(full=3, short=1):
        for point in some(rounds, FILE + REPLACE + REWRITE, 2):
            m.kill()
            crash_at(m, point, load, rounds.rng.randint(1, 3))
            disk.cut()
            disk.power_on()
            rounds.add(crashes=1, answered_writes=sum(c.answered for c in load.clients))
            afterwards(m, load)


def test_starting(loaded, rounds):
    """With nothing there yet, and on what was there."""
    m, load = loaded()
    for i in rounds.run(full=6, short=2):
        for point in some(rounds, START + REPLACE, 3) if i % 2 == 0 else ['aof-start-1', 'aof-start-3']:
            m.kill()
            if i % 2 == 0:
                shutil.rmtree(m.dir)
                os.mkdir(m.dir)
                load = Load(rounds.seed, setup=MEMORY)
            crash_at(m, point)
            m.start()
            load.settle(m.port)
            load.start(m.port)
            load.stop.wait(0.1)
            m.kill()
            load.join()
            rounds.add(crashes=1)
            afterwards(m, load)


def leave_only_a_dump(m, name):
    """All data is in one RDB file of this name."""
    with Link(m.port) as link:
        mayfly.eventually(lambda: link.call('SAVE') == b'OK')
    m.kill()
    shutil.rmtree(os.path.join(m.dir, aof.FOLDER))
    os.rename(os.path.join(m.dir, 'dump.rdb'), os.path.join(m.dir, name))


@pytest.mark.parametrize('points, name', [(UPGRADE + REPLACE, 'appendonly.aof'), (START_REWRITING, 'dump.rdb')],
                         ids=['old-file', 'dump'])
def test_moving_in(points, name, loaded, rounds):
    """From an old AOF, which is one file; from a snapshot, whose data the AOF begins with."""
    m, load = loaded()
    for _ in rounds.run(full=5, short=1):
        for point in some(rounds, points, 3):
            leave_only_a_dump(m, name)
            crash_at(m, point)
            rounds.add(crashes=1)
            afterwards(m, load)
