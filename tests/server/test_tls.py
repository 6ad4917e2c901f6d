"""TLS: clients, certificates, settings at run time, replication with redis-server on either end."""
import re
import shutil
import socket
import ssl
import subprocess
import time

import pytest
import redis

import mayfly
import redis_server
from mayfly import Raw, eventually, free_port

pytestmark = pytest.mark.any_engine


def openssl(*args, cwd):
    subprocess.run(['openssl', *args], cwd=cwd, check=True, capture_output=True)


@pytest.fixture(scope='module')
def certs(tmp_path_factory):
    """A CA, certificates of the server and of a client, one of an unknown CA, a key with a password."""
    d = str(tmp_path_factory.mktemp('certs'))
    for ca in ('ca', 'other-ca'):
        openssl('req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', f'/CN={ca}', '-keyout',
                f'{ca}.key', '-out', f'{ca}.crt', '-addext', 'keyUsage=critical,keyCertSign,cRLSign', cwd=d)
    with open(f'{d}/ext', 'w') as f:
        f.write('subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\nsubjectKeyIdentifier=hash\n'
                'authorityKeyIdentifier=keyid\nkeyUsage=critical,digitalSignature,keyEncipherment\n')   # X509_STRICT
    for name, ca in (('server', 'ca'), ('client', 'ca'), ('stranger', 'other-ca')):
        openssl('req', '-newkey', 'rsa:2048', '-nodes', '-subj', f'/CN={name}', '-keyout', f'{name}.key', '-out',
                f'{name}.csr', cwd=d)
        openssl('x509', '-req', '-in', f'{name}.csr', '-CA', f'{ca}.crt', '-CAkey', f'{ca}.key', '-CAcreateserial',
                '-days', '2', '-extfile', 'ext', '-out', f'{name}.crt', cwd=d)
    openssl('rsa', '-in', 'server.key', '-aes128', '-passout', 'pass:sesame', '-out', 'locked.key', cwd=d)
    return d


def options(certs, port, **more):
    o = {'tls-port': port, 'tls-cert-file': f'{certs}/server.crt', 'tls-key-file': f'{certs}/server.key',
         'tls-ca-cert-file': f'{certs}/ca.crt', **more}
    return [x for k, v in o.items() for x in (f'--{k}', v)]


@pytest.fixture(scope='module')
def tls(certs):
    port = free_port()
    s = mayfly.new_server(*options(certs, port))
    yield s, port
    assert s.stop() == 0
    s.check()
    s.remove()


def context(certs, who='client'):
    c = ssl.create_default_context(cafile=f'{certs}/ca.crt')
    if who:
        c.load_cert_chain(f'{certs}/{who}.crt', f'{certs}/{who}.key')
    return c


class Secure(Raw):
    """Raw, over TLS."""

    def __init__(self, port, ctx):
        super().__init__(port)
        self.file.close()
        self.sock = ctx.wrap_socket(self.sock, server_hostname='localhost')
        self.file = self.sock.makefile('rb')


def test_clients(tls, certs):
    s, port = tls
    with redis.Redis(port=port, ssl=True, ssl_ca_certs=f'{certs}/ca.crt', ssl_certfile=f'{certs}/client.crt',
                     ssl_keyfile=f'{certs}/client.key') as c:
        assert c.set('a', 'x' * 1_000_000) and c.get('a') == b'x' * 1_000_000
        with c.pipeline(transaction=False) as p:
            for i in range(5000):
                p.set(f'k{i}', f'v{i}' * 20)
            for i in range(5000):
                p.get(f'k{i}')
            assert p.execute()[5000:] == [(f'v{i}' * 20).encode() for i in range(5000)]
        assert c.info('server')['tcp_port'] == s.port
    cli = subprocess.run(['redis-cli', '--tls', '-p', str(port), '--cacert', f'{certs}/ca.crt', '--cert',
                          f'{certs}/client.crt', '--key', f'{certs}/client.key', 'GET', 'k7'],
                         capture_output=True, text=True, timeout=20, check=True)
    assert cli.stdout.strip() == 'v7' * 20
    with s.client() as plain:
        assert plain.get('k8') == b'v8' * 20
    assert f'redis-cli --tls -p {port}' in s.log


def test_failed_handshakes_are_logged(tls):
    """Why, and from whom; many of them in few lines."""
    s, port = tls
    failures = re.compile(r'Error accepting a client connection: (.*) \(addr=(\S+) laddr=\S+\)( \(\d+ others since.*\))?')
    begun, before = time.monotonic(), len(failures.findall(s.log))

    def fail_until_logged(attempt, text):
        def logged():
            attempt()
            return [f for f in failures.findall(s.log) if re.search(text, f[0])]
        return eventually(logged, pause=0.05)

    def speak_plainly():
        with Raw(port) as c:
            c.send(b'PING\r\n')
            assert c.closed()

    def distrust():
        with pytest.raises(ssl.SSLError):
            Secure(port, ssl.create_default_context())      # which does not know our authority

    assert fail_until_logged(speak_plainly, 'wrong version number|http request')[0][1].startswith('127.0.0.1:')
    fail_until_logged(distrust, 'alert (unknown ca|bad certificate)')

    def others_counted():
        for _ in range(10):
            distrust()
        return any(others for _, _, others in failures.findall(s.log))
    eventually(others_counted)
    assert len(failures.findall(s.log)) - before <= time.monotonic() - begun + 2    # one a second


