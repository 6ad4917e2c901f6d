"""Expiry is the primary's: a DEL for everything, once, never too early; a replica hides what is dead, and waits.

Many keys die within some seconds. Meanwhile readers ask both sides for keys around their deadlines: before it they
are there, after it they are not; and DBSIZE of the replica shows that it deletes nothing it was not told to."""
import os
import random
import threading
import time

import pytest

import everything
from mayfly import Raw, eventually
from nodes import now_ms, wait_synced
from recorder import Recorder

FULL = os.environ.get('REPL') == 'full'
KEYS = 100_000 if FULL else 25_000
SPREAD_MS = 3000 if FULL else 1500


class Reader(threading.Thread):
    """Asks a node for keys whose deadlines are near."""

    def __init__(self, node, deadlines, seed):
        super().__init__(daemon=True)
        self.node, self.rng = node, random.Random(seed)
        self.deadlines = deadlines
        self.by_time = sorted((when, key) for key, when in deadlines.items())
        self.asked = self.dead = self.scanned = 0
        self.wrong = []

    def near(self):
        """Keys that die about now."""
        i, now = self.position(now_ms()), len(self.by_time)
        return [self.by_time[min(max(0, i + self.rng.randrange(-400, 400)), now - 1)] for _ in range(20)]

    def position(self, when):
        low, high = 0, len(self.by_time)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.by_time[middle][0] < when else (low, middle)
        return low

    def run(self):
        cursor = 0
        with Raw(self.node.port) as c:
            while now_ms() < self.by_time[-1][0] + 100:
                for when, key in self.near():
                    command = self.rng.choice(('GET', 'EXISTS', 'PTTL', 'TYPE', 'STRLEN'))
                    before, reply, after = now_ms(), c.call(command, key), now_ms()
                    there = reply not in (None, 0, -2, b'none')
                    self.asked += 1
                    self.dead += not there
                    if there and self.is_dead(when, before) or not there and after < when:
                        self.wrong.append((command, key, reply, when, before, after))
                before, (cursor, keys) = now_ms(), c.call('SCAN', cursor, 'COUNT', 100)
                self.scanned += len(keys)
                self.wrong += [('SCAN', k, before) for k in keys if self.is_dead(self.deadlines[k], before)]

    def is_dead(self, when, now):
        return when <= now - (self.node.kind == 'redis')        # there one millisecond later


def watch_size(replica, primary, n, stop, wrong):
    """The replica has deleted at most what the primary has expired, a moment later."""
    with Raw(replica.port) as ours, Raw(primary.port) as theirs:
        while not stop.is_set():
            size = ours.call('DBSIZE')
            expired = theirs.call('INFO', 'stats').decode()
            expired = int(expired.split('expired_keys:')[1].split('\r')[0])
            if size < n - expired:
                wrong.append((size, expired))
            time.sleep(0.02)


def prepare(primary, replica, rng):
    """All keys, on both sides, before the first one dies: their deadlines."""
    for seconds in 4 if FULL else 3, 10, 40:
        start = now_ms() + 1000 * seconds
        deadlines = {b'key:%d:%d' % (start, i): start + rng.randrange(SPREAD_MS) for i in range(KEYS)}
        with Raw(primary.port) as c:
            everything.run(c, (('SET', k, 'v', 'PXAT', when) for k, when in deadlines.items()))
        wait_synced(primary, replica)
        if now_ms() < start - 500:
            return deadlines
        primary.call('FLUSHALL')                        # this machine is slow: once more, with more time
    raise AssertionError('the machine is too slow for this')


def test_storm(pair, node, seed, rng):
    primary, replica = map(node, pair)
    replica.follow(primary)
    wait_synced(primary, replica)
    record = Recorder(primary)
    deadlines = prepare(primary, replica, rng)
    assert replica.call('DBSIZE') == primary.call('DBSIZE') == KEYS
    expired_before = primary.stat('expired_keys')
    readers = [Reader(n, deadlines, seed) for n in (primary, replica)]
    stop, wrong_sizes = threading.Event(), []
    watcher = threading.Thread(target=watch_size, daemon=True,
                               args=(replica, primary, KEYS + expired_before, stop, wrong_sizes))
    for t in *readers, watcher:
        t.start()
    for r in readers:
        r.join()
    eventually(lambda: primary.call('DBSIZE') == 0, 30)
    wait_synced(primary, replica)
    stop.set()
    watcher.join()
    assert replica.call('DBSIZE') == 0
    for r in readers:
        assert not r.wrong, (r.node, len(r.wrong), r.wrong[:5])
        assert r.asked > 100 and r.dead > 20 and r.scanned > 100, (r.asked, r.dead, r.scanned)
    assert not wrong_sizes, wrong_sizes[:5]
    eventually(lambda: record.offset == primary.offset, 30)
    record.close()
    deleted = [(at, k) for at, k in record.deleted() if k in deadlines]
    assert len(deleted) == KEYS and {k for _, k in deleted} == deadlines.keys()
    early = [(at, k, deadlines[k]) for at, k in deleted if at < deadlines[k]]
    assert not early, early[:5]
    assert primary.stat('expired_keys') - expired_before == KEYS
    assert replica.stat('expired_keys') == 0


