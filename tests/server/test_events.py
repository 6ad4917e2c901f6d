"""Keyspace events: every command's, in their order, as redis-server sends them; and those of the dead, in time."""
import os
import shlex
import subprocess
import time

import pytest

import mayfly
import redis_server

# Separated by ' ; '. Each line starts with empty databases; all commands of a line are compared.
LINES = '''
SET k v ; SET k v ; SET k v EX 100 ; SET k v KEEPTTL ; SET k v NX ; SET k v XX ; SET k w GET ; SET k v XX GET
SET no v XX ; SET no v NX GET ; SET no w GET ; SET z v PXAT 5000000000000 ; SET z v GET EX 10
SETNX k v ; SETNX k v ; SETEX k 10 v ; PSETEX k 10000 v ; GETSET k w ; GETSET new w ; GETDEL k ; GETDEL k
SET k v ; GETEX k EX 10 ; GETEX k ; GETEX k PERSIST ; GETEX k PERSIST ; GETEX no EX 10 ; GETEX k PXAT 5 ; GETEX k
MSET a 1 b 2 a 3 ; MSETNX c 1 d 2 ; MSETNX c 1 e 2 ; MGET a no b ; GET no ; STRLEN no ; GETRANGE no 0 1 ; SUBSTR no 0 1
SETRANGE k 0 '' ; SETRANGE k 2 x ; SETRANGE k 2 y ; APPEND k z ; APPEND new z ; STRLEN k ; LCS k no ; LCS no k
INCR n ; INCR n ; DECR n ; INCRBY n 5 ; DECRBY n 5 ; INCRBYFLOAT n 1.5 ; INCRBYFLOAT new 1 ; SET s x ; INCR s
SETBIT b 7 1 ; SETBIT b 7 1 ; GETBIT b 7 ; GETBIT no 7 ; BITCOUNT no ; BITPOS no 1 ; BITFIELD b GET u8 0 ; BITFIELD no GET u8 0
BITFIELD b SET u8 0 1 INCRBY u8 8 1 ; BITFIELD b2 SET u8 0 1 ; BITFIELD_RO no GET u8 0 ; BITOP NOT d b ; BITOP AND d no no2 ; BITOP AND d no
BITFIELD b OVERFLOW FAIL INCRBY u2 0 3 ; BITFIELD b OVERFLOW FAIL INCRBY u2 0 3 ; BITCOUNT b
DEL no ; SET a 1 ; SET b 2 ; DEL a b no ; SET a 1 ; UNLINK a no ; EXISTS a b ; TYPE a ; TTL a ; PTTL a ; EXPIRETIME a ; PEXPIRETIME a ; TOUCH a ; OBJECT ENCODING a ; DUMP a
SET a 1 ; EXPIRE a 100 ; EXPIRE a 50 GT ; EXPIRE a 200 GT ; PEXPIREAT a 5000000000000 ; PERSIST a ; PERSIST a ; EXPIRE a -1 ; EXPIRE a 10 ; PERSIST a
SET a 1 ; EXPIRE a 100 NX ; EXPIRE a 100 NX ; PEXPIRE a 100000 XX ; EXPIREAT a 1 ; EXISTS a ; EXPIRE a 1
SET a 1 ; RENAME a b ; RENAME a b ; SET a 2 ; RENAME a b ; RENAMENX b c ; SET d 1 ; RENAMENX c d ; RENAME c c ; RENAMENX c c
SET a 1 ; COPY a b ; COPY a b ; COPY a b REPLACE ; COPY a c DB 1 ; COPY no b ; MOVE a 1 ; MOVE a 1 ; MOVE no 1 ; SELECT 1 ; GET a ; GET no ; SELECT 0
SET a 1 EX 100 ; COPY a b ; RENAME a c ; MOVE c 2 ; SELECT 2 ; DEL c ; SELECT 0
SET a 1 ; FLUSHDB ; SET a 1 ; FLUSHALL ; SET a 1 ; SWAPDB 0 1 ; SWAPDB 0 1 ; RANDOMKEY ; KEYS * ; SCAN 0 ; DBSIZE
HSET h f v ; HSET h f w g x ; HMSET h f y ; HSETNX h f v ; HSETNX h n v ; HINCRBY h i 1 ; HINCRBYFLOAT h d 1.5 ; HGET h f ; HGET no f ; HMGET no f g
HSET h f v g w ; HDEL h no ; HDEL h f ; HDEL h g ; HDEL h g ; HGETALL no ; HKEYS no ; HVALS no ; HLEN no ; HEXISTS no f ; HSTRLEN no f ; HRANDFIELD no ; HRANDFIELD no 2 ; HSCAN no 0
HSETNX h f v ; DEL h ; HINCRBY h f 1 ; DEL h ; HINCRBYFLOAT h f 1 ; HMGET h f no ; HGET h no
LPUSH l a b ; RPUSH l c ; LPUSHX l d ; RPUSHX l e ; LPUSHX no d ; RPUSHX no d ; LPOP l ; RPOP l ; LPOP l 2 ; RPOP l 5 ; LPOP l ; RPOP no ; LPOP no 3
RPUSH l a b c ; LPOP l 0 ; LSET l 0 x ; LINSERT l BEFORE x y ; LINSERT l AFTER no y ; LINSERT no BEFORE a b ; LREM l 0 x ; LREM l 0 no ; LREM no 0 a ; LTRIM l 0 -1 ; LTRIM l 5 9 ; LTRIM l 0 1
RPUSH l a b c ; LMOVE l d LEFT RIGHT ; RPOPLPUSH l d ; LMOVE l l LEFT LEFT ; LMOVE l d RIGHT LEFT ; LMOVE l d RIGHT LEFT ; RPOPLPUSH d d ; LRANGE no 0 -1 ; LLEN no ; LINDEX no 0 ; LPOS no a
RPUSH l a b c ; LMPOP 2 no l LEFT ; LMPOP 1 l RIGHT COUNT 5 ; LMPOP 2 no l LEFT ; RPUSH l a ; LREM l -1 a
SADD s a b ; SADD s a ; SADD s a c ; SREM s no ; SREM s a ; SREM s b c ; SREM s a ; SMEMBERS no ; SCARD no ; SISMEMBER no a ; SMISMEMBER no a b ; SRANDMEMBER no ; SRANDMEMBER no 2 ; SPOP no ; SPOP no 2 ; SSCAN no 0
SADD s a ; SADD i 1 2 3 ; SPOP s ; SPOP i 0 ; SPOP i 9 ; SADD s a b ; SMOVE s d a ; SMOVE s d no ; SMOVE s d b ; SMOVE no d a ; SADD s a ; SMOVE s s a ; SMOVE s d a
SADD a 1 2 3 ; SADD b 2 3 4 ; SINTERSTORE d a b ; SUNIONSTORE d a b ; SDIFFSTORE d a b ; SDIFFSTORE d a a ; SDIFFSTORE d a a ; SINTERSTORE d a no ; SUNIONSTORE d no ; SINTER a no ; SUNION a no ; SDIFF a no ; SINTERCARD 2 a no
SADD a 1 2 3 ; SINTERSTORE a a ; SET d x ; SUNIONSTORE d a ; SET d x ; SINTERSTORE d no a ; SDIFFSTORE a a a
ZADD z 1 a ; ZADD z 1 a ; ZADD z 2 a 3 b ; ZADD z NX 5 a ; ZADD z XX 5 no ; ZADD z GT 1 a ; ZADD z INCR 1 a ; ZADD z NX INCR 1 a ; ZADD new XX 1 a ; ZINCRBY z 1 a ; ZINCRBY new 1 a
ZADD z 1 a 2 b 3 c 4 d 5 e ; ZREM z no ; ZREM z a ; ZREMRANGEBYRANK z 0 0 ; ZREMRANGEBYSCORE z 3 3 ; ZREMRANGEBYSCORE z 9 9 ; ZREMRANGEBYRANK z 7 9 ; ZREM z d e ; ZREM z a ; ZREMRANGEBYLEX z - + ; ZREMRANGEBYRANK no 0 1
ZADD z 0 a 0 b 0 c ; ZREMRANGEBYLEX z [a [a ; ZREMRANGEBYLEX z [x [y ; ZREMRANGEBYLEX z - + ; ZADD z 1 a 2 b 3 c ; ZPOPMIN z ; ZPOPMAX z 1 ; ZPOPMIN z 0 ; ZPOPMIN z 5 ; ZPOPMAX z ; ZMPOP 1 z MIN
ZADD z 1 a 2 b 3 c ; ZMPOP 2 no z MAX ; ZMPOP 1 z MIN COUNT 9 ; ZCARD no ; ZSCORE no a ; ZMSCORE no a ; ZRANK no a ; ZREVRANK no a ; ZCOUNT no 0 1 ; ZLEXCOUNT no - + ; ZRANGE no 0 1 ; ZREVRANGE no 0 1 ; ZRANDMEMBER no ; ZRANDMEMBER no 2 ; ZSCAN no 0
ZADD z 1 a 2 b ; ZRANGEBYSCORE no 0 1 ; ZREVRANGEBYSCORE no 1 0 ; ZRANGEBYLEX no - + ; ZREVRANGEBYLEX no + - ; ZRANGE no 0 1 BYSCORE ; ZRANGESTORE d z 0 -1 ; ZRANGESTORE d z 5 6 ; ZRANGESTORE d z 5 6 ; ZRANGESTORE d no 0 1
ZADD a 1 x 2 y ; ZADD b 2 y 3 z ; ZUNIONSTORE d 2 a b ; ZINTERSTORE d 2 a b ; ZDIFFSTORE d 2 a b ; ZDIFFSTORE d 2 a a ; ZINTERSTORE d 2 a no ; ZUNIONSTORE d 1 no ; ZUNION 2 a no ; ZINTER 2 a no ; ZDIFF 2 a no ; ZINTERCARD 2 a no
ZADD a 1 x ; SET d x ; ZUNIONSTORE d 1 a ; SET d x ; ZRANGESTORE d a 0 -1 ; SET d x ; ZINTERSTORE d 2 a no
GEOADD g 1 1 a 2 2 b ; GEOADD g 1 1 a ; GEOADD g XX CH 3 3 a ; GEOPOS no a ; GEODIST no a b ; GEOHASH no a ; GEOSEARCH no FROMLONLAT 1 1 BYRADIUS 9 km
GEOADD g 1 1 a ; GEOSEARCHSTORE d g FROMLONLAT 1 1 BYRADIUS 900 km ; GEORADIUS g 1 1 900 km STORE d ; GEORADIUS g 50 1 9 km STORE d ; GEORADIUS g 50 1 9 km STORE d ; GEORADIUS_RO no 1 1 9 km ; GEOSEARCHSTORE d no FROMLONLAT 1 1 BYRADIUS 9 km ; GEORADIUSBYMEMBER g a 9 km STOREDIST d ; GEORADIUSBYMEMBER no a 9 km
PFADD p a b ; PFADD p a ; PFADD p ; PFADD new ; PFCOUNT p ; PFCOUNT no ; PFCOUNT p no ; PFMERGE d p no ; PFMERGE d ; PFMERGE e
RPUSH l b a ; SORT l ALPHA ; SORT l ALPHA STORE d ; SORT l ALPHA STORE l ; SORT no STORE d ; SORT no STORE d ; SORT no ; SORT_RO no ; SORT l BY w_* GET g_* ALPHA ; SORT l BY nosort GET #
SET a 1 ; RESTORE b 0 "\\x00\\x01v\\x0b\\x00\\x20\\x51\\xd2\\xcd\\xa0\\xa9\\xe8\\xfd" ; GET a
MULTI ; SET a 1 ; INCR a ; EXPIRE a 100 ; DEL a ; EXEC
MULTI ; RPUSH l a ; LPOP l ; GET no ; EXEC ; WATCH l ; UNWATCH
BLPOP l 0.01 ; RPUSH l a b ; BLPOP l 0 ; BRPOP no l 0 ; RPUSH l a ; BLMOVE l d LEFT RIGHT 0 ; BLMPOP 1 0 d LEFT ; ZADD z 1 a 2 b ; BZPOPMIN z 0 ; BZPOPMAX no z 0 ; ZADD z 1 a ; BZMPOP 0 1 z MAX ; RPUSH l a ; BRPOPLPUSH l d 0
SET k v ; HSET k f v ; LPUSH k a ; GET k ; LLEN k ; SETRANGE k 0 ''
'''
# On disk, reads leave the dead alone: there only the cycle and writes find them.
DEAD_LINES = '''
SET k v PX 1 ; DEBUG SLEEP 0.02 ; GET k ; SET k v PX 1 ; DEBUG SLEEP 0.02 ; SET k w ; SET k v PX 1 ; DEBUG SLEEP 0.02 ; DEL k ; SET k v PX 1 ; DEBUG SLEEP 0.02 ; EXISTS k
SET k v PX 1 ; SET d x PX 1 ; DEBUG SLEEP 0.02 ; RENAME k d ; COPY k d ; INCR k ; LPUSH d a
'''
STREAM_LINES = '''
XADD s 1-1 f v ; XADD s MAXLEN 1 2-1 f v ; XADD s NOMKSTREAM 3-1 f v ; XADD no NOMKSTREAM 3-1 f v ; XLEN s ; XLEN no ; XTRIM s MAXLEN 1 ; XTRIM s MAXLEN 0 ; XDEL s 1-1 ; XADD s 9-1 f v ; XDEL s 9-1 ; XSETID s 10-1
XADD s 1-1 f v ; XGROUP CREATE s g 0 ; XGROUP CREATE t g $ MKSTREAM ; XGROUP CREATECONSUMER s g c ; XGROUP CREATECONSUMER s g c ; XREADGROUP GROUP g c STREAMS s > ; XACK s g 1-1 ; XGROUP SETID s g 0 ; XGROUP DELCONSUMER s g c ; XGROUP DELCONSUMER s g c ; XGROUP DESTROY s g ; XGROUP DESTROY s g
XADD s 1-1 f v ; XGROUP CREATE s g 0 ; XREADGROUP GROUP g c STREAMS s > ; XCLAIM s g d 0 1-1 ; XAUTOCLAIM s g e 0 0 ; XPENDING s g ; XRANGE no - + ; XREVRANGE no + - ; XREAD STREAMS no 0 ; XREAD COUNT 1 STREAMS s 0 ; XINFO STREAM s ; DEL s
'''


