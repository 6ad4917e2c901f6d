"""Streams where the oracle can't look: restarts, payloads, waiting, the last ID; and expiry-stream."""
import random
import struct
import time

import pytest

import everything
import mayfly
import rdb_bytes as rdb
from everything import look, same
from mayfly import Raw, ReplyError, eventually

NOGROUP = "NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option"
WRONGTYPE = 'WRONGTYPE Operation against a key holding the wrong kind of value'
BAD = 'ERR Bad data format'


def run(c, line):
    reply = c.call(*line.split())
    assert not isinstance(reply, ReplyError), (line, reply)
    return reply


# -- whole streams -------------------------------------------------------------------------------------

@pytest.fixture(scope='module')
def full():
    """A server with all kinds of streams, one of them with a pending entry that is deleted."""
    s = mayfly.new_server('--enable-debug-command', 'yes')
    with Raw(s.port) as c:
        everything.run(c, everything.streams())
        run(c, 'XDEL stream:101 1000-1 1033-2')
    yield s
    try:
        assert s.stop() == 0
        s.check()
    finally:
        s.remove()


@pytest.mark.lone('a cluster has database 0 only')
def test_restart(full):
    before = look(full)
    assert len(before) == 12
    full.restart()
    same(before, look(full))
    with Raw(full.port) as c:
        assert run(c, 'DEBUG RELOAD') == b'OK'
        same(before, look(full))
        assert run(c, 'XADD stream:101 1033-3 f v') == b'1033-3'         # it goes on
        assert run(c, 'XDEL stream:101 1033-3') == 1


def test_copies(full):
    """By COPY, RENAME, and DUMP and RESTORE, everything comes along."""
    with Raw(full.port) as c:
        run(c, 'PERSIST stream:99')
        for key in c.call('KEYS', 'stream:*'):
            whole = everything.stream(c.call('XINFO', 'STREAM', key, 'FULL', 'COUNT', 0))
            digest = c.call('DEBUG', 'DIGEST-VALUE', key)
            payload = c.call('DUMP', key)
            assert c.call('RESTORE', 'dumped', 0, payload) == b'OK'
            assert c.call('COPY', key, 'copied') == 1 and c.call('RENAME', 'copied', 'renamed') == b'OK'
            for other in 'dumped', 'renamed':
                assert everything.stream(c.call('XINFO', 'STREAM', other, 'FULL', 'COUNT', 0)) == whole
                assert c.call('DEBUG', 'DIGEST-VALUE', other) == digest
            assert c.call('DUMP', 'renamed') == payload or key == b'stream:350'   # whose deleted entries are left out
            assert c.call('MEMORY', 'USAGE', 'dumped') > 50 and c.call('OBJECT', 'ENCODING', 'dumped') == b'stream'
            assert c.call('DEL', 'dumped', 'renamed') == 2
        assert set(c.call('SCAN', 0, 'COUNT', 1000, 'TYPE', 'stream')[1]) == set(c.call('KEYS', 'stream:*'))


# -- payloads ------------------------------------------------------------------------------------------

def lp_int(v):
    return bytes([v, 1]) if 0 <= v < 128 else b'\xf4' + struct.pack('<q', v) + b'\x09'


def lp_text(text):
    return bytes([0x80 | len(text)]) + text + bytes([1 + len(text)])


def pack(*items):
    body = b''.join(i if isinstance(i, bytes) else lp_int(i) for i in items) + b'\xff'
    return rdb.string(struct.pack('<IH', 6 + len(body), len(items)) + body)


def raw_id(ms, seq):
    return struct.pack('>QQ', ms, seq)


MASTER = (2, 1, 1, lp_text(b'f'), 0)                    # two entries, one deleted, field f
ENTRIES = (2, 0, 0, lp_text(b'a'), 4, 3, 0, 1, lp_text(b'x'), 4, 0, 1, 0, 1, lp_text(b'g'), lp_text(b'b'), 6)
NODE = rdb.string(raw_id(5, 5)) + pack(*MASTER, *ENTRIES)
HEAD = b'\x02\x06\x05\x05\x05\x05\x06\x03'              # length, last 6-5, first 5-5, deleted 5-6, added 3
PENDING = raw_id(5, 5) + struct.pack('<Q', 77) + b'\x02'
CONSUMER = rdb.string('c') + struct.pack('<Q', 88)
GROUP = rdb.string('g') + b'\x05\x05\x01' + b'\x01' + PENDING + b'\x01' + CONSUMER + b'\x01' + raw_id(5, 5)


