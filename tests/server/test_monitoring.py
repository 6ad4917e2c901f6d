"""The dashboard and the alert rules name only metrics and labels that the server has."""
import json
import pathlib
import re

import pytest

from mayfly import free_port
from test_metrics import scrape

MONITORING = pathlib.Path(__file__).resolve().parents[2] / 'contrib' / 'monitoring'
NAME = re.compile(r'\b(mayfly_[a-z0-9_]+)(?:\{([^}]*)\})?')
OWN_LABELS = {'how', 'within', 'cmd', 'db', 'le', 'region'}  # `instance` and `job` are Prometheus's
OF_CLUSTERS = ('mayfly_region_', 'mayfly_raft_', 'mayfly_snapshot', 'mayfly_bus_')  # tests/cluster checks these


def dashboard_expressions():
    board = json.loads((MONITORING / 'grafana-dashboard.json').read_text())
    return [t['expr'] for p in board['panels'] for t in p['targets']]


def alert_expressions():
    text = (MONITORING / 'prometheus-alerts.yml').read_text()
    return re.findall(r'^\s+expr: (.+)$', text, re.M)


@pytest.mark.parametrize('expressions', [dashboard_expressions, alert_expressions])
def test_every_metric_exists(server_factory, expressions):
    port = free_port()
    server = server_factory('--metrics-port', port)
    with server.client() as c:
        c.set('k', 'v', ex=100)
    samples = scrape(port)
    names = {name for name, _ in samples}
    labels = {}
    for name, text in samples:
        labels.setdefault(name, set()).update(re.findall(r'([a-z_]+)="', text))
    used = [m for e in expressions() for m in NAME.findall(e) if not m[0].startswith(OF_CLUSTERS)]
    assert len(used) >= 8
    for name, selector in used:
        assert name in names, name
        for label, value in re.findall(r'([a-z_]+)=~?"([^"]*)"', selector):
            if label not in OWN_LABELS:
                continue
            assert label in labels[name], (name, label)
            for each in value.split('|'):
                assert any(n == name and f'{label}="{each}"' in text for n, text in samples), (name, label, each)


def test_panels_do_not_overlap():
    board = json.loads((MONITORING / 'grafana-dashboard.json').read_text())
    cells = [(p['gridPos']['x'] + i, p['gridPos']['y'] + j) for p in board['panels']
             for i in range(p['gridPos']['w']) for j in range(p['gridPos']['h'])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    assert len({p['id'] for p in board['panels']}) == len(board['panels'])
