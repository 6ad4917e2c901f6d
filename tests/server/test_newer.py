"""What Redis 7.2 and 7.4 added to 7.0, and where they answer otherwise."""
import hashlib

import pytest

from mayfly import ENGINE, Raw, ReplyError, eventually

NOT_INT = 'ERR value is not an integer or out of range'


def run(c, line):
    return c.call(*line.split())


@pytest.mark.parametrize('line, reply', [
    ('HSCAN h 0 NOVALUES', [b'0', [b'a', b'b']]),
    ('HSCAN h 0 MATCH b* NOVALUES COUNT 5', [b'0', [b'b']]),
    ('HSCAN none 0 NOVALUES', [b'0', []]),
    ('SCAN 0 NOVALUES', 'ERR NOVALUES option can only be used in HSCAN'),
    ('SSCAN t 0 NOVALUES', 'ERR NOVALUES option can only be used in HSCAN'),
    ('SCAN -1', 'ERR invalid cursor'),
    ('ZRANK z b WITHSCORE', [1, b'2.5']),
    ('ZREVRANK z b WITHSCORE', [0, b'2.5']),
    ('ZRANK z none WITHSCORE', None),
    ('ZRANK z b WITHSCORES', 'ERR syntax error'),
    ('ZRANK z b WITHSCORE x', "ERR wrong number of arguments for 'zrank' command"),
    ('BITCOUNT none x 1', NOT_INT),
    ('BITCOUNT none 1 2 WORD', 'ERR syntax error'),
    ('BITCOUNT none 1', 'ERR syntax error'),
    ('BITPOS none 1 x', NOT_INT),
    ('BITPOS none 0 1 2 3', 'ERR syntax error'),
    ('LREM l -9223372036854775808 a',
     'ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807'),
    ('LPOS l a RANK -9223372036854775808',
     'ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807'),
    ('LPOS l a RANK -9223372036854775807', None),
    ('LPOS l a RANK 0', "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use "
                        'negative to start from the end of the list'),
    ('BLPOP none 1e400', 'ERR timeout is out of range'),
    ('XREAD STREAMS x +', [[b'x', [[b'2-1', [b'f', b'2']]]]]),
    ('XREAD COUNT 9 STREAMS x none + +', [[b'x', [[b'2-1', [b'f', b'2']]]]]),
    ('XREAD STREAMS a b 0', "ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be specified."),
    ('XREADGROUP GROUP g c STREAMS a b 0',
     "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified."),
    ('OBJECT ENCODING t', b'listpack'),
    ('OBJECT ENCODING l', b'listpack'),
])
def test_replies(r, server, line, reply):
    with Raw(server.port) as c:
        for fill in ('HSET h a 1 b 2', 'ZADD z 1 a 2.5 b', 'SADD t a b', 'SET s hello', 'RPUSH l a', 'XADD x 1-1 f 1',
                     'XADD x 2-1 f 2', 'XADD x 3-1 f 3', 'XDEL x 3-1'):
            run(c, fill)
        assert run(c, line) == reply


def test_xread_plus_waits(r, server):
    """For the next entry, if there is none."""
    with Raw(server.port) as a, Raw(server.port) as c:
        run(c, 'XGROUP CREATE s g $ MKSTREAM')
        a.command('XREAD', 'BLOCK', 0, 'STREAMS', 's', '+')
        eventually(lambda: server.info('clients')['blocked_clients'] == 1)
        run(c, 'XADD s 5-5 f v')
        assert a.reply() == [[b's', [[b'5-5', [b'f', b'v']]]]]


def consumers(c):
    found = run(c, 'XINFO CONSUMERS s g')
    return {x[1]: dict(zip(x[::2], x[1::2])) for x in found}