def stream(nodes=b'\x01' + NODE, head=HEAD, groups=b'\x01' + GROUP, kind=b'\x13'):
    return kind + nodes + head + groups


def seal(body, version=11):
    body += struct.pack('<H', version)
    return body + struct.pack('<Q', rdb.crc64(body))


def node(*items, at=(5, 5)):
    return b'\x01' + rdb.string(raw_id(*at)) + pack(*items)


def group(pel=b'\x01' + PENDING, consumers=b'\x01' + CONSUMER + b'\x01' + raw_id(5, 5)):
    return b'\x01' + rdb.string('g') + b'\x05\x05\x01' + pel + consumers


DAMAGED = {
    'other length': stream(head=b'\x03' + HEAD[1:]),
    'last ID below the entries': stream(head=b'\x02\x05\x05' + HEAD[3:]),
    'no node': stream(nodes=b'\x00'),
    'a node twice': stream(nodes=b'\x02' + NODE * 2),
    'a node ID of 15 bytes': stream(nodes=b'\x01' + rdb.string(b'x' * 15) + pack(*MASTER, *ENTRIES)),
    'an empty node': stream(nodes=node()),
    'a node of no entries': stream(nodes=node(0, 0, 1, lp_text(b'f'), 0)),
    'more live than there are': stream(nodes=node(3, *MASTER[1:], *ENTRIES)),
    'fewer deleted than there are': stream(nodes=node(2, 0, *MASTER[2:], *ENTRIES)),
    'live and deleted the other way round': stream(nodes=node(1, 2, *MASTER[2:], *ENTRIES)),
    'a negative number of fields': stream(nodes=node(2, 1, -1, 0, *ENTRIES)),
    'a huge number of fields': stream(nodes=node(2, 1, 2**40, lp_text(b'f'), 0, *ENTRIES)),
    'a text as a count': stream(nodes=node(lp_text(b'x'), *MASTER[1:], *ENTRIES)),
    'no end of the master': stream(nodes=node(*MASTER[:4], 1, *ENTRIES)),
    'an entry without fields': stream(nodes=node(1, 0, 0, 0, 2, 0, 0, 3), head=b'\x01' + HEAD[1:]),
    'an entry 0-0': stream(nodes=node(*MASTER, *ENTRIES, at=(0, 0)), head=b'\x02\x06\x05\x00\x00\x05\x06\x03'),
    'unknown flags': stream(nodes=node(*MASTER, 4, *ENTRIES[1:])),
    'IDs that descend': stream(nodes=node(*MASTER, *ENTRIES[:6], 0, 0, *ENTRIES[8:])),
    'an ID below its node': stream(nodes=node(*MASTER, 2, 0, -1, *ENTRIES[3:])),
    'an ID that overflows': stream(nodes=node(*MASTER, 2, 2**63 - 1, 0, *ENTRIES[3:], at=(2**63 + 5, 5))),
    'an entry of another size': stream(nodes=node(*MASTER, *ENTRIES[:4], 5, *ENTRIES[5:])),
    'half an entry': stream(nodes=node(*MASTER, *ENTRIES[:-1])),
    'something after the entries': stream(nodes=node(*MASTER, *ENTRIES, 0)),
    'a group twice': stream(groups=b'\x02' + GROUP * 2),
    'an entry pending twice': stream(groups=group(pel=b'\x02' + PENDING * 2)),
    'pending for nobody': stream(groups=group(consumers=b'\x01' + CONSUMER + b'\x00')),
    'pending for two': stream(groups=group(consumers=b'\x02' + (CONSUMER + b'\x01' + raw_id(5, 5)) * 2)),
    'a consumer twice': stream(groups=group(consumers=b'\x02' + CONSUMER + b'\x01' + raw_id(5, 5) +
                                            CONSUMER + b'\x00')),
    'a consumer with an entry of its own': stream(groups=group(consumers=b'\x01' + CONSUMER + b'\x01' + raw_id(5, 6))),
    'bytes left over': stream() + b'\x00',
}


