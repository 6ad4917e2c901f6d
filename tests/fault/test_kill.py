"""kill -9 under load: whatever the fsync mode, nothing that was answered is lost, because the kernel
has it; nothing deleted comes back, nothing is there by half, nothing shows after its deadline."""
import pytest

from load import Load
from machine import ROCKS


@pytest.mark.parametrize('fsync', ['always', 'everysec', 'no'])
@pytest.mark.parametrize('setup', [ROCKS], ids=lambda s: s.name)
def test_kill(setup, fsync, machines, rounds):
    m = machines(setup, fsync, rng=rounds.rng).start()
    load = Load(rounds.seed)
    for _ in rounds.run(full=200 if fsync == 'always' else 50, short=6 if fsync == 'always' else 1):
        load.start(m.port)
        load.stop.wait(rounds.rng.uniform(0.02, 0.8))
        m.healthy()
        m.kill()
        load.join()
        refused = load.refusals(*setup.busy)
        m.check()
        m.start()
        answered = sum(c.answered for c in load.clients)
        there, missing = load.settle(m.port)
        assert not missing
        rounds.add(kills=1, answered_writes=answered, writes_found=there, refused=refused)
    m.healthy()
    m.stop()
    m.check()
