"""MIGRATE to a redis-server and back, to ourselves, to servers that refuse or say nothing, and with writers in between."""
import socket
import threading

import pytest
import redis

import everything
from mayfly import eventually
from ports import free_port


@pytest.fixture
def target(redis_factory):
    return redis_factory()


def where(server):
    return '127.0.0.1', server.port


def test_key_moves_with_its_deadline(r, target):
    r.set('k', 'v', pxat=9999999999999)
    r.set('plain', 'x')
    with target.client() as t:
        assert r.execute_command('MIGRATE', *where(target), 'k', 3, 5000) == b'OK'
        assert r.execute_command('MIGRATE', *where(target), 'plain', 3, 5000) == b'OK'
        assert r.dbsize() == 0 and t.dbsize() == 0
        t.execute_command('SELECT', 3)
        assert t.get('k') == b'v' and t.pexpiretime('k') == 9999999999999
        assert t.get('plain') == b'x' and t.ttl('plain') == -1


def test_every_type_there_and_back(server, r, target):
    """As redis-server has it, and as it comes back from there."""
    with server.raw() as c:
        everything.run(c, list(everything.strings()) + list(everything.collections()) + list(everything.streams()))
    before = everything.look(server, [0], encodings=False)
    keys = r.keys('*')
    assert r.execute_command('MIGRATE', *where(target), '', 0, 20000, 'KEYS', *keys) == b'OK'
    assert r.dbsize() == 0
    with target.client() as t:
        assert t.dbsize() == len(keys)
        assert t.execute_command('MIGRATE', *where(server), '', 0, 20000, 'KEYS', *keys) == b'OK'
        assert t.dbsize() == 0
    after = everything.look(server, [0], encodings=False)
    values = lambda keys: {name: facts[:-1] for name, facts in keys.items()} # redis-server sends the time that is left
    assert values(after) == values(before)


def test_copy_replace_and_missing_keys(r, target):
    r.mset({'a': '1', 'b': '2'})
    assert r.execute_command('MIGRATE', *where(target), 'none', 0, 5000) == b'NOKEY'
    assert r.execute_command('MIGRATE', *where(target), '', 0, 5000, 'KEYS') == b'NOKEY'
    assert r.execute_command('MIGRATE', *where(target), '', 0, 5000, 'COPY', 'KEYS', 'a', 'none', 'b') == b'OK'
    assert r.mget('a', 'b') == [b'1', b'2']
    r.set('a', '3')
    with pytest.raises(redis.ResponseError, match='Target instance replied with error: BUSYKEY'):
        r.execute_command('MIGRATE', *where(target), 'a', 0, 5000)
    assert r.get('a') == b'3'
    assert r.execute_command('MIGRATE', *where(target), 'a', 0, 5000, 'REPLACE') == b'OK'
    assert not r.exists('a')
    with target.client() as t:
        assert t.mget('a', 'b') == [b'3', b'2']


def test_what_the_target_refuses_stays(r, target):
    """Of several keys those that were taken go, the others stay."""
    r.mset({'a': '1', 'b': '2', 'c': '3'})
    with target.client() as t:
        t.set('b', 'other')
        with pytest.raises(redis.ResponseError, match='BUSYKEY'):
            r.execute_command('MIGRATE', *where(target), '', 0, 5000, 'KEYS', 'a', 'b', 'c')
        assert t.mget('a', 'b', 'c') == [b'1', b'other', b'3']
    assert r.mget('a', 'b', 'c') == [None, b'2', None]


def test_authentication(r, redis_factory):
    target = redis_factory('--requirepass', 'secret')
    r.set('k', 'v')
    at = ('127.0.0.1', target.port, 'k')
    for wrong in ([], ['AUTH', 'other'], ['AUTH2', 'nobody', 'secret']):
        with pytest.raises(redis.ResponseError, match='Target instance replied with error'):
            r.execute_command('MIGRATE', *at, 0, 5000, *wrong)
    assert r.get('k') == b'v'
    assert r.execute_command('MIGRATE', *at, 0, 5000, 'COPY', 'AUTH', 'secret') == b'OK'
    assert r.execute_command('MIGRATE', *at, 0, 5000, 'REPLACE', 'AUTH2', 'default', 'secret') == b'OK'
    assert not r.exists('k')


