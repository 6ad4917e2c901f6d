"""The offline checker: silent about a sound database, and finds every corruption that is planted."""
import os
import re
import shutil
import struct
import tempfile
import time

import pytest

import machine
import mayfly
from load import Link
from rocks import (DATA, DEADLINE, FIELD, HEAD, INFO, META, RANK, SCORE, SIZE, STREAM, TAIL, VERSION, Store,
                   prefix_of, row_of, slot_of, u64)

BIG = 6000                  # members of a sorted set that has blocks


def fill(link):
    hour = int(time.time() * 1000) + 3_600_000
    members = [x for i in range(BIG) for x in (i % 1000, b'member:%d' % i)]
    commands = [
        ('SET', 'string', 'value'), ('SET', 'big', b'x' * 100_000), ('SET', b'\x00\xff"', 'odd name'),
        ('SET', 'empty', ''), ('SET', 'dying', 'v', 'PXAT', hour), ('SET', 'late', 'v', 'PXAT', 10**15),
        ('HSET', 'hash', *(x for i in range(300) for x in (b'f%d' % i, b'v'))),
        ('HSET', 'timed', *(x for i in range(20) for x in (b'f%d' % i, b'v'))),
        ('HPEXPIREAT', 'timed', hour, 'FIELDS', 2, 'f3', 'f5'),
        ('HPEXPIREAT', 'timed', hour + 10**6, 'FIELDS', 1, 'f7'),
        ('RPUSH', 'list', *range(50)), ('LPUSH', 'list', *range(50)), ('PEXPIREAT', 'list', hour + 5000),
        ('SADD', 'set', *range(400)), ('ZADD', 'zset', 1.5, 'a', -2, 'b', 0, 'c', 'inf', 'd'),
        ('ZADD', 'ranked', *members), ('ZREM', 'ranked', *[b'member:%d' % i for i in range(0, BIG, 7)]),
        *(('XADD', 'stream', f'{i}-1', 'field', 'value') for i in range(1, 11)),
        ('XGROUP', 'CREATE', 'stream', 'g', '0'),
        ('SADD', 'dropped', *range(20)), ('DEL', 'dropped'), ('SET', 'hash2', 1), ('DEL', 'hash2'),
        ('SELECT', 3), ('SET', 'elsewhere', 1), ('SELECT', 5), ('SADD', 'swapped', 1), ('SWAPDB', 3, 5),
        ('SELECT', 7), ('SET', 'flushed', 1), ('FLUSHDB',), ('SET', 'kept', 1)]
    for c in commands:                      # each in a tick of its own
        reply = link.call(*c)
        assert not isinstance(reply, mayfly.ReplyError), (c[:3], reply)


@pytest.fixture(scope='module')
def sound():
    """The folder of a server that has been stopped."""
    folder = tempfile.mkdtemp(prefix='mayfly-check-')
    m = machine.Machine(machine.ROCKS, 'no', folder)
    try:
        m.start('--rocksdb-blob-size', '16kb')
        with Link(m.port) as link:
            fill(link)
        m.stop()
        yield folder
    finally:
        m.remove()
        shutil.rmtree(folder)


@pytest.fixture
def database(sound):
    """A copy that may be spoiled: RocksDB's own folder."""
    folder = tempfile.mkdtemp(prefix='mayfly-check-')
    shutil.copytree(os.path.join(sound, 'rocksdb'), os.path.join(folder, 'rocksdb'))
    yield os.path.join(folder, 'rocksdb')
    shutil.rmtree(folder)


def check(folder):
    return machine.rocks_checker(folder)


def test_sound(sound):
    code, text = check(sound)
    assert code == 0, text
    assert 'PROBLEM' not in text and 'Everything agrees' in text
    assert re.search(r'keys +16\n', text), text
    assert re.search(r'streams +1, with \d+ rows', text), text
    assert re.search(r'sorted sets +2, with \d+ members', text)
    assert re.search(r'orphans +20 rows', text), text
    assert check(os.path.join(sound, 'rocksdb')) == (0, text)


def test_nothing_there(tmp_path):
    assert check(str(tmp_path))[0] == 2
    assert check(str(tmp_path / 'missing'))[0] == 2
    assert not list(tmp_path.iterdir())


def test_server_running(machines):
    m = machines(machine.ROCKS, 'no').start()
    code, text = check(m.dir)
    assert code == 2 and f'stop process {m.proc.pid}' in text, text


def test_nothing_is_written(sound):
    before = {f: os.stat(os.path.join(sound, 'rocksdb', f)).st_mtime_ns for f in os.listdir(f'{sound}/rocksdb')}
    check(sound)
    after = {f: os.stat(os.path.join(sound, 'rocksdb', f)).st_mtime_ns for f in os.listdir(f'{sound}/rocksdb')}
    assert before == after


