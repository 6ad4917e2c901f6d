"""Active-active sites: what a site's requests cost beside a lone server's, what another site's writes cost beside a
primary's, for several commands, bytes per key beside Redis, how late writes arrive, and keys that expire at three sites at once."""

import contextlib
import subprocess
import time
import urllib.request

from harness.client import load
from harness.data import set_32, set_32_pxat, set_100
from harness.env import MAYFLY, REDIS
from harness.probe import Probe
from harness.report import INFO, LIMIT, RATIO, rows_from
from harness.server import child_setup, free_port, running

from . import cpu

NAME = "sites"
ALONE, PSYNC = "alone", "psync"
SET_BAR, GET_BAR, APPLY_BAR, BYTES_BAR = 1.35, 1.03, 1.5, 0.75
LAG_MS, DELETES, STALL_MS = 10, 1.05, 5
PLAIN = ("--appendonly", "no")


def site(env, gid, *args, core=None):
    return running(MAYFLY, env.paths[MAYFLY], core, env.nice, (*PLAIN, "--site-id", gid, *args))


def wait(condition, limit_s=60, step_s=0.01):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"not within {limit_s} s")
        time.sleep(step_s)


@contextlib.contextmanager
def group(env, n, *args):
    """Sites 1 to n, each linked with each."""
    with contextlib.ExitStack() as stack:
        sites = []
        for gid in range(1, n + 1):
            peers = [a for s in sites for a in ("--site-peer", sites.index(s) + 1, "127.0.0.1", s.port)]
            new = stack.enter_context(site(env, gid, *map(str, peers), *args))
            for s in sites:
                s.call("PEEROF", gid, "127.0.0.1", new.port)
            sites.append(new)
        for s in sites:
            wait(lambda s=s: s.info("sites", "site_links_up") == n - 1)
        yield sites


def clock(server):
    return server.info_text("sites", "site_clock")


def wait_until_equal(sites):
    wait(lambda: len({clock(s) for s in sites}) == 1, step_s=0.005)


# -- requests at a site ---------------------------------------------------------------------------------

# Rows: (name, keys or fields, how they are made, what is measured). RAND is one of so many, V a value of 100 bytes. Of MANY
# nearly all are new: SADD and ZADD of what is there change nothing at a lone server, and are sent to other sites all the same.
RAND, V, MANY = "__rand_int__", "v" * 100, 10**9
WRITES = (
    ("SET", 1_000_000, None, f"SET key:{RAND} {V}"),
    ("INCR", 100_000, None, f"INCR counter:{RAND}"),
    ("INCR, with a TTL", 10_000, f"EXPIRE counter:{RAND} 86400", f"INCR counter:{RAND}"),
    ("EXPIRE", 100_000, f"SET key:{RAND} {V}", f"EXPIRE key:{RAND} 86400"),
    ("HSET of 2 fields", 100_000, None, f"HSET hash:{RAND} name alice visits 17"),
    ("HSET, 4096 fields", 4096, None, f"HSET big field:{RAND} {V}"),
    ("HINCRBY", 100_000, None, f"HINCRBY hash:{RAND} hits 1"),
    ("SADD to a big set", MANY, None, f"SADD set member:{RAND}"),
    ("SADD", 100_000, f"SADD set:{RAND} 1st 2nd 3rd", f"SADD set:{RAND} {RAND}"),
    ("ZADD to a big one", MANY, None, f"ZADD scores 1 member:{RAND}"),
    ("ZINCRBY", 4096, None, f"ZINCRBY scores 1 member:{RAND}"),
    ("LPUSH", 1, None, f"LPUSH list {V}"),
    ("RPUSH", 100_000, None, f"RPUSH list:{RAND} item"),
    ("XADD", 1, None, "XADD stream * name value"),
)
READS = (("GET", 1_000_000, None, f"GET key:{RAND}"),)
NOT_APPLIED = "ZINCRBY", "RPUSH"


