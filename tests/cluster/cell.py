"""One cell of the matrix: a cluster with a repeated fault and clients, and a verdict.

    with Cell(3, 'partition', 'registers', ops=20000) as cell:
        cell.run()
    cell.wrong      # what is wrong, in words: []
"""
import os
import random
import shutil
import time

from clients import Load
from faults import FAULTS, Change
from kinds import KINDS, judge, judge_logs
from linear import Op
from machines import Machines
from nodes import Cluster

ROUNDS_MIN, ROUNDS = 3, 8      # of a cell: at least; about
SECONDS_MAX = 300
LOOKS = 60          # at what members have in the end


class Cell:
    def __init__(self, size, fault, kind, ops=20000, seed=1, rounds=ROUNDS_MIN, clients=150):
        self.name, self.size, self.ops, self.rounds_min = f'{size} {fault} {kind}', size, ops, rounds
        self.kind, self.make_fault = KINDS[kind](), FAULTS[fault]
        self.seed, self.rng, self.clients = seed, random.Random(f'{seed}/{size}/{fault}/{kind}'), clients
        self.rounds, self.wrong, self.load, self.seconds = 0, [], None, 0.0
        self.machines = self.cluster = None

    def __enter__(self):
        self.machines = Machines(self.size, self.make_fault.needs)
        try:
            self.cluster = Cluster(self.size, ('--cluster-node-timeout', '1000', *self.make_fault.options), self.machines.node)
            self.cluster.__enter__()
        except BaseException:
            self.machines.close()
            raise
        return self

    def __exit__(self, *problem):
        self.cluster.__exit__(*problem)
        self.machines.close()

    # -- the run -------------------------------------------------------------------------------------------------

    def run(self):
        started = time.monotonic()
        with Load(self.kind, [n.address for n in self.cluster.nodes], self.clients, self.clients // 10, self.seed) as self.load:
            fault = self.make_fault(self.cluster, self.machines, self.rng, self.load)
            while self.rounds < self.rounds_min or self.load.done < self.ops:
                assert time.monotonic() < started + SECONDS_MAX, f'{self.load.done} operations in {SECONDS_MAX} s'
                self.one_round(fault)
                self.rounds += 1
        self.seconds = time.monotonic() - started
        self.wrong += [f'an error: {e}' for e in sorted(set(self.load.surprises))]
        self.judge(fault.skew)

    def one_round(self, fault):
        self.work(0.3, 1.0)
        self.catch_up()
        change = Change(self.cluster, self.rng) if self.kind.changes_members else None
        if change:
            change.begin()
        fault.begin()
        self.work(*fault.lasts, meanwhile=change)
        fault.end()
        if change:
            change.finish()
        for n in self.cluster.nodes:
            assert n.alive(), f'{n.folder} has ended: {n.logged()[-1500:]}'
        self.cluster.settled(self.size)

    def catch_up(self, seconds=10):
        """Lets clients work until they have done this round's share, so that there are not more rounds than necessary."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.load.done < self.ops * (self.rounds + 0.5) / ROUNDS:
            time.sleep(0.05)

    def work(self, low, high, meanwhile=None):
        """Lets clients work for a while. `meanwhile`: a change of members."""
        end = time.monotonic() + self.rng.uniform(low, high)
        while time.monotonic() < end:
            if meanwhile and meanwhile.step():
                meanwhile = None
            time.sleep(0.1)

    # -- the end ---------------------------------------------------------------------------------------------------

    def judge(self, skew):
        self.wrong += self.members_differ()
        call, final = time.monotonic(), self.read_all()
        for group, ops in self.load.history.items():
            run, result = self.kind.final(group, final)
            ops.append(Op(call, time.monotonic(), run, result, 'at last'))
        self.wrong += judge_logs(self.load.logs, final)
        self.wrong += judge(self.kind, self.load.history, skew)

    def read_all(self):
        """What the leader holds: values by key, a group's keys at one moment; and the lists."""
        at = {}
        with self.cluster.leader().client() as c:
            for group in self.load.history:
                keys = self.kind.keys(group)
                at.update(zip(keys, c.mget(keys)))
            for name in self.load.logs:
                at[name] = c.lrange(name, 0, -1)
        return at

    def members_differ(self):
        """All members show the same keys, values and deadlines. Keys may expire while they are read, and a busy machine may need
        long for that: so they are looked at many times."""
        for _ in range(LOOKS):
            held = [contents(n) for n in self.cluster.nodes]
            if all(h == held[0] for h in held):
                return []
            time.sleep(0.5)
        return [f'{n.folder} differs from the first node: {list(dict(h.items() ^ held[0].items()).items())[:5]}'
                for n, h in zip(self.cluster.nodes, held) if h != held[0]]

    def keep_logs(self, folder):
        """The logs of the nodes, and the histories that are wrong or undecided."""
        os.makedirs(folder, exist_ok=True)
        name = os.path.join(folder, self.name.replace(' ', '-'))
        for i, n in enumerate(self.cluster.nodes):
            shutil.copy(n.log, f'{name}-{i}.log')
        for group, ops in self.load.history.items():
            if any(why.startswith(f'{group}: ') for why in self.wrong):
                with open(f'{name}-{group}.txt', 'w', encoding='utf-8') as f:
                    f.writelines(f'{op}\n' for op in sorted(ops, key=lambda op: op.call))


def contents(node):
    """What a client sees that reads on this member: {key: (value as DUMP has it, deadline)}."""
    with node.client(decode_responses=False) as c:
        c.execute_command('READONLY')
        keys = sorted(c.keys())
        with c.pipeline(transaction=False) as p:
            for key in keys:
                p.execute_command('DUMP', key)
                p.execute_command('PEXPIRETIME', key)
            got = p.execute()
    return {k: (got[2 * i], got[2 * i + 1]) for i, k in enumerate(keys) if got[2 * i] is not None}
