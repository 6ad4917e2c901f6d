"""FUNCTION and FCALL: Redis's replies, and that libraries are part of the data: files, replicas, both engines."""
import signal
import subprocess
import threading

import pytest

import mayfly
import redis_server
from mayfly import Raw, ReplyError, eventually

pytestmark = redis_server.needed


def library(name, *functions, body="return '{0}'"):
    return f'#!lua name={name}\n' + '\n'.join(
        f"redis.register_function('{f}', function(keys, args) {body.format(f)} end)" for f in functions)


LIB = '''#!lua name=lib
local n = 0
local api = redis
redis.register_function('echo', function(keys, args) return {#keys, #args, keys, args} end)
redis.register_function{function_name='get', callback=function(k) return redis.call('GET', k[1]) end,
                        flags={'no-writes'}, description='reads'}
redis.register_function('set', function(k, a) return redis.call('SET', k[1], a[1]) end)
redis.register_function{function_name='badset', callback=function(k) return redis.call('SET', k[1], 'x') end,
                        flags={'no-writes'}}
redis.register_function('raise', function() error('boom') end)
redis.register_function('reply', function() return redis.error_reply('MY boom') end)
redis.register_function('unknown', function() return redis.call('nope') end)
redis.register_function('punknown', function() return redis.pcall('nope') end)
redis.register_function('nilindex', function() local x = nil; return x.y end)
redis.register_function('late', function() return api.register_function('q', function() end) end)
redis.register_function('latecall', function() return api.call('PING') end)
redis.register_function('here', function() return redis.register_function('q', function() end) end)
redis.register_function('global', function() x = 1 end)
redis.register_function('noglobal', function() return x end)
redis.register_function('keys', function() return KEYS[1] end)
redis.register_function('api', function() local t = {} for k in pairs(redis) do t[#t + 1] = k end
                                          table.sort(t) return t end)
redis.register_function('count', function() n = n + 1 return n end)
redis.register_function('libs', function() return {cjson.encode({1, 'x'}), bit.band(7, 3), struct.size('i'),
                                                   cmsgpack.unpack(cmsgpack.pack(5)), string.upper('x')} end)
redis.register_function('resp', function() redis.setresp(3) return {map={a=1}} end)
redis.register_function('log', redis.log)
redis.register_function('_1', function() end)
'''

BODIES = r"""
return 1
redis.register_function('a')
redis.register_function()
redis.register_function('a',1)
redis.register_function(1,function() end)
redis.register_function(true,function() end)
redis.register_function('a',function() end,3)
redis.register_function('a b',function() end)
redis.register_function('',function() end)
redis.register_function('a',function() end) redis.register_function('a',function() end)
redis.register_function{}
redis.register_function{function_name='a'}
redis.register_function{callback=function() end}
redis.register_function{function_name='a',callback=function() end,flags={'no-writes'}}
redis.register_function{function_name='b',callback=function() end,flags={'bad'}}
redis.register_function{function_name='b',callback=function() end,flags='x'}
redis.register_function{function_name='b',callback=function() end,flags={1}}
redis.register_function{function_name='b',callback=function() end,flags={true}}
redis.register_function{function_name='b',callback=function() end,foo=1}
redis.register_function{function_name='b',callback=function() end,description=1}
redis.register_function{function_name='b',callback=function() end,[1]=1}
redis.register_function{function_name=1,callback=function() end}
redis.register_function{function_name='b',callback=1}
redis.register_function{function_name=true}
redis.register_function{function_name='b',callback=function() end,description={}}
redis.register_function{function_name='b',callback=function() end,flags={}}
redis.register_function{FUNCTION_NAME='b',callback=function() end,flags={'NO-WRITES','allow-oom','no-writes'}}
redis.register_function{function_name='b',callback=function() end,flags={x='no-writes'}}
redis.register_function{[true]=1}
redis.register_function({},{})
x=1
local y=x
redis.call('PING')
redis.pcall('PING')
redis.setresp(3)
redis.sha1hex('a')
redis.log(redis.LOG_NOTICE,'x') redis.register_function('b',function() end)
redis.log()
redis.log(9,'x')
redis.log('x','y')
local a,b=redis.REDIS_VERSION_NUM,redis.REPL_ALL
error('boom')
syntax error here
local t=nil; t.x=1
redis.x=1
KEYS[1]=1
string.rep('a',10)
setmetatable(_G,{})
redis.register_function('b',redis.call)
redis.register_function('b',function() end) pcall(1)
""".strip().split('\n')

