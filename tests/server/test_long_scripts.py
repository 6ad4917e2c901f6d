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

@pytest.mark.parametrize('threshold', [0, 5000])
@pytest.mark.parametrize('script', ENDLESS.values(), ids=ENDLESS)
def test_a_signal_ends_a_script_that_has_not_written(server_factory, script, threshold):
    s = server_factory('--busy-reply-threshold', threshold)
    with begin(s, script) as c:
        s.proc.send_signal(signal.SIGTERM)
        assert c.reply().startswith('ERR the server is shutting down')
        assert s.proc.wait(30) == 0, s.log
    s.check()
    assert 'User requested shutdown...' in s.log and 'bye bye' in s.log


def test_a_signal_ends_a_function(server_factory):
    s = server_factory()
    with s.client() as r:
        r.function_load('#!lua name=l\nredis.register_function("spin", function() ' + BEGUN + ENDLESS['pcall'] + ' end)')
    with begin(s, 'spin', 'FCALL') as c:
        s.proc.send_signal(signal.SIGTERM)
        assert c.reply().startswith('ERR the server is shutting down')
        assert s.proc.wait(30) == 0, s.log


@pytest.mark.parametrize('keep', files(), ids=lambda k: ' '.join(k[:2]) or 'rocksdb')
@pytest.mark.parametrize('script', ['loop', 'pcall'])
def test_a_signal_ends_the_server_under_a_script_that_has_written(server_factory, script, keep):
    """What it did is undone, where there is more than a snapshot of what is in memory."""
    s = server_factory('--shutdown-timeout', 1, *keep)
    with begin(s, WRITES + ENDLESS[script]):
        s.proc.send_signal(signal.SIGTERM)
        assert s.proc.wait(30) == 0, s.log
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
        assert s.proc.wait(30) == 0, s.log
    s.start()
    with s.client() as r:
        assert sorted(r.keys()) == [b'before', b'half']
