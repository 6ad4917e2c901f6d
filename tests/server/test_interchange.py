"""Files that go to a real redis-server and come from one: everything is there, key by key."""
import os
import re
import shutil
import signal
import time

import pytest

import everything
import mayfly
import redis_server
from everything import look, many, run, same, script
from mayfly import Raw, ReplyError, eventually
from redis_server import Redis, check_aof, check_rdb

pytestmark = redis_server.needed
memory_only = pytest.mark.engine('memory', 'the other engine keeps its data itself')

NO_AOF = ('--appendonly', 'no') if mayfly.ENGINE == 'memory' else ()
AOF = ('--appendonly', 'yes', '--enable-debug-command', 'yes', '--enable-protected-configs', 'yes')
ODD_LIMITS = ('--hash-max-listpack-entries', 127, '--hash-max-listpack-value', 100, '--zset-max-listpack-entries', 512,
              '--zset-max-listpack-value', 100, '--set-max-intset-entries', 128, '--list-max-listpack-size', 3)


@pytest.fixture(scope='module')
def ours():
    """Mayfly with values of every kind. No test changes the data."""
    s = mayfly.new_server(*NO_AOF)
    with Raw(s.port) as c:
        everything.fill(c)
    yield s
    assert s.stop() == 0
    s.check()
    s.remove()


@pytest.fixture(scope='module')
def theirs():
    """The same in Redis."""
    s = Redis()
    with Raw(s.port) as c:
        everything.fill(c)
    yield s
    s.remove()


def call(server, *command):
    with Raw(server.port) as c:
        reply = c.call(*command)
    assert not isinstance(reply, ReplyError), (command, reply)
    return reply


def info(server, field):
    return re.search(rf'^{field}:(.*?)\r?$', call(server, 'INFO', 'persistence').decode(), re.M)[1]


def loaded_from(server_factory, directory, *args, **options):
    """Mayfly with the dump.rdb of a directory."""
    if mayfly.ENGINE == 'memory':
        return server_factory('--appendonly', 'no', *args, directory=str(directory), **options)
    return server_factory('--import-rdb', f'{directory}/dump.rdb', *args, **options)


# -- dump.rdb ------------------------------------------------------------------------------------------

@pytest.mark.parametrize('command, compression', [('SAVE', 'yes'), ('BGSAVE', 'no')])
def test_our_snapshot_in_redis(ours, redis_factory, tmp_path, command, compression):
    call(ours, 'CONFIG', 'SET', 'rdbcompression', compression)
    saves = info(ours, 'rdb_saves')
    call(ours, command)
    eventually(lambda: info(ours, 'rdb_saves') != saves and info(ours, 'rdb_bgsave_in_progress') == '0')
    shutil.copy(f'{ours.dir}/dump.rdb', tmp_path)
    text = check_rdb(tmp_path / 'dump.rdb')
    data = look(ours)
    assert f'[info] {len(data)} keys read' in text and '[info] 0 already expired' in text
    redis = redis_factory(directory=str(tmp_path))
    same(data, look(redis))


@pytest.mark.parametrize('compression', ['yes', 'no'])
def test_redis_snapshot_in_ours(theirs, server_factory, tmp_path, compression):
    call(theirs, 'CONFIG', 'SET', 'rdbcompression', compression)
    call(theirs, 'SAVE')
    shutil.copy(f'{theirs.dir}/dump.rdb', tmp_path)
    same(look(theirs), look(loaded_from(server_factory, tmp_path)))


def test_encodings_follow_the_limits_of_the_loader(theirs, redis_factory, server_factory, tmp_path):
    """What was packed is not any more, and the other way round: both servers see it alike."""
    call(theirs, 'SAVE')
    shutil.copy(f'{theirs.dir}/dump.rdb', tmp_path)
    redis = redis_factory(*ODD_LIMITS, directory=str(tmp_path))
    wanted = look(redis)
    changed = {k for k, v in look(theirs).items() if v[1] != wanted[k][1]}
    repacked = {b'hash:512', b'zset:512', b'hash:field:65'}
    if redis_server.version() < (7, 2):         # look leaves out what sets are in, from then on
        repacked.add(b'ints:512')
    assert repacked <= {k for _, k in changed}
    same(wanted, look(loaded_from(server_factory, tmp_path, *ODD_LIMITS)))


