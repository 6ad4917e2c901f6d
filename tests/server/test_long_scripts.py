"""Scripts that take long: what time they see, and how they, or the server, are ended."""
import signal

import pytest

import mayfly

BEGUN = 'redis.log(redis.LOG_WARNING, "it has begun") '
WRITES = 'redis.call("SET", "half", "done") '
ENDLESS = {
    'loop': 'while true do end',
    'pcall': 'while true do pcall(function() while true do end end) end',
    'coroutine': 'coroutine.wrap(function() while true do end end)()',
    'commands': 'while true do redis.call("GET", "k") end',
    'pattern': 'return string.find(("a"):rep(4000), ("a?"):rep(4000) .. ("a"):rep(4000))',
    'load': 'local function f() for i = 1, 100 do load(f) end end load(f)',
    'parser': 'return loadstring("local x if x then return 1 " .. ("elseif x then "):rep(1e6) .. "end")',
    'concat': 'local s = ("x"):rep(3e7) while true do local t = s .. "y" end',
    'concat in coroutine': 'coroutine.wrap(function() local s = ("x"):rep(1e7) while true do local t = s .. "y" end end)()',
    'compare': 'local a = ("x"):rep(3e7) local b = a .. "y" while true do local c = a < b end',
    'decode': 'local s = "[" .. ("1,"):rep(1e6) .. "1]" while true do cjson.decode(s) end',
    'sort': 'local t, s = {}, ("x"):rep(1e5) for i = 1, 500 do t[i] = s .. i end while true do table.sort(t) end',
    'insert': 'table.insert({}, -2^31 + 1, 1)',
    'sha1hex': 'local s = ("x"):rep(3e7) while true do redis.sha1hex(s) end',
}
NOW = 'local function now() local t = redis.call("TIME") return t[1] * 1000000 + t[2] end '


def files(engine=mayfly.ENGINE):
    """What keeps data across restarts; for the memory engine both ways."""
    return {'rocksdb': [[]], 'memory': [['--appendonly', 'yes'], ['--appendonly', 'no', '--save', '3600 1']]}[engine]


def begin(s, script, name='EVAL'):
    """A connection whose script runs, and has begun."""
    c = s.raw()
    c.call('SET', 'before', 'x')
    c.command(name, script if name == 'FCALL' else BEGUN + script, 0)
    mayfly.eventually(lambda: 'it has begun' in s.log)
    return c


# -- time ----------------------------------------------------------------------------------------------

def test_a_script_may_wait_for_time(server_factory):
    """TIME moves once others are told BUSY; what is alive when the script begins stays so."""
    s = server_factory('--busy-reply-threshold', 50)
    with s.client() as r:
        seen, value = r.eval('redis.call("SET", "k", "v", "PX", 1) ' + NOW +
                             'local start, n = now(), 0 while now() < start + 50000 do n = n + 1 end '
                             'local last = now() for i = 1, 1000 do local t = now() if t < last then return "back" end '
                             'last = t end return {n, redis.call("GET", "k")}', 0)
        assert seen > 0 and value == b'v'
        mayfly.eventually(lambda: r.get('k') is None)


# -- signals -------------------------------------------------------------------------------------------

@pytest.mark.parametrize('threshold, script', [(5000, k) for k in ENDLESS] + [(0, 'loop'), (0, 'pcall')])
def test_a_signal_ends_a_script_that_has_not_written(server_factory, script, threshold):
    s = server_factory('--busy-reply-threshold', threshold)
    with begin(s, ENDLESS[script]) as c:
        s.proc.send_signal(signal.SIGTERM)
        assert c.reply().startswith('ERR the server is shutting down')
        assert s.proc.wait(mayfly.PATIENCE) == 0, s.log
    s.check()
    assert 'User requested shutdown...' in s.log and 'bye bye' in s.log


def test_a_signal_ends_a_function(server_factory):
    s = server_factory()
    with s.client() as r:
        r.function_load('#!lua name=l\nredis.register_function("spin", function() ' + BEGUN + ENDLESS['pcall'] + ' end)')
    with begin(s, 'spin', 'FCALL') as c:
        s.proc.send_signal(signal.SIGTERM)
        assert c.reply().startswith('ERR the server is shutting down')
        assert s.proc.wait(mayfly.PATIENCE) == 0, s.log


@pytest.mark.parametrize('keep', files(), ids=lambda k: ' '.join(k[:2]) or 'rocksdb')
@pytest.mark.parametrize('script', ['loop', 'pcall'])
def test_a_signal_ends_the_server_under_a_script_that_has_written(server_factory, script, keep):
    """What it did is undone, where there is more than a snapshot of what is in memory."""
    s = server_factory('--shutdown-timeout', 1, *keep)
    with begin(s, WRITES + ENDLESS[script]):
        s.proc.send_signal(signal.SIGTERM)
        assert s.proc.wait(mayfly.PATIENCE) == 0, s.log
    s.check()
    kept = '--save' in keep
    assert f'It is stopped, and what it did is {"kept" if kept else "undone"}.' in s.log
    s.start()
    with s.client() as r:
        assert sorted(r.keys()) == ([b'before', b'half'] if kept else [b'before'])


def test_a_script_that_has_written_may_finish(server_factory):
    s = server_factory('--busy-reply-threshold', 20, *files()[0])
    with begin(s, WRITES + NOW + 'local t = now() while now() < t + 400000 do end return "whole"') as c:
        s.proc.send_signal(signal.SIGTERM)
        assert c.reply() == b'whole'
        assert s.proc.wait(mayfly.PATIENCE) == 0, s.log
    s.start()
    with s.client() as r:
        assert sorted(r.keys()) == [b'before', b'half']


# -- killing -------------------------------------------------------------------------------------------

@pytest.mark.parametrize('script', ENDLESS)
def test_all_of_them_can_be_killed(long_runner, script):
    """Whatever it is in just now: Lua code, one of Lua's own functions, the parser."""
    with long_runner.raw() as c, long_runner.raw() as other:
        c.command('EVAL', ENDLESS[script], 0)

        def killed():
            return other.call('SCRIPT', 'KILL') == b'OK'
        mayfly.eventually(killed)
        assert not isinstance(c.reply(), int) and other.call('PING') == b'PONG'


@pytest.fixture(scope='module')
def long_runner():
    yield from mayfly.for_a_session('--busy-reply-threshold', 20)


# -- compiling -----------------------------------------------------------------------------------------

@pytest.mark.parametrize('source', [
    'local x if x then return 1 ' + 'elseif x then ' * 200_000 + 'end',
    'local x return ' + 'x and ' * 300_000 + 'x',
    'local x while x do ' + 'if x then break end ' * 200_000 + 'end',
], ids=['elseif', 'and', 'break'])
def test_what_takes_long_to_compile_is_refused(long_runner, source):
    with long_runner.raw() as c:
        assert 'it takes too long to compile' in c.call('EVAL', source, 0)
        if 'elseif' not in source:
            return
        library = '#!lua name=l\nredis.register_function("f", function() ' + source + ' end)'
        assert 'it takes too long to compile' in c.call('FUNCTION', 'LOAD', library)


def test_long_code_is_none_of_that(long_runner):
    """A megabyte of ordinary code, and what loadstring makes of it."""
    source = 'local t = {}\n' + ''.join(f'if t[{i}] then t[{i}] = "{i}" else t.x = {i} end\n' for i in range(20_000))
    with long_runner.client() as r:
        assert r.eval(source + 'return t.x', 0) == 19_999
        assert r.eval('return loadstring(ARGV[1])()', 0, source + 'return t.x') == 19_999
