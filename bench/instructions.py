#!/usr/bin/python3
"""Instructions per request, counted by valgrind's callgrind: the same on a busy machine as on a quiet one.

    make && bench/instructions.py build/mayfly-server                   one server
    bench/instructions.py old/mayfly-server build/mayfly-server         two of them, and how they compare
    bench/instructions.py --site build/mayfly-server                    the same server alone, and as a site

One connection sends a fixed number of requests to a lone server, one by one (P1) or 16 together (P16). `tick` counts
what server_tick and everything below it takes per request: running, committing and housekeeping, without sockets and
parsing. `process` counts all of it, with all threads and without the kernel. The expire cycle is off (DEBUG
SET-ACTIVE-EXPIRE): it costs time, not requests, and valgrind takes fifty times as long.

To see where the instructions are: --keep DIR, then callgrind_annotate --inclusive=yes DIR/FILE. Build with LTO
(plain make) what is to be judged. Needs valgrind."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

from harness.client import encode                           # noqa: E402
from harness.server import running                          # noqa: E402

KEYS = 4096
VALUE = b"v" * 100
DAY_S = 86400


def key(i):
    return b"key:%012d" % (i * 2654435761 % KEYS)   # in an order of no use to caches


def new_key(i):
    return b"new:%012d" % i


def set_key(i):
    return encode("SET", key(i), VALUE)


def set_key_ex(i):
    return encode("SET", key(i), VALUE, "EX", DAY_S + i % 1000)


def set_key_ex_int(i):
    return encode("SET", key(i), 1000, "EX", DAY_S + i % 1000)


def get_key(i):
    return encode("GET", key(i))


def set_field(i):
    return encode("HSET", b"hash", key(i), VALUE)


FIELDS = [x for j in range(4) for x in (b"name%d" % j, b"value")]


def small_hash(i):
    return encode("HSET", key(i), *FIELDS)


def small_list(i):
    return encode("RPUSH", key(i), *[b"item-%d" % j for j in range(5)])


def small_stream(i):
    return encode("XADD", key(i), "*", "name", "value")


def pop_or_push(i):
    return encode("RPUSH", key(i), b"item-9") if i // KEYS % 2 else encode("RPOP", key(i))


def small_set(i):
    return encode("SADD", key(i), *[b"item-%d" % j for j in range(5)])


def small_ints(i):
    return encode("SADD", key(i), *range(i % 4000, 4000 + i % 4000, 800))


def small_zset(i):
    return encode("ZADD", key(i), *[x for j in range(5) for x in (10 * j, b"item-%d" % j)])


def big(command, *args):
    """A collection of as many elements as there are keys otherwise."""
    return lambda i: encode(command, b"big", *[key(i) if a is None else a for a in args])


def put_or_remove(put, remove):
    """Elements come and go again."""
    return lambda i: put(i) if i // KEYS % 2 == 0 else remove(i)


# name: (what makes the data, what is measured), each the i-th request. EX: keys with a deadline; new: the keys did
# not exist.
REQUESTS = {
    "GET": (set_key, get_key),
    "GET EX": (set_key_ex, get_key),
    "SET": (set_key, set_key),
    "SET EX": (set_key_ex, set_key_ex),
    "SET new": (set_key, lambda i: encode("SET", new_key(i), VALUE)),
    "SET new EX": (set_key, lambda i: encode("SET", new_key(i), VALUE, "EX", DAY_S + i % 1000)),
    "INCR": (lambda i: encode("INCRBY", key(i), 1000), lambda i: encode("INCR", key(i))),
    "INCR EX": (set_key_ex_int, lambda i: encode("INCR", key(i))),
    "EXPIRE": (set_key, lambda i: encode("EXPIRE", key(i), DAY_S + i % 1000)),
    "SET DEL": (set_key, lambda i: encode("DEL", key(i // 2)) if i % 2 else encode("SET", key(i // 2), VALUE)),
    "HSET": (set_field, set_field),
    "HINCRBY": (big("HINCRBY", None, 1), big("HINCRBY", None, 1)),
    "SADD": (big("SADD", None), lambda i: encode("SADD", b"big", new_key(i))),
    "ZADD": (big("ZADD", 1, None), lambda i: encode("ZADD", b"big", i % 1000, key(i))),
    "ZINCRBY": (big("ZINCRBY", 1, None), big("ZINCRBY", 1, None)),
    "XADD": (set_key, lambda i: encode("XADD", b"stream", "*", "name", "value")),
    "XRANGE": (lambda i: encode("XADD", b"stream", "%d-1" % (i + 1), "name", "value"),
               lambda i: encode("XRANGE", b"stream", "%d-1" % (i * 7 % KEYS), "+", "COUNT", 5)),
    "HGET": (set_field, lambda i: encode("HGET", b"hash", key(i))),
    "LPUSH": (set_key, lambda i: encode("LPUSH", b"list", VALUE)),
    # small collections: every request is to another key
    "hset old": (small_hash, lambda i: encode("HSET", key(i), b"name%d" % (i % 4), b"other")),
    "hset add": (small_hash, lambda i: encode("HSET", key(i), b"name%d" % (i // KEYS + 4), b"value")),
    "hset new": (set_key, lambda i: encode("HSET", new_key(i), *FIELDS)),
    "hget": (small_hash, lambda i: encode("HGET", key(i), b"name%d" % (i % 4))),
    "hgetall": (small_hash, lambda i: encode("HGETALL", key(i))),
    "hset two": (small_hash, lambda i: encode("HSET", key(i), b"name1", b"other", b"name2", b"other")),
    "hdel": (small_hash, put_or_remove(lambda i: encode("HSET", key(i), b"name9", b"value"),
                                       lambda i: encode("HDEL", key(i), b"name9"))),
    "hincrby": (lambda i: encode("HINCRBY", key(i), b"hits", 1), lambda i: encode("HINCRBY", key(i), b"hits", 1)),
    "lpush": (small_list, lambda i: encode("LPUSH", key(i), b"item-9")),
    "lpush new": (set_key, lambda i: encode("LPUSH", new_key(i), b"item-9")),
    "rpop": (small_list, pop_or_push),
    "lrange": (small_list, lambda i: encode("LRANGE", key(i), 0, -1)),
    "sadd": (small_set, lambda i: encode("SADD", key(i), b"item-%d" % (i // KEYS + 5))),
    "sadd old": (small_set, lambda i: encode("SADD", key(i), b"item-%d" % (i % 5))),
    "sadd int": (small_ints, lambda i: encode("SADD", key(i), 4000 + i)),
    "srem": (small_set, put_or_remove(lambda i: encode("SADD", key(i), b"item-9"),
                                      lambda i: encode("SREM", key(i), b"item-9"))),
    "sismember": (small_set, lambda i: encode("SISMEMBER", key(i), b"item-%d" % (i % 5))),
    "xadd": (small_stream, small_stream),
    "xadd new": (set_key, lambda i: encode("XADD", new_key(i), "*", "name", "value")),
    "xrange": (small_stream, lambda i: encode("XRANGE", key(i), "-", "+")),
    "zadd": (small_zset, lambda i: encode("ZADD", key(i), i % 50, b"item-%d" % (i // KEYS + 5))),
    "zadd old": (small_zset, lambda i: encode("ZADD", key(i), i % 50, b"item-%d" % (i % 5))),
    "zincrby": (small_zset, lambda i: encode("ZINCRBY", key(i), 15, b"item-%d" % (i % 5))),
    "zrem": (small_zset, put_or_remove(lambda i: encode("ZADD", key(i), 1, b"item-9"),
                                       lambda i: encode("ZREM", key(i), b"item-9"))),
    "zrange": (small_zset, lambda i: encode("ZRANGE", key(i), 0, -1, "WITHSCORES")),
    "zrevrange": (small_zset, lambda i: encode("ZREVRANGE", key(i), 0, -1, "WITHSCORES")),
}


def send(client, make, first, count, pipeline):
    """Each batch is one write and, as a server answers once per tick, nearly always one tick."""
    for at in range(first, first + count, pipeline):
        client.sock.sendall(b"".join(make(i) for i in range(at, at + pipeline)))
        for _ in range(pipeline):
            client._reply()


def control(option, pid):
    subprocess.run(["callgrind_control", option, str(pid)], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def dump(server, keep, label):
    """Instructions since the last one: (within server_tick, of the process)."""
    pattern = re.compile(r"callgrind\.out\.\d+$")
    before = set(os.listdir(keep))
    control("-d", server.pid)
    for _ in range(1000):
        new = [name for name in set(os.listdir(keep)) - before if pattern.search(name)]
        if new:
            break
        time.sleep(0.01)
    path = os.path.join(keep, label.replace(" ", "-"))
    os.rename(os.path.join(keep, new[0]), path)
    text = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", path], check=True,
                          capture_output=True, text=True).stdout
    tick = re.search(r"^ *([\d,]+) .*:server_tick( |$)", text, re.MULTILINE)
    total = re.search(r"^ *([\d,]+) .*PROGRAM TOTALS", text, re.MULTILINE)
    return [int(m.group(1).replace(",", "")) for m in (tick, total)]


def measure(path, args, more, keep):
    """{(name, pipeline): (tick, process)} per request."""
    under = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={keep}/callgrind.out"]
    options = ["--engine", args.engine, "--enable-debug-command", "yes", *args.args, *more]
    result = {}
    with running("callgrind", os.path.abspath(path), None, 0, options, under=under) as server, \
         server.client() as client:
        client.call("DEBUG", "SET-ACTIVE-EXPIRE", "0")
        for name, (prepare, make) in REQUESTS.items():
            if args.only and name not in args.only:
                continue
            client.call("FLUSHALL")
            send(client, prepare, 0, KEYS, 16)
            send(client, make, 0, 1024, 16)
            for n, pipeline in enumerate((1, 16)):
                control("-z", server.pid)
                send(client, make, 1024 + n * args.requests, args.requests, pipeline)
                figures = dump(server, keep, f"{name} P{pipeline}")
                result[name, pipeline] = [n / args.requests for n in figures]
    return result


def row(request, results, column):
    figures = [r[request][column] for r in results]
    ratio = f" {figures[-1] / figures[0]:8.3f}" if len(figures) > 1 else ""
    return "".join(f" {n:9.0f}" for n in figures) + ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", nargs="+", help="binaries; the last is compared with the first")
    parser.add_argument("--engine", default="memory", choices=["memory", "rocksdb"])
    parser.add_argument("--requests", type=int, default=8192, help="per row, a multiple of 16 (8192)")
    parser.add_argument("--only", action="append", choices=REQUESTS, metavar="NAME", help=", ".join(REQUESTS))
    parser.add_argument("--args", action="append", default=[], metavar="ARG", help="an argument for the servers")
    parser.add_argument("--site", action="store_true", help="measure the last server once more, as a site")
    parser.add_argument("--keep", metavar="DIR", help="keep the profiles in DIR/0, DIR/1 …: a folder per server")
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="bench-instructions-") as tmp:
        runs = [(path, ()) for path in args.server]
        if args.site:
            runs.append((args.server[-1], ("--site-id", "1")))
        for i, (path, more) in enumerate(runs):
            keep = os.path.join(os.path.abspath(args.keep or tmp), str(i))
            os.makedirs(keep, exist_ok=True)
            results.append(measure(path, args, more, keep))
    width = 10 * len(results) + (9 if len(results) > 1 else 0)
    print(f"{'':16}{'tick':>{width}}{'process':>{width}}")
    for request in results[0]:
        print(f"{request[0]:10} P{request[1]:<4}" + row(request, results, 0) + row(request, results, 1))


if __name__ == "__main__":
    main()
