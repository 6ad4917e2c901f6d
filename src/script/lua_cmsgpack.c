/* cmsgpack: encodes and decodes MessagePack. Numbers without a fraction are packed as integers, others as
 * floats if that is exact. Tables with the keys 1 to n are arrays, others are maps; values nested deeper than
 * MAX_NESTING, and those MessagePack can't represent, become nil. Binaries and extensions are not read. */
#include "script/lua_libs.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#define MAX_NESTING 16

/* -- packing ----------------------------------------------------------------------------------- */

/* A first byte and a big-endian number of `size` bytes. */
static void msgpack_put(struct lua_out *o, u8 tag, u64 value, int size)
{
    char *p = lua_out_reserve(o, 9);
    p[0] = (char)tag;
    for (int i = size; i > 0; i--, value >>= 8) p[i] = (char)value;
    o->n += 1 + (size_t)size;
}

static void msgpack_put_integer(struct lua_out *o, i64 n)
{
    if (n >= 0) {
        if (n <= 127) msgpack_put(o, (u8)n, 0, 0);
        else if (n <= UINT8_MAX) msgpack_put(o, 0xcc, (u64)n, 1);
        else if (n <= UINT16_MAX) msgpack_put(o, 0xcd, (u64)n, 2);
        else if (n <= UINT32_MAX) msgpack_put(o, 0xce, (u64)n, 4);
        else msgpack_put(o, 0xcf, (u64)n, 8);
    } else {
        if (n >= -32) msgpack_put(o, (u8)n, 0, 0);
        else if (n >= INT8_MIN) msgpack_put(o, 0xd0, (u64)n, 1);
        else if (n >= INT16_MIN) msgpack_put(o, 0xd1, (u64)n, 2);
        else if (n >= INT32_MIN) msgpack_put(o, 0xd2, (u64)n, 4);
        else msgpack_put(o, 0xd3, (u64)n, 8);
    }
}

static void msgpack_put_number(struct lua_out *o, double n)
{
    /* cppcheck-suppress incorrectLogicOperator ; it can't read such numbers */
    if (n >= -0x1p63 && n < 0x1p63 && n == floor(n)) {
        msgpack_put_integer(o, (i64)n);
        return;
    }
    float narrow = (float)n;
    u32 image;
    u64 wide_image;
    memcpy(&image, &narrow, sizeof image);
    memcpy(&wide_image, &n, sizeof wide_image);
    if (narrow == n) msgpack_put(o, 0xca, image, 4);
    else msgpack_put(o, 0xcb, wide_image, 8);
}

static void msgpack_put_string(struct lua_out *o, const char *s, size_t n)
{
    if (n < 32) msgpack_put(o, (u8)(0xa0 | n), 0, 0);
    else if (n <= UINT8_MAX) msgpack_put(o, 0xd9, n, 1);
    else if (n <= UINT16_MAX) msgpack_put(o, 0xda, n, 2);
    else msgpack_put(o, 0xdb, n, 4); /* longer ones are refused before: LUA_OUT_MAX */
    lua_out_append(o, s, n);
}

static void put_count(struct lua_out *o, bool array, size_t n)
{
    if (n < 16) msgpack_put(o, (u8)((array ? 0x90 : 0x80) | n), 0, 0);
    else if (n <= UINT16_MAX) msgpack_put(o, array ? 0xdc : 0xde, n, 2);
    else msgpack_put(o, array ? 0xdd : 0xdf, n, 4);
}

/* How many entries the table on top has, and whether their keys are 1 to that number. */
static size_t count_entries(lua_State *L, bool *array)
{
    size_t count = 0;
    double last = 0;
    *array = true;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        count++;
        double key = lua_type(L, -2) == LUA_TNUMBER ? lua_tonumber(L, -2) : 0;
        if (key >= 1 && key == floor(key)) last = fmax(last, key);
        else *array = false;
    }
    if (last != (double)count) *array = false;
    return count;
}

static void msgpack_put_value(struct lua_out *o, int level);

/* The table on top. */
static void msgpack_put_table(struct lua_out *o, int level)
{
    lua_State *L = o->L;
    luaL_checkstack(L, 4, "in function mp_encode_lua_table");
    bool array;
    size_t n = count_entries(L, &array);
    put_count(o, array, n);
    if (array) {
        for (size_t i = 1; i <= n; i++) {
            lua_rawgeti(L, -1, (int)i);
            msgpack_put_value(o, level + 1);
        }
        return;
    }
    lua_pushnil(L);
    while (lua_next(L, -2)) {
        lua_pushvalue(L, -2);
        msgpack_put_value(o, level + 1);
        msgpack_put_value(o, level + 1);
    }
}