def scanned(node, *options):
    keys, cursor = [], 0
    with Raw(node.port) as c:
        while True:
            cursor, some = c.call('SCAN', cursor, *options)
            keys += some
            if cursor == b'0':
                return keys


def test_dead_but_not_deleted(pair, node):
    """The primary does not delete: the replica hides, and keeps. Once it is promoted, they go."""
    primary, replica = map(node, pair)
    replica.follow(primary)
    wait_synced(primary, replica)
    primary.call('DEBUG', 'SET-ACTIVE-EXPIRE', 0)
    with Raw(primary.port) as c:
        everything.run(c, [x for i in range(1000) for x in (('SET', f's{i}', 'v', 'PX', 300), ('SADD', f't{i}', 'v'),
                                                            ('PEXPIRE', f't{i}', 300))])
        everything.run(c, [('SET', 'stays', 'v'), ('SET', 'later', 'v', 'PX', 10_000_000)])
    time.sleep(0.4)
    wait_synced(primary, replica)
    stays = [b'later', b'stays']
    assert replica.call('DBSIZE') == 2002
    assert sorted(scanned(replica)) == sorted(replica.call('KEYS', '*')) == stays
    for command in ('GET', 's5'), ('EXISTS', 's5', 't5'), ('TYPE', 't7'), ('SMEMBERS', 't1'), ('SCARD', 't2'), \
                   ('STRLEN', 's1'), ('DUMP', 's3'):
        assert replica.call(*command) in (None, 0, [], b'none'), command
    for command in ('PTTL', 'TTL', 'PEXPIRETIME', 'EXPIRETIME'):
        assert replica.call(command, 's9') == -2
    assert replica.call('MGET', 's1', 'stays') == [None, b'v']
    assert replica.call('DBSIZE') == 2002 and replica.stat('expired_keys') == 0
    assert primary.call('GET', 's5') is None                    # deletes it, except on rocks, where reads are reads
    wait_synced(primary, replica)
    assert replica.call('DBSIZE') == primary.call('DBSIZE')
    replica.promote()
    eventually(lambda: replica.call('DBSIZE') == 2)
    assert sorted(replica.call('KEYS', '*')) == stays
    assert replica.stat('expired_keys') >= 2000 - 1


def test_nothing_comes_back(pair, node):
    """What a command finds dead on the primary is dead in the stream before it: no value lives on."""
    primary, replica = map(node, pair)
    replica.follow(primary)
    wait_synced(primary, replica)
    primary.call('DEBUG', 'SET-ACTIVE-EXPIRE', 0)
    setup = [('SET', 'count', 100, 'PX', 50), ('SET', 'text', 'old', 'PX', 50), ('RPUSH', 'list', 'old'),
             ('PEXPIRE', 'list', 50), ('HSET', 'hash', 'old', 1), ('PEXPIRE', 'hash', 50), ('ZADD', 'zset', 5, 'm'),
             ('PEXPIRE', 'zset', 50), ('SADD', 'set', 'old'), ('PEXPIRE', 'set', 50), ('SET', 'nx', 'old', 'PX', 50),
             ('SET', 'from', 'old', 'PX', 50), ('SET', 'to', 'there'), ('SET', 'persist', 'old', 'PX', 50)]
    with Raw(primary.port) as c:
        everything.run(c, setup)
        wait_synced(primary, replica)
        time.sleep(0.06)
        everything.run(c, [('INCR', 'count'), ('APPEND', 'text', 'new'), ('LPUSH', 'list', 'new'),
                           ('HSET', 'hash', 'new', 1), ('ZINCRBY', 'zset', 1, 'm'), ('SADD', 'set', 'new'),
                           ('SET', 'nx', 'new', 'NX'), ('COPY', 'from', 'to', 'REPLACE'), ('PERSIST', 'persist')])
    wait_synced(primary, replica)
    for n in primary, replica:
        assert n.call('MGET', 'count', 'text', 'nx') == [b'1', b'new', b'new']
        assert n.call('MGET', 'from', 'to', 'persist') == [None, b'there', None]
        assert n.call('LRANGE', 'list', 0, -1) == n.call('HKEYS', 'hash') == n.call('SMEMBERS', 'set') == [b'new']
        assert n.call('ZSCORE', 'zset', 'm') == b'1'
        for key in 'count', 'text', 'list', 'hash', 'set', 'zset', 'nx':
            assert n.call('PTTL', key) == -1


