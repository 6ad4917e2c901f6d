/* struct: numbers and strings as the bytes of C structures.
 *
 *   < > !n       little endian (the default), big endian, alignment to at most n (a power of 2; or 8)
 *   b B h H l L  signed and unsigned integers of 1, 2, 8 bytes; i I of 4, iN IN of N; T: size_t
 *   f d          float, double         x   a zero byte         s   a string up to its zero
 *   cN           N bytes; c0: as many as the string has, or as the number just read says
 *
 * Sizes come from the format and from the data; both are checked before anything is read or written. */
#include "script/lua_libs.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

#define MAX_INTEGER 32 /* bytes */
#define DEFAULT_ALIGN 8

struct format {
    lua_State *L;
    const char *at;
    bool big;
    int align;
};

static struct format format_of(lua_State *L)
{
    return (struct format){.L = L, .at = luaL_checkstring(L, 1), .align = 1};
}

/* The number that follows an option, if one does. */
static int number(struct format *f, int missing)
{
    if (!isdigit((u8)*f->at)) return missing;
    int n = 0;
    for (; isdigit((u8)*f->at); f->at++) {
        int digit = *f->at - '0';
        if (n > INT_MAX / 10 || n * 10 > INT_MAX - digit) luaL_error(f->L, "integral size overflow");
        n = n * 10 + digit;
    }
    return n;
}

/* The size of an option in bytes; 0 for those that have none, or none of their own. */
static size_t lua_struct_size_of(struct format *f, char option)
{
    switch (option) {
    case 'b': case 'B': case 'x': return 1;
    case 'h': case 'H': return 2;
    case 'f': return 4;
    case 'l': case 'L': case 'T': case 'd': return 8;
    case 'c': return (size_t)number(f, 1);
    case 'i': case 'I': {
        int n = number(f, 4);
        if (n > MAX_INTEGER) luaL_error(f->L, "integral size %d is larger than limit of %d", n, MAX_INTEGER);
        return (size_t)n;
    }
    default: return 0;
    }
}

/* Zero bytes before something of this size. */
static size_t padding(const struct format *f, char option, size_t size, size_t at)
{
    size_t to = MIN(size, (size_t)f->align);
    if (to <= 1 || option == 'c') return 0;
    return (to - (at & (to - 1))) & (to - 1);
}

/* An option that takes no bytes. */
static void control(struct format *f, char option)
{
    switch (option) {
    case ' ': return;
    case '<': f->big = false; return;
    case '>': f->big = true; return;
    case '!': {
        int n = number(f, DEFAULT_ALIGN);
        if (n <= 0 || (n & (n - 1)) != 0) luaL_error(f->L, "alignment %d is not a power of 2", n);
        f->align = n;
        return;
    }
    default: luaL_argerror(f->L, 1, lua_pushfstring(f->L, "invalid format option '%c'", option));
    }
}

/* -- packing ----------------------------------------------------------------------------------- */

/* Integers wrap around; values out of range are converted as x86 does. */
static u64 integer_of(double n)
{
    if (n < 0) return n >= -0x1p63 ? (u64)(i64)n : (u64)1 << 63;
    if (n < 0x1p64) return (u64)n;
    return n >= 0x1p64 ? 0 : (u64)1 << 63; /* not a number */
}

static void lua_struct_put_integer(struct lua_out *o, const struct format *f, u64 value, size_t size)
{
    char *p = lua_out_reserve(o, size);
    for (size_t i = 0; i < size; i++, value >>= 8) p[f->big ? size - 1 - i : i] = (char)value;
    o->n += size;
}

static void put_real(struct lua_out *o, const struct format *f, double value, size_t size)
{
    u64 image = 0;
    float narrow = (float)value;
    if (size == 4) memcpy(&image, &narrow, 4);
    else memcpy(&image, &value, 8);
    lua_struct_put_integer(o, f, image, size);
}

static void lua_struct_put_string(struct lua_out *o, char option, size_t size, int *arg)
{
    size_t n;
    const char *s = luaL_checklstring(o->L, (*arg)++, &n);
    if (size == 0) size = n;
    luaL_argcheck(o->L, n >= size, *arg, "string too short");
    lua_out_append(o, s, size);
    if (option == 's') lua_out_char(o, '\0');
}

static int struct_pack(lua_State *L)
{
    struct format f = format_of(L);
    int arg = 2;
    lua_pushnil(L); /* for reads past the last argument */
    struct lua_out o;
    lua_out_begin(&o, L);
    while (*f.at != '\0') {
        char option = *f.at++;
        size_t size = lua_struct_size_of(&f, option);
        for (size_t pad = padding(&f, option, size, o.n); pad > 0; pad--) lua_out_char(&o, '\0');
        switch (option) {
        case 'b': case 'B': case 'h': case 'H': case 'l': case 'L': case 'T': case 'i': case 'I':
            lua_struct_put_integer(&o, &f, integer_of(luaL_checknumber(L, arg++)), size);
            break;
        case 'f': case 'd': put_real(&o, &f, luaL_checknumber(L, arg++), size); break;
        case 'x': lua_out_char(&o, '\0'); break;
        case 'c': case 's': lua_struct_put_string(&o, option, size, &arg); break;
        default: control(&f, option);
        }
    }
    lua_out_push(&o);
    return 1;
}

