"""A wall clock that steps, as one does that an administrator or NTP sets: it moves deadlines of keys, and nothing else.
No timeout ends early, none waits for the clock to come back, no link breaks."""
import os
import re
import shutil
import struct
import subprocess
import time

import pytest

import mayfly
from mayfly import eventually

pytestmark = [
    pytest.mark.any_engine,
    pytest.mark.skipif(mayfly.sanitized() or not shutil.which('gcc'),
                       reason='needs gcc, and a server without sanitizers'),
]

STEPS = pytest.mark.parametrize('seconds', [4000, -4000])
THERE_AND_BACK = 4000, 0


@pytest.fixture(scope='module')
def shim(tmp_path_factory):
    """The library that gives a server a clock of its own."""
    path = tmp_path_factory.mktemp('clock') / 'stepping_clock.so'
    source = os.path.join(os.path.dirname(__file__), 'stepping_clock.c')
    subprocess.run(['gcc', '-shared', '-fPIC', '-O1', '-o', path, source], check=True)
    return path


class Clock:
    """The wall clock of the servers of one test."""

    def __init__(self, shim, path):
        self.path = path
        self.before = ('env', f'LD_PRELOAD={shim}', f'CLOCK_STEP_FILE={path}')
        path.write_bytes(struct.pack('=q', 0))

    def step(self, seconds):
        with open(self.path, 'r+b') as f:
            f.write(struct.pack('=q', seconds))


@pytest.fixture
def clock(shim, tmp_path):
    return Clock(shim, tmp_path / 'step')


def server_time(c):
    return int(c.call('TIME')[0])


def cron_seconds(c, n):
    """Waits until the server has done n times what it does once a second."""
    def uptime():
        text = c.call('INFO', 'server').decode()
        return int(text.split('uptime_in_seconds:')[1].split()[0])
    end = uptime() + n
    eventually(lambda: uptime() >= end)


def field(server, section, name):
    return server.info(section)[name]


def test_clients_are_not_concerned(server_factory, clock):
    """Neither idle clients, nor those that wait for keys or for the end of a pause."""
    s = server_factory('--timeout', 60, before=clock.before)
    with s.raw() as idle, s.raw() as blocked, s.raw() as other:
        idle.call('PING')
        blocked.command('BLPOP', 'list', 300)
        eventually(lambda: field(s, 'clients', 'blocked_clients') == 1)
        start = server_time(other)
        for seconds in THERE_AND_BACK:
            clock.step(seconds)
            assert abs(server_time(other) - start - seconds) < 60, 'the clock of the server has not moved'
            cron_seconds(other, 1)
            assert blocked.silent(0.01), 'a timeout came by the wall clock'
            lines = other.call('CLIENT', 'LIST').decode().splitlines()
            ages = [int(n) for line in lines for n in re.findall(r' (?:age|idle)=(-?\d+)', line)]
            assert len(ages) == 2 * len(lines) and all(0 <= age < 60 for age in ages), lines
        assert idle.call('PING') == b'PONG', 'an idle client was dropped'
        assert other.call('RPUSH', 'list', 'x') == 1
        assert blocked.reply() == [b'list', b'x']


@STEPS
def test_timeouts_end_in_time(server_factory, clock, seconds):
    """They begin before a step and end after it, as if there had been none."""
    s = server_factory(before=clock.before)
    with s.raw() as blocked, s.raw() as waiting, s.raw() as paused:
        blocked.command('BLPOP', 'list', 1)
        waiting.command('WAIT', 1, 1000)
        eventually(lambda: field(s, 'clients', 'blocked_clients') == 2)
        clock.step(seconds)
        assert blocked.reply() is None
        assert waiting.reply() == 0
        clock.step(0)
        paused.call('CLIENT', 'PAUSE', 100)
        clock.step(seconds)
        paused.call('CLIENT', 'PAUSE', 1)                    # a second one takes the later end of the two
        assert paused.call('GET', 'x') is None


def test_replication_is_not_concerned(server_factory, clock):
    """Neither the link, nor what counts on its being there, nor the backlog when it has gone."""
    args = ('--repl-timeout', 20, '--repl-ping-replica-period', 1, '--min-replicas-max-lag', 20,
            '--repl-diskless-sync-delay', 0)
    primary = server_factory(*args, '--min-replicas-to-write', 1, before=clock.before)
    replica = server_factory(*args, '--replicaof', f'127.0.0.1 {primary.port}', before=clock.before)
    eventually(lambda: field(replica, 'replication', 'master_link_status') == 'up')

    def acknowledged():
        return primary.info('replication').get('slave0', {}).get('offset', 0)

    eventually(acknowledged)
    with primary.raw() as c:
        for seconds in THERE_AND_BACK:
            clock.step(seconds)
            cron_seconds(c, 1)
            assert c.call('SET', 'k', 'v') == b'OK', 'min-replicas-to-write goes by the wall clock'
            written = field(primary, 'replication', 'master_repl_offset')
            eventually(lambda: acknowledged() >= written)     # pylint: disable=cell-var-from-loop
        assert abs(field(primary, 'replication', 'slave0')['lag']) < 20
        assert field(primary, 'stats', 'sync_full') == 1 and field(primary, 'stats', 'sync_partial_ok') == 0
        assert field(replica, 'replication', 'master_link_status') == 'up'
        assert 'timedout' not in primary.log + replica.log
        replica.stop()
        eventually(lambda: field(primary, 'replication', 'connected_slaves') == 0)
        clock.step(4000)
        cron_seconds(c, 1)
        assert field(primary, 'replication', 'repl_backlog_active') == 1


@pytest.mark.engine('memory', 'save points')
def test_save_points_count_real_seconds(server_factory, clock):
    """A step forward saves nothing early; one back does not keep the server from saving."""
    s = server_factory('--appendonly', 'no', before=clock.before)
    with s.raw() as c:
        c.call('CONFIG', 'SET', 'save', '3000 1')
        c.call('SET', 'k', 'v')
        clock.step(4000)
        cron_seconds(c, 1)
        assert field(s, 'persistence', 'rdb_changes_since_last_save') == 1
        clock.step(-4000)
        c.call('CONFIG', 'SET', 'save', '1 1')
        eventually(lambda: field(s, 'persistence', 'rdb_changes_since_last_save') == 0)
        assert abs(c.call('LASTSAVE') - (time.time() - 4000)) < 60, 'LASTSAVE is a date'


@STEPS
def test_keys_are(server_factory, clock, seconds):
    """A deadline is a date: what is dead by the new time is gone, what is not lives as long as that says."""
    s = server_factory(before=clock.before)
    with s.raw() as c:
        c.call('SET', 'k', 'v', 'EX', 3600)
        clock.step(seconds)
        assert c.call('EXISTS', 'k') == (0 if seconds > 0 else 1)
        if seconds < 0:
            assert 3600 < c.call('TTL', 'k') <= 7600
