"""Several regions on each node: routing, commands for all data, splits, leaders in different places, restarts."""
import socket
import subprocess
import threading
import time

import pytest
import redis
from nodes import Cluster, Node, eventually
from redis.cluster import ClusterNode, RedisCluster

TIMEOUT = ('--cluster-node-timeout', '3000')


def regions(node):
    return node.regions()


def table(node):
    """CLUSTER REGIONS as dicts, by number."""
    try:
        with node.client(socket_timeout=5) as c:
            lines = c.execute_command('CLUSTER', 'REGIONS').splitlines()
    except (redis.ConnectionError, redis.TimeoutError):
        return {}
    rows = {}
    for line in lines:
        number, *fields = line.split(' ')
        rows[int(number)] = dict(f.split('=', 1) for f in fields if '=' in f)
    return rows


def slots_of(row):
    first, last = row['slots'].split('-')
    return int(first), int(last)


def together(cluster, count, voters=None):
    """Waits until every node has so many regions, with all voters, and knows their leaders."""
    voters = voters or len(cluster.nodes)

    def look():
        for n in cluster.nodes:
            if not n.alive():
                continue
            have, rows = regions(n), table(n)
            if len(have) != count or len(rows) != count or any(r['leader'] == '-' for r in rows.values()):
                return False
            if any(int(r['voters']) != voters or int(r['joint']) for r in have.values()):
                return False
        return True
    eventually(look, 90, 0.2)


def caught_up(cluster):
    def look():
        last = {}
        all_of = [regions(n) for n in cluster.nodes if n.alive()]
        for have in all_of:
            for number, r in have.items():
                if r['role'] == 'leader':
                    last[number] = int(r['last'])
        return all(int(r['applied']) >= last.get(number, 1 << 60) for have in all_of for number, r in have.items())
    eventually(look, 60, 0.1)


def cluster_client(cluster):
    return RedisCluster(startup_nodes=[ClusterNode(n.host, n.port) for n in cluster.nodes if n.alive()],
                        decode_responses=True, socket_timeout=20, cluster_error_retry_attempts=30)


@pytest.fixture(scope='module')
def four():
    with Cluster(3, (*TIMEOUT, '--cluster-regions', '4', '--cluster-balance', 'no')) as c:
        together(c, 4)
        yield c


def total(cluster):
    """Keys of all regions: each node counts those that it leads."""
    count = 0
    for n in cluster.nodes:
        with n.client() as c:
            count += c.dbsize() if any(r['role'] == 'leader' for r in regions(n).values()) else 0
    return count


def flush(cluster):
    for n in cluster.nodes:
        with n.client() as c:
            if any(r['role'] == 'leader' for r in regions(n).values()):
                c.flushall()


@pytest.fixture
def client(four):
    flush(four)
    assert total(four) == 0
    with cluster_client(four) as c:
        yield c


def node_id(node):
    with node.client() as c:
        return c.execute_command('CLUSTER', 'MYID')


def leader_of(cluster, number):
    def look():
        for n in cluster.nodes:
            if n.alive() and regions(n).get(number, {}).get('role') == 'leader':
                return n
        return None
    return eventually(look, 60, 0.1)


def transfer(cluster, number, to):
    at = leader_of(cluster, number)
    if at is to:
        return
    with at.client() as c:
        assert c.execute_command('CLUSTER', 'TRANSFER', number, node_id(to)) == 'OK'
    eventually(lambda: regions(to)[number]['role'] == 'leader', 30, 0.1)
    together(cluster, len(regions(to)))


def test_the_slots_are_shared_out(four):
    for n in four.nodes:
        rows = table(n)
        assert sorted(map(slots_of, rows.values())) == [(0, 4095), (4096, 8191), (8192, 12287), (12288, 16383)]
        with n.client() as c:
            ranges = c.execute_command('CLUSTER', 'SLOTS')
            assert [(r[0], r[1]) for r in ranges] == sorted(map(slots_of, rows.values()))
            assert all(len(r[2]) == 4 for r in ranges)
            info = c.execute_command('CLUSTER', 'INFO')
            assert 'cluster_state:ok' in info and 'cluster_slots_ok:16384' in info


