/* Queries on deadlines: the next one, forecasts, a random key that has one. The answers include the open
 * transaction's changes. Those are filed and counted only at commit, so the rows it touched are looked at one
 * by one. */
#include "base/rand.h"
#include "engine/rocks/due/due.h"
#include "engine/rocks/type/fields.h"

#define RANDOM_RUN 16 /* neighbouring rows to choose from */
#define RANDOM_TRIES 8
#define LOOK_AT 256     /* touched rows that a random key may be among */

/* -- when ----------------------------------------------------------------------------------- */

static i64 due_query_due_at(const struct due *d, const struct row *r, i64 deadline_ms)
{
    if (!deadline_ms) return INT64_MAX;
    struct due_name n = due_name(r);
    return due_key_place(d, deadline_ms, &n).due_ms;
}

static i64 own_due(struct rk *rk, const struct row *r)
{
    return due_query_due_at(rk->due, r, r->deadline_ms != r->stored.deadline_ms ? r->deadline_ms : 0);
}

static i64 fields_due(struct rk *rk, struct row *r)
{
    return due_query_due_at(rk->due, r,
                            r->type == TYPE_HASH && r->field_deadlines ? fields_nearest(rk, r) : 0);
}

static i64 due_query_soonest(struct engine *e)
{
    struct rk *rk = rk_of(e);
    struct due *d = rk->due;
    i64 next = MIN(due_soonest(d, DUE_FINE), due_soonest(d, DUE_COARSE));
    if (d->unread || d->again.n) next = e->now_ms;
    for (u32 i = 0; i < d->visited.n; i++) next = MIN(next, fields_due(rk, d->visited.v[i]));
    for (struct row *r = rk->touched; r; r = r->next_touched)
        next = MIN(next, MIN(own_due(rk, r), fields_due(rk, r)));
    return next;
}

/* Nothing is drained while the staging databases have keys (due_drain.c). */
static i64 due_query_next_due(struct engine *e)
{
    return rk_uses_staging(rk_of(e)) ? INT64_MAX : due_query_soonest(e);
}

/* Rows of field deadlines are not counted per database, so any row in the index means "maybe". */
static bool due_query_has_deadlines(struct engine *e, u32 db)
{
    return rk_of(e)->dbs[db]->expires > 0 || due_query_soonest(e) != INT64_MAX;
}

/* -- how many --------------------------------------------------------------------------------- */

static void report_spans(const struct due_counts *t, u64 index, due_span_fn fn, void *arg)
{
    struct table_iter it = {0};
    for (struct due_bucket *b; (b = due_counts_next(t, &it, index));)
        due_cells_each(b->cell, (u32)b->name.level, b->name.bucket, fn, arg);
}

/* Adds the changes of rows touched by the transaction. */
static void count_touched(struct rk *rk, const struct rk_db *db, struct due_counts *t)
{
    for (struct row *r = rk->touched; r; r = r->next_touched) {
        i64 old_ms = r->stored.deadline_ms, new_ms = r->deadline_ms;
        if (r->db != db || old_ms == new_ms) continue;
        struct due_name n = due_name(r);
        if (old_ms) due_counts_add(t, db->index, due_key_place(rk->due, old_ms, &n), old_ms, -1);
        if (new_ms) due_counts_add(t, db->index, due_key_place(rk->due, new_ms, &n), new_ms, 1);
    }
}

/* A copy of a database's counts as they will be after the commit. False: they can't be read. */
static bool counts_then(struct rk *rk, const struct rk_db *db, struct due_counts *then)
{
    struct due *d = rk->due;
    struct table_iter it = {0};
    if (!due_lock(rk)) return false;
    due_counts_init(then, d->shared->counts.buckets.seed);
    bool emptied = false;
    for (size_t at = 0; at < d->emptied.n; at += 8) emptied |= get_u64(d->emptied.p + at) == db->index;
    for (struct due_bucket *b; !emptied && (b = due_counts_next(&d->shared->counts, &it, db->index));)
        due_counts_copy(then, b);
    due_unlock(d);
    for (u32 i = 0; i < d->changes_n; i++) {
        const struct due_change *c = &d->changes[i];
        if (c->index == db->index) due_counts_add(then, c->index, c->at, c->deadline_ms, c->n);
    }
    if (!rk->touched) return true;
    due_advance(d, rk_clock(rk)); /* as the commit will, before it files them */
    count_touched(rk, db, then);
    return true;
}

/* The mean deadline of a database over the whole node: its regions share the counts. */
double due_mean(struct rk *rk, const struct rk_db *db)
{
    struct due_counts then;
    struct table_iter it = {0};
    double sum = 0, keys = 0;
    if (!counts_then(rk, db, &then)) return 0;
    for (struct due_bucket *b; (b = due_counts_next(&then, &it, db->index));) {
        i64 start = due_bucket_start((u32)b->name.level, b->name.bucket);
        sum += (double)start * (double)b->keys + (double)b->past_start;
        keys += (double)b->keys;
    }
    due_counts_clear(&then);
    return keys > 0 ? sum / keys : 0;
}

/* Includes the buckets of overdue keys, which shows how late they are. */
static void due_query_forecast(struct engine *e, u32 number, due_span_fn fn, void *arg)
{
    struct rk *rk = rk_of(e);
    const struct rk_db *db = rk->dbs[number];
    struct due_counts then;
    if (!counts_then(rk, db, &then)) return;
    report_spans(&then, db->index, fn, arg);
    due_counts_clear(&then);
}

/* -- random keys --------------------------------------------------------------------------------- */

static bool is_volatile(struct row *r, struct key_ref *ref)
{
    if (r->type == TYPE_NONE || !r->deadline_ms) return false;
    row_ref(r, row_hash(r->db, row_key(r)), ref);
    return true;
}

