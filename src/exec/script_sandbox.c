/* Lua's own functions, where they would show what is behind a read-only table, change it, or let a script do
 * what it may not: run bytecode, draw from the process's random numbers, leave the collector switched off.
 * To ordinary tables they do what Lua's do, with its error messages. */
#include <limits.h>
#include <math.h>

#include "exec/script_vm.h"

static int refuse(lua_State *L)
{
    lua_pushliteral(L, SCRIPT_READONLY); /* without a position: so says Redis of what C functions did */
    return lua_error(L);
}

/* -- walking, and looking past metatables ------------------------------------------------------ */

/* Puts the table itself in the place of a stand-in, for a function that keeps it to itself. */
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
    if (script_is_frozen(L, 1)) return refuse(L);
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
    if (script_is_frozen(L, 1)) return refuse(L);
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
    if (script_is_frozen(L, 1)) return refuse(L);
    at = top == 2 ? n : luaL_checkint(L, 2);
    for (int i = MAX(n, at); i > at; i--) {
        lua_rawgeti(L, 1, i - 1);
        lua_rawseti(L, 1, i);
    }
    lua_rawseti(L, 1, at);
    return 0;
}

/* Lua's own counts in an int that may overflow, and then writes beyond its stack. */
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

/* Errors that are tables go to whom Lua's own pcall is called by as their text, as in Redis. */
static int sandbox_pcall(lua_State *L)
{
    int args = lua_gettop(L);
    lua_pushboolean(L, 1);
    lua_insert(L, 1);
    if (!args) { /* Redis's words, for a call of nothing */
        lua_pushboolean(L, 0);
        lua_pushliteral(L, "attempt to call a boolean value");
        return 2;
    }
    if (lua_pcall(L, args - 1, LUA_MULTRET, 0) == 0) return lua_gettop(L);
    if (lua_istable(L, -1)) {
        lua_getfield(L, -1, "err");
        if (lua_isstring(L, -1)) lua_replace(L, -2);
        else lua_pop(L, 1);
    }
    lua_pushboolean(L, 0);
    lua_insert(L, -2);
    return 2;
}

/* The upvalue is what xpcall was given to handle errors. No hook watches over it while it handles one that a
 * hook has raised: so it is left out when the script is being ended. */
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

/* Behind a space it is no bytecode any more, but a character that nothing begins with. */
struct text_reader {
    lua_Reader reader;
    void *arg;
    const char *held;
    size_t held_n;
    bool begun;
};

static const char *read_text(lua_State *L, void *arg, size_t *n)
{
    struct text_reader *t = arg;
    const char *piece = t->held;
    if (piece) {
        *n = t->held_n;
        t->held = NULL;
        return piece;
    }
    piece = t->reader(L, t->arg, n);
    if (t->begun || !piece || !*n) return piece;
    t->begun = true;
    if (piece[0] != LUA_SIGNATURE[0]) return piece;
    t->held = piece;
    t->held_n = *n;
    *n = 1;
    return " ";
}

int script_load(lua_State *L, lua_Reader reader, void *arg, const char *chunk)
{
    struct text_reader t = {.reader = reader, .arg = arg};
    return lua_load(L, read_text, &t, chunk);
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

static int loaded(lua_State *L, int rc)
{
    if (rc == 0) return 1;
    lua_pushnil(L);
    lua_insert(L, -2);
    return 2;
}

static int sandbox_loadstring(lua_State *L)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    return loaded(L, script_load_text(L, bytes_of(text, n), luaL_optstring(L, 2, text)));
}

/* What the function at index 1 returned last stays at index 3 until the parser has read it. */
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

/* The parser holds the chunk's name where the collector does not see it, and may call the function once more
 * before it has a better place for it: so the name, up to its first zero, stays on the stack. */
static int sandbox_load(lua_State *L)
{
    const char *chunk = luaL_optstring(L, 2, "=(load)");
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_settop(L, 3);
    lua_pushstring(L, chunk);
    return loaded(L, script_load(L, read_from_function, NULL, chunk));
}

/* -- patterns ---------------------------------------------------------------------------------- */

#define REPEATS_MAX 4096 /* of the pieces of a pattern: Lua's matcher calls itself for each */

static size_t repeats_of(bytes pattern)
{
    size_t n = 0;
    for (size_t i = 0; i < pattern.n; i++) {
        char c = pattern.p[i];
        n += c == '*' || c == '+' || c == '-' || c == '?';
    }
    return n;
}

/* Upvalues: a function of Lua's own that takes a pattern as its second argument, and whether that is plain
 * text if a fourth one says so. */
static int sandbox_match(lua_State *L)
{
    bytes pattern = {0};
    bool plain = lua_toboolean(L, lua_upvalueindex(2)) && lua_toboolean(L, 4);
    if (lua_type(L, 2) == LUA_TSTRING) pattern.p = lua_tolstring(L, 2, &pattern.n);
    if (!plain && repeats_of(pattern) > REPEATS_MAX) return luaL_error(L, "pattern too complex");
    return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

static void limit_patterns(lua_State *L)
{
    static const char *const names[] = {"find", "match", "gmatch", "gfind", "gsub"};
    lua_getglobal(L, LUA_STRLIBNAME);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        lua_getfield(L, -1, names[i]);
        lua_pushboolean(L, i == 0);
        lua_pushcclosure(L, sandbox_match, 2);
        lua_setfield(L, -2, names[i]);
    }
    lua_pop(L, 1);
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

/* -- putting them in place --------------------------------------------------------------------- */

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
    limit_patterns(L);
    lua_getglobal(L, "next");
    lua_pushcclosure(L, sandbox_pairs, 1);
    lua_setglobal(L, "pairs");
}
