/* The libraries scripts have besides Lua's own: cjson, cmsgpack, bit and struct, with the behaviour of those
 * in Redis 7.0. They know nothing of Mayfly.
 *
 * Whatever a script passes in, they neither crash nor recurse without bound (nesting is limited by counters
 * and by Lua's own stack), and all memory they use is Lua's: it counts against the interpreter's limit, and
 * is collected after an error. None of them calls back into Lua, except for the hook: see lua_work. */
#ifndef MAYFLY_SCRIPT_LUA_LIBS_H
#define MAYFLY_SCRIPT_LUA_LIBS_H

#include <lauxlib.h>
#include <lua.h>

#include "base/types.h"

/* Each sets its table as a global of the state, and leaves nothing on the stack. */
int script_open_cjson(lua_State *L);
int script_open_cmsgpack(lua_State *L);
int script_open_bit(lua_State *L);
int script_open_struct(lua_State *L);

/* Replacements, in the tables `string` and `table`, for those of Lua's own functions that may take long, so
 * that they can be interrupted. */
int script_open_string(lua_State *L);
int script_open_sort(lua_State *L);

/* Call it for every value, with a count: from time to time it calls the state's hook, if there is one, as Lua
 * does for its instructions. The hook ends long scripts: it may raise an error. */
void lua_work_hook(lua_State *L);
static inline void lua_work(lua_State *L, u32 *done)
{
    if (UNLIKELY((++*done & 0xffff) == 0)) lua_work_hook(L);
}

/* -- text being built (lua_out.c) -------------------------------------------------------------- */

#define LUA_OUT_MAX ((size_t)512 << 20) /* bytes; longer output is an error */

/* Bytes in a userdata in one slot of the stack. luaL_Buffer would need the top of the stack. */
struct lua_out {
    lua_State *L;
    int slot;
    char *p;
    size_t n, cap;
    u32 work; /* of the code that builds it */
};

void lua_out_begin(struct lua_out *o, lua_State *L);        /* pushes the slot */
char *lua_out_reserve(struct lua_out *o, size_t more);      /* room for so many; the caller adds to o->n */
void lua_out_append(struct lua_out *o, const void *p, size_t n);
void lua_out_text(struct lua_out *o, const char *text);
void lua_out_push(struct lua_out *o);                       /* replaces the slot by the text as a string */

static inline void lua_out_char(struct lua_out *o, char c)
{
    if (UNLIKELY(o->n == o->cap)) lua_out_reserve(o, 1);
    o->p[o->n++] = c;
}

/* -- cjson: what both halves need -------------------------------------------------------------- */

struct json_options {
    int sparse_convert, sparse_ratio, sparse_safe;
    int encode_depth, decode_depth;
    int encode_invalid;   /* 0: an error, 1: as they print, 2: null */
    int decode_invalid;   /* 1: nan, inf, hexadecimal are numbers */
    int keep_buffer;      /* can be read back; has no effect */
    int precision;        /* digits */
};

/* Each works on the value at the bottom of the stack and leaves its result on top. */
void json_encode(lua_State *L, const struct json_options *opt);
void json_decode(lua_State *L, const struct json_options *opt);

#endif
