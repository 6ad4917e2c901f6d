"""Clients that wait for keys: what schedules (tests/scenarios) can't show. Time, numbers, ends, failures."""
import os
import random
import re
import resource
import selectors
import signal
import threading
import time

import pytest

from mayfly import (ENGINE, UNMINDFUL, ReplyError, encode, eventually, in_one_of, no_longer_files, not_in_a_cluster,
                    sanitized)

SLACK = 1.5 if sanitized() else 0.25


def waiting(server, n):
    """So many clients wait, and no more."""
    with server.raw() as c:
        eventually(lambda: field(c, 'clients', 'blocked_clients') == n)


def field(c, section, name):
    text = c.call('INFO', section).decode()
    return int(text.split(f'{name}:')[1].split('\r\n')[0])


@pytest.fixture
def block(server, raw):
    """block('BLPOP', 'k', 0): a client that waits, and one more than before."""
    count = [0]

    def start(*command):
        c = raw(server.port)
        c.command(*command)
        count[0] += 1
        waiting(server, count[0])
        return c
    return start


# -- time --------------------------------------------------------------------------------------------------

@pytest.mark.any_engine
def test_time_is_up_in_time(server, raw):
    """No client waits shorter than asked for, or much longer, whatever the order."""
    in_one_of(5, lambda: time_is_up_in_time(server, raw))


def time_is_up_in_time(server, raw):
    commands = [('BLPOP', 'k', 't'), ('BRPOP', 'a', 'b', 't'), ('BLMOVE', 'k', 'd', 'LEFT', 'LEFT', 't'),
                ('BRPOPLPUSH', 'k', 'd', 't'), ('BLMPOP', 't', 1, 'k', 'LEFT'), ('BZPOPMIN', 'z', 't'),
                ('BZPOPMAX', 'z', 't'), ('BZMPOP', 't', 2, 'k', 'z', 'MAX')]
    times = [0.001, 0.0004, 0.02, 0.4] + [random.uniform(0.01, 0.4) for _ in range(28)]
    random.shuffle(times)
    ready, left = selectors.DefaultSelector(), {}
    for i, seconds in enumerate(times):
        c = raw(server.port)
        ready.register(c.sock, selectors.EVENT_READ, c)
        left[c] = (time.monotonic(), seconds)
        c.command(*(repr(seconds) if w == 't' else w for w in commands[i % len(commands)]))
    late = []
    while left:
        found = ready.select(20)
        if not found:
            pytest.fail('somebody waits for ever')
        for key, _ in found:
            began, seconds = left.pop(key.data)
            took = time.monotonic() - began
            ready.unregister(key.fileobj)
            if key.data.line() != b'*-1' or took < seconds:
                pytest.fail(f'{took} instead of {seconds}')
            late += [(seconds, took)] if took >= seconds + SLACK else []
    ready.close()
    with server.raw() as c:
        assert field(c, 'clients', 'blocked_clients') == field(c, 'clients', 'clients_in_timeout_table') == 0
    assert not late


@pytest.mark.any_engine
@pytest.mark.parametrize('command', ['BLPOP k 0.02', 'XREAD BLOCK 20 STREAMS k $', 'WAIT 1 20', 'CLIENT PAUSE 20'])
def test_time_is_up_while_the_server_sleeps(server_factory, raw, command):
    """What a timer answers does not lie until something else wakes the server, which is a second with this hz."""
    if not_in_a_cluster(command):
        pytest.skip('all members have everything')
    c = raw(server_factory('--hz', 1).port)

    def in_time():
        for _ in range(4):
            start = time.monotonic()
            c.call(*command.split())
            c.call('GET', 'k')          # which a pause holds
            took = time.monotonic() - start
            assert 0.02 <= took < 0.02 + SLACK

    in_one_of(5, in_time)


