/* The interpreter: its memory, its globals, and read-only tables.
 *
 * Debian's Lua has no read-only tables, unlike Redis's. Here user code never gets such a table, only a proxy
 * for it: an empty table whose metatable reads through and refuses writes. The metatable is recognized by
 * REAL, a key no script can make, which holds the table itself. Lua's own functions that look past metatables
 * (next, rawset, getmetatable, …) are replaced by ones that know proxies: script_sandbox.c.
 *
 * The memory limit applies only while user code runs (ceiling): what runs outside lua_pcall may not fail. */
#include "script/script_vm.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "script/lua_libs.h"

/* Keys of the registry and of metatables: their addresses count. NULL is the only light userdata scripts
 * have. */
static const char REAL, VIEW, GLOBALS, STRING_VIEW;

static void push_key(lua_State *L, const char *key) { lua_pushlightuserdata(L, (void *)(uintptr_t)key); }

/* -- memory ------------------------------------------------------------------------------------ */

#define BIG_BLOCK (1u << 20)

static void *allocate(void *ud, void *p, size_t old, size_t n)
{
    struct script_vm *vm = ud;
    if (n > old && vm->ceiling && vm->used + (n - old) > vm->ceiling) return NULL;
    vm->used += n - old;
    if (UNLIKELY(n > BIG_BLOCK) && vm->run) script_watch(vm->L);
    if (n) return mem_realloc(p, n);
    mem_free(p);
    return NULL;
}

struct script_vm *script_vm_of(lua_State *L)
{
    void *vm;
    lua_getallocf(L, &vm);
    return vm;
}

struct script_run *script_run_of(lua_State *L)
{
    struct script_run *run = script_vm_of(L)->run;
    return run && run->name ? run : NULL;
}

/* -- read-only tables -------------------------------------------------------------------------- */

bool script_push_real(lua_State *L, int index)
{
    if (!lua_istable(L, index) || !lua_getmetatable(L, index)) return false;
    push_key(L, &REAL);
    lua_rawget(L, -2);
    lua_remove(L, -2);
    if (lua_istable(L, -1)) return true;
    lua_pop(L, 1);
    return false;
}

bool script_is_frozen(lua_State *L, int index)
{
    if (!script_push_real(L, index)) return false;
    lua_pop(L, 1);
    return true;
}

static int refuse_write(lua_State *L) { return luaL_error(L, SCRIPT_READONLY); }

/* Replaces the table on top by a proxy for it. */
static void push_proxy(lua_State *L)
{
    lua_newtable(L);                /* real, proxy */
    lua_createtable(L, 0, 4);
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, refuse_write);
    lua_setfield(L, -2, "__newindex");
    push_key(L, &REAL);
    lua_pushvalue(L, -4);
    lua_rawset(L, -3);
    if (lua_getmetatable(L, -3)) {  /* for getmetatable */
        push_proxy(L);
        push_key(L, &VIEW);
        lua_insert(L, -2);
        lua_rawset(L, -3);
    }
    lua_setmetatable(L, -2);
    lua_remove(L, -2);
}

void script_freeze(lua_State *L)
{
    if (script_is_frozen(L, -1)) return;
    for (lua_pushnil(L); lua_next(L, -2);) {
        if (!lua_istable(L, -1)) {
            lua_pop(L, 1);
            continue;
        }
        script_freeze(L);
        lua_pushvalue(L, -2);
        lua_insert(L, -2);          /* table, key, key, value */
        lua_rawset(L, -4);
    }
    push_proxy(L);
}

/* -- globals ----------------------------------------------------------------------------------- */

void script_push_globals(lua_State *L) { lua_pushvalue(L, LUA_GLOBALSINDEX); }

void script_push_real_globals(lua_State *L)
{
    push_key(L, &GLOBALS);
    lua_rawget(L, LUA_REGISTRYINDEX);
}

void script_push_metatable(lua_State *L, int index)
{
    if (lua_type(L, index) == LUA_TSTRING) {
        push_key(L, &STRING_VIEW);
        lua_rawget(L, LUA_REGISTRYINDEX);
    } else if (script_is_frozen(L, index)) {
        lua_getmetatable(L, index);
        push_key(L, &VIEW);
        lua_rawget(L, -2);
    } else if (!luaL_getmetafield(L, index, "__metatable") && !lua_getmetatable(L, index)) {
        lua_pushnil(L);
    }
}

