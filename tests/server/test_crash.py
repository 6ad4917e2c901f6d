"""What a server that crashes leaves in its log, and how it ends. And what it writes when it hangs."""
import ctypes
import os
import platform
import re
import shutil
import signal
import subprocess

import pytest

import mayfly
from mayfly import eventually

pytestmark = [
    pytest.mark.any_engine,
    pytest.mark.skipif(mayfly.sanitized(), reason='a sanitizer writes reports of its own'),
]

START, END = '=== MAYFLY BUG REPORT START', '=== MAYFLY BUG REPORT END'


@pytest.fixture
def crashing(server_factory):
    """crashing('--directive', value …): a server that will crash."""
    return lambda *args, **options: server_factory('--enable-debug-command', 'yes', *args, crashes=True, **options)


def crash(server, *words, name=None):
    """Sends DEBUG … and returns how the server has ended."""
    with server.raw() as c:
        if name:
            c.call('CLIENT', 'SETNAME', name)
        c.command('DEBUG', *words)
        return server.proc.wait(mayfly.PATIENCE)


def sections(log):
    """The report, by the titles of its sections; '' is its head."""
    assert log.count(START) == log.count(END) == 1, log
    report = log[log.index(START):log.index(END)]
    parts = re.split(r'\n------ ([A-Z ]+) ------\n', '\n' + report.replace('------ STACK TRACE DONE ------\n', ''))
    return {'': parts[0], **dict(zip(parts[1::2], parts[2::2]))}


@pytest.mark.parametrize('what, status, line, function', [
    ('SEGFAULT', -signal.SIGSEGV, r'Accessing address: \(nil\)', 'debug_segfault'),
    ('ASSERT', -signal.SIGABRT, r"=== ASSERTION FAILED ===\n==> \S+debug\.c:\d+ '1 == 2' is not true", 'debug_assert'),
    ('PANIC', -signal.SIGABRT, r'Guru Meditation: called by DEBUG PANIC #\S+debug\.c:\d+', 'debug_panic'),
    ('OOM', -signal.SIGABRT, r'Out Of Memory allocating 9223372036854775807 bytes!', 'debug_oom'),
])
def test_the_report(crashing, what, status, line, function):
    s = crashing('--pidfile', 'the.pid')
    assert os.path.exists(f'{s.dir}/the.pid')
    assert crash(s, what, 'a"b\x00', name='me') == status
    part = sections(s.log)
    assert re.search(line, part['']), part['']
    assert re.search(rf'Mayfly \S+ \(Redis 7\.\S+\) crashed by signal: {-status} \(', part['']), part['']
    assert f'Thread: {s.proc.pid} (mayfly-server), the main thread' in part['']
    assert re.search(rf'mayfly-server\({function}[.\w]*\+0x[0-9a-f]+\) \[0x[0-9a-f]+\] \+0x[0-9a-f]+\n', part['STACK TRACE'])
    assert 'mayfly-server(server_tick' in part['STACK TRACE'] and 'mayfly-server(main' in part['STACK TRACE']
    if platform.machine() == 'x86_64':
        assert re.search(r'RSP:[0-9a-f]{16}', part['REGISTERS'])
    assert part['CURRENT COMMAND'] == f'argc: 3\nargv[0]: "DEBUG"\nargv[1]: "{what}"\nargv[2]: "a\\x22b\\x00"\n'
    assert re.match(r'id=\d+ db=0 resp=2 addr=127\.0\.0\.1:\d+ .* name=me user=default\n', part['CURRENT CLIENT'])
    assert 'redis_version:7.4' in part['INFO OUTPUT'] and '# Keyspace' in part['INFO OUTPUT']
    assert not os.path.exists(f'{s.dir}/the.pid')


def test_a_log_file(crashing):
    s = crashing('--logfile', 'the.log', wait=False)

    def log():
        with open(f'{s.dir}/the.log', encoding='utf-8') as f:
            return f.read()

    eventually(lambda: os.path.exists(f'{s.dir}/the.log') and 'Ready to accept' in log())
    assert crash(s, 'SEGFAULT') == -signal.SIGSEGV
    assert 'argv[1]: "SEGFAULT"' in sections(log())['CURRENT COMMAND'] and START not in s.log


