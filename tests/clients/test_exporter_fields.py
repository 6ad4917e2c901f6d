"""What redis_exporter (and the dashboards behind it) reads: names and forms, as it parses them."""
import re

import pytest

SECTIONS = ['Server', 'Clients', 'Memory', 'Persistence', 'Stats', 'Replication', 'CPU', 'Commandstats',
            'Errorstats', 'Latencystats', 'Cluster', 'Keyspace']

TEXTS = {
    'redis_version': r'\d+\.\d+\.\d+', 'redis_mode': 'standalone', 'redis_build_id': r'\w+', 'os': r'Linux \S+ \S+',
    'run_id': r'[0-9a-f]{40}', 'role': 'master', 'master_replid': r'[0-9a-f]{40}', 'maxmemory_policy': r'[a-z]+(-[a-z]+)?',
    'mem_allocator': r'\S+', 'rdb_last_bgsave_status': 'ok', 'aof_last_bgrewrite_status': 'ok',
    'aof_last_write_status': 'ok', 'mayfly_version': r'\d+\.\d+\.\d+',
}

NUMBERS = '''
    arch_bits tcp_port process_id uptime_in_seconds uptime_in_days hz configured_hz
    connected_clients blocked_clients tracking_clients maxclients client_recent_max_output_buffer
    client_recent_max_input_buffer
    used_memory used_memory_rss used_memory_peak used_memory_lua used_memory_overhead used_memory_startup
    used_memory_dataset used_memory_scripts maxmemory mem_fragmentation_ratio mem_fragmentation_bytes
    mem_clients_slaves mem_clients_normal mem_not_counted_for_evict lazyfree_pending_objects lazyfreed_objects
    active_defrag_running allocator_active allocator_allocated allocator_resident allocator_frag_ratio
    allocator_frag_bytes allocator_rss_ratio allocator_rss_bytes total_system_memory
    loading rdb_changes_since_last_save rdb_bgsave_in_progress rdb_last_save_time rdb_last_bgsave_time_sec
    rdb_current_bgsave_time_sec rdb_last_cow_size aof_enabled aof_rewrite_in_progress aof_rewrite_scheduled
    aof_last_rewrite_time_sec aof_current_rewrite_time_sec aof_last_cow_size module_fork_in_progress
    module_fork_last_cow_size
    total_connections_received total_commands_processed instantaneous_ops_per_sec total_net_input_bytes
    total_net_output_bytes instantaneous_input_kbps instantaneous_output_kbps rejected_connections sync_full
    sync_partial_ok sync_partial_err expired_keys expired_stale_perc expired_time_cap_reached_count
    expire_cycle_cpu_milliseconds evicted_keys keyspace_hits keyspace_misses pubsub_channels pubsub_patterns
    latest_fork_usec migrate_cached_sockets slave_expires_tracked_keys active_defrag_hits active_defrag_misses
    active_defrag_key_hits active_defrag_key_misses total_error_replies total_reads_processed
    total_writes_processed
    connected_slaves master_repl_offset second_repl_offset repl_backlog_active repl_backlog_size
    repl_backlog_first_byte_offset repl_backlog_histlen
    used_cpu_sys used_cpu_user used_cpu_sys_children used_cpu_user_children cluster_enabled
'''.split()


def parse(text):
    """Sections of INFO as the exporter splits them: name → {field: value}."""
    sections = {}
    for line in text.split('\r\n'):
        if line.startswith('# '):
            current = sections.setdefault(line[2:], {})
        elif line:
            name, _, value = line.partition(':')
            assert name not in current, f'{name} appears twice'
            current[name] = value
    return sections


@pytest.fixture
def info(server):
    with server.raw() as c:
        for command in ('SET a 1', 'SET b 1 EX 1000', 'GET a', 'LPUSH a 1', 'SELECT 9', 'SET elsewhere 1'):
            c.call(*command.split())
        return parse(c.call('INFO', 'ALL').decode())


def test_sections(info):
    assert [s for s in info if s in SECTIONS] == SECTIONS


def test_fields(info):
    flat = {name: value for fields in info.values() for name, value in fields.items()}
    for name in NUMBERS:
        assert name in flat, name
        float(flat[name])
    for name, form in TEXTS.items():
        assert re.fullmatch(form, flat[name]), (name, flat[name])
    assert float(flat['used_memory']) > 100000 and float(flat['used_memory_rss']) > float(flat['used_memory_startup'])
    assert int(flat['used_memory_peak']) >= int(flat['used_memory'])
    assert flat['expired_stale_perc'].count('.') == 1


def test_keyspace(info):
    """Exactly these fields in this order: some parsers count commas."""
    assert info['Keyspace'].keys() == {'db0', 'db9'}
    for line in info['Keyspace'].values():
        assert re.fullmatch(r'keys=\d+,expires=\d+,avg_ttl=\d+(,subexpiry=\d+)?', line), line
    assert info['Keyspace']['db0'].startswith('keys=2,expires=1,avg_ttl=')
    assert info['Keyspace']['db9'].startswith('keys=1,expires=0,avg_ttl=0')


def test_commandstats(info):
    for name, value in info['Commandstats'].items():
        assert re.fullmatch(r'cmdstat_[a-z0-9_|-]+', name), name
        assert re.fullmatch(r'calls=\d+,usec=\d+,usec_per_call=\d+\.\d\d,rejected_calls=\d+,failed_calls=\d+', value), value
    assert int(re.search(r'failed_calls=(\d+)', info['Commandstats']['cmdstat_lpush']).group(1)) >= 1
    for name, value in info['Latencystats'].items():
        assert re.fullmatch(r'latency_percentiles_usec_[a-z0-9_|-]+', name), name
        assert re.fullmatch(r'p50=\d+\.\d{3},p99=\d+\.\d{3},p99\.9=\d+\.\d{3}', value), value
    assert {n.partition('_usec_')[2] for n in info['Latencystats']} <= {n[8:] for n in info['Commandstats']}
    for name, value in info['Errorstats'].items():
        assert re.fullmatch(r'errorstat_\S+', name) and re.fullmatch(r'count=\d+', value), (name, value)
    assert 'errorstat_WRONGTYPE' in info['Errorstats']


def test_what_else_a_scrape_asks(server):
    """CONFIG GET *, LATENCY, SLOWLOG, CLIENT LIST: present and in the form the exporter expects."""
    with server.raw() as c:
        reply = c.call('CONFIG', 'GET', '*')
        config = dict(zip(reply[::2], reply[1::2]))
        assert config[b'databases'] == b'16' and config[b'maxmemory'].isdigit() and b'save' in config
        assert c.call('LATENCY', 'LATEST') == []
        name, histogram = c.call('LATENCY', 'HISTOGRAM', 'config|get')
        assert name == b'config|get' and histogram[0] == b'calls' and histogram[2] == b'histogram_usec'
        assert isinstance(c.call('SLOWLOG', 'LEN'), int) and c.call('SLOWLOG', 'GET', 1) == []
        client = dict(field.partition('=')[::2] for field in c.call('CLIENT', 'LIST').decode().split())
        assert client.keys() >= {'id', 'addr', 'name', 'age', 'idle', 'flags', 'db', 'omem', 'cmd', 'qbuf', 'resp'}