def words(command):
    return [w.encode().decode('unicode_escape').encode('latin-1') for w in shlex.split(command, posix=True)]


class Listener:
    """Sends commands and hears of the events each of them causes."""

    def __init__(self, server):
        self.commands, self.events = server.raw(), server.raw()
        self.commands.call('CONFIG', 'SET', 'notify-keyspace-events', 'KEAmn')
        self.events.call('PSUBSCRIBE', '__key*__:*')
        self.events.call('SUBSCRIBE', 'that was it')

    def run(self, command):
        """The reply, and the events: (channel, what it says)."""
        reply, heard = self.commands.call(*words(command)), []
        if reply == b'QUEUED' or reply == b'OK' and command == 'MULTI':
            return reply, heard
        self.commands.call('PUBLISH', 'that was it', 'yes')
        while True:
            message = self.events.reply()
            if message[0] == b'message':
                return reply, heard
            heard.append((message[2], message[3]))

    def close(self):
        self.commands.call('CONFIG', 'SET', 'notify-keyspace-events', '')
        self.commands.close()
        self.events.close()


@pytest.fixture
def both(server, redis_factory):
    """Mayfly and Redis, both of which leave the dead for commands to find."""
    redis = redis_factory()
    listeners = [Listener(server), Listener(redis)]
    for listener in listeners:
        listener.commands.call('DEBUG', 'SET-ACTIVE-EXPIRE', '0')
    yield listeners
    for listener in listeners:
        listener.commands.call('DEBUG', 'SET-ACTIVE-EXPIRE', '1')
        listener.close()


