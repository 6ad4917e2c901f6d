/* Converts Lua values to replies and back, by Redis's rules.
 *
 * A script's result is walked raw, without metatables, as deep as Lua's stack reaches; a value nested deeper
 * is replaced by an error. */
#include <math.h>

#include "script/script_vm.h"

#define COUNTED "ignore_error_stats_update" /* an error's field: it is in the statistics already */

/* -- Lua to RESP ------------------------------------------------------------------------------- */

/* Pushes the field of the table on top, if it has this type. */
static bool push_field(lua_State *L, const char *name, int type)
{
    lua_pushstring(L, name);
    lua_rawget(L, -2);
    if (lua_type(L, -1) == type) return true;
    lua_pop(L, 1);
    return false;
}

/* A line of the reply: the text with its line breaks replaced by spaces. */
static void convert_append_line(struct reply *out, const char *before, bytes text)
{
    buf_append_str(out->out, before);
    char *to = buf_reserve(out->out, text.n);
    for (size_t i = 0; i < text.n; i++) to[i] = text.p[i] == '\r' || text.p[i] == '\n' ? ' ' : text.p[i];
    out->out->n += text.n;
    buf_append_str(out->out, "\r\n");
}

void script_reply_error(lua_State *L, int error, struct reply *out, const char *text)
{
    size_t last = out->error_at;
    reply_errorf(out, "%s", text);
    lua_pushliteral(L, COUNTED);
    lua_rawget(L, error);
    if (lua_isboolean(L, -1) && lua_toboolean(L, -1)) {
        out->counted++;
        out->error_at = last;
    }
    lua_pop(L, 1);
}

static bytes convert_string_at(lua_State *L, int index)
{
    size_t n;
    const char *p = lua_tolstring(L, index, &n);
    return bytes_of(p, n);
}

static void reply_big(struct reply *out, bytes digits)
{
    struct buf text = {0};
    if (out->proto > 2) {
        convert_append_line(out, "(", digits);
        return;
    }
    struct reply line = {.out = &text};
    convert_append_line(&line, "", digits);
    reply_bulk(out, bytes_of(text.p, digits.n));
    buf_release(&text);
}

/* Scripts may return numbers that no command replies (-nan); Redis shows their sign. */
static void reply_number(struct reply *out, double v)
{
    if (LIKELY(!isnan(v))) reply_double(out, v);
    else if (out->proto > 2) buf_append_str(out->out, signbit(v) ? ",-nan\r\n" : ",nan\r\n");
    else reply_bulk_str(out, signbit(v) ? "-nan" : "nan");
}

/* {map=…} and {set=…}, on top: keys, and values if there are any. */
static void reply_keys(lua_State *L, struct reply *out, bool values)
{
    size_t mark = reply_mark(out), n = 0;
    for (lua_pushnil(L); lua_next(L, -2); n++) {
        lua_pushvalue(L, -2);
        script_reply(L, out);
        if (values) script_reply(L, out);
        else lua_pop(L, 1);
    }
    if (values) reply_map_at(out, mark, n);
    else reply_set_at(out, mark, n);
}

/* {verbatim_string={string=, format=}}: the inner table is on top. */
static bool reply_verbatim_table(lua_State *L, struct reply *out)
{
    if (!push_field(L, "format", LUA_TSTRING)) return false;
    char format[4] = "   ";
    bytes given = convert_string_at(L, -1);
    memcpy(format, given.p, MIN(strlen(given.p), 3u));
    lua_pop(L, 1);
    if (!push_field(L, "string", LUA_TSTRING)) return false;
    reply_verbatim(out, convert_string_at(L, -1), format);
    lua_pop(L, 1);
    return true;
}

/* A table that represents a type of reply: one of its fields says which. The order is Redis's. */
static bool reply_special(lua_State *L, struct reply *out)
{
    bool done = true;
    if (push_field(L, "err", LUA_TSTRING)) script_reply_error(L, lua_gettop(L) - 1, out, lua_tostring(L, -1));
    else if (push_field(L, "ok", LUA_TSTRING)) convert_append_line(out, "+", bytes_str(lua_tostring(L, -1)));
    else if (push_field(L, "double", LUA_TNUMBER)) reply_number(out, lua_tonumber(L, -1));
    else if (push_field(L, "map", LUA_TTABLE)) reply_keys(L, out, true);
    else if (push_field(L, "set", LUA_TTABLE)) reply_keys(L, out, false);
    else if (push_field(L, "big_number", LUA_TSTRING)) reply_big(out, convert_string_at(L, -1));
    else if (push_field(L, "verbatim_string", LUA_TTABLE)) done = reply_verbatim_table(L, out);
    else return false;
    lua_pop(L, 1);
    return done;
}

static void reply_table(lua_State *L, struct reply *out)
{
    size_t mark, n = 0;
    if (reply_special(L, out)) return;
    mark = reply_mark(out);
    for (;; n++) {
        lua_rawgeti(L, -1, (int)n + 1);
        if (lua_isnil(L, -1)) break;
        script_reply(L, out);
    }
    lua_pop(L, 1);
    reply_array_at(out, mark, n);
}

static i64 truncated(double v)
{
    const double limit = 9223372036854775808.0;
    return v >= -limit && v < limit ? (i64)v : INT64_MIN; /* as x86 converts */
}