def test_pieces_of_any_size(tls, certs):
    """Records split requests anywhere, and hold many; answers larger than a record; a reader who waits."""
    with Secure(tls[1], context(certs)) as c:
        one = mayfly.encode('SET', 'piece', 'y' * 40_000)
        for at in range(0, len(one), 7001):
            c.send(one[at:at + 7001])
        assert c.reply() == b'OK'
        c.send(b''.join(mayfly.encode('ECHO', f'{i}' * 30) for i in range(20_000)) + mayfly.encode('GET', 'piece'))
        for i in range(20_000):
            assert c.reply() == (f'{i}' * 30).encode()
        assert c.reply() == b'y' * 40_000
        for _ in range(200):
            c.command('GET', 'piece')
        time.sleep(0.05)        # its output waits in the server meanwhile
        assert all(c.reply() == b'y' * 40_000 for _ in range(200))
        c.send(b'PI')
        c.send(b'NG\r\nPING\r\n')
        assert c.reply() == c.reply() == b'PONG'


@pytest.mark.parametrize('who', [None, 'stranger'])
def test_clients_need_a_certificate(tls, certs, who):
    _, port = tls
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError, EOFError)):
        with Secure(port, context(certs, who)) as c:
            c.call('PING')


def test_a_connection_without_tls_is_closed(tls, certs):
    s, port = tls
    for first in (b'PING\r\n', b'\x16\x03\x01\xff\xff' + b'x' * 100, b'GET / HTTP/1.1\r\n\r\n'):
        with socket.create_connection(('127.0.0.1', port)) as sock:
            sock.sendall(first)
            sock.settimeout(10)
            try:
                while sock.recv(1000):
                    pass
            except ConnectionError:
                pass
    silent = socket.create_connection(('127.0.0.1', port))       # sends nothing at all: does no harm
    with Secure(port, context(certs)) as c:
        assert c.call('PING') == b'PONG'
    old = ssl.create_default_context(cafile=f'{certs}/ca.crt')
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        Secure(port, old)
    silent.close()
    with s.client() as c:
        eventually(lambda: len(c.client_list()) == 1)


def test_an_idle_connection_uses_little_memory(tls, certs):
    s, port = tls
    with Secure(port, context(certs)) as quiet, s.client() as c:
        def memory():
            mine = f':{quiet.sock.getsockname()[1]}'
            return next(int(x['tot-mem']) for x in c.client_list() if x['addr'].endswith(mine))
        eventually(lambda: memory() < 8192)
        assert quiet.call('PING') == b'PONG'


def test_settings_at_run_time(server_factory, certs):
    port, other = free_port(), free_port()
    s = server_factory()
    with s.client() as c:
        with pytest.raises(redis.ResponseError, match='Unable to update TLS configuration. Check server logs.'):
            c.config_set('tls-port', port)
        assert 'No tls-cert-file configured!' in s.log and c.config_get('tls-port') == {'tls-port': '0'}
        c.execute_command('CONFIG', 'SET', 'tls-cert-file', f'{certs}/server.crt', 'tls-key-file',
                          f'{certs}/locked.key', 'tls-key-file-pass', 'sesame', 'tls-auth-clients', 'no',
                          'tls-ca-cert-file', f'{certs}/ca.crt', 'tls-port', port)
        with Secure(port, context(certs, None)) as t:
            assert t.call('PING') == b'PONG'
            with pytest.raises(redis.ResponseError, match='Unable to update TLS'):
                c.config_set('tls-key-file-pass', 'wrong')
            with pytest.raises(redis.ResponseError, match='Unable to update TLS'):
                c.config_set('tls-protocols', 'TLSv9')
            c.config_set('tls-port', other)
            assert t.call('PING') == b'PONG'      # it stays
        with Secure(other, context(certs, None)) as t:
            assert t.call('PING') == b'PONG'
        with pytest.raises(OSError):
            Secure(port, context(certs, None))
        c.config_set('tls-protocols', 'TLSv1.2')
        with Secure(other, context(certs, None)) as t:
            assert t.sock.version() == 'TLSv1.2' and t.call('PING') == b'PONG'
        c.config_set('tls-auth-clients', 'yes')
        with pytest.raises((ssl.SSLError, ConnectionError, AssertionError, EOFError)):
            with Secure(other, context(certs, None)) as t:
                t.call('PING')