def test_lists_as_redis_keeps_them(redis_factory, server_factory, tmp_path):
    """Nodes of their own for big elements, compressed nodes, and nodes of one to many elements."""
    redis = redis_factory('--list-compress-depth', 1)
    with Raw(redis.port) as c:
        run(c, [('DEBUG', 'QUICKLIST-PACKED-THRESHOLD', '100b'),
                ('RPUSH', 'plain', 'a', b'b' * 99, b'c' * 101, everything.noise(5000), 'd', b'e' * 3_000_000),
                ('RPUSH', 'packed', *[f'element {i} ' * 5 for i in range(3000)]),
                ('CONFIG', 'SET', 'list-max-listpack-size', 1), ('RPUSH', 'ones', *everything.ELEMENTS),
                ('CONFIG', 'SET', 'list-max-listpack-size', 500),
                ('RPUSH', 'mixed', *everything.ELEMENTS, *range(3000)),
                ('LINSERT', 'mixed', 'BEFORE', 1500, everything.noise(20_000)), ('LPUSH', 'ones', 'x' * 200),
                ('SAVE',)])
    shutil.copy(f'{redis.dir}/dump.rdb', tmp_path)
    same(look(redis), look(loaded_from(server_factory, tmp_path)))


def test_many_databases(redis_factory, server_factory, tmp_path):
    """Numbers of one, two and five bytes."""
    dbs, many_dbs = [0, 1, 63, 64, 255, 16383, 16384, 19_999], ('--databases', 20_000)
    s = server_factory(*NO_AOF, *many_dbs)
    with Raw(s.port) as c:
        run(c, everything.databases(dbs))
    call(s, 'SAVE')
    shutil.copy(f'{s.dir}/dump.rdb', tmp_path)
    check_rdb(tmp_path / 'dump.rdb')
    redis = redis_factory(*many_dbs, directory=str(tmp_path))
    same(look(s, dbs), look(redis, dbs))
    call(redis, 'SAVE')
    same(look(redis, dbs), look(loaded_from(server_factory, tmp_path, *many_dbs), dbs))
    few = loaded_from(server_factory, tmp_path, '--databases', 16, wait=False)
    assert few.proc.wait(mayfly.PATIENCE) == 1 and 'a database 63, and only 16 are configured' in few.log


def test_without_checksum(redis_factory, server_factory, tmp_path):
    s = server_factory(*NO_AOF, '--rdbchecksum', 'no')
    call(s, 'SET', 'k', 'v')
    call(s, 'SAVE')
    assert open(f'{s.dir}/dump.rdb', 'rb').read().endswith(bytes(8))
    shutil.copy(f'{s.dir}/dump.rdb', tmp_path)
    check_rdb(tmp_path / 'dump.rdb')
    redis = redis_factory('--rdbchecksum', 'no', directory=str(tmp_path))
    call(redis, 'SET', 'k2', 'v')
    call(redis, 'SAVE')
    same(look(redis), look(loaded_from(server_factory, tmp_path)))


@pytest.mark.parametrize('policy', ['allkeys-lru', 'allkeys-lfu'])
def test_use_of_keys_travels(redis_factory, server_factory, tmp_path, policy):
    """Idle times and frequencies, with the policy that needs them."""
    redis = redis_factory('--maxmemory-policy', policy)
    payload = []
    with Raw(redis.port) as c:
        c.call('SET', 'x', 1)
        payload = c.call('DUMP', 'x')
        run(c, [('RESTORE', f'k{n}', 0, payload, *(['FREQ', n % 200] if 'lfu' in policy else ['IDLETIME', n * 1000]))
                for n in range(1, 20)] + [('SAVE',)])
    shutil.copy(f'{redis.dir}/dump.rdb', tmp_path)
    check_rdb(tmp_path / 'dump.rdb')
    s = loaded_from(server_factory, tmp_path, '--maxmemory-policy', policy)
    asked = 'FREQ' if 'lfu' in policy else 'IDLETIME'
    uses = {}
    for name, server in ('redis', redis), ('ours', s):
        with Raw(server.port) as c:
            uses[name] = many(c, [('OBJECT', asked, f'k{n}') for n in range(1, 20)])
    assert all(abs(a - b) <= 10 for a, b in zip(uses['redis'], uses['ours'])), uses
    assert max(uses['ours']) >= (19 if 'lfu' in policy else 19_000)
    call(s, 'SAVE')                                              # and back
    if mayfly.ENGINE == 'memory':
        check_rdb(f'{s.dir}/dump.rdb')
        back = redis_factory('--maxmemory-policy', policy, directory=s.dir)
        with Raw(back.port) as c:
            found = many(c, [('OBJECT', asked, f'k{n}') for n in range(1, 20)])
        assert all(abs(a - b) <= 20 for a, b in zip(uses['redis'], found)), (uses, found)


