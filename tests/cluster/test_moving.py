"""Keys move between a cluster and redis-server: MIGRATE in both directions, and redis-cli --cluster import."""
import contextlib
import signal
import socket
import subprocess
import threading

import pytest
import redis
from nodes import Cluster, Stopped, bytes_client, eventually, process_state

import everything       # of tests/server, which nodes has found
import redis_server

pytestmark = redis_server.needed


@pytest.fixture(scope='module')
def trio():
    with Cluster(3, ('--cluster-node-timeout', '2000')) as c:
        yield c


@pytest.fixture
def leader(trio):
    with trio.leader().client() as c:
        c.flushall()
        yield c


@pytest.fixture
def other(request):
    server = redis_server.Redis(*getattr(request, 'param', ()))
    with server.client() as c:
        yield server, c
    server.remove()


def to(server):
    return 'MIGRATE', '127.0.0.1', server.port


def test_a_key_and_several_of_a_slot(trio, leader, other):
    server, there = other
    leader.set('k', 'v', pxat=9999999999999)
    leader.mset({'{t}a': '1', '{t}b': '2', '{t}c': '3'})
    assert leader.execute_command(*to(server), 'k', 3, 5000) == 'OK'
    assert leader.execute_command(*to(server), '', 0, 5000, 'COPY', 'KEYS', '{t}a', '{t}b') == 'OK'
    with pytest.raises(redis.ResponseError, match='BUSYKEY'):
        leader.execute_command(*to(server), '', 0, 5000, 'KEYS', '{t}a', '{t}c')
    assert leader.mget('{t}a', '{t}b', '{t}c') == ['1', '2', None]
    assert leader.execute_command(*to(server), '', 0, 5000, 'REPLACE', 'KEYS', '{t}a', '{t}b') == 'OK'
    assert leader.execute_command(*to(server), 'none', 0, 5000) == 'NOKEY'
    with pytest.raises(redis.ResponseError, match='CROSSSLOT'):
        leader.execute_command(*to(server), '', 0, 5000, 'KEYS', 'k1', 'k2')
    assert there.mget('{t}a', '{t}b', '{t}c') == [b'1', b'2', b'3']
    there.execute_command('SELECT', 3)
    assert there.get('k') == b'v' and there.pexpiretime('k') == 9999999999999
    trio.settled(3)
    for n in trio.nodes:
        with n.client() as c:
            eventually(lambda c=c: c.dbsize() == 0)


@pytest.mark.parametrize('other', [('--requirepass', 'secret', '--user', 'ann', 'on', '>pw', 'allkeys', 'allcommands')],
                         indirect=True)
def test_passwords(leader, other):
    server, there = other
    there.auth('secret')
    leader.mset({'{t}a': '1', '{t}b': '2'})
    for wrong in ([], ['AUTH', 'no'], ['AUTH2', 'ann', 'no']):
        with pytest.raises(redis.RedisError):
            leader.execute_command(*to(server), '{t}a', 0, 5000, *wrong)
    assert leader.execute_command(*to(server), '{t}a', 0, 5000, 'AUTH', 'secret') == 'OK'
    assert leader.execute_command(*to(server), '{t}b', 0, 5000, 'AUTH2', 'ann', 'pw') == 'OK'
    assert there.mget('{t}a', '{t}b') == [b'1', b'2'] and leader.dbsize() == 0


def test_a_follower_sends_clients_to_the_leader(trio, leader, other):
    leader.set('k', 'v')
    with trio.followers()[0].client() as c, pytest.raises(redis.ResponseError, match='MOVED|moved|12706'):
        c.execute_command(*to(other[0]), 'k', 0, 5000)
    assert leader.get('k') == 'v'


def test_every_type_there_and_back(trio, leader, other):
    """To redis-server and to the leader again; a follower is no target."""
    server, there = other
    for command in (*everything.strings(), *everything.collections(), *everything.streams()):
        leader.execute_command(*command)
    before = digests(leader)
    for key in before:
        assert leader.execute_command(*to(server), key, 0, 20000) == 'OK'
    assert leader.dbsize() == 0 and there.dbsize() == len(before)
    with pytest.raises(redis.ResponseError, match='Target instance replied with error: MOVED'):
        there.execute_command(*to(trio.followers()[0]), 'int:1', 0, 5000)
    keys = there.keys('*')
    assert there.execute_command(*to(trio.leader()), '', 0, 20000, 'KEYS', *keys) == b'OK'
    assert there.dbsize() == 0 and digests(leader) == before


def digests(leader):
    with contextlib.closing(bytes_client(leader)) as c:
        return {key: c.execute_command('DEBUG', 'DIGEST-VALUE', key) for key in c.scan_iter(count=1000)}


def test_asking(trio, leader):
    """What a node of Redis Cluster sends to another: RESTORE-ASKING, and ASKING before a command."""
    leader.set('k', 'v')
    with contextlib.closing(redis.Redis(port=trio.leader().port)) as raw:
        dumped = raw.dump('k')
        assert raw.execute_command('RESTORE-ASKING', 'k2', 0, dumped) in (b'OK', True) and raw.get('k2') == b'v'
        assert raw.execute_command('ASKING') in (b'OK', True) and raw.get('k') == b'v'
    with contextlib.closing(redis.Redis(port=trio.followers()[0].port)) as raw:
        raw.execute_command('ASKING')
        with pytest.raises(redis.ResponseError, match='.'):
            raw.get('k')


