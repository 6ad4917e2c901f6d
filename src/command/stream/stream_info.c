/* XINFO. */
#include "command/commands.h"
#include "command/stream/stream_effect.h"

static bool xinfo_find_stream(struct ctx *c, struct key_ref *ref, struct xstream *s)
{
    err e = ctx_read_stream(c, c->argv[2], ref, s);
    if (e == ERR_NOT_FOUND) reply_error(c->out, "ERR no such key");
    return e == OK;
}

/* -- STREAM ------------------------------------------------------------------------------------ */

static void xinfo_int(struct ctx *c, const char *name, u64 v)
{
    reply_bulk_str(c->out, name);
    reply_int(c->out, (i64)v);
}

static void xinfo_id(struct ctx *c, const char *name, struct stream_id id)
{
    reply_bulk_str(c->out, name);
    reply_stream_id(c->out, id);
}

/* We have no radix tree; radix-tree-nodes is the least Redis's would have. */
static void xinfo_head(struct ctx *c, const struct xstream *s)
{
    xinfo_int(c, "length", s->length);
    xinfo_int(c, "radix-tree-keys", s->nodes);
    xinfo_int(c, "radix-tree-nodes", s->nodes + 1);
    xinfo_id(c, "last-generated-id", s->last);
    xinfo_id(c, "max-deleted-entry-id", s->max_deleted);
    xinfo_int(c, "entries-added", s->added);
    xinfo_id(c, "recorded-first-entry-id", s->first);
}

static void xinfo_edge(struct ctx *c, const char *name, struct xstream *s, bool last)
{
    struct xwalk w;
    struct stream_id id;
    bytes packed;
    reply_bulk_str(c->out, name);
    xstream_walk(&w, s, STREAM_ID_MIN, STREAM_ID_MAX, last);
    if (xwalk_next(&w, &id, &packed)) reply_xentry(c->out, id, packed);
    else reply_null(c->out);
    xwalk_end(&w);
}

static void reply_counters(struct ctx *c, const struct xstream *s, const struct xgroup *g)
{
    i64 lag;
    reply_bulk_str(c->out, "entries-read");
    if (g->entries_read == ENTRIES_READ_UNKNOWN) reply_null(c->out);
    else reply_int(c->out, g->entries_read);
    reply_bulk_str(c->out, "lag");
    if (xgroup_lag(s, g, &lag)) reply_int(c->out, lag);
    else reply_null(c->out);
}

/* The pending entries of one consumer, or, if it is NULL, of the group with the consumers' names. */
static void full_pending(struct ctx *c, struct xstream *s, const struct xgroup *g,
                         const struct xconsumer *consumer, u64 count)
{
    struct xwalk w;
    struct stream_id id;
    struct xpending p;
    bytes row;
    size_t n = 0;
    reply_bulk_str(c->out, "pending");
    size_t mark = reply_mark(c->out);
    xpending_walk(&w, s, g, consumer, STREAM_ID_MIN, STREAM_ID_MAX, false);
    for (; (count == 0 || n < count) && xwalk_next(&w, &id, &row); n++) {
        if (!consumer) xpending_read(row, &p);
        else if (!xpending_find(s, g, id, &p)) break;
        reply_array(c->out, consumer ? 3 : 4);
        reply_stream_id(c->out, id);
        if (!consumer) reply_bulk(c->out, xconsumer_name(s, g, p.consumer));
        reply_int(c->out, p.time_ms);
        reply_int(c->out, (i64)p.count);
    }
    xwalk_end(&w);
    reply_array_at(c->out, mark, n);
}

static void full_consumers(struct ctx *c, struct xstream *s, const struct xgroup *g, u64 count)
{
    struct xname_walk w;
    struct xconsumer consumer;
    bytes name;
    size_t n = 0;
    reply_bulk_str(c->out, "consumers");
    size_t mark = reply_mark(c->out);
    xconsumer_walk(&w, s, g);
    for (; xconsumer_next(&w, &name, &consumer); n++) {
        reply_map(c->out, 5);
        reply_bulk_str(c->out, "name");
        reply_bulk(c->out, name);
        xinfo_int(c, "seen-time", (u64)consumer.seen_ms);
        xinfo_int(c, "active-time", (u64)consumer.active_ms);
        xinfo_int(c, "pel-count", consumer.pending);
        full_pending(c, s, g, &consumer, count);
    }
    xname_walk_end(&w);
    reply_array_at(c->out, mark, n);
}

static void full_groups(struct ctx *c, struct xstream *s, u64 count)
{
    struct xname_walk w;
    struct xgroup g;
    bytes name;
    size_t n = 0;
    reply_bulk_str(c->out, "groups");
    size_t mark = reply_mark(c->out);
    xgroup_walk(&w, s);
    for (; xgroup_next(&w, &name, &g); n++) {
        reply_map(c->out, 7);
        reply_bulk_str(c->out, "name");
        reply_bulk(c->out, name);
        xinfo_id(c, "last-delivered-id", g.last);
        reply_counters(c, s, &g);
        xinfo_int(c, "pel-count", g.pending);
        full_pending(c, s, &g, NULL, count);
        full_consumers(c, s, &g, count);
    }
    xname_walk_end(&w);
    reply_array_at(c->out, mark, n);
}

