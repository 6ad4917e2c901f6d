#!/usr/bin/env python3
"""Three sites under load, with partitions and kill -9; in the end all must have the same keys, values and deadlines,
and no metadata but what living keys need.

    tests/sites/soak.py --minutes 60 [--seed N]

Each round: writers at all sites, some partitions and kills, peace, and a comparison key by key with PEXPIRETIME.
"""
import argparse
import os
import random
import signal
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [HERE, os.path.join(HERE, '..', 'server'), os.path.join(HERE, '..', 'replication')]

import redis                                                             # noqa: E402

from mayfly import eventually                                            # noqa: E402
from sites import Group, write                                           # noqa: E402

ROUND_SECONDS = 8
PATIENCE = 300


class Writer(threading.Thread):
    """Writes to a site until told to stop; what is not answered may or may not have happened."""

    def __init__(self, site, seed):
        super().__init__(daemon=True)
        self.site, self.rng, self.over, self.batches = site, random.Random(seed), threading.Event(), 0
        self.start()

    def run(self):
        while not self.over.is_set():
            try:
                write(self.site, self.rng, 50)
                with self.site.client() as r, r.pipeline(transaction=False) as p:
                    for _ in range(30):
                        p.set(f's{self.rng.randrange(2000)}', self.rng.randrange(10**9), px=self.rng.randrange(1, 20_000))
                        p.incr(f'n{self.rng.randrange(50)}')
                    p.execute(raise_on_error=False)
                self.batches += 1
            except (redis.ConnectionError, redis.TimeoutError, ValueError):
                time.sleep(.02)


def trouble(g, rng, until):
    events = []
    while time.monotonic() < until:
        time.sleep(rng.random())
        what = rng.choice(('cut', 'cut', 'restore', 'kill', 'nothing'))
        if what == 'cut':
            a, b = rng.sample((1, 2, 3), 2)
            g.cut(a, b)
            events.append(f'cut {a}-{b}')
        elif what == 'restore':
            g.restore()
            events.append('restore')
        elif what == 'kill':
            gid = rng.randrange(1, 4)
            g.restart(gid, signal.SIGKILL)
            events.append(f'kill {gid}')
    return events


def one_round(g, rng):
    writers = [Writer(s, rng.random()) for s in g.sites]
    events = trouble(g, rng, time.monotonic() + ROUND_SECONDS)
    for w in writers:
        w.over.set()
    for w in writers:
        w.join()
    g.restore()
    eventually(lambda: all(s.links_up() == 2 for s in g.sites), PATIENCE)
    data = g.agree()
    eventually(lambda: all(s.facts['site_garbage_keys'] == 0 for s in g.sites), PATIENCE)
    return len(data), sum(w.batches for w in writers), events


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--minutes', type=float, default=60)
    p.add_argument('--seed', type=int, default=random.SystemRandom().randrange(10**6))
    args = p.parse_args()
    rng, end, rounds = random.Random(args.seed), time.monotonic() + 60 * args.minutes, 0
    print(f'sites-soak: seed {args.seed}', flush=True)
    g = Group(3, '--site-backlog-size', '1mb')
    try:
        while time.monotonic() < end or not rounds:
            keys, batches, events = one_round(g, rng)
            rounds += 1
            print(f'round {rounds}: {keys} keys equal after {batches} batches; {", ".join(events)}', flush=True)
        g.check()
    except BaseException:
        for s in g.sites:
            print(f'--- log of site {s.gid}, its end\n{s.log[-3000:]}', file=sys.stderr)
        raise
    finally:
        g.close()
    print(f'sites-soak: {rounds} rounds, no difference')


if __name__ == '__main__':
    main()
