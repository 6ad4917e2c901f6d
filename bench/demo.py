#!/usr/bin/python3
"""A million keys expire at one moment, in Mayfly and in redis-server, while a client of each measures its latency.

    make demo
    bench/demo.py --keys 200000 --server build/mayfly-server

Draws both latencies live (80 columns, ANSI), ends by itself, and prints a summary. Without redis-server it shows Mayfly
alone. When the output is no terminal, or with --plain, it prints a line per second instead. With fewer than four cores
the servers take turns, so that they don't disturb each other."""

import argparse
import contextlib
import math
import multiprocessing
import os
import shutil
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

from harness.client import Client, load                     # noqa: E402
from harness.data import set_32_pxat                        # noqa: E402
from harness.server import child_setup, running             # noqa: E402

BIN_S = 0.1                     # one column of the picture
BEFORE_S = 1.5                  # the probes begin so long before the first deadline
COLUMNS = 60
BLOCKS = " ▁▂▃▄▅▆▇█"
FLOOR_MS, DECADES = 0.03, 3.5   # the height of a bar is logarithmic: from 0.03 ms to 100 ms
NOISY_MS = 2                    # p99.9 before the deadline: more is not the servers' doing
PAUSE_S = 0.0005                # between two requests of a probe


# -- one process per server: a probe ------------------------------------------------------------

def probe(port, end_s, pipe, setup):
    """SET, GET, SET, … Sends (second, longest ms, latencies, DBSIZE) once per BIN_S."""
    setup()
    with Client(port) as c:
        n = 0
        for _ in range(100):
            c.call("GET", "probe:0")        # warm up
        while time.time() < end_s:
            begin, latencies = time.time(), []
            while time.time() < begin + BIN_S:
                t = time.perf_counter()
                if n % 2:
                    c.call("GET", f"probe:{n % 100}")
                else:
                    c.call("SET", f"probe:{n % 100}", "x")
                latencies.append((time.perf_counter() - t) * 1000)
                n += 1
                time.sleep(PAUSE_S)
            pipe.send((begin, max(latencies), latencies, c.call("DBSIZE")))
    pipe.close()


class Side:
    """A server, and what its probe has seen."""

    def __init__(self, name, server, after_s, watch_s):
        self.name, self.server, self.watch_s = name, server, watch_s
        self.after_s = after_s  # its keys expire so long after the first server's
        self.bins = []          # (seconds after the deadline, longest ms)
        self.before, self.after = [], []
        self.left = 0
        self.gone_s = None      # when the last of the keys had been reclaimed
        self.done = False

    def start(self, context, end_s, setup):
        self.pipe, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=probe, args=(self.server.port, end_s, theirs, setup), daemon=True)
        self.process.start()
        theirs.close()

    def take(self, deadline_s):
        """Reads what the probe has sent."""
        try:
            while self.pipe.poll():
                at, longest, latencies, self.left = self.pipe.recv()
                at -= deadline_s + self.after_s
                self.bins.append((at, longest))
                if at < self.watch_s:
                    (self.after if at + BIN_S > 0 else self.before).extend(latencies)
                if self.gone_s is None and at > 0 and self.left <= 100:     # the probe's own keys
                    self.gone_s = at + BIN_S
        except EOFError:
            self.done = True


# -- loading --------------------------------------------------------------------------------------

def load_all(context, sides, keys, deadline_s):
    jobs = []
    for s in sides:
        deadline_ms = int((deadline_s + s.after_s) * 1000)
        jobs.append(context.Process(target=load, args=(s.server, set_32_pxat(lambda i, ms=deadline_ms: ms), keys)))
    for j in jobs:
        j.start()
    for j in jobs:
        j.join()
        if j.exitcode:
            raise SystemExit("demo: loading failed")


def load_in_time(context, sides, keys):
    """Loads the keys into all servers; returns their deadline, BEFORE_S ahead or more."""
    sample = min(keys, 20_000)
    begin = time.time()
    load_all(context, sides, sample, begin + 3600)
    lead_s = (time.time() - begin) * keys / sample * 1.3 + BEFORE_S + 1
    while True:
        deadline_s = time.time() + lead_s
        load_all(context, sides, keys, deadline_s)
        if deadline_s - time.time() >= BEFORE_S:
            return deadline_s
        for s in sides:
            s.server.call("FLUSHALL")
        lead_s *= 2


# -- the picture ----------------------------------------------------------------------------------

def height(ms):
    """Of a bar, in eighths of a line; two lines."""
    share = math.log10(max(ms, FLOOR_MS) / FLOOR_MS) / DECADES
    return max(1, min(16, round(share * 16)))