HEADERS = ['', 'x', '#!', '#!\n', '#!lua', '#!lua\n', '#!lua \n', '#!lua name\n', '#!lua name=\n', '#!lua name=a\n',
           '#!lua name=a name=b\n', '#!lua nam=a\n', '#!lua name=a-b\n', '#!lua name=a b\n', '#!lua name=lib foo=bar\n',
           '#!js name=a\n', "#!lua name='a'\n", '#!lua name="\n', '#! lua name=x\n', '#!lua name=a\0b\nx']
GOOD_HEADERS = ['#!LUA name=h1\n', '#!lua name=h2\r\n', '#!lua name="h3"\n', '#!lua NAME=h4\n', '#!lua\tname=h5\n',
                f"#!lua name={'x' * 100}\n"]


def commands():
    yield 'FUNCTION', 'FLUSH'
    for body in BODIES:
        yield 'FUNCTION', 'LOAD', 'REPLACE', '#!lua name=lib\n' + body
    for header in HEADERS:
        yield 'FUNCTION', 'LOAD', header
    for i, header in enumerate(GOOD_HEADERS):
        yield 'FUNCTION', 'LOAD', f"{header}redis.register_function('h{i}', function() end)"
        yield 'FCALL', f'H{i}', 0
    yield 'FUNCTION', 'FLUSH', 'ASYNC'
    yield 'FUNCTION', 'LOAD', LIB
    for name in ('echo get set badset raise reply unknown punknown nilindex late latecall here global noglobal keys '
                 'api count count libs resp log _1 COUNT nope').split():
        yield 'FCALL', name, 1, 'k', 'v'
        yield 'FCALL_RO', name, 1, 'k', 'v'
    for count in ('0', '-1', '5', 'x', '', '99999999999999999999', '0x1', '1.5'):
        yield 'FCALL', 'echo', count, 'a'
    yield from [
        ('FCALL',), ('FCALL', 'echo'), ('FCALL_RO', 'echo'), ('FUNCTION',), ('FUNCTION', 'NOPE'), ('FUNCTION', 'LOAD'),
        ('FUNCTION', 'LOAD', LIB), ('FUNCTION', 'LOAD', 'BAD', LIB), ('FUNCTION', 'LOAD', 'REPLACE', 'replace', LIB),
        ('FUNCTION', 'LOAD', library('other', 'a', 'echo')), ('FUNCTION', 'LOAD', library('Lib', 'ECHO')),
        ('FUNCTION', 'STATS'), ('FUNCTION', 'KILL'), ('SCRIPT', 'KILL'),
        ('FUNCTION', 'LIST', 'x'), ('FUNCTION', 'LIST', 'LIBRARYNAME'), ('FUNCTION', 'LIST', 'WITHCODE', 'WITHCODE'),
        ('FUNCTION', 'LIST', 'LIBRARYNAME', 'a', 'LIBRARYNAME', 'b'), ('FUNCTION', 'LIST', 'LIBRARYNAME', 'x*'),
        ('FUNCTION', 'DELETE'), ('FUNCTION', 'DELETE', 'nope'), ('FUNCTION', 'DELETE', 'LIB'),
        ('FUNCTION', 'DELETE', 'lib'), ('FUNCTION', 'DELETE', 'lib'), ('FCALL', 'echo', 0),
        ('FUNCTION', 'FLUSH', 'BAD'), ('FUNCTION', 'FLUSH', 'SYNC', 'X'), ('FUNCTION', 'DUMP'),
        ('FUNCTION', 'LOAD', library('one', 'f1')),
        ('FUNCTION', 'LIST'), ('FUNCTION', 'LIST', 'LIBRARYNAME', 'O*', 'WITHCODE'), ('FUNCTION', 'LIST', 'withcode'),
        ('FUNCTION', 'DUMP'), ('FUNCTION', 'RESTORE', 'x'), ('FUNCTION', 'RESTORE', ''),
        ('FUNCTION', 'RESTORE', 'x', 'BAD'), ('FUNCTION', 'RESTORE', 'x', 'FLUSH', 'y'), ('FUNCTION', 'RESTORE'),
        ('FUNCTION', 'restore', 'x', 'FLUSH', 'y'), ('FUNCTION', 'flush', 'SYNC', 'X'),   # told as they were sent
        ('SET', 'k', 'v'), ('EVAL', "return redis.call('FCALL', 'f1', 0)", 0),
        ('EVAL', "return redis.call('FUNCTION', 'LIST')", 0),
        ('MULTI',), ('FUNCTION', 'LOAD', library('two', 'f2')), ('FCALL', 'f2', 0), ('FUNCTION', 'LOAD', 'bad'),
        ('FUNCTION', 'KILL'), ('FUNCTION', 'DELETE', 'two'), ('FCALL', 'f2', 0), ('EXEC',), ('FUNCTION', 'STATS'),
        ('FLUSHALL',), ('FCALL', 'f1', 0), ('COMMAND', 'GETKEYS', 'FCALL', 'f', 2, 'a', 'b', 'c'),
    ]