/* A random one of the touched rows with a deadline, among the first `max` touched rows; *n: how many. */
static struct row *draw_touched(struct rk *rk, const struct rk_db *db, u32 max, u64 *rng, u64 *n)
{
    struct row *drawn = NULL;
    *n = 0;
    for (struct row *r = rk->touched; r && max; r = r->next_touched, max--) {
        if (r->db != db || r->type == TYPE_NONE || !r->deadline_ms) continue;
        if (rand_below(rng, ++*n) == 0) drawn = r;
    }
    return drawn;
}

/* A random bucket, weighted by the number of its keys. */
static bool draw_bucket(struct rk *rk, u64 index, u64 *rng, u64 *keys, struct due_bucket *out)
{
    const struct due_counts *t = &rk->due->shared->counts;
    struct table_iter it = {0}, again = {0};
    bool found = false;
    *keys = 0;
    if (!due_lock(rk)) return false;
    for (struct due_bucket *b; (b = due_counts_next(t, &it, index));) *keys += b->keys;
    u64 at = *keys ? rand_below(rng, *keys) : 0;
    for (struct due_bucket *b; !found && (b = due_counts_next(t, &again, index)); at -= b->keys) {
        found = at < b->keys;
        if (found) out->name = b->name;
    }
    due_unlock(rk->due);
    return found;
}

/* An iterator over this region's rows of a bucket. */
static struct store_iter *bucket_rows(struct rk *rk, const struct due_bucket *b)
{
    struct due *d = rk->due;
    struct buf to = {0};
    struct due_place p = {.due_ms = due_bucket_visit_ms(b), .level = (u8)b->name.level};
    struct due_name after = {.index = b->name.index, .slot = (u16)(rk->region.last + 1)};
    buf_append_bytes(&to, due_row(d, p, &after));
    bytes from = due_row(d, p, &(struct due_name){.index = b->name.index, .slot = rk->region.first});
    struct store_iter *it = store_iter(rk->session, FAM_DEADLINE, from, buf_bytes(&to), STORE_ONCE);
    buf_release(&to);
    return it;
}

static bool at_row(struct rk *rk, struct rk_db *db, bytes raw, struct key_ref *ref)
{
    struct codec_due at;
    return codec_due_read(raw, &at) && is_volatile(row_get(rk, db, at.key, row_hash(db, at.key)), ref);
}

/* A random one of the first RANDOM_RUN rows from a random slot on. */
static bool draw_row(struct rk *rk, struct rk_db *db, const struct due_bucket *b, u64 *rng,
                     struct key_ref *ref)
{
    struct buf *drawn = &rk->due->names;
    struct due_place p = {.due_ms = due_bucket_visit_ms(b), .level = (u8)b->name.level};
    struct store_iter *it = bucket_rows(rk, b);
    u64 n = 0, slots = (u64)rk->region.last - rk->region.first + 1;
    struct due_name from = {.index = b->name.index, .slot = (u16)(rk->region.first + rand_below(rng, slots))};
    store_seek(it, due_row(rk->due, p, &from));
    if (!store_valid(it)) store_seek_first(it);
    for (; n < RANDOM_RUN && store_valid(it); store_next(it)) {
        if (rand_below(rng, ++n)) continue;
        buf_clear(drawn);
        buf_append_bytes(drawn, store_key(it));
    }
    store_iter_done(it);
    return n && at_row(rk, db, buf_bytes(drawn), ref);
}

/* The first key with a deadline that is found. Rows visited by this transaction are filed again, but not
 * stored yet, so they are looked at first. */
static bool any_row(struct rk *rk, struct rk_db *db, struct key_ref *ref)
{
    const struct due_rows *visited = &rk->due->visited;
    bool found = false;
    for (u32 i = 0; i < visited->n; i++)
        if (visited->v[i]->db == db && is_volatile(visited->v[i], ref)) return true;
    struct due_counts then;
    struct table_iter at = {0};
    if (!counts_then(rk, db, &then)) return false;
    for (struct due_bucket *b; !found && (b = due_counts_next(&then, &at, db->index));) {
        struct store_iter *it = bucket_rows(rk, b);
        for (store_seek_first(it); !found && store_valid(it); store_next(it))
            found = at_row(rk, db, store_key(it), ref);
        store_iter_done(it);
    }
    due_counts_clear(&then);
    return found;
}

static bool due_query_random_volatile(struct engine *e, u32 number, u64 *rng, struct key_ref *ref)
{
    struct rk *rk = rk_of(e);
    struct rk_db *db = rk->dbs[number];
    if (db->expires == 0) return false;
    for (u32 tries = 0; tries < RANDOM_TRIES && !e->failed; tries++) {
        u64 touched, stored;
        struct row *r = draw_touched(rk, db, LOOK_AT, rng, &touched);
        struct due_bucket b;
        bool some = draw_bucket(rk, db->index, rng, &stored, &b);
        if (touched + stored == 0) break;
        if (rand_below(rng, touched + stored) < touched) return is_volatile(r, ref);
        if (some && draw_row(rk, db, &b, rng, ref)) return true;
    }
    /* Most rows drawn belong to keys that this transaction or a compaction has dropped: take any that is
     * left. */
    u64 n;
    struct row *r = draw_touched(rk, db, UINT32_MAX, rng, &n);
    return r ? is_volatile(r, ref) : any_row(rk, db, ref);
}

void due_query_ops(struct engine_ops *ops)
{
    ops->next_due = due_query_next_due;
    ops->has_deadlines = due_query_has_deadlines;
    ops->forecast = due_query_forecast;
    ops->random_volatile = due_query_random_volatile;
}