def test_consumers_are_seen_and_active(r, server):
    """A consumer exists, and is seen, as soon as it asks; it is active when it gets something."""
    with Raw(server.port) as c:
        run(c, 'XGROUP CREATE s g 0 MKSTREAM')
        for line in ('XREADGROUP GROUP g reads STREAMS s >', 'XCLAIM s g claims 0 1-1', 'XAUTOCLAIM s g auto 0 0'):
            run(c, line)
        assert {k: v[b'inactive'] for k, v in consumers(c).items()} == {b'reads': -1, b'claims': -1, b'auto': -1}
        assert all(v[b'idle'] >= 0 for v in consumers(c).values())
        run(c, 'XADD s 1-1 f v')
        run(c, 'XREADGROUP GROUP g quiet NOACK STREAMS s >')
        assert consumers(c)[b'quiet'][b'inactive'] == -1
        run(c, 'XADD s 2-1 f v')
        run(c, 'XREADGROUP GROUP g reads STREAMS s >')
        assert consumers(c)[b'reads'][b'inactive'] >= 0
        run(c, 'XCLAIM s g claims 0 2-1')
        assert consumers(c)[b'claims'][b'inactive'] >= 0
        group = dict(zip(*[iter(run(c, 'XINFO STREAM s FULL'))] * 2))[b'groups'][0]
        first = dict(zip(*[iter(group)] * 2))[b'consumers'][0]
        assert first[:6] == [b'name', b'auto', b'seen-time', first[3], b'active-time', -1] and first[3] > 10**12


def test_a_consumer_that_waits_survives(server_factory):
    s = server_factory('--appendonly', 'no' if ENGINE == 'rocksdb' else 'yes')
    with Raw(s.port) as c:
        run(c, 'XGROUP CREATE s g $ MKSTREAM')
        assert run(c, 'XREADGROUP GROUP g me BLOCK 1 STREAMS s >') is None
    s.restart()
    with Raw(s.port) as c:
        assert b'me' in consumers(c)


def test_client_kill_maxage(r, server, raw):
    old, c = raw(server.port), raw(server.port)
    assert c.call('CLIENT', 'KILL', 'MAXAGE', 'x') == 'ERR maxage is not an integer or out of range'
    assert c.call('CLIENT', 'KILL', 'MAXAGE', 0, 'TYPE', 'normal') == 'ERR maxage should be greater than 0'
    assert c.call('CLIENT', 'KILL', 'MAXAGE', 100000, 'SKIPME', 'no') == 0
    mine = old.call('CLIENT', 'ID')
    eventually(lambda: c.call('CLIENT', 'KILL', 'MAXAGE', 1, 'ID', mine) == 1)
    assert old.closed()


def test_watched_keys_are_counted(r, server, raw):
    c = raw(server.port)
    def watched():
        return dict(f.split(b'=') for f in c.call('CLIENT', 'INFO').split())[b'watch']
    assert watched() == b'0'
    run(c, 'WATCH a b')
    run(c, 'WATCH b c')
    assert watched() == b'3'
    run(c, 'UNWATCH')
    assert watched() == b'0'


def test_xsetid_stays_above_deleted_entries(r, server):
    with Raw(server.port) as c:
        for line in ('XADD s 1-1 f v', 'XADD s 5-5 f v', 'XDEL s 5-5'):
            run(c, line)
        assert isinstance(run(c, 'XSETID s 2-2'), ReplyError) and run(c, 'XSETID s 5-5') == b'OK'


def test_small_sets(server_factory):
    s = server_factory('--set-max-listpack-entries', 4, '--set-max-listpack-value', 8, '--set-max-intset-entries', 3)
    with Raw(s.port) as c:
        def encoding(*members):
            c.call('DEL', 'k')
            for m in members:
                c.call('SADD', 'k', m)
            assert c.call('SCARD', 'k') == len(set(members))
            return c.call('OBJECT', 'ENCODING', 'k')
        assert encoding(1, 2, 3) == b'intset' and encoding(1, 2, 3, 4) == b'hashtable'
        assert encoding('a', 1, 2, 3) == encoding(1, 'a') == encoding('abcdefgh') == b'listpack'
        assert encoding('a', 1, 2, 3, 4) == encoding('abcdefghi') == encoding(1, 'abcdefghi') == b'hashtable'
        run(c, 'CONFIG SET set-max-listpack-entries 0')
        assert encoding('a') == b'hashtable' and encoding(1) == b'intset'