@redis_server.until((7, 2), 'errors of redis.log have another text')
@pytest.mark.parametrize('protocol', [2, 3])
def test_as_redis(server_factory, redis_factory, protocol):
    ours, theirs = server_factory(), redis_factory()
    with Raw(ours.port) as a, Raw(theirs.port) as b:
        for c in (a, b):
            c.call('HELLO', protocol)
        for i, command in enumerate(commands()):
            mine, its = a.call(*command), b.call(*command)
            assert type(mine) is type(its) and mine == its, f'{i} {command}: {mine!r}, and Redis says {its!r}'
    with ours.client() as x, theirs.client() as y:
        payload = y.function_dump()
        assert payload == x.function_dump()


def test_payloads(server_factory, redis_factory):
    """FUNCTION DUMP of one server, FUNCTION RESTORE of the other, under every policy."""
    ours, theirs = server_factory(), redis_factory()
    with ours.client() as a, theirs.client() as b:
        for c, other in ((a, b), (b, a)):
            c.function_flush()
            c.function_load(library('lib', 'f', 'g') + '\n-- ' + 'long ' * 500)
            c.function_load(library('lib2', 'h'))
            payload = c.function_dump()
            other.function_flush()
            assert other.function_restore(payload)
            assert other.fcall('g', 0) == b'g' and len(other.function_list()) == 2
    replies = [restores(server, payload) for server in (ours, theirs)]
    for i in (0, 1):    # two libraries are there already: which of them is met first, chance decides in Redis
        assert {r[i].replace('lib2', 'lib') for r in replies} == {'ERR Library lib already exists'}
    assert replies[0][2:] == replies[1][2:]
    assert ReplyError('ERR Function h already exists') in replies[0]


def restores(server, payload):
    """What a server that has the payload's libraries says to all the ways of restoring it."""
    with Raw(server.port) as c:
        c.call('SET', 'k', 1)
        return [c.call(*command) for command in [
            ('FUNCTION', 'RESTORE', payload), ('FUNCTION', 'RESTORE', payload, 'APPEND'),
            ('FUNCTION', 'RESTORE', payload, 'REPLACE'), ('FUNCTION', 'RESTORE', payload[:-1] + b'?'),
            ('FUNCTION', 'RESTORE', c.call('DUMP', 'k')), ('FUNCTION', 'DELETE', 'lib2'),
            ('FUNCTION', 'LOAD', library('lib3', 'H')),
            ('FUNCTION', 'RESTORE', payload, 'REPLACE'),        # h is lib3's now
            ('FCALL', 'H', 0), ('FUNCTION', 'RESTORE', payload, 'FLUSH'), ('FUNCTION', 'STATS'),
            ('FUNCTION', 'DELETE', 'lib3')]]


