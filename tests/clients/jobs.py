"""What the workers of test_queues.py run: RQ imports it, Celery is started with it."""
import os

RUNS = 'runs'       # a key that counts


def double(x):
    return 2 * x


def fail():
    raise ValueError('no')


def count(port):
    import redis
    with redis.Redis(port=port) as r:
        return r.incr(RUNS)


if 'CELERY_URL' in os.environ:
    from celery import Celery

    app = Celery('jobs', broker=os.environ['CELERY_URL'], backend=os.environ['CELERY_URL'])
    app.conf.update(result_expires=1000, broker_connection_retry_on_startup=True, worker_hijack_root_logger=False,
                    broker_transport_options={'visibility_timeout': 60}, worker_proc_alive_timeout=20)

    @app.task
    def add(x, y):
        return x + y

    @app.task
    def total(numbers):
        return sum(numbers)

    @app.task(bind=True, max_retries=3)
    def third_time(self):
        if self.request.retries < 2:
            raise self.retry(countdown=0.1)
        return self.request.retries
