"""Partitions, joins, restarts: in the end all sites have the same keys, values and deadlines."""
import signal

import pytest

from mayfly import eventually
from sites import rng_of, write


@pytest.mark.parametrize('seed', range(3))
def test_partitions(group, seed):
    g, rng = group(3), rng_of(seed)
    for _ in range(8):
        a, b = rng.sample((1, 2, 3), 2)
        g.cut(a, b)
        for s in g.sites:
            write(s, rng, rng.randrange(60))
        if rng.random() < .6:
            g.restore()
    g.restore()
    g.settle()
    assert g[1].r.dbsize() > 3


def test_nothing_is_left_but_data(group):
    g, rng = group(2), rng_of(7)
    g.cut(1, 2)
    for s in g.sites:
        write(s, rng, 200)
    eventually(lambda: g[1].facts['site_garbage_keys'] > 0)
    assert str(g[1].facts['site_garbage_waits_for']) == '2'
    g.restore()
    g.settle()
    for s in g.sites:
        eventually(lambda s=s: s.facts['site_garbage_keys'] == 0 and s.facts['site_garbage_waits_for'] == '')


def test_a_chain(site):
    """1 and 3 know each other over 2 only, which passes everything on."""
    a = site(1)
    b = site(2, '--site-peer', 1, '127.0.0.1', a.port)
    a.do('PEEROF', 2, '127.0.0.1', b.port)
    eventually(b.is_member)
    c = site(3, '--site-peer', 2, '127.0.0.1', b.port)
    b.do('PEEROF', 3, '127.0.0.1', c.port)
    eventually(c.is_member)
    a.r.set('from-1', 1)
    c.r.set('from-3', 3)
    eventually(lambda: c.r.get('from-1') == '1' and a.r.get('from-3') == '3')
    assert a.facts['site_members'] == b.facts['site_members'] == c.facts['site_members'] == 3


def test_late_join(group):
    g, rng = group(2), rng_of(3)
    for s in g.sites:
        write(s, rng, 300)
    new = g.join(3)
    eventually(lambda: new.is_member() and new.links_up() == 2)     # the second link may bring a full sync, too
    for s in g.sites:
        write(s, rng, 100)
    g.settle()


