"""Replies that wait for a fence (net/fence.h), driven by DEBUG FENCE: what leaves when, and what becomes of it if the
fence fails. With DEBUG FENCE HOLD <n>, requests of database d wait for the tick's fence d modulo n: as if databases
were regions."""
import random
import select
import socket

import pytest

from mayfly import Raw, ReplyError, encode, eventually, free_port
from test_tls import Secure, certs, context, options  # noqa: F401 (certs is a fixture)

UNCERTAIN = ReplyError('UNCERTAIN leadership was lost; this write may or may not have happened')
TRYAGAIN = ReplyError('TRYAGAIN leadership was lost')


class Fences:
    """Holds the replies of a server, by a connection whose own replies never wait."""

    def __init__(self, port):
        self.raw = Raw(port)
        self.seen = set()

    def call(self, *args):
        return self.raw.call('DEBUG', 'FENCE', *args)

    def hold(self, *count):
        assert self.call('HOLD', *count) == b'OK'

    def off(self):
        assert self.call('OFF') == b'OK'

    def ids(self):
        return [f[0] for f in self.call('LIST')]

    def new(self, count=1):
        """The ids of fences that were opened since, once there are so many: the request was run."""
        fresh = []

        def there():
            fresh[:] = [i for i in self.ids() if i not in self.seen]
            return len(fresh) >= count
        eventually(there)
        assert len(fresh) == count, fresh
        self.seen.update(fresh)
        return fresh[0] if count == 1 else fresh

    def passes(self, *ids):
        for i in ids:
            assert self.call('PASS', i) == b'OK'

    def fails(self, *ids):
        for i in ids:
            assert self.call('FAIL', i) == b'OK'

    def segments(self, fence):
        return dict(self.call('LIST'))[fence]

    def nothing_for(self, *clients):
        """Nothing has been sent to them so far."""
        self.ids()          # whatever was to be sent before this has been
        return not select.select([c.sock for c in clients], [], [], 0)[0]

    def end(self):
        self.off()
        self.passes(*self.ids())
        self.raw.close()


@pytest.fixture
def fences(server):
    f = Fences(server.port)
    yield f
    f.end()


@pytest.fixture
def client(server, raw):
    return lambda: raw(server.port)


def pipeline(c, text):
    """Sends commands as one piece, so that they are one tick; the number of them."""
    commands = [line.split() for line in text.strip().splitlines()] if '\n' in text else \
               [one.split() for one in text.split('|')]
    c.send(b''.join(encode(*one) for one in commands))
    return len(commands)


def replies(c, count):
    return [c.reply() for _ in range(count)]


# -- order ---------------------------------------------------------------------------------

def test_a_reply_waits_for_its_fence(fences, client):
    c, other = client(), client()
    fences.hold()
    c.command('SET', 'k', 'v')
    first = fences.new()
    assert fences.nothing_for(c) and fences.segments(first) == 1
    other.command('GET', 'k')           # it has run: others see it, and wait
    second = fences.new()
    assert fences.nothing_for(c, other)
    fences.passes(first)
    assert c.reply() == b'OK' and fences.nothing_for(other)
    fences.passes(second)
    assert other.reply() == b'v' and fences.ids() == []


def test_ticks_in_flight_leave_in_order(fences, client):
    c = client()
    fences.hold()
    ids = []
    for i in range(5):
        c.command('INCR', 'n')
        ids.append(fences.new())
    fences.passes(*ids[1:][::-1])
    assert fences.nothing_for(c)
    fences.passes(ids[0])
    assert replies(c, 5) == [1, 2, 3, 4, 5]


def test_output_after_fences_are_off_only_keeps_its_order(fences, client):
    c, other = client(), client()
    fences.hold()
    c.command('SET', 'k', 1)
    held = fences.new()
    fences.off()
    assert other.call('INCR', 'k') == 2
    c.command('INCR', 'k')
    eventually(lambda: other.call('GET', 'k') == b'3')
    assert fences.nothing_for(c) and fences.ids() == [held]
    fences.passes(held)
    assert replies(c, 2) == [b'OK', 3]


TWO = 'SET a 1|SELECT 1|SET b 2|SELECT 0|GET a|INCR a'      # databases: 0 0 1 1 0 0


