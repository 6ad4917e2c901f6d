"""cjson, cmsgpack, bit and struct: the same scripts to Mayfly and to redis-server, with the same results, errors
included. A table of cases, and as many that chance makes."""
import os
import random
import threading

import pytest
import redis

import redis_server

pytestmark = [redis_server.needed, pytest.mark.any_engine]

# What a function returns, or its error, as one string in which every type and every bit is to be seen.
SHOW = '''
local function show(v, depth)
  local t = type(v)
  if t == "number" then return string.format("%.17g", v) end
  if t == "string" then return "'" .. v .. "'" end
  if t ~= "table" then return (tostring(v):gsub("0x%x+", "PTR")) end
  if depth > 40 then return "<deep>" end
  local out = {}
  for k, x in pairs(v) do out[#out + 1] = show(k, depth + 1) .. "=" .. show(x, depth + 1) end
  table.sort(out)
  return "{" .. table.concat(out, ",") .. "}"
end
local function all(...)
  local out = {}
  for i = 1, select("#", ...) do out[i] = show((select(i, ...)), 0) end
  return table.concat(out, "|")
end
return all(pcall(function() '''.replace('\n', ' ')


def table_of_cases():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'lua_cases.txt')
    with open(path, encoding='utf-8') as f:
        lines = [line.rstrip('\n') for line in f]
    return [line.encode() for line in lines if line and not line.startswith('#')]


def quoted(data):
    return b'"' + b''.join(b'\\%03d' % c for c in data) + b'"'


