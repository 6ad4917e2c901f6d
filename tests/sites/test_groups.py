"""Consumer groups at a site get what other sites add, also below the ID that they have delivered last."""
import signal

from mayfly import eventually, new_server


def behind(g):
    """Two groups at site 1 have delivered 10-1 when 5-2, 6-2 and 7-2 of site 2 come."""
    a, b = g.sites
    a.r.xgroup_create('x', 'group', 0, mkstream=True)
    a.r.xgroup_create('x', 'other', 0)
    g.agree()
    g.cut(1, 2)
    a.r.xadd('x', {'f': 'own'}, '10-1')
    assert read(a) == ['10-1'] and read(a, group='other') == ['10-1']
    for i in 5, 6, 7:
        b.r.xadd('x', {'f': i}, f'{i}-2')
    return a, b


def read(site, count=None, noack=False, block=None, group='group', consumer='c'):
    streams = site.r.xreadgroup(group, consumer, {'x': '>'}, count, block, noack)
    return [i for _, entries in streams for i, _ in entries]


def pending(r, group='group'):
    return [(p['message_id'], p['consumer'], p['times_delivered']) for p in r.xpending_range('x', group, '-', '+', 10)]


def consumers(r):
    return [c['name'] for c in r.xinfo_consumers('x', 'group')]


def test_entries_that_come_late(group):
    """They are delivered once, first and apart, to each group that has gone past them."""
    g = group(2)
    a, b = behind(g)
    g.restore()
    g.settle()
    assert pending(a.r)[0] == ('5-2', 'site:late', 0)
    a.r.xadd('x', {'f': 'new'}, '11-1')
    assert read(a, count=2) == ['5-2', '6-2']
    assert pending(a.r) == [('5-2', 'c', 1), ('6-2', 'c', 1), ('7-2', 'site:late', 0), ('10-1', 'c', 1)]
    assert read(a, consumer='d') == ['7-2'] and sorted(consumers(a.r)) == ['c', 'd']
    assert read(a) == ['11-1'] and read(a) == []
    assert a.r.xack('x', 'group', '5-2', '6-2', '7-2', '10-1', '11-1') == 5 and pending(a.r) == []
    assert read(a, group='other') == ['5-2', '6-2', '7-2'] and read(a, group='other') == ['11-1']
    g.agree()
    b.r.xgroup_create('x', 'group', 0)                  # its own, which has gone past nothing
    assert read(b) == ['5-2', '6-2', '7-2', '10-1', '11-1']


def test_late_entries_without_acknowledgement(group):
    g = group(2)
    a, _ = behind(g)
    g.restore()
    g.settle()
    assert read(a, noack=True) == ['5-2', '6-2', '7-2'] and read(a, noack=True) == []
    assert pending(a.r) == [('10-1', 'c', 1)] and consumers(a.r) == ['c']


def test_late_entries_wake_a_reader(group):
    g = group(2)
    a, _ = behind(g)
    with a.raw() as c:
        c.command('XREADGROUP', 'GROUP', 'group', 'c', 'BLOCK', 0, 'STREAMS', 'x', '>')
        eventually(lambda: a.r.info('clients')['blocked_clients'] == 1)
        g.restore()
        assert [i for i, _ in c.reply()[0][1]][0] == b'5-2'


def test_late_entries_that_are_deleted(group):
    g = group(2)
    a, b = behind(g)
    b.r.xdel('x', '6-2')
    g.restore()
    g.settle()
    b.r.xdel('x', '5-2')
    g.agree()
    assert read(a) == ['7-2'] and [i for i, _, _ in pending(a.r)] == ['7-2', '10-1']


def test_late_entries_by_a_full_sync_and_after_a_restart(group):
    """A replica has them, too, as any pending entries."""
    g = group(2, '--site-backlog-size', '16kb')
    a, b = behind(g)
    for i in range(300):
        b.r.set(f'k{i}', 'x' * 100)
    g.restore()
    g.settle()
    plain = new_server('--replicaof', '127.0.0.1', a.port)
    try:
        with plain.client(decode_responses=True) as r:
            eventually(lambda: plain.info('replication')['master_link_status'] == 'up' and pending(r) == pending(a.r))
            g.restart(1, signal.SIGKILL)
            assert read(a, count=1) == ['5-2']
            eventually(lambda: plain.info('replication')['master_link_status'] == 'up' and pending(r) == pending(a.r))
            assert read(a) == ['6-2', '7-2']
            eventually(lambda: pending(r) == pending(a.r) and consumers(r) == consumers(a.r) == ['c'])
        assert plain.stop() == 0
    finally:
        plain.remove()


def test_a_lone_server_delivers_none():
    """The consumer's name means nothing there."""
    lone = new_server()
    try:
        with lone.client(decode_responses=True) as r:
            r.xgroup_create('x', 'group', 0, mkstream=True)
            r.xadd('x', {'f': 1}, '5-1')
            r.xreadgroup('group', 'site:late', {'x': '>'})
            assert r.xreadgroup('group', 'c', {'x': '>'}) == [] and pending(r) == [('5-1', 'site:late', 1)]
        assert lone.stop() == 0
    finally:
        lone.remove()
