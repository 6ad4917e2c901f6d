"""Links: what is refused, and that nothing of it is applied; passwords and certificates; evictions."""
import resource
import signal
import struct

import pytest
import redis

import mayfly
from mayfly import UNMINDFUL, ReplyError, eventually, free_port, no_longer_files
from test_tls import certs              # noqa: F401 # pylint: disable=unused-import # a fixture

EMPTY = b'\0'                           # a clock without entries


def clock(**seqs):
    out = bytes([len(seqs)])
    for name, seq in sorted(seqs.items()):
        out += bytes([int(name[1:])]) + varint(seq)
    return out


def varint(n):
    out = b''
    while n >= 0x80:
        out += bytes([n & 0x7f | 0x80])
        n >>= 7
    return out + bytes([n])


def effect(gid, seq, stamp, context=EMPTY, moves=b''):
    return bytes([gid]) + varint(seq) + struct.pack('<Q', stamp) + context + moves


def refusal(site, *hello):
    """What a site answers to SITE.HELLO; it closes the connection then."""
    with site.raw() as c:
        answer = c.call('SITE.HELLO', *hello)
        assert isinstance(answer, ReplyError) or c.closed()
        return answer if isinstance(answer, ReplyError) else answer[1].decode()


@pytest.fixture
def one(site):
    """A site that has admitted site 2, which does not exist: tests play it."""
    s = site(1)
    s.do('SITE', 'JOIN', 2)
    s.r.set('k', 'v')
    return s


def test_hello_is_refused(one):
    before = one.clock
    for hello, why in (((1, 3, EMPTY), 'it is no member: SITE JOIN admits a new site'),
                       ((1, 1, EMPTY), 'it has the gid of this site'),
                       ((2, 2, EMPTY), 'it speaks another version of the protocol'),
                       ((1, 0, EMPTY), 'a malformed SITE.HELLO'),
                       ((1, 256, EMPTY), 'a malformed SITE.HELLO'),
                       ((1, 2), 'a malformed SITE.HELLO'),
                       ((1, 2, b'junk'), 'a malformed SITE.HELLO'),
                       ((1, 2, clock(g1=99)), 'it has writes of this site that this site has never made'),
                       ((1, 2, clock(g2=5)), 'it has written before it was admitted: it is of another group')):
        assert refusal(one, *hello) == why
        eventually(lambda why=why: one.facts['site_refused_last'].endswith(why))
        assert why in one.log
    assert one.facts['site_refused_links'] == 9 and one.clock == before


def test_garbage_ends_a_link(one):
    """After a good hello: anything that is not expected ends it, and nothing is applied."""
    before = one.clock
    for words, why in ((('SITE.EFFECT', effect(2, 1, 1)), None),
                       (('SITE.CLOCK',), 'a malformed SITE.CLOCK'),
                       (('SITE.CLOCK', b'\xff'), 'a malformed SITE.CLOCK'),
                       (('SITE.CLOCK', clock(g1=77)), 'it has writes of this site that this site has never made'),
                       (('SITE.FENCE', 'x', EMPTY), 'a malformed SITE.FENCE'),
                       (('SITE.HELLO', 1, 2, EMPTY), 'a message that was not expected')):
        with one.raw() as c:
            assert c.call('SITE.HELLO', 1, 2, EMPTY)[0] == b'SITE.FULL'
            while c.reply()[0] != b'SITE.DONE':
                pass
            c.command(*words)
            while (answer := c.reply())[0] == b'SITE.CLOCK':
                pass
            if why:
                assert answer == [b'SITE.REFUSED', why.encode()]
                assert c.closed()
            else:
                assert answer.startswith('ERR unknown command')
    assert one.clock == before


class Peer:
    """Plays the site that is asked: answers SITE.HELLO with what a test wants."""

    def __init__(self, *messages):
        import socket
        import threading
        self.messages, self.got = messages, []
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                s = self.listener.accept()[0]
            except OSError:
                return
            with s:
                s.settimeout(5)
                try:
                    self.got.append(s.recv(65536))
                    s.sendall(b''.join(self.messages))
                    while data := s.recv(65536):
                        self.got.append(data)
                except OSError:
                    pass

    def close(self):
        self.listener.close()


def message(*words):
    words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b'*%d\r\n' % len(words) + b''.join(b'$%d\r\n%s\r\n' % (len(w), w) for w in words)


GO = message('SITE.CONTINUE', 2, EMPTY)
STAMP = 1 << 16
MORE = b'\x0f'                          # a move: others of this piece follow


