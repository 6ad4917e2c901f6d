/* Sorted sets of the rocks engine. A member is a row of `data`, P · version · member → enc8(score), and
 * one of redis_zset_score, P · version · enc8(score) · member, which order.c walks over; both are written
 * at commit, from the member's change record. -0.0 is stored as +0.0.
 *
 * As with hashes (map.c), whether Redis would have packed the set only matters for OBJECT ENCODING, ZSCAN,
 * and where a range by member starts if the scores differ. */
#include "engine/rocks/type/order.h"

#include "base/sort.h"

#define TOGETHER 128 /* entries that are collected before they are erased */
#define BIG_CUT 1024 /* entries from which on a range deletion is worth what it costs readers */

/* -- members ------------------------------------------------------------------------------------ */

static struct change *member_at(struct rk *rk, struct row *r, bytes member)
{
    struct change *c = delta_at(rk, r, member);
    if (c->touched || !c->exists) return c;
    if (LIKELY(c->value.n == 8)) c->stored_score = c->score = codec_score_read(get_u64(c->value.p));
    else rk->base.failed = true; /* damaged */
    return c;
}

static bool rk_zset_score(struct engine *e, struct key_ref *ref, bytes member, double *score)
{
    struct change *c = member_at(rk_of(e), row_of(ref), member);
    if (c->exists) *score = c->score;
    return c->exists;
}

/* Sets row->unpacked where Redis would convert the packed form. */
static void rk_zset_judge_size(struct rk *rk, struct row *r, bytes member)
{
    if ((i64)r->size > rk->base.limits.zset_max_listpack_entries ||
        (i64)member.n > rk->base.limits.zset_max_listpack_value)
        r->unpacked = true;
}

static bool rk_zset_put_score(struct rk *rk, struct row *r, bytes member, double score)
{
    char coded[8];
    score += 0.0; /* which makes a negative zero positive */
    order_ready(rk, r);
    struct change *c = member_at(rk, r, member);
    bool fresh = !c->exists;
    if (!fresh && c->score == score) return false;
    row_touch(rk, r);
    if (!fresh) order_leaves(rk, r, c);
    put_u64(coded, codec_score(score));
    delta_put(rk, r, c, bytes_of(coded, 8));
    c->score = score;
    r->size += fresh;
    order_enters(rk, r, c);
    if (fresh) rk_zset_judge_size(rk, r, member);
    return fresh;
}

static bool rk_zset_put(struct engine *e, struct key_ref *ref, bytes member, double score)
{
    return rk_zset_put_score(rk_of(e), row_of(ref), member, score);
}

static void rk_zset_take(struct rk *rk, struct row *r, struct change *c)
{
    order_leaves(rk, r, c);
    delta_erase(rk, r, c);
    r->size--;
}

static bool rk_zset_del(struct engine *e, struct key_ref *ref, bytes member)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    order_ready(rk, r);
    struct change *c = member_at(rk, r, member);
    if (!c->exists) return false;
    row_touch(rk, r);
    rk_zset_take(rk, r, c);
    return true;
}

static bool rk_zset_rank(struct engine *e, struct key_ref *ref, bytes member, u64 *rank)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    struct change *c = member_at(rk, r, member);
    if (!c->exists) return false;
    *rank = order_before(rk, r, &(struct spot){.score = c->score, .member = c->sub});
    return true;
}

/* -- packed or not ------------------------------------------------------------------------------ */

static bool is_packed(struct rk *rk, struct row *r)
{
    struct walk w;
    if (!r->unpacked && (i64)r->size > rk->base.limits.zset_max_listpack_entries) r->unpacked = true;
    if (r->unpacked) return false;
    for (bool more = walk_start(&w, rk, r, (bytes){0}, false); more; more = walk_next(&w)) {
        if ((i64)w.sub.n <= rk->base.limits.zset_max_listpack_value) continue;
        r->unpacked = true;
        walk_done(&w);
        return false;
    }
    return true;
}

const char *rk_zset_encoding(struct rk *rk, struct row *r)
{
    return is_packed(rk, r) ? "listpack" : "skiplist";
}

/* -- places ------------------------------------------------------------------------------------- */

