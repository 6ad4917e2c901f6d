"""Three nodes on this machine: of Mayfly, or of etcd."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time

from .server import START_LIMIT_S, child_setup, free_port, running

KVLOAD = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "kvload")
CLIENTS = 64


def node_port():
    """A port whose bus port (10,000 above) exists, too."""
    while (port := free_port()) > 55000:
        pass
    return port


class Trio:
    """Nodes of Mayfly. `leader` is where requests go."""

    def __init__(self, nodes):
        self.nodes = nodes

    def leader(self, limit_s=START_LIMIT_S):
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            for node in self.nodes:
                if node.proc.poll() is None and self.role(node) == "leader":
                    return node
            time.sleep(0.02)
        raise RuntimeError("no node leads")

    @staticmethod
    def region(node):
        return dict(part.split("=") for part in node.info_text("cluster", "region1").split(","))

    def role(self, node):
        try:
            return self.region(node)["role"]
        except (OSError, RuntimeError):
            return None

    def wait_settled(self, limit_s=60):
        """Until all nodes vote and have applied what the leader's log has."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            leader = self.region(self.leader())
            with contextlib.suppress(RuntimeError):     # a node that joins has no member yet
                states = [self.region(n) for n in self.nodes]
                if leader["voters"] == str(len(self.nodes)) and leader["joint"] == "0" and \
                        all(int(s["applied"]) >= int(leader["last"]) for s in states):
                    return
            time.sleep(0.05)
        raise RuntimeError("the nodes do not become members")

    def wait_regions(self, count, limit_s=120):
        """Until all nodes vote in so many regions, each of which has a leader, and no node leads many more than another."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            led = [self.regions_led(n, count) for n in self.nodes]
            if None not in led and sum(led) == count and max(led) - min(led) <= 1:
                return
            time.sleep(0.2)
        raise RuntimeError(f"there are not {count} regions that serve")

    def regions_led(self, node, count):
        """How many regions the node leads; None: it does not vote in all of them yet."""
        lines = node.call("INFO", "cluster").decode().splitlines()
        regions = [dict(p.split("=") for p in l.partition(":")[2].split(",")) for l in lines if l.startswith("region")]
        if len(regions) != count or any(int(r["voters"]) != len(self.nodes) or int(r["joint"]) for r in regions):
            return None
        return sum(r["role"] == "leader" for r in regions)

    def addresses(self):
        return ",".join(f"127.0.0.1:{n.port}" for n in self.nodes)


@contextlib.contextmanager
def mayfly_trio(env, path, *args, balance="no"):
    """Regions are not split by size: what is measured has as many as it asks for. `balance`: whether the cluster may
    move leaderships, which a load that knows one leader does not survive."""
    with contextlib.ExitStack() as stack:
        nodes = []
        for i in range(3):
            role = ("--cluster-join", f"127.0.0.1:{nodes[0].port}") if i else ("--cluster-init", "yes")
            nodes.append(stack.enter_context(running(
                f"node {i + 1}", path, None, env.nice,
                ("--engine", "rocksdb", "--cluster-enabled", "yes", "--cluster-regions", 1,
                 "--cluster-region-max-size", 0, "--cluster-balance", balance, *role, *args),
                port=node_port())))
        trio = Trio(nodes)
        trio.wait_settled()
        yield trio


class Etcd:
    def __init__(self, ports):
        self.ports = ports

    def addresses(self):
        return ",".join(f"127.0.0.1:{p}" for p in self.ports)


@contextlib.contextmanager
def etcd_trio(env):
    ports, peers = [free_port() for _ in range(3)], [free_port() for _ in range(3)]
    members = ",".join(f"e{i}=http://127.0.0.1:{p}" for i, p in enumerate(peers))
    folder = tempfile.mkdtemp(prefix="bench-etcd-")
    procs = []
    try:
        for i, (port, peer) in enumerate(zip(ports, peers)):
            client, own = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
            with open(os.path.join(folder, f"log{i}"), "wb") as log:
                procs.append(subprocess.Popen(
                    ["etcd", "--name", f"e{i}", "--data-dir", os.path.join(folder, f"e{i}"),
                     "--listen-client-urls", client, "--advertise-client-urls", client,
                     "--listen-peer-urls", own, "--initial-advertise-peer-urls", own,
                     "--initial-cluster", members],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=child_setup(None, env.nice)))
        etcd = Etcd(ports)
        kvload(env, "etcd", etcd, "put", 0.1)       # it waits for the cluster to be there
        yield etcd
    finally:
        for proc in procs:
            proc.kill()
            proc.wait()
        shutil.rmtree(folder, ignore_errors=True)


def kvload_missing():
    """What is not there to compare with etcd; "": nothing."""
    return ", ".join(tool for tool in ("etcd", "go") if not shutil.which(tool))


def kvload(env, kind, cluster, op, seconds):
    """Runs bench/kvload, which it builds if need be; returns what it prints."""
    binary = os.path.join(os.path.dirname(env.tools["probe"]), "kvload")
    sources = [os.path.join(KVLOAD, name) for name in ("main.go", "go.mod", "go.sum")]
    if not os.path.exists(binary) or os.path.getmtime(binary) < max(map(os.path.getmtime, sources)):
        subprocess.run(["go", "build", "-o", binary, "."], cwd=KVLOAD, check=True)
    done = subprocess.run([binary, "-to", kind, "-at", cluster.addresses(), "-op", op, "-seconds", str(seconds),
                           "-clients", str(CLIENTS)], capture_output=True, text=True, timeout=60 + seconds,
                          preexec_fn=child_setup(None, env.nice))
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-300:])
    got = json.loads(done.stdout)
    if got["errors"]:
        raise RuntimeError(f"{got['errors']} of {got['requests']} requests failed")
    return got