def known(listener, line):
    """Whether the server has the commands of a line."""
    names = {words(command)[0].decode() for command in line.split(' ; ')}
    return None not in listener.commands.call('COMMAND', 'INFO', *names)


@redis_server.needed
def test_events_of_all_commands(both):
    """Sequences of commands: the events of each are Redis's, one by one."""
    different = []
    dead = DEAD_LINES if mayfly.ENGINE == 'memory' else ''
    for line in (LINES + dead + STREAM_LINES).split('\n'):
        if not line or not known(both[0], line):
            continue
        for listener in both:
            listener.run('FLUSHALL')
        for command in line.split(' ; '):
            if mayfly.not_in_a_cluster(command):
                continue
            ours, theirs = (listener.run(command) for listener in both)
            if ours[1] != theirs[1]:
                different.append(f'{command}\n   ours: {ours}\n theirs: {theirs}   ({line[:60]})')
    assert not different, '\n'.join(different)


def test_a_consumer_is_an_event_also_without_entries(server):
    """As of Redis 7.2: XREADGROUP makes its consumer before it looks for entries."""
    listener = Listener(server)
    for command in ('DEL s', 'XADD s 1-1 f v', 'XGROUP CREATE s g $'):
        listener.run(command)
    expected = {
        'XREADGROUP GROUP g c STREAMS s >': ['xgroup-createconsumer'],
        'XREADGROUP GROUP g c STREAMS s > ': [],
        'XREADGROUP GROUP g d NOACK STREAMS s >': ['xgroup-createconsumer'],
        'XREADGROUP GROUP g e STREAMS s 0': ['xgroup-createconsumer'],
        'XCLAIM s g h 0 1-1': ['xgroup-createconsumer'],
        'XAUTOCLAIM s g i 0 0': ['xgroup-createconsumer'],
        'DEL s': ['del'],
    }
    for command, events in expected.items():
        got = [what.decode() for channel, what in listener.run(command)[1] if channel.startswith(b'__keyspace')]
        assert got == events, command
    listener.close()