/* In a packed set Redis compares members only, one after the other from the end it starts at. Doing the same
 * matters if the scores differ. */
static struct spot lex_place_packed(struct rk *rk, struct row *r, const struct zset_seek *to, bool through,
                                    bool reverse)
{
    struct order o;
    for (bool more = order_start(&o, rk, r, NULL, reverse); more; more = order_next(&o)) {
        int c = bytes_cmp(o.member, to->lex);
        bool before = c < 0 || (through && c == 0);
        if (before != reverse) continue;
        struct spot s = {.score = o.score};
        s.member = reverse ? just_behind(rk, o.member) : delta_keep(rk, o.member);
        order_done(&o);
        return s;
    }
    return reverse ? SPOT_FIRST : SPOT_END;
}

/* Range by member assumes equal scores: takes the first one's. */
static struct spot lex_place(struct rk *rk, struct row *r, const struct zset_seek *to, bool through,
                             bool reverse)
{
    struct order o;
    if (to->lex_inf) return to->lex_inf < 0 ? SPOT_FIRST : SPOT_END;
    if (is_packed(rk, r)) return lex_place_packed(rk, r, to, through, reverse);
    if (!order_start(&o, rk, r, NULL, false)) return SPOT_FIRST;
    struct spot s = {.score = o.score, .member = through ? just_behind(rk, to->lex) : to->lex};
    order_done(&o);
    return s;
}

/* The spot after all entries that are before the bound or (`through`) equal to it. `reverse` only says from
 * which end a packed set is searched. */
static struct spot rk_zset_place_of(struct rk *rk, struct row *r, const struct zset_seek *to, bool through,
                                    bool reverse)
{
    if (to->by == ZSEEK_LEX) return lex_place(rk, r, to, through, reverse);
    return (struct spot){.score = to->score + 0.0, .member = {"", 0}, .past = through};
}

static u64 rank_of(const struct row *r, const struct zset_seek *to, bool through)
{
    return to->rank < r->size ? to->rank + through : r->size;
}

static u64 rk_zset_before(struct engine *e, struct key_ref *ref, const struct zset_seek *to)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    if (to->by == ZSEEK_RANK) return rank_of(r, to, to->exclusive);
    struct spot s = rk_zset_place_of(rk, r, to, to->exclusive, false);
    return order_before(rk, r, &s);
}

/* -- iterators ---------------------------------------------------------------------------------- */

struct zset_walk {
    struct order o;
    bool more, given; /* it is at an entry; which was returned */
    u64 size, left;   /* of the set when it began; entries left if it began at a rank, otherwise 0 */
};

static struct zset_walk **rk_zset_walk_in(struct zset_iter *it) { return (struct zset_walk **)it->state; }

static bool rk_zset_start(struct zset_walk *w, struct rk *rk, struct row *r, const struct zset_seek *from)
{
    bool through = from->exclusive != from->reverse;
    if (from->by != ZSEEK_RANK) {
        struct spot s = rk_zset_place_of(rk, r, from, through, from->reverse);
        return order_start(&w->o, rk, r, &s, from->reverse);
    }
    u64 rank = rank_of(r, from, through);
    if (from->reverse && rank-- == 0) return false;
    if (rank < r->size) w->left = from->reverse ? rank + 1 : r->size - rank;
    return rank < r->size && order_at(&w->o, rk, r, rank, from->reverse);
}

static void rk_zset_iter(struct engine *e, struct key_ref *ref, const struct zset_seek *from,
                         struct zset_iter *it)
{
    struct rk *rk = rk_of(e);
    struct zset_walk *w = arena_alloc(&rk->arena, sizeof *w);
    it->eng = e;
    it->ref = ref;
    it->reverse = from->reverse;
    it->passing = false;
    w->given = false;
    w->size = row_of(ref)->size;
    w->left = 0;
    w->more = rk_zset_start(w, rk, row_of(ref), from);
    *rk_zset_walk_in(it) = w;
}

/* The command has already sent the size to its client: fewer entries are an error, not the end. */
static bool rk_zset_end(const struct zset_iter *it, const struct zset_walk *w)
{
    if (UNLIKELY(w->left && row_of(it->ref)->size == w->size))
        store_damaged(rk_of(it->eng)->session, "entries of a sorted set are missing");
    return false;
}