def test_keys_of_all_slots(four, client):
    for i in range(2000):
        client.set(f'k{i}', i, px=10_000_000)
    assert total(four) == 2000
    assert all(client.get(f'k{i}') == str(i) for i in range(0, 2000, 13))
    caught_up(four)
    counts = [sum(int(r['keys']) for r in table(n).values()) for n in four.nodes]
    assert counts == [2000] * 3
    for n in four.nodes:
        with n.client() as c:
            c.execute_command('READONLY')
            assert all(c.get(f'k{i}') == str(i) for i in range(0, 2000, 37))


def test_commands_for_all_data(four, client):
    transfer(four, 3, four.nodes[1])
    transfer(four, 4, four.nodes[2])
    names = {f'k{i}' for i in range(1000)}
    for name in names:
        client.set(name, 'v')
    sizes, seen = [], []
    for n in four.nodes:
        with n.client() as c:
            sizes.append(c.dbsize())
            keys = list(c.scan_iter(count=37))
            assert len(keys) == len(set(keys)) == sizes[-1]
            assert sorted(c.keys('*')) == sorted(keys)
            assert not keys or c.randomkey() in keys
            seen += keys
    assert sum(sizes) == 1000 and set(seen) == names and min(sizes) > 0
    with four.nodes[1].client() as c: # empties what it leads, and nothing else
        c.flushall()
        assert c.dbsize() == 0
    assert total(four) == 1000 - sizes[1]
    flush(four)
    assert total(four) == 0


def test_a_pipeline_over_regions_answers_in_order(four, client):
    for i in range(1, 5):
        transfer(four, i, four.nodes[0])
    with four.nodes[0].client() as c:
        for round in range(20):
            p = c.pipeline(transaction=False)
            for i in range(100):
                p.set(f'k{i}', f'{round}.{i}')
                p.get(f'k{i}')
                if i % 10 == 0:
                    p.dbsize()
            answers = [a for a in p.execute() if isinstance(a, str)]
            assert answers == [f'{round}.{i}' for i in range(100)]
        assert c.dbsize() == 100
        with pytest.raises(redis.ResponseError, match='CROSSSLOT'):
            c.mget('k1', 'k2')


def test_a_pipeline_over_regions_is_fetched_together():
    """What the requests of a tick need is read together, region by region, before they run."""
    with Cluster(1, (*TIMEOUT, '--cluster-regions', '4')) as cluster:
        node = cluster.nodes[0]
        together(cluster, 4)
        with node.client() as c:
            p = c.pipeline(transaction=False)
            for i in range(1000):
                p.set(f'k{i}', i)
            assert p.execute() == [True] * 1000
        node.kill()
        node.start()
        together(cluster, 4)
        with node.client() as c:
            before = c.info('rocksdb')
            p = c.pipeline(transaction=False)
            for i in range(1000):
                p.get(f'k{i}')
            assert p.execute() == [str(i) for i in range(1000)]
            after = c.info('rocksdb')
        misses, at_once = (after[k] - before[k] for k in ('row_cache_misses', 'row_cache_misses_together'))
        assert misses >= 1000 and at_once > 900, (misses, at_once)


def test_sort_looks_up_keys_of_its_slot(client):
    """Others may be on another node: they would be taken for missing."""
    client.rpush('{t}l', 1, 2, 3)
    for i, weight in enumerate((5, 9, 7), 1):
        client.set(f'{{t}}w{i}', weight)
        client.hset(f'{{t}}h{i}', 'f', f'v{i}')
    assert client.sort('{t}l', by='{t}w*', get=['#', '{t}h*->f']) == ['1', 'v1', '3', 'v3', '2', 'v2']
    assert client.sort('{t}l', by='nosort', get='#') == ['1', '2', '3']
    for options in ({'by': 'w*'}, {'by': '{w*}'}, {'by': '{}w*'}, {'by': 'w*{t}'}, {'by': '{u}w*'}, {'get': 'w*'}, {'get': '{u}w'}):
        with pytest.raises(redis.ResponseError, match='keys formed by the pattern may be in different slots'):
            client.sort('{t}l', **options)


