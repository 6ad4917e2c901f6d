/* Replacements for those of Lua's own functions that would show or change what is behind a read-only table,
 * or let a script do what it may not: run bytecode, use the process's random numbers, leave the collector
 * off. For ordinary tables they do what Lua's do, with its error messages. */
#include <limits.h>
#include <math.h>

#include "script/lua_libs.h"
#include "script/script_vm.h"

static int sandbox_refuse(lua_State *L)
{
    lua_pushliteral(L, SCRIPT_READONLY); /* without a position, as Redis reports it for C functions */
    return lua_error(L);
}

/* -- walking, and looking past metatables ------------------------------------------------------ */

/* Replaces a proxy by its table, for a function that does not pass it on. */
static void see_through(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    if (script_push_real(L, 1)) lua_replace(L, 1);
}

static int sandbox_next(lua_State *L)
{
    see_through(L);
    lua_settop(L, 2);
    if (lua_next(L, 1)) return 2;
    lua_pushnil(L);
    return 1;
}

static int sandbox_pairs(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

static int sandbox_rawget(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checkany(L, 2);
    see_through(L);
    lua_settop(L, 2);
    lua_rawget(L, 1);
    return 1;
}

static int sandbox_rawset(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checkany(L, 2);
    luaL_checkany(L, 3);
    if (script_is_frozen(L, 1)) return sandbox_refuse(L);
    lua_settop(L, 3);
    lua_rawset(L, 1);
    return 1;
}

static int sandbox_getmetatable(lua_State *L)
{
    luaL_checkany(L, 1);
    script_push_metatable(L, 1);
    return 1;
}

static int sandbox_setmetatable(lua_State *L)
{
    int type = lua_type(L, 2);
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_argcheck(L, type == LUA_TNIL || type == LUA_TTABLE, 2, "nil or table expected");
    if (script_is_frozen(L, 1)) return sandbox_refuse(L);
    if (luaL_getmetafield(L, 1, "__metatable")) return luaL_error(L, "cannot change a protected metatable");
    lua_settop(L, 2);
    lua_setmetatable(L, 1);
    return 1;
}

static int sandbox_insert(lua_State *L)
{
    int n, at, top = lua_gettop(L);
    luaL_checktype(L, 1, LUA_TTABLE);
    n = (int)lua_objlen(L, 1) + 1;
    if (top != 2 && top != 3) return luaL_error(L, "wrong number of arguments to 'insert'");
    if (script_is_frozen(L, 1)) return sandbox_refuse(L);
    at = top == 2 ? n : luaL_checkint(L, 2);
    u32 moved = 0;
    for (int i = MAX(n, at); i > at; i--) {
        lua_work(L, &moved);
        lua_rawgeti(L, 1, i - 1);
        lua_rawseti(L, 1, i);
    }
    lua_rawseti(L, 1, at);
    return 0;
}

/* Lua's own counts in an int that may overflow, and then writes past its stack. */
static int sandbox_unpack(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    i64 from = luaL_optint(L, 2, 1);
    i64 to = lua_isnoneornil(L, 3) ? (i64)lua_objlen(L, 1) : luaL_checkint(L, 3), n = to - from + 1;
    if (n <= 0) return 0;
    if (n > INT_MAX || !lua_checkstack(L, (int)n)) return luaL_error(L, "too many results to unpack");
    for (i64 i = from; i <= to; i++) lua_rawgeti(L, 1, (int)i);
    return (int)n;
}

/* A script that is being ended can't catch errors any more: this one is on top. */
static void raise_if_ended(lua_State *L)
{
    if (script_is_ended(script_vm_of(L)->run)) lua_error(L);
}

/* pcall returns errors that are tables as their text, as in Redis. */
static int sandbox_pcall(lua_State *L)
{
    int args = lua_gettop(L);
    lua_pushboolean(L, 1);
    lua_insert(L, 1);
    if (!args) { /* Redis's text for a call without arguments */
        lua_pushboolean(L, 0);
        lua_pushliteral(L, "attempt to call a boolean value");
        return 2;
    }
    if (lua_pcall(L, args - 1, LUA_MULTRET, 0) == 0) return lua_gettop(L);
    raise_if_ended(L);
    if (lua_istable(L, -1)) {
        lua_getfield(L, -1, "err");
        if (lua_isstring(L, -1)) lua_replace(L, -2);
        else lua_pop(L, 1);
    }
    lua_pushboolean(L, 0);
    lua_insert(L, -2);
    return 2;
}

/* The upvalue is xpcall's error handler. No hook runs while it handles an error that a hook has raised: so it
 * is not called when the script is being ended. */
static int handle_unless_ended(lua_State *L)
{
    if (script_is_ended(script_vm_of(L)->run)) return 1;
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, 1, 1);
    return 1;
}