static int script_vm_no_such_global(lua_State *L)
{
    if (!lua_isstring(L, 2))
        return luaL_error(L, "Second argument to luaProtectedTableError must be a string or number");
    return luaL_error(L, "Script attempted to access nonexistent global variable '%s'", lua_tostring(L, 2));
}

static void open_library(lua_State *L, lua_CFunction open, const char *name)
{
    lua_pushcfunction(L, open);
    lua_pushstring(L, name);
    lua_call(L, 1, 0);
}

/* A replayed script of an older Redis has no clock, and had no os.clock either. */
static int processor_time(lua_State *L)
{
    const struct node *n = script_vm_of(L)->node;
    if (!n->host.cpu_us) return luaL_error(L, "os.clock is not available");
    lua_pushnumber(L, (lua_Number)n->host.cpu_us(n->owner) / 1e6);
    return 1;
}

/* Of the library `os` only the function that measures time, as in Redis 7.4. */
static void open_os(lua_State *L)
{
    lua_newtable(L);
    lua_pushcfunction(L, processor_time);
    lua_setfield(L, -2, "clock");
    lua_setglobal(L, LUA_OSLIBNAME);
}

static void open_libraries(lua_State *L)
{
    static const char *const out_of_bounds[] = {
        "dofile", "loadfile", "print", "getfenv", "setfenv", "newproxy", /* as in Redis */
    };
    open_library(L, luaopen_base, "");
    open_library(L, luaopen_table, LUA_TABLIBNAME);
    open_library(L, luaopen_string, LUA_STRLIBNAME);
    open_library(L, luaopen_math, LUA_MATHLIBNAME);
    open_os(L);
    script_open_cjson(L);
    script_open_cmsgpack(L);
    script_open_bit(L);
    script_open_struct(L);
    script_open_string(L);
    script_open_sort(L);
    for (size_t i = 0; i < ARRAY_LEN(out_of_bounds); i++) {
        lua_pushnil(L);
        lua_setglobal(L, out_of_bounds[i]);
    }
    script_open_sandbox(L);
    script_open_api(L);
}

/* For getmetatable(""): the real metatable of strings has the `string` table, not its proxy. */
static void make_string_view(lua_State *L)
{
    push_key(L, &STRING_VIEW);
    lua_newtable(L);
    lua_getglobal(L, LUA_STRLIBNAME);
    lua_setfield(L, -2, "__index");
    push_proxy(L);
    lua_rawset(L, LUA_REGISTRYINDEX);
}

/* Makes everything in the globals read-only, and then the globals themselves. */
static void close_globals(lua_State *L)
{
    lua_pushnil(L);
    lua_setglobal(L, "_G");
    push_key(L, &GLOBALS);
    lua_pushvalue(L, LUA_GLOBALSINDEX);
    lua_rawset(L, LUA_REGISTRYINDEX);
    lua_pushvalue(L, LUA_GLOBALSINDEX);
    lua_newtable(L);
    lua_pushcfunction(L, script_vm_no_such_global);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
    script_freeze(L);
    make_string_view(L);
    lua_pushvalue(L, -1);
    script_push_real_globals(L);
    lua_insert(L, -2);
    lua_setfield(L, -2, "_G");
    lua_pop(L, 1);
    lua_replace(L, LUA_GLOBALSINDEX);
}

/* With user code Lua is called only by lua_pcall; without it, allocation does not fail. */
static int panic(lua_State *L UNUSED) { abort(); }

void script_vm_init(struct script_vm *vm, struct node *n)
{
    *vm = (struct script_vm){.node = n};
    vm->L = lua_newstate(allocate, vm);
    lua_atpanic(vm->L, panic);
    open_libraries(vm->L);
    close_globals(vm->L);
    script_vm_collect(vm);
}

void script_vm_collect(struct script_vm *vm)
{
    lua_gc(vm->L, LUA_GCCOLLECT, 0);
    vm->settled = vm->used;
}

void script_vm_release(struct script_vm *vm)
{
    lua_close(vm->L);
    buf_release(&vm->reply);
    buf_release(&vm->words);
    buf_release(&vm->denial);
}
