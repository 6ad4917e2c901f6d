/* string.find, match, gmatch, gsub and rep, as in Lua 5.1. Lua's own can't be interrupted, and take as long
 * as a pattern, or a number of repeats, makes them. */
#include <lauxlib.h>
#include <lua.h>
#include <string.h>

#include "base/bytes.h"
#include "script/lua_libs.h"
#include "script/lua_match.h"

/* -- find, match ----------------------------------------------------------------------------------- */

/* Where to begin: the argument at index, which may count from the end. */
static size_t search_start(lua_State *L, int index, size_t n)
{
    ptrdiff_t at = luaL_optinteger(L, index, 1);
    if (at < 0) at += (ptrdiff_t)n + 1;
    return at <= 1 ? 0 : MIN((size_t)at - 1, n);
}

static bool lua_string_is_plain(const char *pattern) { return !strpbrk(pattern, "^$*+?.([%-"); }

static int push_range(lua_State *L, const char *subject, const char *s, const char *e)
{
    lua_pushinteger(L, s - subject + 1);
    lua_pushinteger(L, e - subject);
    return 2;
}

#define TRIES 64 /* positions where the first byte fits, before preparing a search pays */

/* memchr is many times as fast as memmem, which is linear for any input. */
static const char *find_text(const char *s, size_t n, bytes text)
{
    for (u32 i = 0; i < TRIES && text.n <= n; i++) {
        const char *at = memchr(s, text.p[0], n - text.n + 1);
        if (!at || memcmp(at, text.p, text.n) == 0) return at;
        n -= (size_t)(at + 1 - s);
        s = at + 1;
    }
    return memmem(s, n, text.p, text.n);
}

static int find_plain(lua_State *L, const char *subject, size_t n, size_t from, bytes text)
{
    const char *at = text.n ? find_text(subject + from, n - from, text) : subject + from;
    if (at) return push_range(L, subject, at, at + text.n);
    lua_pushnil(L);
    return 1;
}

static int search(lua_State *L, bool find)
{
    bytes subject, pattern;
    subject.p = luaL_checklstring(L, 1, &subject.n);
    pattern.p = luaL_checklstring(L, 2, &pattern.n);
    size_t from = search_start(L, 3, subject.n);
    if (find && (lua_toboolean(L, 4) || lua_string_is_plain(pattern.p)))
        return find_plain(L, subject.p, subject.n, from, pattern);
    struct match m;
    match_begin(&m, L, subject.p, subject.n);
    const char *s = subject.p + from, *p = pattern.p, *e;
    bool anchored = *p == '^';
    if (anchored) p++;
    do {
        m.captures = 0;
        if (!(e = match_at(&m, s, p))) continue;
        return find ? push_range(L, subject.p, s, e) + match_push_all(&m, NULL, NULL)
                    : match_push_all(&m, s, e);
    } while (s++ < m.end && !anchored);
    lua_pushnil(L);
    return 1;
}

static int string_find(lua_State *L) { return search(L, true); }
static int string_match(lua_State *L) { return search(L, false); }

/* -- gmatch ---------------------------------------------------------------------------------------- */

/* Upvalues: subject, pattern, where to continue. */
static int next_match(lua_State *L)
{
    size_t n;
    const char *subject = lua_tolstring(L, lua_upvalueindex(1), &n),
               *p = lua_tostring(L, lua_upvalueindex(2));
    struct match m;
    match_begin(&m, L, subject, n);
    for (const char *s = subject + lua_tointeger(L, lua_upvalueindex(3)), *e; s <= m.end; s++) {
        m.captures = 0;
        if (!(e = match_at(&m, s, p))) continue;
        lua_pushinteger(L, e - subject + (e == s)); /* an empty match is not found again */
        lua_replace(L, lua_upvalueindex(3));
        return match_push_all(&m, s, e);
    }
    return 0;
}

static int string_gmatch(lua_State *L)
{
    luaL_checkstring(L, 1);
    luaL_checkstring(L, 2);
    lua_settop(L, 2);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, next_match, 3);
    return 1;
}

/* -- gsub ------------------------------------------------------------------------------------------ */

