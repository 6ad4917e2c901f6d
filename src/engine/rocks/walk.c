/* Walks over a collection: what is stored, merged with what the transaction has changed. */
#include "engine/rocks/delta.h"
#include "engine/rocks/type/rows.h"

#define SKIPPED_MANY 8 /* tombstones skipped before a row was found, from which on the gap is recorded */

/* The i-th ordered change in the walk's direction. */
static struct change *ordered_at(const struct walk *w, u32 i)
{
    return w->row->delta->order.v[w->reverse ? w->n - 1 - i : i];
}

/* How many ordered changes precede sub in the walk's direction; `through`: or equal it. */
static u32 changes_before(const struct walk *w, bytes sub, bool through)
{
    u32 low = 0, high = w->n;
    while (low < high) {
        u32 mid = low + (high - low) / 2;
        int c = bytes_cmp(ordered_at(w, mid)->sub, sub);
        if (w->reverse) c = -c;
        if (c < 0 || (through && c == 0)) low = mid + 1;
        else high = mid;
    }
    return low;
}

static bytes walk_base_sub(const struct walk *w)
{
    bytes key = store_key(w->base);
    return bytes_of(key.p + w->prefix, key.n - w->prefix);
}

static void walk_step_base(struct walk *w)
{
    if (!w->base) return;
    if (w->reverse) store_prev(w->base);
    else store_next(w->base);
}

static bool stand_on(struct walk *w, struct change *c, bytes sub, bytes value)
{
    w->change = c;
    w->sub = sub;
    w->value = value;
    return true;
}

/* Moves the base from within an erased range to the first stored element after it. */
static void skip_erased(struct walk *w, const struct erased_range *range)
{
    if (!w->reverse) {
        store_seek(w->base, delta_key(w->rk, w->row, range->to));
        return;
    }
    store_seek_back(w->base, delta_key(w->rk, w->row, range->from));
    if (store_valid(w->base) && bytes_eq(walk_base_sub(w), range->from)) store_prev(w->base);
}

/* The stored element at the base, or the next one after an erased range. False: there is none. */
static bool next_stored(struct walk *w, bytes *sub)
{
    while (w->base && store_valid(w->base)) {
        *sub = walk_base_sub(w);
        const struct erased_range *range = delta_erased_range(w->row->delta, *sub);
        if (LIKELY(!range)) return true;
        skip_erased(w, range);
    }
    return false;
}

/* Moves to the nearer of the next stored and the next changed element. */
static bool walk_settle(struct walk *w)
{
    bytes sub = {0};
    bool stored = next_stored(w, &sub);
    for (;;) {
        struct change *c = w->at < w->n ? ordered_at(w, w->at) : NULL;
        if (!c && !stored) {
            walk_done(w);
            return false;
        }
        int cmp = !c ? -1 : !stored ? 1 : bytes_cmp(sub, c->sub);
        if (c && stored && w->reverse) cmp = -cmp;
        if (cmp < 0) return stand_on(w, NULL, sub, store_iter_value(w->base));
        if (cmp == 0) { /* the change replaces it */
            walk_step_base(w);
            stored = next_stored(w, &sub);
        }
        if (c->exists) return stand_on(w, c, c->sub, c->value);
        w->at++;
    }
}

/* Moves to a stream's first stored row at or after `from`, past a known gap; records the gap if many
 * tombstones were skipped. */
static void seek_over_gaps(struct walk *w, bytes from)
{
    struct gap *gap = gaps_find(w->row->gaps, from);
    const struct erased_range *range = delta_erased_range(w->row->delta, from);
    if (range && !w->reverse) {
        skip_erased(w, range);
        return;
    }
    if (w->reverse) {
        store_seek_back(w->base, delta_key(w->rk, w->row, gap ? buf_bytes(&gap->from) : from));
        return;
    }
    u64 skipped = store_tombstones_skipped(w->rk->session);
    if (gap && gap->endless) store_seek(w->base, delta_after(w->rk, w->row));
    else store_seek(w->base, delta_key(w->rk, w->row, gap ? buf_bytes(&gap->to) : from));
    if (store_tombstones_skipped(w->rk->session) - skipped < SKIPPED_MANY || w->rk->base.failed) return;
    gaps_record(&w->row->gaps, gap, from, store_valid(w->base) ? walk_base_sub(w) : (bytes){0});
}

bool walk_start(struct walk *w, struct rk *rk, struct row *r, bytes from, bool reverse)
{
    *w = (struct walk){.rk = rk, .row = r, .reverse = reverse};
    delta_ordered(rk, r, &w->n);
    if (from.p) w->at = changes_before(w, from, false);
    if (row_has_base(r)) {
        bytes prefix = delta_prefix(rk, r);
        w->prefix = prefix.n;
        w->base = store_iter(rk->session, row_family(r), prefix, delta_after(rk, r), 0);
        if (from.p && r->type == TYPE_STREAM) seek_over_gaps(w, from);
        else if (from.p) (reverse ? store_seek_back : store_seek)(w->base, delta_key(rk, r, from));
        else (reverse ? store_seek_last : store_seek_first)(w->base);
    }
    return walk_settle(w);
}

bool walk_next(struct walk *w)
{
    if (UNLIKELY(w->n && w->n != w->row->delta->order.n)) { /* more was sorted in */
        w->n = w->row->delta->order.n;
        w->at = changes_before(w, w->sub, true);
    } else if (w->change) {
        w->at++;
    }
    if (!w->change) walk_step_base(w);
    return walk_settle(w);
}

void walk_done(struct walk *w)
{
    if (w->base) store_iter_done(w->base);
    w->base = NULL;
    w->change = NULL;
    w->n = w->at = 0;
}
