"""mayfly-server --import-rdb FILE --to HOST:PORT, and backups of a cluster, which it restores."""
import contextlib
import os
import random
import re
import shutil
import subprocess

import pytest
import redis
from nodes import BINARY, Cluster, Node, Stopped, bytes_client, eventually

import everything       # of tests/server, which nodes has found
import mayfly
import redis_server

LIBRARY = "#!lua name=mylib\nredis.register_function('one', function() return 1 end)"
MANY = 60_000
VALUE = 'v' * 100


def value(i):
    """It can't be compressed."""
    return random.Random(i).randbytes(50).hex()


@pytest.fixture(scope='module')
def trio():
    with Cluster(3, ('--cluster-node-timeout', '2000', '--rdbchecksum', 'no')) as c:
        yield c


@pytest.fixture
def leader(trio):
    with trio.leader().client() as c:
        c.flushall()
        c.execute_command('FUNCTION', 'FLUSH')
        yield c


@pytest.fixture(scope='module')
def many(tmp_path_factory):
    """A file with many keys."""
    server = mayfly.Server('--engine', 'memory', '--appendonly', 'no')
    path = str(tmp_path_factory.mktemp('many') / 'many.rdb')
    with contextlib.closing(server.client()) as c:
        with c.pipeline(transaction=False) as p:
            for i in range(MANY):
                p.set(f'k{i}', value(i))
            p.execute()
        c.save()
    shutil.move(os.path.join(server.dir, 'dump.rdb'), path)
    server.remove()
    return path


def importer(files, node, *options, env=None):
    return subprocess.Popen([BINARY, '--import-rdb', *map(str, files), '--to', f'127.0.0.1:{node.port}', *options],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})


def run_import(files, node, *options, env=None, code=0):
    proc = importer(files, node, *options, env=env)
    out, err = proc.communicate(timeout=200)
    assert proc.returncode == code, out + err
    return out + err


def digests(client):
    with contextlib.closing(bytes_client(client)) as c:
        return {key: c.execute_command('DEBUG', 'DIGEST-VALUE', key) for key in c.scan_iter(count=1000)}


OTHER_DIGITS = (b'zset:scores', b'zset:scores:large')   # of scores: 7.0 and 8.0 print some in another form


@redis_server.needed
def test_everything_that_redis_saves(trio, leader):
    source = redis_server.Redis()
    try:
        with source.client() as c, source.raw() as raw:
            everything.run(raw, (*everything.strings(), *everything.collections(), *everything.streams()))
            c.set('timed', 'x', pxat=everything.FAR)
            c.set('dead', 'x', px=1)
            c.function_load(LIBRARY)
            c.save()
            wanted, scores = digests(c), {k: c.zrange(k, 0, -1, withscores=True) for k in OTHER_DIGITS}
        said = run_import([f'{source.dir}/dump.rdb'], trio.followers()[0])
    finally:
        source.remove()
    assert f'{len(wanted)} keys and 1 libraries' in said
    got = digests(leader)
    assert {k for k in wanted if got.get(k) != wanted[k]} <= set(OTHER_DIGITS)
    assert len(got) == len(wanted) and leader.pexpiretime('timed') == everything.FAR
    for k in OTHER_DIGITS:
        assert [s for _, s in leader.zrange(k, 0, -1, withscores=True)] == [s for _, s in scores[k]]
    assert leader.fcall('one', 0) == 1
    trio.settled(3)
    for n in trio.followers():      # they have the function, too
        with n.client() as c:
            assert c.execute_command('READONLY') in (True, 'OK')
            assert 'mylib' in str(c.function_list())


