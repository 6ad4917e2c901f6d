"""Memory per key, per hash field, per sorted set member; per small collection.

used_memory (INFO) per element, from an empty server to a loaded and quiet one
without clients; the growth of the RSS is shown beside it, since used_memory is
what the server says of itself."""

import time

from harness.client import load
from harness.data import (PAIRS, hash_of_10, hset_fields, set_32, set_32_pxat, small_hash, small_ints,
                          small_list, small_set, small_stream, small_zset, spread, zadd_members)
from harness.report import INFO, LIMIT, RATIO, rows_from

NAME = "memory"
COUNT = 1_000_000
SMALL = 100_000     # small collections
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


# what, command, bytes: of a key of 13 bytes, with the key; commands for each, if not one
SMALL_CASES = (
    ("list of 5 items of 6 B", small_list, 80),
    ("set of 5 members of 6 B", small_set, 80),
    ("set of 5 integers below 4001", small_ints, 62),
    ("sorted set of 5 members of 6 B, scores to 40", small_zset, 94),
    ("hash of 4 fields, 40 B in all", small_hash, 92),
    ("hash of 10 fields, 180 B in all", hash_of_10, 250),
    ("stream of 2 entries, 28 B in all", small_stream, 240, 2),
)


def measure(env, side, maker, commands, elements=COUNT):
    with env.server(side) as server:
        server.settle()
        used, rss = server.info("memory", "used_memory"), server.rss()
        load(server, maker(), commands, batch=50 if commands * PAIRS == COUNT else 1000)
        server.settle()
        return {"used": (server.info("memory", "used_memory") - used) / elements,
                "rss": (server.rss() - rss) / elements}


def run(env):
    rows = []
    for what, maker, commands, bar in CASES:
        got = env.collect(what, env.rounds_or(1, 1), lambda side: measure(env, side, maker, commands))
        rows += rows_from(NAME, got, (
            ("used", what, "B", RATIO, bar),
            ("rss", f"{what}: by RSS", "B", INFO)))
    for what, make, limit, *times in SMALL_CASES:
        commands = SMALL * (times or [1])[0]
        got = env.collect(what, env.rounds_or(1, 1),
                          lambda side: measure(env, side, lambda: make, commands, SMALL))
        rows += rows_from(NAME, got, (("used", what, "B", LIMIT, limit),))
    return rows