@pytest.mark.parametrize('name, messages, why', [
    ('garbage', (b'\x00\x01garbage\r\n',), 'garbage'),
    ('http', (b'HTTP/1.1 400 Bad Request\r\n\r\n',), 'garbage'),
    ('an error', (b'-NOAUTH Authentication required.\r\n',), 'it answered: -NOAUTH Authentication required.'),
    ('no hello', (message('SITE.EFFECT', effect(2, 1, STAMP)),), 'a message that was not expected'),
    ('another site', (message('SITE.CONTINUE', 3, EMPTY),), 'it is another site than the one that was asked for'),
    ('our future', (message('SITE.CONTINUE', 2, clock(g1=99)),), 'it has writes of this site that this site has never made'),
    ('a gap', (GO, message('SITE.EFFECT', effect(2, 5, STAMP, clock(g2=4)))),
     'a gap: an effect that depends on others which did not come'),
    ('unknown gid', (GO, message('SITE.EFFECT', effect(9, 1, STAMP))), 'an effect of a site that is no member'),
    ('own gid', (GO, message('SITE.EFFECT', effect(1, 50, STAMP))), ''),
    ('malformed effect', (GO, message('SITE.EFFECT', b'junk')), 'a malformed effect'),
    ('malformed moves', (GO, message('SITE.EFFECT', effect(2, 1, STAMP, moves=b'\x01\x00'))), ''),
    ('unknown move', (GO, message('SITE.EFFECT', effect(2, 1, STAMP, moves=b'\x7f'))), ''),
    ('malformed snapshot', (message('SITE.FULL', b'junk'),), 'a malformed snapshot'),
    ('refused', (message('SITE.REFUSED', 'go away'),), 'go away'),
    ('transaction', (GO, message('MULTI'),), ''),
    ('too long', (GO, b'*2\r\n$11\r\nSITE.EFFECT\r\n$3000000000\r\n'), 'invalid bulk length'),
])
def test_what_a_peer_sends_is_refused(one, name, messages, why):
    peer = Peer(*messages)
    before = one.clock
    try:
        one.do('PEEROF', 2, '127.0.0.1', peer.port)
        eventually(lambda: why in one.facts.get('site_peer2_last_error', '') and 'site_peer2_last_error' in one.facts)
        assert one.clock == before and one.r.dbsize() == 1, name
        assert 'Link to site 2' in one.log
        assert one.r.ping()
    finally:
        peer.close()


def test_a_clock_from_the_future_is_not_followed(site):
    """Its write is taken, but our time does not follow it; it is reported."""
    s = site(1, '--site-max-clock-skew', 1000)
    s.do('SITE', 'JOIN', 2)
    far = (s.facts['site_time_ms'] + 3_600_000) << 16
    peer = Peer(GO, message('SITE.EFFECT', effect(2, 1, far)))
    try:
        s.do('PEEROF', 2, '127.0.0.1', peer.port)
        eventually(lambda: s.facts['site_effects_too_far_ahead'] == 1)
        assert s.facts['site_clock_ahead_ms'] < 1000
        assert s.facts['site_member2']['clock_ahead_ms'] > 3_000_000
        assert 'it is not followed' in s.log
    finally:
        peer.close()


def test_limits_outlast_a_reload(site):
    """They are the server's and not the data's, as are figures."""
    s = site(1, '--site-max-clock-skew', 1000, '--enable-debug-command', 'yes')
    s.do('SITE', 'JOIN', 2)
    s.r.set('t', 1, px=1)
    eventually(lambda: s.facts['site_expiries_sent'] == 1)
    s.do('DEBUG', 'RELOAD')
    assert s.facts['site_expiries_sent'] == 1
    soon = (s.facts['site_time_ms'] + 30_000) << 16     # the default would follow it
    peer = Peer(GO, message('SITE.EFFECT', effect(2, 1, soon)))
    try:
        s.do('PEEROF', 2, '127.0.0.1', peer.port)
        eventually(lambda: s.facts['site_member2']['effects'] == 1)
        assert s.facts['site_effects_too_far_ahead'] == 1
    finally:
        peer.close()


# -- sizes and disks ----------------------------------------------------------------------------------

def test_a_message_longer_than_limits_of_output(group):
    """These end links that are not read, and not those with a large value."""
    g = group(2, '--client-output-buffer-limit', 'replica 1mb 1mb 1')
    big = 'x' * 40_000_000
    g[1].r.set('big', big)
    eventually(lambda: g[2].r.get('big') == big)
    new = g.join(3)                     # in a full sync, too
    assert new.r.strlen('big') == len(big)
    g.settle()


def test_a_value_of_512_mb_can_come(one):
    """With what is around it, it is longer than a client's argument may be."""
    messages = GO + b'*2\r\n$11\r\nSITE.EFFECT\r\n$%d\r\n' % ((512 << 20) + 100)
    peer = Peer(messages)
    try:
        one.do('PEEROF', 2, '127.0.0.1', peer.port)
        eventually(lambda: one.facts['site_peer2']['bytes'] == len(messages))
        assert one.facts['site_peer2']['link'] == 'up' and 'site_peer2_last_error' not in one.facts
    finally:
        peer.close()


