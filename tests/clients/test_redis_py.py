"""redis-py, used as its tutorials use it."""
import threading
import time

import pytest
import redis

import mayfly

PROTOCOLS = [2, 3] if redis.VERSION >= (5,) else [2]      # Debian 12 has redis-py 4.3


@pytest.fixture(params=PROTOCOLS)
def r(server, request):
    options = {'protocol': 3} if request.param == 3 else {}
    with server.client(decode_responses=True, client_name='tutorial', **options) as client:
        yield client


def test_connection(server, r):
    assert r.ping() and r.echo('hi') == 'hi'
    assert r.client_getname() == 'tutorial'
    assert r.client_setname('renamed') and r.client_getname() == 'renamed'
    me = r.client_id()
    assert [c['name'] for c in r.client_list() if int(c['id']) == me] == ['renamed']
    assert r.client_info()['db'] in (0, '0')
    with server.client(db=5, decode_responses=True) as other:
        other.set('only here', 1)
        assert r.get('only here') is None and other.get('only here') == '1'
    with redis.Redis.from_url(f'redis://localhost:{server.port}/5') as other:
        assert other.get('only here') == b'1'
    with redis.Redis(unix_socket_path=f'{server.dir}/mayfly.sock') as local:
        assert local.ping()


def test_password(own_server):
    s = own_server('--requirepass', 'secret')
    with s.client(password='secret') as c:
        assert c.ping()
    with s.client(username='default', password='secret') as c:
        assert c.ping()
    with s.client() as c, pytest.raises(redis.AuthenticationError):
        c.ping()
    with s.client(password='wrong') as c, pytest.raises((redis.AuthenticationError, redis.ResponseError)):
        c.ping()


def test_strings(r):
    assert r.set('k', 'grüße', ex=100) and r.get('k') == 'grüße'
    assert 0 < r.ttl('k') <= 100
    assert r.set('k', 'x', nx=True) is None
    assert r.set('k', 'new', keepttl=True, get=True) == 'grüße' and r.ttl('k') > 0
    assert r.mset({'a': 1, 'b': 2}) and r.mget('a', 'nobody', 'b') == ['1', None, '2']
    assert r.incr('n', 5) == 5 and r.decr('n') == 4 and r.incrbyfloat('n', 0.5) == 4.5
    assert r.append('s', 'abc') == 3 and r.getrange('s', 1, -1) == 'bc'
    assert r.setbit('bits', 7, 1) == 0 and r.bitcount('bits') == 1
    assert r.delete('a', 'b', 'nobody') == 2 and r.exists('a') == 0
    with pytest.raises(redis.ResponseError, match='WRONGTYPE|wrong kind'):
        r.lpush('s', 1)


def test_collections(r):
    assert r.hset('h', mapping={'f': 'v', 'g': '2'}) == 2
    assert r.hgetall('h') == {'f': 'v', 'g': '2'} and r.hmget('h', 'f', 'x') == ['v', None]
    assert r.hincrby('h', 'g', 3) == 5
    assert r.rpush('l', 1, 2, 3) == 3 and r.lrange('l', 0, -1) == ['1', '2', '3']
    assert r.lpop('l', 2) == ['1', '2'] and r.lmove('l', 'm', 'LEFT', 'RIGHT') == '3'
    assert r.sadd('s', 'a', 'b') == 2 and set(r.smembers('s')) == {'a', 'b'}
    assert r.sismember('s', 'a') and set(r.sinter('s', 's')) == {'a', 'b'}
    assert r.zadd('z', {'one': 1, 'two': 2.5}) == 2 and r.zincrby('z', 1, 'one') == 2.0
    assert [tuple(p) for p in r.zrange('z', 0, -1, withscores=True)] == [('one', 2.0), ('two', 2.5)]
    assert r.zscore('z', 'two') == 2.5 and r.zrank('z', 'two') == 1 and r.zrangebyscore('z', '(2', 'inf') == ['two']
    assert r.geoadd('g', (13.361389, 38.115556, 'Palermo')) == 1
    assert r.geosearch('g', longitude=13, latitude=38, radius=100, unit='km') == ['Palermo']
    assert r.pfadd('p', 'a', 'b') == 1 and r.pfcount('p') == 2