def heard(listener, seconds=20):
    """The next event, without its database."""
    listener.events.sock.settimeout(seconds)
    message = listener.events.reply()
    return message[2].decode().split('__:')[1], message[3].decode()


def test_fields_of_hashes(server):
    """Redis 7.4's events of deadlines of fields."""
    listener = Listener(server)
    expected = {
        'HSET h a 1 b 2 c 3': ['new', 'hset'],
        'HPEXPIRE h 100000 FIELDS 2 a b': ['hexpire'],
        'HPERSIST h FIELDS 1 a': ['hpersist'],
        'HPERSIST h FIELDS 1 a ': [],
        'HEXPIRE h 0 FIELDS 1 c': ['hdel'],
        'HGETEX h PX 100000 FIELDS 1 a': ['hexpire'],
        'HSETEX h PX 100000 FIELDS 1 d 4': ['hset', 'hexpire'],
        'HGETDEL h FIELDS 1 d': ['hdel'],
        'HTTL no FIELDS 1 a': ['keymiss'],
    }
    for command, events in expected.items():
        got = [what.decode() for channel, what in listener.run(command)[1] if channel.startswith(b'__keyspace')]
        assert got == events, command
    listener.commands.call('HPEXPIRE', 'h', 30, 'FIELDS', 2, 'a', 'b')
    assert [heard(listener) for _ in range(6)] == [('h', 'hexpire'), ('hexpire', 'h'), ('h', 'hexpired'),
                                                   ('hexpired', 'h'), ('h', 'del'), ('del', 'h')]
    listener.close()