@pytest.mark.skipif(mayfly.ENGINE != 'memory', reason='a database fails as a whole')
def test_no_room_for_a_full_sync(site):
    """It is not merged, and comes again."""
    a, b = site(1), site(2, '--appendonly', 'no', before=UNMINDFUL)
    for i in range(20):
        a.r.set(i, 'x' * 50_000)
    no_longer_files(b)
    b.do('PEEROF', 1, '127.0.0.1', a.port)
    a.do('PEEROF', 2, '127.0.0.1', b.port)
    eventually(lambda: b.facts.get('site_peer1_last_error') == 'no room on disk for a full sync')
    assert b.r.dbsize() == 0 and b.facts['site_state'] == 'joining'
    no_longer_files(b, resource.RLIM_INFINITY)
    eventually(lambda: b.is_member() and b.r.dbsize() == 20)


@pytest.mark.skipif(mayfly.ENGINE != 'memory', reason='a database is not an AOF')
def test_nothing_is_sent_that_the_aof_does_not_have(site):
    """Others must not have an effect that is lost if the site ends now: its number would be used twice."""
    a = site(1, '--appendonly', 'yes', '--appendfsync', 'always', before=UNMINDFUL)
    b = site(2, '--site-peer', 1, '127.0.0.1', a.port)
    a.do('PEEROF', 2, '127.0.0.1', b.port)
    a.r.set('k', 'kept')
    eventually(lambda: b.is_member() and b.r.get('k') == 'kept' and a.links_up() == 1)
    no_longer_files(a)
    with a.raw() as c:
        assert isinstance(c.call('SET', 'k', 'lost'), ReplyError)
        assert c.call('SITE', 'WAIT', 1, 1500) == 0         # more than a heartbeat
        assert c.call('SITE.HELLO', 1, 2, EMPTY).startswith('MISCONF')
    assert b.r.get('k') == 'kept'
    a.stop(signal.SIGKILL)
    a.start()
    assert a.r.get('k') == 'kept'
    a.do('PEEROF', 2, '127.0.0.1', b.port)
    a.r.set('k', 'again')
    eventually(lambda: b.r.get('k') == 'again')
    assert a.clock == b.clock


# -- passwords and certificates ----------------------------------------------------------------------

def test_password(site):
    a = site(1, '--requirepass', 'sesame')
    a.r = a.client(decode_responses=True, password='sesame')
    with a.raw() as c:
        assert c.call('SITE.HELLO', 1, 2, EMPTY).startswith('NOAUTH')
    b = site(2, '--site-peer', 1, '127.0.0.1', a.port)
    a.do('PEEROF', 2, '127.0.0.1', b.port)
    eventually(lambda: 'NOAUTH' in b.facts.get('site_peer1_last_error', ''))
    b.r.config_set('masterauth', 'wrong')
    eventually(lambda: 'WRONGPASS' in b.facts.get('site_peer1_last_error', ''))
    b.r.config_set('masterauth', 'sesame')
    eventually(b.is_member)
    b.r.set('k', 'v')
    eventually(lambda: a.r.get('k') == 'v')


def test_acl(site):
    """A user who may not say SITE.HELLO is no site."""
    a = site(1)
    a.do('ACL', 'SETUSER', 'sync', 'on', '>pw', '+@connection', '+site.clock', '+site.fence', '+site.refused')
    b = site(2, '--site-peer', 1, '127.0.0.1', a.port, '--masteruser', 'sync', '--masterauth', 'pw')
    a.do('SITE', 'JOIN', 2)
    eventually(lambda: 'NOPERM' in b.facts.get('site_peer1_last_error', ''))
    a.do('ACL', 'SETUSER', 'sync', '+site.hello')
    eventually(b.is_member)
    a.do('ACL', 'SETUSER', 'sync', '-site.hello')       # which ends its links
    eventually(lambda: b.links_up() == 0)


def test_tls(site, certs):              # noqa: F811
    ports = [free_port(), free_port()]
    tls = ['--tls-cert-file', f'{certs}/server.crt', '--tls-key-file', f'{certs}/server.key', '--tls-ca-cert-file',
           f'{certs}/ca.crt', '--tls-replication', 'yes']
    a = site(1, '--tls-port', ports[0], *tls)
    b = site(2, '--tls-port', ports[1], *tls, '--site-peer', 1, '127.0.0.1', ports[0])
    a.do('PEEROF', 2, '127.0.0.1', ports[1])
    eventually(lambda: b.is_member() and a.links_up() == b.links_up() == 1)
    a.r.set('k', 'x' * 200_000)
    b.r.set('l', 'v')
    eventually(lambda: b.r.strlen('k') == 200_000 and a.r.get('l') == 'v')
    b.do('PEEROF', 1, '127.0.0.1', a.port)              # which does not speak TLS
    eventually(lambda: b.facts['site_peer1']['link'] != 'up' and 'site_peer1_last_error' in b.facts)


