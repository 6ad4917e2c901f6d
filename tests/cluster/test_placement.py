"""Regions on some of the nodes: spread evenly, moved to nodes that join, away from nodes that die or are forgotten."""
import os

import pytest
import redis
from nodes import Cluster, Node, Stopped, eventually
from redis.cluster import RedisCluster
from test_regions import Load, cluster_client, leader_of, regions, slots_of, table

OPTIONS = ('--cluster-node-timeout', '5000', '--cluster-node-dead-after', '5')
REPLICAS = 3


def node_id(node):
    """Also of a node that was just started."""
    def look():
        try:
            with node.client() as c:
                return c.execute_command('CLUSTER', 'MYID')
        except redis.ConnectionError:
            return None
    return eventually(look, 60, 0.1)


def spread(rows, nodes, what):
    """How many members or regions led each node has, fewest first."""
    counts = {n[:8]: 0 for n in nodes}
    for r in rows.values():
        for n in (r['members'].split(',') if what == 'members' else [r['leader']]):
            if n not in counts:
                return None
            counts[n] += 1
    return sorted(counts.values())


def even(counts):
    return counts is not None and counts[-1] - counts[0] <= 1


def settled(cluster, count):
    """Waits until there are so many regions, each with three members on different nodes of those that live, members
    and leaders are evenly spread, no change is under way, every node says so, and has the members that it should have."""
    nodes = [n for n in cluster.nodes if n.alive()]
    names = [node_id(n) for n in nodes]

    def look():
        for n, name in zip(nodes, names):
            rows, have = table(n), regions(n)
            if len(rows) != count or any(len(r['members'].split(',')) != REPLICAS for r in rows.values()):
                return False
            if any(r['state'] != 'serving' for r in rows.values()):
                return False
            if not even(spread(rows, names, 'members')) or not even(spread(rows, names, 'leaders')):
                return False
            mine = {number for number, r in rows.items() if name[:8] in r['members']}
            if set(have) != mine or any(int(r['learners']) for r in have.values()):
                return False
        return True
    eventually(look, 120, 0.3)
    return table(nodes[0])


def fill(client, count=300):
    for i in range(count):
        client.set(f'k{i}', i)


def check(client, count=300):
    assert all(client.get(f'k{i}') == str(i) for i in range(count))


def has_only_its_own(node, rows):
    """A node counts the keys of its members: nothing of others is left."""
    name = node_id(node)[:8]
    wanted = sum(int(r['keys']) for r in rows.values() if name in r['members'])
    with node.client() as c:
        c.execute_command('READONLY')
        stats = c.execute_command('CLUSTER', 'SLOT-STATS', 'SLOTSRANGE', 0, 16383)
    total = sum(entry[1][1] if isinstance(entry[1], list) else entry[1]['key-count'] for entry in stats)
    assert total == wanted, (total, wanted)


@pytest.fixture(scope='module')
def four():
    with Cluster(4, (*OPTIONS, '--cluster-regions', '8'), replicas=REPLICAS) as c:
        settled(c, 8)
        yield c


def test_every_node_knows_every_region(four):
    rows = settled(four, 8)
    assert sorted(map(slots_of, rows.values())) == [(i * 2048, i * 2048 + 2047) for i in range(8)]
    assert spread(rows, [node_id(n) for n in four.nodes], 'members') == [6, 6, 6, 6]
    with cluster_client(four) as c:
        fill(c)
        check(c)
    for n in four.nodes:
        with n.client() as c:
            info = c.execute_command('CLUSTER', 'INFO')
            assert 'cluster_state:ok' in info and 'cluster_size:4' in info and 'cluster_known_nodes:4' in info
            for i in range(50): # the leader answers, every other node says where it is
                try:
                    assert c.get(f'k{i}') == str(i)
                except redis.ResponseError as e:
                    host, port = str(e).split(' ')[-1].split(':')
                    at = next(o for o in four.nodes if o.port == int(port))
                    with at.client() as other:
                        assert other.get(f'k{i}') == str(i)


def test_functions_are_everywhere(four):
    library = "#!lua name=lib\nredis.register_function('put', function(k, a) return redis.call('SET', k[1], a[1]) end)"
    at = four.leader()
    with next(n for n in four.nodes if n is not at).client() as c:
        with pytest.raises(redis.ResponseError, match=f'MOVED 0 {at.host}:{at.port}'):
            c.execute_command('FUNCTION', 'LOAD', library)
    with at.client() as c:
        assert c.execute_command('FUNCTION', 'LOAD', 'REPLACE', library) == 'lib'
        with c.pipeline() as p:
            p.execute_command('FUNCTION', 'FLUSH')
            p.execute_command('FUNCTION', 'LOAD', library)
            assert p.execute()[1] == 'lib'
        with pytest.raises(redis.ResponseError, match='functions and keys'), c.pipeline() as p:
            p.execute_command('FUNCTION', 'FLUSH')
            p.set('k', 1)
            p.execute()
    for n in four.nodes:
        with n.client() as c:
            eventually(lambda c=c: 'lib' in str(c.execute_command('FUNCTION', 'LIST')), 30)
    with cluster_client(four) as c:
        for i in range(30):
            assert c.fcall('put', 1, f'f{i}', i) == 'OK' and c.get(f'f{i}') == str(i)


