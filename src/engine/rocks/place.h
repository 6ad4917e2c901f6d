/* Where a deadline is filed in the deadline index: a pure function of the deadline and of how
 * far the index has been drained, so that nobody has to remember it.
 *
 * A hierarchical timing wheel: level L has buckets 64 ms · 64^L wide. A deadline lies in its bucket of the
 * highest level at which that is at least the second after the drain's; else in its bucket of level 0.
 * So a bucket is never wider than the time that is left. Those of level 0 are visited when they end,
 * coarser ones a whole width before they start: there is time to file anew what is found alive, which by
 * this rule is always a later visit. As the drain moves on, a deadline's place changes only when its row
 * is passed, when it is visited; a place of level 0 never does. */
#ifndef MAYFLY_ENGINE_ROCKS_PLACE_H
#define MAYFLY_ENGINE_ROCKS_PLACE_H

#include "engine/rocks/codec.h"

#define PLACE_LEVELS 10
#define PLACE_SHIFT(level) (6 + 6 * (level)) /* log2 of the bucket width in ms */
#define PLACE_LATEST (INT64_MAX - 64)        /* deadlines beyond are filed as this one: no visit overflows */

struct place {
    i64 due_ms; /* when the bucket is visited */
    i64 bucket; /* deadline >> PLACE_SHIFT(level) */
    u8 level;
};

/* When a bucket is visited: a multiple of its width. */
static inline i64 place_due(u32 level, i64 bucket)
{
    return (i64)((u64)(level ? bucket - 1 : bucket + 1) << PLACE_SHIFT(level));
}

static inline struct place place_of(i64 deadline_ms, i64 drained_ms)
{
    u32 level = 0;
    deadline_ms = MIN(MAX(deadline_ms, 0), PLACE_LATEST);
    if (deadline_ms - drained_ms >= 1ll << PLACE_SHIFT(1)) {
        level = (63 - (u32)__builtin_clzll((u64)(deadline_ms - drained_ms) >> PLACE_SHIFT(0))) / 6;
        level -= (deadline_ms >> PLACE_SHIFT(level)) - (drained_ms >> PLACE_SHIFT(level)) < 2;
    }
    i64 bucket = deadline_ms >> PLACE_SHIFT(level);
    return (struct place){.due_ms = place_due(level, bucket), .bucket = bucket, .level = (u8)level};
}

/* How far the index has been drained. That goes in rounds, each of which visits every row that is
 * due after from_ms and by to_ms, in order, and may take many transactions. What a round has
 * visited is filed as of its end, everything else as of its beginning: so nothing is visited
 * twice in one round, and a place is known exactly in the middle of one, too. Between rounds
 * from_ms == to_ms.
 *
 * Deadlines before from_ms are in their own bucket of level 0 for good: either nobody has visited
 * it yet because the clock was set back, or the dead key it held was left alone. */
struct drain {
    i64 from_ms, to_ms;
    i64 low_ms;            /* no row is due before this */
    struct codec_due last; /* of a round: the last row visited; zeroed: none */
};

static inline int drain_compare(const struct drain *d, struct place p, u64 index, u16 slot, bytes key)
{
    const struct codec_due *l = &d->last;
    if (p.due_ms != l->due_ms) return p.due_ms < l->due_ms ? -1 : 1;
    if (p.level != l->level) return p.level < l->level ? -1 : 1;
    if (index != l->index) return index < l->index ? -1 : 1;
    if (slot != l->slot) return slot < l->slot ? -1 : 1;
    return bytes_cmp(key, l->key);
}

/* Where a key with this deadline is filed now. */
static inline struct place place_now(const struct drain *d, i64 deadline_ms, u64 index, u16 slot, bytes key)
{
    struct place p = place_of(deadline_ms, d->from_ms);
    if (LIKELY(d->from_ms == d->to_ms) || drain_compare(d, p, index, slot, key) > 0) return p;
    return place_of(deadline_ms, d->to_ms);
}

/* The row 'p' of meta_info: i64 from_ms · i64 to_ms · i64 low_ms · the last row, unless between rounds. */
static inline void drain_append(struct buf *out, const struct drain *d)
{
    append_u64(out, (u64)d->from_ms);
    append_u64(out, (u64)d->to_ms);
    append_u64(out, (u64)d->low_ms);
    if (d->last.due_ms) codec_due(out, &d->last);
}

/* False: malformed. The last row's key points into raw. */
static inline bool drain_read(bytes raw, struct drain *d)
{
    *d = (struct drain){0};
    if (raw.n < 24) return false;
    d->from_ms = (i64)get_u64(raw.p);
    d->to_ms = (i64)get_u64(raw.p + 8);
    d->low_ms = (i64)get_u64(raw.p + 16);
    bool sound = d->from_ms >= 0 && d->from_ms <= d->to_ms;
    return sound && (raw.n == 24 || codec_due_read(bytes_of(raw.p + 24, raw.n - 24), &d->last));
}

#endif