# -- planted ---------------------------------------------------------------------------------------------
# Each takes a Store and spoils something; the value is what the checker has to say.

def counts_key(index):
    return b'c' + u64(1) + u64(index)


def count_slot(s, slot, counts):
    """Counts of a slot of database 0, newer than all others: keys << 2, and what there is of deadlines."""
    s.put(INFO, counts_key(1) + struct.pack('>H', slot), u64(2**40) + struct.pack('>H', 1) + counts)


def old_versions(s):
    """The last version that was given out is 1, says each row with a region's state."""
    for key, _ in s.rows(INFO, b's') + s.rows(INFO, b'e'):
        s.change(INFO, key, 16 if key[:1] == b's' else 8, u64(1))


def last_row(s, family, key):
    return s.rows(family, prefix_of(s, key))[-1][0]


def due_row(s, key):
    rows = [k for k, _ in s.rows(DEADLINE) if k.endswith(struct.pack('>H', slot_of(key)) + key)]
    assert rows
    return rows[0]


def bucket_row(s):
    return s.rows(INFO, b'b')[0][0]


def wrong_slot(s):
    value = s.get(META, row_of(b'string'))
    s.delete(META, row_of(b'string'))
    s.put(META, row_of(b'string', slot=slot_of(b'string') ^ 5), value)


def swap_scores(s):
    """Two members exchange their scores, in one family only: the counts stay as they are."""
    a, b = prefix_of(s, b'zset') + b'a', prefix_of(s, b'zset') + b'b'
    score_a, score_b = s.get(DATA, a), s.get(DATA, b)
    s.put(DATA, a, score_b)
    s.put(DATA, b, score_a)


def list_outside(s):
    tail = s.get(META, row_of(b'list'))[TAIL:TAIL + 8]
    s.put(DATA, prefix_of(s, b'list') + tail, b'x')


def shift_list(s):
    head = struct.unpack('>Q', s.get(META, row_of(b'list'))[HEAD:HEAD + 8])[0]
    s.change(META, row_of(b'list'), HEAD, u64(head - 1))


def future_orphan(s):
    s.put(DATA, row_of(b'string') + u64(2**63) + b'x', b'')


def to_other_region(s):
    s.put(DATA, u64(2 ^ 1 << 63) + row_of(b'x')[8:] + u64(1) + b'x', b'')


def blocks_of_ranked(s):
    """The rows of blocks, without those of the log."""
    return [(k, v) for k, v in s.rows(RANK, prefix_of(s, b'ranked')) if len(v) == 20]


def add_to_block(s, which, n):
    key, value = blocks_of_ranked(s)[which]
    s.put(RANK, key, u64(struct.unpack('>Q', value[:8])[0] + n) + value[8:])


def move_between_blocks(s):
    """The sum stays right."""
    add_to_block(s, 3, 5)
    add_to_block(s, 4, -5)


