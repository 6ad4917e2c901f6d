/* Runs a compiled function as a script: what its flags permit, its keys and arguments, its result or error as
 * a reply. */
#include "base/alloc.h"
#include "exec/route.h"
#include "script/script_replay.h"
#include "script/script_vm.h"

/* -- flags ------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    u32 flag;
} flag_names[] = {
    {"no-writes", SCRIPT_NO_WRITES}, {"allow-oom", SCRIPT_ALLOW_OOM}, {"allow-stale", SCRIPT_ALLOW_STALE},
    {"no-cluster", SCRIPT_NO_CLUSTER}, {"allow-cross-slot-keys", SCRIPT_ALLOW_CROSS_SLOT},
};

u32 script_flag(bytes name)
{
    for (size_t i = 0; i < ARRAY_LEN(flag_names); i++)
        if (bytes_eq(name, bytes_str(flag_names[i].name))) return flag_names[i].flag;
    return 0;
}

const char *script_flag_name(u32 flags, u32 at)
{
    for (size_t i = 0; i < ARRAY_LEN(flag_names); i++)
        if (flags & flag_names[i].flag && at-- == 0) return flag_names[i].name;
    return NULL;
}

/* -- before it runs ---------------------------------------------------------------------------- */

/* A script that may write is refused where a command that writes would be. A client's own request gets the
 * error of any command; within a transaction, where commands are not checked again, it gets the one for
 * scripts. */
static const char *write_refusal(const struct node *n, const struct ctx *c)
{
    bool direct = c->may_wait;
    if (n->refuse_writes) return n->refuse_writes;
    if (n->deny_writes && !direct && bytes_is(bytes_of(n->deny_writes, 8), "READONLY"))
        return "READONLY Can not run script with write flag on readonly replica.";
    return n->deny_writes;
}

static const char *oom_refusal(const struct ctx *c)
{
    if (c->may_wait) return REGION_OOM;
    return "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'";
}

static const char *stale_refusal(const struct ctx *c, const struct script_call *call)
{
    const struct node *n = ctx_node(c);
    if (!n->deny_stale || call->flags & SCRIPT_ALLOW_STALE) return NULL;
    if (call->flags & SCRIPT_COMPAT || c->may_wait) return n->deny_stale;
    return "MASTERDOWN Link with MASTER is down, replica-serve-stale-data is set to 'no' and 'allow-stale' "
           "flag is not set on the script.";
}

/* Why the script may not run, as the text of an error, or NULL, in Redis's order. One without a shebang may
 * begin, and is checked again at each of its commands. */
static const char *script_run_refusal(const struct ctx *c, const struct script_call *call)
{
    const struct node *n = ctx_node(c);
    bool may_write = !(call->flags & (SCRIPT_COMPAT | SCRIPT_NO_WRITES));
    const char *write = may_write ? write_refusal(n, c) : NULL, *stale = stale_refusal(c, call);
    if (write && (c->may_wait || !stale)) return write;
    if (stale) return stale;
    if (may_write && call->ro_command)
        return "ERR Can not execute a script with write flag using *_ro command.";
    if (may_write && n->over_memory && !(call->flags & SCRIPT_ALLOW_OOM)) return oom_refusal(c);
    return NULL;
}

static void push_strings(lua_State *L, const bytes *v, int n)
{
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_pushlstring(L, v[i].p, v[i].n);
        lua_rawseti(L, -2, i + 1);
    }
}

/* As globals for EVAL, as arguments for functions; returns the number of arguments. */
static int push_input(lua_State *L, const struct script_call *call)
{
    if (!call->is_function) script_push_real_globals(L);
    push_strings(L, call->keys, call->key_count);
    if (!call->is_function) lua_setfield(L, -2, "KEYS");
    push_strings(L, call->args, call->arg_count);
    if (call->is_function) return 2;
    lua_setfield(L, -2, "ARGV");
    lua_pop(L, 1);
    return 0;
}

/* -- errors ------------------------------------------------------------------------------------ */

