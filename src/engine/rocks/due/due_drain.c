/* Draining the deadline index: visiting the rows that are due, in order, each of them once. An engine visits
 * those of its region's slots; rocks_due visits those of several regions in one pass.
 *
 * Visiting a row: read its key; delete the row and move the position past it; file and count a live key where
 * it belongs now; offer a key that is dead or has dead fields to the caller, who deletes them.
 *
 * Visited rows are deleted one by one. A range deletion per transaction would be fewer bytes, but a queue
 * that is read at its head all the time would soon have thousands of them, and every new iterator has to sort
 * them. No iterator reads the single tombstones, because all of them are below `low`.
 *
 * While the staging databases have keys, nothing is drained: their rows are among the others, but their keys
 * must not be offered, and dead ones would keep the round from ending. */
#include "engine/rocks/due/due.h"
#include "engine/rocks/type/fields.h"

#define TOGETHER 64 /* rows whose keys are read at once */
#define ALIGN_TOGETHER 4096 /* rows visited in a transaction of due_drain_align */

/* A row that is due. */
struct visit {
    bytes raw;
    struct codec_due at;
    struct rk_db *db; /* NULL: no such database */
    u64 hash;
    bool cached; /* the key was in the row cache before this visit */
};

static i64 next_field(struct rk *rk, struct row *r)
{
    return r->type == TYPE_HASH && r->field_deadlines ? fields_nearest(rk, r) : 0;
}

static void add_row(struct due_rows *l, struct row *r)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 16;
        l->v = mem_realloc(l->v, l->cap * sizeof *l->v);
    }
    l->v[l->n++] = r;
}

/* Offers the key if it or one of its fields is dead. If dead fields remain, the key is offered again in this
 * transaction, unless the caller left it untouched. */
static void offer_if_dead(struct rk *rk, struct row *r, i64 field_ms, i64 until_ms, key_fn fn, void *arg)
{
    struct due *d = rk->due;
    if (!alive(r->deadline_ms, until_ms) || !alive(field_ms, until_ms)) {
        struct key_ref ref;
        row_ref(r, row_hash(r->db, row_key(r)), &ref);
        fn(arg, &ref);
        field_ms = next_field(rk, r);
    }
    if (r->touched && !alive(field_ms, until_ms)) add_row(&d->again, r);
    else if (field_ms || rk->base.failed) add_row(&d->visited, r);
}

/* Done at commit, as of the position reached by then: the drain can't meet these rows again before that. */
static void file_fields(struct rk *rk, const struct due_rows *l)
{
    for (u32 i = 0; i < l->n; i++) {
        struct row *r = l->v[i];
        i64 field_ms = next_field(rk, r);
        if (field_ms) due_file_fields(rk, r, field_ms);
        r->stored.field_due_ms = field_ms;
    }
}

void due_drain_commit(struct rk *rk)
{
    file_fields(rk, &rk->due->again);
    file_fields(rk, &rk->due->visited);
}

/* -- one row ---------------------------------------------------------------------------------- */

/* Moves `low` past the row, and the position too if the row is coarse. */
static void due_drain_pass(struct due *d, const struct visit *v)
{
    struct due_place p = {.due_ms = v->at.due_ms, .level = v->at.level};
    struct due_queue *q = &d->queue[due_kind(p.level)];
    q->low_ms = p.due_ms;
    buf_clear(&q->low);
    buf_append_bytes(&q->low, v->raw);
    buf_append_char(&q->low, '\0');
    bool of_round = p.level && p.due_ms > d->at.from_ms;
    if (of_round && due_position_compare(&d->at, p, v->at.index, v->at.slot, v->at.key) > 0)
        due_set_last(d, &v->at);
}

/* Files and counts a key again whose row was just visited. */
static void file_again(struct rk *rk, const struct due_name *n, i64 deadline_ms)
{
    struct due *d = rk->due;
    struct due_place p = due_key_place(d, deadline_ms, n);
    due_count(d, n->index, p, deadline_ms, 1);
    due_file(rk, p, n);
    if (p.level && p.due_ms > d->at.to_ms) d->barrier_ms = MIN(d->barrier_ms, p.due_ms);
}

