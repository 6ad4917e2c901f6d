"""Power cuts under load lose unsynced data: with `always` no acknowledged write, with `everysec` about
the last second, with `no` more; but never a write before one that is kept."""
import time

import pytest

import aof
from load import Load, acknowledged
from machine import MEMORY, ROCKS, SNAPSHOTS, LossyDisk

EVERYSEC_MAY_LOSE = {ROCKS: 1.5, MEMORY: 1}     # seconds: between syncs, and the time they take
SLOW = 'fsync is taking too long'               # says the server: it can't promise that much
SETUPS = pytest.mark.parametrize('setup', [ROCKS, MEMORY], ids=lambda s: s.name)


def cut_power(m, disk, load):
    """When it was cut, and how many writes were refused before. Whatever was answered later would not have
    been by a machine without power, and is not to be relied on: a sync that is under way during the cut may
    return without an error."""
    when = time.monotonic()
    disk.cut()
    m.kill()
    load.join()
    load.forget_after(when)
    disk.power_on()
    return when, load.refusals(*m.setup.busy)


def one_cut(m, disk, load, seconds, must=acknowledged):
    """Load, a cut, and what is there afterwards: when it was, what is missing, and numbers. Sometimes without
    rewrites, which sync what was written."""
    load.start(m.port, others=m.rng.random() < 0.5)
    load.stop.wait(seconds)
    m.healthy()
    when, refused = cut_power(m, disk, load)
    slow = SLOW in m.log
    m.check()
    m.start()
    answered = sum(c.answered for c in load.clients)
    there, missing = load.settle(m.port, must=must)
    return when, missing, dict(power_cuts=1, answered_writes=answered, writes_found=there, refused=refused,
                               slow_disks=slow)


def whatever_is_there(_):
    """Nothing has to be, as long as it is what one moment had."""
    return False


@SETUPS
def test_always(setup, machines, disks, rounds):
    disk = disks(LossyDisk)
    m = machines(setup, 'always', disk.path, rng=rounds.rng).start()
    load = Load(rounds.seed, setup=setup)
    for _ in rounds.run(full=50, short=2):
        _, missing, numbers = one_cut(m, disk, load, rounds.rng.uniform(0.1, 1.5))
        assert not missing
        rounds.add(**numbers)


@SETUPS
def test_everysec(setup, machines, disks, rounds):
    disk = disks(LossyDisk)
    m = machines(setup, 'everysec', disk.path, rng=rounds.rng).start()
    load = Load(rounds.seed, setup=setup)
    for _ in rounds.run(full=20 if setup is ROCKS else 50, short=1):
        when, missing, numbers = one_cut(m, disk, load, rounds.rng.uniform(1.8, 4), whatever_is_there)
        age = when - load.oldest_lost if missing else 0
        rounds.add(**numbers, lost_at_the_end=missing)
        rounds.most(ms_between_the_oldest_lost_write_and_the_cut=int(1000 * age))
        assert age <= EVERYSEC_MAY_LOSE[setup] or numbers['slow_disks']


def test_no(machines, disks, rounds):
    """Nothing is synced: the data is that of some earlier moment, all of it."""
    disk = disks(LossyDisk)
    m = machines(MEMORY, 'no', disk.path, rng=rounds.rng).start()
    load = Load(rounds.seed, setup=MEMORY)
    for _ in rounds.run(full=50, short=1):
        _, missing, numbers = one_cut(m, disk, load, rounds.rng.uniform(0.1, 3), whatever_is_there)
        rounds.add(**numbers, lost_at_the_end=missing)


def test_snapshot(machines, disks, rounds):
    """Without a log: what a snapshot that has ended holds is there, and nothing else is."""
    disk = disks(LossyDisk)
    m = machines(SNAPSHOTS, 'no', disk.path).start()
    load = Load(rounds.seed)
    for _ in rounds.run(full=20, short=1):
        load.start(m.port)
        load.stop.wait(rounds.rng.uniform(0.1, 0.5))
        for _ in range(rounds.rng.randint(1, 3)):
            sent, answered = aof.save(m)
        cut_power(m, disk, load)
        m.start()
        there, _ = load.settle(m.port, must=lambda s, sent=sent: acknowledged(s) and s.answered < sent,
                               must_not=lambda s, answered=answered: s.sent > answered)
        rounds.add(power_cuts=1, writes_found=there)
