/* XGROUP and XACK. */
#include "command/commands.h"
#include "command/stream/stream_effect.h"

/* -- XGROUP ------------------------------------------------------------------------------------ */

struct group_options {
    bool make_stream;
    i64 entries_read;
};

static bool xgroup_parse_options(struct ctx *c, struct group_options *o, bool creates)
{
    *o = (struct group_options){.entries_read = ENTRIES_READ_UNKNOWN};
    for (int i = 5; i < c->argc; i++) {
        if (creates && bytes_is(c->argv[i], "mkstream")) {
            o->make_stream = true;
        } else if (bytes_is(c->argv[i], "entriesread") && i + 1 < c->argc) {
            if (!ctx_int(c, c->argv[++i], &o->entries_read)) return false;
            if (o->entries_read >= ENTRIES_READ_UNKNOWN) continue;
            reply_error(c->out, "ERR value for ENTRIESREAD must be positive or -1");
            return false;
        } else {
            ctx_wrong_subcommand(c);
            return false;
        }
    }
    return true;
}

/* Finds the stream; a missing one is an error. */
static bool xgroup_find_stream(struct ctx *c, struct key_ref *ref, struct xstream *s)
{
    err e = ctx_write_stream(c, c->argv[2], ref, s);
    if (e == ERR_NOT_FOUND)
        reply_error(c->out,
                    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may "
                    "want to use the MKSTREAM option to create an empty stream automatically.");
    return e == OK;
}

/* Finds the stream and the group; it is an error if either is missing. */
static bool xgroup_find_both(struct ctx *c, struct group_use *u)
{
    *u = (struct group_use){.key = c->argv[2], .group = c->argv[3]};
    if (!xgroup_find_stream(c, &u->ref, &u->s)) return false;
    if (xgroup_find(&u->s, u->group, &u->g)) return true;
    reply_errorf(c->out, "NOGROUP No such consumer group '%.*s' for key name '%.*s'", (int)u->group.n,
                 u->group.p, (int)u->key.n, u->key.p);
    return false;
}

static void group_event(struct ctx *c, const char *event)
{
    c->ks->dirty++;
    keyspace_notify(c->ks, c->db, c->argv[2], NOTIFY_STREAM, event);
}

/* As in Redis, SETID also accepts - and +. */
static bool xgroup_parse_start(struct ctx *c, const struct xstream *s, bool strict, struct stream_id *id)
{
    bytes arg = c->argv[4];
    *id = s->last;
    if (bytes_eq(arg, BYTES_LIT("$")) || (!strict && stream_id_parse(arg, 0, false, NULL, id))) return true;
    return ctx_stream_id(c, arg, 0, id);
}

void cmd_xgroup_create(struct ctx *c)
{
    struct group_options o;
    struct key_ref ref;
    struct xstream s = {0};
    struct xgroup g;
    struct stream_id id;
    if (!xgroup_parse_options(c, &o, true)) return;
    if (!o.make_stream) {
        if (!xgroup_find_stream(c, &ref, &s)) return;
    } else if (ctx_write_stream(c, c->argv[2], &ref, &s) == ERR_TYPE) {
        return;
    }
    if (c->argc > 8) {
        ctx_wrong_subcommand(c);
        return;
    }
    if (!xgroup_parse_start(c, &s, true, &id)) return;
    bool made = !s.eng;
    if (made) {
        if (!ctx_open(c, c->argv[2], TYPE_STREAM, &ref)) return;
        xstream_open(&s, c->eng, &ref);
    }
    if (xgroup_find(&s, c->argv[3], &g)) {
        reply_error(c->out, "BUSYGROUP Consumer Group name already exists");
        return;
    }
    xgroup_create(&s, c->argv[3], id, o.entries_read, &g);
    xstream_save(&s);
    reply_ok(c->out);
    if (made) keyspace_touched(c->ks, c->db, c->argv[2]); /* a new group alone does not fail a WATCH */
    group_event(c, "xgroup-create");
}

