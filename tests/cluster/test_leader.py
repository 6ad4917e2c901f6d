"""A leader replies only after a majority has the data."""
import select
import signal
import socket

import pytest
import redis
from nodes import Cluster, Node, Stopped, eventually, in_one_of, process_state

LIBRARY = "#!lua name=%s\nredis.register_function('f_%s', function() return 1 end)"


@pytest.fixture(scope='module')
def trio():
    with Cluster(3, ('--cluster-node-timeout', '5000')) as c:
        yield c


@pytest.fixture
def leader(trio):
    with trio.leader().client() as c:
        c.flushall()
        yield c


def send(node, *command):
    """Sends a command by a connection of its own."""
    s = socket.create_connection(('127.0.0.1', node.port))
    s.sendall(b'*%d\r\n' % len(command) + b''.join(b'$%d\r\n%s\r\n' % (len(a), a) for a in map(str.encode, command)))
    return s


@pytest.mark.parametrize('command', [
    'SET k v', 'GET k', 'XGROUP CREATE x g $ MKSTREAM', 'XGROUP CREATECONSUMER s g c', 'XINFO STREAM s', 'OBJECT ENCODING k',
    'MEMORY USAGE k', 'FUNCTION FLUSH', 'EXPIRE k 100', 'EVAL return(redis.call("GET","k")) 0', 'DEBUG POPULATE 3',
    'SPOP set', 'DBSIZE', 'BLPOP list 100', 'SORT set ALPHA STORE sorted', 'WATCH k',
])
def test_no_answer_without_a_majority(trio, leader, command):
    leader.set('k', 'v')
    leader.sadd('set', 'a', 'b', 'c')
    leader.rpush('list', 'x')
    leader.execute_command('XGROUP', 'CREATE', 's', 'g', '$', 'MKSTREAM')
    node = trio.leader()
    with Stopped(*trio.followers()):
        with send(node, *command.split()) as s:
            s.settimeout(0.3)
            with pytest.raises(TimeoutError):
                s.recv(1)
            s.settimeout(60)
    trio.settled(3)


def test_what_asks_no_data_is_answered(trio, leader):
    node = trio.leader()
    leader.set('k', 'v')
    with Stopped(*trio.followers()), send(node, 'SET', 'k', 'w'):
        for command in ('PING', 'CLIENT ID', 'CONFIG GET port', 'CLUSTER INFO', 'INFO server', 'DEBUG DIGEST'):
            assert leader.execute_command(*command.split()), command
    trio.settled(3)


def test_a_function_that_was_not_committed_is_not_there(trio, leader):
    leader.function_flush()
    with Stopped(*trio.followers()), send(trio.leader(), 'FUNCTION', 'LOAD', LIBRARY % ('a', 'a')) as s:
        answer = s.recv(100)
        assert answer.startswith((b'-UNCERTAIN', b'-CLUSTERDOWN', b'-TRYAGAIN')), answer
    trio.settled(3)


def test_a_client_that_sends_all_and_waits(trio, leader):
    """As `printf … | nc` does: the end of its input is no reason to leave it without replies."""
    for _ in range(20):
        with send(trio.leader(), 'SET', 'k', 'v') as s:
            s.sendall(b'GET k\r\nRPUSH l 1\r\nPING\r\n')
            s.shutdown(socket.SHUT_WR)
            s.settimeout(60)
            assert b''.join(iter(lambda s=s: s.recv(100), b'')) == b'+OK\r\n$1\r\nv\r\n:1\r\n+PONG\r\n'
        leader.delete('l')


def test_what_comes_during_a_commit_is_the_next_entry(trio, leader):
    """Of all connections, in the order they came; also what a connection sends after its first request."""
    def waiting(s):
        address = '%s:%d' % s.getsockname()
        return next(int(c['qbuf']) for c in leader.client_list() if c['addr'] == address)
    node, followers = trio.leader(), trio.followers()
    trio.settled(3)
    before = int(node.region()['last'])
    with Stopped(*followers), send(node, 'RPUSH', 'l', 'first'):
        eventually(lambda: int(node.region()['last']) == before + 1)
        with send(node, 'RPUSH', 'l', 'a1') as a:
            eventually(lambda: waiting(a))
            with send(node, 'RPUSH', 'l', 'b1') as b:
                for i in range(2, 30):      # each in a packet of its own
                    s, name = (a, 'a') if i % 2 else (b, 'b')
                    eventually(lambda s=s: waiting(s))
                    held = waiting(s)
                    s.sendall(f'RPUSH l {name}{i}\r\n'.encode())
                    eventually(lambda s=s, held=held: waiting(s) > held)
                for n in followers:
                    n.proc.send_signal(signal.SIGCONT)
                eventually(lambda: leader.llen('l') == 31)
    assert leader.lrange('l', 0, -1) == ['first', 'a1', *(f'a{i}' for i in range(3, 30, 2)), 'b1', *(f'b{i}' for i in range(2, 30, 2))]
    assert int(node.region()['last']) == before + 2
    trio.settled(3)


def test_an_endless_script_keeps_nobody_else_waiting(trio, leader):
    """Requests that came with it, before or after, are answered unless they need data; and it can be killed."""
    node = trio.leader()
    leader.config_set('busy-reply-threshold', 50)
    with Stopped(node):
        eventually(lambda: process_state(node.proc.pid) == 'T')
        early, script, late = send(node, 'PING'), send(node, 'EVAL', 'while true do end', '0'), send(node, 'PING')
    with early, script, late:
        for s in early, late:
            s.settimeout(60)
            assert s.recv(100).startswith((b'+PONG', b'-BUSY'))
        with node.client() as c:
            eventually(lambda: c.execute_command('SCRIPT', 'KILL'))
        script.settimeout(60)
        assert b'Script killed by user' in script.recv(300)
    leader.set('k', 'v')
    trio.settled(3)


