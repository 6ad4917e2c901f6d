/* The command MIGRATE: what is sent, and what is deleted afterwards. See migrate.h. */
#include <stdio.h>

#include "base/alloc.h"
#include "command/commands.h"
#include "rdb/rdb_value.h"
#include "exec/key_listeners.h"
#include "resp/command.h"
#include "server/server.h"

#define DEFAULT_TIMEOUT_MS 1000

struct migrate_options {
    bytes user, password;
    bool authenticates, copy, replace;
    i64 db, timeout_ms;
    const bytes *keys;
    int count;
};

/* Returns an argument and hides it from MONITOR and the slow log, which read argv later. */
static bytes migrate_take_secret(struct ctx *c, int at)
{
    bytes secret = c->argv[at];
    c->argv[at] = BYTES_LIT("(redacted)");
    return secret;
}

/* -- arguments ----------------------------------------------------------------------------------- */

/* Parses the option at argv[*at], and moves *at to its last argument. False: an error was replied. */
static bool parse_option(struct ctx *c, struct migrate_options *o, int *at)
{
    bytes word = c->argv[*at];
    int more = c->argc - 1 - *at;
    if (bytes_is(word, "copy")) {
        o->copy = true;
    } else if (bytes_is(word, "replace")) {
        o->replace = true;
    } else if (bytes_is(word, "auth") && more >= 1) {
        o->authenticates = true;
        o->password = migrate_take_secret(c, ++*at);
    } else if (bytes_is(word, "auth2") && more >= 2) {
        o->authenticates = true;
        o->user = migrate_take_secret(c, ++*at);
        o->password = migrate_take_secret(c, ++*at);
    } else if (bytes_is(word, "keys")) {
        if (c->argv[3].n) {
            reply_error(c->out,
                        "ERR When using MIGRATE KEYS option, the key argument must be set to the empty "
                        "string");
            return false;
        }
        o->keys = c->argv + *at + 1;
        o->count = more;
        *at = c->argc;
    } else {
        ctx_syntax_error(c);
        return false;
    }
    return true;
}

static bool parse_options(struct ctx *c, struct migrate_options *o)
{
    *o = (struct migrate_options){.keys = c->argv + 3, .count = 1};
    for (int i = 6; i < c->argc; i++)
        if (!parse_option(c, o, &i)) return false;
    if (!ctx_int(c, c->argv[5], &o->timeout_ms) || !ctx_int(c, c->argv[4], &o->db)) return false;
    if (o->timeout_ms <= 0) o->timeout_ms = DEFAULT_TIMEOUT_MS;
    return true;
}

/* -- the first run ------------------------------------------------------------------------------- */

static void write_greeting(struct migration *m, const struct migrate_options *o)
{
    char digits[NUM_I64_LEN];
    bytes auth[] = {BYTES_LIT("AUTH"), o->user, o->password}, short_auth[] = {auth[0], o->password};
    bytes select[] = {BYTES_LIT("SELECT"), bytes_of(digits, num_print_i64(digits, o->db))};
    if (o->authenticates && o->user.n) resp_write_command(&m->greeting, 3, auth);
    else if (o->authenticates) resp_write_command(&m->greeting, 2, short_auth);
    resp_write_command(&m->greeting, 2, select);
    m->greetings = 1 + o->authenticates;
}

/* The deadline is sent as an absolute time. False: the value could not be read. */
static bool migrate_write_key(struct ctx *c, struct migration *m, const struct migrate_options *o,
                      struct key_ref *ref)
{
    struct rdb_out payload;
    char digits[NUM_I64_LEN];
    rdb_dump(c->ks, ref, &payload);
    bool ok = !payload.failed;
    bytes argv[6] = {BYTES_LIT("RESTORE"), ref->key,
                     bytes_of(digits, num_print_i64(digits, ref->deadline_ms)), buf_bytes(&payload.buf)};
    int argc = 4;
    if (ref->deadline_ms) argv[argc++] = BYTES_LIT("ABSTTL");
    if (o->replace) argv[argc++] = BYTES_LIT("REPLACE");
    if (ok) resp_write_command(&m->commands, argc, argv);
    rdb_out_release(&payload);
    return ok;
}

