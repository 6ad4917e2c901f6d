"""Links between nodes that are slow: an entry may take longer than an election timeout to arrive."""
import contextlib
import os
import selectors
import socket
import threading
import time

from nodes import Cluster, Node, free_port, in_one_of

STEP_S = 0.02


class Relay:
    """Forwards connections of `port` to `to`; with `rate`, so many bytes a second and connection to that end."""

    def __init__(self, port, to):
        self.to, self.rate, self.open = to, None, True
        self.listener = socket.create_server(('127.0.0.1', port))
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16) # what waits, waits at the sender
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                threading.Thread(target=self.serve, args=(near,), daemon=True).start()

    def serve(self, near):
        with contextlib.suppress(OSError), near, socket.create_connection(('127.0.0.1', self.to)) as far, \
                selectors.DefaultSelector() as both:
            for here, there in (near, far), (far, near):
                both.register(here, selectors.EVENT_READ, there)
            while self.open:
                for key, _ in both.select(0.1):
                    rate = self.rate if key.fileobj is near else None
                    data = key.fileobj.recv(int(rate * STEP_S) if rate else 1 << 16)
                    if not data:
                        return
                    key.data.sendall(data)
                    if rate:
                        time.sleep(len(data) / rate)

    def close(self):
        self.open = False
        self.listener.close()


@contextlib.contextmanager
def relayed(size, *options):
    """A cluster whose nodes reach each other through relays."""
    relays = []

    def node(i, folder, more):
        bus = free_port()
        n = Node(folder, [*more, '--cluster-port', str(bus)])
        n.options += ['--cluster-announce-bus-port', str(n.port + 10000)]
        relays.append(Relay(n.port + 10000, bus))
        return n
    try:
        with Cluster(size, options, node) as c:
            yield c, relays
    finally:
        for r in relays:
            r.close()


def test_a_long_entry_on_a_slow_link_costs_no_leadership():
    """It takes four election timeouts to arrive. Heartbeats and beats wait behind it."""
    with relayed(3, '--cluster-node-timeout', '500') as (trio, relays):
        def attempt():
            node = trio.leader()
            term = node.region()['term']
            for r in relays:
                r.rate = 4 << 20
            try:
                with node.client(socket_timeout=60) as c:
                    started = time.monotonic()
                    assert c.set('k', os.urandom(8 << 20))
                    took = time.monotonic() - started
            except Exception as e:
                raise AssertionError(e) from e
            finally:
                for r in relays:
                    r.rate = None
            assert took > 1.5, 'the link was not slow'
            assert node.leads() and node.region()['term'] == term
        in_one_of(4, attempt)
        trio.settled(3)
