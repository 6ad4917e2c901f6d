/* Streams of the rocks engine: a row is P · version · name → value of `redis_stream`, and the head is the
 * end of the key's metadata (row->value). row->size is what the commands say.
 *
 * Reads happen only where the answer matters: a put reads nothing, and counts as one that may be stored
 * already. Erasing a long range is one range deletion (delta_erase_range): it takes neither a change record
 * nor a tombstone for each row. */
#include "engine/rocks/type/rows.h"

#include "base/alloc.h"
#include "engine/rocks/delta.h"

#define LONG_RANGE 256 /* rows erased at once, from which on a range deletion is worth its cost for readers */

/* -- head and rows ------------------------------------------------------------------------- */

static bytes rk_rows_head(struct engine *e UNUSED, struct key_ref *ref)
{
    return buf_bytes(&row_of(ref)->value);
}

static void set_head(struct rk *rk, struct row *r, bytes head, u64 size)
{
    CHECK(head.n <= ROWS_HEAD_MAX);
    row_touch(rk, r);
    char copy[ROWS_HEAD_MAX]; /* it may be what head() gave */
    if (head.n) memcpy(copy, head.p, head.n);
    buf_clear(&r->value);
    buf_append(&r->value, copy, head.n);
    r->size = size;
}

static void rk_rows_set_head(struct engine *e, struct key_ref *ref, bytes head, u64 size)
{
    set_head(rk_of(e), row_of(ref), head, size);
}

static bool rk_rows_get(struct engine *e, struct key_ref *ref, bytes name, bytes *value)
{
    const struct change *c = delta_at(rk_of(e), row_of(ref), name);
    if (c->exists && value) *value = c->value;
    return c->exists;
}

/* The change record of a row, made without reading what is stored. */
static struct change *unread_change(struct rk *rk, struct row *r, bytes name)
{
    struct change *c = delta_peek(r, name);
    if (c) return c;
    c = delta_new(rk, r, name);
    c->stored = row_has_base(r);
    return c;
}

static void rk_rows_put(struct engine *e, struct key_ref *ref, bytes name, bytes value)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    row_touch(rk, r);
    delta_put(rk, r, unread_change(rk, r, name), value);
}

static bool rk_rows_del(struct engine *e, struct key_ref *ref, bytes name)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    struct change *c = delta_at(rk, r, name);
    if (!c->exists) return false;
    row_touch(rk, r);
    delta_erase(rk, r, c);
    return true;
}

static u64 rk_rows_erase(struct engine *e, struct key_ref *ref, bytes from, bytes to)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    struct walk w;
    bytes end = delta_keep(rk, to);
    u64 n = 0;
    bool more = walk_start(&w, rk, r, from.n ? from : BYTES_LIT(""), false);
    for (; more && bytes_cmp(w.sub, end) < 0; more = walk_next(&w), n++) {
        if (n == 0) row_touch(rk, r);
        struct change *c = n < LONG_RANGE ? unread_change(rk, r, w.sub) : delta_peek(r, w.sub);
        if (c) delta_erase(rk, r, c);
    }
    walk_done(&w);
    if (n && !rk->base.failed) delta_erase_range(rk, r, delta_keep(rk, from), end, n > LONG_RANGE);
    if (n > LONG_RANGE) store_orphaned(rk->store, FAM_STREAM, n);
    return n;
}

/* Erases the rows of a range that have a change record. */
static void erase_known(struct rk *rk, struct row *r, bytes from, bytes to)
{
    const struct delta *d = delta_of(rk, r);
    struct table_iter it = {0};
    for (u32 i = 0; i < d->n; i++) {
        struct change *c = d->n > DELTA_FEW ? table_next(&d->changes, &it) : d->few[i];
        if (c->exists && bytes_cmp(from, c->sub) <= 0 && bytes_cmp(c->sub, to) < 0) delta_erase(rk, r, c);
    }
}

/* Erases a range without reading it. */
static void rk_rows_wipe(struct engine *e, struct key_ref *ref, bytes from, bytes to, u64 about)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    if (about <= LONG_RANGE || !row_has_base(r) || bytes_cmp(from, to) >= 0) {
        rk_rows_erase(e, ref, from, to);
        return;
    }
    row_touch(rk, r);
    from = delta_keep(rk, from);
    to = delta_keep(rk, to);
    erase_known(rk, r, from, to);
    delta_erase_range(rk, r, from, to, true);
    store_orphaned(rk->store, FAM_STREAM, about);
}

/* -- walks ----------------------------------------------------------------------------------- */

struct rows_walk {
    struct walk w;
    bool first, more;
};

static struct rows_walk **rk_rows_walk_in(struct rows_iter *it) { return (struct rows_walk **)it->state; }

