/* The changes of a collection.
 *
 * Invariants:
 * 1. A sub has one change record per transaction, made when it is first looked up. A failed read makes none:
 *    what could not be read must not look absent later.
 * 2. order.v[0 .. order.n) are the first order.n touched changes, sorted by sub. Later ones are linked from
 *    order.rest and merged when the order is needed next, so that alternating changes and walks do not sort
 *    everything each time.
 * 3. Erased ranges are ascending and disjoint: erased.v[i].to < erased.v[i + 1].from.
 * 4. A delta belongs to one version of its collection: row_drop releases it. */
#include "engine/rocks/delta.h"

#include "base/sort.h"
#include "engine/rocks/type/elements.h"

#define SUB_ROOM 64
#define READ_TOGETHER 64
#define REMEMBER_MAX 16384 /* changes of a transaction to a collection that the cache of elements takes in */

/* -- making -------------------------------------------------------------------------- */

static bytes key_of_change(const void *item) { return ((const struct change *)item)->sub; }

bytes delta_keep(struct rk *rk, bytes b)
{
    if (b.n == 0) return (bytes){"", 0};
    return bytes_of(memcpy(arena_alloc(&rk->arena, b.n), b.p, b.n), b.n);
}

struct delta *delta_of(struct rk *rk, struct row *r)
{
    struct delta *d = r->delta;
    if (d) return d;
    d = r->delta = arena_alloc(&rk->arena, sizeof *d);
    *d = (struct delta){.n = 0};
    d->end = d->order.rest = &d->first;
    row_open(rk, r);
    return d;
}

void delta_release(struct delta *d)
{
    if (d && d->n > DELTA_FEW) table_release(&d->changes);
}

/* Makes the prefix, or reallocates it with room for a longer sub after it. */
static char *prefix_with_room(struct rk *rk, struct row *r, size_t room)
{
    struct delta *d = delta_of(rk, r);
    if (d->prefix.p && d->room >= room) return (char *)d->prefix.p;
    d->room = MAX(2 * room, SUB_ROOM);
    size_t cap = CODEC_PREFIX_FIXED + r->key_len + 8 + d->room;
    struct buf b = {.p = arena_alloc(&rk->arena, cap), .cap = cap}; /* large enough to stay the arena's */
    row_prefix(rk, r, r->version, &b);
    d->prefix = buf_bytes(&b);
    return b.p;
}

bytes delta_prefix(struct rk *rk, struct row *r)
{
    prefix_with_room(rk, r, 0);
    return r->delta->prefix;
}

bytes delta_key(struct rk *rk, struct row *r, bytes sub)
{
    char *p = prefix_with_room(rk, r, sub.n);
    size_t n = r->delta->prefix.n;
    if (sub.n) memcpy(p + n, sub.p, sub.n);
    return bytes_of(p, n + sub.n);
}

bytes delta_after(struct rk *rk, struct row *r)
{
    struct delta *d = delta_of(rk, r);
    if (d->after.p) return d->after;
    struct buf b = {0};
    buf_append_bytes(&b, delta_prefix(rk, r));
    codec_after_prefix(&b);
    d->after = delta_keep(rk, buf_bytes(&b));
    buf_release(&b);
    return d->after;
}

/* -- finding ------------------------------------------------------------------------- */

/* Computes the hash only if the changes are in a table. */
static struct change *delta_find(const struct delta *d, bytes sub, u64 *hash)
{
    if (d->n > DELTA_FEW) {
        *hash = table_hash(&d->changes, sub);
        return table_find(&d->changes, sub, *hash);
    }
    for (u32 i = 0; i < d->n; i++)
        if (bytes_eq(d->few[i]->sub, sub)) return d->few[i];
    return NULL;
}

static void delta_to_table(struct delta *d, u64 seed)
{
    table_init(&d->changes, key_of_change, seed);
    for (u32 i = 0; i < d->n; i++)
        table_insert(&d->changes, table_hash(&d->changes, d->few[i]->sub), d->few[i]);
}

