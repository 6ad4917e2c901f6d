"""A replica with the site-id of its primary holds the site's metadata, and can take its place."""
import os
import signal

import pytest
import redis

from mayfly import eventually
from proxy import Proxy
from sites import Group, Site, rng_of, view, write

KEPT = '--appendonly', 'yes', '--appendfsync', 'everysec'


class Place:
    """Site `gid` of a group, and a replica of it. Both ask the site's peers over the same proxies."""

    def __init__(self, group, gid=1, *args):
        self.group, self.gid, self.old = group, gid, group[gid]
        self.others = [s for s in group.sites if s.gid != gid]
        self.link = Proxy(self.old)
        peers = [a for s in self.others for a in ('--site-peer', s.gid, '127.0.0.1', group.links[gid, s.gid].port)]
        self.new = Site(gid, '--replicaof', '127.0.0.1', self.link.port, '--repl-retry-delay', 100, *peers, *args)
        self.servers = [self.old, self.new]
        self.in_step()

    def in_step(self):
        eventually(lambda: offset(self.new) == offset(self.old) and self.new.r.info('replication')['master_link_status'] == 'up')

    def promote(self, how=('REPLICAOF', 'NO', 'ONE')):
        if how:
            self.new.do(*how)
        self.group.sites[self.group.sites.index(self.old)] = self.new
        self.tell()

    def tell(self):
        """Peers ask the new server from now on."""
        for s in self.others:
            s.do('PEEROF', self.gid, '127.0.0.1', self.group.link(s.gid, self.new))

    def close(self):
        self.link.close()
        for s in self.servers:
            s.remove()


@pytest.fixture
def place():
    made, groups = [], []

    def make(n, *args, gid=1, replica=()):
        groups.append(Group(n, '--enable-debug-command', 'yes', *args))
        made.append(Place(groups[-1], gid, '--enable-debug-command', 'yes', *replica))
        return made[-1]

    yield make
    try:
        for g in groups:
            g.check()
    finally:
        for p in made:
            p.close()
        for g in groups:
            g.close()


def offset(s):
    repl = s.r.info('replication')
    return repl['slave_repl_offset' if repl['role'] == 'slave' else 'master_repl_offset']


def refuses(s, word):
    with pytest.raises(redis.ResponseError, match=f'^{word} '):
        s.r.set('refused', 1)


def test_a_replica_is_no_site(place):
    """It has the metadata, and neither links nor effects."""
    p = place(2)
    a, b, g = p.old, p.new, p.group
    write(a, rng_of(1), 300)
    a.r.set('dies', 1, px=50)
    g.settle()
    p.in_step()
    assert b.facts['site_state'] == 'replica' and b.facts['site_id'] == 1
    eventually(lambda: b.clock == a.clock and b.r.get('dies') is None)
    assert 'site_members' not in b.facts and g[2].facts['site_members'] == 2
    with pytest.raises(redis.ReadOnlyError):
        b.r.set('refused', 1)
    for words in ('SITE', 'JOIN', 3), ('SITE', 'KEY', 'k'), ('SITE', 'TRUST'):
        with pytest.raises(redis.ResponseError, match='replica of its site'):
            b.do(*words)
    assert b.do('PEEROF', 7, '127.0.0.1', 1) == 'OK' and b.do('PEEROF', 7, 'NO', 'ONE') == 'OK'
    assert b.r.config_get('site-peer')['site-peer'].startswith('2 127.0.0.1 ')
    eventually(lambda: view(a) == view(b))


def test_it_takes_the_place(place):
    """The site is killed; nothing that others or the replica have is lost, and no number is used twice."""
    p = place(3)
    g = p.group
    for s in g.sites:
        write(s, rng_of(s.gid), 300)
        s.r.incr('n', 10)
    g.settle()
    p.in_step()
    before = g.agree()
    p.old.stop(signal.SIGKILL)
    p.promote()
    eventually(p.new.is_member)
    assert {k: v for k, v in view(p.new).items() if v[1] == -1} == {k: v for k, v in before.items() if v[1] == -1}
    for s in g.sites:
        s.r.incr('n', 10)
        write(s, rng_of(s.gid + 10), 300)
    g.settle()
    assert p.new.r.get('n') == '60'
    eventually(lambda: all(s.facts['site_garbage_keys'] == 0 for s in g.sites))


