"""RDB files of all versions, made by hand: Redis loads the same of those it knows; what Mayfly has no place for
is named, and left out if asked to."""
import os
import re
import struct
import time

import pytest

import everything
import mayfly
import rdb_bytes as rdb
import redis_server
from everything import FAR, look, many, same
from mayfly import Raw, encode
from rdb_bytes import aux, items, key, listpack, select, sizes, string, ziplist

CORPUS = os.path.join(mayfly.ROOT, 'tests', 'fuzz', 'corpus', 'rdb')
NUMBERS = [0, 12, 13, 127, 128, -1, -128, -129, 32767, -32768, 32768, 8388607, -8388608, 8388608, 2**31 - 1, -2**31,
           2**31, 2**63 - 1, -2**63]
TEXTS = ['', 'a', 'x' * 63, 'x' * 64, 'y' * 253, 'z' * 260, 'w' * 16383, 'v' * 16384]


def load(server_factory, tmp_path, data, *args, wait=True):
    """A server that has loaded a file."""
    (tmp_path / 'dump.rdb').write_bytes(data)
    if mayfly.ENGINE == 'memory':
        return server_factory('--appendonly', 'no', *args, directory=str(tmp_path), wait=wait)
    return server_factory('--import-rdb', str(tmp_path / 'dump.rdb'), *args, wait=wait)


def loads_as_in_redis(server_factory, tmp_path, data):
    """Both load the same. What that is."""
    s = load(server_factory, tmp_path, data)
    found = look(s)
    if redis_server.shutil.which('redis-server'):
        redis = redis_server.Redis(directory=str(tmp_path))
        try:
            same(look(redis), found)
        finally:
            redis.remove()
    return {k: v[2:] for k, v in found.items()}


# -- old versions --------------------------------------------------------------------------------------

def lzf(text):
    """A string as liblzf leaves it, if it can't do anything: literals only."""
    parts = [text[i:i + 32] for i in range(0, len(text), 32)]
    packed = b''.join(bytes([len(p) - 1]) + p for p in parts)
    return b'\xc3' + rdb.length(len(packed)) + rdb.length(len(text)) + packed


HASH = rdb.length(2) + string('f') + string('v') + string('g') + b'\xc0\x07'     # its length is of pairs
OLD_KEYS = [
    key(0, 'str', string('hello')), key(0, 'int8', b'\xc0\x85'), key(0, 'int16', b'\xc1\x00\x80'),
    key(0, 'int32', b'\xc2\x00\x00\x00\x80'), key(0, 'lzf', lzf(b'abcd' * 20)), key(0, 'empty', string('')),
    key(0, b'\xc0', string('of a key that looks like a code')),
    key(1, 'list', items('x', '1', 'y' * 100)), key(2, 'set', items('x', '7')), key(4, 'hash', HASH),
    key(3, 'zset', rdb.length(4) + b''.join(string(m) + rdb.score_text(s) for m, s in
                                            (('a', '1.5'), ('b', '-inf'), ('c', 'inf'), ('d', '1e+20')))),
]


def seconds(n):
    return b'\xfd' + struct.pack('<I', n)


def old(version, *more):
    """Seconds, and no opcodes but the oldest."""
    return rdb.file(version, select(0), *OLD_KEYS, seconds(2**31 - 1) + key(0, 'seconds', string('v')),
                    seconds(1) + key(0, 'dead', string('v')), *more)


PACKED = [
    key(9, 'zipmap', rdb.zipmap(foo=b'bar', x=b'', long=b'v' * 300)), key(10, 'zl-list', ziplist(*NUMBERS, *TEXTS)),
    key(11, 'is16', rdb.intset(2, -32768, 0, 32767)), key(11, 'is32', rdb.intset(4, -2**31, 7, 2**31 - 1)),
    key(11, 'is64', rdb.intset(8, -2**63, -1, 2**63 - 1)), key(12, 'zl-zset', ziplist('a', '-1.5', 'b', 2, 7, '2.25')),
    key(13, 'zl-hash', ziplist('f', 'v', 7, -129, 'g', 'x' * 64)),
    b'\xfc' + struct.pack('<q', FAR) + key(10, 'far', ziplist('a', 'b' * 64)),
]


