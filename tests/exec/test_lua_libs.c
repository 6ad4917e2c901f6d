/* cjson, cmsgpack, bit and struct in a bare interpreter: what they say to anything at all, within
 * whatever memory there is. (That they say what Redis's say, tests/server/test_lua_libs.py shows.) */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <lualib.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "exec/lua_libs.h"

struct heap {
    size_t used, limit;
};

static void *allocate(void *arg, void *p, size_t old, size_t n)
{
    struct heap *h = arg;
    if (n > old && h->used + (n - old) > h->limit) return NULL;
    h->used += n - old;
    if (n) return realloc(p, n);
    free(p);
    return NULL;
}

static lua_State *open_state(struct heap *h)
{
    *h = (struct heap){.limit = SIZE_MAX};
    lua_State *L = lua_newstate(allocate, h);
    luaL_openlibs(L);
    script_open_cjson(L);
    script_open_cmsgpack(L);
    script_open_bit(L);
    script_open_struct(L);
    assert_int_equal(lua_gettop(L), 0);
    return L;
}

static void close_state(lua_State *L, struct heap *h)
{
    lua_close(L);
    assert_int_equal(h->used, 0);
}

/* The script's result, or its error; it lives until the next one. */
static const char *result(lua_State *L, const char *script)
{
    lua_settop(L, 0);
    if (luaL_loadstring(L, script) == 0) lua_pcall(L, 0, 1, 0);
    const char *text = lua_tostring(L, -1);
    return text ? text : luaL_typename(L, -1);
}

/* -- some that stand for many ------------------------------------------------------------------ */

static void they_work(void **state UNUSED)
{
    static const struct {
        const char *script, *result;
    } cases[] = {
        {"return cjson.encode({1, {}, {a = 'x/y'}, cjson.null, 0.1})", "[1,{},{\"a\":\"x\\/y\"},null,0.1]"},
        {"return cjson.encode(cjson.decode('{\"a\":[1,2,{\"b\":null}]}'))", "{\"a\":[1,2,{\"b\":null}]}"},
        {"return cjson.decode('\"\\\\ud83d\\\\ude00\"')", "\xf0\x9f\x98\x80"},
        {"return cjson.encode({[2^40] = 1, [1] = 2}) == '[2]'", "boolean"},
        {"return #cmsgpack.pack({1, 'a', {x = true}})", "8"},
        {"return cmsgpack.unpack(cmsgpack.pack(-129))", "-129"},
        {"return bit.tohex(bit.bxor(0xf0, 0x0f), 4)", "00ff"},
        {"return (struct.unpack('>i3', struct.pack('>i3', -5)))", "-5"},
        {"return struct.size('!8 b d')", "16"},
    };
    struct heap h;
    lua_State *L = open_state(&h);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) assert_string_equal(result(L, cases[i].script), cases[i].result);
    close_state(L, &h);
}

/* -- anything at all --------------------------------------------------------------------------- */

static size_t random_bytes(u64 *rng, char *to, size_t most)
{
    static const char alphabet[] = "{}[]:,\"\\u0d8-+.eEnaifx \t\n<>!bBhHlLTcsfdz";
    size_t n = rand_next(rng) % most;
    bool text = rand_next(rng) % 2;
    for (size_t i = 0; i < n; i++)
        to[i] = text ? alphabet[rand_next(rng) % (sizeof alphabet - 1)] : (char)rand_next(rng);
    return n;
}

/* Calls a function with strings and numbers of all sorts. Whatever happens, happens within Lua. */
static void call_with(lua_State *L, const char *library, const char *function, u64 *rng)
{
    char text[80];
    lua_settop(L, 0);
    lua_getglobal(L, library);
    lua_getfield(L, -1, function);
    int args = 1 + (int)(rand_next(rng) % 4);
    for (int i = 0; i < args; i++) {
        u64 kind = rand_next(rng) % 4;
        i64 n = (i64)rand_next(rng) >> rand_next(rng) % 64;
        if (kind == 0 && i > 0) lua_pushnumber(L, (double)n * (rand_next(rng) % 2 ? 1 : 0.37));
        else if (kind == 1 && i > 0) lua_pushnil(L);
        else lua_pushlstring(L, text, random_bytes(rng, text, sizeof text));
    }
    (void)lua_pcall(L, args, LUA_MULTRET, 0);
}

static void nothing_breaks_them(void **state UNUSED)
{
    static const char *const functions[][2] = {
        {"cjson", "decode"}, {"cmsgpack", "unpack"}, {"cmsgpack", "unpack_one"}, {"cmsgpack", "unpack_limit"},
        {"cmsgpack", "pack"}, {"struct", "pack"}, {"struct", "unpack"}, {"struct", "size"}, {"bit", "tohex"},
        {"bit", "lshift"}, {"cjson", "encode"},
    };
    struct heap h;
    lua_State *L = open_state(&h);
    u64 rng = 99;
    for (int i = 0; i < 60000; i++) {
        const char *const *f = functions[rand_next(&rng) % ARRAY_LEN(functions)];
        call_with(L, f[0], f[1], &rng);
    }
    close_state(L, &h);
}

/* -- too little memory ------------------------------------------------------------------------- */

static void memory_may_run_out(void **state UNUSED)
{
    static const char *const scripts[] = {
        "local t = {} for i = 1, 300 do t[i] = {a = i, b = ('x'):rep(50)} end return #cjson.encode(t)",
        "local t = {} for i = 1, 300 do t[i] = {a = i, b = ('x'):rep(50)} end return #cmsgpack.pack(t)",
        "return #cjson.decode('[' .. ('\"a\\\\u0041b\",'):rep(2000) .. '1]')",
        "return #cmsgpack.unpack(cmsgpack.pack({('y'):rep(9000), {1, 2, 3}, {a = {b = {}}}}))",
        "return #struct.pack(('s'):rep(100), ('z'):rep(9000), ('z'):rep(9000))",
    };
    struct heap h;
    lua_State *L = open_state(&h);
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        bool whole = false;
        for (size_t room = 256; !whole && room < (64u << 20); room += room / 8) {
            lua_settop(L, 0);
            lua_gc(L, LUA_GCCOLLECT, 0);
            assert_int_equal(luaL_loadstring(L, scripts[i]), 0);
            h.limit = h.used + room;
            whole = lua_pcall(L, 0, 1, 0) != LUA_ERRMEM;
            h.limit = SIZE_MAX;
        }
        assert_true(whole);
    }
    close_state(L, &h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_work),
        cmocka_unit_test(nothing_breaks_them),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests_name("lua libraries", tests, NULL, NULL);
}