static bool rk_zset_next(struct zset_iter *it, bytes *member, double *score)
{
    struct zset_walk *w = *rk_zset_walk_in(it);
    if (w->more && w->given) w->more = order_next(&w->o);
    if (!w->more) return rk_zset_end(it, w);
    w->given = true;
    w->left -= w->left > 0;
    *member = it->passing || w->o.change ? w->o.member : delta_keep(rk_of(it->eng), w->o.member);
    *score = w->o.score;
    return true;
}

/* -- erasing ranges ----------------------------------------------------------------------------- */

/* The change record of the entry at a walk's position; reads nothing. */
static struct change *change_at(struct order *o)
{
    if (o->change) return o->change;
    struct change *c = delta_new(o->rk, o->row, o->member);
    c->stored = c->exists = true;
    c->stored_score = c->score = o->score;
    return c;
}

static struct spot spot_of(const struct change *c)
{
    return (struct spot){.score = c->score, .member = c->sub};
}

static u32 rk_zset_collect(struct order *o, bool more, u64 max, struct change **out)
{
    u32 n = 0;
    for (; more && n < MIN(max, TOGETHER); more = order_next(o)) out[n++] = change_at(o);
    order_done(o);
    return n;
}

/* The set must not change during a walk, so entries are collected first, TOGETHER at a time. */
static void erase_up(struct rk *rk, struct row *r, u64 from, u64 count, pair_fn fn, void *arg)
{
    struct change *gone[TOGETHER];
    struct order o;
    struct spot first = {.score = NAN}, last = first;
    bool more = order_at(&o, rk, r, from, false), big = count >= BIG_CUT;
    for (u32 n; count > 0 && (n = rk_zset_collect(&o, more, count, gone)); count -= n) {
        for (u32 i = 0; i < n; i++) {
            if (fn) fn(arg, gone[i]->sub, (bytes){"", 0}, gone[i]->score);
            rk_zset_take(rk, r, gone[i]);
        }
        last = spot_of(gone[n - 1]);
        if (isnan(first.score)) first = spot_of(gone[0]);
        more = count > n && order_start(&o, rk, r, &last, false);
    }
    if (big && !isnan(first.score)) order_cut(rk, r, &first, &last);
}

static void erase_top(struct rk *rk, struct row *r, u64 count)
{
    struct change *gone[TOGETHER];
    struct order o;
    for (u32 n; count > 0; count -= n) {
        bool more = order_start(&o, rk, r, NULL, true);
        n = rk_zset_collect(&o, more, count, gone);
        for (u32 i = 0; i < n; i++) rk_zset_take(rk, r, gone[i]);
        if (n == 0) return; /* it could not be read */
    }
}

/* Replaces the set by a new, empty one: O(1), like dropping the old one. */
static void erase_all(struct rk *rk, struct row *r, pair_fn fn, void *arg)
{
    struct order o;
    i64 deadline_ms = r->deadline_ms;
    u32 access = r->access;
    bool unpacked = r->unpacked;
    for (bool more = fn && order_start(&o, rk, r, NULL, false); more; more = order_next(&o))
        fn(arg, o.member, (bytes){"", 0}, o.score);
    row_drop(rk, r);
    row_create(rk, r, TYPE_ZSET);
    row_set_deadline(rk, r, deadline_ms);
    r->access = access;
    r->unpacked = unpacked;
}

static void rk_zset_erase(struct engine *e, struct key_ref *ref, u64 from, u64 count, pair_fn fn, void *arg)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    if (from >= r->size || count == 0) return;
    count = MIN(count, r->size - from);
    if (count == r->size) {
        erase_all(rk, r, fn, arg);
        return;
    }
    row_touch(rk, r);
    order_ready(rk, r);
    order_remember_ends(r);
    if (!fn && from + count == r->size && count < BIG_CUT) erase_top(rk, r, count);
    else erase_up(rk, r, from, count, fn, arg);
}

/* -- scanning ----------------------------------------------------------------------------------- */

struct scan {
    pair_fn fn;
    void *arg;
};