static void delta_add(struct row *r, struct change *c, u64 hash)
{
    struct delta *d = r->delta;
    if (d->n < DELTA_FEW) {
        d->few[d->n++] = c;
        return;
    }
    if (d->n == DELTA_FEW) {
        delta_to_table(d, r->db->rows.seed);
        hash = table_hash(&d->changes, c->sub);
    }
    table_insert(&d->changes, hash, c);
    d->n++;
}

static struct change *change_new(struct rk *rk, bytes sub)
{
    struct change *c = arena_alloc(&rk->arena, sizeof *c + sub.n);
    *c = (struct change){.sub = bytes_of(c + 1, sub.n), .value = {"", 0}};
    if (sub.n) memcpy(c + 1, sub.p, sub.n);
    return c;
}

static void as_stored(struct rk *rk, struct change *c, bytes value)
{
    c->stored = c->exists = true;
    c->value = delta_keep(rk, value);
}

/* An element's name in the element cache: version · sub, the end of its key. */
static bytes name_in(bytes key, bytes sub)
{
    size_t n = 8 + sub.n;
    return bytes_of(key.p + key.n - n, n);
}

/* Lists are read at their ends and streams by range, so the cache would not help. Companions are read only
 * when they are written; caching them would evict other elements. */
static bool uses_cache(const struct row *r) { return r->type < TYPE_STREAM && r->type != TYPE_LIST; }

static bool is_cached(struct rk *rk, struct row *r, bytes sub, bytes *value)
{
    return uses_cache(r) && elements_find(rk->elements, name_in(delta_key(rk, r, sub), sub), value);
}

/* True if all elements are cached: one that is not in the cache does not exist. */
static bool knows_all(const struct rk *rk, const struct row *r)
{
    return uses_cache(r) && elements_whole(rk->elements, r->version);
}

static void delta_remember(struct rk *rk, struct row *r, bytes sub, bytes value)
{
    if (uses_cache(r)) elements_remember(rk->elements, name_in(delta_key(rk, r, sub), sub), value);
}

static void delta_forget(struct rk *rk, struct row *r, bytes sub)
{
    elements_forget(rk->elements, name_in(delta_key(rk, r, sub), sub));
}

/* So many would only drive out what is in use. */
static void delta_kept_many(struct rk *rk, struct row *r)
{
    bool known = row_has_base(r); /* no element of a new collection is in the cache yet */
    elements_leave_out(rk->elements, r->version);
    for delta_each(c, r->delta)
        if (known && (c->put || !c->exists)) delta_forget(rk, r, c->sub);
}

void delta_kept(struct rk *rk, struct row *r)
{
    if (!r->delta || !uses_cache(r)) return;
    if (r->delta->touched > REMEMBER_MAX) {
        delta_kept_many(rk, r);
        return;
    }
    for delta_each(c, r->delta) {
            if (c->put) delta_remember(rk, r, c->sub, c->value);
            else if (!c->exists) delta_forget(rk, r, c->sub);
    }
}

/* False: the read failed. */
static bool read_stored(struct rk *rk, struct row *r, struct change *c)
{
    struct store_value v;
    bytes known;
    if (is_cached(rk, r, c->sub, &known)) {
        as_stored(rk, c, known);
        return true;
    }
    if (knows_all(rk, r)) return true;
    bool failed_before = rk->base.failed;
    rk->base.failed = false;
    if (store_get(rk->session, row_family(r), delta_key(rk, r, c->sub), &v)) {
        as_stored(rk, c, v.b);
        delta_remember(rk, r, c->sub, v.b);
        store_value_release(&v);
    }
    if (UNLIKELY(rk->base.failed)) return false;
    rk->base.failed = failed_before;
    return true;
}

struct change *delta_peek(const struct row *r, bytes sub)
{
    u64 hash;
    return r->delta ? delta_find(r->delta, sub, &hash) : NULL;
}

