/* A hash table of pointers to items. It grows and shrinks by one bucket at a time (linear hashing), so that
 * no insert or delete ever pauses for a resize, and the load factor is the same at every size.
 *
 * A bucket is one cache line of eight slots. A slot is a pointer with 16 bits of the item's hash in its
 * unused upper bits (the tag), so that a lookup reads an item only if it is almost certainly the right one.
 *
 *   segments        buckets, 1024 per segment
 *   +---+           +---------+---------+---------+-----+
 *   | 0 | --------> | bucket  | bucket  | bucket  |  …  |    the first segment starts with one bucket
 *   +---+           +---------+---------+---------+-----+    and doubles until it is full
 *   | 1 | ----> …        |
 *   +---+                v  64 bytes, aligned
 *                  +------+------+------+------+------+------+------+------+
 *                  | slot | slot | slot | slot | slot | slot | slot | slot |    the last slot may be
 *                  +------+------+------+------+------+------+------+------+    a link to …
 *                     |                                                |
 *                     v                                                +--> an overflow bucket (same layout)
 *            63        48 47                       3 2   0
 *           +------------+--------------------------+-----+
 *           | tag: upper | item pointer             | 000 |    an item;  0: a free slot
 *           | hash bits  | overflow bucket pointer  | 001 |    a link (tag 0)
 *           +------------+--------------------------+-----+
 *
 * A hash selects its bucket by its low bits: `level + 1` of them for buckets that have been split already,
 * else `level`. `split` is the next bucket to split:
 *
 *     bucket    0 … split-1      split … 2^level-1     2^level … 2^level+split-1
 *               split already    not split yet         the new halves of the first group
 *     bits      level + 1        level                 level + 1
 *
 * Ownership: the table owns its buckets, the caller owns the items. An item must be 8-byte aligned; if it
 * moves, the caller calls table_replace. The caller computes hashes with table_hash(); the table calls
 * key_of() only to compare keys and to redistribute a bucket. */
#ifndef MAYFLY_DS_TABLE_H
#define MAYFLY_DS_TABLE_H

#include "base/bytes.h"
#include "base/hash.h"

typedef bytes (*table_key_fn)(const void *item);
typedef void (*table_fn)(void *arg, void *item);

struct table_bucket;

struct table {
    table_key_fn key_of;
    u64 seed;
    u64 count;      /* items */
    u64 buckets;    /* primary buckets: 2^level + split */
    u64 split;      /* the next bucket to split, < 2^level */
    u32 level;
    u32 overflow;   /* overflow buckets in use */
    struct table_bucket **segments;
    u32 segment_cap;
    u32 first_cap;  /* capacity of the first segment, while it is the only one */
};

void table_init(struct table *t, table_key_fn key_of, u64 seed);
void table_release(struct table *t); /* frees the buckets, not the items */

static inline u64 table_hash(const struct table *t, bytes key) { return hash_bytes(key, t->seed); }

void *table_find(const struct table *t, bytes key, u64 hash); /* NULL if absent */
void table_insert(struct table *t, u64 hash, void *item);     /* the key must be absent */
void table_remove(struct table *t, u64 hash, const void *item); /* must be present */
void table_replace(struct table *t, u64 hash, const void *item, void *by); /* `by` has the same key */

/* Makes room for this many items, so that inserting them splits no bucket. Removing items shrinks the table
 * again. */
void table_reserve(struct table *t, u64 items);

/* The first item with exactly this hash for which `want` returns true; NULL: none. */
void *table_find_hash(const struct table *t, u64 hash, bool (*want)(void *arg, void *item), void *arg);

/* Prefetch the bucket, then the likely item, ahead of a lookup. */
void table_prefetch_bucket(const struct table *t, u64 hash);
/* The item's first `bytes`. Returns the item, which may be another one, or NULL although it is there. */
const void *table_prefetch_item(const struct table *t, u64 hash, u32 bytes);

/* Visits one bucket and returns the next cursor, 0 after the last bucket. An item that is in the table during
 * the whole scan is visited at least once, even if the table grows or shrinks between calls. fn must not
 * change the table. */
u64 table_scan(const struct table *t, u64 cursor, table_fn fn, void *arg);

/* Prefetch for a scan that continues at `cursor`: the items of the bucket after it (the first `bytes` of
 * each), and the bucket after that one. Called before every step, it hides the memory latency of a long
 * scan. */
void table_scan_ahead(const struct table *t, u64 cursor, u32 bytes);

/* A random item, each about equally likely; NULL if empty. */
void *table_random(const struct table *t, u64 *rng);

/* Iterates over all items while the table does not change. Start with a zeroed struct. */
struct table_iter {
    u64 bucket;
    const struct table_bucket *at;
    u32 slot;
};
void *table_next(const struct table *t, struct table_iter *it); /* NULL at the end */

/* Removes about `max` items, from the last bucket backward, calling fn for each: a large table is freed in
 * slices. True when the table is empty. */
bool table_drain(struct table *t, u32 max, table_fn fn, void *arg);

size_t table_memory(const struct table *t);

#endif
