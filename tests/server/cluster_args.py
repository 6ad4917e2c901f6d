"""Arguments and ports of nodes, for suites that run a lone server's tests on the leader of a cluster."""
from ports import free_port, unused

NODE_TIMEOUT = 10_000   # milliseconds: nobody else becomes the leader because the machine is busy
BUS = 10_000            # from a node's port to that of its bus
CLUSTER = ['--cluster-enabled', 'yes', '--cluster-secret', 'the secret of these tests', '--cluster-cross-slots', 'yes',
           '--cluster-node-timeout', str(NODE_TIMEOUT), '--cluster-regions', '1']


def port_with_bus():
    while True:
        port = free_port()
        if unused(port + BUS):
            return port