def test_all_data_is_counted_under_load(four, client):
    """DBSIZE has to find a moment at which no region has an entry in flight."""
    for i in range(1, 5):
        transfer(four, i, four.nodes[0])
    done = threading.Event()

    def write(n):
        with four.nodes[0].client() as c:
            i = 0
            while not done.is_set():
                c.set(f'w{n}.{i % 500}', i)
                i += 1
    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    try:
        with four.nodes[0].client() as c:
            for _ in range(50):
                assert 0 <= c.dbsize() <= 4000
    finally:
        done.set()
        for t in threads:
            t.join()


def test_expiry_in_every_region(four, client):
    for i in range(400):
        client.set(f'k{i}', i, px=300)
    eventually(lambda: total(four) == 0, 30)
    eventually(lambda: all(r['keys'] == '0' for n in four.nodes for r in table(n).values()), 30)


def test_redis_cli_is_content(four, client):
    """Regions led by different nodes: all slots are covered, all nodes agree, each key is counted once."""
    transfer(four, 1, four.nodes[0])
    transfer(four, 3, four.nodes[1])
    for i in range(100):
        client.set(f'k{i}', i)
    leaders = len({leader_of(four, number) for number in (1, 2, 3, 4)})
    for n in four.nodes:
        for what, wanted in (('check', ('All 16384 slots covered', 'All nodes agree about slots')), ('info', ())):
            done = subprocess.run(['redis-cli', '--cluster', what, f'127.0.0.1:{n.port}'], capture_output=True, text=True,
                                  timeout=60, check=False)
            text = done.stdout + done.stderr
            assert done.returncode == 0 and all(w in text for w in (*wanted, f'100 keys in {leaders} masters')), text


def test_members_have_the_same_data(four, client):
    for i in range(300):
        client.set(f'k{i}', i)
    for n in four.nodes:
        with n.client() as c:
            if any(r['role'] == 'leader' for r in regions(n).values()):
                assert c.execute_command('CLUSTER', 'CHECK') == 'OK'

    def compared():
        with four.nodes[0].client() as c:
            info = c.info('cluster')
        assert int(info['digest_mismatches']) == 0
        return sum(1 for k in info if k.startswith('digest') and isinstance(info[k], dict)) == 4
    eventually(compared, 30)


class Load:
    """Clients that count up registers of many slots, and notice what is lost."""

    def __init__(self, cluster, threads=4):
        self.cluster, self.errors, self.counts, self.done = cluster, [], {}, threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(n,)) for n in range(threads)]

    def run(self, n):
        try:
            with cluster_client(self.cluster) as c:
                i = 0
                while not self.done.is_set():
                    name = f'load{n}.{i % 200}'
                    value = c.incr(name)
                    self.counts[name] = self.counts.get(name, 0) + 1
                    assert value == self.counts[name], (name, value, self.counts[name])
                    i += 1
        except Exception as e:  # pylint: disable=broad-except
            self.errors.append(e)

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        for t in self.threads:
            t.join()
        assert not self.errors, self.errors


def split(cluster, slot):
    at = next(n for n in cluster.nodes for number, r in table(n).items()
              if slots_of(r)[0] <= slot <= slots_of(r)[1] and regions(n)[number]['role'] == 'leader')
    with at.client() as c:
        assert c.execute_command('CLUSTER', 'SPLIT', slot) == 'OK'


def test_requests_of_the_tick_of_a_split():
    """What the leader ran before the split in the same tick is committed before it, not with it."""
    with Cluster(3, (*TIMEOUT, '--cluster-balance', 'no')) as cluster:
        together(cluster, 1)
        leader = next(n for n in cluster.nodes if regions(n)[1]['role'] == 'leader')
        for i, slot in enumerate((8192, 4096, 3500)):
            with leader.client() as c:
                wire = c.connection_pool.get_connection('_')
                wire.send_packed_command(wire.pack_commands([
                    ('INCR', '{f}counter'), ('CLUSTER', 'SPLIT', slot), ('INCR', '{f}counter')]))
                assert [wire.read_response() for _ in range(3)] == [2 * i + 1, 'OK', 2 * i + 2]
            together(cluster, i + 2)
        with leader.client() as c:
            assert c.execute_command('CLUSTER', 'CHECK') == 'OK'


