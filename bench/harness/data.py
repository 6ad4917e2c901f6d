"""The data sets: each function gives the encoded command number i."""

from .client import encode

PAIRS = 50          # fields (or members) per HSET (ZADD) while loading


def set_100(i):
    """The key that redis-benchmark's GET and SET hit, with 100 bytes."""
    return b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$100\r\n%0100x\r\n" % (i, i)


def set_32(i):
    return b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$32\r\n%032x\r\n" % (i, i)


def set_32_pxat(deadline_of):
    """deadline_of(i) gives Unix milliseconds (13 digits until the year 2286)."""
    def make(i):
        return (b"*5\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$32\r\n%032x\r\n$4\r\nPXAT\r\n$13\r\n%013d\r\n"
                % (i, i, deadline_of(i)))
    return make


def spread(first_ms, width_ms):
    """Deadlines scattered evenly, in no order, over width_ms from first_ms on."""
    return lambda i: first_ms + i * 2654435761 % width_ms


def hset_fields(i):
    """PAIRS fields of the hash `big`: 16-byte names, 32-byte values."""
    args = []
    for n in range(i * PAIRS, (i + 1) * PAIRS):
        args += [b"fld:%012d" % n, b"%032x" % n]
    return encode(b"HSET", b"big", *args)


def zadd_members(i):
    """PAIRS members of the sorted set `big`: 16-byte names, scattered scores."""
    args = []
    for n in range(i * PAIRS, (i + 1) * PAIRS):
        args += [b"%d" % (n * 2654435761 % 4294967291), b"mem:%012d" % n]
    return encode(b"ZADD", b"big", *args)
