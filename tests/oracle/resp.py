"""RESP2/RESP3 on a raw socket.

Replies are compared as bytes first; decoding happens only where the bytes
differ and the rule of the command allows some freedom, so nothing is lost by
a lenient parser and the common case costs one comparison per batch.

A decoded reply is (tag, payload): ('+', b'OK'), (':', 5), ('$', None),
('*', (reply, ...)), ('%', (k, v, k, v, ...)). Tuples, so that they can be
counted and hashed.
"""
import socket
from collections import deque

BULK = b'$=!'
MAPS = b'%|'
AGGREGATES = b'*~>'
SIMPLE = b'+-:,#(_'


class ConnectionLost(Exception):
    pass


class ProtocolError(Exception):
    pass


def encode(argv):
    return b'*%d\r\n' % len(argv) + b''.join(
        [b'$%d\r\n%b\r\n' % (len(a), a) for a in argv])


def skip(buf, pos):
    """Position after the reply that starts at pos."""
    open_items, find, size = 1, buf.find, len(buf)
    while open_items:
        end = find(b'\r\n', pos)
        if end < 0:
            raise ProtocolError('truncated reply: %r' % buf[pos:pos + 40])
        tag = buf[pos]
        if tag in BULK:
            length = int(buf[pos + 1:end])
            pos = end + 2 if length < 0 else end + 4 + length
        elif tag in SIMPLE:
            pos = end + 2
        elif tag in AGGREGATES:
            open_items += max(0, int(buf[pos + 1:end]))
            pos = end + 2
        elif tag in MAPS:           # an attribute is followed by its reply
            open_items += 2 * int(buf[pos + 1:end]) + (tag == 124)
            pos = end + 2
        else:
            raise ProtocolError('unknown reply type: %r' % buf[pos:pos + 40])
        open_items -= 1
    if pos > size:
        raise ProtocolError('truncated reply')
    return pos


def split(buf):
    """The raw replies in buf, one bytes object each."""
    out, pos, size = [], 0, len(buf)
    while pos < size:
        end = skip(buf, pos)
        out.append(buf[pos:end])
        pos = end
    return out


def _decode(buf, pos):
    end = buf.index(b'\r\n', pos)
    tag = chr(buf[pos])
    head = buf[pos + 1:end]
    pos = end + 2
    if tag in '$=!':
        size = int(head)
        if size < 0:
            return (tag, None), pos
        return (tag, buf[pos:pos + size]), pos + size + 2
    if tag == ':':
        return (tag, int(head)), pos
    if tag in '*~>%':
        count = int(head)
        if count < 0:
            return (tag, None), pos
        items = []
        for _ in range(count * 2 if tag == '%' else count):
            item, pos = _decode(buf, pos)
            items.append(item)
        return (tag, tuple(items)), pos
    if tag == '_':
        return (tag, None), pos
    return (tag, head), pos


def decode(raw):
    return _decode(raw, 0)[0]


class Conn:
    """One connection. Batches end with an ECHO of a unique marker: finding its
    reply means that the whole batch was answered. Several may be under way."""

    def __init__(self, port, timeout=30):
        self.sock = socket.create_connection(('127.0.0.1', port), timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.serial = 0
        self.markers = deque()
        self.buffer = bytearray()

    def send(self, payload):
        self.serial += 1
        marker = b'~oracle-end-%d~' % self.serial
        self.markers.append(b'$%d\r\n%b\r\n' % (len(marker), marker))
        try:
            self.sock.sendall(payload + encode([b'ECHO', marker]))
        except OSError as e:
            raise ConnectionLost('send: %s' % e)

    def receive(self):
        """All replies of the oldest batch under way, as one buffer."""
        tail, buffer, start = self.markers.popleft(), self.buffer, 0
        while True:
            end = buffer.find(tail, start)
            if end >= 0:
                out = bytes(buffer[:end])
                del buffer[:end + len(tail)]
                return out
            start = max(0, len(buffer) - len(tail))
            buffer += self.read()

    def read(self):
        try:
            data = self.sock.recv(1 << 18)
        except socket.timeout:
            raise ConnectionLost('no answer within %s s; got %r'
                                 % (self.sock.gettimeout(), bytes(self.buffer[-200:])))
        except OSError as e:
            raise ConnectionLost('recv: %s' % e)
        if not data:
            raise ConnectionLost('closed by server; got %r' % bytes(self.buffer[-200:]))
        return data

    def call(self, *argv):
        """One command, decoded. For housekeeping, not for comparisons."""
        self.send(encode([a if isinstance(a, bytes) else str(a).encode() for a in argv]))
        return decode(self.receive())

    def close(self):
        try:
            self.sock.close()
        except OSError:
            pass