@pytest.mark.parametrize('version', [1, 2, 3, 4, 5, 6])
def test_old_versions(server_factory, tmp_path, version):
    more = PACKED if version >= 3 else []
    if version < 4:                                             # the last type that came is the ziplist of a hash
        more = [p for p in more if b'zl-hash' not in p]
    found = loads_as_in_redis(server_factory, tmp_path, old(version, *more))
    assert len(found) == 12 + len(more) and found[0, b'seconds'] == (b'v', 2147483647000)
    assert found[0, b'zset'][0] == [b'b', b'-inf', b'a', b'1.5', b'd', b'1e+20', b'c', b'inf']
    assert found[0, b'lzf'][0] == b'abcd' * 20 and found[0, b'hash'][0] == {b'f': b'v', b'g': b'7'}
    if version >= 3:
        assert found[0, b'zl-list'][0] == [str(v).encode() for v in [*NUMBERS, *TEXTS]]
        assert found[0, b'zipmap'][0] == {b'foo': b'bar', b'x': b'', b'long': b'v' * 300}
        assert found[0, b'is64'][0] == sorted([b'-9223372036854775808', b'-1', b'9223372036854775807'])
        assert found[0, b'zl-zset'][0] == [b'a', b'-1.5', b'b', b'2', b'7', b'2.25']


@pytest.mark.parametrize('version', [7, 8, 9])
def test_middle_versions(server_factory, tmp_path, version):
    """Redis 3.2 to 6: AUX fields, sizes, lists of ziplists; then binary scores, then idle times."""
    parts = [aux('redis-ver', '3.2.1'), aux('redis-bits', '64'), aux('lua', 'return 1'),
             aux('something', 'else'), select(0), sizes(30, 1), *OLD_KEYS, *PACKED,
             key(14, 'quick', rdb.length(3) + ziplist(*NUMBERS) + ziplist(*TEXTS) + ziplist('last'))]
    if version >= 8:
        parts.append(key(5, 'zset2', rdb.length(3) + string('a') + rdb.score(1.5) + string('b')
                         + rdb.score(float('inf')) + string('c') + rdb.score(-0.0)))
        parts.append(key(0, 'long length', b'\x81' + struct.pack('>Q', 3) + b'abc'))
    if version >= 9:
        parts += [b'\xf8' + rdb.length(1000) + key(0, 'idle', string('v')), b'\xf9\x2a' + key(0, 'used', string('v'))]
    parts += [select(12), sizes(1), key(0, 'elsewhere', string('v'))]
    found = loads_as_in_redis(server_factory, tmp_path, rdb.file(version, *parts))
    assert found[0, b'quick'][0] == [str(v).encode() for v in [*NUMBERS, *TEXTS, 'last']]
    assert found[12, b'elsewhere'] == (b'v', -1)
    assert version < 8 or found[0, b'zset2'][0] == [b'c', b'0', b'a', b'1.5', b'b', b'inf']


NOT_IN_REDIS_7_0 = ('cluster-aux', 'old-file', 'old-module', 'old-setlp', 'old-ttl22', 'ours-bigttls', 'ours-ttls')


def corpus():
    """{name: file}: whole files as they are; the values that Redis knows as the keys of one, others of their own."""
    found, keys = {}, []
    for name in sorted(os.listdir(CORPUS)):
        data = open(os.path.join(CORPUS, name), 'rb').read()
        if not data[0] & 1:
            found[name] = data[1:]
        elif name in NOT_IN_REDIS_7_0:
            found[name] = rdb.file(12, select(0), key(data[1], 'k', data[2:]))
        else:
            keys.append(key(data[1], name, data[2:]))
    found['values'] = rdb.file(10, select(0), *keys)
    return found


@pytest.mark.engine('memory', 'about the file')
@redis_server.needed
def test_the_corpus_of_the_fuzzer(server_factory, tmp_path):
    seen, refused = 0, []
    for name, data in corpus().items():
        where = tmp_path / name
        where.mkdir()
        s = load(server_factory, where, data, '--rdbchecksum', 'no', '--rdb-skip-unsupported', 'yes', wait=False)
        if name == 'aux-ttl':
            assert s.proc.wait(mayfly.PATIENCE) == 1 and 'a listpack is damaged' in s.log, s.log
            continue
        s.wait_ready()
        seen += len(look(s))
        (where / 'dump.rdb').write_bytes(data[:5] + b'0010' + data[9:])
        redis = redis_server.Redis('--rdbchecksum', 'no', directory=str(where), wait=False)
        try:
            redis.wait_ready()
            same(look_plain(redis), look_plain(s))
        except AssertionError as e:
            assert 'the server ended' in str(e), e
            assert re.search("Terminating server|Internal error|AUX module data I can't load", redis.log), e
            refused.append(name)
        finally:
            redis.remove()
        assert s.stop() == 0
    assert seen > 100 and set(refused) <= set(NOT_IN_REDIS_7_0), (seen, refused)
    assert redis_server.version() >= (7, 2) or len(refused) == len(NOT_IN_REDIS_7_0), refused      # later ones know more


