"""The commands of a cluster, on a server that is none."""
import pytest

DISABLED = 'ERR This instance has cluster support disabled'


@pytest.mark.any_engine
def test_every_one_says_so(raw, server):
    c = raw(server.port)
    for words in ('READONLY', 'READWRITE', 'ASKING', 'CLUSTER INFO', 'CLUSTER HELP', 'CLUSTER NODES', 'CLUSTER SLOTS',
                  'CLUSTER SHARDS', 'CLUSTER MYID', 'CLUSTER MYSHARDID', 'CLUSTER KEYSLOT k', 'CLUSTER RESET HARD'):
        assert c.call(*words.split()) == DISABLED, words
    assert c.call('CLUSTER') == "ERR wrong number of arguments for 'cluster' command"
    assert c.call('CLUSTER', 'NODES', 'x') == "ERR wrong number of arguments for 'cluster|nodes' command"
    assert c.call('CLUSTER', 'NOSUCH') == "ERR unknown subcommand 'NOSUCH'. Try CLUSTER HELP."
    assert c.call('READONLY', 'x') == "ERR wrong number of arguments for 'readonly' command"
    assert c.call('EVAL', "return redis.pcall('CLUSTER', 'RESET')['err']", 0) == \
        b'ERR This Redis command is not allowed from script'


@pytest.mark.any_engine
def test_they_are_known(raw, server):
    c = raw(server.port)
    assert c.call('COMMAND', 'INFO', 'cluster|info')[0][0] == b'cluster|info'
    assert {b'asking', b'readonly', b'readwrite'} <= set(c.call('ACL', 'CAT', 'connection'))
    assert c.call('ACL', 'SETUSER', 'u', 'on', 'nopass', '+@all', '-cluster', '+cluster|info', '-readonly') == b'OK'
    try:
        assert c.call('ACL', 'DRYRUN', 'u', 'CLUSTER', 'INFO') == b'OK'
        assert b"'cluster|nodes'" in c.call('ACL', 'DRYRUN', 'u', 'CLUSTER', 'NODES')
        assert b"'readonly'" in c.call('ACL', 'DRYRUN', 'u', 'READONLY')
    finally:
        c.call('ACL', 'DELUSER', 'u')


def test_restore_asking(raw, server):
    c = raw(server.port)
    c.call('SET', 'k', 'v')
    payload = c.call('DUMP', 'k')
    assert c.call('RESTORE-ASKING', 'k2', 0, payload) == b'OK' and c.call('GET', 'k2') == b'v'
    assert c.call('RESTORE-ASKING', 'k2', 0, payload) == 'BUSYKEY Target key name already exists.'


def test_pfdebug(raw, server):
    c = raw(server.port)
    c.call('FLUSHALL')
    c.call('PFADD', 'h', 'a', 'b', 'c')
    assert c.call('PFDEBUG', 'ENCODING', 'h') == b'sparse'
    runs = [run.split(b':') for run in c.call('PFDEBUG', 'DECODE', 'h').split()]
    registers = []
    for kind, text in runs:
        rank, n = text.split(b',') if kind == b'v' else (0, text)
        registers += [int(rank)] * int(n)
    assert len(registers) == 16384 and sum(r > 0 for r in registers) == 3
    assert c.call('PFDEBUG', 'TODENSE', 'h') == 1 and c.call('PFDEBUG', 'TODENSE', 'h') == 0
    assert c.call('PFDEBUG', 'ENCODING', 'h') == b'dense'
    assert c.call('PFDEBUG', 'DECODE', 'h') == 'ERR HLL encoding is not sparse'
    assert c.call('PFDEBUG', 'GETREG', 'h') == registers
    assert c.call('PFCOUNT', 'h') == 3
    assert c.call('PFDEBUG', 'ENCODING', 'nosuch') == 'ERR The specified key does not exist'
    assert c.call('PFDEBUG', 'NOSUCH', 'h') == "ERR Unknown PFDEBUG subcommand 'NOSUCH'"
    c.call('SET', 's', 'x')
    assert c.call('PFDEBUG', 'ENCODING', 's') == 'WRONGTYPE Key is not a valid HyperLogLog string value.'
    assert c.call('PFSELFTEST') == b'OK'