def test_served_if_asked_for(kind, node):
    """replica-expired-reads serve: as in old times."""
    if kind == 'redis':
        pytest.skip('a setting of Mayfly')
    primary, replica = node(kind), node(kind)
    replica.follow(primary)
    wait_synced(primary, replica)
    primary.call('DEBUG', 'SET-ACTIVE-EXPIRE', 0)
    primary.call('SET', 'a', 'v', 'PX', 30)
    wait_synced(primary, replica)
    time.sleep(0.04)
    assert replica.call('GET', 'a') is None
    replica.config(replica_expired_reads='serve')
    assert replica.call('GET', 'a') == b'v'
    replica.config(replica_expired_reads='hide')
    assert replica.call('GET', 'a') is None
    replica.promote()
    assert replica.call('GET', 'a') is None


@pytest.mark.suits(lambda pair: 'redis' not in pair)    # Redis 7.0 has no deadlines of fields
def test_fields(pair, node, rng):
    """Fields of hashes likewise: HDEL in the stream for each, or DEL with the last; hidden on both sides in time."""
    primary, replica = map(node, pair)
    replica.follow(primary)
    wait_synced(primary, replica)
    record = Recorder(primary)
    start, hashes, per = now_ms() + 10_000, 200 if FULL else 60, 50
    deadlines = {(b'h%d' % h, b'f%d' % f): start + rng.randrange(1500) for h in range(hashes) for f in range(per)}
    commands = []
    for h in range(hashes):
        commands.append(('HSET', f'h{h}', *[x for f in range(per) for x in (f'f{f}', 'v')], *(['stays', 1] * (h % 2))))
        commands += [('HPEXPIREAT', f'h{h}', deadlines[b'h%d' % h, b'f%d' % f], 'FIELDS', 1, f'f{f}')
                     for f in range(per)]
    with Raw(primary.port) as c:
        everything.run(c, commands)
    wait_synced(primary, replica)
    assert now_ms() < start, 'the machine is too slow for this'
    wrong, asked = [], 0
    with Raw(primary.port) as p, Raw(replica.port) as r:
        while now_ms() < start + 1600:
            (key, field), when = rng.choice(list(deadlines.items())[:2000])
            for c in p, r:
                before, reply, after = now_ms(), c.call('HGET', key, field), now_ms()
                asked += 1
                if reply and when <= before or not reply and after < when:
                    wrong.append((c is r, key, field, reply, when, before, after))
    assert not wrong and asked > 100, (asked, len(wrong), wrong[:5])
    eventually(lambda: primary.call('DBSIZE') == hashes // 2)
    wait_synced(primary, replica)
    assert replica.call('DBSIZE') == hashes // 2
    eventually(lambda: record.offset == primary.offset)
    record.close()
    gone = [(at, c[1], f) for at, c in record.stream if c[0].upper() == b'HDEL' for f in c[2:]]
    assert len(gone) == len(set(g[1:] for g in gone)), 'a field went twice'
    assert not [g for g in gone if g[0] < deadlines[g[1:]]]
    whole = {key for _, key in record.deleted()}
    assert {g[1:] for g in gone} | {at for at in deadlines if at[0] in whole} == deadlines.keys()


def test_fields_on_redis(kind, node):
    """Redis 7.0 has no deadlines of fields, but all values, and no field longer than its primary."""
    primary, early, late = node(kind), node('redis'), node('redis')
    early.follow(primary)
    wait_synced(primary, early)
    near, far = now_ms() + 10_000, now_ms() + 10_000_000
    with Raw(primary.port) as c:
        everything.run(c, [
            ('HSET', 'h', 'a', 1, 'b', 2, 'c', 3), ('HPEXPIREAT', 'h', near, 'FIELDS', 1, 'a'),
            ('HSETEX', 'x', 'PXAT', near, 'FIELDS', 2, 'a', 1, 'b', 2),
            ('HSETEX', 'x', 'PXAT', far, 'FIELDS', 1, 'c', 3), ('HINCRBY', 'x', 'c', 0),
            ('HSETEX', 'y', 'PXAT', near, 'FIELDS', 1, 'a', 1), ('HSET', 'z', 'a', 1, 'b', 2),
            ('HGETEX', 'z', 'PXAT', near, 'FIELDS', 1, 'a'), ('HPERSIST', 'z', 'FIELDS', 1, 'a'),
            ('HSETEX', 'z', 'KEEPTTL', 'FIELDS', 1, 'b', 5), ('HGETDEL', 'z', 'FIELDS', 1, 'b')])
    late.follow(primary)
    wait_synced(primary, early, late)
    at_first = [primary.call('HGETALL', k) for k in 'hxyz']
    assert now_ms() < near, 'the machine is too slow for this'
    assert [len(h) for h in at_first] == [6, 6, 2, 2]
    for r in early, late:
        found = [r.call('HGETALL', k) for k in 'hxyz']      # small hashes are in the order of insertion on Redis
        assert [sorted(zip(h[::2], h[1::2])) for h in found] == [sorted(zip(h[::2], h[1::2])) for h in at_first]
    eventually(lambda: primary.call('DBSIZE') == 3, 30)
    wait_synced(primary, early, late)
    for n in primary, early, late:
        assert [sorted(n.call('HKEYS', k)) for k in 'hxyz'] == [[b'b', b'c'], [b'c'], [], [b'a']]
        assert n.call('DBSIZE') == 3
