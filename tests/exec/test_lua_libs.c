/* cjson, cmsgpack, bit, struct and patterns in a bare interpreter: what they say to anything at all, within
 * whatever memory there is. (That they say what Redis's say, tests/server/test_lua_libs.py shows.) */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "script/lua_libs.h"

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

/* -- patterns: what Lua's own say --------------------------------------------------------------- */

static size_t random_pattern(u64 *rng, char *to)
{
    static const char *const parts[] = {
        "a", "b", "ab", ".", "%a", "%d", "%A", "%s", "[ab]", "[^a]", "[a-c]", "[]a]", "[%d-]", "%bab", "%f[a]", "%1",
        "%2", "(", ")", "()", "(a*)", "(.-)", "*", "+", "-", "?", "^", "$", "%", "%%", "[", "%z", "[^]", "%0", "%b", "%f",
    };
    size_t n = 0;
    for (u64 i = rand_next(rng) % 7; i > 0; i--) {
        const char *part = parts[rand_next(rng) % ARRAY_LEN(parts)];
        memcpy(to + n, part, strlen(part));
        n += strlen(part);
        if (rand_next(rng) % 3 == 0) to[n++] = "*+-?"[rand_next(rng) % 4];
    }
    if (rand_next(rng) % 40 == 0) to[n++] = '\0';
    return n;
}

static size_t random_subject(u64 *rng, char *to, const char *alphabet, size_t most)
{
    size_t n = rand_next(rng) % most;
    for (size_t i = 0; i < n; i++) to[i] = alphabet[rand_next(rng) % strlen(alphabet)];
    if (n && rand_next(rng) % 10 == 0) to[n / 2] = '\0';
    return n;
}

struct question {
    const char *function;
    char subject[16], pattern[64], with[8];
    size_t subject_n, pattern_n, with_n;
    int from, kind;
};

/* Everything that is answered, as text. */
static void ask(lua_State *L, const struct question *q, struct lua_out *out)
{
    static const char collect[] = "local s, p = ... local all = {} for a, b, c in string.gmatch(s, p) do "
                                  "all[#all + 1] = tostring(a) .. '|' .. tostring(b) .. '|' .. tostring(c) end "
                                  "return table.concat(all, ';')";
    int base = lua_gettop(L), args = 2;
    if (strcmp(q->function, "gmatch") == 0) {
        assert_int_equal(luaL_loadstring(L, collect), 0);
    } else {
        lua_getglobal(L, "string");
        lua_getfield(L, -1, q->function);
        lua_remove(L, -2);
    }
    lua_pushlstring(L, q->subject, q->subject_n);
    lua_pushlstring(L, q->pattern, q->pattern_n);
    if (strcmp(q->function, "gsub") == 0) {
        args += 2;
        if (q->kind == 0) lua_getglobal(L, "type"); /* a function that any arguments will do for … */
        else if (q->kind == 1) lua_getglobal(L, "math"); /* … a table, mostly without what is looked for … */
        else lua_pushlstring(L, q->with, q->with_n);
        if (q->from > 5) lua_pushnil(L);
        else lua_pushinteger(L, q->from);
    } else if (strcmp(q->function, "gmatch") != 0) {
        args += 2;
        lua_pushinteger(L, q->from);
        lua_pushboolean(L, q->kind == 0);
    }
    (void)lua_pcall(L, args, LUA_MULTRET, 0);
    for (int i = base + 1; i <= lua_gettop(L); i++) {
        size_t n;
        const char *text = lua_tolstring(L, i, &n);
        lua_out_char(out, *luaL_typename(L, i));
        if (text) lua_out_append(out, text, n);
        lua_out_char(out, '\n');
    }
    lua_settop(L, base);
}

static void patterns_are_those_of_lua(void **state UNUSED)
{
    static const char *const functions[] = {"find", "match", "gsub", "gmatch"};
    lua_State *theirs = luaL_newstate(), *ours = luaL_newstate();
    u64 rng = 2026, matched = 0;
    luaL_openlibs(theirs);
    luaL_openlibs(ours);
    script_open_string(ours);
    for (u32 i = 0; i < 60000; i++) {
        struct question q = {.function = functions[i % ARRAY_LEN(functions)]};
        struct lua_out a, b;
        q.subject_n = random_subject(&rng, q.subject, "aabbc1 ]%-", sizeof q.subject);
        q.with_n = random_subject(&rng, q.with, "x%0123%", sizeof q.with);
        q.pattern_n = random_pattern(&rng, q.pattern);
        q.from = (int)(rand_next(&rng) % 24) - 8;
        q.kind = (int)(rand_next(&rng) % 6);
        lua_settop(theirs, 0);
        lua_settop(ours, 0);
        lua_out_begin(&a, theirs);
        lua_out_begin(&b, ours);
        ask(theirs, &q, &a);
        ask(ours, &q, &b);
        matched += a.n > 0 && *a.p == 'n' && a.p[1] != 'i';
        if (a.n != b.n || memcmp(a.p, b.p, a.n) != 0)
            fail_msg("%s('%.*s', '%.*s', '%.*s', %d) kind %d:\n%.*sis here\n%.*s", q.function, (int)q.subject_n, q.subject,
                     (int)q.pattern_n, q.pattern, (int)q.with_n, q.with, q.from, q.kind, (int)a.n, a.p, (int)b.n, b.p);
    }
    assert_true(matched > 1000); /* they are not all malformed */
    lua_close(theirs);
    lua_close(ours);
}

