/* bit: operations on 32-bit integers, as LuaBitOp defines them. A number counts modulo 2^32, rounded to the
 * nearest integer (ties to even); results are signed. */
#include "script/lua_libs.h"

#include <string.h>

static u32 bits_at(lua_State *L, int arg)
{
    /* A number this large has no fraction bits: the low bits of the sum are the rounded integer's. */
    double sum = luaL_checknumber(L, arg) + 6755399441055744.0; /* 2^52 + 2^51 */
    u64 image;
    memcpy(&image, &sum, sizeof image);
    return (u32)image;
}

static int give(lua_State *L, u32 bits)
{
    lua_pushnumber(L, (i32)bits);
    return 1;
}

static int bit_tobit(lua_State *L) { return give(L, bits_at(L, 1)); }
static int bit_bnot(lua_State *L) { return give(L, ~bits_at(L, 1)); }
static int bit_bswap(lua_State *L) { return give(L, __builtin_bswap32(bits_at(L, 1))); }

static int bit_band(lua_State *L)
{
    u32 b = bits_at(L, 1);
    for (int i = lua_gettop(L); i > 1; i--) b &= bits_at(L, i);
    return give(L, b);
}

static int bit_bor(lua_State *L)
{
    u32 b = bits_at(L, 1);
    for (int i = lua_gettop(L); i > 1; i--) b |= bits_at(L, i);
    return give(L, b);
}

static int bit_bxor(lua_State *L)
{
    u32 b = bits_at(L, 1);
    for (int i = lua_gettop(L); i > 1; i--) b ^= bits_at(L, i);
    return give(L, b);
}

static u32 rotated(u32 b, u32 n) { return n == 0 ? b : b << n | b >> (32 - n); }

static int bit_lshift(lua_State *L)
{
    u32 b = bits_at(L, 1), n = bits_at(L, 2) & 31;
    return give(L, b << n);
}

static int bit_rshift(lua_State *L)
{
    u32 b = bits_at(L, 1), n = bits_at(L, 2) & 31;
    return give(L, b >> n);
}

static int bit_arshift(lua_State *L)
{
    u32 b = bits_at(L, 1), n = bits_at(L, 2) & 31;
    return give(L, (u32)((i32)b >> n));
}

static int bit_rol(lua_State *L)
{
    u32 b = bits_at(L, 1), n = bits_at(L, 2) & 31;
    return give(L, rotated(b, n));
}

static int bit_ror(lua_State *L)
{
    u32 b = bits_at(L, 1), n = bits_at(L, 2) & 31;
    return give(L, rotated(b, (32 - n) & 31));
}

/* The second argument is the number of digits; negative: upper case. */
static int bit_tohex(lua_State *L)
{
    u32 b = bits_at(L, 1);
    i64 n = lua_isnone(L, 2) ? 8 : (i32)bits_at(L, 2);
    const char *digits = n < 0 ? "0123456789ABCDEF" : "0123456789abcdef";
    n = MIN(n < 0 ? -n : n, 8);
    char text[8];
    for (i64 i = n; i-- > 0; b >>= 4) text[i] = digits[b & 15];
    lua_pushlstring(L, text, (size_t)n);
    return 1;
}

int script_open_bit(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"tobit", bit_tobit}, {"tohex", bit_tohex}, {"bnot", bit_bnot}, {"band", bit_band}, {"bor", bit_bor},
        {"bxor", bit_bxor}, {"lshift", bit_lshift}, {"rshift", bit_rshift}, {"arshift", bit_arshift},
        {"rol", bit_rol}, {"ror", bit_ror}, {"bswap", bit_bswap}, {NULL, NULL},
    };
    luaL_register(L, "bit", functions);
    lua_pop(L, 1);
    return 0;
}
