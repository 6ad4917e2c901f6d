"""A write and an endless script in one tick: writes acknowledged while the script runs are kept, however the
server ends."""
import signal
import time

import pytest

import mayfly
from load import Link
from machine import MEMORY, ROCKS

SPIN = 'while true do end'
WRITE_AND_SPIN = "redis.call('SET', 'half', '1') while true do end"
READ_AND_SPIN = "redis.call('GET', 'k') while true do end"
CLEANER_OFF = ('--ttl-cleanup-interval', 0)     # what is dead goes when it is found

# What a client sends, and what must be there if its last answer is not an error.
WRITES = {
    'set': ([('SET', 'k', 'v')], {'k': b'v'}),
    'pipeline': ([('SET', 'k', 'v'), ('GET', 'k'), ('SET', 'm', 'w')], {'k': b'v', 'm': b'w'}),
    'transaction': ([('MULTI',), ('SET', 'k', 'v'), ('SET', 'm', 'w'), ('EXEC',)], {'k': b'v', 'm': b'w'}),
    'over a dead key': ([('SET', 'dead', 'new', 'NX')], {'dead': b'new'}),
    'script': ([('EVAL', "return redis.call('SET', KEYS[1], 'v')", 1, 'k')], {'k': b'v'}),
    'function': ([('FUNCTION', 'LOAD', "#!lua name=l\nredis.register_function('f', function() return 1 end)")], {}),
}


def is_busy(m):
    with Link(m.port) as link:
        answer = link.call('PING')
        return isinstance(answer, mayfly.ReplyError) and answer.startswith('BUSY')


def answers(link, commands):
    """Those that come while the script runs: none, or all."""
    return [] if link.silent(0.3) else [link.reply() for _ in commands]


def in_one_tick(m, *sent):
    """The server gets all of it at once and in this order: it is stopped, having nothing to do, while the clients
    send. (What it read just before a stop would stand first among what is readable after it.)"""
    for link, _ in sent:
        link.call('PING')       # the server has accepted it
    mayfly.eventually(lambda: mayfly.process_state(m.proc.pid) == 'S')
    m.proc.send_signal(signal.SIGSTOP)
    mayfly.eventually(lambda: mayfly.process_state(m.proc.pid) == 'T')
    for link, commands in sent:
        link.send(b''.join(mayfly.encode(*c) for c in commands))
    m.proc.send_signal(signal.SIGCONT)


def start(m):
    m.start('--busy-reply-threshold', 10, *CLEANER_OFF)
    with Link(m.port) as link:
        dies = time.time() + 0.05
        assert link.call('SET', 'dead', 'old', 'PXAT', int(dies * 1000)) == b'OK'
    mayfly.eventually(lambda: time.time() > dies)


@pytest.mark.parametrize('first', ['writer', 'script'])
@pytest.mark.parametrize('setup, what', [(ROCKS, w) for w in WRITES] + [(MEMORY, 'set'), (MEMORY, 'transaction')],
                         ids=lambda x: getattr(x, 'name', x))
def test_writes_answered_during_a_script_are_kept(setup, what, first, machines):
    m = machines(setup, 'always')
    start(m)
    commands, expected = WRITES[what]
    with Link(m.port) as writer, Link(m.port) as script:
        sent = [(writer, commands), (script, [('EVAL', SPIN, 0)])]
        in_one_tick(m, *(sent if first == 'writer' else reversed(sent)))
        mayfly.eventually(lambda: is_busy(m))
        got = answers(writer, commands)
        m.healthy()
        m.kill()
    m.check()
    m.start()
    promised = got and not isinstance(got[-1], mayfly.ReplyError)
    if first == 'writer' and what != 'function':
        assert promised, got                    # it does not wait for a script that has changed nothing
    with Link(m.port) as link:
        if promised:
            assert {k: link.call('GET', k) for k in expected} == expected
        if promised and what == 'function':
            assert link.call('FCALL', 'f', 0) == 1
    m.stop()


@pytest.mark.parametrize('setup', [ROCKS, MEMORY], ids=lambda s: s.name)
def test_beside_a_script_that_writes_nothing_is_answered_early(setup, machines):
    """What the script did is kept or lost together with what the same tick did before it."""
    m = machines(setup, 'always')
    start(m)
    with Link(m.port) as writer, Link(m.port) as script:
        in_one_tick(m, (writer, [('SET', 'k', 'v')]), (script, [('EVAL', WRITE_AND_SPIN, 0)]))
        mayfly.eventually(lambda: is_busy(m))
        assert writer.silent(0.3)
        m.healthy()
        m.kill()
    m.check()
    m.start()
    with Link(m.port) as link:
        assert link.call('GET', 'half') is None
        assert link.call('GET', 'k') is None
    m.stop()


def test_answered_beside_a_script_that_only_reads(machines):
    m = machines(ROCKS, 'always')
    start(m)
    with Link(m.port) as writer, Link(m.port) as script:
        in_one_tick(m, (writer, [('SET', 'k', 'v')]), (script, [('EVAL', READ_AND_SPIN, 0)]))
        assert writer.reply() == b'OK'
        with Link(m.port) as other:
            assert mayfly.eventually(lambda: other.call('SCRIPT', 'KILL')) == b'OK'
        assert 'killed' in str(script.reply())
        assert script.call('INCR', 'n') == 1
        m.kill()
    m.start()
    with Link(m.port) as link:
        assert link.call('GET', 'k') == b'v'
        assert link.call('GET', 'n') == b'1'
    m.stop()