def test_deadlines_of_fields(trio, leader, tmp_path):
    """In the form that Redis 7.0 reads, they follow their hash in the file."""
    server = mayfly.Server('--appendonly', 'no')
    try:
        with contextlib.closing(server.client()) as c:
            for i in range(300):
                c.hset(f'h{i}', mapping={'a': VALUE * 40, 'b': 2, 'c': 3})
                c.execute_command('HPEXPIREAT', f'h{i}', everything.FAR, 'FIELDS', 1, 'b')
                c.execute_command('HPEXPIRE', f'h{i}', 1, 'FIELDS', 1, 'c')
            c.save()
        shutil.copy(f'{server.dir}/dump.rdb', tmp_path / 'a.rdb')
    finally:
        server.remove()
    run_import([tmp_path / 'a.rdb'], trio.nodes[0])
    assert leader.dbsize() == 300
    for i in range(300):
        assert leader.hgetall(f'h{i}') == {'a': VALUE * 40, 'b': '2'}
        assert leader.execute_command('HPEXPIRETIME', f'h{i}', 'FIELDS', 2, 'a', 'b') == [-1, everything.FAR]


def test_keys_that_are_there(trio, leader, many):
    leader.set('k1', 'mine')
    leader.set('other', 'x')
    said = run_import([many], trio.nodes[1])
    assert f'{MANY - 1} keys' in said and '1 were there already' in said
    assert leader.get('k1') == 'mine' and leader.get('other') == 'x' and leader.dbsize() == MANY + 1
    run_import([many], trio.nodes[1], '--replace')
    assert leader.get('k1') == value(1) and leader.dbsize() == MANY + 1


def test_other_databases(trio, leader, tmp_path):
    server = mayfly.Server('--appendonly', 'no')
    try:
        with contextlib.closing(server.client()) as c:
            c.set('zero', 0)
            c.execute_command('SELECT', 5)
            c.set('five', 5)
            c.save()
        shutil.copy(f'{server.dir}/dump.rdb', tmp_path / 'a.rdb')
    finally:
        server.remove()
    assert 'Left out: 1 keys' in run_import([tmp_path / 'a.rdb'], trio.nodes[0])
    assert leader.keys() == ['zero']
    assert 'Left out: 1 keys' in run_import([tmp_path / 'a.rdb'], trio.nodes[0], '--db', '5')
    assert leader.mget('five') == ['5'] and leader.dbsize() == 2


def offset_told(proc):
    """The offset that it has printed."""
    for line in proc.stderr:
        found = re.search(r' (\d+)%, .*--from (\d+)', line)
        if found and int(found.group(1)) < 90:
            return found.group(2)
    raise AssertionError('it ended before it was killed')


def test_interrupted_it_continues(trio, leader, many):
    """What arrived before is not sent again: a key that was deleted since then stays deleted."""
    slow = importer([many], trio.nodes[0], '--rate', '1mb')
    at = offset_told(slow)
    slow.kill()
    slow.communicate()
    some = eventually(lambda: leader.randomkey())
    assert 0 < leader.dbsize() < MANY and leader.delete(some)
    run_import([many], trio.nodes[0], '--from', at)
    assert leader.dbsize() == MANY - 1 and not leader.exists(some)


def test_leaders_that_die_meanwhile(trio, leader, many):
    proc = importer([many], trio.followers()[0], '--rate', '1mb')
    offset_told(proc)
    victim = trio.leader()
    victim.kill()
    try:
        out, err = proc.communicate(timeout=200)
        assert proc.returncode == 0, out + err
        assert f'{MANY} keys' in out
    finally:
        victim.start()
    trio.settled(3)
    assert trio.try_all('DBSIZE') == MANY


# -- backups --------------------------------------------------------------------------------------------------


def backup(node, path):
    """BGSAVE there; its file."""
    with node.client() as c:
        c.execute_command('BGSAVE')
        eventually(lambda: c.info('persistence')['rdb_bgsave_in_progress'] == 0)
        assert c.info('persistence')['rdb_last_bgsave_status'] == 'ok'
    shutil.move(os.path.join(node.folder, 'dump.rdb'), path)
    return path


def claim(path, slots):
    """A backup that says it has other slots; its checksum is off."""
    with open(path, 'rb') as f:
        data = f.read()
    assert data.count(b'0-16383') == 1 and len(slots) == 7
    with open(path, 'wb') as f:
        f.write(data.replace(b'0-16383', slots))


