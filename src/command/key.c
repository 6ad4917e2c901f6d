/* Commands for keys of any type: deleting, renaming, copying, moving, describing; and whole databases
 * (FLUSHDB, FLUSHALL, SWAPDB). */
#include <limits.h>

#include "command/commands.h"
#include "command/key.h"

/* -- DEL UNLINK EXISTS TOUCH TYPE -------------------------------------------- */

void cmd_del(struct ctx *c)
{
    i64 deleted = 0;
    for (int i = 1; i < c->argc; i++) {
        struct key_ref ref;
        if (ctx_write(c, c->argv[i], TYPE_NONE, &ref) != OK) continue;
        ctx_drop(c, &ref);
        ctx_changed(c, c->argv[i], NOTIFY_GENERIC, "del");
        deleted++;
    }
    reply_int(c->out, deleted);
}

/* Dropping is O(1) for a value of any size, so DEL is already what UNLINK promises. */
void cmd_unlink(struct ctx *c) { cmd_del(c); }

void cmd_exists(struct ctx *c)
{
    i64 found = 0;
    struct key_ref ref;
    for (int i = 1; i < c->argc; i++)
        if (ctx_peek(c, c->argv[i], TYPE_NONE, &ref) == OK) found++;
    reply_int(c->out, found);
}

void cmd_touch(struct ctx *c)
{
    i64 touched = 0;
    struct key_ref ref;
    c->ks->no_touch = false; /* the point of TOUCH, whatever CLIENT NO-TOUCH says */
    for (int i = 1; i < c->argc; i++)
        if (ctx_read(c, c->argv[i], TYPE_NONE, &ref) == OK) touched++;
    reply_int(c->out, touched);
}

void cmd_type(struct ctx *c)
{
    struct key_ref ref;
    bool found = ctx_peek(c, c->argv[1], TYPE_NONE, &ref) == OK;
    reply_simple(c->out, type_name(found ? ref.type : TYPE_NONE));
}

/* -- RENAME RENAMENX COPY MOVE ------------------------------------------------ */

static void reply_no_such_key(struct ctx *c) { reply_error(c->out, "ERR no such key"); }

static void reply_same_object(struct ctx *c)
{
    reply_error(c->out, "ERR source and destination objects are the same");
}

/* Reads a database number. False: an error was replied. Where there is only one database, the caller refuses
 * all others. */
static bool database_arg(struct ctx *c, bytes arg, u32 *db)
{
    i64 n;
    if (!ctx_int_range(c, arg, INT_MIN, INT_MAX, &n)) return false;
    if (n < 0 || (n >= c->eng->databases && n >= c->ks->one_database)) {
        reply_error(c->out, "ERR DB index is out of range");
        return false;
    }
    *db = (u32)n;
    return true;
}

/* True: it was renamed; false: only_new, and the target exists. */
static bool key_rename(struct ctx *c, struct key_ref *from, bytes to, bool only_new)
{
    struct key_ref target;
    if (ctx_write(c, to, TYPE_NONE, &target) == OK) {
        if (only_new) return false;
        ctx_drop(c, &target);
    }
    c->eng->ops->rename(c->eng, from, c->db, to);
    keyspace_notify(c->ks, c->db, to, NOTIFY_NEW, "new");
    ctx_changed(c, c->argv[1], NOTIFY_GENERIC, "rename_from");
    ctx_changed_by(c, 0, to, NOTIFY_GENERIC, "rename_to"); /* one change in total */
    return true;
}

void cmd_rename(struct ctx *c)
{
    struct key_ref ref;
    if (ctx_write(c, c->argv[1], TYPE_NONE, &ref) != OK) {
        reply_no_such_key(c);
        return;
    }
    if (!bytes_eq(c->argv[1], c->argv[2])) key_rename(c, &ref, c->argv[2], false);
    reply_ok(c->out);
}

void cmd_renamenx(struct ctx *c)
{
    struct key_ref ref;
    if (ctx_write(c, c->argv[1], TYPE_NONE, &ref) != OK) {
        reply_no_such_key(c);
        return;
    }
    bool renamed = !bytes_eq(c->argv[1], c->argv[2]) && key_rename(c, &ref, c->argv[2], true);
    reply_int(c->out, renamed);
}

