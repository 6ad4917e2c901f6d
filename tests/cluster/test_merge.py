"""Regions that are merged: under load, with nodes that are killed, for blocked clients and watched keys."""
import os
import shutil
import subprocess
import threading
import time

import pytest
import redis
from machines import Machines
from nodes import Cluster, eventually
from redis import exceptions
from test_recover import word_for
from test_regions import Load, caught_up, cluster_client, leader_of, regions, slots_of, split, table, together

from mayfly import sanitized      # of tests/server, which nodes has found

OPTIONS = ('--cluster-node-timeout', '3000')
ABSORBED = ('TRYAGAIN', 'Ask the node that leads', 'on the same nodes')   # a merge is asked for again


def upper(node):
    """The region with the last slot."""
    return next(number for number, r in table(node).items() if r['slots'].endswith('-16383'))


def ask(cluster, source):
    """Asks the source's leader for a merge. Whether it was taken."""
    at = next((n for n in cluster.nodes if n.alive() and regions(n).get(source, {}).get('role') == 'leader'), None)
    try:
        if at:
            with at.client(socket_timeout=5) as c:
                return c.execute_command('CLUSTER', 'MERGE', source) == 'OK'
    except redis.ResponseError as e:
        assert any(text in str(e) for text in ABSORBED), e
    except (redis.ConnectionError, redis.TimeoutError):
        pass
    return False


def merge(cluster, source, seconds=90):
    """Merges a region into a neighbour. Leadership may have to move first; a merge may be given up, and is tried again."""
    asked = 0

    def look():
        nonlocal asked
        rows = [table(n) for n in cluster.nodes if n.alive()]
        if all(rows) and not any(source in r for r in rows):
            return True
        if time.monotonic() > asked + 2 and not any(r.get(source, {}).get('state') == 'merging' for r in rows):
            asked = time.monotonic() if ask(cluster, source) else asked
        return False
    eventually(look, seconds, 0.05)


def compared(node):
    """Has the regions compared that the node leads. A digest may be lost, while connections come and go: then it is asked again."""
    with node.client() as c:
        before, leads = int(c.info('cluster')['digest_checks']), sum(r['role'] == 'leader' for r in regions(node).values())
        try:
            if leads:
                c.execute_command('CLUSTER', 'CHECK')
            eventually(lambda: int(c.info('cluster')['digest_checks']) >= before + leads, 10, 0.05)
        except (AssertionError, redis.ResponseError):
            return False
        return True


def check(cluster):
    """All members have the same data, and all nodes tell of the same regions."""
    caught_up(cluster)
    for n in cluster.nodes:
        eventually(lambda n=n: compared(n), 90, 0.1)
    for n in cluster.nodes:
        with n.client() as c:
            assert int(c.info('cluster')['digest_mismatches']) == 0
            spans = sorted(slots_of(r) for r in table(n).values())
            assert spans[0][0] == 0 and spans[-1][1] == 16383
            assert all(a[1] + 1 == b[0] for a, b in zip(spans, spans[1:]))
            assert sorted((r[0], r[1]) for r in c.execute_command('CLUSTER', 'SLOTS')) == spans
            assert 'cluster_slots_ok:16384' in c.execute_command('CLUSTER', 'INFO')


@pytest.fixture(name='three', scope='module')
def three_nodes():
    with Cluster(3, (*OPTIONS, '--cluster-balance', 'no')) as cluster:      # leaders stay where a test wants them
        together(cluster, 1)
        yield cluster


def halves(cluster, slot=8192):
    """Two regions; the number of the upper one."""
    split(cluster, slot)
    together(cluster, 2)
    return upper(cluster.nodes[0])


def lower(cluster, source):
    return next(number for number in table(cluster.nodes[0]) if number != source)


