/* XADD, XLEN, XRANGE, XREVRANGE, XDEL, XTRIM, XSETID. */
#include "base/alloc.h"
#include "command/commands.h"
#include "command/stream/stream.h"

#define ENTRY_MAX ((u64)1 << 30) /* bytes of names and values */

err ctx_read_stream(struct ctx *c, bytes key, struct key_ref *ref, struct xstream *s)
{
    err e = ctx_read(c, key, TYPE_STREAM, ref);
    if (e == OK) xstream_open(s, c->eng, ref);
    return e;
}

err ctx_write_stream(struct ctx *c, bytes key, struct key_ref *ref, struct xstream *s)
{
    err e = ctx_write(c, key, TYPE_STREAM, ref);
    if (e == OK) xstream_open(s, c->eng, ref);
    return e;
}

static void stream_changed(struct ctx *c, u64 changes, const char *event)
{
    ctx_changed_by(c, changes, c->argv[1], NOTIFY_STREAM, event);
}

/* -- options of XADD and XTRIM ----------------------------------------------------------------- */

struct add_options {
    struct xtrim trim;
    bool no_create;
    bool auto_id, auto_seq; /* *, or ms-* */
    struct stream_id id;
    bool limit_given;
    int at; /* argv index of the ID; the fields follow it */
};

/* Parses [=|~] and the threshold after MAXLEN or MINID at argv[*i]. */
static bool xadd_parse_threshold(struct ctx *c, struct add_options *o, int *i, bool by_length)
{
    i64 n;
    if (o->trim.by != TRIM_NONE)
        return ctx_refuse(c,
                          "ERR syntax error, MAXLEN and MINID options at the same time are not compatible");
    o->trim.approx = false;
    if (*i + 2 < c->argc && bytes_is(c->argv[*i + 1], "~")) {
        o->trim.approx = true;
        ++*i;
    } else if (*i + 2 < c->argc && bytes_is(c->argv[*i + 1], "=")) {
        ++*i;
    }
    bytes arg = c->argv[++*i];
    o->trim.by = by_length ? TRIM_MAXLEN : TRIM_MINID;
    if (!by_length) return ctx_stream_id(c, arg, 0, &o->trim.minid);
    if (!ctx_int(c, arg, &n)) return false;
    if (n < 0) return ctx_refuse(c, "ERR The MAXLEN argument must be >= 0.");
    o->trim.maxlen = (u64)n;
    return true;
}

static bool xadd_parse_limit(struct ctx *c, struct add_options *o, bytes arg)
{
    i64 n;
    if (!ctx_int(c, arg, &n)) return false;
    if (n < 0) return ctx_refuse(c, "ERR The LIMIT argument must be >= 0.");
    o->trim.limit = (u64)n;
    return o->limit_given = true;
}

static bool xadd_parse_id(struct ctx *c, struct add_options *o, int at)
{
    bool seq_given = true;
    o->at = at;
    o->auto_id = bytes_eq(c->argv[at], BYTES_LIT("*"));
    if (o->auto_id) return true;
    if (!stream_id_parse(c->argv[at], 0, true, &seq_given, &o->id))
        return ctx_refuse(c, "ERR Invalid stream ID specified as stream command argument");
    o->auto_seq = !seq_given;
    return true;
}

/* Sets how many entries ~ may remove in one call: LIMIT, or 100 nodes as in Redis. Commands from a primary
 * or an AOF state the exact trim and have no limit. */
static bool xadd_default_limit(struct ctx *c, struct add_options *o)
{
    u64 nodes = 100 * MIN(c->ks->stream_node_max_entries, 10000u);
    if (c->ks->mode == EXPIRY_APPLY) {
        o->trim.limit = 0;
    } else if (o->limit_given && !o->trim.approx) {
        return ctx_refuse(c, "ERR syntax error, LIMIT cannot be used without the special ~ option");
    } else if (!o->limit_given) {
        o->trim.limit = o->trim.approx ? (nodes ? nodes : 10000) : 0;
    }
    return true;
}

