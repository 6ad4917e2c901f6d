#!/usr/bin/env python3
"""The matrix of faults: clusters of real servers × faults × kinds of work, each history judged. See docs/cluster.md.

    matrix.py [--nodes 3,5] [--faults all] [--kinds all] [--ops 20000] [--seed N] [--logs FOLDER]

Prints a line for each cell. Ends with 1 if anything is wrong, with 2 if cells could not be run here.
"""
import argparse
import random
import sys
import time

from cell import Cell
from faults import FAULTS
from kinds import KINDS
from machines import Unavailable, in_namespaces, inside

COLUMNS = '{:>5}  {:16}{:13}{:>10}{:>9}{:>9}{:>8}{:>9}{:>9}  {}'


def some(text, known, what):
    """The names in a list with commas; `all`."""
    names = list(known) if text == 'all' else [n for n in text.split(',') if n]
    unknown = [n for n in names if n not in known]
    if unknown:
        sys.exit(f'no such {what}: {", ".join(unknown)}; there are {", ".join(map(str, known))}')
    return names


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument('--nodes', default='3,5')
    p.add_argument('--faults', default='all')
    p.add_argument('--kinds', default='registers,counters,transactions,members')
    p.add_argument('--ops', type=int, default=20000)
    p.add_argument('--seed', default=str(random.SystemRandom().randrange(10**6)))
    p.add_argument('--logs', help='where the logs of nodes go if something is wrong')
    return p.parse_args()


def one(args, size, fault, kind):
    """Runs a cell and prints its line. 'ok', 'wrong' or 'not run'."""
    started = time.monotonic()
    cell = Cell(size, fault, kind, args.ops, args.seed)
    try:
        with cell:
            try:
                cell.run()
            except AssertionError as e:
                cell.wrong.append(str(e))
            if cell.wrong and args.logs:
                cell.keep_logs(args.logs)
    except Unavailable as e:
        print(COLUMNS.format(size, fault, kind, '', '', '', '', '', '', f'not run: {e}'), flush=True)
        return 'not run'
    load = cell.load
    print(COLUMNS.format(size, fault, kind, load.done, load.unknown, load.not_run, cell.rounds, f'{cell.seconds:.0f}',
                         f'{time.monotonic() - started:.0f}', f'WRONG: {len(cell.wrong)}' if cell.wrong else 'ok'), flush=True)
    for why in cell.wrong[:5]:
        print('    ' + why.replace('\n', '\n    '), flush=True)
    return 'wrong' if cell.wrong else 'ok'


def main():
    args = arguments()
    sizes = [int(n) for n in args.nodes.split(',')]
    faults, kinds = some(args.faults, FAULTS, 'fault'), some(args.kinds, KINDS, 'kind')
    in_namespaces()
    if not inside():
        print('Not root, or no namespaces: partitions, loss, full disks and power cuts are left out.')
    print(f'{args.ops} operations and more, seed {args.seed}')
    print(COLUMNS.format('nodes', 'fault', 'kind', 'operations', 'unknown', 'not run', 'faults', 'seconds', '… in all', 'verdict'))
    results = [one(args, size, fault, kind) for size in sizes for fault in faults for kind in kinds]
    print(', '.join(f'{results.count(r)} {r}' for r in ('ok', 'wrong', 'not run') if r in results))
    sys.exit(1 if 'wrong' in results else 2 if 'not run' in results else 0)


if __name__ == '__main__':
    main()
