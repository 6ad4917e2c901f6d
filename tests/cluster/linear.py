"""Checks that a history of operations on keys with deadlines is linearizable.

An operation was called at one moment of the test's monotonic clock and returned at a later one, with a result
or with an unknown outcome (a connection that broke, `-UNCERTAIN`). A history is linearizable if all operations
can be put into one order, each at a moment between its call and its return, such that every result is what a
single server would have answered. An operation with an unknown outcome may have happened at any moment after
its call, or not at all.

Keys that are never used together in one operation are independent, so each group of keys is checked by
itself (`check`). The search is Wing and Gong's, with Lowe's memory of the configurations that were tried. Two rules keep
it short. An operation that may be next and changes nothing is next: later it could not do better. And if no value is
written twice, what was overwritten is not seen again: so an order fails where it overwrites a value that an operation
which is left has seen.

Deadlines. A write with a TTL that took effect at some moment between call and return has its deadline in an
interval [lo, hi]: the moment is not known, and clocks differ by up to `skew`. Expiry is an event nobody calls:
it may happen as soon as the clock can have reached `lo`, must have happened once the clock has surely passed
`hi`, and never un-happens: a value that was seen dead stays dead.
"""
import collections
import math
from dataclasses import dataclass
from typing import Any, Callable, Optional

UNKNOWN = object()  # the result of an operation that may or may not have happened
ABORTED = object()  # the result of a transaction that was not done because a key had changed
NEVER = math.inf
ABSENT = (None, NEVER, NEVER)  # what a key holds: value, and the interval of its deadline


@dataclass
class Op:
    """`run(state, first, last)` gives the state after the operation and its result, if it happens at a moment
    between `first` and `last`; state maps each key of the group to (value, lo, hi)."""
    call: float
    ret: float  # NEVER: the outcome is unknown
    run: Callable[[dict, float, float], tuple]
    result: Any
    what: str = ''
    same: str = ''  # operations for which this is equal, and not empty, do the same

    def saw(self):
        """The values that keys must have had just before, as far as the result says it: {key: value}."""
        return self.run.saw(self.result) if hasattr(self.run, 'saw') else {}

    def __str__(self):
        return f'{self.call:.6f} … {self.ret:.6f}  {self.what} → {"?" if self.result is UNKNOWN else repr(self.result)}'


@dataclass
class Verdict:
    ok: bool
    why: str = ''
    tried: int = 0


class Search:
    """Operations have a bit each: those with a result first, in the order of their calls, so that the lowest bit that is
    not set is the first of them that is left. Then those with an unknown outcome, which may stay out for ever."""

    def __init__(self, ops, skew, limit, unique):
        self.known = sorted((op for op in ops if op.result is not UNKNOWN), key=lambda op: op.call)
        self.unknown = sorted((op for op in ops if op.result is UNKNOWN), key=lambda op: op.call)
        self.twins = self.earlier_twins()
        self.skew, self.limit = skew, limit
        self.seen, self.tried, self.deepest = set(), 0, 0
        self.readers = collections.defaultdict(int)     # by (key, value): who has seen it
        for i, op in enumerate(self.known if unique else ()):
            for seen in op.saw().items():
                self.readers[seen] |= 1 << i

    def earlier_twins(self):
        """For operations with an unknown outcome: the bit of the one that was called just before and does the same, or None. If one
        of them happened, it may as well have been the first: so the others wait for it."""
        last, twins = {}, []
        for i, op in enumerate(self.unknown, len(self.known)):
            twins.append(last.get(op.same) if op.same else None)
            last[op.same] = i
        return twins

    # -- what may come next ---------------------------------------------------------------------

    def candidates(self, done):
        """Operations that may be the next one: none that is left returned before they were called. And the latest
        moment at which the next one can take effect."""
        horizon, left = NEVER, []
        for i in range(lowest_unset(done), len(self.known)):
            op = self.known[i]
            if op.call > horizon:
                break
            if not done >> i & 1:
                left.append((i, op))
                horizon = min(horizon, op.ret)
        left.sort(key=lambda c: c[1].ret)
        left += ((i, op) for i, (op, twin) in enumerate(zip(self.unknown, self.twins), len(self.known))
                 if not done >> i & 1 and (twin is None or done >> twin & 1))
        return [(i, op) for i, op in left if op.call <= horizon], horizon

    def aged(self, state, first, last):
        """The states into which `state` may have turned when the clock is between first and last: every key
        whose time can have come may have expired; one whose time has surely passed has."""
        states = [state]
        for key, (value, lo, hi) in state.items():
            if value is None or lo > last + self.skew:
                continue
            dead = [dict(s, **{key: ABSENT}) for s in states]
            states = dead if hi + self.skew < first else states + dead
        return states

    def leaves_readers(self, state, done, after):
        """Whether a value is gone that an operation has seen which is not done."""
        return any(value[0] != after[key][0] and self.readers.get((key, value[0]), 0) & ~done for key, value in state.items())

    def idle(self, state, now, candidates, horizon):
        """One of these that changes nothing, and does not have to wait; or None."""
        if self.aged(state, now, horizon)[0] is not state:
            return None     # something has died
        for i, op in candidates:
            if op.result is not UNKNOWN and op.call <= now and op.run(state, now, horizon) == (state, op.result):
                return i
        return None

    def steps(self, done, state, now, known=True, unknown=True):
        """What may come next, of the operations with a result, and of those without."""
        candidates, horizon = self.candidates(done)
        idle = self.idle(state, now, candidates, horizon) if known else None
        if idle is not None:
            yield done | 1 << idle, state, now, False
            return
        for i, op in candidates:
            if not (unknown if op.result is UNKNOWN else known):
                continue
            first = max(now, op.call)
            for aged in self.aged(state, first, horizon):
                after, result = op.run(aged, first, horizon)
                if (op.result is UNKNOWN or result == op.result) and not self.leaves_readers(state, done | 1 << i, after):
                    yield done | 1 << i, after, first, op.result is UNKNOWN

    # -- depth first, without recursion ------------------------------------------------------------

    def next_step(self, stack, later):
        while stack or later:
            if not stack:
                stack.append(self.steps(*later.popleft(), known=False))
            step = next(stack[-1], None)
            if step:
                return step
            stack.pop()
        return None

    def run(self, state):
        """Two unknown operations in a row are tried when nothing else is left: mostly one explains what was seen next."""
        whole = (1 << len(self.known)) - 1
        if not whole:
            return Verdict(True)
        stack, later = [self.steps(0, state, -NEVER)], collections.deque()
        while step := self.next_step(stack, later):
            done, after, now, was_unknown = step
            if done & whole == whole:
                return Verdict(True, tried=self.tried)
            config = (done, tuple(sorted(after.items())))  # `now` is the latest call of those done
            if config in self.seen:
                continue
            self.seen.add(config)
            self.tried += 1
            if self.tried > self.limit:
                return Verdict(False, f'undecided after {self.limit} configurations', self.tried)
            self.deepest = max(self.deepest, lowest_unset(done))
            stack.append(self.steps(done, after, now, unknown=not was_unknown))
            if was_unknown:
                later.append((done, after, now))
        return Verdict(False, self.explain(), self.tried)

    def explain(self):
        if self.deepest >= len(self.known):
            return 'no order explains the history'
        stuck = self.known[self.deepest]
        ops = sorted(self.known + self.unknown, key=lambda op: op.call)
        at = ops.index(stuck)
        lines = [f'{op}{"   <- here" if op is stuck else ""}' for op in ops[max(0, at - 12):at + 6]]
        return (f'no order explains the history; {self.deepest} of {len(self.known)} operations can be put in '
                'order. Around there:\n  ' + '\n  '.join(lines))


