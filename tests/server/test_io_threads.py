"""Connections on several threads: order, fairness, messages from one connection to another, closing at any moment, memory.

Everything here runs with I/O threads; MAYFLY_IO_THREADS=3 runs all other tests so, too."""
import os
import random
import re
import signal
import threading
import time

import pytest

from mayfly import Raw, ReplyError, encode, eventually, free_port, sanitized
from test_tls import certs, context, options  # noqa: F401 # pylint: disable=unused-import

THREADS = '--io-threads', '3'
SOME = 300 if sanitized() else 1500


def threads_of(server):
    """CPU time of each I/O thread, in seconds."""
    found = {}
    for task in os.listdir(f'/proc/{server.proc.pid}/task'):
        with open(f'/proc/{server.proc.pid}/task/{task}/comm', encoding='ascii') as f:
            name = f.read().strip()
        if name.startswith('io_thd_'):
            with open(f'/proc/{server.proc.pid}/task/{task}/schedstat', encoding='ascii') as f:
                found[name] = int(f.read().split()[0]) / 1e9
    return found


def at_once(*tasks):
    """Runs the tasks side by side; the first failure of one is the test's."""
    failures = []

    def guarded(task):
        try:
            task()
        except BaseException as e:      # pylint: disable=broad-exception-caught
            failures.append(e)

    running = [threading.Thread(target=guarded, args=(t,)) for t in tasks]
    for t in running:
        t.start()
    for t in running:
        t.join()
    if failures:
        raise failures[0]


def figures(server):
    """INFO threads: [(clients, reads, writes)]."""
    with Raw(server.port) as c:
        text = c.call('INFO', 'threads').decode()
    return [tuple(map(int, m)) for m in re.findall(r'io_thread_\d+:clients=(\d+),reads=(\d+),writes=(\d+)', text)]


# -- how many ------------------------------------------------------------------------------

@pytest.mark.parametrize('n', [1, 2, 5])
def test_as_many_as_configured(server_factory, n):
    s = server_factory('--io-threads', n)
    assert len(threads_of(s)) == n - 1
    with Raw(s.port) as c:
        assert c.call('CONFIG', 'GET', 'io-threads') == [b'io-threads', str(n).encode()]
        assert 'immutable' in c.call('CONFIG', 'SET', 'io-threads', n + 1)
        assert f'io_threads_active:{int(n > 1)}'.encode() in c.call('INFO', 'server')
    assert len(figures(s)) == n


def test_each_has_its_share_of_the_clients(server_factory, raw):
    s = server_factory(*THREADS)
    clients = [raw(s.port) for _ in range(20)]
    for c in clients:
        assert c.call('PING') == b'PONG'
    (here, *_), *others = figures(s)
    assert here == 0
    assert sorted(n for n, _, _ in others) in ([10, 11], [10, 10]), others
    for c in clients[:10]:
        c.close()
    eventually(lambda: sum(n for n, _, _ in figures(s)) == 11)
    assert all(reads > 0 and writes > 0 for _, reads, writes in figures(s)[1:])


def test_they_sleep_while_nothing_happens(server_factory, raw):
    """Not a limit on time: a thread that never sleeps needs as much CPU time as the clock shows."""
    s = server_factory(*THREADS)
    clients = [raw(s.port) for _ in range(8)]
    for c in clients:
        assert c.call('PING') == b'PONG'
    before, began = threads_of(s), time.monotonic()
    time.sleep(1)
    spent = {name: cpu - before[name] for name, cpu in threads_of(s).items()}
    assert all(cpu < (time.monotonic() - began) / 10 for cpu in spent.values()), spent
    assert clients[0].call('PING') == b'PONG'


def test_none_waits_for_the_next_timer(server_factory, raw):
    """A main thread that is called and sleeps on answers when its next timer is due, here a second later. A busy machine
    delays a request, too, but neither as long nor as many."""
    s = server_factory(*THREADS, '--hz', '1')
    clients, slow = [raw(s.port) for _ in range(4)], 0      # two of each thread, one of them idle
    for c in clients:
        assert c.call('PING') == b'PONG'
    for i in range(200):
        began = time.monotonic()
        assert clients[i % 2].call('PING') == b'PONG'
        slow += time.monotonic() - began > 0.3
        assert slow < 10, i


# -- order ---------------------------------------------------------------------------------

