/* EVAL, EVALSHA, EVAL_RO, EVALSHA_RO, SCRIPT. */
#include <ctype.h>

#include "command/commands.h"
#include "script/functions.h"
#include "script/script_cache.h"

/* numkeys, the keys, the arguments. False: an error was replied. */
static bool take_keys(struct ctx *c, struct script_call *call)
{
    i64 n;
    if (!ctx_int(c, c->argv[2], &n)) return false;
    if (n > c->argc - 3) {
        reply_error(c->out, "ERR Number of keys can't be greater than number of args");
        return false;
    }
    if (n < 0) {
        reply_error(c->out, "ERR Number of keys can't be negative");
        return false;
    }
    call->keys = c->argv + 3;
    call->key_count = (int)n;
    call->args = call->keys + n;
    call->arg_count = c->argc - 3 - (int)n;
    return true;
}

/* A script's name in lower case; empty if it can't be one. */
static void take_sha(bytes given, char sha[SCRIPT_SHA + 1])
{
    sha[0] = sha[SCRIPT_SHA] = '\0';
    if (given.n != SCRIPT_SHA) return;
    for (int i = 0; i < SCRIPT_SHA; i++) sha[i] = (char)tolower((unsigned char)given.p[i]);
}

static void eval(struct ctx *c, bool by_sha, bool ro)
{
    struct scripts *s = scripts_of(ctx_node(c));
    char sha[SCRIPT_SHA + 1];
    struct script_call call = {.name = sha, .ro_command = ro};
    script_announce(c);
    if (by_sha) take_sha(c->argv[1], sha);
    else script_sha(c->argv[1], sha);
    if (sha[0] && !take_keys(c, &call)) return; /* before the script is looked up, as in Redis */
    if (!scripts_push(s, sha, &call.flags)) {
        if (by_sha) reply_error(c->out, "NOSCRIPT No matching script. Please use EVAL.");
        if (by_sha || !scripts_add(s, c, c->argv[1], sha, false, &call.flags)) return;
    }
    script_run(&s->vm, c, &call);
}

static bool script_only_reads(const struct node *n, bytes sha_given)
{
    char sha[SCRIPT_SHA + 1];
    u32 flags;
    take_sha(sha_given, sha);
    if (!n->scripts || !scripts_push(n->scripts, sha, &flags)) return false;
    lua_pop(n->scripts->vm.L, 1);
    return flags & SCRIPT_NO_WRITES;
}

static bool source_only_reads(bytes source)
{
    struct buf ignored = {0};
    struct reply out = {.out = &ignored, .proto = 2};
    u32 flags;
    bool only_reads = script_shebang(&source, &flags, &out) && flags & SCRIPT_NO_WRITES;
    buf_release(&ignored);
    return only_reads;
}

u32 script_command_flags(const struct node *n, const struct command *cmd, const bytes *argv)
{
    bool only_reads = (cmd->run == cmd_eval && source_only_reads(argv[1])) ||
                      (cmd->run == cmd_evalsha && script_only_reads(n, argv[1])) ||
                      (cmd->run == cmd_fcall && functions_only_read(n, argv[1]));
    return only_reads ? cmd->flags & ~(u32)CMD_MAY_REPLICATE : cmd->flags;
}

void cmd_eval(struct ctx *c) { eval(c, false, false); }
void cmd_eval_ro(struct ctx *c) { eval(c, false, true); }
void cmd_evalsha(struct ctx *c) { eval(c, true, false); }
void cmd_evalsha_ro(struct ctx *c) { eval(c, true, true); }

void cmd_script_load(struct ctx *c)
{
    struct scripts *s = scripts_of(ctx_node(c));
    char sha[SCRIPT_SHA + 1];
    u32 flags;
    script_sha(c->argv[2], sha);
    if (!scripts_push(s, sha, &flags) && !scripts_add(s, c, c->argv[2], sha, true, &flags)) return;
    lua_pop(s->vm.L, 1);
    reply_bulk_str(c->out, sha);
}

void cmd_script_exists(struct ctx *c)
{
    struct scripts *s = scripts_of(ctx_node(c));
    u32 flags;
    reply_array(c->out, (size_t)c->argc - 2);
    for (int i = 2; i < c->argc; i++) {
        char sha[SCRIPT_SHA + 1];
        take_sha(c->argv[i], sha);
        bool there = scripts_push(s, sha, &flags);
        if (there) lua_pop(s->vm.L, 1);
        reply_int(c->out, there);
    }
}

void cmd_script_flush(struct ctx *c)
{
    if (c->argc > 3 || (c->argc == 3 && !bytes_is(c->argv[2], "sync") && !bytes_is(c->argv[2], "async"))) {
        reply_error(c->out, "ERR SCRIPT FLUSH only support SYNC|ASYNC option");
        return;
    }
    scripts_release(ctx_node(c));
    reply_ok(c->out);
}

void cmd_script_kill(struct ctx *c) { script_kill(c, false); }

void cmd_script_debug(struct ctx *c)
{
    if (bytes_is(c->argv[2], "no")) reply_ok(c->out);
    else if (bytes_is(c->argv[2], "yes") || bytes_is(c->argv[2], "sync"))
        reply_error(c->out, "ERR the Lua debugger is not supported");
    else reply_error(c->out, "ERR Use SCRIPT DEBUG YES/SYNC/NO");
}

void cmd_script_help(struct ctx *c)
{
    static const char *const lines[] = {
        "DEBUG (YES|SYNC|NO)",
        "    Set the debug mode for subsequent scripts executed.",
        "EXISTS <sha1> [<sha1> ...]",
        "    Return information about the existence of the scripts in the script cache.",
        "FLUSH [ASYNC|SYNC]",
        "    Flush the Lua scripts cache. Very dangerous on replicas.",
        "    When called without the optional mode argument, the behavior is determined by the",
        "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
        "    * ASYNC: Asynchronously flush the scripts cache.",
        "    * SYNC: Synchronously flush the scripts cache.",
        "KILL",
        "    Kill the currently executing Lua script.",
        "LOAD <script>",
        "    Load a script into the scripts cache without executing it.",
        NULL,
    };
    ctx_help(c, lines);
}
