#!/usr/bin/python3
"""Mayfly and redis-server side by side, against the project's bars.

See README.md beside this file for the method and how to read the output."""

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

from harness import plot, probe, report                     # noqa: E402
from harness.env import MAYFLY, REDIS, Env                  # noqa: E402
import scenarios                                            # noqa: E402

ROOT = os.path.dirname(HERE)
OUT = os.path.join(ROOT, "build", "bench")
WANTED_REDIS = "7.0.15"
TOOLS = ("probe", "flood", "lockstep", "bare")


def arguments():
    names = [s.NAME for s in scenarios.ALL]
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--quick", action="store_true", help="fewer and shorter rounds; 1M instead of 10M keys in idle")
    p.add_argument("--rounds", type=int, help="rounds of every scenario (default: each its own)")
    p.add_argument("--only", metavar="NAME,NAME", help="of " + ",".join(names))
    p.add_argument("--server", default=os.path.join(ROOT, "build", "mayfly-server"), help="Mayfly's binary")
    p.add_argument("--redis", default="redis-server", help="Redis's binary")
    p.add_argument("--cores", metavar="SERVER,LOAD", help="the two cores to use (default: 1,0)")
    p.add_argument("--no-nice", action="store_true", help="leave the priority of servers and load alone")
    p.add_argument("--out", default=OUT, help="where results.json and bench.png go")
    p.add_argument("--bars", action="store_true", help="exit 1 if a bar is not met (on a machine that is idle)")
    p.add_argument("--verbose", action="store_true", help="show tracebacks of failures")
    args = p.parse_args()
    args.only = args.only.split(",") if args.only else names
    if unknown := set(args.only) - set(names):
        p.error(f"no such scenario: {', '.join(sorted(unknown))}")
    if args.rounds is not None and args.rounds < 1:
        p.error("--rounds must be at least 1")
    for attr in ("server", "redis"):
        path = shutil.which(getattr(args, attr))
        if not path:
            p.error(f"no executable {getattr(args, attr)}")
        setattr(args, attr, os.path.abspath(path))
    for tool in ("redis-benchmark", "cc"):
        if not shutil.which(tool):
            p.error(f"no {tool} in PATH")
    return args


def choose_cores(wish):
    """(server core, load core); (None, None) where there is only one."""
    if wish:
        server, load = (int(c) for c in wish.split(","))
        return server, load
    usable = sorted(os.sched_getaffinity(0))
    # The first core usually serves the interrupts: leave it to the load.
    return (usable[1], usable[0]) if len(usable) > 1 else (None, None)


def may_raise_priority():
    """Whether children can be reniced above the rest of the machine."""
    return os.geteuid() == 0


def version(path):
    return subprocess.run([path, "--version"], capture_output=True, text=True).stdout.strip()


def steal_ticks():
    """Time the hypervisor took from us, in ticks, over all cores."""
    with open("/proc/stat") as f:
        return int(f.readline().split()[8])


def run_scenarios(env, names):
    rows = []
    for scenario in scenarios.ALL:
        if scenario.NAME not in names:
            continue
        env.scenario = scenario.NAME
        rows += scenario.run(env)
    return rows


def main():
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))     # so that clean-up runs
    os.makedirs(args.out, exist_ok=True)
    cores = choose_cores(args.cores)
    if cores[0] is None:
        print("warning: one core only: load and server disturb each other", file=sys.stderr)
    elif cores[1] is not None:
        os.sched_setaffinity(0, {cores[1]})
    nice = 0 if args.no_nice or not may_raise_priority() else -15
    redis_version = version(args.redis)
    if WANTED_REDIS not in redis_version:
        print(f"warning: the bars are meant against {WANTED_REDIS}, this is {redis_version}", file=sys.stderr)

    env = Env({MAYFLY: args.server, REDIS: args.redis}, args.rounds, args.quick, cores, nice,
              {name: probe.build(os.path.join(HERE, name + ".c"), args.out) for name in TOOLS}, args.verbose)
    started, steal, load_before = time.time(), steal_ticks(), os.getloadavg()
    rows = run_scenarios(env, args.only)

    about = {"started": int(started), "seconds": round(time.time() - started, 1), "quick": args.quick,
             "only": args.only, "mayfly": args.server, "mayfly_version": version(args.server),
             "redis": args.redis, "redis_version": redis_version, "cores": cores, "nice": nice,
             "machine": platform.platform(), "loadavg_before": load_before,
             "steal_s": (steal_ticks() - steal) / os.sysconf("SC_CLK_TCK")}
    print()
    report.print_table(rows)
    for scenario, side, message in env.errors:
        print(f"\nERROR {scenario}, {side}: {message}")
    for warning in env.warnings:
        print(f"\nNOISE {warning}")
    report.write_json(os.path.join(args.out, "results.json"), rows, env, about)
    trouble = plot.write(os.path.join(args.out, "bench.png"), rows, env.series)

    verdicts = [row.verdict() for row in rows]
    failed = sum(v in ("FAIL", "ERROR") for v in verdicts)
    print(f"\n{verdicts.count('PASS')} bars met, {failed} not, in {about['seconds']:.0f} s; "
          f"load average before {load_before[0]:.1f}, stolen by the hypervisor {about['steal_s']:.1f} s")
    print(trouble or f"see {args.out}/results.json and bench.png")
    return 1 if "ERROR" in verdicts or (failed and args.bars) else 0


if __name__ == "__main__":
    sys.exit(main())