@pytest.mark.any_engine
def test_a_key_that_expires_within_a_transaction_serves_no_client(server_factory, raw):
    """Time stands still in EXEC, but not for those it would serve."""
    s = server_factory('--enable-debug-command', 'yes')
    waiting, c = raw(s.port).command('BRPOP', 'k', 0), raw(s.port)
    eventually(lambda: s.info('clients')['blocked_clients'] == 1)
    for command in ('MULTI', 'RPUSH k dead', 'PEXPIRE k 20', 'DEBUG SLEEP 0.05'):
        c.call(*command.split())
    assert c.call('EXEC') == [1, 1, b'OK']
    assert waiting.silent() and c.call('EXISTS', 'k') == 0
    assert c.call('RPUSH', 'k', 'alive') == 1 and waiting.reply() == [b'k', b'alive']


@pytest.mark.any_engine
def test_the_long_and_the_endless(server, raw, block):
    for c in [block('BLPOP', 'k', t) for t in (0, 1000, 9000000000000000, '0x10')]:
        assert c.silent(0.02)
    with server.raw() as other:
        assert field(other, 'clients', 'clients_in_timeout_table') == 3
        assert other.call('RPUSH', 'k', *range(4)) == 4
        assert field(other, 'clients', 'clients_in_timeout_table') == 0


@pytest.mark.any_engine
def test_a_pause_holds_pushes_but_not_timeouts(server, raw, block):
    with server.raw() as admin, server.raw() as other:
        long, short = block('BLPOP', 'k', 0), block('BLPOP', 'k', 1)
        assert admin.call('CLIENT', 'PAUSE', 100000, 'WRITE') == b'OK'
        assert short.reply() is None
        other.command('RPUSH', 'k', 'v')
        assert long.silent(0.05)
        assert admin.call('CLIENT', 'UNPAUSE') == b'OK'
        assert long.reply() == [b'k', b'v'] and other.reply() == 1


# -- numbers -----------------------------------------------------------------------------------------------

@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip('needs more open files')
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_wait(server, raw, many_files):
    """A thousand clients on one key, then each on its own: all are served exactly once."""
    clients = [raw(server.port) for _ in range(1000)]
    with server.raw() as c:
        for i, w in enumerate(clients):
            w.command('BLPOP', 'nothing', 'q', 'never', 1000 + i)
            if i % 100 == 0:
                waiting(server, i + 1)      # the order in which they come is the order of the sockets
                assert w is clients[i]
        waiting(server, 1000)
        assert c.call('RPUSH', 'q', *range(500)) == 500
        assert c.call('RPUSH', 'q', *range(500, 1000)) == 500
        got = [int(w.reply()[1]) for w in clients]
        assert sorted(got) == list(range(1000))
        # Between two fences any order goes; a hundred and a hundred stand apart.
        assert all(abs(n - i) < 110 for i, n in enumerate(got))
        assert c.call('EXISTS', 'q') == 0

        for i, w in enumerate(clients):
            w.command('BZPOPMIN', f'z{i}', 0)
        waiting(server, 1000)
        c.send(b''.join(encode('ZADD', f'z{i}', i, 'm') for i in range(1000)))
        assert [c.reply() for _ in range(1000)] == [1] * 1000
        assert all(w.reply() == [b'z%d' % i, b'm', b'%d' % i] for i, w in enumerate(clients))

        for w in clients:
            w.command('BLPOP', 'q', 1000)
        waiting(server, 1000)
        assert c.call('CLIENT', 'KILL', 'TYPE', 'normal') == 1000
        waiting(server, 0)
        assert c.call('RPUSH', 'q', 'still here') == 1 and c.call('LLEN', 'q') == 1


