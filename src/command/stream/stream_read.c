/* XREAD and XREADGROUP, which may block.
 *
 * A group read first walks the entries into the reply and a list of IDs, and then records the deliveries:
 * rows must not change during a walk. */
#include "base/alloc.h"
#include "command/commands.h"
#include "command/stream/stream_effect.h"
#include "command/waiting.h"

struct read_options {
    bool in_group, no_ack, blocks;
    bytes group, consumer;
    i64 timeout_ms;
    u64 count;     /* 0: all */
    int first, n;  /* n keys from argv[first], followed by n IDs */
};

/* Where to read from: the meaning of an ID argument. */
struct read_from {
    struct stream_id after;
    bool new; /* >: entries the group has not delivered yet */
};

/* -- arguments --------------------------------------------------------------------------------- */

static bool xread_parse_streams(struct ctx *c, struct read_options *o, int at, bool group_command)
{
    o->first = at;
    o->n = (c->argc - at) / 2;
    if ((c->argc - at) % 2 == 0) return true;
    reply_errorf(c->out,
                 "ERR Unbalanced '%s' list of streams: for each stream key an ID or '%c' must be specified.",
                 c->cmd->name, group_command ? '>' : '$');
    return false;
}

static bool xread_parse_count(struct ctx *c, struct read_options *o, bytes arg)
{
    i64 n;
    if (!ctx_int(c, arg, &n)) return false;
    o->count = (u64)MAX(n, 0);
    return true;
}

static bool xread_parse_block(struct ctx *c, struct read_options *o, bytes arg)
{
    o->blocks = true;
    return ctx_timeout_ms(c, arg, &o->timeout_ms);
}

static bool xread_parse_group(struct ctx *c, struct read_options *o, int at, bool group_command)
{
    if (!group_command)
        return ctx_refuse(c,
                          "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.");
    o->in_group = true;
    o->group = c->argv[at];
    o->consumer = c->argv[at + 1];
    return true;
}

static bool xread_parse(struct ctx *c, struct read_options *o, bool group_command)
{
    for (int i = 1; i < c->argc && !o->first; i++) {
        bytes word = c->argv[i];
        int more = c->argc - i - 1;
        bool ok = true;
        if (bytes_is(word, "block") && more) {
            ok = xread_parse_block(c, o, c->argv[++i]);
        } else if (bytes_is(word, "count") && more) {
            ok = xread_parse_count(c, o, c->argv[++i]);
        } else if (bytes_is(word, "streams") && more) {
            ok = xread_parse_streams(c, o, i + 1, group_command);
        } else if (bytes_is(word, "group") && more >= 2) {
            ok = xread_parse_group(c, o, i + 1, group_command);
            i += 2;
        } else if (bytes_is(word, "noack")) {
            o->no_ack = true;
            if (!group_command)
                ok = ctx_refuse(
                    c, "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.");
        } else {
            ctx_syntax_error(c);
            return false;
        }
        if (!ok) return false;
    }
    if (!o->first) {
        ctx_syntax_error(c);
        return false;
    }
    return !group_command || o->in_group || ctx_refuse(c, "ERR Missing GROUP option for XREADGROUP");
}

static void no_such_group(struct ctx *c, const struct read_options *o, bytes key)
{
    reply_errorf(c->out,
                 "NOGROUP No such key '%.*s' or consumer group '%.*s' in XREADGROUP with GROUP option",
                 (int)key.n, key.p, (int)o->group.n, o->group.p);
}

static bool xread_refuse_edge(struct ctx *c, char id)
{
    reply_errorf(c->out,
                 "ERR The %c ID is meaningless in the context of XREADGROUP: you want to read the history of "
                 "this consumer by specifying a proper ID, or use the > ID to get new messages. The %c ID "
                 "would just return an empty result set.",
                 id, id);
    return false;
}

/* For +: the ID just before the last entry; the stream's last ID if it is empty. */
static struct stream_id before_last(struct xstream *s)
{
    struct stream_id id = s->last;
    if (s->length && xwalk_edge(s, xrow_kind('e'), true, &id)) stream_id_decr(&id);
    return id;
}

