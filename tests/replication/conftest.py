"""Replication between any two of redis-server and Mayfly on either engine.

REPL=full (make replication) runs all rounds on all pairs; otherwise a few (make test). REPL_SEED picks the random
choices. REPL_PAIRS=redis:redis,memory:redis picks the pairs, primary first; REPL_CHAINS=redis:redis:redis likewise.
With Redis alone they test the tests.
"""
import os
import random
import shutil
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [os.path.join(HERE, '..', 'server'), os.path.join(HERE, '..', 'oracle')]

import nodes as kinds                                                    # noqa: E402
import proxy as proxies                                                  # noqa: E402

FULL = os.environ.get('REPL') == 'full'
SEED = os.environ.get('REPL_SEED') or str(random.SystemRandom().randrange(10**6))
os.environ['REPL_SEED'] = SEED      # processes of pytest-xdist inherit it, and choose the same tests
ALL = 'redis:memory redis:rocks memory:redis rocks:redis memory:rocks rocks:memory memory:memory rocks:rocks'
CHAIN = 'redis:memory:rocks memory:redis:rocks rocks:memory:redis memory:rocks:memory'
PAIRS = (os.environ.get('REPL_PAIRS') or ALL).replace(',', ' ').split()
CHAINS = (os.environ.get('REPL_CHAINS') or CHAIN).replace(',', ' ').split()
ONES = sorted({kind for p in PAIRS for kind in p.split(':')} - {'redis'}) or ['redis']


def pytest_report_header():
    return f'replication: {"all rounds" if FULL else "a few rounds"}, REPL_SEED={SEED}, {" ".join(PAIRS)}'


def pytest_configure(config):
    config.addinivalue_line('markers', 'suits(condition): only for pairs, chains or kinds it holds for')


def suits(metafunc, one):
    mark = metafunc.definition.get_closest_marker('suits')
    return not mark or mark.args[0](one.split(':') if ':' in one else one)


def pytest_generate_tests(metafunc):
    """pair: kinds of a primary and a replica. chain: of a primary, its replica, and a replica of that.
    kind: of a node that is alone."""
    for name, every in ('pair', PAIRS), ('chain', CHAINS), ('kind', ONES):
        if name in metafunc.fixturenames:
            every = [p for p in every if suits(metafunc, p)]
            metafunc.parametrize(name, [tuple(p.split(':')) if ':' in p else p for p in every],
                                 ids=[p.replace(':', '-') for p in every])


def pytest_collection_modifyitems(config, items):
    if not shutil.which('redis-server'):
        for item in items:
            item.add_marker(pytest.mark.skip(reason='needs redis-server'))
    if not FULL and 'REPL_PAIRS' not in os.environ:
        chosen = some_of(items)
        config.hook.pytest_deselected(items=[i for i in items if i not in chosen])
        items[:] = [i for i in items if i in chosen]


def some_of(items):
    """Of each test one of the pairs, chains or kinds, by turns: the seed says which comes first."""
    groups = {}
    for item in items:
        given = getattr(item, 'callspec', None)
        other = {k: v for k, v in given.params.items() if k not in ('pair', 'chain', 'kind')} if given else ''
        groups.setdefault(f'{item.location[0]} {item.originalname} {other}', []).append(item)
    chosen, turn = set(), random.Random(SEED).randrange(8)
    for group in groups.values():
        chosen.add(group[turn % len(group)])
        turn += 1
    return chosen


@pytest.fixture
def full():
    return FULL


@pytest.fixture
def seed(request):
    return f'{SEED}/{request.node.name}'


@pytest.fixture
def rng(seed):                                                           # pylint: disable=redefined-outer-name
    return random.Random(seed)


@pytest.fixture
def node():
    """node(kind, '--directive', value …) starts a server that lives until the test ends."""
    started = []

    def start(kind, *args, **options):
        started.append(kinds.Node(kind, *args, **options))
        return started[-1]

    yield start
    for n in started:                                   # shown if the test failed
        print(f'--- {n}, exit code {n.proc.poll()}\n{n.log[-3000:]}')
    codes = {n: n.proc.poll() if n.kind == 'redis' or n.proc.poll() is not None else n.stop() for n in started}
    try:
        assert all(code in (None, 0, -9) for code in codes.values()), codes
        for n in started:
            n.check()
    finally:
        for n in started:
            n.remove()


@pytest.fixture
def proxy():
    """proxy(node) leads to it."""
    made = []

    def make(to):
        made.append(proxies.Proxy(to))
        return made[-1]

    yield make
    for p in made:
        p.close()
