"""redis-cli as a replica, FAILOVER, and peers that do not keep to the protocol."""
import signal
import socket
import subprocess
import threading

import pytest

import everything
from datasets import same
from mayfly import Raw, ReplyError, encode, eventually
from nodes import linked, online, wait_synced
from redis_server import check_rdb
from traffic import Traffic


def test_cli_rdb(kind, node, tmp_path, seed):
    primary = node(kind)
    Traffic(primary, seed).some(2000)
    path = tmp_path / 'dump.rdb'
    subprocess.run(['redis-cli', '-p', str(primary.port), '--rdb', path], check=True, capture_output=True, timeout=60)
    check_rdb(path)
    copy = node('redis', '--dir', tmp_path)
    same(primary, copy)


def test_cli_replica(kind, node):
    primary = node(kind)
    with subprocess.Popen(['redis-cli', '-p', str(primary.port), '--replica'], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as cli:
        try:
            eventually(lambda: online(primary))
            primary.call('SET', 'a', 'to be seen')
            lines = iter(cli.stdout.readline, b'')
            assert any(b'to be seen' in line for line in lines)
        finally:
            cli.kill()


def test_failover(pair, node, seed):
    primary, replica = map(node, pair)
    replica.follow(primary)
    Traffic(primary, seed).some(1000)
    eventually(lambda: linked(replica))
    assert primary.call('FAILOVER') == b'OK'
    eventually(lambda: replica.call('ROLE')[0] == b'master' and primary.call('ROLE')[0] == b'slave')
    wait_synced(replica, primary)
    replica.call('SET', 'after', 1)
    wait_synced(replica, primary)
    same(replica, primary)
    assert replica.stat('sync_full') == 0


def test_failover_before_any_write(pair, node):
    primary, replica = (node(kind, '--repl-ping-replica-period', 1000) for kind in pair)
    replica.follow(primary)
    wait_synced(primary, replica)
    assert primary.call('FAILOVER') == b'OK'
    eventually(lambda: primary.fields()['master_failover_state'] == 'no-failover')
    assert primary.call('ROLE')[0] == b'slave' and replica.call('ROLE')[0] == b'master'
    replica.call('SET', 'after', 1)
    wait_synced(replica, primary)
    same(replica, primary)
    assert replica.stat('sync_full') == 0


def test_failover_asks_for_no_more(kind, node):
    """One that has acknowledged everything needs to say nothing more; and who writes meanwhile hears at once that
    we are no primary any more."""
    primary, replica = node(kind, '--repl-ping-replica-period', 1000), node('redis')
    replica.follow(primary)
    wait_synced(primary, replica)
    primary.call('SET', 'a', 1)
    eventually(lambda: f'offset={primary.offset},' in primary.fields()['slave0'])
    replica.proc.send_signal(signal.SIGSTOP)
    try:
        assert primary.call('FAILOVER') == b'OK'
        eventually(lambda: primary.fields()['master_failover_state'] == 'failover-in-progress')
        assert primary.ask('SET', 'a', 2) == ReplyError("READONLY You can't write against a read only replica.")
        assert primary.call('GET', 'a') == b'1'
    finally:
        replica.proc.send_signal(signal.SIGCONT)
    eventually(lambda: replica.call('ROLE')[0] == b'master')
    wait_synced(replica, primary)


# -- a primary that does not keep to the protocol -----------------------------------------------------------

FULL = b'+FULLRESYNC ' + b'a' * 40 + b' 1\r\n'
EMPTY = bytes.fromhex('524544495330303130fa0972656469732d76657205372e302e3135fff4e50afb6c6a62e8')
STREAM = b'$%d\r\n%s' % (len(EMPTY), EMPTY)
BAD = {
    'no protocol at all': lambda word: b'GET / HTTP/1.1\r\n\r\n',
    'a line without end': lambda word: b'+' + b'x' * 200_000 if word == 'PING' else None,
    'bad reply to PSYNC': lambda word: b'+WHATEVER\r\n' if word == 'PSYNC' else b'+OK\r\n',
    'bad id': lambda word: b'+FULLRESYNC short 1\r\n' if word == 'PSYNC' else b'+OK\r\n',
    'bad length': lambda word: FULL + b'$-5\r\n' if word == 'PSYNC' else b'+OK\r\n',
    'vast length': lambda word: FULL + b'$99999999999999999999\r\n' if word == 'PSYNC' else b'+OK\r\n',
    'no RDB': lambda word: FULL + b'$10\r\n0123456789' if word == 'PSYNC' else b'+OK\r\n',
    'half an RDB': lambda word: FULL + b'$40\r\n' + EMPTY[:36] + b'zzzz' if word == 'PSYNC' else b'+OK\r\n',
    'bad EOF mark': lambda word: FULL + b'$EOF:short\r\n' + EMPTY if word == 'PSYNC' else b'+OK\r\n',
    'bad stream': lambda word: FULL + STREAM + b'*x\r\n' if word == 'PSYNC' else b'+OK\r\n',
    'vast command': lambda word: FULL + STREAM + b'*2147483647\r\n' if word == 'PSYNC' else b'+OK\r\n',
    'vast argument': lambda word: FULL + STREAM + b'*1\r\n$99999999999\r\n' if word == 'PSYNC' else b'+OK\r\n',
    'continue, uncalled for': lambda word: b'+CONTINUE\r\n' if word == 'PSYNC' else b'+OK\r\n',
}


class BadPrimary:
    """Sends the same wrong reply to every connection."""

    def __init__(self, says):
        self.says, self.visits, self.ended = says, 0, 0
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                peer = self.listener.accept()[0]
            except OSError:
                return
            self.visits += 1
            peer.settimeout(20)
            try:
                self.talk(peer)
            except OSError:
                pass
            self.ended += 1
            peer.close()

    def talk(self, peer):
        f = peer.makefile('rb')
        while line := f.readline():
            words = [line]
            if line[:1] == b'*':
                words = [f.read(int(f.readline()[1:]) + 2)[:-2] for _ in range(int(line[1:]))]
            word = words[0].decode('latin-1').strip().upper()
            reply = self.says(word)
            if reply is None:
                reply = b'+PONG\r\n' if word == 'PING' else b'+OK\r\n'
            peer.sendall(reply)

    def close(self):
        self.listener.shutdown(2)
        self.listener.close()


@pytest.mark.parametrize('what', BAD, ids=lambda w: w.replace(' ', '-'))
def test_bad_primary(kind, what, node):
    """The link ends, and is tried again; the replica lives, and follows a good one afterwards."""
    if kind == 'redis':
        pytest.skip('not all of this is good for Redis')
    replica, good = node(kind), node('redis')
    bad = BadPrimary(BAD[what])
    good.call('SET', 'a', 1)
    replica.follow(bad)
    eventually(lambda: bad.ended >= 1)
    assert replica.call('PING') == b'PONG' and not linked(replica)
    replica.follow(good)
    wait_synced(good, replica)
    same(good, replica)
    bad.close()


# -- a replica that does not ----------------------------------------------------------------------------------

@pytest.mark.parametrize('says', [
    [('PSYNC', '?', '-1', 'x')], [('PSYNC', 'x', 'y')], [('PSYNC', 'a' * 40, 2**63)], [('PSYNC', 'a' * 40, -5)],
    [('REPLCONF', 'capa')], [('REPLCONF', 'nonsense', 1)], [('REPLCONF', 'listening-port', 'x')],
    [('REPLCONF', 'ACK', 'x')], [('REPLCONF', 'ACK', 2**63)], [('REPLCONF', 'GETACK', '*')], [('SYNC',)],
    [('PSYNC', '?', -1), ('PSYNC', '?', -1)], [('PSYNC', '?', -1), ('SET', 'a', 2)], [('SYNC',), ('GET', 'a')],
    [('PSYNC', '?', -1), ('REPLCONF', 'ACK', 2**62)], [('PSYNC', '?', -1), ('CLIENT', 'KILL', 'TYPE', 'replica')],
], ids=lambda says: '-'.join(str(w) for c in says for w in c)[:60])
def test_bad_replica(kind, says, node):
    primary, good = node(kind), node('redis')
    good.follow(primary)
    wait_synced(primary, good)
    primary.call('SET', 'a', 1)
    with Raw(primary.port) as c:
        c.send(b''.join(encode(*command) for command in says))
        c.sock.settimeout(0.3)
        try:
            while c.sock.recv(65536):
                pass
        except OSError:
            pass
    assert primary.call('GET', 'a') == b'1'
    eventually(lambda: primary.fields()['connected_slaves'] == '1')
    wait_synced(primary, good)
    with Raw(primary.port) as c:
        everything.run(c, [('SET', 'b', 2)])
    wait_synced(primary, good)
    same(primary, good)