# -- the AOF -------------------------------------------------------------------------------------------

CHANGES = """
    SET ~s v; APPEND ~s wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww; SETRANGE ~s 70 x; SETBIT ~b 77 1
    SET ~n 10; INCR ~n; INCRBY ~n 5; DECRBY ~n 100; INCRBYFLOAT ~f 1.1; INCRBYFLOAT ~f 2.2e-3
    SET ~ex 1 EX 1000; SET ~px 1 PX 1000000; SET ~keep 1 EX 900; SET ~keep 2 KEEPTTL; SET ~got 2 GET
    SET ~nx 1 NX; SET ~nx 2 NX; SET ~xx 2 XX; SETEX ~setex 1000 v; PSETEX ~psetex 1000000 v; GETSET ~getset v
    SET ~getex 1; GETEX ~getex EX 500; SET ~getex2 1 EX 5; GETEX ~getex2 PERSIST; SET ~gone 1; GETDEL ~gone
    MSET ~m1 1 ~m2 2; MSETNX ~m3 1 ~m4 2; SETNX ~setnx 1; BITOP NOT ~bitop ~s
    BITFIELD ~bf SET u8 0 200 INCRBY i5 100 1; PFADD ~hll a b c; PFADD ~hll2 c d e f
    PFMERGE ~hll3 ~hll ~hll2; PFCOUNT ~hll3

    RPUSH ~l 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; LPUSH ~l -1 x; LPOP ~l; RPOP ~l 3; LSET ~l 2 x
    LINSERT ~l AFTER x y; LREM ~l 0 7; LTRIM ~l 1 -2; LPUSHX ~l p; RPOPLPUSH ~l ~l2; LMOVE ~l ~l2 LEFT RIGHT
    LMPOP 1 ~l RIGHT COUNT 2

    SADD ~t 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; SADD ~t word; SREM ~t 5; SPOP ~t; SPOP ~t 4
    SADD ~t2 0 2 4 6 8 10 12 14 16 18 20 22 24; SMOVE ~t ~t2 word; SINTERSTORE ~t3 ~t ~t2; SUNIONSTORE ~t4 ~t ~t2
    SDIFFSTORE ~t5 ~t ~t2; SPOP ~t5 100

    HSET ~h a 1 b 2; HINCRBY ~h a 5; HINCRBYFLOAT ~h c 0.1; HDEL ~h b; HSETNX ~h d e
    HMSET ~h x yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy

    ZADD ~z 1 a 2 b 3.5 c inf d; ZADD ~z INCR 0.3 a; ZADD ~z GT CH 1 b 9 c; ZINCRBY ~z -0.7 b; ZREM ~z d
    ZADD ~z2 0 m0 1 m1 2 m2 3 m3 4 m4 5 m5 6 m6 7 m7 8 m8 9 m9 10 m10 11 m11 12 m12 13 m13 20 m20 20 m21 20 m22
    ZPOPMIN ~z2 2; ZPOPMAX ~z2; ZMPOP 1 ~z2 MIN COUNT 3; ZREMRANGEBYRANK ~z2 0 1; ZREMRANGEBYSCORE ~z2 10 12
    ZREMRANGEBYLEX ~z2 [m20 [m21; ZUNIONSTORE ~z3 2 ~z ~z2 WEIGHTS 2 0.5; ZINTERSTORE ~z4 2 ~z3 ~z
    ZDIFFSTORE ~z5 2 ~z3 ~z; ZRANGESTORE ~z6 ~z3 0 10; GEOADD ~g 13.36 38.11 p 15.08 37.5 c
    GEOSEARCHSTORE ~g2 ~g FROMLONLAT 15 37 BYRADIUS 200 km STOREDIST

    SORT ~t2 ALPHA STORE ~sorted; SET ~r 1 EX 700; RENAME ~r ~r2; SET ~r3 1; RENAMENX ~r3 ~r4; COPY ~h ~h2
    COPY ~z ~zc DB 3; SET ~mv 1 PX 900000; MOVE ~mv 2; EXPIRE ~h 1000; PEXPIRE ~z 1000001; EXPIREAT ~l 4102444800
    PEXPIREAT ~t 4102444800123
    EXPIRE ~t2 100 XX; EXPIRE ~t2 100000 NX; EXPIRE ~t2 900 LT; PERSIST ~h; EXPIRE ~g -1; SET ~past 1 PXAT 1
    DEL ~m1 ~nothing; UNLINK ~m2; TOUCH ~m3

    SELECT 5; SET ~five 1; SELECT 6; SET ~six 1; SWAPDB 5 6; SELECT 7; SET ~seven 1; FLUSHDB; SET ~again 1; SELECT 0
"""
# What only Redis has: transactions, blocking commands.
GROUPS = """
    MULTI; SET ~multi 1; INCR ~multi; SELECT 4; SET ~multi four; EXPIRE ~multi 800; SPOP ~t4 2; SELECT 0
    LPUSH ~ml 1 2; EXEC
    MULTI; SET ~one 1; EXEC; MULTI; EXEC; MULTI; SET ~not 1; DISCARD; MULTI; SET ~a 1; LPUSH ~b2 1; GET ~a; EXEC
    RPUSH ~bl 0 1 2 3 4 5 6 7 8; BLMOVE ~bl ~bl2 LEFT LEFT 0; BRPOP ~bl2 0; BLMPOP 0 1 ~bl LEFT; BRPOPLPUSH ~bl ~bl2 0
    BZPOPMIN ~z2 0; BZMPOP 0 1 ~z2 MAX
"""
SCRIPT = "redis.call('set', KEYS[1], 'x', 'PX', 700000); redis.call('incr', KEYS[2])"


