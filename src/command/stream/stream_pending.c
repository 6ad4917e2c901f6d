/* XPENDING, XCLAIM, XAUTOCLAIM: entries that were delivered but not acknowledged. */
#include "base/alloc.h"
#include "command/commands.h"
#include "command/stream/stream_effect.h"

/* -- XPENDING ---------------------------------------------------------------------------------- */

static void reply_edge(struct ctx *c, struct group_use *u, bool last)
{
    struct stream_id id = STREAM_ID_MIN;
    xwalk_edge(&u->s, xrow_of_group('p', u->g.number), last, &id);
    reply_stream_id(c->out, id);
}

static void pending_summary(struct ctx *c, struct group_use *u)
{
    struct xname_walk w;
    struct xconsumer consumer;
    bytes name;
    size_t n = 0;
    reply_array(c->out, 4);
    reply_int(c->out, (i64)u->g.pending);
    if (u->g.pending == 0) {
        reply_null(c->out);
        reply_null(c->out);
        reply_null_array(c->out);
        return;
    }
    reply_edge(c, u, false);
    reply_edge(c, u, true);
    size_t mark = reply_mark(c->out);
    xconsumer_walk(&w, &u->s, &u->g);
    while (xconsumer_next(&w, &name, &consumer)) {
        if (consumer.pending == 0) continue;
        reply_array(c->out, 2);
        reply_bulk(c->out, name);
        reply_bulk_int(c->out, (i64)consumer.pending);
        n++;
    }
    xname_walk_end(&w);
    reply_array_at(c->out, mark, n);
}

struct pending_query {
    struct stream_id from, to;
    i64 count, min_idle_ms;
    const bytes *consumer; /* NULL: all */
};

static bool xpending_parse(struct ctx *c, struct pending_query *q)
{
    int at = 3;
    if (c->argc != 3 && (c->argc < 6 || c->argc > 9)) {
        ctx_syntax_error(c);
        return false;
    }
    if (c->argc == 3) return true;
    if (bytes_is(c->argv[3], "idle")) {
        if (!ctx_int(c, c->argv[4], &q->min_idle_ms)) return false;
        if (c->argc < 8) {
            ctx_syntax_error(c);
            return false;
        }
        at += 2;
    }
    if (!ctx_int(c, c->argv[at + 2], &q->count)) return false;
    q->count = MAX(q->count, 0);
    if (at + 3 < c->argc) q->consumer = &c->argv[at + 3];
    return ctx_stream_interval(c, c->argv[at], c->argv[at + 1], &q->from, &q->to);
}

static void pending_list(struct ctx *c, struct group_use *u, const struct pending_query *q)
{
    struct xwalk w;
    struct stream_id id;
    struct xpending p;
    bytes row;
    i64 n = 0;
    if (q->consumer && !xconsumer_find(&u->s, &u->g, *q->consumer, &u->c)) {
        reply_array(c->out, 0);
        return;
    }
    size_t mark = reply_mark(c->out);
    xpending_walk(&w, &u->s, &u->g, q->consumer ? &u->c : NULL, q->from, q->to, false);
    while (n < q->count && xwalk_next(&w, &id, &row)) {
        if (!q->consumer) xpending_read(row, &p);
        else if (!xpending_find(&u->s, &u->g, id, &p)) continue;
        i64 idle_ms = xidle_ms(c->now_ms, p.time_ms);
        if (q->min_idle_ms && idle_ms < q->min_idle_ms) continue;
        reply_array(c->out, 4);
        reply_stream_id(c->out, id);
        reply_bulk(c->out, q->consumer ? *q->consumer : xconsumer_name(&u->s, &u->g, p.consumer));
        reply_int(c->out, MAX(idle_ms, 0));
        reply_int(c->out, (i64)p.count);
        n++;
    }
    xwalk_end(&w);
    reply_array_at(c->out, mark, (size_t)n);
}

void cmd_xpending(struct ctx *c)
{
    struct pending_query q = {0};
    struct group_use u;
    if (!xpending_parse(c, &q)) return;
    err e = ctx_find_group(c, c->argv[1], c->argv[2], false, &u);
    if (e == ERR_NOT_FOUND) ctx_no_group(c, c->argv[1], c->argv[2]);
    if (e != OK) return;
    if (c->argc == 3) pending_summary(c, &u);
    else pending_list(c, &u, &q);
}

/* -- claiming: common to XCLAIM and XAUTOCLAIM ------------------------------------------------- */

struct claiming {
    struct group_use u;
    struct claims claims;
    i64 min_idle_ms;
    i64 time_ms; /* delivery time to set */
    i64 retries; /* delivery count to set; -1: increment it */
    bool force, just_id;
    bool claimed; /* at least one entry; the XCLAIM effect then also creates the consumer */
    u64 changes;
};

static bool xclaim_idle_enough(const struct ctx *c, const struct claiming *k, const struct xpending *p)
{
    return k->min_idle_ms <= 0 || xidle_ms(c->now_ms, p->time_ms) >= k->min_idle_ms;
}

