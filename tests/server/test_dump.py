"""DUMP and RESTORE, alone and against redis-server 7.0.15: each restores what the other dumped."""
import random
import shutil
import struct
import subprocess
import tempfile
import time

import pytest
import redis

import mayfly
import redis_server
from rdb_bytes import crc64

FAR = 4_100_000_000_000     # ms: a deadline long after these tests


# --- a real Redis -------------------------------------------------------------------

@pytest.fixture(scope='module')
def other():
    """A client of redis-server."""
    if not shutil.which('redis-server'):
        pytest.skip('redis-server is not installed')
    where, port = tempfile.mkdtemp(prefix='redis-'), mayfly.free_port()
    proc = subprocess.Popen(['redis-server', '--port', str(port), '--save', '', '--dir', where],
                            stdout=subprocess.DEVNULL, cwd=where)
    with mayfly.Client(port=port, socket_timeout=30) as client:
        def up():
            try:
                return client.ping()
            except redis.ConnectionError:
                return False
        mayfly.eventually(up)
        yield client
    proc.terminate()
    proc.wait()
    shutil.rmtree(where, ignore_errors=True)


@pytest.fixture
def empty_other(other):
    other.flushall()
    return other


# --- values on both sides of every threshold ---------------------------------------------

def texts(n, size, rng):
    return [bytes(rng.choice(b'abcdefgh \x00\xff') for _ in range(size - 6)) + b'%06d' % i for i in range(n)]