# By limit: commands and the encoding after each. What is added counts by its lengths alone, and what is there by its
# bytes in a listpack. A list that shrinks is a listpack again from half of the limit on. rocksdb goes by what is there:
# where that differs, its encoding comes last.
LISTS = {
    '-2': [('RPUSH l ' + 'a' * 8185, 'listpack', 'quicklist'), ('RPUSH l ' + 'b' * 8000, 'quicklist'),
           ('LPOP l', 'quicklist', 'listpack'), ('LSET l 0 small', 'listpack')],
    '-1': [('RPUSH l' + ' 12' * 2044, 'listpack'), ('RPUSH l 1', 'listpack', 'quicklist'), ('RPUSH l 1', 'quicklist'),
           ('LTRIM l 0 1020', 'quicklist', 'listpack'), ('LTRIM l 0 1019', 'listpack'),
           ('LINSERT l BEFORE 12 ' + 'c' * 4000, 'quicklist')],
    '4': [('RPUSH l a b c', 'listpack'), ('LPUSH l d', 'listpack'), ('LMOVE l l LEFT RIGHT', 'listpack'),
          ('LPUSH l e', 'quicklist'), ('LPOP l', 'quicklist', 'listpack'), ('LPOP l 2', 'listpack'),
          ('RPUSH l ' + 'f' * 8200, 'quicklist')],
}


@pytest.mark.parametrize('limit', LISTS)
def test_lists_are_listpacks_up_to_a_limit(r, server, limit):
    with Raw(server.port) as c:
        was = c.call('CONFIG', 'GET', 'list-max-listpack-size')[1]
        c.call('CONFIG', 'SET', 'list-max-listpack-size', limit)
        try:
            for line, *encodings in LISTS[limit]:
                run(c, line)
                encoding = encodings[-1 if ENGINE == 'rocksdb' else 0]
                assert c.call('OBJECT', 'ENCODING', 'l').decode() == encoding, line[:40]
                assert c.call('COPY', 'l', 'copy', 'REPLACE') == 1
                assert c.call('OBJECT', 'ENCODING', 'copy').decode() == encoding, line[:40]
        finally:
            c.call('CONFIG', 'SET', 'list-max-listpack-size', was)


def test_a_list_that_was_long_is_counted_again(r, server):
    with Raw(server.port) as c:
        c.call('RPUSH', 'l', *range(1000, 61000))
        assert c.call('OBJECT', 'ENCODING', 'l') == b'quicklist'
        c.call('LTRIM', 'l', 0, 1022)
        assert c.call('OBJECT', 'ENCODING', 'l') == b'listpack'
        c.call('RPUSH', 'l', *['x'] * 3000)
        assert c.call('LLEN', 'l') == 4023
        assert c.call('OBJECT', 'ENCODING', 'l') == (b'listpack' if ENGINE == 'memory' else b'quicklist')
        c.call('RPUSH', 'l', 'x')
        assert c.call('OBJECT', 'ENCODING', 'l') == b'quicklist'


def test_lists_are_loaded_by_their_size(server_factory):
    s = server_factory('--enable-debug-command', 'yes')
    with Raw(s.port) as c:
        c.call('RPUSH', 'small', 'a', 1, 'b')
        c.call('RPUSH', 'long', *['x' * 100] * 100)
        c.call('RPUSH', 'between', *['x' * 100] * 90)
        c.call('RPOP', 'between', 30)
        c.call('RESTORE', 'copy', 0, c.call('DUMP', 'between'))
        assert c.call('OBJECT', 'ENCODING', 'copy') == b'listpack'
        for again in range(2):
            assert c.call('OBJECT', 'ENCODING', 'small') == b'listpack'
            assert c.call('OBJECT', 'ENCODING', 'long') == b'quicklist'
            known = again or ENGINE == 'rocksdb'
            assert c.call('OBJECT', 'ENCODING', 'between') == (b'listpack' if known else b'quicklist')
            if ENGINE == 'memory' and not again:
                assert c.call('DEBUG', 'RELOAD') == b'OK'


def test_locale_collate(r, server):
    with Raw(server.port) as c:
        assert c.call('CONFIG', 'SET', 'locale-collate', 'no_SUCH') == \
            "ERR CONFIG SET failed (possibly related to argument 'locale-collate') - Invalid locale name"
        assert c.call('CONFIG', 'SET', 'locale-collate', 'C') == b'OK'
        run(c, 'SADD t b a B')
        assert run(c, 'SORT t ALPHA') == [b'B', b'a', b'b']
        assert c.call('CONFIG', 'SET', 'locale-collate', '') == b'OK'