static bool xadd_parse_options(struct ctx *c, struct add_options *o, bool adds)
{
    for (int i = 2; i < c->argc && !o->at; i++) {
        bytes word = c->argv[i];
        bool more = i + 1 < c->argc;
        bool maxlen = bytes_is(word, "maxlen");
        if ((maxlen || bytes_is(word, "minid")) && more) {
            if (!xadd_parse_threshold(c, o, &i, maxlen)) return false;
        } else if (bytes_is(word, "limit") && more) {
            if (!xadd_parse_limit(c, o, c->argv[++i])) return false;
        } else if (adds && bytes_is(word, "nomkstream")) {
            o->no_create = true;
        } else if (adds) {
            if (!xadd_parse_id(c, o, i)) return false;
        } else {
            ctx_syntax_error(c);
            return false;
        }
    }
    if (o->trim.limit && o->trim.by == TRIM_NONE)
        return ctx_refuse(c, "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy");
    if (!adds && o->trim.by == TRIM_NONE)
        return ctx_refuse(c, "ERR syntax error, XTRIM must be called with a trimming strategy");
    return xadd_default_limit(c, o);
}

/* -- XADD -------------------------------------------------------------------------------------- */

/* Chooses the ID of the new entry; false: an error was replied. */
static bool xadd_choose_id(struct ctx *c, const struct xstream *s, const struct add_options *o,
                           struct stream_id *id)
{
    bool fits = true;
    *id = o->id;
    if (stream_id_cmp(s->last, STREAM_ID_MAX) == 0 ||
        (o->auto_id && !xstream_next_id(s, (u64)c->now_ms, id)))
        return ctx_refuse(c, "ERR The stream has exhausted the last possible ID, unable to add more items");
    if (o->auto_id) return true;
    if (o->auto_seq && o->id.ms >= s->last.ms)
        fits = xstream_next_id(s, o->id.ms, id) && id->ms == o->id.ms;
    if (fits && stream_id_cmp(*id, s->last) > 0) return true;
    return ctx_refuse(c, "ERR The ID specified in XADD is equal or smaller than the target stream top item");
}

static bool xadd_entry_fits(struct ctx *c, int first)
{
    u64 n = 0;
    for (int i = first; i < c->argc; i++) n += c->argv[i].n;
    return n <= ENTRY_MAX || ctx_refuse(c, "ERR Elements are too large to be stored");
}

/* Journals XADD with the chosen ID and the exact length after trimming, so that replaying it gives the same
 * stream. */
static void xadd_effect(struct ctx *c, const struct xstream *s, const struct add_options *o,
                        struct stream_id id, u64 trimmed)
{
    char text[STREAM_ID_TEXT], length[NUM_I64_LEN];
    if (!o->auto_id && !o->auto_seq && !o->trim.approx) return;
    bytes *argv = mem_alloc(sizeof *argv * (size_t)(c->argc + 4));
    int n = 0;
    argv[n++] = BYTES_LIT("XADD");
    argv[n++] = c->argv[1];
    if (trimmed) {
        argv[n++] = BYTES_LIT("MAXLEN");
        argv[n++] = BYTES_LIT("=");
        argv[n++] = bytes_of(length, num_print_i64(length, (i64)s->length));
    }
    argv[n++] = stream_id_print(text, id);
    for (int i = o->at + 1; i < c->argc; i++) argv[n++] = c->argv[i];
    ctx_effect(c, n, argv);
    mem_free(argv);
}

static void xadd_entry(struct ctx *c, struct xstream *s, const struct add_options *o, struct stream_id id)
{
    struct buf packed = {0};
    u64 trimmed = 0;
    int first = o->at + 1;
    xentry_pack(&packed, c->argv + first, (u64)(c->argc - first) / 2);
    xstream_append(s, stream_node_limits(c->ks), id, buf_bytes(&packed));
    buf_release(&packed);
    reply_stream_id(c->out, id);
    stream_changed(c, 1, "xadd");
    if (o->trim.by != TRIM_NONE) trimmed = xstream_trim(s, &o->trim);
    if (trimmed) keyspace_notify(c->ks, c->db, c->argv[1], NOTIFY_STREAM, "xtrim");
    xstream_save(s);
    xadd_effect(c, s, o, id, trimmed);
}

