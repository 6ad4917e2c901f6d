/* ZRANGE and its older forms, ZRANGESTORE and ZREMRANGEBY*.
 *
 * Reading walks: it seeks to the near bound and stops after the far one, so an engine that cannot count
 * cheaply never has to. Counting and removing work on ranks. */
#include "command/collection/zset_range.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "command/commands.h"
#include "command/collection/zset.h"
#include "command/collection/zset_list.h"

/* -- reading the bounds ------------------------------------------------------------ */

/* Redis parses bounds with plain strtod and checks only where it stopped: leading blanks, an empty text (0)
 * and anything after a NUL pass, overflow is inf. */
static bool parse_loose_double(bytes s, double *out)
{
    char local[128], *end;
    char *text = s.n < sizeof(local) ? local : mem_alloc(s.n + 1);
    if (s.n > 0) memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    *out = strtod(text, &end);
    bool ok = *end == '\0' && !isnan(*out);
    if (text != local) mem_free(text);
    return ok;
}

static bool parse_score_bound(bytes s, struct zbound *b)
{
    *b = (struct zbound){.exclusive = s.n > 0 && s.p[0] == '('};
    if (b->exclusive) s = bytes_of(s.p + 1, s.n - 1);
    /* the strict parser is the quick one, and agrees wherever it succeeds */
    return num_parse_double(s, &b->score) || parse_loose_double(s, &b->score);
}

static bool parse_lex_bound(bytes s, struct zbound *b)
{
    *b = (struct zbound){0};
    if (s.n == 0) return false;
    switch (s.p[0]) {
    case '-':
    case '+':
        b->lex_inf = s.p[0] == '-' ? -1 : 1;
        return s.n == 1 || s.p[1] == '\0'; /* Redis sees C strings here */
    case '(':
    case '[':
        b->exclusive = s.p[0] == '(';
        b->lex = bytes_of(s.p + 1, s.n - 1);
        return true;
    default:
        return false;
    }
}

bool zrange_parse(struct ctx *c, enum zrange_by by, bytes min, bytes max, struct zrange *out)
{
    *out = (struct zrange){.by = by};
    switch (by) {
    case ZRANGE_RANK:
        return ctx_int(c, min, &out->from) && ctx_int(c, max, &out->to);
    case ZRANGE_SCORE:
        if (parse_score_bound(min, &out->min) && parse_score_bound(max, &out->max)) return true;
        reply_error(c->out, "ERR min or max is not a float");
        return false;
    case ZRANGE_LEX:
        if (parse_lex_bound(min, &out->min) && parse_lex_bound(max, &out->max)) return true;
        reply_error(c->out, "ERR min or max not valid string range item");
        return false;
    }
    return false;
}

/* -- locating ------------------------------------------------------------------------ */

static struct zset_seek seek_bound(enum zrange_by by, const struct zbound *b)
{
    return (struct zset_seek){
        .by = by == ZRANGE_SCORE ? ZSEEK_SCORE : ZSEEK_LEX,
        .exclusive = b->exclusive,
        .score = b->score,
        .lex_inf = b->lex_inf,
        .lex = b->lex,
    };
}

/* -1, 0 or 1: where a member lies from a lex bound. */
static int compare_lex(bytes member, const struct zbound *b)
{
    if (b->lex_inf) return -b->lex_inf;
    int cmp = bytes_cmp(member, b->lex);
    return (cmp > 0) - (cmp < 0);
}

static bool zrange_end_of(struct ctx *c, struct key_ref *ref, bool last, bytes *member)
{
    struct zset_seek seek = {.by = ZSEEK_LEX, .reverse = last, .lex_inf = last ? 1 : -1};
    struct zset_iter it;
    double score;
    c->eng->ops->zset.iter(c->eng, ref, &seek, &it);
    return c->eng->ops->zset.next(&it, member, &score);
}

/* A range by member compares with the set's ends first. If all scores are equal that only saves time;
 * otherwise, where the result means little, it decides as Redis does. */
static bool overlaps(struct ctx *c, struct key_ref *ref, const struct zrange *r)
{
    bytes member;
    if (r->by != ZRANGE_LEX) return true;
    if (!zrange_end_of(c, ref, true, &member)) return false;
    int cmp = compare_lex(member, &r->min);
    if (cmp < 0 || (cmp == 0 && r->min.exclusive)) return false;
    if (!zrange_end_of(c, ref, false, &member)) return false;
    cmp = compare_lex(member, &r->max);
    return cmp < 0 || (cmp == 0 && !r->max.exclusive);
}

/* Ranks as given → [*first, *first + result) within the set. */
static u64 clip_ranks(const struct zrange *r, u64 size, u64 *first)
{
    i64 n = (i64)size, from = r->from, to = r->to;
    if (from < 0) from = MAX(from + n, 0);
    if (to < 0) to += n;
    if (to >= n) to = n - 1;
    *first = (u64)from;
    return from > to ? 0 : (u64)(to - from + 1);
}