def test_certificates_are_read_again(server_factory, certs, tmp_path):
    """One that was renewed may have its old name: setting that once more is enough."""
    def install(who):
        for kind in ('crt', 'key'):
            shutil.copy(f'{certs}/{who}.{kind}', f'{tmp_path}/now.{kind}')

    def shown():
        with Secure(port, context(certs, None)) as t:
            return dict(x[0] for x in t.sock.getpeercert()['subject'])['commonName']

    port, files = free_port(), {'tls-cert-file': f'{tmp_path}/now.crt', 'tls-key-file': f'{tmp_path}/now.key'}
    install('server')
    s = server_factory(*options(certs, port, **files, **{'tls-auth-clients': 'no'}))
    words = [w for pair in files.items() for w in pair]
    with s.client() as c:
        assert shown() == 'server'
        install('client')
        assert shown() == 'server'
        c.execute_command('CONFIG', 'SET', *words)
        assert shown() == 'client'
        (tmp_path / 'now.crt').write_text('torn')
        with pytest.raises(redis.ResponseError, match='Unable to update TLS'):
            c.execute_command('CONFIG', 'SET', *words)
        assert shown() == 'client'
        # TLS goes, what else was asked for fails, and there is no way back: nobody is served, nothing worse.
        with socket.create_server(('127.0.0.1', 0)) as busy:
            with pytest.raises(redis.ResponseError, match='Unable to listen'):
                c.execute_command('CONFIG', 'SET', 'tls-port', 0, 'port', busy.getsockname()[1])
        with pytest.raises((OSError, EOFError)):
            shown()
        assert c.ping()
        install('server')
        c.execute_command('CONFIG', 'SET', *words)
        assert shown() == 'server'


@pytest.mark.parametrize('broken, text', [
    ({'tls-cert-file': ''}, 'No tls-cert-file configured!'),
    ({'tls-key-file': 'nowhere'}, 'Failed to load private key'),
    ({'tls-ca-cert-file': ''}, 'Either tls-ca-cert-file or tls-ca-cert-dir must be specified'),
])
def test_bad_settings_keep_it_from_starting(server_factory, certs, broken, text):
    s = server_factory(*options(certs, free_port(), **broken), wait=False)
    assert s.proc.wait(mayfly.PATIENCE) == 1 and 'Failed to configure TLS' in s.log and text in s.log


def test_only_tls(server_factory, certs):
    port = free_port()
    s = server_factory('--port', 0, *options(certs, port), wait=False)
    eventually(lambda: 'Ready to accept connections' in s.log)
    with Secure(port, context(certs)) as c:
        assert b'tcp_port:%d\r\n' % port in c.call('INFO', 'server')


# -- replication --------------------------------------------------------------------------------------

def start_pair(kind, certs, server_factory, redis_factory):
    """(primary, its TLS port, replica); the replica comes over TLS."""
    port, own = free_port(), free_port()
    make = {'m': server_factory, 'r': redis_factory}
    primary = make[kind[0]](*options(certs, port), '--repl-diskless-sync-delay', 0)
    replica = make[kind[1]](*options(certs, own), '--tls-replication', 'yes', '--replicaof', f'127.0.0.1 {port}')
    return primary, port, replica


@redis_server.needed
@pytest.mark.parametrize('kind', ['mm', 'mr', 'rm'])
def test_replication(server_factory, redis_factory, certs, kind):
    primary, port, replica = start_pair(kind, certs, server_factory, redis_factory)
    with Raw(primary.port) as p, Raw(replica.port) as r:
        p.call('SET', 'big', 'z' * 3_000_000)
        eventually(lambda: b'master_link_status:up' in r.call('INFO', 'replication'))
        p.send(b''.join(mayfly.encode('SET', f'k{i}', i, 'PX', 10_000_000) for i in range(5000)))
        assert all(p.reply() == b'OK' for _ in range(5000))
        assert p.call('WAIT', 1, 10_000) == 1
        assert r.call('DBSIZE') == 5001 and r.call('GET', 'big') == b'z' * 3_000_000
        assert r.call('GET', 'k4999') == b'4999'
        assert b'port=' in p.call('INFO', 'replication')


def test_a_primary_with_an_untrusted_certificate(server_factory, certs):
    port = free_port()
    server_factory(*options(certs, port, **{'tls-cert-file': f'{certs}/stranger.crt',
                                            'tls-key-file': f'{certs}/stranger.key', 'tls-auth-clients': 'no'}))
    replica = server_factory(*options(certs, free_port()), '--tls-replication', 'yes', '--replicaof',
                             f'127.0.0.1 {port}')
    eventually(lambda: 'certificate verify failed' in replica.log)
    with Raw(replica.port) as r:
        assert b'master_link_status:down' in r.call('INFO', 'replication')