@pytest.mark.parametrize('backlog', ('64mb', '16kb'))
def test_what_it_did_not_get_comes_back(place, backlog):
    """Others have what the site sent them and not its replica: from their backlog, or by a full sync."""
    p = place(3, '--site-backlog-size', backlog)
    a, b, g = p.old, p.new, p.group
    a.r.set('s', 'old')
    a.r.rpush('l', 'a', 'b')
    a.r.incr('n', 5)
    g.agree()
    p.in_step()
    p.link.cut()
    a.r.set('s', 'new', ex=1000)
    a.r.rpush('l', 'c')
    a.r.lpop('l')
    a.r.incr('n', 7)
    with a.r.pipeline() as multi:
        multi.hset('h', 'f', 1).incr('n').xadd('x', {'f': 'v'}).execute()
    for i in range(400):
        a.r.set(f'many{i}', 'x' * 100)
    g[2].r.incr('n', 100)
    before = g.agree()
    a.stop(signal.SIGKILL)
    assert b.r.get('s') == 'old' and b.r.get('n') == '5'
    p.promote()
    eventually(b.is_member)
    assert view(b) == before
    b.r.incr('n', 1000)
    g.settle()
    assert g[3].r.get('n') == '1113' and g[3].r.lrange('l', 0, -1) == ['b', 'c']
    assert ('full sync' in b.log) == (backlog == '16kb')


def test_it_waits_for_all_members(place):
    """One that can't be reached may have more of the site."""
    p = place(3)
    a, b, g = p.old, p.new, p.group
    g.cut(1, 2)
    g.cut(2, 3)
    p.link.cut()
    a.r.set('k', 'only site 3 has it')
    eventually(lambda: g[3].r.exists('k'))
    a.stop(signal.SIGKILL)
    g.cut(1, 3)
    g.links[1, 2].restore()
    b.do('REPLICAOF', 'NO', 'ONE')
    eventually(lambda: b.facts.get('site_doubt_waits_for') == 3)
    refuses(b, 'SITEDOUBT')
    p.promote(how=None)                 # site 3 says over its own link that it has more
    eventually(lambda: b.facts.get('site_doubt_lacks_effects') == 1 and b.facts.get('site_doubt_waits_for') == '')
    refuses(b, 'SITEDOUBT')
    g.restore()
    eventually(b.is_member)
    assert b.r.get('k') == 'only site 3 has it'
    b.r.set('k', 'new')
    g.settle()


def test_the_old_server_is_no_site_any_more(place):
    """It is refused when it comes back, says so to its clients, and can become the new one's replica."""
    p = place(2, *KEPT, replica=KEPT)
    a, b, g = p.old, p.new, p.group
    a.r.set('k', 1)
    g.agree()
    p.in_step()
    a.stop(signal.SIGKILL)
    p.promote()
    eventually(b.is_member)
    b.r.set('k', 2)
    a.start()
    for _ in range(2):
        a.do('PEEROF', 2, '127.0.0.1', g[2].port)
        eventually(lambda: a.facts['site_state'] == 'replaced')
        refuses(a, 'SITEREPLACED')
        with pytest.raises(redis.ResponseError, match='^SITEREPLACED'):
            a.do('SITE', 'TRUST')
        eventually(lambda: 'another server has taken the place of this site' in a.log)
        assert a.r.get('k') == '1'
        g[2].do('PEEROF', 1, '127.0.0.1', a.port)                   # by mistake
        eventually(lambda: 'taken the place' in g[2].facts.get('site_peer1_last_error', ''))
        a.restart(signal.SIGKILL)
    p.tell()
    g.settle()
    assert g[2].r.get('k') == '2'
    a.do('REPLICAOF', '127.0.0.1', b.port)
    p.old, p.new = b, a
    p.in_step()
    a.do('PEEROF', 2, '127.0.0.1', g.links[1, 2].port)
    assert a.r.get('k') == '2' and a.facts['site_state'] == 'replica'
    b.stop(signal.SIGKILL)
    p.promote()                                                     # and takes its place in turn
    eventually(a.is_member)
    a.r.incr('k')
    g.settle()


def test_the_old_server_is_still_there(place):
    """It serves clients and a peer while the new one starts: that peer takes nothing more of it."""
    p = place(3)
    a, b, g = p.old, p.new, p.group
    p.link.cut()
    g.cut(1, 2)
    a.r.set('k', 'before')
    eventually(lambda: g[3].r.get('k') == 'before')
    b.do('REPLICAOF', 'NO', 'ONE')
    for gid in 2, 3:
        b.do('PEEROF', gid, '127.0.0.1', g[gid].port)
    eventually(b.is_member)
    assert b.r.get('k') == 'before'
    try:
        a.r.set('k', 'after')
    except redis.ResponseError as e:
        assert 'SITEREPLACED' in str(e)
    eventually(lambda: a.facts['site_state'] == 'replaced')
    refuses(a, 'SITEREPLACED')
    p.promote(how=None)
    b.r.set('k', 'last')
    g.settle()
    assert g[3].r.get('k') == 'last'


