/* EVAL's interpreter, and the scripts compiled in it, by the SHA1 of their text. The cache is two tables in
 * the interpreter's registry: the compiled functions, and an entry for each.
 *
 * Clients that put values into the text of their scripts would fill it without end. So scripts that only EVAL
 * has brought are in an LRU list, and the oldest is evicted for a new one. */
#include "script/script_cache.h"

#include "base/alloc.h"
#include "base/sha1.h"

static const char FUNCTIONS, ENTRIES; /* registry keys, by their addresses */

struct script_entry {
    char sha[SCRIPT_SHA + 1];
    bool passing;                        /* it may be evicted, and is in the LRU list */
    u32 flags;
    u64 memory;
    struct script_entry *older, *newer;  /* in the LRU list */
    struct script_entry *before, *after; /* in the list of all */
};

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

struct scripts *scripts_of(struct node *n)
{
    if (LIKELY(n->scripts != NULL)) return n->scripts;
    struct scripts *s = n->scripts = mem_zalloc(sizeof *s);
    script_vm_init(&s->vm, n);
    make_table(s->vm.L, &FUNCTIONS);
    make_table(s->vm.L, &ENTRIES);
    return s;
}

void scripts_release(struct node *n)
{
    if (!n->scripts) return;
    script_vm_release(&n->scripts->vm);
    for (struct script_entry *e = n->scripts->entries, *next; e; e = next) {
        next = e->after;
        mem_free(e);
    }
    mem_free(n->scripts);
    n->scripts = NULL;
}

void script_sha(bytes source, char sha[SCRIPT_SHA + 1])
{
    u8 digest[SHA1_BYTES];
    sha1(source, digest);
    sha1_hex(digest, sha);
}

/* -- the LRU list ---------------------------------------------------------------------------- */

static void enlist(struct scripts *s, struct script_entry *e)
{
    e->older = s->newest;
    e->newer = NULL;
    *(s->newest ? &s->newest->newer : &s->oldest) = e;
    s->newest = e;
}

static void delist(struct scripts *s, struct script_entry *e)
{
    *(e->older ? &e->older->newer : &s->oldest) = e->newer;
    *(e->newer ? &e->newer->older : &s->newest) = e->older;
}

static void script_cache_forget(lua_State *L, const char *table, const char *sha)
{
    push_table(L, table);
    lua_pushnil(L);
    lua_setfield(L, -2, sha);
    lua_pop(L, 1);
}

static void script_cache_evict(struct scripts *s, struct script_entry *e)
{
    script_cache_forget(s->vm.L, &FUNCTIONS, e->sha);
    script_cache_forget(s->vm.L, &ENTRIES, e->sha);
    delist(s, e);
    *(e->before ? &e->before->after : &s->entries) = e->after;
    if (e->after) e->after->before = e->before;
    s->passing--;
    s->cached--;
    s->memory -= e->memory;
    s->vm.node->scripts_evicted++;
    mem_free(e);
}

/* -- finding ---------------------------------------------------------------------------------------- */

static struct script_entry *entry_of(lua_State *L, const char *sha)
{
    push_table(L, &ENTRIES);
    lua_getfield(L, -1, sha);
    struct script_entry *e = lua_touserdata(L, -1);
    lua_pop(L, 2);
    return e;
}

static void push_function(lua_State *L, const char *sha)
{
    push_table(L, &FUNCTIONS);
    lua_getfield(L, -1, sha);
    lua_remove(L, -2);
}

bool scripts_push(struct scripts *s, const char *sha, u32 *flags)
{
    struct script_entry *e = entry_of(s->vm.L, sha);
    if (!e) return false;
    if (e->passing && e != s->newest) {
        delist(s, e);
        enlist(s, e);
    }
    *flags = e->flags;
    push_function(s->vm.L, sha);
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
        if (!list.n) { /* a comma at the end is followed by a flag with an empty name */
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

/* A script from a primary or a file was compiled in time elsewhere: no limit. */
static u32 compile_limit_ms(const struct ctx *c)
{
    return ctx_node(c)->loading || expiry_follows(c->region->mode) ? 0 : COMPILE_MS;
}

static struct script_entry *new_entry(struct scripts *s, const char *sha, u32 flags, bool passing)
{
    if (passing && s->passing == SCRIPTS_PASSING) script_cache_evict(s, s->oldest);
    struct script_entry *e = mem_zalloc(sizeof *e);
    memcpy(e->sha, sha, sizeof e->sha);
    e->flags = flags;
    e->passing = passing;
    e->after = s->entries;
    if (s->entries) s->entries->before = e;
    s->entries = e;
    s->cached++;
    if (!passing) return e;
    enlist(s, e);
    s->passing++;
    return e;
}

bool scripts_add(struct scripts *s, const struct ctx *c, bytes source, const char *sha, bool stays,
                 u32 *flags)
{
    lua_State *L = s->vm.L;
    bytes body = source;
    struct buf error = {0};
    if (!script_shebang(&body, flags, c->out)) return false;
    if (!script_compile(&s->vm, body, "@user_script", compile_limit_ms(c), &error)) {
        reply_errorf(c->out, "ERR Error compiling script (new function): %.*s", (int)error.n, error.p);
        buf_release(&error);
        return false;
    }
    struct script_entry *e = new_entry(s, sha, *flags, !stays);
    e->memory = source.n + SCRIPT_SHA + sizeof(void *) * 8;
    s->memory += e->memory;
    push_table(L, &FUNCTIONS);
    lua_pushvalue(L, -2);
    lua_setfield(L, -2, sha);
    push_table(L, &ENTRIES);
    lua_pushlightuserdata(L, e);
    lua_setfield(L, -2, sha);
    lua_pop(L, 2);
    return true;
}
