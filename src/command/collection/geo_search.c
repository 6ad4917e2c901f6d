/* GEOSEARCH, GEOSEARCHSTORE and the older GEORADIUS family: one search with three
 * ways of writing its arguments.
 *
 * Redis looks the source key up before it reads the arguments, and reports what
 * it meets first; so does this. */
#include "command/commands.h"
#include "command/collection/geo.h"
#include "command/collection/geo_hits.h"
#include "command/collection/zset_list.h"

enum geo_order { ORDER_NONE, ORDER_ASC, ORDER_DESC };

/* Which command it is. */
enum geo_form {
    FORM_RADIUS,    /* GEORADIUS key lon lat radius unit … */
    FORM_BY_MEMBER, /* GEORADIUSBYMEMBER key member radius unit … */
    FORM_SEARCH,    /* GEOSEARCH key FROM… BY… …, GEOSEARCHSTORE dst key … */
};

struct geo_query {
    struct ctx *c;
    enum geo_form form;
    int key_at;
    bool may_store;        /* STORE and STOREDIST are options */
    bool has_source;
    struct key_ref source;

    struct geo_shape shape;
    bool from_member, from_point, by_radius, by_box;
    bool with_dist, with_hash, with_coord, any;
    enum geo_order order;
    i64 count; /* 0: all */
    bool store, store_dist;
    bytes dst;
};

/* -- arguments ------------------------------------------------------------------------ */

static bool geosearch_parse_number(struct ctx *c, bytes arg, const char *error, double *out)
{
    if (num_parse_double(arg, out)) return true;
    reply_error(c->out, error);
    return false;
}

static bool parse_radius(struct geo_query *q, int at)
{
    struct ctx *c = q->c;
    if (!geosearch_parse_number(c, c->argv[at], "ERR need numeric radius", &q->shape.radius)) return false;
    if (q->shape.radius < 0) {
        reply_error(c->out, "ERR radius cannot be negative");
        return false;
    }
    return geo_parse_unit(c, c->argv[at + 1], &q->shape.unit);
}

static bool parse_box(struct geo_query *q, int at)
{
    struct ctx *c = q->c;
    struct geo_shape *s = &q->shape;
    if (!geosearch_parse_number(c, c->argv[at], "ERR need numeric width", &s->width)) return false;
    if (!geosearch_parse_number(c, c->argv[at + 1], "ERR need numeric height", &s->height)) return false;
    if (s->width < 0 || s->height < 0) {
        reply_error(c->out, "ERR height or width cannot be negative");
        return false;
    }
    s->is_box = true;
    return geo_parse_unit(c, c->argv[at + 2], &s->unit);
}

/* Without a source key the member does not matter: the result is empty anyway. */
static bool parse_member(struct geo_query *q, bytes member)
{
    if (!q->has_source || geo_find(q->c, &q->source, member, &q->shape.center)) return true;
    reply_error(q->c->out, "ERR could not decode requested zset member");
    return false;
}

/* Parses the arguments before the options. Moves *at after them. */
static bool parse_fixed(struct geo_query *q, int *at)
{
    switch (q->form) {
    case FORM_RADIUS:
        *at = 6;
        return geo_parse_point(q->c, 2, &q->shape.center) && parse_radius(q, 4);
    case FORM_BY_MEMBER:
        *at = 5;
        if (!q->has_source) return true; /* not even checked, as in Redis */
        return parse_member(q, q->c->argv[2]) && parse_radius(q, 3);
    default:
        *at = q->key_at + 1;
        return true;
    }
}

static bool geosearch_parse_count(struct geo_query *q, bytes arg)
{
    if (!ctx_int(q->c, arg, &q->count)) return false;
    if (q->count > 0) return true;
    reply_error(q->c->out, "ERR COUNT must be > 0");
    return false;
}

/* Options that are a single word. */
static bool take_word(struct geo_query *q, bytes arg)
{
    if (bytes_is(arg, "withdist")) q->with_dist = true;
    else if (bytes_is(arg, "withhash")) q->with_hash = true;
    else if (bytes_is(arg, "withcoord")) q->with_coord = true;
    else if (bytes_is(arg, "any")) q->any = true;
    else if (bytes_is(arg, "asc")) q->order = ORDER_ASC;
    else if (bytes_is(arg, "desc")) q->order = ORDER_DESC;
    else return false;
    return true;
}

