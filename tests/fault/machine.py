"""Servers that crash and come back on the same directory, disks that lose power or fill up, and the
offline checker.

What a server is made of is a Setup, so that every way to keep data goes through the same tests:
its arguments, the fsync modes, and a checker for its directory.
"""
import ctypes
import errno
import fcntl
import glob
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time

import mayfly

DATABASES = 32
EXT4_IOC_SHUTDOWN = 0x8004587D          # _IOR('X', 125, __u32)
NO_LOG_FLUSH = 2


class Setup:
    def __init__(self, name, args, vary=None, checker=None, busy=(), doubtful=(), jobs=()):
        self.name, self.args = name, args
        self.vary = vary or (lambda rng: [])    # further arguments of one start
        self.checker = checker                  # directory → (exit code, what it says)
        self.busy = busy                        # errors of writes that come too fast for it
        self.doubtful = doubtful                # errors of writes that may have been done all the same
        self.jobs = jobs                        # what it does in the background if asked to


def rocks_checker(directory):
    done = subprocess.run([mayfly.BINARY, '--check', directory], capture_output=True, check=False, timeout=600)
    return done.returncode, (done.stdout + done.stderr).decode('utf-8', 'replace')


def vary_rocks(rng):
    """Small buffers, so that flushes and compactions take part."""
    return ['--rocksdb-write-buffer-size', rng.choice(('1mb', '4mb', '64mb')),
            '--rocksdb-block-cache-size', rng.choice(('1mb', '64mb')),
            '--rocksdb-row-cache-size', rng.choice(('64kb', '1mb', '64mb')),
            '--rocksdb-blob-size', rng.choice(('0', '4kb', '16kb'))]


ROCKS = Setup('rocksdb', ['--engine', 'rocksdb'], vary_rocks, rocks_checker, busy=('BUSY', 'IOERR'))


def vary_memory(rng):
    """Small limits, so that rewrites begin by themselves; and any access to a dead key deletes it."""
    return ['--aof-use-rdb-preamble', rng.choice(('yes', 'yes', 'no')),
            '--aof-timestamp-enabled', rng.choice(('yes', 'no')),
            '--auto-aof-rewrite-min-size', rng.choice(('64kb', '1mb', '64mb')),
            '--auto-aof-rewrite-percentage', rng.choice(('1', '20', '100')),
            '--ttl-cleanup-interval', rng.choice(('0', '1'))]


MEMORY = Setup('memory', ['--engine', 'memory', '--appendonly', 'yes'], vary_memory, doubtful=('MISCONF',),
               jobs=('BGSAVE', 'BGREWRITEAOF', 'BGREWRITEAOF', 'BGSAVE SCHEDULE'))
SNAPSHOTS = Setup('snapshots', ['--engine', 'memory', '--appendonly', 'no'])


class Machine:
    """A directory, and from time to time a server on it."""

    def __init__(self, setup, fsync, directory, rng=None):
        self.setup, self.fsync, self.dir, self.rng = setup, fsync, directory, rng
        self.port = mayfly.free_port()
        self.proc = None
        self.logs = tempfile.mkdtemp(prefix='mayfly-fault-log-')
        self.starts = 0

    @property
    def log_path(self):
        return os.path.join(self.logs, f'{self.starts}.log')

    @property
    def log(self):
        with open(self.log_path, 'rb') as f:
            return f.read().decode('utf-8', 'replace')

    def start(self, *more, wait=True, env=None, before=()):
        """Further arguments; further variables of the environment (named crash points); a command that
        becomes the server."""
        self.starts += 1
        args = [*before, mayfly.BINARY, '--port', self.port, '--dir', self.dir, '--databases', DATABASES, '--save', '',
                '--appendfsync', self.fsync, '--enable-debug-command', 'yes', *self.setup.args]
        args += self.setup.vary(self.rng) if self.rng else []
        with open(self.log_path, 'wb') as log:
            self.proc = subprocess.Popen([str(a) for a in [*args, *more]], stdout=log, stderr=log,
                                         stdin=subprocess.DEVNULL, cwd='/', env={**os.environ, **(env or {})})
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, seconds=60):
        end = time.monotonic() + seconds
        while 'Ready to accept connections' not in self.log:
            assert self.proc.poll() is None, f'the server ended with {self.proc.returncode}:\n{self.log}'
            assert time.monotonic() < end, f'the server did not start:\n{self.log}'
            time.sleep(0.005)

    def kill(self):
        self.proc.send_signal(signal.SIGKILL)
        self.proc.wait()

    def stop(self):
        self.proc.send_signal(signal.SIGTERM)
        code = self.proc.wait(60)
        assert code == 0, f'ended with {code}:\n{self.log}'

    def healthy(self):
        """It runs, and no sanitizer or assertion complained."""
        assert self.proc.poll() is None, f'the server ended with {self.proc.returncode}:\n{self.log[-4000:]}'
        for word in ('AddressSanitizer', 'runtime error:', 'CHECK'):
            assert word not in self.log, self.log[-4000:]

    @property
    def tracer(self):
        """The process that traces it, or 0."""
        with open(f'/proc/{self.proc.pid}/status', encoding='utf-8') as f:
            return next(int(line.split()[1]) for line in f if line.startswith('TracerPid:'))

    def release(self):
        """Ends its tracer (strace -D, which then detaches)."""
        os.kill(self.tracer, signal.SIGKILL)
        mayfly.eventually(lambda: not self.tracer)

    def check(self, directory=None):
        """The offline checker finds nothing."""
        if self.setup.checker:
            code, text = self.setup.checker(directory or self.dir)
            assert code == 0, f'the checker ended with {code}:\n{text[:6000]}'

    def remove(self):
        if self.proc and self.proc.poll() is None:
            self.kill()
        shutil.rmtree(self.logs, ignore_errors=True)


