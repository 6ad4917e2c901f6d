#!/usr/bin/python3
"""Schedules of several clients on Mayfly and on redis-server, compared step by step.

    run.py --server build/mayfly-server [--engine rocksdb] [--seed 1] [--steps 3000] [--only blocking]

First those written by hand (*.txt beside this file), then random ones, each from empty servers, with a seed of
its own: `--seed S --round R` runs just one again. A schedule in a file:

    == title
    A: BLPOP k 0
    B: MULTI | RPUSH k 1 | EXEC         several commands at once
    A: <close>                          or <resp3>: a new connection that talks RESP3
    sleep 0.02

A title that ends with "(as in 7.0)" is not run beside later servers.

Exit status 1 at the first difference, which is shown with the steps that lead to it.
"""
import argparse
import glob
import os
import random
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from schedule import Difference, Duet, Stage                             # noqa: E402
import gen_blocking                                                      # noqa: E402
import gen_pubsub                                                        # noqa: E402
import versions                                                          # noqa: E402
from servers import Server                                               # noqa: E402

ROOT = os.path.dirname(os.path.dirname(HERE))
os.environ.pop('MAYFLY_IO_THREADS', None)       # a fence needs one thread: schedule.py
GENERATORS = {'blocking': gen_blocking.Generator, 'pubsub': gen_pubsub.Generator}
ROUND = 250             # steps of a random schedule
AS_OLD = '(as in 7.0)'


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--server', default=os.path.join(ROOT, 'build', 'mayfly-server'), help='server under test')
    p.add_argument('--other', default='redis-server', help='reference server')
    p.add_argument('--engine', default='memory', help='storage engine of the server under test')
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--steps', type=int, default=3000, help='steps of random schedules, of each kind')
    p.add_argument('--round', type=int, default=None, help='run this random schedule only')
    p.add_argument('--only', default=None, help='one file, or one kind of random schedules')
    return p.parse_args()


def parse(path):
    """The schedules of a file: (title, steps)."""
    found = []
    with open(path, encoding='utf-8') as f:
        for line in map(str.strip, f):
            if line.startswith('== '):
                found.append((line[3:], []))
            elif line.startswith('sleep '):
                found[-1][1].append((None, float(line[6:])))
            elif line and not line.startswith('#'):
                name, rest = line.split(':', 1)
                found[-1][1].append((name, *(part.strip() for part in rest.split(' | '))))
    return found


def known_commands(server):
    stage = Stage(server)
    stage.open()
    names = {bytes(item[1]).decode() for item in stage.fence_conn.call('COMMAND', 'LIST')[1]}
    stage.close()
    return names


def is_old(server):
    stage = Stage(server)
    stage.open()
    kind = versions.kind_of(stage.fence_conn)
    stage.close()
    return kind == 'old'


def by_hand(duet, path, known, old):
    done = 0
    for title, steps in parse(path):
        if title.endswith(AS_OLD) and not old:
            continue
        used = {line.split()[0].lower() for s in steps if s[0] for line in s[1:] if line[0] != '<'}
        if not used <= known:
            print('  not run: %s (%s)' % (title, ', '.join(sorted(used - known))))
            continue
        try:
            duet.run(steps)
        except Difference as d:
            sys.exit('%s: %s\n%s' % (os.path.basename(path), title, d.text()))
        done += 1
    return done


def at_random(duet, kind, seed, number, steps, known):
    g = GENERATORS[kind](random.Random('%s-%d-%d' % (kind, seed, number)), known)
    duet.open()
    try:
        for _ in range(steps):
            g.saw(duet.step(g.next()))
        for step in g.final():
            duet.step(step)
    except Difference as d:
        duet.close()
        sys.exit('%s: --seed %d --round %d\n%s' % (kind, seed, number, duet.shrink(d).text()))
    duet.close()


def main():
    a = arguments()
    start = time.time()
    ours = Server('mayfly', a.server, ['--engine', a.engine])
    theirs = Server('redis', a.other)
    duet = Duet(ours, theirs)
    known = known_commands(ours) & known_commands(theirs)
    old = is_old(theirs)
    if not old:             # of several keys that are ready Mayfly picks as 7.0 does: docs/compatibility.md
        gen_blocking.Generator.keys_waited_for = 1
    hands = steps = 0
    for path in sorted(glob.glob(os.path.join(HERE, '*.txt'))):
        if a.round is None and a.only in (None, os.path.basename(path), os.path.basename(path)[:-4]):
            hands += by_hand(duet, path, known, old)
    for kind in GENERATORS:
        if a.only not in (None, kind):
            continue
        rounds = range(max(1, a.steps // ROUND)) if a.round is None else [a.round]
        for number in rounds:
            at_random(duet, kind, a.seed, number, ROUND, known)
            steps += ROUND
    print('scenarios: %d by hand, %d random steps on %s, no difference (%.1f s)'
          % (hands, steps, a.engine, time.time() - start))


if __name__ == '__main__':
    main()
