"""The rocks engine's rows from outside: RocksDB's C API by ctypes, and the byte layout of docs/format.md.
For planting what a sound server never writes."""
import binascii
import ctypes
import ctypes.util
import struct

ROCKSDB = ctypes.CDLL(ctypes.util.find_library('rocksdb') or 'librocksdb.so.7.8')
for name in ('options_create', 'readoptions_create', 'writeoptions_create', 'list_column_families',
             'open_column_families', 'get_cf', 'create_iterator_cf', 'iter_key', 'iter_value'):
    getattr(ROCKSDB, 'rocksdb_' + name).restype = ctypes.c_void_p
ROCKSDB.rocksdb_iter_valid.restype = ctypes.c_ubyte

META, DATA, SCORE, RANK, FIELD, STREAM, DEADLINE, INFO = (
    'redis_metadata', 'data', 'redis_zset_score', 'zset_rank', 'field_deadline', 'redis_stream', 'deadline',
    'meta_info')


def call(function, *args):
    """A function of the C API whose last argument is where an error goes."""
    why = ctypes.c_char_p()
    result = getattr(ROCKSDB, 'rocksdb_' + function)(*args, ctypes.byref(why))
    if why.value:
        raise RuntimeError(why.value.decode('utf-8', 'replace'))
    return result


def pointer(value):
    return ctypes.c_void_p(value)


def size(n):
    return ctypes.c_size_t(n)


class Store:
    """A database that no server has open."""

    def __init__(self, directory):
        path = directory.encode()
        self.options = pointer(ROCKSDB.rocksdb_options_create())
        ROCKSDB.rocksdb_options_set_disable_auto_compactions(self.options, 1)
        n = ctypes.c_size_t()
        listed = call('list_column_families', self.options, path, ctypes.byref(n))
        names = ctypes.cast(pointer(listed), ctypes.POINTER(ctypes.c_char_p))[:n.value]
        handles = (ctypes.c_void_p * n.value)()
        self.db = pointer(call('open_column_families', self.options, path, ctypes.c_int(n.value),
                               (ctypes.c_char_p * n.value)(*names),
                               (ctypes.c_void_p * n.value)(*[self.options.value] * n.value), handles))
        self.families = {name.decode(): pointer(h) for name, h in zip(names, handles)}
        self.read = pointer(ROCKSDB.rocksdb_readoptions_create())
        self.write = pointer(ROCKSDB.rocksdb_writeoptions_create())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for handle in self.families.values():
            ROCKSDB.rocksdb_column_family_handle_destroy(handle)
        ROCKSDB.rocksdb_close(self.db)

    def get(self, family, key):
        n = ctypes.c_size_t()
        at = call('get_cf', self.db, self.read, self.families[family], key, size(len(key)), ctypes.byref(n))
        if at is None:
            return None
        value = ctypes.string_at(at, n.value)
        ROCKSDB.rocksdb_free(pointer(at))
        return value

    def put(self, family, key, value):
        call('put_cf', self.db, self.write, self.families[family], key, size(len(key)), value, size(len(value)))

    def delete(self, family, key):
        assert self.get(family, key) is not None, f'{family} has no row {key!r}'
        call('delete_cf', self.db, self.write, self.families[family], key, size(len(key)))

    def change(self, family, key, offset, data):
        """Overwrites a part of a value."""
        value = self.get(family, key)
        assert value is not None, f'{family} has no row {key!r}'
        self.put(family, key, value[:offset] + data + value[offset + len(data):])

    def rows(self, family, prefix=b''):
        """All rows that begin so: [(key, value)]."""
        it = pointer(ROCKSDB.rocksdb_create_iterator_cf(self.db, self.read, self.families[family]))
        out, n = [], ctypes.c_size_t()
        ROCKSDB.rocksdb_iter_seek(it, prefix, size(len(prefix)))
        while ROCKSDB.rocksdb_iter_valid(it):
            key = ctypes.string_at(ROCKSDB.rocksdb_iter_key(it, ctypes.byref(n)), n.value)
            if not key.startswith(prefix):
                break
            out.append((key, ctypes.string_at(ROCKSDB.rocksdb_iter_value(it, ctypes.byref(n)), n.value)))
            ROCKSDB.rocksdb_iter_next(it)
        ROCKSDB.rocksdb_iter_destroy(it)
        return out


# -- layout ----------------------------------------------------------------------------------------------

def u64(n):
    return struct.pack('>Q', n % 2**64)


def slot_of(key):
    start = key.find(b'{')
    end = key.find(b'}', start + 1)
    tag = key[start + 1:end] if start >= 0 and end > start + 1 else key
    return binascii.crc_hqx(tag, 0) & 0x3FFF


def row_of(key, index=1, slot=None):
    """P of a key."""
    slot = slot_of(key) if slot is None else slot
    return u64(1 ^ 1 << 63) + u64(index ^ 1 << 63) + struct.pack('>HI', slot, len(key)) + key


VERSION, SIZE, HEAD, TAIL = 9, 17, 25, 33     # where they are in a collection's metadata


def prefix_of(store, key):
    """P · version of a collection."""
    return row_of(key) + store.get(META, row_of(key))[VERSION:VERSION + 8]