/* Checks the type of the i-th key and that its group exists, and interprets its ID argument. */
static bool xread_resolve(struct ctx *c, const struct read_options *o, int i, struct read_from *from)
{
    bytes key = c->argv[o->first + i], arg = c->argv[o->first + o->n + i];
    struct group_use u;
    err e = o->in_group ? ctx_find_group(c, key, o->group, false, &u) : ctx_read_stream(c, key, &u.ref, &u.s);
    if (e == ERR_TYPE) return false;
    if (e == ERR_NOT_FOUND && o->in_group) {
        no_such_group(c, o, key);
        return false;
    }
    *from = (struct read_from){0};
    if (bytes_eq(arg, BYTES_LIT("$")) || bytes_eq(arg, BYTES_LIT("+"))) {
        if (o->in_group) return xread_refuse_edge(c, arg.p[0]);
        if (e == OK) from->after = arg.p[0] == '$' ? u.s.last : before_last(&u.s);
        return true;
    }
    if (bytes_eq(arg, BYTES_LIT(">"))) {
        from->new = true;
        return o->in_group ||
               ctx_refuse(c, "ERR The > ID can be specified only when calling XREADGROUP using the "
                             "GROUP <group> <consumer> option.");
    }
    if (!ctx_stream_id(c, arg, 0, &from->after)) return false;
    from->new = o->in_group && stream_id_cmp(from->after, STREAM_ID_MAX) == 0; /* Redis represents > so */
    return true;
}

/* -- replying ---------------------------------------------------------------------------------- */

/* The reply: a list of the streams that have entries. Its length is written at the end. */
struct answer {
    struct ctx *c;
    size_t mark, streams;
};

static void xread_begin_stream(struct answer *a, bytes key)
{
    if (a->c->out->proto == 2) reply_array(a->c->out, 2);
    reply_bulk(a->c->out, key);
    a->streams++;
}

/* Replies the entries after an ID and appends their IDs to `ids` (may be NULL). False: there are none, and
 * nothing was replied. */
static bool reply_after(struct answer *a, struct xstream *s, bytes key, struct stream_id after, u64 count,
                        struct buf *ids)
{
    struct xwalk w;
    struct stream_id id;
    bytes packed;
    u64 n = 0;
    if (stream_id_cmp(s->last, after) <= 0 || s->length == 0 || !stream_id_incr(&after)) return false;
    xstream_walk(&w, s, after, STREAM_ID_MAX, false);
    if (!xwalk_next(&w, &id, &packed)) return false;
    xread_begin_stream(a, key);
    size_t mark = reply_mark(a->c->out);
    do {
        reply_xentry(a->c->out, id, packed);
        if (ids) buf_append(ids, &id, sizeof id);
        n++;
    } while (n != count && xwalk_next(&w, &id, &packed));
    xwalk_end(&w);
    reply_array_at(a->c->out, mark, n);
    return true;
}

static struct stream_id nth_id(const struct buf *ids, size_t at)
{
    struct stream_id id;
    memcpy(&id, ids->p + at * sizeof id, sizeof id);
    return id;
}

/* Records a first delivery: advances the group and adds pending entries unless NOACK. */
static void xread_deliver(struct ctx *c, struct group_use *u, const struct buf *ids, bool no_ack)
{
    struct claims claims = {.c = c, .u = u};
    for (size_t i = 0; i < ids->n / sizeof(struct stream_id); i++) {
        struct stream_id id = nth_id(ids, i);
        if (stream_id_cmp(id, u->g.last) > 0) xgroup_advance(&u->s, &u->g, id);
        if (no_ack) continue;
        xpending_put(&u->s, &u->g, &u->c, id,
                     &(struct xpending){.consumer = u->c.number, .time_ms = c->now_ms, .count = 1});
        effect_claimed(&claims, id, c->now_ms, 1);
    }
    effect_claims_end(&claims);
    if (!no_ack) u->c.active_ms = c->now_ms;
    else if (u->consumer_made) effect_created(c, u);
    effect_group_id(c, u);
}

/* -- entries of other sites that came below the group's last ID (xgroup.h) ------------------------- */