/* False: the key could not be read, and the row was left as it is.
 *
 * A dead key is removed from the index before it is offered (stored.deadline_ms = 0), so that deleting it
 * need not do that. If the caller leaves the key alone, it is filed again. */
static bool due_drain_visit(struct rk *rk, const struct visit *v, i64 until_ms, key_fn fn, void *arg)
{
    struct due *d = rk->due;
    struct row *r = v->db ? row_get(rk, v->db, v->at.key, v->hash) : NULL;
    i64 field_ms = r ? next_field(rk, r) : 0;
    if (UNLIKELY(rk->base.failed)) return false;
    /* As stored: changes of this transaction are filed at commit. A legacy string was never filed. */
    i64 deadline_ms = r && !r->legacy ? r->stored.deadline_ms : 0;
    struct due_name n = {v->at.index, v->at.slot, v->at.key};
    struct due_place was = due_key_place(d, deadline_ms, &n),
                     here = {.due_ms = v->at.due_ms, .level = v->at.level};
    bool filed_here = deadline_ms && due_place_same(was, here), dead = !alive(deadline_ms, until_ms);
    store_delete(rk->session, FAM_DEADLINE, v->raw);
    d->changed = true;
    due_drain_pass(d, v);
    if (filed_here) {
        due_count(d, n.index, was, deadline_ms, -1);
        if (dead) {
            r->stored.deadline_ms = 0;
        } else {
            file_again(rk, &n, deadline_ms);
            add_row(&d->visited, r);
        }
    }
    if (!r || r->type == TYPE_NONE) return true;
    offer_if_dead(rk, r, field_ms, until_ms, fn, arg);
    if (filed_here && dead && r->type != TYPE_NONE && r->deadline_ms == deadline_ms) {
        r->stored.deadline_ms = deadline_ms;
        file_again(rk, &n, deadline_ms);
    }
    if (!v->cached) r->used = false; /* first to be evicted from the row cache */
    return true;
}

/* -- many rows ---------------------------------------------------------------------------------- */

static void due_drain_step(struct due *d, struct store_iter *it, enum due_kind kind, i64 limit_ms)
{
    store_next(it);
    due_iter_find(d, it, kind, limit_ms);
}

/* Reads up to max rows that are due by limit_ms, from the iterator's position on. */
static u32 due_drain_take(struct rk *rk, struct store_iter *it, enum due_kind kind, i64 limit_ms, u32 max,
                          struct visit *v)
{
    struct buf *names = &rk->due->names;
    size_t length[TOGETHER];
    u32 n = 0;
    buf_clear(names);
    for (struct codec_due at; n < max && store_valid(it); due_drain_step(rk->due, it, kind, limit_ms)) {
        bytes raw = store_key(it);
        if (!codec_due_read(raw, &at)) { /* malformed */
            store_delete(rk->session, FAM_DEADLINE, raw);
            continue;
        }
        if (at.due_ms > limit_ms) break;
        buf_append_bytes(names, raw);
        length[n++] = raw.n;
    }
    size_t from = 0;
    for (u32 i = 0; i < n; from += length[i++]) {
        v[i] = (struct visit){.raw = bytes_of(names->p + from, length[i])};
        codec_due_read(v[i].raw, &v[i].at);
    }
    return n;
}

static void read_keys(struct rk *rk, struct visit *v, u32 n)
{
    struct want want[TOGETHER];
    u32 wants = 0;
    for (u32 i = 0; i < n; i++) {
        struct rk_db *db = v[i].db = rk_db_of(rk, v[i].at.index);
        if (!db) continue;
        v[i].hash = row_hash(db, v[i].at.key);
        v[i].cached = row_peek(rk, db, v[i].at.key, v[i].hash);
        if (!v[i].cached) want[wants++] = (struct want){db->number, v[i].at.key};
    }
    row_prefetch(rk, want, wants);
}

