"""Deadlines of hash fields: the same at all sites, whatever was written where."""
import signal
import time

import pytest

import mayfly
from mayfly import eventually
from sites import rng_of, write


def deadline(site, key, field):
    return site.do('HPEXPIRETIME', key, 'FIELDS', 1, field)[0]


def expire(site, key, ms, *fields):
    return site.do('HPEXPIRE', key, ms, 'FIELDS', len(fields), *fields)


def persist(site, key, field):
    assert site.do('HPERSIST', key, 'FIELDS', 1, field) == [1]


def dead_at(site, key, field):
    """Waits until the field is gone."""
    eventually(lambda: site.r.hget(key, field) is None)


@pytest.fixture
def parted(group):
    """Two sites that have a hash, and don't hear each other."""
    g = group(2)
    g[1].r.hset('h', mapping={'f': 'v', 'g': 'w'})
    g.agree()
    g.cut(1, 2)
    return g


def test_all_commands(group):
    g = group(3)
    a, b, c = g.sites
    a.r.hset('h', mapping={'f': 'v', 'g': 'w', 'n': 5})
    g.agree()
    assert expire(b, 'h', 900_000, 'f', 'n', 'none') == [1, 1, -2]
    g.agree()
    at = deadline(b, 'h', 'f')
    assert at > time.time() * 1000 and deadline(a, 'h', 'f') == deadline(c, 'h', 'f') == at
    assert c.do('HGETEX', 'h', 'PX', 800_000, 'FIELDS', 1, 'g') == ['w']
    assert a.r.hincrby('h', 'n', 2) == 7                # keeps it
    a.r.hset('h', 'f', 'new')                           # and this does not
    g.agree()
    assert deadline(b, 'h', 'f') == -1 and deadline(a, 'h', 'g') > at - 200_000 and deadline(c, 'h', 'n') > at - 1000
    b.do('HSETEX', 'h', 'PX', 700_000, 'FIELDS', 2, 'f', 'x', 'p', 'y')
    c.do('HSETEX', 'h', 'KEEPTTL', 'FIELDS', 1, 'n', 9)
    persist(a, 'h', 'g')
    g.agree()
    for s in g.sites:
        assert deadline(s, 'h', 'f') == deadline(s, 'h', 'p') > 0 and deadline(s, 'h', 'g') == -1
        assert deadline(s, 'h', 'n') > 0 and s.r.hget('h', 'n') == '9'
    assert b.do('HEXPIREAT', 'h', 1, 'FIELDS', 1, 'p') == [2]
    g.agree()
    assert a.do('COPY', 'h', 'copy') == 1
    a.r.rename('h', 'other')
    view = g.agree()
    assert view['copy'] == view['other'] and view['copy'][0]['f'][1] > 0 and 'h' not in view


def test_dump_and_restore(group):
    g = group(2)
    a, b = g.sites
    a.r.hset('h', mapping={'f': 'v', 'g': 'w'})
    expire(a, 'h', 900_000, 'f')
    with b.client() as raw, a.client() as from_raw:
        g.agree()
        raw.restore('copy', 0, from_raw.dump('h'))
    view = g.agree()
    assert view['copy'] == view['h'] and view['copy'][0]['f'][1] > 0


def test_the_longest(parted):
    g = parted
    expire(g[1], 'h', 500_000, 'f')
    expire(g[2], 'h', 900_000, 'f')
    g.restore()
    g.settle()
    assert deadline(g[1], 'h', 'f') > (time.time() + 800) * 1000


@pytest.mark.parametrize('other', ('HPERSIST h FIELDS 1 f', 'HSET h f new', 'HINCRBY h f 1'))
def test_hexpire_beats(group, other):
    g = group(2)
    g[1].r.hset('h', 'f', 1)
    expire(g[1], 'h', 500_000, 'f')
    g.agree()
    g.cut(1, 2)
    g[1].do(*other.split())
    expire(g[2], 'h', 900_000, 'f')
    g.restore()
    g.settle()
    assert deadline(g[1], 'h', 'f') > (time.time() + 800) * 1000