@pytest.mark.any_engine
def test_limits(server):
    """Of time and of size; what is refused leaves nothing behind."""
    with Raw(server.port) as c:
        c.call('FUNCTION', 'FLUSH')
        assert c.call('FUNCTION', 'LOAD', library('a', 'f') + ' while true do end') == \
            'ERR Error registering functions: ERR FUNCTION LOAD timeout'
        big = '#!lua name={0}\n--' + 'x' * (20 << 20) + "\nredis.register_function('{0}', function() end)"
        assert c.call('FUNCTION', 'LOAD', big.format('a')) == b'a'
        assert 'more than' in c.call('FUNCTION', 'LOAD', big.format('b'))
        assert c.call('FUNCTION', 'LOAD', 'REPLACE', big.format('a')) == b'a'
        # Redis's own server ends here: to it these are two functions, of which there can be one
        assert 'already exists in the library' in c.call('FUNCTION', 'LOAD', library('d', 'f', 'F'))
        assert c.call('FUNCTION', 'STATS')[3] == [b'LUA', [b'libraries_count', 1, b'functions_count', 1]]
        assert c.call('FUNCTION', 'FLUSH') == b'OK'
        for i in range(300):
            assert c.call('FUNCTION', 'LOAD', library(f'l{i}', f'f{i}', f'g{i}')) == b'l%d' % i
        assert c.call('FCALL', 'G299', 0) == b'g299' and len(c.call('FUNCTION', 'LIST')) == 300
        assert c.call('FUNCTION', 'FLUSH') == b'OK'


def load_many(c, first, n):
    for at in range(first, first + n, 100):
        c.send(b''.join(mayfly.encode('FUNCTION', 'LOAD', library(f'l{i}', f'f{i}')) for i in range(at, at + 100)))
        assert [c.reply() for _ in range(100)] == [b'l%d' % i for i in range(at, at + 100)]


@pytest.mark.skipif(mayfly.sanitized(), reason='a sanitizer has other costs')
def test_many_libraries_cost_no_more_than_few(server_factory):
    """Loading one does not depend on how many there are; and a failed transaction could still take it back."""
    s = server_factory()

    def written():
        """Bytes, to files and sockets."""
        with open(f'/proc/{s.proc.pid}/io') as f:
            return int(dict(line.split(': ') for line in f)['wchar'])

    def cost_of_the_next(c, first):
        """Of one at a time: each is a transaction. Time of the processor, which others can't take away."""
        before, began = written(), mayfly.cpu_seconds(s)
        for i in range(first, first + 200):
            c.call('FUNCTION', 'LOAD', library(f'l{i}', f'f{i}'))
        return mayfly.cpu_seconds(s) - began, written() - before

    def flat():
        with s.raw() as c:
            c.call('FUNCTION', 'FLUSH')
            few_seconds, few_bytes = cost_of_the_next(c, 10_000)
            load_many(c, 20_000, 20_000)
            seconds, size = cost_of_the_next(c, 50_000)
            assert seconds < 3 * few_seconds and size < 3 * few_bytes, (seconds, few_seconds, size, few_bytes)
    mayfly.in_one_of(3, flat)


@pytest.mark.any_engine
def test_kill(server_factory):
    s = server_factory('--busy-reply-threshold', 50)
    code = library('lib', 'spin', body='while true do end') + \
        "\nredis.register_function('wspin', function(k) redis.call('SET', k[1], 1) while #k < 2 do end end)"
    with Raw(s.port) as c, Raw(s.port) as other:
        assert c.call('FUNCTION', 'LOAD', code) == b'lib'
        answer = []
        t = threading.Thread(target=lambda: answer.append(c.call('FCALL', 'spin', 1, 'k', 'x')))
        t.start()
        eventually(lambda: str(other.call('PING')).startswith('BUSY'))
        running = other.call('FUNCTION', 'STATS')[1]
        assert running[:4] == [b'name', b'spin', b'command', [b'FCALL', b'spin', b'1', b'k', b'x']]
        assert running[4] == b'duration_ms' and running[5] >= 50
        assert 'BUSY' in other.call('SCRIPT', 'KILL') and 'FUNCTION KILL' in other.call('SCRIPT', 'KILL')
        assert other.call('FUNCTION', 'KILL') == b'OK'
        t.join(20)
        assert answer[0].startswith('ERR Script killed by user with SCRIPT KILL... script: '), answer  # so says Redis
        assert other.call('PING') == b'PONG' and other.call('FUNCTION', 'STATS')[1] is None


# -- files and restarts ---------------------------------------------------------------------------------

def load_three(c):
    c.function_load(library('gone', 'f'))
    c.function_load(library('lib', 'echo', 'twice', body='return {{"{0}", args[1]}}'))
    c.function_load(library('other', 'h'))
    c.function_delete('gone')
    c.function_load(library('other', 'h2'), replace=True)
    c.set('k', 'v')