def test_merging_under_load(three):
    """Registers count up, keys live as long as they should, and no client sees an error."""
    with cluster_client(three) as c:
        for i in range(300):
            c.set(f'long{i}', i, px=10_000_000)
        begun = time.monotonic()
        for i in range(300):
            c.set(f'short{i}', i, px=6000)
    with Load(three) as load:
        for slot in (8192, 4096):
            source = halves(three, slot)
            if slot == 4096:    # the lower one goes, into the upper one
                source = lower(three, source)
            at = leader_of(three, source)       # leadership has to be brought together first
            transfer(three, source, next(n for n in three.nodes if n is not at))
            merge(three, source)
            together(three, 1)
    with cluster_client(three) as c:
        assert all(int(c.get(name)) == count for name, count in load.counts.items())
        assert all(9_000_000 < c.pttl(f'long{i}') <= 10_000_000 for i in range(0, 300, 7))
        eventually(lambda: all(c.get(f'short{i}') is None for i in range(0, 300, 11)))
        assert time.monotonic() - begun >= 5.9
    assert len(load.counts) > 50
    check(three)
    if shutil.which('redis-cli'):
        done = subprocess.run(['redis-cli', '--cluster', 'check', f'127.0.0.1:{three.nodes[1].port}'], capture_output=True,
                              text=True, timeout=60, check=False)
        assert done.returncode == 0 and 'All 16384 slots covered' in done.stdout, done.stdout
    for n in three.nodes:       # what is stored is what there was
        n.kill()
    for n in three.nodes:
        n.start()
    together(three, 1)
    with cluster_client(three) as c:
        assert all(int(c.get(name)) == count for name, count in load.counts.items())
        c.flushall()


@pytest.mark.parametrize('point,leads', [('cluster-merge-1', True), ('cluster-merge-2', False)])
def test_a_node_ends_while_it_takes_over(three, point, leads):
    """Before and after its transaction. Whatever was stored, it ends up as the others are."""
    source = halves(three)
    below = lower(three, source)
    leader = leader_of(three, below)
    victim = leader if leads else next(n for n in three.nodes if n is not leader)
    victim.kill()
    victim.env = {'MAYFLY_CRASH_AT': point}
    victim.start()
    together(three, 2)
    if leads:
        transfer(three, below, victim)
    with cluster_client(three) as c:
        for i in range(200):
            c.set(f'k{i}', f'{point}.{i}', px=10_000_000)
    ask(three, source)
    eventually(lambda: not victim.alive() or (not ask(three, source) and False), 60, 0.5)
    victim.env = {}
    victim.start()
    merge(three, source)
    together(three, 1)
    with cluster_client(three) as c:
        assert all(c.get(f'k{i}') == f'{point}.{i}' for i in range(200))
    check(three)


def transfer(cluster, number, to):
    def led():
        at = next((n for n in cluster.nodes if n.alive() and regions(n).get(number, {}).get('role') == 'leader'), None)
        if at and at is not to:
            with at.client() as c, to.client() as t:
                try:
                    c.execute_command('CLUSTER', 'TRANSFER', number, t.execute_command('CLUSTER', 'MYID'))
                except redis.ResponseError as e:
                    assert 'TRYAGAIN' in str(e) or 'has no member' in str(e), e
        return at is to
    eventually(led, 60, 0.2)


def test_a_node_is_killed_during_a_merge(three):
    """At any moment. Merged or not, it ends up as the others are."""
    for n, delay in enumerate((0.01, 0.1)):
        source = halves(three)
        with cluster_client(three) as c:
            for i in range(100):
                c.set(f'k{i}', f'{n}.{i}', px=10_000_000)
        ask(three, source)
        time.sleep(delay)
        victim = three.nodes[n % 3]
        victim.kill()
        victim.start()
        merge(three, source)
        together(three, 1)
        with cluster_client(three) as c:
            assert all(c.get(f'k{i}') == f'{n}.{i}' for i in range(100))
    check(three)


def test_a_merge_needs_every_member(three):
    """Without one it is given up, and both regions go on."""
    source = halves(three)
    leader = leader_of(three, source)
    transfer(three, lower(three, source), leader)
    away = next(n for n in three.nodes if n is not leader)
    away.kill()
    ask(three, source)
    with cluster_client(three) as c:
        for i in range(200):
            c.set(f'k{i}', i)
    assert len(table(leader)) == 2
    away.start()
    together(three, 2)
    merge(three, source)
    together(three, 1)
    with cluster_client(three) as c:
        assert all(c.get(f'k{i}') == str(i) for i in range(200))
    check(three)