@redis_server.needed
def test_backup_and_restore(trio, leader, tmp_path):
    for i in range(500):
        leader.set(f'k{i}', i, pxat=everything.FAR + i)
    leader.execute_command('XADD', 's', '1-1', 'f', 'v')
    leader.hset('h', mapping={'a': 1, 'b': 2})
    leader.execute_command('HPEXPIREAT', 'h', everything.FAR, 'FIELDS', 1, 'b')
    leader.function_load(LIBRARY)
    wanted = digests(leader)
    with pytest.raises(redis.ResponseError, match='BGSAVE'):
        leader.save()
    path = backup(trio.leader(), tmp_path / 'n1.rdb')
    redis_server.check_rdb(path)
    trio.settled(3)
    copy = backup(trio.followers()[0], tmp_path / 'copy.rdb')
    with open(copy, 'rb') as f:
        assert b'mayfly-cluster-slots' not in f.read()
    server = redis_server.Redis(directory=str(tmp_path), wait=False)
    server.proc.kill()
    shutil.copy(path, tmp_path / 'dump.rdb')
    server.start()
    try:
        with server.client() as c:
            assert c.dbsize() == 502 and c.get('k7') == b'7' and c.pexpiretime('k7') == everything.FAR + 7
    finally:
        server.remove()
    with Cluster(1) as other:
        assert '502 keys and 1 libraries' in run_import([path], other.nodes[0])
        with other.nodes[0].client() as c:
            assert digests(c) == wanted and c.pexpiretime('k7') == everything.FAR + 7
            assert c.execute_command('HPEXPIRETIME', 'h', 'FIELDS', 1, 'b') == [everything.FAR]
            assert c.fcall('one', 0) == 1


def test_a_backup_lacks_slots_or_has_some_twice(trio, leader, tmp_path):
    names = [f'k{i}' for i in range(300)]
    files = [tmp_path / 'a.rdb', tmp_path / 'b.rdb']
    for turn, path in enumerate(files):
        for k in names:
            leader.set(k, turn)
        backup(trio.leader(), path)
    claim(files[0], b'0-10000')
    leader.flushall()
    assert '6383 of its 16384 slots' in run_import(files[:1], trio.nodes[0], code=1)
    assert leader.dbsize() == 0
    run_import(files, trio.nodes[0])
    for k in names:
        assert leader.get(k) == str(int(leader.execute_command('CLUSTER', 'KEYSLOT', k) > 10000)), k
    leader.flushall()
    run_import(files[:1], trio.nodes[0], '--partial')
    assert leader.dbsize() == len(names) and leader.get('k1') == '0'


def test_a_backup_waits_until_the_leader_is_confirmed(trio, leader):
    """A node that only believes to lead does not say that it has saved what was acknowledged."""
    node = trio.leader()
    with Stopped(*trio.followers()), node.client(socket_timeout=30) as c:
        with pytest.raises(redis.RedisError):
            c.execute_command('BGSAVE')
    trio.settled(3)


def test_what_is_refused(trio, leader, many, tmp_path):
    (tmp_path / 'bad.rdb').write_bytes(open(many, 'rb').read()[:100_000])
    assert 'at offset' in run_import([tmp_path / 'bad.rdb'], trio.nodes[0], code=1)
    assert 'No such file' in run_import([tmp_path / 'none.rdb'], trio.nodes[0], code=1)
    assert 'Usage' in run_import([many], trio.nodes[0], '--what', code=2)
    assert 'Usage' in run_import([], trio.nodes[0], code=2)
    assert 'refused' in run_import([many], Node(str(tmp_path / 'n')), code=1)


@redis_server.needed
def test_into_a_lone_server_with_a_password(many):
    server = redis_server.Redis('--requirepass', 'secret')
    try:
        assert 'NOAUTH' in run_import([many], server, code=1)
        run_import([many], server, env={'REDISCLI_AUTH': 'secret'})
        assert 'WRONGPASS' in run_import([many], server, '--user', 'ann', env={'REDISCLI_AUTH': 'secret'}, code=1)
        with server.client() as c:
            c.auth('secret')
            assert c.dbsize() == MANY
    finally:
        server.remove()