def test_replies_come_in_the_order_of_requests(server_factory):
    s = server_factory(*THREADS)

    def client(name):
        rng = random.Random(name)
        with Raw(s.port) as c:
            count = 0
            for _ in range(SOME // 10):
                depth = rng.choice((1, 2, 16, 200))
                value = b'x' * rng.choice((1, 100, 5000))
                data = b''.join(encode('INCR', f'n{name}') + encode('ECHO', b'%d' % i + value) for i in range(depth))
                cut = rng.randrange(len(data))          # a request arrives in parts
                c.send(data[:cut]).send(data[cut:])
                for i in range(depth):
                    count += 1
                    assert c.reply() == count
                    assert c.reply() == b'%d' % i + value

    at_once(*[lambda n=n: client(n) for n in range(6)])


def test_large_values_both_ways(server_factory):
    s = server_factory(*THREADS)

    def client(name):
        with Raw(s.port) as c:
            for n in (1, 16 << 10, 300 << 10, 5 << 20):
                value = bytes([65 + name]) * n
                assert c.call('SET', f'k{name}', value) == b'OK'
                c.send(encode('GET', f'k{name}') * 5 + encode('PING'))
                assert all(c.reply() == value for _ in range(5))
                assert c.reply() == b'PONG'

    at_once(*[lambda n=n: client(n) for n in range(4)])


def test_a_client_that_does_not_read_gets_all_later(server_factory, raw):
    """Its output waits for room in the socket, while others on the same thread are served."""
    s = server_factory(*THREADS)
    slow, others = raw(s.port), [raw(s.port) for _ in range(4)]
    assert slow.call('SET', 'big', b'y' * (4 << 20)) == b'OK'
    slow.send(encode('GET', 'big') * 8 + encode('ECHO', 'end'))
    for _ in range(50):
        for c in others:
            assert c.call('PING') == b'PONG'
    assert all(len(slow.reply()) == 4 << 20 for _ in range(8))
    assert slow.reply() == b'end'
    assert slow.call('PING') == b'PONG'


def test_input_that_came_while_the_client_was_blocked(server_factory, raw):
    s = server_factory(*THREADS)
    waiting, other = raw(s.port), raw(s.port)
    for i in range(SOME // 10):
        waiting.send(encode('BLPOP', 'list', 0) + encode('ECHO', i))
        if i % 2:
            waiting.command('PING')
        other.call('RPUSH', 'list', i)
        assert waiting.reply() == [b'list', str(i).encode()]
        assert waiting.reply() == str(i).encode()
        if i % 2:
            assert waiting.reply() == b'PONG'


def test_a_blocked_client_that_leaves_takes_nothing(server_factory, raw):
    s = server_factory(*THREADS)
    other = raw(s.port)
    for i in range(20):
        with Raw(s.port) as c:
            c.command('BLPOP', f'list{i}', 0)
            eventually(lambda: b'blocked_clients:1' in other.call('INFO', 'clients'))
        eventually(lambda: b'blocked_clients:0' in other.call('INFO', 'clients'))
        assert other.call('RPUSH', f'list{i}', i) == other.call('LLEN', f'list{i}') == 1


# -- one connection writes to another ------------------------------------------------------

def test_messages_reach_clients_of_all_threads(server_factory, raw):
    s = server_factory(*THREADS)
    subscribers, monitor, publisher = [raw(s.port) for _ in range(7)], raw(s.port), raw(s.port)
    for c in subscribers:
        assert c.call('SUBSCRIBE', 'news')[0] == b'subscribe'
    assert monitor.call('MONITOR') == b'OK'
    for i in range(SOME // 5):
        assert publisher.call('PUBLISH', 'news', i) == len(subscribers)
    for c in subscribers:
        for i in range(SOME // 5):
            assert c.reply() == [b'message', b'news', str(i).encode()]
    for i in range(SOME // 5):
        assert f'"PUBLISH" "news" "{i}"'.encode() in monitor.reply()


def test_others_are_answered_during_a_long_script(server_factory, raw):
    """The main thread reads and writes all connections itself meanwhile."""
    s = server_factory(*THREADS, '--busy-reply-threshold', '20')
    script, others = raw(s.port), [raw(s.port) for _ in range(6)]
    for _ in range(3):
        script.command('EVAL', 'while true do end', 0)
        for c in others:
            eventually(lambda c=c: str(c.call('PING')).startswith('BUSY'))
        others[0].send(encode('PING') * 50)
        assert all(others[0].reply().startswith('BUSY') for _ in range(50))
        assert others[1].call('SCRIPT', 'KILL') == b'OK'
        assert 'killed' in script.reply()
        for c in [script, *others]:
            assert c.call('PING') == b'PONG'


# -- memory --------------------------------------------------------------------------------

def used(c):
    return int(re.search(rb'used_memory:(\d+)', c.call('INFO', 'memory')).group(1))


@pytest.mark.skipif(sanitized(), reason='a sanitizer counts memory itself')
@pytest.mark.engine('memory', 'values are in memory')
def test_used_memory_is_exact(server_factory, raw):
    """Buffers that an I/O thread allocated become values, which the main thread frees, and the reverse."""
    s = server_factory(*THREADS, '--appendonly', 'no')
    clients = [raw(s.port) for _ in range(4)]
    size, count = 300 << 10, 25

    def fill(c, i):
        for j in range(count):
            assert c.call('SET', f'k{i}:{j}', b'v' * size) == b'OK'
            assert len(c.call('GET', f'k{i}:{j}')) == size

    at_once(*[lambda c=c, i=i: fill(c, i) for i, c in enumerate(clients)])
    clients[0].call('FLUSHALL', 'SYNC')
    base = eventually(lambda: used(clients[0]) if used(clients[0]) < 16 << 20 else 0)
    for _ in range(3):
        at_once(*[lambda c=c, i=i: fill(c, i) for i, c in enumerate(clients)])
        full = used(clients[0]) - base
        payload = len(clients) * count * size
        assert payload * 0.95 < full < payload * 1.15 + (8 << 20), full
        assert clients[0].call('FLUSHALL', 'SYNC') == b'OK'
        eventually(lambda: abs(used(clients[0]) - base) < 4 << 20)


@pytest.mark.skipif(sanitized(), reason='a sanitizer counts memory itself')
@pytest.mark.engine('memory', 'data on disk is not evicted')
def test_maxmemory_is_kept(server_factory, raw):
    s = server_factory(*THREADS, '--maxmemory', '30mb', '--maxmemory-policy', 'allkeys-lru', '--appendonly', 'no')

    def fill(i):
        with Raw(s.port) as c:
            for j in range(400):
                assert c.call('SET', f'k{i}:{j}', b'v' * (50 << 10)) == b'OK'

    at_once(*[lambda i=i: fill(i) for i in range(3)])
    c = raw(s.port)
    assert used(c) < 34 << 20
    assert c.call('DBSIZE') > 300


# -- closing, at any moment ----------------------------------------------------------------

def churn(port, seed, ends):
    """A client without manners: it connects, sends anything in any pieces, and leaves, or is sent away."""
    rng = random.Random(seed)
    while not ends.is_set():
        try:
            with Raw(port) as c:
                for _ in range(rng.randrange(1, 12)):
                    what = rng.randrange(8)
                    if what == 0:
                        c.send(encode('CLIENT', 'KILL', 'ID', rng.randrange(1, 400)))
                    elif what == 1:
                        c.send(encode('SET', f'big{seed}', b'z' * rng.choice((20 << 10, 600 << 10))) +
                               encode('GET', f'big{seed}') * rng.randrange(4))
                    elif what == 2:
                        c.send(encode('GET', f'big{seed}') * 3)
                        break                           # leaves without reading
                    elif what == 3:
                        c.send(encode('SUBSCRIBE', 'churn') + b'*1\r\n$4\r\nPI')
                        break                           # leaves within a request
                    elif what == 4:
                        c.send(encode('BLPOP', 'nothing', 0))
                        break
                    elif what == 5:
                        c.send(b'*1\r\n$3\r\nBAD!\r\n')
                        break                           # protocol error
                    elif what == 6:
                        c.send(encode('PUBLISH', 'churn', 'm' * 2000) + encode('QUIT'))
                        break
                    else:
                        c.send(encode('INCR', 'n') * rng.randrange(1, 100))
                        c.reply()
        except (OSError, AssertionError) as e:          # killed: the connection ends in the middle
            if isinstance(e, AssertionError) and 'the connection ended' not in str(e):
                raise


def with_churn(server, task, clients=5):
    ends = threading.Event()

    def whole():
        try:
            task()
        finally:
            ends.set()

    at_once(whole, *[lambda i=i: churn(server.port, i, ends) for i in range(clients)])


def test_clients_come_and_go(server_factory):
    s = server_factory(*THREADS, '--appendonly', 'no')

    def proper():
        count = 0
        while count < SOME:
            with Raw(s.port) as c:
                try:
                    for _ in range(50):
                        depth = 20
                        c.send(encode('ECHO', 'same') * depth)
                        assert [c.reply() for _ in range(depth)] == [b'same'] * depth
                        count += 1
                except (OSError, AssertionError) as e:
                    if isinstance(e, AssertionError) and 'the connection ended' not in str(e):
                        raise

    with_churn(s, proper)
    with Raw(s.port) as c:
        assert c.call('PING') == b'PONG'
        eventually(lambda: b'connected_clients:1\r\n' in c.call('INFO', 'clients'))
    eventually(lambda: sum(n for n, _, _ in figures(s)) == 1)       # the connection above, too, has been seen to end


@pytest.mark.parametrize('how', ['SHUTDOWN', signal.SIGTERM, signal.SIGKILL])
def test_it_may_end_at_any_moment(server_factory, how):
    for round_ in range(2 if sanitized() else 4):
        s = server_factory(*THREADS, '--appendonly', 'no')
        pause = random.Random(round_).random() / 2

        def end(s=s, pause=pause):
            time.sleep(pause)
            if how == 'SHUTDOWN':
                try:
                    while True:
                        with Raw(s.port) as c:
                            c.send(encode('SHUTDOWN', 'NOSAVE')).rest()
                        if s.proc.poll() is not None:
                            break
                except OSError:
                    pass
            else:
                s.proc.send_signal(how)
            assert s.proc.wait(60) == (-how if how == signal.SIGKILL else 0), s.log

        with_churn(s, end)
        s.check()


def test_what_was_answered_is_there_after_a_kill(server_factory):
    """Replies are not handed to the threads before what they say is in the AOF."""
    s = server_factory(*THREADS, '--appendonly', 'yes', '--appendfsync', 'always')
    answered, ends = [0] * 4, threading.Event()

    def client(i):
        try:
            with Raw(s.port) as c:
                while not ends.is_set():
                    c.send(encode('INCR', f'n{i}') * 3)
                    for _ in range(3):
                        answered[i] = c.reply()
        except (OSError, AssertionError):
            pass

    def kill():
        eventually(lambda: min(answered) > 20)
        s.proc.send_signal(signal.SIGKILL)
        s.proc.wait()
        ends.set()

    at_once(kill, *[lambda i=i: client(i) for i in range(4)])
    s.start()
    with Raw(s.port) as c:
        for i, n in enumerate(answered):
            assert int(c.call('GET', f'n{i}')) >= n


# -- TLS -----------------------------------------------------------------------------------

def test_tls(server_factory, certs):            # noqa: F811
    port = free_port()
    s = server_factory(*THREADS, *options(certs, port))

    class Secure(Raw):
        def __init__(self):
            super().__init__(port)
            self.sock = context(certs).wrap_socket(self.sock, server_hostname='localhost')
            self.file = self.sock.makefile('rb')

    def client(name):
        for _ in range(3):
            with Secure() as c:
                for n in (1, 100, 20 << 10, 1 << 20):
                    value = bytes([97 + name]) * n
                    c.send(encode('SET', f'k{name}', value) + encode('GET', f'k{name}') * 3)
                    assert [c.reply() for _ in range(4)] == [b'OK', *[value] * 3]
                for i in range(SOME // 30):
                    assert c.call('ECHO', i) == str(i).encode()

    def plain():
        for _ in range(SOME // 30):                     # no handshake
            with Raw(port) as c:
                assert c.try_send(encode('PING')).sock.recv(100) != b'+PONG\r\n'

    def guarded():
        try:
            plain()
        except ConnectionResetError:
            pass

    at_once(guarded, *[lambda n=n: client(n) for n in range(4)])
    with Secure() as c, Raw(s.port) as plainly:
        assert c.call('PING') == plainly.call('PING') == b'PONG'


def test_input_after_others_have_left(server_factory, raw):
    """The last reads of a thread found only ends of connections; then memory that was not needed lately is freed."""
    s = server_factory(*THREADS, '--hz', '100')
    other, here, leaves = raw(s.port), raw(s.port), [raw(s.port) for _ in range(4)]
    value = os.urandom(60 << 10)

    def uptime():
        return int(re.search(rb'uptime_in_seconds:(\d+)', other.call('INFO', 'server')).group(1))

    for c in [here, *leaves]:
        assert c.call('PING') == b'PONG'
    for c in leaves:
        c.close()
    eventually(lambda: b'connected_clients:2\r\n' in other.call('INFO', 'clients'))
    begin = uptime()
    eventually(lambda: uptime() >= begin + 3)
    for i in range(10):
        assert other.call('SET', f'k{i}', value) == b'OK'
    here.send(encode('ECHO', 'y' * 100) * 100)
    assert [here.reply() for _ in range(100)] == [b'y' * 100] * 100
    assert all(other.call('GET', f'k{i}') == value for i in range(10))


def test_errors_of_the_protocol(server_factory, raw):
    s = server_factory(*THREADS)
    for _ in range(20):
        c = raw(s.port)
        assert c.send(b'*1\r\n$4\r\nPING\r\n*1\r\n$-9\r\n').reply() == b'PONG'
        error = c.reply()
        assert isinstance(error, ReplyError) and 'Protocol error' in error
        assert c.closed()
