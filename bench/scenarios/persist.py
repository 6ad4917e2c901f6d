"""Durability of the memory engine, each side in the same mode: what an AOF costs the writers, what a
BGSAVE costs everybody, how long a restart takes.

No rewrite disturbs (auto-aof-rewrite-percentage 0), no save point is set."""

import contextlib
import os
import shutil
import tempfile
import time

from harness.client import load
from harness.data import set_100, set_scattered, set_scattered_pxat, small_collection
from harness.env import REDIS, SIDES
from harness.probe import PROBE_LEAD_MS, Probe
from harness.report import AT_LEAST, INFO, LIMIT, RATIO, rows_from

from . import cpu

NAME = "persist"
MB = 1 << 20
AOF = ("--appendonly", "yes", "--auto-aof-rewrite-percentage", "0")


def warn_without_disk(env):
    """The servers' directories are made where tempfile says."""
    dev = os.stat(tempfile.gettempdir()).st_dev
    with open("/proc/self/mountinfo") as f:
        for line in f:
            mount, _, source = line.partition(" - ")
            if mount.split()[2] == f"{os.major(dev)}:{os.minor(dev)}" and source.split()[0] in ("tmpfs", "ramfs"):
                env.warnings.append(f"{NAME}: {tempfile.gettempdir()} is no disk: set TMPDIR to a directory on one")
                return


def wait_until(what, done, limit_s=120, step_s=0.05):
    end = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > end:
            raise RuntimeError(f"{what} takes more than {limit_s} s")
        time.sleep(step_s)


# -- writers and the AOF ----------------------------------------------------------------------------

SET_KEYS = cpu.KEYS
SET_BAR = 1.2


def run_set(env, mode):
    requests = env.pick({"everysec": 1_200_000, "always": 500_000}[mode], 200_000)
    with contextlib.ExitStack() as stack:
        servers = {}

        def start(side):
            server = stack.enter_context(env.server(side, *AOF, "--appendfsync", "no"))
            load(server, set_100, SET_KEYS)
            server.call("CONFIG", "SET", "appendfsync", mode)
            cpu.benchmark(env, server, "set", 16, 20_000)       # warm-up
            servers[side] = server

        def measure(side):
            if side not in servers:
                start(side)
            server = servers[side]
            os.sync()           # what is dirty of the round before is not this one's to write
            server.settle()
            before = server.cpu_ns()
            rps = cpu.benchmark(env, server, "set", 16, requests)
            used = server.cpu_ns() - before
            return {"rps": rps, "cpu": used / requests / 1e3, "busy": used / (requests / rps) / 1e7}

        got = env.collect(f"SET pipeline 16, AOF {mode}", env.rounds_or(5, 2), measure)
    name = f"AOF {mode}: SET P16"
    return rows_from(NAME, got, (
        ("rps", f"{name}: requests/s", "/s", AT_LEAST, SET_BAR),
        ("cpu", f"{name}: server CPU/request", "us", INFO),
        ("busy", f"{name}: server core in use", "%", INFO)))


# -- BGSAVE -------------------------------------------------------------------------------------------

SAVE_KEYS, SAVE_KEYS_QUICK = 5_000_000, 500_000
CALM_MS, SAVE_LIMIT_MS, AFTER_S = 2000, 60_000, 0.5
WRITE_RATE, TICK_S = 20_000, 0.005
STALL_MS = 5
SAVE_BAR = 1.0          # of p99.9 and of memory: no worse than a fork's


class Writer:
    """Overwrites random keys at WRITE_RATE, in ticks; the values stay as long as they are."""

    def __init__(self, client, keys, rate):
        self.client, self.keys, self.rate = client, keys, rate
        self.start, self.written = time.monotonic(), 0

    def tick(self):
        due = int((time.monotonic() - self.start) * self.rate) - self.written
        n = min(due, 10 * int(self.rate * TICK_S))          # no flood after a hiccup
        if n > 0:
            first = self.written
            self.client.send_batch(b"".join([set_scattered(i * 2654435761 % self.keys, ~i)
                                             for i in range(first, first + n)]), n)
            self.written += n

    def until(self, done):
        """Writes until done() or the end of patience; whether it was done."""
        end = time.monotonic() + SAVE_LIMIT_MS / 1000
        while not done():
            if time.monotonic() > end:
                return False
            self.tick()
            time.sleep(TICK_S)
        return True