def test_a_database_that_is_not_there_gets_nothing(r, target):
    r.set('k', 'v')
    with pytest.raises(redis.ResponseError, match='Target instance replied with error: ERR DB index'):
        r.execute_command('MIGRATE', *where(target), 'k', 99, 5000)
    with target.client() as t:
        assert t.dbsize() == 0 and r.get('k') == b'v'


def test_arguments(r):
    r.set('k', 'v')
    for words, error in [(['h', 1, 'k', 0], 'wrong number of arguments'), (['h', 1, 'k', 0, 1, 'x'], 'syntax error'),
                         (['h', 1, 'k', 0, 1, 'AUTH'], 'syntax error'), (['h', 1, 'k', 0, 1, 'AUTH2', 'u'], 'syntax error'),
                         (['h', 1, 'k', 'x', 1], 'not an integer'), (['h', 1, 'k', 0, 'x'], 'not an integer'),
                         (['h', 1, 'k', 0, 1, 'KEYS', 'k'], 'must be set to the empty string'),
                         (['127.0.0.1', 'x', 'k', 0, 1], 'connecting to the client'),
                         (['127.0.0.1', 0, 'k', 0, 1], 'connecting to the client')]:
        with pytest.raises(redis.ResponseError, match=error):
            r.execute_command('MIGRATE', *words)
    assert r.get('k') == b'v'


def test_nobody_listens(r):
    r.set('k', 'v')
    with pytest.raises(redis.ResponseError, match='IOERR error or timeout connecting to the client'):
        r.execute_command('MIGRATE', '127.0.0.1', free_port(), 'k', 0, 5000)
    assert r.get('k') == b'v'


@pytest.fixture
def silent():
    """A target that takes connections and is told what to answer: (port, the accepted connection)."""
    with socket.create_server(('127.0.0.1', 0)) as listener:
        listener.settimeout(20)
        yield listener


class Waiting:
    """MIGRATE of one key to `silent`, sent on a connection of its own; the target has been sent RESTORE."""

    def __init__(self, server, listener, *words):
        self.client = server.client()
        self.reply = None
        port = listener.getsockname()[1]
        self.thread = threading.Thread(target=self.run, args=(['127.0.0.1', port, 'k', 0, *words],))
        self.thread.start()
        self.conn, _ = listener.accept()
        self.conn.settimeout(20)
        assert b'SELECT' in self.conn.recv(4096)

    def run(self, words):
        try:
            self.reply = self.client.execute_command('MIGRATE', *words)
        except redis.RedisError as e:
            self.reply = str(e)

    def greet(self):
        self.conn.sendall(b'+OK\r\n')
        assert b'RESTORE' in self.conn.recv(4096)

    def outcome(self):
        self.thread.join(20)
        assert not self.thread.is_alive()
        self.conn.close()
        self.client.close()
        return self.reply


def test_others_are_served_meanwhile(server, r, silent):
    r.set('k', 'v')
    m = Waiting(server, silent, 20000)
    m.greet()
    assert r.get('k') == b'v' and r.set('other', 'x')
    assert r.info('clients')['blocked_clients'] == 1
    m.conn.sendall(b'+OK\r\n')
    assert m.outcome() == b'OK'
    assert r.keys('*') == [b'other']


@pytest.mark.parametrize('change', [('APPEND', 'k', '!'), ('PEXPIRE', 'k', 100000), ('RENAME', 'new', 'k')])
def test_a_key_that_was_changed_stays(server, r, silent, change):
    r.mset({'k': 'v', 'new': 'n'})
    m = Waiting(server, silent, 20000)
    m.greet()
    r.execute_command(*change)
    value = r.get('k')
    m.conn.sendall(b'+OK\r\n')
    assert 'changed while it was migrated' in m.outcome()
    assert r.get('k') == value


