/* cjson: the module, its options and the encoder. The decoder is in lua_json_decode.c.
 *
 * Options belong to a module table (cjson.new makes another one) and last as long as the interpreter. A table
 * is an array if all its keys are integers from 1 on, and not too many of them are missing; an empty table is
 * an object. */
#include "script/lua_libs.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_PRECISION 14

/* -- encoding ---------------------------------------------------------------------------------- */

static void cannot(struct lua_out *o, int index, const char *why)
{
    luaL_error(o->L, "Cannot serialise %s: %s", luaL_typename(o->L, index), why);
}

static bool cjson_is_plain(u8 c) { return c >= 32 && c != '"' && c != '\\' && c != '/' && c != 127; }

static void put_escape(struct lua_out *o, u8 c)
{
    static const char *const from = "\"\\/\b\f\n\r\t", *const to = "\"\\/bfnrt";
    const char *found = c == 0 ? NULL : strchr(from, c);
    if (found == NULL) {
        o->n += (size_t)snprintf(lua_out_reserve(o, 8), 8, "\\u%04x", c);
    } else {
        lua_out_char(o, '\\');
        lua_out_char(o, to[found - from]);
    }
}

static void cjson_put_string(struct lua_out *o, int index)
{
    size_t n;
    const char *s = lua_tolstring(o->L, index, &n);
    lua_out_char(o, '"');
    for (size_t i = 0; i < n;) {
        size_t run = 0;
        while (i + run < n && cjson_is_plain((u8)s[i + run])) run++;
        lua_out_append(o, s + i, run);
        i += run;
        if (i < n) put_escape(o, (u8)s[i++]);
    }
    lua_out_char(o, '"');
}

static void cjson_put_number(struct lua_out *o, const struct json_options *opt, int index)
{
    double n = lua_tonumber(o->L, index);
    if (!isfinite(n) && opt->encode_invalid == 0) cannot(o, index, "must not be NaN or Inf");
    else if (!isfinite(n) && opt->encode_invalid == 2) lua_out_text(o, "null");
    else if (isnan(n)) lua_out_text(o, "nan"); /* whatever its sign */
    else o->n += (size_t)snprintf(lua_out_reserve(o, 32), 32, "%.*g", opt->precision, n);
}

/* The length of the table on top as an array, holes included; 0: it is an object. */
static int array_length(struct lua_out *o, const struct json_options *opt)
{
    lua_State *L = o->L;
    double last = 0;
    i64 count = 0;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        double key = lua_type(L, -2) == LUA_TNUMBER ? lua_tonumber(L, -2) : 0;
        if (!(key >= 1 && key <= INT_MAX && key == floor(key))) {
            lua_pop(L, 2);
            return 0;
        }
        last = fmax(last, key);
        count++;
    }
    if (opt->sparse_ratio > 0 && last > (double)count * opt->sparse_ratio && last > opt->sparse_safe) {
        if (!opt->sparse_convert) cannot(o, -1, "excessively sparse array");
        return 0;
    }
    return (int)last;
}

static void cjson_put_value(struct lua_out *o, const struct json_options *opt, int depth);

static void put_array(struct lua_out *o, const struct json_options *opt, int depth, int n)
{
    lua_out_char(o, '[');
    for (int i = 1; i <= n; i++) {
        if (i > 1) lua_out_char(o, ',');
        lua_rawgeti(o->L, -1, i);
        cjson_put_value(o, opt, depth);
        lua_pop(o->L, 1);
    }
    lua_out_char(o, ']');
}

static void put_key(struct lua_out *o, const struct json_options *opt)
{
    switch (lua_type(o->L, -2)) {
    case LUA_TSTRING: cjson_put_string(o, -2); break;
    case LUA_TNUMBER:
        lua_out_char(o, '"');
        cjson_put_number(o, opt, -2);
        lua_out_char(o, '"');
        break;
    default: cannot(o, -2, "table key must be a number or string");
    }
    lua_out_char(o, ':');
}

static void put_object(struct lua_out *o, const struct json_options *opt, int depth)
{
    bool first = true;
    lua_out_char(o, '{');
    for (lua_pushnil(o->L); lua_next(o->L, -2); lua_pop(o->L, 1)) {
        if (!first) lua_out_char(o, ',');
        first = false;
        put_key(o, opt);
        cjson_put_value(o, opt, depth);
    }
    lua_out_char(o, '}');
}

static void cjson_put_table(struct lua_out *o, const struct json_options *opt, int depth)
{
    /* a key, its value, and a larger buffer */
    if (depth > opt->encode_depth || !lua_checkstack(o->L, 3))
        luaL_error(o->L, "Cannot serialise, excessive nesting (%d)", depth);
    int n = array_length(o, opt);
    if (n > 0) put_array(o, opt, depth, n);
    else put_object(o, opt, depth);
}

/* Encodes the value on top, which stays there. */
static void cjson_put_value(struct lua_out *o, const struct json_options *opt, int depth)
{
    lua_work(o->L, &o->work);
    switch (lua_type(o->L, -1)) {
    case LUA_TSTRING: cjson_put_string(o, -1); break;
    case LUA_TNUMBER: cjson_put_number(o, opt, -1); break;
    case LUA_TBOOLEAN: lua_out_text(o, lua_toboolean(o->L, -1) ? "true" : "false"); break;
    case LUA_TTABLE: cjson_put_table(o, opt, depth + 1); break;
    case LUA_TNIL: lua_out_text(o, "null"); break;
    case LUA_TLIGHTUSERDATA:
        if (lua_touserdata(o->L, -1) == NULL) {
            lua_out_text(o, "null");
            break;
        } /* fall through */
    default: cannot(o, -1, "type not supported");
    }
}

