/* The order of a sorted set.
 *
 * - All walks over a set share one iterator, because RocksDB's are expensive and a walk that is left early is
 *   not closed. The walk that moves takes it; the one that had it seeks to its position again if it
 *   continues. A walk that reaches its end returns it to the pool: ZUNIONSTORE of many sets needs one, not
 *   one per set.
 * - From the first time in a transaction that their order matters, touched entries are in a tree:
 *   ranks->touched is that tree while shared->tree is set.
 * - Blocks (ranks.h) always count the current entries, so they are loaded before the first change to a set
 *   that may have them.
 * - ranks->low and high: a queue deletes at one end, where an iterator would have to skip all tombstones that
 *   are not compacted yet. No untouched stored entry is before low or after high. Commit extends the range by
 *   the touched ones, so that it stays valid across transactions. */
#include "engine/rocks/type/order.h"

#define NEAR 32 /* ranks this close to an end are found by walking */

/* A range of stored rows to be deleted: [from, to), after P · version. */
struct cut {
    struct cut *next;
    bytes from, to;
};

struct ordering {
    struct store_iter *base; /* on redis_zset_score; NULL: not taken yet, or given back */
    struct order *holder;    /* the walk whose position it has */
    struct cut *cuts;
    bool tree;
};

static struct ordering *ordering_of(struct rk *rk, struct row *r)
{
    struct delta *d = delta_of(rk, r);
    if (!d->ordering) {
        d->ordering = arena_alloc(&rk->arena, sizeof *d->ordering);
        *d->ordering = (struct ordering){.base = NULL};
    }
    return d->ordering;
}

static struct ranks *ranks_of(struct row *r)
{
    if (r->ranks && r->ranks->version != r->version) {
        ranks_free(r->ranks);
        r->ranks = NULL;
    }
    if (!r->ranks) r->ranks = ranks_new(r->version);
    return r->ranks;
}

_Static_assert(offsetof(struct change, sub) == 0, "the tree's items begin with their member");

static bool has_touched(const struct row *r) { return r->delta && r->delta->touched > 0; }

/* The tree of touched entries, or NULL if there are none. */
static struct ztree *touched_tree(struct rk *rk, struct row *r)
{
    if (!has_touched(r)) return NULL;
    struct ordering *g = ordering_of(rk, r);
    struct ztree *t = &ranks_of(r)->touched;
    if (g->tree) return t;
    g->tree = true;
    ztree_release(t);
    for delta_each(c, r->delta)
        if (c->exists) ztree_insert(t, c->score, c);
    return t;
}

/* -- the stored entries ------------------------------------------------------------------------ */

static bytes order_base_sub(struct order *o)
{
    bytes key = store_key(o->shared->base);
    size_t prefix = o->row->delta->prefix.n;
    return bytes_of(key.p + prefix, key.n - prefix);
}

static void seek_base(struct order *o, bytes sub)
{
    bytes key = delta_key(o->rk, o->row, sub);
    (o->reverse ? store_seek_back : store_seek)(o->shared->base, key);
}

static void order_step_base(struct order *o) { (o->reverse ? store_prev : store_next)(o->shared->base); }

static void take_base(struct order *o)
{
    struct ordering *g = o->shared;
    bytes prefix = delta_prefix(o->rk, o->row);
    if (!g->base) g->base = store_iter(o->rk->session, FAM_SCORE, prefix, delta_after(o->rk, o->row), 0);
}

/* Takes the iterator from the walk that has it. */
static void order_hold(struct order *o)
{
    struct ordering *g = o->shared;
    struct order *other = g->holder;
    if (other == o) return;
    if (other) {
        other->parked = true;
        if (other->more_base) other->sub = delta_keep(o->rk, other->sub);
        if (!other->change) other->member = bytes_of(other->sub.p + 8, other->sub.n - 8);
    }
    g->holder = o;
    take_base(o);
    if (!o->parked) return;
    o->parked = false;
    if (o->more_base) seek_base(o, o->sub);
}

