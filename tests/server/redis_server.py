"""A real redis-server, for files that go to and fro, and its checkers."""
import functools
import re
import shutil
import subprocess
import tempfile

import pytest

import mayfly


@functools.lru_cache(maxsize=None)
def version():
    """(7, 0) and the like, as `redis-server -v` tells it; (0, 0) without one."""
    program = shutil.which('redis-server')
    if not program:
        return 0, 0
    found = re.search(r' v=(\d+)\.(\d+)', subprocess.run([program, '-v'], capture_output=True, check=True, text=True).stdout)
    return tuple(map(int, found.groups()))


def until(first_unlike, why):
    """Tests beside redis-server that do not apply to later ones: we follow 7.4."""
    return pytest.mark.skipif(version() >= first_unlike, reason='Redis %d.%d: ' % first_unlike + why)


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
        self.start_first(wait)


TEXTS = [       # of Redis 7.0, and what 7.4 says instead; scripts of 7.0 don't tell which command it was
    (rb"NOPERM this user has no permissions to run the ('.*' command)", rb'NOPERM User USER has no permissions to run the \1'),
    (rb'NOPERM this user has no permissions to access one of the (key|channel)s used as arguments',
     rb'NOPERM No permissions to access a \1'),
    (rb"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
     rb'ERR ACL failure in script: No permissions to access a key'),
    (rb"ERR The user executing the script can't publish to the channel mentioned in the command",
     rb'ERR ACL failure in script: No permissions to access a channel'),
    (rb"ERR The user executing the script can't run this command or subcommand",
     rb"ERR ACL failure in script: User USER has no permissions to run the '' command"),
]


def in_new_words(reply, user='u'):
    """A denial of 7.0, to this user, as 7.4 has it."""
    if isinstance(reply, list):
        return [in_new_words(x, user) for x in reply]
    if not isinstance(reply, (bytes, str)):
        return reply
    text = reply if isinstance(reply, bytes) else reply.encode()
    for old, new in TEXTS:
        text = re.sub(old, new.replace(b'USER', user.encode()), text)
    return text if isinstance(reply, bytes) else mayfly.ReplyError(text.decode())


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
