"""The rocksdb engine: its CPU time per request beside redis-server's, which keeps everything in
memory, and what users feel: deleting, a storm, churn, and data that doesn't fit the caches. As many writes as
the disk takes are in flood.py.

Everything with appendfsync everysec, as the engine is delivered. Redis is no match for the second
part (it has no disk to give back): those rows have Mayfly's side only."""

import subprocess
import time

from harness.client import load
from harness.data import set_100
from harness.env import MAYFLY
from harness.probe import PROBE_LEAD_MS, Probe
from harness.report import INFO, LIMIT, NEVER_S, rows_from
from harness.server import child_setup

from . import bigkey, cpu

NAME = "rocks"
ENGINE = ("--engine", "rocksdb", "--appendfsync", "everysec")
CPU_TESTS = (
    ("get", 1, 1.2, True), ("set", 1, 1.4, True),
    ("get", 16, 1.6, True), ("set", 16, 3.3, True),
    ("hset", 16, 4.0, False), ("zadd", 16, 4.0, False), ("lpush", 16, 4.0, False),
    ("sadd", 16, 4.0, False), ("incr", 16, 4.0, False),
)
# Compactions come in lumps: a round is long enough to have its share of them.
SINGLES = (1_000_000, 5)
MB = 1 << 20
VALUE = 100
ROW = 22 + 16 + 9 + VALUE       # a string's row in redis_metadata, in bytes


def set_px(prefix, i, option, ms):
    """SET of a 16-byte key with 100 bytes that don't compress much."""
    return (b"*5\r\n$3\r\nSET\r\n$16\r\n%b:%014d\r\n$100\r\n%0100x\r\n$4\r\n%b\r\n$13\r\n%013d\r\n"
            % (prefix, i, hash((i, 1)) ** 6 % (1 << 400), option, ms))


def disk_settles(server, limit_s=60, share=0.01):
    """Waits until the size on disk stays as it is for two seconds; returns it."""
    end, last, since = time.monotonic() + limit_s, server.disk(), time.monotonic()
    while time.monotonic() < end and time.monotonic() - since < 2:
        time.sleep(0.25)
        now = server.disk()
        if abs(now - last) > share * last:
            last, since = now, time.monotonic()
    return server.disk()


# -- a storm --------------------------------------------------------------------------------------

STORM_KEYS, STORM_LIVE = 1_000_000, 1_000_000
LOADING_S = 45
BACK_SHARE, BACK_LIMIT_S = 1.10, 60


def storm(env, side):
    """A million keys live on, a million die together."""
    far_ms = int(time.time() * 1000) + 10_000_000
    with env.server(side) as server:
        load(server, lambda i: set_px(b"l", i, b"PXAT", far_ms), STORM_LIVE)
        live = disk_settles(server)
        deadline_ms = int((time.time() + LOADING_S) * 1000)
        load(server, lambda i: set_px(b"d", i, b"PXAT", deadline_ms), STORM_KEYS)
        if deadline_ms / 1000 - time.time() < 3:
            raise RuntimeError("loading is too slow for this scenario")
        with Probe(env, server, deadline_ms, -2000, 10_000, poll_ms=20) as probe:
            trace = probe.finish()
        full = server.disk()
        back_s = NEVER_S
        while (after_s := time.time() - deadline_ms / 1000) < BACK_LIMIT_S + 5:
            if server.disk() <= live * BACK_SHARE:
                back_s = after_s
                break
            time.sleep(0.5)
        end = server.disk()
        gone = trace.first_poll(lambda n: n <= STORM_LIVE + 1000)
        return {"p999": trace.p999(), "max": trace.longest(), "calm": trace.longest(last_s=0),
                "gone": NEVER_S if gone is None else gone, "back": back_s, "live": live / MB,
                "full": full / MB, "end": end / live}


def run_storm(env):
    got = env.collect("1M of 2M keys die together", env.rounds_or(2, 1), lambda s: storm(env, s), (MAYFLY,))
    env.warn_if_noisy("storm", got["calm"], env.quiet_ms(5))
    return rows_from(NAME, got, (
        ("p999", "storm: probe p99.9, -2 s to +10 s", "ms", LIMIT, 5),
        ("max", "storm: longest probe stall", "ms", INFO),
        ("calm", "storm: longest before the deadline (noise)", "ms", INFO),
        ("gone", "storm: all keys gone after", "s", INFO),
        ("back", "storm: disk within 10 % of the live set after", "s", LIMIT, BACK_LIMIT_S),
        ("live", "storm: disk of the live set", "MB", INFO),
        ("full", "storm: disk 10 s after the deadline", "MB", INFO),
        ("end", "storm: disk at the end / of the live set", "x", INFO)))


# -- churn ----------------------------------------------------------------------------------------

CHURN_RATE, CHURN_TTL_S, CHURN_BASE = 20_000, 20, 600_000