def failing(*faults):
    """What to start a server with so that system calls of it fail: 'fdatasync:error=EIO:when=3..5' and the
    like, counted by thread."""
    if not shutil.which('strace'):
        raise Unavailable('strace is missing')
    names = ','.join(f.split(':')[0] for f in faults)
    return ['strace', '-D', '-f', '-qq', '-o', '/dev/null', '-e', f'trace={names}',
            *(x for f in faults for x in ('-e', f'inject={f}'))]


# -- disks ---------------------------------------------------------------------------------------------

class Unavailable(Exception):
    """This machine can't do that; why."""


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, check=False)
    if done.returncode:
        raise Unavailable(f'{" ".join(map(str, command))}: {done.stderr.decode().strip()}')


class Disk:
    """A file system of one's own."""

    def __init__(self):
        if os.geteuid():
            raise Unavailable('mounting needs root')
        self.place = tempfile.mkdtemp(prefix='mayfly-disk-')
        self.path = os.path.join(self.place, 'mnt')
        os.mkdir(self.path)
        self.mounted = False

    def mount(self, *args):
        try:
            run('mount', *args, self.path)
        except Unavailable:
            shutil.rmtree(self.place, ignore_errors=True)
            raise
        self.mounted = True

    def unmount(self):
        for _ in range(200):
            if ctypes.CDLL(None, use_errno=True).umount(self.path.encode()) == 0:
                self.mounted = False
                return
            if ctypes.get_errno() not in (0, errno.EBUSY):
                break
            time.sleep(0.02)
        run('umount', self.path)
        self.mounted = False

    def remove(self):
        if self.mounted:
            self.unmount()
        shutil.rmtree(self.place, ignore_errors=True)


class LossyDisk(Disk):
    """ext4 on a file. cut() is a power cut: what was not synced is gone, also names in directories."""

    def __init__(self, size_mb=512):
        super().__init__()
        self.image = os.path.join(self.place, 'image')
        with open(self.image, 'wb') as f:
            f.truncate(size_mb << 20)
        try:
            run('mkfs.ext4', '-q', '-F', self.image)
        except (Unavailable, FileNotFoundError) as e:
            shutil.rmtree(self.place, ignore_errors=True)
            raise Unavailable(str(e)) from None
        self.mount('-o', 'loop', self.image)

    def cut(self):
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack('I', NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def in_use(self):
        """Whether the kernel still has the image open: then a mount would find the file system as it was. A mount
        namespace made meanwhile (unshare --mount, ip netns exec) has a copy of the mount until it ends or unmounts it."""
        for path in glob.glob('/sys/block/loop*/loop/backing_file'):
            try:
                with open(path, encoding='utf-8') as f:
                    if f.read().strip() == self.image:
                        return True
            except OSError:
                pass                            # gone meanwhile
        return False

    def power_on(self):
        self.unmount()
        mayfly.eventually(lambda: not self.in_use())
        self.mount('-o', 'loop', self.image)


class SmallDisk(Disk):
    def __init__(self, size_mb):
        super().__init__()
        self.mount('-t', 'tmpfs', '-o', f'size={size_mb}m', 'tmpfs')
