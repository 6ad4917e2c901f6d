/* Loading a library: its first line, and its code, which registers functions.
 *
 * Functions keep the environment they had when they were made, which is while the library is loaded. So the
 * environment is one table, empty and read-only, whose __index is switched between the globals for loading
 * and those of any script (switch_env). */
#include <ctype.h>

#include "script/functions.h"
#include "resp/request.h"

/* Registry keys: their addresses count. */
static const char ENV, BEHIND, LOAD_GLOBALS;

static void push_named(lua_State *L, const char *key)
{
    lua_pushlightuserdata(L, (void *)(uintptr_t)key);
    lua_rawget(L, LUA_REGISTRYINDEX);
}

/* Pops the value on top. */
static void keep_named(lua_State *L, const char *key)
{
    lua_pushlightuserdata(L, (void *)(uintptr_t)key);
    lua_insert(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
}

/* -- names ------------------------------------------------------------------------------------- */

#define BAD_NAME "Library names can only contain letters, numbers, or underscores(_) and must be at least " \
                 "one character long"

static bool is_name(bytes name)
{
    for (size_t i = 0; i < name.n; i++)
        if (!isalnum((u8)name.p[i]) && name.p[i] != '_') return false;
    return name.n > 0;
}

/* -- redis.register_function ------------------------------------------------------------------- */

static int function_load_fail(lua_State *L, const char *text)
{
    script_push_error(L, text);
    return script_raise(L);
}

/* The parsed arguments; the strings and the callback are on the stack at these indexes (0: not given). */
struct registration {
    int name, description, callback;
    u32 flags;
};

/* Reads the flags in the table on top, which stays there. False: one is unknown. */
static bool read_flags(lua_State *L, u32 *flags)
{
    for (int i = 1;; i++) {
        lua_rawgeti(L, -1, i);
        if (lua_isnil(L, -1)) break;
        size_t n;
        const char *word = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &n) : "";
        char lower[32];
        size_t at = 0;
        for (; at < sizeof lower - 1 && word[at]; at++) lower[at] = (char)tolower((u8)word[at]);
        u32 flag = script_flag(bytes_of(lower, at));
        if (!flag) return false;
        *flags |= flag;
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return true;
}

/* A named argument: its key is below its value, which is on top and stays there if it is needed later. NULL:
 * it was accepted. */
static const char *named_argument(lua_State *L, struct registration *g)
{
    bytes key = bytes_str(lua_tostring(L, -2));
    int at = lua_gettop(L);
    if (bytes_is(key, "function_name")) {
        if (!lua_isstring(L, -1))
            return "function_name argument given to redis.register_function must be a string";
        g->name = at;
    } else if (bytes_is(key, "description")) {
        if (!lua_isstring(L, -1))
            return "description argument given to redis.register_function must be a string";
        g->description = at;
    } else if (bytes_is(key, "callback")) {
        if (!lua_isfunction(L, -1))
            return "callback argument given to redis.register_function must be a function";
        g->callback = at;
    } else if (bytes_is(key, "flags")) {
        if (!lua_istable(L, -1))
            return "flags argument to redis.register_function must be a table representing function flags";
        if (!read_flags(L, &g->flags)) return "unknown flag given";
    } else {
        return "unknown argument given to redis.register_function";
    }
    return NULL;
}

static const char *named_arguments(lua_State *L, struct registration *g)
{
    if (!lua_istable(L, 1))
        return "calling redis.register_function with a single argument is only applicable to Lua table "
               "(representing named arguments).";
    lua_pushnil(L);
    while (lua_next(L, 1)) {
        if (!lua_isstring(L, -2))
            return "named argument key given to redis.register_function is not a string";
        lua_pushvalue(L, -2); /* a copy: lua_tostring would convert a number in place and confuse lua_next */
        lua_insert(L, -2);
        const char *error = named_argument(L, g);
        if (error) return error;
        lua_pushvalue(L, -3); /* key, its copy and value stay where they are */
        luaL_checkstack(L, 8, "too many arguments");
    }
    if (!g->name) return "redis.register_function must get a function name argument";
    if (!g->callback) return "redis.register_function must get a callback argument";
    return NULL;
}

static const char *two_arguments(lua_State *L, struct registration *g)
{
    if (!lua_isstring(L, 1)) return "first argument to redis.register_function must be a string";
    if (!lua_isfunction(L, 2)) return "second argument to redis.register_function must be a function";
    g->name = 1;
    g->callback = 2;
    return NULL;
}

static bytes function_load_string_at(lua_State *L, int index)
{
    size_t n;
    const char *p = lua_tolstring(L, index, &n);
    return bytes_of(p, n);
}

static int register_function(lua_State *L)
{
    struct functions *f = script_vm_of(L)->node->functions;
    struct registration g = {0};
    int args = lua_gettop(L);
    if (!f->loading)
        return function_load_fail(L, "redis.register_function can only be called on FUNCTION LOAD command");
    if (args < 1 || args > 2)
        return function_load_fail(L, "wrong number of arguments to redis.register_function");
    const char *error = args == 1 ? named_arguments(L, &g) : two_arguments(L, &g);
    if (error) return function_load_fail(L, error);
    bytes name = function_load_string_at(L, g.name), description = {0};
    if (g.description) description = function_load_string_at(L, g.description);
    if (!is_name(name)) return function_load_fail(L, BAD_NAME);
    if (library_find(f->loading, name))
        return function_load_fail(L, "Function already exists in the library");
    lua_pushvalue(L, g.callback);
    int ref = luaL_ref(L, LUA_REGISTRYINDEX); /* may raise: we hold no memory yet */
    library_add(f->loading, name.p, g.description ? &description : NULL, g.flags, ref);
    return 0;
}

/* -- the environment --------------------------------------------------------------------------- */

static int function_load_no_such_global(lua_State *L)
{
    const char *name = lua_tostring(L, 2);
    return luaL_error(L, "Script attempted to access nonexistent global variable '%s'", name ? name : "");
}

/* Makes reading a missing field of the table on top an error. */
static void close_table(lua_State *L)
{
    lua_newtable(L);
    lua_pushcfunction(L, function_load_no_such_global);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
}

/* { redis = { register_function, log, … } } */
static void push_load_globals(lua_State *L)
{
    static const char *const kept[] = {
        "log", "LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING", "REDIS_VERSION", "REDIS_VERSION_NUM",
    };
    lua_newtable(L);
    lua_newtable(L);
    script_push_api(L);
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        lua_getfield(L, -1, kept[i]);
        lua_setfield(L, -3, kept[i]);
    }
    lua_pop(L, 1);
    lua_pushcfunction(L, register_function);
    lua_setfield(L, -2, "register_function");
    close_table(L);
    lua_setfield(L, -2, "redis");
    close_table(L);
    script_freeze(L);
}

