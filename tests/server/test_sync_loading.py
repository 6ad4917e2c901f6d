"""Loading what a full sync has brought: beside the old data, whose place it takes at once, or never; whatever
happens meanwhile, a crash too, there is the one or the other."""
import os
import subprocess
import time

import pytest
import redis

import mayfly
import rdb_bytes
from fake_primary import primary                      # noqa: F401 # pylint: disable=unused-import
from mayfly import eventually

ROCKS = mayfly.ENGINE == 'rocksdb'
LATER = 4102444800000                       # 2100
OLD, NEW = {f'old:{i}': 'o' for i in range(300)}, {f'new:{i}': 'n' for i in range(300)}


def file_of(data, *more):
    """Half of it in database 0, half in 3; each third key dies later, each fifth is dead."""
    parts = []
    for db in 0, 3:
        parts += [rdb_bytes.select(db), rdb_bytes.sizes(150, 50)]
        for i, (name, value) in enumerate(data.items()):
            if i % 2 == (db == 3):
                when = 1000 if i % 5 == 0 else LATER if i % 3 == 0 else None
                parts.append(rdb_bytes.key(0, name, rdb_bytes.string(value), when))
    return rdb_bytes.file(10, *more, *parts)


def data_of(server):
    """What clients see, of which the dead are no part; but they count."""
    found = {}
    for db in range(16):
        with server.client(db=db, decode_responses=True) as c:
            names = list(c.scan_iter(count=1000))
            found.update(zip(names, c.mget(names)) if names else {})
            found[f'size of {db}'] = c.dbsize()
    return found


def seen(data):
    """What data_of says of a file's, on a replica."""
    return {**{n: v for i, (n, v) in enumerate(data.items()) if i % 5},
            **{f'size of {db}': 150 if db in (0, 3) else 0 for db in range(16)}}


def seen_after_restart(data):
    """Waits until the dead keys are reclaimed."""
    return {n: v for n, v in seen(data).items() if not n.startswith('size')}


def without_sizes(found):
    return {n: v for n, v in found.items() if not n.startswith('size')}


@pytest.fixture
def start(server_factory, primary):
    def start(*args):
        return server_factory('--replicaof', f'127.0.0.1 {primary.port}', '--repl-retry-delay', 0, *args)
    return start


def is_up(server):
    return server.info('replication')['master_link_status'] == 'up'


def old_data(primary, server):
    """A replica with the old data, whose link was cut."""
    link = primary.accept().full(file_of(OLD))
    eventually(lambda: is_up(server))
    assert data_of(server) == seen(OLD)
    if 'yes' in server.args:
        aof_is_complete(server)
    link.close()


def load_slowly(primary, server, data, delay_us=30000):
    """Until it is half loaded."""
    with server.client() as c:
        c.config_set('key-load-delay', delay_us)
    link = primary.accept().full(file_of(data))
    eventually(lambda: 0 < server.info('persistence').get('loading_loaded_perc', 0) < 90)
    return link


def go_on(server):
    with server.client() as c:
        c.config_set('key-load-delay', 0)


def aof_is_complete(server):
    def complete():
        i = server.info('persistence')
        return not i['aof_pending_rewrite'] and not i['aof_rewrite_in_progress'] and not i['aof_rewrite_scheduled']
    eventually(complete)


def restart_alone(server):
    """After a crash, as a primary."""
    server.stop(9)
    if ROCKS:
        said = subprocess.run([mayfly.BINARY, '--check', os.path.join(server.dir)], capture_output=True, text=True)
        assert said.returncode == 0, said.stdout
    server.args = [a for i, a in enumerate(server.args)
                   if a != '--replicaof' and server.args[max(i - 1, 0)] != '--replicaof']
    server.start()


def refused(client, *words):
    with pytest.raises(redis.exceptions.RedisError) as e:
        client.execute_command(*words)
    return 'loading the dataset in memory' in str(e.value) or 'LOADING' in str(e.value)


# -- what clients see ------------------------------------------------------------------------------------------

