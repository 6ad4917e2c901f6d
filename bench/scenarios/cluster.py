"""Three nodes with one Raft group on this machine, every write synced on a majority.

CPU time per request of the leader beside that of a lone server with `appendfsync always`; writes and linearizable
reads beside etcd's (Debian's, three members), from 64 clients of Go libraries; how long writes stop when the leader is
killed; and a million keys that die at one moment."""

import contextlib
import time

from harness.client import load
from harness.env import MAYFLY, REDIS
from harness.probe import Probe
from harness.report import AT_LEAST, INFO, LIMIT, NEVER_S, RATIO, rows_from
from harness.server import running
from harness.trio import etcd_trio, kvload, kvload_missing, mayfly_trio

from . import cpu
from .rocks import set_px

NAME = "cluster"
LONE, ETCD = "lone", "etcd"
LONE_ARGS = ("--engine", "rocksdb", "--appendfsync", "always")
CPU_TESTS = (("set", 16, 2.5, True), ("set", 1, 2.0, True), ("get", 16, 1.5, True), ("get", 1, 1.6, True))
SINGLES = (60_000, 7)


# -- CPU -------------------------------------------------------------------------------------------

@contextlib.contextmanager
def leader(env):
    with mayfly_trio(env, env.paths[MAYFLY]) as trio:
        yield trio.leader()


def run_cpu(env):
    starts = {MAYFLY: lambda: leader(env),
              REDIS: lambda: running(LONE, env.paths[MAYFLY], None, env.nice, LONE_ARGS)}
    with env.on_all_cores(), env.started_by(starts):
        return cpu.run_tests(env, NAME, CPU_TESTS, SINGLES, beside=LONE)


# -- etcd ------------------------------------------------------------------------------------------

def run_etcd(env):
    if missing := kvload_missing():
        env.warnings.append(f"{NAME}: not compared with etcd: there is no {missing}")
        return []
    seconds = env.pick(8, 3)
    with mayfly_trio(env, env.paths[MAYFLY]) as trio, etcd_trio(env) as etcd:
        shared = {MAYFLY: ("rueidis", trio), REDIS: ("etcd", etcd)}
        pooled = {MAYFLY: ("go-redis", trio)}       # the same figures of etcd stand beside it

        def measure(side):
            put = kvload(env, *shared[side], "put", seconds)
            get = kvload(env, *shared[side], "get", seconds)
            pool_put = kvload(env, *pooled[side], "put", seconds) if side in pooled else put
            pool_get = kvload(env, *pooled[side], "get", seconds) if side in pooled else get
            return {"puts": put["per_second"], "put99": put["p99_ms"], "gets": get["per_second"],
                    "get99": get["p99_ms"], "pool_puts": pool_put["per_second"], "pool_put99": pool_put["p99_ms"],
                    "pool_gets": pool_get["per_second"]}
        got = env.collect("64 clients", env.rounds_or(3, 1), measure)
    return rows_from(NAME, got, (
        ("puts", "64 clients: writes/s", "/s", AT_LEAST, 5),
        ("put99", "64 clients: p99 of writes", "ms", RATIO, 0.5),
        ("gets", "64 clients: linearizable reads/s", "/s", AT_LEAST, 5),
        ("get99", "64 clients: p99 of reads", "ms", INFO),
        ("pool_puts", "64 connections: writes/s", "/s", INFO),
        ("pool_put99", "64 connections: p99 of writes", "ms", INFO),
        ("pool_gets", "64 connections: linearizable reads/s", "/s", INFO)), beside=ETCD)


# -- failover --------------------------------------------------------------------------------------

def next_write_s(trio, limit_s=30):
    """Seconds until a node takes a write."""
    begun = time.monotonic()
    while time.monotonic() < begun + limit_s:
        for node in trio.nodes:
            with contextlib.suppress(Exception):
                with node.client(timeout=0.5) as c:
                    c.call("SET", "k", "v")
                return time.monotonic() - begun
        time.sleep(0.005)
    return NEVER_S


