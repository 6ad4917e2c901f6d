"""How late `expired` is: a subscriber of __keyevent@0__:expired, with 1,000,000 other keys whose deadlines are far away,
and no access to the keys that die. Lateness: from a key's deadline, which is its name, to the moment the
message was read. Redis finds the dead by drawing lots among all keys with a deadline; so it hears of a part of them
only, and is given WAIT_S for it."""

import socket
import time

from harness.client import encode, load
from harness.data import set_32_pxat, spread
from harness.env import MAYFLY
from harness.report import INFO, LIMIT, rows_from
from harness.stats import percentile

NAME = "events"
OTHERS = 1_000_000
DYING, OVER_MS = 10_000, 5000       # so many keys die within this time
DAY_MS = 86_400_000
LEAD_MS, WAIT_S = 2000, 5
NEVER_MS = 1e6


def dying_keys(start_ms):
    def make(i):
        deadline = start_ms + i * OVER_MS // DYING
        return encode(b"SET", b"%d:%d" % (deadline, i), b"v", b"PXAT", b"%d" % deadline)
    return make


def listen(client, until):
    """Lateness of every message, in ms."""
    late = []
    while len(late) < DYING and time.time() < until:
        client.sock.settimeout(max(until - time.time(), 0.01))
        try:
            message = client._reply()               # pylint: disable=protected-access
        except (TimeoutError, socket.timeout, OSError):
            break
        late.append(time.time() * 1000 - int(message[2].split(b":")[0]))
    return late


def measure(env, side):
    with env.server(side) as server:
        far = int(time.time() * 1000) + 10 * DAY_MS
        load(server, set_32_pxat(spread(far, 20 * DAY_MS)), OTHERS)
        server.call("CONFIG", "SET", "notify-keyspace-events", "Ex")
        server.settle(limit_s=15, share=0.01)
        with server.client() as client:
            client.call("SUBSCRIBE", "__keyevent@0__:expired")
            start = int(time.time() * 1000) + LEAD_MS
            load(server, dying_keys(start), DYING)
            if time.time() * 1000 > start:
                raise RuntimeError("loading took too long")
            late = listen(client, (start + OVER_MS) / 1000 + WAIT_S)
        heard = len(late)
        late = sorted(late) + [NEVER_MS] * (DYING - heard)
        return {"p50": percentile(late, 50), "p99": percentile(late, 99), "max": late[-1], "min": late[0],
                "heard": 100 * heard / DYING}


def rows(got, engine):
    return rows_from(NAME, got, (
        ("p99", f"{engine}: expired, late by, p99", "ms", LIMIT, 100),
        ("p50", f"{engine}: p50", "ms", INFO),
        ("max", f"{engine}: longest", "ms", INFO),
        ("min", f"{engine}: shortest", "ms", INFO),
        ("heard", f"{engine}: heard of within {WAIT_S} s", "%", INFO)))


def run(env):
    rounds = env.rounds_or(3, 1)
    memory = env.collect("expired events", rounds, lambda side: measure(env, side))
    with env.mayfly_with("--engine", "rocksdb", "--appendfsync", "everysec"), env.on_all_cores():
        disk = env.collect("expired events, rocksdb", rounds, lambda side: measure(env, side), sides=(MAYFLY,))
    return rows(memory, "memory") + rows(disk, "rocksdb")
