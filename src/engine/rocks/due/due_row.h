/* Where a deadline is filed in the deadline index on disk: a pure function of the deadline and of how far the
 * index has been drained, so it is not stored. The rule is that of ds/due_place.h with the drain's position
 * as "now".
 *
 * A deadline's place changes only when the drain visits its row, and always to a later visit. A place of
 * level 0 never changes. */
#ifndef MAYFLY_ENGINE_ROCKS_DUE_DUE_ROW_H
#define MAYFLY_ENGINE_ROCKS_DUE_DUE_ROW_H

#include "ds/due_place.h"
#include "engine/rocks/codec.h"

/* How far the index has been drained. The drain works in rounds. A round visits every row that is due after
 * from_ms and by to_ms, in order, and may take many transactions. Rows it has visited are filed as of its
 * end, all others as of its start: so nothing is visited twice in a round, and every place is known exactly
 * in the middle of one, too. Between rounds from_ms == to_ms.
 *
 * Deadlines before from_ms stay in their bucket of level 0. It has rows only if the clock was set back or a
 * dead key was left alone. */
struct due_position {
    i64 from_ms, to_ms;
    i64 low_ms;            /* no row is due before this */
    struct codec_due last; /* the last row the round has visited; zeroed: none */
};

static inline int due_position_compare(const struct due_position *d, struct due_place p, u64 index, u16 slot,
                                       bytes key)
{
    const struct codec_due *l = &d->last;
    if (p.due_ms != l->due_ms) return p.due_ms < l->due_ms ? -1 : 1;
    if (p.level != l->level) return p.level < l->level ? -1 : 1;
    if (index != l->index) return index < l->index ? -1 : 1;
    if (slot != l->slot) return slot < l->slot ? -1 : 1;
    return bytes_cmp(key, l->key);
}

/* Where a key with this deadline is filed now. */
static inline struct due_place due_place_now(const struct due_position *d, i64 deadline_ms, u64 index,
                                             u16 slot, bytes key)
{
    struct due_place p = due_place_of(deadline_ms, d->from_ms);
    if (LIKELY(d->from_ms == d->to_ms) || due_position_compare(d, p, index, slot, key) > 0) return p;
    return due_place_of(deadline_ms, d->to_ms);
}

/* The row 'p' of meta_info: i64 from_ms · i64 to_ms · i64 low_ms · the last row, unless between rounds. */
static inline void due_position_append(struct buf *out, const struct due_position *d)
{
    append_u64(out, (u64)d->from_ms);
    append_u64(out, (u64)d->to_ms);
    append_u64(out, (u64)d->low_ms);
    if (d->last.due_ms) codec_due(out, &d->last);
}

/* False: malformed. The last row's key points into raw. */
static inline bool due_position_read(bytes raw, struct due_position *d)
{
    *d = (struct due_position){0};
    if (raw.n < 24) return false;
    d->from_ms = (i64)get_u64(raw.p);
    d->to_ms = (i64)get_u64(raw.p + 8);
    d->low_ms = (i64)get_u64(raw.p + 16);
    bool sound = d->from_ms >= 0 && d->from_ms <= d->to_ms;
    return sound && (raw.n == 24 || codec_due_read(bytes_of(raw.p + 24, raw.n - 24), &d->last));
}

#endif
