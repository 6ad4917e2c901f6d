"""What keys with far deadlines cost a server that has nothing to do: its
CPU use with 10,000,000 of them against the same server when it was empty."""

import os
import time

from harness.client import load
from harness.data import set_32_pxat, spread
from harness.report import INFO, LIMIT, rows_from
from harness.stats import median

NAME = "idle"
DAY_MS = 86_400_000
WINDOW_S = 5
BYTES_PER_KEY = 250         # generous, to see whether the machine can hold them


def busy_pct(server, windows):
    """CPU use in per cent of a core: the median of some windows."""
    seen = []
    for _ in range(windows):
        before, start = server.cpu_ns(), time.monotonic()
        time.sleep(WINDOW_S)
        seen.append((server.cpu_ns() - before) / (time.monotonic() - start) / 1e7)
    return median(seen)


def measure(env, side, keys):
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    if free < keys * BYTES_PER_KEY:
        raise RuntimeError(f"{keys} keys need {keys * BYTES_PER_KEY >> 20} MB free memory")
    windows = env.pick(3, 1)
    with env.server(side) as server:
        server.settle()
        empty = busy_pct(server, windows)
        first_ms = int(time.time() * 1000) + 10 * DAY_MS
        load(server, set_32_pxat(spread(first_ms, 20 * DAY_MS)), keys)
        server.settle(limit_s=15, share=0.005)
        full = busy_pct(server, windows)
        return {"above": full - empty, "empty": empty, "full": full}


def run(env):
    keys = env.pick(10_000_000, 1_000_000)
    got = env.collect(f"{keys:,} far deadlines", env.rounds or 1, lambda side: measure(env, side, keys))
    return rows_from(NAME, got, (
        ("above", f"{keys // 1_000_000} M far deadlines: CPU above empty", "%", LIMIT, 0.5),
        ("empty", "CPU empty", "%", INFO),
        ("full", "CPU with the keys", "%", INFO)))