/* Visits up to max rows of a kind that are due by limit_ms. If there were no more, `low` ends up above
 * that. */
static u32 visit_rows(struct rk *rk, enum due_kind kind, i64 limit_ms, i64 until_ms, u32 max, key_fn fn,
                      void *arg)
{
    struct due *d = rk->due;
    struct visit v[TOGETHER];
    struct store_iter *it = due_iter(rk->session, d, kind, limit_ms);
    u32 seen = 0;
    bool all = false;
    while (seen < max && !all && !rk->base.failed) {
        u32 wanted = MIN(max - seen, TOGETHER), n = due_drain_take(rk, it, kind, limit_ms, wanted, v);
        read_keys(rk, v, n);
        for (u32 i = 0; i < n && due_drain_visit(rk, &v[i], until_ms, fn, arg); i++) seen++;
        all = n < wanted && !rk->base.failed;
    }
    if (all) due_raise_low(d, kind, it);
    store_iter_done(it);
    return seen;
}

/* Offers each hash in `again` once; those that still have dead fields are added to the list again. */
static u32 visit_again(struct rk *rk, i64 until_ms, u32 max, key_fn fn, void *arg)
{
    struct due_rows *l = &rk->due->again;
    u32 n = MIN(max, l->n), seen = 0;
    for (; seen < n; seen++) {
        i64 field_ms = next_field(rk, l->v[seen]);
        if (rk->base.failed) break;
        offer_if_dead(rk, l->v[seen], field_ms, until_ms, fn, arg);
    }
    l->n -= seen;
    if (seen) memmove(l->v, l->v + seen, l->n * sizeof *l->v);
    return seen;
}

/* Keys to which this transaction gave a deadline in the past (RENAME of a dead key) are not in the index yet.
 * A dead key that the caller leaves alone is not counted as seen, or it would be offered for ever. */
static u32 visit_touched(struct rk *rk, i64 until_ms, u32 max, key_fn fn, void *arg)
{
    u32 taken = 0;
    for (struct row *r = rk->touched; r && taken < max && !rk->base.failed; r = r->next_touched) {
        i64 deadline_ms = r->deadline_ms, field_ms = next_field(rk, r);
        bool dead = deadline_ms != r->stored.deadline_ms && !alive(deadline_ms, until_ms);
        if (!dead && alive(field_ms, until_ms)) continue;
        offer_if_dead(rk, r, field_ms, until_ms, fn, arg);
        taken += !dead || r->deadline_ms != deadline_ms;
    }
    return taken;
}

/* -- both queues -------------------------------------------------------------------------------- */

static u32 visit_fine(struct rk *rk, i64 until_ms, u32 max, key_fn fn, void *arg)
{
    if (max == 0 || rk->base.failed || rk->due->queue[DUE_FINE].low_ms > until_ms) return 0;
    return visit_rows(rk, DUE_FINE, until_ms, until_ms, max, fn, arg);
}

/* Ends a finished round, and starts one if none is under way. Returns the time up to which to visit rows. */
static i64 enter_round(struct due *d, i64 until_ms)
{
    due_advance(d, until_ms);
    i64 to_ms = MIN(MIN(until_ms, d->barrier_ms - 1), DUE_PLACE_LATEST);
    bool some = d->queue[DUE_COARSE].low_ms <= to_ms;
    if (d->at.from_ms == d->at.to_ms && to_ms > d->at.to_ms && some) d->at.to_ms = to_ms;
    return MIN(until_ms, d->at.to_ms);
}

static u32 visit_coarse(struct rk *rk, i64 until_ms, u32 max, key_fn fn, void *arg)
{
    struct due *d = rk->due;
    u32 seen = 0;
    while (seen < max && !rk->base.failed) {
        i64 limit_ms = enter_round(d, until_ms);
        if (d->queue[DUE_COARSE].low_ms > limit_ms) break;
        seen += visit_rows(rk, DUE_COARSE, limit_ms, until_ms, max - seen, fn, arg);
    }
    return seen;
}