def test_a_site_with_data(group, site):
    """A server that had keys becomes a site: they reach the others by full sync."""
    s = site(1)
    s.stop()
    lone = [a for i, a in enumerate(s.args) if a != '--site-id' and s.args[i - 1] != '--site-id']
    full, s.args = s.args, [*lone[:1], '--port', str(s.port), *lone[3:], '--dir', s.dir]
    assert full
    # a directory of its own, in which it never was a site
    import os
    import shutil
    for name in os.listdir(s.dir):
        path = os.path.join(s.dir, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    s.start()
    s.r.mset({f'k{i}': i for i in range(500)})
    s.r.rpush('list', *'abc')
    s.r.expire('k1', 900)
    assert s.stop() == 0
    s.args = full
    s.start()
    assert s.r.dbsize() == 501
    other = site(2, '--site-peer', 1, '127.0.0.1', s.port)
    s.do('PEEROF', 2, '127.0.0.1', other.port)
    eventually(other.is_member)
    assert other.r.dbsize() == 501 and other.r.lrange('list', 0, -1) == ['a', 'b', 'c']
    assert other.r.pexpiretime('k1') == s.r.pexpiretime('k1')


@pytest.mark.parametrize('how', [signal.SIGTERM, signal.SIGKILL])
def test_restart(group, how):
    """Clock and metadata come back with the data: a site that was killed continues, and no full sync is needed."""
    g, rng = group(3), rng_of(5)
    for s in g.sites:
        write(s, rng, 150)
    g.cut(1, 2)
    for s in g.sites:
        write(s, rng, 50)
    before = g[2].clock
    g.restart(2, how)
    after = g[2].clock
    assert all(after[gid] >= seq for gid, seq in before.items())
    write(g[2], rng, 50)
    g.restore()
    g.settle()
    assert all(f['full_syncs'] <= 1 for s in g.sites for k, f in s.facts.items() if k.startswith('site_peer') and isinstance(f, dict))


def test_multi_in_one_piece(group):
    """No site ever shows a part of a transaction."""
    g = group(2)
    seen = set()
    for i in range(100):
        with g[1].r.pipeline() as p:
            p.set('a', i).rpush('list', i).delete('gone').set('gone', 1).delete('gone').set('b', i).execute()
        with g[2].r.pipeline() as p:
            a, b = p.get('a').get('b').execute()
        assert a == b
        seen.add(a)
    g.agree()
    assert g[2].r.get('b') == '99' and g[2].r.exists('gone') == 0 and len(seen) > 1


def test_counters_lose_nothing(group):
    g = group(3)
    g.cut(1, 2)
    g.cut(2, 3)
    g.cut(1, 3)
    for s in g.sites:
        with s.r.pipeline(transaction=False) as p:
            for _ in range(100):
                p.incr('n').hincrby('h', 'f', 2).zincrby('z', 1, 'm')
            p.execute()
    g.restore()
    g.settle()
    r = g[3].r
    assert (r.get('n'), r.hget('h', 'f'), r.zscore('z', 'm')) == ('300', '600', 300)


def test_databases(group):
    g = group(2)
    with g[1].client(db=3, decode_responses=True) as a, g[2].client(db=3, decode_responses=True) as b:
        a.set('k', 'v')
        eventually(lambda: b.get('k') == 'v')
        assert g[2].r.get('k') is None
        b.flushdb()
        eventually(lambda: a.get('k') is None)


def test_clients_hear_of_it(group):
    """Keyspace events, blocked clients, WATCH and invalidations at a site that others write to."""
    g = group(2)
    a, b = g[1], g[2]
    b.r.config_set('notify-keyspace-events', 'KEA')
    with b.raw() as blocked, b.client(decode_responses=True) as watcher, b.client(decode_responses=True) as hears:
        events = hears.pubsub()
        events.psubscribe('__keyevent@0__:*')
        blocked.command('BLPOP', 'queue', 0)
        pipe = watcher.pipeline()
        pipe.watch('w')
        a.r.set('w', 1)
        a.r.set('e', 1, px=50)
        a.r.rpush('queue', 'job')
        assert blocked.reply() == [b'queue', b'job']
        eventually(lambda: b.r.get('w') == '1')
        pipe.multi()
        pipe.get('w')
        try:
            pipe.execute()
            raise AssertionError('WATCH heard nothing')
        except Exception as e:       # pylint: disable=broad-except
            assert type(e).__name__ == 'WatchError'
        got = set()

        def heard():
            m = events.get_message(timeout=.1)
            if m and m['type'] == 'pmessage':
                got.add((m['channel'].split(':')[1], m['data']))
            return {('set', 'w'), ('expired', 'e')} <= got
        eventually(heard)


def test_two_join_at_once(site):
    """Both are admitted before either has its data: they don't wait for each other."""
    a = site(1)
    a.r.set('k', 'v')
    new = [site(gid, '--site-peer', 1, '127.0.0.1', a.port, *((('--site-peer', 2, '127.0.0.1', 1)) if gid == 3 else ()))
           for gid in (2, 3)]
    for s in new:
        a.do('SITE', 'JOIN', s.gid)
    for s in new:
        a.do('PEEROF', s.gid, '127.0.0.1', s.port)
    for s in new:
        eventually(s.is_member)
        assert s.r.get('k') == 'v'
    eventually(lambda: a.links_up() == 2 and all(s.facts['site_members'] == 3 for s in new))


def test_a_longer_expire_delay(group):
    """Who did not write a key deletes it after that time, if the one that did can't."""
    g = group(2, '--site-expire-delay', 900)
    g[1].r.set('k', 'v', px=400)
    eventually(lambda: g[2].r.get('k'))
    g.cut(1, 2)
    eventually(lambda: g[2].facts['site_expiries_sent'] == 1)
    g.restore()
    g.settle()
