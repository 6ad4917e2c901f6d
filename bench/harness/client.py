"""A small RESP2 client and a fast pipelined writer."""

import socket


class ReplyError(Exception):
    pass


class Client:
    def __init__(self, port, timeout=60):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.sock.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.file.close()
        self.sock.close()

    def call(self, *args):
        self.sock.sendall(encode(*args))
        return self._reply()

    def _reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise ReplyError(rest.decode(errors="replace"))
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            n = int(rest)
            return None if n < 0 else self.file.read(n + 2)[:-2]
        if kind == b"*":
            return [self._reply() for _ in range(max(int(rest), 0))]
        raise ReplyError(f"unexpected reply {line!r}")

    def send_batch(self, data, count):
        """Sends `count` encoded commands whose replies are one line each, and
        takes their replies. Not to be mixed with a call() in flight."""
        self.sock.sendall(data)
        while count > 0:
            got = self.sock.recv(1 << 16)
            if not got:
                raise ConnectionError("the server closed the connection")
            if b"-" in got:     # no line of a right reply (+OK, :n) contains one
                raise ReplyError(got[got.index(b"-"):][:120].decode(errors="replace"))
            count -= got.count(b"\n")


def encode(*args):
    out = [b"*%d\r\n" % len(args)]
    for a in args:
        a = a if isinstance(a, bytes) else str(a).encode()
        out.append(b"$%d\r\n%b\r\n" % (len(a), a))
    return b"".join(out)


def load(server, make, total, batch=1000):
    """Sends make(i) for i in 0..total-1 in pipelined batches. Checks each reply."""
    with server.client() as c:
        for start in range(0, total, batch):
            stop = min(start + batch, total)
            c.send_batch(b"".join([make(i) for i in range(start, stop)]), stop - start)
