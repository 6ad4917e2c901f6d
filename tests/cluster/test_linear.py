"""The checker of histories accepts histories of a single server, and finds each planted violation."""
import random

import pytest
from kinds import judge_logs
from linear import ABSENT, NEVER, UNKNOWN, Op, check, delete, expire, get, incr, put, swap, together


def op(call, ret, run, result, what=''):
    return Op(call, ret, run, result, what)


def ok(*ops, keys=('k',), **options):
    verdict = check(list(ops), keys, **options)
    assert verdict.ok, verdict.why


def bad(*ops, keys=('k',), **options):
    verdict = check(list(ops), keys, **options)
    assert not verdict.ok and 'no order' in verdict.why, verdict.why


def test_reads_follow_writes():
    ok(op(0, 1, put('k', 'a'), True), op(2, 3, get('k'), 'a'), op(4, 5, delete('k'), True), op(6, 7, get('k'), None))


def test_concurrent_writes_may_have_either_order():
    writes = [op(0, 10, put('k', 'a'), True), op(0, 10, put('k', 'b'), True)]
    ok(*writes, op(11, 12, get('k'), 'a'))
    ok(*writes, op(11, 12, get('k'), 'b'))
    bad(*writes, op(11, 12, get('k'), 'a'), op(13, 14, get('k'), 'b'))


def test_stale_read():
    bad(op(0, 1, put('k', 'a'), True), op(2, 3, put('k', 'b'), True), op(4, 5, get('k'), 'a'))


def test_lost_write():
    bad(op(0, 1, put('k', 'a'), True), op(2, 3, get('k'), None))


def test_an_unknown_outcome_may_or_may_not_have_happened():
    unknown = op(2, NEVER, put('k', 'b'), UNKNOWN)
    first = op(0, 1, put('k', 'a'), True)
    ok(first, unknown, op(4, 5, get('k'), 'a'))
    ok(first, unknown, op(4, 5, get('k'), 'b'))
    ok(first, unknown, op(4, 5, get('k'), 'a'), op(6, 7, get('k'), 'b'))
    bad(first, unknown, op(4, 5, get('k'), 'b'), op(6, 7, get('k'), 'a'))


def test_many_unknown_operations_that_do_the_same():
    """Which of them have happened makes no difference: how many does."""
    unknown = [Op(i / 100, NEVER, incr('k'), UNKNOWN, same='INCR k') for i in range(40)]
    ok(*unknown, op(1, 2, get('k'), 17), op(3, 4, get('k'), 40))
    bad(*unknown, op(1, 2, get('k'), 41), limit=10_000)
    bad(*unknown, op(0.205, 0.209, get('k'), 22), limit=10_000)      # 21 of them had been called
    ok(*unknown, op(0.205, 0.209, get('k'), 21), limit=10_000)


def test_a_key_dies_at_its_deadline():
    write = op(0, 1, put('k', 'a', ttl=10), True)
    ok(write, op(9, 9.5, get('k'), 'a'), op(12, 13, get('k'), None))
    bad(write, op(8, 8.5, get('k'), None))  # before its time
    bad(write, op(12, 13, get('k'), 'a'))   # after it
    ok(write, op(12, 13, get('k'), 'a'), skew=3)


def test_nothing_dead_is_seen_again():
    write = op(0, 1, put('k', 'a', ttl=10), True)
    bad(write, op(10.2, 10.3, get('k'), None), op(10.4, 10.5, get('k'), 'a'))
    bad(write, op(10.2, 10.3, get('k'), None), op(10.4, 10.5, get('k'), 'a'), skew=400)
    ok(write, op(10.2, 10.3, get('k'), 'a'), op(10.4, 10.5, get('k'), None))


def test_a_write_after_the_death_is_a_new_key():
    ok(op(0, 1, put('k', 'a', ttl=10), True), op(12, 13, put('k', 'b', only_if='NX'), True), op(50, 51, get('k'), 'b'))
    bad(op(0, 1, put('k', 'a', ttl=10), True), op(5, 6, put('k', 'b', only_if='NX'), True))


def test_only_one_of_two_conditional_writes_wins():
    ok(op(0, 5, put('k', 'a', only_if='NX'), True), op(0, 5, put('k', 'b', only_if='NX'), False))
    bad(op(0, 5, put('k', 'a', only_if='NX'), True), op(0, 5, put('k', 'b', only_if='NX'), True))