def test_everything_is_served_once(server):
    """Many bring, many take, all at once: nothing is lost, nothing comes twice, and what one has brought comes
    in its order."""
    producers, consumers, each = 4, 8, 500
    taken = [[] for _ in range(consumers)]

    def take(mine):
        with server.raw() as c:
            while True:
                c.command('BLPOP', 'q1', 'q2', 0)
                value = c.reply()[1]
                if value == b'end':
                    return
                mine.append(value)

    def bring(me):
        with server.raw() as c:
            n = 0
            while n < each:
                batch = [f'{me}-{i}' for i in range(n, min(each, n + random.choice((1, 1, 3, 20))))]
                n += len(batch)
                c.call('RPUSH', 'q1', *batch)

    threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
    threads += [threading.Thread(target=bring, args=(p,)) for p in range(producers)]
    for t in threads:
        t.start()
    for t in threads[consumers:]:
        t.join(60)
    with server.raw() as c:
        for _ in range(consumers):
            c.call('RPUSH', 'q2', 'end')
    for t in threads[:consumers]:
        t.join(60)
    assert sorted(v for mine in taken for v in mine) == sorted(b'%d-%d' % (p, i) for p in range(producers)
                                                               for i in range(each))
    for mine in taken:
        for p in range(producers):
            serials = [int(v.split(b'-')[1]) for v in mine if v.startswith(b'%d-' % p)]
            assert serials == sorted(serials)


# -- ends --------------------------------------------------------------------------------------------------

@pytest.mark.any_engine
def test_disconnected_clients_are_not_served(server, raw, block):
    closed, half, killed, stays = (block('BLPOP', 'k', 0) for _ in range(4))
    with server.raw() as c:
        lines = [x for x in c.call('CLIENT', 'LIST').decode().splitlines() if ' flags=b ' in x]
        assert len(lines) == 4 and all(' cmd=blpop ' in x for x in lines)
        third = lines[2].split()[0].split('=')[1]
        closed.close()
        half.sock.shutdown(1)
        assert c.call('CLIENT', 'KILL', 'ID', third) == 1
        waiting(server, 1)
        assert c.call('RPUSH', 'k', 'v') == 1
        assert stays.reply() == [b'k', b'v']
        assert killed.closed() and half.closed()


@pytest.mark.any_engine
def test_a_client_that_is_killed_by_the_push_that_would_serve_it(server, raw, block):
    """Within one transaction, and within one tick."""
    with server.raw() as c:
        first, second = block('BLPOP', 'k', 0), block('BLPOP', 'k', 0)
        ids = [line.split()[0][3:] for line in c.call('CLIENT', 'LIST').decode().splitlines() if 'flags=b' in line]
        c.send(encode('CLIENT', 'KILL', 'ID', ids[0]) + encode('RPUSH', 'k', 'v'))
        assert (c.reply(), c.reply()) == (1, 1)
        assert second.reply() == [b'k', b'v'] and first.closed()


@pytest.mark.any_engine
def test_a_killed_client_is_removed_at_once(server, raw):
    """For what follows in the same pipeline, too."""
    c = raw(server.port)
    number = c.call('CLIENT', 'ID')
    c.command('BLPOP', 'k', 0)
    waiting(server, 1)
    with server.raw() as admin:
        before = field(admin, 'clients', 'connected_clients')
        admin.send(encode('CLIENT', 'KILL', 'ID', number) + encode('CLIENT', 'UNBLOCK', number) +
                   encode('INFO', 'clients'))
        assert admin.reply() == 1 and admin.reply() == 0
        text = admin.reply().decode()
        assert f'connected_clients:{before - 1}\r\n' in text and 'blocked_clients:0\r\n' in text
    assert c.closed()


@pytest.mark.lone('a leader tells its clients that they are unblocked')
def test_shutdown_while_clients_wait(server_factory, raw):
    s = server_factory()
    clients = [raw(s.port) for _ in range(20)]
    for i, c in enumerate(clients):
        c.command('BLPOP', 'k', i % 2 * 100)
    waiting(s, 20)
    assert s.stop() == 0
    assert all(c.closed() for c in clients)


