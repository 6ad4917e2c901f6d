"""Backups of a cluster with several regions on each node, and DEBUG POPULATE there."""
import os
import shutil

import pytest
from nodes import Cluster, eventually
from test_import import backup, run_import
from test_regions import TIMEOUT, Load, caught_up, cluster_client, flush, leader_of, table, together, total, transfer

import redis_server     # of tests/server, which nodes has found


@pytest.fixture(scope='module')
def spread():
    """Two regions are led by one node and one by each of the others."""
    with Cluster(3, (*TIMEOUT, '--cluster-regions', '4', '--cluster-balance', 'no')) as c:
        together(c, 4)
        for number, node in ((1, 0), (2, 1), (3, 0), (4, 2)):
            transfer(c, number, c.nodes[node])
        yield c


def digests(names, client):
    return {name: client.execute_command('DUMP', name) for name in names}


def slots_named(path):
    """Of the field that says so."""
    with open(path, 'rb') as f:
        text = f.read().split(b'mayfly-cluster-slots')[1]
    return text[1:1 + text[0]].decode()


def test_a_backup_of_all_regions(spread, tmp_path):
    flush(spread)
    names = [f'k{i}' for i in range(400)]
    with cluster_client(spread) as c:
        for i, name in enumerate(names):
            c.set(name, i, pxat=4_000_000_000_000 + i)
        wanted = {name: (c.get(name), c.pexpiretime(name)) for name in names}
        with Load(spread): # regions in flight are saved as of their last commit
            files = [backup(n, tmp_path / f'{i}.rdb') for i, n in enumerate(spread.nodes)]
    assert [slots_named(f) for f in files] == ['0-4095,8192-12287', '4096-8191', '12288-16383']
    for f in files:
        redis_server.check_rdb(f)
    with Cluster(1, (*TIMEOUT, '--cluster-regions', '3')) as other:
        together(other, 3)
        assert 'in none of them' in run_import(files[1:], other.nodes[0], code=1)
        run_import(files, other.nodes[0])
        with cluster_client(other) as c:
            assert {name: (c.get(name), c.pexpiretime(name)) for name in names} == wanted
        assert len(names) <= total(other) <= len(names) + 800


def test_a_split_and_a_check_while_it_is_written(spread):
    flush(spread)
    node = spread.nodes[0]
    assert leader_of(spread, 1) is node and leader_of(spread, 3) is node
    with node.client() as c, cluster_client(spread) as all_of_it:
        for i in range(1000):
            all_of_it.set(f'k{i}', i)
        keys = c.dbsize()
        c.config_set('rdb-key-save-delay', '3000')
        c.execute_command('BGSAVE')
        assert c.execute_command('CLUSTER', 'CHECK') == 'OK'
        assert c.execute_command('CLUSTER', 'SPLIT', 2000) == 'OK'
        eventually(lambda: len(table(node)) == 5)
        c.flushall()
        assert c.info('persistence')['rdb_bgsave_in_progress'] == 1
        c.config_set('rdb-key-save-delay', '0')
        eventually(lambda: c.info('persistence')['rdb_bgsave_in_progress'] == 0)
        assert c.info('persistence')['rdb_last_bgsave_status'] == 'ok' and f'{keys} keys' in node.logged()
        assert int(c.info('cluster')['digest_mismatches']) == 0
    os.remove(os.path.join(node.folder, 'dump.rdb'))


def test_save_points_count_all_regions(spread):
    node = spread.nodes[0]
    with node.client() as c, cluster_client(spread) as all_of_it:
        c.config_set('save', '1 200')
        try:
            for i in range(600):
                all_of_it.set(f'k{i}', i)
            path = os.path.join(node.folder, 'dump.rdb')
            eventually(lambda: os.path.exists(path), 30)
        finally:
            c.config_set('save', '')
        eventually(lambda: c.info('persistence')['rdb_bgsave_in_progress'] == 0)
        os.remove(path)


def test_populate_over_all_regions(spread):
    flush(spread)
    for n in spread.nodes:
        with n.client() as c:
            assert c.execute_command('DEBUG', 'POPULATE', 3000, 'p', 20) in ('OK', True)
    assert total(spread) == 3000
    caught_up(spread)
    counts = [sum(int(r['keys']) for r in table(n).values()) for n in spread.nodes]
    assert counts == [3000] * 3
    with cluster_client(spread) as c:
        assert all(c.get(f'p:{i}').rstrip('\0') == f'value:{i}' for i in range(0, 3000, 97))