def wait_for_push(c, waits, tag):
    waits.command('BLPOP', f'{tag}:w', f'{tag}:w2', 0)
    eventually(lambda: b'blocked_clients:1' in c.call('INFO', 'clients'))
    assert c.call('RPUSH', f'{tag}:w2', 1, 2) == 2 and waits.reply() == [f'{tag}:w2'.encode(), b'1']


def change(server, tag):
    """Every way to change a key, on keys of their own; and some commands that fail on the way."""
    with Raw(server.port) as c, Raw(server.port) as waits:
        run(c, [*script(CHANGES, tag), ('RPUSH', f'{tag}:big', everything.noise(200_000)),
                ('HSET', f'{tag}:bin', b'\x00\xff', b'\r\n'), ('LPUSH', f'{tag}:l', '')])
        if isinstance(server, Redis):
            run(c, [*script(GROUPS, tag), ('EVAL', SCRIPT, 2, f'{tag}:eval', f'{tag}:eval2')])
            wait_for_push(c, waits, tag)
        payload = c.call('DUMP', f'{tag}:h')
        run(c, [('RESTORE', f'{tag}:restored', 0, payload), ('RESTORE', f'{tag}:restored2', 500_000, payload),
                ('RESTORE', f'{tag}:restored3', everything.FAR, payload, 'ABSTTL')])
        failed = many(c, script('LPUSH ~s 1; INCR ~s; HINCRBY ~h x 1; SET a', tag))
        assert all(isinstance(r, ReplyError) for r in failed)


def rewritten(server):
    """A rewrite, to its end."""
    call(server, 'BGREWRITEAOF')
    eventually(lambda: {info(server, f'aof_rewrite_{x}') for x in ('in_progress', 'scheduled')} == {'0'})
    assert info(server, 'aof_last_bgrewrite_status') == 'ok', server.log
    eventually(lambda: settled(server))


def settled(server):
    """Its manifest is the last one, without what the rewrite replaced."""
    with open(files(server, 'manifest')[-1]) as manifest:
        text = manifest.read()
    return ' type h' not in text and len(files(server, 'incr')) == 1 and not files(server, 'temp')