def test_payloads(r, server):
    with Raw(server.port) as c:
        early = GROUP.replace(b'\x05\x05\x01\x01', b'\x05\x05\x01')
        late = GROUP.replace(CONSUMER, CONSUMER + struct.pack('<Q', 99))
        for kind, head, groups in (b'\x13', HEAD, GROUP), (b'\x0f', HEAD[:3], early), (b'\x15', HEAD, late):
            payload = seal(stream(head=head, groups=b'\x01' + groups, kind=kind))
            assert c.call('RESTORE', 's', 0, payload, 'REPLACE') == b'OK'
            assert c.call('XRANGE', 's', '-', '+') == [[b'5-5', [b'f', b'a']], [b'6-5', [b'g', b'b']]]
            assert c.call('XPENDING', 's', 'g') == [1, b'5-5', b'5-5', [[b'c', b'1']]]
            found = everything.fields(c.call('XINFO', 'STREAM', 's'))
            assert found[b'last-generated-id'] == b'6-5' and found[b'recorded-first-entry-id'] == b'5-5'
            assert found[b'entries-added'] == (2 if kind == b'\x0f' else 3)
        assert c.call('XADD', 's', '6-*', 'f', 'v') == b'6-6' and c.call('DEL', 's') == 1
        for what, body in DAMAGED.items():
            assert c.call('RESTORE', 's', 0, seal(body)) == BAD, what
        assert c.call('EXISTS', 's') == 0


def test_last_id_below_deleted_entries(r, server):
    """XSETID may have set it there. Nodes end with it, and are gone where nothing else is in them."""
    with Raw(server.port) as c:
        for live, entries, head in ((1, (2, 0, 0, lp_text(b'a'), 4), b'\x01\x05\x05\x05\x05\x09\x09\x03'),
                                    (0, (3, 0, 0, lp_text(b'a'), 4), b'\x00\x03\x03\x00\x00\x09\x09\x03')):
            nodes = node(live, 2 - live, *MASTER[2:], *entries, 3, 4, 4, lp_text(b'x'), 4)    # 5-5, and 9-9, deleted
            payload = seal(stream(nodes=nodes, head=head, groups=b'\x00'))
            assert c.call('RESTORE', 's', 0, payload, 'REPLACE') == b'OK'
            everything.run(c, [('XADD', 's', f'{i}-9', 'f', i) for i in range(6, 200)])
            whole = run(c, 'XRANGE s - +')
            assert len(whole) == 194 + live and run(c, 'XDEL s 9-9') == 1
            assert c.call('RESTORE', 't', 0, run(c, 'DUMP s'), 'REPLACE') == b'OK'
            assert run(c, 'XRANGE t - +') == [e for e in whole if e[0] != b'9-9']
            assert run(c, 'XTRIM s MAXLEN 100') == 93 + live and run(c, 'XRANGE s - +') == whole[-100:]


def test_damaged_at_random(server):
    """Whatever a payload says, it is taken or refused; and what is taken can be used."""
    rng, taken = random.Random(5), 0
    with Raw(server.port) as c:
        for _ in range(1500):
            body = bytearray(stream())
            for _ in range(rng.choice((1, 1, 2, 5))):
                body[rng.randrange(1, len(body))] = rng.choice((0, 1, 2, 5, 127, 128, 255, rng.randrange(256)))
            if c.call('RESTORE', 's', 0, seal(bytes(body)), 'REPLACE') != b'OK':
                continue
            taken += 1
            for command in (('XINFO', 'STREAM', 's', 'FULL'), ('XADD', 's', '*', 'f', 'v'),
                            ('XTRIM', 's', 'MAXLEN', '~', 1), ('XAUTOCLAIM', 's', 'g', 'e', 0, 0),
                            ('XREADGROUP', 'GROUP', 'g', 'd', 'STREAMS', 's', '>'),
                            ('XTRIM', 's', 'MAXLEN', 1), ('DUMP', 's'), ('XGROUP', 'DELCONSUMER', 's', 'g', 'e')):
                c.call(*command)
        assert taken > 100 and c.call('PING') == b'PONG'


# -- IDs -----------------------------------------------------------------------------------------------