class Chance:
    """Random calls, most of them sound or nearly so."""

    NUMBERS = ('0 1 -1 127 128 -32 -33 255 256 65535 65536 2^31 2^32 2^32-1 -2^31 2^53 -2^53 2^63 -2^63 0.5 -0.1 '
               '1e300 1/0 -1/0 0/0 1e15 123456789012345 3.14159 1e-7 2^40+0.5').split()
    FORMATS = 'b B h H i I l L T f d s c0 c3 x < > ! !4 !2 i3 I5 i9 i16 c z 5 i0 !3'.split() + [' ']
    BITS = 'tobit tohex bnot band bor bxor lshift rshift arshift rol ror bswap'.split()

    def __init__(self, seed):
        self.r = random.Random(seed)

    def number(self):
        pick = self.r.randrange(3)
        if pick == 0:
            return str(self.r.uniform(-1e6, 1e6))
        return str(self.r.randrange(-10 ** 12, 10 ** 12)) if pick == 1 else self.r.choice(self.NUMBERS)

    def value(self, depth=0):
        pick = self.r.randrange(9 if depth < 5 else 5)
        if pick < 2:
            return self.number()
        if pick == 2:
            n = self.r.choice([0, 1, 3, 31, 32, 40])
            return quoted(bytes(self.r.choice(b'ab"\\/\x00\x1f\x7f\xc3\xa9\n') for _ in range(n))).decode()
        if pick == 3:
            return self.r.choice(['true', 'false'])
        if pick == 4:
            return self.r.choice(['cjson.null', 'nil', 'function() end'])
        if pick < 7:
            return '{' + ','.join(self.value(depth + 1) for _ in range(self.r.choice([0, 1, 2, 3, 17]))) + '}'
        keys = ['1', '2', '3', '5', '9', '12', '-1', '0', '1.5', "'a'", "'b c'", 'true', '100']
        pairs = (f'[{self.r.choice(keys)}]={self.value(depth + 1)}' for _ in range(self.r.choice([0, 1, 2, 4])))
        return '{' + ','.join(pairs) + '}'

    def json(self, depth=0):
        pick = self.r.randrange(8 if depth < 4 else 5)
        if pick == 0:
            return self.r.choice('1 -1 0.5 1e5 -0 01 0x1f 1. nan inf -inf +1 1e999 - 1e Infinity 12345678901234567890'
                                 .split())
        if pick == 1:
            parts = ['a', '\\n', '\\u00e9', '\\ud83d\\ude00', '\\ud800', '\\x', 'é', '\\/', '\\\\', '\\"', '\\u12', '\t']
            return '"' + ''.join(self.r.choice(parts) for _ in range(self.r.randrange(4))) + '"'
        if pick == 2:
            return self.r.choice(['true', 'false', 'null', 'true', 'false', 'null', 'tru', 'nul'])
        if pick < 5:
            return f'"k{self.r.randrange(5)}"'
        space = self.r.choice(['', '', ' ', '\n'])
        if pick < 7:
            return '[' + (',' + space).join(self.json(depth + 1) for _ in range(self.r.randrange(4))) + space + ']'
        return '{' + ','.join(f'"k{i}"{space}:{space}{self.json(depth + 1)}'
                              for i in range(self.r.randrange(4))) + '}'

    def msgpack(self, depth=0):
        pick = self.r.randrange(12 if depth < 5 else 8)
        if pick == 0:
            return bytes([self.r.randrange(256)])
        if pick == 1:
            return self.r.choice([b'\xc0', b'\xc2', b'\xc3'])
        if pick in (2, 3):
            return b'\xcb' + self.r.randbytes(8) if pick == 2 else b'\xca' + self.r.randbytes(4)
        if pick == 4:
            tag = self.r.randrange(8)
            return bytes([0xcc + tag]) + self.r.randbytes(1 << tag % 4)
        n = self.r.randrange(8)
        if pick < 8:
            return self.r.choice([bytes([0xa0 | n]), b'\xd9' + bytes([n]), b'\xda\0' + bytes([n])]) + self.r.randbytes(n)
        n %= 4
        if pick < 10:
            head = self.r.choice([bytes([0x90 | n]), b'\xdc\0' + bytes([n])])
            return head + b''.join(self.msgpack(depth + 1) for _ in range(n))
        # no tables as keys: the order in which they are walked is their addresses'
        pairs = b''.join(bytes([0xa1, 97 + i]) + self.msgpack(depth + 1) for i in range(n))
        return self.r.choice([bytes([0x80 | n]), b'\xde\0' + bytes([n])]) + pairs

    def damaged(self, data):
        b = bytearray(data)
        for _ in range(self.r.choice([0, 0, 1, 1, 2, 5])):
            at = self.r.randrange(len(b) + 1)
            how = self.r.randrange(4)
            if how == 0:
                del b[at:at + 1]
            elif how == 1:
                del b[at:]
            else:
                b[at:at + how - 2] = bytes([self.r.choice(b'{}[]:,"\\0-+ein \x00\xff')])
        return bytes(b)

    def format(self):
        return quoted(''.join(self.r.choice(self.FORMATS) for _ in range(self.r.randrange(7))).encode())

    def case(self):
        pick = self.r.randrange(10)
        if pick == 0:
            return f'return cjson.encode({self.value()})'.encode()
        if pick < 3:
            return b'return cjson.decode(' + quoted(self.damaged(self.json().encode())) + b')'
        if pick == 3:
            return f"return cmsgpack.pack({','.join(self.value() for _ in range(self.r.randrange(1, 4)))})".encode()
        if pick == 4:
            return b'return cmsgpack.unpack(' + quoted(self.damaged(self.msgpack())) + b')'
        if pick == 5:
            which = self.r.choice([b'unpack_one', b'unpack_limit'])
            return b'return cmsgpack.%s(%s,%d,%d)' % (which, quoted(self.msgpack() + self.msgpack()),
                                                      self.r.choice([0, 1, 2, 5]), self.r.choice([0, 1, 3, -1]))
        if pick == 6:
            args = (',' + self.r.choice([self.number(), self.number(), "'abc'", "''", "'12'", 'nil'])
                    for _ in range(self.r.randrange(6)))
            return b'return struct.pack(' + self.format() + ''.join(args).encode() + b')'
        if pick == 7:
            data = bytes(self.r.choice([0, 1, 2, 3, 255, 97, 128]) for _ in range(self.r.choice([0, 4, 16, 40])))
            offset = self.r.choice([b'', b',1', b',2', b',5', b',0'])
            return b'return struct.unpack(' + self.format() + b',' + quoted(data) + offset + b')'
        if pick == 8:
            return b'return struct.size(' + self.format() + b')'
        args = ','.join(self.number() for _ in range(self.r.randrange(4)))
        return f'return bit.{self.r.choice(self.BITS)}({args})'.encode()


