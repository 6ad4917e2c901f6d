"""Snapshots to members that are new or far behind; metrics of a cluster."""
import contextlib
import os
import random
import signal
import sys
import threading
import time

import pytest
import redis
from machines import Machines
from nodes import Cluster, Node, eventually, free_port

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'server'))
import test_monitoring  # noqa: E402
from test_metrics import scrape  # noqa: E402

PATIENT = ('--cluster-node-timeout', '3000')
TWO_REGIONS = ('--cluster-regions', '2', '--cluster-balance', 'no')


def fill(client, prefix, count, size=1000):
    """Values that don't compress."""
    rng = random.Random(prefix)
    for first in range(0, count, 200):
        with client.pipeline(transaction=False) as p:
            for i in range(first, min(first + 200, count)):
                p.set(f'{prefix}{i}', rng.randbytes(size))
            p.execute()


def info(node):
    """INFO cluster, or {} while it does not listen yet."""
    try:
        with node.client() as c:
            return c.info('cluster')
    except redis.ConnectionError:
        return {}


def logged_since(node, mark):
    return node.logged()[mark:]


def test_a_snapshot_is_throttled_while_the_leader_serves(tmp_path):
    with Cluster(1, (*PATIENT, '--cluster-snapshot-rate-limit', '2mb')) as c:
        leader = c.nodes[0]
        with leader.client() as w:
            fill(w, 'k', 8000)      # 8 MB
            new = Node(str(tmp_path / 'new'), leader.options)
            new.start('--cluster-join', f'127.0.0.1:{leader.port}')
            c.nodes.append(new)

            def sending():      # region 0 goes first
                out = info(leader).get('snapshot_out', {})
                return out if out.get('region') == 1 else None
            out = eventually(sending, 60, 0.05)
            begun, writes = time.monotonic(), 0
            assert len(out['node']) == 40 and out['state'] in ('sending', 'sent')
            progress = set()
            while sending():
                w.set('during', writes)
                writes += 1
                progress.add(info(leader).get('snapshot_out', {}).get('bytes'))
            assert time.monotonic() - begun > 2     # 8 MB at 2 MB/s, less what was sent before the first look
            assert writes > 20 and len(progress) > 3
        c.settled(2)
        assert info(leader)['snapshots_sent'] == 2 and info(new)['snapshots_installed'] == 2
        assert 'Installing the snapshot' in new.logged() and 'was sent' in leader.logged()
        with new.client() as r:
            r.execute_command('READONLY')
            assert r.dbsize() == 8001 and r.get('during') == str(writes - 1)


def test_killed_while_installing_it_has_the_old_data_or_the_new():
    options = (*PATIENT, '--cluster-log-keep-entries', '20')
    with Cluster(3, options) as c:
        victim = c.followers()[0]
        others = [n for n in c.nodes if n is not victim]
        with c.leader().client() as w:
            fill(w, 'old', 2000)
        c.settled(3)
        for attempt in range(4):
            victim.kill()
            applied = int(eventually(c.leader).region()['applied'])
            with c.leader().client() as w:
                w.flushall()
                fill(w, f'new{attempt}-', 6000 + attempt)
                for i in range(60):
                    w.set(f'new{attempt}-more{i}', 1)
            eventually(lambda: int(c.leader().region()['first']) > applied + 1, 60)
            mark = len(victim.logged())
            victim.start()
            eventually(lambda: 'Installing the snapshot' in logged_since(victim, mark), 90, 0.005)
            time.sleep((0, 0.02, 0.1, 0.3)[attempt])
            victim.kill()
            for n in others:
                n.proc.send_signal(signal.SIGSTOP)
            try:
                mark = len(victim.logged())
                victim.start()
                eventually(lambda: 'Ready to accept' in logged_since(victim, mark), 60)
                with victim.client() as r:
                    names = r.keys('*')
                    kinds = {'old' if k.startswith('old') else k.split('-')[0] for k in names}
                    assert len(kinds) == 1, kinds
                    kind = kinds.pop()
                    assert len(names) == (2000 if kind == 'old' else 6060 + int(kind[3:])), (kind, len(names))
            finally:
                for n in others:
                    n.proc.send_signal(signal.SIGCONT)
            c.settled(3, 180)


