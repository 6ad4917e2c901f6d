"""Fixtures: a server for everybody, servers of one's own, clients and bare sockets."""
import pytest

import mayfly
import redis_server


def pytest_configure(config):
    config.addinivalue_line('markers', 'engine(name, reason): for servers with this engine only')
    config.addinivalue_line('markers', 'any_engine: which one does not matter, so it is the one that is quick')


def pytest_collection_modifyitems(config, items):
    """Protocols, roles, timeouts: what no engine has a part in is run once for all (and under each sanitizer)."""
    left_out = [i for i in items if mayfly.ENGINE != 'memory' and i.get_closest_marker('any_engine')]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [i for i in items if i not in left_out]


def pytest_runtest_setup(item):
    for mark in item.iter_markers('engine'):
        if mark.args[0] != mayfly.ENGINE:
            pytest.skip(mark.args[1])


@pytest.fixture(scope='session')
def shared_server():
    yield from mayfly.for_a_session('--enable-debug-command', 'yes', '--enable-protected-configs', 'yes',
                                    '--unixsocket', 'mayfly.sock')


@pytest.fixture
def server(shared_server):
    """The shared server, emptied. Whoever changes its configuration restores it."""
    return mayfly.emptied(shared_server)


@pytest.fixture
def r(server):
    """A redis-py client of the shared server."""
    with server.client() as c:
        yield c


@pytest.fixture
def server_factory():
    """server_factory('--directive', value …) starts a server that lives until the test ends."""
    yield from mayfly.for_a_test()


@pytest.fixture
def redis_factory():
    """redis_factory('--directive', value …): likewise, a redis-server."""
    started = []

    def start(*args, **options):
        started.append(redis_server.Redis(*args, **options))
        return started[-1]

    yield start
    for s in started:
        s.remove()


@pytest.fixture
def raw():
    """raw(port) opens a bare socket (a path: a Unix socket)."""
    opened = []

    def connect(port):
        c = mayfly.Raw(port)
        opened.append(c)
        return c

    yield connect
    for c in opened:
        c.close()