@pytest.mark.parametrize('command', ['SPLIT 4096', 'MERGE 1'])
def test_no_split_within_a_transaction(command):
    """It would end the region's tick in the middle: some of what the transaction changed would be in no entry of the log."""
    with Cluster(3, (*TIMEOUT, '--cluster-regions', '2', '--cluster-balance', 'no')) as cluster:
        together(cluster, 2)
        transfer(cluster, 1, cluster.nodes[0])
        transfer(cluster, 2, cluster.nodes[0])
        with cluster.nodes[0].client() as c:
            c.set('{b}c', 3)
            with c.pipeline() as p, pytest.raises(redis.ResponseError, match='not allowed inside a transaction'):
                p.set('{b}a', 1).execute_command('CLUSTER', *command.split())
                p.set('{b}b', 2).execute()
            subcommand, argument = command.split()
            with pytest.raises(redis.ResponseError, match='not allowed from script'):
                c.eval(f"redis.call('CLUSTER', '{subcommand}', '{argument}') redis.call('SET', KEYS[1], 1)", 1, '{b}a')
        caught_up(cluster)
        for n in cluster.nodes:
            with n.client() as c:
                c.execute_command('READONLY')
                assert c.keys('*') == ['{b}c']


def test_splitting_under_load():
    with Cluster(3, TIMEOUT) as cluster:
        with Load(cluster) as load:
            for n, slot in enumerate((8192, 4096, 12288, 100, 16383)):
                time.sleep(0.3)
                split(cluster, slot)
                together(cluster, n + 2)
        with cluster_client(cluster) as c:
            assert all(int(c.get(name)) == count for name, count in load.counts.items())
        assert len(load.counts) > 100
        caught_up(cluster)
        wanted = {f'{first}-{last}' for first, last in
                  ((0, 99), (100, 4095), (4096, 8191), (8192, 12287), (12288, 16382), (16383, 16383))}
        assert all({r['slots'] for r in table(n).values()} == wanted for n in cluster.nodes)
        for n in cluster.nodes: # what it has stored is what it had
            n.kill()
        for n in cluster.nodes:
            n.start()
        together(cluster, 6)
        with cluster_client(cluster) as c:
            assert all(int(c.get(name)) == count for name, count in load.counts.items())
        with cluster.nodes[0].client() as c:
            with pytest.raises(redis.ResponseError, match='begins at this slot already|Ask the node'):
                c.execute_command('CLUSTER', 'SPLIT', 8192)


def test_leaders_are_spread_over_the_nodes():
    with Cluster(3, (*TIMEOUT, '--cluster-regions', '6')) as cluster:
        together(cluster, 6)

        def led():
            return [sum(r['role'] == 'leader' for r in regions(n).values()) for n in cluster.nodes if n.alive()]
        eventually(lambda: led() == [2, 2, 2], 60, 0.3)
        cluster.nodes[1].kill()
        eventually(lambda: led() == [3, 3], 60, 0.3)
        cluster.nodes[1].start()
        eventually(lambda: led() == [2, 2, 2], 90, 0.3)
        assert any('because node' in n.logged() for n in cluster.nodes)
        decisions = []
        for n in cluster.nodes: # each knows its own
            with n.client() as c:
                decisions.append(c.execute_command('CLUSTER', 'REGIONS'))
        assert any('decision=leader to' in d for d in decisions)


def test_a_blocked_client_is_served_after_a_split():
    with Cluster(1, TIMEOUT) as cluster:
        node = cluster.nodes[0]
        got = []
        with node.client() as waiting, node.client() as c:
            t = threading.Thread(target=lambda: got.extend([waiting.blpop('{b}l', 20), waiting.blpop('{a}l', 20)]))
            t.start()
            eventually(lambda: c.info('clients')['blocked_clients'] == 1)
            slot = c.execute_command('CLUSTER', 'KEYSLOT', '{b}')
            assert c.execute_command('CLUSTER', 'SPLIT', slot) == 'OK'
            eventually(lambda: len(table(node)) == 2)
            c.rpush('{b}l', 'x')
            eventually(lambda: got or c.info('clients')['blocked_clients'] == 1)
            c.rpush('{a}l', 'y')
            t.join()
        assert got == [('{b}l', 'x'), ('{a}l', 'y')]


