"""Either side ends, in good order or not, and comes back: on from where it was where that is possible, and never with
a history that is not its primary's."""
import os
import shutil

import pytest

import everything
from datasets import compare, same
from mayfly import Raw, eventually
from nodes import Syncs, linked, wait_synced
from traffic import LONG, Traffic


@pytest.fixture
def two(pair, node, proxy):
    """A primary and its replica, which are so again after a restart; the link between."""
    primary = node(pair[0])
    link = proxy(primary)
    replica = node(pair[1], '--replicaof', f'127.0.0.1 {link.port}')
    return primary, replica, link


def fill(node):
    with Raw(node.port) as c:
        everything.run(c, [*everything.strings(), *everything.collections()])


def test_replica_killed_during_full_sync(two, full, rng, seed):
    primary, replica, link = two
    traffic = Traffic(primary, seed).some(500)
    wait_synced(primary, replica)
    fill(primary)
    for _ in range(10 if full else 1):
        link.cut()
        eventually(lambda: not linked(replica))
        with Raw(primary.port) as c:
            for i in range(30):
                c.call('SET', 'fat', b'%d' % i * 50_000)
        start, link.open, link.pause = link.passed, True, 0.01
        part = rng.randrange(100_000, 3_000_000)
        eventually(lambda: link.passed > start + part, 20)                # pylint: disable=cell-var-from-loop
        replica.kill()
        link.cut()
        replica.start()
        traffic.some(100)
        link.restore()
        wait_synced(primary, replica)
        same(primary, replica)


def test_old_data_outlives_half_a_sync(node, proxy, seed):
    """A new dataset is invisible in the storage until it is complete."""
    primary, replica = node('memory'), node('rocks')
    link = proxy(primary)
    fill(primary)
    Traffic(replica, seed, deadlines=LONG).some(1000)
    with_old = node('memory')
    with_old.follow(replica)
    wait_synced(replica, with_old)
    with_old.promote()
    start, link.pause = link.passed, 0.01
    replica.follow(link)
    eventually(lambda: link.passed > start + 2_000_000)
    replica.kill()
    replica.start()
    compare(with_old, replica)


def test_replica_killed(two, full, rng, seed):
    primary, replica, _ = two
    primary.config(repl_backlog_size='64mb')            # all that is written until it is back
    wait_synced(primary, replica)
    syncs = Syncs(primary)
    with Traffic(primary, seed) as traffic:
        for _ in range(10 if full else 2):
            at = traffic.sent + rng.randrange(1000)
            eventually(lambda: traffic.sent > at, 30)                     # pylint: disable=cell-var-from-loop
            replica.kill()
            replica.start()
            eventually(lambda: linked(replica), 30)
    wait_synced(primary, replica)
    same(primary, replica)
    if replica.kind == 'rocks':
        assert syncs.since() == (0, 10 if full else 2)                    # its storage knows where it was


def test_replica_restarted(two, seed):
    primary, replica, _ = two
    traffic = Traffic(primary, seed).some(1000)
    wait_synced(primary, replica)
    syncs = Syncs(primary)
    replica.shut_down()
    traffic.some(500)
    replica.start()
    wait_synced(primary, replica)
    same(primary, replica)
    assert syncs.since() == (0, 1)


def test_primary_restarted(two, seed):
    """It continues under a new replication ID, and so do its replicas."""
    primary, replica, _ = two
    wait_synced(primary, replica)                       # what comes now is history
    traffic = Traffic(primary, seed, deadlines=LONG).some(1000)
    wait_synced(primary, replica)
    before = primary.fields()
    primary.shut_down()
    primary.start()
    traffic.some(500)
    wait_synced(primary, replica)
    same(primary, replica)
    assert Syncs.count(primary) == [0, 1]
    after = primary.fields()
    assert after['master_replid'] != before['master_replid'] == after['master_replid2']


def test_primary_killed(two, full, rng, seed):
    primary, replica, _ = two
    wait_synced(primary, replica)
    for i in range(10 if full else 2):
        with Traffic(primary, f'{seed}/{i}') as traffic:
            at = rng.randrange(1000)
            eventually(lambda: traffic.sent > at, 30)                     # pylint: disable=cell-var-from-loop
            primary.kill()
        primary.start()
        traffic.some(rng.randrange(1000))
        wait_synced(primary, replica)
        same(primary, replica)


def test_rocks_primary_killed_at_rest(node, seed):
    """Nothing was lost, so nothing has to be sent again."""
    primary = node('rocks')
    replica = node('memory', '--replicaof', f'127.0.0.1 {primary.port}')
    wait_synced(primary, replica)                       # what comes now is history
    traffic = Traffic(primary, seed, deadlines=LONG).some(1000)
    wait_synced(primary, replica)
    primary.kill()
    primary.start()
    traffic.some(100)
    wait_synced(primary, replica)
    assert Syncs.count(primary) == [0, 1]
    same(primary, replica)


@pytest.mark.parametrize('further', ['behind', 'beyond'])
def test_primary_lost_its_tail(two, further, seed):
    """It comes back with data from before, and goes on in another way: what the replica has that it does not must
    go, wherever the new history has come to meanwhile."""
    primary, replica, link = two
    traffic = Traffic(primary, seed, deadlines=LONG).some(500)
    wait_synced(primary, replica)
    if primary.kind == 'rocks':
        primary.shut_down()
        shutil.copytree(primary.dir, primary.dir + '.before')
        primary.start()
    else:
        primary.call('SAVE')
    traffic.some(500)
    primary.call('SET', 'tail', 1)
    wait_synced(primary, replica)
    link.cut()
    primary.kill()
    if primary.kind == 'rocks':
        shutil.rmtree(primary.dir)
        os.rename(primary.dir + '.before', primary.dir)
    primary.start()
    assert primary.call('EXISTS', 'tail') == 0
    if further == 'beyond':
        Traffic(primary, f'{seed}/another', deadlines=LONG).some(2000)
    link.restore()
    wait_synced(primary, replica)
    same(primary, replica)
    assert Syncs.count(primary) == [1, 0]