def test_a_pipeline_over_two_fences_the_second_passes_first(fences, client):
    c = client()
    fences.hold(2)
    n = pipeline(c, TWO)
    a, b = fences.new(2)
    assert (fences.segments(a), fences.segments(b)) == (2, 1)
    fences.passes(b)
    assert fences.nothing_for(c)
    fences.passes(a)
    assert replies(c, n) == [b'OK', b'OK', b'OK', b'OK', b'1', 2]


@pytest.mark.parametrize('first', ['a', 'b'])
def test_a_pipeline_over_two_fences_of_which_one_fails(fences, client, first):
    c = client()
    fences.hold(2)
    pipeline(c, TWO)
    a, b = fences.new(2)
    if first == 'b':
        fences.passes(b)
        assert fences.nothing_for(c)
        fences.fails(a)
    else:
        fences.fails(a)
        assert replies(c, 2) == [UNCERTAIN, TRYAGAIN] and fences.nothing_for(c)
        fences.passes(b)
    if first == 'b':
        assert replies(c, 2) == [UNCERTAIN, TRYAGAIN]
    assert replies(c, 4) == [b'OK', b'OK', TRYAGAIN, UNCERTAIN]


def test_each_failed_request_has_one_error(fences, client):
    """Also if there are more of them than a segment counts, and commands with many replies or none."""
    c = client()
    fences.hold()
    commands, expected = [], []
    for i in range(300):
        commands.append(('SET', f'k{i}', i) if i % 3 else ('GET', f'k{i}'))
        expected.append(UNCERTAIN if i % 3 else TRYAGAIN)
    commands += [('SUBSCRIBE', 'x', 'y', 'z'), ('UNSUBSCRIBE',), ('NOSUCH',)]
    expected += [TRYAGAIN] * 3
    c.send(b''.join(encode(*one) for one in commands))
    eventually(lambda: fences.ids())
    fences.off()
    while fences.ids():         # one read may not have brought them all
        fences.fails(*fences.ids())
    assert replies(c, len(commands)) == expected
    assert c.call('PING') == b'PONG'


def test_output_of_many_pieces(fences, client):
    """More than the kernel takes at once, failed in the middle."""
    c = client()
    big = b'x' * 400_000
    for db in (0, 1, 2):
        assert c.call('SELECT', db) == b'OK' and c.call('SET', 'big', big + b'%d' % db) == b'OK'
    fences.hold(3)
    n = pipeline(c, '|'.join(f'SELECT {i % 3}|GET big|GET big' for i in range(9)))
    ids = fences.new(3)                 # in the order of their first requests: databases 2 (before), 0, 1
    fences.fails(ids[1])
    assert fences.nothing_for(c)
    fences.passes(ids[2], ids[0])
    expected, db = [], 2
    for i in range(9):
        expected.append(TRYAGAIN if db == 0 else b'OK')
        db = i % 3
        expected += [TRYAGAIN if db == 0 else big + b'%d' % db] * 2
    assert replies(c, n) == expected
    fences.off()
    assert c.call('PING') == b'PONG'


@pytest.mark.parametrize('seed', range(3))
def test_random_fences(fences, client, seed):
    """Whatever order they end in, every connection has one reply per request, in order, and the right one."""
    rng = random.Random(seed)
    clients = [client() for _ in range(3)]
    big = [b'%d' % db + b'x' * 30_000 for db in range(3)]
    for db in range(3):
        assert clients[0].call('SELECT', db) == b'OK' and clients[0].call('SET', 'big', big[db]) == b'OK'
    database, count = [2, 0, 0], [0, 0, 0]
    expected = [[] for _ in clients]    # of each connection: fence, reply, error
    passed, opened = {}, []

    def request(who):
        """A command, its reply and its error."""
        db = database[who]
        what = rng.randrange(4)
        if what == 0:
            database[who] = rng.randrange(3)
            return db, ('SELECT', database[who]), b'OK', TRYAGAIN
        if what == 1:
            return db, ('GET', 'big'), big[db], TRYAGAIN
        if what == 2 and count[db]:
            return db, ('GET', 'n'), b'%d' % count[db], TRYAGAIN
        count[db] += 1
        return db, ('INCR', 'n'), count[db], UNCERTAIN

    def end_one():
        one = opened.pop(rng.randrange(len(opened)))
        passed[one] = rng.random() < 0.6
        (fences.passes if passed[one] else fences.fails)(one)

    fences.hold(3)
    for _ in range(100):
        who = rng.randrange(3)
        plan = [request(who) for _ in range(rng.randrange(1, 9))]
        clients[who].send(b''.join(encode(*p[1]) for p in plan))
        used = list(dict.fromkeys(p[0] for p in plan))          # a fence is opened for the first request of each
        ids = fences.new(len(used))
        ids = ids if len(used) > 1 else [ids]
        opened += ids
        expected[who] += [(ids[used.index(db)], reply, error) for db, _, reply, error in plan]
        while len(opened) > rng.randrange(1, 12):
            end_one()
    while opened:
        end_one()
    for c, requests in zip(clients, expected):
        for fence, reply, error in requests:
            assert c.reply() == (reply if passed[fence] else error)
    assert fences.nothing_for(*clients) and fences.ids() == []