/* GEOSEARCH's own options. False: an error was replied. *used: arguments after the name that it took, or -1
 * if it is none of them. */
static bool parse_search_option(struct geo_query *q, int at, int behind, int *used)
{
    bytes *argv = q->c->argv;
    *used = -1;
    if (bytes_is(argv[at], "frommember") && behind >= 1 && !q->from_point) {
        *used = 1;
        q->from_member = true;
        return parse_member(q, argv[at + 1]);
    }
    if (bytes_is(argv[at], "fromlonlat") && behind >= 2 && !q->from_member) {
        *used = 2;
        q->from_point = true;
        return geo_parse_point(q->c, at + 1, &q->shape.center);
    }
    if (bytes_is(argv[at], "byradius") && behind >= 2 && !q->by_box) {
        *used = 2;
        q->by_radius = true;
        return parse_radius(q, at + 1);
    }
    if (bytes_is(argv[at], "bybox") && behind >= 3 && !q->by_radius) {
        *used = 3;
        q->by_box = true;
        return parse_box(q, at + 1);
    }
    if (q->store && bytes_is(argv[at], "storedist")) {
        *used = 0;
        q->store_dist = true;
    }
    return true;
}

static bool geosearch_parse_option(struct geo_query *q, int *at)
{
    struct ctx *c = q->c;
    int behind = c->argc - *at - 1, used = -1;
    bytes arg = c->argv[*at];
    if (take_word(q, arg)) return true;
    if (bytes_is(arg, "count") && behind >= 1) {
        used = 1;
        if (!geosearch_parse_count(q, c->argv[*at + 1])) return false;
    } else if (q->may_store && behind >= 1 &&
               (bytes_is(arg, "store") || bytes_is(arg, "storedist"))) {
        used = 1;
        q->store = true;
        q->store_dist = bytes_is(arg, "storedist");
        q->dst = c->argv[*at + 1];
    } else if (q->form == FORM_SEARCH) {
        if (!parse_search_option(q, *at, behind, &used)) return false;
    }
    if (used < 0) {
        ctx_syntax_error(c);
        return false;
    }
    *at += used;
    return true;
}

/* Checks that concern several arguments. */
static bool check_options(struct geo_query *q)
{
    struct ctx *c = q->c;
    bytes name = c->argv[0];
    bool search = q->form == FORM_SEARCH;
    if (q->store && (q->with_dist || q->with_hash || q->with_coord))
        reply_errorf(c->out,
                     "ERR %s is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
                     search ? "GEOSEARCHSTORE" : "STORE option in GEORADIUS");
    else if (search && !q->from_member && !q->from_point)
        reply_errorf(c->out,
                     "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for %.*s",
                     (int)name.n, name.p);
    else if (search && !q->by_radius && !q->by_box)
        reply_errorf(c->out, "ERR exactly one of BYRADIUS and BYBOX can be specified for %.*s",
                     (int)name.n, name.p);
    else if (q->any && q->count == 0)
        reply_error(c->out, "ERR the ANY argument requires COUNT argument");
    else
        return true;
    return false;
}

static bool geosearch_parse_query(struct geo_query *q)
{
    int at;
    if (!parse_fixed(q, &at)) return false;
    for (; at < q->c->argc; at++)
        if (!geosearch_parse_option(q, &at)) return false;
    return check_options(q);
}

/* -- searching ---------------------------------------------------------------------------- */

/* Searches one cell until there are `limit` hits (0: no limit). */
static void search_cell(struct geo_query *q, struct geo_cell cell, u64 limit,
                        struct geo_hits *hits)
{
    struct engine *eng = q->c->eng;
    struct zset_seek seek = {.by = ZSEEK_SCORE, .score = cell.from};
    struct zset_iter it;
    struct geo_hit hit;
    eng->ops->zset.iter(eng, &q->source, &seek, &it);
    while (eng->ops->zset.next(&it, &hit.member, &hit.score) && hit.score < cell.to) {
        hit.at = geohash_decode(hit.score);
        if (!geo_contains(&q->shape, hit.at, &hit.distance)) continue;
        geo_hits_add(hits, hit);
        if (limit && hits->n >= limit) return;
    }
}

