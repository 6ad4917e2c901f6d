"""Ports for the servers under test: suites that run side by side get different ones, and none is one of those that
the kernel hands out, to an outgoing connection or to somebody who asks for any; so a server that is started again
finds its port free."""
import socket

FIRST, LAST, BLOCK = 10_000, 25_000, 500
mine = {}       # the block of this process, and the socket that stands for it while the process lives


def claim():
    """A block that no other process has."""
    for first in range(FIRST, LAST, BLOCK):
        s = socket.socket(socket.AF_UNIX)
        try:
            s.bind(f'\0mayfly-test-ports-{first}')
        except OSError:
            s.close()
            continue
        return {'first': first, 'next': 0, 'socket': s}
    raise AssertionError('too many test runs at once')


def unused(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)     # what only lingers is no matter
        try:
            s.bind(('', port))
        except OSError:
            return False
    return True


def free_port():
    """All of the block by turns: it is long until one is given again."""
    if not mine:
        mine.update(claim())
    for _ in range(BLOCK):
        port = mine['first'] + mine['next']
        mine['next'] = (mine['next'] + 1) % BLOCK
        if unused(port):
            return port
    raise AssertionError('no free port')