def ask(client, scripts):
    """To each script: a string, or the error."""
    p = client.pipeline(transaction=False)
    for s in scripts:
        p.eval(SHOW.encode() + s + b' end))', 0)
    return [str(a).encode() if isinstance(a, redis.ResponseError) else a for a in p.execute(raise_on_error=False)]


def answers(server, scripts):
    out = []
    with server.client() as c:
        for i in range(0, len(scripts), 500):
            out += ask(c, scripts[i:i + 500])
            c.script_flush()
    return out


@pytest.fixture
def pair(server_factory, redis_factory):
    return server_factory(), redis_factory()


def expect_alike(pair, scripts):
    ours, theirs = (answers(s, scripts) for s in pair)
    wrong = [(s, a, b) for s, a, b in zip(scripts, ours, theirs) if a != b]
    assert not wrong, '\n'.join(f'{s[:300]}\n  Mayfly {a[:300]}\n  Redis  {b[:300]}' for s, a, b in wrong[:10])
    assert len(ours) == len(scripts)


def test_cases(pair):
    cases = table_of_cases()
    assert len(cases) > 500
    expect_alike(pair, cases)


def test_by_chance(pair):
    chance = Chance(20261115)
    expect_alike(pair, [chance.case() for _ in range(3000)])


def test_bounds(pair):
    """What would take memory or stack without end is an error, and Redis's where that has one."""
    ours = pair[0]
    deep = [
        b"local s = ('['):rep(100000) cjson.decode_max_depth(2^31-1) local ok, e = pcall(cjson.decode, s) "
        b"cjson.decode_max_depth(1000) return ok, e",
        b"local s = ('{\"a\":'):rep(100000) cjson.decode_max_depth(2^31-1) local ok, e = pcall(cjson.decode, s) "
        b"cjson.decode_max_depth(1000) return ok, e",
        b"return cmsgpack.unpack(('\\145'):rep(1000000))",
        b"return cmsgpack.unpack(('\\129\\1'):rep(1000000))",
        b"return select('#', cmsgpack.unpack(('\\1'):rep(100000)))",
        b"return struct.unpack(('b'):rep(100000), ('a'):rep(100000))",
    ]
    expect_alike(pair, deep)
    endless = [
        b"local t = {} for i = 1, 100000 do t = {t} end cjson.encode_max_depth(2^31-1) local ok, e = "
        b"pcall(cjson.encode, t) cjson.encode_max_depth(1000) return ok, e",
        b"local t = {} for i = 1, 64 do t[i] = t end return cmsgpack.pack(t)",
        b"local t = {} for i = 1, 64 do t[i] = t end return cjson.encode(t)",
        b"cjson.encode_sparse_array(false, 0, 0) local ok, e = pcall(cjson.encode, {[2^31-1] = 1}) "
        b"cjson.encode_sparse_array(false, 2, 10) return ok, e",
    ]
    for script in endless:
        with ours.client() as c, ours.raw() as other:
            c.config_set('busy-reply-threshold', 200)
            answer = []
            t = threading.Thread(target=lambda c=c, s=script, a=answer: a.extend(ask(c, [s])))
            t.start()
            while t.is_alive():     # it would run out of memory, but late: SCRIPT KILL ends it
                other.call('SCRIPT', 'KILL')
                t.join(0.05)
            assert b'false' in answer[0] or b'memory' in answer[0] or b'killed' in answer[0], answer[0][:300]
            assert other.call('PING') == b'PONG'
