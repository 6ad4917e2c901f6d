"""The security list: forty hostile inputs and what they must lead to. docs/security.md shows the same list; what is
done to single parts at length (every cut of a payload, every way out of the sandbox) is in their own tests."""
import os
import re
import struct

import pytest

import mayfly
from mayfly import encode
from test_dump import lp, lp_text, payload, string

PROTOCOL = '-ERR Protocol error: '
NO_KEY = 'NOPERM No permissions to access a key'
CLOSED = object()  # nothing is answered, and the connection ends
WRONGPASS = 'WRONGPASS invalid username-password pair or user is disabled.'


def no_command(name):
    return f"NOPERM User guest has no permissions to run the '{name}' command"


# Bytes from a stranger; the beginning of the answer, behind which the connection ends.
WIRE = {
    'a length beyond 64 bits': (b'*1\r\n$99999999999999999999\r\n', PROTOCOL + 'invalid bulk length'),
    'a length below zero': (b'*2\r\n$3\r\nGET\r\n$-5\r\n', PROTOCOL + 'invalid bulk length'),
    'more arguments than an int holds': (b'*4294967297\r\n', PROTOCOL + 'invalid multibulk length'),
    'a line that never ends': (b'A' * (1 << 20), PROTOCOL + 'too big inline request'),
    'a number that never ends': (b'*1\r\n$' + b'0' * (1 << 17), PROTOCOL + 'too big bulk count string'),
    'quotes that never end': (b'SET "k\r\n', PROTOCOL + 'unbalanced quotes in request'),
    'a browser': (b'POST / HTTP/1.1\r\nHost: victim\r\nContent-Length: 9\r\n\r\nFLUSHALL\r\n', CLOSED),
    'a browser that speaks RESP': (encode('POST', '/') + encode('FLUSHALL'), CLOSED),
    'commands after a protocol error': (b'*x\r\n' + encode('FLUSHALL'), PROTOCOL + 'invalid multibulk length'),
}

# Commands of the default user, the last of which gets this answer (a string: an error with these words).
COMMANDS = {
    'line breaks in what an error repeats': ([('NOPE\r\n+OK', 'a\r\nb')], "ERR unknown command 'NOPE  +OK', with args "
                                             "beginning with: 'a  b' "),
    'bytecode in a script': ([('EVAL', 'return loadstring(string.dump(function() end)) == nil', 0)], 1),
    'files and processes in a script': ([('EVAL', 'return {type(rawget(_G, "io")), type(rawget(_G, "require")), '
                                          'type(rawget(_G, "dofile")), type(rawget(_G, "package"))}', 0)],
                                        [b'nil'] * 4),
    'a script that overwrites the libraries': ([('EVAL', 'string.rep = nil', 0)],
                                               'Attempt to modify a readonly table'),
    'a script that leaves a global behind': ([('EVAL', 'leak = 1', 0)],
                                             'Attempt to modify a readonly table'),
    'a script that fills the memory': ([('EVAL', 'local t = {} while true do t[#t + 1] = ("x"):rep(1e6) .. #t end', 0)],
                                       'not enough memory'),
    'a script that recurses without end': ([('EVAL', 'local function f() return 1 + f() end return f()', 0)],
                                            'ERR user_script:1: stack overflow'),
    'a script within a script': ([('EVAL', 'return redis.call("EVAL", "return 1", 0)', 0)],
                                 'ERR This Redis command is not allowed from script'),
    'more keys than arguments': ([('EVAL', 'return 1', 2**62, 'k')], 'ERR Number of keys can'),
    'JSON a hundred thousand levels deep': ([('EVAL', 'return cjson.decode(("["):rep(100000))', 0)], 'ERR '),
    'MessagePack that promises four billion items': (
        [('EVAL', 'return cmsgpack.unpack("\\221\\255\\255\\255\\255")', 0)], 'ERR '),
    'a random draw of quintillions': ([('SADD', 's', 'm'), ('SRANDMEMBER', 's', -(2**62))],
                                      'ERR value is out of range'),
    'a bit beyond the end of memory': ([('SETBIT', 'k', 2**40, 1)], 'ERR bit offset is not an integer or out of range'),
}

# Commands of a user who may do this: +@all -@admin -@dangerous ~pub:* %R~read:* &pub:*
GUEST = {
    'making oneself an administrator': ([('ACL', 'SETUSER', 'guest', '+@all', '~*')], no_command('acl|setuser')),
    'reading the password from the configuration': ([('CONFIG', 'GET', 'requirepass')], no_command('config|get')),
    'a key among many': ([('MGET', 'pub:1', 'read:1', 'secret')], NO_KEY),
    'a key by SORT': ([('SORT', 'pub:list', 'BY', 'nosort', 'GET', 'secret')],
                      'ERR GET option of SORT denied due to insufficient ACL permissions.'),
    'a key by a script': ([('EVAL', 'return redis.call("GET", "secret")', 0)],
                          'ERR ACL failure in script: No permissions to access a key'),
    'a copy under a name one may read': ([('COPY', 'secret', 'pub:mine')], NO_KEY),
    'writing by a command that also reads': ([('GETDEL', 'read:1')], NO_KEY),
    'hearing everything': ([('PSUBSCRIBE', '*')],
                           'NOPERM No permissions to access a channel'),
    'who there is, by trying': ([('AUTH', 'default', 'wrong'), ('AUTH', 'nobody', 'wrong')], WRONGPASS),
    'becoming the default user by RESET': ([('RESET',), ('GET', 'secret')], 'NOAUTH Authentication required.'),
}

