/* How many keys have their deadline in which bucket of the deadline index, exactly: what the rows 'b'
 * of meta_info hold (state.h), in memory. Buckets in use are few: about 100 of each level in use. */
#ifndef MAYFLY_ENGINE_ROCKS_DUE_DUE_COUNTS_H
#define MAYFLY_ENGINE_ROCKS_DUE_DUE_COUNTS_H

#include <pthread.h>

#include "ds/due_cells.h"
#include "ds/table.h"
#include "engine/rocks/due/due_row.h"

struct bucket {
    struct bucket_name {
        u64 index, level;
        i64 bucket;
    } name;
    u64 keys;
    u64 past_start; /* sum of their deadlines, each less the bucket's start, modulo 2^64 */
    bool changed;
    struct bucket *next_changed;
    struct due_cell cell[DUE_CELLS];
};

struct due_counts {
    struct table buckets;
    struct bucket *changed; /* since due_counts_settle */
};

void due_counts_init(struct due_counts *t, u64 seed);
void due_counts_clear(struct due_counts *t); /* frees everything; good for use again */

static inline i64 bucket_start(u32 level, i64 bucket) { return (i64)((u64)bucket << PLACE_SHIFT(level)); }

/* Counts a key with this deadline, which is filed there, in (n = 1) or out (n = -1). */
void due_counts_add(struct due_counts *t, u64 index, struct place p, i64 deadline_ms, int n);
/* Counts all keys of a bucket out; it stays until due_counts_settle. */
void due_counts_empty(struct due_counts *t, struct bucket *b);
/* Adds a bucket with all its counts to a tally that does not have it. */
void due_counts_copy(struct due_counts *t, const struct bucket *b);

/* The value of a row 'b', for a bucket that has keys: u64 keys · u64 past_start · u64 which cells have keys ·
 * for each of those varint keys · varint past. Rows from before there were cells end after past_start: their
 * keys are taken to be spread evenly. */
void due_counts_append(struct buf *out, const struct bucket *b);
bool due_counts_load(struct due_counts *t, u64 index, u32 level, i64 bucket,
                     bytes value); /* false: malformed */

/* When the bucket is visited, and when it ends. */
static inline i64 bucket_due(const struct bucket *b)
{
    return place_due((u32)b->name.level, b->name.bucket);
}
static inline i64 bucket_end(const struct bucket *b)
{
    i64 start = bucket_start((u32)b->name.level, b->name.bucket), width = 1ll << PLACE_SHIFT(b->name.level);
    return start > INT64_MAX - width ? INT64_MAX : start + width;
}

/* The next bucket of a database (0: of any) that holds keys; NULL: no further one. */
struct bucket *due_counts_next(const struct due_counts *t, struct table_iter *it, u64 index);

/* Calls fn for each bucket that changed, and forgets those that are empty. */
void due_counts_settle(struct due_counts *t, void (*fn)(void *arg, const struct bucket *b), void *arg);

/* The counts of a database, shared by the engines of all regions with one prefix: a forecast is the node's,
 * and what a split or a merge would have to divide is not. A transaction collects its changes (struct
 * due_change); commit applies them under the lock, which is held until the batch with the rows 'b' is
 * written, so that they are written in the order in which they were counted. */
struct due_shared {
    struct due_shared *next;
    u64 prefix;
    pthread_mutex_t lock;
    struct due_counts counts; /* as stored */
    bool loaded;
};

struct due_change {
    u64 index;
    struct place at;
    i64 deadline_ms;
    int n; /* 1 or -1 */
};

struct due_shared *due_shared_new(u64 prefix, u64 seed);
void due_shared_free(struct due_shared *c); /* and those after it; NULL is fine */

#endif
