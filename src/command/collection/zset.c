/* Sorted sets: adding, removing, looking up, sampling, scanning. Popping is in zset_pop.c,
 * ranges in zset_range.c, unions and intersections in zset_algebra.c. */
#include "command/collection/zset.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "command/commands.h"
#include "command/scan.h"
#include "command/collection/zset_list.h"
#include "command/collection/zset_range.h"

/* -- ZADD ZINCRBY ------------------------------------------------------------------- */

static bool zset_is_small(struct ctx *c, struct key_ref *ref)
{
    return strcmp(c->eng->ops->encoding(c->eng, ref), "listpack") == 0;
}

static void zset_zset_put(struct ctx *c, struct key_ref *ref, bytes member, double score, bool fresh)
{
    if (UNLIKELY(score == 0 && signbit(score)) && zset_is_small(c, ref)) {
        u64 size = c->eng->ops->size(c->eng, ref) + 1;
        if (!fresh || zset_fits_small(c, size, member)) score = zset_plain_zero(score);
    }
    c->eng->ops->zset.put(c->eng, ref, member, score);
}

enum add_outcome { ADD_NOTHING, ADD_SAME, ADD_NEW, ADD_UPDATED, ADD_NAN };

/* *score: in, the argument; out, the score the member then has. */
static enum add_outcome add_one(struct ctx *c, struct key_ref *ref, u32 flags, bytes member,
                                double *score)
{
    double old, now = *score;
    if (!c->eng->ops->zset.score(c->eng, ref, member, &old)) {
        if (flags & ZADD_XX) return ADD_NOTHING;
        if (flags & ZADD_INCR) c->eng->intent = INTENT_ADD;
        zset_zset_put(c, ref, member, now, true);
        return ADD_NEW;
    }
    if (flags & ZADD_NX) return ADD_NOTHING;
    if (flags & ZADD_INCR) {
        now += old;
        if (isnan(now)) return ADD_NAN; /* inf - inf */
    }
    if ((flags & ZADD_LT) && now >= old) return ADD_NOTHING;
    if ((flags & ZADD_GT) && now <= old) return ADD_NOTHING;
    *score = now;
    if (now == old) {
        if (c->eng->captured) zset_zset_put(c, ref, member, now, false); /* beats a removal elsewhere */
        return ADD_SAME;
    }
    if (flags & ZADD_INCR) c->eng->intent = INTENT_ADD;
    zset_zset_put(c, ref, member, now, false);
    return ADD_UPDATED;
}

/* A sum depends on the previous score, so the journal gets its result. */
static void effect_of_increment(struct ctx *c, bytes member, double score)
{
    char text[64];
    if (!journal_wanted(c->ks->journal)) return;
    size_t n = num_print_double(text, score);
    CTX_EFFECT(c, BYTES_LIT("ZADD"), c->argv[1], bytes_of(text, n), member);
}

static void increment(struct ctx *c, struct key_ref *ref, u32 flags, bytes member, double by)
{
    double score = by;
    switch (add_one(c, ref, flags, member, &score)) {
    case ADD_NAN:
        reply_error(c->out, "ERR resulting score is not a number (NaN)");
        return;
    case ADD_NOTHING:
        reply_null(c->out);
        return;
    case ADD_NEW:
    case ADD_UPDATED:
        effect_of_increment(c, member, score);
        ctx_changed(c, c->argv[1], NOTIFY_ZSET, "zincr");
        break;
    case ADD_SAME:
        break;
    }
    reply_double(c->out, score);
}

void zset_add(struct ctx *c, u32 flags, int n, const double *scores, const bytes *members,
              int stride)
{
    struct key_ref ref;
    i64 added = 0, updated = 0;
    if (flags & ZADD_XX) { /* it never creates the key */
        err e = ctx_write(c, c->argv[1], TYPE_ZSET, &ref);
        if (e == ERR_NOT_FOUND && (flags & ZADD_INCR)) reply_null(c->out);
        else if (e == ERR_NOT_FOUND) reply_int(c->out, 0);
        if (e != OK) return;
    } else if (!ctx_open(c, c->argv[1], TYPE_ZSET, &ref)) {
        return;
    }
    if (flags & ZADD_INCR) {
        increment(c, &ref, flags, members[0], scores[0]);
        return;
    }
    for (int i = 0; i < n; i++) {
        double score = scores[i];
        enum add_outcome done = add_one(c, &ref, flags, members[i * stride], &score);
        added += done == ADD_NEW;
        updated += done == ADD_UPDATED;
    }
    if (added + updated > 0) ctx_changed_by(c, (u64)(added + updated), c->argv[1], NOTIFY_ZSET, "zadd");
    reply_int(c->out, flags & ZADD_CH ? added + updated : added);
}