u64 zrange_locate(struct ctx *c, struct key_ref *ref, const struct zrange *r, u64 *first)
{
    const struct engine_ops *ops = c->eng->ops;
    if (r->by == ZRANGE_RANK) return clip_ranks(r, ops->size(c->eng, ref), first);

    *first = 0;
    if (!overlaps(c, ref, r)) return 0;
    struct zset_seek low = seek_bound(r->by, &r->min), high = seek_bound(r->by, &r->max);
    high.exclusive = !high.exclusive; /* the entries equal to an included end count, too */
    *first = ops->zset.before(c->eng, ref, &low);
    u64 end = ops->zset.before(c->eng, ref, &high);
    return end > *first ? end - *first : 0;
}

/* -- walking ------------------------------------------------------------------------- */

struct zwalk {
    struct ctx *c;
    struct zset_iter it;
    const struct zrange *range;
    bool reverse;
    u64 left; /* entries that may still come */
};

/* Whether the walk, having begun at the near bound, is still before the far one. */
static bool zwalk_within(const struct zwalk *w, bytes member, double score)
{
    const struct zbound *end = w->reverse ? &w->range->min : &w->range->max;
    int cmp; /* of the entry with the bound, in the direction of the walk */
    switch (w->range->by) {
    case ZRANGE_SCORE:
        cmp = (score > end->score) - (score < end->score);
        break;
    case ZRANGE_LEX:
        cmp = compare_lex(member, end);
        break;
    default:
        return true; /* ranks are counted */
    }
    if (w->reverse) cmp = -cmp;
    return cmp < 0 || (cmp == 0 && !end->exclusive);
}

static bool zwalk_next(struct zwalk *w, bytes *member, double *score)
{
    if (w->left == 0) return false;
    if (!w->c->eng->ops->zset.next(&w->it, member, score) || !zwalk_within(w, *member, *score)) {
        w->left = 0;
        return false;
    }
    w->left--;
    return true;
}

static void zwalk_by_rank(struct zwalk *w, struct key_ref *ref)
{
    u64 size = w->c->eng->ops->size(w->c->eng, ref), first;
    w->left = clip_ranks(w->range, size, &first);
    if (w->left == 0) return;
    struct zset_seek seek = {
        .by = ZSEEK_RANK, .reverse = w->reverse, .rank = w->reverse ? size - 1 - first : first};
    w->c->eng->ops->zset.iter(w->c->eng, ref, &seek, &w->it);
}

/* Skips one entry. Redis does not check the far bound here; for members that matters if scores differ, for
 * scores it would only walk in vain. */
static bool zwalk_skip(struct zwalk *w)
{
    bytes member;
    double score;
    if (w->range->by == ZRANGE_SCORE) return zwalk_next(w, &member, &score);
    return w->c->eng->ops->zset.next(&w->it, &member, &score);
}

/* A negative offset lies beyond every entry, a negative limit means none. */
static void zwalk_by_bound(struct zwalk *w, struct key_ref *ref, i64 offset, i64 limit)
{
    bytes member;
    double score;
    if (offset < 0 || !overlaps(w->c, ref, w->range)) return;
    struct zset_seek seek =
        seek_bound(w->range->by, w->reverse ? &w->range->max : &w->range->min);
    seek.reverse = w->reverse;
    w->c->eng->ops->zset.iter(w->c->eng, ref, &seek, &w->it);
    w->left = UINT64_MAX;
    if (offset > 0 && zwalk_next(w, &member, &score))
        while (--offset > 0 && zwalk_skip(w)) { }
    if (limit >= 0) w->left = MIN(w->left, (u64)limit);
}

/* -- the commands ---------------------------------------------------------------------- */

#define ANY_KIND -1 /* the arguments choose: BYSCORE, BYLEX, REV */

struct range_query {
    int by;      /* enum zrange_by or ANY_KIND */
    int reverse; /* bool or ANY_KIND */
    bool with_scores, store;
    i64 offset, limit; /* -1: no limit */
    int key_at;        /* argv index of the source; min and max follow it */
    struct zrange range;
};

static bool parse_range_option(struct ctx *c, struct range_query *q, int *at)
{
    bytes arg = c->argv[*at];
    if (!q->store && bytes_is(arg, "withscores")) q->with_scores = true;
    else if (bytes_is(arg, "limit") && *at + 2 < c->argc) {
        if (!ctx_int(c, c->argv[*at + 1], &q->offset)) return false;
        if (!ctx_int(c, c->argv[*at + 2], &q->limit)) return false;
        *at += 2;
    } else if (q->reverse == ANY_KIND && bytes_is(arg, "rev")) q->reverse = true;
    else if (q->by == ANY_KIND && bytes_is(arg, "bylex")) q->by = ZRANGE_LEX;
    else if (q->by == ANY_KIND && bytes_is(arg, "byscore")) q->by = ZRANGE_SCORE;
    else {
        ctx_syntax_error(c);
        return false;
    }
    return true;
}