CLASSES = {
    'K$': ['set'], 'Eg': ['del', 'del'], 'KEx': [], 'Kg': ['del', 'del'], 'K': [], 'g$': [], '': [], 'Kn': ['new', 'new'], 'Em': ['keymiss'],
    'KA': ['set', 'del', 'lpush', 'del'], 'Kl': ['lpush'],
}


def test_classes(server):
    """Only the configured events are sent, on the configured channels."""
    listener = Listener(server)
    for classes, events in CLASSES.items():
        listener.commands.call('CONFIG', 'SET', 'notify-keyspace-events', classes)
        got = []
        for command in ('SET k v', 'GET no', 'DEL k', 'LPUSH l a', 'DEL l'):
            got += listener.run(command)[1]
        if 'E' in classes:
            assert [channel.decode().split(':')[-1] for channel, _ in got] == events, classes
            assert all(channel.startswith(b'__keyevent@0__:') for channel, _ in got)
        else:
            assert [what.decode() for _, what in got] == events, classes
            assert all(channel.startswith(b'__keyspace@0__:') for channel, _ in got)
    listener.close()


def test_expired_in_time(server):
    """Expired keys are reported without any access to them. (bench/run.py --only events judges the 100 ms.)"""
    listener = Listener(server)
    listener.commands.call('CONFIG', 'SET', 'notify-keyspace-events', 'Ex')

    def attempt():
        start = int(time.time() * 1000) + 1000
        listener.commands.send(b''.join(mayfly.encode('SET', start + i, 'v', 'PXAT', start + i) for i in range(500)))
        assert all(listener.commands.reply() == b'OK' for _ in range(500))
        late = []
        while len(late) < 500:
            channel, key = heard(listener)
            assert channel == 'expired'
            late.append(time.time() * 1000 - int(key))
        late.sort()
        assert late[0] >= 0
        assert late[494] <= (300 if not mayfly.sanitized() else 1000), late[480:]
    mayfly.in_one_of(5, attempt)
    listener.close()


