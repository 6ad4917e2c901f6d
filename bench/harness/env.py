"""What a scenario is given: the two sides, the cores, the sizes, the rounds."""

import collections
import contextlib
import os
import struct
import subprocess
import sys
import time
import traceback

from .server import child_setup, running

MAYFLY, REDIS = "mayfly", "redis"
SIDES = (MAYFLY, REDIS)
TRIES = 4                   # of a round, until the machine is quiet
IDLE_LOOP = """import os
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while True:
    os.sched_yield()"""
LATENCY = "/dev/cpu_dma_latency"


def may_forbid_sleep():
    """Whether the kernel can be told that idle cores shall wait without sleeping."""
    try:
        with open("/sys/devices/system/cpu/cpuidle/current_driver", encoding="ascii") as f:
            return f.read().strip() != "none" and os.access(LATENCY, os.W_OK)
    except OSError:
        return False


class Env:
    def __init__(self, paths, rounds, quick, cores, nice, tools, verbose=False):
        self.paths, self.quick, self.nice, self.verbose = paths, quick, nice, verbose
        self.rounds = rounds            # None: each scenario's own
        self.server_core, self.load_core = cores
        self.tools = tools              # name -> what was compiled of bench/NAME.c
        self.errors = []                # (scenario, side, message)
        self.warnings = []              # why a verdict may be worth little
        self.series = {}                # name -> side -> points, for the plot
        self.scenario = ""
        self.mayfly_args = ()           # more arguments for Mayfly
        self.starts = {}                # side -> what starts its server, instead of its binary alone

    def pick(self, full, quick):
        return quick if self.quick else full

    def rounds_or(self, full, quick):
        return self.rounds or self.pick(full, quick)

    def server(self, side, *args, directory=None):
        """A running server; in `directory`, which stays, or in one of its own."""
        if side in self.starts:
            return self.starts[side]()
        return running(side, self.paths[side], self.server_core, self.nice,
                       (*args, *(self.mayfly_args if side == MAYFLY else ())), directory)

    @contextlib.contextmanager
    def started_by(self, starts):
        """The sides' servers are started by these meanwhile: {side: function}."""
        before, self.starts = self.starts, starts
        try:
            yield
        finally:
            self.starts = before

    @contextlib.contextmanager
    def on_all_cores(self):
        """Servers started meanwhile are not pinned: RocksDB's threads are meant for other cores."""
        before, self.server_core = self.server_core, None
        try:
            yield
        finally:
            self.server_core = before

    @contextlib.contextmanager
    def awake(self):
        """Keeps the two cores from sleeping meanwhile. A core of a virtual machine that has gone to sleep
        wakes up when its host gets round to it: milliseconds, at times, which are neither server's."""
        if may_forbid_sleep():
            with open(LATENCY, "wb", buffering=0) as f:     # holds for as long as it is open
                f.write(struct.pack("i", 0))
                yield
            return
        loops = [subprocess.Popen([sys.executable, "-c", IDLE_LOOP], preexec_fn=child_setup(core, 19))
                 for core in (self.server_core, self.load_core)]
        try:
            yield
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()

    @contextlib.contextmanager
    def mayfly_with(self, *args):
        """Mayfly's servers started meanwhile get these arguments, too."""
        before, self.mayfly_args = self.mayfly_args, (*self.mayfly_args, *args)
        try:
            yield
        finally:
            self.mayfly_args = before

    def log(self, text):
        print(f"  [{time.strftime('%H:%M:%S')}] {self.scenario}: {text}", file=sys.stderr, flush=True)

    @staticmethod
    def quiet_ms(limit_ms):
        """The longest latency of a quiet machine, for a stall that is judged by limit_ms."""
        return limit_ms / 2

    def warn_if_noisy(self, what, calm_ms, quiet_ms):
        """calm_ms: {side: [latency while nothing special happened]}."""
        worst = max((max(v) for v in calm_ms.values() if v), default=0)
        if worst > quiet_ms:
            self.warnings.append(f"{self.scenario}, {what}: up to {worst:.1f} ms before anything happened (quiet: "
                                 f"{quiet_ms:g}); its verdict is not to be relied on, on so busy a machine")

    def measure_when_quiet(self, side, measure, is_quiet):
        """Calls measure(side) until is_quiet(its values), TRIES times at most: the last counts as it is."""
        for tries in range(1, TRIES + 1):
            values = measure(side)
            if is_quiet(values):
                break
            self.log(f"{side}: the machine was not quiet" + (": once more" if tries < TRIES else ""))
        return values | {"tries": tries}

    def collect(self, what, rounds, measure, sides=SIDES, is_quiet=lambda values: True):
        """Calls measure(side) for M, R, M, R, …; it returns {metric: value}.
        Returns {metric: {side: [values]}}, with "tries" for those it took until is_quiet(values), which
        must judge by the time before anything happened. A side that fails once is left out of the
        remaining rounds; its rows then have no value and fail."""
        got = collections.defaultdict(lambda: {side: [] for side in SIDES})
        failed = set()
        for r in range(rounds):
            for side in sides:
                if side in failed:
                    continue
                self.log(f"{what}, round {r + 1}/{rounds}, {side}")
                try:
                    values = self.measure_when_quiet(side, measure, is_quiet)
                except Exception as e:      # whatever it is, the other side continues
                    failed.add(side)
                    self.errors.append((self.scenario, side, f"{what}: {type(e).__name__}: {e}"))
                    self.log(f"{side} failed: {e}")
                    if self.verbose:
                        traceback.print_exc()
                    continue
                for metric, value in values.items():
                    got[metric][side].append(value)
        for metric in got.values():
            for side in failed:
                metric[side].clear()
        return got