def config_set(trio, name, value):
    for node in trio.nodes:
        with node.client() as c:
            c.config_set(name, value)


LONG = "local from = os.clock() while os.clock() - from < %s do end return redis.call('SET', KEYS[1], ARGV[1])"


def test_a_long_script_keeps_its_leadership(trio, leader):
    """Below busy-reply-threshold. A machine that stops the nodes for so long may take it all the same."""
    def attempt():
        node = trio.leader()
        term = node.region()['term']
        with node.client(socket_timeout=60) as c:
            try:
                reply = c.eval(LONG % 2.5, 1, 'k', 'v')
            except redis.ResponseError as e:
                reply = str(e)
        assert reply == 'OK' and node.leads() and node.region()['term'] == term

    config_set(trio, 'cluster-node-timeout', 500)
    config_set(trio, 'busy-reply-threshold', 30000)
    try:
        in_one_of(4, attempt)
    finally:
        config_set(trio, 'cluster-node-timeout', 5000)
        config_set(trio, 'busy-reply-threshold', 5000)
    trio.settled(3)


def test_a_script_that_takes_too_long_loses_its_leadership(trio, leader):
    node = trio.leader()
    config_set(trio, 'cluster-node-timeout', 500)
    leader.config_set('busy-reply-threshold', 100)
    try:
        with send(node, 'EVAL', 'while true do end', '0') as script:
            eventually(lambda: any(n.leads() for n in trio.nodes if n is not node))
            with node.client() as c:
                c.execute_command('SCRIPT', 'KILL')
            script.settimeout(60)
            assert script.recv(300).startswith(b'-')
    finally:
        config_set(trio, 'cluster-node-timeout', 5000)
        config_set(trio, 'busy-reply-threshold', 5000)
    trio.settled(3)


def test_scripts_stay_in_database_0(trio, leader):
    leader.set('k', 'v')
    for call in ("'MOVE', 'k', 1", "'SWAPDB', 0, 1", "'COPY', 'k', 'k', 'DB', 1", "'SELECT', 1"):
        assert 'cluster mode' in leader.eval(f"return redis.pcall({call}).err", 1, 'k')
    with leader.pipeline() as p:
        p.set('{k}2', 'w')
        p.execute_command('MOVE', 'k', 1)
        replies = p.execute(raise_on_error=False)
        assert replies[0] is True and 'MOVE is not allowed in cluster mode' in str(replies[1])
    trio.settled(3)
    assert len({c.execute_command('DEBUG', 'DIGEST') for c in (n.client() for n in trio.nodes)}) == 1


def test_a_filled_server_is_filled_everywhere(trio, leader):
    assert leader.execute_command('DEBUG', 'POPULATE', 50, 'p', 10) == 'OK'
    trio.settled(3)
    for n in trio.nodes:
        with n.client() as c:
            assert c.dbsize() == 50
    with trio.followers()[0].client() as c, pytest.raises(redis.ResponseError, match='read only'):
        c.execute_command('DEBUG', 'POPULATE', 1, 'q')
    with pytest.raises(redis.ResponseError, match='cluster mode'):
        leader.execute_command('DEBUG', 'RELOAD')


def test_no_replicas_of_the_other_kind(trio, tmp_path):
    with trio.leader().client() as c:
        for command in ('PSYNC ? -1', 'SYNC', 'REPLICAOF 127.0.0.1 1'):
            with pytest.raises(redis.ResponseError, match='cluster'):
                c.execute_command(*command.split())
    node = Node(str(tmp_path / 'n'), ['--replicaof', f'127.0.0.1 {trio.nodes[0].port}'])
    node.start('--cluster-init', 'yes')
    assert node.proc.wait(60) == 1
    assert 'replicaof is not allowed in cluster mode' in node.logged()


def has_input(s):
    return bool(select.select([s], [], [], 0)[0])


def test_a_message_does_not_release_a_write_that_waits():
    """It comes from another node, between two ticks, to a client whose reply waits for a quorum."""
    with Cluster(4, ('--cluster-node-timeout', '5000', '--cluster-balance', 'no'), replicas=3) as cluster:
        leader = cluster.leader()
        outside = next(n for n in cluster.nodes if 1 not in n.regions())
        with leader.client() as c, outside.client() as publisher, send(leader, 'HELLO', '3') as s:
            listener = c.pubsub()
            listener.subscribe('ch')
            assert listener.get_message(timeout=10)['type'] == 'subscribe'
            s.settimeout(20)
            s.sendall(b'SUBSCRIBE ch\r\n')
            got = b''
            while not got.endswith(b'ch\r\n:1\r\n'):
                got += s.recv(4096)
            with Stopped(*(n for n in cluster.nodes if n not in (leader, outside))):
                s.sendall(b'SET k v\r\n')
                eventually(lambda: any(client['cmd'] == 'set' for client in c.client_list()))
                publisher.publish('ch', 'news')
                assert listener.get_message(timeout=10)['data'] == 'news'
                assert not has_input(s), s.recv(4096)
            got = b''
            while b'news' not in got:
                got += s.recv(4096)
        assert got.startswith(b'+OK') and got.index(b'+OK') < got.index(b'news'), got