# -- evictions ------------------------------------------------------------------------------------------

def test_evict(group):
    """A lost site is evicted: what any survivor has of it counts, garbage waits for it no longer."""
    g = group(3)
    g.cut(1, 3)
    g[3].r.set('late', 'only site 2 has it')
    eventually(lambda: g[2].r.get('late'))
    g[3].stop(signal.SIGKILL)
    g.cut(2, 3)
    lost, g.sites = g.sites[2], g.sites[:2]
    g[1].do('SITE', 'EVICT', 3)
    for s in g.sites:
        eventually(lambda s=s: s.facts['site_members'] == 2 and 'site_evicted3' in s.facts)
    assert g.agree()['late'][0] == 'only site 2 has it'
    with pytest.raises(redis.ResponseError, match='^EVICTED Site 3 was evicted'):
        g[1].do('PEEROF', 3, '127.0.0.1', 1)
    g.sites.append(lost)
    lost.start()
    g.restore()
    eventually(lambda: 'evicted' in lost.facts.get('site_peer1_last_error', ''))
    lost.r.set('of-the-dead', 1)
    lost.stop()
    g.sites.pop()
    assert g[1].r.get('of-the-dead') is None
    lost.remove()


def test_an_effect_that_came_before_its_fence(group):
    """The site that evicts hears of the last effects that count when it has fenced them off: they come again."""
    g = group(3)
    g.cut(1, 3)
    g.cut(1, 2)
    g[3].r.set('late', 'only site 2 has it')
    eventually(lambda: g[2].r.get('late'))
    lost, g.sites = g.sites[2], g.sites[:2]
    lost.stop(signal.SIGKILL)
    g[1].do('SITE', 'EVICT', 3)
    g.links[1, 2].restore()
    g.links[2, 1].restore()
    for s in g.sites:
        eventually(lambda s=s: s.facts['site_members'] == 2 and 'site_evicted3' in s.facts)
    assert g.agree()['late'][0] == 'only site 2 has it'
    lost.remove()


def test_an_eviction_waits_for_all_others(group):
    g = group(3)
    for pair in (1, 2), (2, 3), (1, 3):
        g.cut(*pair)
    g[1].do('SITE', 'EVICT', 3)
    g[1].r.set('k', 'v')
    assert g[1].facts['site_member3']['eviction_waits_for'] == 2
    assert g[1].facts['site_members'] == 3
    for link in (1, 2), (2, 1):
        g.links[link].restore()
    eventually(lambda: g[1].facts['site_members'] == 2 and g[2].facts['site_members'] == 2)
    g[3].r.set('x', 1)
    g.restore()
    eventually(lambda: 'evicted' in g[3].facts.get('site_peer2_last_error', '') + g[3].facts.get('site_peer1_last_error', ''))
    assert g[1].r.get('x') is None


# -- what waits ----------------------------------------------------------------------------------------------

def test_a_member_that_never_ends_its_piece(site):
    """Parts of a MULTI wait for its last one, up to a limit; then a full sync is asked for."""
    s = site(1, '--site-pending-max-size', '64kb')
    s.do('SITE', 'JOIN', 2)
    parts = [message('SITE.EFFECT', effect(2, i, STAMP, clock(g2=i - 1) if i > 1 else EMPTY, MORE)) for i in range(1, 5000)]
    peer = Peer(GO, *parts)
    try:
        s.do('PEEROF', 2, '127.0.0.1', peer.port)
        eventually(lambda: 'site-pending-max-size' in s.facts.get('site_peer2_last_error', ''))
        assert 'more effects than site-pending-max-size wait for others: it needs a full sync' in s.log
        facts = s.facts
        assert facts['site_effects_pending_bytes'] <= 64 * 1024 and s.clock.get(2, 0) == 0 and s.r.dbsize() == 0
        eventually(lambda: any(b'FULL' in got for got in peer.got))
    finally:
        peer.close()


def test_a_transaction_longer_than_may_wait(group):
    """It comes by a full sync, and what other sites write meanwhile is not lost."""
    g = group(3, '--site-pending-max-size', '64kb')
    with g[1].r.pipeline() as p:
        for i in range(300):
            p.incr(f'n{i}').set(f'k{i}', 'x' * 500)
        p.execute()
    g[2].r.incr('n1', 10)
    g[3].r.incr('n1', 100)
    g.settle()
    assert g[2].r.get('n1') == '111' and g[3].r.dbsize() == 600
    assert g[2].facts['site_peer1']['full_syncs'] + g[2].facts['site_peer3']['full_syncs'] > 0
    g[1].r.set('k1', 'and on')
    g.agree()
