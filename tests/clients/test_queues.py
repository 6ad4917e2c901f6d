"""Queues of Debian's Python: RQ, and Celery where it is installed."""
import datetime
import os
import subprocess
import sys

import pytest

import jobs
from mayfly import eventually

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture
def rq(server):
    rq = pytest.importorskip('rq', reason='python3-rq is not installed')
    sys.path.insert(0, HERE)
    with server.client() as c:
        yield rq, c
    sys.path.remove(HERE)


def test_rq(rq, server):
    rq, c = rq
    queue = rq.Queue(connection=c)
    worker = rq.SimpleWorker([queue], connection=c)
    done = [queue.enqueue(jobs.double, i, result_ttl=100) for i in range(10)]
    bad = queue.enqueue(jobs.fail, failure_ttl=50)
    after = queue.enqueue(jobs.count, server.port, depends_on=done[9], result_ttl=1)
    assert len(queue) == 11 and after.get_status() == 'deferred'
    worker.work(burst=True)
    assert [j.return_value() for j in done] == [2 * i for i in range(10)]
    assert 0 < c.ttl(done[0].key) <= 100 and 0 < c.ttl(bad.key) <= 50
    assert bad.get_status(refresh=True) == 'failed' and bad.id in queue.failed_job_registry
    assert c.get(jobs.RUNS) == b'1'
    eventually(lambda: not c.exists(after.key))           # its result was kept for a second
    assert len(queue) == 0


def test_rq_scheduled(rq, server):
    rq, c = rq
    from rq.scheduler import RQScheduler
    queue = rq.Queue(connection=c)
    scheduler = RQScheduler([queue], connection=c, interval=1)
    soon = queue.enqueue_in(datetime.timedelta(seconds=1), jobs.count, server.port)
    far = queue.enqueue_in(datetime.timedelta(hours=1), jobs.count, server.port)
    assert scheduler.acquire_locks() == {'default'}
    assert RQScheduler([queue], connection=c).acquire_locks() == set()      # another one has it, with a TTL

    def moved():
        scheduler.enqueue_scheduled_jobs()
        return len(queue) == 1
    eventually(moved)
    rq.SimpleWorker([queue], connection=c).work(burst=True)
    assert soon.get_status(refresh=True) == 'finished' and far.get_status(refresh=True) == 'scheduled'
    scheduler.stop()


def test_celery(server):
    pytest.importorskip('celery', reason='python3-celery is not installed')
    url = f'redis://127.0.0.1:{server.port}/3'
    env = dict(os.environ, CELERY_URL=url, PYTHONPATH=HERE)
    worker = subprocess.Popen([sys.executable, '-m', 'celery', '-A', 'jobs', 'worker', '--pool', 'solo', '--loglevel',
                               'WARNING', '--without-mingle'], cwd=server.dir, env=env)
    try:
        client = subprocess.run([sys.executable, '-c', CELERY_CLIENT], env=env, cwd=server.dir, capture_output=True,
                                text=True, timeout=300)
        assert client.returncode == 0, client.stdout + client.stderr
    finally:
        worker.terminate()
        worker.wait(120)
    with server.client(db=3) as c:
        results = c.keys('celery-task-meta-*')
        assert len(results) >= 22 and all(0 < c.ttl(k) <= 1000 for k in results)


CELERY_CLIENT = '''
import time
from celery import chord, group
from jobs import add, third_time, total
results = [add.delay(i, i) for i in range(20)]
assert [r.get(timeout=120) for r in results] == [2 * i for i in range(20)]
start = time.time()
assert add.apply_async((1, 2), countdown=1).get(timeout=120) == 3 and time.time() - start >= 0.9
assert group(add.s(i, 1) for i in range(5))().get(timeout=120) == [1, 2, 3, 4, 5]
assert chord((add.s(i, i) for i in range(4)), total.s())().get(timeout=120) == 12
assert third_time.delay().get(timeout=120) == 2
'''