static bool rk_zset_see(void *arg, struct walk *w)
{
    struct scan *s = arg;
    bytes member = w->change ? w->sub : delta_keep(w->rk, w->sub);
    if (UNLIKELY(w->value.n != 8)) return false; /* damaged */
    s->fn(s->arg, member, (bytes){"", 0}, codec_score_read(get_u64(w->value.p)));
    return true;
}

static u64 rk_zset_scan(struct engine *e, struct key_ref *ref, u64 cursor, u32 count, pair_fn fn, void *arg)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    u64 whole = is_packed(rk, r) ? UINT64_MAX : 0;
    return cursor_scan(rk, r, cursor, count, whole, rk_zset_see, &(struct scan){fn, arg});
}

/* -- the end of the transaction ----------------------------------------------------------------- */

/* A row of redis_zset_score to be put or deleted. */
struct score_row {
    u64 coded;
    bytes member;
    bool comes;
};

static int by_place(const void *x, const void *y)
{
    const struct score_row *a = x, *b = y;
    if (a->coded != b->coded) return a->coded < b->coded ? -1 : 1;
    return bytes_cmp(a->member, b->member);
}

/* Collects a member's rows of redis_zset_score. */
static void note_scores(const struct row *r, const struct change *c, struct score_row **next)
{
    bool cut = c->stored && order_is_cut(r, c->stored_score, c->sub);
    if (c->stored && c->exists && c->stored_score == c->score && !cut) return; /* it is where it was */
    if (c->stored && !cut) *(*next)++ = (struct score_row){codec_score(c->stored_score), c->sub, false};
    if (c->exists) *(*next)++ = (struct score_row){codec_score(c->score), c->sub, true};
}

/* Writes its row of `data`. */
static void write_member(struct rk *rk, bytes prefix, const struct change *c)
{
    if (c->stored && c->exists && c->stored_score == c->score) return;
    if (c->exists) store_put2(rk->session, FAM_DATA, prefix, c->sub, c->value);
    else if (c->stored) store_delete2(rk->session, FAM_DATA, prefix, c->sub);
}

static void rk_zset_write_score(struct rk *rk, bytes prefix, const struct score_row *s)
{
    buf_clear(&rk->scratch);
    append_u64(&rk->scratch, s->coded);
    buf_append_bytes(&rk->scratch, s->member);
    if (s->comes) store_put2(rk->session, FAM_SCORE, prefix, buf_bytes(&rk->scratch), (bytes){"", 0});
    else store_delete2(rk->session, FAM_SCORE, prefix, buf_bytes(&rk->scratch));
}

/* Writes each family in its own order: memtables are skip lists that cost a cache miss per step, and the path
 * to a neighbouring key is half cached. (Random ZADDs, some hundreds per transaction: 17 % less.) */
void rk_zset_commit(struct rk *rk, struct row *r)
{
    u32 n;
    order_commit(rk, r);
    if (!r->delta || !r->delta->touched) return;
    bytes prefix = delta_prefix(rk, r);
    struct change **v = delta_ordered(rk, r, &n);
    struct score_row *rows = arena_alloc(&rk->arena, 2 * n * sizeof *rows), *end = rows;
    for (u32 i = 0; i < n; i++) write_member(rk, prefix, v[i]);
    for delta_each(c, r->delta) note_scores(r, c, &end);
    sort_unless_sorted(rows, (size_t)(end - rows), sizeof *rows, by_place);
    for (struct score_row *s = rows; s < end; s++) rk_zset_write_score(rk, prefix, s);
}

void rk_zset_copy(struct rk *rk, struct row *from, struct row *to)
{
    struct order o;
    row_touch(rk, to);
    for (bool more = order_start(&o, rk, from, NULL, false); more; more = order_next(&o))
        rk_zset_put_score(rk, to, o.member, o.score);
    to->unpacked = from->unpacked;
}

const struct zset_ops rk_zset_ops = {
    .score = rk_zset_score,
    .put = rk_zset_put,
    .fill = rk_zset_fill,
    .del = rk_zset_del,
    .rank = rk_zset_rank,
    .before = rk_zset_before,
    .iter = rk_zset_iter,
    .next = rk_zset_next,
    .erase = rk_zset_erase,
    .scan = rk_zset_scan,
};