def child_page_tables(server):
    """A forked child shares its parent's pages, but not their tables."""
    total = 0
    with open(f"/proc/{server.pid}/task/{server.pid}/children") as f:
        children = f.read().split()
    for pid in children:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as f:
            total += sum(int(line.split()[1]) * 1024 for line in f if line.startswith("VmPTE:"))
    return total


def save_under_probe(env, server, keys, rate):
    """Returns (trace, seconds the save took, extra memory, writes per second)."""
    path = os.path.join(server.dir, "dump.rdb")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    t0_s = time.time() + (PROBE_LEAD_MS + CALM_MS) / 1000
    with server.client() as client, \
            Probe(env, server, int(t0_s * 1000), -CALM_MS, SAVE_LIMIT_MS, trigger=(0, ("BGSAVE",))) as probe:
        writer = Writer(client, keys, rate)
        writer.until(lambda: time.time() > t0_s - 0.1)
        server.forget_peak()
        rss = server.rss()
        tables = 0

        def saved():
            """Whoever saves renames the finished file: that needs no asking, and tells the exact time."""
            nonlocal tables
            tables = max(tables, child_page_tables(server))
            return probe.done() or os.path.exists(path)

        ended = writer.until(saved)
        if probe.done():
            probe.finish()      # says what happened to it
        if not ended:
            raise RuntimeError(f"BGSAVE did not end within {SAVE_LIMIT_MS / 1000:.0f} s")
        took_s = os.stat(path).st_ctime_ns / 1e9 - t0_s
        after = time.monotonic() + AFTER_S
        writer.until(lambda: time.monotonic() > after)
        peak = server.rss_peak()
        reached = writer.written / (time.monotonic() - writer.start)
        probe.stop()
        trace = probe.finish()
    wait_until("the end of BGSAVE", lambda: server.info("persistence", "rdb_bgsave_in_progress") == 0)
    # What parent and child no longer share; Mayfly has no child: all it needs is in its RSS.
    copied = server.info("persistence", "rdb_last_cow_size") if server.name == REDIS else 0
    return trace, took_s, peak - rss + tables + copied, reached


def measure_save(env, server, keys, rate):
    server.settle()
    os.sync()
    trace, took_s, extra, reached = save_under_probe(env, server, keys, rate)
    return {"p999": trace.p999(0, took_s), "any999": trace.p999_any_moment(0, took_s),
            "max": trace.longest(0), "took": took_s,
            "calm999": trace.p999(-CALM_MS / 1000, 0), "calm": trace.longest(last_s=0),
            "extra": extra / MB, "rate": reached,
            "file": os.path.getsize(os.path.join(server.dir, "dump.rdb")) / MB}


def run_save(env):
    keys = env.pick(SAVE_KEYS, SAVE_KEYS_QUICK)
    rows = []
    with contextlib.ExitStack() as stack:
        servers = {}

        def measure(side, rate):
            if side not in servers:
                server = stack.enter_context(env.server(side))
                load(server, set_scattered, keys)
                servers[side] = server
            return measure_save(env, servers[side], keys, rate)

        for rate, name in ((0, "BGSAVE"), (WRITE_RATE, f"BGSAVE, {WRITE_RATE:,} writes/s")):
            got = env.collect(f"{name} of {keys:,} keys", env.rounds_or(3, 1), lambda side: measure(side, rate))
            env.warn_if_noisy(name, got["calm"], env.quiet_ms(STALL_MS))
            rows += rows_from(NAME, got, (
                ("p999", f"{name}: probe p99.9 during it", "ms", RATIO, SAVE_BAR),
                ("any999", f"{name}: p99.9, asking at any moment", "ms", INFO),
                ("calm999", f"{name}: probe p99.9 before it", "ms", INFO),
                ("max", f"{name}: longest probe stall", "ms", LIMIT, STALL_MS),
                ("calm", f"{name}: longest before it (noise)", "ms", INFO),
                ("extra", f"{name}: extra memory", "MB", *((RATIO, SAVE_BAR) if rate else (INFO,))),
                ("took", f"{name}: duration", "s", INFO),
                ("file", f"{name}: size of the file", "MB", INFO),
                *([("rate", f"{name}: writes/s reached", "/s", INFO)] if rate else [])))
    return rows