/* Those that are still there, up to `count`; the others go. */
static void late_collect(struct ctx *c, struct group_use *u, const struct xconsumer *late, u64 count,
                         struct buf *ids)
{
    struct xwalk w;
    struct stream_id id;
    struct buf gone = {0};
    xpending_walk(&w, &u->s, &u->g, late, STREAM_ID_MIN, STREAM_ID_MAX, false);
    while ((count == 0 || ids->n / sizeof id < count) && xwalk_next(&w, &id, NULL))
        buf_append(xstream_has(&u->s, id, NULL) ? ids : &gone, &id, sizeof id);
    xwalk_end(&w);
    for (size_t i = 0; i < gone.n / sizeof id; i++) {
        xpending_delete(&u->s, &u->g, &u->c, nth_id(&gone, i));
        effect_acked(c, u, nth_id(&gone, i));
    }
    buf_release(&gone);
}

static void late_reply(struct answer *a, struct group_use *u, const struct buf *ids)
{
    size_t n = ids->n / sizeof(struct stream_id);
    bytes packed;
    xread_begin_stream(a, u->key);
    reply_array(a->c->out, n);
    for (size_t i = 0; i < n; i++) {
        xstream_has(&u->s, nth_id(ids, i), &packed);
        reply_xentry(a->c->out, nth_id(ids, i), packed);
    }
}

/* The consumer at which they were pending goes with the last of them. */
static void late_end(struct ctx *c, struct group_use *u)
{
    struct xconsumer late;
    if (!xconsumer_find(&u->s, &u->g, XGROUP_LATE, &late) || late.pending) return;
    xconsumer_delete(&u->s, &u->g, XGROUP_LATE, &late);
    CTX_EFFECT(c, BYTES_LIT("XGROUP"), BYTES_LIT("DELCONSUMER"), u->key, u->group, XGROUP_LATE);
}

/* Delivers them before, and apart from, what comes after the last ID. */
static bool xread_late(struct answer *a, struct group_use *u, const struct read_options *o, struct buf *ids)
{
    struct ctx *c = a->c;
    struct xconsumer late;
    if (LIKELY(!c->eng->gid) || bytes_eq(u->consumer, XGROUP_LATE)) return false;
    if (!xconsumer_find(&u->s, &u->g, XGROUP_LATE, &late)) return false;
    late_collect(c, u, &late, o->count, ids);
    if (ids->n) {
        late_reply(a, u, ids);
        xread_deliver(c, u, ids, o->no_ack);
    }
    for (size_t i = 0; o->no_ack && i < ids->n / sizeof(struct stream_id); i++) {
        xpending_delete(&u->s, &u->g, &u->c, nth_id(ids, i));
        effect_acked(c, u, nth_id(ids, i));
    }
    late_end(c, u);
    return ids->n > 0;
}

/* Replies the consumer's own pending entries; deleted ones are replied as null. `ids` gets the others. */
static void reply_history(struct answer *a, struct group_use *u, struct stream_id after, u64 count,
                          struct buf *ids)
{
    struct ctx *c = a->c;
    struct xwalk w;
    struct stream_id id;
    bytes packed;
    u64 n = 0;
    xread_begin_stream(a, u->key);
    size_t mark = reply_mark(c->out);
    if (stream_id_incr(&after)) {
        xpending_walk(&w, &u->s, &u->g, &u->c, after, STREAM_ID_MAX, false);
        for (; (count == 0 || n < count) && xwalk_next(&w, &id, NULL); n++) {
            if (xstream_has(&u->s, id, &packed)) {
                reply_xentry(c->out, id, packed);
                buf_append(ids, &id, sizeof id);
                continue;
            }
            reply_array(c->out, 2);
            reply_stream_id(c->out, id);
            reply_null_array(c->out);
        }
        xwalk_end(&w);
    }
    reply_array_at(c->out, mark, n);
}

static void xread_deliver_again(struct ctx *c, struct group_use *u, const struct buf *ids)
{
    struct claims claims = {.c = c, .u = u};
    struct xpending p;
    for (size_t i = 0; i < ids->n / sizeof(struct stream_id); i++) {
        struct stream_id id = nth_id(ids, i);
        if (!xpending_find(&u->s, &u->g, id, &p)) continue;
        p.time_ms = c->now_ms;
        p.count++;
        xpending_put(&u->s, &u->g, &u->c, id, &p);
        effect_claimed(&claims, id, p.time_ms, p.count);
    }
    effect_claims_end(&claims);
}