static bool copy_options(struct ctx *c, u32 *db, bool *replace)
{
    *db = c->db;
    *replace = false;
    for (int i = 3; i < c->argc; i++) {
        if (bytes_is(c->argv[i], "replace")) {
            *replace = true;
        } else if (bytes_is(c->argv[i], "db") && i + 1 < c->argc) {
            if (!database_arg(c, c->argv[++i], db)) return false;
        } else {
            ctx_syntax_error(c);
            return false;
        }
    }
    return true;
}

/* Dead fields are not copied. A reader of the journal still sees them alive, and must not copy them
 * either. */
static void forget_dead_fields(struct ctx *c, struct key_ref *ref)
{
    if (ref->type == TYPE_HASH && c->eng->ops->map.dead_fields(c->eng, ref))
        keyspace_reap_fields(c->ks, ref, UINT32_MAX, true);
}

void cmd_copy(struct ctx *c)
{
    bytes from = c->argv[1], to = c->argv[2];
    u32 db;
    bool replace;
    if (!copy_options(c, &db, &replace)) return;
    if (c->ks->one_database && db != 0) {
        reply_error(c->out, "ERR Copying to another database is not allowed in cluster mode");
        return;
    }
    if (db == c->db && bytes_eq(from, to)) {
        reply_same_object(c);
        return;
    }
    struct key_ref ref, target, made;
    bool found = ctx_read(c, from, TYPE_NONE, &ref) == OK;
    bool taken = found && keyspace_find(c->ks, db, to, LOOKUP_WRITE, &target);
    if (!found || (taken && !replace)) {
        reply_int(c->out, 0);
        return;
    }
    if (taken) ctx_drop(c, &target);
    forget_dead_fields(c, &ref);
    c->eng->ops->copy(c->eng, &ref, db, to, &made);
    keyspace_notify(c->ks, db, to, NOTIFY_NEW, "new");
    keyspace_changed(c->ks, db, to, NOTIFY_GENERIC, "copy_to");
    reply_int(c->out, 1);
}

static bool has_databases(struct ctx *c, const char *command)
{
    if (!c->ks->one_database) return true;
    reply_errorf(c->out, "ERR %s is not allowed in cluster mode", command);
    return false;
}

void cmd_move(struct ctx *c)
{
    bytes key = c->argv[1];
    u32 db;
    if (!has_databases(c, "MOVE") || !database_arg(c, c->argv[2], &db)) return;
    if (db == c->db) {
        reply_same_object(c);
        return;
    }
    struct key_ref ref, target;
    if (ctx_write(c, key, TYPE_NONE, &ref) != OK ||
        keyspace_find(c->ks, db, key, LOOKUP_WRITE, &target)) {
        reply_int(c->out, 0);
        return;
    }
    c->eng->ops->rename(c->eng, &ref, db, key);
    keyspace_notify(c->ks, db, key, NOTIFY_NEW, "new");
    ctx_changed(c, key, NOTIFY_GENERIC, "move_from");
    keyspace_touched(c->ks, db, key); /* one change in total */
    keyspace_notify(c->ks, db, key, NOTIFY_GENERIC, "move_to");
    reply_int(c->out, 1);
}

/* -- OBJECT ------------------------------------------------------------------- */

/* The key of an OBJECT subcommand. False: null was replied. */
static bool object_key(struct ctx *c, struct key_ref *ref)
{
    if (keyspace_find(c->ks, c->db, c->argv[2], LOOKUP_PEEK, ref)) return true; /* a miss is no event */
    reply_null(c->out);
    return false;
}

void cmd_object_encoding(struct ctx *c)
{
    struct key_ref ref;
    if (object_key(c, &ref)) reply_bulk_str(c->out, c->eng->ops->encoding(c->eng, &ref));
}

void cmd_object_freq(struct ctx *c)
{
    struct key_ref ref;
    if (!object_key(c, &ref)) return;
    if (!(c->ks->policy & EVICT_VOLATILE_LFU)) {
        reply_error(c->out,
                    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. "
                    "Please note that when switching between policies at runtime LRU and LFU data "
                    "will take some time to adjust.");
        return;
    }
    reply_int(c->out, access_frequency(c->ks, c->eng->ops->access(c->eng, &ref)));
}

void cmd_object_idletime(struct ctx *c)
{
    struct key_ref ref;
    if (!object_key(c, &ref)) return;
    if (c->ks->policy & EVICT_VOLATILE_LFU) {
        reply_error(c->out,
                    "ERR An LFU maxmemory policy is selected, idle time not tracked. "
                    "Please note that when switching between policies at runtime LRU and LFU data "
                    "will take some time to adjust.");
        return;
    }
    u64 idle_ms = access_idle_ms(c->ks, c->eng->ops->access(c->eng, &ref));
    reply_int(c->out, (i64)(idle_ms / 1000));
}

