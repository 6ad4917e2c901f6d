"""What a replica and a primary say, allow and refuse; and changes of roles."""
import re
import time

import pytest

from mayfly import Raw, eventually
from nodes import Node, linked, online, wait_synced

READONLY = "READONLY You can't write against a read only replica."
MASTERDOWN = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."


@pytest.fixture
def two(pair, node, proxy):
    primary, replica = map(node, pair)
    link = proxy(primary)
    replica.follow(link)
    wait_synced(primary, replica)
    eventually(lambda: online(primary))
    return primary, replica, link


def test_read_only(two):
    primary, replica, _ = two
    primary.call('SET', 'a', 1)
    wait_synced(primary, replica)
    for command in ('SET', 'a', 2), ('DEL', 'a'), ('FLUSHALL',), ('EXPIRE', 'a', 100), ('INCR', 'a'):
        assert replica.ask(*command) == READONLY
    assert replica.call('GET', 'a') == b'1'
    replica.config(replica_read_only='no')
    assert replica.call('SET', 'mine', 2) == b'OK' and replica.call('GET', 'mine') == b'2'
    replica.config(replica_read_only='yes')
    primary.call('SET', 'b', 1)
    wait_synced(primary, replica)
    assert replica.call('MGET', 'a', 'b', 'mine') == [b'1', b'1', b'2']


def test_promotion(two):
    primary, replica, _ = two
    primary.call('SET', 'a', 1)
    wait_synced(primary, replica)
    replica.promote()
    assert replica.call('ROLE')[0] == b'master'
    assert replica.call('INCR', 'a') == 2 and primary.call('GET', 'a') == b'1'
    eventually(lambda: primary.fields()['connected_slaves'] == '0')
    assert replica.call('REPLICAOF', 'NO', 'ONE') == b'OK'              # and again


def test_stale(two):
    primary, replica, link = two
    primary.call('SET', 'a', 1)
    wait_synced(primary, replica)
    replica.config(replica_serve_stale_data='no')
    assert replica.call('GET', 'a') == b'1'
    link.cut()
    eventually(lambda: not linked(replica))
    assert replica.ask('GET', 'a') == MASTERDOWN
    assert replica.ask('SET', 'a', 2) in (MASTERDOWN, READONLY)
    for command in ('INFO',), ('ROLE',), ('CONFIG', 'GET', 'port'), ('SELECT', 1), ('CLIENT', 'ID'), ('COMMAND',):
        replica.call(*command)
    for command in ('PING',), ('DBSIZE',), ('KEYS', '*'), ('SCAN', 0), ('EXISTS', 'a'):
        assert replica.ask(*command) == MASTERDOWN, command
    replica.config(replica_serve_stale_data='yes')
    assert replica.call('GET', 'a') == b'1'
    replica.config(replica_serve_stale_data='no')
    link.restore()
    wait_synced(primary, replica)
    assert replica.call('GET', 'a') == b'1'


def test_password(pair, node):
    primary, replica = node(pair[0], '--requirepass', 'secret'), node(pair[1])
    replica.follow(primary)
    time.sleep(0.5)
    assert not linked(replica)
    for user, password, good in ('', 'wrong', False), ('nobody', 'secret', False), ('', 'secret', True), \
                                ('default', 'secret', True):
        replica.promote()
        replica.config(masteruser=user, masterauth=password)
        replica.follow(primary)
        if good:
            eventually(lambda: linked(replica))
        else:
            time.sleep(0.3)
            assert not linked(replica)
    with primary.client(password='secret') as c:
        c.set('a', 1)
    eventually(lambda: replica.call('GET', 'a') == b'1')


def test_wait(two):
    primary, replica, link = two
    with Raw(primary.port) as c:
        assert c.call('WAIT', 0, 0) == 1                                # nothing written: all connected replicas
        assert c.call('SET', 'a', 1) == b'OK'
        assert c.call('WAIT', 1, 5000) == 1
        assert replica.call('GET', 'a') == b'1'
        start = time.monotonic()
        assert c.call('WAIT', 2, 200) == 1 and 0.15 < time.monotonic() - start < 20
        link.stall()
        assert c.call('SET', 'a', 2) == b'OK'
        assert c.call('WAIT', 1, 100) == 0
        c.command('WAIT', 1, 0)
        assert c.silent(0.2)
        link.restore()
        assert c.reply() == 1
        assert replica.call('GET', 'a') == b'2'
        c.send(b'SET a 3\r\nWAIT 1 0\r\nSET a 4\r\nWAIT 1 0\r\nGET a\r\n')
        assert [c.reply() for _ in range(5)] == [b'OK', 1, b'OK', 1, b'4']
    assert 'WAIT cannot be used with replica instances' in replica.ask('WAIT', 1, 0)
    assert primary.ask('WAIT', 1, -1) == 'ERR timeout is negative'