/* Reads the next untouched stored entry from the iterator's position on. */
static void read_base(struct order *o)
{
    for (; store_valid(o->shared->base); order_step_base(o)) {
        o->sub = order_base_sub(o);
        if (UNLIKELY(o->sub.n < 8)) continue; /* damaged */
        if (!has_touched(o->row)) return;
        const struct change *c = delta_peek(o->row, bytes_of(o->sub.p + 8, o->sub.n - 8));
        if (!c || !c->touched) return;
    }
    o->more_base = false;
}

/* Records the first entry found by a walk from an end: the next such walk can start there. */
static void remember_end(struct order *o)
{
    struct ranks *k = o->row->ranks;
    struct buf *end = o->reverse ? &k->high : &k->low;
    if (o->rk->base.failed) return; /* then it may not be the end */
    buf_clear(end);
    if (o->more_base) buf_append_bytes(end, o->sub);
    else if (!o->reverse) append_u64(end, UINT64_MAX); /* no entry: after everything; reverse: before it */
}

static void start_at_end(struct order *o)
{
    struct ranks *k = o->row->ranks;
    bool known = k && k->ends_known;
    if (known) seek_base(o, buf_bytes(o->reverse ? &k->high : &k->low));
    else (o->reverse ? store_seek_last : store_seek_first)(o->shared->base);
    read_base(o);
    if (known) remember_end(o);
}

static void start_base(struct order *o, const struct spot *from)
{
    struct ordering *g = o->shared;
    o->more_base = row_has_base(o->row);
    if (!o->more_base) return;
    order_hold(o);
    if (!from) {
        start_at_end(o);
        return;
    }
    struct buf *sub = &o->rk->scratch;
    buf_clear(sub);
    spot_encode(from, sub);
    seek_base(o, buf_bytes(sub));
    bool on_it = o->reverse && store_valid(g->base) && bytes_eq(order_base_sub(o), buf_bytes(sub));
    if (on_it) order_step_base(o); /* the entry itself is not before the spot */
    read_base(o);
}

/* -- walking ------------------------------------------------------------------------------------- */

static void start_touched(struct order *o, const struct spot *from)
{
    const struct ztree *t = touched_tree(o->rk, o->row);
    if (!t) return;
    u64 rank = o->reverse ? ztree_count(t) : 0;
    if (from && from->past) rank = ztree_rank_score(t, from->score, true);
    else if (from) rank = ztree_rank(t, from->score, from->member);
    if (o->reverse && rank-- == 0) return;
    o->more_touched = ztree_at(t, rank, &o->touched);
}

/* Moves to the nearer of the next stored and the next touched entry. */
static bool order_stand(struct order *o)
{
    struct change *c = o->more_touched ? ztree_item(&o->touched) : NULL;
    struct spot base;
    if (o->more_base) {
        spot_read(o->sub, &base);
        bool touched_first = c && before_spot(c->score, c->sub, &base) != o->reverse;
        if (!touched_first) {
            o->change = NULL;
            o->member = base.member;
            o->score = base.score;
            return true;
        }
    } else if (!c) {
        order_done(o);
        return false;
    }
    o->change = c;
    o->member = c->sub;
    o->score = c->score;
    return true;
}

bool order_start(struct order *o, struct rk *rk, struct row *r, const struct spot *from, bool reverse)
{
    *o = (struct order){.rk = rk, .row = r, .shared = ordering_of(rk, r), .reverse = reverse};
    if (from && !reverse && spot_is_first(from)) from = NULL;
    start_touched(o, from);
    start_base(o, from);
    return order_stand(o);
}

bool order_next(struct order *o)
{
    if (o->change) {
        o->more_touched = o->reverse ? ztree_prev(&o->touched) : ztree_next(&o->touched);
    } else if (o->more_base) {
        order_hold(o);
        order_step_base(o);
        read_base(o);
    } else {
        return false;
    }
    return order_stand(o);
}

void order_done(struct order *o)
{
    struct ordering *g = o->shared;
    if (g->holder == o) {
        g->holder = NULL;
        store_iter_done(g->base);
        g->base = NULL;
    }
    o->more_base = o->more_touched = false;
    o->change = NULL;
}

/* -- ranks --------------------------------------------------------------------------------------- */