/* Removes a pending entry that was deleted from the stream, and journals that as XACK. */
static void xclaim_drop_deleted(struct ctx *c, struct claiming *k, struct stream_id id)
{
    effect_claims_end(&k->claims);
    xpending_delete(&k->u.s, &k->u.g, &k->u.c, id);
    effect_acked(c, &k->u, id);
    k->changes++;
}

static void xclaim_entry(struct ctx *c, struct claiming *k, struct stream_id id, struct xpending p,
                         bytes packed)
{
    if (k->just_id) reply_stream_id(c->out, id);
    else reply_xentry(c->out, id, packed); /* first, because `packed` is invalid after a write */
    k->u.c.active_ms = c->now_ms;
    p.consumer = k->u.c.number;
    p.time_ms = k->time_ms;
    if (k->retries >= 0) p.count = (u64)k->retries;
    else p.count += !k->just_id;
    xpending_put(&k->u.s, &k->u.g, &k->u.c, id, &p);
    effect_claimed(&k->claims, id, p.time_ms, p.count);
    k->claimed = true;
    k->changes++;
}

static void claims_done(struct ctx *c, struct claiming *k, bool group_moved)
{
    if (k->u.consumer_made && !k->claimed) effect_created(c, &k->u);
    effect_claims_end(&k->claims);
    if (group_moved) {
        effect_group_id(c, &k->u);
        k->changes += k->changes == 0;
    }
    group_save(&k->u);
    if (!c->effects_given) ctx_no_effect(c);
    c->ks->dirty += k->changes;
}

/* -- XCLAIM ------------------------------------------------------------------------------------ */

struct claim_options {
    int last; /* ID argument */
    bool timed;
    struct stream_id last_id;
};

static bool claim_number(struct ctx *c, int at, const char *error, i64 *out)
{
    return num_parse_i64(c->argv[at], out) || ctx_refuse(c, error);
}

static bool claim_option(struct ctx *c, struct claiming *k, struct claim_options *o, int *i)
{
    bytes word = c->argv[*i];
    bool more = *i + 1 < c->argc;
    if (bytes_is(word, "force")) return k->force = true;
    if (bytes_is(word, "justid")) return k->just_id = true;
    if (more && bytes_is(word, "idle")) {
        if (!claim_number(c, ++*i, "ERR Invalid IDLE option argument for XCLAIM", &k->time_ms)) return false;
        k->time_ms = (i64)((u64)c->now_ms - (u64)k->time_ms);
        return o->timed = true;
    }
    if (more && bytes_is(word, "time")) {
        o->timed = true;
        return claim_number(c, ++*i, "ERR Invalid TIME option argument for XCLAIM", &k->time_ms);
    }
    if (more && bytes_is(word, "retrycount"))
        return claim_number(c, ++*i, "ERR Invalid RETRYCOUNT option argument for XCLAIM", &k->retries);
    if (more && bytes_is(word, "lastid")) return ctx_stream_id(c, c->argv[++*i], 0, &o->last_id);
    reply_errorf(c->out, "ERR Unrecognized XCLAIM option '%.*s'", (int)word.n, word.p);
    return false;
}

static bool parse_claim(struct ctx *c, struct claiming *k, struct claim_options *o)
{
    struct stream_id id;
    int i = 5;
    if (!claim_number(c, 4, "ERR Invalid min-idle-time argument for XCLAIM", &k->min_idle_ms)) return false;
    while (i < c->argc && stream_id_parse(c->argv[i], 0, true, NULL, &id)) i++;
    o->last = i - 1;
    for (; i < c->argc; i++)
        if (!claim_option(c, k, o, &i)) return false;
    /* A negative or future time is replaced by now, except that a primary's future time is kept. */
    bool sane = o->timed && k->time_ms >= 0 && (k->time_ms <= c->now_ms || c->ks->mode == EXPIRY_APPLY);
    if (!sane) k->time_ms = c->now_ms;
    return true;
}

/* True: the entry was claimed and replied. */
static bool claim_one(struct ctx *c, struct claiming *k, struct stream_id id)
{
    struct xpending p;
    bytes packed;
    bool pending = xpending_find(&k->u.s, &k->u.g, id, &p);
    if (!xstream_has(&k->u.s, id, &packed)) {
        if (pending) xclaim_drop_deleted(c, k, id);
        return false;
    }
    if (!pending && !k->force) return false;
    if (!pending) p = (struct xpending){.count = 1};
    else if (!xclaim_idle_enough(c, k, &p)) return false;
    xclaim_entry(c, k, id, p, packed);
    return true;
}