void json_encode(lua_State *L, const struct json_options *opt)
{
    struct lua_out o;
    lua_out_begin(&o, L);
    lua_insert(L, 1); /* below the value */
    o.slot = 1;
    cjson_put_value(&o, opt, 0);
    lua_pop(L, 1);
    lua_out_push(&o);
}

/* -- options ----------------------------------------------------------------------------------- */

static struct json_options *options(lua_State *L, int most)
{
    if (most > 0) {
        luaL_argcheck(L, lua_gettop(L) <= most, most + 1, "found too many arguments");
        lua_settop(L, most);
    }
    return lua_touserdata(L, lua_upvalueindex(1));
}

/* Sets an option to the argument, unless that is nil, and pushes its value. */
static int integer_option(lua_State *L, int arg, int *option, int min, int max)
{
    if (!lua_isnil(L, arg)) {
        int n = (int)luaL_checkinteger(L, arg);
        const char *text = lua_pushfstring(L, "expected integer between %d and %d", min, max);
        luaL_argcheck(L, min <= n && n <= max, 1, text);
        *option = n;
    }
    lua_pushinteger(L, *option);
    return 1;
}

static const char *const switch_names[] = {"off", "on", NULL};
static const char *const invalid_names[] = {"off", "on", "null", NULL};

static int choice_option(lua_State *L, int arg, int *option, const char *const *names)
{
    if (lua_isboolean(L, arg)) *option = lua_toboolean(L, arg);
    else if (!lua_isnil(L, arg)) *option = luaL_checkoption(L, arg, NULL, names);
    if (*option <= 1) lua_pushboolean(L, *option);
    else lua_pushstring(L, names[*option]);
    return 1;
}

static int cjson_sparse_array(lua_State *L)
{
    struct json_options *opt = options(L, 3);
    choice_option(L, 1, &opt->sparse_convert, switch_names);
    integer_option(L, 2, &opt->sparse_ratio, 0, INT_MAX);
    integer_option(L, 3, &opt->sparse_safe, 0, INT_MAX);
    lua_pushboolean(L, opt->sparse_convert); /* the texts of ranges lie between those above */
    lua_pushinteger(L, opt->sparse_ratio);
    lua_pushinteger(L, opt->sparse_safe);
    return 3;
}

static int cjson_encode_depth(lua_State *L)
{
    return integer_option(L, 1, &options(L, 1)->encode_depth, 1, INT_MAX);
}

static int cjson_decode_depth(lua_State *L)
{
    return integer_option(L, 1, &options(L, 1)->decode_depth, 1, INT_MAX);
}

static int cjson_precision(lua_State *L)
{
    return integer_option(L, 1, &options(L, 1)->precision, 1, MAX_PRECISION);
}

static int cjson_keep_buffer(lua_State *L)
{
    return choice_option(L, 1, &options(L, 1)->keep_buffer, switch_names);
}

static int cjson_encode_invalid(lua_State *L)
{
    return choice_option(L, 1, &options(L, 1)->encode_invalid, invalid_names);
}

static int cjson_decode_invalid(lua_State *L)
{
    return choice_option(L, 1, &options(L, 1)->decode_invalid, switch_names);
}

/* -- the module -------------------------------------------------------------------------------- */

static int cjson_encode(lua_State *L)
{
    luaL_argcheck(L, lua_gettop(L) == 1, 1, "expected 1 argument");
    json_encode(L, options(L, 0));
    return 1;
}

static int cjson_decode(lua_State *L)
{
    luaL_argcheck(L, lua_gettop(L) == 1, 1, "expected 1 argument");
    json_decode(L, options(L, 0));
    return 1;
}

static int cjson_new(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"encode", cjson_encode}, {"decode", cjson_decode},
        {"encode_sparse_array", cjson_sparse_array}, {"encode_max_depth", cjson_encode_depth},
        {"decode_max_depth", cjson_decode_depth}, {"encode_number_precision", cjson_precision},
        {"encode_keep_buffer", cjson_keep_buffer}, {"encode_invalid_numbers", cjson_encode_invalid},
        {"decode_invalid_numbers", cjson_decode_invalid}, {"new", cjson_new},
    };
    lua_newtable(L);
    struct json_options *opt = lua_newuserdata(L, sizeof *opt);
    *opt = (struct json_options){
        .sparse_ratio = 2, .sparse_safe = 10, .encode_depth = 1000, .decode_depth = 1000,
        .decode_invalid = 1, .keep_buffer = 1, .precision = MAX_PRECISION,
    };
    for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
        lua_pushvalue(L, -1);
        lua_pushcclosure(L, functions[i].func, 1);
        lua_setfield(L, -3, functions[i].name);
    }
    lua_pop(L, 1);
    lua_pushlightuserdata(L, NULL);
    lua_setfield(L, -2, "null");
    lua_pushliteral(L, "cjson");
    lua_setfield(L, -2, "_NAME");
    lua_pushliteral(L, "2.1.0"); /* the version that is imitated: scripts may check it */
    lua_setfield(L, -2, "_VERSION");
    return 1;
}

int script_open_cjson(lua_State *L)
{
    cjson_new(L);
    lua_setglobal(L, "cjson");
    return 0;
}