@pytest.fixture(name='slow')
def a_cluster_with_slow_disks():
    """And what makes them slow."""
    machines = Machines(3, ('sync',))
    env = {'ASAN_OPTIONS': 'verify_asan_link_order=0'} if sanitized() else {}

    def node(i, *args):
        n = machines.node(i, *args)
        n.env.update(env)
        return n
    try:
        with Cluster(3, (*OPTIONS, '--cluster-log-keep-entries', '1', '--cluster-balance', 'no'), node) as cluster:
            together(cluster, 1)
            yield cluster, machines.dials
    finally:
        machines.close()


def misses_a_merge(cluster, victim, dial, source, leader):
    """Kills a node that has the source's last entry, but not the target's COMMIT: its disk is slow, and always busy with writes of
    the target."""
    done = threading.Event()

    def write():
        with leader.client() as c:
            while not done.is_set():
                c.incr('bar')           # slot 5061, of the target
    keys = threading.Thread(target=write)
    dial.turn(300)
    keys.start()
    try:
        ask(cluster, source)
        eventually(lambda: len(table(leader)) == 1 or (not ask(cluster, source) and False), 60, 0.01)
        victim.kill()
    finally:
        done.set()
        keys.join()
        dial.turn(0)


def test_a_snapshot_across_a_merge(slow):
    """A member has the source's last entry, but not the target's COMMIT, and finds that the logs have gone on without it. What is
    installed takes the place of both regions, also if the node ends when nothing but a row says so."""
    cluster, dials = slow
    for _ in range(8):
        source = halves(cluster)
        target = lower(cluster, source)
        leader = leader_of(cluster, target)
        transfer(cluster, source, leader)
        victim = next(n for n in cluster.nodes if n is not leader)
        with cluster_client(cluster) as c:
            for i in range(500):
                c.set(f'k{i}', 'before', px=10_000_000)
        caught_up(cluster)
        mark = len(victim.logged())
        misses_a_merge(cluster, victim, dials['sync', cluster.nodes.index(victim)], source, leader)
        with cluster_client(cluster) as c:
            for i in range(500):
                c.set(f'k{i}', i, px=10_000_000)
        last = int(regions(leader)[target]['last'])
        eventually(lambda: all(int(regions(n)[target]['first']) > last - 100 for n in cluster.nodes if n is not victim), 60, 0.2)
        env, victim.env = victim.env, {**victim.env, 'MAYFLY_CRASH_AT': 'cluster-merge-3'}
        victim.start()
        eventually(lambda: not victim.alive() or 'was merged into' in victim.logged()[mark:], 60, 0.1)
        victim.env = env
        if not victim.alive():
            break
        together(cluster, 1)    # it had the COMMIT: another time
    else:
        raise AssertionError('the node always had the COMMIT')
    victim.start()
    together(cluster, 1)
    assert f'Installing the snapshot of region {target} again' in victim.logged()
    assert 'was merged into' not in victim.logged()[mark:]
    assert eventually(lambda: read_there(victim, 500), 60, 0.2) == [str(i) for i in range(500)]
    check(cluster)
    victim.kill()
    victim.start()
    together(cluster, 1)
    check(cluster)


def read_there(node, count):
    """What a member has that does not lead; None: it can't ask the leader just now."""
    try:
        with node.client() as c:
            c.execute_command('READONLY')
            return [c.get(f'k{i}') for i in range(count)]
    except (exceptions.MovedError, exceptions.ClusterDownError, exceptions.TryAgainError):
        return None


def test_recovery_while_a_merge_is_prepared():
    """The node that is left is the only member of both regions: it ends the merge by itself."""
    with Cluster(3, ('--cluster-node-timeout', '10000')) as cluster:
        together(cluster, 1)
        with cluster_client(cluster) as c:
            for i in range(300):
                c.set(f'k{i}', i, px=10_000_000)
        source = halves(cluster)
        below = lower(cluster, source)
        left = leader_of(cluster, below)
        transfer(cluster, source, left)
        caught_up(cluster)
        others = [n for n in cluster.nodes if n is not left]
        others[0].kill()        # so that it is prepared, and no more
        eventually(lambda: ask(cluster, source), 60, 0.1)
        eventually(lambda: [r['state'] for r in table(left).values()] == ['merging'] * 2, 30, 0.02)
        others[1].kill()
        for n in others:
            cluster.nodes.remove(n)
        left.start('--cluster-recover', word_for(left))
        eventually(lambda: regions(left) and all(r['role'] == 'leader' for r in regions(left).values()), 60, 0.1)
        eventually(lambda: all(r['state'] == 'serving' for r in table(left).values()), 90, 0.1)
        with cluster_client(cluster) as c:
            assert all(c.get(f'k{i}') == str(i) for i in range(300))
            for i in range(300):
                c.incr(f'k{i}')
        if len(table(left)) == 2:
            merge(cluster, source)
        check(cluster)


