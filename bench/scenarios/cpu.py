"""Server CPU time per request, beside requests per second.

redis-benchmark on the load core; the server's CPU clock is read before and
after. 50 connections, 100-byte values, 1,000,000 random keys or members."""

import contextlib
import csv
import io
import subprocess

from harness.client import load
from harness.data import set_100
from harness.env import REDIS
from harness.report import INFO, RATIO, rows_from
from harness.server import child_setup

NAME = "cpu"
KEYS = 1_000_000
# (requests of a round, rounds). Without a pipeline the two differ by less than a round's noise, which
# comes and goes within seconds: many short rounds in turn, rather than few long ones.
SINGLES, PIPED = (100_000, 35), (1_500_000, 5)
# test of redis-benchmark, pipeline, bar, whether the keyspace is filled before
# (GET hits, SET overwrites) or emptied before each round (mostly insertions).
TESTS = (
    ("get", 1, 0.92, True), ("set", 1, 0.92, True),
    ("get", 16, 0.60, True), ("set", 16, 0.60, True),
    ("hset", 16, 0.70, False), ("zadd", 16, 0.70, False), ("lpush", 16, 0.70, False),
    ("sadd", 16, 0.70, False), ("incr", 16, 0.70, False),
)


def benchmark(env, server, test, pipeline, requests):
    """Runs redis-benchmark; returns requests per second."""
    argv = ["redis-benchmark", "-p", server.port, "-t", test, "-n", requests, "-r", KEYS,
            "-d", 100, "-c", 50, "-P", pipeline, "--csv"]
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=300,
                          preexec_fn=child_setup(env.load_core, env.nice))
    rows = [r for r in csv.DictReader(io.StringIO(done.stdout)) if r.get("rps")]
    if done.returncode or not rows:
        raise RuntimeError(f"redis-benchmark: {(done.stdout + done.stderr).strip()[-300:]}")
    return float(rows[-1]["rps"])


def run_test(env, test, pipeline, filled, singles):
    requests, rounds = singles if pipeline == 1 else PIPED
    requests, rounds = env.pick(requests, requests // 3), env.rounds_or(rounds, 3)
    with contextlib.ExitStack() as stack:
        servers = {}

        def start(side):
            server = servers[side] = stack.enter_context(env.server(side))
            if filled:
                load(server, set_100, KEYS)
                if server.call("DBSIZE") != KEYS:
                    raise RuntimeError("the keyspace is not as loaded")
            benchmark(env, server, test, pipeline, 20_000)      # warm-up

        def measure(side):
            if side not in servers:
                start(side)
            server = servers[side]
            if not filled:
                server.call("FLUSHALL")
            server.settle()
            before = server.cpu_ns()
            rps = benchmark(env, server, test, pipeline, requests)
            cpu = server.cpu_ns() - before
            return {"cpu": cpu / requests / 1e3, "rps": rps, "busy": cpu / (requests / rps) / 1e7}

        return env.collect(f"{test.upper()} pipeline {pipeline}", rounds, measure)


def run(env):
    return run_tests(env, NAME, TESTS)


def run_tests(env, scenario, tests, singles=SINGLES, beside=REDIS):
    """singles: as SINGLES, for tests without a pipeline. beside: what Mayfly is compared with."""
    rows = []
    for test, pipeline, bar, filled in tests:
        got = run_test(env, test, pipeline, filled, singles)
        name = f"{test.upper()} P{pipeline}"
        rows += rows_from(scenario, got, (
            ("cpu", f"{name}: server CPU/request", "us", RATIO, bar),
            ("rps", f"{name}: requests/s", "/s", INFO),
            ("busy", f"{name}: server core in use", "%", INFO)), beside)
    return rows