def test_user_data_can_be_hidden(crashing):
    s = crashing('--hide-user-data-from-log', 'yes')
    assert crash(s, 'SEGFAULT', 'a-secret', name='my-secret') == -signal.SIGSEGV
    assert 'secret' not in s.log
    part = sections(s.log)
    assert part['CURRENT COMMAND'] == 'argc: 3\nargv[0]: "DEBUG"\nargv[1]: *redacted*\nargv[2]: *redacted*\n'


def test_the_report_is_bounded(crashing):
    s = crashing()
    assert crash(s, 'SEGFAULT', *['x' * 100_000] * 50) == -signal.SIGSEGV
    part = sections(s.log)
    assert '(and 20 more)' in part['CURRENT COMMAND'] and '... (100000 bytes)' in part['CURRENT COMMAND']
    assert len(part['CURRENT COMMAND']) < 10_000


def test_a_signal_from_outside(crashing):
    """Between commands there is none to name."""
    s = crashing()
    assert s.stop(signal.SIGABRT) == -signal.SIGABRT
    part = sections(s.log)
    assert f'Killed by PID: {os.getpid()}, ' in part['']
    assert part['CURRENT COMMAND'] == 'none\n' and part['CURRENT CLIENT'] == 'none\n'


def test_a_worker_thread(crashing):
    s = crashing()
    threads = [int(t) for t in os.listdir(f'/proc/{s.proc.pid}/task') if int(t) != s.proc.pid]
    tgkill = {'x86_64': 234, 'aarch64': 131}[platform.machine()]
    assert threads and ctypes.CDLL(None).syscall(tgkill, s.proc.pid, threads[0], int(signal.SIGBUS)) == 0
    assert s.proc.wait(mayfly.PATIENCE) == -signal.SIGBUS
    part = sections(s.log)
    assert f'Thread: {threads[0]} (' in part[''] and 'main thread' not in part['']
    assert '# Keyspace' in part['INFO OUTPUT']


def test_it_can_be_turned_off(crashing):
    s = crashing()
    with s.raw() as c:
        assert c.call('CONFIG', 'SET', 'crash-log-enabled', 'no') == b'OK'
    assert crash(s, 'SEGFAULT') == -signal.SIGSEGV
    assert START not in s.log
    s = crashing('--crash-log-enabled', 'no', '--use-exit-on-panic', 'yes')
    assert crash(s, 'ASSERT') == 1
    assert START not in s.log and "'1 == 2' is not true" in s.log


@pytest.mark.skipif(not shutil.which('gcc'), reason='needs gcc')
@pytest.mark.parametrize('trouble', ['for (;;) pause();', '*(volatile char *volatile)0 = 1;'])
def test_a_report_that_runs_into_trouble(crashing, tmp_path, trouble):
    """INFO hangs, or faults itself: it is left out, and all else is there."""
    (tmp_path / 'uname.c').write_text(f'''
        #include <sys/syscall.h>
        #include <unistd.h>
        int uname(void *u)
        {{
            if (access("{tmp_path}/now", F_OK)) return syscall(SYS_uname, u); /* libraries call it at the start */
            {trouble}
            return 0;
        }}''')
    subprocess.run(['gcc', '-shared', '-fPIC', '-w', '-o', tmp_path / 'uname.so', tmp_path / 'uname.c'], check=True)
    s = crashing(before=('env', f'LD_PRELOAD={tmp_path}/uname.so'))
    (tmp_path / 'now').touch()
    assert crash(s, 'SEGFAULT') == -signal.SIGSEGV
    part = sections(s.log)
    assert 'debug_segfault' in part['STACK TRACE'] and 'argv[1]: "SEGFAULT"' in part['CURRENT COMMAND']
    assert part['INFO OUTPUT'].strip() == "(The rest of this section can't be written.)"


def test_the_watchdog(server_factory):
    """It tells where the server hangs, and lets it go on."""
    s = server_factory('--enable-debug-command', 'yes')
    with s.raw() as c:
        c.call('CONFIG', 'SET', 'watchdog-period', 250)
        eventually(lambda: c.call('DEBUG', 'SLEEP', 0.6) == b'OK' and 'WATCHDOG TIMER EXPIRED' in s.log)
        assert 'debug_sleep' in s.log and START not in s.log
        c.call('CONFIG', 'SET', 'watchdog-period', 0)
        assert c.call('PING') == b'PONG'
