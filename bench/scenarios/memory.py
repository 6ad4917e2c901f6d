"""Memory per key, per hash field, per sorted set member.

used_memory (INFO) per element, from an empty server to a loaded and quiet one
without clients; the growth of the RSS is shown beside it, since used_memory is
what the server says of itself."""

import time

from harness.client import load
from harness.data import PAIRS, hset_fields, set_32, set_32_pxat, spread, zadd_members
from harness.report import INFO, RATIO, rows_from

NAME = "memory"
COUNT = 1_000_000
DAY_MS = 86_400_000


def with_ttl():
    return set_32_pxat(spread(int(time.time() * 1000) + DAY_MS, DAY_MS))


# what, command maker, commands, bar
CASES = (
    ("key 16 B, value 32 B", lambda: set_32, COUNT, 0.60),
    ("the same with TTL", with_ttl, COUNT, 0.52),
    ("hash field 16 B, value 32 B", lambda: hset_fields, COUNT // PAIRS, 0.65),
    ("sorted set member 16 B", lambda: zadd_members, COUNT // PAIRS, 0.65),
)


def measure(env, side, maker, commands):
    with env.server(side) as server:
        server.settle()
        used, rss = server.info("memory", "used_memory"), server.rss()
        load(server, maker(), commands, batch=1000 if commands == COUNT else 50)
        server.settle()
        return {"used": (server.info("memory", "used_memory") - used) / COUNT,
                "rss": (server.rss() - rss) / COUNT}


def run(env):
    rows = []
    for what, maker, commands, bar in CASES:
        got = env.collect(what, env.rounds_or(1, 1), lambda side: measure(env, side, maker, commands))
        rows += rows_from(NAME, got, (
            ("used", what, "B", RATIO, bar),
            ("rss", f"{what}: by RSS", "B", INFO)))
    return rows
