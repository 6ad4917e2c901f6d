"""Commands about sites, figures, configuration, and what a site refuses."""
import os
import shutil
import signal
import subprocess
import urllib.request

import pytest
import redis

import mayfly
import sites
from mayfly import eventually, free_port


def test_site_key(group):
    g = group(2)
    g.cut(1, 2)
    g[1].r.set('k', 'one')
    g[2].r.set('k', 'two')
    g[2].r.expire('k', 100)
    g.restore()
    g.settle()
    text = g[1].do('SITE', 'KEY', 'k')
    assert text == g[2].do('SITE', 'KEY', 'k') or 'garbage:' in text
    assert 'type:string' in text and 'write:gid=' in text and 'wins=yes' in text and 'ttl:gid=2' in text
    assert g[1].do('SITE', 'KEY', 'nosuch') is None


def test_site_wait(group):
    g = group(3)
    for i in range(20):
        g[1].r.set('k', i)
        assert g[1].do('SITE', 'WAIT', 2, 0) == 2
        assert g[2].r.get('k') == g[3].r.get('k') == str(i)
    g.cut(1, 2)
    g[1].r.set('k', 'alone')
    assert g[1].do('SITE', 'WAIT', 2, 100) == 1


def test_peerof(site):
    s = site(1)
    for words, why in (((1, '127.0.0.1', 1), '1 is this site itself'), ((0, 'h', 1), 'from 1 to 255'),
                       ((256, 'h', 1), 'from 1 to 255'), ((2, 'h', 0), 'Invalid port'), ((2, 'h h', 1), 'Invalid host')):
        with pytest.raises(redis.ResponseError, match=why):
            s.do('PEEROF', *words)
    assert s.do('PEEROF', 2, '127.0.0.1', 1) == 'OK'
    assert s.r.config_get('site-peer') == {'site-peer': '2 127.0.0.1 1'}
    assert s.do('PEEROF', 3, 'localhost', 2) == 'OK'
    assert s.r.config_get('site-peer') == {'site-peer': '2 127.0.0.1 1 3 localhost 2'}
    assert s.do('PEEROF', 2, 'NO', 'ONE') == 'OK'
    assert s.r.config_get('site-peer') == {'site-peer': '3 localhost 2'}
    assert 'site_peer2' not in s.facts and 'site_peer3' in s.facts
    for name in 'site-id', 'site-peer':
        with pytest.raises(redis.ResponseError):
            s.r.config_set(name, '9')


def test_rewrite(tmp_path):
    conf = tmp_path / 'site.conf'
    conf.write_text('site-id 4\nsite-peer 2 a 1\nsite-peer 7 b 2\n# the end\n')
    port = free_port()
    proc = subprocess.Popen([mayfly.BINARY, str(conf), '--port', str(port), '--dir', str(tmp_path), *mayfly.ENGINE_ARGS],
                            stdout=subprocess.DEVNULL)
    try:
        with mayfly.Client(port=port, decode_responses=True) as r:
            def up():
                try:
                    return r.ping()
                except redis.ConnectionError:
                    return False
            eventually(up)
            assert r.config_get('site-*')['site-peer'] == '2 a 1 7 b 2'
            r.execute_command('PEEROF', 2, 'NO', 'ONE')
            r.config_set('site-max-clock-skew', 500)
            r.config_rewrite()
    finally:
        proc.kill()
        proc.wait()
    text = conf.read_text()
    assert 'site-peer 7 b 2\n' in text and 'site-peer 2' not in text and 'site-max-clock-skew 500\n' in text
    assert 'site-id 4\n' in text and '# the end' in text


@pytest.mark.parametrize('args, why', [
    (('--site-id', 1, '--cluster-enabled', 'yes'), 'site-id and cluster-enabled exclude each other'),
    (('--site-peer', 2, '127.0.0.1', 1), 'it needs site-id'),
    (('--site-id', 2, '--site-peer', 2, '127.0.0.1', 1), 'site-peer 2 is this site itself'),
    (('--site-id', 1, '--site-peer', 2, '127.0.0.1'), "a site-peer is a site's id, a host and a port"),
    (('--site-id', 300), ''),
    (('--site-id', 1, '--site-drop-metadata', 'yes'), 'site-drop-metadata is for a server that is no site any more'),
])
def test_settings_that_exclude_each_other(args, why):
    p = subprocess.run([mayfly.BINARY, '--port', '0', *map(str, args)], capture_output=True, text=True, timeout=60)
    assert p.returncode == 1 and why in p.stderr + p.stdout