def lowest_unset(bits):
    return (~bits & bits + 1).bit_length() - 1


def check(ops, keys, skew=0.05, limit=2_000_000, unique=False) -> Verdict:
    """`skew`: by how many seconds a server's clock may differ from the test's, in either direction. `unique`: no value is
    written twice, so that one that is gone does not come back."""
    return Search(ops, skew, limit, unique).run({key: ABSENT for key in keys})


# -- operations ---------------------------------------------------------------------------------


def alive_until(ttl: Optional[float], first: float, last: float):
    """The interval of a deadline that was set at a moment between first and last."""
    return (NEVER, NEVER) if ttl is None else (first + ttl, last + ttl)


def sees(values):
    """For an operation of which values(result) says what keys have held: {key: value}. Absent keys may come back."""
    def with_it(run):
        run.saw = lambda result: {key: value for key, value in values(result).items() if value is not None}
        return run
    return with_it


def get(key):
    @sees(lambda result: {key: result})
    def run(s, first, last):
        return s, s[key][0]
    return run


def put(key, value, ttl=None, only_if=None):
    """SET; only_if: 'NX' or 'XX'. The result is whether it was set."""
    def run(s, first, last):
        if only_if and (s[key][0] is None) != (only_if == 'NX'):
            return s, False
        return dict(s, **{key: (value, *alive_until(ttl, first, last))}), True
    return run


def delete(key):
    return lambda s, first, last: (dict(s, **{key: ABSENT}), s[key][0] is not None)


def incr(key, ttl=None):
    """INCR, and with a ttl a deadline when it makes the key: a rate limiter. The result is the new value."""
    @sees(lambda result: {key: result - 1 or None})
    def run(s, first, last):
        value, lo, hi = s[key]
        if value is None:
            lo, hi = alive_until(ttl, first, last)
        new = (int(value or 0) + 1, lo, hi)
        return dict(s, **{key: new}), new[0]
    return run


def expire(key, ttl):
    """PEXPIRE. The result is whether the key was there."""
    def run(s, first, last):
        if s[key][0] is None:
            return s, False
        return dict(s, **{key: (s[key][0], *alive_until(ttl, first, last))}), True
    return run


def swap(key, seen, then):
    """A transaction that WATCHes a key that held `seen`, and was done: the key still held it."""
    @sees(lambda result: {} if result is ABORTED else {key: seen})
    def run(s, first, last):
        return then(s, first, last) if s[key][0] == seen else (s, ABORTED)
    return run


def together(*runs):
    """A transaction: the results of all, at one moment."""
    reads = all(hasattr(one, 'saw') for one in runs)    # and nothing it has written itself

    @sees(lambda results: {k: v for one, r in zip(runs, results) for k, v in one.saw(r).items()} if reads else {})
    def run(s, first, last):
        results = []
        for one in runs:
            s, result = one(s, first, last)
            results.append(result)
        return s, tuple(results)
    return run