def test_counters_lose_nothing_and_count_nothing_twice():
    ok(*[op(i, i + 3, incr('k'), i + 1) for i in range(20)])
    bad(op(0, 1, incr('k'), 1), op(2, 3, incr('k'), 1))
    bad(op(0, 1, incr('k'), 1), op(2, 3, incr('k'), 3))
    ok(op(0, 1, incr('k'), 1), op(1.5, NEVER, incr('k'), UNKNOWN), op(2, 3, incr('k'), 3))


def test_a_rate_limiter_starts_again_after_its_time():
    ok(op(0, 1, incr('k', ttl=5), 1), op(2, 3, incr('k', ttl=5), 2), op(8, 9, incr('k', ttl=5), 1))
    bad(op(0, 1, incr('k', ttl=5), 1), op(8, 9, incr('k', ttl=5), 2))


def test_transactions_are_seen_whole():
    keys = ('x', 'y')
    write = op(0, 1, together(put('x', 'a'), put('y', 'a')), (True, True))
    ok(write, op(2, 3, together(get('x'), get('y')), ('a', 'a')), keys=keys)
    bad(op(0, 5, together(put('x', 'a'), put('y', 'a')), (True, True)),
        op(1, 4, together(get('x'), get('y')), ('a', None)), keys=keys)


class Server:
    """A single server that answers at a random moment of each call."""

    def __init__(self, rng, fault=None):
        self.rng, self.fault, self.values = rng, fault, {}
        self.graves = {}

    def live(self, key, now):
        value, deadline = self.values.get(key, (None, NEVER))
        if value is not None and now >= deadline:
            self.graves[key] = value
            del self.values[key]
            value = None
        if value is None and self.fault == 'resurrect' and key in self.graves and self.rng.random() < 0.5:
            return self.graves[key]
        return value

    def set(self, key, value, ttl, now):
        if self.fault == 'lose' and self.rng.random() < 0.15:
            return
        self.graves.pop(key, None)
        self.values[key] = (value, now + ttl if ttl else NEVER)


def simulate(seed, fault=None):
    """A history of one key: calls of several clients overlap, each takes effect at a moment of its own."""
    rng = random.Random(seed)
    server, moments = Server(rng, fault), []
    for client in range(4):
        at = rng.random()
        for i in range(40):
            call = at
            moment = call + rng.random() * 0.02
            at = moment + rng.random() * 0.02
            moments.append((moment, call, at, client * 1000 + i))
            at += rng.random() * 0.1
    ops = []
    for moment, call, ret, name in sorted(moments):
        if rng.random() < 0.4:
            ttl = rng.choice([None, 0.05, 0.2, 0.5])
            server.set('k', name, ttl, moment)
            unknown = rng.random() < 0.1
            ops.append(Op(call, NEVER if unknown else ret, put('k', name, ttl), UNKNOWN if unknown else True))
        else:
            ops.append(Op(call, ret, get('k'), server.live('k', moment)))
    return ops


def after_stalls(rng, at, stalls):
    """When a server does what it is asked at this moment, if it sometimes stops for seconds."""
    return next((end + rng.random() * 0.05 for begin, end in stalls if begin <= at < end), at)


def simulate_stalls(seed, fault=None):
    """A history of one key whose server stops: then many calls overlap, and some clients don't wait for the answer."""
    rng = random.Random(seed)
    server, moments = Server(rng, fault), []
    stalls = [(at, at + rng.uniform(0.5, 2.5)) for at in (rng.uniform(1, 9) for _ in range(3))]
    for client in range(12):
        at, patience, i = rng.random(), rng.choice((0.5, 2, 2, 10)), 0
        while at < 12:
            moment = after_stalls(rng, at + rng.random() * 0.002, stalls)
            ret = moment + rng.random() * 0.002
            moments.append((moment, at, ret if ret - at < patience else NEVER, f'{client}.{i}'))
            at, i = min(ret, at + patience) + rng.random() * 0.6, i + 1
    ops = []
    for moment, call, ret, name in sorted(moments):
        ttl, kind = rng.choice((0.15, 0.4, 1.0, 2.5)), rng.choice('gggggwwwwnxde')
        live = server.live('k', moment)
        happens = ret is not NEVER or rng.random() < 0.5
        if kind == 'g':
            run, result = get('k'), live
        elif kind == 'd':
            run, result = delete('k'), live is not None
            if happens:
                server.values.pop('k', None)
        elif kind == 'e':
            run, result = expire('k', ttl), live is not None
            if happens and 'k' in server.values:
                server.values['k'] = (server.values['k'][0], moment + ttl)
        else:
            only_if = {'n': 'NX', 'x': 'XX', 'w': None}[kind]
            run, result = put('k', name, ttl, only_if), kind == 'w' or (live is None) == (kind == 'n')
            if result and happens:
                server.set('k', name, ttl, moment)
        ops.append(Op(call, ret, run, UNKNOWN if ret is NEVER else result))
    return ops