def rewritten(info):
    return info['aof_rewrites'] and not info['aof_rewrite_in_progress'] and not info['aof_rewrite_scheduled']


def without_site(args):
    at = args.index('--site-id')
    return args[:at] + args[at + 2:]


def test_data_of_a_site_without_site_id(site):
    """It does not start, until it is told to drop the metadata."""
    s = site(1)
    s.do('SITE', 'JOIN', 2)
    s.r.mset({f'k{i}': i for i in range(1000)})
    s.r.delete('k1')
    s.r.incr('k2')
    assert s.stop() == 0
    as_site, s.args = s.args, without_site(s.args)
    s.start(wait=False)
    assert s.proc.wait(60) == 1 and '--site-drop-metadata yes' in s.log
    s.args = s.args + ['--site-drop-metadata', 'yes']
    s.start()
    assert s.r.dbsize() == 999 and s.r.get('k2') == '3'
    if s.r.config_get('appendonly')['appendonly'] == 'yes':     # which is written anew, without metadata
        eventually(lambda: rewritten(s.r.info('persistence')))
    s.args = s.args[:-2]
    s.restart()
    assert s.r.dbsize() == 999
    s.args = [a if a != '1' or as_site[i - 1] != '--site-id' else '9' for i, a in enumerate(as_site)]
    s.restart()                         # its data may become that of another site now
    assert s.facts['site_id'] == 9 and s.r.dbsize() == 999


@pytest.mark.parametrize('files, how', [
    (('--appendonly', 'yes'), signal.SIGTERM), (('--appendonly', 'yes'), signal.SIGKILL),
    (('--appendonly', 'no', '--save', '3600 100000'), signal.SIGTERM)])
def test_a_site_again(site, files, how):
    """Its metadata was dropped; what there is when it becomes a site again is one effect, which others get."""
    s = site(1, *files)
    s.do('SITE', 'JOIN', 2)
    s.r.mset({f'k{i}': i for i in range(1000)})
    s.r.hset('h', 'f', 'v')
    assert s.stop() == 0
    as_site, s.args = s.args, without_site(s.args) + ['--site-drop-metadata', 'yes']
    s.start()
    s.r.set('lone', 1)
    s.r.hset('h', 'g', 'w')
    s.r.delete('k1')
    assert s.stop(how) == (0 if how == signal.SIGTERM else -how)
    s.args = as_site
    s.start()
    assert s.clock == {1: 1} and 'site_member2' not in s.facts
    for key in 'k2', 'lone', 'h':
        assert 'write:gid=1,seq=1,' in s.do('SITE', 'KEY', key)
    s.do('SITE', 'JOIN', 3)
    s.restart()
    other = site(3, '--site-peer', 1, '127.0.0.1', s.port)
    eventually(other.is_member)
    assert sites.view(other) == sites.view(s)
    assert s.r.dbsize() == 1001 and other.r.hgetall('h') == {'f': 'v', 'g': 'w'}


def test_another_site_id(site):
    s = site(1)
    s.r.set('k', 'v')
    assert s.stop() == 0
    at = s.args.index('--site-id')
    s.args[at + 1] = '2'
    s.start(wait=False)
    assert s.proc.wait(60) == 1 and "can't be site 2" in s.log


def test_refused_on_a_site(site):
    s = site(1)
    with pytest.raises(redis.ResponseError, match='active-active'):
        s.do('SWAPDB', 0, 1)
    lone = mayfly.new_server()
    try:
        with lone.client() as r:
            for words in ('PEEROF', 2, 'h', 1), ('SITE', 'INFO'), ('SITE', 'JOIN', 2), ('SITE', 'WAIT', 1, 1), \
                    ('SITE.HELLO', 1, 2, b'\0'):
                with pytest.raises(redis.ResponseError, match='no site'):
                    r.execute_command(*words)
            assert 'site_id' not in r.info('everything')
        assert lone.stop() == 0
    finally:
        lone.remove()


