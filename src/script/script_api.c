/* redis.*: the functions a script can call.
 *
 * redis.call runs a command within the script's own: at the same time, into the same journal record, with the
 * session of the client that runs the script. Lua errors leave these functions by longjmp: whatever they
 * allocate belongs to the vm. */
#include <stdio.h>

#include "base/log.h"
#include "base/sha1.h"
#include "command/commands.h"
#include "exec/admit.h"
#include "script/lua_libs.h"
#include "exec/permit.h"
#include "exec/route.h"
#include "script/script_replay.h"
#include "script/script_vm.h"

#define VERSION "7.4.0" /* the same as in INFO */
#define VERSION_NUM 0x00070400
#define NUMBER_LEN 64 /* room for any Lua number as an argument */

/* -- errors ------------------------------------------------------------------------------------ */

/* {err=text}: a text that begins with its code. */
static void push_coded(lua_State *L, const char *text)
{
    lua_createtable(L, 0, 1);
    lua_pushstring(L, text);
    lua_setfield(L, -2, "err");
}

void script_push_error(lua_State *L, const char *text)
{
    bool coded = text[0] == '-';
    push_coded(L, text + coded);
    if (coded) return;
    lua_pushfstring(L, "ERR %s", text);
    lua_setfield(L, -2, "err");
}

int script_raise(lua_State *L) { return lua_error(L); }

static int script_api_fail(lua_State *L, const char *text)
{
    script_push_error(L, text);
    return script_raise(L);
}

/* -- commands ---------------------------------------------------------------------------------- */

/* The arguments on the stack as those of a command; NULL: the text of an error is in *error. Slices of
 * strings are valid while these are on the stack; numbers are in vm->words, and so are the slices themselves,
 * because there may be too many for C's stack. */
static bytes *take_args(lua_State *L, struct script_vm *vm, const char **error)
{
    int argc = lua_gettop(L);
    *error = "ERR Please specify at least one argument for this redis lib call";
    if (!argc) return NULL;
    buf_clear(&vm->words);
    buf_reserve(&vm->words, (size_t)argc * (sizeof(bytes) + NUMBER_LEN));
    bytes *argv = (bytes *)(void *)vm->words.p;
    char *text = vm->words.p + (size_t)argc * sizeof(bytes);
    *error = "ERR Lua redis lib command arguments must be strings or integers";
    for (int i = 0; i < argc; i++) {
        if (lua_type(L, i + 1) == LUA_TNUMBER) {
            argv[i] = bytes_of(text, num_print_packed_score(text, lua_tonumber(L, i + 1)));
            text += argv[i].n;
        } else {
            size_t n;
            const char *p = lua_tolstring(L, i + 1, &n);
            if (!p) return NULL;
            argv[i] = bytes_of(p, n);
        }
    }
    return argv;
}

static const struct command *script_api_find(const struct node *n, int argc, const bytes *argv)
{
    const struct command *cmd = node_find(n, argv[0]);
    if (cmd && cmd->sub_count && argc > 1) return command_find_sub(cmd, argv[1]);
    return cmd;
}

static const char *denial(struct script_vm *vm, const struct request *q, const struct command *cmd)
{
    enum acl_denial denial = permit_check(vm->node, q, cmd, ACL_LUA);
    if (LIKELY(denial == ACL_ALLOWED)) return NULL;
    buf_clear(&vm->denial);
    buf_append_str(&vm->denial, "ERR ACL failure in script: ");
    permit_print(&vm->denial, q, cmd, denial);
    buf_append_char(&vm->denial, '\0');
    return vm->denial.p;
}

/* Commands that scripts may not call, except in tests. */
static bool is_for_tests(const struct command *cmd)
{
    return cmd->run == cmd_debug || strncmp(cmd->name, "client|", strlen("client|")) == 0;
}

/* Why the command may not run in this script, or NULL; in Redis's order. A script that has written continues:
 * only the storage may refuse it then. */
