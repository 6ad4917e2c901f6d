"""Sites of active-active replication: real processes on the loopback interface, on MAYFLY_ENGINE."""
import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [HERE, os.path.join(HERE, '..', 'server'), os.path.join(HERE, '..', 'replication')]

import sites                                                             # noqa: E402


def pytest_configure(config):
    config.addinivalue_line('markers', 'any_engine: of test_tls.py, whose certificates are used here')


@pytest.fixture
def group():
    """Makes groups of sites that live until the test ends."""
    made = []

    def make(*args, **options):
        made.append(sites.Group(*args, **options))
        return made[-1]

    yield make
    try:
        for g in made:
            g.check()
    finally:
        for g in made:
            g.close()


@pytest.fixture
def site():
    """Starts single sites that live until the test ends."""
    made = []

    def start(*args, **options):
        made.append(sites.Site(*args, **options))
        return made[-1]

    yield start
    try:
        for s in made:
            if s.proc.poll() is None:
                assert s.stop() == 0, s.log
            s.check()
    finally:
        for s in made:
            s.remove()
