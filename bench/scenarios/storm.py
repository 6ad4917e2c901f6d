"""1,000,000 keys with one and the same deadline, and a probe at work on
other keys from 2 s before it to 8 s after it.

The probe itself polls DBSIZE (every 20 ms, between two requests of its own), so
that no other process wakes on its core but for the RSS reading."""

import time

from harness.client import load
from harness.data import set_32_pxat
from harness.probe import Probe
from harness.report import INFO, LIMIT, NEVER_S, RATIO, rows_from

NAME = "storm"
KEYS = 1_000_000
PROBE_KEYS = 1000           # as in probe.c
BEFORE_S, AFTER_S = 2, 8
STALL_MS = 5
RSS_GROWTH, RSS_WAIT_S = 1.3, 10
# Before the deadline neither server has anything to do but to answer. When the machine delays even that, what
# comes after can't be told from it: such a round is repeated.
QUIET_P999_MS = 0.2


def load_before_deadline(env, server):
    """Loads the keys; returns their deadline, BEFORE_S or more ahead of now."""
    lead_s = 8
    while lead_s < 200:
        deadline_ms = int((time.time() + lead_s) * 1000)
        load(server, set_32_pxat(lambda i: deadline_ms), KEYS)
        if deadline_ms / 1000 - time.time() > BEFORE_S + 0.7:
            return deadline_ms
        env.log(f"{lead_s} s were too short for loading: once more")
        server.call("FLUSHALL")
        lead_s *= 2
    raise RuntimeError("loading is too slow for this scenario")


def measure(env, side):
    with env.server(side) as server:
        server.settle()
        rss_start = server.rss()
        deadline_ms = load_before_deadline(env, server)
        loaded = server.call("DBSIZE")
        rss_loaded = server.rss()
        expired = server.info("stats", "expired_keys")
        if loaded != KEYS:
            raise RuntimeError(f"{loaded} keys loaded instead of {KEYS}")
        with Probe(env, server, deadline_ms, -BEFORE_S * 1000, AFTER_S * 1000, poll_ms=20) as probe:
            back_s, rss = wait_for_rss(server, probe, deadline_ms / 1000, rss_start)
            trace = probe.finish()
        expired = server.info("stats", "expired_keys") - expired
        if expired != KEYS:
            env.log(f"{side}: INFO says expired_keys {expired}")

    env.series.setdefault("storm", {})[side] = trace.timeline()
    gone = trace.first_poll(lambda n: n <= PROBE_KEYS)
    return {"p999_any": trace.p999_any_moment(), "p999": trace.p999(), "p999_storm": trace.p999(0, 2),
            "p999_calm": trace.p999(-BEFORE_S, 0), "max": trace.longest(),
            "calm": trace.longest(last_s=0), "gone": NEVER_S if gone is None else gone,
            "rss": rss / rss_start, "back": back_s, "loaded": rss_loaded / rss_start}


def is_quiet(env, values):
    return values["p999_calm"] <= QUIET_P999_MS and values["calm"] <= env.quiet_ms(STALL_MS)


def wait_for_rss(server, probe, deadline_s, start):
    """Samples the RSS from the deadline on until the probe has ended and the
    memory is back, at most RSS_WAIT_S. Returns (when it was back, last RSS)."""
    time.sleep(max(0, deadline_s - time.time()))
    back_s = None
    while True:
        after_s = time.time() - deadline_s
        rss = server.rss()
        if rss > start * RSS_GROWTH:
            back_s = None
        elif back_s is None:
            back_s = after_s
        if after_s >= RSS_WAIT_S or (probe.done() and back_s is not None):
            return (NEVER_S if back_s is None else back_s), rss
        time.sleep(0.25)


def run(env):
    with env.awake():
        got = env.collect("1M keys, one deadline", env.rounds_or(3, 1), lambda side: measure(env, side),
                          is_quiet=lambda values: is_quiet(env, values))
    env.warn_if_noisy("stall", got["calm"], env.quiet_ms(STALL_MS))
    env.warn_if_noisy("p99.9", got["p999_calm"], QUIET_P999_MS)
    return rows_from(NAME, got, (
        ("p999_any", "probe p99.9, asking at any moment", "ms", RATIO, 0.20),
        ("p999", "probe p99.9, its own requests", "ms", RATIO, 0.20),
        ("p999_storm", "probe p99.9, its own, 0 to +2 s", "ms", INFO),
        ("p999_calm", "probe p99.9, its own, before (noise)", "ms", INFO),
        ("max", "longest probe stall", "ms", LIMIT, STALL_MS),
        ("calm", "longest before the deadline (noise)", "ms", INFO),
        ("gone", "all keys gone after", "s", LIMIT, 2),
        ("rss", "RSS at the end / before the load", "x", LIMIT, RSS_GROWTH),
        ("back", f"RSS below {RSS_GROWTH} x after", "s", INFO),
        ("loaded", "RSS loaded / before the load", "x", INFO),
        ("tries", "tries until the machine was quiet", "", INFO)))
