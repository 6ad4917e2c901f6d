"""Deadlines of hash fields: HEXPIRE and its kin as Redis 7.4 has them, HGETDEL,
HGETEX and HSETEX as Redis 8.0 has them. The Redis that the oracle compares with
knows none of these commands, so their behaviour is pinned here."""
import time

import pytest
import redis

from mayfly import eventually

FAR_MS = 5_000_000_000_000          # the year 2128
FAR_S = FAR_MS // 1000
MAX_MS = 2**46 - 1                  # the latest deadline a field can have

ABSENT, NO_TTL, REFUSED, DONE, DELETED = -2, -1, 0, 1, 2

WRONGTYPE = 'WRONGTYPE Operation against a key holding the wrong kind of value'
NO_FIELDS = 'Mandatory argument FIELDS is missing or not at the right position'
MISMATCH = 'The `numfields` parameter must match the number of arguments'
NOT_INT = 'value is not an integer or out of range'
NEGATIVE = 'invalid expire time, must be >= 0'


def run(r, line, *more):
    return r.execute_command(*line.split(), *more)


def error(r, line):
    with pytest.raises(redis.ResponseError) as e:
        run(r, line)
    text = str(e.value)
    return text[4:] if text.startswith('ERR ') else text


def deadlines(r, *fields, key='h'):
    return run(r, f'HPEXPIRETIME {key} FIELDS {len(fields)}', *fields)


def arity(command):
    return f"wrong number of arguments for '{command}' command"


@pytest.fixture(params=['small', 'big'])
def h(r, request):
    """A server whose hash `h` holds a=1 b=2 c=3, alone or among 600 others."""
    run(r, 'HSET h a 1 b 2 c 3')
    if request.param == 'big':
        r.execute_command('HSET', 'h', *[x for i in range(600) for x in (f'x{i}', i)])
    return r


# -- setting and reading ---------------------------------------------------------------

SETTERS = {  # command: its argument for FAR_MS
    'HPEXPIREAT': lambda: FAR_MS,
    'HEXPIREAT': lambda: FAR_S,
    'HPEXPIRE': lambda: FAR_MS - int(time.time() * 1000),
    'HEXPIRE': lambda: FAR_S - int(time.time()),
}


