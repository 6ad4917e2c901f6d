"""The endpoint for Prometheus."""
import http.client
import re
import socket
import time

import pytest

from mayfly import INTERVALS_S, PATIENCE, Raw, eventually, forecast, free_port, in_one_of

pytestmark = pytest.mark.any_engine
SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-z_]+="[^"\\\n]*",?)*)\})? (-?[0-9.e+-]+|\+Inf|NaN)')


@pytest.fixture
def scraped(server_factory):
    port = free_port()
    return server_factory('--metrics-port', port), port


def get(port, path='/metrics', method='GET'):
    c = http.client.HTTPConnection('127.0.0.1', port, timeout=20)
    try:
        c.request(method, path)
        reply = c.getresponse()
        return reply.status, reply.getheader('Content-Type'), reply.read().decode()
    finally:
        c.close()


def scrape(port):
    """{(name, labels): value}, after every line was checked against the format."""
    status, kind, text = get(port)
    assert status == 200 and kind.startswith('text/plain; version=0.0.4')
    typed, found = {}, {}
    for line in text.splitlines():
        if line.startswith('# '):
            what, name, rest = line[2:].split(' ', 2)
            assert what in ('HELP', 'TYPE')
            if what == 'TYPE':
                assert name not in typed and rest in ('gauge', 'counter', 'histogram'), line
                typed[name] = rest
            continue
        m = SAMPLE.fullmatch(line)
        assert m, line
        family = re.sub('_(bucket|sum|count)$', '', m[1]) if m[1] not in typed else m[1]
        assert family in typed, line
        assert (m[1], m[2] or '') not in found, line
        found[m[1], m[2] or ''] = float(m[3])
    assert text.endswith('\n')
    return found


def told_within(samples):
    return {labels.split('"')[1]: v for (name, labels), v in samples.items() if name == 'mayfly_expiry_forecast_keys'}


def as_replied(entries):
    return {name: entries[name][b'keys'] for name in INTERVALS_S}


def test_expiry_is_told(scraped):
    s, port = scraped
    with s.client() as c:
        c.execute_command('CONFIG', 'SET', 'active-expire-effort', 1)
        c.set('stays', 1)
        for i in range(7):
            c.set(f'soon{i}', 1, ex=50)
        for i in range(5):
            c.set(f'hour{i}', 1, ex=3000)
        c.set('far', 1, ex=400 * 86400)
        with Raw(s.port) as r:
            eventually(lambda: told_within(scrape(port)) == as_replied(forecast(r)))
        m = scrape(port)
        within = told_within(m)
        assert within['10s'] == 0 and within['1m'] == 7 and within['10m'] == 7 and within['1h'] == 12
        assert within['365d'] == 12 and within['+Inf'] == 13
        assert m['mayfly_keys', 'db="0"'] == 14 and m['mayfly_keys_with_deadline', 'db="0"'] == 13
        assert m['mayfly_expiry_overdue_keys', ''] == 0
        c.pexpire('hour0', 1)
        eventually(lambda: scrape(port)['mayfly_expired_keys_total', 'how="active"'] +
                   scrape(port)['mayfly_expired_keys_total', 'how="lazy"'] == 1)
        m = scrape(port)
        for how in ('active', 'lazy'):
            edges = [v for (n, l), v in m.items() if n == 'mayfly_expiry_lag_seconds_bucket' and f'how="{how}"' in l]
            assert edges == sorted(edges) and edges[-1] == m['mayfly_expiry_lag_seconds_count', f'how="{how}"']
        assert m['mayfly_expiry_lag_seconds_count', 'how="active"'] + \
            m['mayfly_expiry_lag_seconds_count', 'how="lazy"'] == 1
        before = m['mayfly_commands_total', 'cmd="set"']
        c.set('one', 'more')
        assert scrape(port)['mayfly_commands_total', 'cmd="set"'] == before + 1


def test_overdue_keys_show(server_factory):
    port = free_port()
    s = server_factory('--metrics-port', port, '--enable-debug-command', 'yes')
    with s.client() as c:
        c.execute_command('DEBUG', 'SET-ACTIVE-EXPIRE', 0)
        for i in range(50):
            c.set(f'k{i}', 1, px=1)
        eventually(lambda: scrape(port)['mayfly_expiry_overdue_keys', ''] == 50)
        eventually(lambda: scrape(port)['mayfly_expiry_overdue_oldest_seconds', ''] > 0)
        c.execute_command('DEBUG', 'SET-ACTIVE-EXPIRE', 1)
        eventually(lambda: scrape(port)['mayfly_expiry_overdue_keys', ''] == 0)


def test_other_requests_are_refused_and_harm_nobody(scraped):
    s, port = scraped
    assert get(port, '/')[0] == 404 and get(port, '/metrics', 'POST')[0] == 405
    assert get(port, '/metrics', 'HEAD')[2] == ''
    idle = [socket.create_connection(('127.0.0.1', port)) for _ in range(40)]      # more than it takes
    for sock in idle[:10]:
        sock.sendall(b'GET /metrics HT')
    with s.client() as c:
        start = time.monotonic()
        assert c.ping() and time.monotonic() - start < 10
    for sock in idle:
        sock.close()
    eventually(lambda: get(port)[0] == 200)
    with socket.create_connection(('127.0.0.1', port)) as sock:
        sock.sendall(b'\x00\xff' * 1000 + b'\r\n\r\n')
        assert get(port)[0] == 200


def test_silent_connections_do_not_hold_up_a_scrape(scraped):
    _, port = scraped

    def scraped_among_silent_ones():
        opened = [socket.create_connection(('127.0.0.1', port), timeout=20) for _ in range(40)]  # more than it takes
        start = time.monotonic()
        assert get(port)[0] == 200
        assert time.monotonic() - start < 5     # silent ones are closed after ten seconds
        return opened

    silent = in_one_of(5, scraped_among_silent_ones)
    assert silent[0].recv(1) == b''             # the oldest had to go, and the newest may still ask
    silent[-1].sendall(b'GET /metrics HTTP/1.0\r\n\r\n')
    assert silent[-1].recv(12).endswith(b' 200')
    for sock in silent:
        sock.close()


def test_off_by_default_and_a_taken_port_is_an_error(server_factory, scraped):
    s, port = scraped
    other = server_factory('--metrics-port', port, wait=False)
    assert other.proc.wait(PATIENCE) == 1 and \
        f'Failed listening on port {port} (metrics), address 127.0.0.1: Address already in use' in other.log
    assert 'bye bye' not in other.log
    with s.client() as c:
        assert c.config_get('metrics-*') == {'metrics-port': str(port), 'metrics-bind': '127.0.0.1'}
