"""A little of the matrix of faults (make cluster-faults runs it all), and faults that clients must not notice."""
import pytest
import redis
from cell import Cell
from clients import Load
from kinds import KINDS, judge, judge_logs
from machines import SmallDisk, Unavailable
from nodes import Cluster, Node, eventually, in_one_of


@pytest.mark.parametrize('fault, kind', [('kill-leader', 'registers'), ('stop', 'transactions')])
def test_a_cell(fault, kind):
    with Cell(3, fault, kind, ops=1200, rounds=1, clients=30) as cell:
        cell.run()
    assert cell.wrong == []


def hand_over(c):
    """Shuts the leader down and starts it again; whether it was still the leader."""
    old = c.leader()
    before = old.logged().count('Handing leadership on')
    assert old.stop() == 0
    old.start()
    c.settled(3)
    return old.logged().count('Handing leadership on') > before


def test_a_leader_that_is_shut_down_under_load_fails_no_write():
    """It hands leadership on first, and sends clients to the next one before it ends: every outcome is known. A client that a busy
    machine keeps from asking for half a second may be cut off, so this has to succeed in one of a few attempts."""
    kind = KINDS['counters']()
    with Cluster(3, ('--cluster-node-timeout', '2000')) as c:
        def attempt():
            with Load(kind, [n.address for n in c.nodes], clients=30, patience=[60]) as load:
                eventually(lambda: load.done > 300)
                for _ in range(3):
                    eventually(lambda: hand_over(c), 120)
            assert not load.surprises
            assert judge(kind, load.history, 0.1) == []
            with c.leader().client() as r:
                assert list(judge_logs(load.logs, {name: r.lrange(name, 0, -1) for name in load.logs})) == []
                r.flushall()
            assert load.unknown == 0, load.reasons
        in_one_of(4, attempt)


def test_a_leader_whose_disk_is_full_hands_leadership_on(tmp_path):
    """Others have room."""
    try:
        disks = [SmallDisk(128) for _ in range(3)]
    except Unavailable as e:
        pytest.skip(str(e))
    try:
        with Cluster(3, node=lambda i, _, options: Node(f'{disks[i].path}/data', options, log=str(tmp_path / f'log{i}'))) as c:
            old = c.leader()
            with open(f'{disks[c.nodes.index(old)].path}/ballast', 'wb', buffering=0) as f:
                with pytest.raises(OSError):
                    while True:
                        f.write(bytes(1 << 16))
            eventually(lambda: c.leader() is not old, 60)
            assert c.try_all('SET', 'k', 'v')
            assert 'hands leadership on' in old.logged()
    finally:
        for d in disks:
            d.remove()


def test_a_dead_node_is_replaced_under_load(tmp_path):
    with Cluster(3) as c:
        with Load(KINDS['registers'](), [n.address for n in c.nodes], clients=20) as load:
            gone = c.followers()[0]
            with gone.client() as r:
                name = r.execute_command('CLUSTER MYID')
            gone.kill()

            def replaced():
                leader = c.leader()
                with leader.client() as r:
                    if not any(name == node[2] for slots in r.execute_command('CLUSTER', 'SLOTS') for node in slots[2:]):
                        return not leader.region().get('joint')
                    try:
                        r.execute_command('CLUSTER FORGET', name)
                    except redis.ResponseError as e:
                        assert 'TRYAGAIN' in str(e) or 'leads' in str(e), e
                return False
            eventually(replaced, 120, 0.2)
            new = Node(str(tmp_path / 'new'), c.nodes[0].options)
            new.start('--cluster-join', f'127.0.0.1:{c.leader().port}')
            c.nodes[c.nodes.index(gone)] = new
            c.settled(3)
            before = load.done
            eventually(lambda: load.done > before + 100)
        assert judge(load.kind, load.history, 0.1) == []
        with c.leader().client() as r, new.client() as f:
            f.execute_command('READONLY')
            lists = {name: f.lrange(name, 0, -1) for name in load.logs}
            assert lists == {name: r.lrange(name, 0, -1) for name in load.logs}
        assert list(judge_logs(load.logs, lists)) == []