void script_reply(lua_State *L, struct reply *out)
{
    const struct script_run *run = script_vm_of(L)->run;
    if (!lua_checkstack(L, 5)) {
        reply_error(out, "ERR reached lua stack limit");
        lua_pop(L, 1);
        return;
    }
    switch (lua_type(L, -1)) {
    case LUA_TSTRING: reply_bulk(out, convert_string_at(L, -1)); break;
    case LUA_TNUMBER: reply_int(out, truncated(lua_tonumber(L, -1))); break;
    case LUA_TTABLE: reply_table(L, out); break;
    case LUA_TBOOLEAN:
        if (run && run->proto > 2) reply_bool(out, lua_toboolean(L, -1));
        else if (lua_toboolean(L, -1)) reply_int(out, 1);
        else reply_null(out);
        break;
    default: reply_null(out);
    }
    lua_pop(L, 1);
}

/* -- RESP to Lua ------------------------------------------------------------------------------- */

/* Takes the rest of the line. Our own replies are well-formed. */
static bytes take_line(bytes *in)
{
    const char *end = memchr(in->p, '\r', in->n);
    bytes line = bytes_of(in->p, (size_t)(end - in->p));
    *in = bytes_of(end + 2, in->n - line.n - 2);
    return line;
}

static bytes convert_take_bulk(bytes *in, i64 n)
{
    bytes b = bytes_of(in->p, (size_t)n);
    *in = bytes_of(in->p + n + 2, in->n - (size_t)n - 2);
    return b;
}

static void push_bytes(lua_State *L, bytes b) { lua_pushlstring(L, b.p, b.n); }

static void push_tagged(lua_State *L, const char *tag, bytes b)
{
    lua_createtable(L, 0, 1);
    push_bytes(L, b);
    lua_setfield(L, -2, tag);
}

static void push_one(lua_State *L, bytes *in);

static void push_array(lua_State *L, bytes *in, i64 n)
{
    lua_createtable(L, (int)MIN(n, INT32_MAX), 0);
    for (i64 i = 1; i <= n; i++) {
        push_one(L, in);
        lua_rawseti(L, -2, (int)i);
    }
}

/* {map={…}}, {set={element=true}} */
static void push_keyed(lua_State *L, bytes *in, i64 n, const char *tag, bool values)
{
    lua_createtable(L, 0, 1);
    lua_createtable(L, 0, (int)MIN(n, INT32_MAX));
    for (i64 i = 0; i < n; i++) {
        push_one(L, in);
        if (values) push_one(L, in);
        else lua_pushboolean(L, 1);
        if (lua_isnil(L, -2)) lua_pop(L, 2); /* nil can't be a key */
        else lua_rawset(L, -3);
    }
    lua_setfield(L, -2, tag);
}

static void push_verbatim(lua_State *L, bytes b)
{
    lua_createtable(L, 0, 1);
    lua_createtable(L, 0, 2);
    lua_pushlstring(L, b.p, 3);
    lua_setfield(L, -2, "format");
    lua_pushlstring(L, b.p + 4, b.n - 4);
    lua_setfield(L, -2, "string");
    lua_setfield(L, -2, "verbatim_string");
}

static void push_error_reply(lua_State *L, bytes text)
{
    push_tagged(L, "err", text);
    lua_pushboolean(L, 1); /* the failed command has been counted */
    lua_setfield(L, -2, COUNTED);
}

static void push_double(lua_State *L, bytes text)
{
    double v = 0;
    /* cppcheck-suppress duplicateExpression ; a NaN */
    if (!num_parse_double(text, &v)) v = 0.0 / 0.0; /* the only thing it refuses in our own output */
    lua_createtable(L, 0, 1);
    lua_pushnumber(L, v);
    lua_setfield(L, -2, "double");
}

/* Attributes are skipped: the reply they belong to follows. */
static void push_without_attributes(lua_State *L, bytes *in, i64 pairs)
{
    for (i64 i = 0; i < 2 * pairs; i++) {
        push_one(L, in);
        lua_pop(L, 1);
    }
    push_one(L, in);
}

/* A type that begins with a count; -1 is RESP2's null. */
static void push_counted(lua_State *L, char type, i64 n, bytes *in)
{
    if (n < 0) {
        lua_pushboolean(L, 0);
        return;
    }
    switch (type) {
    case '$': push_bytes(L, convert_take_bulk(in, n)); break;
    case '=': push_verbatim(L, convert_take_bulk(in, n)); break;
    case '%': push_keyed(L, in, n, "map", true); break;
    case '~': push_keyed(L, in, n, "set", false); break;
    case '|': push_without_attributes(L, in, n); break;
    default: push_array(L, in, n); break;
    }
}

static void push_one(lua_State *L, bytes *in)
{
    char type = in->p[0];
    i64 n = 0;
    luaL_checkstack(L, 6, "reply is nested too deeply");
    *in = bytes_of(in->p + 1, in->n - 1);
    bytes line = take_line(in);
    switch (type) {
    case '+': push_tagged(L, "ok", line); break;
    case '-': push_error_reply(L, line); break;
    case ',': push_double(L, line); break;
    case '(': push_tagged(L, "big_number", line); break;
    case '#': lua_pushboolean(L, line.p[0] == 't'); break;
    case '_': lua_pushnil(L); break;
    case ':':
        if (!num_parse_i64(line, &n)) n = 0;
        lua_pushnumber(L, (lua_Number)n);
        break;
    default:
        if (!num_parse_i64(line, &n)) n = -1;
        push_counted(L, type, n, in);
    }
}

void script_push_reply(lua_State *L, bytes resp)
{
    if (resp.n) push_one(L, &resp);
    else lua_pushboolean(L, 0); /* a command without a reply */
}