void cmd_xgroup_setid(struct ctx *c)
{
    struct group_options o;
    struct group_use u;
    struct stream_id id;
    if (!xgroup_parse_options(c, &o, false) || !xgroup_find_both(c, &u)) return;
    if (c->argc > 7) {
        ctx_wrong_subcommand(c);
        return;
    }
    if (!xgroup_parse_start(c, &u.s, false, &id)) return;
    u.g.last = id;
    u.g.entries_read = o.entries_read;
    xgroup_put(&u.s, u.group, &u.g);
    reply_ok(c->out);
    group_event(c, "xgroup-setid");
}

void cmd_xgroup_destroy(struct ctx *c)
{
    struct key_ref ref;
    struct xstream s;
    struct xgroup g;
    if (!xgroup_find_stream(c, &ref, &s)) return;
    bool there = xgroup_find(&s, c->argv[3], &g);
    reply_int(c->out, there);
    if (!there) return;
    xgroup_destroy(&s, c->argv[3], &g);
    xstream_save(&s);
    ctx_changed(c, c->argv[2], NOTIFY_STREAM, "xgroup-destroy"); /* blocked XREADGROUPs wake up and fail */
}

void cmd_xgroup_createconsumer(struct ctx *c)
{
    struct group_use u;
    struct xconsumer there;
    if (!xgroup_find_both(c, &u)) return;
    if (xconsumer_find(&u.s, &u.g, c->argv[4], &there)) {
        reply_int(c->out, 0);
        return;
    }
    ctx_open_consumer(c, c->argv[4], &u);
    group_save(&u);
    reply_int(c->out, 1);
}

void cmd_xgroup_delconsumer(struct ctx *c)
{
    struct group_use u;
    if (!xgroup_find_both(c, &u)) return;
    if (!xconsumer_find(&u.s, &u.g, c->argv[4], &u.c)) {
        reply_int(c->out, 0);
        return;
    }
    reply_int(c->out, (i64)u.c.pending);
    xconsumer_delete(&u.s, &u.g, c->argv[4], &u.c);
    xgroup_put(&u.s, u.group, &u.g);
    group_event(c, "xgroup-delconsumer");
}

void cmd_xgroup_help(struct ctx *c)
{
    static const char *const lines[] = {
        "CREATE <key> <groupname> <id|$> [option]",
        "    Makes a group that reads the entries after <id>. Options are:",
        "    * MKSTREAM",
        "      Make the stream, too, if it isn't there.",
        "    * ENTRIESREAD entries_read",
        "      How many entries the group counts as read (internal use).",
        "CREATECONSUMER <key> <groupname> <consumer>",
        "    Makes a consumer.",
        "DELCONSUMER <key> <groupname> <consumer>",
        "    Removes a consumer and what it has pending.",
        "DESTROY <key> <groupname>",
        "    Removes a group.",
        "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
        "    Says which entry the group has read last.",
        NULL,
    };
    ctx_help(c, lines);
}

/* -- XACK -------------------------------------------------------------------------------------- */

void cmd_xack(struct ctx *c)
{
    struct group_use u;
    struct stream_id id;
    i64 acked = 0;
    err e = ctx_find_group(c, c->argv[1], c->argv[2], false, &u);
    if (e == ERR_NOT_FOUND) reply_int(c->out, 0);
    if (e != OK) return;
    for (int i = 3; i < c->argc; i++)
        if (!ctx_stream_id(c, c->argv[i], 0, &id)) return;
    for (int i = 3; i < c->argc; i++)
        if (stream_id_parse(c->argv[i], 0, true, NULL, &id)) acked += xpending_delete(&u.s, &u.g, NULL, id);
    reply_int(c->out, acked);
    if (acked == 0) return;
    xgroup_put(&u.s, u.group, &u.g);
    c->ks->dirty += (u64)acked;
}