static int sandbox_xpcall(lua_State *L)
{
    luaL_checkany(L, 2);
    lua_settop(L, 2);
    lua_pushcclosure(L, handle_unless_ended, 1);
    lua_insert(L, 1);
    int rc = lua_pcall(L, 0, LUA_MULTRET, 1);
    if (rc) raise_if_ended(L);
    lua_pushboolean(L, rc == 0);
    lua_replace(L, 1);
    return lua_gettop(L);
}

static int sandbox_collectgarbage(lua_State *L)
{
    static const char *const words[] = {
        "stop", "restart", "collect", "count", "step", "setpause", "setstepmul", NULL,
    };
    static const int whats[] = {
        LUA_GCSTOP, LUA_GCRESTART, LUA_GCCOLLECT, LUA_GCCOUNT, LUA_GCSTEP, LUA_GCSETPAUSE, LUA_GCSETSTEPMUL,
    };
    int what = whats[luaL_checkoption(L, 1, "collect", words)];
    int result = lua_gc(L, what, luaL_optint(L, 2, 0));
    if (what != LUA_GCCOUNT && what != LUA_GCCOLLECT) script_vm_of(L)->gc_changed = true;
    if (what == LUA_GCSTEP) lua_pushboolean(L, result);
    else lua_pushnumber(L, what == LUA_GCCOUNT ? result + lua_gc(L, LUA_GCCOUNTB, 0) / 1024.0 : result);
    return 1;
}

/* -- text that becomes code -------------------------------------------------------------------- */

/* Bytes that the parser gets at a time: it may take long, and can be ended between two chunks. */
#define PIECE 4096

/* With a space in front, bytecode is a syntax error. */
struct text_reader {
    lua_Reader reader;
    void *arg;
    bytes left; /* rest of what the reader returned last */
    bool begun;
};

/* The parser keeps jumps in lists that it walks from the start for each one added, so it may take quadratic
 * time. The limit is CPU time: on a busy machine an ordinary script gets as much as on an idle one. */
static void end_if_too_long(lua_State *L)
{
    const struct script_vm *vm = script_vm_of(L);
    const struct script_host *host = &vm->node->host;
    if (!vm->compile_until_us) lua_work_hook(L);
    else if (host->cpu_us(vm->node->owner) > vm->compile_until_us)
        luaL_error(L, "it takes too long to compile");
}

static const char *sandbox_read_text(lua_State *L, void *arg, size_t *n)
{
    struct text_reader *t = arg;
    end_if_too_long(L);
    if (!t->left.n) {
        t->left.p = t->reader(L, t->arg, &t->left.n);
        if (!t->left.p) t->left.n = 0;
        if (!t->begun && t->left.n && t->left.p[0] == LUA_SIGNATURE[0]) {
            t->begun = true;
            *n = 1;
            return " ";
        }
        t->begun |= t->left.n > 0;
    }
    const char *piece = t->left.p;
    *n = MIN(t->left.n, PIECE);
    t->left = bytes_of(t->left.p + *n, t->left.n - *n);
    return *n ? piece : NULL;
}

int script_load(lua_State *L, lua_Reader reader, void *arg, const char *chunk)
{
    struct text_reader t = {.reader = reader, .arg = arg};
    return lua_load(L, sandbox_read_text, &t, chunk);
}

static const char *read_once(lua_State *L UNUSED, void *arg, size_t *n)
{
    bytes *left = arg;
    const char *p = left->p;
    *n = left->n;
    *left = (bytes){0};
    return p;
}