/* Switches what libraries see as their globals. */
static void switch_env(lua_State *L, bool loading)
{
    push_named(L, &BEHIND);
    if (loading) push_named(L, &LOAD_GLOBALS);
    else script_push_globals(L);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

/* Removes what EVAL has only for compatibility. */
static void trim_api(lua_State *L)
{
    static const char *const evals[] = {"breakpoint", "debug", "replicate_commands"};
    script_push_real_globals(L);
    script_push_api(L);
    for (size_t i = 0; i < ARRAY_LEN(evals); i++) {
        lua_pushnil(L);
        lua_setfield(L, -2, evals[i]);
    }
    script_freeze(L);
    lua_setfield(L, -2, "redis");
    lua_pop(L, 1);
}

void functions_open_env(struct functions *f)
{
    lua_State *L = f->vm.L;
    trim_api(L);
    push_load_globals(L);
    keep_named(L, &LOAD_GLOBALS);
    lua_newtable(L); /* always empty … */
    lua_newtable(L); /* … except for its metatable */
    lua_pushvalue(L, -1);
    keep_named(L, &BEHIND);
    lua_setmetatable(L, -2);
    script_freeze(L);
    keep_named(L, &ENV);
    switch_env(L, false);
}

/* -- the first line ---------------------------------------------------------------------------- */

struct header {
    struct buf name;
    bool named;
    size_t length; /* of the line, without its end */
};

/* "#!lua name=x", with words as in an inline request. */
static bool read_words(struct request_parser *p, bytes line, struct header *h, struct buf *error)
{
    if (!request_split_words(p, line) || p->argc == 0) {
        buf_append_str(error, "Invalid library metadata");
        return false;
    }
    for (u32 i = 1; i < p->argc; i++) {
        bytes word = bytes_of(p->words.p + p->argv[i].at, p->argv[i].n);
        if (word.n < 5 || !bytes_is(bytes_of(word.p, 5), "name=")) {
            buf_printf(error, "Invalid metadata value given: %.*s", (int)MIN(word.n, 1024u), word.p);
            return false;
        }
        if (h->named) {
            buf_append_str(error, "Invalid metadata value, name argument was given multiple times");
            return false;
        }
        h->named = true;
        buf_append(&h->name, word.p + 5, word.n - 5);
    }
    bytes engine = bytes_of(p->words.p + p->argv[0].at + 2, p->argv[0].n - 2);
    if (!h->named) buf_append_str(error, "Library name was not given");
    else if (!is_name(buf_bytes(&h->name))) buf_append_str(error, BAD_NAME);
    else if (!bytes_is(engine, "lua"))
        buf_printf(error, "Engine '%.*s' not found", (int)MIN(engine.n, 1024u), engine.p);
    return error->n == 0;
}

static bool read_header(bytes code, struct header *h, struct buf *error)
{
    if (code.n < 2 || memcmp(code.p, "#!", 2) != 0) {
        buf_append_str(error, "Missing library metadata");
        return false;
    }
    const char *end = memchr(code.p, '\n', code.n);
    if (!end || memchr(code.p, '\0', (size_t)(end - code.p))) {
        buf_append_str(error, "Invalid library metadata");
        return false;
    }
    h->length = (size_t)(end - code.p);
    struct request_parser p;
    request_parser_init(&p);
    bool ok = read_words(&p, bytes_of(code.p, h->length), h, error);
    request_parser_release(&p);
    return ok;
}

/* -- the code ---------------------------------------------------------------------------------- */

/* Returns the complete library of this name; NULL: see error. The end of the first line stays, so that lines
 * count from 1. */
static struct library *run_code(struct node *n, bytes name, bytes code, size_t skip, u32 limit_ms,
                                struct buf *error)
{
    struct functions *f = functions_of(n);
    struct ctx c = {0}; /* it calls no command */
    struct buf why = {0};
    struct library *lib = NULL;
    if (!script_compile(&f->vm, bytes_of(code.p + skip, code.n - skip), "@user_function", limit_ms, &why)) {
        buf_printf(error, "Error compiling function: %.*s", (int)why.n, why.p);
        buf_release(&why);
        return NULL;
    }
    push_named(f->vm.L, &ENV);
    lua_setfenv(f->vm.L, -2);
    f->loading = lib = library_new(name, code);
    switch_env(f->vm.L, true);
    bool ran = script_run_loading(&f->vm, &c, limit_ms, &why);
    switch_env(f->vm.L, false);
    f->loading = NULL;
    if (!ran) buf_printf(error, "Error registering functions: ERR %.*s", (int)why.n, why.p);
    else if (lib->count == 0) buf_append_str(error, "No functions registered");
    buf_release(&why);
    if (error->n == 0) return lib;
    library_drop(lib, f->vm.L);
    return NULL;
}

struct library *library_load(struct node *n, bytes code, u32 limit_ms, struct buf *error,
                             bool (*taken)(void *arg, bytes name, struct buf *error), void *arg)
{
    struct header h = {0};
    struct library *lib = NULL;
    bool ok = read_header(code, &h, error) && !(taken && taken(arg, buf_bytes(&h.name), error));
    if (ok) lib = run_code(n, buf_bytes(&h.name), code, h.length, limit_ms, error);
    buf_release(&h.name);
    return lib;
}
