"""Full syncs of everything there is, in every way, under load; then the stream."""
import os
import time

import pytest

import everything
from datasets import same
from mayfly import Raw, eventually
from nodes import Syncs, linked, wait_synced
from traffic import DEADLINES, Traffic

BIG = 100_000 if os.environ.get('REPL') == 'full' else 20_000
# (repl-diskless-sync of the primary, repl-diskless-load of the replica)
WAYS = [('no', 'disabled'), ('yes', 'swapdb'), ('no', 'swapdb'), ('yes', 'on-empty-db'), ('yes', 'disabled')]


def big():
    for at in range(0, BIG, 1000):
        numbers = range(at, at + 1000)
        yield 'HSET', 'big:hash', *[x for i in numbers for x in (f'f{i}', f'value {i}')]
        yield 'SADD', 'big:set', *[f'm{i}' for i in numbers]
        yield 'ZADD', 'big:zset', *[x for i in numbers for x in (i * 7919 % 10_007 / 8, f'm{i}')]
        yield 'RPUSH', 'big:list', *[f'e{i}' for i in numbers]
    yield 'SET', 'big:string', everything.noise(9_000_000)


def short(rng):
    for i in range(600):
        yield 'SET', f'short:{i}', 'v', 'PX', rng.choice(DEADLINES)
        yield 'SADD', f'short:set:{i}', 'a', 'b'
        yield 'PEXPIRE', f'short:set:{i}', rng.choice(DEADLINES)


def field_deadlines(rng):
    for i in range(100):
        yield 'HSET', f'fields:{i}', *[x for j in range(30) for x in (f'f{j}', j)]
        yield 'HPEXPIRE', f'fields:{i}', rng.choice(DEADLINES), 'FIELDS', 2, f'f{rng.randrange(30)}', 'f0'


def test_everything(pair, node, full, rng, seed):
    """Whatever the replica had is gone, whatever the primary has is there, and stays the same from then on."""
    primary, replica = map(node, pair)
    with_fields = 'redis' not in pair
    with Raw(primary.port, 60) as c:
        everything.fill(c)
        everything.run(c, big())
    with Raw(replica.port, 60) as c:
        everything.run(c, everything.strings())
    for diskless, load in WAYS if full else WAYS[:2]:
        primary.config(repl_diskless_sync=diskless)
        replica.config(repl_diskless_load=load)
        replica.call('MSET', 'of the replica', 'x', 'int:1', 'changed')
        with Raw(primary.port, 60) as c:
            everything.run(c, [*short(rng), *(field_deadlines(rng) if with_fields else [])])
        syncs = Syncs(primary)
        with Traffic(primary, f'{seed}/{diskless}/{load}', fields=with_fields, flush=False) as traffic:
            replica.follow(primary)
            eventually(lambda: linked(replica), 60)
            at = traffic.sent
            eventually(lambda: traffic.sent > at + (20_000 if full else 3000), 60)
        wait_synced(primary, replica)
        assert same(primary, replica) > 300
        assert syncs.since() == (1, 0)
        replica.promote()


def test_several_arrive_together(kind, node, seed):
    """They share one snapshot, and all get the same."""
    primary = node(kind, '--repl-diskless-sync-delay', 1)
    with Raw(primary.port) as c:
        everything.run(c, [*everything.strings(), *everything.collections()])
    replicas = [node(k) for k in ('redis', kind, 'redis', kind)]
    with Traffic(primary, seed):
        for r in replicas:
            r.follow(primary)
        for r in replicas:
            eventually(lambda replica=r: linked(replica), 60)
    wait_synced(primary, *replicas)
    same(primary, *replicas)
    assert primary.stat('sync_full') == 4
    assert primary.fields()['connected_slaves'] == '4'


def test_empty(pair, node):
    primary, replica = map(node, pair)
    replica.call('SET', 'a', 1)
    replica.follow(primary)
    wait_synced(primary, replica)
    assert replica.call('DBSIZE') == 0
    primary.call('SET', 'b', 1)
    wait_synced(primary, replica)
    assert replica.call('KEYS', '*') == [b'b']


@pytest.mark.parametrize('load', ['swapdb', 'disabled'])
def test_never_a_mixture(pair, load, node, proxy):
    """While a new dataset comes in, readers see the old one, or (if it is not kept) an error, then the new one."""
    primary, replica = node(pair[0]), node(pair[1], '--repl-diskless-load', load)
    keys = [b'k:%d' % i for i in range(20_000)]
    for n, version in (primary, b'new'), (replica, b'old'):
        with Raw(n.port) as c:
            everything.run(c, [('SET', k, version + b' ' * 300) for k in keys])
            assert c.call('SELECT', 7) == b'OK'
            everything.run(c, [('SET', 'only', version)])
    slow = proxy(primary)
    slow.pause = 0.005
    replica.follow(slow)
    seen, end = [], time.monotonic() + 60
    with Raw(replica.port) as c:
        while seen[-1:] != [('new',)] and time.monotonic() < end:
            reply = c.call('MGET', keys[0], keys[-1], keys[10_000])
            what = ('LOADING',) if isinstance(reply, str) else tuple(sorted({v.split()[0].decode() for v in reply}))
            if seen[-1:] != [what]:
                seen.append(what)
    busy = [] if load == 'swapdb' and pair[1] != 'redis' else [('LOADING',)]    # Redis: only from its own history
    assert seen in ([('old',), ('new',)], [('old',), *busy, ('new',)]), seen
    wait_synced(primary, replica)
    same(primary, replica)