@pytest.mark.parametrize('command', SETTERS)
def test_set_and_read(h, command):
    assert run(h, f'{command} h {SETTERS[command]()} FIELDS 3 a nosuch b') == [DONE, ABSENT, DONE]
    for at in deadlines(h, 'a', 'b'):
        assert abs(at - FAR_MS) < 5000
    left = FAR_MS - int(time.time() * 1000)
    assert abs(run(h, 'HPTTL h FIELDS 1 a')[0] - left) < 5000
    assert abs(run(h, 'HTTL h FIELDS 1 a')[0] - left // 1000) < 5
    assert abs(run(h, 'HEXPIRETIME h FIELDS 1 a')[0] - FAR_S) < 5
    assert run(h, 'HMGET h a b c') == [b'1', b'2', b'3']


def test_exact_absolute(h):
    run(h, f'HPEXPIREAT h {FAR_MS + 1} FIELDS 1 a')
    assert deadlines(h, 'a') == [FAR_MS + 1]
    assert run(h, 'HEXPIRETIME h FIELDS 1 a') == [FAR_S + 1]        # rounded up
    run(h, f'HEXPIREAT h {FAR_S} FIELDS 1 a')
    assert deadlines(h, 'a') == [FAR_MS]
    assert run(h, 'HEXPIRETIME h FIELDS 1 a') == [FAR_S]


def test_ttl_rounds_up(h):
    run(h, 'HPEXPIRE h 100900 FIELDS 1 a')
    assert run(h, 'HTTL h FIELDS 1 a') == [101]


@pytest.mark.parametrize('command', ['HTTL', 'HPTTL', 'HEXPIRETIME', 'HPEXPIRETIME', 'HPERSIST'])
def test_readers(h, command):
    assert run(h, f'{command} nokey FIELDS 2 a b') == [ABSENT, ABSENT]
    assert run(h, f'{command} h FIELDS 3 a nosuch c') == [NO_TTL, ABSENT, NO_TTL]


def test_setters_without_key(r):
    for command in SETTERS:
        assert run(r, f'{command} nokey 100 FIELDS 2 a b') == [ABSENT, ABSENT]
    assert run(r, 'EXISTS nokey') == 0


def test_same_field_twice(h):
    assert run(h, f'HPEXPIREAT h {FAR_MS} NX FIELDS 2 a a') == [DONE, REFUSED]
    assert run(h, 'HPEXPIREAT h 1 FIELDS 2 b b') == [DELETED, ABSENT]
    assert run(h, 'HPERSIST h FIELDS 2 a a') == [DONE, NO_TTL]


def test_words_in_any_case(h):
    assert run(h, f'hpexpireat h {FAR_MS} nX fields 1 a') == [DONE]
    assert run(h, 'hpersist h Fields 1 a') == [DONE]


# -- conditions ------------------------------------------------------------------------

def test_nx(h):
    assert run(h, f'HPEXPIREAT h {FAR_MS} NX FIELDS 1 a') == [DONE]
    assert run(h, f'HPEXPIREAT h {FAR_MS + 9} NX FIELDS 2 a b') == [REFUSED, DONE]
    assert deadlines(h, 'a', 'b') == [FAR_MS, FAR_MS + 9]


def test_xx(h):
    run(h, f'HPEXPIREAT h {FAR_MS} FIELDS 1 a')
    assert run(h, f'HPEXPIREAT h {FAR_MS + 9} XX FIELDS 2 a b') == [DONE, REFUSED]
    assert deadlines(h, 'a', 'b') == [FAR_MS + 9, NO_TTL]


def test_gt(h):
    run(h, f'HPEXPIREAT h {FAR_MS} FIELDS 1 a')
    assert run(h, f'HPEXPIREAT h {FAR_MS} GT FIELDS 1 a') == [REFUSED]      # not greater
    assert run(h, f'HPEXPIREAT h {FAR_MS - 1} GT FIELDS 1 a') == [REFUSED]
    assert run(h, f'HPEXPIREAT h {FAR_MS + 1} GT FIELDS 1 a') == [DONE]
    assert run(h, f'HPEXPIREAT h {FAR_MS + 1} GT FIELDS 1 b') == [REFUSED]  # none is for ever
    assert deadlines(h, 'a', 'b') == [FAR_MS + 1, NO_TTL]


def test_lt(h):
    run(h, f'HPEXPIREAT h {FAR_MS} FIELDS 1 a')
    assert run(h, f'HPEXPIREAT h {FAR_MS} LT FIELDS 1 a') == [REFUSED]
    assert run(h, f'HPEXPIREAT h {FAR_MS + 1} LT FIELDS 1 a') == [REFUSED]
    assert run(h, f'HPEXPIREAT h {FAR_MS - 1} LT FIELDS 1 a') == [DONE]
    assert run(h, f'HPEXPIREAT h {FAR_MS} LT FIELDS 1 b') == [DONE]
    assert deadlines(h, 'a', 'b') == [FAR_MS - 1, FAR_MS]


def test_condition_comes_before_the_past(h):
    run(h, f'HPEXPIREAT h {FAR_MS} FIELDS 1 b')
    assert run(h, 'HPEXPIREAT h 1 NX FIELDS 3 a b nosuch') == [DELETED, REFUSED, ABSENT]
    assert run(h, 'HPEXPIREAT h 1 GT FIELDS 2 b c') == [REFUSED, REFUSED]
    assert run(h, 'HPEXPIREAT h 1 XX FIELDS 2 b c') == [DELETED, REFUSED]
    assert run(h, 'HMGET h a b c') == [None, None, b'3']


# -- deadlines in the past ---------------------------------------------------------------

@pytest.mark.parametrize('line', ['HPEXPIREAT h 0', 'HPEXPIREAT h 1', 'HEXPIREAT h 0',
                                  'HEXPIREAT h 1700000000', 'HPEXPIRE h 0', 'HEXPIRE h 0'])
def test_past_deletes(h, line):
    size = run(h, 'HLEN h')
    assert run(h, line + ' FIELDS 3 a nosuch b') == [DELETED, ABSENT, DELETED]
    assert run(h, 'HLEN h') == size - 2
    assert run(h, 'HMGET h a b c') == [None, None, b'3']


@pytest.mark.parametrize('line', ['HPEXPIREAT k 1 FIELDS 2 a b', 'HGETDEL k FIELDS 2 a b',
                                  'HGETEX k EX 0 FIELDS 2 a b', 'HSETEX k PXAT 1 FIELDS 2 a 1 b 2'])
def test_last_field_takes_the_key(r, line):
    run(r, 'HSET k a 1 b 2')
    run(r, line)
    assert run(r, 'EXISTS k') == 0
    assert run(r, 'TYPE k') in (b'none', 'none')
    assert run(r, 'HSET k x 1') == 1
    assert run(r, 'PTTL k') == -1


# -- expiry --------------------------------------------------------------------------------

def test_a_dead_field_is_gone_everywhere(h):
    size = run(h, 'HLEN h')
    run(h, 'HPEXPIRE h 30 FIELDS 2 a b')
    time.sleep(0.035)
    assert run(h, 'HGET h a') is None
    assert run(h, 'HMGET h a b c') == [None, None, b'3']
    assert run(h, 'HEXISTS h a') == 0
    assert run(h, 'HSTRLEN h a') == 0
    assert run(h, 'HLEN h') == size - 2
    assert b'a' not in run(h, 'HKEYS h')
    assert len(run(h, 'HVALS h')) == size - 2
    assert b'a' not in run(h, 'HGETALL h')
    assert b'a' not in run(h, 'HRANDFIELD h 1000')
    assert b'a' not in run(h, 'HRANDFIELD h -200')
    assert b'a' not in run(h, 'HSCAN h 0 COUNT 10000')[1]
    assert run(h, 'HPTTL h FIELDS 2 a b') == [ABSENT, ABSENT]
    assert run(h, 'HPERSIST h FIELDS 1 a') == [ABSENT]
    assert run(h, 'HPEXPIRE h 1000 FIELDS 1 a') == [ABSENT]
    assert run(h, 'HGETEX h PERSIST FIELDS 1 a') == [None]
    assert run(h, 'HGETDEL h FIELDS 1 a') == [None]
    assert run(h, 'HDEL h a') == 0
    assert run(h, 'HSETEX h FXX FIELDS 1 a 9') == 0


def test_a_dead_field_can_come_back(h):
    run(h, 'HPEXPIRE h 20 FIELDS 3 a b c')
    time.sleep(0.03)
    assert run(h, 'HSETNX h a 5') == 1
    assert run(h, 'HINCRBY h b 5') == 5
    assert run(h, 'HSETEX h FNX KEEPTTL FIELDS 1 c 5') == 1
    assert run(h, 'HMGET h a b c') == [b'5', b'5', b'5']
    assert deadlines(h, 'a', 'b', 'c') == [NO_TTL] * 3


def test_when_all_fields_are_dead_so_is_the_key(r):
    run(r, 'HSET k a 1 b 2')
    run(r, 'HPEXPIRE k 20 FIELDS 2 a b')
    time.sleep(0.03)
    assert run(r, 'HLEN k') == 0
    assert run(r, 'HGETALL k') in ({}, [])
    assert run(r, 'HRANDFIELD k') is None
    assert run(r, 'HRANDFIELD k 3') == []
    assert run(r, 'HRANDFIELD k -3') == []
    eventually(lambda: run(r, 'EXISTS k') == 0)
    eventually(lambda: run(r, 'DBSIZE') == 0)


# -- what keeps and what clears a deadline ----------------------------------------------------

@pytest.mark.parametrize('line', ['HSET h a 9', 'HMSET h a 9', 'HSETEX h FIELDS 1 a 9',
                                  'HSETEX h FXX FIELDS 1 a 9', 'HPERSIST h FIELDS 1 a',
                                  'HGETEX h PERSIST FIELDS 1 a'])
def test_clears(h, line):
    run(h, f'HPEXPIREAT h {FAR_MS} FIELDS 2 a b')
    run(h, line)
    assert deadlines(h, 'a', 'b') == [NO_TTL, FAR_MS]


@pytest.mark.parametrize('line', ['HINCRBY h a 1', 'HINCRBYFLOAT h a 1.5', 'HSETNX h a 9',
                                  'HSET h c 9', 'HGET h a', 'HGETEX h FIELDS 1 a',
                                  'HSETEX h KEEPTTL FIELDS 1 a 9', 'HSETEX h FNX FIELDS 1 a 9',
                                  'HPERSIST h FIELDS 1 c', 'HDEL h c', 'HDEL h a2'])
def test_keeps(h, line):
    run(h, f'HPEXPIREAT h {FAR_MS} FIELDS 2 a b')
    run(h, line)
    assert deadlines(h, 'a', 'b') == [FAR_MS, FAR_MS]


def test_deleting_forgets_the_deadline(h):
    run(h, f'HPEXPIREAT h {FAR_MS} FIELDS 1 a')
    run(h, 'HDEL h a')
    run(h, 'HSET h a 1')
    assert deadlines(h, 'a') == [NO_TTL]


def test_incrementing_keeps_the_exact_deadline(h):
    run(h, f'HPEXPIREAT h {FAR_MS} FIELDS 1 a')
    assert run(h, 'HINCRBY h a 41') == 42
    assert float(run(h, 'HINCRBYFLOAT h a 0.5')) == 42.5
    assert run(h, 'HGET h a') == b'42.5'
    assert deadlines(h, 'a') == [FAR_MS]


def test_field_and_key_deadlines_are_two_things(h):
    run(h, f'HPEXPIREAT h {FAR_MS} FIELDS 1 a')
    assert run(h, 'PTTL h') == -1
    assert run(h, f'PEXPIREAT h {FAR_MS + 5}') == 1
    assert run(h, 'HPERSIST h FIELDS 1 a') == [DONE]
    assert run(h, 'PEXPIRETIME h') == FAR_MS + 5


@pytest.mark.parametrize('line,key', [('RENAME h other', 'other'), ('COPY h other', 'other')])
def test_deadlines_go_along(h, line, key):
    run(h, f'HPEXPIREAT h {FAR_MS} FIELDS 1 a')
    run(h, line)
    assert deadlines(h, 'a', 'b', key=key) == [FAR_MS, NO_TTL]


# -- HGETDEL, HGETEX, HSETEX -------------------------------------------------------------------

def test_hgetdel(h):
    size = run(h, 'HLEN h')
    assert run(h, 'HGETDEL h FIELDS 3 a nosuch a') == [b'1', None, None]
    assert run(h, 'HLEN h') == size - 1
    assert run(h, 'HGETDEL nokey FIELDS 2 a b') == [None, None]


def test_hgetex_reads(h):
    assert run(h, 'HGETEX h FIELDS 3 a nosuch b') == [b'1', None, b'2']
    assert run(h, 'HGETEX nokey FIELDS 2 a b') == [None, None]
    assert run(h, 'HGETEX nokey EX 10 FIELDS 1 a') == [None]
    assert deadlines(h, 'a', 'b') == [NO_TTL, NO_TTL]


@pytest.mark.parametrize('option', [f'PXAT {FAR_MS}', f'EXAT {FAR_S}', 'px 1000000', 'Ex 1000'])
def test_hgetex_sets(h, option):
    assert run(h, f'HGETEX h {option} FIELDS 2 a nosuch') == [b'1', None]
    at, left = deadlines(h, 'a')[0], run(h, 'HPTTL h FIELDS 1 a')[0]
    assert at == FAR_MS or 990_000 < left <= 1_000_000
    assert deadlines(h, 'b', 'nosuch') == [NO_TTL, ABSENT]


def test_hgetex_past(h):
    size = run(h, 'HLEN h')
    assert run(h, 'HGETEX h PXAT 1 FIELDS 2 a nosuch') == [b'1', None]
    assert run(h, 'HLEN h') == size - 1


@pytest.mark.parametrize('option', [f'PXAT {FAR_MS}', f'EXAT {FAR_S}', 'px 1000000', 'eX 1000'])
def test_hsetex_sets(h, option):
    assert run(h, f'HSETEX h {option} FIELDS 2 a x new y') == 1
    assert run(h, 'HMGET h a new') == [b'x', b'y']
    left = run(h, 'HPTTL h FIELDS 2 a new')
    assert deadlines(h, 'a', 'new') == [FAR_MS] * 2 or all(990_000 < t <= 1_000_000 for t in left)
    assert deadlines(h, 'b') == [NO_TTL]


def test_hsetex_conditions(h):
    assert run(h, 'HSETEX h FNX FIELDS 2 new 1 a 1') == 0
    assert run(h, 'HSETEX h FXX FIELDS 2 a 9 new 1') == 0
    assert run(h, 'HMGET h a new') == [b'1', None]
    assert run(h, 'HSETEX h FNX FIELDS 2 new 1 new2 2') == 1
    assert run(h, 'HSETEX h FXX FIELDS 2 a 9 new 9') == 1
    assert run(h, 'HMGET h a new new2') == [b'9', b'9', b'2']
    assert run(h, 'HSETEX nokey FXX FIELDS 1 a 1') == 0
    assert run(h, 'EXISTS nokey') == 0
    assert run(h, 'HSETEX nokey FNX FIELDS 1 a 1') == 1


def test_hsetex_options_in_any_order(h):
    assert run(h, f'HSETEX h PXAT {FAR_MS} FXX FIELDS 1 a 9') == 1
    assert run(h, f'HSETEX h FXX PXAT {FAR_MS} FIELDS 1 b 9') == 1
    assert deadlines(h, 'a', 'b') == [FAR_MS] * 2


def test_hsetex_past(h):
    size = run(h, 'HLEN h')
    assert run(h, 'HSETEX h PXAT 1 FIELDS 2 a 9 new 9') == 1
    assert run(h, 'HLEN h') == size - 1
    assert run(h, 'HMGET h a new') == [None, None]
    assert run(h, 'HSETEX nokey EX 0 FIELDS 1 a 1') == 1
    assert run(h, 'EXISTS nokey') == 0


# -- errors -------------------------------------------------------------------------------------

@pytest.mark.parametrize('line', [
    'HEXPIRE s 1 FIELDS 1 a', 'HPEXPIRE s 1 FIELDS 1 a', 'HEXPIREAT s 1 FIELDS 1 a',
    'HPEXPIREAT s 1 FIELDS 1 a', 'HTTL s FIELDS 1 a', 'HPTTL s FIELDS 1 a',
    'HEXPIRETIME s FIELDS 1 a', 'HPEXPIRETIME s FIELDS 1 a', 'HPERSIST s FIELDS 1 a',
    'HGETDEL s FIELDS 1 a', 'HGETEX s FIELDS 1 a', 'HSETEX s FIELDS 1 a 1',
    # The type is looked at first, except by HSETEX:
    'HEXPIRE s x FIELDS 0 a', 'HTTL s x 0 a', 'HPERSIST s x 0 a', 'HGETDEL s x 0 a',
    'HGETEX s EX x FIELDS 1 a'])
def test_wrong_type(r, line):
    run(r, 'SET s x')
    assert error(r, line) == WRONGTYPE


def test_hsetex_looks_at_its_arguments_first(r):
    run(r, 'SET s x')
    assert error(r, 'HSETEX s FOO FIELDS 1 a 1') == 'unknown argument: FOO'


@pytest.mark.parametrize('command,least', [
    ('HEXPIRE', 6), ('HPEXPIRE', 6), ('HEXPIREAT', 6), ('HPEXPIREAT', 6), ('HTTL', 5),
    ('HPTTL', 5), ('HEXPIRETIME', 5), ('HPEXPIRETIME', 5), ('HPERSIST', 5), ('HGETDEL', 5),
    ('HGETEX', 5), ('HSETEX', 6)])
def test_arity(r, command, least):
    assert error(r, command + ' x' * (least - 2)) == arity(command.lower())


@pytest.mark.parametrize('command', ['HTTL h', 'HPTTL h', 'HEXPIRETIME h', 'HPEXPIRETIME h',
                                     'HPERSIST h', 'HGETDEL h', 'HGETEX h', 'HGETEX h PERSIST',
                                     'HGETEX h EX 10', 'HGETDEL nokey', 'HGETEX nokey',
                                     'HTTL nokey'])
def test_fields_clause(h, command):
    bad_count = 'Number of fields must be a positive integer'
    assert error(h, command + ' FIELD 1 a') == NO_FIELDS
    assert error(h, command + ' 1 a b') == NO_FIELDS
    for n in ('0', '-1', 'x', '1.5', '9223372036854775808'):
        assert error(h, f'{command} FIELDS {n} a') == bad_count
    for n in ('2', '9223372036854775807'):
        assert error(h, f'{command} FIELDS {n} a') == MISMATCH
    assert error(h, command + ' FIELDS 1 a b') == MISMATCH


@pytest.mark.parametrize('command', SETTERS)
@pytest.mark.parametrize('condition', ['', ' NX', ' xx', ' GT', ' lt'])
@pytest.mark.parametrize('key', ['h', 'nokey'])
def test_fields_clause_of_setters(h, command, condition, key):
    start = f'{command} {key} 10{condition}'
    assert error(h, start + ' FIELD 1 a') == NO_FIELDS
    assert error(h, start + ' FIELDS 0 a') == 'Parameter `numFields` should be greater than 0'
    assert error(h, start + ' FIELDS x a') == 'Parameter `numFields` should be greater than 0'
    assert error(h, start + ' FIELDS 2 a') == MISMATCH
    assert error(h, start + ' FIELDS 1 a b') == MISMATCH


def test_one_condition_only(h):
    assert error(h, 'HEXPIRE h 10 NX XX FIELDS 1 a') == NO_FIELDS
    assert error(h, 'HEXPIRE h 10 FIELDS 1 a NX') == MISMATCH


@pytest.mark.parametrize('start', ['{} h', '{} nokey'])
@pytest.mark.parametrize('command', SETTERS)
def test_bad_times(h, start, command):
    start = start.format(command)
    name = command.lower()
    assert error(h, start + ' x FIELDS 1 a') == NOT_INT
    assert error(h, start + ' 1.5 FIELDS 1 a') == NOT_INT
    assert error(h, start + ' 9223372036854775808 FIELDS 1 a') == NOT_INT
    assert error(h, start + ' -1 FIELDS 1 a') == NEGATIVE
    too_late = f"invalid expire time in '{name}' command"
    for t in (2**63 - 1, MAX_MS + 1 if 'P' in command[1:3] else MAX_MS // 1000 + 1):
        assert error(h, f'{start} {t} FIELDS 1 a') == too_late
    # The time is looked at before the rest.
    assert error(h, start + ' -1 NX 0 a') == NEGATIVE


def test_latest_deadline(h):
    assert run(h, f'HPEXPIREAT h {MAX_MS} FIELDS 1 a') == [DONE]
    assert deadlines(h, 'a') == [MAX_MS]
    assert error(h, f'HPEXPIRE h {MAX_MS} FIELDS 1 a') == \
        "invalid expire time in 'hpexpire' command"
    assert error(h, f'HSETEX h PX {MAX_MS} FIELDS 1 a 1') == \
        "invalid expire time in 'hsetex' command"
    assert error(h, f'HGETEX h EXAT {MAX_MS} FIELDS 1 a') == \
        "invalid expire time in 'hgetex' command"


@pytest.mark.parametrize('line,text', [
    ('HGETEX h EX x FIELDS 1 a', NOT_INT),
    ('HGETEX h EX -1 FIELDS 1 a', NEGATIVE),
    ('HGETEX h EX 10 PX 10 FIELDS 1 a', NO_FIELDS),
    ('HGETEX h KEEPTTL FIELDS 1 a', NO_FIELDS),
    ('HGETEX h PERSIST EX 10 FIELDS 1 a', NO_FIELDS),
    ('HGETEX h EX 10 FIELDS', arity('hgetex')),
    ('HSETEX h EX x FIELDS 1 a 1', NOT_INT),
    ('HSETEX h PXAT -1 FIELDS 1 a 1', NEGATIVE),
    ('HSETEX h EX FIELDS 1 a 1', NOT_INT),
    ('HSETEX h FNX FXX FNX EX', 'Only one of FXX or FNX arguments can be specified'),
    ('HSETEX h FNX FNX FIELDS 1 a 1', 'Only one of FXX or FNX arguments can be specified'),
    ('HSETEX h EX 10 PX 10 FIELDS 1 a 1',
     'Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified'),
    ('HSETEX h KEEPTTL EX 10 FIELDS 1 a 1',
     'Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified'),
    ('HSETEX h EX 10 KEEPTTL FIELDS 1 a 1',
     'Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified'),
    ('HSETEX h FNX KEEPTTL NX EX', 'unknown argument: NX'),
    ('HSETEX h PERSIST FIELDS 1 a 1', 'unknown argument: PERSIST'),
    ('HSETEX h FNX FNX2 a EX', 'unknown argument: FNX2'),
    ('HSETEX h 1 a 1 2', 'unknown argument: 1'),
    ('HSETEX h KEEPTTL FNX FIELDS 1', arity('hsetex')),
    ('HSETEX h FIELDS 0 a 1', 'invalid number of fields'),
    ('HSETEX h FIELDS x a 1', 'invalid number of fields'),
    ('HSETEX h FIELDS 2147483648 a 1', 'invalid number of fields'),
    ('HSETEX h FIELDS 2 a 1', arity('hsetex')),
    ('HSETEX h FIELDS 1 a 1 b', arity('hsetex')),
    ('HSETEX h FIELDS 1 a 1 b 2', arity('hsetex')),
])
def test_bad_arguments_of_hgetex_and_hsetex(h, line, text):
    assert error(h, line) == text
    assert run(h, 'HMGET h a b c') == [b'1', b'2', b'3']
    assert deadlines(h, 'a') == [NO_TTL]


def test_hsetex_missing_time(h):
    assert error(h, 'HSETEX h FNX FXX2 FIELDS EX') == 'unknown argument: FXX2'
    assert error(h, 'HSETEX h FNX KEEPTTL FIELDS EX') == arity('hsetex')
    assert error(h, 'HSETEX h EX 10 FNX PX') == \
        'Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified'


def test_info_counts_fields(server_factory):
    """expired_subkeys, and subexpiry: hashes that have a field with a deadline."""
    s = server_factory()
    with s.client() as c:
        for h in 'abc':
            c.hset(h, mapping={'f': 1, 'g': 2})
            c.execute_command('HPEXPIRE', h, 100_000, 'FIELDS', 1, 'f')
        c.execute_command('HPEXPIRE', 'a', 1, 'FIELDS', 1, 'g')
        c.execute_command('HPERSIST', 'b', 'FIELDS', 1, 'f')
        c.hset('d', 'f', 1)
        eventually(lambda: c.info('stats')['expired_subkeys'] == 1)
        assert c.info('keyspace')['db0']['subexpiry'] == 2
        c.delete('a')
        assert c.info('keyspace')['db0']['subexpiry'] == 1
    s.restart()
    with s.client() as c:
        assert c.info('keyspace')['db0']['subexpiry'] == 1
        c.hdel('c', 'f')
        assert c.info('keyspace')['db0']['subexpiry'] == 0
