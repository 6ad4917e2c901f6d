"""A dataset with something of everything a file can hold, and a server's whole data, key by key."""
import random
import time

import redis_server
from mayfly import ENGINE, Raw, ReplyError, encode

FAR = 4_102_444_800_123             # 2100, in ms
CHUNK = 1 << 20                     # bytes of commands sent ahead of their replies


def many(c, commands):
    """The replies to many commands, sent in portions."""
    replies, part, size = [], [], 0
    for command in commands:
        part.append(encode(*command))
        size += len(part[-1])
        if size > CHUNK or len(part) == 500:
            replies += ask(c, part)
            part, size = [], 0
    return replies + ask(c, part)


def ask(c, part):
    c.send(b''.join(part))
    return [c.reply() for _ in part]


def run(c, commands):
    """Commands that all succeed."""
    commands = list(commands)
    for command, reply in zip(commands, many(c, commands)):
        assert not isinstance(reply, ReplyError), (str(command)[:200], reply)


def script(text, tag):
    """Commands as text, ';' or a new line between them; ~name is a key of this tag."""
    for line in text.replace('\n', ';').split(';'):
        words = [f'{tag}:{w[1:]}' if w[0] == '~' else w for w in line.split()]
        if words:
            yield words


# -- the data ------------------------------------------------------------------------------------------

def noise(n):
    return random.Random(n).randbytes(n)


INTEGERS = [0, 1, 12, 13, 127, 128, 255, 256, 4095, 4096, 8191, 8192, 9999, 10000, 32767, 32768, 65535, 65536,
            2**23 - 1, 2**23, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1]
INTEGERS += [-i - (i == 2**63 - 1) for i in INTEGERS[1:]] + [-2**31 - 1, -2**31]
NOT_QUITE = [b'007', b'-0', b'+1', b' 1', b'1.0', b'1e3', b'9223372036854775808', b'-9223372036854775809', b'0x10', b'']
SIZES = [1, 2, 11, 12, 20, 21, 43, 44, 45, 63, 64, 65, 66, 253, 254, 255, 4095, 4096, 16383, 16384, 65535, 65536,
         70_000]
ELEMENTS = [*map(lambda i: b'%d' % i, INTEGERS), *NOT_QUITE, *[b'x' * n for n in SIZES[:18]], noise(63), noise(64),
            noise(4095), noise(4096), b'\x00', b'\r\n', b'*1\r\n$4\r\nPING\r\n', '\u00fc\u20ac'.encode()]
SCORES = [b'inf', b'-inf', b'0', b'-0', b'0.1', b'1.5', b'-2.25', b'1e300', b'-1e300', b'5e-324',
          b'2.2250738585072014e-308', b'9007199254740991', b'9007199254740992', b'9007199254740993', b'1e15',
          b'1e17', b'123456789012345680',
          b'0.30000000000000004', b'3.141592653589793', b'-1', b'63', b'64', b'127', b'128', b'4095', b'4096', b'32768',
          b'2147483648', b'1e19', b'17976931348623157e292']


def strings():
    for i in INTEGERS:
        yield 'SET', f'int:{i}', i
    for i, text in enumerate(NOT_QUITE):
        yield 'SET', f'text:{i}', text
    for n in SIZES:
        yield 'SET', f'same:{n}', b'a' * n
        yield 'SET', f'noise:{n}', noise(n)
    yield 'SET', 'big:same', b'abc' * 1_000_000
    yield 'SET', 'big:noise', noise(2_500_000)
    yield 'SET', '', 'of the empty key'
    yield 'SET', b'\x00\xff\r\n', 'of a binary key'
    yield 'SET', '12345', 'of a number'
    yield 'SET', '-1', 'of another'
    yield 'SET', b'k' * 70_000, 'of a long key'
    yield 'SET', noise(300), 'of a key that can not be compressed'
    yield 'SETBIT', 'bits', 100_000, 1
    yield 'PFADD', 'hll:sparse', *range(50)              # beyond what would come back as embstr
    yield 'PFADD', 'hll:dense', *range(5000)