def test_the_last_id(r, server):
    with Raw(server.port) as c:
        assert run(c, f'XADD s {2**64 - 1}-{2**64 - 2} f v') == b'%d-%d' % (2**64 - 1, 2**64 - 2)
        assert run(c, 'XADD s * f v') == b'%d-%d' % (2**64 - 1, 2**64 - 1)      # the clock is behind: one more
        exhausted = 'ERR The stream has exhausted the last possible ID, unable to add more items'
        assert c.call('XADD', 's', '*', 'f', 'v') == exhausted
        assert c.call('XADD', 's', f'{2**64 - 1}-*', 'f', 'v') == exhausted
        assert run(c, f'XRANGE s ({2**64 - 1}-{2**64 - 2} +')[0][0] == b'%d-%d' % (2**64 - 1, 2**64 - 1)
        assert run(c, 'XTRIM s MINID 5') == 0
        assert run(c, 'XTRIM s MAXLEN 0') == 2 and run(c, 'XLEN s') == 0
        before = int(time.time() * 1000)
        ms, seq = map(int, run(c, 'XADD t * f v').split(b'-'))
        assert before <= ms <= time.time() * 1000 and seq == 0
        run(c, 'XADD t 99999999999999-5 f v')
        assert run(c, 'XADD t * f v') == b'99999999999999-6'


def test_an_id_comes_back(r, server):
    """Not below a deleted entry, but in a stream that was trimmed."""
    with Raw(server.port) as c:
        everything.run(c, [('XADD', 's', f'{i}-0', 'f', i) for i in range(1, 101)])
        everything.run(c, [('XDEL', 's', '100-0')])
        assert c.call('XSETID', 's', '99-0') == \
            'ERR The ID specified in XSETID is smaller than current max_deleted_entry_id'
        # In an empty stream the next ID may be any.
        everything.run(c, [('XADD', 'u', f'{i}-0', 'f', i) for i in range(1, 5)])
        everything.run(c, [('XTRIM', 'u', 'MINID', '5-0'), ('XSETID', 'u', '1-0')])
        everything.run(c, [('XADD', 'u', f'{i}-0', 'f', i) for i in range(2, 200)])
        assert run(c, 'XTRIM u MAXLEN 150') == 48 and run(c, 'XDEL u 100-0') == 1 and run(c, 'DUMP u')


@pytest.mark.skipif(mayfly.ENGINE == 'rocksdb', reason='it has no AOF')
def test_rewritten_as_commands(server_factory):
    s = server_factory('--appendonly', 'yes', '--aof-use-rdb-preamble', 'no')
    with Raw(s.port) as c:
        for line in ('XADD s 1-1 f v', 'XADD s 5-5 f v', 'XDEL s 5-5', 'XSETID s 6-6', 'XGROUP CREATE s g 0',
                     'XADD empty 7-7 f v', 'XDEL empty 7-7', 'XSETID empty 8-3 ENTRIESADDED 9',
                     'XGROUP CREATE new g $ MKSTREAM'):
            run(c, line)
        before = look(s)
        run(c, 'BGREWRITEAOF')
        eventually(lambda: s.info('persistence')['aof_rewrite_in_progress'] == 0)
    s.restart()
    same(before, look(s))


def test_watched(r, server):
    """As Redis has it: groups are no change, entries are."""
    with Raw(server.port) as a, Raw(server.port) as c:
        for line, changes in (('XADD s 1-1 f v', True), ('XGROUP CREATE s g 0', False),
                              ('XREADGROUP GROUP g me STREAMS s >', False), ('XACK s g 1-1', False),
                              ('XGROUP DELCONSUMER s g me', False), ('XGROUP CREATE t g 0 MKSTREAM', True),
                              ('XSETID s 9-9', False), ('XTRIM s MAXLEN 9', False), ('XDEL s 1-1', True)):
            run(a, 'WATCH s t')
            run(c, line)
            run(a, 'MULTI')
            run(a, 'PING')
            assert a.call('EXEC') == (None if changes else [b'PONG']), line