# -- connections ---------------------------------------------------------------------------

def test_a_client_that_leaves(fences, client):
    c, stays = client(), client()
    fences.hold()
    c.command('SET', 'k', 1)
    first = fences.new()
    stays.command('SET', 'k', 2)
    second = fences.new()
    c.close()
    fences.fails(first)         # whether it still listens shows when it is written to
    fences.passes(second)
    assert stays.reply() == b'OK'
    fences.off()
    eventually(lambda: stays.call('INFO', 'clients').count(b'connected_clients:2'))


def test_the_end_of_the_input_is_not_the_end(fences, client):
    c = client()
    fences.hold()
    pipeline(c, 'SET k 1|GET k')
    first = fences.new()
    c.sock.shutdown(socket.SHUT_WR)
    assert fences.nothing_for(c)
    fences.passes(first)
    assert c.reply() == b'OK' and c.reply() == b'1' and c.closed()


def test_a_client_that_is_killed(fences, client):
    c, killer = client(), client()
    me = c.call('CLIENT', 'ID')
    fences.hold(2)
    pipeline(c, 'SET k 1|SELECT 1|SET k 2')
    a, b = fences.new(2)
    killer.command('CLIENT', 'KILL', 'ID', me)
    third = fences.new()
    assert c.closed()           # its replies are discarded
    assert (fences.segments(a), fences.segments(b)) == (0, 0)
    fences.fails(a)
    fences.passes(b, third)
    assert killer.reply() == 1


def test_a_client_that_kills_itself_gets_its_reply(fences, client):
    c = client()
    me = c.call('CLIENT', 'ID')
    fences.hold()
    c.command('CLIENT', 'KILL', 'ID', me, 'SKIPME', 'no')
    fence = fences.new()
    assert fences.nothing_for(c)
    fences.passes(fence)
    assert c.rest() == b':1\r\n'


@pytest.mark.parametrize('passes', [True, False])
def test_quit_closes_when_its_reply_has_left(fences, client, passes):
    c = client()
    fences.hold()
    pipeline(c, 'INCR n|QUIT|INCR n')
    fence = fences.new()
    assert fences.nothing_for(c)
    (fences.passes if passes else fences.fails)(fence)
    errors = f'-{UNCERTAIN}\r\n-{TRYAGAIN}\r\n'.encode()
    assert c.rest() == (b':1\r\n+OK\r\n' if passes else errors)


def test_a_protocol_error_waits_too(fences, client):
    c = client()
    fences.hold()
    c.send(encode('SET', 'k', 'v') + b'*1\r\n$x\r\n')
    fence = fences.new()
    assert fences.nothing_for(c)
    fences.passes(fence)
    assert c.rest() == b'+OK\r\n-ERR Protocol error: invalid bulk length\r\n'


def test_held_output_counts_for_the_limit(fences, client):
    c, admin = client(), client()
    assert admin.call('SET', 'big', b'x' * 100_000) == b'OK'
    assert admin.call('CONFIG', 'SET', 'client-output-buffer-limit', 'normal 250000 0 0') == b'OK'
    try:
        fences.hold()
        for i in range(2):
            c.command('GET', 'big')
            fences.new()
        assert fences.nothing_for(c)
        c.command('GET', 'big')
        assert c.closed()
    finally:
        fences.off()
        fences.passes(*fences.ids())
        assert admin.call('CONFIG', 'SET', 'client-output-buffer-limit', 'normal 0 0 0') == b'OK'


