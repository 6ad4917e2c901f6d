"""PUBLISH reaches the subscribers of replicas, of whatever kind, and no file."""
import glob

from datasets import same
from nodes import wait_synced


def subscribe(n):
    c = n.raw()
    c.call('SUBSCRIBE', 'news')
    c.call('PSUBSCRIBE', 'n*')
    c.call('SSUBSCRIBE', 'shard')
    return c


def expect(clients):
    for c in clients:
        assert [c.reply() for _ in range(6)] == [
            [b'message', b'news', b'alone'], [b'pmessage', b'n*', b'news', b'alone'], [b'smessage', b'shard', b'1'],
            [b'message', b'news', b'within'], [b'pmessage', b'n*', b'news', b'within'], [b'message', b'news', b'db 3']]
        assert c.reply() == [b'pmessage', b'n*', b'news', b'db 3']


def publish(n):
    with n.raw() as c:
        assert c.call('PUBLISH', 'news', 'alone') == 2
        assert c.call('SPUBLISH', 'shard', '1') == 1
        for command in (['MULTI'], ['SET', 'k', 'v'], ['PUBLISH', 'news', 'within'], ['INCR', 'n'], ['EXEC']):
            c.call(*command)
        c.call('SELECT', '3')
        assert c.call('PUBLISH', 'news', 'db 3') == 2
        c.call('SET', 'in db 3', 'v')
        c.call('SELECT', '0')
        c.call('PUBLISH', 'unheard', 'of')
        assert c.call('WAIT', '1', '20000') == 1
        assert c.call('GET', 'k') == b'v'


def test_messages(chain, node):
    a = node(chain[0], '--appendonly', 'no' if chain[0] == 'rocks' else 'yes')
    b = node(chain[1], '--replicaof', f'127.0.0.1 {a.port}')
    c = node(chain[2], '--replicaof', f'127.0.0.1 {b.port}')
    wait_synced(a, b, c)
    clients = [subscribe(n) for n in (a, b, c)]
    publish(a)
    expect(clients)
    wait_synced(a, b, c)
    same(a, b, c)
    with b.raw() as local:                              # what a replica's client publishes stays there
        assert local.call('PUBLISH', 'news', 'local') == 2
    assert clients[1].reply() == [b'message', b'news', b'local']
    assert clients[0].silent(0.05) and clients[2].silent(0.05)
    for client in clients:
        client.close()


def test_files(node):
    """What is published stands in the AOF only within a transaction, and is nothing when it is read again."""
    n = node('memory', '--appendonly', 'yes')
    m = node('memory', '--replicaof', f'127.0.0.1 {n.port}', '--appendonly', 'yes')
    wait_synced(n, m)
    subscriber = subscribe(n)
    publish(n)
    expect([subscriber])
    subscriber.close()
    wait_synced(n, m)
    for server in n, m:
        aof = b''.join(open(f, 'rb').read() for f in glob.glob(f'{server.dir}/appendonlydir/*.incr.aof'))
        assert b'alone' not in aof and b'db 3\r\n*' not in aof and b'in db 3' in aof
        server.kill()
        server.start()
    assert n.call('GET', 'k') == b'v' and n.call('GET', 'n') == b'1'
    m.call('REPLICAOF', 'NO', 'ONE')
    assert m.call('GET', 'n') == b'1'