def expect_two(c):
    assert sorted(lib[1] for lib in c.function_list()) == [b'lib', b'other']
    assert c.fcall('twice', 1, 'k', 'x') == [b'twice', b'x'] and c.fcall('h2', 0) == b'h2'
    assert c.get('k') == b'v'


ENGINE_FILES = {
    'memory': {'aof': ('--appendonly', 'yes'),
               'aof of commands': ('--appendonly', 'yes', '--aof-use-rdb-preamble', 'no'), 'rdb': ('--appendonly', 'no')},
    'rocksdb': {'rocksdb': ()},
}


@pytest.mark.lone('a cluster loads no files')
@pytest.mark.parametrize('how', ENGINE_FILES[mayfly.ENGINE])
def test_restart(server_factory, how):
    s = server_factory(*ENGINE_FILES[mayfly.ENGINE][how], '--enable-debug-command', 'yes')
    with s.client() as c:
        load_three(c)
        if how == 'rdb':
            c.save()
        expect_two(c)
    for kill in (signal.SIGKILL, signal.SIGKILL):
        s.restart(kill)
        with s.client() as c:
            expect_two(c)
            if 'aof' in how:     # from the second time on they are in the base
                c.bgrewriteaof()
                eventually(lambda: c.info('persistence')['aof_rewrite_in_progress'] == 0 and
                           c.info('persistence')['aof_rewrite_scheduled'] == 0)
    with s.client() as c:
        c.flushall()
        assert len(c.function_list()) == 2 and c.fcall('h2', 0) == b'h2'
        c.set('k', 'v')
        c.execute_command('DEBUG', 'RELOAD')
        expect_two(c)
        if 'aof' in how:
            c.execute_command('DEBUG', 'LOADAOF')
            expect_two(c)
        p = c.pipeline()
        p.function_flush()
        p.function_load(library('last', 'z'))
        p.execute()
        if how == 'rdb':
            c.save()
    s.restart(signal.SIGKILL)
    with s.client() as c:
        assert [lib[1] for lib in c.function_list()] == [b'last'] and c.fcall('z', 0) == b'z'
        assert c.function_flush() and c.function_list() == []
        if how == 'rdb':
            c.save()
    s.restart(signal.SIGKILL)
    with s.client() as c:
        assert c.function_list() == [] and c.get('k') == b'v'


@pytest.mark.engine('rocksdb', 'the other engine has no rows for them')
def test_restart_with_many(server_factory):
    """What is loaded, replaced, deleted and restored in several transactions is there after a crash, and nothing else."""
    s = server_factory()

    def libraries(c):
        return sorted(lib[1].decode() for lib in c.call('FUNCTION', 'LIST'))

    with s.raw() as c:
        load_many(c, 0, 2000)
        dump = c.call('FUNCTION', 'DUMP')
        for i in range(0, 2000, 100):
            c.call('FUNCTION', 'DELETE', f'l{i}')
            c.call('FUNCTION', 'LOAD', 'REPLACE', library(f'l{i + 1}', f'f{i + 1}', body="return 'new'"))
        assert c.call('FUNCTION', 'LOAD', library('n' * 100_000, 'long_name')) == b'n' * 100_000
        there = libraries(c)
    s.restart(signal.SIGKILL)
    with s.raw() as c:
        assert libraries(c) == there and len(there) == 1981
        assert c.call('FCALL', 'f101', 0) == b'new' and c.call('FCALL', 'f102', 0) == b'f102'
        assert c.call('FCALL', 'long_name', 0) == b'long_name'
        assert c.call('FUNCTION', 'RESTORE', dump, 'REPLACE') == b'OK'
    s.restart(signal.SIGKILL)
    with s.raw() as c:
        assert len(libraries(c)) == 2001 and c.call('FCALL', 'f101', 0) == b'f101'
        assert c.call('FUNCTION', 'RESTORE', dump, 'FLUSH') == b'OK'
        assert c.call('FUNCTION', 'DELETE', 'l7') == b'OK'
    s.restart()
    with s.raw() as c:
        assert libraries(c) == sorted(f'l{i}' for i in range(2000) if i != 7)
        assert c.call('FUNCTION', 'FLUSH') == b'OK'
    s.restart(signal.SIGKILL)
    with s.raw() as c:
        assert libraries(c) == []
    s.stop()
    check = subprocess.run([mayfly.BINARY, '--check', s.dir], capture_output=True, text=True, timeout=60)
    assert check.returncode == 0, check.stdout + check.stderr