@pytest.mark.parametrize('seed', range(20))
def test_histories_with_stalls_are_decided(seed):
    verdict = check(simulate_stalls(seed), ['k'], skew=0.1, limit=20_000, unique=True)
    assert verdict.ok, verdict.why


def test_lost_writes_are_found_beside_stalls():
    verdicts = [check(simulate_stalls(seed, 'lose'), ['k'], skew=0.1, limit=20_000, unique=True) for seed in range(20)]
    assert sum('no order' in v.why for v in verdicts) >= 15, [v.why[:20] for v in verdicts]


def test_a_value_that_is_gone_is_not_seen_again():
    """With values that are written once, that is found wherever the search begins."""
    writes = [op(0, 10, put('k', v), True) for v in 'abcdefgh']
    reads = [op(11 + i, 11.5 + i, get('k'), v) for i, v in enumerate('hh')]
    ok(*writes, *reads, unique=True)
    bad(*writes, *reads, op(20, 21, get('k'), 'a'), unique=True, limit=700)
    bad(*writes, op(11, 12, swap('k', 'a', together(put('k', 'x'))), (True,)), op(13, 14, get('k'), 'a'), unique=True, limit=700)


@pytest.mark.parametrize('seed', range(30))
def test_histories_of_a_single_server_are_accepted(seed):
    verdict = check(simulate(seed), ['k'], skew=0)
    assert verdict.ok, verdict.why


@pytest.mark.parametrize('fault', ['resurrect', 'lose'])
def test_faults_are_found(fault):
    found = sum(not check(simulate(seed, fault), ['k'], skew=0).ok for seed in range(30))
    assert found >= 15, found


def test_an_absent_key_is_absent():
    assert ABSENT[0] is None
    ok(op(0, 1, get('k'), None))


def test_expire_gives_a_deadline_to_what_is_there():
    ok(op(0, 1, expire('k', 5), False), op(2, 3, put('k', 'a'), True), op(4, 5, expire('k', 5), True), op(12, 13, get('k'), None))
    bad(op(2, 3, put('k', 'a'), True), op(4, 5, expire('k', 5), True), op(12, 13, get('k'), 'a'))
    bad(op(2, 3, put('k', 'a'), True), op(4, 5, expire('k', 5), True), op(6, 7, get('k'), None))


def test_a_watched_key_is_what_it_was():
    def replace(call, ret, seen, value):
        return op(call, ret, swap('k', seen, together(put('k', value))), (True,))
    first = op(0, 1, put('k', 'a'), True)
    ok(first, replace(2, 3, 'a', 'b'), op(4, 5, get('k'), 'b'))
    bad(first, op(2, 3, put('k', 'c'), True), replace(4, 5, 'a', 'b'))
    bad(first, replace(2, 9, 'a', 'b'), replace(2, 9, 'a', 'c'))        # only one of two can have been done
    ok(first, replace(2, 9, 'a', 'b'), replace(2, 9, 'b', 'c'))


def test_the_moment_of_a_write_is_bounded_by_what_follows_it():
    """A write that took long, and was read early, was done early: its deadline is not later than that."""
    bad(op(0, 20, put('k', 'a', ttl=3), True), op(1, 2, get('k'), 'a'), op(9, 10, get('k'), 'a'))
    bad(op(0, NEVER, put('k', 'a', ttl=3), UNKNOWN), op(1, 2, get('k'), 'a'), op(9, 10, get('k'), 'a'))
    ok(op(0, NEVER, put('k', 'a', ttl=3), UNKNOWN), op(9, 10, get('k'), 'a'))


def test_many_unknown_outcomes_are_decided():
    unknown = [op(i, NEVER, put('k', f'u{i}'), UNKNOWN) for i in range(40)]
    reads = [op(50 + 2 * i, 51 + 2 * i, get('k'), f'u{i * 3 % 40}') for i in range(20)]
    ok(*unknown, *reads)
    verdict = check([*unknown, *reads, op(200, 201, get('k'), 'nobody wrote this')], ['k'], limit=20000)
    assert not verdict.ok


def test_logs_lose_nothing():
    log = {'a': True, 'b': False, 'c': True}
    for there in (['a', 'c'], ['a', 'b', 'c'], ['a', 'c', 'b']):
        assert list(judge_logs({'l': log}, {'l': there})) == []
    for there in (None, ['a'], ['c', 'a'], ['a', 'c', 'c'], ['a', 'b', 'b', 'c'], ['a', 'c', 'refused']):
        assert list(judge_logs({'l': log}, {'l': there})), there