@pytest.mark.engine('memory', 'data on disk is not evicted')
def test_evicted(server):
    listener = Listener(server)
    listener.commands.call('CONFIG', 'SET', 'notify-keyspace-events', 'Ee')
    for i in range(20):
        listener.commands.call('SET', f'k{i}', 'v' * 1000)
    listener.commands.call('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru', 'maxmemory', '1')
    assert sorted(heard(listener) for _ in range(20)) == sorted(('evicted', f'k{i}') for i in range(20))
    listener.commands.call('CONFIG', 'SET', 'maxmemory-policy', 'noeviction', 'maxmemory', '0')
    listener.close()


@pytest.mark.lone('nodes of a cluster replicate by Raft')
def test_events_of_a_replica(server, server_factory):
    """A replica has events of its own, and tells of what is expired when its primary says so."""
    primary, replica = server_factory('--repl-diskless-sync-delay', 0), server_factory()
    listener = Listener(replica)
    listener.commands.call('CONFIG', 'SET', 'notify-keyspace-events', 'EA')
    listener.commands.call('REPLICAOF', '127.0.0.1', primary.port)
    with replica.client() as r:
        mayfly.eventually(lambda: r.info('replication')['master_link_status'] == 'up')
    with primary.client() as r:
        r.set('k', 'v', px=50)
    assert [heard(listener) for _ in range(3)] == [('set', 'k'), ('expire', 'k'), ('del', 'k')]
    listener.close()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 MB, most of which is taken."""
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=64m', 'none', tmp_path], capture_output=True,
                      check=False).returncode:
        pytest.skip('no right to mount')
    (tmp_path / 'ballast').write_bytes(b'\0' * (40 << 20))
    yield tmp_path
    subprocess.run(['umount', '-l', tmp_path], check=False)


@pytest.mark.lone('a node whose storage fails ends')
@pytest.mark.engine('rocksdb', 'needs storage that fails')
def test_failed_writes_publish_no_events(small_disk, server_factory):
    """The disk is full: as many changes are told of as were acknowledged, and caches are declared invalid."""
    s = server_factory('--rocksdb-write-buffer-size', '128mb', '--rocksdb-compression', 'none', '--rocksdb-blob-size', 0,
                       directory=str(small_disk))
    listener = Listener(s)
    listener.commands.call('CONFIG', 'SET', 'notify-keyspace-events', 'E$')
    kept, errors = 0, []
    with s.raw() as tracker, s.raw() as c:
        tracker.call('HELLO', '3')
        tracker.call('CLIENT', 'TRACKING', 'ON')
        while len(errors) < 20 and kept < 20000:
            tracker.call('GET', 'k')
            for command in (['MULTI'], ['SET', 'k', kept], ['SETNX', f'filler {kept}', os.urandom(20000)],
                            ['PUBLISH', '__keyevent@0__:set', 'more']):
                c.call(*command)
            reply = c.call('EXEC')
            told = tracker.reply() if not isinstance(reply, str) else None
            if isinstance(reply, list):
                kept += 1
                assert told == [b'invalidate', [b'k']]
                assert [heard(listener)[1] for _ in range(3)] == ['k', f'filler {kept - 1}', 'more']
            else:
                errors.append(reply)
                if not reply.startswith('EXECABORT'):   # it ran, and was undone (or was refused before)
                    assert tracker.reply() == [b'invalidate', None]
        assert errors and {e.split()[0] for e in errors} <= {'IOERR', 'MISCONF', 'EXECABORT'}, errors
        assert tracker.silent() and listener.events.silent()
    listener.close()
