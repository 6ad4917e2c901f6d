/* How many keys have their deadline in which bucket of the deadline index, exactly: what the rows 'b'
 * of meta_info hold (state.h), in memory. Buckets in use are few: about 100 of each level in use. */
#ifndef MAYFLY_ENGINE_ROCKS_TALLY_H
#define MAYFLY_ENGINE_ROCKS_TALLY_H

#include "ds/table.h"
#include "engine/rocks/place.h"

struct bucket {
    struct bucket_name {
        u64 index, level;
        i64 bucket;
    } name;
    u64 keys;
    u64 past_start; /* sum of their deadlines, each less the bucket's start, modulo 2^64 */
    bool changed;
    struct bucket *next_changed;
};

struct tally {
    struct table buckets;
    struct bucket *changed; /* since tally_write */
};

void tally_init(struct tally *t, u64 seed);
void tally_clear(struct tally *t); /* frees everything; good for use again */

static inline i64 bucket_start(u32 level, i64 bucket) { return (i64)((u64)bucket << PLACE_SHIFT(level)); }

/* Adds n keys to a bucket (negative: takes some out), and this to past_start. */
void tally_add(struct tally *t, u64 index, u32 level, i64 bucket, i64 n, u64 past_start);
/* The same for one key with this deadline, which is filed there; n is 1 or -1. */
static inline void tally_count(struct tally *t, u64 index, struct place p, i64 deadline_ms, int n)
{
    u64 past_start = (u64)deadline_ms - (u64)bucket_start(p.level, p.bucket);
    tally_add(t, index, p.level, p.bucket, n, n > 0 ? past_start : -past_start);
}

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
struct bucket *tally_next(const struct tally *t, struct table_iter *it, u64 index);

/* Calls fn for each bucket that changed, and forgets those that are empty. */
void tally_settle(struct tally *t, void (*fn)(void *arg, const struct bucket *b), void *arg);

#endif