PLANTED = {
    'metadata cut short': (lambda s: s.put(META, row_of(b'hash'), b'\x82\0\0'), '"hash": its metadata'),
    'unknown type': (lambda s: s.change(META, row_of(b'string'), 0, b'\x8f'), '"string": its metadata'),
    'no metadata flag': (lambda s: s.change(META, row_of(b'string'), 0, b'\x01'), '"string": its metadata'),
    'odd name': (lambda s: s.put(META, row_of(b'\x00\xff"'), b''), r'"\\x00\\xff\\"": its metadata'),
    'wrong slot': (wrong_slot, '"string": it is stored in slot'),
    'negative deadline': (lambda s: s.change(META, row_of(b'dying'), 1, u64(-5)), '"dying": its deadline is neg'),
    'no key': (lambda s: s.put(META, b'nonsense', b''), 'that is no key: "nonsense"'),
    'another region': (to_other_region, 'of another region'),
    'hash size': (lambda s: s.change(META, row_of(b'hash'), SIZE, u64(299)), '"hash": its size is stored as 299'),
    'set size': (lambda s: s.change(META, row_of(b'set'), SIZE, u64(401)), '"set": its size is stored as 401'),
    'set member gone': (lambda s: s.delete(DATA, prefix_of(s, b'set') + b'17'), 'has 399 elements'),
    'set member with a value': (lambda s: s.put(DATA, prefix_of(s, b'set') + b'17', b'v'), '"set": a row of a mem'),
    'all elements gone': (lambda s: s.change(META, row_of(b'zset'), VERSION, u64(77)), '"zset": .* 0 elements'),
    'hash field gone': (lambda s: s.delete(DATA, prefix_of(s, b'hash') + b'f7'), '"hash": .* 299 elements'),
    'hash field more': (lambda s: s.put(DATA, prefix_of(s, b'hash') + b'new', b''), '"hash": .* 301 elements'),
    'list hole': (lambda s: s.delete(DATA, s.rows(DATA, prefix_of(s, b'list'))[40][0]), 'hole before .* 41'),
    'list without its last': (lambda s: s.delete(DATA, last_row(s, DATA, b'list')), '"list": .* missing at its tail'),
    'list element outside': (list_outside, '"list": there is an element .* outside'),
    'list size': (lambda s: s.change(META, row_of(b'list'), SIZE, u64(5)), '"list": its size is 5, but it reaches'),
    'list head': (shift_list, '"list": its size is 100, but it reaches'),
    'score row gone': (lambda s: s.delete(SCORE, s.rows(SCORE, prefix_of(s, b'zset'))[2][0]),
                       r'"zset": member "a" \(1.5\) is in no row of the order'),
    'member row gone': (lambda s: s.delete(DATA, prefix_of(s, b'zset') + b'b'),
                        r'"zset": member "b" \(-2\) is in the order, but missing'),
    'other score': (lambda s: s.put(DATA, prefix_of(s, b'zset') + b'b', s.get(DATA, prefix_of(s, b'zset') + b'a')),
                    '"zset": member "b" .* another number'),
    'scores exchanged': (swap_scores, '"zset": member "a" .* another number'),
    'score cut short': (lambda s: s.put(DATA, prefix_of(s, b'zset') + b'b', b'123'), '"zset": .* score has 3 bytes'),
    'score that is no number': (lambda s: s.put(DATA, prefix_of(s, b'zset') + b'b', b'\xff' * 8), 'no number'),
    'score row with a value': (lambda s: s.put(SCORE, last_row(s, SCORE, b'zset'), b'v'), '"zset": a row of the ord'),
    'order of a set': (lambda s: s.put(SCORE, prefix_of(s, b'set') + u64(1) + b'17', b''), '"set": it has 1 rows of'),
    'rank block cut short': (lambda s: s.put(RANK, blocks_of_ranked(s)[1][0], u64(1)), '"ranked": its blocks'),
    'rank block gone': (lambda s: s.delete(RANK, blocks_of_ranked(s)[1][0]), '"ranked": its blocks'),
    'rank count': (lambda s: add_to_block(s, 5, 1), '"ranked": its blocks, .* add up'),
    'rank counts that add up': (move_between_blocks, '"ranked": member "member:.* is not in the block'),
    'ranks of a set': (lambda s: s.put(RANK, prefix_of(s, b'set'), u64(1)), '"set": it has 1 rank blocks'),
    'stream size': (lambda s: s.change(META, row_of(b'stream'), SIZE, u64(500)), '"stream": its size is stored as 500'),
    'stream without rows': (lambda s: s.change(META, row_of(b'stream'), VERSION, u64(77)), '"stream": .* has 0 rows'),
    'stream head': (lambda s: s.put(META, row_of(b'stream'), s.get(META, row_of(b'stream')) + b'x' * 128),
                    '"stream": its metadata'),
    'stream with elements': (lambda s: s.put(DATA, prefix_of(s, b'stream') + b'x', b''), '"stream": it has 1 elements'),
    'rows of a set': (lambda s: s.put(STREAM, prefix_of(s, b'set') + b'x', b''), '"set": it has 1 rows of a stream'),
    'field deadline gone': (lambda s: s.delete(FIELD, prefix_of(s, b'timed') + b'f5'), '"timed": field "f5"'),
    'field of a deadline gone': (lambda s: s.delete(DATA, prefix_of(s, b'timed') + b'f5'),
                                 r'"timed": field "f5" \(\d+\) has a deadline, but is missing'),
    'field order gone': (lambda s: s.delete(SCORE, last_row(s, SCORE, b'timed')),
                         r'"timed": field "f7" \(\d+\) is in no row of the order'),
    'field flag gone': (lambda s: s.change(META, row_of(b'timed'), 0, b'\x82'), '"timed": fields have deadlines, but'),
    'field flag for nothing': (lambda s: s.change(META, row_of(b'hash'), 0, b'\x92'), '"hash": its flags say'),
    'hash not filed': (lambda s: s.delete(DEADLINE, due_row(s, b'timed')), '"timed": its nearest field deadline'),
    'key not filed': (lambda s: s.delete(DEADLINE, due_row(s, b'dying')), '"dying": its deadline .* is not in the'),
    'due row cut short': (lambda s: s.put(DEADLINE, u64(1) + b'xx', b''), "deadline index .* can't be decoded"),
    'due row of long ago': (lambda s: s.put(DEADLINE, u64(1) + u64(64) + b'\0' + u64(1) + b'\0\0x', b''),
                            'deadline index for "x"'),
    'keys counted': (lambda s: count_slot(s, slot_of(b'string'), bytes([25 << 2 & 127])),
                     r'database 0, slot \d+: 25 keys are counted'),
    'keys counted of a swapped database': (lambda s: s.delete(INFO, counts_key(4)), r'database 5, slot \d+: 0 keys are counted'),
    'deadlines counted': (lambda s: count_slot(s, slot_of(b'string'), bytes([9 << 2 | 2, 9])),
                          '9 keys with a deadline are counted'),
    'field deadlines counted': (lambda s: count_slot(s, slot_of(b'string'), bytes([9 << 2 | 1, 7])),
                                '7 hashes with field deadlines are counted'),
    'counts cut short': (lambda s: count_slot(s, slot_of(b'string'), bytes([9 << 2 | 2])), "of meta_info can't be decoded"),
    'bucket count': (lambda s: s.change(INFO, bucket_row(s), 0, u64(99)), 'the deadlines from .* more keys'),
    'bucket gone': (lambda s: s.delete(INFO, bucket_row(s)), 'the deadlines from .* -[12] more keys'),
    'version in the future': (old_versions, 'but the last one given out was 1'),
    'orphan in the future': (future_orphan, '"string": it has version'),
    'databases with one index': (lambda s: s.put(INFO, b'i' + u64(1) + b'\0\0\0\x05', u64(2)), 'the same index'),
    'log cut short': (lambda s: s.put(INFO, b'e' + u64(1) + u64(2), u64(1)), r'row "e.*" of meta_info'),
    'unknown state': (lambda s: s.put(INFO, b'?', b''), r'row "\?" of meta_info'),
    'old string after the migration': (lambda s: s.put(DATA, row_of(b'old') + b'S', u64(0) + b'v'), '"old": it is a'),
    'key deleted by hand': (lambda s: s.delete(META, row_of(b'string')), 'keys are counted, but there are'),
}


