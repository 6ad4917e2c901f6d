"""20,000 `SET key v EX 1` of unique keys per second. What share of the
live set do keys hold that are dead but not reclaimed?

DBSIZE counts keys not yet reclaimed; how many live is known by construction:
those written within the last second."""

import collections
import time

from harness.report import INFO, LIMIT, rows_from
from harness.stats import median, percentile

NAME = "churn"
RATE, TICK_S = 20_000, 0.005
WARM_UP_S, SAMPLE_S = 3, 0.1
DRAIN_LIMIT_S = 10


def set_ex(i):
    return b"*5\r\n$3\r\nSET\r\n$18\r\nchurn:%012d\r\n$32\r\n%032x\r\n$2\r\nEX\r\n$1\r\n1\r\n" % (i, i)


class Live:
    """The number of keys written within the last second."""

    def __init__(self):
        self.batches, self.count = collections.deque(), 0

    def add(self, at, n):
        self.batches.append((at, n))
        self.count += n

    def at(self, now):
        while self.batches and self.batches[0][0] <= now - 1:
            self.count -= self.batches.popleft()[1]
        return self.count


def churn(server, seconds):
    """Returns ([(dbsize - live) / live], rate reached)."""
    live, shares, written = Live(), [], 0
    with server.client() as c:
        start = time.monotonic()
        next_sample = start + WARM_UP_S
        while (now := time.monotonic()) < start + seconds:
            # As many as are due by now, but no flood after a hiccup.
            n = min(int((now - start) * RATE) - written, 10 * int(RATE * TICK_S))
            if n > 0:
                c.send_batch(b"".join([set_ex(written + k) for k in range(n)]), n)
                live.add(now, n)
                written += n
            if now >= next_sample:
                # Asked at `asked`: what was live then is what DBSIZE should be.
                asked = time.monotonic()
                size = c.call("DBSIZE")
                alive = live.at(asked)
                shares.append((size - alive) / max(alive, 1) * 100)
                next_sample += SAMPLE_S
            time.sleep(max(0, TICK_S - (time.monotonic() - now)))
        return shares, written / seconds


def drain(server):
    """How long after the last write the server is empty; a second is by right."""
    start = time.monotonic()
    while (waited := time.monotonic() - start) < DRAIN_LIMIT_S:
        if server.call("DBSIZE") == 0:
            break
        time.sleep(0.02)
    return waited


def measure(env, side):
    with env.server(side) as server:
        used = server.info("memory", "used_memory")
        before = server.cpu_ns()
        seconds = env.pick(15, 8)
        shares, rate = churn(server, seconds)
        cpu = (server.cpu_ns() - before) / seconds / 1e7
        used = (server.info("memory", "used_memory") - used) / RATE
        return {"median": median(shares), "p95": percentile(sorted(shares), 95), "max": max(shares),
                "rate": rate, "cpu": cpu, "used": used, "drain": drain(server)}


def run(env):
    got = env.collect("20,000 SET EX 1 a second", env.rounds_or(2, 1), lambda side: measure(env, side))
    return rows_from(NAME, got, (
        ("median", "dead keys / live keys, median", "%", LIMIT, 10),
        ("p95", "dead keys / live keys, p95", "%", LIMIT, 10),
        ("max", "dead keys / live keys, max", "%", INFO),
        ("rate", "writes/s reached", "/s", INFO),
        ("used", "used_memory at the end / live keys", "B", INFO),
        ("cpu", "server core in use", "%", INFO),
        ("drain", "empty after the last write (1 s TTL)", "s", INFO)))
