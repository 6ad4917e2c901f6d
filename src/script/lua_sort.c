/* table.sort. Lua's own can't be interrupted unless it compares with Lua code, which the hook sees; it takes
 * quadratic time at worst, and each comparison may be as long as two strings. So it is used only where it is
 * certain to be quick. Numbers are sorted here: which of two equal ones comes first does not matter. */
#include <lauxlib.h>
#include <lua.h>
#include <stdlib.h>

#include "script/lua_libs.h"

#define NUMBERS_MAX (1u << 22)      /* sorted at once */
#define QUICK_BYTES (256ull << 20)  /* this much may be compared without checking the clock … */
#define STEP_BYTES (1u << 20)       /* … and this much between two checks */
#define COMPARISON 16               /* the cost of one, in addition to its bytes */

struct contents {
    size_t n, longest;              /* strings: bytes of the longest one */
    bool numbers, simple;           /* only numbers; only numbers and strings */
};

static struct contents look_through(lua_State *L)
{
    struct contents c = {.n = lua_objlen(L, 1), .numbers = true, .simple = true};
    for (size_t i = 1; i <= c.n && c.simple; i++) {
        lua_rawgeti(L, 1, (int)i);
        int type = lua_type(L, -1);
        double number = type == LUA_TNUMBER ? lua_tonumber(L, -1) : 0;
        c.simple = type == LUA_TSTRING || (type == LUA_TNUMBER && number == number); /* no nan */
        c.numbers &= type == LUA_TNUMBER;
        if (type == LUA_TSTRING) c.longest = MAX(c.longest, lua_objlen(L, -1));
        lua_pop(L, 1);
    }
    return c;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sort_numbers(lua_State *L, size_t n)
{
    double *v = lua_newuserdata(L, n * sizeof *v + 1);
    for (size_t i = 0; i < n; i++) {
        lua_rawgeti(L, 1, (int)i + 1);
        v[i] = lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    qsort(v, n, sizeof *v, by_value);
    for (size_t i = 0; i < n; i++) {
        lua_pushnumber(L, v[i]);
        lua_rawseti(L, 1, (int)i + 1);
    }
}

/* Upvalues: a function, or nil; the work since the hook was last called. */
static int compare_watched(lua_State *L)
{
    size_t done = (size_t)lua_tointeger(L, lua_upvalueindex(2)) + COMPARISON;
    if (lua_type(L, 1) == LUA_TSTRING && lua_type(L, 2) == LUA_TSTRING)
        done += MIN(lua_objlen(L, 1), lua_objlen(L, 2));
    if (done > STEP_BYTES) {
        lua_work_hook(L);
        done = 0;
    }
    lua_pushinteger(L, (lua_Integer)done);
    lua_replace(L, lua_upvalueindex(2));
    if (lua_isnil(L, lua_upvalueindex(1))) {
        lua_pushboolean(L, lua_lessthan(L, 1, 2));
    } else {
        lua_pushvalue(L, lua_upvalueindex(1));
        lua_insert(L, 1);
        lua_call(L, 2, 1);
    }
    return 1;
}

static bool is_quick(const struct contents *c)
{
    return c->simple && c->n < 100000 && c->n * c->n / 2 < QUICK_BYTES / (c->longest + COMPARISON);
}

/* Upvalue: Lua's own. */
static int table_sort(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    if (!lua_isnoneornil(L, 2)) luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_settop(L, 2);
    bool watched = lua_iscfunction(L, 2);
    if (lua_isnil(L, 2)) {
        struct contents c = look_through(L);
        if (c.numbers && c.simple && c.n <= NUMBERS_MAX) {
            sort_numbers(L, c.n);
            return 0;
        }
        watched = !is_quick(&c);
    }
    if (watched) {
        lua_pushinteger(L, 0);
        lua_pushcclosure(L, compare_watched, 2);
    }
    return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

int script_open_sort(lua_State *L)
{
    lua_getglobal(L, "table");
    lua_getfield(L, -1, "sort");
    lua_pushcclosure(L, table_sort, 1);
    lua_setfield(L, -2, "sort");
    lua_pop(L, 1);
    return 0;
}