@pytest.mark.lone('nodes of a cluster replicate by Raft')
@pytest.mark.any_engine
def test_a_primary_that_becomes_a_replica(server_factory, raw):
    s = server_factory()
    clients = [raw(s.port).command(*c) for c in (('BLPOP', 'k', 0), ('BZPOPMIN', 'z', 100))]
    waiting(s, 2)
    with s.raw() as c:
        assert c.call('REPLICAOF', '127.0.0.1', 1) == b'OK'
        for w in clients:
            assert w.reply() == ('UNBLOCKED force unblock from blocking operation, instance state changed '
                                 '(master -> replica?)')
            assert w.closed()
        assert c.call('BLPOP', 'k', 0) == "READONLY You can't write against a read only replica."
        assert field(c, 'clients', 'blocked_clients') == 0


@pytest.mark.lone('nodes of a cluster replicate by Raft')
def test_a_replica_that_takes_writes_serves_from_its_primary(server_factory, raw):
    primary = server_factory('--repl-diskless-sync-delay', 0)
    replica = server_factory('--replicaof', f'127.0.0.1 {primary.port}', '--replica-read-only', 'no')
    with primary.raw() as p, replica.raw() as r:
        eventually(lambda: b'master_link_status:up' in r.call('INFO', 'replication'))
        w = raw(replica.port).command('BLPOP', 'k', 0)
        waiting(replica, 1)
        assert p.call('RPUSH', 'k', 'a', 'b') == 2
        assert w.reply() == [b'k', b'a']
        assert p.call('LRANGE', 'k', 0, -1) == [b'a', b'b'] and r.call('LRANGE', 'k', 0, -1) == [b'b']


# -- INFO and CLIENT LIST ----------------------------------------------------------------------------------

@pytest.mark.any_engine
def test_statistics(server, raw, block):
    """Counted when it begins, as Redis does; failed, if something else ended it; slow, when it is served."""
    with server.raw() as c, server.raw() as monitor:
        def stats():
            text = c.call('INFO', 'commandstats').decode().split('cmdstat_blpop:')[1].split('\r\n')[0]
            return {k: v for k, v in (pair.split('=') for pair in text.split(','))}

        assert c.call('CONFIG', 'RESETSTAT') == b'OK'
        assert c.call('CONFIG', 'SET', 'slowlog-log-slower-than', 0) == b'OK'
        assert c.call('SLOWLOG', 'RESET') == b'OK'
        assert monitor.call('MONITOR') == b'OK'
        w = block('BLPOP', 'k', 0)
        assert stats()['calls'] == '1'
        assert not any(e[3][0] == b'BLPOP' for e in c.call('SLOWLOG', 'GET', -1))
        assert c.call('RPUSH', 'k', 'v') == 1 and w.reply() == [b'k', b'v']
        assert (stats()['calls'], stats()['failed_calls']) == ('1', '0')
        assert sum(e[3] == [b'BLPOP', b'k', b'0'] for e in c.call('SLOWLOG', 'GET', -1)) == 1
        assert c.call('CONFIG', 'SET', 'slowlog-log-slower-than', 10000) == b'OK'
        me = w.call('CLIENT', 'ID')
        for how, reply in (((), None), (('ERROR',), 'UNBLOCKED client unblocked via CLIENT UNBLOCK')):
            w.command('BLPOP', 'k', 0)
            waiting(server, 1)
            assert c.call('CLIENT', 'UNBLOCK', me, *how) == 1
            assert w.reply() == reply
        assert (stats()['calls'], stats()['failed_calls']) == ('3', '2')
        assert c.call('ECHO', 'that is all') == b'that is all'
        seen = []
        while not seen or b'that is all' not in seen[-1]:
            seen.append(monitor.line())
        assert sum(b'"BLPOP"' in line for line in seen) == 3 and sum(b'"RPUSH"' in line for line in seen) == 1


def test_waiting_costs_little_memory(server, raw, many_files):
    clients = [raw(server.port) for _ in range(500)]
    with server.raw() as c:
        for w in clients:
            assert w.call('PING') == b'PONG'
        before = field(c, 'memory', 'used_memory')
        for i, w in enumerate(clients):
            w.command('BLPOP', f'key-{i}', 'k', 0)
        waiting(server, 500)
        # Their read buffers are shared, and freed when no client uses them.
        eventually(lambda: field(c, 'memory', 'used_memory') - before < 500 * 2048)


