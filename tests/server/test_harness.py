"""The harness itself."""
import os

import pytest

import mayfly
import redis_server

pytestmark = pytest.mark.engine('memory', 'the harness is the same with every engine')


def test_a_server_that_ends_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    with pytest.raises(AssertionError, match='the server ended'):
        mayfly.Server('--no-such-directive', 1)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize('kind', [mayfly.Server, pytest.param(redis_server.Redis, marks=redis_server.needed)])
def test_a_server_that_is_not_ready_in_time_leaves_nothing(kind, monkeypatch, tmp_path):
    started = []

    def never(self):
        started.append(self.proc)
        raise AssertionError('the server did not start')
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    monkeypatch.setattr(mayfly.Server, 'wait_ready', never)
    with pytest.raises(AssertionError, match='did not start'):
        kind()
    assert started[0].poll() is not None
    assert not os.listdir(tmp_path)