/* Pops the value on top. */
static void msgpack_put_value(struct lua_out *o, int level)
{
    lua_State *L = o->L;
    int type = lua_type(L, -1);
    if (type == LUA_TTABLE && level == MAX_NESTING) type = LUA_TNIL;
    lua_work(L, &o->work);
    size_t n;
    const char *s;
    switch (type) {
    case LUA_TSTRING:
        s = lua_tolstring(L, -1, &n);
        msgpack_put_string(o, s, n);
        break;
    case LUA_TBOOLEAN: msgpack_put(o, lua_toboolean(L, -1) ? 0xc3 : 0xc2, 0, 0); break;
    case LUA_TNUMBER: msgpack_put_number(o, lua_tonumber(L, -1)); break;
    case LUA_TTABLE: msgpack_put_table(o, level); break;
    default: msgpack_put(o, 0xc0, 0, 0);
    }
    lua_pop(L, 1);
}

static int msgpack_pack(lua_State *L)
{
    int count = lua_gettop(L);
    if (count == 0) return luaL_argerror(L, 0, "MessagePack pack needs input.");
    struct lua_out o;
    lua_out_begin(&o, L);
    luaL_checkstack(L, 1, "too many arguments");
    for (int i = 1; i <= count; i++) {
        lua_pushvalue(L, i);
        msgpack_put_value(&o, 0);
    }
    lua_out_push(&o);
    return 1;
}

/* -- unpacking --------------------------------------------------------------------------------- */

struct input {
    lua_State *L;
    const u8 *p;
    size_t left;
    u32 work;
};

static const u8 *msgpack_take(struct input *in, size_t n)
{
    if (in->left < n) luaL_error(in->L, "Missing bytes in input.");
    const u8 *p = in->p;
    in->p += n;
    in->left -= n;
    return p;
}

static u64 msgpack_take_number(struct input *in, size_t size)
{
    const u8 *p = msgpack_take(in, size);
    u64 n = 0;
    for (size_t i = 0; i < size; i++) n = n << 8 | p[i];
    return n;
}

static i64 take_signed(struct input *in, size_t size)
{
    u32 unused = 64 - 8 * (u32)size;
    return (i64)(msgpack_take_number(in, size) << unused) >> unused;
}

static void get_string(struct input *in, size_t n)
{
    const u8 *p = msgpack_take(in, n);
    lua_pushlstring(in->L, (const char *)p, n);
}

static void get_value(struct input *in);

static void get_array(struct input *in, size_t n)
{
    lua_newtable(in->L);
    luaL_checkstack(in->L, 1, "in function mp_decode_to_lua_array");
    for (size_t i = 1; i <= n; i++) {
        lua_pushnumber(in->L, (double)i);
        get_value(in);
        lua_rawset(in->L, -3);
    }
}

static void get_map(struct input *in, size_t n)
{
    lua_newtable(in->L);
    for (size_t i = 0; i < n; i++) {
        get_value(in);
        get_value(in);
        lua_rawset(in->L, -3); /* raises for keys no table can have */
    }
}

static void get_float(struct input *in)
{
    u32 image = (u32)msgpack_take_number(in, 4);
    float f;
    memcpy(&f, &image, sizeof f);
    lua_pushnumber(in->L, f);
}

static void get_double(struct input *in)
{
    u64 image = msgpack_take_number(in, 8);
    double d;
    memcpy(&d, &image, sizeof d);
    lua_pushnumber(in->L, d);
}