# -- by themselves ------------------------------------------------------------------------------------------------


def set_all(cluster, name, value):
    for n in cluster.nodes:
        with n.client() as c:
            c.config_set(name, value)


def test_small_regions_are_merged_by_themselves():
    """Their members are on different nodes, and come together first. Clients notice nothing, and it does not begin again."""
    with Cluster(4, ('--cluster-node-timeout', '3000', '--rocksdb-write-buffer-size', '256kb'), replicas=3) as cluster:
        split(cluster, 8192)
        nodes = cluster.nodes

        def spread():
            rows = table(nodes[0])
            return len(rows) == 2 and len({r['members'] for r in rows.values()}) == 2 and \
                all(len(r['members'].split(',')) == 3 and r['state'] == 'serving' for r in rows.values())
        eventually(spread, 90, 0.2)
        with cluster_client(cluster) as c:
            for i in range(300):
                c.set(f'k{i}', i, px=10_000_000)
        with Load(cluster, 2) as load:
            set_all(cluster, 'cluster-region-min-size', '16mb')
            eventually(lambda: len(table(nodes[0])) == 1, 120, 0.2)
            eventually(lambda: all(len(table(n)) == 1 for n in nodes), 60, 0.1)
        with cluster_client(cluster) as c:
            assert all(c.get(f'k{i}') == str(i) for i in range(300))
            assert all(int(c.get(name)) == count for name, count in load.counts.items())
        assert any('merged into region' in n.logged() and 'and with its neighbour' in n.logged() for n in nodes)
        assert any('to be where region' in n.logged() for n in nodes)
        check(cluster)


def test_regions_whose_data_was_deleted_are_merged():
    """Regions that had grown until they split. They are not split again."""
    with Cluster(1, (*OPTIONS, '--rocksdb-write-buffer-size', '256kb', '--cluster-region-max-size', '1mb',
                     '--cluster-region-min-size', '400kb')) as cluster:
        node, = cluster.nodes
        with node.client(decode_responses=False) as c:
            for i in range(0, 1600, 100):
                with c.pipeline(transaction=False) as p:
                    for k in range(i, i + 100):
                        p.set(f'k{k}', os.urandom(1024))
                    p.execute()
            eventually(lambda: len(table(node)) >= 2, 60, 0.1)
            c.flushall()
            for i in range(200):
                c.set(f'k{i}', i)
            eventually(lambda: len(table(node)) == 1, 120, 0.2)
            assert all(c.get(f'k{i}') == b'%d' % i for i in range(200)) and c.dbsize() == 200
        said = node.logged()
        assert said.rindex('is split at slot') < said.index('was merged into')
        assert said.count('is split at slot') == said.count('was merged into')


def test_members_that_nobody_missed():
    """A node that was replaced while it was away comes back with members of both regions, one of which is no more. It is told of
    the merge by those it speaks to, and has nothing in the end; then it may get the region again."""
    with Cluster(4, ('--cluster-node-timeout', '1500', '--cluster-node-dead-after', '4'), replicas=3) as cluster:
        split(cluster, 8192)
        eventually(lambda: len(table(cluster.nodes[0])) == 2, 60, 0.1)
        eventually(lambda: any(len(regions(n)) == 2 for n in cluster.nodes[1:]), 60, 0.1)
        victim = next(n for n in cluster.nodes[1:] if len(regions(n)) == 2)
        rest = [n for n in cluster.nodes if n is not victim]
        with cluster_client(cluster) as c:
            for i in range(100):
                c.set(f'k{i}', i, px=10_000_000)
        victim.kill()
        eventually(lambda: all(len(regions(n)) == 2 and all(int(r['voters']) == 3 and not int(r['joint']) for r in regions(n).values())
                               for n in rest), 120, 0.2)
        merge(cluster, upper(rest[0]))
        victim.start()
        eventually(lambda: victim.info() and len(table(victim)) == 1 and not regions(victim), 90, 0.1)
        with victim.client() as c:
            assert c.info('cluster')['digest_mismatches'] == 0 and c.dbsize() == 0
        with cluster_client(cluster) as c:
            assert all(c.get(f'k{i}') == str(i) for i in range(100))


