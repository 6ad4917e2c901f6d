"""A hash of 1,000,000 fields goes: by DEL, by SET over it, by its
deadline (found by the server), by its deadline (found by a command). The probe
sends the command itself and then continues measuring."""

import time

from harness.client import load
from harness.data import PAIRS, hset_fields
from harness.probe import PROBE_LEAD_MS, Probe
from harness.report import INFO, LIMIT, rows_from

NAME = "bigkey"
FIELDS = 1_000_000
WATCHED_MS = 2500           # before it goes, and after: noise shows in both alike
STALL_MS = 5
# what, whether the hash gets the deadline T0, (ms from T0, command), its reply
CASES = (
    ("DEL", False, (0, ("DEL", "big")), 1),
    ("overwrite by SET", False, (0, ("SET", "big", "small")), 0),
    ("expiry", True, None, None),
    ("expiry met by HLEN", True, (2, ("HLEN", "big")), 0),
)


def measure(env, side, expires, trigger, want):
    with env.server(side) as server:
        load(server, hset_fields, FIELDS // PAIRS, batch=50)
        server.settle()
        if server.call("HLEN", "big") != FIELDS:
            raise RuntimeError("the hash is not as loaded")
        t0_ms = int(time.time() * 1000) + WATCHED_MS + PROBE_LEAD_MS
        if expires and server.call("PEXPIREAT", "big", t0_ms) != 1:
            raise RuntimeError("PEXPIREAT did not take")
        with Probe(env, server, t0_ms, -WATCHED_MS, WATCHED_MS, poll_ms=20, trigger=trigger) as probe:
            trace = probe.finish()
        values = {"stall": trace.longest(-0.01), "calm": trace.longest(last_s=-0.01)}
        if trigger:
            values["command"], reply = trace.trigger()
            if reply != want:
                raise RuntimeError(f"{' '.join(trigger[1])} answered {reply}, not {want}")
        return values


def run(env):
    rows = []
    for what, expires, trigger, want in CASES:
        with env.awake():
            got = env.collect(what, env.rounds_or(3, 1),
                              lambda side: measure(env, side, expires, trigger, want),
                              is_quiet=lambda values: values["calm"] <= env.quiet_ms(STALL_MS))
        env.warn_if_noisy(what, got["calm"], env.quiet_ms(STALL_MS))
        if trigger:
            rows += rows_from(NAME, got, (("command", f"{what}: the command", "ms", LIMIT, 1),))
        rows += rows_from(NAME, got, (
            ("stall", f"{what}: longest probe stall", "ms", LIMIT, STALL_MS),
            ("calm", f"{what}: longest before (noise)", "ms", INFO)))
    return rows
