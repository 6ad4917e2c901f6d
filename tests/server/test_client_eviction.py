"""maxmemory-clients: clients that hold too much memory are disconnected, those with most first."""
import re

import pytest

import mayfly
from mayfly import eventually

pytestmark = pytest.mark.any_engine

MB = 1 << 20


@pytest.fixture
def server(server_factory):
    return server_factory('--maxmemory-clients', '12mb')


@pytest.fixture
def c(server):
    """A client that asks."""
    with server.raw() as asks:
        yield asks


def memory(c, of):
    """tot-mem of a client, None: it is gone."""
    found = re.search(rb'id=%d .* tot-mem=(\d+)' % of, c.call('CLIENT', 'LIST'))
    return found and int(found[1])


def evicted(c):
    return int(re.search(rb'evicted_clients:(\d+)', c.call('INFO', 'stats'))[1])


def open_client(raw, server, *options):
    x = raw(server.port)
    x.id = x.call('CLIENT', 'ID')
    for words in options:
        assert x.call(*words) == b'OK'
    return x


def fill_input(x, size):
    """Begins a request that does not end."""
    x.send(b'*2\r\n$4\r\nECHO\r\n$%d\r\n' % (size + 1000))
    x.try_send(b'x' * size)


def fill_output(x, size):
    """Asks for what it does not read: more than the kernel takes."""
    for _ in range(size // MB):
        x.try_send(b'*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n')


def fill_multi(x, size):
    x.call('MULTI')
    for _ in range(size // MB):
        x.try_send(b'*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s\r\n' % (MB, b'x' * MB))


def fill_names(x, size, command=b'SUBSCRIBE'):
    for i in range(size // MB):
        x.try_send(b'*2\r\n$%d\r\n%s\r\n$%d\r\n%d%s\r\n' % (len(command), command, MB, i, b'x' * (MB - len(str(i)))))


def fill_watch(x, size):
    fill_names(x, size, b'WATCH')


def fill_prefixes(x, size):
    prefixes = [w for i in range(size // MB) for w in ('PREFIX', f'{i}:' + 'x' * MB)]
    x.call('HELLO', 3)
    x.try_send(mayfly.encode('CLIENT', 'TRACKING', 'ON', 'BCAST', *prefixes))


@pytest.mark.parametrize('fill', [fill_input, fill_output, fill_multi, fill_watch, fill_names, fill_prefixes])
def test_what_counts(server, raw, c, fill):
    """The others stay, and the log says what the client held."""
    c.call('SET', 'big', 'x' * MB)
    small, big = open_client(raw, server), open_client(raw, server)
    fill(big, 30 * MB)
    eventually(lambda: memory(c, big.id) is None)
    assert evicted(c) == 1 and small.call('PING') == b'PONG'
    held = re.search(rf'Evicting client: id={big.id} .* tot-mem=(\d+)', server.log)
    assert int(held[1]) > 8 * MB


def test_the_largest_clients_are_evicted_first(server, raw, c):
    few, more, most = (open_client(raw, server) for _ in range(3))
    for x, size in (few, 1), (more, 2), (most, 6):
        fill_input(x, size * MB)
        eventually(lambda: (memory(c, x.id) or 0) > size * MB)       # pylint: disable=cell-var-from-loop
    assert evicted(c) == 0
    c.call('CONFIG', 'SET', 'maxmemory-clients', '6mb')
    eventually(lambda: evicted(c) == 1)
    assert memory(c, most.id) is None and memory(c, more.id) and memory(c, few.id)
    c.call('CONFIG', 'SET', 'maxmemory-clients', '3mb')
    eventually(lambda: evicted(c) == 2)
    assert memory(c, more.id) is None and memory(c, few.id)


def test_no_evict_clients_are_spared(server, raw, c):
    """CLIENT NO-EVICT; but what it holds counts, and others go for it."""
    spared = open_client(raw, server, ['CLIENT', 'NO-EVICT', 'on'])
    other = open_client(raw, server)
    c.call('CLIENT', 'NO-EVICT', 'on')
    fill_input(spared, 20 * MB)
    eventually(lambda: (memory(c, spared.id) or 0) > 20 * MB)
    eventually(lambda: memory(c, other.id) is None)
    assert memory(c, spared.id) and evicted(c) == 1
    eventually(lambda: 'Over client maxmemory after evicting all evictable clients' in server.log)
    assert server.log.count('Over client maxmemory') == 1, 'it is said once'


def test_a_limit_in_percent(server_factory, raw):
    s = server_factory('--maxmemory', '100mb', '--maxmemory-clients', '4%')
    with s.raw() as c:
        assert c.call('CONFIG', 'GET', 'maxmemory-clients') == [b'maxmemory-clients', b'4%']
        big = open_client(raw, s)
        fill_input(big, 8 * MB)
        eventually(lambda: memory(c, big.id) is None)
        c.call('CONFIG', 'SET', 'maxmemory-clients', '0')
        big = open_client(raw, s)
        fill_input(big, 8 * MB)
        eventually(lambda: (memory(c, big.id) or 0) > 8 * MB)
        assert evicted(c) == 1
        c.call('CONFIG', 'SET', 'maxmemory-clients', '50%')
        assert memory(c, big.id)
        c.call('CONFIG', 'SET', 'maxmemory', '10mb')
        eventually(lambda: evicted(c) == 2)


@pytest.mark.lone('nodes of a cluster replicate by Raft')
def test_replicas_do_not_count(server_factory):
    """Neither a replica at its primary, nor the primary at its replica."""
    primary = server_factory('--maxmemory-clients', '4mb', '--repl-diskless-sync-delay', 0)
    replica = server_factory('--maxmemory-clients', '4mb', '--replicaof', f'127.0.0.1 {primary.port}')
    eventually(lambda: replica.info('replication')['master_link_status'] == 'up')
    with primary.raw() as c:
        for i in range(20):
            c.call('SET', f'k{i}', 'x' * MB)
        eventually(lambda: replica.info('keyspace').get('db0', {}).get('keys') == 20)
        assert evicted(c) == 0 and replica.info('stats')['evicted_clients'] == 0
        assert primary.info('replication')['connected_slaves'] == 1
