/* Lists of the rocks engine: element i is the row P · version · u64(head + i) of `data`, head inclusive,
 * tail exclusive, without holes.
 *
 * - Within a transaction an element is its change record, or the stored one if there is none. Either may also
 *   exist for an index outside [head, tail), and is ignored. So popping and trimming only move head or tail,
 *   a push reads nothing, and commit deletes stored indexes that are now outside.
 * - Erasing and inserting in the middle moves the elements of the shorter side.
 * - A walk that erases leaves holes (list->gaps), so that LREM does not move the same elements again and
 *   again. The next operation closes them first (close_gaps). row->size does not count them. */
#include "ds/listpack.h"
#include "engine/rocks/delta.h"

#define STEPS 8     /* up to this many steps are cheaper than a seek */
#define BIG_CUT 256 /* elements from which on a range deletion is worth what it costs readers */

struct gap {
    u64 from, to; /* [from, to) */
};

struct list {
    u64 stored_head, stored_tail; /* what RocksDB has of it */
    struct gap *gaps;             /* ascending, never adjacent; descending while `downward` */
    u32 n, cap;
    bool downward;
};

static void rk_seq_settle(struct rk *rk, struct row *r);

/* Call it before every change. */
static struct list *open_list(struct rk *rk, struct row *r)
{
    struct delta *d = delta_of(rk, r);
    if (LIKELY(d->list)) return d->list;
    struct list *l = d->list = arena_alloc(&rk->arena, sizeof *l);
    *l = (struct list){0};
    if (row_has_base(r)) {
        l->stored_head = r->head;
        l->stored_tail = r->tail;
    }
    return l;
}

static void rk_seq_change(struct rk *rk, struct row *r)
{
    rk_seq_settle(rk, r);
    row_touch(rk, r);
    open_list(rk, r);
}

/* -- elements ------------------------------------------------------------------------------- */

struct element_key {
    char p[8];
};

static bytes key_of(u64 index, struct element_key *k)
{
    put_u64(k->p, index);
    return bytes_of(k->p, 8);
}

static bool is_inside(const struct row *r, u64 index) { return index >= r->head && index < r->tail; }

static bytes read_one(struct rk *rk, struct row *r, u64 index)
{
    struct element_key k;
    const struct change *c = delta_at(rk, r, key_of(index, &k));
    if (UNLIKELY(!c->exists)) rk->base.failed = true; /* no sound list has a hole */
    return c->value;
}

static void write_one(struct rk *rk, struct row *r, u64 index, bytes value)
{
    struct element_key k;
    delta_put(rk, r, delta_new(rk, r, key_of(index, &k)), value);
}

/* The same with a value that lives as long as the transaction. */
static void seq_write_kept(struct rk *rk, struct row *r, u64 index, bytes value)
{
    struct element_key k;
    struct change *c = delta_new(rk, r, key_of(index, &k));
    c->value = value;
    c->exists = c->put = true;
    delta_touch(r, c);
}

/* -- walks ------------------------------------------------------------------------------------ */

/* A walk over elements, up or down. Elements it has passed may be changed. */
struct list_walk {
    struct rk *rk;
    struct row *row;
    struct store_iter *base;
    u64 base_at; /* the iterator's index */
    u64 at;      /* the element to be returned next */
    u64 left;    /* elements left */
    u8 reverse, given, kept; /* given: one was returned; kept: its value lives as long as the transaction */
};

static void list_walk_init(struct list_walk *w, struct rk *rk, struct row *r, u64 at, u64 n, bool reverse)
{
    *w = (struct list_walk){.rk = rk, .row = r, .at = at, .left = n, .reverse = reverse};
}

static void list_walk_done(struct list_walk *w)
{
    if (w->base) store_iter_done(w->base);
    w->base = NULL;
    w->left = 0;
}