# -- what is kept ------------------------------------------------------------------------------------------

def served(s, raw):
    """Serves clients of all kinds; what is left then."""
    commands = [('BLPOP', 'l', 0), ('BRPOP', 'l', 0), ('BLMOVE', 'l', 'd', 'LEFT', 'RIGHT', 0),
                ('BRPOPLPUSH', 'l', 'd', 0), ('BLMPOP', 0, 1, 'l', 'LEFT', 'COUNT', 2), ('BZPOPMIN', 'z', 0),
                ('BZPOPMAX', 'z', 0), ('BZMPOP', 0, 1, 'z', 'MIN', 'COUNT', 2)]
    clients = []
    for i, command in enumerate(commands):
        clients.append(raw(s.port).command(*command))
        waiting(s, i + 1)
    with s.raw() as c:
        assert c.call('RPUSH', 'l', *'abcdefgh') == 8
        assert c.call('ZADD', 'z', 1, 'a', 2, 'b', 3, 'c', 4, 'd', 5, 'e') == 5
    assert [w.reply() for w in clients] == [
        [b'l', b'a'], [b'l', b'h'], b'b', b'g', [b'l', [b'c', b'd']], [b'z', b'a', b'1'], [b'z', b'e', b'5'],
        [b'z', [[b'b', b'2'], [b'c', b'3']]]]
    return left(s)


def left(s):
    with s.raw() as c:
        return [c.call('LRANGE', 'l', 0, -1), c.call('LRANGE', 'd', 0, -1), c.call('ZRANGE', 'z', 0, -1)]


@pytest.mark.lone('nodes of a cluster replicate by Raft')
def test_served_elements_stay_removed(server_factory, raw):
    """After a crash, and at a replica."""
    args = ('--appendonly', 'yes', '--appendfsync', 'always') if ENGINE == 'memory' else ()
    s = server_factory(*args, '--repl-diskless-sync-delay', 0)
    replica = server_factory('--replicaof', f'127.0.0.1 {s.port}')
    with replica.raw() as r:
        eventually(lambda: b'master_link_status:up' in r.call('INFO', 'replication'))
    expected = served(s, raw)
    assert expected == [[b'e', b'f'], [b'g', b'b'], [b'd']]
    eventually(lambda: left(replica) == expected)
    if ENGINE == 'memory':
        folder = os.path.join(s.dir, 'appendonlydir')
        text = b''.join(open(os.path.join(folder, f), 'rb').read() for f in os.listdir(folder))
        assert b'LPOP' in text and b'LMOVE' in text and b'RPOPLPUSH' in text
        assert not any(b'$%d\r\n%s\r\n' % (len(w), w) in text.upper() for w in (
            b'BLPOP', b'BRPOP', b'BLMOVE', b'BRPOPLPUSH', b'BLMPOP', b'BZPOPMIN', b'BZMPOP'))
    s.restart(signal.SIGKILL)
    assert left(s) == expected


# -- failures ----------------------------------------------------------------------------------------------

def earlier(s, bringer, first, second):
    """They wait already, the second for what then serves the first."""
    first.command('BLPOP', 'q', 0)
    waiting(s, 1)
    second.command('BLMOVE', 'q2', 'q', 'LEFT', 'LEFT', 0)
    waiting(s, 2)
    yield
    bringer.send(encode('RPUSH', 'q2', 1) + encode('GET', 'k'))
    yield [bringer.reply(), first.reply(), second.reply()]


def in_the_same_tick(s, bringer, first, second):
    """A pause ends for all at once, the newest connections first."""
    with s.raw() as c:
        assert c.call('CLIENT', 'PAUSE', 100000, 'ALL') == b'OK'
        first.command('BLPOP', 'q', 0)
        second.command('BLMOVE', 'q2', 'q', 'LEFT', 'LEFT', 0)
        bringer.send(encode('RPUSH', 'q2', 1) + encode('GET', 'k'))
        yield
        assert c.call('CLIENT', 'UNPAUSE') == b'OK'
        yield [bringer.reply(), first.reply(), second.reply()]


