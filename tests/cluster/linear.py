"""Checks that a history of operations on keys with deadlines is linearizable.

An operation was called at one moment of the test's monotonic clock and returned at a later one, with a result
or with an unknown outcome (a connection that broke, `-UNCERTAIN`). A history is linearizable if all operations
can be put into one order, each at a moment between its call and its return, such that every result is what a
single server would have answered. An operation with an unknown outcome may have happened at any moment after
its call, or not at all.

Keys that are never used together in one operation are independent, so each group of keys is checked by
itself (`check`). The search is Wing and Gong's, with Lowe's memory of the configurations that were tried.

Deadlines. A write with a TTL that took effect at some moment between call and return has its deadline in an
interval [lo, hi]: the moment is not known, and clocks differ by up to `skew`. Expiry is an event nobody calls:
it may happen as soon as the clock can have reached `lo`, must have happened once the clock has surely passed
`hi`, and never un-happens: a value that was seen dead stays dead.
"""
import math
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

UNKNOWN = object()  # the result of an operation that may or may not have happened
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

    @property
    def may_be_left_out(self):
        return self.result is UNKNOWN


@dataclass
class Verdict:
    ok: bool
    why: str = ''
    tried: int = 0


@dataclass
class Search:
    ops: list
    skew: float
    limit: int
    seen: set = field(default_factory=set)
    tried: int = 0
    deepest: int = 0

    # -- what may come next ---------------------------------------------------------------------

    def candidates(self, done):
        """Operations that may be the next one: none that is left returned before they were called."""
        horizon = min((op.ret for i, op in enumerate(self.ops) if not done >> i & 1), default=NEVER)
        for i, op in enumerate(self.ops):
            if op.call > horizon:
                break
            if not done >> i & 1:
                yield i, op

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

    def steps(self, done, state, now):
        for i, op in self.candidates(done):
            first, last = max(now, op.call), op.ret
            for aged in self.aged(state, first, last):
                after, result = op.run(aged, first, last)
                if op.result is UNKNOWN or result == op.result:
                    yield done | 1 << i, after, first
            if op.may_be_left_out:
                yield done | 1 << i, state, now

    # -- depth first, without recursion ------------------------------------------------------------

    def run(self, state):
        whole = (1 << len(self.ops)) - 1
        # What is left may all have been left out: then the rest need not be tried.
        optional = sum(1 << i for i, op in enumerate(self.ops) if op.may_be_left_out)
        stack = [self.steps(0, state, -NEVER)]
        if not self.ops:
            return Verdict(True)
        while stack:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
                continue
            done, after, now = step
            if done | optional == whole:
                return Verdict(True, tried=self.tried)
            key = (done, tuple(sorted(after.items())), now)
            if key in self.seen:
                continue
            self.seen.add(key)
            self.tried += 1
            if self.tried > self.limit:
                return Verdict(False, f'undecided after {self.limit} configurations', self.tried)
            self.deepest = max(self.deepest, bin(done).count('1'))
            stack.append(self.steps(done, after, now))
        return Verdict(False, self.explain(), self.tried)

    def explain(self):
        around = self.ops[max(0, self.deepest - 6):self.deepest + 6]
        lines = [f'{op.call:.6f} … {op.ret:.6f}  {op.what} → '
                 f'{"?" if op.result is UNKNOWN else op.result!r}' for op in around]
        return (f'no order explains the history; {self.deepest} of {len(self.ops)} operations can be put in '
                'order. Around there:\n  ' + '\n  '.join(lines))


def check(ops, keys, skew=0.05, limit=2_000_000) -> Verdict:
    """`skew`: by how many seconds a server's clock may differ from the test's, in either direction."""
    ops = sorted(ops, key=lambda op: op.call)
    return Search(ops, skew, limit).run({key: ABSENT for key in keys})


# -- operations ---------------------------------------------------------------------------------


def alive_until(ttl: Optional[float], first: float, last: float):
    """The interval of a deadline that was set at a moment between first and last."""
    return (NEVER, NEVER) if ttl is None else (first + ttl, last + ttl)


def get(key):
    return lambda s, first, last: (s, s[key][0])


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
    def run(s, first, last):
        value, lo, hi = s[key]
        if value is None:
            lo, hi = alive_until(ttl, first, last)
        new = (int(value or 0) + 1, lo, hi)
        return dict(s, **{key: new}), new[0]
    return run


def together(*runs):
    """A transaction: the results of all, at one moment."""
    def run(s, first, last):
        results = []
        for one in runs:
            s, result = one(s, first, last)
            results.append(result)
        return s, tuple(results)
    return run