def put_all(c, rng):
    """Keys of every type and encoding; the name says which."""
    def string(name, value):
        c.set('s:' + name, value)
    for i in (0, 1, -1, 12, 127, 128, -128, -129, 32767, 32768, -32769, 2**31 - 1, 2**31, -2**31, -2**31 - 1,
              2**63 - 1, -2**63, '007', '+1', '1.5', '-0'):
        string(f'int {i}', i)
    for n in (0, 1, 20, 21, 44, 45, 63, 64, 100, 16383, 16384, 70000, 300000):
        string(f'run {n}', b'a' * n)
        string(f'noise {n}', rng.randbytes(n))
        string(f'mixed {n}', (b'hello world ' * (n // 12 + 1))[:n])

    for n in (1, 2, 127, 128, 129, 512, 513, 3000):
        for size in (7, 64, 65):
            v = texts(n, size, rng)
            name = f'{n}x{size}'
            c.rpush('l:' + name, *v)
            c.sadd('t:' + name, *v)
            c.hset('h:' + name, mapping={x: v[-1 - i] for i, x in enumerate(v)})
            c.zadd('z:' + name, {x: rng.choice((i, -i, i / 7, 1e30 * i, 0.1)) for i, x in enumerate(v)})
        for width, top in (('8', 100), ('16', 2**15 - 1), ('32', 2**31 - 1), ('64', 2**63 - 1)):
            c.sadd(f't:ints{width} {n}', *[rng.randint(-top - 1, top) for _ in range(n)])
            numbers = [rng.randint(-top - 1, top) for _ in range(n)]
            c.rpush(f'l:ints{width} {n}', *numbers)
            c.hset(f'h:ints{width} {n}', mapping={x: -x for x in numbers})
    c.rpush('l:odd', b'', b'0', b'-0', b'127', b'128', b'4095', b'-4096', b'4096', b'-4097', 2**23 - 1, 2**23,
            -2**23, -2**23 - 1, b'x' * 63, b'x' * 64, b'x' * 4095, b'x' * 4096, b'y' * 8192, b'z' * 100000, b'')
    c.rpush('l:long', *[b'%d ' % i * 3000 for i in range(40)])
    c.zadd('z:odd', {'inf': float('inf'), '-inf': float('-inf'), 'tiny': 5e-324, 'big': 1.7e308, 'third': 1 / 3,
                     '': 0, 'int': 2**53, 'not int': 2**62, '123': 123})
    c.zadd('z:many', {f'm{i}': i * 1.25 for i in range(5000)})
    c.hset('h:empty', mapping={b'': b'', b'a': b''})
    c.pfadd('s:hll', *range(500))
    c.pfadd('s:dense hll', *range(50000))


def read(c, key):
    kind = c.type(key)
    if kind == b'string':
        return c.get(key)
    if kind == b'list':
        return c.lrange(key, 0, -1)
    if kind == b'set':
        return c.smembers(key)
    if kind == b'hash':
        return c.hgetall(key)
    if kind == b'zset':
        return c.zrange(key, 0, -1, withscores=True)
    return kind


def encoding(c, key):
    """As 7.0 has it, where small sets of strings are hash tables, and lists are quicklists. Since 7.2 a set's encoding
    depends on how it came to be: 513 integers in one SADD make a hash table, even if some are the same."""
    if c.type(key) == b'set' and redis_server.version() >= (7, 2):
        return None
    found, small = c.object('encoding', key), {b'set': b'hashtable', b'list': b'quicklist'}
    return small.get(c.type(key), found) if found == b'listpack' else found


def check_same(a, b):
    keys = sorted(a.keys())
    assert keys == sorted(b.keys())
    for k in keys:
        assert read(a, k) == read(b, k), k
        assert a.pexpiretime(k) == b.pexpiretime(k), k
        if a.type(k) != b'string':      # restored text is raw here, embstr there, as in Redis
            assert encoding(a, k) == encoding(b, k), k


def copy_all(source, target):
    for k in source.keys():
        target.restore(k, 0, source.dump(k))


def test_redis_restores_ours(r, empty_other):
    put_all(r, random.Random(1))
    copy_all(r, empty_other)
    check_same(r, empty_other)


def test_we_restore_redis(r, empty_other):
    put_all(empty_other, random.Random(2))
    copy_all(empty_other, r)
    check_same(r, empty_other)


def test_we_restore_ours(r):
    put_all(r, random.Random(3))
    for k in r.keys():
        before, payload = read(r, k), r.dump(k)
        assert r.restore(k, 0, payload, replace=True)
        assert read(r, k) == before, k
        assert r.dump(k)[:1] == payload[:1]


def test_random_values_there_and_back(r, empty_other):
    rng = random.Random(4)
    for i in range(300):
        n, size = rng.choice((1, 3, 20, 130, 600)), rng.choice((6, 10, 30, 100))
        v = texts(n, size, rng)
        kind = rng.choice('slthz')
        if kind == 's':
            r.set('k', rng.choice((b''.join(v), rng.randint(-2**63, 2**63 - 1))))
        elif kind == 'l':
            r.rpush('k', *(v if rng.random() < 0.5 else [rng.randint(-2**40, 2**40) for _ in v]))
        elif kind == 't':
            r.sadd('k', *(v if rng.random() < 0.5 else [rng.randint(-2**40, 2**40) for _ in v]))
        elif kind == 'h':
            r.hset('k', mapping={x: rng.randbytes(rng.randrange(size)) for x in v})
        else:
            r.zadd('k', {x: rng.choice((rng.randint(-9, 9), rng.gauss(0, 1e6))) for x in v})
        value = read(r, 'k')
        empty_other.restore('k', 0, r.dump('k'))
        assert read(empty_other, 'k') == value
        r.restore('back', 0, empty_other.dump('k'))
        assert read(r, 'back') == value
        r.delete('k', 'back')
        empty_other.delete('k')


# --- the commands ---------------------------------------------------------------------------

def error(c, *args):
    with pytest.raises(redis.ResponseError) as e:
        c.execute_command(*args)
    return str(e.value)


def test_errors_are_those_of_redis(r, empty_other):
    for c in (r, empty_other):
        c.set('k', 'v')
        c.set('taken', 'w')
    good = r.dump('k')
    # redis-py takes the prefix ERR off
    cases = [
        (('RESTORE', 'new', 0, 'garbage'), 'DUMP payload version or checksum are wrong'),
        (('RESTORE', 'new', 0, ''), 'DUMP payload version or checksum are wrong'),
        (('RESTORE', 'new', 0, good[:-1]), 'DUMP payload version or checksum are wrong'),
        (('RESTORE', 'new', 0, b'\xff' + good[1:]), 'DUMP payload version or checksum are wrong'),
        (('RESTORE', 'new', -1, good), 'Invalid TTL value, must be >= 0'),
        (('RESTORE', 'new', 'x', good), 'value is not an integer or out of range'),
        (('RESTORE', 'new', 0, good, 'IDLETIME', -1), 'Invalid IDLETIME value, must be >= 0'),
        (('RESTORE', 'new', 0, good, 'IDLETIME', 'x'), 'value is not an integer or out of range'),
        (('RESTORE', 'new', 0, good, 'FREQ', -1), 'Invalid FREQ value, must be >= 0 and <= 255'),
        (('RESTORE', 'new', 0, good, 'FREQ', 256), 'Invalid FREQ value, must be >= 0 and <= 255'),
        (('RESTORE', 'new', 0, good, 'FREQ', 1, 'IDLETIME', 1), 'syntax error'),
        (('RESTORE', 'new', 0, good, 'IDLETIME', 1, 'FREQ', 1), 'syntax error'),
        (('RESTORE', 'new', 0, good, 'IDLETIME'), 'syntax error'),
        (('RESTORE', 'new', 0, good, 'FOO'), 'syntax error'),
        (('RESTORE', 'taken', 0, good), 'BUSYKEY Target key name already exists.'),
        (('RESTORE', 'taken', -1, 'garbage'), 'BUSYKEY Target key name already exists.'),
        (('RESTORE', 'taken', -1, 'garbage', 'REPLACE'), 'Invalid TTL value, must be >= 0'),
        (('RESTORE', 'taken', 0), "wrong number of arguments for 'restore' command"),
    ]
    for args, text in cases:
        assert error(empty_other, *args) == error(r, *args) == text, args
    for c in (r, empty_other):
        assert c.dump('nokey') is None
        assert c.exists('new') == 0
        assert c.get('taken') == b'w'


def payload(body, version=10):
    body += struct.pack('<H', version)
    return body + struct.pack('<Q', crc64(body))


def test_newest_versions(r):
    assert r.restore('k', 0, payload(b'\x00\x01x', 12))
    assert 'version' in error(r, 'RESTORE', 'k2', 0, payload(b'\x00\x01x', 13))


def lp(*entries):
    body = b''.join(entries)
    return struct.pack('<IH', len(body) + 7, len(entries)) + body + b'\xff'


def lp_text(s):
    return bytes([0x80 | len(s)]) + s + bytes([len(s) + 1])


def string(b):
    return bytes([len(b)]) + b


BAD = {
    'nothing': b'',
    'unknown type': b'\x08\x01x',
    'opcode': b'\xfa\x01x',
    'short string': b'\x00\x05abc',
    'huge string': b'\x00\x81' + b'\x7f' * 8 + b'x',
    'trailing byte': b'\x00\x01xy',
    'unknown string encoding': b'\x00\xc4abc',
    'LZF that claims too much': b'\x00\xc3\x03\x80\x10\x00\x00\x00abc',
    'LZF that is damaged': b'\x00\xc3\x03\x20\xff\xff\xff',
    'empty list': b'\x01\x00',
    'empty hash listpack': b'\x10' + string(lp()),
    'a set member twice': b'\x02\x02\x01x\x01x',
    'a field twice': b'\x04\x02\x01x\x01y\x01x\x01z',
    'a field twice, packed': b'\x10' + string(lp(*[lp_text(b'a')] * 4)),
    'a member twice': b'\x05\x02\x01x' + b'\0' * 8 + b'\x01x' + b'\0' * 8,
    'a score that is no number': b'\x05\x01\x01x' + struct.pack('<d', float('nan')),
    'scores out of order': b'\x11' + string(lp(lp_text(b'a'), b'\x05\x01', lp_text(b'b'), b'\x04\x01')),
    'half a field': b'\x10' + string(lp(lp_text(b'a'))),
    'a listpack with a wrong count': b'\x10' + string(b'\x0d\0\0\0\x03\0' + lp_text(b'a') * 2 + b'\xff'),
    'integers out of order': b'\x0b' + string(struct.pack('<IIhh', 2, 2, 5, 4)),
    'an intset of an odd width': b'\x0b' + string(struct.pack('<IIhh', 3, 2, 1, 2)),
    'a list node of an odd kind': b'\x12\x01\x03\x01x',
    'a stream without the entries it tells of': b'\x0f\x00\x01\x00\x00\x00',
    'a module': b'\x07\x00\x00',
}


@pytest.mark.parametrize('what', BAD)
def test_bad_data_leaves_everything_as_it_was(r, what):
    r.rpush('old', 'a', 'b')
    bad = payload(BAD[what])
    assert error(r, 'RESTORE', 'new', 0, bad) == 'Bad data format'
    assert error(r, 'RESTORE', 'old', 0, bad, 'REPLACE') == 'Bad data format'
    assert r.keys() == [b'old']
    assert r.lrange('old', 0, -1) == [b'a', b'b']


def test_every_truncation_and_flip_is_noticed(r):
    r.rpush('l', *range(300), 'text')
    whole = r.dump('l')
    for cut in range(len(whole)):
        assert 'wrong' in error(r, 'RESTORE', 'k', 0, whole[:cut])
    for at in range(0, len(whole) * 8, 7):
        flipped = bytearray(whole)
        flipped[at // 8] ^= 1 << at % 8
        assert 'wrong' in error(r, 'RESTORE', 'k', 0, bytes(flipped))


def test_deadlines(r):
    r.set('k', 'v')
    payload = r.dump('k')
    assert r.restore('a', 50_000, payload) and 49_000 < r.pttl('a') <= 50_000
    assert r.restore('b', FAR, payload, absttl=True) and r.pexpiretime('b') == FAR
    assert r.restore('c', 0, payload) and r.pttl('c') == -1
    assert r.restore('d', 1, payload, absttl=True) and not r.exists('d')      # dead on arrival
    assert r.restore('a', 1, payload, replace=True, absttl=True) and not r.exists('a')
    assert r.restore('b', 0, payload, replace=True) and r.pttl('b') == -1
    assert error(r, 'RESTORE', 'b', 2**63 - 1, payload) == 'BUSYKEY Target key name already exists.'
    assert r.restore('e', 2**63 - 1, payload, absttl=True) and r.pexpiretime('e') == 2**63 - 1


def test_replace_changes_the_type(r):
    r.rpush('l', *range(1000))
    r.hset('h', 'f', 'v')
    lists, hashes = r.dump('l'), r.dump('h')
    r.pexpireat('l', FAR)
    assert r.restore('l', 0, hashes, replace=True)
    assert r.type('l') == b'hash' and r.pttl('l') == -1
    assert r.restore('h', FAR, lists, replace=True, absttl=True)
    assert r.llen('h') == 1000 and r.pexpiretime('h') == FAR
    assert r.dbsize() == 2


def test_idle_time_and_frequency(server_factory):
    with server_factory().client() as r:
        r.set('k', 'v')
        payload = r.dump('k')
        assert r.restore('idle', 0, payload, idletime=1000)
        assert 1000 <= r.object('idletime', 'idle') <= 1020
        assert r.restore('freq', 0, payload, frequency=17)
        assert r.object('idletime', 'freq') <= 20
        r.config_set('maxmemory-policy', 'allkeys-lfu')
        assert r.restore('freq', 0, payload, frequency=17, replace=True)
        assert r.object('freq', 'freq') == 17


def test_field_deadlines_travel(r):
    soon = int(time.time() * 1000) + 1000
    for name, n in (('small', 5), ('large', 600)):
        r.hset(name, mapping={f'f{i}': f'v{i}' for i in range(n)})
        r.execute_command('HPEXPIREAT', name, FAR, 'FIELDS', 2, 'f0', 'f1')
        r.execute_command('HPEXPIREAT', name, FAR + 7, 'FIELDS', 1, 'f2')
        r.execute_command('HPEXPIREAT', name, soon, 'FIELDS', 1, 'f3')
        dumped = r.dump(name)
        assert dumped[0] == (25 if name == 'small' else 24)
        assert struct.unpack('<H', dumped[-10:-8]) == (12,)
        assert r.restore('copy', 0, dumped, replace=True)
        ask = ('HPEXPIRETIME', 'copy', 'FIELDS', 5, 'f0', 'f1', 'f2', 'f3', 'f4')
        assert r.execute_command(*ask) == [FAR, FAR, FAR + 7, soon, -1]
        assert r.hlen('copy') == n
        time.sleep(max(0, soon / 1000 - time.time()) + 0.01)
        assert r.restore('late', 0, dumped, replace=True)      # f3 is dead by now
        assert r.hlen('late') == n - 1 and not r.hexists('late', 'f3')
        soon = int(time.time() * 1000) + 1000


def test_hash_whose_fields_are_all_dead(r):
    r.hset('h', 'f', 'v')
    r.execute_command('HPEXPIRE', 'h', 500, 'FIELDS', 1, 'f')
    dumped = r.dump('h')
    r.set('old', 'x')
    time.sleep(0.51)
    assert r.restore('new', 0, dumped) and not r.exists('new')
    assert r.restore('old', 0, dumped, replace=True) and not r.exists('old')


def test_redis_74_payloads(r):
    """Made by hand, after Redis 7.4's format: deadlines count from the nearest, plus one."""
    table = b'\x18' + struct.pack('<Q', FAR) + b'\x03' + \
        b'\x00\x01a\x011' + b'\x01\x01b\x012' + b'\x40\x65\x01c\x013'
    assert r.restore('h', 0, payload(table, 12))
    assert r.hgetall('h') == {b'a': b'1', b'b': b'2', b'c': b'3'}
    assert r.execute_command('HPEXPIRETIME', 'h', 'FIELDS', 3, 'a', 'b', 'c') == [-1, FAR, FAR + 100]
    early = b'\x16\x02' + b'\x00\x01a\x011' + b'\x81' + struct.pack('>Q', FAR) + b'\x01b\x012'
    assert r.restore('h2', 0, payload(early, 12))
    assert r.execute_command('HPEXPIRETIME', 'h2', 'FIELDS', 2, 'a', 'b') == [-1, FAR]
    packed = lp(lp_text(b'b'), lp_text(b'2'), b'\xf4' + struct.pack('<q', FAR) + b'\x09',
                lp_text(b'a'), lp_text(b'x'), b'\x00\x01')
    for name, head in (('h3', b'\x19' + struct.pack('<Q', FAR)), ('h4', b'\x17')):
        assert r.restore(name, 0, payload(head + string(packed), 12))
        assert r.execute_command('HPEXPIRETIME', name, 'FIELDS', 2, 'a', 'b') == [-1, FAR]


def test_rdbcompression(r, empty_other):
    def dumps(c, compress):
        c.config_set('rdbcompression', compress)
        c.set('s', 'x' * 1000)
        c.hset('h', 'f', 'y' * 50)
        c.function_flush()
        c.function_load("#!lua name=l\nredis.register_function('f', function() return 1 end) --" + 'z' * 100)
        try:
            return c.dump('s'), c.dump('h'), c.function_dump()
        finally:
            c.config_set('rdbcompression', 'yes')
            c.function_flush()
    for compress in 'yes', 'no':        # at the end is the version of the format, and a checksum
        assert [x[:-10] for x in dumps(r, compress)] == [x[:-10] for x in dumps(empty_other, compress)]


def test_a_large_value(r, empty_other):
    """More than a window, more than a piece."""
    if mayfly.sanitized():
        pytest.skip('too slow')
    r.rpush('l', *[b'%08d' % i for i in range(200_000)])
    r.sadd('t', *range(100_000))
    r.set('s', random.Random(5).randbytes(5_000_000))
    copy_all(r, empty_other)
    check_same(r, empty_other)


def test_old_payloads(r):
    """What redis-server 2.8 to 6.2 dumped: ziplists, zipmaps, scores as text."""
    def ziplist(*entries):
        body, previous = b'', 0
        for e in entries:
            entry = bytes([previous]) + e
            body, previous = body + entry, len(entry)
        return struct.pack('<IIH', len(body) + 11, 10 + len(body) - previous, len(entries)) + body + b'\xff'
    text = string           # a ziplist's short strings have the length in six bits, too
    assert r.restore('l', 0, payload(b'\x0a' + string(ziplist(text(b'a'), b'\xf3', b'\xfe\x9c', b'\xc0\x00\x80')), 6))
    assert r.lrange('l', 0, -1) == [b'a', b'2', b'-100', b'-32768']
    assert r.restore('h', 0, payload(b'\x0d' + string(ziplist(text(b'f'), text(b'v'))), 6))
    assert r.hgetall('h') == {b'f': b'v'}
    assert r.restore('z', 0, payload(b'\x0c' + string(ziplist(text(b'm'), text(b'1.5'), text(b'n'), b'\xf4')), 6))
    assert r.zrange('z', 0, -1, withscores=True) == [(b'm', 1.5), (b'n', 3)]
    assert r.restore('q', 0, payload(b'\x0e\x02' + string(ziplist(text(b'a'))) + string(ziplist(text(b'b'))), 7))
    assert r.lrange('q', 0, -1) == [b'a', b'b']
    assert r.restore('m', 0, payload(b'\x09' + string(b'\x01\x01f\x01\x02vxx\xff'), 3))
    assert r.hgetall('m') == {b'f': b'v'}
    assert r.restore('z1', 0, payload(b'\x03\x03\x01a\x031.5\x01b\xfe\x01c\xff', 6))
    assert r.zrange('z1', 0, -1, withscores=True) == [(b'c', float('-inf')), (b'a', 1.5), (b'b', float('inf'))]