class Slow:
    """Passes bytes on to a server, but the replies only when told to."""

    def __init__(self, port):
        self.port, self.let = port, threading.Event()
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.own = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        near, _ = self.listener.accept()
        far = socket.create_connection(('127.0.0.1', self.port))
        threading.Thread(target=self.copy, args=(near, far), daemon=True).start()
        greeted = False
        while data := far.recv(1 << 16):
            if greeted:
                self.let.wait(60)
            greeted = True
            near.sendall(data)

    @staticmethod
    def copy(source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)

    def close(self):
        self.let.set()
        self.listener.close()


@pytest.fixture
def slow(other):
    s = Slow(other[0].port)
    yield s
    s.close()


def answer_later(node, *command):
    """Sends a command; a function that returns the reply, or the error."""
    got = []

    def run():
        with node.client(socket_timeout=60) as c:
            try:
                got.append(c.execute_command(*command))
            except redis.RedisError as e:
                got.append(str(e))
    thread = threading.Thread(target=run)
    thread.start()
    return lambda: (thread.join(60), got[0])[1]


def test_a_key_stays_if_leadership_was_elsewhere_meanwhile(trio, leader, other, slow):
    """Another leader has changed the key, and this one leads again when the target answers."""
    node, successor = trio.leader(), trio.followers()[0]
    leader.set('k', 'old')
    answer = answer_later(node, 'MIGRATE', '127.0.0.1', slow.own, 'k', 0, 30000)
    eventually(lambda: other[1].get('k') == b'old')
    move(trio, successor)
    with successor.client() as c:
        assert c.set('k', 'new')
    move(trio, node)
    slow.let.set()
    assert 'was changed while it was migrated' in answer()
    assert trio.try_all('GET', 'k') == 'new' and other[1].get('k') == b'old'


def test_a_key_stays_if_another_node_leads(trio, leader, other, slow):
    node, successor = trio.leader(), trio.followers()[0]
    leader.set('k', 'v')
    answer = answer_later(node, 'MIGRATE', '127.0.0.1', slow.own, 'k', 0, 30000)
    eventually(lambda: other[1].get('k') == b'v')
    move(trio, successor)
    slow.let.set()
    assert f'127.0.0.1:{successor.port}' in answer() or 'MOVED' in answer() or answer().startswith('12706')
    assert trio.try_all('GET', 'k') == 'v'
    with successor.client() as c:
        assert c.execute_command(*to(other[0]), 'k', 0, 5000, 'REPLACE') == 'OK'
    assert trio.try_all('EXISTS', 'k') == 0


def test_a_value_that_was_never_committed_replaces_none(trio, leader, other, slow):
    """The leader sends the target what a client has just written, and no majority gets: the other nodes go on without it."""
    node = trio.leader()
    leader.set('k', 'old')
    with contextlib.ExitStack() as clients:
        writer, mover = (clients.enter_context(socket.create_connection(node.address)) for _ in range(2))
        followers = trio.followers()
        with Stopped(node):     # so that both are in one turn of the loop
            eventually(lambda: process_state(node.proc.pid) == 'T')
            for n in followers:
                n.kill()
            writer.sendall(b'SET k new\r\n')
            mover.sendall(b'MIGRATE 127.0.0.1 %d k 0 60000\r\n' % slow.own)
        eventually(lambda: other[1].get('k') == b'new')
        node.proc.send_signal(signal.SIGSTOP)
        try:
            for n in followers:
                n.start()
            rest = eventually(lambda: [n for n in trio.nodes if n is not node and n.leads()], 60)[0]
            with rest.client() as c:
                assert c.get('k') == 'old' and c.set('other', '1')
        finally:
            node.proc.send_signal(signal.SIGCONT)
        assert writer.recv(100).startswith((b'-UNCERTAIN', b'-MOVED'))
        move(trio, node)
        slow.let.set()
        answer = mover.recv(1000)
    assert b'was changed while it was migrated' in answer, answer
    assert trio.try_all('GET', 'k') == 'old'


def move(trio, node):
    def asked():
        with contextlib.suppress(redis.RedisError), node.client() as c:
            c.execute_command('CLUSTER', 'FAILOVER')
        return node.leads()
    eventually(asked, 60, 0.2)
    trio.settled(3)


@pytest.mark.parametrize('mode', [['--cluster-copy'], ['--cluster-replace'], ['--cluster-copy', '--cluster-replace']])
def test_redis_cli_imports(trio, leader, other, mode):
    server, there = other
    for i in range(300):
        there.set(f'k{i}', i, px=10_000_000 + i)
    there.hset('h', mapping={f'f{i}': i for i in range(300)})
    if '--cluster-replace' in mode:
        leader.set('k7', 'before')
    done = subprocess.run(['redis-cli', '--cluster', 'import', f'127.0.0.1:{trio.followers()[0].port}', '--cluster-from',
                           f'127.0.0.1:{server.port}', *mode], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert there.dbsize() == (301 if '--cluster-copy' in mode else 0)
    assert leader.dbsize() == 301 and leader.get('k7') == '7' and leader.hlen('h') == 300
    assert 9_000_000 < leader.pttl('k299') <= 10_000_299