def look_plain(server):
    return look(server, encodings=False)


# -- new versions --------------------------------------------------------------------------------------

def field_ttls(now_ms):
    """Redis 7.4's hashes: by fields, and packed, each in its final form and in that of the release candidates."""
    far, soon, gone = FAR, now_ms + 600_000, now_ms - 1000
    yield key(24, 'meta', struct.pack('<q', soon) + rdb.length(4) + rdb.length(0) + items('a', '1')[1:]
              + rdb.length(far - soon + 1) + items('b', '2')[1:] + rdb.length(1) + items('c', '3')[1:]
              + rdb.length(600_000) + items('d', '4')[1:])
    yield key(25, 'packed', struct.pack('<q', soon) + listpack('c', '3', soon, 'b', '2', far, 'a', '1', 0, 'n', 5, 0))
    yield key(22, 'early', rdb.length(2) + rdb.length(0) + items('a', '1')[1:] + rdb.length(far) + items('b', '2')[1:])
    yield key(23, 'early packed', listpack('b', '2', far, 'a', '1', 0))
    yield key(24, 'half dead', struct.pack('<q', gone) + rdb.length(2) + rdb.length(0) + items('a', '1')[1:]
              + rdb.length(1) + items('b', '2')[1:])
    yield key(25, 'all dead', struct.pack('<q', gone) + listpack('b', '2', gone))


def deadlines(s, name, *fields):
    with Raw(s.port) as c:
        return c.call('HPEXPIRETIME', name, 'FIELDS', len(fields), *fields)


@pytest.mark.parametrize('version', [11, 12])
def test_redis_7_2_and_7_4(server_factory, tmp_path, version):
    now_ms = int(time.time() * 1000)
    ttls = list(field_ttls(now_ms)) if version == 12 else []
    parts = [aux('redis-ver', '7.4.0'), select(0), b'\xf4' + rdb.length(5) + rdb.length(2) + rdb.length(0), sizes(9),
             key(20, 'set', listpack('m', 7, -5000, 'x' * 70)), key(20, 'ints', listpack(1, 2, 3)),
             key(16, 'hash', listpack('f', 'v', 7, -129)), key(17, 'zset', listpack('a', '-1.5', 'b', 2, 7, '2.25')),
             key(18, 'list', rdb.length(3) + rdb.length(2) + listpack(*NUMBERS) + rdb.length(1) + string('plain')
                 + rdb.length(2) + listpack(*TEXTS)), *ttls]
    s = load(server_factory, tmp_path, rdb.file(version, *parts))
    found = {k: v[2] for (_, k), v in look(s).items()}
    assert found[b'set'] == sorted([b'm', b'7', b'-5000', b'x' * 70]) and found[b'ints'] == [b'1', b'2', b'3']
    assert found[b'hash'] == {b'f': b'v', b'7': b'-129'}
    assert found[b'zset'] == [b'a', b'-1.5', b'b', b'2', b'7', b'2.25']
    assert found[b'list'] == [str(v).encode() for v in [*NUMBERS, 'plain', *TEXTS]]
    if not ttls:
        assert len(found) == 5
        return
    soon = now_ms + 600_000
    assert found[b'meta'] == {b'a': b'1', b'b': b'2', b'c': b'3', b'd': b'4'}
    assert deadlines(s, 'meta', *'abcd') == [-1, FAR, soon, soon + 599_999]
    assert found[b'packed'] == {b'a': b'1', b'b': b'2', b'c': b'3', b'n': b'5'}
    assert deadlines(s, 'packed', *'abcn') == [-1, FAR, soon, -1]
    for name in 'early', 'early packed':
        assert found[name.encode()] == {b'a': b'1', b'b': b'2'} and deadlines(s, name, *'ab') == [-1, FAR]
    assert found[b'half dead'] == {b'a': b'1'} and deadlines(s, 'half dead', *'ab') == [-1, -2]
    assert b'all dead' not in found and len(found) == 10
    with Raw(s.port) as c:
        assert c.call('DBSIZE') == 10
    # It is the same after a restart from a snapshot of ours, and Redis 7.0 has the fields that are alive.
    if mayfly.ENGINE == 'memory':
        with Raw(s.port) as c:
            assert c.call('SAVE') == b'OK'
        s.restart()
        assert {k: v[2] for (_, k), v in look(s).items()} == found
        assert deadlines(s, 'meta', *'abcd') == [-1, FAR, soon, soon + 599_999]
        redis_server.check_rdb(f'{s.dir}/dump.rdb')
        redis = redis_server.Redis(directory=s.dir)
        try:
            assert {k: v[2] for (_, k), v in look(redis).items()} == found
        finally:
            redis.remove()