static u32 zadd_option(bytes arg)
{
    static const struct {
        const char *name;
        u32 flag;
    } options[] = {{"nx", ZADD_NX}, {"xx", ZADD_XX}, {"ch", ZADD_CH},
                   {"incr", ZADD_INCR}, {"gt", ZADD_GT}, {"lt", ZADD_LT}};
    if (arg.n < 2 || arg.p[0] <= '9') return 0; /* a number: the usual case */
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        if (bytes_is(arg, options[i].name)) return options[i].flag;
    return 0;
}

static const char *add_conflict(u32 flags, int n)
{
    bool nx = flags & ZADD_NX, gt = flags & ZADD_GT, lt = flags & ZADD_LT;
    if (nx && (flags & ZADD_XX))
        return "ERR XX and NX options at the same time are not compatible";
    if ((nx && (gt || lt)) || (gt && lt))
        return "ERR GT, LT, and/or NX options at the same time are not compatible";
    if ((flags & ZADD_INCR) && n > 1)
        return "ERR INCR option supports a single increment-element pair";
    return NULL;
}

static bool parse_scores(struct ctx *c, int at, int n, double *scores)
{
    for (int i = 0; i < n; i++)
        if (!ctx_double(c, c->argv[at + i * 2], &scores[i])) return false;
    return true;
}

/* ZINCRBY is ZADD INCR, even in parsing options where its increment should be. */
static void parse_and_add(struct ctx *c, u32 flags)
{
    double few[16], *scores = few;
    int at = 2;
    for (u32 option; at < c->argc && (option = zadd_option(c->argv[at])) != 0; at++) flags |= option;
    int n = (c->argc - at) / 2;
    if (n <= 0 || (c->argc - at) % 2 != 0) {
        ctx_syntax_error(c);
        return;
    }
    const char *conflict = add_conflict(flags, n);
    if (conflict) {
        reply_error(c->out, conflict);
        return;
    }
    if ((size_t)n > ARRAY_LEN(few)) scores = mem_alloc((size_t)n * sizeof(*scores));
    if (parse_scores(c, at, n, scores)) zset_add(c, flags, n, scores, c->argv + at + 1, 2);
    if (scores != few) mem_free(scores);
}

void cmd_zadd(struct ctx *c) { parse_and_add(c, 0); }
void cmd_zincrby(struct ctx *c) { parse_and_add(c, ZADD_INCR); }

/* -- ZREM ----------------------------------------------------------------------------- */

void cmd_zrem(struct ctx *c)
{
    struct key_ref ref;
    i64 removed = 0;
    err e = ctx_write(c, c->argv[1], TYPE_ZSET, &ref);
    if (e == ERR_TYPE) return;
    u64 left = e == OK ? c->eng->ops->size(c->eng, &ref) : 0;
    for (int i = 2; left > 0 && i < c->argc; i++) {
        if (!c->eng->ops->zset.del(c->eng, &ref, c->argv[i])) continue;
        removed++;
        left--;
    }
    if (removed > 0) {
        ctx_changed_by(c, (u64)removed, c->argv[1], NOTIFY_ZSET, "zrem");
        ctx_drop_if_empty(c, &ref);
    }
    reply_int(c->out, removed);
}

/* -- ZSCORE ZMSCORE ZCARD ZRANK ZREVRANK ZCOUNT ZLEXCOUNT --------------------------------- */

static void reply_score(struct ctx *c, struct key_ref *ref, bytes member)
{
    double score;
    if (ref && c->eng->ops->zset.score(c->eng, ref, member, &score)) reply_double(c->out, score);
    else reply_null(c->out);
}

void cmd_zscore(struct ctx *c)
{
    struct key_ref ref;
    err e = ctx_read(c, c->argv[1], TYPE_ZSET, &ref);
    if (e == ERR_TYPE) return;
    reply_score(c, e == OK ? &ref : NULL, c->argv[2]);
}

