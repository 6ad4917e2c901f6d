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


# Small collections, each under a key of 13 bytes: what most applications have millions of.

def _small(command, *args):
    return lambda i: encode(command, b"key:%09d" % i, *args)


small_list = _small(b"RPUSH", *[b"item-%d" % n for n in range(5)])
small_set = _small(b"SADD", *[b"item-%d" % n for n in range(5)])
small_zset = _small(b"ZADD", *[x for n in range(5) for x in (b"%d" % (10 * n), b"item-%d" % n)])
small_hash = _small(b"HSET", *[x for n in range(4) for x in (b"name%d" % n, b"value")])


def small_stream(i):
    """Every other one is the second entry of its stream: one field, 14 bytes."""
    return encode(b"XADD", b"key:%09d" % (i // 2), b"%d-1" % (1_700_000_000_000 + i * 37), b"field",
                  b"value-%03d" % (i % 1000))


def small_ints(i):
    """Five of 0 … 4000."""
    return encode(b"SADD", b"key:%09d" % i, *[b"%d" % ((i * 7919 + n * 797) % 4001) for n in range(5)])


def hash_of_10(i):
    """180 bytes in all."""
    pairs = [(b"field-%d" % n, b"value%06d" % ((i + n) % 1000000)) for n in range(10)]
    return encode(b"HSET", b"key:%09d" % i, *[x for pair in pairs for x in pair])


# Values that look like data: neither all zeros nor compressible, for what is written to disk.
_SCATTER = 0x9E3779B97F4A7C15F39CC0605CEDC8341082276BF3A27251F86C6A11D0C18E952767F0B153D27B7F0347045B5BF1827F01


def scattered(i, digits):
    """So many hexadecimal digits, without an order to them."""
    return b"%0*x" % (digits, (i + 1) * _SCATTER % (1 << 4 * digits))


def set_scattered(i, value=None):
    """The key of set_100, with 100 bytes that hardly compress."""
    return (b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$100\r\n%b\r\n"
            % (i, scattered(i if value is None else value, 100)))


def set_scattered_pxat(i, deadline_ms):
    return (b"*5\r\n$3\r\nSET\r\n$16\r\nttl:%012d\r\n$100\r\n%b\r\n$4\r\nPXAT\r\n$13\r\n%013d\r\n"
            % (i, scattered(i, 100), deadline_ms))


def _collection_template(command, key, between):
    """Placeholders: the key's number, then the 8 elements of 16 digits."""
    elements = b"".join([between(n) + b"$16\r\n%016x\r\n" for n in range(8)])
    args = 2 + 8 * (1 + bool(between(0)))
    return b"*%d\r\n$%d\r\n%b\r\n$%d\r\n%b" % (args, len(command), command, len(key) + 8, key) \
        + b"%08d\r\n" + elements


_COLLECTIONS = (
    _collection_template(b"HSET", b"hash:", lambda n: b"$6\r\nfield%d\r\n" % n),
    _collection_template(b"SADD", b"set:", lambda n: b""),
    _collection_template(b"ZADD", b"zset:", lambda n: b"$4\r\n%d.25\r\n" % n),
    _collection_template(b"RPUSH", b"list:", lambda n: b""),
)


def small_collection(i):
    """Hash, set, sorted set and list in turn, each of 8 elements of 16 bytes."""
    first, step, mask = 8 * i * _SCATTER, _SCATTER & (1 << 64) - 1, (1 << 64) - 1
    return _COLLECTIONS[i % 4] % (i, *[first + n * step & mask for n in range(1, 9)])
