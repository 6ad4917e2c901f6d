"""Power cuts under load: what was not synced is gone. With `always` nothing that was answered is;
with `everysec` about the last second may be."""
import time

import pytest

from load import Load
from machine import ROCKS, LossyDisk

EVERYSEC_MAY_LOSE = 1.5     # seconds: one between syncs, and the time they take


def cut_power(m, disk, load):
    """When it was cut, and how many writes were refused before. Whatever was answered later would not have been by a machine without power, and
    is not to be relied on: a sync that is under way during the cut may return without an error."""
    when = time.monotonic()
    disk.cut()
    m.kill()
    load.join()
    load.forget_after(when)
    disk.power_on()
    return when, load.refusals(*m.setup.busy)


@pytest.mark.parametrize('setup', [ROCKS], ids=lambda s: s.name)
def test_always(setup, machines, disks, rounds):
    disk = disks(LossyDisk)
    m = machines(setup, 'always', disk.path, rng=rounds.rng).start()
    load = Load(rounds.seed)
    for _ in rounds.run(full=50, short=2):
        load.start(m.port)
        load.stop.wait(rounds.rng.uniform(0.1, 1.5))
        m.healthy()
        _, refused = cut_power(m, disk, load)
        m.check()
        m.start()
        answered = sum(c.answered for c in load.clients)
        there, missing = load.settle(m.port)
        assert not missing
        rounds.add(power_cuts=1, answered_writes=answered, writes_found=there, refused=refused)


@pytest.mark.parametrize('setup', [ROCKS], ids=lambda s: s.name)
def test_everysec(setup, machines, disks, rounds):
    disk = disks(LossyDisk)
    m = machines(setup, 'everysec', disk.path, rng=rounds.rng).start()
    load = Load(rounds.seed)
    for _ in rounds.run(full=20, short=1):
        load.start(m.port)
        load.stop.wait(rounds.rng.uniform(1.8, 4))
        m.healthy()
        when, refused = cut_power(m, disk, load)
        m.check()
        m.start()
        answered = sum(c.answered for c in load.clients)
        limit = when - EVERYSEC_MAY_LOSE
        there, missing = load.settle(m.port, must=lambda s: s.answered is not None and s.answered < limit)
        rounds.add(power_cuts=1, answered_writes=answered, writes_found=there, lost_at_the_end=missing,
                   refused=refused)