/* -- sorting ------------------------------------------------------------------------------------- */

static void sorting_is_that_of_lua(void **state UNUSED)
{
    static const char *const scripts[] = { /* of one n after the other */
        "local t = {} for i = 1, n do t[i] = (i * 7919) % (n + 7) - n / 2 + 0.25 end",
        "local t = {} for i = 1, n do t[i] = 'k' .. (i * 7919) % (n + 7) end",
        "local t = {} for i = 1, n do t[i] = i % 3 == 0 and 'x' or 'x' .. ('y'):rep(i % 50) end",
        "local t = {} for i = 1, n do t[i] = i end t[n] = 'word'",
        "local t = {} for i = 1, n do t[i] = {} end",
        "local t = setmetatable({}, {__index = function() return 1 end}) for i = 1, n do t[i] = -i end",
    };
    static const char *const ways[] = {"table.sort(t)", "table.sort(t, function(a, b) return a > b end)",
                                       "table.sort(t, rawequal)", "table.sort(t, nil)", "table.sort(t, 1)"};
    lua_State *theirs = luaL_newstate(), *ours = luaL_newstate();
    luaL_openlibs(theirs);
    luaL_openlibs(ours);
    script_open_sort(ours);
    for (size_t i = 0; i < ARRAY_LEN(scripts) * ARRAY_LEN(ways) * 4; i++) {
        char script[512];
        snprintf(script, sizeof script, "local n = %d %s %s return type(t[1]) == 'table' or table.concat(t, ' ')",
                 (int[]){1, 2, 100, 6000}[i % 4], scripts[i / 4 % ARRAY_LEN(scripts)], ways[i / 4 / ARRAY_LEN(scripts)]);
        assert_string_equal(result(ours, script), result(theirs, script));
    }
    lua_close(theirs);
    lua_close(ours);
}

static void no_matter(lua_State *L, lua_Debug *ar UNUSED) { luaL_error(L, "ended"); }

/* However long they would take. */
static void patterns_can_be_ended(void **state UNUSED)
{
    static const char *const scripts[] = {
        "local n = 4000 return string.find(('a'):rep(n), ('a?'):rep(n) .. ('a'):rep(n))",
        "return string.match(('a'):rep(200), ('a*'):rep(100) .. 'b')",
        "return string.gsub(('a'):rep(100000), '.-.-.-b', '')",
        "for _ in string.gmatch(('('):rep(1000000), '%b()') do end",
        "return string.find(('x'):rep(1000000), '[' .. ('a'):rep(1000000) .. ']')",
        "return string.find(('x'):rep(1000000), '^(x*)%1%1$%1')",
    };
    lua_State *L = luaL_newstate();
    luaL_openlibs(L);
    script_open_string(L);
    lua_sethook(L, no_matter, LUA_MASKCOUNT, INT32_MAX);
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) assert_non_null(strstr(result(L, scripts[i]), "ended"));
    lua_close(L);
}

/* What is linear is so: these would take minutes otherwise. */
static void plain_searches_and_repeats_are_quick(void **state UNUSED)
{
    lua_State *L = luaL_newstate();
    luaL_openlibs(L);
    script_open_string(L);
    assert_string_equal(result(L, "local a = ('a'):rep(1e6) return tostring((a:find(('a'):rep(5e5) .. 'b', 1, true)))"),
                        "nil");
    assert_string_equal(result(L, "return #(''):rep(2^31 - 1)"), "0");
    assert_string_equal(result(L, "return ('ab'):rep(3) .. ('x'):rep(0) .. ('x'):rep(-1) .. ('x'):rep(1)"), "abababx");
    lua_close(L);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_are_those_of_lua), cmocka_unit_test(patterns_can_be_ended),
        cmocka_unit_test(sorting_is_that_of_lua),
        cmocka_unit_test(plain_searches_and_repeats_are_quick), cmocka_unit_test(they_work),
        cmocka_unit_test(nothing_breaks_them),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests_name("lua libraries", tests, NULL, NULL);
}
