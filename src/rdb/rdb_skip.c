/* Skipping values: keys that are dead on arrival, and types Mayfly does not have. */
#include "rdb/rdb_value.h"

#define STREAM_ID 16

const char *rdb_type_name(enum rdb_type type)
{
    switch (type) {
    case RDB_STRING: return "string";
    case RDB_LIST:
    case RDB_LIST_ZIPLIST:
    case RDB_QUICKLIST:
    case RDB_QUICKLIST_2: return "list";
    case RDB_SET:
    case RDB_SET_INTSET:
    case RDB_SET_LISTPACK: return "set";
    case RDB_ZSET:
    case RDB_ZSET_2:
    case RDB_ZSET_ZIPLIST:
    case RDB_ZSET_LISTPACK: return "zset";
    case RDB_HASH:
    case RDB_HASH_ZIPMAP:
    case RDB_HASH_ZIPLIST:
    case RDB_HASH_LISTPACK:
    case RDB_HASH_TTL_EARLY:
    case RDB_HASH_LISTPACK_TTL_EARLY:
    case RDB_HASH_TTL:
    case RDB_HASH_LISTPACK_TTL: return "hash";
    case RDB_STREAM:
    case RDB_STREAM_2:
    case RDB_STREAM_3: return "stream";
    case RDB_MODULE_1:
    case RDB_MODULE_2: return "module value";
    }
    return NULL;
}

void rdb_module_name(u64 id, char name[10])
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    id >>= 10; /* the version */
    for (int i = 8; i >= 0; i--, id >>= 6) name[i] = letters[id & 63];
    name[9] = '\0';
}

static bool skip_len(struct rdb_in *in)
{
    u64 n;
    return rdb_read_len(in, &n);
}

static bool skip_lens(struct rdb_in *in, int n)
{
    while (n-- > 0)
        if (!skip_len(in)) return false;
    return true;
}

static bool skip_score(struct rdb_in *in)
{
    double score;
    return rdb_read_score(in, &score);
}

/* Skips as many elements as the count says, each made of these parts: s string, n number, 8 eight bytes, t
 * score as text. */
static bool skip_counted(struct rdb_in *in, const char *parts)
{
    u64 count;
    if (!rdb_read_len(in, &count)) return false;
    for (; count > 0; count--) {
        for (const char *p = parts; *p; p++) {
            bool ok = *p == 's' ? rdb_skip_string(in) : *p == 'n' ? skip_len(in)
                    : *p == '8' ? rdb_skip_raw(in, 8) : skip_score(in);
            if (!ok) return false;
        }
    }
    return true;
}

/* -- streams ----------------------------------------------------------------------------------- */

/* Pending entries; in a group each has a delivery time and a count. */
static bool skip_pending(struct rdb_in *in, bool of_group)
{
    u64 count;
    if (!rdb_read_len(in, &count)) return false;
    for (; count > 0; count--)
        if (!rdb_skip_raw(in, STREAM_ID + (of_group ? 8 : 0)) || (of_group && !skip_len(in))) return false;
    return true;
}

static bool skip_consumers(struct rdb_in *in, enum rdb_type type)
{
    u64 count, times = type == RDB_STREAM_3 ? 2 : 1;
    if (!rdb_read_len(in, &count)) return false;
    for (; count > 0; count--)
        if (!rdb_skip_string(in) || !rdb_skip_raw(in, 8 * times) || !skip_pending(in, false)) return false;
    return true;
}

static bool skip_stream(struct rdb_in *in, enum rdb_type type)
{
    bool first = type == RDB_STREAM;
    u64 groups;
    /* Nodes; then the number of entries and the last ID; since 7.0 also the first ID, the highest deleted ID,
     * and the number of entries ever added. */
    if (!skip_counted(in, "ss") || !skip_lens(in, first ? 3 : 8)) return false;
    if (!rdb_read_len(in, &groups)) return false;
    for (; groups > 0; groups--) {
        if (!rdb_skip_string(in) || !skip_lens(in, first ? 2 : 3)) return false;
        if (!skip_pending(in, true) || !skip_consumers(in, type)) return false;
    }
    return true;
}

/* -- modules ----------------------------------------------------------------------------------- */

bool rdb_skip_module(struct rdb_in *in)
{
    u64 piece;
    for (;;) {
        bool ok = true;
        if (!rdb_read_len(in, &piece)) return false;
        switch (piece) {
        case RDB_MODULE_EOF: return true;
        case RDB_MODULE_SINT:
        case RDB_MODULE_UINT: ok = skip_len(in); break;
        case RDB_MODULE_FLOAT: ok = rdb_skip_raw(in, 4); break;
        case RDB_MODULE_DOUBLE: ok = rdb_skip_raw(in, 8); break;
        case RDB_MODULE_STRING: ok = rdb_skip_string(in); break;
        default: ok = rdb_fail(in, "a module's value has an unknown piece, %llu", (unsigned long long)piece);
        }
        if (!ok) return false;
    }
}

bool rdb_skip_value(struct rdb_in *in, enum rdb_type type)
{
    switch (type) {
    case RDB_STRING:
    case RDB_HASH_ZIPMAP:
    case RDB_LIST_ZIPLIST:
    case RDB_SET_INTSET:
    case RDB_ZSET_ZIPLIST:
    case RDB_HASH_ZIPLIST:
    case RDB_HASH_LISTPACK:
    case RDB_ZSET_LISTPACK:
    case RDB_SET_LISTPACK:
    case RDB_HASH_LISTPACK_TTL_EARLY: return rdb_skip_string(in);
    case RDB_HASH_LISTPACK_TTL: return rdb_skip_raw(in, 8) && rdb_skip_string(in);
    case RDB_LIST:
    case RDB_SET:
    case RDB_QUICKLIST: return skip_counted(in, "s");
    case RDB_QUICKLIST_2: return skip_counted(in, "ns");
    case RDB_HASH: return skip_counted(in, "ss");
    case RDB_ZSET: return skip_counted(in, "st");
    case RDB_ZSET_2: return skip_counted(in, "s8");
    case RDB_HASH_TTL_EARLY: return skip_counted(in, "nss");
    case RDB_HASH_TTL: return rdb_skip_raw(in, 8) && skip_counted(in, "nss");
    case RDB_STREAM:
    case RDB_STREAM_2:
    case RDB_STREAM_3: return skip_stream(in, type);
    case RDB_MODULE_2: return skip_len(in) && rdb_skip_module(in);
    case RDB_MODULE_1: return rdb_fail(in, "the value of a module of Redis 4.0's release candidates");
    }
    return rdb_fail(in, "%u is no type of value", (unsigned)type);
}
