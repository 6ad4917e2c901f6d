"""`make cluster`: three nodes for trying it out (scripts/cluster)."""
import os
import re
import signal
import subprocess

import redis
from nodes import BINARY, ROOT, Client, eventually, free_ports

SCRIPT = os.path.join(ROOT, 'scripts', 'cluster')


class Script:
    def __init__(self, port, folder):
        self.port, self.folder, self.said = port, str(folder), ''
        # A session of its own stands for a terminal: Ctrl-C goes to all processes in it. Where this test runs in the
        # background SIGINT is ignored, which a shell script can't undo.
        self.proc = subprocess.Popen([SCRIPT, BINARY, str(port), self.folder], stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                     preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.proc.poll() is None:
            self.ctrl_c()
        self.proc.stdout.close()

    def hear(self, words):
        while words not in self.said:
            line = self.proc.stdout.readline()
            assert line, self.said
            self.said += line

    def ctrl_c(self):
        os.killpg(self.proc.pid, signal.SIGINT)
        return self.proc.wait(60)


def three_ports():
    """The first of three in a row."""
    while True:
        port = free_ports()
        if port < 54990 and not any(is_open(p) for p in (port + 1, port + 2, port + 10001, port + 10002)):
            return port


def is_open(port):
    try:
        Client(host='127.0.0.1', port=port).ping()
        return True
    except redis.ConnectionError:
        return False


def voters(port):
    with Client(host='127.0.0.1', port=port, decode_responses=True) as c:
        return str(c.info('cluster').get('region1', {}).get('voters'))


def takes_writes(port):
    with Client(host='127.0.0.1', port=port) as c:
        try:
            return c.set('k', 'w')
        except redis.ResponseError:     # MOVED, CLUSTERDOWN
            return False


def test_it_serves_ends_and_continues(tmp_path):
    port = three_ports()
    with Script(port, tmp_path) as s:
        s.hear('to continue')
        assert f'redis-cli -c -p {port}' in s.said
        for p in (port, port + 1, port + 2):
            eventually(lambda p=p: voters(p) == '3')
        c = redis.RedisCluster(host='127.0.0.1', port=port + 2, decode_responses=True)
        c.set('k', 'v', ex=3600)
        c.close()
        assert s.ctrl_c() == 0
    assert not any(is_open(port + i) for i in range(3))
    with Script(port, tmp_path) as s:
        s.hear('to continue')
        assert 'Continuing with the data' in s.said
        c = redis.RedisCluster(host='127.0.0.1', port=port + 1, decode_responses=True)
        assert c.get('k') == 'v' and 3500 < c.ttl('k') <= 3600
        c.close()
        os.kill(int(re.search(r'kill -9 (\d+)', s.said).group(1)), signal.SIGKILL)
        s.hear('Node 1 has ended')
        eventually(lambda: any(takes_writes(p) for p in (port + 1, port + 2)))
        assert s.ctrl_c() == 0


def test_a_port_that_is_taken_is_named(tmp_path):
    port = three_ports()
    with Script(port, tmp_path / 'a') as first:
        first.hear('to continue')
        with Script(port, tmp_path / 'b') as second:
            second.hear(f'at port {port} already')
            assert second.proc.wait(60) == 1
        assert is_open(port)

