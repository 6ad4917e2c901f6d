"""DUMP and RESTORE: each server restores what the other has dumped."""
import struct

from gen import DELETABLE, GENERAL, family
from op import Op, cli_line

dump = family('dump', 0.4)


def crc64(data):
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x95ac9329ac4bc9b5 if crc & 1 else 0)
    return crc


def seal(body, version=10):
    body += struct.pack('<H', version)
    return body + struct.pack('<Q', crc64(body))


# Values that both take, and payloads that both refuse.
GOOD = [seal(body) for body in (
    b'\x00\x05hello', b'\x00\xc0\x7b', b'\x00\xc2\x00\x00\x00\x80', b'\x01\x02\x01a\xc0\x05', b'\x02\x02\x01a\x01b',
    b'\x02\x03\xc0\x01\xc0\x02\xc1\x00\x02', b'\x04\x01\x01f\x01v', b'\x05\x01\x01m\x00\x00\x00\x00\x00\x00\xf8\x3f')]
OLD = [seal(b'\x00\x01x', 1), seal(b'\x03\x01\x01m\x031.5', 6), seal(b'\x0a\x0d\x0d\0\0\0\x0a\0\0\0\x01\0\x00\xf3\xff', 6)]
BAD = [b'', b'x', b'garbage, and not too short', GOOD[0][:-1], GOOD[0][1:], GOOD[1][:3] + GOOD[0][3:],
       seal(b'\x00\x01x', 4711), seal(b''), seal(b'\x08\x01x'), seal(b'\x01\x00'), seal(b'\x04\x01\x01f')]


class DumpOp:
    """Copies a value crosswise: a gets b's payload, b gets a's."""

    def __init__(self, source, head, tail):
        self.source, self.head, self.tail = source, head, tail

    def run(self, pair):
        # What a hash table holds has no order, and would get one where it is packed again.
        if pair.b.call(b'TYPE', self.source)[1] == b'hash' and \
                pair.b.call(b'OBJECT', b'ENCODING', self.source)[1] == b'hashtable':
            return None
        a, b = (conn.call(b'DUMP', self.source) for conn in (pair.a, pair.b))
        if a[0] != b[0] or (a[1] is None) != (b[1] is None) or a[0] == '-':
            return pair.describe([b'DUMP', self.source], a, b)
        if a[1] is None:
            return None
        restored = [conn.call(*self.head, payload[1], *self.tail) for conn, payload in ((pair.a, b), (pair.b, a))]
        if restored[0] != restored[1]:
            return pair.describe(self.argv(), *restored)
        return None

    def argv(self):
        return self.head + [b'(what the other dumped of)', self.source] + self.tail

    def __str__(self):
        return cli_line(self.argv())


# No HyperLogLogs: Redis's PFCOUNT unshares the value it reads, which OBJECT ENCODING then shows. No streams: see
# gen_stream.crosswise.
SOURCES = [k for k in DELETABLE if k not in GENERAL['p'] and not k.startswith((b'x', b'big_x'))]


def ttl(g):
    """(argument, options)"""
    r = g.random()
    if r < 0.6:
        return b'0', []
    if r < 0.8:
        return g.rel_ms() if g.p(0.5) else g.num(10_000_000, 1_500_000_000_000), []
    # One ahead or long past; if ABSTTL gets lost on the way, both are relative, and must stay below compare.FAR_MS.
    return (g.num(1_900_000_000_000, 2_100_000_000_000) if g.p(0.9) else b'1500000000000'), [g.opt(b'ABSTTL')]


def options(g):
    return g.options(b'REPLACE', p=0.6) + g.options(lambda: [b'IDLETIME', g.num(0, 1000)], lambda: [b'FREQ', g.num(0, 255)],
                                                    p=0.05)


@dump.add(6, mutate=False)
def crosswise(g):
    pool = GENERAL[g.pick('shltz')]
    source = g.pick(pool) if g.p(0.9) else g.pick(SOURCES)
    target = g.pick(pool) if not source.startswith(b'so_') else source
    when, absolute = ttl(g)
    return Op(special=DumpOp(source, [b'RESTORE', target, when], absolute + options(g)))


@dump.add(3, mutate=False)
def restore(g):
    when, absolute = ttl(g)
    payload = g.pick(GOOD) if g.p(0.6) else g.pick(OLD) if g.p(0.4) else g.pick(BAD)
    return [b'RESTORE', g.any_key(), when, payload] + absolute + options(g)


def both_or_none(ctx, a, b):
    """A payload's bytes are each server's own affair."""
    return a[0] == b[0] == '$' and (a[1] is None) == (b[1] is None)


@dump.add(0.5)
def alone(g):
    return g.pick((([b'DUMP', g.any_key()], both_or_none), [b'DUMP'], [b'DUMP', b'a', b'b'], [b'RESTORE', b'a', b'0'],
                   [b'RESTORE', b'nokey', b'0', g.pick(GOOD), b'IDLETIME'], [b'RESTORE', b'nokey', b'x', g.pick(GOOD)],
                   [b'RESTORE', b'nokey', b'0', g.pick(GOOD), b'FREQ', b'256']))
