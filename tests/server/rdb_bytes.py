"""RDB files byte by byte: what no server at hand writes any more, or yet."""
import struct

POLY = 0x95AC9329AC4BC9B5           # Jones's, bits reversed


def table():
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (POLY if n & 1 else 0)
        yield n


TABLE = tuple(table())


def crc64(data, crc=0):
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc


def length(n):
    if n < 64:
        return bytes([n])
    if n < 16384:
        return bytes([0x40 | n >> 8, n & 255])
    return b'\x80' + struct.pack('>I', n) if n < 2**32 else b'\x81' + struct.pack('>Q', n)


def string(value):
    value = value.encode() if isinstance(value, str) else value
    return length(len(value)) + value


def file(version, *parts, checksum=None):
    """checksum: other bytes in its place."""
    body = b'REDIS%04d' % version + b''.join(parts) + b'\xff'
    if checksum is None:
        checksum = struct.pack('<Q', crc64(body)) if version >= 5 else b''
    return body + checksum


def key(kind, name, value, deadline_ms=None):
    when = b'' if deadline_ms is None else b'\xfc' + struct.pack('<q', deadline_ms)
    return when + bytes([kind]) + string(name) + value


def aux(name, value):
    return b'\xfa' + string(name) + string(value)


def select(db):
    return b'\xfe' + length(db)


def sizes(keys, deadlines=0):
    return b'\xfb' + length(keys) + length(deadlines)


def items(*values):
    """A count, and so many strings."""
    return length(len(values)) + b''.join(map(string, values))


def score(value):
    return struct.pack('<d', value)


def score_text(value):
    return {'nan': b'\xfd', 'inf': b'\xfe', '-inf': b'\xff'}.get(value) or string(value)


# -- packed forms: each is one string of the file -----------------------------------------------------

def ziplist(*values):
    """Integers in all widths, strings in all three lengths."""
    body, before, tail = b'', 0, 10
    for value in values:
        tail = 10 + len(body)
        entry = (bytes([before]) if before < 254 else b'\xfe' + struct.pack('<I', before)) + ziplist_value(value)
        body, before = body + entry, len(entry)
    return string(struct.pack('<IIH', 11 + len(body), tail, len(values)) + body + b'\xff')


def ziplist_value(value):
    if isinstance(value, int):
        if 0 <= value <= 12:
            return bytes([0xF1 + value])
        for bits, code in (8, 0xFE), (16, 0xC0), (24, 0xF0), (32, 0xD0), (64, 0xE0):
            if -2**(bits - 1) <= value < 2**(bits - 1):
                return bytes([code]) + value.to_bytes(bits // 8, 'little', signed=True)
    value = value.encode() if isinstance(value, str) else value
    n = len(value)
    if n < 64:
        return bytes([n]) + value
    return (bytes([0x40 | n >> 8, n & 255]) if n < 16384 else b'\x80' + struct.pack('>I', n)) + value


def listpack(*values):
    body = b''.join(map(listpack_entry, values))
    return string(struct.pack('<IH', 7 + len(body), len(values)) + body + b'\xff')


def listpack_entry(value):
    entry = listpack_value(value)
    n, back = len(entry), b''
    while True:                                 # its length, to be read backwards: 7 bits each
        back = bytes([n & 127 | (128 if n > 127 else 0)]) + back
        n >>= 7
        if not n:
            return entry + back


def listpack_value(value):
    if isinstance(value, int):
        if 0 <= value < 128:
            return bytes([value])
        if -4096 <= value < 4096:
            value &= 0x1FFF
            return bytes([0xC0 | value >> 8, value & 255])
        for bits, code in (16, 0xF1), (24, 0xF2), (32, 0xF3), (64, 0xF4):
            if -2**(bits - 1) <= value < 2**(bits - 1):
                return bytes([code]) + value.to_bytes(bits // 8, 'little', signed=True)
    value = value.encode() if isinstance(value, str) else value
    n = len(value)
    if n < 64:
        return bytes([0x80 | n]) + value
    return (bytes([0xE0 | n >> 8, n & 255]) if n < 4096 else b'\xf0' + struct.pack('<I', n)) + value


def intset(width, *values):
    return string(struct.pack('<II', width, len(values))
                  + b''.join(v.to_bytes(width, 'little', signed=True) for v in values))


def zipmap(**fields):
    def size(n):
        return bytes([n]) if n < 254 else b'\xfe' + struct.pack('<I', n)

    body = b''.join(size(len(f)) + f.encode() + size(len(v)) + b'\x00' + v for f, v in fields.items())
    return string(bytes([min(len(fields), 254)]) + body + b'\xff')
