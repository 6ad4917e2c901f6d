/* Filling a sorted set. Into an empty one, and in order, entries come in one go: no tree of them has to be
 * kept, and the blocks of a big set (ranks.h) are cut when all are there. */
#include "engine/fill.h"
#include "engine/rocks/type/order.h"

#define TOGETHER 32 /* entries whose places are fetched together */

static bool zset_fill_in_order(const bytes *members, const double *scores, u32 n)
{
    for (u32 i = 1; i < n; i++) {
        if (scores[i] > scores[i - 1]) continue;
        if (scores[i] < scores[i - 1] || bytes_cmp(members[i], members[i - 1]) <= 0) return false;
    }
    return true;
}

static bool zset_fill_is_new(const struct row *r)
{
    return r->size == 0 && !row_has_base(r) && !(r->delta && r->delta->n);
}

u32 rk_zset_fill(struct engine *e, struct key_ref *ref, const bytes *members, const double *scores, u32 n)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    i64 longest = 0;
    char coded[8];
    if (!zset_fill_is_new(r) || !zset_fill_in_order(members, scores, n))
        return zset_fill_each(e, ref, members, scores, n);
    row_touch(rk, r);
    for (u32 i = 0; i < n; i++) {
        if (i % TOGETHER == 0) delta_expect(delta_of(rk, r), members + i, MIN(n - i, TOGETHER), n);
        struct change *c = delta_new(rk, r, members[i]);
        if (c->exists) return i;
        c->score = scores[i] + 0.0; /* which makes a negative zero positive */
        put_u64(coded, codec_score(c->score));
        delta_put(rk, r, c, bytes_of(coded, 8));
        r->size++;
        longest = MAX(longest, (i64)members[i].n);
    }
    r->unpacked |= n > rk->base.limits.zset_max_listpack_entries ||
                   longest > rk->base.limits.zset_max_listpack_value;
    order_filled(r);
    return n;
}