def test_failover(place):
    """FAILOVER hands all over: nothing is in doubt, and the old site follows; there and back again."""
    p = place(3, *KEPT, replica=KEPT)
    g = p.group
    for turn in range(3):
        p.old.r.incr('n')
        p.old.do('FAILOVER')
        eventually(p.new.is_member)
        p.promote(how=None)
        assert 'it waits' not in p.new.log and 'SITEDOUBT' not in p.new.log
        p.new.r.incr('n')
        eventually(lambda: p.old.facts['site_state'] == 'replica')
        g[2].r.incr('n')
        g.settle()
        p.old, p.new = p.new, p.old
        p.in_step()
        assert p.new.r.get('n') == p.old.r.get('n') == str(3 * turn + 3)


def test_failover_with_effects_coming_in(place):
    """What others send waits while the replica catches up, and comes to the new server."""
    p = place(2)
    a, b, g = p.old, p.new, p.group
    with g[2].raw() as c:
        for i in range(20000):
            c.command('SET', f'k{i % 1000}', i)
        a.do('FAILOVER')
        eventually(b.is_member)
        for _ in range(20000):
            assert c.reply() == b'OK'
    p.promote(how=None)
    g.settle()
    assert b.r.dbsize() == 1000


def test_only_a_replica_of_the_site(place, site):
    """Of another site, or of a server that is none, it gets nothing; and a plain replica is no target of FAILOVER."""
    p = place(2)
    stranger = site(5)
    stranger.r.set('mine', 1)
    p.old.r.set('k', 1)
    stranger.do('REPLICAOF', '127.0.0.1', p.old.port)
    eventually(lambda: 'this server is not site 5' in stranger.log)
    assert stranger.r.get('mine') == '1' and stranger.r.get('k') is None
    stranger.do('REPLICAOF', 'NO', 'ONE')
    eventually(lambda: stranger.facts['site_state'] == 'member')
    p.new.do('REPLICAOF', '127.0.0.1', stranger.port)
    eventually(lambda: 'this server is not site 1' in p.new.log)
    assert p.new.r.get('k') == '1'
    plain = Site.__mro__[1]('--replicaof', '127.0.0.1', p.old.port)
    try:
        eventually(lambda: plain.info('replication')['master_link_status'] == 'up')
        with pytest.raises(redis.ResponseError, match='has no site-id'):
            p.old.do('FAILOVER', 'TO', '127.0.0.1', plain.port)
    finally:
        plain.remove()


@pytest.mark.parametrize('full', (False, True))
def test_a_replica_that_is_started_as_the_site(place, full):
    """Taking the place by a start without replicaof: its files say that they are a replica's."""
    p = place(2, *KEPT, replica=KEPT)
    a, b, g = p.old, p.new, p.group
    a.r.set('k', 1)
    if full:
        b.do('DEBUG', 'CHANGE-REPL-ID')
        p.link.cut()
        p.link.restore()
    g.agree()
    p.in_step()
    if os.environ.get('MAYFLY_ENGINE') != 'rocksdb':
        eventually(lambda: not b.info('persistence')['aof_rewrite_in_progress'])
    p.link.cut()
    a.r.set('k', 2)
    g.agree()
    assert b.stop() == 0
    a.stop(signal.SIGKILL)
    at = b.args.index('--replicaof')
    del b.args[at:at + 3]
    b.start()
    p.promote(how=None)
    eventually(b.is_member)
    assert b.r.get('k') == '2'
    b.r.set('k', 3)
    g.settle()
    b.restart(signal.SIGKILL)           # it is the site from now on, and in no doubt
    assert b.is_member() and 'taken the place' not in b.log


def test_a_replica_of_a_replica(place):
    p = place(2)
    third = Site(1, '--replicaof', '127.0.0.1', p.new.port, '--site-peer', 2, '127.0.0.1', p.group[2].port)
    p.servers.append(third)
    eventually(lambda: third.r.info('replication')['master_link_status'] == 'up')
    p.old.r.set('k', 'v')
    eventually(lambda: third.r.get('k') == 'v' and third.clock == p.old.clock)
    p.old.stop(signal.SIGKILL)
    p.promote()
    eventually(p.new.is_member)
    p.new.r.set('k', 'w')
    eventually(lambda: third.r.get('k') == 'w')
    p.new.stop(signal.SIGKILL)
    p.old, p.new = p.new, third
    p.promote()
    eventually(third.is_member)
    third.r.set('k', 'x')
    p.group.settle()
    assert p.group[2].r.get('k') == 'x'