def test_a_member_that_was_away_when_it_was_removed_goes(four):
    with cluster_client(four) as c:
        fill(c)
    before = settled(four, 8)
    away = next(n for n in four.nodes if not n.leads())
    name = node_id(away)[:8]
    had = {number for number, r in before.items() if name in r['members']}
    rest = [n for n in four.nodes if n is not away]
    with Stopped(away):
        def replaced():
            rows = table(rest[0])
            return len(rows) == 8 and all(name not in r['members'] and len(r['members'].split(',')) == REPLICAS
                                          for r in rows.values())
        eventually(replaced, 120, 0.3)
        with RedisCluster(host=rest[0].host, port=rest[0].port, decode_responses=True, socket_timeout=20) as c:
            fill(c, 400)
    eventually(lambda: away.logged().count('was removed: its data is deleted') >= len(had), 60, 0.2)
    rows = settled(four, 8)             # it gets members again
    with cluster_client(four) as c:
        check(c, 400)
    eventually(lambda: has_only_its_own(away, table(away)) is None, 30)
    away.kill()                         # what it has stored says the same
    away.start()
    rows = settled(four, 8)
    has_only_its_own(away, rows)
    with cluster_client(four) as c:
        check(c, 400)


def test_a_dead_node_is_replaced_and_comes_back(four):
    settled(four, 8)
    dead = four.nodes[-1]
    name = node_id(dead)[:8]
    with cluster_client(four) as c:
        fill(c, 500)
    dead.kill()
    rest = four.nodes[:-1]
    eventually(lambda: all(name not in r['members'] for n in rest for r in table(n).values() or [{'members': name}]), 120, 0.3)
    settled(four, 8)
    with cluster_client(four) as c:
        check(c, 500)
    dead.start()
    settled(four, 8)
    with cluster_client(four) as c:
        check(c, 500)


def test_a_node_joins_and_a_node_leaves_under_load(tmp_path):
    with Cluster(3, (*OPTIONS, '--cluster-regions', '6')) as cluster:
        settled(cluster, 6)
        new = Node(os.path.join(cluster.folder, 'new'), cluster.nodes[0].options)
        with Load(cluster) as load:
            new.start('--cluster-join', f'{cluster.nodes[0].host}:{cluster.nodes[0].port}')
            cluster.nodes.append(new)
            eventually(lambda: len(table(new)) == 6, 60, 0.2)
            rows = settled(cluster, 6)
            assert spread(rows, [node_id(n) for n in cluster.nodes], 'members') == [4, 4, 5, 5]
            leaves = leader_of(cluster, 1)      # a leader hands on what it leads
            name = node_id(leaves)
            with next(n for n in cluster.nodes if n is not leaves).client() as c:
                assert c.execute_command('CLUSTER', 'FORGET', name) == 'OK'
            rest = [n for n in cluster.nodes if n is not leaves]

            def left():
                for n in rest:
                    with n.client() as c:
                        if name in str(c.execute_command('CLUSTER', 'NODES')):
                            return False
                return True
            eventually(left, 120, 0.3)
            assert not any(name[:8] in r['members'] for n in rest for r in table(n).values())
            leaves.kill()
            cluster.nodes.remove(leaves)
            settled(cluster, 6)
        with cluster_client(cluster) as c:
            assert all(int(c.get(key)) == count for key, count in load.counts.items())
        assert len(load.counts) > 100


def test_a_follower_read_of_a_member_that_was_replaced():
    """The node that was asked loses its member of the region before it has its answer, and later gets another one: that one counts
    reads anew."""
    with Cluster(4, (*OPTIONS, '--cluster-regions', '1'), replicas=3) as cluster:
        settled(cluster, 1)
        has = [n for n in cluster.nodes if 1 in regions(n)]
        leader, spare = leader_of(cluster, 1), next(n for n in cluster.nodes if n not in has)
        asked = next(n for n in has if n is not leader)
        name = node_id(asked)[:8]
        with leader.client() as c:
            c.set('k', 'v')
        with asked.client() as c:
            wire = c.connection_pool.get_connection('_')

            def ask(*command):
                wire.send_command(*command)
                return wire.read_response()
            assert ask('READONLY') == 'OK'
            assert all(ask('GET', 'k') == 'v' for _ in range(300))
            with Stopped(asked):
                wire.send_command('GET', 'k')
                eventually(lambda: table(leader) and name not in table(leader)[1]['members'], 60, 0.1)
            with pytest.raises(redis.ResponseError, match='MOVED'):
                wire.read_response()
            eventually(lambda: 1 not in regions(asked), 60, 0.1)
            spare.kill()
            eventually(lambda: table(asked).get(1, {}).get('state') == 'serving' and name in table(asked)[1]['members'] and
                       regions(asked).get(1, {}).get('slots', '-') != '-', 60, 0.1)
            assert ask('GET', 'k') == 'v'
