"""What the system shows of the server: its title, its OOM score, huge pages, marks of sockets, lines in the system log."""
import ctypes
import os
import shutil
import socket
import subprocess

import pytest

import mayfly
from mayfly import eventually

pytestmark = pytest.mark.any_engine


def title(server):
    with open(f'/proc/{server.proc.pid}/cmdline', 'rb') as f:
        return f.read().rstrip(b'\0').decode()


def oom_score(server):
    with open(f'/proc/{server.proc.pid}/oom_score_adj', encoding='ascii') as f:
        return int(f.read())


# -- the title ---------------------------------------------------------------------------------------

def test_title(server_factory):
    s = server_factory('--bind', '127.0.0.1 -::1')
    assert title(s) == f'{mayfly.BINARY} 127.0.0.1:{s.port}'
    with s.raw() as c:
        assert c.call('CONFIG', 'SET', 'proc-title-template', '{title} {port}/{tls-port} [{server-mode}] {unixsocket}') == b'OK'
        assert title(s) == f'{mayfly.BINARY} {s.port}/0 []'
        assert c.call('CONFIG', 'SET', 'proc-title-template', 'x' * 1_000_000) == b'OK'      # as much as there is room for
        assert set(title(s)) == {'x'} and len(title(s)) > len(mayfly.BINARY)
        port = mayfly.free_port()
        assert c.call('CONFIG', 'SET', 'proc-title-template', 'at {listen-addr}', 'port', port) == b'OK'
        assert title(s) == f'at 127.0.0.1:{port}'
        assert isinstance(c.call('CONFIG', 'SET', 'proc-title-template', '{nothing}'), mayfly.ReplyError)


def test_title_of_a_unix_socket(server_factory, tmp_path):
    s = server_factory('--unixsocket', tmp_path / 'a.sock', '--port', 0, '--proc-title-template', '{listen-addr}')
    assert title(s) == str(tmp_path / 'a.sock')


def test_title_left_alone(server_factory):
    s = server_factory('--set-proc-title', 'no')
    assert title(s).split('\0')[:3] == [mayfly.BINARY, '--port', str(s.port)]


def test_the_environment_survives(server_factory):
    """Its strings are where the title goes."""
    s = server_factory(before=('env', 'TZ=XXX-05:30', 'FIRST=1'))
    assert '/' in title(s)
    with s.raw() as c:
        assert c.call('CONFIG', 'SET', 'proc-title-template', 'x' * 10_000) == b'OK'
        assert c.call('PING') == b'PONG'


# -- memory ------------------------------------------------------------------------------------------

def may_set_oom_score():
    """Without the right to, a process can't go below what it was given: 1000 in many containers."""
    def set_and_restore():
        with open('/proc/self/oom_score_adj', 'r+', encoding='ascii') as f:
            given = f.read()
        for value in '11', given:
            with open('/proc/self/oom_score_adj', 'w', encoding='ascii') as f:
                f.write(value)
    try:
        subprocess.run(['true'], preexec_fn=set_and_restore, check=True)    # pylint: disable=subprocess-popen-preexec-fn
        return True
    except (OSError, subprocess.SubprocessError):
        return False


needs_oom_score = pytest.mark.skipif(not may_set_oom_score(), reason='needs the right to set an OOM score')


@needs_oom_score
def test_oom_score(server_factory):
    s = server_factory('--oom-score-adj-values', '11 22 33')
    base = oom_score(s)
    with s.raw() as c:
        c.call('CONFIG', 'SET', 'oom-score-adj', 'absolute')
        assert oom_score(s) == 11
        c.call('REPLICAOF', '127.0.0.1', mayfly.free_port())
        assert oom_score(s) == 22
        c.call('CONFIG', 'SET', 'oom-score-adj-values', '15 25 35')
        assert oom_score(s) == 25
        c.call('REPLICAOF', 'NO', 'ONE')
        assert oom_score(s) == 15
        c.call('CONFIG', 'SET', 'oom-score-adj', 'relative')
        assert oom_score(s) == min(base + 15, 1000)
        c.call('CONFIG', 'SET', 'oom-score-adj', 'no')
        assert oom_score(s) == base


