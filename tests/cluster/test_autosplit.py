"""Regions that grow too large split themselves."""
import os
import threading

import pytest
from nodes import Cluster, eventually
from test_regions import cluster_client, regions, slots_of, table

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
