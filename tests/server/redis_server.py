"""A real redis-server, for files that go to and fro, and its checkers."""
import shutil
import subprocess
import tempfile

import pytest

import mayfly

needed = pytest.mark.skipif(not shutil.which('redis-server'), reason='needs redis-server')


class Redis(mayfly.Server):
    """Like mayfly.Server, but Redis. (With everysec it may hold writes back while a sync is under way.)"""

    def __init__(self, *args, directory=None, wait=True):      # pylint: disable=super-init-not-called
        self.own_dir = directory is None
        self.dir = directory or tempfile.mkdtemp(prefix='redis-')
        self.port = mayfly.free_port()
        self.log_path = f'{self.dir}/redis-{self.port}.log'
        self.args = ['redis-server', '--port', str(self.port), '--dir', self.dir, '--save', '',
                     '--hz', '100', '--appendfsync', 'no', '--enable-debug-command', 'yes', *map(str, args)]
        self.start(wait)


def check(program, *args):
    """redis-check-rdb or redis-check-aof, satisfied. What it says."""
    done = subprocess.run([program, *map(str, args)], capture_output=True, check=False, timeout=120)
    text = (done.stdout + done.stderr).decode('utf-8', 'replace')
    assert done.returncode == 0, text
    return text


def check_rdb(path):
    text = check('redis-check-rdb', path)
    assert 'RDB looks OK!' in text, text
    return text


def check_aof(directory, name='appendonly.aof'):
    text = check('redis-check-aof', f'{directory}/appendonlydir/{name}.manifest')
    assert 'All AOF files and manifest are valid' in text and 'is not valid' not in text, text
    return text
