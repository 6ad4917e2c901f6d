"""The cost of idle regions, counted instead of timed: frames between nodes, and groups that are awake."""
import pytest
from nodes import Cluster, eventually
from test_regions import regions, table, together

REGIONS = 24
BEATS = 3  # of all nodes, in a tick
TICKS = 20
AWAKE = 6  # the nodes wake one in turn, now and then, and it stays awake for a second


def info(node):
    with node.client(socket_timeout=10) as c:
        return c.info('cluster')


def asleep(cluster):
    return all(info(n)['cluster_regions_awake'] <= AWAKE for n in cluster.nodes if n.alive())


@pytest.fixture(scope='module')
def many():
    with Cluster(3, ('--cluster-node-timeout', '1000', '--cluster-regions', str(REGIONS))) as c:
        together(c, REGIONS)
        yield c


def test_idle_regions_sleep(many):
    eventually(lambda: asleep(many), 90, 0.2)
    slept = {n: row for n, row in regions(many.nodes[0]).items() if row['asleep'] == 1}
    assert len(slept) >= REGIONS - AWAKE
    assert all(row['leader'] != '-' for row in table(many.nodes[0]).values())


def test_nodes_send_beats_instead_of_heartbeats(many):
    eventually(lambda: asleep(many), 90, 0.2)

    def count():
        infos = [info(n) for n in many.nodes]
        return sum(i['bus_frames_sent'] for i in infos), max(i['raft_ticks'] for i in infos)

    def quiet():
        """Some ticks in which nodes send beats, and what the few regions that are awake need: two frames each."""
        frames, ticks = count()
        eventually(lambda: count()[1] >= ticks + TICKS, 60, 0.1)
        frames_now, ticks_now = count()
        return frames_now - frames < (ticks_now - ticks) * (BEATS + 2 * AWAKE)
    eventually(quiet, 90)


def test_a_request_wakes_a_region(many):
    eventually(lambda: asleep(many), 90, 0.2)
    for i in range(50):
        many.try_all('SET', f'key:{i}', i)
        assert many.try_all('GET', f'key:{i}') == str(i)


def test_a_leader_that_dies_while_all_sleep_is_replaced_unasked(many):
    eventually(lambda: asleep(many), 90, 0.2)
    dead = max(many.nodes, key=lambda n: sum(r['role'] == 'leader' for r in regions(n).values()))
    led = {number for number, r in regions(dead).items() if r['role'] == 'leader'}
    assert led
    dead.kill()
    rest = [n for n in many.nodes if n is not dead]

    def led_again():
        return led <= {number for n in rest for number, r in regions(n).items() if r['role'] == 'leader'}
    eventually(led_again, 60, 0.2)
    dead.start()
    together(many, REGIONS)
    eventually(lambda: asleep(many), 90, 0.2)