def torn_off(server):
    """Dies in the middle of a rewrite and comes back: there is one increment more."""
    call(server, 'CONFIG', 'SET', 'rdb-key-save-delay', 10_000_000)
    call(server, 'BGREWRITEAOF')
    eventually(lambda: info(server, 'aof_rewrite_in_progress') == '1')
    call(server, 'SET', 'while it is rewritten', 1)
    server.stop(signal.SIGKILL)
    server.start()


def copied(server, to):
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(f'{server.dir}/appendonlydir', f'{to}/appendonlydir')
    return str(to)


def files(server, what):
    folder = f'{server.dir}/appendonlydir'
    return [f'{folder}/{f}' for f in sorted(os.listdir(folder)) if what in f]


def redis_agrees(s, redis_factory, where, *args, encodings=True):
    directory = copied(s, where)
    check_aof(directory)
    redis = redis_factory('--appendonly', 'yes', *args, directory=directory)
    same(look(s, encodings=encodings), look(redis, encodings=encodings))
    return redis


@memory_only
@pytest.mark.parametrize('preamble, timestamps', [('yes', 'no'), ('no', 'yes')])
def test_our_aof_in_redis(server_factory, redis_factory, tmp_path, preamble, timestamps):
    s = server_factory(*AOF, '--aof-use-rdb-preamble', preamble, '--aof-timestamp-enabled', timestamps)
    with Raw(s.port) as c:
        everything.fill(c)
    change(s, 'first')
    redis_agrees(s, redis_factory, tmp_path / '1').stop()
    rewritten(s)
    change(s, 'second')
    assert [f.rsplit('.', 1)[1] for f in files(s, 'base')] == ['rdb' if preamble == 'yes' else 'aof']
    redis_agrees(s, redis_factory, tmp_path / '2', encodings=False).stop()
    torn_off(s)
    change(s, 'third')
    assert len(files(s, 'incr')) == 2 and len(files(s, 'base')) == 1
    redis_agrees(s, redis_factory, tmp_path / '3', encodings=False)
    text = b''.join(open(f, 'rb').read() for f in files(s, 'incr'))
    assert (b'\n#TS:' in text) == (timestamps == 'yes')
    before = look(s)
    s.restart(signal.SIGKILL)
    same(before, look(s))


@memory_only
@pytest.mark.parametrize('preamble, timestamps', [('yes', 'yes'), ('no', 'no')])
def test_redis_aof_in_ours(server_factory, redis_factory, tmp_path, preamble, timestamps):
    redis = redis_factory('--appendonly', 'yes', '--aof-use-rdb-preamble', preamble,
                          '--aof-timestamp-enabled', timestamps)
    with Raw(redis.port) as c:
        everything.fill(c)
    change(redis, 'first')

    def agrees(where, encodings=True):
        s = server_factory(*AOF, directory=copied(redis, tmp_path / where))
        same(look(redis, encodings=encodings), look(s, encodings=encodings))
        return s
    assert agrees('1').stop() == 0
    rewritten(redis)
    change(redis, 'second')
    assert agrees('2', False).stop() == 0
    torn_off(redis)
    change(redis, 'third')
    assert len(files(redis, 'incr')) == 2
    s = agrees('3', False)
    text = b''.join(open(f, 'rb').read() for f in files(redis, 'incr'))
    assert (b'#TS:' in text) == (timestamps == 'yes')
    # Appending to them works, and both Mayfly and Redis load the result.
    change(s, 'fourth')
    wanted = look(s)
    redis_agrees(s, redis_factory, tmp_path / '4')
    s.restart(signal.SIGKILL)
    same(wanted, look(s))
    rewritten(s)
    assert len(files(s, '')) == 3
    redis_agrees(s, redis_factory, tmp_path / '5', encodings=False)


