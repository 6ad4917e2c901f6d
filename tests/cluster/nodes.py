"""Clusters of real servers on this machine, for the tests of this folder."""
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import redis

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'server'))
from mayfly import BINARY, ENGINES, ROOT, Client, eventually, free_port, in_one_of, process_state  # noqa: E402, F401


REGIONS = os.environ.get('MAYFLY_CLUSTER_REGIONS', '1')    # of clusters whose tests do not say how many


def is_free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(('127.0.0.1', port))
        except OSError:
            return False
        return True


def free_ports():
    """A port for clients whose bus port is free, too; both below those that the kernel gives to connections."""
    while True:
        port = random.randrange(11000, 22000)
        if is_free(port) and is_free(port + 10000):
            return port


def bytes_client(client):
    """A client of the same node whose replies are bytes."""
    to = client.connection_pool.connection_kwargs
    return Client(host=to['host'], port=to['port'], socket_timeout=20)


class Node:
    """`before`: a command that becomes the server; `env`: further variables of its environment; `log`: where its log is, if not
    in its folder."""

    def __init__(self, folder, options=(), host='127.0.0.1', port=None, before=(), env=None, log=None):
        self.host, self.port, self.folder, self.proc = host, port or free_ports(), folder, None
        self.options, self.before, self.env = list(options), list(before), env or {}
        os.makedirs(folder, exist_ok=True)
        self.log = log or os.path.join(folder, 'log')

    @property
    def address(self):
        return self.host, self.port

    def start(self, *more):
        args = [*self.before, BINARY, *ENGINES['rocksdb'], '--cluster-enabled', 'yes', '--bind', self.host,
                '--port', str(self.port), '--dir', self.folder, '--save', '', '--protected-mode', 'no',
                '--cluster-secret', 'the secret of these tests', '--enable-debug-command', 'yes', *self.options, *more]
        with open(self.log, 'ab') as log:
            self.proc = subprocess.Popen(args, stdout=log, stderr=log, env={**os.environ, **self.env})

    def client(self, **options):
        return Client(host=self.host, port=self.port, **{'decode_responses': True, 'socket_timeout': 20, **options})

    def alive(self):
        return self.proc and self.proc.poll() is None

    def kill(self):
        self.proc.kill()
        self.proc.wait()

    def stop(self):
        """An orderly shutdown; the exit code."""
        self.proc.send_signal(signal.SIGTERM)
        return self.proc.wait(60)

    def info(self):
        """INFO cluster, or {}."""
        try:
            with self.client(socket_timeout=5) as c:
                text = c.execute_command('INFO', 'cluster')
        except (redis.ConnectionError, redis.TimeoutError):
            return {}
        return text if isinstance(text, dict) else {}

    def regions(self):
        """What INFO says of each region, by number."""
        return {int(k[6:]): v for k, v in self.info().items() if k.startswith('region')}

    def region(self, name='region1'):
        """What INFO says of region 1, or of region 0 ('meta'), or {}."""
        return self.info().get(name, {})

    def leads(self):
        return self.alive() and self.region().get('role') == 'leader'

    def logged(self):
        with open(self.log, encoding='utf-8', errors='replace') as f:
            return f.read()


class Cluster:
    """`with Cluster(3) as c`: as many nodes, all of them voters. `node(number, folder, options)` makes one."""

    def __init__(self, size, options=('--cluster-node-timeout', '1000'), node=lambda i, *args: Node(*args), replicas=None):
        self.folder = tempfile.mkdtemp(prefix='mayfly-cluster-')
        self.replicas = replicas or max(size, 3)
        options = ['--cluster-regions', REGIONS, *options, '--cluster-replicas', str(self.replicas)]
        self.nodes = [node(i, os.path.join(self.folder, f'n{i}'), options) for i in range(size)]

    def __enter__(self):
        self.nodes[0].start('--cluster-init', 'yes')
        for n in self.nodes[1:]:
            n.start('--cluster-join', f'{self.nodes[0].host}:{self.nodes[0].port}')
        try:
            self.settled(min(len(self.nodes), self.replicas))
        except BaseException as e:
            self.__exit__(type(e), e)
            raise
        return self

    def __exit__(self, kind, *_):
        for n in self.nodes:
            if n.alive():
                n.kill()
        if kind:
            for n in self.nodes:
                print(n.folder, n.logged()[-3000:], file=sys.stderr)
        shutil.rmtree(self.folder, ignore_errors=True)

    def settled(self, voters, seconds=90):
        """Waits until each region has a leader with so many voters, and until all members that run have applied what
        was in its log then, and no change of members is under way: until its end the majority of the members before
        it is needed, too. Clients may go on writing."""
        def look():
            before = [n.regions() for n in self.nodes if n.alive()]
            after = [n.regions() for n in self.nodes if n.alive()]
            return all(settles(number, before, after) for number in set().union(*before, [1]))

        def settles(number, before, after):
            leader = [s[number] for s in before if s.get(number, {}).get('role') == 'leader']
            if len(leader) != 1 or int(leader[0]['voters']) != voters:
                return False
            states = [s.get(number) for s in after]
            if self.replicas < len(self.nodes): # some have no member
                states = [s for s in states if s]
            return all(s and int(s['applied']) >= int(leader[0]['last']) and not int(s['joint']) for s in states)
        eventually(look, seconds, 0.1)

    def leader(self, seconds=90):
        """It leads region 0, too, or will in a moment."""
        def look():
            return next((n for n in self.nodes if n.leads() and n.region('meta').get('role') == 'leader'), None)
        return eventually(look, seconds, 0.1)

    def followers(self):
        leader = self.leader()
        return [n for n in self.nodes if n is not leader and n.alive()]

    def try_all(self, *command, seconds=90):
        """Sends a command wherever it is taken, as a cluster client does, until it is answered."""
        end = time.monotonic() + seconds
        while True:
            for n in self.nodes:
                if not n.alive():
                    continue
                try:
                    with n.client(socket_timeout=5) as c:
                        return c.execute_command(*command)
                except (redis.ResponseError, redis.ConnectionError, redis.TimeoutError) as e:
                    last = e
            assert time.monotonic() < end, last
            time.sleep(0.1)


class Stopped:
    """`with Stopped(node)`: the process gets no CPU."""

    def __init__(self, *nodes):
        self.nodes = nodes

    def __enter__(self):
        for n in self.nodes:
            n.proc.send_signal(signal.SIGSTOP)

    def __exit__(self, *_):
        for n in self.nodes:
            n.proc.send_signal(signal.SIGCONT)
