/* Where a deadline is filed in the deadline index on disk: a pure function of the deadline and of how
 * far the index has been drained, so that it need not be stored. The rule is that of ds/due_place.h with the
 * drain's position for "now".
 *
 * As the drain moves on, a deadline's place changes only when its row is passed, when it is visited, and by
 * the rule that is always to a later visit; a place of level 0 never changes. */
#ifndef MAYFLY_ENGINE_ROCKS_DUE_DUE_ROW_H
#define MAYFLY_ENGINE_ROCKS_DUE_DUE_ROW_H

#include "ds/due_place.h"
#include "engine/rocks/codec.h"

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