@memory_only
@pytest.mark.parametrize('preamble', ['yes', 'no'])
def test_an_old_single_file(server_factory, redis_factory, tmp_path, preamble):
    """As Redis before 7 has it: base and what follows in one."""
    redis = redis_factory('--appendonly', 'yes', '--aof-use-rdb-preamble', preamble)
    with Raw(redis.port) as c:
        everything.fill(c)
    rewritten(redis)
    change(redis, 'x')
    with open(tmp_path / 'appendonly.aof', 'wb') as f:
        for part in files(redis, 'base') + files(redis, 'incr'):
            f.write(open(part, 'rb').read())
    s = server_factory(*AOF, directory=str(tmp_path))
    same(look(redis, encodings=False), look(s, encodings=False))
    assert 'migrated an old-style AOF file' in s.log and not os.path.exists(tmp_path / 'appendonly.aof')
    call(s, 'SET', 'more', 1)
    wanted = look(s)
    s.restart()
    same(wanted, look(s))
    redis_agrees(s, redis_factory, tmp_path / 'copy', encodings=False)


@memory_only
def test_there_and_back(server_factory, redis_factory, tmp_path):
    """Redis continues with our folder, and we continue with the result."""
    s = server_factory(*AOF)
    change(s, 'ours')
    rewritten(s)
    change(s, 'more')
    assert s.stop() == 0
    redis = redis_factory('--appendonly', 'yes', directory=s.dir)
    change(redis, 'redis')
    wanted = look(redis, encodings=False)
    copied(redis, tmp_path / 'rewritten')
    assert redis.stop() == 0
    # It appended to a file of ours: that is not taken for granted.
    s.start(wait=False)
    assert s.proc.wait(mayfly.PATIENCE) == 1 and 'commands without checksums follow' in s.log
    assert 'aof-load-unchecked yes' in s.log
    s.args += ['--aof-load-unchecked', 'yes']
    s.start()
    same(wanted, look(s, encodings=False))
    eventually(lambda: info(s, 'aof_rewrites') == '1' and info(s, 'aof_rewrite_in_progress') == '0')
    assert s.stop() == 0
    s.args[-1] = 'no'
    s.start()
    same(wanted, look(s, encodings=False))
    # Rewritten by Redis, nothing of ours is left.
    redis = redis_factory('--appendonly', 'yes', directory=str(tmp_path / 'rewritten'))
    rewritten(redis)
    change(redis, 'again')
    wanted = look(redis, encodings=False)
    assert redis.stop() == 0
    s = server_factory(*AOF, directory=redis.dir)
    same(wanted, look(s, encodings=False))


@memory_only
def test_other_names(server_factory, redis_factory):
    names = ('--appenddirname', 'some where', '--appendfilename', 'a file')
    s = server_factory(*AOF, *names)
    change(s, 'x')
    wanted = look(s)
    assert s.stop() == 0
    redis = redis_factory('--appendonly', 'yes', *names, directory=s.dir)
    same(wanted, look(redis))
    call(redis, 'BGREWRITEAOF')
    eventually(lambda: info(redis, 'aof_rewrite_in_progress') == '0')
    assert redis.stop() == 0
    s.start()
    same(look(s, encodings=False), {k: (v[0], None, *v[2:]) for k, v in wanted.items()})


# -- random commands -----------------------------------------------------------------------------------

NOT_HERE = (b'HELLO', b'CLIENT', b'RESET', b'CONFIG', b'DEBUG', b'SHUTDOWN')


def steady(data, until_ms):
    """Without what may die while we look."""
    return {k: v for k, v in data.items() if v[3] == -1 or v[3] > until_ms}