void cmd_zmscore(struct ctx *c)
{
    struct key_ref ref;
    err e = ctx_read(c, c->argv[1], TYPE_ZSET, &ref);
    if (e == ERR_TYPE) return;
    reply_array(c->out, (size_t)c->argc - 2);
    for (int i = 2; i < c->argc; i++) reply_score(c, e == OK ? &ref : NULL, c->argv[i]);
}

void cmd_zcard(struct ctx *c)
{
    struct key_ref ref;
    err e = ctx_read(c, c->argv[1], TYPE_ZSET, &ref);
    if (e == ERR_TYPE) return;
    reply_int(c->out, e == OK ? (i64)c->eng->ops->size(c->eng, &ref) : 0);
}

static void reply_rank(struct ctx *c, bool from_top)
{
    struct key_ref ref;
    u64 rank;
    double score;
    bool with_score = c->argc == 4;
    if (c->argc > 4) {
        ctx_wrong_arity(c);
        return;
    }
    if (with_score && !bytes_is(c->argv[3], "withscore")) {
        ctx_syntax_error(c);
        return;
    }
    err e = ctx_read(c, c->argv[1], TYPE_ZSET, &ref);
    if (e == ERR_TYPE) return;
    if (e != OK || !c->eng->ops->zset.rank(c->eng, &ref, c->argv[2], &rank)) {
        (with_score ? reply_null_array : reply_null)(c->out);
        return;
    }
    if (from_top) rank = c->eng->ops->size(c->eng, &ref) - 1 - rank;
    if (with_score) reply_array(c->out, 2);
    reply_int(c->out, (i64)rank);
    if (with_score && c->eng->ops->zset.score(c->eng, &ref, c->argv[2], &score)) reply_double(c->out, score);
}

void cmd_zrank(struct ctx *c) { reply_rank(c, false); }
void cmd_zrevrank(struct ctx *c) { reply_rank(c, true); }

static void reply_count(struct ctx *c, enum zrange_by by)
{
    struct zrange range;
    struct key_ref ref;
    u64 first;
    if (!zrange_parse(c, by, c->argv[2], c->argv[3], &range)) return;
    err e = ctx_read(c, c->argv[1], TYPE_ZSET, &ref);
    if (e == ERR_TYPE) return;
    reply_int(c->out, e == OK ? (i64)zrange_locate(c, &ref, &range, &first) : 0);
}

void cmd_zcount(struct ctx *c) { reply_count(c, ZRANGE_SCORE); }
void cmd_zlexcount(struct ctx *c) { reply_count(c, ZRANGE_LEX); }

/* -- ZRANDMEMBER -------------------------------------------------------------------------- */

static bool entry_at(struct ctx *c, struct key_ref *ref, u64 rank, bytes *member, double *score)
{
    struct zset_seek seek = {.by = ZSEEK_RANK, .rank = rank};
    struct zset_iter it;
    c->eng->ops->zset.iter(c->eng, ref, &seek, &it);
    return c->eng->ops->zset.next(&it, member, score);
}

static void reply_at(struct ctx *c, struct key_ref *ref, u64 rank, bool with_scores)
{
    bytes member = {0};
    double score = 0;
    entry_at(c, ref, rank, &member, &score);
    zset_reply_pair(c->out, member, score, with_scores);
}

/* The whole set, from the top as in Redis, or a random selection in one walk (each entry with probability
 * wanted / left). */
static void reply_walked(struct ctx *c, struct key_ref *ref, u64 n, u64 size, bool with_scores)
{
    struct zset_seek seek = {.by = ZSEEK_RANK, .reverse = true, .rank = size - 1};
    struct zset_iter it;
    bytes member;
    double score;
    c->eng->ops->zset.iter(c->eng, ref, &seek, &it);
    it.passing = true;
    for (u64 left = size; n > 0 && c->eng->ops->zset.next(&it, &member, &score); left--) {
        if (rand_below(&c->rng, left) >= n) continue;
        zset_reply_pair(c->out, member, score, with_scores);
        n--;
    }
}

static int compare_ranks(const void *x, const void *y)
{
    u64 a = *(const u64 *)x, b = *(const u64 *)y;
    return (a > b) - (a < b);
}

static size_t zset_drop_repeats(u64 *v, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || v[i] != v[i - 1]) v[kept++] = v[i];
    return kept;
}