def collections():
    """Around every limit at which Redis changes the encoding."""
    for n in 1, 2, 127, 128, 129, 511, 512, 513, 1500:
        yield 'HSET', f'hash:{n}', *[x for i in range(n) for x in (f'f{i}', i)]
        yield 'SADD', f'ints:{n}', *range(n)
        yield 'SADD', f'set:{n}', *[f'm{i}' for i in range(n)]
        yield 'ZADD', f'zset:{n}', *[x for i in range(n) for x in (i / 4, f'm{i}')]
        yield 'RPUSH', f'list:{n}', *[f'e{i}' for i in range(n)]
    for n in 63, 64, 65, 300, 70_000:
        yield 'HSET', f'hash:field:{n}', 'f' * n, 1, 'a', 2
        yield 'HSET', f'hash:value:{n}', 'f', noise(n), 'a', 2
        yield 'ZADD', f'zset:member:{n}', 1, 'm' * n, 2, 'a'
        yield 'SADD', f'set:member:{n}', noise(n), 1
    for width, extreme in (16, 2**15 - 1), (32, 2**31 - 1), (64, 2**63 - 1):
        yield 'SADD', f'ints:{width}bit', 1, extreme, -extreme - 1
    yield 'RPUSH', 'list:elements', *ELEMENTS
    yield 'HSET', 'hash:elements', *[x for e in ELEMENTS for x in (e, e)]
    yield 'SADD', 'set:elements', *ELEMENTS
    yield 'ZADD', 'zset:elements', *[x for i, e in enumerate(ELEMENTS) for x in (i % 7, e)]
    yield 'HSET', 'hash:packed', *[x for e in ELEMENTS if len(e) < 64 for x in (e, e)]
    yield 'ZADD', 'zset:scores', *[x for s in SCORES for x in (s, b'm' + s)]
    yield 'ZADD', 'zset:scores:large', *[x for s in SCORES for x in (s, b'm' + s * 40)]
    yield 'ZADD', 'zset:equal', *[x for i in range(300) for x in (7, f'm{i}')]
    yield 'GEOADD', 'geo', 13.361389, 38.115556, 'Palermo', 15.087269, 37.502669, 'Catania'
    for n in 4090, 8150, 8180, 8192, 8200:                  # around a node of 8 KB
        yield 'RPUSH', f'list:node:{n}', *[b'y' * n, b'z'] * 5
    yield 'RPUSH', 'list:huge', 'a', noise(1_500_000), b'b' * 1_200_000, 'c'
    yield 'HSET', 'hash:huge', 'f', noise(1_100_000), b'g' * 1_050_000, 'v'


def streams():
    """Nodes of all sizes, entries with the same fields and with others, groups in all states."""
    for n in 1, 2, 99, 100, 101, 350:
        for i in range(n):
            yield 'XADD', f'stream:{n}', f'{1000 + i // 3}-{i % 3 + 1}', 'name', f'n{i}', 'number', i
    for i, e in enumerate(ELEMENTS):
        yield 'XADD', 'stream:elements', f'{i + 1}-0', e, ELEMENTS[-1 - i], b'f%d' % (i % 5), e
    yield 'XADD', 'stream:wide', '5-5', *[x for i in range(700) for x in (f'field{i}', i * 7919)]
    yield 'XADD', 'stream:huge', '1-1', 'f', noise(1_100_000), b'g' * 1_050_000, 'v'
    yield 'XADD', 'stream:last', f'{2**64 - 1}-{2**64 - 1}', 'f', 'v'
    yield 'XGROUP', 'CREATE', 'stream:empty', 'g', '$', 'MKSTREAM'
    yield 'XADD', 'stream:gone', '5-1', 'f', 'v'
    yield 'XDEL', 'stream:gone', '5-1'
    yield 'XDEL', 'stream:350', '1000-1', '1003-2', '1050-1', '1116-2'
    yield 'XTRIM', 'stream:350', 'MAXLEN', 300
    yield 'XSETID', 'stream:100', '5000-7', 'ENTRIESADDED', 1000, 'MAXDELETEDID', '4000-1'
    for i, name in enumerate((b'g', b'', b'\x00', b'\x00\x01', b'a longer name', noise(100))):
        yield 'XGROUP', 'CREATE', 'stream:101', name, f'{1000 + i}', 'ENTRIESREAD', i
        yield 'XGROUP', 'CREATECONSUMER', 'stream:101', name, 'idle'
        yield 'XREADGROUP', 'GROUP', name, name, 'COUNT', 5, 'STREAMS', 'stream:101', '>'
        yield 'XREADGROUP', 'GROUP', name, 'other', 'COUNT', 3, 'STREAMS', 'stream:101', '>'
        yield 'XACK', 'stream:101', name, f'{1000 + i}-3'
        yield 'XGROUP', 'SETID', 'stream:101', name, f'{1003 + i}', 'ENTRIESREAD', i + 8    # else Redis's AOF lacks it
    yield 'XREADGROUP', 'GROUP', 'g', 'lazy', 'NOACK', 'COUNT', 9, 'STREAMS', 'stream:101', '>'
    yield 'XGROUP', 'CREATE', 'stream:350', 'g', 0
    yield 'XREADGROUP', 'GROUP', 'g', 'c', 'STREAMS', 'stream:350', '>'
    yield 'XGROUP', 'SETID', 'stream:350', 'g', '$', 'ENTRIESREAD', 350
    yield 'XCLAIM', 'stream:350', 'g', 'd', 0, '1020-1', '1021-2', 'TIME', 12345, 'RETRYCOUNT', 7
    yield 'PEXPIREAT', 'stream:99', FAR