int script_load_text(lua_State *L, bytes source, const char *chunk)
{
    return script_load(L, read_once, &source, chunk);
}

static int sandbox_loaded(lua_State *L, int rc)
{
    if (rc == 0) return 1;
    raise_if_ended(L);
    lua_pushnil(L);
    lua_insert(L, -2);
    return 2;
}

static int sandbox_loadstring(lua_State *L)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    return sandbox_loaded(L, script_load_text(L, bytes_of(text, n), luaL_optstring(L, 2, text)));
}

/* The last result of the function at index 1 stays at index 3 until the parser has read it. */
static const char *read_from_function(lua_State *L, void *arg UNUSED, size_t *n)
{
    luaL_checkstack(L, 2, "too many nested functions");
    lua_pushvalue(L, 1);
    lua_call(L, 0, 1);
    *n = 0;
    if (lua_isnil(L, -1)) return NULL;
    if (!lua_isstring(L, -1)) luaL_error(L, "reader function must return a string");
    lua_replace(L, 3);
    return lua_tolstring(L, 3, n);
}

/* The parser keeps the chunk's name where the collector does not see it, and may call the function again
 * before it is stored safely: so the name, up to its first zero byte, stays on the stack. */
static int sandbox_load(lua_State *L)
{
    const char *chunk = luaL_optstring(L, 2, "=(load)");
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_settop(L, 3);
    lua_pushstring(L, chunk);
    return sandbox_loaded(L, script_load(L, read_from_function, NULL, chunk));
}

/* -- random numbers: Redis's sequence for a given seed, that of the 48-bit generator of POSIX -- */

#define RANDOM_MAX INT32_MAX

static i32 draw(struct script_vm *vm)
{
    vm->random = (vm->random * 0x5DEECE66DULL + 0xB) & 0xFFFFFFFFFFFFULL;
    return (i32)(vm->random >> 17);
}

static int sandbox_random(lua_State *L)
{
    double r = (double)(draw(script_vm_of(L)) % RANDOM_MAX) / (double)RANDOM_MAX;
    int low = 1, high, args = lua_gettop(L);
    if (args == 0) {
        lua_pushnumber(L, r);
        return 1;
    }
    if (args > 2) return luaL_error(L, "wrong number of arguments");
    if (args == 2) low = luaL_checkint(L, 1);
    high = luaL_checkint(L, args);
    luaL_argcheck(L, low <= high, args, "interval is empty");
    lua_pushnumber(L, floor(r * ((double)high - low + 1)) + low);
    return 1;
}

static int sandbox_randomseed(lua_State *L)
{
    u32 seed = (u32)luaL_checkint(L, 1);
    script_vm_of(L)->random = (u64)seed << 16 | 0x330E;
    return 0;
}

/* -- installing them ------------------------------------------------------------------------- */

static void replace_in(lua_State *L, const char *library, const luaL_Reg *functions)
{
    lua_getglobal(L, library);
    luaL_register(L, NULL, functions);
    lua_pop(L, 1);
}

void script_open_sandbox(lua_State *L)
{
    static const luaL_Reg globals[] = {
        {"next", sandbox_next}, {"rawget", sandbox_rawget}, {"rawset", sandbox_rawset},
        {"getmetatable", sandbox_getmetatable}, {"setmetatable", sandbox_setmetatable},
        {"pcall", sandbox_pcall}, {"xpcall", sandbox_xpcall}, {"unpack", sandbox_unpack},
        {"loadstring", sandbox_loadstring}, {"load", sandbox_load},
        {"collectgarbage", sandbox_collectgarbage}, {NULL, NULL},
    };
    static const luaL_Reg math[] = {
        {"random", sandbox_random}, {"randomseed", sandbox_randomseed}, {NULL, NULL},
    };
    static const luaL_Reg table[] = {{"insert", sandbox_insert}, {NULL, NULL}};
    replace_in(L, "_G", globals);
    replace_in(L, LUA_MATHLIBNAME, math);
    replace_in(L, LUA_TABLIBNAME, table);
    lua_getglobal(L, "next");
    lua_pushcclosure(L, sandbox_pairs, 1);
    lua_setglobal(L, "pairs");
}