def of_one_connection(s, bringer, first, second):
    """Brought, taken, and waited for again."""
    yield
    bringer.send(encode('RPUSH', 'q', 1) + encode('BLPOP', 'q', 0) + encode('BLPOP', 'q', 0) + encode('GET', 'k'))
    yield [bringer.reply() for _ in range(3)]


@pytest.mark.lone('a node whose storage fails ends')
@pytest.mark.parametrize('story', [earlier, in_the_same_tick, of_one_connection])
def test_a_failed_commit_serves_no_client(server_factory, raw, story):
    """The push fails after it has served: all are told so, each once, and who only listens hears nothing."""
    args = ('--appendonly', 'yes', '--appendfsync', 'always') if ENGINE == 'memory' else ()
    s = server_factory(*args, before=UNMINDFUL)
    bringer, first, second, watcher = (raw(s.port) for _ in range(4))
    assert bringer.call('SET', 'k', 'v') == b'OK'
    told = story(s, bringer, first, second)
    next(told)
    assert watcher.call('MONITOR') == b'OK'
    no_longer_files(s)
    replies = next(told)
    assert all(isinstance(x, ReplyError) for x in replies) and len(set(replies)) == 1, replies
    after = bringer.reply()     # the GET: of the same tick, and refused with it, or of a later one
    assert after in (b'v', replies[0])
    no_longer_files(s, resource.RLIM_INFINITY)
    told.close()
    with s.raw() as c:
        assert field(c, 'clients', 'blocked_clients') == 0
        assert first.call('PING') == second.call('PING') == b'PONG'
        if ENGINE == 'memory':  # has what it could not write; it writes again
            eventually(lambda: c.call('SET', 'k', 'w') == b'OK')
            first.command('BLPOP', 'again', 0)
            waiting(s, 1)
            assert c.call('RPUSH', 'again', 1) == 1 and first.reply() == [b'again', b'1']
            return
        assert b'RPUSH' not in watcher_saw(watcher, c)
        assert c.call('EXISTS', 'q', 'q2') == 0 and c.call('GET', 'k') == b'v'
    s.restart()
    with s.raw() as c:
        assert c.call('EXISTS', 'q', 'q2') == 0 and c.call('RPUSH', 'q', 1) == 1


@pytest.mark.lone('a node whose storage fails ends')
def test_a_failed_commit_replaces_long_replies(server_factory, raw):
    """All that a failed tick answered is taken back, also where it is long, and nothing of what was before."""
    args = ('--appendonly', 'yes', '--appendfsync', 'always') if ENGINE == 'memory' else ()
    s = server_factory(*args, before=UNMINDFUL)
    big = b'x' * 100_000
    with s.raw() as c, raw(s.port) as reader:
        assert c.call('SET', 'big', big) == b'OK'
        me = reader.call('CLIENT', 'ID')
        reader.send(encode('GET', 'big') * 200)
        eventually(lambda: int(re.search(rb'oll=(\d+)', c.call('CLIENT', 'LIST', 'ID', me)).group(1)) > 1)
        no_longer_files(s)
        reader.send(encode('GET', 'big') * 5 + encode('SET', 'k', 'v') + encode('GET', 'big') * 7)
        assert all(reader.reply() == big for _ in range(200))
        told = [reader.reply() for _ in range(13)]
        assert isinstance(told[0], ReplyError) and told == [told[0]] * 13
        no_longer_files(s, resource.RLIM_INFINITY)
        assert reader.call('PING') == b'PONG'
        if ENGINE == 'memory':
            eventually(lambda: c.call('SET', 'k', 'w') == b'OK')


def watcher_saw(watcher, c):
    """All of MONITOR up to now."""
    assert c.call('ECHO', 'up to now') == b'up to now'
    seen = b''
    while b'up to now' not in seen:
        seen += watcher.line()
    return seen
