"""A server under test: started on a free loopback port, pinned to one core,
always stopped, its directory always removed (unless it was given one)."""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from .client import Client, ReplyError

PR_SET_PDEATHSIG = 1
START_LIMIT_S, LOAD_LIMIT_S = 15, 120


def child_setup(core, nice, realtime=False):
    """Returns what a child does before exec: pin itself, and die with us.
    nice = 0 leaves its priority alone; realtime is for the probe, which sleeps
    between its requests and so can't starve anybody."""
    libc = ctypes.CDLL(None, use_errno=True)

    def setup():
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.sched_setaffinity(0, {core} if core is not None else range(os.cpu_count()))
        if nice:
            with contextlib.suppress(OSError):
                raise_priority(nice)
                if realtime:
                    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return setup


def raise_priority(nice):
    """Where the kernel groups tasks by session (autogroup), nice counts within
    the session only; so a session of its own, and that group's nice as well."""
    os.setsid()
    os.nice(nice)
    with contextlib.suppress(FileNotFoundError):
        with open("/proc/self/autogroup", "w") as f:
            f.write(str(nice))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, name, proc, port, directory):
        self.name, self.proc, self.port, self.pid = name, proc, port, proc.pid
        self.dir = directory
        self.ready_s = None             # from its start to its first PONG
        # The CPU clock of the whole process in ns (threads that ended included):
        # what clock_getcpuclockid(3) computes.
        self._clock = (~self.pid << 3) | 2

    def client(self, timeout=60):
        return Client(self.port, timeout)

    def call(self, *args):
        with self.client() as c:
            return c.call(*args)

    def cpu_ns(self):
        self.check_alive()
        return time.clock_gettime_ns(self._clock)

    def main_thread_ns(self):
        """CPU time of the thread that runs commands."""
        self.check_alive()
        with open(f"/proc/{self.pid}/task/{self.pid}/schedstat") as f:
            return int(f.read().split()[0])

    def rss(self):
        with open(f"/proc/{self.pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def forget_peak(self):
        with open(f"/proc/{self.pid}/clear_refs", "w") as f:
            f.write("5")

    def rss_peak(self):
        """The most RSS since forget_peak()."""
        with open(f"/proc/{self.pid}/status") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM:"))

    def disk(self):
        """Bytes on disk of what it stores."""
        total = 0
        for folder, _, names in os.walk(self.dir):
            for name in names:
                with contextlib.suppress(FileNotFoundError):    # compactions go on meanwhile
                    total += os.lstat(os.path.join(folder, name)).st_blocks * 512
        return total

    def info_text(self, section, field):
        for line in self.call("INFO", section).decode().splitlines():
            key, _, value = line.partition(":")
            if key == field:
                return value
        raise RuntimeError(f"INFO {section} has no {field}")

    def info(self, section, field):
        return int(float(self.info_text(section, field)))

    def check_alive(self):
        if self.proc.poll() is not None:
            raise RuntimeError(f"{self.name} ended with code {self.proc.returncode}")

    def settle(self, limit_s=5, share=0.02):
        """Waits until the server's CPU use is small, at most limit_s."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            before = self.cpu_ns()
            time.sleep(0.25)
            if (self.cpu_ns() - before) / 0.25e9 < share:
                return


@contextlib.contextmanager
def running(name, path, core, nice, args=(), directory=None, port=None, under=()):
    """Starts a server, under another program if given; yields it when it answers PING; stops it whatever happens."""
    tmp = directory or tempfile.mkdtemp(prefix=f"bench-{name}-")
    port = port or free_port()
    log_path = os.path.join(tmp, "log")
    argv = [*under, path, "--port", str(port), "--bind", "127.0.0.1", "--dir", tmp,
            "--save", "", "--appendonly", "no", *map(str, args)]
    proc = None
    try:
        with open(log_path, "wb") as log:
            begun = time.monotonic()
            proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                    preexec_fn=child_setup(core, nice))
        server = Server(name, proc, port, tmp)
        _wait_ready(server, log_path, START_LIMIT_S * (10 if under else 1))
        server.ready_s = time.monotonic() - begun
        yield server
    finally:
        if proc is not None and proc.poll() is None:
            proc.kill()     # nothing is to be saved, and nothing may linger
        if proc is not None:
            proc.wait()
        if not directory:
            shutil.rmtree(tmp, ignore_errors=True)


def _wait_ready(server, log_path, limit_s):
    end = time.monotonic() + limit_s
    while True:
        try:
            server.check_alive()
            with server.client(timeout=LOAD_LIMIT_S) as c:
                _wait_loaded(c)
            return
        except OSError as e:
            if time.monotonic() > end:
                raise RuntimeError(f"{server.name} does not answer: {e}") from e
            time.sleep(0.005)
        except RuntimeError as e:
            with open(log_path, errors="replace") as log:
                raise RuntimeError(f"{e}; its log ends: {log.read()[-400:]}") from e


def _wait_loaded(client):
    """Asks on one connection, seldom enough not to slow the loading down."""
    end = time.monotonic() + LOAD_LIMIT_S
    while True:
        try:
            client.call("PING")
            return
        except ReplyError as e:
            if not str(e).startswith("LOADING"):
                raise
            if time.monotonic() > end:
                raise RuntimeError(f"still loading after {LOAD_LIMIT_S} s") from e
        time.sleep(0.01)