def chart(side):
    shown = side.bins[-COLUMNS:]
    lines = []
    for low in (8, 0):
        lines.append("".join(BLOCKS[max(0, min(8, height(ms) - low))] for _, ms in shown))
    return lines


def percentile(values, q):
    return sorted(values)[min(len(values) - 1, int(len(values) * q))] if values else 0.0


def picture(sides, keys, deadline_s):
    out = [f"{keys:,} keys with one deadline. Longest latency per {BIN_S:g} s, logarithmic:", ""]
    for s in sides:
        top, bottom = chart(s)
        in_s = deadline_s + s.after_s - time.time()
        when = f"in {in_s:.1f} s" if in_s > 0 else f"{-in_s:.1f} s ago"
        longest = max((ms for at, ms in s.bins if at + BIN_S > 0), default=0)
        out += [f"{s.name:<13} {s.left:>9,} keys, deadline {when:<10} now {s.bins[-1][1] if s.bins else 0:6.2f} ms,"
                f" longest {longest:6.2f}",
                f"  {top}", f"  {bottom}", ""]
    return out


def draw(lines, first):
    if not first:
        sys.stdout.write(f"\x1b[{len(lines)}A")
    sys.stdout.write("".join(f"\x1b[2K{line[:79]}\n" for line in lines))
    sys.stdout.flush()


def watch(sides, keys, deadline_s, plain):
    first, next_line = True, 0
    while not all(s.done for s in sides):
        for s in sides:
            s.take(deadline_s)
        if not plain:
            draw(picture(sides, keys, deadline_s), first)
        elif time.time() >= next_line:
            next_line = time.time() + 1
            print(f"{time.time() - deadline_s:+5.1f} s  " + "  ".join(
                f"{s.name}: {s.left:,} keys, {s.bins[-1][1] if s.bins else 0:.2f} ms" for s in sides), flush=True)
        first = False
        time.sleep(0.05)


def summary(sides, keys):
    print(f"\n{'':<16}{'p99.9 before':>14}{'p99.9 after':>14}{'longest after':>15}{'keys gone after':>18}")
    for s in sides:
        gone = f"{s.gone_s:.1f} s" if s.gone_s is not None else f"{s.left:,} left"
        print(f"{s.name:<16}{percentile(s.before, 0.999):>11.2f} ms{percentile(s.after, 0.999):>11.2f} ms"
              f"{max(s.after, default=0):>12.2f} ms{gone:>18}")
    if max(percentile(s.before, 0.999) for s in sides) > NOISY_MS:
        print("\nThis machine is busy with other work: latencies were high before the deadline already.")
    print(f"\n{keys:,} keys with one deadline. `before` is the noise of this machine. bench/run.py --only storm measures\n"
          "the same with a probe in C and pinned cores.")


# -- main ------------------------------------------------------------------------------------------

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--keys", type=int, default=1_000_000)
    p.add_argument("--server", default=os.path.join(os.path.dirname(HERE), "build", "mayfly-server"))
    p.add_argument("--redis", default="redis-server")
    p.add_argument("--seconds", type=float, default=4, help="to watch after the deadline")
    p.add_argument("--plain", action="store_true", help="a line per second instead of the picture")
    args = p.parse_args()
    if args.keys < 1:
        p.error("--keys must be at least 1")
    if not shutil.which(args.server):
        p.error(f"no executable {args.server}: run make first")
    plain = args.plain or not sys.stdout.isatty()
    context = multiprocessing.get_context("fork")
    cores = sorted(os.sched_getaffinity(0))
    few = len(cores) < 4
    server_core, load_core = (cores[1], cores[0]) if few and len(cores) > 1 else (None, None)
    nice = -15 if os.geteuid() == 0 else 0

    with contextlib.ExitStack() as stack:
        def start(name, path, after_s):
            return Side(name, stack.enter_context(running(name, shutil.which(path), server_core, nice)), after_s,
                        args.seconds)

        sides = [start("Mayfly", args.server, 0)]
        if shutil.which(args.redis):
            sides.append(start(os.path.basename(args.redis), args.redis, BEFORE_S if few else 0))
        else:
            print(f"no {args.redis} here (Debian: redis-server): Mayfly alone")
        print(f"loading {args.keys:,} keys into {' and '.join(s.name for s in sides)} …", flush=True)
        deadline_s = load_in_time(context, sides, args.keys)
        while time.time() < deadline_s - BEFORE_S:
            time.sleep(0.05)
        for s in sides:
            s.start(context, deadline_s + sides[-1].after_s + args.seconds, child_setup(load_core, nice, realtime=True))
        watch(sides, args.keys, deadline_s, plain)
        summary(sides, args.keys)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
