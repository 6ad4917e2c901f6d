/* GEOADD GEODIST GEOHASH GEOPOS. A place is a member of a sorted set whose score
 * is its geohash; searching is in geo_search.c. */
#include "command/collection/geo.h"

#include <math.h>

#include "base/alloc.h"
#include "command/commands.h"
#include "command/collection/zset.h"

bool geo_parse_point(struct ctx *c, int at, struct geo_point *out)
{
    if (!ctx_double(c, c->argv[at], &out->lon) || !ctx_double(c, c->argv[at + 1], &out->lat))
        return false;
    if (geo_valid(*out)) return true;
    reply_errorf(c->out, "ERR invalid longitude,latitude pair %f,%f", out->lon, out->lat);
    return false;
}

bool geo_parse_unit(struct ctx *c, bytes arg, double *metres)
{
    if (bytes_is(arg, "m")) *metres = 1;
    else if (bytes_is(arg, "km")) *metres = 1000;
    else if (bytes_is(arg, "ft")) *metres = 0.3048;
    else if (bytes_is(arg, "mi")) *metres = 1609.34;
    else {
        reply_error(c->out, "ERR unsupported unit provided. please use M, KM, FT, MI");
        return false;
    }
    return true;
}

bool geo_find(struct ctx *c, struct key_ref *ref, bytes member, struct geo_point *out)
{
    double score;
    if (!c->eng->ops->zset.score(c->eng, ref, member, &score)) return false;
    *out = geohash_decode(score);
    return true;
}

/* A coordinate in full, never in exponential form. */
static void reply_coordinate(struct ctx *c, double v)
{
    char text[NUM_DOUBLE_LEN];
    size_t n = num_print_long_double(text, (long double)v);
    if (c->out->proto == 2) reply_bulk(c->out, bytes_of(text, n));
    else buf_printf(c->out->out, ",%s\r\n", text);
}

void geo_reply_point(struct ctx *c, struct geo_point p)
{
    reply_array(c->out, 2);
    reply_coordinate(c, p.lon);
    reply_coordinate(c, p.lat);
}

/* Four decimals. Redis rounds the scaled number, half to even, where printf would
 * round the exact one; distances are below 2^27, so nothing overflows. */
void geo_reply_distance(struct ctx *c, double distance)
{
    i64 scaled = llrint(distance * 10000);
    reply_bulkf(c->out, "%lld.%04lld", (long long)(scaled / 10000), (long long)(scaled % 10000));
}

/* -- GEOADD -------------------------------------------------------------------------- */

static u32 geoadd_option(bytes arg)
{
    return bytes_is(arg, "nx") ? ZADD_NX : bytes_is(arg, "xx") ? ZADD_XX
         : bytes_is(arg, "ch") ? ZADD_CH : 0;
}

static bool parse_places(struct ctx *c, int at, int n, double *scores)
{
    for (int i = 0; i < n; i++) {
        struct geo_point p;
        if (!geo_parse_point(c, at + i * 3, &p)) return false;
        scores[i] = (double)geohash_encode(p);
    }
    return true;
}

void cmd_geoadd(struct ctx *c)
{
    double few[16], *scores = few;
    u32 flags = 0;
    int at = 2;
    for (u32 option; at < c->argc && (option = geoadd_option(c->argv[at])) != 0; at++) flags |= option;
    int n = (c->argc - at) / 3;
    bool both = (flags & ZADD_NX) && (flags & ZADD_XX);
    if (n == 0 || (c->argc - at) % 3 != 0 || both) {
        ctx_syntax_error(c);
        return;
    }
    if ((size_t)n > ARRAY_LEN(few)) scores = mem_alloc((size_t)n * sizeof(*scores));
    if (parse_places(c, at, n, scores)) zset_add(c, flags, n, scores, c->argv + at + 2, 3);
    if (scores != few) mem_free(scores);
}

/* -- GEODIST GEOHASH GEOPOS ------------------------------------------------------------ */

void cmd_geodist(struct ctx *c)
{
    struct key_ref ref;
    struct geo_point a, b;
    double unit = 1;
    if (c->argc > 5) {
        ctx_syntax_error(c);
        return;
    }
    if (c->argc == 5 && !geo_parse_unit(c, c->argv[4], &unit)) return;
    err e = ctx_read(c, c->argv[1], TYPE_ZSET, &ref);
    if (e == ERR_TYPE) return;
    if (e == OK && geo_find(c, &ref, c->argv[2], &a) && geo_find(c, &ref, c->argv[3], &b))
        geo_reply_distance(c, geo_distance(a, b) / unit);
    else
        reply_null(c->out);
}

void cmd_geohash(struct ctx *c)
{
    struct key_ref ref;
    struct geo_point p;
    char text[GEOHASH_TEXT_LEN + 1];
    err e = ctx_read(c, c->argv[1], TYPE_ZSET, &ref);
    if (e == ERR_TYPE) return;
    reply_array(c->out, (size_t)c->argc - 2);
    for (int i = 2; i < c->argc; i++) {
        if (e == OK && geo_find(c, &ref, c->argv[i], &p)) {
            geohash_text(p, text);
            reply_bulk_str(c->out, text);
        } else {
            reply_null(c->out);
        }
    }
}

void cmd_geopos(struct ctx *c)
{
    struct key_ref ref;
    struct geo_point p;
    err e = ctx_read(c, c->argv[1], TYPE_ZSET, &ref);
    if (e == ERR_TYPE) return;
    reply_array(c->out, (size_t)c->argc - 2);
    for (int i = 2; i < c->argc; i++) {
        if (e == OK && geo_find(c, &ref, c->argv[i], &p)) geo_reply_point(c, p);
        else reply_null_array(c->out);
    }
}