def test_killed_at_each_step_of_an_installation_it_has_the_new_data():
    """On a node with several regions: what was recorded is installed again at the start, without the others."""
    points = ('install-emptied', 'install-slice', 'install-slice:5', 'install-stored', 'install-synced')
    with Cluster(3, (*PATIENT, '--cluster-log-keep-entries', '20', *TWO_REGIONS)) as c:
        for attempt, point in enumerate(points):
            victim = c.followers()[0]
            victim.kill()
            applied = int(eventually(c.leader).region()['applied'])
            with c.leader().client() as w:      # slot 3300 is in region 1
                w.flushall()
                fill(w, f'{{b}}{attempt}-', 4000)
                for i in range(60):
                    w.set('{b}n', i)
            eventually(lambda: int(c.leader().region()['first']) > applied + 1, 60)
            victim.env = {'MAYFLY_CRASH_AT': point}
            victim.start()
            eventually(lambda: not victim.alive(), 90, 0.01)
            others = [n for n in c.nodes if n is not victim]
            for n in others:
                n.proc.send_signal(signal.SIGSTOP)
            try:
                victim.env, mark = {}, len(victim.logged())
                victim.start()
                eventually(lambda: 'Ready to accept' in logged_since(victim, mark), 60)
                with victim.client() as r:
                    names = r.keys('{b}*')
                    assert len(names) == 4001 and {k[3] for k in names} == {'n', str(attempt)}, (point, len(names))
            finally:
                for n in others:
                    n.proc.send_signal(signal.SIGCONT)
            c.settled(3, 180)
            assert [f for f in os.listdir(victim.folder) if f.startswith('raft-snapshot')] == [], point


@pytest.fixture
def slow(monkeypatch):
    """Machines whose disks can be made slow."""
    monkeypatch.setenv('ASAN_OPTIONS', ':'.join((os.environ.get('ASAN_OPTIONS', ''), 'verify_asan_link_order=0')))
    with contextlib.closing(Machines(3, ('sync',))) as machines:
        yield machines


def storing(c, machines, victim):
    """Leaves one member so far behind that it gets a snapshot, and returns when all of it has come but the disk takes its time."""
    had = int(victim.region()['last'])
    victim.kill()
    with c.leader().client() as w:
        fill(w, 'k', 6000)
        for i in range(60):
            w.set('n', i)
    eventually(lambda: int(c.leader().region()['first']) > had + 1, 60)
    victim.start()
    eventually(lambda: info(victim).get('snapshot_in', {}).get('state') == 'receiving', 60, 0.005)
    machines.dials['sync', c.nodes.index(victim)].turn(5000)

    def all_has_come():
        to, came = info(c.leader()).get('snapshot_out', {}), info(victim).get('snapshot_in', {})
        return to.get('state') == 'sent' and to['bytes'] == came.get('bytes')
    eventually(all_has_come, 60, 0.005)


FAR_BEHIND = (*PATIENT, '--cluster-log-keep-entries', '20', '--cluster-snapshot-rate-limit', '4mb')


def test_the_sender_dies_while_a_snapshot_is_stored(slow):
    with Cluster(3, FAR_BEHIND, slow.node) as c:
        victim, old = c.followers()[0], c.leader()
        storing(c, slow, victim)
        old.kill()
        slow.dials['sync', c.nodes.index(victim)].turn(0)
        old.start()
        c.settled(3)
        assert victim.alive() and info(victim)['snapshots_installed'] >= 1


