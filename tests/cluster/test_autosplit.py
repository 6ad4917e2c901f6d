"""Regions that grow too large split themselves."""
import os
import threading

import pytest
from nodes import Cluster, eventually
from test_regions import Load, cluster_client, regions, slots_of, table

OPTIONS = ('--cluster-node-timeout', '3000', '--rocksdb-write-buffer-size', '4mb', '--cluster-region-max-size', '1mb')


def fill(cluster, threads, keys, size):
    """Clients that write random values, in a loop each. What they wrote, by key; and what went wrong."""
    written, errors = {}, []

    def run(n):
        try:
            with cluster_client(cluster) as c:
                for i in range(keys // threads):
                    value = os.urandom(size // 2).hex()
                    c.set(f'k{n}.{i}', value)
                    written[f'k{n}.{i}'] = value
        except Exception as e:  # pylint: disable=broad-except
            errors.append(e)
    running = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for t in running:
        t.start()
    for t in running:
        t.join()
    return written, errors


def led(cluster):
    return [sum(r['role'] == 'leader' for r in regions(n).values()) for n in cluster.nodes]


def balanced(counts, total):
    return sum(counts) == total and max(counts) - min(counts) <= 1


def check_splits(options, megabytes, limit, seconds):
    with Cluster(3, (*options, '--cluster-regions', '1')) as cluster:
        assert len(table(cluster.nodes[0])) == 1
        written, errors = fill(cluster, 4, megabytes * 256, 4096)
        assert not errors, errors

        def settled():
            rows = table(cluster.nodes[0])
            sizes = [int(r['bytes']) for r in rows.values()]
            return max(sizes) <= limit and sum(sizes) > (megabytes << 20) * 0.8 and balanced(led(cluster), len(rows))
        eventually(settled, seconds, 0.5)
        rows = table(cluster.nodes[0])
        print(f'{len(rows)} regions, the largest {max(int(r["bytes"]) for r in rows.values())} bytes; leaders {led(cluster)}')
        spans = sorted(map(slots_of, rows.values()))
        assert spans[0][0] == 0 and spans[-1][1] == 16383
        assert all(a[1] + 1 == b[0] for a, b in zip(spans, spans[1:]))
        assert (megabytes << 20) / limit <= len(rows) <= 4 * (megabytes << 20) / limit
        with cluster_client(cluster) as c:
            assert all(c.get(k) == v for k, v in list(written.items())[::7])
        assert any(f'more than {limit}' in n.logged() for n in cluster.nodes)


def test_a_region_splits_until_all_are_small():
    check_splits(OPTIONS, 12, 1 << 20, 90)


@pytest.mark.skipif('MAYFLY_SPLIT_MB' not in os.environ, reason='takes minutes: make cluster-large')
def test_with_the_default_limit():
    check_splits(OPTIONS[:2], int(os.environ.get('MAYFLY_SPLIT_MB', '')), 96 << 20, 300)


def test_a_region_of_one_slot_is_too_large():
    with Cluster(1, OPTIONS) as cluster:
        node = cluster.nodes[0]
        with node.client() as c:
            for i in range(600):
                c.set(f'{{tag}}{i}', os.urandom(2048).hex())
            slot = c.execute_command('CLUSTER', 'KEYSLOT', '{tag}')
        wanted = f"can't be split: all are in slot {slot}"
        eventually(lambda: wanted in node.logged(), 60, 0.3)
        assert (slot, slot) in map(slots_of, table(node).values())
        with node.client() as c: # only if nothing else is, and without a limit nothing is
            c.config_set('cluster-region-max-size', '0')
            assert c.get('{tag}1')
        assert node.logged().count("can't be split") == 1


class Requests(Load):
    """Clients that ask for the same keys in turn."""

    def __init__(self, cluster, names):
        super().__init__(cluster, 3)
        self.names = names

    def run(self, n):
        try:
            with cluster_client(self.cluster) as c:
                while not self.done.is_set():
                    for name in self.names:
                        c.incr(name)
        except Exception as e:  # pylint: disable=broad-except
            self.errors.append(e)


def test_a_busy_region_is_split_where_its_load_is():
    """All requests are for a few slots at one end: a split by size, or in the middle, would not help."""
    with Cluster(3, ('--cluster-node-timeout', '3000', '--cluster-regions', '1')) as cluster:
        with cluster.leader().client() as c:
            names = sorted((n for n in (f'k{i}' for i in range(2000)) if c.execute_command('CLUSTER', 'KEYSLOT', n) < 1000),
                           key=lambda n: c.execute_command('CLUSTER', 'KEYSLOT', n))
            low, high = (c.execute_command('CLUSTER', 'KEYSLOT', names[i * len(names) // 8]) for i in (1, 7))
        with Requests(cluster, names):
            for n in cluster.nodes:
                with n.client() as c:
                    c.config_set('cluster-region-max-load', '1')
            eventually(lambda: len(table(cluster.nodes[0])) > 1, 60, 0.1)
            for n in cluster.nodes:
                with n.client() as c:
                    c.config_set('cluster-region-max-load', '0')
        first = min(last + 1 for _, last in map(slots_of, table(cluster.nodes[0]).values()))
        assert low <= first <= high
        assert any('requests a second, more than 1' in n.logged() for n in cluster.nodes)


def test_a_busy_slot_is_left_where_it_is():
    with Cluster(1, ('--cluster-regions', '1', '--cluster-region-max-load', '1')) as cluster:
        node = cluster.nodes[0]
        with Requests(cluster, ['k']):
            eventually(lambda: 'one slot has most of them' in node.logged(), 60, 0.1)
            assert int(table(node)[1]['load']) > 1
        assert len(table(node)) == 1
