"""Full and failing disks under the memory engine, without room for a snapshot or a rewrite: writes are
refused as long as they can't be stored, reads continue, and no acknowledged write is lost."""
import os
import time

import pytest

import aof
import mayfly
from load import Link, Load
from machine import MEMORY, LossyDisk, SmallDisk, Unavailable, failing
from test_full import writes_again

DISK_MB, DATA_MB = 64, 20
BLOB_KB = 50


def info(link):
    return dict(line.split(':', 1) for line in link.call('INFO', 'persistence').decode().split('\r\n') if ':' in line)


def put_data(m):
    """Some that does not get smaller on disk."""
    with Link(m.port) as link:
        link.call('SELECT', 30)
        for i in range(DATA_MB * 1024 // BLOB_KB):
            assert link.call('SET', b'blob:%d' % i, os.urandom(BLOB_KB << 10)) == b'OK'


def data_there(m):
    with Link(m.port) as link:
        link.call('SELECT', 30)
        assert link.many([('STRLEN', b'blob:%d' % i) for i in range(DATA_MB * 1024 // BLOB_KB)]) \
            == [BLOB_KB << 10] * (DATA_MB * 1024 // BLOB_KB)


def leave_room(disk, mb):
    """Somebody else takes the rest."""
    free = os.statvfs(disk.path)
    with open(os.path.join(disk.path, 'stranger'), 'wb') as f:
        f.write(b'\0' * (free.f_bavail * free.f_bsize - (mb << 20)))


def make_room(disk):
    os.unlink(os.path.join(disk.path, 'stranger'))


def ends_with(link, command, status, how):
    """Asks for it, and waits until it has ended so."""
    mayfly.eventually(lambda: not isinstance(link.call(command), mayfly.ReplyError))
    mayfly.eventually(lambda: info(link)[status] == how, 30)


def save_ends(link, how):
    ends_with(link, 'BGSAVE', 'rdb_last_bgsave_status', how)


def rewrite_ends(link, how):
    ends_with(link, 'BGREWRITEAOF', 'aof_last_bgrewrite_status', how)


def small_machine(machines, disks, rounds, fsync, *more):
    disk = disks(SmallDisk, DISK_MB)
    m = machines(MEMORY, fsync, disk.path).start('--auto-aof-rewrite-percentage', 0, *more)
    put_data(m)
    load = Load(f'{rounds.seed}/{rounds.rng.random()}', setup=MEMORY)
    load.others.clear()
    return disk, m, load


def killed_and_there(m, load):
    m.kill()
    load.join()
    load.refusals('MISCONF')
    m.start()
    assert load.settle(m.port)[1] == 0
    data_there(m)
    aof.await_tidy(m.dir)


@pytest.mark.parametrize('fsync', ['everysec', 'always'])
def test_no_room_for_a_snapshot(fsync, machines, disks, rounds):
    for _ in rounds.run(full=5, short=fsync == 'everysec'):
        disk, m, load = small_machine(machines, disks, rounds, fsync, '--save', '3600 100000000')
        leave_room(disk, DATA_MB // 2)
        with Link(m.port) as link:
            link.call('SELECT', 31)
            load.start(m.port)
            save_ends(link, 'err')
            assert not os.path.exists(os.path.join(m.dir, 'dump.rdb')) and not aof.strays(m.dir)
            refusal = link.call('SET', 'k', 'v')
            assert refusal.startswith('MISCONF Redis is configured to save RDB snapshots'), refusal
            assert link.call('GET', 'k') is None
            link.call('CONFIG', 'SET', 'stop-writes-on-bgsave-error', 'no')
            writes_again(m, 10)                      # the AOF had no room, either, for a moment
            link.call('CONFIG', 'SET', 'stop-writes-on-bgsave-error', 'yes')
            load.join(ask=True)
            refused = load.refusals('MISCONF')
            load.settle(m.port)
            make_room(disk)
            load.start(m.port)
            save_ends(link, 'ok')
            writes_again(m, 10)
            time.sleep(0.1)
        killed_and_there(m, load)
        m.kill()
        disk.remove()
        rounds.add(failed_saves=1, refused_writes=refused)


@pytest.mark.parametrize('fsync', ['everysec', 'always'])
def test_no_room_for_a_rewrite(fsync, machines, disks, rounds):
    """It takes all there is, so that for a moment appending fails, too; then it gives it back, and the files
    of before go on."""
    for _ in rounds.run(full=5, short=fsync == 'always'):
        disk, m, load = small_machine(machines, disks, rounds, fsync)
        leave_room(disk, DATA_MB // 2)
        refused = 0
        with Link(m.port) as link:
            for _ in range(2):
                load.start(m.port)
                rewrite_ends(link, 'err')
                writes_again(m, 10)
                time.sleep(0.1)
                load.join(ask=True)
                refused += load.refusals('MISCONF')
                load.settle(m.port)
                aof.await_tidy(m.dir)
            make_room(disk)
            load.start(m.port)
            rewrite_ends(link, 'ok')
            aof.await_tidy(m.dir)
            time.sleep(0.1)
        killed_and_there(m, load)
        m.kill()
        disk.remove()
        rounds.add(failed_rewrites=2, refused_writes=refused)


# -- disks that fail -------------------------------------------------------------------------------------

def failing_machine(machines, rounds, fsync, *faults, directory=None):
    try:
        before = failing(*faults)
    except Unavailable as e:
        pytest.skip(str(e))
    m = machines(MEMORY, fsync, directory, rng=rounds.rng)
    m.start('--auto-aof-rewrite-percentage', 0, before=before)
    load = Load(f'{rounds.seed}/{rounds.rng.random()}', setup=MEMORY)
    load.others.clear()
    for c in load.clients:
        c.pause = 0.005
    return m, load


DISTRUST = 'BGREWRITEAOF has written all data to new files'
TRUST = 'All data is in new append only files'


@pytest.mark.parametrize('fsync, when', [('always', '100..103'), ('everysec', '1')])
def test_syncs_that_fail(fsync, when, machines, disks, rounds):
    """The kernel may have dropped what it could not write: only a rewrite helps, which begins by itself. Then
    the power goes: it was no vain promise."""
    for _ in rounds.run(full=10, short=1):
        disk = disks(LossyDisk)
        m, load = failing_machine(machines, rounds, fsync, f'fdatasync:error=EIO:when={when}', directory=disk.path)
        load.start(m.port)
        mayfly.eventually(lambda: DISTRUST in m.log, 60)
        mayfly.eventually(lambda: TRUST in m.log, 60)
        time.sleep(rounds.rng.uniform(0.3, 2))
        m.healthy()
        times = m.log.count(DISTRUST)
        assert 'not to be relied upon' in m.log
        cut = time.monotonic()
        disk.cut()
        m.kill()
        load.join()
        load.forget_after(cut)
        refused = load.refusals('MISCONF')
        assert refused
        disk.power_on()
        m.start()
        limit = cut - (2 if fsync == 'everysec' else 0)     # a second, and as long as a busy disk takes to sync
        there, _ = load.settle(m.port, must=lambda s: s.answered is not None and not s.refused and s.answered < limit)
        rounds.add(failed_syncs=times, writes_found=there, refused_writes=refused)
        m.kill()
        disk.remove()


def test_a_disk_that_fails_for_a_while(machines, rounds):
    """While rewrites fail as well, nothing is accepted. Then it works again, and one rewrite helps."""
    for _ in rounds.run(full=10, short=1):
        m, load = failing_machine(machines, rounds, 'always', 'fdatasync:error=EIO:when=100+',
                                  'fsync:error=EIO:when=9+')
        load.start(m.port)
        mayfly.eventually(lambda: DISTRUST in m.log, 60)
        mayfly.eventually(lambda: 'rewrite terminated with error' in m.log, 60)
        with Link(m.port) as link:
            link.call('SELECT', 31)
            assert link.call('SET', 'k', 'v').startswith('MISCONF Errors writing to the AOF file: Input/output error')
            assert link.call('GET', 'k') is None and info(link)['aof_last_write_status'] == 'err'
            time.sleep(0.3)
            assert link.call('SET', 'k', 'v').startswith('MISCONF')
            m.release()
            mayfly.eventually(lambda: isinstance(link.call('BGREWRITEAOF'), bytes))
            mayfly.eventually(lambda: TRUST in m.log, 60)
            assert link.call('SET', 'k', 'v') == b'OK'
        time.sleep(0.2)
        load.join(ask=True)
        refused = load.refusals('MISCONF')
        load.settle(m.port)
        m.kill()
        m.start()
        assert load.settle(m.port)[1] == 0
        aof.await_tidy(m.dir)
        rounds.add(bad_times=1, refused_writes=refused)
        m.kill()


def test_writes_that_fail(machines, rounds):
    """Not to be confused: what was not written can be written again, after a while, and no rewrite is needed."""
    for _ in rounds.run(full=10, short=1):
        m, load = failing_machine(machines, rounds, rounds.rng.choice(('always', 'everysec', 'no')),
                                  'pwrite64:error=EIO:when=100..101')
        load.start(m.port)
        mayfly.eventually(lambda: 'Error writing to the AOF file' in m.log, 60)
        mayfly.eventually(lambda: 'AOF write error looks solved' in m.log, 60)
        time.sleep(rounds.rng.uniform(0, 0.5))
        m.healthy()
        m.kill()
        load.join()
        refused = load.refusals('MISCONF')
        assert refused and DISTRUST not in m.log and 'rewriting' not in m.log
        m.start()
        there, missing = load.settle(m.port)
        assert not missing
        rounds.add(failed_writes=1, writes_found=there, refused_writes=refused)
        m.kill()
