"""Scripts in files and streams of Redis up to 6, which wrote the EVAL itself where 7 writes its effects."""
import hashlib

import pytest

import rdb_bytes
from fake_primary import primary                   # noqa: F401 # pylint: disable=unused-import
from mayfly import encode, eventually

WRITES = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('RPUSH', 'order', KEYS[1])"
COPIES_A_SET = "for _, m in ipairs(redis.call('SMEMBERS', KEYS[1])) do redis.call('RPUSH', KEYS[2], m) end"
DRAWS = "for i = 1, 5 do redis.call('RPUSH', 'drawn', math.random(1000)) end"
# The name of the command is garbage as soon as it has run.
NAMES_IT_LATE = """for i = 1, 100 do
    local list = redis.call(('sMem'):rep(1) .. 'BerS', 'set')
    if list[1] ~= 'member:000' or list[300] ~= 'member:996' then redis.call('SET', 'unordered', i) end
end redis.call('SET', 'named', 'late')"""
FAILS_LATE = "redis.call('SET', 'half', 'done') return redis.call('INCR', 'half')"
MEMBERS = [f'member:{i * 7919 % 1000:03}' for i in range(300)]


def sha(script):
    return hashlib.sha1(script.encode()).hexdigest()


def as_written():
    """What such a Redis writes."""
    yield encode('SELECT', '0')
    yield encode('EVAL', WRITES, '1', 'first', 'one')
    yield encode('EVALSHA', sha(WRITES), '1', 'second', 'two')
    yield encode('SCRIPT', 'LOAD', COPIES_A_SET)
    yield encode('SADD', 'set', *MEMBERS)
    yield encode('EVALSHA', sha(COPIES_A_SET), '2', 'set', 'list')
    yield encode('EVAL', NAMES_IT_LATE, '0')
    yield encode('MULTI') + encode('EVAL', DRAWS, '0') + encode('SET', 'within', 'multi') + encode('EXEC')
    yield encode('SELECT', '3') + encode('EVAL', "return redis.call('SETEX', 'elsewhere', 1000, 'x')", '0')
    yield encode('SELECT', '0') + encode('EVAL', FAILS_LATE, '0')
    yield encode('SCRIPT', 'FLUSH')
    yield encode('SET', 'last', '1')


def check(server):
    with server.client(decode_responses=True) as c, server.client(db=3) as other:
        assert eventually(lambda: c.get('last')) == '1', server.log
        assert c.mget('first', 'second', 'within', 'half') == ['one', 'two', 'multi', 'done']
        assert c.lrange('order', 0, -1) == ['first', 'second']
        assert c.lrange('list', 0, -1) == sorted(MEMBERS), 'such scripts saw sets in order'
        assert c.mget('named', 'unordered') == ['late', None]
        # lrand48() after srand48(0), as Redis up to 6 made math.random(1000) of it
        assert c.lrange('drawn', 0, -1) == ['171', '750', '97', '871', '578']
        assert 900 < other.ttl('elsewhere') <= 1000
        assert not c.script_exists(sha(WRITES))[0]


@pytest.mark.engine('memory', 'the other engine has no AOF')
@pytest.mark.parametrize('role', [(), ('--replicaof', '127.0.0.1 1')], ids=['primary', 'replica'])
def test_in_an_aof(server_factory, tmp_path, role):
    (tmp_path / 'appendonly.aof').write_bytes(b''.join(as_written()))
    s = server_factory('--appendonly', 'yes', *role, directory=str(tmp_path))
    assert '1 commands of the append only file answered with an error' in s.log
    check(s)
    s.restart()
    check(s)


@pytest.mark.engine('memory', 'the other engine has no AOF')
def test_an_aof_whose_script_is_missing(server_factory, tmp_path):
    (tmp_path / 'appendonly.aof').write_bytes(encode('SET', 'a', '1') + encode('EVALSHA', sha(WRITES), '0'))
    s = server_factory('--appendonly', 'yes', directory=str(tmp_path), wait=False)
    assert s.proc.wait(60) == 1
    assert "the command 'EVALSHA' failed: -NOSCRIPT" in s.log


@pytest.mark.lone('nodes of a cluster replicate by Raft')
def test_from_a_primary(primary, server_factory):       # noqa: F811
    s = server_factory('--replicaof', f'127.0.0.1 {primary.port}', '--repl-retry-delay', 0)
    link = primary.accept()
    link.full(rdb_bytes.file(10))
    stream = b''.join(as_written())
    link.send(stream).reached(len(stream))
    check(s)
    assert s.info('stats')['unexpected_error_replies'] == 1
