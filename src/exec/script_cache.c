/* EVAL's interpreter, and the scripts that are compiled in it by the SHA1 of their text. The cache is two
 * tables of the interpreter's registry, so that forgetting everything is closing it. */
#include "exec/script_cache.h"

#include "base/alloc.h"
#include "base/sha1.h"

static const char FUNCTIONS, FLAGS; /* keys of the registry, by their addresses */

static void push_table(lua_State *L, const char *key)
{
    lua_pushlightuserdata(L, (void *)(uintptr_t)key);
    lua_rawget(L, LUA_REGISTRYINDEX);
}

static void make_table(lua_State *L, const char *key)
{
    lua_pushlightuserdata(L, (void *)(uintptr_t)key);
    lua_newtable(L);
    lua_rawset(L, LUA_REGISTRYINDEX);
}

struct scripts *scripts_of(struct region *r)
{
    if (LIKELY(r->scripts != NULL)) return r->scripts;
    struct scripts *s = r->scripts = mem_zalloc(sizeof *s);
    script_vm_init(&s->vm, r);
    make_table(s->vm.L, &FUNCTIONS);
    make_table(s->vm.L, &FLAGS);
    return s;
}

void scripts_release(struct region *r)
{
    if (!r->scripts) return;
    script_vm_release(&r->scripts->vm);
    mem_free(r->scripts);
    r->scripts = NULL;
}

void script_sha(bytes source, char sha[SCRIPT_SHA + 1])
{
    u8 digest[SHA1_BYTES];
    sha1(source, digest);
    sha1_hex(digest, sha);
}

bool scripts_push(struct scripts *s, const char *sha, u32 *flags)
{
    lua_State *L = s->vm.L;
    push_table(L, &FUNCTIONS);
    lua_getfield(L, -1, sha);
    lua_remove(L, -2);
    if (!lua_isfunction(L, -1)) {
        lua_pop(L, 1);
        return false;
    }
    push_table(L, &FLAGS);
    lua_getfield(L, -1, sha);
    *flags = lua_isnumber(L, -1) ? (u32)lua_tointeger(L, -1) : SCRIPT_COMPAT;
    lua_pop(L, 2);
    return true;
}

/* -- the first line ---------------------------------------------------------------------------- */

/* The next word of a line, separated by spaces. */
static bool next_word(bytes *line, bytes *word)
{
    while (line->n && line->p[0] == ' ') *line = bytes_of(line->p + 1, line->n - 1);
    const char *end = line->n ? memchr(line->p, ' ', line->n) : NULL;
    *word = bytes_of(line->p, end ? (size_t)(end - line->p) : line->n);
    *line = bytes_of(line->p + word->n, line->n - word->n);
    return word->n > 0;
}

static bool take_flags(bytes list, u32 *flags, struct reply *out)
{
    while (list.n) {
        const char *comma = memchr(list.p, ',', list.n);
        bytes name = bytes_of(list.p, comma ? (size_t)(comma - list.p) : list.n);
        u32 flag = script_flag(name);
        if (!flag) {
            reply_errorf(out, "ERR Unexpected flag in script shebang: %.*s", (int)name.n, name.p);
            return false;
        }
        *flags |= flag;
        if (!comma) break;
        list = bytes_of(comma + 1, list.n - name.n - 1);
        if (!list.n) { /* a comma at the end is followed by a flag of no name */
            reply_error(out, "ERR Unexpected flag in script shebang: ");
            return false;
        }
    }
    return true;
}

bool script_shebang(bytes *source, u32 *flags, struct reply *out)
{
    *flags = SCRIPT_COMPAT;
    if (source->n < 2 || memcmp(source->p, "#!", 2) != 0) return true;
    const char *end = memchr(source->p, '\n', source->n);
    if (!end) {
        reply_error(out, "ERR Invalid script shebang");
        return false;
    }
    bytes line = bytes_of(source->p, (size_t)(end - source->p)), word;
    *source = bytes_of(end, source->n - line.n);
    *flags = 0;
    if (!next_word(&line, &word) || !bytes_eq(word, BYTES_LIT("#!lua"))) {
        reply_errorf(out, "ERR Unexpected engine in script shebang: %.*s", (int)word.n, word.p);
        return false;
    }
    while (next_word(&line, &word)) {
        if (word.n >= 6 && memcmp(word.p, "flags=", 6) == 0) {
            if (!take_flags(bytes_of(word.p + 6, word.n - 6), flags, out)) return false;
        } else {
            reply_errorf(out, "ERR Unknown lua shebang option: %.*s", (int)word.n, word.p);
            return false;
        }
    }
    return true;
}

/* -- adding ------------------------------------------------------------------------------------ */

#define COMPILE_MS 1000

/* What a primary sent, or a file holds, was compiled elsewhere in time. */
static u32 compile_limit_ms(const struct region *r) { return r->loading || r->follows ? 0 : COMPILE_MS; }

bool scripts_add(struct scripts *s, bytes source, const char *sha, u32 *flags, struct reply *out)
{
    lua_State *L = s->vm.L;
    bytes body = source;
    struct buf error = {0};
    if (!script_shebang(&body, flags, out)) return false;
    if (!script_compile(&s->vm, body, "@user_script", compile_limit_ms(s->vm.region), &error)) {
        reply_errorf(out, "ERR Error compiling script (new function): %.*s", (int)error.n, error.p);
        buf_release(&error);
        return false;
    }
    push_table(L, &FUNCTIONS);
    lua_pushvalue(L, -2);
    lua_setfield(L, -2, sha);
    lua_pop(L, 1);
    if (*flags != SCRIPT_COMPAT) {
        push_table(L, &FLAGS);
        lua_pushinteger(L, (lua_Integer)*flags);
        lua_setfield(L, -2, sha);
        lua_pop(L, 1);
    }
    s->cached++;
    s->memory += source.n + SCRIPT_SHA + sizeof(void *) * 8;
    return true;
}
