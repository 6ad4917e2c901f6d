"""A permission that is revoked counts at once, also for what a connection has been doing since it was allowed:
waiting for a key, MONITOR, receiving the replication stream, hearing of changed keys."""
import pytest

from mayfly import eventually
from test_acl import NO_KEY, logged_in, no_command


@pytest.fixture
def admin(server, raw):
    c = raw(server.port)
    c.call('FLUSHALL')
    c.call('CONFIG', 'RESETSTAT')
    c.call('ACL', 'SETUSER', 'u', 'on', '>pw', '~*', '&*', '+@all')
    yield c
    c.call('ACL', 'DELUSER', 'u')
    c.call('ACL', 'LOG', 'RESET')


def blocked_clients(c):
    return int(c.call('INFO', 'clients').decode().split('blocked_clients:')[1].split('\r\n')[0])


def waiting(admin, *connections_and_commands):
    for n, (c, command) in enumerate(connections_and_commands):
        c.command(*command)
        eventually(lambda n=n: blocked_clients(admin) == n + 1)


WAITS = [
    ('BLPOP', 'k', 0), ('BRPOP', 'other', 'k', 0), ('BLMOVE', 'k', 'other', 'LEFT', 'LEFT', 0),
    ('BLMPOP', 0, 1, 'k', 'LEFT'), ('BZPOPMIN', 'k', 0), ('BZMPOP', 0, 1, 'k', 'MIN'),
    ('XREAD', 'BLOCK', 0, 'STREAMS', 'k', '$'), ('XREADGROUP', 'GROUP', 'g', 'c', 'BLOCK', 0, 'STREAMS', 's', '>'),
]


@pytest.mark.any_engine
@pytest.mark.parametrize('command', WAITS, ids=lambda c: c[0])
def test_waiting_ends(admin, server, raw, command):
    admin.call('XGROUP', 'CREATE', 's', 'g', '$', 'MKSTREAM')
    c = logged_in(server, raw, 'u')
    name = command[0].lower()
    # Keys.
    waiting(admin, (c, command))
    assert admin.call('ACL', 'SETUSER', 'u', '~unrelated') == \
        "ERR Error in ACL SETUSER modifier '~unrelated': Adding a pattern after the * pattern (or the 'allkeys' flag) " \
        'is not valid and does not have any effect. Try \'resetkeys\' to start with an empty list of patterns'
    assert blocked_clients(admin) == 1, 'nothing has changed'
    assert admin.call('ACL', 'SETUSER', 'u', 'resetkeys', '~other', '~k', '~s') == b'OK'
    assert blocked_clients(admin) == 1, 'what it waits for is still allowed'
    assert admin.call('ACL', 'SETUSER', 'u', 'resetkeys', '~other') == b'OK'
    assert c.reply() == NO_KEY
    assert blocked_clients(admin) == 0
    # The command.
    admin.call('ACL', 'SETUSER', 'u', '~*')
    waiting(admin, (c, command))
    admin.call('ACL', 'SETUSER', 'u', '-' + name)
    assert c.reply() == no_command(name)
    assert c.call('PING') == b'PONG', 'the connection stays'
    # What comes then stays where it is.
    assert admin.call('RPUSH', 'l', 'x') == 1
    entries = [dict(zip(e[::2], e[1::2])) for e in admin.call('ACL', 'LOG')]
    assert [(e[b'reason'], e[b'context'], e[b'username']) for e in entries] == \
        [(b'command', b'toplevel', b'u'), (b'key', b'toplevel', b'u')]
    assert f'cmdstat_{name}:calls=2,'.encode() in admin.call('INFO', 'commandstats')
    assert b'rejected_calls=2,failed_calls=0' in \
        admin.call('INFO', 'commandstats').split(f'cmdstat_{name}:'.encode())[1].split(b'\r\n')[0]
    assert b'errorstat_NOPERM:count=2\r\n' in admin.call('INFO', 'errorstats')


