"""Links that break, stall, come back: a partial resync if the backlog suffices, else a full one, never wrong data."""
import pytest

import everything
from datasets import same
from mayfly import Raw, eventually
from nodes import Syncs, linked, wait_synced
from traffic import Traffic


def more_than_the_backlog(node):
    with Raw(node.port) as c:
        for i in range(25):
            assert c.call('SET', 'fat', everything.noise(60_000 + i)) == b'OK'


def test_cut_at_random(pair, node, proxy, full, rng, seed):
    primary, replica = node(pair[0], '--repl-backlog-size', '1mb'), node(pair[1])
    link, traffic = proxy(primary), Traffic(primary, seed, fields='redis' not in pair)
    replica.follow(link)
    traffic.some(2000)
    wait_synced(primary, replica)
    syncs = Syncs(primary)
    for i in range(100 if full else 4):
        covered = rng.random() < 0.7 if i > 1 else i == 0
        link.cut(after=rng.choice((None, rng.randrange(1, 20_000))))
        traffic.some(rng.randrange(20, 800))
        if not covered:
            more_than_the_backlog(primary)
        link.cut()
        eventually(lambda: not linked(replica))
        interrupted = not covered and rng.random() < 0.5
        if interrupted:
            link.cut(after=rng.randrange(200, 30_000))
            link.open = True
            eventually(lambda: not link.open)
        link.restore()
        traffic.some(rng.randrange(200))
        wait_synced(primary, replica)
        same(primary, replica)
        fulls, partials = syncs.since()
        if covered:
            assert (fulls, partials) == (0, 1)
        else:
            assert fulls >= 1 and partials == 0 and (interrupted or fulls == 1), (fulls, partials)


def test_cut_under_load(pair, node, proxy, full, rng, seed):
    """The same while clients write all the time."""
    primary, replica = node(pair[0], '--repl-backlog-size', '16kb'), node(pair[1])
    link = proxy(primary)
    replica.follow(link)
    with Traffic(primary, seed) as traffic:
        for _ in range(20 if full else 2):
            at = traffic.sent + rng.randrange(100, 3000)
            eventually(lambda: traffic.sent > at, 30)           # pylint: disable=cell-var-from-loop
            link.cut(after=rng.choice((None, rng.randrange(1, 50_000))))
            eventually(lambda: not link.open, 30)
            link.restore()
            eventually(lambda: linked(replica), 30)
    wait_synced(primary, replica)
    same(primary, replica)


def test_silence_breaks_a_link(pair, node, proxy):
    """repl-timeout on both sides; then it resumes where it left off."""
    primary = node(pair[0], '--repl-ping-replica-period', 1)
    replica = node(pair[1], '--repl-timeout', 4)
    link = proxy(primary)
    replica.follow(link)
    wait_synced(primary, replica)
    primary.call('SET', 'a', 1)
    link.stall()
    primary.call('SET', 'b', 2)
    eventually(lambda: not linked(replica), 30)
    syncs = Syncs(primary)
    link.restore()
    wait_synced(primary, replica)
    assert syncs.since() == (0, 1)
    same(primary, replica)


def test_silent_replica(kind, node, proxy):
    primary = node(kind, '--repl-timeout', 2, '--repl-ping-replica-period', 1)
    replica = node('redis')
    link = proxy(primary)
    replica.follow(link)
    wait_synced(primary, replica)
    replica.proc.send_signal(19)                                # SIGSTOP
    try:
        eventually(lambda: primary.fields()['connected_slaves'] == '0', 30)
    finally:
        replica.proc.send_signal(18)
    primary.call('SET', 'a', 1)
    wait_synced(primary, replica)
    same(primary, replica)


@pytest.mark.parametrize('when', ['following', 'full sync'])
def test_too_slow(kind, when, node, proxy):
    """A replica that does not take what it is sent is let go at its limit, rather than memory."""
    primary = node(kind, '--client-output-buffer-limit', 'replica 2mb 0 0', '--repl-backlog-size', '1mb')
    replica = node('redis')
    link = proxy(primary)
    with Raw(primary.port) as c:
        for i in range(200):
            c.call('SET', f'k:{i}', everything.noise(20_000 + i))
    if when == 'following':
        replica.follow(link)
        wait_synced(primary, replica)
        link.stall()
    else:
        link.pause = 0.02
        replica.follow(link)
        eventually(lambda: link.passed > 100_000)
        link.stall()
    with Raw(primary.port) as c:
        for i in range(1000):
            c.call('SET', 'fat', b'%d' % i * 10_000)
    eventually(lambda: primary.fields()['connected_slaves'] == '0', 30)
    link.cut()
    eventually(lambda: not linked(replica))
    link.restore()
    wait_synced(primary, replica)
    same(primary, replica)