static void geosearch_command(struct geo_query *q, struct geo_hits *hits)
{
    struct geo_cell cells[GEO_COVER_MAX];
    int n = geo_cover(&q->shape, cells);
    u64 limit = q->any ? (u64)q->count : 0; /* otherwise the nearest must be found among all */
    for (int i = 0; i < n && !(limit && hits->n >= limit); i++)
        search_cell(q, cells[i], limit, hits);
}

/* Returns how many of the hits, from the front, are the result. */
static size_t sort_hits(struct geo_query *q, struct geo_hits *hits)
{
    enum geo_order order = q->order;
    size_t n = q->count ? MIN(hits->n, (size_t)q->count) : hits->n;
    if (order == ORDER_NONE && q->count && !q->any) order = ORDER_ASC; /* the nearest ones */
    if (order != ORDER_NONE) geo_hits_sort(hits, n, order == ORDER_DESC);
    return n;
}

/* -- results ------------------------------------------------------------------------------ */

static void reply_hash(struct ctx *c, double score)
{
    const double two63 = 9223372036854775808.0;
    reply_int(c->out, score >= -two63 && score < two63 ? (i64)score : INT64_MIN);
}

static void reply_hits(struct geo_query *q, const struct geo_hits *hits, size_t n)
{
    struct ctx *c = q->c;
    size_t extra = (size_t)q->with_dist + q->with_hash + q->with_coord;
    reply_array(c->out, n);
    for (size_t i = 0; i < n; i++) {
        const struct geo_hit *hit = &hits->v[i];
        if (extra) reply_array(c->out, extra + 1);
        reply_bulk(c->out, hit->member);
        if (q->with_dist) geo_reply_distance(c, hit->distance / q->shape.unit);
        if (q->with_hash) reply_hash(c, hit->score);
        if (q->with_coord) geo_reply_point(c, hit->at);
    }
}

static void store_hits(struct geo_query *q, const struct geo_hits *hits, size_t n)
{
    struct zlist list = {0};
    zlist_reserve(&list, n);
    for (size_t i = 0; i < n; i++) {
        const struct geo_hit *hit = &hits->v[i];
        double distance = hit->distance / q->shape.unit;
        zlist_add(&list, hit->member, q->store_dist ? distance : hit->score);
    }
    zlist_store(q->c, q->dst, &list,
                q->form == FORM_SEARCH ? "geosearchstore" : "georadiusstore");
    if (n > 1) q->c->ks->dirty += n - 1; /* unlike in other stores, each counts */
    zlist_release(&list);
}

static void geosearch_run(struct geo_query q)
{
    struct geo_hits hits = {0};
    err e = ctx_read(q.c, q.c->argv[q.key_at], TYPE_ZSET, &q.source);
    if (e == ERR_TYPE) return;
    q.has_source = e == OK;
    if (!geosearch_parse_query(&q)) return;
    if (q.has_source) geosearch_command(&q, &hits);
    size_t n = sort_hits(&q, &hits);
    if (q.store) store_hits(&q, &hits, n);
    else reply_hits(&q, &hits, n);
    geo_hits_release(&hits);
}

static void run_radius(struct ctx *c, enum geo_form form, bool may_store)
{
    geosearch_run((struct geo_query){.c = c, .form = form, .key_at = 1, .may_store = may_store});
}

void cmd_georadius(struct ctx *c) { run_radius(c, FORM_RADIUS, true); }
void cmd_georadius_ro(struct ctx *c) { run_radius(c, FORM_RADIUS, false); }
void cmd_georadiusbymember(struct ctx *c) { run_radius(c, FORM_BY_MEMBER, true); }
void cmd_georadiusbymember_ro(struct ctx *c) { run_radius(c, FORM_BY_MEMBER, false); }

void cmd_geosearch(struct ctx *c)
{
    geosearch_run((struct geo_query){.c = c, .form = FORM_SEARCH, .key_at = 1});
}

void cmd_geosearchstore(struct ctx *c)
{
    geosearch_run(
        (struct geo_query){.c = c, .form = FORM_SEARCH, .key_at = 2, .store = true, .dst = c->argv[1]});
}