def test_a_key_that_was_deleted_is_no_error(server, r, silent):
    r.set('k', 'v')
    m = Waiting(server, silent, 20000)
    m.greet()
    r.delete('k')
    m.conn.sendall(b'+OK\r\n')
    assert m.outcome() == b'OK'


def test_a_target_that_says_nothing(server, r, silent):
    r.set('k', 'v')
    m = Waiting(server, silent, 1000)
    assert m.outcome() == 'IOERR error or timeout reading to target instance' and r.get('k') == b'v'


def test_a_target_that_leaves(server, r, silent):
    r.set('k', 'v')
    m = Waiting(server, silent, 20000)
    m.greet()
    m.conn.close()
    assert 'IOERR' in m.outcome() and r.get('k') == b'v'


def test_a_client_that_leaves(server, r, silent):
    """The migration ends with it."""
    r.set('k', 'v')
    with socket.create_connection(('127.0.0.1', server.port)) as s:
        s.sendall(b'MIGRATE 127.0.0.1 %d k 0 20000\r\n' % silent.getsockname()[1])
        conn, _ = silent.accept()
        conn.settimeout(20)
        assert b'SELECT' in conn.recv(4096)
    assert conn.recv(4096) == b''
    conn.close()
    assert r.get('k') == b'v'
    eventually(lambda: r.info('clients')['watching_clients'] == 0)


def test_to_the_same_server(server, r):
    r.set('k', 'v')
    assert r.execute_command('MIGRATE', *where(server), 'k', 1, 5000) == b'OK'
    with server.client(db=1) as other:
        assert other.get('k') == b'v' and r.dbsize() == 0


def test_not_within_a_transaction_or_a_script(r, target):
    r.set('k', 'v')
    with pytest.raises(redis.ResponseError, match='a transaction or a script'):
        r.eval("return redis.call('MIGRATE', ARGV[1], ARGV[2], KEYS[1], 0, 1000)", 1, 'k', *where(target))
    p = r.pipeline(transaction=True)
    p.execute_command('MIGRATE', *where(target), 'k', 0, 1000)
    with pytest.raises(redis.ResponseError, match='a transaction or a script'):
        p.execute()
    assert r.get('k') == b'v'


def test_users_need_the_keys(server, r, target):
    r.mset({'mine': '1', 'theirs': '2'})
    r.execute_command('ACL', 'SETUSER', 'mover', 'on', 'nopass', '~mine', '+migrate')
    try:
        with server.client(username='mover', password='x') as c:
            for keys in (['theirs', 0, 5000], ['', 0, 5000, 'KEYS', 'mine', 'theirs'],
                         ['', 0, 5000, 'AUTH', 'KEYS', 'KEYS', 'theirs']):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    c.execute_command('MIGRATE', *where(target), *keys)
            assert c.execute_command('MIGRATE', *where(target), 'mine', 0, 5000) == b'OK'
    finally:
        r.execute_command('ACL', 'DELUSER', 'mover')


def test_its_documentation(r):
    """The word for "no key" is empty."""
    docs = str(r.execute_command('COMMAND DOCS', 'migrate'))
    assert 'empty-string' in docs and 'key-selector' in docs and 'auth2' in docs


def test_where_its_keys_are(r):
    keys = lambda *words: r.execute_command('COMMAND GETKEYS', 'MIGRATE', 'h', 1, *words)
    assert keys('k', 0, 1) == ['k']
    assert keys('k', 0, 1, 'COPY', 'AUTH', 'KEYS') == ['k']
    assert keys('', 0, 1, 'AUTH2', 'KEYS', 'KEYS', 'KEYS', 'a', 'KEYS') == ['a', 'KEYS']
