"""Many regions on three nodes: writes and linearizable reads over sixteen regions beside one, in turn; and what 64 and
1,024 regions cost nodes that have nothing to do, in CPU time and memory."""

import contextlib
import time

from harness.client import ReplyError
from harness.env import MAYFLY, REDIS
from harness.report import AT_LEAST, INFO, LIMIT, rows_from
from harness.trio import kvload, kvload_missing, mayfly_trio

NAME = "regions"
ONE = "one"
MANY = 16
SLOTS = 16384
WINDOW_S = 5


# -- requests --------------------------------------------------------------------------------------

def run_load(env):
    if missing := kvload_missing():
        env.warnings.append(f"{NAME}: no requests over many regions: there is no {missing}")
        return []
    seconds = env.pick(6, 3)
    with mayfly_trio(env, env.paths[MAYFLY], "--cluster-regions", MANY, balance="yes") as many, \
            mayfly_trio(env, env.paths[MAYFLY]) as one:
        many.wait_regions(MANY)
        trios = {MAYFLY: many, REDIS: one}

        def measure(side):
            put = kvload(env, "rueidis", trios[side], "put", seconds)
            get = kvload(env, "rueidis", trios[side], "get", seconds)
            pool_put = kvload(env, "go-redis", trios[side], "put", seconds)
            pool_get = kvload(env, "go-redis", trios[side], "get", seconds)
            return {"puts": put["per_second"], "put99": put["p99_ms"], "gets": get["per_second"],
                    "get99": get["p99_ms"], "pool_puts": pool_put["per_second"], "pool_gets": pool_get["per_second"]}
        got = env.collect("64 clients", env.rounds_or(3, 1), measure)
    return rows_from(NAME, got, (
        ("puts", "16 regions, 64 clients: writes/s", "/s", AT_LEAST, 0.8),
        ("put99", "16 regions, 64 clients: p99 of writes", "ms", INFO),
        ("gets", "16 regions, 64 clients: linearizable reads/s", "/s", AT_LEAST, 0.8),
        ("get99", "16 regions, 64 clients: p99 of reads", "ms", INFO),
        ("pool_puts", "16 regions, 64 connections: writes/s", "/s", INFO),
        ("pool_gets", "16 regions, 64 connections: linearizable reads/s", "/s", INFO)), beside=ONE)


# -- doing nothing ---------------------------------------------------------------------------------

def split(trio, count):
    """Halves all regions until there are so many, a power of two: quicker than nodes that join so many."""
    end = time.monotonic() + 300
    regions = 1
    while regions < count:
        for slot in range(SLOTS // regions // 2, SLOTS, SLOTS // regions):
            while not any(taken(node, slot) for node in trio.nodes):
                if time.monotonic() > end:
                    raise RuntimeError("regions can't be split")
                time.sleep(0.01)
        regions *= 2
        trio.wait_regions(regions, limit_s=end - time.monotonic())


def taken(node, slot):
    with contextlib.suppress(ReplyError):
        node.call("CLUSTER", "SPLIT", slot)
        return True
    return False


def idle_pct(trio):
    """CPU time of a node in per cent of a core."""
    before, start = [n.cpu_ns() for n in trio.nodes], time.monotonic()
    time.sleep(WINDOW_S)
    spent = sum(n.cpu_ns() for n in trio.nodes) - sum(before)
    return spent / len(trio.nodes) / (time.monotonic() - start) / 1e7


def idle(env, _side, count):
    with mayfly_trio(env, env.paths[MAYFLY], balance="yes") as trio:
        for node in trio.nodes:
            node.settle()
        one, kept = idle_pct(trio), sum(n.rss() for n in trio.nodes)
        split(trio, count)
        for node in trio.nodes:
            node.settle(limit_s=15, share=0.03)
        grown = sum(n.rss() for n in trio.nodes) - kept
        return {"one": one, "cpu": idle_pct(trio), "kb": grown / len(trio.nodes) / (count - 1) / 1024}


def run_idle(env):
    rows = []
    for count, limit in ((64, 1), (1024, 2)):
        got = env.collect(f"{count} idle regions", env.rounds or 1, lambda s, n=count: idle(env, s, n), (MAYFLY,))
        rows += rows_from(NAME, got, (
            ("one", f"{count} regions: idle CPU of a node with one", "%", INFO),
            ("cpu", f"{count} regions: idle CPU of a node", "%", LIMIT, limit),
            ("kb", f"{count} regions: memory of each", "KB", LIMIT, 16)))
    return rows


def run(env):
    return run_load(env) + run_idle(env)