static void xread_in_group(struct answer *a, const struct read_options *o, bytes key,
                           const struct read_from *from)
{
    struct ctx *c = a->c;
    struct group_use u;
    struct buf ids = {0};
    if (ctx_find_group(c, key, o->group, false, &u) != OK) return;
    ctx_open_consumer(c, o->consumer, &u);
    if (from->new) {
        if (!xread_late(a, &u, o, &ids) && reply_after(a, &u.s, key, u.g.last, o->count, &ids))
            xread_deliver(c, &u, &ids, o->no_ack);
    } else {
        reply_history(a, &u, from->after, o->count, &ids);
        xread_deliver_again(c, &u, &ids);
    }
    if (ids.n == 0 && u.consumer_made) effect_created(c, &u);
    c->ks->dirty += ids.n > 0;
    group_save(&u);
    buf_release(&ids);
}

static void xread_plain(struct answer *a, const struct read_options *o, bytes key,
                        const struct read_from *from)
{
    struct key_ref ref;
    struct xstream s;
    if (ctx_read_stream(a->c, key, &ref, &s) == OK) reply_after(a, &s, key, from->after, o->count, NULL);
}

/* Blocks the command, with every $ replaced by the ID it stands for now. */
static void xread_wait(struct ctx *c, const struct read_options *o, const struct read_from *from)
{
    char(*text)[STREAM_ID_TEXT] = mem_alloc((size_t)o->n * sizeof *text);
    bytes *argv = mem_alloc((size_t)c->argc * sizeof *argv);
    memcpy(argv, c->argv, (size_t)c->argc * sizeof *argv);
    for (int i = 0; i < o->n; i++) {
        bytes *arg = &argv[o->first + o->n + i];
        if (bytes_eq(*arg, BYTES_LIT("$"))) *arg = stream_id_print(text[i], from[i].after);
    }
    struct waiting *w = ctx_wait(c, TYPE_STREAM, argv, o->first, o->n, o->timeout_ms);
    if (w) w->even_gone = o->in_group;
    mem_free(argv);
    mem_free(text);
}

static void xread_streams(struct ctx *c, const struct read_options *o, const struct read_from *from)
{
    struct answer a = {.c = c, .mark = reply_mark(c->out)};
    for (int i = 0; i < o->n; i++) {
        bytes key = c->argv[o->first + i];
        if (!ctx_looks_at(c, key)) continue;
        if (o->in_group) xread_in_group(&a, o, key, &from[i]);
        else xread_plain(&a, o, key, &from[i]);
        if (c->ready && a.streams) break; /* the key may be listed twice */
    }
    if (o->in_group && !c->effects_given) ctx_no_effect(c); /* a seen time is not journalled */
    if (a.streams) {
        if (c->out->proto == 2) reply_array_at(c->out, a.mark, a.streams);
        else reply_map_at(c->out, a.mark, a.streams);
    } else if (o->blocks) {
        xread_wait(c, o, from);
    } else {
        reply_null_array(c->out);
    }
}

/* Whether the key that woke the command no longer holds a stream. XREADGROUP then fails as if it had just
 * been sent; XREAD keeps blocking. */
static bool gone_while_waiting(struct ctx *c)
{
    struct key_ref ref;
    return !keyspace_find(c->ks, c->db, *c->ready, LOOKUP_PEEK, &ref) || ref.type != TYPE_STREAM;
}

static void xread_command(struct ctx *c, bool group_command)
{
    struct read_options o = {0};
    if (!xread_parse(c, &o, group_command)) return;
    if (c->ready && !group_command && gone_while_waiting(c)) {
        xread_wait(c, &o, NULL);
        return;
    }
    struct read_from *from = mem_zalloc(sizeof *from * (size_t)MAX(o.n, 1));
    bool ok = true;
    for (int i = 0; i < o.n && ok; i++)
        if (ctx_looks_at(c, c->argv[o.first + i])) ok = xread_resolve(c, &o, i, &from[i]);
    if (ok) xread_streams(c, &o, from);
    mem_free(from);
}

void cmd_xread(struct ctx *c) { xread_command(c, false); }
void cmd_xreadgroup(struct ctx *c) { xread_command(c, true); }