@pytest.mark.engine('memory', 'the other engine has no such files')
def test_files_to_and_fro(server_factory, redis_factory, tmp_path):
    """An RDB file of each is loaded by the other."""
    s = server_factory('--appendonly', 'no', directory=str(tmp_path))
    with s.client() as c:
        load_three(c)
        c.save()
    s.stop()
    redis_server.check_rdb(tmp_path / 'dump.rdb')
    theirs = redis_factory(directory=str(tmp_path))
    with theirs.client() as c:
        expect_two(c)
        c.function_load(library('third', 'q'))
        c.save()
    theirs.stop()
    s.start()
    with s.client() as c:
        assert c.fcall('q', 0) == b'q'
        c.function_delete('third')
        expect_two(c)


@pytest.mark.engine('memory', 'the other engine has no such files')
def test_library_that_cannot_be_loaded(server_factory, tmp_path):
    import rdb_bytes as rdb                                    # pylint: disable=import-outside-toplevel
    data = rdb.file(10, b'\xf5' + rdb.string('#!js name=l\nwhatever'), rdb.select(0), rdb.key(0, 'k', rdb.string('v')))
    (tmp_path / 'dump.rdb').write_bytes(data)
    s = server_factory('--appendonly', 'no', directory=str(tmp_path), wait=False)
    assert s.proc.wait(mayfly.PATIENCE) == 1 and "a library of functions can't be loaded: Engine 'js' not found" in s.log, s.log
    s = server_factory('--appendonly', 'no', '--rdb-skip-unsupported', 'yes', directory=str(tmp_path))
    with s.client() as c:
        assert c.get('k') == b'v' and c.function_list() == [] and 'Left out a library' in s.log


# -- replication -----------------------------------------------------------------------------------------

PAIRS = ['mayfly mayfly', 'mayfly redis', 'redis mayfly']


def follow(replica, primary):
    replica.client().replicaof('127.0.0.1', primary.port)
    eventually(lambda: replica.client().info('replication')['master_link_status'] == 'up')


def in_step(primary, replica):
    def position(s, name):
        with s.client() as c:
            return c.info('replication')[name]
    eventually(lambda: position(primary, 'master_repl_offset') == position(replica, 'slave_repl_offset'))


@pytest.mark.lone('nodes of a cluster replicate by Raft')
@pytest.mark.parametrize('pair', PAIRS)
def test_replication(server_factory, redis_factory, pair):
    make = {'mayfly': server_factory, 'redis': redis_factory}
    primary, replica = (make[kind]('--repl-diskless-sync-delay', 0) for kind in pair.split())
    with primary.client() as p, replica.client() as c:
        load_three(p)
        c.function_load(library('old', 'old'))
        follow(replica, primary)
        assert sorted(lib[1] for lib in c.function_list()) == [b'lib', b'other'], 'what was there before is gone'
        p.function_load(library('more', 'm', body="return redis.call('INCR', 'counted')"))
        p.function_delete('other')
        assert p.fcall('m', 0) == 1
        payload = p.function_dump()
        in_step(primary, replica)
        assert c.get('counted') == b'1' and c.function_dump() is not None
        assert sorted(lib[1] for lib in c.function_list()) == [b'lib', b'more']
        with Raw(replica.port) as raw:
            assert raw.call('FUNCTION', 'FLUSH').startswith('READONLY')
            assert raw.call('FCALL', 'm', 0).startswith('READONLY')
        p.function_flush()
        in_step(primary, replica)
        assert c.function_list() == []
        p.function_restore(payload)
        p.flushall()
        in_step(primary, replica)
        assert sorted(lib[1] for lib in c.function_list()) == [b'lib', b'more'] and c.dbsize() == 0
        c.replicaof('NO', 'ONE')
        assert c.fcall('m', 0) == 1
    if pair.endswith('mayfly') and mayfly.ENGINE == 'rocksdb':
        replica.restart(signal.SIGKILL)
        with replica.client() as c:
            assert c.fcall('m', 0) == 2