def ask(env, server, of, command, requests):
    """redis-benchmark, 50 clients with a pipeline of 16."""
    argv = ["redis-benchmark", "-p", server.port, "-n", requests, "-r", of, "-c", 50, "-P", 16, "-q", *command.split()]
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=300,
                          preexec_fn=child_setup(env.load_core, env.nice))
    if done.returncode or "ERR" in done.stdout:
        raise RuntimeError(f"redis-benchmark: {(done.stdout + done.stderr).strip()[-300:]}")


def prepare(env, server, row):
    name, of, made_by, command = row
    server.call("FLUSHALL")
    for c in (command, made_by):
        if c and name not in ("LPUSH", "XADD"):     # they only grow
            ask(env, server, of, c, min(3 * of, 1_500_000))


def run_requests(env):
    requests = env.pick(1_000_000, 200_000)
    rows = []
    with contextlib.ExitStack() as stack:
        servers = {MAYFLY: stack.enter_context(site(env, 1, core=env.server_core)),
                   ALONE: stack.enter_context(running(MAYFLY, env.paths[MAYFLY], env.server_core, env.nice, PLAIN))}
        for row in WRITES + READS:
            for s in servers.values():
                prepare(env, s, WRITES[0] if row in READS else row)

            def measure(side, row=row):
                s = servers[MAYFLY if side == MAYFLY else ALONE]
                s.settle()
                before = s.cpu_ns()
                ask(env, s, row[1], row[3], requests)
                return {"cpu": (s.cpu_ns() - before) / requests / 1e3}

            got = env.collect(row[0], env.rounds_or(5, 3), measure)
            rows += rows_from(NAME, got, (("cpu", f"{row[0]} P16: CPU/request at a site", "us", RATIO,
                                           GET_BAR if row in READS else SET_BAR),), beside=ALONE)
    return rows


# -- writes of others -----------------------------------------------------------------------------------

def run_apply(env):
    requests = env.pick(1_000_000, 200_000)
    rows = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(env.on_all_cores())
        sites = stack.enter_context(group(env, 2))
        primary = stack.enter_context(running(MAYFLY, env.paths[MAYFLY], None, env.nice, PLAIN))
        replica = stack.enter_context(running(MAYFLY, env.paths[MAYFLY], None, env.nice,
                                              (*PLAIN, "--replicaof", f"127.0.0.1 {primary.port}")))
        wait(lambda: replica.info_text("replication", "master_link_status") == "up")

        def caught_up(side):
            if side == MAYFLY:
                wait_until_equal(sites)
            else:
                wait(lambda: replica.info("replication", "master_repl_offset") >=
                     primary.info("replication", "master_repl_offset"))

        for row in (r for r in WRITES if r[0] not in NOT_APPLIED):
            for side, s in ((MAYFLY, sites[0]), (PSYNC, primary)):
                prepare(env, s, row)
                caught_up(side)

            def measure(side, row=row):
                writes, applies = (sites if side == MAYFLY else (primary, replica))
                applies.settle()
                before = applies.cpu_ns()
                ask(env, writes, row[1], row[3], requests)
                caught_up(side)
                return {"cpu": (applies.cpu_ns() - before) / requests / 1e3}

            got = env.collect(f"{row[0]} of another", env.rounds_or(5, 3), measure)
            rows += rows_from(NAME, got, (("cpu", f"{row[0]} of another site: CPU to apply it", "us", RATIO, APPLY_BAR),),
                              beside=PSYNC)
    return rows


def run_bytes(env):
    keys = env.pick(1_000_000, 200_000)

    def measure(side):
        with site(env, 1, "--site-backlog-size", "16kb") if side == MAYFLY else env.server(REDIS) as s:
            before = s.info("memory", "used_memory")
            load(s, set_32, keys)
            return {"bytes": (s.info("memory", "used_memory") - before) / keys}

    got = env.collect(f"{keys:,} keys", env.rounds_or(1, 1), measure)
    return rows_from(NAME, got, (("bytes", "bytes per key (16 + 32), metadata included", "B", RATIO, BYTES_BAR),))