/* Dead keys first. A quarter of the visits is kept for coarse rows, which have to be filed at a finer level
 * before their keys die. */
u32 rk_due(struct engine *e, i64 until_ms, u32 max, key_fn fn, void *arg)
{
    struct rk *rk = rk_of(e);
    if (rk_uses_staging(rk) || !due_usable(rk)) return 0;
    u32 seen = visit_again(rk, until_ms, max - max / 2, fn, arg);
    bool both = rk->due->queue[DUE_COARSE].low_ms <= until_ms;
    seen += visit_fine(rk, until_ms, both ? (max - seen) - (max - seen) / 4 : max - seen, fn, arg);
    seen += visit_coarse(rk, until_ms, max - seen, fn, arg);
    seen += visit_fine(rk, until_ms, max - seen, fn, arg);
    return seen ? seen : visit_touched(rk, until_ms, max, fn, arg);
}

static void due_drain_refuse(void *arg UNUSED, struct key_ref *ref UNUSED) {}

bool due_drain_align(struct rk *rk, i64 position_ms)
{
    struct due *d = rk->due;
    for (u32 seen = 1; seen > 0;) {
        if (!due_usable(rk)) return false;
        seen = visit_coarse(rk, position_ms, ALIGN_TOGETHER, due_drain_refuse, NULL);
        due_advance(d, position_ms);
        d->changed = true;
        if (!rk->base.ops->commit(&rk->base, rk->base.applied)) return false;
    }
    return d->at.from_ms == position_ms && d->at.to_ms == position_ms;
}

/* -- of several regions ---------------------------------------------------------------------------- */

/* Hands rows of the fine queue to the engines of their slots. */
struct dispatch {
    struct engine *const *engines;
    const i64 *until_ms;
    u32 n;
    u32 owner;       /* of the rows taken last */
    struct buf names;
    struct visit v[TOGETHER];
    size_t length[TOGETHER];
    u32 taken;
};

/* True if the engine can't visit anything now. */
static bool dispatch_idle(const struct rk *rk)
{
    return rk->base.failed || rk_uses_staging(rk) || rk->due->unread;
}

static struct rk *owner_of(const struct dispatch *d) { return rk_of(d->engines[d->owner]); }

static bool dispatch_owns(const struct dispatch *d, u32 i, u16 slot)
{
    const struct rocks_region *r = &rk_of(d->engines[i])->region;
    return slot >= r->first && slot <= r->last;
}

/* The index of the engine that owns the slot. Starts at the last owner: rows of a bucket are ordered by
 * slot. */
static u32 dispatch_find(const struct dispatch *d, u16 slot)
{
    for (u32 i = 0; i < d->n; i++)
        if (dispatch_owns(d, (d->owner + i) % d->n, slot)) return (d->owner + i) % d->n;
    return d->n;
}

/* Visits the rows taken, which all belong to one engine. */
static u32 dispatch_visit(struct dispatch *d, key_fn fn, void *arg)
{
    struct rk *rk = owner_of(d);
    size_t from = 0;
    u32 seen = 0;
    for (u32 i = 0; i < d->taken; from += d->length[i++]) {
        d->v[i] = (struct visit){.raw = bytes_of(d->names.p + from, d->length[i])};
        codec_due_read(d->v[i].raw, &d->v[i].at);
    }
    read_keys(rk, d->v, d->taken);
    while (seen < d->taken && due_drain_visit(rk, &d->v[seen], d->until_ms[d->owner], fn, arg)) seen++;
    d->taken = 0;
    buf_clear(&d->names);
    return seen;
}

