/* Where a deadline is filed in the deadline index: a pure function of the deadline and of how
 * far the index has been drained, so that nobody has to remember it.
 *
 * A classical hierarchical timing wheel: level L has buckets 64 ms · 64^L wide, and a deadline
 * lies in its bucket of the highest level at which that is another bucket than the drain's. A
 * bucket of level 0 is visited when it ends, a coarser one when it starts; what is then found
 * alive is filed anew, which by this rule is always a later visit. */
#ifndef MAYFLY_ENGINE_ROCKS_PLACE_H
#define MAYFLY_ENGINE_ROCKS_PLACE_H

#include "base/types.h"

#define PLACE_LEVELS 10
#define PLACE_SHIFT(level) (6 + 6 * (level)) /* log2 of the bucket width in ms */

struct place {
    i64 due_ms; /* when the bucket is visited */
    i64 bucket; /* deadline >> PLACE_SHIFT(level) */
    u8 level;
};

static inline struct place place_of(i64 deadline_ms, i64 drained_ms)
{
    int level = 0;
    if (deadline_ms >> PLACE_SHIFT(0) > drained_ms >> PLACE_SHIFT(0)) {
        u64 differs = (u64)(deadline_ms ^ drained_ms) >> PLACE_SHIFT(0);
        level = (63 - __builtin_clzll(differs)) / 6;
        if (level >= PLACE_LEVELS) level = PLACE_LEVELS - 1;
    }
    i64 bucket = deadline_ms >> PLACE_SHIFT(level);
    i64 due_ms = level ? bucket << PLACE_SHIFT(level) : (bucket + 1) << PLACE_SHIFT(0);
    return (struct place){.due_ms = due_ms, .bucket = bucket, .level = (u8)level};
}

#endif