static const char *script_api_refusal(struct script_run *run, const struct request *q,
                                      const struct command *cmd)
{
    struct node *n = ctx_node(run->c);
    if (!cmd) return "ERR Unknown Redis command called from script";
    if (!cmd->run || !command_takes(cmd, q->argc))
        return "ERR Wrong number of args calling Redis command from script";
    if (cmd->flags & CMD_NOSCRIPT && !(n->scripts_unbound && is_for_tests(cmd)))
        return "ERR This Redis command is not allowed from script";
    if (n->deny_stale && !(cmd->flags & CMD_STALE))
        return "ERR Can not execute the command on a stale replica";
    const char *why = denial(run->vm, q, cmd);
    if (why) return why;
    if (run->read_only && cmd->flags & (CMD_WRITE | CMD_MAY_REPLICATE))
        return "ERR Write commands are not allowed from read-only scripts.";
    if (n->over_memory && !run->allow_oom && !run->wrote && cmd->flags & CMD_DENYOOM) return REGION_OOM;
    why = admit_obstacle(run->c->region, cmd->flags);
    if (why || LIKELY(!n->cluster_enabled)) return why;
    return route_script_call(run->c->region, &run->slot, run->any_slot, cmd, q->argc, q->argv);
}

/* Counted like an error of a client's command. */
static void script_api_refuse(struct node *n, const struct request *q, const struct command *cmd,
                              const char *why)
{
    const struct outcome o = {.cmd = cmd, .rejected = true};
    reply_error(q->out, why);
    if (n->on_nested) n->on_nested(n->owner, q, &o);
}

/* Runs the command, if it is allowed; its reply is in vm->reply. */
static void run_command(struct script_run *run, int argc, bytes *argv)
{
    struct script_vm *vm = run->vm;
    struct node *n = ctx_node(run->c);
    buf_clear(&vm->reply);
    struct reply out = {.out = &vm->reply, .proto = run->proto};
    struct request q = {run->c->session, run->c->server, argc, argv, &out};
    const struct command *cmd = script_api_find(n, argc, argv);
    const char *why = script_api_refusal(run, &q, cmd);
    if (why) {
        script_api_refuse(n, &q, cmd, why);
        return;
    }
    if (cmd->flags & CMD_WRITE) run->wrote = true;
    struct outcome o;
    size_t ceiling = vm->ceiling;
    vm->ceiling = 0;
    region_call(run->c->region, &q, cmd, &o);
    vm->ceiling = ceiling;
}

static int call_command(lua_State *L, bool raise)
{
    struct script_run *run = script_run_of(L);
    const char *error = "ERR redis.call/pcall can only be called inside a script invocation";
    bytes *argv = run ? take_args(L, run->vm, &error) : NULL;
    if (!argv) {
        push_coded(L, error);
        return raise ? script_raise(L) : 1;
    }
    run_command(run, lua_gettop(L), argv);
    bool sorts = UNLIKELY(run->vm->node->replays_script) && script_replay_sorts(argv[0]);
    lua_settop(L, 0); /* the reply may need the room; argv is invalid from here on */
    bytes resp = buf_bytes(&run->vm->reply);
    bool failed = resp.n && resp.p[0] == '-';
    script_push_reply(L, resp);
    if (sorts) script_replay_sort(L);
    if (run->vm->reply.cap > SCRIPT_KEEP) buf_release(&run->vm->reply);
    return raise && failed ? script_raise(L) : 1;
}

static int api_call(lua_State *L) { return call_command(L, true); }
static int api_pcall(lua_State *L) { return call_command(L, false); }

static int api_acl_check_cmd(lua_State *L)
{
    struct script_run *run = script_run_of(L);
    const char *error = "ERR redis.acl_check_cmd can only be called inside a script invocation";
    bytes *argv = run ? take_args(L, run->vm, &error) : NULL;
    if (!argv) {
        push_coded(L, error);
        return script_raise(L);
    }
    const struct command *cmd = script_api_find(ctx_node(run->c), lua_gettop(L), argv);
    if (!cmd) return script_api_fail(L, "Invalid command passed to redis.acl_check_cmd()");
    int at;
    lua_pushboolean(L, acl_check(run->c->session->user, cmd, lua_gettop(L), argv, &at) == ACL_ALLOWED);
    return 1;
}

/* -- made-up replies ------------------------------------------------------------------------- */

/* {field = text} of the one string that is given. */
static int tagged(lua_State *L, const char *field)
{
    if (lua_gettop(L) != 1 || lua_type(L, -1) != LUA_TSTRING) {
        script_push_error(L, "wrong number or type of arguments");
        return 1;
    }
    lua_createtable(L, 0, 1);
    lua_pushvalue(L, 1);
    lua_setfield(L, -2, field);
    return 1;
}

/* A text without an error code gets one. */
static int api_error_reply(lua_State *L)
{
    size_t n;
    if (lua_gettop(L) != 1 || lua_type(L, 1) != LUA_TSTRING) return tagged(L, "err");
    const char *text = lua_tolstring(L, 1, &n);
    if (n && text[0] == '-') text++, n--;
    if (memchr(text, ' ', n)) lua_pushlstring(L, text, n);
    else lua_pushfstring(L, "ERR %s", text);
    lua_replace(L, 1);
    return tagged(L, "err");
}