/* A value whose first byte is only its type. */
static void get_tagged(struct input *in, u8 tag)
{
    lua_State *L = in->L;
    switch (tag) {
    case 0xc0: lua_pushnil(L); return;
    case 0xc2: case 0xc3: lua_pushboolean(L, tag == 0xc3); return;
    case 0xca: get_float(in); return;
    case 0xcb: get_double(in); return;
    case 0xcc: lua_pushnumber(L, (double)msgpack_take_number(in, 1)); return;
    case 0xcd: lua_pushnumber(L, (double)msgpack_take_number(in, 2)); return;
    case 0xce: lua_pushnumber(L, (double)msgpack_take_number(in, 4)); return;
    case 0xcf: /* Redis reads these as signed, too */
    case 0xd3: lua_pushnumber(L, (double)take_signed(in, 8)); return;
    case 0xd0: lua_pushnumber(L, (double)take_signed(in, 1)); return;
    case 0xd1: lua_pushnumber(L, (double)take_signed(in, 2)); return;
    case 0xd2: lua_pushnumber(L, (double)take_signed(in, 4)); return;
    case 0xd9: get_string(in, msgpack_take_number(in, 1)); return;
    case 0xda: get_string(in, msgpack_take_number(in, 2)); return;
    case 0xdb: get_string(in, msgpack_take_number(in, 4)); return;
    case 0xdc: get_array(in, msgpack_take_number(in, 2)); return;
    case 0xdd: get_array(in, msgpack_take_number(in, 4)); return;
    case 0xde: get_map(in, msgpack_take_number(in, 2)); return;
    case 0xdf: get_map(in, msgpack_take_number(in, 4)); return;
    default: luaL_error(L, "Bad data format in input.");
    }
}

/* Pushes the next value. */
static void get_value(struct input *in)
{
    luaL_checkstack(in->L, 1, "too many return values at once; use unpack_one or unpack_limit instead.");
    u8 tag = *msgpack_take(in, 1);
    lua_work(in->L, &in->work);
    if (tag <= 0x7f || tag >= 0xe0) lua_pushnumber(in->L, (signed char)tag);
    else if (tag <= 0x8f) get_map(in, tag & 15);
    else if (tag <= 0x9f) get_array(in, tag & 15);
    else if (tag <= 0xbf) get_string(in, tag & 31);
    else get_tagged(in, tag);
}

/* Up to `limit` values from `offset` on; if neither is given, all of them, and no next offset is returned. */
static int unpack_some(lua_State *L, lua_Integer limit, lua_Integer offset)
{
    size_t n;
    const char *s = luaL_checklstring(L, 1, &n);
    if (offset < 0 || limit < 0)
        return luaL_error(L, "Invalid request to unpack with offset of %d and limit of %d.",
                          (int)offset, (int)n);
    if ((size_t)offset > n)
        return luaL_error(L, "Start offset %d greater than input length %d.", (int)offset, (int)n);
    bool all = limit == 0 && offset == 0;
    if (all) limit = INT_MAX;
    struct input in = {.L = L, .p = (const u8 *)s + offset, .left = n - (size_t)offset};
    int count = 0;
    for (; in.left > 0 && count < limit; count++) get_value(&in);
    if (all) return count;
    luaL_checkstack(L, 1, "too many return values at once");
    lua_pushnumber(L, in.left == 0 ? -1 : (double)(n - in.left));
    lua_insert(L, 2);
    return count + 1;
}

static int msgpack_unpack(lua_State *L) { return unpack_some(L, 0, 0); }

static int msgpack_unpack_one(lua_State *L)
{
    lua_Integer offset = luaL_optinteger(L, 2, 0);
    if (lua_gettop(L) > 1) lua_settop(L, 1);
    return unpack_some(L, 1, offset);
}

static int msgpack_unpack_limit(lua_State *L)
{
    lua_Integer limit = luaL_checkinteger(L, 2), offset = luaL_optinteger(L, 3, 0);
    lua_settop(L, 1);
    return unpack_some(L, limit, offset);
}

int script_open_cmsgpack(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"pack", msgpack_pack}, {"unpack", msgpack_unpack}, {"unpack_one", msgpack_unpack_one},
        {"unpack_limit", msgpack_unpack_limit}, {NULL, NULL},
    };
    luaL_register(L, "cmsgpack", functions);
    lua_pushliteral(L, "cmsgpack");
    lua_setfield(L, -2, "_NAME");
    lua_pushliteral(L, "lua-cmsgpack 0.4.0"); /* the version that is imitated: scripts may check it */
    lua_setfield(L, -2, "_VERSION");
    lua_pushliteral(L, "Copyright (C) 2012, Salvatore Sanfilippo");
    lua_setfield(L, -2, "_COPYRIGHT");
    lua_pushliteral(L, "MessagePack C implementation for Lua");
    lua_setfield(L, -2, "_DESCRIPTION");
    lua_pop(L, 1);
    return 0;
}
