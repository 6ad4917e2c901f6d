"""Faults. FAULT=full (make fault) runs all rounds; otherwise a few of each (make test).

FAULT_SEED picks the random choices; a failure prints the seed of its round.
"""
import os
import random
import shutil
import sys
import tempfile
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'server'))

import machine                                                           # noqa: E402

FULL = os.environ.get('FAULT') == 'full'
SEED = os.environ.get('FAULT_SEED') or str(random.SystemRandom().randrange(10**6))
os.environ['FAULT_SEED'] = SEED     # processes of pytest-xdist inherit it
TOTALS = {}


def pytest_report_header():
    return f'faults: {"all rounds" if FULL else "a few rounds"}, FAULT_SEED={SEED}'


def pytest_sessionfinish(session):
    """A process of pytest-xdist hands its totals over; pytest_testnodedown gets them."""
    if hasattr(session.config, 'workeroutput'):
        session.config.workeroutput['totals'] = TOTALS


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    TOTALS.update(getattr(node, 'workeroutput', {}).get('totals', {}))


def pytest_terminal_summary(terminalreporter):
    if TOTALS:
        terminalreporter.section('what the rounds verified')
    for name, total in TOTALS.items():
        if not total['rounds']:
            continue
        numbers = ', '.join(f'{n:,} {what}' for what, n in total.items())
        terminalreporter.write_line(f'{name}: {numbers}')


class Rounds:
    """The rounds of one test: progress on the terminal, and a line in the summary."""

    def __init__(self, name, tell):
        self.name, self.tell = name, tell
        self.rng = random.Random(f'{SEED}/{name}')
        self.seed = f'{SEED}/{name}'
        self.full = FULL
        self.total = TOTALS.setdefault(name, {'rounds': 0})

    def run(self, full, short):
        n, started = full if FULL else short, time.monotonic()
        for i in range(n):
            yield i
            self.total['rounds'] += 1
            if FULL and (i + 1) % 10 == 0:
                self.tell(f'  {self.name}: {i + 1}/{n} rounds, {time.monotonic() - started:.0f} s, '
                          + ', '.join(f'{v:,} {k}' for k, v in self.total.items() if k != 'rounds'))

    def add(self, **numbers):
        for what, n in numbers.items():
            what = what.replace('_', ' ')
            self.total[what] = self.total.get(what, 0) + n

    def most(self, **numbers):
        for what, n in numbers.items():
            what = what.replace('_', ' ') + ' (at most)'
            self.total[what] = max(self.total.get(what, n), n)


@pytest.fixture
def rounds(request):
    capture = request.config.pluginmanager.getplugin('capturemanager')

    def tell(text):
        with capture.global_and_fixture_disabled():
            print(text, flush=True)

    return Rounds(request.node.name, tell)


@pytest.fixture
def machines(disks):                                  # servers end before their disks go  # pylint: disable=unused-argument
    """machines(setup, fsync, directory=None, rng=None) makes a Machine, which goes with the test."""
    made, folders = [], []

    def make(setup, fsync, directory=None, rng=None):
        if directory is None:
            directory = tempfile.mkdtemp(prefix='mayfly-fault-')
            folders.append(directory)
        made.append(machine.Machine(setup, fsync, directory, rng))
        return made[-1]

    yield make
    for m in made[-3:]:                                 # shown if the test failed
        if os.path.exists(m.log_path):
            print(f'--- start {m.starts}, exit code {m.proc.poll()}\n{m.log[-6000:]}')
    for m in made:
        m.remove()
    if not os.environ.get('FAULT_KEEP'):
        for f in folders:
            shutil.rmtree(f, ignore_errors=True)


@pytest.fixture
def disks():
    """disks(kind, …) makes a Disk; skips the test where that is not possible."""
    made = []

    def make(kind, *args):
        try:
            made.append(kind(*args))
        except machine.Unavailable as e:
            pytest.skip(str(e))
        return made[-1]

    yield make
    for d in made:
        d.remove()