def test_held_output_shows_in_client_list(fences, client):
    c, other = client(), client()
    me = c.call('CLIENT', 'ID')
    fences.hold()
    c.command('ECHO', 'x' * 1000)
    held = fences.new()
    fences.off()
    text = other.call('CLIENT', 'LIST', 'ID', me).decode()
    assert int(text.split(' omem=')[1].split()[0]) == 1009          # counted as output that waits
    fences.passes(held)
    assert c.reply() == b'x' * 1000


def test_waiting_for_a_fence_is_not_idleness(fences, client):
    c, idle, admin = client(), client(), client()
    fences.hold()
    c.command('SET', 'k', 'v')
    held = fences.new()
    fences.off()
    assert admin.call('CONFIG', 'SET', 'timeout', 1) == b'OK'
    try:
        assert idle.call('PING') == b'PONG'      # it is idle for less time than the one that waits
        while not select.select([idle.sock], [], [], 0.1)[0]:
            fences.ids()                          # the others are not idle
            assert admin.call('PING') == b'PONG'
        assert idle.closed() and fences.nothing_for(c)
        fences.passes(held)
        assert c.reply() == b'OK'
    finally:
        assert admin.call('CONFIG', 'SET', 'timeout', 0) == b'OK'


def test_shutdown(server_factory, raw):
    """What is held when the server ends is never sent."""
    s = server_factory('--enable-debug-command', 'yes')
    fences, c, d = Fences(s.port), raw(s.port), raw(s.port)
    fences.hold(2)
    pipeline(c, 'SET k 1|SELECT 1|SET k 2')
    fences.new(2)
    d.command('SHUTDOWN', 'NOSAVE')
    assert s.proc.wait(60) == 0
    assert c.closed() and d.closed()
    fences.raw.close()


def test_pause(fences, client):
    """CLIENT PAUSE stops requests, not replies."""
    c, other = client(), client()
    fences.hold()
    other.command('CLIENT', 'PAUSE', 600_000, 'WRITE')
    try:
        fences.passes(fences.new())
        assert other.reply() == b'OK'
        c.command('GET', 'k')
        held = fences.new()
        c.command('SET', 'k', 'v')
        postponed = fences.new()
        assert fences.segments(postponed) == 0 and fences.nothing_for(c)
        fences.passes(postponed, held)
        assert c.reply() is None and fences.nothing_for(c)
    finally:
        other.command('CLIENT', 'UNPAUSE')
    ids = fences.new(2)                 # UNPAUSE's, then SET's
    assert fences.nothing_for(c, other)
    fences.passes(ids[0])
    assert other.reply() == b'OK' and fences.nothing_for(c)
    fences.passes(ids[1])
    assert c.reply() == b'OK'


def test_replies_that_are_switched_off(fences, client):
    """A client with CLIENT REPLY OFF gets no error replies either."""
    c = client()
    fences.hold()
    pipeline(c, 'SET a 1|CLIENT REPLY SKIP|SET b 1|GET a|CLIENT REPLY OFF|SET c 1|GET c|CLIENT REPLY ON')
    fences.fails(fences.new())
    assert replies(c, 3) == [UNCERTAIN, TRYAGAIN, TRYAGAIN]
    pipeline(c, 'CLIENT REPLY OFF|SET c 1')
    fences.fails(fences.new())
    assert fences.nothing_for(c)
    c.command('CLIENT', 'REPLY', 'ON')
    fences.passes(fences.new())
    assert c.reply() == b'OK'


# -- messages --------------------------------------------------------------------------------

def test_messages_wait_and_are_taken_back(fences, client):
    listener, c = client(), client()
    assert listener.call('SUBSCRIBE', 'news') == [b'subscribe', b'news', 1]
    fences.hold()
    ids = []
    for i in range(4):
        c.command('PUBLISH', 'news', i)
        ids.append(fences.new())
        assert fences.segments(ids[-1]) == 2
    fences.passes(ids[1])
    assert fences.nothing_for(listener, c)
    fences.fails(ids[0])
    assert c.reply() in (UNCERTAIN, TRYAGAIN) and c.reply() == 1
    assert listener.reply() == [b'message', b'news', b'1']
    fences.fails(ids[2])
    fences.passes(ids[3])
    assert listener.reply() == [b'message', b'news', b'3'] and fences.nothing_for(listener)