def test_a_watched_key_of_a_split_region():
    with Cluster(1, TIMEOUT) as cluster:
        node = cluster.nodes[0]
        with node.client() as c, node.client() as other:
            p = c.pipeline()
            p.watch('{b}k')
            slot = other.execute_command('CLUSTER', 'KEYSLOT', '{b}')
            assert other.execute_command('CLUSTER', 'SPLIT', slot) == 'OK'
            eventually(lambda: len(table(node)) == 2)
            other.set('{b}k', 'changed')
            p.multi()
            p.set('{b}k', 'mine')
            with pytest.raises(redis.WatchError):
                p.execute()
            assert other.get('{b}k') == 'changed'


def test_a_member_that_missed_a_split_gets_snapshots():
    with Cluster(3, (*TIMEOUT, '--cluster-log-keep-entries', '1')) as cluster:
        with cluster_client(cluster) as c:
            for i in range(500):
                c.set(f'k{i}', i)
            away = cluster.followers()[0]
            away.kill()
            split(cluster, 8192)
            together(cluster, 2, 3)
            for i in range(500):
                c.set(f'k{i}', i + 1, px=10_000_000)
            time.sleep(5) # the logs forget: the members that are left need none of it
            for i in range(500):
                c.set(f'k{i}', i + 2)
            away.start()
            together(cluster, 2)
            caught_up(cluster)
        with away.client() as c:
            c.execute_command('READONLY')
            assert all(c.get(f'k{i}') == str(i + 2) for i in range(500))
            assert sum(int(r['keys']) for r in table(away).values()) == 500
        away.kill()
        away.start()
        together(cluster, 2)
        with away.client() as c:
            c.execute_command('READONLY')
            assert eventually(lambda: c.get('k77') == '79')


def test_a_node_that_has_no_regions_knows_where_they_are(four, client):
    """With cluster-balance no nothing moves to it."""
    import os
    client.set('k', 'v')
    new = Node(os.path.join(four.folder, 'new'), [*TIMEOUT])
    new.start('--cluster-join', f'{four.nodes[0].host}:{four.nodes[0].port}')
    try:
        eventually(lambda: len(table(new)) == 4 and all(r['leader'] != '-' for r in table(new).values()), 90, 0.3)
        assert not regions(new)
        with new.client() as c:
            for command in (('GET', 'k'), ('SET', 'k', 'x'), ('WATCH', 'k'), ('SSUBSCRIBE', 'k')):
                with pytest.raises(redis.ResponseError, match='MOVED 7629 '):
                    c.execute_command(*command)
            assert c.dbsize() == 0 and c.keys('*') == []
            slots = c.execute_command('CLUSTER', 'SLOTS')
        with four.nodes[0].client() as c:
            assert sorted(s[:3] for s in slots) == sorted(s[:3] for s in c.execute_command('CLUSTER', 'SLOTS'))
            name = node_id(new)
            assert c.execute_command('CLUSTER', 'FORGET', name) == 'OK'
        for n in four.nodes:
            with n.client() as c:
                eventually(lambda c=c: name not in str(c.execute_command('CLUSTER', 'NODES')), 60, 0.2)
    finally:
        new.kill()


def test_a_killed_leader_is_replaced_in_every_region(four, client):
    for i in range(1, 5):
        transfer(four, i, four.nodes[2])
    for i in range(200):
        client.set(f'k{i}', i)
    four.nodes[2].kill()
    try:
        rest = four.nodes[:2]
        eventually(lambda: {k for n in rest for k, r in regions(n).items() if r['role'] == 'leader'} == {1, 2, 3, 4}, 60)
        with cluster_client(four) as c:
            assert all(c.get(f'k{i}') == str(i) for i in range(200))
            c.set('k0', 'after')
    finally:
        four.nodes[2].start()
    together(four, 4)
    caught_up(four)
    assert client.get('k0') == 'after'


def test_a_node_whose_bus_port_is_taken_says_so(tmp_path):
    node = Node(str(tmp_path), ('--cluster-regions', '50'))
    with socket.create_server(('127.0.0.1', node.port + 10000)):
        node.start('--cluster-init', 'yes')
        assert node.proc.wait(30) == 1
    assert f'Failed listening on cluster port {node.port + 10000}' in node.logged()