static bool write_keys(struct ctx *c, struct migration *m, const struct migrate_options *o)
{
    struct region *r = c->region;
    for (int i = 0; i < o->count; i++) {
        struct key_ref ref;
        if (ctx_read(c, o->keys[i], TYPE_NONE, &ref) != OK) continue;
        if (!migrate_write_key(c, m, o, &ref)) return false;
        struct migrated_key *k = &m->keys[m->count++];
        buf_append_bytes(&k->name, o->keys[i]);
        watch_key(&r->watches, &k->watcher, c->db, o->keys[i]);
    }
    region_listen(r, LISTEN_WATCH, watches_any(&r->watches));
    return true;
}

/* False: an error was replied. */
static bool begin_transfer(struct ctx *c, struct migration *m)
{
    char host[256];
    i64 port;
    if (!c->may_wait) {
        reply_error(c->out, "ERR MIGRATE waits for another server, which a transaction or a script can't");
        return false;
    }
    snprintf(host, sizeof host, "%.*s", (int)MIN(c->argv[1].n, sizeof host - 1), c->argv[1].p);
    bool ok = c->argv[1].n < sizeof host && num_parse_i64(c->argv[2], &port) && port > 0 &&
              port <= UINT16_MAX && migration_start(m, conn_of(c->session), host, (int)port);
    if (!ok) reply_error(c->out, "IOERR error or timeout connecting to the client");
    return ok;
}

static void migrate_begin(struct ctx *c, const struct migrate_options *o)
{
    struct migration *m = migration_new(c->server, (u32)o->count);
    m->timeout_ms = o->timeout_ms;
    bool begun = false;
    if (!write_keys(c, m, o)) {
        reply_error(c->out, "ERR the value could not be read");
    } else if (!m->count) {
        reply_simple(c->out, "NOKEY");
    } else {
        write_greeting(m, o);
        begun = begin_transfer(c, m);
    }
    if (begun) c->postponed = HOLD_MIGRATE;
    else migration_drop(m);
}

/* -- the second run ------------------------------------------------------------------------------ */

/* Deletes the keys that the target has taken. False: one was changed meanwhile, and stays. */
static bool delete_taken(struct ctx *c, const struct migration *m)
{
    bytes *argv = mem_alloc((m->count + 1) * sizeof *argv);
    int argc = 0;
    bool same = true;
    argv[argc++] = BYTES_LIT("DEL");
    for (u32 i = 0; i < m->count; i++) {
        const struct migrated_key *k = &m->keys[i];
        bytes name = buf_bytes(&k->name);
        struct key_ref ref;
        if (!k->taken || ctx_write(c, name, TYPE_NONE, &ref) != OK) continue;
        if (m->distrusted || watch_broken(&k->watcher)) {
            same = false;
            continue;
        }
        ctx_drop(c, &ref);
        ctx_changed(c, name, NOTIFY_GENERIC, "del");
        argv[argc++] = name;
    }
    if (argc > 1) ctx_effect(c, argc, argv);
    mem_free(argv);
    return same;
}

static void migrate_finish(struct ctx *c, const struct migrate_options *o, struct migration *m)
{
    bool same = o->copy ? !m->distrusted : delete_taken(c, m);
    if (m->error[0]) reply_error(c->out, m->error);
    else if (!same)
        reply_error(c->out, "ERR A key was changed while it was migrated: the target has it as it was sent, "
                            "and it was not deleted here");
    else reply_ok(c->out);
    migration_drop(m);
}

void cmd_migrate(struct ctx *c)
{
    struct migrate_options o;
    struct migration *m = c->may_wait ? conn_of(c->session)->migration : NULL;
    if (!parse_options(c, &o)) return;
    if (!m) migrate_begin(c, &o);
    else if (m->stage == MIGRATE_DONE) migrate_finish(c, &o, m);
    else c->postponed = HOLD_MIGRATE; /* it was resumed for another reason */
}