void cmd_xclaim(struct ctx *c)
{
    struct claiming k = {.retries = -1};
    struct claim_options o = {0};
    struct stream_id id;
    size_t n = 0;
    err e = ctx_find_group(c, c->argv[1], c->argv[2], false, &k.u);
    if (e == ERR_NOT_FOUND) ctx_no_group(c, c->argv[1], c->argv[2]);
    if (e != OK || !parse_claim(c, &k, &o)) return;
    k.claims = (struct claims){.c = c, .u = &k.u};
    bool moved = stream_id_cmp(o.last_id, k.u.g.last) > 0;
    if (moved) k.u.g.last = o.last_id;
    ctx_open_consumer(c, c->argv[3], &k.u);
    size_t mark = reply_mark(c->out);
    for (int i = 5; i <= o.last; i++)
        if (stream_id_parse(c->argv[i], 0, true, NULL, &id)) n += claim_one(c, &k, id);
    reply_array_at(c->out, mark, n);
    claims_done(c, &k, moved);
}

/* -- XAUTOCLAIM -------------------------------------------------------------------------------- */

#define LOOKED_AT_PER_COUNT 10
#define COUNT_MAX (INT64_MAX / 16)

struct auto_options {
    struct stream_id start;
    i64 count;
};

static bool parse_auto(struct ctx *c, struct claiming *k, struct auto_options *o)
{
    bool exclusive;
    if (!claim_number(c, 4, "ERR Invalid min-idle-time argument for XAUTOCLAIM", &k->min_idle_ms))
        return false;
    if (!ctx_stream_edge(c, c->argv[5], 0, &exclusive, &o->start)) return false;
    if (exclusive && !stream_id_incr(&o->start))
        return ctx_refuse(c, "ERR invalid start ID for the interval");
    for (int i = 6; i < c->argc; i++) {
        if (bytes_is(c->argv[i], "justid")) {
            k->just_id = true;
        } else if (bytes_is(c->argv[i], "count") && i + 1 < c->argc) {
            if (!num_parse_i64(c->argv[++i], &o->count) || o->count < 1 || o->count > COUNT_MAX)
                return ctx_refuse(c, "ERR COUNT must be > 0");
        } else {
            ctx_syntax_error(c);
            return false;
        }
    }
    return true;
}

/* Collects, in one walk, the entries to claim and the deleted ones to drop. Returns the ID the next
 * XAUTOCLAIM should start from; 0-0: the scan is complete. */
static struct stream_id xautoclaim_choose(struct ctx *c, struct claiming *k, const struct auto_options *o,
                                          struct buf *ids)
{
    struct xwalk w;
    struct stream_id id;
    struct xpending p;
    bytes row;
    i64 looks = o->count * LOOKED_AT_PER_COUNT, left = o->count;
    xpending_walk(&w, &k->u.s, &k->u.g, NULL, o->start, STREAM_ID_MAX, false);
    while (xwalk_next(&w, &id, &row)) {
        if (looks-- == 0 || left == 0) {
            xwalk_end(&w);
            return id;
        }
        xpending_read(row, &p);
        if (!xclaim_idle_enough(c, k, &p) && xstream_has(&k->u.s, id, NULL)) continue;
        buf_append(ids, &id, sizeof id);
        left--;
    }
    return STREAM_ID_MIN;
}

static void claim_chosen(struct ctx *c, struct claiming *k, const struct buf *ids)
{
    struct buf deleted = {0};
    struct reply gone = {.out = &deleted, .proto = c->out->proto};
    size_t mark = reply_mark(c->out), claimed = 0, forgotten = 0;
    for (size_t at = 0; at < ids->n; at += sizeof(struct stream_id)) {
        struct stream_id id;
        struct xpending p;
        bytes packed;
        memcpy(&id, ids->p + at, sizeof id);
        if (!xpending_find(&k->u.s, &k->u.g, id, &p)) continue;
        if (xstream_has(&k->u.s, id, &packed)) {
            xclaim_entry(c, k, id, p, packed);
            claimed++;
        } else {
            xclaim_drop_deleted(c, k, id);
            reply_stream_id(&gone, id);
            forgotten++;
        }
    }
    reply_array_at(c->out, mark, claimed);
    reply_array(c->out, forgotten);
    buf_append_bytes(c->out->out, buf_bytes(&deleted));
    buf_release(&deleted);
}

void cmd_xautoclaim(struct ctx *c)
{
    struct claiming k = {.retries = -1, .time_ms = c->now_ms};
    struct auto_options o = {.count = 100};
    struct group_use u;
    struct buf ids = {0};
    if (!parse_auto(c, &k, &o)) return;
    err e = ctx_find_group(c, c->argv[1], c->argv[2], false, &u);
    if (e == ERR_NOT_FOUND) ctx_no_group(c, c->argv[1], c->argv[2]);
    if (e != OK) return;
    k.u = u;
    k.u.s.ref = &k.u.ref;
    k.claims = (struct claims){.c = c, .u = &k.u};
    ctx_open_consumer(c, c->argv[3], &k.u);
    struct stream_id next = xautoclaim_choose(c, &k, &o, &ids);
    reply_array(c->out, 3);
    reply_stream_id(c->out, next);
    claim_chosen(c, &k, &ids);
    claims_done(c, &k, false);
    buf_release(&ids);
}