/* Builds the blocks of a set by a walk over all of it. */
static void order_build(struct rk *rk, struct row *r)
{
    struct ranks *k = ranks_of(r);
    struct order o;
    struct spot start = SPOT_FIRST;
    u32 n = 0;
    for (bool more = order_start(&o, rk, r, NULL, false); more; more = order_next(&o), n++) {
        if (n < RANKS_FILL) continue;
        ranks_append(k, &start, n);
        start = (struct spot){.score = o.score, .member = delta_keep(rk, o.member)};
        n = 0;
    }
    if (n) ranks_append(k, &start, n);
    if (k->blocks.count != r->size) ranks_drop(k); /* it could not be read to the end */
}

/* The blocks of a set, loaded if need be; NULL: it has none. A big set without blocks was written by another
 * program, or its blocks did not add up. */
static struct ranks *blocks_of(struct rk *rk, struct row *r)
{
    if (MAX(r->size, r->stored.size) < RANKS_UNTIL) return NULL;
    struct ranks *k = ranks_of(r);
    if (!k->loaded && row_has_base(r) && !has_touched(r))
        ranks_load(k, rk->session, delta_prefix(rk, r), delta_after(rk, r), r->stored.size);
    k->loaded = true;
    if (!ranks_kept(k) && r->size > RANKS_FROM) order_build(rk, r);
    return ranks_kept(k) ? k : NULL;
}

static void order_split(struct rk *rk, struct row *r, struct block *b)
{
    struct order o;
    struct spot start;
    u32 keep = ranks_split_at(b), n = 0;
    ranks_start(b, &start);
    bool more = order_start(&o, rk, r, &start, false);
    for (; more && n < keep; n++) more = order_next(&o);
    if (more) ranks_split(r->ranks, b, &(struct spot){.score = o.score, .member = o.member}, keep);
    order_done(&o);
}

void order_ready(struct rk *rk, struct row *r) { blocks_of(rk, r); }

void order_leaves(struct rk *rk UNUSED, struct row *r, const struct change *c)
{
    struct ranks *k = r->ranks;
    if (!k) return;
    if (c->touched && r->delta->ordering && r->delta->ordering->tree)
        CHECK(ztree_remove(&k->touched, c->score, c->sub));
    if (!ranks_kept(k)) return;
    ranks_add(k, &(struct spot){.score = c->score, .member = c->sub}, -1);
    if (r->size <= RANKS_UNTIL) ranks_drop(k);
}

void order_enters(struct rk *rk, struct row *r, struct change *c)
{
    struct ranks *k = r->ranks;
    if (k && r->delta->ordering && r->delta->ordering->tree) ztree_insert(&k->touched, c->score, c);
    if (k && ranks_kept(k)) {
        struct block *big = ranks_add(k, &(struct spot){.score = c->score, .member = c->sub}, 1);
        if (UNLIKELY(big)) order_split(rk, r, big);
    } else if (UNLIKELY(r->size > RANKS_FROM)) {
        order_build(rk, r);
    }
}

void order_filled(struct row *r)
{
    struct spot start = SPOT_FIRST;
    u32 n = 0;
    if (r->size <= RANKS_FROM) return;
    struct ranks *k = ranks_of(r);
    k->loaded = true;
    for delta_each(c, r->delta) {
        if (n == RANKS_FILL) {
            ranks_append(k, &start, n);
            start = (struct spot){.score = c->score, .member = c->sub};
            n = 0;
        }
        n++;
    }
    ranks_append(k, &start, n);
}

void order_remember_ends(struct row *r)
{
    struct ranks *k = ranks_of(r);
    if (k->ends_known || !row_has_base(r)) return;
    k->ends_known = true;
    buf_clear(&k->low);
    buf_clear(&k->high);
    append_u64(&k->high, UINT64_MAX);
}

static bytes kept_sub(struct rk *rk, const struct spot *s, bool behind)
{
    struct buf *sub = &rk->scratch;
    buf_clear(sub);
    spot_encode(s, sub);
    if (behind) buf_append_char(sub, '\0');
    return delta_keep(rk, buf_bytes(sub));
}

void order_cut(struct rk *rk, struct row *r, const struct spot *first, const struct spot *last)
{
    struct ordering *g = ordering_of(rk, r);
    struct cut *cut = arena_alloc(&rk->arena, sizeof *cut);
    *cut = (struct cut){.next = g->cuts, .from = kept_sub(rk, first, false), .to = kept_sub(rk, last, true)};
    g->cuts = cut;
}