def test_hdel_beats_hexpire(parted):
    g = parted
    g[1].r.hdel('h', 'f')
    expire(g[2], 'h', 900_000, 'f')
    g.restore()
    g.settle()
    assert g[2].r.hgetall('h') == {'g': 'w'}
    for s in g.sites:
        eventually(lambda s=s: s.facts['site_garbage_keys'] == 0)


def test_a_write_survives_an_expiry(parted):
    """Fields expire at site 1, which has not seen what site 2 did to them before."""
    g = parted
    g.restore()
    g[1].r.hset('h', 'n', 5)
    expire(g[1], 'h', 600, 'f', 'g', 'n')
    g.agree()
    g.cut(1, 2)
    g[2].r.hset('h', 'f', 'new')
    persist(g[2], 'h', 'g')
    g[2].r.hincrby('h', 'n', 1)                         # with the deadline that it was made under
    eventually(lambda: g[1].r.hgetall('h') == {})
    assert g[1].r.exists('h') == 0
    g.restore()
    g.settle()
    assert g.agree()['h'][0] == {'f': ('new', -1), 'g': ('w', -1)}


@pytest.mark.parametrize('owner', (1, 2))
def test_they_die_everywhere(group, owner):
    """Once over the wire, with an event at each site, and the hash goes with its last field."""
    g = group(2)
    listeners = []
    for s in g.sites:
        s.r.config_set('notify-keyspace-events', 'KEA')
        listeners.append(s.client(decode_responses=True).pubsub())
        listeners[-1].psubscribe('__keyspace@0__:h')
    g[owner].r.hset('h', mapping={'f': 'v', 'g': 'w', 'stays': 1})
    g.agree()
    expire(g[1], 'h', 300, 'f', 'g')
    g.agree()
    before = [s.facts['site_expiries_sent'] for s in g.sites]
    for s in g.sites:
        dead_at(s, 'h', 'g')
        assert s.r.hgetall('h') == {'stays': '1'} and s.r.hlen('h') == 1
    g[2].do('HPEXPIRE', 'h', 200, 'FIELDS', 1, 'stays')
    eventually(lambda: all(s.r.dbsize() == 0 and s.r.info('stats')['expired_subkeys'] == 3 for s in g.sites))
    assert sum(s.facts['site_expiries_sent'] for s in g.sites) - sum(before) == 3
    for p in listeners:
        heard = []
        while not heard or heard[-1] != 'del':
            m = p.get_message(timeout=5)
            assert m, heard
            heard += [m['data']] if m['type'] == 'pmessage' else []
        assert heard.count('hexpired') >= 2 and 'hdel' not in heard
        p.close()


def test_many_at_once(group):
    """More than one effect has, and not as many effects as there are fields."""
    g = group(2)
    g[1].r.hset('h', mapping={f'f{i}': i for i in range(5000)})
    expire(g[1], 'h', 1500, *(f'f{i}' for i in range(4000)))
    g.agree()
    before = g[1].clock[1]
    eventually(lambda: all(s.r.hlen('h') == 1000 for s in g.sites))
    eventually(lambda: all(s.r.info('stats')['expired_subkeys'] == 4000 for s in g.sites), seconds=20)
    assert g[1].clock[1] - before < 100


def test_others_wait(group):
    """A site that did not write the hash hides the field at once, and deletes it when the owner is away."""
    g = group(2, '--site-expire-delay', 1500)
    g[1].r.hset('h', mapping={'f': 'v', 'g': 'w'})
    expire(g[1], 'h', 400, 'f')
    g.agree()
    g.cut(1, 2)
    g[1].stop(signal.SIGKILL)
    dead_at(g[2], 'h', 'f')
    assert g[2].facts['site_expiries_sent'] == 0
    eventually(lambda: g[2].facts['site_expiries_sent'] == 1)
    g[1].start()
    g.connect(1)
    g.restore()
    g.settle()
    assert g[1].r.hgetall('h') == {'g': 'w'}


def test_expiry_stream(group):
    g = group(2, '--expiry-stream', 'died')
    g[1].r.hset('h', mapping={'f': 'v', 'g': 'w'})
    expire(g[1], 'h', 100, 'f')
    eventually(lambda: deadline(g[2], 'h', 'f') != -1)
    for s in g.sites:
        dead_at(s, 'h', 'f')
    eventually(lambda: all(s.r.xlen('died') == 2 for s in g.sites))     # each site says when it was deleted there


