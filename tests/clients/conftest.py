"""Fixtures: a server as a newcomer starts it (no options but a free port and a directory)."""
import os
import signal
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'server'))

import mayfly                                                            # noqa: E402


@pytest.fixture(scope='session')
def shared_server():
    s = mayfly.Server('--unixsocket', 'mayfly.sock')
    yield s
    try:
        assert s.stop(signal.SIGTERM) == 0, s.log
        s.check()
    finally:
        s.remove()


@pytest.fixture
def server(shared_server):
    """The shared server, emptied. Whoever changes its configuration restores it."""
    assert shared_server.proc.poll() is None, f'the shared server crashed: {shared_server.log}'
    with shared_server.client() as c:
        c.flushall()
    return shared_server


@pytest.fixture
def own_server():
    """own_server('--directive', value …) starts a server that lives until the test ends."""
    started = []

    def start(*args):
        s = mayfly.Server(*args)
        started.append(s)
        return s

    yield start
    try:
        for s in started:
            if s.proc.poll() is None:
                assert s.stop(signal.SIGTERM) == 0, s.log
            s.check()
    finally:
        for s in started:
            s.remove()