/* n different ranks of a set that is much larger: draws, and draws repeats again. */
static void reply_sample(struct ctx *c, struct key_ref *ref, u64 n, u64 size, bool with_scores)
{
    u64 *ranks = mem_alloc(n * sizeof(*ranks));
    for (size_t have = 0; have < n;) {
        while (have < n) ranks[have++] = rand_below(&c->rng, size);
        qsort(ranks, n, sizeof(*ranks), compare_ranks);
        have = zset_drop_repeats(ranks, n);
    }
    for (u64 i = 0; i < n; i++) reply_at(c, ref, ranks[i], with_scores);
    mem_free(ranks);
}

static void reply_random(struct ctx *c, struct key_ref *ref, i64 count, bool with_scores)
{
    u64 size = c->eng->ops->size(c->eng, ref);
    bool repeats = count < 0;
    if (!ctx_repeats_fit(c, count)) return;
    u64 n = repeats ? (u64)-count : MIN((u64)count, size);
    reply_array(c->out, zset_reply_length(c->out, n, with_scores));
    if (repeats)
        for (; n > 0; n--) reply_at(c, ref, rand_below(&c->rng, size), with_scores);
    else if (n * 3 > size)
        reply_walked(c, ref, n, size, with_scores);
    else
        reply_sample(c, ref, n, size, with_scores);
}

static bool parse_random(struct ctx *c, i64 *count, bool *with_scores)
{
    if (!ctx_int_range(c, c->argv[2], -INT64_MAX, INT64_MAX, count)) return false;
    *with_scores = c->argc > 3;
    if (c->argc > 4 || (*with_scores && !bytes_is(c->argv[3], "withscores"))) {
        ctx_syntax_error(c);
        return false;
    }
    i64 half = INT64_MAX / 2;
    if (*with_scores && (*count < -half || *count > half)) {
        reply_error(c->out, "ERR value is out of range");
        return false;
    }
    return true;
}

void cmd_zrandmember(struct ctx *c)
{
    struct key_ref ref;
    i64 count = 0;
    bool with_scores = false, many = c->argc > 2;
    if (many && !parse_random(c, &count, &with_scores)) return;
    err e = ctx_read(c, c->argv[1], TYPE_ZSET, &ref);
    if (e == ERR_TYPE) return;
    if (many && (e != OK || count == 0)) reply_array(c->out, 0);
    else if (many) reply_random(c, &ref, count, with_scores);
    else if (e != OK) reply_null(c->out);
    else reply_at(c, &ref, rand_below(&c->rng, c->eng->ops->size(c->eng, &ref)), false);
}

/* -- ZSCAN ---------------------------------------------------------------------------------- */

struct zscan {
    struct scan_options opt;
    struct zlist found;
};

static void zscan_visit(void *arg, bytes member, bytes value UNUSED, double score)
{
    struct zscan *s = arg;
    if (scan_matches(&s->opt, member)) zlist_add(&s->found, member, score);
}

/* Here Redis shows how it stores a score: in a small set as text, in a large one as a double. */
static void reply_scanned_score(struct ctx *c, double score, bool small)
{
    char text[64];
    if (small) reply_bulk(c->out, bytes_of(text, num_print_packed_score(text, score)));
    else reply_bulkf(c->out, "%.17g", score);
}

void cmd_zscan(struct ctx *c)
{
    struct zscan s = {0};
    struct key_ref ref;
    u64 next = 0;
    bool small = false;
    if (!scan_parse_cursor(c, c->argv[2], &s.opt)) return;
    err e = ctx_read(c, c->argv[1], TYPE_ZSET, &ref);
    if (e == ERR_TYPE) return;
    if (e == OK) {
        if (!scan_parse_options(c, 3, TYPE_ZSET, &s.opt)) return;
        small = zset_is_small(c, &ref);
        next = c->eng->ops->zset.scan(c->eng, &ref, s.opt.cursor, s.opt.count, zscan_visit, &s);
    }
    reply_array(c->out, 2);
    reply_bulkf(c->out, "%llu", (unsigned long long)next);
    reply_array(c->out, s.found.n * 2);
    for (size_t i = 0; i < s.found.n; i++) {
        reply_bulk(c->out, s.found.v[i].member);
        reply_scanned_score(c, s.found.v[i].score, small);
    }
    zlist_release(&s.found);
}