def test_a_message_among_the_listeners_own_replies(fences, client):
    """RESP3: a subscriber's own requests fail, the message stays; and the other way round."""
    listener, c = client(), client()
    listener.call('HELLO', 3)
    assert listener.call('SUBSCRIBE', 'news') == [b'subscribe', b'news', 1]
    fences.hold()
    for mine, theirs in ((False, True), (True, False)):
        listener.command('INCR', 'n')
        a = fences.new()
        c.command('PUBLISH', 'news', 'x')
        b = fences.new()
        listener.command('INCR', 'n')
        d = fences.new()
        (fences.passes if theirs else fences.fails)(b)
        assert fences.nothing_for(listener)
        (fences.passes if mine else fences.fails)(a, d)
        if mine:
            assert replies(listener, 2) == [3, 4]
        else:
            assert replies(listener, 3) == [UNCERTAIN, [b'message', b'news', b'x'], UNCERTAIN]
        assert fences.nothing_for(listener)
        c.reply()


def test_invalidations(fences, client):
    """What is taken back leaves the client with something it must not trust: it is told to forget everything."""
    c, other = client(), client()
    c.call('HELLO', 3)
    assert c.call('CLIENT', 'TRACKING', 'ON') == b'OK'
    for passes in (True, False):
        c.call('GET', 'k')
        fences.hold()
        other.command('SET', 'k', 1)
        fence = fences.new()
        fences.off()
        assert fences.nothing_for(c, other)
        (fences.passes if passes else fences.fails)(fence)
        assert c.reply() == [b'invalidate', [b'k'] if passes else None]
        assert other.reply() == (b'OK' if passes else UNCERTAIN)
    assert c.call('PING') == b'PONG'


def test_monitor(fences, client):
    m, c = client(), client()
    assert m.call('MONITOR') == b'OK'
    fences.hold()
    c.command('SET', 'k', 1)
    a = fences.new()
    c.command('SET', 'k', 2)
    b = fences.new()
    fences.fails(a)
    eventually(lambda: not fences.nothing_for(c))
    fences.passes(b)
    assert replies(c, 2) == [UNCERTAIN, b'OK']
    lines = []
    while not lines or b'"SET" "k" "2"' not in lines[-1]:
        lines.append(m.reply())
    assert not [x for x in lines if b'"SET" "k" "1"' in x]


def test_replicas_are_sent_the_stream(server_factory, raw):
    """Replication has its own rule: what the engine has committed. A new replica's handshake waits like any request."""
    s = server_factory('--enable-debug-command', 'yes', '--repl-diskless-sync-delay', 0)
    fences, c = Fences(s.port), raw(s.port)
    replica = server_factory('--replicaof', f'127.0.0.1 {s.port}')
    with replica.client() as r:
        eventually(lambda: r.info('replication')['master_link_status'] == 'up')
        fences.hold()
        c.command('SET', 'k', 'v')
        eventually(lambda: r.get('k') == b'v')
        assert fences.nothing_for(c)
        late = server_factory('--replicaof', f'127.0.0.1 {s.port}')
        with late.client() as r2:
            eventually(lambda: 'MASTER <-> REPLICA sync started' in late.log)
            assert fences.nothing_for(c) and r2.get('k') is None
            fences.off()
            fences.passes(*fences.ids())            # replicas' ACKs have opened others
            assert c.reply() == b'OK'
            eventually(lambda: r2.info('replication')['master_link_status'] == 'up')
            assert r2.get('k') == b'v'
        assert r.info('replication')['master_link_status'] == 'up'
    fences.end()


# -- transactions ----------------------------------------------------------------------------

def test_exec_fails(fences, client):
    c = client()
    assert replies(c, pipeline(c, 'MULTI|INCR n')) == [b'OK', b'QUEUED']
    fences.hold()
    c.command('EXEC')
    fences.fails(fences.new())
    assert c.reply() == UNCERTAIN
    fences.off()
    assert c.call('INCR', 'n') == 2         # not in a transaction; and the first one has happened