def many_elements():
    for i in range(0, 9000, 3):
        yield 'XADD', 'stream:many', f'{i + 1}-0', 'name', f'entry {i}', 'value', i
    for part in range(10):
        numbers = range(part * 1000, part * 1000 + 1000)
        yield 'RPUSH', 'list:many', *[f'element {i}' for i in numbers]
        yield 'HSET', 'hash:many', *[x for i in numbers for x in (f'field:{i}', f'value {i}')]
        yield 'ZADD', 'zset:many', *[x for i in numbers for x in (i * 0.37 % 100, f'member:{i}')]
        yield 'SADD', 'set:many', *[f'member:{i}' for i in numbers]
        yield 'SADD', 'ints:many', *[i * 7919 for i in numbers]


def deadlines(now_ms):
    for kind, command in (('string', ['SET', 'v']), ('list', ['RPUSH', 'a', 'b']), ('set', ['SADD', 'a', 'b']),
                          ('ints', ['SADD', 1, 2]), ('hash', ['HSET', 'a', 'b']), ('zset', ['ZADD', 1, 'a'])):
        for name, when in (('near', now_ms + 600_000), ('day', now_ms + 86_400_000), ('far', FAR), ('farther', 2**53),
                           ('odd', now_ms + 700_001)):
            key = f'ttl:{name}:{kind}'
            yield command[0], key, *command[1:]
            yield 'PEXPIREAT', key, when


def databases(numbers):
    for db in numbers:
        yield 'SELECT', db
        yield 'MSET', 'here', db, f'only:{db}', 'x'
        yield 'PEXPIREAT', 'here', FAR + db
    yield 'SELECT', 0


def fill(c, dbs=range(1, 16)):
    run(c, [*strings(), *collections(), *streams(), *many_elements(), *deadlines(int(time.time() * 1000)), *databases(dbs)])


# -- reading -------------------------------------------------------------------------------------------

READ = {b'string': ('GET',), b'list': ('LRANGE', 0, -1), b'set': ('SMEMBERS',), b'hash': ('HGETALL',),
        b'zset': ('ZRANGE', 0, -1, 'WITHSCORES'), b'stream': ('XINFO', 'STREAM', 'FULL', 'COUNT', 0)}


def reading(kind, key):
    """The command that reads all of a value."""
    name, *rest = READ.get(kind, ('EXISTS',))
    return (name, rest[0], key, *rest[1:]) if name == 'XINFO' else (name, key, *rest)


def fields(reply):
    return dict(zip(reply[::2], reply[1::2]))


def stream(reply):
    """What XINFO STREAM FULL tells, but for the tree, and when a consumer was seen or active."""
    found = {k: v for k, v in fields(reply).items() if not k.startswith(b'radix-tree')}
    found[b'groups'] = [fields(g) for g in found[b'groups']]
    for g in found[b'groups']:
        g[b'consumers'] = [{k: v for k, v in fields(c).items() if k not in (b'seen-time', b'active-time')}
                           for c in g[b'consumers']]
        if redis_server.version() >= (8, 0):    # which estimates it otherwise than 7.4
            g.pop(b'lag', None)
    return found


def score(text):
    """In one form: 7.0 prints more digits than 7.4, and rocksdb has no -0."""
    number = float(text)
    if number == 0:
        return b'0' if ENGINE == 'rocksdb' else text
    return b'%d' % number if abs(number) < 1e17 and number.is_integer() else repr(number).encode()


def content(kind, reply):
    if kind == b'stream':
        return stream(reply)
    if kind == b'hash':
        return dict(zip(reply[::2], reply[1::2]))
    if kind == b'zset':
        return [score(x) if i % 2 else x for i, x in enumerate(reply)]
    return sorted(reply) if kind == b'set' else reply


def look(server, dbs=range(16), encodings=True):
    """{(database, key): (type, encoding, content, PEXPIRETIME)}; without encodings, None there."""
    data = {}
    with Raw(server.port) as c:
        for db in dbs:
            assert c.call('SELECT', db) == b'OK'
            keys = sorted(c.call('KEYS', '*'))
            facts = many(c, [x for k in keys for x in (('TYPE', k), ('OBJECT', 'ENCODING', k), ('PEXPIRETIME', k))])
            kinds, forms, times = facts[::3], facts[1::3], facts[2::3]
            values = many(c, [reading(kind, k) for k, kind in zip(keys, kinds)])
            for k, kind, form, when, value in zip(keys, kinds, forms, times, values):
                if kind == b'set' and form == b'listpack':  # which 7.0 does not have
                    form = b'hashtable'
                if kind == b'list' or kind == b'set' and redis_server.version() >= (7, 2):
                    form = None         # always a quicklist in 7.0; later it depends on how it came to be
                data[db, k] = (kind, form if encodings else None, content(kind, value), when)
    return data


def differences(a, b):
    """What is different, short enough to be read."""
    def short(x):
        text = repr(x)
        return text if len(text) < 300 else f'{text[:150]} … {text[-100:]} ({len(text)} characters)'
    return [f'{short(k)}: {short(a.get(k))} and {short(b.get(k))}' for k in sorted({*a, *b}) if a.get(k) != b.get(k)]


def same(a, b):
    found = differences(a, b)
    assert not found, f'{len(found)} of {len(a)} keys differ:\n' + '\n'.join(found[:10])
