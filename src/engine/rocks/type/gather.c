/* Reading many collections at once.
 *
 * A walk over a small collection is mostly its Seek: RocksDB looks for the place in every memtable and
 * every level, about 7 µs, while a Next costs a fraction of one. So the collections are taken in the order
 * in which they are stored, with one iterator that steps on from the end of one to the beginning of the
 * next if that is near, and seeks if not. Members come from `data`, which has those of sets and of sorted
 * sets.
 *
 * Without a bound after each collection, a step might pass any number of tombstones that other collections
 * have left there. The iterator gives up after some (STORE_NEAR); then, and where the transaction has
 * changed a collection, an ordinary walk reads it. */
#include "engine/rocks/delta.h"

#include <stdlib.h>

#define STEPS 4        /* rows between two collections that are stepped over before it seeks */
#define MISSES_FREE 16 /* vain attempts before their share counts */

#define AHEAD 8        /* rows that are prefetched */

struct gather_item {
    u64 place; /* the slot and the length of the key: what the order of `data` goes by first */
    struct row *row;
    u32 i; /* as the caller numbers it */
};

struct gather {
    struct rk *rk;
    struct store_iter *it;
    struct buf prefix, last; /* P · version of the collection being read, and of the one before */
    u32 near, far;           /* how often the next one was within a few steps, and how often not */
    gather_fn fn;
    void *arg;
};

static int gather_by_place(const void *x, const void *y)
{
    const struct gather_item *a = x, *b = y;
    if (a->place != b->place) return a->place < b->place ? -1 : 1;
    return bytes_cmp(row_key(a->row), row_key(b->row));
}

/* False: what is stored is not what the transaction sees. */
static bool gather_is_as_stored(const struct row *r)
{
    const struct delta *d = r->delta;
    return row_has_base(r) && r->size == r->stored.size && !(d && (d->touched || d->erased));
}

static void gather_tell(struct gather *g, const struct row *r, u32 i, bytes member, bytes value)
{
    double score = 1;
    if (r->type == TYPE_ZSET && UNLIKELY(value.n != 8)) {
        store_damaged(g->rk->session, "a score is malformed");
        return;
    }
    if (r->type == TYPE_ZSET) score = codec_score_read(get_u64(value.p));
    g->fn(g->arg, i, member, score);
}

/* Reads it by an ordinary walk, from after a member that was told before; p NULL: from the beginning. */
static void gather_by_walk(struct gather *g, struct row *r, u32 i, bytes after, u64 left)
{
    struct walk w;
    bool more = walk_start(&w, g->rk, r, after, false);
    if (more && after.p && bytes_eq(w.sub, after)) more = walk_next(&w);
    for (; more && left > 0; more = walk_next(&w), left--)
        gather_tell(g, r, i, w.change ? w.sub : delta_keep(g->rk, w.sub), w.value);
    walk_done(&w);
    if (UNLIKELY(left)) store_damaged(g->rk->session, "elements of a set or sorted set are missing");
}

/* Steps from the end of the last collection to the next one. False: it is farther away, or lies before. */
static bool gather_step(struct gather *g)
{
    bytes prefix = buf_bytes(&g->prefix);
    bool sparse = g->far > MISSES_FREE + g->near;
    if (sparse || !store_valid(g->it) || bytes_cmp(buf_bytes(&g->last), prefix) >= 0) return false;
    for (int i = 0; i < STEPS; i++) {
        store_next(g->it);
        if (!store_valid(g->it)) break;
        if (bytes_cmp(store_key(g->it), prefix) < 0) continue;
        g->near++;
        return true;
    }
    g->far++;
    return false;
}

static bool gather_within(const struct gather *g)
{
    if (!store_valid(g->it)) return false;
    bytes key = store_key(g->it);
    return key.n >= g->prefix.n && memcmp(key.p, g->prefix.p, g->prefix.n) == 0;
}

/* Ends on the last element, so that no step is made before it is known where to. */
static void gather_stored(struct gather *g, const struct gather_item *item)
{
    struct row *r = item->row;
    u64 left = r->size;
    bytes member = {0};
    buf_clear(&g->prefix);
    row_prefix(g->rk, r, r->version, &g->prefix);
    if (!gather_step(g)) store_seek(g->it, buf_bytes(&g->prefix));
    while (left > 0 && gather_within(g)) {
        bytes key = store_key(g->it);
        member = delta_keep(g->rk, bytes_of(key.p + g->prefix.n, key.n - g->prefix.n));
        gather_tell(g, r, item->i, member, store_iter_value(g->it));
        if (--left > 0) store_next(g->it);
    }
    if (UNLIKELY(left)) gather_by_walk(g, r, item->i, member, left);
    struct buf done = g->last;
    g->last = g->prefix;
    g->prefix = done;
}

static void gather_all(struct gather *g, struct gather_item *items, u32 n)
{
    qsort(items, n, sizeof *items, gather_by_place);
    g->it = store_iter(g->rk->session, FAM_DATA, (bytes){0}, (bytes){0}, STORE_NEAR);
    for (u32 i = 0; i < n && !g->rk->base.failed; i++) {
        if (i + AHEAD < n) __builtin_prefetch(items[i + AHEAD].row);
        gather_stored(g, &items[i]);
    }
    store_iter_done(g->it);
    buf_release(&g->prefix);
    buf_release(&g->last);
}

/* Rows are scattered over memory: the waits for some of them overlap. */
static void gather_prefetch(struct key_ref *const *refs, u32 i, u32 n)
{
    if (i + AHEAD >= n) return;
    __builtin_prefetch(row_of(refs[i + AHEAD])->key);
    if (i + 2 * AHEAD >= n) return;
    const struct row *r = row_of(refs[i + 2 * AHEAD]);
    __builtin_prefetch(r);
    __builtin_prefetch(&r->version);
    __builtin_prefetch(&r->stored);
}

void rk_gather(struct engine *e, struct key_ref *const *refs, u32 n, gather_fn fn, void *arg)
{
    struct gather g = {.rk = rk_of(e), .fn = fn, .arg = arg};
    struct gather_item *items = mem_alloc(n * sizeof *items);
    u32 stored = 0;
    for (u32 i = 0; i < n; i++) {
        struct row *r = row_of(refs[i]);
        gather_prefetch(refs, i, n);
        if (!gather_is_as_stored(r)) {
            gather_by_walk(&g, r, i, (bytes){0}, r->size);
            continue;
        }
        u64 place = (u64)codec_slot(row_key(r)) << 32 | r->key_len;
        items[stored++] = (struct gather_item){.place = place, .row = r, .i = i};
    }
    if (stored) gather_all(&g, items, stored);
    mem_free(items);
}