/* -- unpacking --------------------------------------------------------------------------------- */

static u64 get_integer(const struct format *f, const char *p, size_t size)
{
    u64 value = 0;
    for (size_t i = 0; i < size; i++) value = value << 8 | (u8)p[f->big ? i : size - 1 - i];
    return value;
}

/* Of integers wider than eight bytes the low ones count, and the sign is where Redis's shift puts it. */
static i64 with_sign(u64 value, size_t size)
{
    u64 mask = ~(u64)0 << ((size * 8 - 1) & 63);
    return (i64)((value & mask) ? value | mask : value);
}

static double get_real(const struct format *f, const char *p, size_t size)
{
    u64 image = get_integer(f, p, size);
    float narrow;
    double wide;
    memcpy(&narrow, &image, 4);
    memcpy(&wide, &image, 8);
    return size == 4 ? narrow : wide;
}

struct data {
    const char *p;
    size_t n, at;
};

static void need(lua_State *L, const struct data *d, size_t size)
{
    luaL_argcheck(L, size <= d->n && d->at <= d->n - size, 2, "data string too short");
}

/* c0: the number just read is the length, and is replaced by the string. */
static size_t size_read(lua_State *L, int results)
{
    if (results == 0 || !lua_isnumber(L, -1)) luaL_error(L, "format 'c0' needs a previous size");
    size_t n = integer_of(lua_tonumber(L, -1));
    lua_pop(L, 1);
    return n;
}

/* Pushes what the option reads. Returns how many results there are now. */
static int lua_struct_get(lua_State *L, struct format *f, char option, size_t size, struct data *d,
                          int results)
{
    const char *p = d->p + d->at;
    switch (option) {
    case 'b': case 'h': case 'l': case 'i':
        lua_pushnumber(L, (double)with_sign(get_integer(f, p, size), size));
        return results + 1;
    case 'B': case 'H': case 'L': case 'T': case 'I':
        lua_pushnumber(L, (double)get_integer(f, p, size));
        return results + 1;
    case 'f': case 'd': lua_pushnumber(L, get_real(f, p, size)); return results + 1;
    case 'x': return results;
    default: lua_pushlstring(L, p, size); return results + 1;
    }
}

static size_t string_end(lua_State *L, const struct data *d)
{
    const char *end = memchr(d->p + d->at, '\0', d->n - d->at);
    if (end == NULL) luaL_error(L, "unfinished string in data");
    return (size_t)(end - (d->p + d->at));
}

static int struct_unpack(lua_State *L)
{
    struct format f = format_of(L);
    struct data d;
    d.p = luaL_checklstring(L, 2, &d.n);
    d.at = (size_t)luaL_optinteger(L, 3, 1);
    luaL_argcheck(L, d.at > 0, 3, "offset must be 1 or greater");
    d.at--;
    lua_settop(L, 2);
    int results = 0;
    while (*f.at != '\0') {
        char option = *f.at++;
        size_t size = lua_struct_size_of(&f, option);
        size_t pad = padding(&f, option, size, d.at);
        luaL_argcheck(L, d.at <= SIZE_MAX - pad, 2, "data string too short");
        d.at += pad;
        need(L, &d, size);
        if (size == 0 && strchr("csiI", option) == NULL) {
            control(&f, option);
            continue;
        }
        luaL_checkstack(L, 2, "too many results");
        if (option == 'c' && size == 0) {
            size = size_read(L, results--);
            need(L, &d, size);
        }
        if (option == 's') size = string_end(L, &d);
        results = lua_struct_get(L, &f, option, size, &d, results);
        d.at += size + (option == 's');
    }
    lua_pushnumber(L, (double)d.at + 1);
    return results + 1;
}

static int struct_size(lua_State *L)
{
    struct format f = format_of(L);
    size_t total = 0;
    while (*f.at != '\0') {
        char option = *f.at++;
        size_t size = lua_struct_size_of(&f, option);
        total += padding(&f, option, size, total);
        if (option == 's') luaL_argerror(L, 1, "option 's' has no fixed size");
        if (option == 'c' && size == 0) luaL_argerror(L, 1, "option 'c0' has no fixed size");
        if (!isalnum((u8)option)) control(&f, option);
        total += size;
    }
    lua_pushnumber(L, (double)total);
    return 1;
}

int script_open_struct(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"pack", struct_pack}, {"unpack", struct_unpack}, {"size", struct_size}, {NULL, NULL},
    };
    luaL_register(L, "struct", functions);
    lua_pop(L, 1);
    return 0;
}