static bool base_is_at(struct list_walk *w, u64 index)
{
    size_t prefix = w->row->delta->prefix.n;
    if (!store_valid(w->base)) return false;
    bytes key = store_key(w->base);
    w->base_at = key.n == prefix + 8 ? get_u64(key.p + prefix) : index + 1;
    return w->base_at == index;
}

/* Moves the iterator to an index. False: the element is missing, so the list is damaged. */
static bool move_base(struct list_walk *w, u64 index)
{
    struct element_key k;
    if (w->base) {
        u64 steps = w->reverse ? w->base_at - index : index - w->base_at;
        for (u64 n = steps <= STEPS ? steps : 0; n > 0 && store_valid(w->base); n--)
            (w->reverse ? store_prev : store_next)(w->base);
        if (base_is_at(w, index)) return true;
    } else {
        bytes prefix = delta_prefix(w->rk, w->row);
        w->base = store_iter(w->rk->session, FAM_DATA, prefix, delta_after(w->rk, w->row), 0);
    }
    (w->reverse ? store_seek_back : store_seek)(w->base, delta_key(w->rk, w->row, key_of(index, &k)));
    return base_is_at(w, index);
}

/* The next element; its value lives until the walk moves. The first one is a point read, which is all a pop
 * needs. */
static bool list_walk_next(struct list_walk *w, bytes *value)
{
    struct element_key k;
    if (w->left == 0) {
        list_walk_done(w);
        return false;
    }
    const struct change *c = w->given ? delta_peek(w->row, key_of(w->at, &k))
                                      : delta_at(w->rk, w->row, key_of(w->at, &k));
    if (c && c->exists) {
        w->kept = true;
        *value = c->value;
    } else if (!c && row_has_base(w->row) && move_base(w, w->at)) {
        w->kept = false;
        *value = store_iter_value(w->base);
    } else {
        store_damaged(w->rk->session, "an element of a list is missing");
        list_walk_done(w);
        return false;
    }
    w->given = true;
    w->at += w->reverse ? -1ull : 1;
    w->left--;
    return true;
}

/* Moves n elements, from `at` on upwards (reverse: downwards), by `by` indexes. */
static void rk_seq_shift(struct rk *rk, struct row *r, u64 at, u64 n, bool reverse, u64 by)
{
    struct list_walk w;
    bytes value;
    list_walk_init(&w, rk, r, at, n, reverse);
    while (list_walk_next(&w, &value)) {
        u64 to = (reverse ? w.at + 1 : w.at - 1) + by;
        if (w.kept) seq_write_kept(rk, r, to, value);
        else write_one(rk, r, to, value);
    }
    list_walk_done(&w);
}

/* -- gaps -------------------------------------------------------------------------------------- */

static void add_gap(struct rk *rk, struct list *l, u64 from, u64 to)
{
    if (l->n) {
        struct gap *last = &l->gaps[l->n - 1];
        if (last->to == from) {
            last->to = to;
            return;
        }
        if (last->from == to) {
            last->from = from;
            return;
        }
    }
    if (l->n == l->cap) {
        l->cap = MAX(2 * l->cap, 16);
        struct gap *v = arena_alloc(&rk->arena, l->cap * sizeof *v);
        if (l->n) memcpy(v, l->gaps, l->n * sizeof *v);
        l->gaps = v;
    }
    l->gaps[l->n++] = (struct gap){from, to};
}

static void turn_round(struct list *l)
{
    for (u32 i = 0; i < l->n / 2; i++) {
        struct gap t = l->gaps[i];
        l->gaps[i] = l->gaps[l->n - 1 - i];
        l->gaps[l->n - 1 - i] = t;
    }
}

/* The longest run of elements between gaps, given as the number of gaps before it. */
static u32 longest_run(const struct row *r, const struct list *l)
{
    u32 best = 0;
    u64 most = 0;
    for (u32 i = 0; i <= l->n; i++) {
        u64 from = i ? l->gaps[i - 1].to : r->head, to = i < l->n ? l->gaps[i].from : r->tail;
        if (to - from < most) continue;
        most = to - from;
        best = i;
    }
    return best;
}

