/* Text built in Lua's memory, and the hook for long operations. */
#include "script/lua_libs.h"

#include <string.h>

#define FIRST_SIZE 256

void lua_work_hook(lua_State *L)
{
    lua_Hook hook = lua_gethook(L);
    lua_Debug why = {.event = LUA_HOOKCOUNT};
    if (hook) hook(L, &why);
}

void lua_out_begin(struct lua_out *o, lua_State *L)
{
    luaL_checkstack(L, 2, "no room for a buffer"); /* the slot, and a larger one while it grows */
    char *p = lua_newuserdata(L, FIRST_SIZE);
    *o = (struct lua_out){.L = L, .slot = lua_gettop(L), .p = p, .cap = FIRST_SIZE};
}

static void grow(struct lua_out *o, size_t more)
{
    if (more > LUA_OUT_MAX - o->n) luaL_error(o->L, "result is longer than %d bytes", (int)LUA_OUT_MAX);
    size_t cap = o->cap;
    while (cap - o->n < more) cap *= 2;
    luaL_checkstack(o->L, 1, "no room for a buffer");
    char *p = lua_newuserdata(o->L, cap);
    memcpy(p, o->p, o->n);
    lua_replace(o->L, o->slot);
    o->p = p;
    o->cap = cap;
}

char *lua_out_reserve(struct lua_out *o, size_t more)
{
    if (UNLIKELY(o->cap - o->n < more)) grow(o, more);
    return o->p + o->n;
}

void lua_out_append(struct lua_out *o, const void *p, size_t n)
{
    if (n == 0) return;
    memcpy(lua_out_reserve(o, n), p, n);
    o->n += n;
}

void lua_out_text(struct lua_out *o, const char *text) { lua_out_append(o, text, strlen(text)); }

void lua_out_push(struct lua_out *o)
{
    lua_pushlstring(o->L, o->p, o->n);
    lua_replace(o->L, o->slot);
}