struct change *delta_at(struct rk *rk, struct row *r, bytes sub)
{
    u64 hash = 0;
    struct delta *d = delta_of(rk, r);
    struct change *c = delta_find(d, sub, &hash);
    if (c) return c;
    c = change_new(rk, sub);
    if (!row_has_base(r) || delta_erased_range(d, sub) || read_stored(rk, r, c)) delta_add(r, c, hash);
    return c;
}

struct change *delta_new(struct rk *rk, struct row *r, bytes sub)
{
    u64 hash = 0;
    struct delta *d = delta_of(rk, r);
    struct change *c = delta_find(d, sub, &hash);
    if (c) return c;
    c = change_new(rk, sub);
    delta_add(r, c, hash);
    return c;
}

void delta_expect(struct delta *d, const bytes *subs, u32 next, u32 n)
{
    if (d->n <= DELTA_FEW) return;
    table_reserve(&d->changes, n);
    for (u32 i = 0; i < next; i++) table_prefetch_bucket(&d->changes, table_hash(&d->changes, subs[i]));
}

/* -- reading ahead --------------------------------------------------------------------- */

static void delta_read_together(struct rk *rk, struct row **rows, const bytes *subs, u32 n)
{
    bytes keys[READ_TOGETHER];
    struct store_value values[READ_TOGETHER];
    u32 of[READ_TOGETHER], reads = 0;
    for (u32 i = 0; i < n; i++) {
        bytes known;
        u64 hash = 0;
        if (rows[i]->type >= TYPE_STREAM) continue; /* not cached by element */
        if (!row_has_base(rows[i]) || delta_find(delta_of(rk, rows[i]), subs[i], &hash)) continue;
        if (is_cached(rk, rows[i], subs[i], &known)) {
            struct change *c = change_new(rk, subs[i]);
            as_stored(rk, c, known);
            delta_add(rows[i], c, hash);
            continue;
        }
        if (knows_all(rk, rows[i])) continue; /* delta_at has nothing to read */
        of[reads] = i;
        keys[reads++] = delta_keep(rk, delta_key(rk, rows[i], subs[i]));
    }
    if (reads < 2) return; /* delta_at reads a single one just as well */
    bool failed_before = rk->base.failed;
    rk->base.failed = false;
    store_multi_get(rk->session, FAM_DATA, reads, keys, values);
    bool failed = rk->base.failed; /* before this: delta_at repeats a failed read, and reports it */
    rk->base.failed = failed_before;
    for (u32 i = 0; i < reads; i++) {
        u64 hash = 0;
        struct row *r = rows[of[i]];
        bytes sub = subs[of[i]];
        if (!failed && !delta_find(r->delta, sub, &hash)) {
            struct change *c = change_new(rk, sub);
            if (values[i].pin) {
                as_stored(rk, c, values[i].b);
                delta_remember(rk, r, sub, values[i].b);
            }
            delta_add(r, c, hash);
        }
        store_value_release(&values[i]);
    }
}

void delta_prefetch(struct rk *rk, struct row **rows, const bytes *subs, u32 n)
{
    for (u32 i = 0; i < n; i += READ_TOGETHER)
        delta_read_together(rk, rows + i, subs + i, MIN(n - i, READ_TOGETHER));
}

/* -- changing -------------------------------------------------------------------------- */

void delta_touch(struct row *r, struct change *c)
{
    struct delta *d = r->delta;
    if (c->touched) return;
    c->touched = true;
    d->touched++;
    *d->end = c;
    d->end = &c->next;
}

void delta_put(struct rk *rk, struct row *r, struct change *c, bytes value)
{
    c->value = delta_keep(rk, value);
    c->exists = c->put = true;
    delta_touch(r, c);
}

void delta_erase(struct rk *rk UNUSED, struct row *r, struct change *c)
{
    c->value = (bytes){"", 0};
    c->exists = c->put = false;
    delta_touch(r, c);
}

/* -- the order ----------------------------------------------------------------------------- */

static int by_sub(const void *a, const void *b)
{
    return bytes_cmp((*(struct change *const *)a)->sub, (*(struct change *const *)b)->sub);
}

