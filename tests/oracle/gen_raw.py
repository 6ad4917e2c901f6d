"""Raw bytes on a connection of their own: inline commands, QUIT, broken protocol.

Compared is everything the server sends until it closes.
"""
import socket

from gen import family
from op import Op

protocol = family('protocol', 0.004)        # a connection each: few of them

QUIT = b'*1\r\n$4\r\nQUIT\r\n'
PING = b'*1\r\n$4\r\nPING\r\n'
INPUTS = [
    PING + QUIT + PING, b'QUIT\r\n', b'quit\n', b'PING\r\n', b'PING\n', b'\r\n\r\nPING\r\n', b'  PING  \r\n',
    b'ping hello\r\n', b'SET rawkey "a\\x41\\n b" \r\nGET rawkey\r\nDEL rawkey\r\n', b"ECHO 'it\\'s'\r\n",
    b'ECHO "a b\r\n', b'ECHO "a"b\r\n', b"ECHO 'x\r\n", b'ECHO ""\r\n', b'*0\r\n' + PING, b'*-1\r\n' + PING,
    b'*abc\r\n', b'*2147483648\r\n', b'*1048577\r\n$4\r\n', b'*1\r\n$-1\r\n', b'*1\r\n$536870913\r\n', b'*1\r\n$x\r\n',
    b'*1\r\nPING\r\n', b'*1\r\n:1\r\n', b'*2\r\n$4\r\nECHO\r\n$3\r\nabc\r\n', b'*2\r\n$4\r\nECHO\r\n$3\r\nab',
    b'*1\r\n$4\r\nPINGxx' + PING, b'POST / HTTP/1.1\r\n', b'Host: x\r\n', b'GET / HTTP/1.1\r\n\r\n', b'\x00\r\n',
    b'*1\r\n$0\r\n\r\n' + PING, b'*3\r\n$3\r\nSET\r\n$1\r\na\r\n$-5\r\n', b'FOO bar baz\r\n', b'* 1\r\n$4\r\nPING\r\n',
    b'*+1\r\n$4\r\nPING\r\n', b'*1\r\n$+4\r\nPING\r\n', b'$4\r\nPING\r\n', b'+PING\r\n', b'ECHO \\x41\r\n',
    b'ECHO "\\x4g\\t\\\\"\r\n', b'\tPING\r\n', b'*1\n$4\nPING\n', b'GET nokey\r\nHGETALL nokey\r\n',
]


def converse(server, data):
    """What the server answers until it closes; our side closes after sending."""
    sock = socket.create_connection(('127.0.0.1', server.port), 10)
    out = b''
    try:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while True:
            chunk = sock.recv(65536)
            if not chunk:
                break
            out += chunk
    except socket.timeout:
        out += b' (not closed)'
    except OSError:         # reset: it closed without reading everything
        pass
    finally:
        sock.close()
    return out


class RawOp:
    def __init__(self, data):
        self.data = data

    def run(self, pair):
        a, b = converse(pair.server_a, self.data), converse(pair.server_b, self.data)
        return None if a == b else pair.raw_difference(self.data, a, b)

    def __str__(self):
        return '# raw bytes on a new connection: %r' % self.data


@protocol.add(1, mutate=False)
def raw(g):
    return Op(special=RawOp(g.pick(INPUTS)))