def test_everything_is_replaced(primary, start):
    s = start()
    old_data(primary, s)
    primary.accept().full(file_of(NEW))
    eventually(lambda: is_up(s))
    assert data_of(s) == seen(NEW)
    i = s.info('persistence')
    assert i['loading'] == i['async_loading'] == 0 and i['rdb_last_load_keys_loaded'] == 300


def test_clients_wait(primary, start):
    s = start('--repl-diskless-load', 'disabled')
    old_data(primary, s)
    load_slowly(primary, s, NEW)
    i = s.info('persistence')
    assert i['loading'] == 1 and i['async_loading'] == 0
    assert 0 < i['loading_loaded_bytes'] < i['loading_total_bytes'] and i['loading_eta_seconds'] >= 0
    with s.client() as c:
        assert refused(c, 'GET', 'old:1') and refused(c, 'BGSAVE')
    go_on(s)
    eventually(lambda: is_up(s))
    assert data_of(s) == seen(NEW)


def test_clients_read_on(primary, start):
    """And see either one or the other."""
    s = start('--repl-diskless-load', 'swapdb')
    old_data(primary, s)
    load_slowly(primary, s, NEW)
    i = s.info('persistence')
    assert i['loading'] == 0 and i['async_loading'] == 1 and i['loading_total_bytes'] > 0
    assert data_of(s) == seen(OLD)
    with s.client(decode_responses=True) as c:
        for command in 'SAVE', 'BGSAVE', 'BGREWRITEAOF':
            assert refused(c, command)
        assert refused(c, 'SET', 'k', 'v') is False         # READONLY
        go_on(s)
        while True:
            some = c.mget('old:2', 'new:2', 'old:4', 'new:4')
            if some == [None, 'n', None, 'n']:
                break
            assert some == ['o', None, 'o', None]
    eventually(lambda: is_up(s))
    assert data_of(s) == seen(NEW)
    assert s.info('persistence')['async_loading'] == 0
    with s.client() as c:
        assert c.execute_command('BGSAVE', 'SCHEDULE')      # a new AOF may be starting


def test_snapshots_wait(primary, start):
    """A save point is reached meanwhile: it is the new data that is saved."""
    s = start('--repl-diskless-load', 'swapdb')
    old_data(primary, s)
    load_slowly(primary, s, NEW)
    with s.client() as c:
        c.config_set('save', '1 1')
    time.sleep(2.1)                                     # whole seconds count
    i = s.info('persistence')
    assert i['async_loading'] == 1 and i['rdb_changes_since_last_save'] > 0 and i['rdb_saves'] == 0
    go_on(s)
    eventually(lambda: is_up(s))
    eventually(lambda: s.info('persistence')['rdb_changes_since_last_save'] == 0)
    with s.client() as c:
        c.config_set('save', '')
    restart_alone(s)
    assert without_sizes(data_of(s)) == seen_after_restart(NEW)


# -- files that are no good ------------------------------------------------------------------------------------

@pytest.mark.parametrize('how', ['disabled', 'swapdb'])
@pytest.mark.parametrize('what', ['cut', 'checksum', 'stream', 'database'])
def test_bad_file(primary, start, what, how):
    s = start('--repl-diskless-load', how)
    old_data(primary, s)
    data = {
        'cut': file_of(NEW)[:-500],
        'checksum': file_of(NEW)[:-4] + b'\1\2\3\4',
        'stream': file_of(NEW, rdb_bytes.key(15, 'a stream', b'')),
        'database': file_of(NEW, rdb_bytes.select(16)),
    }[what]
    assert primary.accept().full(data).left()
    found = data_of(s)
    if ROCKS or how == 'swapdb':
        assert found == seen(OLD)
    else:
        assert found == {f'size of {db}': 0 for db in range(16)}
    assert s.info('persistence')['loading'] == 0
    assert 'Error loading' in s.log
    primary.accept().full(file_of(NEW))
    eventually(lambda: is_up(s))
    assert data_of(s) == seen(NEW)


