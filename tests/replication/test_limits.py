"""What is not the same on both ends: memory, disks, persistence, commands and types only one of them knows."""
import os
import sys

import pytest

import everything
from datasets import same
from mayfly import Raw, eventually
from nodes import linked, wait_synced
from traffic import Traffic

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'fault'))

from machine import SmallDisk, Unavailable                                   # noqa: E402

AOF = ('--appendonly', 'yes', '--appendfsync', 'no')


def durable(node, kind, *args):
    return node(kind, *args, *(AOF if kind != 'rocks' else ()))


def test_with_append_only_files(pair, node, full, seed):
    """Whatever a crash leaves of either side's files, they agree afterwards."""
    primary = durable(node, pair[0])
    replica = durable(node, pair[1], '--replicaof', f'127.0.0.1 {primary.port}')
    wait_synced(primary, replica)
    for i in range(6 if full else 2):
        victim = (replica, primary)[i % 2]
        with Traffic(primary, f'{seed}/{i}', flush=False) as traffic:
            eventually(lambda: traffic.sent > 500, 30)                       # pylint: disable=cell-var-from-loop
            victim.kill()
        victim.start()
        traffic.some(200)
        wait_synced(primary, replica)
        assert same(primary, replica) > 20


@pytest.mark.suits(lambda pair: pair[0] != 'rocks')     # it has no limit to its data
def test_eviction(pair, node):
    """The primary evicts, the replica follows; it does not by itself, whatever its own limit."""
    primary = node(pair[0], '--maxmemory-policy', 'allkeys-random')
    replica = node(pair[1], *(('--maxmemory', '100kb', '--maxmemory-policy', 'allkeys-lru')
                              if pair[1] != 'rocks' else ()))
    replica.follow(primary)
    wait_synced(primary, replica)
    used = int(primary.fields('memory')['used_memory'])
    primary.config(maxmemory=used + 5_000_000)
    with Raw(primary.port) as c:
        everything.run(c, (('SET', f'k:{i}', 'v' * 500) for i in range(20_000)))
    primary.config(maxmemory=0)                         # or questions would evict, too
    wait_synced(primary, replica)
    assert primary.stat('evicted_keys') > 1000 and replica.stat('evicted_keys') == 0
    same(primary, replica)


@pytest.mark.suits(lambda kind: kind == 'memory')       # with a storage of its own it is full for more than that
def test_full_disk(kind, node):
    """The replica has no room for the file it is sent: it lives, keeps what it has, and tries again."""
    try:
        disk = SmallDisk(6)
    except Unavailable as e:
        pytest.skip(str(e))
    try:
        primary, replica = node('redis'), node(kind, '--dir', disk.path, '--repl-diskless-load', 'swapdb')
        primary.call('SET', 'fat', everything.noise(9_000_000))
        replica.call('SET', 'a', 1)
        replica.follow(primary)
        eventually(lambda: primary.stat('sync_full') >= 2)
        assert replica.call('GET', 'a') == b'1' and not linked(replica)
        primary.call('SET', 'fat', 'thin')
        wait_synced(primary, replica)
        same(primary, replica)
        eventually(lambda: not any(f.startswith('temp-') for f in os.listdir(disk.path)))   # a thread removes them
        assert replica.stop() == 0
    finally:
        disk.remove()


def test_streams_of_redis(kind, node):
    """By command and by full sync, groups and all."""
    primary, replica = node('redis'), node(kind, '--repl-diskless-load', 'swapdb')
    replica.follow(primary)
    wait_synced(primary, replica)
    with Raw(primary.port) as c:
        everything.run(c, everything.streams())
        everything.run(c, [('XADD', 's', '*', 'f', 'v'), ('XADD', 's', 'MAXLEN', '~', 1, '*', 'f', 'v'),
                           ('XGROUP', 'CREATE', 's', 'g', 0), ('XREADGROUP', 'GROUP', 'g', 'c', 'STREAMS', 's', '>'),
                           ('XAUTOCLAIM', 's', 'g', 'd', 0, 0)])
    wait_synced(primary, replica)
    same(primary, replica)
    replica.promote()
    replica.call('SET', 'mine', 1)
    replica.follow(primary)
    wait_synced(primary, replica)
    same(primary, replica)


def test_another_primary(kind, node, seed):
    """From one to another with other data, without a pause."""
    one, other, replica = node('redis'), node(kind), node(kind)
    Traffic(one, seed).some(500)
    Traffic(other, f'{seed}/2').some(500)
    for primary in one, other, one:
        replica.follow(primary)
        wait_synced(primary, replica)
        same(primary, replica)
    replica.follow(other)
    replica.follow(one)                                                      # in the middle of it
    wait_synced(one, replica)
    same(one, replica)
