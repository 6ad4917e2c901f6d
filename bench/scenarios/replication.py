"""A primary with one replica of its own kind: SETs until the replica has them all, and a full sync with a
probe at work on the primary."""

import contextlib
import time

from harness.client import load
from harness.data import set_100, set_scattered
from harness.probe import PROBE_LEAD_MS, Probe
from harness.report import AT_LEAST, INFO, rows_from

from . import cpu

NAME = "replication"
SET_BAR = 1.2           # with a pipeline; without one it is the client that takes the time
STALL_MS = 5
PRIMARY = ("--repl-diskless-sync-delay", "0", "--repl-backlog-size", "64mb",
           "--client-output-buffer-limit", "replica", "0", "0", "0")
SYNC_KEYS, SYNC_KEYS_QUICK = 2_000_000, 300_000
CALM_MS, SYNC_LIMIT_MS = 2000, 60_000


def position(server):
    return server.info("replication", "master_repl_offset")


def wait_until_linked(replica, limit_s=120, step_s=0.02):
    end = time.monotonic() + limit_s
    while replica.info_text("replication", "master_link_status") != "up":
        if time.monotonic() > end:
            raise RuntimeError(f"no link after {limit_s} s")
        time.sleep(step_s)


def wait_until_equal(primary, replica, limit_s=60):
    end = time.monotonic() + limit_s
    while position(replica) < position(primary):
        if time.monotonic() > end:
            raise RuntimeError(f"the replica is behind after {limit_s} s")
        time.sleep(0.005)


@contextlib.contextmanager
def beside_the_load(env):
    """Servers started meanwhile run where the load is made, not on the primary's core."""
    before, env.server_core = env.server_core, env.load_core
    try:
        yield
    finally:
        env.server_core = before


# -- SETs that are replicated ---------------------------------------------------------------------------

def run_set(env, pipeline):
    """No server is pinned: primary, replica and load share the cores as they would on a small machine."""
    requests = env.pick(1_500_000, 300_000) if pipeline > 1 else env.pick(300_000, 60_000)
    with contextlib.ExitStack() as stack:
        stack.enter_context(env.on_all_cores())
        pairs = {}

        def start(side):
            primary = stack.enter_context(env.server(side, *PRIMARY))
            load(primary, set_100, cpu.KEYS)
            replica = stack.enter_context(env.server(side, "--replicaof", "127.0.0.1", str(primary.port)))
            wait_until_linked(replica)
            cpu.benchmark(env, primary, "set", pipeline, 20_000)        # warm-up
            wait_until_equal(primary, replica)
            pairs[side] = primary, replica

        def measure(side):
            if side not in pairs:
                start(side)
            primary, replica = pairs[side]
            primary.settle()
            cpu_before = primary.cpu_ns(), replica.cpu_ns()
            before = time.monotonic()
            rps = cpu.benchmark(env, primary, "set", pipeline, requests)
            wait_until_equal(primary, replica)
            took = time.monotonic() - before
            return {"all": requests / took, "rps": rps,
                    "primary": (primary.cpu_ns() - cpu_before[0]) / requests / 1e3,
                    "replica": (replica.cpu_ns() - cpu_before[1]) / requests / 1e3}

        got = env.collect(f"SET pipeline {pipeline}, replicated", env.rounds_or(5, 2), measure)
    name = f"SET P{pipeline}"
    return rows_from(NAME, got, (
        ("all", f"{name}: requests/s until the replica has them", "/s",
         *((AT_LEAST, SET_BAR) if pipeline > 1 else (INFO,))),
        ("rps", f"{name}: requests/s as the client sees it", "/s", INFO),
        ("primary", f"{name}: primary's CPU/request", "us", INFO),
        ("replica", f"{name}: replica's CPU/request", "us", INFO)))


# -- a full sync ------------------------------------------------------------------------------------------

def run_sync(env):
    keys = env.pick(SYNC_KEYS, SYNC_KEYS_QUICK)
    with contextlib.ExitStack() as stack:
        primaries = {}

        def measure(side):
            if side not in primaries:
                primaries[side] = stack.enter_context(env.server(side, *PRIMARY))
                load(primaries[side], lambda i: set_scattered(i, i), keys)
            primary = primaries[side]
            primary.settle()
            with beside_the_load(env), env.server(side) as replica:
                t0_s = time.time() + (PROBE_LEAD_MS + CALM_MS) / 1000
                with Probe(env, primary, int(t0_s * 1000), -CALM_MS, SYNC_LIMIT_MS) as probe:
                    time.sleep(max(0, t0_s - time.time()))
                    rss, used = primary.rss(), primary.cpu_ns()
                    replica.call("REPLICAOF", "127.0.0.1", primary.port)
                    wait_until_linked(replica, step_s=0.1)
                    took_s = time.time() - t0_s
                    used = primary.cpu_ns() - used
                    probe.stop()
                    trace = probe.finish()
                if replica.call("DBSIZE") < keys:
                    raise RuntimeError("the replica has not got all keys")
            return {"took": took_s, "p999": trace.p999(0, took_s), "max": trace.longest(0, took_s),
                    "calm": trace.longest(last_s=0), "cpu": used / 1e9, "rss": max(primary.rss() - rss, 0) / 2**20}

        got = env.collect(f"full sync of {keys:,} keys", env.rounds_or(3, 1), measure)
    env.warn_if_noisy("stall", got["calm"], env.quiet_ms(STALL_MS))
    name = "full sync"
    return rows_from(NAME, got, (
        ("took", f"{name}: until the link is up", "s", INFO),
        ("p999", f"{name}: probe p99.9 on the primary", "ms", INFO),
        ("max", f"{name}: longest probe stall", "ms", INFO),
        ("calm", f"{name}: longest before (noise)", "ms", INFO),
        ("cpu", f"{name}: primary's CPU", "s", INFO),
        ("rss", f"{name}: primary's RSS after, more than before", "MB", INFO)))


def run(env):
    return run_set(env, 16) + run_set(env, 1) + run_sync(env)