static void delta_make_room(struct rk *rk, struct delta *d)
{
    if (d->order.cap >= d->touched) return;
    d->order.cap = MAX(2 * d->touched, 2 * DELTA_FEW);
    struct change **v = arena_alloc(&rk->arena, d->order.cap * sizeof *v);
    if (d->order.n) memcpy(v, d->order.v, d->order.n * sizeof *v);
    d->order.v = v;
}

struct change **delta_ordered(struct rk *rk, struct row *r, u32 *n)
{
    struct delta *d = delta_of(rk, r);
    *n = d->touched;
    u32 more = d->touched - d->order.n;
    if (more == 0) return d->order.v;
    delta_make_room(rk, d);
    struct change **fresh = arena_alloc(&rk->arena, more * sizeof *fresh), **v = d->order.v;
    for (u32 i = 0; i < more; i++) {
        fresh[i] = *d->order.rest;
        d->order.rest = &fresh[i]->next;
    }
    sort_unless_sorted(fresh, more, sizeof *fresh, by_sub);
    for (u32 old = d->order.n, to = d->touched; more > 0;) {
        if (old > 0 && by_sub(&v[old - 1], &fresh[more - 1]) > 0) v[--to] = v[--old];
        else v[--to] = fresh[--more];
    }
    d->order.n = d->touched;
    return v;
}

/* -- erased ranges ------------------------------------------------------------------------- */

/* The number of ranges that end before `sub`; a range that ends right at it counts unless `adjacent`. */
static u32 ranges_before(const struct erased_ranges *e, bytes sub, bool adjacent)
{
    u32 low = 0, high = e->n;
    while (low < high) {
        u32 mid = low + (high - low) / 2;
        int order = bytes_cmp(e->v[mid].to, sub);
        if (order < 0 || (order == 0 && !adjacent)) low = mid + 1;
        else high = mid;
    }
    return low;
}

const struct erased_range *delta_erased_range(const struct delta *d, bytes sub)
{
    const struct erased_ranges *e = d->erased;
    if (LIKELY(!e)) return NULL;
    u32 i = ranges_before(e, sub, false);
    return i < e->n && bytes_cmp(e->v[i].from, sub) <= 0 ? &e->v[i] : NULL;
}

static void ranges_grow(struct rk *rk, struct erased_ranges *e)
{
    if (e->n < e->cap) return;
    e->cap = MAX(2 * e->cap, 4);
    struct erased_range *v = arena_alloc(&rk->arena, e->cap * sizeof *v);
    if (e->n) memcpy(v, e->v, e->n * sizeof *v);
    e->v = v;
}

/* Merges the new range with those it overlaps or touches: v[at .. end). */
void delta_erase_range(struct rk *rk, struct row *r, bytes from, bytes to, bool as_tombstone)
{
    struct delta *d = delta_of(rk, r);
    if (!d->erased) {
        d->erased = arena_alloc(&rk->arena, sizeof *d->erased);
        *d->erased = (struct erased_ranges){0};
    }
    struct erased_ranges *e = d->erased;
    u32 at = ranges_before(e, from, true), end = at;
    for (; end < e->n && bytes_cmp(e->v[end].from, to) <= 0; end++) {
        if (bytes_cmp(e->v[end].from, from) < 0) from = e->v[end].from;
        if (bytes_cmp(e->v[end].to, to) > 0) to = e->v[end].to;
        as_tombstone |= e->v[end].as_tombstone;
    }
    if (end == at) ranges_grow(rk, e);
    memmove(&e->v[at + 1], &e->v[end], (e->n - end) * sizeof *e->v);
    e->v[at] = (struct erased_range){from, to, as_tombstone};
    e->n = e->n + 1 - (end - at);
}

void delta_write_ranges(struct rk *rk, struct row *r, enum family f)
{
    const struct erased_ranges *e = r->delta->erased;
    for (u32 i = 0; e && i < e->n; i++) {
        if (!e->v[i].as_tombstone) continue;
        bytes from = delta_keep(rk, delta_key(rk, r, e->v[i].from));
        store_delete_range(rk->session, f, from, delta_key(rk, r, e->v[i].to));
    }
}
