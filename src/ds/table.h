/* A hash table of pointers that grows and shrinks one bucket at a time
 * (linear hashing), so that no insert or delete ever pauses for a resize and
 * the load stays even whatever the size.
 *
 * A bucket is one cache line of eight slots. A slot is a pointer with 16 bits
 * of the item's hash in its unused upper bits, so that a lookup touches an item
 * only when it is almost certainly the right one. The table owns its buckets,
 * not the items. Callers hash; the table asks for an item's key only to compare
 * and to redistribute a bucket. */
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
    u32 first_cap;  /* buckets the first segment has room for, while it is the only one */
};

void table_init(struct table *t, table_key_fn key_of, u64 seed);
void table_release(struct table *t); /* frees the buckets; the items are the caller's */

static inline u64 table_hash(const struct table *t, bytes key) { return hash_bytes(key, t->seed); }

void *table_find(const struct table *t, bytes key, u64 hash); /* NULL if absent */
void table_insert(struct table *t, u64 hash, void *item);     /* its key must be absent */
void table_remove(struct table *t, u64 hash, const void *item); /* must be present */
void table_replace(struct table *t, u64 hash, const void *item, void *by); /* item moved: same key */

/* Room for so many items: inserting them will split no bucket. It shrinks again as items are removed. */
void table_reserve(struct table *t, u64 items);

/* The first item with exactly this hash for which `want` is true. */
void *table_find_hash(const struct table *t, u64 hash, bool (*want)(void *arg, void *item), void *arg);

/* Bring the bucket, then the likely item, into the cache ahead of a lookup. */
void table_prefetch_bucket(const struct table *t, u64 hash);
void table_prefetch_item(const struct table *t, u64 hash, u32 bytes); /* so many of the item's */

/* Visits one bucket and returns the next cursor, 0 after the last. Every item
 * present during the whole sequence of calls is visited at least once, whatever
 * growth or shrinkage happens in between. fn must not change the table. */
u64 table_scan(const struct table *t, u64 cursor, table_fn fn, void *arg);

/* A scan is about to go on at `cursor`: asks for the items of the bucket after that one (so many bytes of
 * each), and for the bucket after both. Called with every step of a long scan, nothing is waited for. */
void table_scan_ahead(const struct table *t, u64 cursor, u32 bytes);

/* Any item, each about equally likely; NULL if empty. */
void *table_random(const struct table *t, u64 *rng);

/* A walk over all items while the table does not change. Zeroed to start. */
struct table_iter {
    u64 bucket;
    const struct table_bucket *at;
    u32 slot;
};
void *table_next(const struct table *t, struct table_iter *it); /* NULL at the end */

/* Takes items out from the far end, about `max` at a time, so that a big table
 * is freed in slices. True once it is empty. */
bool table_drain(struct table *t, u32 max, table_fn fn, void *arg);

size_t table_memory(const struct table *t);

#endif