def test_min_replicas(two):
    primary, replica, link = two
    primary.config(min_replicas_to_write=1, min_replicas_max_lag=2)
    assert primary.call('SET', 'a', 1) == b'OK'
    assert primary.fields()['min_slaves_good_slaves'] == '1'
    link.cut()
    eventually(lambda: not linked(replica))
    refused = 'NOREPLICAS Not enough good replicas to write.'
    eventually(lambda: primary.ask('SET', 'a', 2) == refused)
    assert primary.call('GET', 'a') == b'1'
    link.restore()
    eventually(lambda: primary.ask('SET', 'a', 3) == b'OK')
    primary.config(min_replicas_to_write=2)
    eventually(lambda: primary.ask('SET', 'a', 4) == refused)


# -- INFO and ROLE, field by field as Redis has them -----------------------------------------------------

NUMBER = re.compile(r'-?\d+')


def shape(node):
    """INFO replication with numbers, names and ports left out."""
    out = []
    for name, value in node.fields().items():
        value = re.sub(r'[0-9a-f]{40}', lambda m: '0' if set(m[0]) == {'0'} else 'ID', value)
        out.append(f'{name}:{NUMBER.sub("N", value)}')
    return out


def role_shape(reply):
    if isinstance(reply, list):
        return [role_shape(x) for x in reply]
    return type(reply) if isinstance(reply, int) or reply.isdigit() else reply


def every_shape(a, b):
    """What both say alone, linked, and after the primary went away."""
    out = [(shape(a), role_shape(a.call('ROLE')))]
    b.follow(a)
    wait_synced(a, b)
    eventually(lambda: re.search('state=online.*lag=[01]', a.fields()['slave0']))
    out += [(shape(n), role_shape(n.call('ROLE'))) for n in (a, b)]
    a.kill()
    eventually(lambda: not linked(b))
    time.sleep(1.1)                                     # so that it is down since more than 0 seconds
    out.append((shape(b), None))
    b.promote()
    return out + [(shape(b), role_shape(b.call('ROLE')))]


@pytest.fixture(scope='module')
def of_redis():
    both = Node('redis'), Node('redis')
    yield every_shape(*both)
    for n in both:
        n.remove()


def test_info_and_role(pair, node, of_redis):
    found = every_shape(*map(node, pair))
    for name, a, b in zip(('alone', 'primary', 'replica', 'replica without primary', 'promoted'), of_redis, found):
        assert a == b, name


def test_announced(two):
    primary, replica, _ = two
    replica.config(replica_announce_ip='10.1.2.3', replica_announce_port=7777)
    replica.promote()
    replica.follow(primary)
    wait_synced(primary, replica)
    eventually(lambda: 'ip=10.1.2.3,port=7777,state=online' in primary.fields()['slave0'])
    assert primary.call('ROLE')[2][0][:2] == [b'10.1.2.3', b'7777']


def test_replicaof_replies(kind, node):
    n = node(kind)
    other = node('redis')
    assert n.ask('REPLICAOF', 'localhost', 'x').startswith('ERR')
    assert n.call('SLAVEOF', 'NO', 'ONE') == b'OK'
    assert n.call('REPLICAOF', '127.0.0.1', other.port) == b'OK'
    assert n.call('REPLICAOF', '127.0.0.1', other.port) == b'OK Already connected to specified master'
    eventually(lambda: linked(n))
    assert n.call('ROLE')[:4] == [b'slave', b'127.0.0.1', other.port, b'connected']


def test_no_primary_at_the_address(kind, node, proxy):
    """The address leads nowhere: it tries again and again, and serves what it has."""
    n = node(kind)
    n.call('SET', 'a', 1)
    link = proxy(n)
    link.close()
    n.follow(link)
    time.sleep(1.5)
    assert n.call('GET', 'a') == b'1' and not linked(n)
    assert n.fields()['master_link_status'] == 'down'
    other = node('redis')
    n.follow(other)
    wait_synced(other, n)
    assert n.call('DBSIZE') == 0