def test_two_new_sites(site):
    """Both were told of each other: that with the higher id joins the group of the other."""
    a, b = site(1), site(2)
    b.do('PEEROF', 1, '127.0.0.1', a.port)
    a.do('PEEROF', 2, '127.0.0.1', b.port)
    eventually(lambda: a.links_up() == b.links_up() == 1 and b.is_member())
    b.r.set('k', 'v')
    eventually(lambda: a.r.get('k') == 'v')


def with_all_peers(site, ports):
    """Sites 1 to n, each started with all others as peers."""
    peers = [('--site-peer', i + 1, '127.0.0.1', port) for i, port in enumerate(ports)]
    return [site(i + 1, *[w for p in peers if p[1] != i + 1 for w in p], port=port) for i, port in enumerate(ports)]


def test_new_sites_with_the_same_peers(site):
    """None of them is a member, so the one with the lowest id founds the group."""
    sites = with_all_peers(site, [free_port() for _ in range(3)])
    eventually(lambda: all(s.is_member() and s.links_up() == 2 for s in sites))
    assert ['first of a group' in s.log for s in sites] == [True, False, False]
    sites[2].r.set('k', 'v')
    eventually(lambda: [s.r.get('k') for s in sites] == ['v'] * 3)


def test_a_site_without_its_data_founds_no_second_group(site):
    """Site 1 has the lowest id, but site 2 is a member of their group: only that can take it back."""
    one, two = with_all_peers(site, [free_port() for _ in range(2)])
    eventually(lambda: one.is_member() and two.is_member())
    two.r.set('k', 'v')
    eventually(lambda: one.r.get('k') == 'v')
    one.r.set('mine', 'v')
    eventually(lambda: two.r.get('mine') == 'v')
    assert one.stop() == 0
    for name in os.listdir(one.dir):
        path = os.path.join(one.dir, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    one.start()
    eventually(lambda: 'has never made' in str(one.facts.get('site_peer2_last_error')))
    assert not one.is_member() and 'first of a group' not in one.log


def test_two_groups_do_not_mix(site):
    a, b = site(1), site(2)
    a.r.set('k', 'of a')
    b.r.set('k', 'of b')
    a.do('PEEROF', 2, '127.0.0.1', b.port)
    b.do('PEEROF', 1, '127.0.0.1', a.port)
    eventually(lambda: 'another group' in a.facts.get('site_peer2_last_error', '') and
               'another group' in b.facts.get('site_peer1_last_error', ''))
    assert a.r.get('k') == 'of a' and b.r.get('k') == 'of b'


def test_metrics(group):
    g = group(2)
    port = free_port()
    g.args = ('--metrics-port', port)
    new = g.join(3)
    g.cut(1, 3)
    g.cut(2, 3)
    for s in g.sites:
        s.r.set('k', s.gid)
        s.r.set('t', s.gid, px=100)
    g.restore()
    g.settle()
    eventually(lambda: all(s.r.exists('t') == 0 and s.facts['site_garbage_keys'] == 0 for s in g.sites))
    with urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics') as f:
        text = f.read().decode()
    values = dict(line.rsplit(' ', 1) for line in text.splitlines() if not line.startswith('#'))
    assert float(values['mayfly_site_lag_seconds_count']) >= 4
    assert float(values['mayfly_site_conflicts_total{kind="value"}']) > 0
    assert values['mayfly_site_link_up{site="1"}'] == '1' and 'mayfly_site_behind_effects{site="2"}' in values
    sent = [s.facts['site_expiries_sent'] for s in g.sites]
    assert sum(sent) >= 1 and new.facts['site_backlog_bytes'] > 0


def test_help_and_docs(site):
    s = site(1)
    assert any('EVICT <gid>' in line for line in s.do('SITE', 'HELP'))
    with s.raw() as c:
        docs = c.call('COMMAND', 'DOCS', 'peerof', 'site')
        assert docs[0::2] == [b'peerof', b'site'] and docs[1][docs[1].index(b'group') + 1] == b'server'
        assert {b'peerof', b'site|evict', b'site.hello'} <= set(c.call('ACL', 'CAT', 'admin'))
        assert b'site|key' in c.call('ACL', 'CAT', 'read')