def test_the_file_stays_until_what_was_loaded_is_synced(slow):
    """Otherwise a power cut would leave a node that has to install a file it no longer has."""
    with Cluster(3, (*FAR_BEHIND, *TWO_REGIONS), slow.node) as c:
        victim = c.followers()[0]
        had = int(victim.region()['last'])
        victim.kill()
        with c.leader().client() as w:      # slot 3300 is in region 1
            fill(w, '{b}', 6000)
            for i in range(60):
                w.set('{b}n', i)
        eventually(lambda: int(c.leader().region()['first']) > had + 1, 60)
        mark = len(victim.logged())
        victim.start()
        eventually(lambda: 'Installing the snapshot of region 1' in logged_since(victim, mark), 90, 0.001)
        slow.dials['sync', c.nodes.index(victim)].turn(5000)
        path = os.path.join(victim.folder, 'raft-snapshot-1.rdb')

        def loaded():
            of = info(victim).get('snapshot_loading0')
            return of and of['bytes'] == of['bytes_total']
        eventually(loaded, 60, 0.01)
        assert os.path.exists(path) and 'snapshot of region 1 is installed' not in logged_since(victim, mark)
        slow.dials['sync', c.nodes.index(victim)].turn(0)
        c.settled(3)
        eventually(lambda: not os.path.exists(path))


def test_shut_down_while_a_snapshot_is_stored(slow):
    with Cluster(3, FAR_BEHIND, slow.node) as c:
        victim = c.followers()[0]
        storing(c, slow, victim)
        assert victim.stop() == 0
        slow.dials['sync', c.nodes.index(victim)].turn(0)
        victim.start()
        c.settled(3)


def test_a_member_far_behind_is_brought_up_while_clients_write():
    with Cluster(3, (*PATIENT, '--cluster-log-keep-entries', '20')) as c:
        victim = c.followers()[0]
        had = int(victim.region()['last'])
        victim.kill()
        with c.leader().client() as w:
            fill(w, 'k', 3000)
            for i in range(200):
                w.set('n', i)
        eventually(lambda: int(c.leader().region()['first']) > had + 1, 120)   # the log no longer has what it missed
        stop, wrote = threading.Event(), []

        def writer():
            while not stop.is_set():
                c.try_all('INCR', 'n')
                wrote.append(1)
                time.sleep(0.005)   # fewer entries than the log keeps while the snapshot is on its way
        t = threading.Thread(target=writer)
        t.start()
        try:
            victim.start()
            eventually(lambda: info(victim).get('snapshots_installed', 0) >= 1, 120)
            c.settled(3, 120)
        finally:
            stop.set()
            t.join(60)
        assert len(wrote) > 5
        c.settled(3)
        with victim.client() as r:
            r.execute_command('READONLY')
            assert r.get('n') == str(199 + len(wrote)) and r.dbsize() == 3001


def test_metrics():
    with Cluster(1) as c:
        node = c.nodes[0]
        node.kill()
        port = free_port()
        node.start('--metrics-port', str(port))
        eventually(node.leads)
        with node.client() as w:
            w.set('k', 'v')
            w.set('k', 'w')
        samples = scrape(port)
        assert samples['mayfly_region_leader', 'region="1"'] == 1
        assert samples['mayfly_region_applied_index', 'region="1"'] == int(node.region()['applied'])
        assert samples['mayfly_raft_log_entries_total', ''] > 0
        assert samples['mayfly_region_commit_seconds_count', 'region="1"'] == 2
        assert samples['mayfly_region_commit_seconds_sum', 'region="1"'] > 0
        assert samples['mayfly_region_commit_seconds_bucket', 'region="1",le="+Inf"'] == 2
        assert samples['mayfly_region_requests_total', 'region="1"'] == 2
        assert samples['mayfly_region_splits_total', 'region="1"'] == 0
        names = {name for name, _ in samples}
        expressions = test_monitoring.dashboard_expressions() + test_monitoring.alert_expressions()
        used = {m[0] for e in expressions for m in test_monitoring.NAME.findall(e)
                if m[0].startswith(test_monitoring.OF_CLUSTERS)}
        assert len(used) > 8 and used <= names, used - names
