"""The scenarios in which TTLs differ between the sites of CRDT Redis until the key is gone: here they are equal."""
import time

from mayfly import eventually


def pttls(g):
    return [s.r.pexpiretime('k') for s in g.sites]


def all_gone(g):
    return all(s.r.get('k') is None for s in g.sites)


def near(deadline_ms, seconds):
    """Whether a deadline is `seconds` from now, about."""
    return abs(deadline_ms / 1000 - time.time() - seconds) < 60


def test_1_expire_and_persist(group):
    """Site 3 says PERSIST while site 2 says EXPIRE 2000: 2000 everywhere, whatever comes first."""
    g = group(3)
    g[1].r.set('k', 'v', ex=1000)
    g.agree()
    for a, b in (1, 2), (1, 3), (2, 3):
        g.cut(a, b)
    g[2].r.expire('k', 2000)
    g[3].r.persist('k')
    for link in (1, 3), (3, 1):
        g.links[link].restore()
    eventually(lambda: g[1].r.ttl('k') == -1)       # PERSIST arrives first
    g.restore()
    g.agree()
    assert len(set(pttls(g))) == 1 and near(pttls(g)[0], 2000)


def test_2_expire_before_set(group):
    """EXPIRE of site 2 reaches site 3 before the SET of site 1 that it is about: it waits for that."""
    g = group(3)
    g.cut(1, 3)
    g[1].r.set('k', 'v')
    eventually(lambda: g[2].r.get('k') == 'v')
    g[2].r.expire('k', 1000)
    eventually(lambda: g[3].r.ttl('k') > 0)         # over site 2, which passes both on
    g.restore()
    g.agree()
    assert len(set(pttls(g))) == 1 and near(pttls(g)[0], 1000)


def test_3_and_4_expire_by_another_site(group):
    """The key is of site 1, the EXPIRE of site 2; site 3 joins with a full sync from either."""
    g = group(2)
    g[1].r.set('k', 'v')
    g.agree()
    g[2].r.expire('k', 1000)
    g.agree()
    g.join(3)
    g.settle()
    assert len(set(pttls(g))) == 1 and near(pttls(g)[0], 1000)


def test_example_flow(group):
    """A later EXPIRE that saw the longer one counts, at every site."""
    g = group(2)
    g[1].r.set('k', 'v', ex=1000)
    g.agree()
    g[2].r.expire('k', 10)
    g.agree()
    assert len(set(pttls(g))) == 1 and near(pttls(g)[0], 10)


def test_nil_everywhere(group):
    """At the deadline the key is hidden at once at every site, also where nobody deletes it yet."""
    g = group(2)
    g[1].r.set('k', 'v', px=700)
    g.agree()
    g.cut(1, 2)
    deadline = g[1].r.pexpiretime('k')
    assert g[2].r.pexpiretime('k') == deadline
    eventually(lambda: time.time() * 1000 > deadline + 1)
    assert all_gone(g)
    g.restore()
    g.agree()
    assert all_gone(g)
    eventually(lambda: all(s.r.dbsize() == 0 and s.facts['site_garbage_keys'] == 0 for s in g.sites))


def test_del_and_expire(group):
    g = group(2)
    g[1].r.set('k', 'v')
    g.agree()
    g.cut(1, 2)
    g[1].r.expire('k', 10)
    g[2].r.delete('k')
    g.restore()
    g.settle()
    assert all_gone(g)


def test_rate_limiter_ends(group):
    """INCR while the other site's key expires: the count survives with the deadline it was made under."""
    g = group(2)
    g[1].r.incr('k')
    g[1].r.expire('k', 500)
    g.agree()
    g.cut(1, 2)
    g[1].r.delete('k')
    g[2].r.incr('k')
    g.restore()
    g.settle()
    assert g[1].r.get('k') == '1' and near(pttls(g)[0], 500)