# -- how late writes arrive -------------------------------------------------------------------------------

def histogram(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as f:
        text = f.read().decode()
    out = {}
    for line in text.splitlines():
        if line.startswith("mayfly_site_lag_seconds_bucket"):
            edge, n = line.split('le="')[1].split('"} ')
            out[float(edge.replace("+Inf", "inf"))] = int(n)
    return out


def percentile(before, after, share):
    """The upper edge of the bucket, in ms."""
    total = after[float("inf")] - before[float("inf")]
    return next(1000 * e for e in sorted(after) if after[e] - before[e] >= share * total)


def run_lag(env):
    port = free_port()
    with env.on_all_cores(), group(env, 2) as two, \
            site(env, 3, "--site-peer", "1", "127.0.0.1", str(two[0].port), "--metrics-port", str(port)) as third:
        for s in two:
            s.call("PEEROF", 3, "127.0.0.1", third.port)
        wait(lambda: third.info("sites", "site_links_up") == 1)

        def measure(_):
            before = histogram(port)
            cpu.benchmark(env, two[0], "set", 4, env.pick(500_000, 150_000))
            wait_until_equal([two[0], third])
            after = histogram(port)
            return {"p50": percentile(before, after, 0.5), "p99": percentile(before, after, 0.99)}

        got = env.collect("how late writes arrive", env.rounds_or(3, 1), measure, sides=(MAYFLY,))
    return rows_from(NAME, got, (
        ("p50", "a write arrives at another site within: median", "ms", INFO),
        ("p99", "a write arrives at another site within: p99", "ms", LIMIT, LAG_MS)))


# -- expiry -------------------------------------------------------------------------------------------------

def with_deadline(server):
    """Keys that will expire: the probe has others."""
    return int(server.info_text("keyspace", "db0").split("expires=")[1].split(",")[0])


def run_expiry(env):
    keys = env.pick(1_000_000, 100_000)
    with env.on_all_cores(), group(env, 3) as sites:

        def measure(_):
            sent = sum(s.info("sites", "site_expiries_sent") for s in sites)
            due_ms = int(time.time() * 1000) + env.pick(30_000, 8_000)
            load(sites[0], set_32_pxat(lambda i: due_ms), keys)
            wait_until_equal(sites)
            if time.time() * 1000 > due_ms - 2500:
                raise RuntimeError("loading took too long")
            with Probe(env, sites[1], due_ms, -1500, 60_000) as probe:
                time.sleep(max(0, due_ms / 1000 - time.time()))
                wait(lambda: not any(with_deadline(s) for s in sites), 120, 0.05)
                took = time.time() - due_ms / 1000
                probe.stop()
                trace = probe.finish()
            sent = sum(s.info("sites", "site_expiries_sent") for s in sites) - sent
            return {"deletes": sent / keys, "stall": trace.longest(0, took), "calm": trace.longest(last_s=0), "took": took}

        got = env.collect(f"{keys:,} keys expire at three sites", env.rounds_or(3, 1), measure, sides=(MAYFLY,))
    env.warn_if_noisy("stall", got["calm"], env.quiet_ms(STALL_MS))
    return rows_from(NAME, got, (
        ("deletes", "keys expire at three sites: deletes sent per key", "x", LIMIT, DELETES),
        ("stall", "keys expire at three sites: longest probe stall", "ms", LIMIT, STALL_MS),
        ("calm", "keys expire at three sites: longest before (noise)", "ms", INFO),
        ("took", "keys expire at three sites: until all are gone", "s", INFO)))


def run(env):
    return run_requests(env) + run_apply(env) + run_bytes(env) + run_lag(env) + run_expiry(env)
