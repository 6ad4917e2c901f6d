#!/usr/bin/env python3
"""Harder random histories for model.py: many joins, evictions, clock steps, crashes, trimmed backlogs and
full syncs.

    tests/site/stress.py N [FIRST] [--long] [--trace]     N histories from seed FIRST on; --long joins two of them end
                                                          to end; --trace prints them, as model.py does
"""

import random
import sys

import model

EXTRA = [  # (chance before each step of an ordinary history, what to put there)
    (.08, lambda r: ("join", r.randrange(60))),
    (.05, lambda r: ("evict", r.randrange(60), r.randrange(60))),
    (.06, lambda r: ("skew", r.randrange(60), r.randint(-5000, 5000))),
    (.08, lambda r: ("trim", r.randrange(60), 0)),
    (.06, lambda r: ("link", "full", r.randrange(60), r.randrange(60))),
    (.05, lambda r: ("link", "clock", r.randrange(60), r.randrange(60))),
    (.05, lambda r: ("crash", r.randrange(60))),
    (.04, lambda r: ("tear", r.randrange(60), r.randrange(60), r.randrange(8))),
]


def history(seed):
    r = random.Random(seed ^ 0x5EED)
    first, *steps = model.make_script(seed)
    out = [first]
    for step in steps:
        out += [make(r) for chance, make in EXTRA if r.random() < chance]
        out.append(step)
    return out


def long_history(seed):
    steps = history(seed) + history(seed + 10**9)[1:]
    if any(step[-1] == "INCR count" for step in steps):  # that check counts increments; FLUSHALL would end it
        steps = [tuple("GET a" if word == "FLUSHALL" else word for word in step) for step in steps]
    return steps


def main(argv):
    numbers = [int(a) for a in argv if a[:2] != "--"]
    count, first = numbers[0], numbers[1] if len(numbers) > 1 else 0
    make = long_history if "--long" in argv else history
    for seed in range(first, first + count):
        steps = make(seed)
        if "--trace" in argv:
            print("history", seed)
            model.World(steps, trace=print).finish()
            continue
        if model.fails(steps):
            steps = model.shrink(steps)
            print(f"seed {seed}: {model.fails(steps)[:300]}", *steps, sep="\n    ")
            return 1
    if "--trace" not in argv:
        print(count, "histories, all hold")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