void cmd_xadd(struct ctx *c)
{
    struct add_options o = {0};
    struct key_ref ref;
    struct xstream s = {.eng = c->eng};
    struct stream_id id;
    if (!xadd_parse_options(c, &o, true)) return;
    int fields = o.at ? c->argc - o.at - 1 : 0;
    if (fields < 2 || fields % 2) {
        ctx_wrong_arity(c);
        return;
    }
    if (!o.auto_id && !o.auto_seq && stream_id_zero(o.id)) {
        reply_error(c->out, "ERR The ID specified in XADD must be greater than 0-0");
        return;
    }
    err e = ctx_write_stream(c, c->argv[1], &ref, &s);
    if (e == ERR_TYPE) return;
    if (e == ERR_NOT_FOUND && o.no_create) {
        reply_null(c->out);
        return;
    }
    if (!xadd_choose_id(c, &s, &o, &id) || !xadd_entry_fits(c, o.at + 1)) return;
    if (e == ERR_NOT_FOUND) {
        if (!ctx_open(c, c->argv[1], TYPE_STREAM, &ref)) return;
        xstream_open(&s, c->eng, &ref);
    }
    xadd_entry(c, &s, &o, id);
}

/* -- XTRIM, XDEL, XSETID ----------------------------------------------------------------------- */

void cmd_xtrim(struct ctx *c)
{
    struct add_options o = {0};
    struct key_ref ref;
    struct xstream s;
    char length[NUM_I64_LEN];
    if (!xadd_parse_options(c, &o, false)) return;
    err e = ctx_write_stream(c, c->argv[1], &ref, &s);
    if (e == ERR_NOT_FOUND) reply_int(c->out, 0);
    if (e != OK) return;
    u64 trimmed = xstream_trim(&s, &o.trim);
    reply_int(c->out, (i64)trimmed);
    if (trimmed == 0) return;
    xstream_save(&s);
    stream_changed(c, trimmed, "xtrim");
    if (o.trim.approx)
        CTX_EFFECT(c, BYTES_LIT("XTRIM"), c->argv[1], BYTES_LIT("MAXLEN"), BYTES_LIT("="),
                   bytes_of(length, num_print_i64(length, (i64)s.length)));
}

void cmd_xdel(struct ctx *c)
{
    struct key_ref ref;
    struct xstream s;
    struct stream_id id;
    u64 deleted = 0;
    err e = ctx_write_stream(c, c->argv[1], &ref, &s);
    if (e == ERR_NOT_FOUND) reply_int(c->out, 0);
    if (e != OK) return;
    for (int i = 2; i < c->argc; i++)
        if (!ctx_stream_id(c, c->argv[i], 0, &id)) return;
    for (int i = 2; i < c->argc; i++)
        if (stream_id_parse(c->argv[i], 0, true, NULL, &id)) deleted += xstream_delete(&s, id);
    reply_int(c->out, (i64)deleted);
    if (deleted == 0) return;
    xstream_save(&s);
    stream_changed(c, deleted, "xdel");
}

struct setid_options {
    struct stream_id id, max_deleted;
    i64 added; /* -1: not given */
};

static bool xsetid_parse(struct ctx *c, struct setid_options *o)
{
    if (!ctx_stream_id(c, c->argv[2], 0, &o->id)) return false;
    for (int i = 3; i < c->argc; i += 2) {
        bool more = i + 1 < c->argc;
        if (more && bytes_is(c->argv[i], "entriesadded")) {
            if (!ctx_int(c, c->argv[i + 1], &o->added)) return false;
            if (o->added < 0) return ctx_refuse(c, "ERR entries_added must be positive");
        } else if (more && bytes_is(c->argv[i], "maxdeletedid")) {
            if (!ctx_stream_id(c, c->argv[i + 1], 0, &o->max_deleted)) return false;
            if (stream_id_cmp(o->id, o->max_deleted) < 0)
                return ctx_refuse(c, "ERR The ID specified in XSETID is smaller than the provided "
                                     "max_deleted_entry_id");
        } else {
            ctx_syntax_error(c);
            return false;
        }
    }
    return true;
}