/* Mayfly shares no values, but tools and tests expect Redis's reply for the small integers that it shares
 * between keys (unless there is a memory limit and each needs its own access clock). */
static bool redis_would_share(struct ctx *c, struct key_ref *ref)
{
    i64 v;
    bool own_clock = c->ks->limited && c->ks->policy & (EVICT_VOLATILE_LFU | EVICT_VOLATILE_LRU);
    return ref->type == TYPE_STRING && !own_clock &&
           strcmp(c->eng->ops->encoding(c->eng, ref), "int") == 0 &&
           c->eng->ops->str.get_int(c->eng, ref, &v) && v >= 0 && v < 10000;
}

void cmd_object_refcount(struct ctx *c)
{
    struct key_ref ref;
    if (object_key(c, &ref)) reply_int(c->out, redis_would_share(c, &ref) ? INT_MAX : 1);
}

void cmd_object_help(struct ctx *c)
{
    static const char *const lines[] = {
        "ENCODING <key>",
        "    Return the kind of internal representation used in order to store the value",
        "    associated with a <key>.",
        "FREQ <key>",
        "    Return the access frequency index of the <key>. The returned integer is",
        "    proportional to the logarithm of the recent access frequency of the key.",
        "IDLETIME <key>",
        "    Return the idle time of the <key>, that is the approximated number of",
        "    seconds elapsed since the last access to the key.",
        "REFCOUNT <key>",
        "    Return the number of references of the value associated with the specified",
        "    <key>.",
        NULL,
    };
    ctx_help(c, lines);
}

/* -- whole databases ------------------------------------------------------------ */

/* ASYNC and SYNC are the same here: flushing is O(1) either way. */
static bool flush_options(struct ctx *c)
{
    if (c->argc == 1) return true;
    if (c->argc == 2 && (bytes_is(c->argv[1], "async") || bytes_is(c->argv[1], "sync")))
        return true;
    ctx_syntax_error(c);
    return false;
}

/* Stated even if there was nothing to delete here: a writable replica may have more than its primary. */
static void flush_effect(struct ctx *c)
{
    bytes name = bytes_str(c->cmd->name);
    if (c->argc == 1) CTX_EFFECT(c, name);
    else CTX_EFFECT(c, name, c->argv[1]);
}

/* Empties databases in all regions of the node. Every region but the command's own gets a record here. */
static void flush_range(struct ctx *c, u32 from, u32 end)
{
    bytes argv[] = {bytes_str(c->cmd->name), c->argc > 1 ? c->argv[1] : (bytes){0}};
    struct keyspace *ks;
    KEYSPACES_EACH(c->ks, ks) {
        for (u32 db = from; db < end; db++) keyspace_flush(ks, db);
        if (LIKELY(ks == c->ks)) continue;
        journal_effect(ks->journal, c->db, c->argc, argv);
        journal_close(ks->journal, c->now_ms, c->seed);
    }
    flush_effect(c);
}

void cmd_flushdb(struct ctx *c)
{
    if (!flush_options(c)) return;
    flush_range(c, c->db, c->db + 1);
    reply_ok(c->out);
}

void cmd_flushall(struct ctx *c)
{
    if (!flush_options(c)) return;
    flush_range(c, 0, c->eng->databases);
    reply_ok(c->out);
}

static bool swap_arg(struct ctx *c, bytes arg, const char *error, i64 *db)
{
    if (num_parse_i64(arg, db) && *db >= INT_MIN && *db <= INT_MAX) return true;
    reply_error(c->out, error);
    return false;
}

void cmd_swapdb(struct ctx *c)
{
    i64 a, b, databases = c->eng->databases;
    if (!has_databases(c, "SWAPDB")) return;
    if (!swap_arg(c, c->argv[1], "ERR invalid first DB index", &a)) return;
    if (!swap_arg(c, c->argv[2], "ERR invalid second DB index", &b)) return;
    if (a < 0 || a >= databases || b < 0 || b >= databases) {
        reply_error(c->out, "ERR DB index is out of range");
        return;
    }
    keyspace_swap(c->ks, (u32)a, (u32)b);
    reply_ok(c->out);
}