def test_multi_fails(fences, client):
    c = client()
    fences.hold()
    pipeline(c, 'MULTI|INCR n')
    fences.fails(fences.new())
    assert replies(c, 2) == [TRYAGAIN, TRYAGAIN]
    fences.off()
    assert c.call('INCR', 'n') == 1         # not in a transaction
    assert c.call('EXEC') == ReplyError('ERR EXEC without MULTI')


def test_a_queued_command_fails(fences, client):
    c = client()
    assert c.call('MULTI') == b'OK'
    fences.hold()
    c.command('INCR', 'n')
    fences.fails(fences.new())
    assert c.reply() == TRYAGAIN
    fences.off()
    assert c.call('EXEC').startswith('EXECABORT') and c.call('EXISTS', 'n') == 0


def test_a_multi_that_fails_late_leaves_later_transactions_alone(fences, client):
    c = client()
    fences.hold()
    pipeline(c, 'MULTI|INCR n')
    first = fences.new()
    pipeline(c, 'EXEC|MULTI|INCR n')
    second = fences.new()
    fences.fails(first)
    fences.passes(second)
    assert replies(c, 5) == [TRYAGAIN, TRYAGAIN, [1], b'OK', b'QUEUED']
    fences.off()
    assert c.call('INCR', 'n') == b'QUEUED' and c.call('EXEC') == [2, 3]


def test_a_multi_that_was_paused_fails(fences, client):
    """Requests that waited are in a buffer of their own, which must outlive the end of the tick's fence."""
    c, other = client(), client()
    assert other.call('CLIENT', 'PAUSE', 100000, 'ALL') == b'OK'
    pipeline(c, 'MULTI|INCR n')
    eventually(lambda: b' flags=b ' in fences.raw.call('CLIENT', 'LIST'))
    fences.hold()
    other.command('CLIENT', 'UNPAUSE')
    fences.fails(*fences.new(2))
    assert replies(c, 2) == [TRYAGAIN, TRYAGAIN]
    fences.off()
    assert c.call('INCR', 'n') == 1         # not in a transaction


def test_an_earlier_failure_leaves_a_transaction_alone(fences, client):
    c = client()
    fences.hold()
    c.command('INCR', 'n')
    first = fences.new()
    fences.off()
    fences.ids()
    pipeline(c, 'MULTI|INCR n')
    eventually(lambda: c_is_in_multi(fences, c))
    fences.fails(first)
    assert replies(c, 3) == [UNCERTAIN, b'OK', b'QUEUED'] and c.call('EXEC') == [2]


def c_is_in_multi(fences, c):
    with Raw(fences.raw.sock.getpeername()[1]) as other:
        name = 'addr=127.0.0.1:%d ' % c.sock.getsockname()[1]
        line = [x for x in other.call('CLIENT', 'LIST').decode().splitlines() if name in x]
        return 'multi=1' in line[0]


# -- clients that wait for keys -----------------------------------------------------------------

@pytest.mark.parametrize('passes', [True, False])
def test_a_blocked_client_is_served_under_a_fence(fences, client, passes):
    c, other = client(), client()
    fences.hold()
    pipeline(c, 'SET x 1|BLPOP list 0')
    first = fences.new()
    other.command('RPUSH', 'list', 'a')
    second = fences.new()
    assert fences.segments(second) == 2
    fences.passes(first)
    assert c.reply() == b'OK' and fences.nothing_for(c, other)
    (fences.passes if passes else fences.fails)(second)
    assert c.reply() == ([b'list', b'a'] if passes else UNCERTAIN)
    assert other.reply() == (1 if passes else UNCERTAIN)
    fences.off()
    assert c.call('PING') == b'PONG'


def test_a_wait_that_began_under_a_failed_fence_is_over(fences, client):
    c, other = client(), client()
    fences.hold()
    pipeline(c, 'SET x 1|BLPOP list 0|GET x')
    fences.fails(fences.new())
    assert replies(c, 2) == [UNCERTAIN, TRYAGAIN]
    fences.passes(fences.new())         # GET has run now
    assert c.reply() == b'1'
    fences.off()
    assert other.call('RPUSH', 'list', 'a') == 1 and other.call('LLEN', 'list') == 1


