"""As many writes as the disk takes, in values of several sizes, by two clients that send a pipeline of
`SET … EX 600`; a third sends a GET and a PING every millisecond (bench/flood.c).

The rocksdb engine as it is delivered. Redis has no disk to wait for: Mayfly's side only."""

import subprocess

from harness.env import MAYFLY
from harness.report import INFO, LIMIT, rows_from
from harness.server import child_setup

NAME = "flood"
SIZES = (100, 1000, 10_000, 300_000)
CALM_S = 5
MOST_VALUES = 20_000_000    # so that none of them dies (EX 600) while the last ones are written
P999_MS, STOP_MS = 20, 100
MB = 1_000_000


def pour(env, server, size, total):
    """Runs flood.c; returns what it printed, {name: value}."""
    argv = [env.tools["flood"], server.port, size, total, CALM_S]
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=3600,
                          preexec_fn=child_setup(None, env.nice))
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"flood ended with {done.returncode}")
    return {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}


def total_of(env, size):
    return min(env.pick(5000, 500) * MB, MOST_VALUES * size)


def flood(env, side, size):
    total = total_of(env, size)
    with env.server(side) as server:
        got = pour(env, server, size, total)
        got["rate"] = total / got["seconds"] / MB
        got["held"] = server.info("rocksdb", "writes_held_ms")
        got["rss"] = server.rss() / MB
        return got


def run_size(env, size):
    what = f"{total_of(env, size) / 1e9:.1f} GB of {size} B"
    got = env.collect(what, env.rounds_or(1, 1), lambda side: flood(env, side, size), (MAYFLY,))
    env.warn_if_noisy(f"flood of {size} B", got["calm_p999"], env.quiet_ms(P999_MS))
    return rows_from(NAME, got, (
        ("p999", f"{size} B: probe p99.9", "ms", LIMIT, P999_MS),
        ("max", f"{size} B: longest probe stall", "ms", LIMIT, STOP_MS),
        ("stop", f"{size} B: longest stop of a writer", "ms", LIMIT, STOP_MS),
        ("errors", f"{size} B: error replies", "", LIMIT, 0),
        ("calm_p999", f"{size} B: probe p99.9 before (noise)", "ms", INFO),
        ("calm_max", f"{size} B: longest before (noise)", "ms", INFO),
        ("rate", f"{size} B: MB written a second", "MB", INFO),
        ("held", f"{size} B: writers held for", "ms", INFO),
        ("rss", f"{size} B: RSS at the end", "MB", INFO)))


def run(env):
    rows = []
    with env.mayfly_with("--engine", "rocksdb"), env.on_all_cores():
        for size in SIZES:
            rows += run_size(env, size)
    return rows