@pytest.mark.any_engine
def test_waiting_is_not_served_by_what_follows_in_a_transaction(admin, server, raw):
    first, other = logged_in(server, raw, 'u'), raw(server.port)
    waiting(admin, (first, ('BLPOP', 'k', 0)), (other, ('BLPOP', 'k', 0)))
    admin.call('MULTI')
    admin.call('RPUSH', 'k', 'x')
    admin.call('ACL', 'SETUSER', 'u', 'resetkeys')
    assert admin.call('EXEC') == [1, b'OK']
    assert first.reply() == NO_KEY, 'it came first, but may not read the key any more'
    assert other.reply() == [b'k', b'x']


@pytest.mark.any_engine
def test_waiting_under_a_user_that_is_replaced(server_factory, raw, tmp_path):
    file = tmp_path / 'users.acl'
    file.write_text('user default on nopass ~* &* +@all\nuser u on nopass ~* +@all\n')
    s = server_factory('--aclfile', file)
    admin, c = raw(s.port), raw(s.port)
    c.call('AUTH', 'u', 'any')
    waiting(admin, (c, ('BLPOP', 'k', 0)))
    file.write_text('user default on nopass ~* &* +@all\nuser u on nopass ~a* +@all\n')
    assert admin.call('ACL', 'LOAD') == b'OK'
    assert c.reply() == NO_KEY


@pytest.mark.any_engine
def test_monitor_ends(admin, server, raw):
    c, other = logged_in(server, raw, 'u'), raw(server.port)
    assert c.call('MONITOR') == b'OK' and other.call('MONITOR') == b'OK'
    admin.call('ACL', 'SETUSER', 'u', '-get')
    admin.call('ECHO', 'heard')
    assert b'heard' in c.reply(), 'it may still do so'
    admin.call('ACL', 'SETUSER', 'u', '-monitor')
    admin.call('ECHO', 'secret')
    assert b'secret' not in c.rest(), 'and then it is closed'
    while b'secret' not in other.reply():
        pass
    other.sock.close()


@pytest.mark.lone('nodes of a cluster replicate by Raft')
def test_replication_ends(server_factory, raw):
    primary = server_factory('--repl-diskless-sync-delay', 0)
    c = raw(primary.port)
    c.call('ACL', 'SETUSER', 'repl', 'on', '>pw', '+psync', '+replconf', '+ping')
    replica = server_factory('--replicaof', f'127.0.0.1 {primary.port}', '--masteruser', 'repl', '--masterauth', 'pw')
    r = raw(replica.port)
    eventually(lambda: b'master_link_status:up' in r.call('INFO', 'replication'))
    c.call('ACL', 'SETUSER', 'repl', '-psync')
    c.call('SET', 'k', 'secret')
    eventually(lambda: b'master_link_status:down' in r.call('INFO', 'replication'))
    assert r.call('GET', 'k') is None
    c.call('ACL', 'SETUSER', 'repl', '+psync')
    eventually(lambda: r.call('GET', 'k') == b'secret')


@pytest.mark.any_engine
def test_a_subscriber_that_revokes_its_own_channel_gets_the_reply(admin, server, raw):
    c = logged_in(server, raw, 'u')
    c.call('HELLO', 3)
    c.call('SUBSCRIBE', 'ch')
    assert c.call('ACL', 'SETUSER', 'u', 'resetchannels') == b'OK'
    assert c.closed()


@pytest.mark.any_engine
def test_broadcast_names_only_keys_of_the_user(admin, server, raw):
    c = logged_in(server, raw, 'u')
    c.call('HELLO', 3)
    c.call('CLIENT', 'TRACKING', 'ON', 'BCAST')
    admin.call('SET', 'secret', 1)
    assert c.reply() == [b'invalidate', [b'secret']]
    admin.call('ACL', 'SETUSER', 'u', 'resetkeys', '~a*', '(%R~b*)')
    for key in ('secret', 'a', 'secret2', 'b'):
        admin.call('SET', key, 2)
    admin.call('MSET', 'a1', 1, 'secret', 3, 'b1', 1)
    assert [c.reply()[1] for _ in range(3)] == [[b'a'], [b'b'], [b'a1', b'b1']]
    admin.call('ACL', 'SETUSER', 'u', '-client|tracking')
    admin.call('SET', 'a', 3)
    assert c.closed(), 'a cache that is no longer kept up to date'
