/* FUNCTION, FCALL and FCALL_RO. */
#include "base/glob.h"
#include "command/commands.h"
#include "script/functions.h"

/* A library from a primary or a file was loaded in time elsewhere: no limit. */
static u32 load_limit_ms(const struct ctx *c)
{
    return ctx_node(c)->loading || expiry_follows(c->region->mode) ? 0 : FUNCTION_LOAD_MS;
}

/* Replies: the libraries were changed, or `error` says why not; it is released. */
static void reply_change(struct ctx *c, bool ok, struct buf *error)
{
    if (ok) {
        c->ks->dirty++;
        reply_ok(c->out);
    } else {
        reply_errorf(c->out, "ERR %.*s", (int)error->n, error->p);
    }
    buf_release(error);
}

/* -- changing libraries ---------------------------------------------------------------------- */

void cmd_function_load(struct ctx *c)
{
    bool replace = false;
    struct buf name = {0}, error = {0};
    for (int i = 2; i < c->argc - 1; i++) {
        if (!bytes_is(c->argv[i], "replace")) {
            reply_errorf(c->out, "ERR Unknown option given: %.*s",
                         (int)MIN(c->argv[i].n, 128u), c->argv[i].p);
            return;
        }
        replace = true;
    }
    if (functions_load(ctx_node(c), false, c->argv[c->argc - 1], replace, load_limit_ms(c), &name,
                       &error)) {
        c->ks->dirty++;
        reply_bulk(c->out, buf_bytes(&name));
    } else {
        reply_errorf(c->out, "ERR %.*s", (int)error.n, error.p);
    }
    buf_release(&name);
    buf_release(&error);
}

void cmd_function_delete(struct ctx *c)
{
    struct buf error = {0};
    bool ok = functions_delete(ctx_node(c), c->argv[2]);
    if (!ok) buf_append_str(&error, "Library not found");
    reply_change(c, ok, &error);
}