def failover(env, _side):
    """A new cluster each time: a node that was killed is not started again here."""
    with mayfly_trio(env, env.paths[MAYFLY], "--cluster-node-timeout", 1000) as trio:
        old = trio.leader()
        old.proc.kill()
        old.proc.wait()
        trio.nodes.remove(old)
        return {"failover": next_write_s(trio)}


def run_failover(env):
    got = env.collect("the leader is killed", env.rounds_or(7, 3), lambda s: failover(env, s), (MAYFLY,))
    return rows_from(NAME, got, (("failover", "kill -9 of the leader: until the next write", "s", LIMIT, 2),))


# -- a storm ---------------------------------------------------------------------------------------

STORM_KEYS, LOADING_S, GONE_LIMIT_S = 1_000_000, 60, 5
STALL = 3               # median writes
SETTLING_S = 1          # until files are as they will be, after the last member has reclaimed
CLOCK_ENTRY = 64        # bytes in the log, at most


def reclaimed_s(node, deadline_s):
    """Seconds after the deadline at which the node has none of the keys any more."""
    while (after := time.time() - deadline_s) < 60:
        if node.call("DBSIZE") <= 1000:     # the probe's
            return after
        time.sleep(0.02)
    return NEVER_S


def storm(env, _side):
    keys = env.pick(STORM_KEYS, STORM_KEYS // 5)
    with mayfly_trio(env, env.paths[MAYFLY]) as trio:
        first = trio.leader()
        deadline_ms = int((time.time() + env.pick(LOADING_S, LOADING_S // 3)) * 1000)
        load(first, lambda i: set_px(b"d", i, b"PXAT", deadline_ms), keys)
        trio.wait_settled()
        if deadline_ms / 1000 - time.time() < 3:
            raise RuntimeError("loading is too slow for this scenario")
        clocks = int(trio.region(first)["clock_entries"])
        with Probe(env, first, deadline_ms, -2000, (2 * GONE_LIMIT_S + SETTLING_S) * 1000) as probe:
            time.sleep(max(deadline_ms / 1000 - time.time(), 0))
            gone = max(reclaimed_s(node, deadline_ms / 1000) for node in trio.nodes)
            trace = probe.finish()
        clocks = int(trio.region(first)["clock_entries"]) - clocks
        write, span = trace.median_write(last_s=0), min(gone, GONE_LIMIT_S)
        calm = (span + SETTLING_S, 2 * span + SETTLING_S)
        return {"write": write, "gone": gone, "log": clocks * CLOCK_ENTRY,
                "stall": trace.longest(0, span) / write, "calm": trace.longest(*calm) / write,
                "lost": lost_pct(trace, write, 0, span), "lost_calm": lost_pct(trace, write, *calm)}


def lost_pct(trace, write, first_s, last_s):
    """The share of the time in which the probe waited for a request that took too long."""
    return sum(ms for ms in trace.latencies(first_s, last_s) if ms > STALL * write) / (last_s - first_s) / 10


def run_storm(env):
    got = env.collect("1M keys die together", env.rounds_or(3, 1), lambda s: storm(env, s), (MAYFLY,))
    calm = max(got["calm"][MAYFLY], default=0)
    if calm > STALL:
        env.warnings.append(f"{NAME}, storm: up to {calm:.1f} median writes while nothing died, so the longest stall is not judged")
    return rows_from(NAME, got, (
        ("write", "storm: median write before it", "ms", INFO),
        ("stall", "storm: longest stall / median write", "x", *((INFO,) if calm > STALL else (LIMIT, STALL))),
        ("calm", "storm: … in as long a time afterwards (noise)", "x", INFO),
        ("lost", "storm: time in requests of more than 3 median writes", "%", INFO),
        ("lost_calm", "storm: … in as long a time afterwards (noise)", "%", INFO),
        ("gone", "storm: every member has reclaimed after", "s", LIMIT, GONE_LIMIT_S),
        ("log", "storm: bytes of the log", "B", LIMIT, 1024)))


def run(env):
    return run_cpu(env) + run_etcd(env) + run_failover(env) + run_storm(env)
