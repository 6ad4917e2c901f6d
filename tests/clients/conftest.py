"""Fixtures: a server with default options except for a free port and a directory."""
import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'server'))

import mayfly                                                            # noqa: E402


@pytest.fixture(scope='session')
def shared_server():
    yield from mayfly.for_a_session('--unixsocket', 'mayfly.sock')


@pytest.fixture
def server(shared_server):
    """The shared server, emptied. A test that changes its configuration restores it."""
    return mayfly.emptied(shared_server)


@pytest.fixture
def own_server():
    """own_server('--directive', value …) starts a server that lives until the test ends."""
    yield from mayfly.for_a_test()