@memory_only
@pytest.mark.parametrize('seed', range(2))
def test_random_commands(server_factory, redis_factory, tmp_path, seed, monkeypatch):
    """Whatever the differential oracle thinks of, Redis replays from our AOF, and loads from our snapshot."""
    monkeypatch.syspath_prepend(os.path.join(mayfly.ROOT, 'tests', 'oracle'))
    import run as oracle                                                     # pylint: disable=import-outside-toplevel
    families = [f for f in sorted(oracle.FAMILIES) if f not in ('blocking', 'scan', 'server', 'protocol', 'hashttl')]
    g = oracle.Gen(f'interchange/{seed}', families)
    g.resp = 2
    s = server_factory(*AOF, '--aof-use-rdb-preamble', 'no' if seed % 2 else 'yes')
    n, ops = 0, iter(g.next, None)
    with Raw(s.port) as c:
        while n < 12_000:
            batch = [argv for op in (next(ops) for _ in range(100)) if not op.special for argv, _ in op.cmds]
            batch = [a for a in batch if a[0].upper() not in NOT_HERE]
            many(c, batch)
            n += len(batch)
        c.call('DISCARD')
    call(s, 'SAVE')
    copied(s, tmp_path / 'aof')
    os.mkdir(tmp_path / 'rdb')
    shutil.copy(f'{s.dir}/dump.rdb', tmp_path / 'rdb')
    rewritten(s)
    copied(s, tmp_path / 'rewritten')
    until = time.time() * 1000 + 60_000
    wanted = steady(look(s, encodings=False), until)
    assert len(wanted) > 40
    for name, args in ('aof', ('--appendonly', 'yes')), ('rdb', ()), ('rewritten', ('--appendonly', 'yes')):
        if args:
            check_aof(tmp_path / name)
        else:
            check_rdb(tmp_path / name / 'dump.rdb')
        same(wanted, steady(look(redis_factory(*args, directory=str(tmp_path / name)), encodings=False), until))
    s.restart()
    same(wanted, steady(look(s, encodings=False), until))


# -- where the two differ ------------------------------------------------------------------------------

@memory_only
@redis_server.until((7, 4), 'has field deadlines')
def test_field_deadlines_on_their_way_to_redis(server_factory, redis_factory, tmp_path):
    """Redis 7.0 has none: in a snapshot, or a base of one, it passes over them and keeps the fields. In commands it
    can't: they are to be rewritten first."""
    s = server_factory(*AOF)
    with Raw(s.port) as c:
        run(c, [('HSET', 'h', 'a', 1, 'b', 2), ('HPEXPIREAT', 'h', everything.FAR, 'FIELDS', 1, 'a'),
                ('HSET', 'big', *range(2000)), ('HPEXPIREAT', 'big', everything.FAR, 'FIELDS', 2, 0, 2), ('SAVE',)])
    check_rdb(f'{s.dir}/dump.rdb')
    os.mkdir(tmp_path / 'rdb')
    shutil.copy(f'{s.dir}/dump.rdb', tmp_path / 'rdb')
    fields = {k: v[2] for k, v in look(s).items()}
    redis = redis_factory(directory=str(tmp_path / 'rdb'))
    assert {k: v[2] for k, v in look(redis).items()} == fields
    check_aof(copied(s, tmp_path / 'incr'))
    redis = redis_factory('--appendonly', 'yes', directory=str(tmp_path / 'incr'), wait=False)
    assert redis.proc.wait(mayfly.PATIENCE) == 1 and "Unknown command 'HPEXPIREAT'" in redis.log
    rewritten(s)
    check_aof(copied(s, tmp_path / 'base'))
    redis = redis_factory('--appendonly', 'yes', directory=str(tmp_path / 'base'))
    assert {k: v[2] for k, v in look(redis).items()} == fields
    s.restart(signal.SIGKILL)
    with Raw(s.port) as c:
        assert c.call('HPEXPIRETIME', 'h', 'FIELDS', 2, 'a', 'b') == [everything.FAR, -1]
        assert c.call('HPEXPIRETIME', 'big', 'FIELDS', 3, 0, 2, 4) == [everything.FAR, everything.FAR, -1]


@memory_only
def test_back_to_a_point_in_time(server_factory):
    """redis-check-aof --truncate-to-timestamp cuts our increments, too: what is left is what was there then."""
    s = server_factory(*AOF, '--aof-timestamp-enabled', 'yes')
    with Raw(s.port) as c:
        run(c, [('SET', 'early', 1), ('SET', 'both', 1)])
        then = int(time.time())
        eventually(lambda: int(time.time()) > then)
        run(c, [('SET', 'late', 1), ('SET', 'both', 2), ('DEL', 'early')])
    assert s.stop() == 0
    text = redis_server.check('redis-check-aof', '--truncate-to-timestamp', then,
                              f'{s.dir}/appendonlydir/appendonly.aof.manifest')
    assert 'Successfully truncated AOF' in text, text
    s.start()
    assert {k: v[2] for (_, k), v in look(s).items()} == {b'early': b'1', b'both': b'1'}
    assert 'were cut off' in s.log
