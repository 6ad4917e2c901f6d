"""Full syncs: under load, of a site that was away for long, over links that break; slow peers."""
import signal
import threading

import pytest
import redis

from mayfly import eventually
from sites import rng_of, write


def fill(site, keys, size=50):
    with site.r.pipeline(transaction=False) as p:
        for i in range(keys):
            p.set(f'key{i}', f'{i}:'.ljust(size, 'x'))
            if i % 5000 == 4999:
                p.execute()
        p.execute()


class Writers:
    """Write to sites until told to stop."""

    def __init__(self, *sites):
        self.over, self.errors, self.count = threading.Event(), [], 0
        self.threads = [threading.Thread(target=self.run, args=(s,)) for s in sites]
        for t in self.threads:
            t.start()

    def run(self, site):
        rng = rng_of(site.gid)
        try:
            with site.client(decode_responses=True) as r:
                while not self.over.is_set():
                    with r.pipeline(transaction=False) as p:
                        for _ in range(20):
                            p.set(f'key{rng.randrange(6000)}', rng.randrange(10**6)).delete(f'key{rng.randrange(6000)}')
                            p.incr('count').hset('h', f'f{rng.randrange(20)}', rng.randrange(99))
                        p.execute()
                    self.count += 1
        except Exception as e:          # pylint: disable=broad-except
            self.errors.append(e)

    def stop(self):
        self.over.set()
        for t in self.threads:
            t.join()
        assert not self.errors and self.count, self.errors


def test_join_under_load(group):
    g = group(2)
    fill(g[1], 6000, size=3000)         # more than fits in what the kernel buffers: keys change while it is sent
    load = Writers(*g.sites)
    g.join(3)
    load.stop()
    g.settle()
    assert 'malformed' not in g[3].log
    assert g[3].facts['site_peer1']['full_syncs'] + g[3].facts['site_peer2']['full_syncs'] >= 1


def test_away_longer_than_the_backlog(group):
    """It neither loses its own writes that nobody has seen, nor brings back what others removed."""
    g = group(2, '--site-backlog-size', '16kb')
    fill(g[1], 300)
    g.agree()
    g.cut(1, 2)
    fill(g[1], 600, size=90)
    g[1].r.delete('key1')
    g[2].r.set('mine', 'unsent')
    g[2].r.incr('count')
    g[1].r.incr('count')
    g.restore()
    g.settle()
    assert g[1].r.get('mine') == 'unsent' and g[2].r.get('key1') is None and g[1].r.get('count') == '2'
    assert g[2].facts['site_peer1']['full_syncs'] >= 2
    assert 'full sync' in g[2].log


def test_a_new_site_takes_no_writes_before_it_has_all(group):
    g = group(1)
    fill(g[1], 8000)
    new = g.join(2, wait=False)
    with new.client() as r, pytest.raises(redis.ResponseError, match='SITEJOIN'):
        r.set('too-early', 1)
    eventually(new.is_member)
    assert new.r.dbsize() == 8000
    new.r.set('now', 1)
    g.settle()


def test_reads_are_served_while_writes_wait(group):
    """While a full sync is merged a write is held back, not refused, and PING is answered meanwhile."""
    g = group(2, '--site-backlog-size', '16kb')
    fill(g[1], 12000)
    g.agree()
    g.cut(1, 2)
    fill(g[1], 12000, size=80)
    with g[2].raw() as writer, g[2].raw() as reader:
        g.restore()
        eventually(lambda: 'is being merged: writes wait' in g[2].log[-400:], pause=0)
        writer.command('SET', 'held', 'back')
        reader.command('GET', 'key1')
        assert reader.reply().startswith(b'1:')
        assert writer.reply() == b'OK'
    g.settle()
    assert g[1].r.get('held') == 'back'


@pytest.mark.parametrize('seed', range(2))
def test_a_sync_that_breaks(group, seed):
    """The link breaks in the middle of a full sync, again and again."""
    g, rng = group(2, '--site-backlog-size', '16kb'), rng_of(seed)
    fill(g[1], 3000)
    g.agree()
    g.cut(1, 2)
    fill(g[1], 4000, size=80)
    write(g[2], rng, 100)
    for after in (1000, 50_000, 200_000):
        g.restore()
        g.links[2, 1].cut(after=after)
        eventually(lambda: not g.links[2, 1].open)
    g.restore()
    g.settle()
    assert g[2].r.dbsize() == g[1].r.dbsize() >= 4000


def test_killed_in_a_full_sync(group):
    """A site that is killed while it merges another's data is torn, or has nothing of it: it gets all again."""
    g = group(2, '--site-backlog-size', '16kb')
    fill(g[1], 8000)
    g.agree()
    g.cut(1, 2)
    fill(g[1], 10000, size=80)
    g[2].r.set('mine', 'unsent')
    g.restore()
    eventually(lambda: 'is being merged' in g[2].log or g[2].facts['site_peer1']['full_syncs'] >= 2)
    g.restart(2, signal.SIGKILL)
    g.settle()
    assert g[1].r.get('mine') == 'unsent' and g[2].r.get('key9999') is not None


def test_a_slow_peer(group):
    """What a slow site does not take is not kept in memory: it falls out of the backlog, and gets all later."""
    g = group(2, '--site-backlog-size', '256kb')
    g[1].r.set('k', 'v')
    g.agree()
    g.links[2, 1].stall()
    before = g[1].r.info('memory')['used_memory']
    with g[1].r.pipeline(transaction=False) as p:
        for _ in range(6000):
            p.set('big', 'x' * 10_000)
        p.execute()
    grown = g[1].r.info('memory')['used_memory'] - before
    assert grown < 20_000_000, grown            # of 60 MB
    assert g[1].facts['site_backlog_bytes'] <= 256 * 1024 + 20_000
    g.restore()
    g.settle()
    assert g[2].r.strlen('big') == 10_000


def test_killed_while_merging_only(group):
    """Nothing else happens in the transactions of the merge: it is torn all the same, until it has all."""
    g = group(2, '--site-backlog-size', '16kb')
    a, b = g.sites
    g.cut(1, 2)
    for _ in range(3):
        a.r.execute_command('EVAL', "for i = 1, 50000 do redis.call('SET', 'k' .. math.random(1e9), i, 'EX', 1000) end", 0)
    n = a.r.dbsize()
    g.links[2, 1].restore()
    eventually(b.r.dbsize, pause=0)     # the first keys are merged
    b.stop(signal.SIGKILL)
    g.cut(1, 2)
    b.start()
    state, has = b.facts['site_state'], b.r.dbsize()
    assert state == 'torn' or (state, has) in (('member', 0), ('member', n)), has
    g.restore()
    g.connect(2)
    eventually(lambda: b.is_member() and b.r.dbsize() == n)
    g.agree()