static void full_entries(struct ctx *c, struct xstream *s, u64 count)
{
    struct xwalk w;
    struct stream_id id;
    bytes packed;
    size_t n = 0;
    reply_bulk_str(c->out, "entries");
    size_t mark = reply_mark(c->out);
    xstream_walk(&w, s, STREAM_ID_MIN, STREAM_ID_MAX, false);
    for (; (count == 0 || n < count) && xwalk_next(&w, &id, &packed); n++) reply_xentry(c->out, id, packed);
    xwalk_end(&w);
    reply_array_at(c->out, mark, n);
}

#define FULL_COUNT 10

static bool parse_full(struct ctx *c, i64 *count)
{
    *count = FULL_COUNT;
    if (c->argc != 4 && c->argc != 6) goto wrong;
    if (!bytes_is(c->argv[3], "full")) goto wrong;
    if (c->argc == 4) return true;
    if (!bytes_is(c->argv[4], "count")) goto wrong;
    if (!ctx_int(c, c->argv[5], count)) return false;
    if (*count < 0) *count = FULL_COUNT;
    return true;
wrong:
    ctx_wrong_subcommand(c);
    return false;
}

void cmd_xinfo_stream(struct ctx *c)
{
    struct key_ref ref;
    struct xstream s;
    i64 count;
    if (!xinfo_find_stream(c, &ref, &s)) return;
    if (c->argc > 3) {
        if (!parse_full(c, &count)) return;
        reply_map(c->out, 9);
        xinfo_head(c, &s);
        full_entries(c, &s, (u64)count);
        full_groups(c, &s, (u64)count);
        return;
    }
    reply_map(c->out, 10);
    xinfo_head(c, &s);
    xinfo_int(c, "groups", s.groups);
    xinfo_edge(c, "first-entry", &s, false);
    xinfo_edge(c, "last-entry", &s, true);
}

/* -- GROUPS, CONSUMERS ------------------------------------------------------------------------- */

void cmd_xinfo_groups(struct ctx *c)
{
    struct key_ref ref;
    struct xstream s;
    struct xname_walk w;
    struct xgroup g;
    bytes name;
    if (!xinfo_find_stream(c, &ref, &s)) return;
    reply_array(c->out, s.groups);
    xgroup_walk(&w, &s);
    while (xgroup_next(&w, &name, &g)) {
        reply_map(c->out, 6);
        reply_bulk_str(c->out, "name");
        reply_bulk(c->out, name);
        xinfo_int(c, "consumers", g.consumers);
        xinfo_int(c, "pending", g.pending);
        xinfo_id(c, "last-delivered-id", g.last);
        reply_counters(c, &s, &g);
    }
    xname_walk_end(&w);
}

/* Time since the consumer last got an entry. */
static i64 inactive_ms(const struct ctx *c, const struct xconsumer *consumer)
{
    if (consumer->active_ms == NEVER_ACTIVE) return NEVER_ACTIVE;
    return MAX(xidle_ms(c->now_ms, consumer->active_ms), 0);
}

void cmd_xinfo_consumers(struct ctx *c)
{
    struct group_use u = {.key = c->argv[2], .group = c->argv[3]};
    struct xname_walk w;
    struct xconsumer consumer;
    bytes name;
    if (!xinfo_find_stream(c, &u.ref, &u.s)) return;
    if (!xgroup_find(&u.s, u.group, &u.g)) {
        reply_errorf(c->out, "NOGROUP No such consumer group '%.*s' for key name '%.*s'", (int)u.group.n,
                     u.group.p, (int)u.key.n, u.key.p);
        return;
    }
    reply_array(c->out, u.g.consumers);
    xconsumer_walk(&w, &u.s, &u.g);
    while (xconsumer_next(&w, &name, &consumer)) {
        reply_map(c->out, 4);
        reply_bulk_str(c->out, "name");
        reply_bulk(c->out, name);
        xinfo_int(c, "pending", consumer.pending);
        xinfo_int(c, "idle", (u64)MAX(xidle_ms(c->now_ms, consumer.seen_ms), 0));
        xinfo_int(c, "inactive", (u64)inactive_ms(c, &consumer));
    }
    xname_walk_end(&w);
}

void cmd_xinfo_help(struct ctx *c)
{
    static const char *const lines[] = {
        "CONSUMERS <key> <groupname>",
        "    Tells of the consumers of a group.",
        "GROUPS <key>",
        "    Tells of the groups of a stream.",
        "STREAM <key> [FULL [COUNT <count>]",
        "    Tells of a stream.",
        NULL,
    };
    ctx_help(c, lines);
}