# -- clients -------------------------------------------------------------------------------------------------------


@pytest.fixture(name='one', scope='module')
def one_node():
    with Cluster(1, OPTIONS) as cluster:
        yield cluster, cluster.nodes[0]


@pytest.fixture(name='split_one')
def two_regions(one):
    """The key {b} is in the upper one."""
    cluster, node = one
    with node.client() as c:
        assert c.execute_command('CLUSTER', 'SPLIT', c.execute_command('CLUSTER', 'KEYSLOT', '{b}')) == 'OK'
        eventually(lambda: len(table(node)) == 2)
        yield cluster, node, upper(node)
        eventually(lambda: len(table(node)) == 1)
        c.flushall()


def test_a_blocked_client_is_served_after_a_merge(split_one):
    cluster, node, source = split_one
    got = []
    with node.client() as waiting, node.client() as c:
        t = threading.Thread(target=lambda: got.append(waiting.blpop('{b}l', 40)))
        t.start()
        eventually(lambda: c.info('clients')['blocked_clients'] == 1)
        merge(cluster, source)
        assert c.info('clients')['blocked_clients'] == 1
        c.rpush('{b}l', 'x')
        t.join()
    assert got == [('{b}l', 'x')]


def test_a_watched_key_of_a_merged_region(split_one):
    cluster, node, source = split_one
    with node.client() as c, node.client() as other:
        p = c.pipeline()
        p.watch('{b}k')
        merge(cluster, source)
        other.set('{b}k', 'changed')
        p.multi()
        p.set('{b}k', 'mine')
        with pytest.raises(redis.WatchError):
            p.execute()
        assert other.get('{b}k') == 'changed'


def test_subscribers_walks_and_waits_go_on(split_one):
    cluster, node, source = split_one
    with node.client() as c:
        names = {f'k{i}' for i in range(2000)}
        for name in names:
            c.set(name, 1)
        c.set('{b}', 1)
        names.add('{b}')
        with node.client() as s:
            p = s.pubsub()
            p.execute_command('SSUBSCRIBE', '{b}channel')
            eventually(lambda: p.parse_response()[0] == 'ssubscribe')
            cursor, seen = c.scan(0, count=300)
            seen = set(seen)
            merge(cluster, source)
            while cursor:
                cursor, some = c.scan(cursor, count=300)
                seen |= set(some)
            assert seen == names and c.dbsize() == len(names)
            c.execute_command('SPUBLISH', '{b}channel', 'hello')
            assert p.parse_response()[2] == 'hello'
        assert c.execute_command('WAITAOF', 1, 0, 20_000)[0] == 1    # the last write was in the region that is gone
        assert c.execute_command('CLUSTER', 'COUNTKEYSINSLOT', c.execute_command('CLUSTER', 'KEYSLOT', '{b}')) >= 1


def test_a_backup_meanwhile_begins_again(split_one):
    cluster, node, source = split_one
    with node.client() as c:
        c.execute_command('DEBUG', 'POPULATE', 30000, 'k', 200)
        before = c.lastsave()
        eventually(lambda: time.time() > before.timestamp() + 1, 10, 0.1)
        c.bgsave()
        merge(cluster, source)
        eventually(lambda: c.lastsave() > before and not c.info('persistence')['rdb_bgsave_in_progress'], 60, 0.1)
        assert c.info('persistence')['rdb_last_bgsave_status'] == 'ok'
        assert c.dbsize() == 30000


def test_wrong_merges_are_refused(one):
    _, node = one
    with node.client() as c:
        for region in (99, 12345):
            with pytest.raises(redis.ResponseError, match='Ask the node'):
                c.execute_command('CLUSTER', 'MERGE', region)
        for wrong in ('x', '0', '-1'):
            with pytest.raises(redis.ResponseError, match='integer|range|positive'):
                c.execute_command('CLUSTER', 'MERGE', wrong)
        only, = table(node)
        with pytest.raises(redis.ResponseError, match='no neighbour'):
            c.execute_command('CLUSTER', 'MERGE', only)
