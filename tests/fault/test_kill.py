"""kill -9 under load: with any fsync mode no acknowledged write is lost, because the kernel has it;
no deleted key reappears, no write is there in part, and no key is visible after its deadline."""
import time

import pytest

import aof
from load import Link, Load
from machine import MEMORY, ROCKS
from witness import Witness


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


BULK_DB, BULK = 30, 20_000


def put_bulk(m):
    """Data that stays as it is, so that snapshots and rewrites take their time."""
    with Link(m.port) as link:
        link.call('SELECT', BULK_DB)
        for i in range(0, BULK, 1000):
            link.many([('SET', b'bulk:%d' % n, b'%d.' % n * 10) for n in range(i, i + 1000)])


def check_bulk(m):
    with Link(m.port) as link:
        link.call('SELECT', BULK_DB)
        assert link.call('DBSIZE') == BULK


def jobs_ended(log):
    return log.count('Background saving terminated with success'), log.count('rewrite finished successfully')


def start_again(m, rng):
    """Perhaps not at the first attempt."""
    while rng.random() < 0.2:
        m.start(wait=False)
        time.sleep(rng.uniform(0, 0.08))
        m.kill()
    m.start()


@pytest.mark.parametrize('fsync', ['always', 'everysec', 'no'])
def test_kill_aof(fsync, machines, rounds):
    """The same with the memory engine, with snapshots and rewrites at random times, and commands whose
    outcome only the server knows. Sometimes it ends in peace, under load as well."""
    m = machines(MEMORY, fsync, rng=rounds.rng).start()
    put_bulk(m)
    load, witness = Load(rounds.seed, setup=MEMORY), Witness(rounds.seed)
    load.others.append(witness)
    for i in rounds.run(full=334, short=4):
        load.start(m.port)
        load.stop.wait(rounds.rng.uniform(0.02, 0.8))
        m.healthy()
        if i % 10 == 3:
            m.stop()
            aof.check_with_redis(m.dir)
        else:
            m.kill()
        load.join()
        load.refusals()
        saves, rewrites = jobs_ended(m.log)
        start_again(m, rounds.rng)
        check_bulk(m)
        answered = sum(c.answered for c in load.clients)
        there, missing = load.settle(m.port)
        assert not missing
        aof.await_tidy(m.dir)
        rounds.add(kills=i % 10 != 3, answered_writes=answered, writes_found=there,
                   outcomes_found=witness.check(m.port), saves_ended=saves, rewrites_ended=rewrites)
    m.healthy()
    m.stop()