static bool xsetid_allowed(struct ctx *c, struct xstream *s, const struct setid_options *o)
{
    struct stream_id top = STREAM_ID_MIN;
    bool replayed = c->ks->mode == EXPIRY_APPLY; /* a Redis 7.0 primary allows what we refuse here */
    if (stream_id_cmp(o->id, s->max_deleted) < 0 && !replayed)
        return ctx_refuse(c, "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id");
    if (s->length == 0) return true;
    xwalk_edge(s, xrow_kind('e'), true, &top);
    if (stream_id_cmp(o->id, top) < 0)
        return ctx_refuse(c, "ERR The ID specified in XSETID is smaller than the target stream top item");
    if (o->added != -1 && s->length > (u64)o->added)
        return ctx_refuse(
            c, "ERR The entries_added specified in XSETID is smaller than the target stream length");
    return true;
}

void cmd_xsetid(struct ctx *c)
{
    struct setid_options o = {.added = -1};
    struct key_ref ref;
    struct xstream s;
    if (!xsetid_parse(c, &o)) return;
    err e = ctx_write_stream(c, c->argv[1], &ref, &s);
    if (e == ERR_NOT_FOUND) reply_error(c->out, "ERR no such key");
    if (e != OK || !xsetid_allowed(c, &s, &o)) return;
    xstream_set_last(&s, o.id);
    if (o.added != -1) s.added = (u64)o.added;
    if (!stream_id_zero(o.max_deleted)) s.max_deleted = o.max_deleted;
    xstream_save(&s);
    reply_ok(c->out);
    c->ks->dirty++;
    keyspace_notify(c->ks, c->db, c->argv[1], NOTIFY_STREAM, "xsetid");
}

/* -- XLEN, XRANGE, XREVRANGE ------------------------------------------------------------------- */

void cmd_xlen(struct ctx *c)
{
    struct key_ref ref;
    err e = ctx_read(c, c->argv[1], TYPE_STREAM, &ref);
    if (e == ERR_NOT_FOUND) reply_int(c->out, 0);
    if (e == OK) reply_int(c->out, (i64)c->eng->ops->size(c->eng, &ref));
}

static void xrange_reply(struct ctx *c, struct xstream *s, struct stream_id from, struct stream_id to,
                         i64 count, bool reverse)
{
    size_t mark = reply_mark(c->out), n = 0;
    struct xwalk w;
    struct stream_id id;
    bytes packed;
    if (stream_id_cmp(from, to) <= 0) {
        xstream_walk(&w, s, from, to, reverse);
        for (; (count < 0 || (i64)n < count) && xwalk_next(&w, &id, &packed); n++)
            reply_xentry(c->out, id, packed);
        xwalk_end(&w);
    }
    reply_array_at(c->out, mark, n);
}

static void xrange_command(struct ctx *c, bool reverse)
{
    struct stream_id from, to;
    struct key_ref ref;
    struct xstream s;
    i64 count = -1;
    if (!ctx_stream_interval(c, c->argv[reverse ? 3 : 2], c->argv[reverse ? 2 : 3], &from, &to)) return;
    for (int i = 4; i < c->argc; i += 2) {
        if (i + 1 >= c->argc || !bytes_is(c->argv[i], "count")) {
            ctx_syntax_error(c);
            return;
        }
        if (!ctx_int(c, c->argv[i + 1], &count)) return;
        count = MAX(count, 0);
    }
    err e = ctx_read_stream(c, c->argv[1], &ref, &s);
    if (e == ERR_NOT_FOUND) reply_array(c->out, 0);
    if (e != OK) return;
    if (count == 0) reply_null_array(c->out);
    else xrange_reply(c, &s, from, to, count, reverse);
}

void cmd_xrange(struct ctx *c) { xrange_command(c, false); }
void cmd_xrevrange(struct ctx *c) { xrange_command(c, true); }