# -- loading ------------------------------------------------------------------------------------------

STRINGS, STRINGS_QUICK = 2_000_000, 500_000
COLLECTIONS, COLLECTIONS_QUICK = 400_000, 200_000
LOAD_BAR = 0.7
DAY_MS = 86_400_000


class Files:
    """What there is to load, below one directory: dump files that both sides load, made by Redis, and
    AOFs, which each side has made itself of the same commands."""

    def __init__(self, env, root):
        self.env, self.root = env, root
        self.strings = env.pick(STRINGS, STRINGS_QUICK)
        self.collections = env.pick(COLLECTIONS, COLLECTIONS_QUICK)
        self.deadline_ms = int(time.time() * 1000) + 30 * DAY_MS

    def folder(self, side, what):
        return os.path.join(self.root, side, what)

    def string(self, i):
        """Every other with a TTL."""
        return set_scattered_pxat(i, self.deadline_ms + i) if i % 2 else set_scattered(i)

    def make(self, side):
        """The AOF of `both` is that of the strings, rewritten, and then the collections."""
        both = self.folder(side, "both")
        with self._appending(side, both) as server:
            load(server, self.string, self.strings)
            shutil.copytree(both, self.folder(side, "strings"))
            self._dump(server, "strings")
            server.call("BGREWRITEAOF")
            wait_until("BGREWRITEAOF", lambda: server.info("persistence", "aof_rewrites") > 0
                       and server.info("persistence", "aof_rewrite_in_progress") == 0)
            load(server, small_collection, self.collections)
        with self._appending(side, self.folder(side, "collections")) as server:
            load(server, small_collection, self.collections)
            self._dump(server, "collections")
        os.sync()

    def _appending(self, side, folder):
        os.makedirs(folder)
        return self.env.server(side, *AOF, "--appendfsync", "no", directory=folder)

    def _dump(self, server, what):
        if server.name != REDIS:
            return
        server.call("SAVE")
        for side in SIDES:
            os.makedirs(self.folder(side, f"rdb-{what}"))
            shutil.copy(os.path.join(server.dir, "dump.rdb"), self.folder(side, f"rdb-{what}"))
        os.unlink(os.path.join(server.dir, "dump.rdb"))

    def keys(self, what):
        return {"strings": self.strings, "collections": self.collections,
                "both": self.strings + self.collections}[what.removeprefix("rdb-")]


def measure_load(env, files, side, what):
    """From the start of the process to its first PONG, less what an empty one takes."""
    args = () if what.startswith("rdb-") else (*AOF, "--appendfsync", "no")
    with env.server(side, *args) as server:
        empty_s = server.ready_s
    with env.server(side, *args, directory=files.folder(side, what)) as server:
        if (size := server.call("DBSIZE")) != files.keys(what):
            raise RuntimeError(f"{size} keys loaded instead of {files.keys(what)}")
        return {"load": server.ready_s - empty_s, "cpu": server.cpu_ns() / 1e9}


def run_load(env):
    rows = []
    root = tempfile.mkdtemp(prefix="bench-load-")
    try:
        files = Files(env, root)
        env.collect("making the files", 1, lambda side: files.make(side) or {})
        for what, name in (("rdb-strings", f"RDB of {files.strings:,} strings"),
                           ("rdb-collections", f"RDB of {files.collections:,} small collections"),
                           ("strings", f"AOF of {files.strings:,} SETs"),
                           ("collections", f"AOF of {files.collections:,} HSETs, SADDs, …"),
                           ("both", "AOF, strings in the base and collections in the increment")):
            got = env.collect(f"loading, {name}", env.rounds_or(3, 1),
                              lambda side: measure_load(env, files, side, what))
            rows += rows_from(NAME, got, (
                ("load", f"loading, {name}", "s", RATIO, LOAD_BAR),
                ("cpu", f"loading, {name}: server CPU", "s", INFO)))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return rows


def run(env):
    warn_without_disk(env)
    rows = run_set(env, "everysec") + run_set(env, "always")
    with env.on_all_cores():
        return rows + run_save(env) + run_load(env)
