/* Exact number of keys per bucket of the deadline index: the rows 'b' of meta_info (state.h), in memory.
 * About 100 buckets per level are in use. */
#ifndef MAYFLY_ENGINE_ROCKS_DUE_DUE_COUNTS_H
#define MAYFLY_ENGINE_ROCKS_DUE_DUE_COUNTS_H

#include <pthread.h>

#include "ds/due_cells.h"
#include "ds/table.h"
#include "engine/rocks/due/due_row.h"

struct due_bucket {
    struct due_bucket_name {
        u64 index, level;
        i64 bucket;
    } name;
    u64 keys;
    u64 past_start; /* sum of their deadlines, each less the bucket's start, modulo 2^64 */
    bool changed;
    struct due_bucket *next_changed;
    struct due_cell cell[DUE_CELLS];
};

struct due_counts {
    struct table buckets;
    struct due_bucket *changed; /* since due_counts_settle */
};

void due_counts_init(struct due_counts *t, u64 seed);
void due_counts_clear(struct due_counts *t); /* frees everything; it can be used again */

static inline i64 due_bucket_start(u32 level, i64 bucket)
{
    return (i64)((u64)bucket << DUE_PLACE_SHIFT(level));
}

/* Adds (n = 1) or removes (n = -1) a key with this deadline, filed at p. */
void due_counts_add(struct due_counts *t, u64 index, struct due_place p, i64 deadline_ms, int n);
/* Sets a bucket's counts to zero; due_counts_settle frees it. */
void due_counts_empty(struct due_counts *t, struct due_bucket *b);
/* Copies a bucket that t does not have. */
void due_counts_copy(struct due_counts *t, const struct due_bucket *b);

/* The value of a row 'b', for a bucket with keys: u64 keys · u64 past_start · u64 bitmap of the cells with
 * keys · for each of those varint keys · varint past. Rows written by versions without cells end after
 * past_start; their keys are assumed to be spread evenly. */
void due_counts_append(struct buf *out, const struct due_bucket *b);
bool due_counts_load(struct due_counts *t, u64 index, u32 level, i64 bucket,
                     bytes value); /* false: malformed */

/* When the bucket is visited, and when it ends. */
static inline i64 due_bucket_visit_ms(const struct due_bucket *b)
{
    return due_place_visit_ms((u32)b->name.level, b->name.bucket);
}
static inline i64 due_bucket_end(const struct due_bucket *b)
{
    i64 start = due_bucket_start((u32)b->name.level, b->name.bucket),
        width = 1ll << DUE_PLACE_SHIFT(b->name.level);
    return start > INT64_MAX - width ? INT64_MAX : start + width;
}

/* The next bucket of a database (0: of any) that holds keys; NULL: no further one. */
struct due_bucket *due_counts_next(const struct due_counts *t, struct table_iter *it, u64 index);

/* Calls fn for each changed bucket, and frees those that are empty. */
void due_counts_settle(struct due_counts *t, void (*fn)(void *arg, const struct due_bucket *b), void *arg);

/* The counts of a database, shared by the engines of all regions with the same prefix: a forecast is for the
 * node, and splitting or merging regions has no counts to divide. A transaction collects its changes (struct
 * due_change). Commit applies them under the lock and holds it until the batch with the rows 'b' is written,
 * so that the rows are written in the order of the changes. Several transactions of a thread may be written
 * together: each holds the lock. */
struct due_shared {
    struct due_shared *next;
    u64 prefix;
    pthread_mutex_t lock;
    struct due_counts counts; /* as stored */
    bool loaded;
};

struct due_change {
    u64 index;
    struct due_place at;
    i64 deadline_ms;
    int n; /* 1 or -1 */
};

struct due_shared *due_shared_new(u64 prefix, u64 seed);
void due_shared_free(struct due_shared *c); /* and those after it; NULL is fine */

#endif