/* Closes the gaps. The longest run stays where it is; elements before it move up, those after it down, each
 * once. */
static void close_gaps(struct rk *rk, struct row *r, struct list *l)
{
    if (l->downward) turn_round(l);
    u32 stays = longest_run(r, l);
    u64 by = 0;
    for (u32 i = stays; i-- > 0;) {
        u64 from = i ? l->gaps[i - 1].to : r->head, to = l->gaps[i].from;
        by += l->gaps[i].to - to;
        rk_seq_shift(rk, r, to - 1, to - from, true, by);
    }
    r->head += by;
    by = 0;
    for (u32 i = stays; i < l->n; i++) {
        u64 from = l->gaps[i].to, to = i + 1 < l->n ? l->gaps[i + 1].from : r->tail;
        by += from - l->gaps[i].from;
        rk_seq_shift(rk, r, from, to - from, false, 0 - by);
    }
    r->tail -= by;
    l->n = 0;
}

static void rk_seq_settle(struct rk *rk, struct row *r)
{
    struct list *l = r->delta ? r->delta->list : NULL;
    if (UNLIKELY(l && l->n)) close_gaps(rk, r, l);
}

/* -- primitives -------------------------------------------------------------------------------- */

static void rk_seq_push_one(struct rk *rk, struct row *r, bool front, bytes value)
{
    write_one(rk, r, front ? --r->head : r->tail++, value);
    r->size++;
}

static void rk_seq_push(struct engine *e, struct key_ref *ref, bool front, bytes value)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    rk_seq_change(rk, r);
    rk_seq_push_one(rk, r, front, value);
}

static void rk_seq_push_all(struct engine *e, struct key_ref *ref, bool front, const bytes *v, u32 n)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    rk_seq_change(rk, r);
    for (u32 i = 0; i < n; i++) rk_seq_push_one(rk, r, front, v[i]);
}

static void rk_seq_fill(struct engine *e, struct key_ref *ref, const bytes *v, u32 n)
{
    rk_seq_push_all(e, ref, false, v, n);
}

static void rk_seq_pop(struct engine *e, struct key_ref *ref, bool front, struct buf *out)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    rk_seq_change(rk, r);
    buf_append_bytes(out, read_one(rk, r, front ? r->head++ : --r->tail));
    r->size--;
}

static void rk_seq_get(struct engine *e, struct key_ref *ref, u64 index, bytes *value)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    rk_seq_settle(rk, r);
    *value = read_one(rk, r, r->head + index);
}

static void rk_seq_set(struct engine *e, struct key_ref *ref, u64 index, bytes value)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    rk_seq_change(rk, r);
    write_one(rk, r, r->head + index, value);
}

static void rk_seq_insert(struct engine *e, struct key_ref *ref, u64 index, bytes value)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    rk_seq_change(rk, r);
    if (index <= r->size - index) {
        rk_seq_shift(rk, r, r->head, index, false, -1ull);
        r->head--;
    } else {
        rk_seq_shift(rk, r, r->tail - 1, r->size - index, true, 1);
        r->tail++;
    }
    write_one(rk, r, r->head + index, value);
    r->size++;
}

static void rk_seq_erase(struct engine *e, struct key_ref *ref, u64 index, u64 count)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    if (count == 0) return;
    rk_seq_change(rk, r);
    r->size -= count;
    if (index == 0) r->head += count;
    else if (index == r->size) r->tail -= count;
    else {
        struct list *l = r->delta->list;
        l->downward = false;
        add_gap(rk, l, r->head + index, r->head + index + count);
        close_gaps(rk, r, l);
    }
}

_Static_assert(sizeof(struct list_walk) <= sizeof(((struct seq_iter *)0)->state), "iterator fits");