/* Records where the error was raised: the innermost Lua function. */
static void note_place(lua_State *L)
{
    lua_Debug at;
    if (!lua_getstack(L, 1, &at)) return;
    lua_getinfo(L, "Sl", &at);
    if (at.what[0] == 'C' && (!lua_getstack(L, 2, &at) || !lua_getinfo(L, "Sl", &at))) return;
    lua_pushliteral(L, "source");
    lua_pushstring(L, at.source);
    lua_rawset(L, -3);
    lua_pushliteral(L, "line");
    lua_pushinteger(L, at.currentline);
    lua_rawset(L, -3);
}

/* Makes a table of any error, and records where it was raised. */
static int handle_error(lua_State *L)
{
    if (!lua_istable(L, 1)) {
        const char *text = lua_tostring(L, 1);
        if (lua_isboolean(L, 1)) text = lua_toboolean(L, 1) ? "true" : "false";
        script_push_error(L, "");
        lua_pushfstring(L, "ERR %s", text ? text : luaL_typename(L, 1));
        lua_setfield(L, -2, "err");
    } else if (script_is_frozen(L, 1)) {
        script_push_error(L, "unknown error");
    } else {
        lua_pushvalue(L, 1);
    }
    note_place(L);
    return 1;
}

static const char *field_text(lua_State *L, int index, const char *name)
{
    lua_pushstring(L, name);
    lua_rawget(L, index);
    return lua_tostring(L, -1); /* it stays on the stack, so that the text stays valid */
}

bytes script_error_text(lua_State *L, int index)
{
    const char *text = NULL;
    if (lua_istable(L, index)) {
        lua_pushvalue(L, index);
        lua_getfield(L, -1, "err");
        text = lua_tostring(L, -1);
    } else {
        text = lua_tostring(L, index);
    }
    return bytes_str(text ? text : "unknown error");
}

/* The error is on top. */
static void reply_failure(lua_State *L, const struct script_run *run, struct reply *out)
{
    int at = lua_gettop(L);
    const char *ended = script_end_text(run);
    if (ended && !lua_istable(L, at)) { /* if there was no room for it (C stack overflow) */
        reply_errorf(out, "ERR %s script: %s", ended, run->name);
        return;
    }
    if (!lua_istable(L, at)) {
        const char *text = lua_tostring(L, at);
        reply_errorf(out, "ERR Error running script %s, %.100s", run->name,
                     text ? text : "execution failure");
        return;
    }
    const char *text = field_text(L, at, "err");
    const char *source = field_text(L, at, "source"), *line = field_text(L, at, "line");
    if (!text) text = "ERR unknown error";
    if (ended && !strstr(text, ended)) text = lua_pushfstring(L, "ERR %s", ended);
    if (source && line) text = lua_pushfstring(L, "%s script: %s, on %s:%s.", text, run->name, source, line);
    script_reply_error(L, at, out, text);
}

/* -- running ----------------------------------------------------------------------------------- */

/* The most memory that user code may make the interpreter use. */
static size_t memory_ceiling(const struct script_vm *vm)
{
    u64 limit = vm->node->host.memory;
    return limit ? vm->used + limit : SIZE_MAX;
}

int script_guarded(struct script_run *run, int args)
{
    struct script_vm *vm = run->vm;
    struct node *n = vm->node;
    lua_State *L = vm->L;
    bool watched = n->host.now_us;
    lua_pushcfunction(L, handle_error);
    lua_insert(L, -2 - args);
    run->start_us = watched ? n->host.now_us(n->owner) : 0;
    if (watched) lua_sethook(L, script_hook, LUA_MASKCOUNT, script_step(vm));
    vm->run = run;
    vm->random = n->replays_script ? SCRIPT_REPLAY_RANDOM : run->c->seed & 0xFFFFFFFFFFFFULL;
    vm->ceiling = memory_ceiling(vm);
    int handler = lua_gettop(L) - args - 1;
    int rc = lua_pcall(L, args, 1, handler);
    vm->ceiling = 0;
    if (watched) lua_sethook(L, NULL, 0, 0);
    lua_remove(L, handler);
    return rc;
}

#define RUNS_PER_STEP 50 /* runs per step of the collector, so that garbage is freed: Redis's */

