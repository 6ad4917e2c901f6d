#!/usr/bin/env python3
"""Proves that the matrix of faults finds bugs: a server built with -DMAYFLY_PLANT contains some, which are switched on one by one
(src/raft/plant.h). Runs cells in which a bug can show, until it is found. Fails if one is not found.

    MAYFLY_SERVER=… planted.py [--bugs all] [--tries 5] [--ops 6000]
"""
import argparse
import os
import re
import sys

from cell import Cell
from machines import Unavailable, in_namespaces
from matrix import some

NO_ORDER = 'no order explains'
STUCK = 'not within 90 s'     # the cluster does not recover
# name: its bit, the cells that may find it, and what they say then
BUGS = {
    'send-before-persist': (1, [('power', 'registers')], f'{NO_ORDER}|are lost|out of range|left == right|{STUCK}'),
    'read-unconfirmed': (4, [('stale-leader', 'plain')], NO_ORDER),
    'expire-by-wall-clock': (8, [('clock-ahead', 'counters')], f'differs from|{NO_ORDER}'),
    'no-fence': (32, [('power-dead', 'registers')], NO_ORDER),
    'reply-early': (64, [('partition', 'registers'), ('kill-leader', 'counters')], f'{NO_ORDER}|are lost'),
}


def found(name, fault, kind, seed, ops):
    os.environ['MAYFLY_PLANT'] = str(BUGS[name][0])
    with Cell(3, fault, kind, ops, seed) as cell:
        try:
            cell.run()
        except AssertionError as e:     # a node that crashed, or a cluster that does not recover
            cell.wrong.append(str(e))
            cell.wrong += [f'{n.folder} has ended: {n.logged()[-1500:]}' for n in cell.cluster.nodes if not n.alive()]
    reasons = [why for why in cell.wrong if re.search(BUGS[name][2], why)]
    if reasons:
        print(f'  {name}: found by {fault} × {kind}, seed {seed}, {cell.load.done} operations: {reasons[0][:600]}', flush=True)
    elif cell.wrong:
        print(f'  {name}: {fault} × {kind}, seed {seed}, something else: {cell.wrong[0][:600]}', flush=True)
    return bool(reasons)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bugs', default='all')
    p.add_argument('--tries', type=int, default=5)
    p.add_argument('--ops', type=int, default=6000)
    args = p.parse_args()
    in_namespaces()
    missed = []
    for name in some(args.bugs, BUGS, 'bug'):
        try:
            if not any(found(name, *cell, seed, args.ops) for seed in range(args.tries) for cell in BUGS[name][1]):
                missed.append(name)
                print(f'  {name}: NOT FOUND', flush=True)
        except Unavailable as e:
            sys.exit(f'planted bugs can\'t be tried here: {e}')
    sys.exit(1 if missed else 0)


if __name__ == '__main__':
    main()