def churn(env, side):
    """20,000 SETs with a TTL a second, beside keys that stay: a million live at any time."""
    seconds, tick_s = env.pick(300, 60), 0.005
    with env.server(side) as server:
        far_ms = int(time.time() * 1000) + 10_000_000
        load(server, lambda i: set_px(b"l", i, b"PXAT", far_ms), CHURN_BASE)
        live = (CHURN_BASE + CHURN_RATE * CHURN_TTL_S) * ROW
        sizes, written = [], 0
        before = server.cpu_ns()
        with server.client() as c:
            start = time.monotonic()
            next_sample = start + CHURN_TTL_S
            while (now := time.monotonic()) < start + seconds:
                n = min(int((now - start) * CHURN_RATE) - written, 10 * int(CHURN_RATE * tick_s))
                if n > 0:
                    at = int(time.time() * 1000) + CHURN_TTL_S * 1000
                    c.send_batch(b"".join([set_px(b"d", written + k, b"PXAT", at) for k in range(n)]), n)
                    written += n
                if now >= next_sample:
                    sizes.append(server.disk() / live)
                    next_sample += 1
                time.sleep(max(0, tick_s - (time.monotonic() - now)))
        cpu_share = (server.cpu_ns() - before) / seconds / 1e7
        keys = server.call("DBSIZE") / (CHURN_BASE + CHURN_RATE * CHURN_TTL_S)
        return {"max": max(sizes), "end": sizes[-1], "rate": written / seconds, "cpu": cpu_share, "keys": keys}


def run_churn(env):
    with env.mayfly_with("--rocksdb-compression", "none"):
        got = env.collect("20,000 SET with TTL a second", env.rounds_or(1, 1), lambda s: churn(env, s), (MAYFLY,))
    return rows_from(NAME, got, (
        ("max", "churn: disk / live set, at the most", "x", LIMIT, 2),
        ("end", "churn: disk / live set, at the end", "x", INFO),
        ("keys", "churn: DBSIZE / live keys", "x", INFO),
        ("rate", "churn: writes/s reached", "/s", INFO),
        ("cpu", "churn: CPU, of one core", "%", INFO)))


# -- more data than cache ---------------------------------------------------------------------------

CACHE_MB = 64


def bigger(env, side):
    """Random reads of data four times as large as the caches, and a probe that writes."""
    keys = 4 * CACHE_MB * MB // ROW
    with env.server(side) as server:
        load(server, set_100, keys)
        server.settle(30)
        argv = ["redis-benchmark", "-p", server.port, "-t", "get", "-n", 100_000_000, "-r", keys, "-c", 20,
                "-P", 1, "-q"]
        before = server.info("stats", "total_commands_processed")
        reader = subprocess.Popen([str(a) for a in argv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  preexec_fn=child_setup(env.load_core, env.nice))
        try:
            t0 = int(time.time() * 1000) + PROBE_LEAD_MS
            with Probe(env, server, t0, 0, env.pick(20_000, 8_000)) as probe:
                trace = probe.finish()
        finally:
            reader.kill()
            reader.wait()
        done = server.info("stats", "total_commands_processed") - before
        return {"p999": trace.p999(), "max": trace.longest(), "reads": done / (env.pick(20_000, 8_000) / 1000),
                "disk": server.disk() / MB}


def run_bigger(env):
    half = f"{CACHE_MB // 2}mb"
    with env.mayfly_with("--rocksdb-block-cache-size", half, "--rocksdb-row-cache-size", half,
                         "--rocksdb-compression", "none"):
        got = env.collect("data four times the cache", env.rounds_or(1, 1), lambda s: bigger(env, s), (MAYFLY,))
    return rows_from(NAME, got, (
        ("p999", "4 x cache: probe p99.9 among readers", "ms", LIMIT, 5),
        ("max", "4 x cache: longest probe stall", "ms", INFO),
        ("reads", "4 x cache: requests/s", "/s", INFO),
        ("disk", "4 x cache: disk", "MB", INFO)))


def run_bigkey(env):
    what, expires, trigger, want = bigkey.CASES[0]
    got = env.collect("DEL of a hash of 1M fields", env.rounds_or(3, 1),
                      lambda side: bigkey.measure(env, side, expires, trigger, want), (MAYFLY,))
    return rows_from(NAME, got, (
        ("command", "DEL of 1M fields: the command", "ms", LIMIT, 1),
        ("stall", "DEL of 1M fields: longest probe stall", "ms", INFO),
        ("calm", "DEL of 1M fields: longest before (noise)", "ms", INFO)))


def run(env):
    with env.mayfly_with(*ENGINE):
        rows = cpu.run_tests(env, NAME, CPU_TESTS, SINGLES)
        with env.on_all_cores():
            for part in (run_bigkey, run_storm, run_churn, run_bigger):
                rows += part(env)
    return rows