def test_connections_per_turn(server_factory, raw):
    """All are accepted, however few at a time."""
    s = server_factory('--max-new-connections-per-cycle', 1)
    several = [raw(s.port) for _ in range(30)]
    assert [c.call('PING') for c in several] == [b'PONG'] * 30
    assert run(several[0], 'CONFIG SET max-new-connections-per-cycle 1000') == b'OK'


def test_default_resp(server_factory, raw):
    c = raw(server_factory('--client-default-resp', 3).port)
    assert run(c, 'CONFIG GET client-default-resp') == {b'client-default-resp': b'3'}
    assert run(c, 'CONFIG GET client-default*') == {}
    assert run(c, 'HELLO 2')[4:6] == [b'proto', 2] and run(c, 'CONFIG GET hz') == [b'hz', b'10']
    run(c, 'RESET')
    assert run(c, 'CONFIG GET hz') == {b'hz': b'10'}
    assert run(c, 'CONFIG SET client-default-resp 2').startswith('ERR ')


@pytest.mark.skipif(ENGINE == 'rocksdb', reason='reads stay reads')
def test_hrandfield_deletes_what_is_dead(server_factory):
    s = server_factory('--enable-debug-command', 'yes')
    with Raw(s.port) as c:
        for line in ('DEBUG SET-ACTIVE-EXPIRE 0', 'HSET h a 1 b 2 c 3 d 4', 'HPEXPIRE h 1 FIELDS 2 a b'):
            run(c, line)
        eventually(lambda: run(c, 'HLEN h') == 2)
        assert s.info('stats')['expired_subkeys'] == 0
        assert sorted(run(c, 'HRANDFIELD h 5')) == [b'c', b'd'] and s.info('stats')['expired_subkeys'] == 2
        run(c, 'HPEXPIRE h 1 FIELDS 1 c')
        eventually(lambda: run(c, 'HLEN h') == 1)
        assert run(c, 'HRANDFIELD h') == b'd' and s.info('stats')['expired_subkeys'] == 3


def info(c, section):
    return dict(line.split(':', 1) for line in c.call('INFO', section).decode().split('\r\n') if ':' in line)


def test_info_of_clients(server_factory, raw):
    s = server_factory()
    c, watches, waits, hears = [raw(s.port) for _ in range(4)]
    run(watches, 'WATCH a b')
    run(c, 'XGROUP CREATE s g $ MKSTREAM')
    waits.command('XREADGROUP', 'GROUP', 'g', 'me', 'BLOCK', 0, 'STREAMS', 's', '>')
    run(hears, 'SUBSCRIBE x')
    names = ('pubsub_clients', 'watching_clients', 'total_watched_keys', 'total_blocking_keys',
             'total_blocking_keys_on_nokey')
    eventually(lambda: [info(c, 'clients')[n] for n in names] == ['1', '1', '2', '1', '1'])
    run(watches, 'UNWATCH')
    run(c, 'XADD s 1-1 f v')
    assert waits.reply() and [info(c, 'clients')[n] for n in names] == ['1', '0', '0', '0', '0']


def test_info_of_the_loop(server_factory, raw):
    s = server_factory()
    c = raw(s.port)
    before = info(c, 'stats')
    for _ in range(50):
        run(c, 'PING')
    after = info(c, 'stats')
    assert int(after['eventloop_cycles']) >= int(before['eventloop_cycles']) + 50
    assert int(after['eventloop_duration_sum']) > int(before['eventloop_duration_sum'])
    assert int(after['eventloop_duration_cmd_sum']) <= int(after['eventloop_duration_sum'])
    eventually(lambda: int(info(c, 'stats')['instantaneous_eventloop_cycles_per_sec']) > 0)