static void rk_seq_iter(struct engine *e, struct key_ref *ref, u64 index, bool reverse, struct seq_iter *it)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    it->eng = e;
    it->ref = ref;
    it->reverse = reverse;
    it->passing = false;
    rk_seq_settle(rk, r);
    u64 n = index >= r->size ? 0 : reverse ? index + 1 : r->size - index;
    list_walk_init((struct list_walk *)it->state, rk, r, r->head + index, n, reverse);
}

static bool rk_seq_next(struct seq_iter *it, bytes *value)
{
    struct list_walk *w = (struct list_walk *)it->state;
    if (!list_walk_next(w, value)) return false;
    if (!w->kept && !it->passing) *value = delta_keep(w->rk, *value);
    return true;
}

static void rk_seq_erase_current(struct seq_iter *it)
{
    struct list_walk *w = (struct list_walk *)it->state;
    u64 index = w->reverse ? w->at + 1 : w->at - 1;
    row_touch(w->rk, w->row);
    struct list *l = open_list(w->rk, w->row);
    if (l->n == 0) l->downward = w->reverse;
    add_gap(w->rk, l, index, index + 1);
    w->row->size--;
}

/* -- the end of the transaction ----------------------------------------------------------------- */

/* Deletes stored indexes [from, to). */
static void delete_stored(struct rk *rk, struct row *r, u64 from, u64 to)
{
    struct element_key k;
    if (from >= to) return;
    if (to - from < BIG_CUT) {
        bytes prefix = delta_prefix(rk, r);
        for (u64 i = from; i < to; i++) store_delete2(rk->session, FAM_DATA, prefix, key_of(i, &k));
        return;
    }
    bytes first = delta_keep(rk, delta_key(rk, r, key_of(from, &k)));
    store_delete_range(rk->session, FAM_DATA, first, delta_key(rk, r, key_of(to, &k)));
}

void rk_seq_commit(struct rk *rk, struct row *r)
{
    struct list *l = r->delta ? r->delta->list : NULL;
    if (!l) return;
    rk_seq_settle(rk, r);
    CHECK(r->size == r->tail - r->head);
    delete_stored(rk, r, l->stored_head, MIN(r->head, l->stored_tail));
    delete_stored(rk, r, MAX(r->tail, l->stored_head), l->stored_tail);
    bytes prefix = delta_prefix(rk, r);
    for delta_each(c, r->delta)
        if (is_inside(r, get_u64(c->sub.p))) store_put2(rk->session, FAM_DATA, prefix, c->sub, c->value);
}

void rk_seq_copy(struct rk *rk, struct row *from, struct row *to)
{
    struct list_walk w;
    bytes value;
    rk_seq_settle(rk, from);
    rk_seq_change(rk, to);
    list_walk_init(&w, rk, from, from->head, from->size, false);
    while (list_walk_next(&w, &value)) rk_seq_push_one(rk, to, false, value);
}

/* By its current elements. An element of a listpack takes at least two bytes, so a long list is not read. */
const char *rk_list_encoding(struct rk *rk, struct row *r)
{
    i64 limit = rk->base.limits.list_max_listpack_size;
    u64 total = LISTPACK_EMPTY;
    struct list_walk w;
    bytes value;
    if (listpack_exceeds(limit, total + 2 * r->size, r->size)) return "quicklist";
    rk_seq_settle(rk, r);
    list_walk_init(&w, rk, r, r->head, r->size, false);
    while (list_walk_next(&w, &value) && !listpack_exceeds(limit, total, r->size))
        total += listpack_cost(value);
    list_walk_done(&w);
    return listpack_exceeds(limit, total, r->size) ? "quicklist" : "listpack";
}

const struct seq_ops rk_seq_ops = {
    .push = rk_seq_push,
    .push_all = rk_seq_push_all,
    .fill = rk_seq_fill,
    .pop = rk_seq_pop,
    .get = rk_seq_get,
    .set = rk_seq_set,
    .insert = rk_seq_insert,
    .erase = rk_seq_erase,
    .iter = rk_seq_iter,
    .next = rk_seq_next,
    .erase_current = rk_seq_erase_current,
};