static bool parse_range_query(struct ctx *c, struct range_query *q)
{
    for (int i = q->key_at + 3; i < c->argc; i++)
        if (!parse_range_option(c, q, &i)) return false;
    if (q->by == ANY_KIND) q->by = ZRANGE_RANK;
    if (q->reverse == ANY_KIND) q->reverse = false;

    if (q->limit != -1 && q->by == ZRANGE_RANK) {
        reply_error(c->out, "ERR syntax error, LIMIT is only supported in combination with "
                            "either BYSCORE or BYLEX");
        return false;
    }
    if (q->with_scores && q->by == ZRANGE_LEX) {
        reply_error(c->out, "ERR syntax error, WITHSCORES not supported in combination with "
                            "BYLEX");
        return false;
    }
    /* Reversed, the higher bound is given first; but ranks count from the top. */
    bool swapped = q->reverse && q->by != ZRANGE_RANK;
    bytes first = c->argv[q->key_at + 1], second = c->argv[q->key_at + 2];
    return zrange_parse(c, (enum zrange_by)q->by, swapped ? second : first,
                        swapped ? first : second, &q->range);
}

static void reply_walk(struct zwalk *w, bool with_scores)
{
    struct reply *out = w->c->out;
    size_t mark = reply_mark(out), n = 0;
    bytes member;
    double score;
    bool counted = w->range->by == ZRANGE_RANK;
    w->it.passing = true;
    if (counted) reply_array(out, zset_reply_length(out, w->left, with_scores));
    for (; zwalk_next(w, &member, &score); n++)
        zset_reply_pair(out, member, score, with_scores);
    if (!counted) reply_array_at(out, mark, zset_reply_length(out, n, with_scores));
}

/* Redis adds the entries one by one to a set that starts small, unless it knows
 * beforehand that there are too many. */
static void store_walk(struct zwalk *w, bytes dst)
{
    struct zlist list = {0};
    bytes member;
    double score;
    u64 known = w->range->by == ZRANGE_RANK ? w->left : 0;
    bool small = zset_fits_small(w->c, known, (bytes){0});
    while (zwalk_next(w, &member, &score)) {
        small = small && zset_fits_small(w->c, list.n + 1, member);
        zlist_add(&list, member, small ? zset_plain_zero(score) : score);
    }
    zlist_store(w->c, dst, &list, "zrangestore");
    zlist_release(&list);
}

static void run_range(struct ctx *c, struct range_query q)
{
    struct key_ref ref;
    q.limit = -1;
    if (!parse_range_query(c, &q)) return;
    err e = ctx_read(c, c->argv[q.key_at], TYPE_ZSET, &ref);
    if (e == ERR_TYPE) return;

    struct zwalk w = {.c = c, .range = &q.range, .reverse = q.reverse};
    if (e == OK) {
        if (q.by == ZRANGE_RANK) zwalk_by_rank(&w, &ref);
        else zwalk_by_bound(&w, &ref, q.offset, q.limit);
    }
    if (q.store) store_walk(&w, c->argv[1]);
    else reply_walk(&w, q.with_scores);
}

#define RANGE(by_, reverse_) \
    run_range(c, (struct range_query){.by = (by_), .reverse = (reverse_), .key_at = 1})

void cmd_zrange(struct ctx *c) { RANGE(ANY_KIND, ANY_KIND); }
void cmd_zrevrange(struct ctx *c) { RANGE(ZRANGE_RANK, true); }
void cmd_zrangebyscore(struct ctx *c) { RANGE(ZRANGE_SCORE, false); }
void cmd_zrevrangebyscore(struct ctx *c) { RANGE(ZRANGE_SCORE, true); }
void cmd_zrangebylex(struct ctx *c) { RANGE(ZRANGE_LEX, false); }
void cmd_zrevrangebylex(struct ctx *c) { RANGE(ZRANGE_LEX, true); }

void cmd_zrangestore(struct ctx *c)
{
    run_range(c, (struct range_query){
                     .by = ANY_KIND, .reverse = ANY_KIND, .store = true, .key_at = 2});
}

static void remove_range(struct ctx *c, enum zrange_by by, const char *event)
{
    struct zrange range;
    struct key_ref ref;
    u64 first, n = 0;
    if (!zrange_parse(c, by, c->argv[2], c->argv[3], &range)) return;
    err e = ctx_write(c, c->argv[1], TYPE_ZSET, &ref);
    if (e == ERR_TYPE) return;
    if (e == OK) n = zrange_locate(c, &ref, &range, &first);
    if (n > 0) {
        c->eng->ops->zset.erase(c->eng, &ref, first, n, NULL, NULL);
        ctx_changed_by(c, n, c->argv[1], NOTIFY_ZSET, event);
        ctx_drop_if_empty(c, &ref);
    }
    reply_int(c->out, (i64)n);
}

void cmd_zremrangebyrank(struct ctx *c) { remove_range(c, ZRANGE_RANK, "zremrangebyrank"); }
void cmd_zremrangebyscore(struct ctx *c) { remove_range(c, ZRANGE_SCORE, "zremrangebyscore"); }
void cmd_zremrangebylex(struct ctx *c) { remove_range(c, ZRANGE_LEX, "zremrangebylex"); }