@pytest.mark.skipif(mayfly.ENGINE != 'rocksdb', reason='it has no iterators')
def test_walks_end(r, server):
    """However many a transaction goes, they share a few iterators."""
    with Raw(server.port) as c:
        everything.run(c, [('XADD', 's', f'1-{i}', 'f', i) for i in range(1, 3001)])
        run(c, 'XGROUP CREATE s g 0')
        everything.run(c, [('XREADGROUP', 'GROUP', 'g', f'c{i}', 'COUNT', 2, 'STREAMS', 's', '>') for i in range(300)])
        made = server.info('rocksdb')['iterators_made']
        run(c, 'DUMP s')                                                 # 30 nodes, 300 consumers
        run(c, 'XINFO STREAM s FULL')
        everything.run(c, [('MULTI',)] + [('XADD', 's', 'MAXLEN', 3000, f'2-{i}', 'f', i) for i in range(200)] +
                       [('XREADGROUP', 'GROUP', 'g', 'c1', 'COUNT', 1, 'STREAMS', 's', '>')] * 200 +
                       [('XREADGROUP', 'GROUP', 'g', 'c1', 'COUNT', 1, 'STREAMS', 's', 0)] * 200 +
                       [('XPENDING', 's', 'g', '-', '+', 1), ('XDEL', 's', '2-1'), ('XPENDING', 's', 'g')] * 100 +
                       [('EXEC',)])
        assert server.info('rocksdb')['iterators_made'] - made < 40


# -- waiting -------------------------------------------------------------------------------------------

def waiters(server, n):
    eventually(lambda: server.info('clients')['blocked_clients'] == n)


def test_readers_wait(r, server):
    """All who wait get the entry; $ is what it was when they came."""
    with Raw(server.port) as a, Raw(server.port) as b, Raw(server.port) as c:
        run(c, 'XADD s 1-1 f old')
        a.command('XREAD', 'BLOCK', 0, 'STREAMS', 's', 'no', '$', '$')
        b.command('HELLO', 3)
        b.reply()
        b.command('XREAD', 'BLOCK', 20000, 'COUNT', 1, 'STREAMS', 'no', 's', 0, '1-1')
        waiters(server, 2)
        c.send(b''.join(mayfly.encode('XADD', 's', i, 'f', i) for i in ('2-1', '2-2')))
        assert c.reply() == b'2-1' and c.reply() == b'2-2'
        assert a.reply() == [[b's', [[b'2-1', [b'f', b'2-1']]]]]
        assert b.reply() in ({b's': [[b'2-1', [b'f', b'2-1']]]}, [b's', [[b'2-1', [b'f', b'2-1']]]])
        start = time.time()
        assert a.call('XREAD', 'BLOCK', 30, 'STREAMS', 's', '$') is None and time.time() - start >= 0.03


def test_groups_wait(r, server):
    """First come, first served within a group; every group gets its own."""
    with Raw(server.port) as a, Raw(server.port) as b, Raw(server.port) as other, Raw(server.port) as c:
        run(c, 'XGROUP CREATE s g $ MKSTREAM')
        run(c, 'XGROUP CREATE s h $')
        for n, (who, name, grp) in enumerate(((a, 'a', 'g'), (b, 'b', 'g'), (other, 'o', 'h'))):
            who.command('XREADGROUP', 'GROUP', grp, name, 'BLOCK', 0, 'STREAMS', 's', '>')
            waiters(server, n + 1)
        run(c, 'XADD s 1-1 f v')
        assert a.reply() == other.reply() == [[b's', [[b'1-1', [b'f', b'v']]]]]
        waiters(server, 1)
        run(c, 'XADD s 1-2 f v')
        assert b.reply() == [[b's', [[b'1-2', [b'f', b'v']]]]]
        assert run(c, 'XPENDING s g') == [2, b'1-1', b'1-2', [[b'a', b'1'], [b'b', b'1']]]
        assert run(c, 'XPENDING s h') == [1, b'1-1', b'1-1', [[b'o', b'1']]]
        assert run(c, 'XACK s g 1-1 1-2') == 2
        for end, answer in (('XGROUP DESTROY s g', NOGROUP), ('DEL s', NOGROUP), ('SET s x', WRONGTYPE)):
            c.call('XGROUP', 'CREATE', 's', 'g', '$', 'MKSTREAM')
            a.command('XREADGROUP', 'GROUP', 'g', 'a', 'BLOCK', 0, 'STREAMS', 's', '>')
            waiters(server, 1)
            run(c, end)
            assert a.reply() == answer, end


