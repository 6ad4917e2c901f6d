"""What stands between a replica and its primary, and can be cut, stopped, slowed down."""
import socket
import threading
import time

PIECE = 1 << 16


class Proxy:
    """Leads to a node, also after that was started again. Bytes from the node to the replica are held back while
    `stalled`, and come by pieces with a pause of `pause` seconds."""

    def __init__(self, node):
        self.node = node
        self.lock, self.ends = threading.Lock(), set()
        self.open, self.pause, self.passed = True, 0, 0
        self.left = None                        # bytes until the link breaks; None: it does not
        self.flowing = threading.Event()
        self.flowing.set()
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            try:
                self.join(near)
            except OSError:
                near.close()

    def join(self, near):
        far = socket.socket()
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE)      # what is stalled is so at the sender's
        with self.lock:
            if not self.open:
                raise OSError
            far.connect(('127.0.0.1', self.node.port))
            self.ends |= {near, far}
        for source, to, down in (near, far, False), (far, near, True):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.pump, args=(source, to, down), daemon=True).start()

    def pump(self, source, to, down):
        try:
            while data := source.recv(PIECE):
                if down:
                    self.flowing.wait()
                    time.sleep(self.pause)
                    data, last = self.measure(data)
                    to.sendall(data)
                    if last:
                        self.cut()
                else:
                    to.sendall(data)
        except OSError:
            pass
        self.end(source, to)

    def measure(self, data):
        """What of it may pass, and whether nothing may afterwards."""
        with self.lock:
            if self.left is not None:
                data = data[:self.left]
                self.left -= len(data)
            self.passed += len(data)
            return data, self.left == 0

    def end(self, *ends):
        for s in ends:
            with self.lock:
                self.ends.discard(s)
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()

    # -- what tests do ------------------------------------------------------------------------------

    def cut(self, after=None):
        """The link breaks, now or after so many bytes more, and can't be made again before `restore`."""
        if after:
            with self.lock:
                self.left = after
            return
        with self.lock:
            self.open, self.left = False, None
            ends = list(self.ends)
        self.end(*ends)
        self.flowing.set()

    def stall(self):
        self.flowing.clear()

    def restore(self):
        with self.lock:
            self.open, self.left, self.pause = True, None, 0
        self.flowing.set()

    def close(self):
        self.cut()
        if self.listener.fileno() >= 0:
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