def test_oom_score_at_start(server_factory):
    s = server_factory('--oom-score-adj', 'absolute', '--oom-score-adj-values', '2000 1 1')
    assert oom_score(s) == 1000


@pytest.mark.parametrize('disable', ['yes', 'no'])
def test_huge_pages(server_factory, disable):
    s = server_factory('--disable-thp', disable)
    ours, inherited = thp_enabled(s.proc.pid), thp_enabled('self')
    if ours is None:
        pytest.skip('the kernel does not tell')
    assert ours == ('0' if disable == 'yes' else inherited)


def thp_enabled(pid):
    with open(f'/proc/{pid}/status', encoding='utf-8') as f:
        return next((line.split()[1] for line in f if line.startswith('THP_enabled:')), None)


# -- socket-mark-id ----------------------------------------------------------------------------------

def marks(server):
    """SO_MARK of every TCP socket of the server, by way of a copy of its descriptor."""
    libc, out = ctypes.CDLL(None, use_errno=True), []
    pidfd = os.pidfd_open(server.proc.pid)
    for fd in os.listdir(f'/proc/{server.proc.pid}/fd'):
        if not os.readlink(f'/proc/{server.proc.pid}/fd/{fd}').startswith('socket:'):
            continue
        copy = libc.syscall(438, pidfd, int(fd), 0)         # pidfd_getfd
        if copy < 0:
            pytest.skip(f'pidfd_getfd: {os.strerror(ctypes.get_errno())}')
        with socket.socket(fileno=copy) as s:
            if s.family == socket.AF_INET:
                out.append(s.getsockopt(socket.SOL_SOCKET, socket.SO_MARK))
    os.close(pidfd)
    return out


@pytest.mark.skipif(not hasattr(os, 'pidfd_open'), reason='Python 3.9')
def test_marked_sockets(server_factory):
    """Also those of clients; a server that may not set the mark says so."""
    s = server_factory('--socket-mark-id', 77, '--bind', '127.0.0.1')
    with s.raw() as c:
        assert c.call('PING') == b'PONG'
        if 'socket-mark-id has no effect' in s.log:
            pytest.skip('not permitted here')
        assert marks(s) == [77, 77]
        assert c.call('CONFIG', 'SET', 'port', mayfly.free_port()) == b'OK'
        assert set(marks(s)) == {77}


# -- the system log ----------------------------------------------------------------------------------

SYSLOG = r'''
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
static FILE *to(void) { return fopen(getenv("SYSLOG_FILE"), "a"); }
void openlog(const char *ident, int option, int facility)
{
    FILE *f = to();
    fprintf(f, "open %s %d %d\n", ident, option & 1, facility >> 3);
    fclose(f);
}
void syslog(int priority, const char *format, ...)
{
    FILE *f = to();
    va_list ap;
    va_start(ap, format);
    fprintf(f, "%d ", priority);
    vfprintf(f, format, ap);
    fprintf(f, "\n");
    fclose(f);
}
'''


@pytest.mark.skipif(mayfly.sanitized() or not shutil.which('gcc'), reason='needs gcc, and a server without sanitizers')
def test_syslog(server_factory, tmp_path):
    (tmp_path / 'syslog.c').write_text(SYSLOG)
    subprocess.run(['gcc', '-shared', '-fPIC', '-o', tmp_path / 'syslog.so', tmp_path / 'syslog.c'], check=True)
    lines = tmp_path / 'lines'
    before = ('env', f'LD_PRELOAD={tmp_path}/syslog.so', f'SYSLOG_FILE={lines}')
    s = server_factory('--syslog-enabled', 'yes', '--syslog-ident', 'our%s', '--syslog-facility', 'local3',
                       '--enable-debug-command', 'yes', before=before)
    with s.raw() as c:
        c.call('DEBUG', 'LOG', '100%n')
    eventually(lambda: '100%n' in lines.read_text())
    text = lines.read_text().splitlines()
    assert text[0] == 'open our%s 1 19', 'with its pid, as local3'
    assert '5 Ready to accept connections' in '\n'.join(text) and '4 DEBUG LOG: 100%n' in text
    assert 'Ready to accept connections' in s.log
    server_factory(before=before)
    assert lines.read_text().splitlines()[:len(text)] == text and lines.read_text().count('Ready to accept') == 1