@pytest.mark.parametrize('how', (signal.SIGTERM, signal.SIGKILL))
def test_restart(group, how):
    g = group(2)
    g[1].r.hset('h', mapping={'f': 'v', 'g': 'w', 'd': 'x'})
    expire(g[2], 'h', 900_000, 'f')
    g.agree()
    expire(g[2], 'h', 500, 'd')
    persisted = deadline(g[1], 'h', 'f')
    g.agree()
    g.restart(1, how)
    g.settle()
    assert deadline(g[1], 'h', 'f') == persisted
    for s in g.sites:
        dead_at(s, 'h', 'd')
    g[1].r.hset('h', 'f', 'without')
    g.agree()
    assert deadline(g[2], 'h', 'f') == -1


def test_full_sync(group):
    """A site that was away for longer than the backlog lasts; and a new one."""
    g = group(2, '--site-backlog-size', '16kb')
    a, b = g.sites
    for i in range(50):
        a.r.hset(f'h{i}', mapping={'f': i, 'g': i, 'd': i})
    g.agree()
    g.cut(1, 2)
    for i in range(50):
        expire(a, f'h{i}', 900_000 + i, 'f')
        expire(a, f'h{i}', 200, 'd')
        expire(b, f'h{i}', 950_000, 'g')
        if i % 2:
            persist(a, f'h{i}', 'f')
    b.do('HPERSIST', 'h2', 'FIELDS', 1, 'd')
    for s in g.sites:
        s.r.mset({f'fill{s.gid}{i}': 'x' * 1000 for i in range(100)})
    g.restore()
    g.settle()
    assert sum(s.facts[f'site_peer{3 - s.gid}']['full_syncs'] for s in g.sites) >= 1
    g.join(3)
    g.settle()
    assert deadline(g[3], 'h2', 'f') == deadline(a, 'h2', 'f') > 0 and deadline(b, 'h3', 'f') == -1
    eventually(lambda: all(s.r.hlen('h1') == 2 for s in g.sites))


def test_a_server_with_field_deadlines_becomes_a_site(site, tmp_path):
    lone = mayfly.Server(directory=str(tmp_path))
    try:
        with lone.client() as r:
            r.hset('h', mapping={'f': 'v', 'g': 'w'})
            r.execute_command('HPEXPIRE', 'h', 900_000, 'FIELDS', 1, 'f')
    finally:
        lone.stop()
    s = site(1, directory=str(tmp_path))
    at = deadline(s, 'h', 'f')
    new = site(2, '--site-peer', 1, '127.0.0.1', s.port)
    s.do('PEEROF', 2, '127.0.0.1', new.port)
    eventually(new.is_member)
    assert at > 0 and deadline(new, 'h', 'f') == at and new.r.hgetall('h') == {'f': 'v', 'g': 'w'}
    new.r.hset('h', 'f', 'without')
    eventually(lambda: deadline(s, 'h', 'f') == -1)


@pytest.mark.parametrize('seed', range(2))
def test_replica(group, seed):
    """A replica of a site gets its deadlines, whoever set them; also while sites merge."""
    g, rng = group(2), rng_of(seed)
    r = mayfly.Server('--replicaof', '127.0.0.1', str(g[1].port))
    try:
        eventually(lambda: r.info('replication')['master_link_status'] == 'up')
        for _ in range(3):
            g.cut(1, 2)
            for s in g.sites:
                write(s, rng, 80)
            g.restore()
        g.settle()
        with r.client(decode_responses=True) as c:
            c.execute_command('PING')
            for key in g[1].r.scan_iter('h*', _type='hash'):
                fields = [f for f in sorted(g[1].r.hkeys(key)) if f[0] != 'g'] or ['f']
                ask = ('HPEXPIRETIME', key, 'FIELDS', len(fields), *fields)
                eventually(lambda ask=ask: c.execute_command(*ask) == g[1].do(*ask))
    finally:
        r.remove()