def test_acl_log_and_counters(server_factory, raw):
    s = server_factory()
    c, bob = raw(s.port), raw(s.port)
    def entries():
        return [dict(zip(e[::2], e[1::2])) for e in c.call('ACL', 'LOG')]
    run(c, 'ACL SETUSER bob on >pw ~a +get +publish resetchannels')
    run(bob, 'AUTH bob pw')
    for line in ('SET a 1', 'GET b', 'GET b', 'PUBLISH x y', 'AUTH bob no'):
        assert isinstance(run(bob, line), ReplyError)
    found = entries()
    assert [e[b'entry-id'] for e in found] == [3, 2, 1, 0]
    assert all(10**12 < e[b'timestamp-created'] <= e[b'timestamp-last-updated'] for e in found)
    stats = info(c, 'stats')
    assert [stats['acl_access_denied_' + x] for x in ('auth', 'cmd', 'key', 'channel')] == ['1', '1', '2', '1']
    run(c, 'ACL LOG RESET')
    run(bob, 'GET c')
    assert [e[b'entry-id'] for e in entries()] == [4]
    run(c, 'CONFIG RESETSTAT')
    assert info(c, 'stats')['acl_access_denied_key'] == '0'


@pytest.mark.parametrize('line, reply', [
    ('ACL DRYRUN bob SET a 1', b"User bob has no permissions to run the 'set' command"),
    ('ACL DRYRUN bob GET b', b"User bob has no permissions to access the 'b' key"),
    ('ACL DRYRUN bob PUBLISH x y', b"User bob has no permissions to access the 'x' channel"),
    ('ACL LIST', [b'user bob off sanitize-payload ~a resetchannels -@all +publish +get',
                  b'user default on nopass sanitize-payload ~* &* +@all']),
])
def test_acl_texts(server_factory, raw, line, reply):
    c = raw(server_factory().port)
    run(c, 'ACL SETUSER bob ~a +get +publish resetchannels')
    assert run(c, line) == reply
    assert run(c, 'ACL GETUSER bob')[:2] == [b'flags', [b'off', b'sanitize-payload']]


def test_listeners(server_factory, tmp_path):
    m = server_factory('--unixsocket', tmp_path / 's')
    lines = m.raw().call('INFO', 'server').decode().split('\r\n')
    assert f'listener1:name=unix,bind={tmp_path}/s' in lines
    tcp = next(x for x in lines if x.startswith('listener0:'))
    assert tcp.startswith('listener0:name=tcp,bind=127.0.0.1') and tcp.endswith(f',port={m.port}')


def test_fields_of_info(r, server):
    assert server.info('memory')['mem_overhead_db_hashtable_rehashing'] == 0
    assert server.info('memory')['allocator_muzzy'] == 0


def run_script(c, text):
    return c.call('EVAL', text, 0)


def test_scripts_of_eval_make_room_for_others(r, server):
    """The 500 used last are kept; those of SCRIPT LOAD stay, and are not counted among them."""
    def sha(i):
        return hashlib.sha1(f'return {i}'.encode()).hexdigest()
    with Raw(server.port) as c:
        c.call('SCRIPT', 'FLUSH')
        c.call('CONFIG', 'RESETSTAT')
        assert c.call('SCRIPT', 'LOAD', 'return -1').decode() == sha(-1)
        for i in range(500):
            assert run_script(c, f'return {i}') == i
        assert server.info('memory')['number_of_cached_scripts'] == 501
        assert c.call('EVALSHA', sha(0), 0) == 0
        used = server.info('memory')['used_memory_scripts_eval']
        assert run_script(c, 'return 500') == 500
        assert c.call('SCRIPT', 'EXISTS', *map(sha, (-1, 0, 1, 2, 500))) == [1, 1, 0, 1, 1]
        assert c.call('EVALSHA', sha(1), 0).startswith('NOSCRIPT')
        for i in range(1000, 2000):
            assert run_script(c, f'return {i}') == i
        assert c.call('EVALSHA', sha(-1), 0) == -1
        assert server.info('stats')['evicted_scripts'] == 1001
        assert server.info('memory')['number_of_cached_scripts'] == 501
        assert abs(server.info('memory')['used_memory_scripts_eval'] - used) < 1500
        c.call('SCRIPT', 'FLUSH')
        assert server.info('memory')['used_memory_scripts_eval'] == 0
        c.call('CONFIG', 'RESETSTAT')
        assert server.info('stats')['evicted_scripts'] == 0
