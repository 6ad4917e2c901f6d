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

#define DUE_PLACE_LEVELS 10
#define DUE_PLACE_SHIFT(level) (6 + 6 * (level)) /* log2 of the bucket width in ms */
#define DUE_PLACE_LATEST (INT64_MAX - 64)        /* later deadlines are filed here: avoids overflow */

struct due_place {
    i64 due_ms; /* when the bucket is visited */
    i64 bucket; /* due_place_bucket(level, deadline) */
    u8 level;
};

/* When a bucket is visited: a multiple of its width. */
static inline i64 due_place_visit_ms(u32 level, i64 bucket)
{
    return (i64)((u64)(level ? bucket - 1 : bucket + 1) << DUE_PLACE_SHIFT(level));
}

static inline i64 due_place_bucket(u32 level, i64 deadline_ms)
{
    return MIN(MAX(deadline_ms, 0), DUE_PLACE_LATEST) >> DUE_PLACE_SHIFT(level);
}

static inline struct due_place due_place_of(i64 deadline_ms, i64 now_ms)
{
    u32 level = 0;
    deadline_ms = MIN(MAX(deadline_ms, 0), DUE_PLACE_LATEST);
    if (deadline_ms - now_ms >= 1ll << DUE_PLACE_SHIFT(1)) {
        level = (63 - (u32)__builtin_clzll((u64)(deadline_ms - now_ms) >> DUE_PLACE_SHIFT(0))) / 6;
        level -= (deadline_ms >> DUE_PLACE_SHIFT(level)) - (now_ms >> DUE_PLACE_SHIFT(level)) < 2;
    }
    i64 bucket = deadline_ms >> DUE_PLACE_SHIFT(level);
    return (struct due_place){
        .due_ms = due_place_visit_ms(level, bucket), .bucket = bucket, .level = (u8)level};
}

#endif