# -- expiry-stream -------------------------------------------------------------------------------------

def entries(c):
    return [everything.fields(e[1]) for e in c.call('XRANGE', 'gone', '-', '+')]


@pytest.mark.lone('a cluster has database 0 only')
def test_expiry_stream(server_factory):
    s = server_factory('--expiry-stream', 'gone', 'MAXLEN', '1000', '--enable-debug-command', 'yes', '--appendonly',
                       'no' if mayfly.ENGINE == 'rocksdb' else 'yes')
    with Raw(s.port) as c:
        assert run(c, 'CONFIG GET expiry-stream') == [b'expiry-stream', b'gone MAXLEN 1000']
        now = int(time.time() * 1000)
        everything.run(c, [('SET', 'a', 1, 'PXAT', now + 840), ('SELECT', 7), ('LPUSH', 'l', 'x'),
                           ('PEXPIREAT', 'l', now + 850),
                           ('HSET', 'h', 'f', 1, 'stays', 2), ('HPEXPIREAT', 'h', now + 860, 'FIELDS', 1, 'f'),
                           ('XADD', 'gone', '1-1', 'f', 'v'), ('PEXPIREAT', 'gone', now + 870), ('SELECT', 0)])
        eventually(lambda: run(c, 'XLEN gone') == 4)
        found = {e[b'key']: e for e in entries(c)}
        for key, db, kind, when in ((b'a', b'0', b'string', 840), (b'l', b'7', b'list', 850),
                                    (b'h', b'7', b'hash', 860),
                                    (b'gone', b'7', b'stream', 870)):     # that of another database is one like any
            e = found[key]
            assert (e[b'db'], e[b'type'], int(e[b'deadline'])) == (db, kind, now + when)
            assert now + when <= int(e[b'reclaimed']) < now + when + 20_000
        assert found[b'h'][b'field'] == b'f' and b'field' not in found[b'a']
        with Raw(s.port) as b:                                           # who waits is served at once
            b.command('XREAD', 'BLOCK', 20000, 'STREAMS', 'gone', '$')
            eventually(lambda: s.info('clients')['blocked_clients'] == 1)
            run(c, 'SET waited-for 1 PX 10')
            assert everything.fields(b.reply()[0][1][0][1])[b'key'] == b'waited-for'
        run(c, 'XTRIM gone MAXLEN 4')
        run(c, 'SET deleted 1 PX 100000')
        run(c, 'DEL deleted')
        run(c, 'SET past 1')
        run(c, 'PEXPIREAT past 1')                                       # that is a DEL, too
        # Found dead by a command, or by the cycle: once each.
        run(c, 'DEBUG SET-ACTIVE-EXPIRE 0')
        everything.run(c, [('SET', f'k{i}', 1, 'PX', 1) for i in range(200)])
        time.sleep(0.01)
        assert c.call('MGET', *[f'k{i}' for i in range(100)]) == [None] * 100
        assert c.call('DEL', *[f'k{i}' for i in range(50)]) == 0
        run(c, 'DEBUG SET-ACTIVE-EXPIRE 1')
        eventually(lambda: run(c, 'XLEN gone') == 204)
        assert sorted(e[b'key'] for e in entries(c)[4:]) == sorted(b'k%d' % i for i in range(200))
        # Its own expiry it doesn't tell.
        run(c, 'PEXPIRE gone 30')
        run(c, 'SET late 1 PX 60')
        eventually(lambda: [e[b'key'] for e in entries(c)] == [b'late'])
        # MAXLEN, off, another name, one that is taken.
        assert c.call('CONFIG', 'SET', 'expiry-stream', 'two MAXLEN 3') == b'OK'
        everything.run(c, [('SET', f'k{i}', 1, 'PX', 1) for i in range(20)])
        eventually(lambda: run(c, 'DBSIZE') == 2)
        assert run(c, 'XLEN two') == 3 and everything.fields(run(c, 'XINFO STREAM two'))[b'entries-added'] == 20
        for bad in 'x MAXLEN', 'x MAXLEN 0', 'x MAXLEN y', 'x y', 'x MAXLEN 1 2':
            assert 'CONFIG SET failed' in c.call('CONFIG', 'SET', 'expiry-stream', bad), bad
        c.call('CONFIG', 'SET', 'expiry-stream', 'taken')
        run(c, 'SET taken x')
        run(c, 'SET k 1 PX 1')
        eventually(lambda: s.info('expiry')['expiry_stream_lost'] == 1)
        assert run(c, 'GET taken') == b'x'
        assert c.call('CONFIG', 'SET', 'expiry-stream', '') == b'OK' and run(c, 'CONFIG GET expiry-stream')[1] == b''
        run(c, 'SET k 1 PX 1')
        eventually(lambda: run(c, 'EXISTS k') == 0)
        assert run(c, 'XLEN two') == 3 and s.info('expiry')['expiry_stream_lost'] == 1


