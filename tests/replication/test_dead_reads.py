"""What a replica answers about keys that are dead by its clock and that its primary has not deleted: what a Redis
that replicates from the same primary answers, command by command; or, told to serve them, as if they lived."""
import time

import pytest

import everything
from mayfly import Raw, ReplyError, eventually
from nodes import now_ms, wait_synced

DEADLINE_MS = 1000

SETUP = [
    ('SET', 's', 'value'), ('SET', 'n', '5'), ('SETBIT', 'b', '7', '1'), ('PFADD', 'p', 'a', 'b', 'c'),
    ('RPUSH', 'l', 'a', 'b', 'c'), ('SADD', 't', 'a', 'b'), ('SADD', 'i', '1', '2'), ('ZADD', 'z', '1', 'a', '2', 'b'),
    ('HSET', 'h', 'f', 'v', 'g', 'w'), ('GEOADD', 'g', '13.361389', '38.115556', 'Palermo'),
    ('SET', 'w_a', '2'), ('SET', 'w_b', '1'), ('HSET', 'hw_a', 'f', '2'),
]
DEAD = [command[1] for command in SETUP]
LIVE = [('SET', 'live:s', 'value'), ('PFADD', 'live:p', 'a'), ('RPUSH', 'live:l', 'a', 'b'), ('SADD', 'live:t', 'a', 'b'),
        ('ZADD', 'live:z', '1', 'a'), ('SET', 'later', 'v', 'EX', '100000')]

READS = [
    *[(c, k) for k in DEAD for c in ('TYPE', 'EXISTS', 'TOUCH', 'TTL', 'PTTL', 'EXPIRETIME', 'PEXPIRETIME', 'DUMP')],
    *[('OBJECT', c, k) for k in ('s', 'l', 'h') for c in ('ENCODING', 'REFCOUNT', 'IDLETIME', 'FREQ')],
    ('EXISTS', 's', 'live:s', 'l'), ('DBSIZE',), ('KEYS', '*'), ('KEYS', 's'), ('SCAN', '0', 'COUNT', '1000'),
    ('SCAN', '0', 'COUNT', '1000', 'TYPE', 'list'), ('SCAN', '0', 'COUNT', '1000', 'MATCH', 's*'),
    ('GET', 's'), ('MGET', 's', 'live:s', 'n'), ('STRLEN', 's'), ('GETRANGE', 's', '0', '-1'), ('SUBSTR', 's', '0', '2'),
    ('LCS', 's', 'live:s'), ('LCS', 's', 'live:s', 'LEN'), ('GETBIT', 'b', '7'), ('BITCOUNT', 'b'), ('BITPOS', 'b', '1'),
    ('BITFIELD_RO', 'b', 'GET', 'u8', '0'), ('PFCOUNT', 'p'), ('PFCOUNT', 'p', 'live:p'),
    ('LLEN', 'l'), ('LRANGE', 'l', '0', '-1'), ('LINDEX', 'l', '0'), ('LPOS', 'l', 'b'), ('LPOS', 'l', 'b', 'COUNT', '0'),
    ('SCARD', 't'), ('SMEMBERS', 't'), ('SISMEMBER', 't', 'a'), ('SMISMEMBER', 't', 'a', 'b'), ('SRANDMEMBER', 't'),
    ('SRANDMEMBER', 't', '2'), ('SSCAN', 't', '0'), ('SSCAN', 'i', '0'), ('SINTER', 't', 'live:t'),
    ('SUNION', 't', 'i'), ('SDIFF', 'live:t', 't'), ('SINTERCARD', '2', 't', 'live:t'),
    ('ZCARD', 'z'), ('ZSCORE', 'z', 'a'), ('ZMSCORE', 'z', 'a', 'b'), ('ZRANK', 'z', 'a'), ('ZREVRANK', 'z', 'a'),
    ('ZCOUNT', 'z', '-inf', '+inf'), ('ZLEXCOUNT', 'z', '-', '+'), ('ZRANGE', 'z', '0', '-1', 'WITHSCORES'),
    ('ZREVRANGE', 'z', '0', '-1'), ('ZRANGEBYSCORE', 'z', '-inf', '+inf'), ('ZREVRANGEBYSCORE', 'z', '+inf', '-inf'),
    ('ZRANGEBYLEX', 'z', '-', '+'), ('ZREVRANGEBYLEX', 'z', '+', '-'), ('ZRANDMEMBER', 'z'),
    ('ZRANDMEMBER', 'z', '3', 'WITHSCORES'), ('ZSCAN', 'z', '0'), ('ZUNION', '2', 'z', 'live:z', 'WITHSCORES'),
    ('ZINTER', '2', 'z', 'live:z'), ('ZDIFF', '2', 'live:z', 'z'), ('ZINTERCARD', '2', 'z', 'live:z'),
    ('HGET', 'h', 'f'), ('HMGET', 'h', 'f', 'g'), ('HGETALL', 'h'), ('HKEYS', 'h'), ('HVALS', 'h'), ('HLEN', 'h'),
    ('HEXISTS', 'h', 'f'), ('HSTRLEN', 'h', 'f'), ('HRANDFIELD', 'h'), ('HRANDFIELD', 'h', '2', 'WITHVALUES'),
    ('HSCAN', 'h', '0'),
    ('GEOPOS', 'g', 'Palermo'), ('GEODIST', 'g', 'Palermo', 'Palermo'), ('GEOHASH', 'g', 'Palermo'),
    ('GEOSEARCH', 'g', 'FROMLONLAT', '13', '38', 'BYRADIUS', '900', 'km', 'ASC'),
    ('GEORADIUS_RO', 'g', '13', '38', '900', 'km'), ('GEORADIUSBYMEMBER_RO', 'g', 'Palermo', '900', 'km'),
    ('SORT_RO', 'l', 'ALPHA'), ('SORT_RO', 'live:l', 'BY', 'w_*', 'GET', '#', 'GET', 'w_*', 'ALPHA'),
    ('SORT_RO', 'live:l', 'BY', 'hw_*->f', 'GET', 'hw_*->f', 'ALPHA'), ('SORT_RO', 't', 'ALPHA'),
    # wrong types of what is not there any more are no errors
    ('LLEN', 's'), ('GET', 'l'), ('HGET', 'z', 'a'), ('SCARD', 'h'), ('ZCARD', 't'), ('LCS', 'l', 's'), ('PFCOUNT', 'l'),
    # writes are refused, whatever the key
    ('SET', 's', 'x'), ('DEL', 's'), ('GETEX', 's', 'PERSIST'), ('EXPIRE', 'l', '100'), ('SORT', 'l', 'STORE', 'd'),
]


