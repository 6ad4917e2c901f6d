"""What a replica is sent, command by command."""
import socket
import time

import pytest

from mayfly import eventually


class Stream:
    """A replica that only listens: the commands that came after the full sync."""

    def __init__(self, server):
        self.socket = socket.create_connection(('127.0.0.1', server.port))
        self.socket.settimeout(20)
        self.file = self.socket.makefile('rb')
        self.socket.sendall(b'SYNC\r\n')
        header = self.line()
        while not header: # signs of life
            header = self.line()
        self.file.read(int(header[1:]))

    def line(self):
        return self.file.readline().rstrip(b'\r\n')

    def command(self):
        words = []
        for _ in range(int(self.line()[1:])):
            n = int(self.line()[1:])
            words.append(self.file.read(n + 2)[:-2].decode())
        return words if words != ['PING'] else self.command()

    def commands(self, n):
        return [self.command() for _ in range(n)]


@pytest.fixture
def server(server_factory):
    return server_factory('--enable-debug-command', 'yes', '--repl-diskless-sync', 'no')


@pytest.fixture
def r(server):
    with server.client() as c:
        yield c


def test_a_message_comes_after_a_select(server, r):
    stream = Stream(server)
    r.publish('channel', 'text')
    assert stream.commands(2) == [['SELECT', '0'], ['publish', 'channel', 'text']]
    r.set('k', 'v')
    assert stream.commands(2) == [['SELECT', '0'], ['SET', 'k', 'v']]
    r.publish('channel', 'text')
    assert stream.command() == ['publish', 'channel', 'text']


@pytest.mark.engine('memory', 'reads leave a dead key to the cycle')
def test_keys_that_a_read_finds_dead_go_one_by_one(server, r):
    r.execute_command('DEBUG', 'SET-ACTIVE-EXPIRE', 0)
    for key in ('a', 'b'):
        r.set(key, '1', px=1)
    dead = time.time() + 0.01
    eventually(lambda: time.time() > dead)
    stream = Stream(server)
    assert r.execute_command('SCAN', 0)[1] == []
    got = stream.commands(3)
    assert got[0] == ['SELECT', '0'] and sorted(got[1:]) == [['DEL', 'a'], ['DEL', 'b']]


def test_deadlines_of_fields_keep_their_condition(server, r):
    stream = Stream(server)
    r.hset('h', mapping={'a': '1', 'b': '2'})
    r.execute_command('HEXPIREAT', 'h', 4102444800, 'NX', 'FIELDS', 2, 'a', 'none')
    r.execute_command('HPEXPIREAT', 'h', 4102444800001, 'FIELDS', 1, 'b')
    r.execute_command('HPEXPIREAT', 'h', 4102444800002, 'gt', 'FIELDS', 2, 'a', 'b')
    assert stream.commands(5)[2:] == [
        ['HPEXPIREAT', 'h', '4102444800000', 'NX', 'FIELDS', '1', 'a'],
        ['HPEXPIREAT', 'h', '4102444800001', 'FIELDS', '1', 'b'],
        ['HPEXPIREAT', 'h', '4102444800002', 'gt', 'FIELDS', '2', 'a', 'b']]


def test_a_migrated_key_is_deleted(server, r, redis_factory):
    target = redis_factory()
    r.mset({'a': '1', 'b': '2'})
    stream = Stream(server)
    assert r.execute_command('MIGRATE', '127.0.0.1', target.port, '', 0, 5000, 'KEYS', 'a', 'none', 'b') == b'OK'
    assert stream.commands(2) == [['SELECT', '0'], ['DEL', 'a', 'b']]
