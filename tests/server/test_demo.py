"""bench/demo.py with few keys: it ends by itself and prints a summary, with redis-server and without."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

DEMO = pathlib.Path(__file__).resolve().parents[2] / 'bench' / 'demo.py'


@pytest.mark.parametrize('redis', ['redis-server', 'no-such-server'])
def test_demo(redis):
    done = subprocess.run([sys.executable, str(DEMO), '--keys', '500', '--seconds', '1', '--redis', redis,
                           '--server', os.environ['MAYFLY_SERVER']], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    shown = re.findall(r'^(\S+) +[0-9.]+ ms +[0-9.]+ ms +[0-9.]+ ms', done.stdout, re.M)
    assert shown == (['Mayfly', 'redis-server'] if redis == 'redis-server' else ['Mayfly']), done.stdout
    assert ('Mayfly alone' in done.stdout) == (redis == 'no-such-server')