static void rk_rows_iter(struct engine *e, struct key_ref *ref, bytes from, bool reverse,
                         struct rows_iter *it)
{
    struct rk *rk = rk_of(e);
    struct rows_walk *w = *rk_rows_walk_in(it) = arena_alloc(&rk->arena, sizeof *w);
    it->eng = e;
    it->ref = ref;
    it->reverse = reverse;
    it->passing = false;
    w->first = true;
    w->more = walk_start(&w->w, rk, row_of(ref), from.n ? from : BYTES_LIT(""), reverse);
}

static bool rk_rows_next(struct rows_iter *it, bytes *name, bytes *value)
{
    struct rows_walk *w = *rk_rows_walk_in(it);
    if (w->more && !w->first) w->more = walk_next(&w->w);
    w->first = false;
    if (!w->more) return false;
    bool copy = !it->passing && !w->w.change; /* a stored row is in the iterator's memory */
    *name = copy ? delta_keep(w->w.rk, w->w.sub) : w->w.sub;
    if (value) *value = copy ? delta_keep(w->w.rk, w->w.value) : w->w.value;
    return true;
}

static void rk_rows_done(struct rows_iter *it)
{
    struct rows_walk *w = *rk_rows_walk_in(it);
    walk_done(&w->w);
    w->more = false;
}

const struct rows_ops rk_rows_ops = {
    .head = rk_rows_head,
    .set_head = rk_rows_set_head,
    .get = rk_rows_get,
    .put = rk_rows_put,
    .del = rk_rows_del,
    .erase = rk_rows_erase,
    .wipe = rk_rows_wipe,
    .iter = rk_rows_iter,
    .next = rk_rows_next,
    .done = rk_rows_done,
};

/* -- the stream as a whole --------------------------------------------------------------------- */

void rk_rows_copy(struct rk *rk, struct row *from, struct row *to)
{
    struct walk w;
    set_head(rk, to, buf_bytes(&from->value), from->size);
    for (bool more = walk_start(&w, rk, from, (bytes){0}, false); more; more = walk_next(&w))
        delta_put(rk, to, delta_new(rk, to, w.sub), w.value);
    walk_done(&w);
}

/* Writes in the order of names: RocksDB inserts neighbours faster. */
void rk_rows_commit(struct rk *rk, struct row *r)
{
    u32 n;
    if (!r->delta) return;
    enum family f = row_family(r);
    delta_write_ranges(rk, r, f);
    if (!r->delta->touched) return;
    bytes prefix = delta_prefix(rk, r);
    struct change **ordered = delta_ordered(rk, r, &n);
    for (u32 i = 0; i < n; i++) {
        const struct change *c = ordered[i];
        if (c->put) gaps_row_stored(r->gaps, c->sub);
        if (c->put) store_put2(rk->session, f, prefix, c->sub, c->value);
        else if (c->stored) store_delete2(rk->session, f, prefix, c->sub);
    }
}

/* -- gaps -------------------------------------------------------------------------------------- */

static bool gap_contains(const struct gap *g, bytes name)
{
    if (bytes_cmp(buf_bytes(&g->from), name) > 0) return false;
    return g->endless || bytes_cmp(name, buf_bytes(&g->to)) < 0;
}

struct gap *gaps_find(struct gaps *g, bytes name)
{
    for (u32 i = 0; g && i < g->n; i++) {
        if (!gap_contains(&g->v[i], name)) continue;
        g->v[i].used = ++g->uses;
        return &g->v[i];
    }
    return NULL;
}

static struct gap *gaps_take_slot(struct gaps *g)
{
    if (g->n < GAPS_MAX) return &g->v[g->n++];
    struct gap *oldest = &g->v[0];
    for (u32 i = 1; i < GAPS_MAX; i++)
        if (g->v[i].used < oldest->used) oldest = &g->v[i];
    return oldest;
}

static void gap_set(struct buf *b, bytes to)
{
    buf_clear(b);
    buf_append_bytes(b, to);
}

void gaps_record(struct gaps **all, struct gap *known, bytes from, bytes to)
{
    if (!*all) *all = mem_zalloc(sizeof **all);
    if (!known) {
        known = gaps_take_slot(*all);
        gap_set(&known->from, from);
    }
    known->used = ++(*all)->uses;
    known->endless = !to.p;
    gap_set(&known->to, to);
}

void gaps_row_stored(struct gaps *g, bytes name)
{
    for (u32 i = 0; g && i < g->n; i++) {
        if (!gap_contains(&g->v[i], name)) continue;
        g->v[i].endless = false;
        gap_set(&g->v[i].to, name);
    }
}

void gaps_free(struct gaps *g)
{
    for (u32 i = 0; g && i < GAPS_MAX; i++) {
        buf_release(&g->v[i].from);
        buf_release(&g->v[i].to);
    }
    mem_free(g);
}
