"""Many connections: server CPU time per request with one request in flight on each, and memory of idle ones.

bench/lockstep.c is the load. Beside Redis, and beside bench/bare.c, which only receives and sends: what the kernel
takes is the floor."""

import contextlib
import resource
import socket
import subprocess
import time

from harness.client import encode, load
from harness.data import set_100
from harness.env import MAYFLY, REDIS
from harness.floor import bare
from harness.report import LIMIT, RATIO, rows_from
from harness.server import child_setup

NAME = "connections"
FLOOR = "bare"
KEYS, VALUE_BYTES = 100_000, 100
COUNTS = (50, 500, 5000)
REQUESTS = 400_000
IDLE, IDLE_BYTES = 10_000, 1536
THREADS, MAIN_US = 3, 0.6
CLIENTS_MAX = ("--maxclients", IDLE + 100)


def lockstep(env, server, op, connections):
    """Runs lockstep.c; returns how many requests it sent."""
    rounds = max(env.pick(REQUESTS, REQUESTS // 4) // connections, 1)
    argv = [env.tools["lockstep"], server.port, connections, rounds, op, KEYS, VALUE_BYTES]
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=300,
                          preexec_fn=child_setup(env.load_core, env.nice))
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"lockstep ended with {done.returncode}")
    return int(done.stdout.split()[1])


def run_count(env, op, connections, starts):
    with contextlib.ExitStack() as stack:
        servers = {}

        def measure(side):
            if side not in servers:
                server = servers[side] = stack.enter_context(starts[side]())
                if server.name != FLOOR:
                    load(server, set_100, KEYS)
                lockstep(env, server, op, connections)      # warm-up
            server = servers[side]
            before = server.cpu_ns()
            requests = lockstep(env, server, op, connections)
            return {"cpu": (server.cpu_ns() - before) / requests / 1e3}

        return env.collect(f"{op.upper()} on {connections} connections", env.rounds_or(7, 3), measure)


def run_cpu(env):
    rows = []
    for op in ("get", "set"):
        sides = {MAYFLY: lambda: env.server(MAYFLY, *CLIENTS_MAX), REDIS: lambda: env.server(REDIS, *CLIENTS_MAX)}
        floor = {**sides, REDIS: lambda op=op: bare(env, VALUE_BYTES if op == "get" else 0)}
        for connections in COUNTS:
            what = f"{op.upper()}, {connections} connections: server CPU/request"
            rows += rows_from(NAME, run_count(env, op, connections, floor), (("cpu", what, "us", RATIO, 1.15),),
                              beside=FLOOR)
            rows += rows_from(NAME, run_count(env, op, connections, sides), (("cpu", what, "us", RATIO, 1.0),))
    return rows


# -- I/O threads ------------------------------------------------------------------------------------

def run_threads(env):
    """The main thread's share of a request. All threads of the server share its core, so how many requests there are a
    second says nothing here."""
    def measure(op, connections, threads):
        with env.server(MAYFLY, "--io-threads", threads) as server:
            load(server, set_100, KEYS)
            lockstep(env, server, op, connections)          # warm-up
            before = server.main_thread_ns()
            requests = lockstep(env, server, op, connections)
            return {"cpu": (server.main_thread_ns() - before) / requests / 1e3}

    rows = []
    for threads, judge in ((1, ()), (THREADS, (LIMIT, MAIN_US))):
        for op in ("get", "set"):
            for connections in COUNTS[:2]:
                what = f"{op.upper()}, {connections} connections, io-threads {threads}: main thread CPU/request"
                got = env.collect(what, env.rounds_or(5, 3), lambda _: measure(op, connections, threads),  # pylint: disable=cell-var-from-loop
                                  sides=(MAYFLY,))
                rows += rows_from(NAME, got, (("cpu", what, "us", *judge),))
    return rows


# -- idle connections ------------------------------------------------------------------------------

def allow_files(n):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < n:
        resource.setrlimit(resource.RLIMIT_NOFILE, (n, max(n, hard)))


def idle(env, side):
    allow_files(IDLE + 200)
    with env.server(side, *CLIENTS_MAX) as server, contextlib.ExitStack() as stack:
        server.settle()
        before = server.info("memory", "used_memory")
        for _ in range(IDLE):
            s = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            s.sendall(encode("PING"))
            if s.recv(16) != b"+PONG\r\n":
                raise RuntimeError("no PONG")
        time.sleep(3)       # servers give buffers back about once a second
        server.settle()
        return {"bytes": (server.info("memory", "used_memory") - before) / IDLE}


def run(env):
    got = env.collect(f"{IDLE:,} idle connections", env.rounds_or(1, 1), lambda side: idle(env, side))
    return run_cpu(env) + run_threads(env) + rows_from(NAME, got, (("bytes", f"{IDLE:,} idle connections: memory of each", "B", LIMIT,
                                                 IDLE_BYTES),))
