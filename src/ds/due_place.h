/* Where a deadline is filed: the rule shared by the timing wheel in memory (wheel.h) and the deadline index
 * on disk (engine/rocks/due/due_row.h).
 *
 * Level L has buckets 64 ms · 64^L wide. A deadline is filed at the highest level at which its bucket is at
 * least two after the bucket of now; if there is none, at level 0. Buckets of level 0 are visited when they
 * end, coarser ones one width before they start. So as long as visits are on time, a deadline in a coarse
 * bucket is at least one bucket width away, which bounds the error of a forecast (due_cells.h). */
#ifndef MAYFLY_DS_DUE_PLACE_H
#define MAYFLY_DS_DUE_PLACE_H

#include "base/types.h"

#define PLACE_LEVELS 10
#define PLACE_SHIFT(level) (6 + 6 * (level)) /* log2 of the bucket width in ms */
#define PLACE_LATEST (INT64_MAX - 64)        /* later deadlines are filed here: avoids overflow */

struct place {
    i64 due_ms; /* when the bucket is visited */
    i64 bucket; /* place_bucket(level, deadline) */
    u8 level;
};

/* When a bucket is visited: a multiple of its width. */
static inline i64 place_due(u32 level, i64 bucket)
{
    return (i64)((u64)(level ? bucket - 1 : bucket + 1) << PLACE_SHIFT(level));
}

static inline i64 place_bucket(u32 level, i64 deadline_ms)
{
    return MIN(MAX(deadline_ms, 0), PLACE_LATEST) >> PLACE_SHIFT(level);
}

static inline struct place place_of(i64 deadline_ms, i64 now_ms)
{
    u32 level = 0;
    deadline_ms = MIN(MAX(deadline_ms, 0), PLACE_LATEST);
    if (deadline_ms - now_ms >= 1ll << PLACE_SHIFT(1)) {
        level = (63 - (u32)__builtin_clzll((u64)(deadline_ms - now_ms) >> PLACE_SHIFT(0))) / 6;
        level -= (deadline_ms >> PLACE_SHIFT(level)) - (now_ms >> PLACE_SHIFT(level)) < 2;
    }
    i64 bucket = deadline_ms >> PLACE_SHIFT(level);
    return (struct place){.due_ms = place_due(level, bucket), .bucket = bucket, .level = (u8)level};
}

#endif