void cmd_function_flush(struct ctx *c)
{
    if (c->argc > 3) {
        ctx_wrong_subcommand(c);
        return;
    }
    if (c->argc == 3 && !bytes_is(c->argv[2], "sync") && !bytes_is(c->argv[2], "async")) {
        reply_error(c->out, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
        return;
    }
    struct buf error = {0};
    functions_flush(ctx_node(c));
    reply_change(c, true, &error);
}

void cmd_function_dump(struct ctx *c)
{
    struct buf payload = {0};
    functions_dump(functions_live(ctx_node(c)), c->ks->compress ? SIZE_MAX : 0, &payload);
    reply_bulk(c->out, buf_bytes(&payload));
    buf_release(&payload);
}

void cmd_function_restore(struct ctx *c)
{
    enum restore_policy policy = RESTORE_APPEND;
    if (c->argc > 4) {
        ctx_wrong_subcommand(c);
        return;
    }
    if (c->argc == 4) {
        if (bytes_is(c->argv[3], "flush")) policy = RESTORE_FLUSH;
        else if (bytes_is(c->argv[3], "replace")) policy = RESTORE_REPLACE;
        else if (!bytes_is(c->argv[3], "append")) {
            reply_error(c->out, "ERR Wrong restore policy given, value should be either FLUSH, APPEND or "
                                "REPLACE.");
            return;
        }
    }
    struct buf error = {0};
    bool ok = functions_restore(ctx_node(c), c->argv[2], policy, load_limit_ms(c), &error);
    reply_change(c, ok, &error);
}

/* -- queries --------------------------------------------------------------------------------- */

static void reply_name(struct ctx *c, const char *name) { reply_bulk(c->out, bytes_str(name)); }

static void list_function(struct ctx *c, const struct function *f)
{
    reply_map(c->out, 3);
    reply_name(c, "name");
    reply_name(c, f->name);
    reply_name(c, "description");
    if (f->described) reply_bulk(c->out, buf_bytes(&f->description));
    else reply_null(c->out);
    reply_name(c, "flags");
    u32 flags = 0;
    while (script_flag_name(f->flags, flags)) flags++;
    reply_set(c->out, flags);
    for (u32 i = 0; i < flags; i++) reply_simple(c->out, script_flag_name(f->flags, i));
}

static void list_library(struct ctx *c, const struct library *lib, bool with_code)
{
    reply_map(c->out, with_code ? 4 : 3);
    reply_name(c, "library_name");
    reply_name(c, lib->name);
    reply_name(c, "engine");
    reply_name(c, "LUA");
    reply_name(c, "functions");
    reply_array(c->out, lib->count);
    for (u32 i = 0; i < lib->count; i++) list_function(c, &lib->functions[i]);
    if (!with_code) return;
    reply_name(c, "library_code");
    reply_bulk(c->out, buf_bytes(&lib->code));
}

void cmd_function_list(struct ctx *c)
{
    const struct function_set *set = functions_live(ctx_node(c));
    const bytes *pattern = NULL;
    bool with_code = false;
    for (int i = 2; i < c->argc; i++) {
        if (!with_code && bytes_is(c->argv[i], "withcode")) {
            with_code = true;
        } else if (!pattern && bytes_is(c->argv[i], "libraryname")) {
            if (++i == c->argc) {
                reply_error(c->out, "ERR library name argument was not given");
                return;
            }
            pattern = &c->argv[i];
        } else {
            reply_errorf(c->out, "ERR Unknown argument %.*s", (int)MIN(c->argv[i].n, 128u), c->argv[i].p);
            return;
        }
    }
    u32 count = 0, all = set ? set->count : 0;
    for (u32 i = 0; i < all; i++)
        count += !pattern || glob_match(*pattern, bytes_str(set->libraries[i]->name), true);
    reply_array(c->out, count);
    for (u32 i = 0; i < all; i++)
        if (!pattern || glob_match(*pattern, bytes_str(set->libraries[i]->name), true))
            list_library(c, set->libraries[i], with_code);
}

static void reply_running(struct ctx *c, const struct script_run *run)
{
    const struct node *n = ctx_node(c);
    i64 now_us = n->host.now_us ? n->host.now_us(n->owner) : run->start_us;
    reply_map(c->out, 3);
    reply_name(c, "name");
    reply_name(c, run->name);
    reply_name(c, "command");
    reply_array(c->out, (size_t)run->c->argc);
    for (int i = 0; i < run->c->argc; i++) reply_bulk(c->out, run->c->argv[i]);
    reply_name(c, "duration_ms");
    reply_int(c->out, (now_us - run->start_us) / 1000);
}

void cmd_function_stats(struct ctx *c)
{
    const struct function_set *set = functions_live(ctx_node(c));
    const struct script_run *run = ctx_node(c)->script;
    if (run && !run->is_function) {
        const char *busy = script_busy_error(ctx_node(c));
        reply_error(c->out, busy ? busy : "BUSY Redis is busy running a script.");
        return;
    }
    reply_map(c->out, 2);
    reply_name(c, "running_script");
    if (run) reply_running(c, run);
    else reply_null(c->out);
    reply_name(c, "engines");
    reply_map(c->out, 1);
    reply_name(c, "LUA");
    reply_map(c->out, 2);
    reply_name(c, "libraries_count");
    reply_int(c->out, set ? set->count : 0);
    reply_name(c, "functions_count");
    reply_int(c->out, set ? set->function_count : 0);
}

void cmd_function_kill(struct ctx *c) { script_kill(c, true); }

void cmd_function_help(struct ctx *c)
{
    static const char *const lines[] = {
        "LOAD [REPLACE] <code>", "    Add a library, or put it in the place of the one of its name.",
        "DELETE <library>", "    Remove a library and its functions.",
        "LIST [LIBRARYNAME <pattern>] [WITHCODE]",
        "    Show libraries, their functions and, if asked, their code.",
        "STATS", "    Show the function that is running, and how many there are.",
        "KILL", "    End the function that is running, unless it has written.",
        "FLUSH [ASYNC|SYNC]", "    Remove all libraries.",
        "DUMP", "    Give all libraries as one payload.",
        "RESTORE <payload> [FLUSH|APPEND|REPLACE]",
        "    Add the libraries of a payload: in place of all (FLUSH), beside those that are there (APPEND,",
        "    the default), or beside them and in place of those of the same names (REPLACE).",
        NULL,
    };
    ctx_help(c, lines);
}

/* -- calling ----------------------------------------------------------------------------------- */

static void call_function(struct ctx *c, bool ro_command)
{
    const struct function_set *set = functions_live(ctx_node(c));
    const struct function *f = set ? set_function(set, c->argv[1]) : NULL;
    const char *error = NULL;
    i64 keys = 0;
    script_announce(c);
    if (!f) error = "ERR Function not found";
    else if (!num_parse_i64(c->argv[2], &keys)) error = "ERR Bad number of keys provided";
    else if (keys > c->argc - 3) error = "ERR Number of keys can't be greater than number of args";
    else if (keys < 0) error = "ERR Number of keys can't be negative";
    if (error) {
        reply_error(c->out, error);
        return;
    }
    struct script_call call = {
        .name = f->name, .is_function = true, .ro_command = ro_command, .flags = f->flags,
        .keys = c->argv + 3, .key_count = (int)keys,
        .args = c->argv + 3 + keys, .arg_count = c->argc - 3 - (int)keys,
    };
    struct script_vm *vm = &ctx_node(c)->functions->vm;
    lua_rawgeti(vm->L, LUA_REGISTRYINDEX, f->ref);
    script_run(vm, c, &call);
}

void cmd_fcall(struct ctx *c) { call_function(c, false); }
void cmd_fcall_ro(struct ctx *c) { call_function(c, true); }