bool order_is_cut(const struct row *r, double score, bytes member)
{
    const struct ordering *g = r->delta->ordering;
    struct spot from, to;
    for (const struct cut *cut = g ? g->cuts : NULL; cut; cut = cut->next) {
        spot_read(cut->from, &from);
        spot_read(cut->to, &to);
        if (!before_spot(score, member, &from) && before_spot(score, member, &to)) return true;
    }
    return false;
}

/* Walks from one end to the entry that many steps away. */
static bool walk_from_end(struct order *o, struct rk *rk, struct row *r, u64 steps, bool reverse)
{
    bool more = order_start(o, rk, r, NULL, reverse);
    for (; more && steps > 0; steps--) more = order_next(o);
    return more;
}

bytes just_behind(struct rk *rk, bytes member)
{
    char *p = arena_alloc(&rk->arena, member.n + 1);
    if (member.n) memcpy(p, member.p, member.n);
    p[member.n] = '\0';
    return bytes_of(p, member.n + 1);
}

bool order_at(struct order *o, struct rk *rk, struct row *r, u64 rank, bool reverse)
{
    u64 from_end = reverse ? r->size - 1 - rank : rank;
    struct spot start = SPOT_FIRST;
    if (from_end <= NEAR) return walk_from_end(o, rk, r, from_end, reverse);
    struct ranks *k = blocks_of(rk, r);
    u64 steps = k ? ranks_at(k, rank, &start) : rank;
    bool more = order_start(o, rk, r, &start, false);
    for (; more && steps > 0; steps--) more = order_next(o);
    if (!more || !reverse) return more;
    struct spot from = {.score = o->score, .member = just_behind(rk, o->member)}; /* down from there */
    order_done(o);
    return order_start(o, rk, r, &from, true);
}

u64 order_before(struct rk *rk, struct row *r, const struct spot *s)
{
    struct order o;
    struct spot start = SPOT_FIRST;
    if (spot_is_first(s)) return 0;
    if (s->past && s->score == INFINITY) return r->size;
    struct ranks *k = blocks_of(rk, r);
    u64 n = k ? ranks_before(k, s, &start) : 0;
    bool more = order_start(&o, rk, r, &start, false);
    for (; more && before_spot(o.score, o.member, s); n++) more = order_next(&o);
    order_done(&o);
    return n;
}

/* -- the end of the transaction ---------------------------------------------------------------------- */

/* Extends low and high by the touched entries, which commit stores. */
static void widen_ends(struct ranks *k, struct rk *rk, struct row *r)
{
    struct buf *sub = &rk->scratch;
    if (!k->ends_known) return;
    for delta_each(c, r->delta) {
        if (!c->exists) continue;
        buf_clear(sub);
        spot_encode(&(struct spot){.score = c->score, .member = c->sub}, sub);
        if (bytes_cmp(buf_bytes(sub), buf_bytes(&k->low)) < 0) {
            buf_clear(&k->low);
            buf_append_bytes(&k->low, buf_bytes(sub));
        }
        if (bytes_cmp(buf_bytes(sub), buf_bytes(&k->high)) > 0) {
            buf_clear(&k->high);
            buf_append_bytes(&k->high, buf_bytes(sub));
        }
    }
}

static void write_cuts(struct rk *rk, struct row *r)
{
    const struct ordering *g = r->delta ? r->delta->ordering : NULL;
    for (const struct cut *cut = g ? g->cuts : NULL; cut; cut = cut->next) {
        bytes from = delta_keep(rk, delta_key(rk, r, cut->from));
        store_delete_range(rk->session, FAM_SCORE, from, delta_key(rk, r, cut->to));
    }
}

void order_commit(struct rk *rk, struct row *r)
{
    struct ranks *k = r->ranks;
    write_cuts(rk, r);
    if (!k) return;
    widen_ends(k, rk, r);
    if (k->wipe || k->changed_n) ranks_commit(k, rk->session, delta_prefix(rk, r), delta_after(rk, r));
    ztree_release(&k->touched);
}