RESTORED = {
    'a string of 2^63 bytes': b'\x00\x81' + b'\x7f' + b'\xff' * 7 + b'x',
    'a hash of 2^60 fields': b'\x04\x81' + struct.pack('>Q', 1 << 60) + b'\x01a\x01b',
    'LZF that unpacks to gigabytes': b'\x00\xc3\x05\x81' + struct.pack('>Q', 1 << 33) + b'\x01xx\xe0\xff',
    'a listpack that points beyond its end': b'\x10' + string(lp(lp_text(b'a'), b'\xf0\xff\xff\xff\xff\x05')),
    'a ziplist that points before its start': b'\x0d' + string(struct.pack('<IIH', 15, 12, 2) +
                                                                b'\x00\xfe\xff\xff\xff'),
    'a score that is no number': b'\x05\x01\x01m' + struct.pack('<d', float('nan')),
    'a stream of nothing': b'\x13\x01' + string(b'x' * 16) + string(lp()) + b'\x00' * 9,
    'a type of a module': b'\x07\x81' + b'\xff' * 8,
}


def expect(answer, wanted):
    if isinstance(wanted, str):
        assert isinstance(answer, mayfly.ReplyError) and wanted in answer, answer
    else:
        assert answer == wanted


@pytest.fixture(scope='module')
def target():
    s = mayfly.new_server('--requirepass', 'hush', '--script-memory-limit', '16mb')
    with s.client(password='hush') as r:
        r.execute_command('ACL', 'SETUSER', 'guest', 'on', '>pw', '+@all', '-@admin', '-@dangerous', '+sort', '~pub:*',
                          '%R~read:*', '&pub:*')
    yield s
    try:
        assert s.stop() == 0, s.log
        s.check()
    finally:
        s.remove()


@pytest.fixture
def unharmed(target):
    """Whatever happens in between: the data is unchanged, no client is slower, and the memory is freed."""
    with target.client(password='hush') as r:
        r.flushall()
        r.mset({'secret': 'x', 'pub:1': 1, 'read:1': 2})
        r.rpush('pub:list', 'a')
        before = r.info('memory')['used_memory'], r.acl_list()
        yield target
        assert r.get('secret') == b'x' and r.get('read:1') == b'2'
        assert r.acl_list() == before[1]
        assert r.info('memory')['used_memory'] < before[0] + (24 << 20)


def connect(raw, target, *login):
    c = raw(target.port)
    if login:
        mayfly.eventually(lambda: c.call('AUTH', *login) == b'OK')
    return c


@pytest.mark.parametrize('what', WIRE)
def test_from_a_stranger(unharmed, raw, what):
    sent, wanted = WIRE[what]
    got = raw(unharmed.port).try_send(sent).rest()
    if wanted is CLOSED:
        assert got == b''
    else:
        # What is still being sent when the connection closes may cost the answer.
        assert got.decode().startswith(wanted) or (got == b'' and len(sent) > 65536)
        assert got.count(b'\n') <= 1


@pytest.mark.parametrize('what', COMMANDS)
def test_from_a_user_who_may_do_everything(unharmed, raw, what):
    c = connect(raw, unharmed, 'default', 'hush')
    commands, wanted = COMMANDS[what]
    for command in commands:
        answer = c.call(*command)
    expect(answer, wanted)
    assert c.call('EVAL', 'return ("ok"):rep(1)', 0) == b'ok'


@pytest.mark.parametrize('what', GUEST)
def test_from_a_user_who_may_do_little(unharmed, raw, what):
    c = connect(raw, unharmed, 'guest', 'pw')
    commands, wanted = GUEST[what]
    answers = [c.call(*command) for command in commands]
    expect(answers[-1], wanted)
    if len(commands) == 2 and commands[0][0] == 'AUTH':
        assert answers[0] == answers[1], 'names that exist are not told from others'


@pytest.mark.parametrize('what', RESTORED)
def test_restored(unharmed, raw, what):
    c = connect(raw, unharmed, 'default', 'hush')
    assert c.call('RESTORE', 'new', 0, payload(RESTORED[what])) == 'ERR Bad data format'
    assert c.call('RESTORE', 'pub:1', 0, payload(RESTORED[what]), 'REPLACE') == 'ERR Bad data format'
    assert c.call('EXISTS', 'new') == 0 and c.call('GET', 'pub:1') == b'1'


def test_the_list_is_documented():
    names = [*WIRE, *COMMANDS, *GUEST, *RESTORED]
    assert len(set(names)) == len(names) == 40
    with open(os.path.join(mayfly.ROOT, 'docs', 'security.md'), encoding='utf-8') as f:
        listed = re.findall(r'^\| ([^|]+?) +\| [^|]+ \|$', f.read().split('## Hostile input')[1], re.M)
    assert listed[2:] == names or listed[1:] == names, set(names) ^ set(listed)
