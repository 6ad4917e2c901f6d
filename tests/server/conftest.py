"""Fixtures: a server shared by all tests, servers of a single test, clients and raw sockets."""
import pytest

import mayfly
import redis_server


def pytest_configure(config):
    config.addinivalue_line('markers', 'engine(name, reason): for servers with this engine only')
    config.addinivalue_line('markers', 'lone(reason): not for the leader of a cluster')
    config.addinivalue_line('markers', 'any_engine: does not depend on the engine, so it runs on the faster one only')


def pytest_collection_modifyitems(config, items):
    """Tests of protocols, roles and timeouts, which no engine affects, run once (under each sanitizer, and on a
    leader, which does affect them)."""
    once = mayfly.ENGINE != 'memory' and not mayfly.LEADER
    left_out = [i for i in items if once and i.get_closest_marker('any_engine')]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [i for i in items if i not in left_out]


def pytest_runtest_setup(item):
    for mark in item.iter_markers('engine'):
        if mark.args[0] != mayfly.ENGINE:
            pytest.skip(mark.args[1])
    for mark in item.iter_markers('lone'):
        if mayfly.LEADER:
            pytest.skip(mark.args[0])


@pytest.fixture(scope='session')
def shared_server():
    yield from mayfly.for_a_session('--enable-debug-command', 'yes', '--enable-protected-configs', 'yes',
                                    '--unixsocket', 'mayfly.sock')


@pytest.fixture
def server(shared_server):
    """The shared server, emptied. A test that changes its configuration restores it."""
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
    """raw(port) opens a raw socket (a path: a Unix socket)."""
    opened = []

    def connect(port):
        c = mayfly.Raw(port)
        opened.append(c)
        return c

    yield connect
    for c in opened:
        c.close()