/* A run's garbage must not count for the next one: more than this, and more than the interpreter used before,
 * is collected at once. */
#define GARBAGE_MAX (4u << 20)

static void tidy_up(struct script_vm *vm)
{
    vm->run = NULL;
    if (vm->gc_changed) {
        lua_gc(vm->L, LUA_GCRESTART, 0);
        lua_gc(vm->L, LUA_GCSETPAUSE, 200);
        lua_gc(vm->L, LUA_GCSETSTEPMUL, 200);
        vm->gc_changed = false;
    }
    if (vm->reply.cap > SCRIPT_KEEP) buf_release(&vm->reply);
    if (vm->words.cap > SCRIPT_KEEP) buf_release(&vm->words);
    if (vm->used > 2 * vm->settled + GARBAGE_MAX) script_vm_collect(vm);
    if (++vm->runs < RUNS_PER_STEP) return;
    vm->runs = 0;
    lua_gc(vm->L, LUA_GCSTEP, RUNS_PER_STEP);
}

void script_announce(const struct ctx *c)
{
    const struct node *n = ctx_node(c);
    if (n->host.begins) n->host.begins(n->owner, c->argc, c->argv);
}

void script_run(struct script_vm *vm, struct ctx *c, const struct script_call *call)
{
    lua_State *L = vm->L;
    int base = lua_gettop(L) - 1;
    struct script_run run = {
        .vm = vm, .c = c, .name = call->name, .is_function = call->is_function, .proto = 2,
        .read_only = call->ro_command || (!(call->flags & SCRIPT_COMPAT) && call->flags & SCRIPT_NO_WRITES),
        .allow_oom = !(call->flags & SCRIPT_COMPAT) && call->flags & SCRIPT_ALLOW_OOM,
        .any_slot = call->flags & SCRIPT_ALLOW_CROSS_SLOT,
    };
    run.slot = LIKELY(!ctx_node(c)->cluster_enabled) ? SLOT_NONE : route_slot(c->cmd, c->argc, c->argv);
    const char *why = script_run_refusal(c, call);
    if (why) {
        lua_settop(L, base);
        reply_error(c->out, why);
        return;
    }
    u32 db = c->session->db;
    ctx_no_effect(c); /* its commands have stated theirs */
    ctx_node(c)->script = &run;
    bool failed = script_guarded(&run, push_input(L, call)) != 0;
    script_end_busy(&run);
    if (failed) reply_failure(L, &run, c->out);
    else script_reply(L, c->out);
    lua_settop(L, base);
    c->session->db = db;
    ctx_node(c)->script = NULL;
    tidy_up(vm);
}

bool script_run_loading(struct script_vm *vm, struct ctx *c, u32 limit_ms, struct buf *error)
{
    lua_State *L = vm->L;
    int base = lua_gettop(L) - 1;
    struct script_run run = {.vm = vm, .c = c, .proto = 2, .limit_us = (i64)limit_ms * 1000};
    int rc = script_guarded(&run, 0);
    if (rc) {
        bytes text = script_error_text(L, lua_gettop(L));
        if (text.n > 4 && memcmp(text.p, "ERR ", 4) == 0) text = bytes_of(text.p + 4, text.n - 4);
        buf_append_bytes(error, text);
    }
    lua_settop(L, base);
    tidy_up(vm);
    return rc == 0;
}

bool script_compile(struct script_vm *vm, bytes source, const char *chunk, u32 limit_ms, struct buf *error)
{
    const struct script_host *host = &vm->node->host;
    if (limit_ms && host->cpu_us)
        vm->compile_until_us = host->cpu_us(vm->node->owner) + (i64)limit_ms * 1000;
    vm->ceiling = memory_ceiling(vm); /* lua_load raises no error */
    int rc = script_load_text(vm->L, source, chunk);
    vm->ceiling = 0;
    vm->compile_until_us = 0;
    if (rc == 0) return true;
    const char *text = lua_tostring(vm->L, -1);
    buf_append_str(error, text ? text : "unknown error");
    lua_pop(vm->L, 1);
    return false;
}