def test_consumers_lose_nothing(server_factory):
    """They come and go, the server is killed: every key that expired is read once and acknowledged."""
    options = ['--expiry-stream', 'gone', '--appendfsync', 'always']
    s = server_factory(*options)
    with Raw(s.port) as c:
        run(c, 'XGROUP CREATE gone workers 0 MKSTREAM')
    seen, n = [], 0
    for turn in range(4):
        with Raw(s.port) as c:
            everything.run(c, [('SET', f'key:{n + i}', 1, 'PX', 5 + i % 50) for i in range(300)])
            n += 300
            for entry in (c.call('XREADGROUP', 'GROUP', 'workers', f'w{turn}', 'COUNT', 50, 'STREAMS', 'gone', '>')
                          or [[0, []]])[0][1]:
                if len(seen) % 7:                                        # some it forgets to acknowledge
                    c.call('XACK', 'gone', 'workers', entry[0])
                    seen.append(everything.fields(entry[1])[b'key'])
                else:
                    seen.append(None)
        if turn == 1:
            s.restart(mayfly.signal.SIGKILL)
    seen = [k for k in seen if k]
    with Raw(s.port) as c:
        eventually(lambda: run(c, 'DBSIZE') == 1)
        while True:
            claimed = c.call('XAUTOCLAIM', 'gone', 'workers', 'last', 0, 0)[1]
            new = c.call('XREADGROUP', 'GROUP', 'workers', 'last', 'STREAMS', 'gone', '>')
            for entry in claimed + (new[0][1] if new else []):
                if c.call('XACK', 'gone', 'workers', entry[0]):
                    seen.append(everything.fields(entry[1])[b'key'])
            if not claimed and not new:
                break
        assert sorted(seen) == sorted(b'key:%d' % i for i in range(n))
        assert run(c, 'XPENDING gone workers')[0] == 0


@pytest.mark.lone('nodes of a cluster replicate by Raft')
def test_replicas_get_expired_keys_from_their_primary(server_factory):
    """They have the primary's entries, and write none of their own."""
    p = server_factory('--expiry-stream', 'gone', '--repl-diskless-sync-delay', 0)
    q = server_factory('--expiry-stream', 'gone', '--replicaof', '127.0.0.1', str(p.port))
    with Raw(p.port) as c, Raw(q.port) as d:
        eventually(lambda: q.info('replication')['master_link_status'] == 'up')
        everything.run(c, [('SET', f'k{i}', 1, 'PX', 1 + i) for i in range(100)])
        eventually(lambda: run(d, 'XLEN gone') == 100 and run(c, 'XLEN gone') == 100)
        assert run(c, 'XRANGE gone - +') == run(d, 'XRANGE gone - +')
        run(d, 'REPLICAOF NO ONE')
        run(d, 'SET mine 1 PX 1')
        eventually(lambda: run(d, 'XLEN gone') == 101)


@pytest.mark.engine('memory', 'deleting is one row there')
def test_a_long_stream_is_freed_in_the_background(r):
    p = r.pipeline(transaction=False)
    for i in range(3000):
        p.execute_command('XADD', 's', '*', 'foo', i)
    p.execute()
    r.execute_command('XADD', 'short', '*', 'foo', 1)
    r.config_resetstat()
    assert r.unlink('short') == 1 and r.info('memory')['lazyfreed_objects'] == 0
    assert r.unlink('s') == 1
    eventually(lambda: r.info('memory')['lazyfreed_objects'] == 1)
