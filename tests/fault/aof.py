"""The contents of a folder of the memory engine: the AOF's files, dumps, and files that should not be there."""
import os
import re
import shutil
import subprocess
import time

from load import Link

FOLDER, MANIFEST = 'appendonlydir', 'appendonly.aof.manifest'


def named(directory):
    """What the manifest names: {file: type}, without comments."""
    out = {}
    with open(os.path.join(directory, FOLDER, MANIFEST), encoding='utf-8') as f:
        for line in f:
            if not line.startswith('#'):
                word = line.split()
                out[word[1]] = word[5]
    return out


def strays(directory):
    """Files that nothing refers to."""
    known = {MANIFEST, *named(directory)}
    out = [name for name in os.listdir(os.path.join(directory, FOLDER)) if name not in known]
    return sorted(out + [name for name in os.listdir(directory) if re.match(r'temp-|.*\.tmp$', name)])


def untidy(directory):
    """What is wrong with the files' names (None: nothing): all that are named are there, and no others, and
    nothing is history. While a server runs it may change any moment."""
    try:
        files, others = named(directory), strays(directory)
    except FileNotFoundError as e:
        return str(e)
    missing = [name for name in files if not os.path.exists(os.path.join(directory, FOLDER, name))]
    history = [name for name, kind in files.items() if kind not in 'bi']
    if missing or history or others:
        return f'the manifest has {files}; missing {missing}, history {history}, nobody needs {others}'
    return None


def await_tidy(directory):
    """A server that has started removes what others have left, and what its rewrites replace."""
    end = time.monotonic() + 20
    while untidy(directory):
        assert time.monotonic() < end, untidy(directory)
        time.sleep(0.01)


def check_with_redis(directory):
    """redis-check-aof accepts what a server that ended in peace has left."""
    if not shutil.which('redis-check-aof'):
        return
    done = subprocess.run(['redis-check-aof', os.path.join(directory, FOLDER, MANIFEST)], capture_output=True,
                          check=False, timeout=120)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:].decode('utf-8', 'replace')


def save(m, meanwhile=lambda: None):
    """A snapshot, to its end: when it was asked for, and when that was answered."""
    done = 'Background saving terminated with success'
    before, end = m.log.count(done), time.monotonic() + 120
    with Link(m.port) as link:
        sent = time.monotonic()
        assert link.call('BGSAVE') == b'Background saving started'
        answered = time.monotonic()
        while m.log.count(done) == before:
            assert time.monotonic() < end, m.log[-2000:]
            meanwhile()
            time.sleep(0.005)
    return sent, answered