def test_a_wait_that_was_answered_under_another_fence_stays_answered(fences, client):
    c, other = client(), client()
    fences.hold()
    c.command('BLPOP', 'list', 0)
    first = fences.new()
    other.command('RPUSH', 'list', 'a')
    second = fences.new()
    c.command('BLPOP', 'list', 0)       # waits again
    third = fences.new()
    fences.fails(first)
    assert fences.nothing_for(c)
    fences.passes(second)
    assert c.reply() == [b'list', b'a'] and other.reply() == 1
    fences.passes(third)
    assert fences.nothing_for(c)
    fences.off()
    assert other.call('RPUSH', 'list', 'b') == 1
    assert c.reply() == [b'list', b'b']


def test_a_wait_that_times_out(fences, client):
    """That nothing came is no fact about data: it waits for what is in front of it only."""
    c = client()
    fences.hold()
    pipeline(c, 'SET x 1|BLPOP list 0.05')
    fence = fences.new()
    fences.off()
    with Raw(fences.raw.sock.getpeername()[1]) as other:
        eventually(lambda: b' cmd=blpop' in other.call('CLIENT', 'LIST') and other.call('INFO', 'clients') and
                   b'blocked_clients:0' in other.call('INFO', 'clients'))
    assert fences.nothing_for(c)
    fences.fails(fence)
    assert replies(c, 2) == [UNCERTAIN, None]
    assert c.call('PING') == b'PONG'


def test_wait_for_replicas_is_given_up(fences, client):
    c = client()
    fences.hold()
    pipeline(c, 'SET x 1|WAIT 1 0|GET x')
    fences.fails(fences.new())
    assert replies(c, 2) == [UNCERTAIN, TRYAGAIN]
    fences.passes(fences.new())
    assert c.reply() == b'1'


# -- others ----------------------------------------------------------------------------------------

def test_tls(server_factory, certs):  # noqa: F811
    port = free_port()
    s = server_factory('--enable-debug-command', 'yes', *options(certs, port))
    fences = Fences(s.port)
    with Secure(port, context(certs)) as c:
        big = b'x' * 3_000_000
        assert c.call('SET', 'big', big) == b'OK'
        fences.hold(2)
        n = pipeline(c, 'GET big|SELECT 1|SET k 1|SELECT 0|GET big|GET big')
        a, b = fences.new(2)
        fences.fails(b)
        assert fences.nothing_for(c)
        fences.passes(a)
        assert replies(c, n) == [big, b'OK', UNCERTAIN, TRYAGAIN, big, big]
        n = pipeline(c, 'GET big|SELECT 1|SET k 1|SELECT 0|GET big|GET big')
        a, b = fences.new(2)
        fences.passes(b)
        fences.fails(a)
        assert replies(c, n) == [TRYAGAIN, TRYAGAIN, b'OK', b'OK', TRYAGAIN, TRYAGAIN]
    fences.end()


def test_requests_before_a_long_script_have_a_fence_of_their_own(server_factory, raw):
    """The tick's changes before it are committed while it runs."""
    s = server_factory('--enable-debug-command', 'yes', '--busy-reply-threshold', 10)
    fences, c, other = Fences(s.port), raw(s.port), raw(s.port)
    fences.hold()

    def busy():
        """A request that has come into the tick of SET waits for its fence; the next one does not."""
        with Raw(s.port) as probe:
            return not probe.command('GET', 'k').silent(1) and str(probe.reply()).startswith('BUSY')

    c.send(encode('SET', 'k', 1) + encode('EVAL', 'while true do end', 0))
    eventually(busy)
    assert other.call('SCRIPT', 'KILL') == b'OK'
    ids = []

    def over():
        ids[:] = fences.ids()
        return len(ids) == 2
    eventually(over)
    fences.fails(ids[1])
    assert fences.nothing_for(c)
    fences.passes(ids[0])
    assert c.reply() == b'OK' and c.reply() == TRYAGAIN
    fences.end()


@pytest.mark.parametrize('args, answer', [
    ('HOLD 0', 'ERR value is out of range'), ('HOLD 5', 'ERR value is out of range'),
    ('PASS 999999', 'ERR no such fence'), ('FAIL x', 'ERR value is not an integer'),
    ('NOSUCH', 'ERR unknown subcommand'), ('PASS', 'ERR unknown subcommand'),
])
def test_debug_fence_refuses(fences, args, answer):
    reply = fences.call(*args.split())
    assert isinstance(reply, ReplyError) and reply.startswith(answer)
