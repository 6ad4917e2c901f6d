"""The bus over TLS: nodes join, and connections without a valid certificate get no reply."""
import os
import socket
import ssl
import subprocess

import pytest
from nodes import Cluster, Node, eventually


def openssl(*args, cwd):
    subprocess.run(['openssl', *args], cwd=cwd, check=True, capture_output=True)


@pytest.fixture(scope='module')
def certs(tmp_path_factory):
    """A CA and its certificate for nodes; another CA, and one of its own."""
    d = str(tmp_path_factory.mktemp('certs'))
    with open(os.path.join(d, 'ext'), 'w', encoding='ascii') as f:
        f.write('subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\nsubjectKeyIdentifier=hash\n'
                'authorityKeyIdentifier=keyid\nkeyUsage=critical,digitalSignature,keyEncipherment\n')
    for ca, name in (('ca', 'node'), ('other-ca', 'stranger')):
        openssl('req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', f'/CN={ca}', '-keyout', f'{ca}.key',
                '-out', f'{ca}.crt', '-addext', 'keyUsage=critical,keyCertSign,cRLSign', cwd=d)
        openssl('req', '-newkey', 'rsa:2048', '-nodes', '-subj', f'/CN={name}', '-keyout', f'{name}.key', '-out',
                f'{name}.csr', cwd=d)
        openssl('x509', '-req', '-in', f'{name}.csr', '-CA', f'{ca}.crt', '-CAkey', f'{ca}.key', '-CAcreateserial', '-days',
                '2', '-extfile', 'ext', '-out', f'{name}.crt', cwd=d)
    return d


def tls_options(certs, name='node', ca='ca'):
    return ['--tls-cluster', 'yes', '--tls-cert-file', f'{certs}/{name}.crt', '--tls-key-file', f'{certs}/{name}.key',
            '--tls-ca-cert-file', f'{certs}/{ca}.crt', '--cluster-node-timeout', '5000']


@pytest.fixture(scope='module')
def pair(certs):
    with Cluster(2, tls_options(certs)) as c:
        yield c


def test_nodes_join_and_replicate(pair):
    with pair.leader().client() as c, pair.followers()[0].client() as f:
        c.set('k', 'x' * 2_000_000)
        f.execute_command('READONLY')
        assert f.get('k') == 'x' * 2_000_000


def test_a_node_gets_a_snapshot_over_tls(pair, certs, tmp_path):
    with pair.leader().client() as c:
        for i in range(200):
            c.set(f'k{i}', f'{i}' * 1000)
    third = Node(str(tmp_path / 'third'), tls_options(certs))
    third.start('--cluster-join', f'127.0.0.1:{pair.nodes[0].port}')
    try:
        eventually(lambda: third.region().get('voters') == 3, 90)
        with third.client() as c:
            c.execute_command('READONLY')
            assert c.get('k199') == '199' * 1000
    finally:
        with third.client() as c:
            name = c.execute_command('CLUSTER MYID')
        third.kill()

        def forgotten():
            leader = pair.leader()
            if leader.region().get('voters') == 2 and not leader.region().get('joint'):
                return True
            with leader.client() as c:
                try:
                    c.execute_command('CLUSTER FORGET', name)
                except Exception as e:  # noqa: B902 # pylint: disable=broad-except
                    assert 'TRYAGAIN' in str(e) or 'not a member' in str(e) or 'leads' in str(e), e
            return False
        eventually(forgotten, 90, 0.2)


def talk(port, context=None):
    """What the bus answers to somebody who says something that is no TLS; or that is, with this context."""
    with socket.create_connection(('127.0.0.1', port), 20) as s:
        if context:
            s = context.wrap_socket(s)
        s.sendall(b'MAYFLY' + bytes(200))
        answer = b''
        while True:
            more = s.recv(65536)
            if not more:
                return answer
            answer += more


def test_plain_text_gets_nothing(pair):
    for n in pair.nodes:
        try:
            answer = talk(n.port + 10000)
        except ConnectionError:
            answer = b''
        assert answer[:1] in (b'', b'\x15') and len(answer) <= 7, answer      # nothing, or an alert of TLS


def test_nor_does_one_without_a_certificate_of_ours(pair, certs):
    for name in (None, 'stranger'):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if name:
            context.load_cert_chain(f'{certs}/{name}.crt', f'{certs}/{name}.key')
        with pytest.raises((ssl.SSLError, ConnectionError)):
            answer = talk(pair.nodes[0].port + 10000, context)
            assert answer == b'' and not 'refused'


@pytest.mark.parametrize('who', ['plain', 'stranger'])
def test_a_node_without_our_certificate_stays_outside(pair, certs, tmp_path, who):
    """Even if it knows the secret."""
    options = ['--cluster-node-timeout', '5000'] if who == 'plain' else tls_options(certs, 'stranger', 'other-ca')
    node = Node(str(tmp_path / 'n'), options)
    node.start('--cluster-join', f'127.0.0.1:{pair.nodes[0].port}')
    try:
        eventually(lambda: 'No answer from the cluster' in node.logged(), 60)
        assert not node.region().get('voters')
        assert pair.leader().region()['voters'] == 2
        assert 'installed' not in node.logged()
    finally:
        node.kill()
