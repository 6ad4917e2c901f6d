"""Replicas of replicas: the same history all along, also after one in the middle takes over."""
import time

import pytest

from datasets import same
from nodes import Syncs, wait_synced
from traffic import LONG, Traffic


@pytest.fixture
def three(chain, node):
    a = node(chain[0])
    b = node(chain[1], '--replicaof', f'127.0.0.1 {a.port}')
    c = node(chain[2], '--replicaof', f'127.0.0.1 {b.port}')
    wait_synced(a, b, c)
    return a, b, c


def test_chain(three, seed):
    a, b, c = three
    traffic = Traffic(a, seed).some(3000)
    wait_synced(a, b, c)
    same(a, b, c)
    b.kill()
    traffic.some(1000)
    b.start()
    wait_synced(a, b, c)
    same(a, b, c)


def test_middle_takes_over(three, seed):
    a, b, c = three
    a.config(repl_ping_replica_period=1000)             # or there may be one after the end
    Traffic(a, seed, deadlines=LONG).some(2000)
    wait_synced(a, b, c)
    name, end = a.fields()['master_replid'], a.offset
    syncs = Syncs(b)
    b.promote()
    Traffic(b, f'{seed}/b', deadlines=LONG).some(1000)
    wait_synced(b, c)
    same(b, c)
    assert syncs.since() == (0, 1)
    f = b.fields()
    assert f['role'] == 'master' and f['master_replid2'] == name != f['master_replid']
    assert int(f['second_repl_offset']) == end + 1
    # the old one has nothing of its own: it resumes, too
    assert a.offset == end
    a.follow(b)
    Traffic(b, f'{seed}/ba', deadlines=LONG).some(500)
    wait_synced(b, a, c)
    same(b, a, c)
    assert syncs.since() == (0, 1)
    # with something of its own it does not
    a.promote()
    a.call('SET', 'of its own', 1)
    a.follow(b)
    wait_synced(b, a, c)
    same(b, a, c)
    assert syncs.since() == (1, 0)


def test_circle_is_refused_or_harmless(pair, node):
    """Two that follow each other wait for each other, or (if one asks the other before its link is down) have
    nothing to tell each other. Nothing is lost, and it ends with a promotion."""
    a, b = map(node, pair)
    a.call('SET', 'a', 1)
    b.follow(a)
    wait_synced(a, b)
    a.follow(b)
    time.sleep(0.5)
    at = a.offset, b.offset
    time.sleep(0.3)
    assert (a.offset, b.offset) == at
    a.promote()
    wait_synced(a, b)
    assert b.call('GET', 'a') == b'1'


def test_full_sync_goes_down_the_chain(three, seed):
    """A new dataset of the middle node is also new for its replicas."""
    a, b, c = three
    Traffic(a, seed).some(500)
    wait_synced(a, b, c)
    b.promote()
    b.call('SET', 'of b', 1)
    wait_synced(b, c)
    assert c.call('GET', 'of b') == b'1'
    b.follow(a)
    Traffic(a, f'{seed}/2').some(500)
    wait_synced(a, b, c)
    same(a, b, c)
    assert c.call('EXISTS', 'of b') == 0