def answer(c, command):
    reply = c.call(*command)
    if isinstance(reply, ReplyError):
        return 'error', str(reply)
    if command[0] in ('KEYS', 'SCAN', 'SUNION', 'SDIFF'):
        return sorted(reply if command[0] != 'SCAN' else reply[1])
    return reply


def kill_all(primary, pipe):
    """Sets keys up, which die without a DEL being sent."""
    primary.call('DEBUG', 'SET-ACTIVE-EXPIRE', 0)
    when = now_ms() + DEADLINE_MS
    everything.run(pipe, SETUP + LIVE + [('PEXPIREAT', k, when) for k in DEAD])
    while now_ms() <= when + 2:
        time.sleep(0.05)


@pytest.mark.parametrize('mayfly_kind', ['memory', 'rocks'])
def test_reads_as_redis(node, mayfly_kind):
    primary, redis, ours = node('redis'), node('redis'), node(mayfly_kind)
    for replica in redis, ours:
        replica.follow(primary)
    wait_synced(primary, redis, ours)
    with Raw(primary.port) as pipe, Raw(redis.port) as theirs, Raw(ours.port) as mine:
        kill_all(primary, pipe)
        wait_synced(primary, redis, ours)
        wrong = []
        for command in READS:
            expected, got = answer(theirs, command), answer(mine, command)
            if expected != got:
                wrong.append((command, expected, got))
        assert not wrong, wrong
        for _ in range(20):
            assert mine.call('RANDOMKEY') in {c[1].encode() for c in LIVE}
        assert mine.call('DBSIZE') == len(SETUP) + len(LIVE)
        assert ours.stat('expired_keys') == redis.stat('expired_keys') == 0
        for k in DEAD:                                           # now they are met
            pipe.call('DEL', k)
        wait_synced(primary, redis, ours)
        assert mine.call('DBSIZE') == theirs.call('DBSIZE') == len(LIVE)
    assert ours.stat('expired_keys') == 0