def test_version_13_is_refused(server_factory, tmp_path):
    s = load(server_factory, tmp_path, rdb.file(13, select(0), key(0, 'k', string('v'))), wait=False)
    assert s.proc.wait(mayfly.PATIENCE) == 1 and 'version 13 of RDB is not supported' in s.log and 'dump.rdb' in s.log


# -- what Mayfly has no place for ----------------------------------------------------------------------

MODULE_ID = b'\x81' + struct.pack('>Q', 0x31A94C96DCA30401)
MODULE_VALUE = MODULE_ID + b'\x02\x05' + b'\x05' + string('abc') + b'\x04' + rdb.score(1.5) + b'\x00'
STRANGERS = {
    'module data': (key(7, 'the key', MODULE_VALUE), 'the key "the key" of database 0 holds a module'),
    'module aux': (b'\xf7' + MODULE_ID + b'\x02\x02' + b'\x05' + string('abc') + b'\x00', 'module'),
}


@pytest.mark.parametrize('what', STRANGERS)
def test_strangers(server_factory, tmp_path, what):
    part, message = STRANGERS[what]
    data = rdb.file(12, select(0), key(0, 'before', string('v')), part, key(0, 'after', string('v')))
    s = load(server_factory, tmp_path, data, wait=False)
    assert s.proc.wait(mayfly.PATIENCE) == 1 and message in s.log and 'does not support' in s.log, s.log
    assert 'rdb-skip-unsupported yes' in s.log and 'at offset' in s.log
    s = load(server_factory, tmp_path, data, '--rdb-skip-unsupported', 'yes')
    assert 'Left out' in s.log
    assert {k for _, k in look(s)} == {b'before', b'after'}


@pytest.mark.engine('memory', 'the other engine keeps its data itself')
@redis_server.needed
@pytest.mark.parametrize('preamble', ['yes', 'no'])
def test_streams_and_functions_in_an_aof(server_factory, tmp_path, preamble):
    """In the base and in the increment, as Redis writes them."""
    redis = redis_server.Redis('--appendonly', 'yes', '--aof-use-rdb-preamble', preamble)
    library = "#!lua name={}\nredis.register_function('{}', function() return redis.call('set', 'called', 1) end)"
    try:
        with Raw(redis.port) as c:
            replies = many(c, [('SET', 'a', 1), ('XADD', 's', '*', 'f', 'v'), ('XGROUP', 'CREATE', 's', 'g', 0),
                               ('FUNCTION', 'LOAD', library.format('l', 'f')), ('BGREWRITEAOF',)])
            mayfly.eventually(lambda: b'aof_rewrite_in_progress:0' in c.call('INFO', 'persistence'))
            replies += many(c, [('SET', 'b', 1), ('XADD', 's2', '*', 'f', 'v'), ('XADD', 's', '*', 'f', 'v'),
                                ('XREADGROUP', 'GROUP', 'g', 'c', 'STREAMS', 's', '>'), ('XTRIM', 's', 'MAXLEN', 1),
                                ('FUNCTION', 'LOAD', library.format('l2', 'f2')), ('FCALL', 'f', 0),
                                ('FUNCTION', 'DELETE', 'l'), ('EXPIRE', 's', 1000), ('DEL', 's2'), ('SET', 'c', 1)])
        assert not [r for r in replies if isinstance(r, mayfly.ReplyError)], replies
    finally:
        redis.stop()
    redis_server.shutil.copytree(f'{redis.dir}/appendonlydir', tmp_path / 'appendonlydir')
    redis.remove()
    s = server_factory('--appendonly', 'yes', directory=str(tmp_path))
    for _ in range(2):
        with s.client() as c:
            assert {*c.keys()} == {b'a', b'b', b'c', b'called', b's'} and 'Left out' not in s.log
            assert c.xlen('s') == 1 and c.xpending('s', 'g')['pending'] == 2
            assert [lib[1] for lib in c.function_list()] == [b'l2'] and c.fcall('f2', 0) == b'OK'
        s.restart()


def test_long_commands_still_fit(server_factory, tmp_path):
    """A value of many MB that came in a file can be read as a whole."""
    value = everything.noise(1000) * 20_000
    s = load(server_factory, tmp_path, rdb.file(10, select(0), key(0, 'k', string(value)), checksum=bytes(8)))
    with Raw(s.port) as c:
        c.send(encode('GET', 'k'))
        assert c.reply() == value