# -- given up --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('how', ['disabled', 'swapdb'])
def test_promoted(primary, start, how):
    """While it loads if that is aside, or when it has failed: what is there can be written to, and that is kept."""
    s = start('--repl-diskless-load', how, *(() if ROCKS else ('--appendonly', 'yes')))
    old_data(primary, s)
    if how == 'swapdb':
        load_slowly(primary, s, NEW)
    else:
        assert primary.accept().full(file_of(NEW)[:-500]).left()
    with s.client() as c:
        c.replicaof('no', 'one')
        i = c.info('persistence')
        assert i['loading'] == i['async_loading'] == 0
        c.set('written', 'then')
    expected = seen_after_restart(OLD) if ROCKS or how == 'swapdb' else {}
    assert without_sizes(data_of(s)) == {**expected, 'written': 'then'}
    if not ROCKS:
        aof_is_complete(s)
    eventually(lambda: s.info('stats')['expired_keys'] == (60 if expected else 0))
    restart_alone(s)
    assert without_sizes(data_of(s)) == {**expected, 'written': 'then'}


@pytest.mark.parametrize('how', ['disabled', 'swapdb'])
def test_stopped_meanwhile(primary, start, how):
    s = start('--repl-diskless-load', how)
    old_data(primary, s)
    load_slowly(primary, s, NEW)
    assert s.stop() == 0, s.log


# -- crashes ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('how', ['disabled', 'swapdb'])
def test_crash_meanwhile(primary, start, how):
    """The old data is on disk until there is the new."""
    s = start('--repl-diskless-load', how, *(() if ROCKS else ('--appendonly', 'yes')))
    old_data(primary, s)
    load_slowly(primary, s, NEW)
    restart_alone(s)
    assert without_sizes(data_of(s)) == seen_after_restart(OLD)


@pytest.mark.parametrize('how', ['disabled', 'swapdb'])
def test_crash_afterwards(primary, start, how):
    s = start('--repl-diskless-load', how, *(() if ROCKS else ('--appendonly', 'yes')))
    old_data(primary, s)
    link = primary.accept().full(file_of(NEW))
    eventually(lambda: is_up(s))
    link.send(mayfly.encode('SELECT', '0'), mayfly.encode('SET', 'more', 'of it'))
    with s.client() as c:
        eventually(lambda: c.get('more'))
    if not ROCKS:
        aof_is_complete(s)
    restart_alone(s)
    assert without_sizes(data_of(s)) == {**seen_after_restart(NEW), 'more': 'of it'}


@pytest.mark.engine('memory', 'the append only file is its')
def test_crash_before_the_new_aof_is_complete(primary, start):
    """What it has is of the old data, and nothing of the new must come to that."""
    s = start('--appendonly', 'yes')
    old_data(primary, s)
    with s.client() as c:
        c.config_set('rdb-key-save-delay', 100000)
    link = primary.accept().full(file_of(NEW))
    eventually(lambda: is_up(s))
    link.send(mayfly.encode('SELECT', '0'), mayfly.encode('SET', 'more', 'of it'))
    with s.client() as c:
        eventually(lambda: c.get('more'))
    i = s.info('persistence')
    assert i['aof_enabled'] == 1 and i['aof_pending_rewrite'] == 1
    restart_alone(s)
    assert without_sizes(data_of(s)) == seen_after_restart(OLD)


@pytest.mark.engine('memory', 'the append only file is its')
def test_stopped_before_the_new_aof_is_complete(primary, start):
    """The server ends when it has, and nothing is lost."""
    s = start('--appendonly', 'yes')
    old_data(primary, s)
    with s.client() as c:
        c.config_set('rdb-key-save-delay', 8000)
    primary.accept().full(file_of(NEW))
    eventually(lambda: s.info('persistence')['aof_pending_rewrite'] == 1)
    assert s.stop() == 0, s.log
    assert 'Background AOF rewrite terminated with success' in s.log
    restart_alone(s)
    assert without_sizes(data_of(s)) == seen_after_restart(NEW)