static int api_status_reply(lua_State *L) { return tagged(L, "ok"); }

/* -- the rest ---------------------------------------------------------------------------------- */

#define SHA1_LONG 65536 /* inputs of this size count as work */

static int api_sha1hex(lua_State *L)
{
    u8 digest[SHA1_BYTES];
    char hex[2 * SHA1_BYTES + 1];
    size_t n = 0;
    if (lua_gettop(L) != 1) return script_api_fail(L, "wrong number of arguments");
    const char *p = lua_tolstring(L, 1, &n);
    sha1(bytes_of(p ? p : "", p ? n : 0), digest);
    sha1_hex(digest, hex);
    if (n > SHA1_LONG) lua_work_hook(L);
    lua_pushstring(L, hex);
    return 1;
}

static int api_log(lua_State *L)
{
    const struct node *node = script_vm_of(L)->node;
    int args = lua_gettop(L);
    if (args < 2) return script_api_fail(L, "redis.log() requires two arguments or more.");
    if (!lua_isnumber(L, -args)) return script_api_fail(L, "First argument must be a number (log level).");
    int level = (int)lua_tonumber(L, 1);
    if (level < LOG_DEBUG || level > LOG_WARNING) return script_api_fail(L, "Invalid debug level.");
    luaL_Buffer text;
    luaL_buffinit(L, &text);
    for (int i = 2; i <= args; i++) {
        size_t n;
        const char *p = lua_tolstring(L, i, &n);
        if (!p) continue;
        if (i > 2) luaL_addchar(&text, ' ');
        luaL_addlstring(&text, p, n);
    }
    luaL_pushresult(&text);
    if (node->host.log) node->host.log(node->owner, level, lua_tostring(L, -1));
    return 0;
}

static int api_setresp(lua_State *L)
{
    struct script_run *run = script_run_of(L);
    if (lua_gettop(L) != 1) return script_api_fail(L, "redis.setresp() requires one argument.");
    int proto = (int)lua_tonumber(L, 1);
    if (proto != 2 && proto != 3) return script_api_fail(L, "RESP version must be 2 or 3.");
    if (run) run->proto = (u8)proto;
    return 0;
}

/* Every effect is replicated: a replica that misses a write would no longer be a copy. */
static int api_set_repl(lua_State *L)
{
    if (lua_gettop(L) != 1) return script_api_fail(L, "redis.set_repl() requires two arguments.");
    int flags = (int)lua_tonumber(L, 1);
    if (flags & ~3)
        return script_api_fail(
            L, "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.");
    return 0;
}

static int api_replicate_commands(lua_State *L)
{
    lua_pushboolean(L, 1);
    return 1;
}

/* There is no debugger. */
static int api_breakpoint(lua_State *L)
{
    lua_pushboolean(L, 0);
    return 1;
}

static int api_debug(lua_State *L UNUSED) { return 0; }

/* -- the table --------------------------------------------------------------------------------- */

static const luaL_Reg functions[] = {
    {"call", api_call}, {"pcall", api_pcall}, {"error_reply", api_error_reply},
    {"status_reply", api_status_reply}, {"sha1hex", api_sha1hex}, {"log", api_log},
    {"setresp", api_setresp}, {"set_repl", api_set_repl},
    {"replicate_commands", api_replicate_commands}, {"breakpoint", api_breakpoint}, {"debug", api_debug},
    {"acl_check_cmd", api_acl_check_cmd}, {NULL, NULL},
};

static const struct {
    const char *name;
    int value;
} numbers[] = {
    {"LOG_DEBUG", LOG_DEBUG}, {"LOG_VERBOSE", LOG_VERBOSE}, {"LOG_NOTICE", LOG_NOTICE},
    {"LOG_WARNING", LOG_WARNING}, {"REPL_NONE", 0}, {"REPL_AOF", 1}, {"REPL_SLAVE", 2}, {"REPL_REPLICA", 2},
    {"REPL_ALL", 3}, {"REDIS_VERSION_NUM", VERSION_NUM},
};

void script_push_api(lua_State *L)
{
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        lua_pushinteger(L, numbers[i].value);
        lua_setfield(L, -2, numbers[i].name);
    }
    lua_pushliteral(L, VERSION);
    lua_setfield(L, -2, "REDIS_VERSION");
}

void script_open_api(lua_State *L)
{
    script_push_api(L);
    lua_setglobal(L, "redis");
}