/* The text at index 3, in which %0 to %9 stand for captures. */
static void append_template(struct match *m, struct lua_out *out, const char *s, const char *e)
{
    bytes text;
    text.p = lua_tolstring(m->L, 3, &text.n);
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] != MATCH_ESCAPE) {
            lua_out_char(out, text.p[i]);
            continue;
        }
        char c = text.p[++i]; /* at the very end it is the zero byte after the text */
        if (c < '0' || c > '9') {
            lua_out_char(out, c);
        } else if (c == '0') {
            lua_out_append(out, s, (size_t)(e - s));
        } else {
            size_t n;
            match_push_one(m, (u32)(c - '1'), s, e);
            const char *capture = lua_tolstring(m->L, -1, &n);
            lua_out_append(out, capture, n);
            lua_pop(m->L, 1);
        }
    }
}

/* Appends the result of the function or table at index 3 for the match; false or nil keep the match. */
static void append_result(struct match *m, struct lua_out *out, const char *s, const char *e)
{
    lua_State *L = m->L;
    if (lua_istable(L, 3)) {
        match_push_one(m, 0, s, e);
        lua_gettable(L, 3);
    } else {
        lua_pushvalue(L, 3);
        lua_call(L, match_push_all(m, s, e), 1);
    }
    if (!lua_toboolean(L, -1)) {
        lua_out_append(out, s, (size_t)(e - s));
    } else {
        size_t n;
        if (!lua_isstring(L, -1)) luaL_error(L, "invalid replacement value (a %s)", luaL_typename(L, -1));
        const char *text = lua_tolstring(L, -1, &n);
        lua_out_append(out, text, n);
    }
    lua_pop(L, 1);
}

static int string_gsub(lua_State *L)
{
    size_t n;
    const char *s = luaL_checklstring(L, 1, &n), *p = luaL_checkstring(L, 2);
    int type = lua_type(L, 3), most = luaL_optint(L, 4, (int)MIN(n + 1, (size_t)INT32_MAX)), done = 0;
    bool text = type == LUA_TNUMBER || type == LUA_TSTRING, anchored = *p == '^';
    luaL_argcheck(L, text || type == LUA_TFUNCTION || type == LUA_TTABLE, 3,
                  "string/function/table expected");
    lua_settop(L, 3);
    if (anchored) p++;
    struct match m;
    struct lua_out out;
    match_begin(&m, L, s, n);
    lua_out_begin(&out, L);
    lua_out_reserve(&out, n);
    while (done < most) {
        m.captures = 0;
        const char *e = match_at(&m, s, p);
        if (e) {
            done++;
            if (text) append_template(&m, &out, s, e);
            else append_result(&m, &out, s, e);
        }
        if (e && e > s) s = e;
        else if (s < m.end) lua_out_char(&out, *s++);
        else break;
        if (anchored) break;
    }
    lua_out_append(&out, s, (size_t)(m.end - s));
    lua_out_push(&out);
    lua_pushinteger(L, done);
    return 2;
}

/* -- rep ------------------------------------------------------------------------------------------- */

static int string_rep(lua_State *L)
{
    size_t n, whole = 0;
    const char *s = luaL_checklstring(L, 1, &n);
    int times = luaL_checkint(L, 2);
    if (n == 0 || times <= 0) {
        lua_pushliteral(L, "");
        return 1;
    }
    if (__builtin_mul_overflow(n, (size_t)times, &whole)) return luaL_error(L, "not enough memory");
    char *out = lua_newuserdata(L, whole);
    memcpy(out, s, n);
    for (size_t have = n; have < whole;) { /* doubles what is there */
        size_t more = MIN(have, whole - have);
        memcpy(out + have, out, more);
        have += more;
    }
    lua_pushlstring(L, out, whole);
    return 1;
}

int script_open_string(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"find", string_find}, {"match", string_match}, {"gmatch", string_gmatch}, {"gfind", string_gmatch},
        {"gsub", string_gsub}, {"rep", string_rep}, {NULL, NULL},
    };
    lua_getglobal(L, "string");
    luaL_register(L, NULL, functions);
    lua_pop(L, 1);
    return 0;
}