@pytest.mark.parametrize('mayfly_kind', ['memory', 'rocks'])
def test_served(node, mayfly_kind):
    """replica-expired-reads serve: as they were, with no time left, until the primary deletes them."""
    primary, replica = node(mayfly_kind), node(mayfly_kind, '--replica-expired-reads', 'serve')
    assert replica.call('CONFIG', 'GET', 'replica-expired-reads')[1] == b'serve'
    replica.follow(primary)
    wait_synced(primary, replica)
    with Raw(primary.port) as pipe, Raw(replica.port) as c:
        everything.run(pipe, [('HSET', 'fields', 'f', '1', 'g', '2'),
                              ('HPEXPIREAT', 'fields', str(now_ms() + DEADLINE_MS), 'FIELDS', '1', 'f')])
        kill_all(primary, pipe)
        wait_synced(primary, replica)
        assert c.call('GET', 's') == b'value' and c.call('LRANGE', 'l', '0', '-1') == [b'a', b'b', b'c']
        assert c.call('TTL', 's') == c.call('PTTL', 'l') == 0 and c.call('PEXPIRETIME', 's') > 0
        assert len(c.call('KEYS', '*')) == c.call('DBSIZE') == len(SETUP) + len(LIVE) + 1
        assert c.call('HMGET', 'fields', 'f', 'g') == [b'1', b'2']
        assert c.call('HPTTL', 'fields', 'FIELDS', '2', 'f', 'g') == [0, -1]
        c.call('CONFIG', 'SET', 'replica-expired-reads', 'hide')
        assert c.call('GET', 's') is None and c.call('HLEN', 'fields') == 1
        c.call('CONFIG', 'SET', 'replica-expired-reads', 'serve')
        assert c.call('HLEN', 'fields') == 2
        primary.call('DEBUG', 'SET-ACTIVE-EXPIRE', 1)
        eventually(lambda: c.call('DBSIZE') == len(LIVE) + 1)
        eventually(lambda: c.call('HGETALL', 'fields') == [b'g', b'2'])
        assert c.call('GET', 's') is None and replica.stat('expired_keys') == 0


@pytest.mark.parametrize('mayfly_kind', ['memory', 'rocks'])
def test_primary_comes_back_with_its_dead(node, mayfly_kind):
    """Stopped with dead keys whose DEL was not sent: after its restart the replica resumes and gets them."""
    primary, replica = node(mayfly_kind, '--shutdown-timeout', '0'), node('memory')
    replica.follow(primary)
    wait_synced(primary, replica)
    with Raw(primary.port) as pipe:
        kill_all(primary, pipe)
    wait_synced(primary, replica)
    primary.shut_down()
    assert replica.call('DBSIZE') == len(SETUP) + len(LIVE)
    primary.start()
    eventually(lambda: replica.call('DBSIZE') == len(LIVE))
    wait_synced(primary, replica)
    assert primary.stat('sync_full') == 0 and primary.stat('sync_partial_ok') == 1
    assert replica.stat('expired_keys') == 0


def test_replica_saves_the_dead(node):
    """… and has them after a restart, without a full sync; the primary's DEL then finds them."""
    primary, replica = node('redis'), node('memory')
    replica.follow(primary)
    wait_synced(primary, replica)
    with Raw(primary.port) as pipe:
        kill_all(primary, pipe)
        wait_synced(primary, replica)
        replica.shut_down()
        replica.args += ['--replicaof', f'127.0.0.1 {primary.port}']
        replica.start()
        wait_synced(primary, replica)
        assert replica.call('DBSIZE') == len(SETUP) + len(LIVE)
        assert primary.stat('sync_full') == 1 and primary.stat('sync_partial_ok') == 1
        for k in DEAD:
            pipe.call('DEL', k)
        wait_synced(primary, replica)
        assert replica.call('DBSIZE') == len(LIVE)


@pytest.mark.parametrize('replicaof, keys', [(['--replicaof', '127.0.0.1 1'], 1), ([], 0)])
def test_replica_loads_the_dead(node, replicaof, keys):
    """… whichever server wrote the file, and hides them; a primary leaves them out."""
    n = node('memory')
    n.call('SET', 'k', 'v', 'PX', 1000)
    n.call('SAVE')
    deadline = n.call('PEXPIRETIME', 'k')
    n.kill()
    eventually(lambda: now_ms() > deadline)
    n.args += replicaof
    n.start()
    assert n.call('DBSIZE') == keys
    assert n.call('GET', 'k') is None


@pytest.mark.parametrize('mayfly_kind', ['memory', 'rocks'])
def test_writable(node, mayfly_kind):
    """replica-read-only no: a client's write finds nothing where something dead is."""
    primary, replica = node('redis'), node(mayfly_kind, '--replica-read-only', 'no')
    replica.follow(primary)
    wait_synced(primary, replica)
    with Raw(primary.port) as pipe, Raw(replica.port) as c:
        kill_all(primary, pipe)
        wait_synced(primary, replica)
        assert c.call('INCR', 'n') == 1 and c.call('TTL', 'n') == -1
        assert c.call('RPUSH', 's', 'x') == 1
        assert c.call('SET', 'l', 'x', 'NX') == b'OK'
        assert c.call('DBSIZE') == len(SETUP) + len(LIVE)
        assert replica.stat('expired_keys') == 3
