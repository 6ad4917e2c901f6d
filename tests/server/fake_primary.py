"""A primary of our own making: it says what we want it to, and when."""
import socket

import pytest

from mayfly import Raw, eventually

ID = 'a1' * 20                                          # of its history, unless told otherwise


class Link:
    """A connection from a replica, at the primary's end."""

    def __init__(self, sock):
        self.sock = sock
        sock.settimeout(20)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = sock.makefile('rb')
        self.replica = None                             # its port

    def send(self, *data):
        try:
            self.sock.sendall(b''.join(data))
        except (BrokenPipeError, ConnectionResetError):
            pass                                        # the replica has heard enough
        return self

    def dribble(self, data):
        for i in range(len(data)):
            self.sock.sendall(data[i:i + 1])
        return self

    def command(self):
        """The next one; lines that are only a sign of life are passed over. None: the replica has left."""
        try:
            line = b'\n'
            while line == b'\n':
                line = self.file.readline()
            if line[:1] != b'*':
                return line.split() or None
            words = []
            for _ in range(int(line[1:])):
                words.append(self.file.read(int(self.file.readline()[1:]) + 2)[:-2].decode())
            return words
        except ConnectionResetError:
            return None

    def expect(self, *words):
        assert self.command() == list(words)
        return self

    def handshake(self, port=None):
        """Up to PSYNC, whose arguments are returned."""
        self.expect('PING').send(b'+PONG\r\n')
        says = self.command()
        assert says[:2] == ['REPLCONF', 'listening-port'] and (port is None or says[2] == str(port))
        self.replica = int(says[2])
        self.expect('REPLCONF', 'capa', 'eof', 'capa', 'psync2').send(b'+OK\r\n+OK\r\n')
        says = self.command()
        assert says[0] == 'PSYNC', says
        return tuple(says[1:])

    def full(self, data, position=0, name=ID):
        """A full sync, by length."""
        self.handshake()
        return self.send(b'+FULLRESYNC %s %d\r\n' % (name.encode(), position), b'$%d\r\n' % len(data), data)

    def reached(self, position):
        """Waits until the replica has everything up to there. (By itself it says so once a second.)"""
        def there():
            info = c.call('INFO', 'replication').decode()
            return f'slave_repl_offset:{position}\r\n' in info and 'master_link_status:up' in info
        with Raw(self.replica) as c:
            eventually(there)
        return self

    def acknowledged(self, position):
        """Waits for the replica to say so."""
        while True:
            says = self.command()
            assert says and says[:2] == ['REPLCONF', 'ACK'], says
            if int(says[2]) == position:
                return self
            assert int(says[2]) < position

    def left(self):
        """Waits until the replica has closed it."""
        while self.command() is not None:
            pass
        self.close()
        return True

    def close(self):
        self.file.close()
        self.sock.close()


class Primary:
    def __init__(self):
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.listener.settimeout(20)
        self.port = self.listener.getsockname()[1]
        self.links = []

    def accept(self):
        self.links.append(Link(self.listener.accept()[0]))
        return self.links[-1]

    def close(self):
        for link in self.links:
            link.close()
        self.listener.close()


@pytest.fixture
def primary():
    p = Primary()
    yield p
    p.close()