def test_expiry(r):
    r.set('k', 1, px=30)
    r.hset('h', 'f', 'v')
    assert r.pexpire('h', 30) and r.pttl('h') <= 30
    time.sleep(0.04)
    assert r.get('k') is None and r.exists('h') == 0 and r.ttl('k') == -2
    now = int(time.time())
    assert r.set('k', 1) and r.expireat('k', now + 100) and r.expiretime('k') == now + 100
    assert r.persist('k') and r.ttl('k') == -1
    assert r.expire('k', 10, nx=True) and not r.expire('k', 5, gt=True)
    assert r.getex('k', ex=50) == '1' and r.ttl('k') > 10 and r.getdel('k') == '1'


def test_pipeline(r):
    with r.pipeline(transaction=False) as p:
        for i in range(5000):
            p.set(f'k{i}', i).get(f'k{i}')
        replies = p.execute()
    assert len(replies) == 10000 and replies[-2:] == [True, '4999']
    with r.pipeline(transaction=False) as p:
        p.set('s', 1).lpush('s', 1).get('s')
        ok, error, value = p.execute(raise_on_error=False)
    assert ok and isinstance(error, redis.ResponseError) and value == '1'


def test_scan(r):
    r.mset({f'user:{i}': i for i in range(1000)})
    r.sadd('members', *range(1000))
    r.hset('hash', mapping={i: i for i in range(1000)})
    r.zadd('zset', {str(i): i for i in range(1000)})
    assert set(r.scan_iter('user:*', count=50)) == {f'user:{i}' for i in range(1000)}
    assert set(r.scan_iter(_type='zset')) == {'zset'}
    assert len(set(r.sscan_iter('members'))) == 1000
    assert dict(r.hscan_iter('hash')) == {str(i): str(i) for i in range(1000)}
    assert dict(r.zscan_iter('zset', match='99?')) == {str(i): float(i) for i in range(990, 1000)}
    assert len(r.keys('user:99*')) == 11 and r.randomkey() and r.dbsize() == 1003


def test_administration(r):
    r.set('k', 'x' * 100, ex=1000)
    info = r.info()
    assert info['redis_version'].split('.')[0] == '7' and info['used_memory'] > 0
    assert info['db0'] == {'keys': 1, 'expires': 1, 'avg_ttl': info['db0']['avg_ttl'], 'subexpiry': 0} \
        and info['db0']['avg_ttl'] > 0
    assert r.info('everything')['cmdstat_set']['calls'] >= 1
    assert r.info('server').keys() >= {'redis_mode', 'tcp_port', 'run_id'}
    assert 100 < r.memory_usage('k') < 1000 and r.memory_usage('nobody') is None
    assert r.memory_stats()['peak.allocated'] > 0
    assert r.object('encoding', 'k') == 'raw' and r.type('k') == 'string'
    assert r.config_get('maxmemory*')['maxmemory-policy'] == 'noeviction'
    old = r.config_get('slowlog-log-slower-than')['slowlog-log-slower-than']
    assert r.config_set('slowlog-log-slower-than', 0) and r.get('k')
    try:
        assert r.slowlog_len() > 0 and r.slowlog_get(1)[0]['duration'] >= 0
    finally:
        r.config_set('slowlog-log-slower-than', old)
    assert r.slowlog_reset()
    seconds, micros = r.time()
    assert abs(seconds - time.time()) < 5 and 0 <= micros < 10 ** 6
    assert r.command_count() > 150 and r.command()['set']['arity'] == -3
    assert r.client_pause(1) and r.client_unpause()
    assert r.swapdb(0, 1) and r.dbsize() == 0 and r.swapdb(0, 1) and r.dbsize() == 1


def test_monitor(server, r):
    with server.client(decode_responses=True).monitor() as m:
        r.set('seen', 'yes')
        line = next(m.listen())
        while 'seen' not in line['command']:
            line = next(m.listen())
        assert line['command'] == 'SET seen yes' and line['db'] == 0 and line['client_address'] in ('127.0.0.1', '[::1]')


def test_threads_share_a_pool(r):
    def work():
        for _ in range(200):
            r.incr('n')
    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert r.get('n') == '1600'


def test_reconnects(server, r):
    """A client whose connection was killed continues with a new one."""
    r.set('k', 1)
    mine = r.client_id()
    with server.client() as admin:
        admin.client_kill_filter(_type='normal', skipme=True)
        mayfly.eventually(lambda: mine not in {int(c['id']) for c in admin.client_list()})
    assert r.get('k') == '1'
