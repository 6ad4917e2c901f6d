/* Scanning and random selection, for hashes and sets alike. */
#include "command/collection/map.h"

#include "command/collection/members.h"
#include "command/scan.h"

/* -- HSCAN, SSCAN ------------------------------------------------------------------ */

/* The elements are written to a separate buffer, because the cursor, which comes before them in the reply, is
 * known only after the walk. */
struct scan_walk {
    struct scan_options opt;
    bool values; /* follow their names */
    u64 n;
    struct buf buf;
    struct reply out;
};

static void map_scan_visit(void *arg, bytes member, bytes value, double score)
{
    struct scan_walk *w = arg;
    (void)score;
    if (!scan_matches(&w->opt, member)) return;
    reply_bulk(&w->out, member);
    if (w->values) reply_bulk(&w->out, value);
    w->n += w->values ? 2 : 1;
}

static void reply_scan(struct ctx *c, u64 cursor, const struct scan_walk *w)
{
    reply_array(c->out, 2);
    reply_bulkf(c->out, "%llu", (unsigned long long)cursor);
    reply_array(c->out, w->n);
    buf_append_bytes(c->out->out, buf_bytes(&w->buf));
}

void map_scan(struct ctx *c, enum value_type type)
{
    struct scan_walk w = {.values = type == TYPE_HASH};
    struct key_ref ref;
    if (!scan_parse_cursor(c, c->argv[2], &w.opt)) return;
    err e = ctx_read(c, c->argv[1], type, &ref);
    if (e == ERR_TYPE) return;
    u64 cursor = 0;
    w.out = (struct reply){.out = &w.buf, .proto = c->out->proto};
    if (e == OK) {
        if (!scan_parse_options(c, 3, type, &w.opt)) return;
        w.values &= !w.opt.no_values;
        cursor = c->eng->ops->map.scan(c->eng, &ref, w.opt.cursor, w.opt.count, map_scan_visit, &w);
    }
    reply_scan(c, cursor, &w);
    buf_release(&w.buf);
}

/* -- drawing at random ------------------------------------------------------------- */

bool map_draws(struct ctx *c, struct key_ref *ref, i64 count, u64 *draws)
{
    if (!ctx_repeats_fit(c, count)) return false;
    *draws = count < 0 ? (u64)-count : MIN((u64)count, map_size(c, ref));
    return true;
}

/* One walk over everything, in which each element is taken with probability (still wanted / still to come):
 * every subset is equally likely. */
static void draw_walking(struct ctx *c, struct key_ref *ref, u64 wanted, map_emit emit)
{
    u64 left = map_size(c, ref);
    struct map_iter it;
    bytes field, value;
    map_iter(c, ref, &it);
    it.passing = true;
    for (; wanted > 0 && map_next(c, &it, &field, &value); left--) {
        if (left > wanted && rand_below(&c->rng, left) >= wanted) continue;
        emit(c, field, value);
        wanted--;
    }
}

/* Few out of many: draws, remembers, and draws repeats again. At most a third is wanted, so that few draws
 * are wasted, and fewer where a draw costs more; but the engine may draw unevenly if most fields are dead,
 * and then a walk brings the rest. */
static void draw_remembering(struct ctx *c, struct key_ref *ref, u64 wanted, map_emit emit)
{
    struct members drawn;
    struct map_iter it;
    bytes field, value;
    members_init(&drawn, wanted, rand_next(&c->rng));
    for (u64 tries = 0; drawn.n < wanted && tries < 100 + 10 * wanted; tries++)
        if (map_random(c, ref, &field, &value) && members_add(&drawn, field)) emit(c, field, value);
    map_iter(c, ref, &it);
    while (drawn.n < wanted && map_next(c, &it, &field, &value))
        if (members_add(&drawn, field)) emit(c, field, value);
    members_release(&drawn);
}

static void draw_repeating(struct ctx *c, struct key_ref *ref, u64 draws, map_emit emit)
{
    bytes field, value;
    while (draws-- > 0 && map_random(c, ref, &field, &value)) emit(c, field, value);
}

void map_draw(struct ctx *c, struct key_ref *ref, i64 count, map_emit emit)
{
    u64 size = map_size(c, ref);
    if (count < 0) draw_repeating(c, ref, (u64)-count, emit);
    else if ((u64)count > size / c->eng->caps.draw_cost) draw_walking(c, ref, MIN((u64)count, size), emit);
    else draw_remembering(c, ref, (u64)count, emit);
}