@pytest.mark.parametrize('what', PLANTED)
def test_planted(what, database):
    spoil, said = PLANTED[what]
    with Store(database) as s:
        spoil(s)
    code, text = check(database)
    assert code == 1, text
    assert re.search('PROBLEM.*' + said, text), text


def test_orphans_are_no_problem(database):
    with Store(database) as s:
        s.put(DATA, row_of(b'string') + u64(77) + b'x', b'')
        s.put(SCORE, row_of(b'nobody') + u64(78) + b'x' * 9, b'')
        s.put(FIELD, prefix_of(s, b'hash')[:-8] + u64(79) + b'f', u64(1))
        s.put(STREAM, row_of(b'set') + u64(80) + b'row', b'')
    code, text = check(database)
    assert code == 0, text
    assert re.search(r'orphans +24 rows', text), text


def test_stale_references_are_no_problem(database):
    with Store(database) as s:
        row = due_row(s, b'dying')
        s.put(DEADLINE, row[:25] + struct.pack('>H', slot_of(b'gone')) + b'gone', b'')
    code, text = check(database)
    assert code == 0, text
    assert re.search(r'of which 1 are out of date', text), text


def test_many_problems(database):
    with Store(database) as s:
        for key, _ in s.rows(SCORE, prefix_of(s, b'ranked'))[:300]:
            s.delete(SCORE, key)
    code, text = check(database)
    assert code == 1
    assert len(re.findall('^PROBLEM', text, re.M)) == 100
    assert 'further problems are counted only' in text
    assert int(re.search(r'(\d+) problems found', text)[1]) >= 300


def test_damaged_file(database):
    """Some blocks of a file can't be read: the rest is checked all the same."""
    with Store(database):
        pass                                         # writes what is in the log to tables
    files = [os.path.join(database, f) for f in os.listdir(database) if f.endswith('.sst')]
    path = max(files, key=os.path.getsize)
    with open(path, 'r+b') as f:
        f.seek(os.path.getsize(path) // 3)
        at = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([at[0] ^ 0x40]))
    code, text = check(database)
    assert code == 1, text
    assert 'a file is damaged' in text, text
    assert re.search(r'sorted sets +\d', text) and re.search(r'strings +\d', text), text


def test_bad_arguments():
    assert mayfly.subprocess.run([mayfly.BINARY, '--check'], capture_output=True, check=False).returncode != 0