/* True if the row is due for the engine and not visited yet. */
static bool dispatch_wants(const struct dispatch *d, u32 i, const struct codec_due *at, bytes raw)
{
    const struct rk *rk = rk_of(d->engines[i]);
    const struct due_queue *q = &rk->due->queue[DUE_FINE];
    return !dispatch_idle(rk) && at->due_ms <= d->until_ms[i] && bytes_cmp(raw, buf_bytes(&q->low)) >= 0;
}

/* One pass over the rows of level 0. True: all that are due were seen. */
static bool dispatch_fine(struct dispatch *d, struct store_iter *it, i64 last_ms, u32 max, u32 *seen,
                          key_fn fn, void *arg)
{
    struct buf past = {0};
    struct codec_due at = {.due_ms = INT64_MIN};
    while (store_valid(it) && *seen + d->taken < max) {
        bytes raw = store_key(it);
        if (!codec_due_read(raw, &at)) {
            store_next(it);
            continue;
        }
        if (at.due_ms > last_ms) break;
        if (at.level) { /* coarse: skip the block, as in due_iter_find */
            buf_clear(&past);
            append_u64(&past, at.region);
            append_u64(&past, (u64)at.due_ms + 1);
            store_seek(it, buf_bytes(&past));
            continue;
        }
        u32 owner = dispatch_find(d, at.slot);
        if (owner < d->n && dispatch_wants(d, owner, &at, raw)) {
            if (d->taken && (owner != d->owner || d->taken == TOGETHER)) *seen += dispatch_visit(d, fn, arg);
            d->owner = owner;
            buf_append_bytes(&d->names, raw);
            d->length[d->taken++] = raw.n;
        }
        store_next(it);
    }
    bool all = !store_valid(it) || at.due_ms > last_ms;
    if (d->taken) *seen += dispatch_visit(d, fn, arg);
    buf_release(&past);
    return all;
}

u32 rocks_due(struct engine *const *engines, const i64 *until_ms, u32 n, u32 max, key_fn fn, void *arg)
{
    struct dispatch d = {.engines = engines, .until_ms = until_ms, .n = n};
    const struct due_queue *first = NULL;
    i64 last_ms = INT64_MIN;
    u32 seen = 0;
    for (u32 i = 0; i < n; i++) {
        struct rk *rk = rk_of(engines[i]);
        if (!due_usable(rk)) continue;
        const struct due_queue *q = &rk->due->queue[DUE_FINE];
        if (!first || bytes_cmp(buf_bytes(&q->low), buf_bytes(&first->low)) < 0) first = q;
        last_ms = MAX(last_ms, until_ms[i]);
    }
    if (first && first->low_ms <= last_ms) {
        char end[8];
        struct rk *rk = rk_of(engines[0]);
        put_u64(end, rk->region.prefix + 1);
        bytes from = buf_bytes(&first->low), to = bytes_of(end, sizeof end);
        struct store_iter *it = store_iter(rk->session, FAM_DEADLINE, from, to, STORE_ONCE);
        store_seek_first(it);
        bool all = dispatch_fine(&d, it, last_ms, max - max / 4, &seen, fn, arg) && !rk->base.failed;
        for (u32 i = 0; all && i < n; i++) {
            struct rk *each = rk_of(engines[i]);
            if (!dispatch_idle(each) && each->due->queue[DUE_FINE].low_ms <= until_ms[i])
                due_set_low(each->due, DUE_FINE, until_ms[i] + 1);
        }
        store_iter_done(it);
    }
    buf_release(&d.names);
    for (u32 i = 0; i < n && seen < max; i++) {
        struct rk *rk = rk_of(engines[i]);
        if (dispatch_idle(rk)) continue;
        seen += visit_again(rk, until_ms[i], max - seen, fn, arg);
        seen += visit_coarse(rk, until_ms[i], max - seen, fn, arg);
    }
    for (u32 i = 0; seen == 0 && i < n; i++)
        if (!dispatch_idle(rk_of(engines[i])))
            seen += visit_touched(rk_of(engines[i]), until_ms[i], max, fn, arg);
    return seen;
}
