"""ioredis, node-redis, and applications built on them: queues, locks, rate limits, sessions.

`make clients` runs this; npm puts the packages into the build directory."""
import filecmp
import os
import shutil
import subprocess

import mayfly
import pytest

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'node')
PLACE = os.path.join(mayfly.ROOT, 'build', 'clients-node')


@pytest.fixture(scope='module')
def modules():
    """The directory of the installed packages; skips where they are not to be had."""
    for tool in ('node', 'npm'):
        if not shutil.which(tool):
            pytest.skip(f'{tool} is not installed (Debian: apt-get install npm)')
    lock, installed = os.path.join(HERE, 'package-lock.json'), os.path.join(PLACE, 'package-lock.json')
    found = os.path.join(PLACE, 'node_modules')
    if not (os.path.isdir(found) and os.path.exists(installed) and filecmp.cmp(lock, installed, shallow=False)):
        os.makedirs(PLACE, exist_ok=True)
        shutil.copy(os.path.join(HERE, 'package.json'), PLACE)
        shutil.copy(lock, PLACE)
        # Not `npm ci`: it wants packages for every other system, too, which not every registry has.
        done = subprocess.run(['npm', 'install', '--no-audit', '--no-fund', '--ignore-scripts', '--omit=optional'],
                              cwd=PLACE, capture_output=True, text=True, timeout=300)
        if done.returncode:
            shutil.rmtree(PLACE)
            pytest.skip('npm could not install the clients: ' + done.stderr.strip()[-300:])
        shutil.copy(lock, PLACE)        # npm may have changed its copy
    return found


@pytest.mark.parametrize('script', ['ioredis.js', 'node_redis.js', 'bullmq.js', 'applications.js'])
def test_node(server, modules, script):
    sock = os.path.join(server.dir, 'mayfly.sock')
    done = subprocess.run(['node', os.path.join(HERE, script), str(server.port), sock], capture_output=True, text=True,
                          timeout=120, env=dict(os.environ, NODE_PATH=modules))
    assert done.returncode == 0, done.stdout + done.stderr
    assert '\n# fail 0\n' in done.stdout or '\nℹ fail 0\n' in done.stdout, done.stdout
