#!/usr/bin/env python3
"""Three sites under load, with partitions and kill -9; in the end all must have the same keys, values and deadlines,
and no metadata but what living keys need.

    tests/sites/soak.py --minutes 60 [--seed N] [--rate N] [--machines]

Each round: writers at all sites, some trouble, peace, and a comparison key by key with PEXPIRETIME. With --machines (as root) each
site has a network namespace and a clock of its own: links break one way, clocks step by up to 10 seconds, and
a replica of site 1 takes its place.
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
from sites import Group, piped, write                                    # noqa: E402

ROUND_SECONDS = 8
PATIENCE = 300
BATCH = 40                              # writes
STEP = 10                               # seconds


class Writer(threading.Thread):
    """Writes to a site until told to stop; what is not answered may or may not have happened."""

    def __init__(self, group, gid, seed, rate):
        super().__init__(daemon=True)
        self.group, self.gid, self.rng, self.pause = group, gid, random.Random(seed), BATCH / rate if rate else 0
        self.over, self.batches, self.counted, self.unknown = threading.Event(), 0, 0, 0
        self.start()

    def run(self):
        while not self.over.wait(self.pause):
            site, asked = self.group[self.gid], False
            try:
                write(site, self.rng, BATCH // 2)
                with site.client() as r:
                    with r.pipeline(transaction=False) as p:
                        for _ in range(BATCH // 4):
                            p.set(f's{self.rng.randrange(2000)}', self.rng.randrange(10**9), px=self.rng.randrange(1, 20_000))
                            p.incr(f'n{self.rng.randrange(50)}')
                        p.execute(raise_on_error=False)
                    asked = True
                    r.incr(f'counted{self.gid}')
                self.counted += 1
                self.batches += 1
            except (redis.ConnectionError, redis.TimeoutError, ValueError):
                self.unknown += asked
                time.sleep(.02)
            except redis.ResponseError:         # such as SITEDOUBT
                time.sleep(.05)


def trouble(g, rng, until, machines):
    events = []
    kinds = ['cut', 'cut', 'restore', 'kill', 'nothing']
    if machines:
        kinds += ['cut one way', 'cut one way', 'step', 'step', rng.choice(('take over', 'fail over', 'nothing'))]
    while time.monotonic() < until:
        time.sleep(rng.random())
        what = rng.choice(kinds)
        a, b = rng.sample((1, 2, 3), 2)
        if what == 'cut':
            g.cut(a, b)
        elif what == 'cut one way':
            g.cut_off(a, b)
        elif what == 'restore':
            g.restore()
        elif what == 'kill':
            g.restart(a, signal.SIGKILL)
        elif what == 'step':
            b = rng.randint(-STEP, STEP)
            g.step_clock(a - 1, b)
        elif what.endswith('over'):
            g.take_over(kill=what == 'take over')
            kinds.remove(what)
        if what != 'nothing':
            events.append(f'{what} {a} {b}')
    return events


def garbage(s):
    """Keys that have some. Those that expire meanwhile have it for a moment."""
    keys = list(s.r.scan_iter(count=1000))
    return [k for k, text in zip(keys, piped(s.r, [('SITE', 'KEY', k) for k in keys])) if text and 'garbage:yes' in text]


def check_counters(g, writers, before, lossy):
    """No answered increment is lost but by a server that is gone for good, and none is counted twice."""
    for w in writers:
        n = int(g[2].r.get(f'counted{w.gid}') or 0) - before.get(w.gid, 0)
        least = 0 if lossy and w.gid == 1 else w.counted
        assert least <= n <= w.counted + w.unknown, (w.gid, n, w.counted, w.unknown)
        before[w.gid] = before.get(w.gid, 0) + n


def one_round(g, rng, args, counters):
    writers = [Writer(g, gid, rng.random(), args.rate / 3) for gid in (1, 2, 3)]
    events = trouble(g, rng, time.monotonic() + ROUND_SECONDS, args.machines)
    for w in writers:
        w.over.set()
    for w in writers:
        w.join()
    g.restore()
    if args.machines:
        for at in range(4):
            g.step_clock(at, 0)
    eventually(lambda: all(s.is_member() and s.links_up() == 2 for s in g.sites), PATIENCE)
    eventually(lambda: all(s.facts['site_clock_ahead_ms'] == 0 for s in g.sites), PATIENCE)
    data = g.agree()
    check_counters(g, writers, counters, any(e.startswith('take') for e in events))
    eventually(lambda: all(s.facts['site_garbage_keys'] == 0 for s in g.sites), PATIENCE)
    eventually(lambda: not any(garbage(s) for s in g.sites), PATIENCE)
    return len(data), sum(w.batches for w in writers), events


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--minutes', type=float, default=60)
    p.add_argument('--seed', type=int, default=random.SystemRandom().randrange(10**6))
    p.add_argument('--rate', type=float, default=0, help='writes a second of all writers; 0: as many as they can')
    p.add_argument('--machines', action='store_true')
    args = p.parse_args()
    if args.machines:
        sys.path.insert(1, os.path.join(HERE, '..', 'cluster'))
        from machines import in_namespaces              # pylint: disable=import-outside-toplevel
        in_namespaces()
        from machines_group import MachineGroup         # pylint: disable=import-outside-toplevel
    rng, end, rounds, counters = random.Random(args.seed), time.monotonic() + 60 * args.minutes, 0, {}
    print(f'sites-soak: seed {args.seed}', flush=True)
    g = MachineGroup('--site-backlog-size', '1mb') if args.machines else Group(3, '--site-backlog-size', '1mb')
    try:
        while time.monotonic() < end or not rounds:
            keys, batches, events = one_round(g, rng, args, counters)
            rounds += 1
            print(f'{time.strftime("%H:%M:%S")} round {rounds}: {keys} keys equal after {batches} batches; {", ".join(events)}',
                  flush=True)
        g.check()
    except BaseException:
        for s in (*g.sites, *filter(None, [getattr(g, 'spare', None)])):
            print(f'--- log of site {s.gid} ({s.proc.poll()}), its end\n{s.log[-3000:]}', file=sys.stderr)
        raise
    finally:
        g.close()
    print(f'sites-soak: {rounds} rounds, no difference')


if __name__ == '__main__':
    main()
