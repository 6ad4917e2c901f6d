"""A site that may have lost writes which others have makes no effect until it knows."""
import pytest
import redis

from mayfly import eventually, new_server

DEBUG = '--enable-debug-command', 'yes'


def in_doubt(g):
    """Site 1 of three, alone: it has loaded a file that is older than what it had."""
    a = g[1]
    a.r.set('t', 'dies', px=300)
    a.r.save()
    g.agree()
    g.cut(1, 2)
    g.cut(1, 3)
    a.r.set('lost', 1)
    a.do('DEBUG', 'RELOAD', 'NOSAVE')
    assert a.r.exists('lost') == 0 and a.facts['site_state'] == 'doubt'
    return a


def refused(s, *words):
    with pytest.raises(redis.ResponseError, match='^SITEDOUBT .*SITE TRUST'):
        s.do(*words)


def test_nothing_is_made_in_doubt(group):
    """No dot of what was lost is used again: not by commands, by expiry, or by what others' effects cause."""
    g = group(3, *DEBUG)
    a = in_doubt(g)
    made = a.clock[1]
    g[2].r.set('x', 2)
    assert a.facts['site_doubt_waits_for'] == '2,3'
    for words in ('SET', 'k', 'v'), ('SITE', 'JOIN', 9), ('PEEROF', 9, '127.0.0.1', 1), ('SITE', 'EVICT', 3):
        refused(a, *words)
    assert a.do('PEEROF', 2, '127.0.0.1', g.links[1, 2].port) == 'OK'   # which is a member already
    for link in (1, 2), (2, 1):
        g.links[link].restore()
    eventually(lambda: a.facts['site_doubt_waits_for'] == 3 and a.links_up() == 1)
    eventually(lambda: not a.r.exists('t') and not g[2].r.exists('t'))
    eventually(lambda: g[2].r.dbsize() == 1)            # it is deleted there
    refused(a, 'SET', 'k', 'v')
    assert a.clock[1] == made and a.r.get('x') is None
    g.restore()
    eventually(a.is_member)
    a.r.set('k', 'v')
    g.settle()
    assert a.r.get('x') == '2' and g[3].r.get('k') == 'v'


def test_trust(group):
    g = group(3, *DEBUG)
    a = in_doubt(g)
    assert a.do('SITE', 'TRUST') == 'OK'
    assert a.is_member() and 'site_doubt_waits_for' not in a.facts and a.r.set('k', 'v')
    with pytest.raises(redis.ResponseError, match='This site is not in doubt'):
        a.do('SITE', 'TRUST')
    with pytest.raises(redis.ResponseError, match='wrong number of arguments'):
        a.do('SITE', 'TRUST', 'me')
    g.restore()
    g.settle()
    assert g[2].r.get('k') == 'v'


def test_trust_on_a_lone_server():
    lone = new_server()
    try:
        with lone.client() as r, pytest.raises(redis.ResponseError, match='no site'):
            r.execute_command('SITE', 'TRUST')
        assert lone.stop() == 0
    finally:
        lone.remove()
