/* Libraries and sets of them: two sorted arrays. Libraries are reference-counted and shared between sets. */
#include <ctype.h>

#include "base/alloc.h"
#include "script/functions.h"

static char *function_set_text_of(bytes b)
{
    char *text = mem_alloc(b.n + 1);
    memcpy(text, b.p, b.n);
    text[b.n] = '\0';
    return text;
}

/* -- libraries --------------------------------------------------------------------------------- */

struct library *library_new(bytes name, bytes code)
{
    struct library *lib = mem_zalloc(sizeof *lib);
    lib->refs = 1;
    lib->name = function_set_text_of(name);
    buf_append_bytes(&lib->code, code);
    return lib;
}

void library_drop(struct library *lib, lua_State *L)
{
    if (--lib->refs > 0) return;
    for (u32 i = 0; i < lib->count; i++) {
        struct function *f = &lib->functions[i];
        luaL_unref(L, LUA_REGISTRYINDEX, f->ref);
        buf_release(&f->description);
        mem_free(f->name);
    }
    mem_free(lib->functions);
    buf_release(&lib->code);
    mem_free(lib->name);
    mem_free(lib);
}

struct function *library_find(const struct library *lib, bytes name)
{
    for (u32 i = 0; i < lib->count; i++)
        if (bytes_is(name, lib->functions[i].name)) return &lib->functions[i];
    return NULL;
}

void library_add(struct library *lib, const char *name, const bytes *description, u32 flags, int ref)
{
    if (lib->count == lib->cap) {
        lib->cap = MAX(lib->cap * 2, 4u);
        lib->functions = mem_realloc(lib->functions, lib->cap * sizeof *lib->functions);
    }
    struct function *f = &lib->functions[lib->count++];
    *f = (struct function){.name = function_set_text_of(bytes_str(name)), .flags = flags, .ref = ref};
    f->described = description != NULL;
    if (description) buf_append_bytes(&f->description, *description);
}

/* -- sets -------------------------------------------------------------------------------------- */

static int compare_nocase(bytes a, bytes b)
{
    for (size_t i = 0; i < MIN(a.n, b.n); i++) {
        int d = tolower((u8)a.p[i]) - tolower((u8)b.p[i]);
        if (d) return d;
    }
    return (a.n > b.n) - (a.n < b.n);
}

/* The index of the name, or where it would be inserted. */
static u32 library_place(const struct function_set *set, bytes name, bool *found)
{
    u32 low = 0, high = set->count;
    *found = false;
    while (low < high && !*found) {
        u32 mid = low + (high - low) / 2;
        int d = bytes_cmp(name, bytes_str(set->libraries[mid]->name));
        *found = d == 0;
        if (d > 0) low = mid + 1;
        else high = mid;
    }
    return high;
}

static u32 function_place(const struct function_set *set, bytes name, bool *found)
{
    u32 low = 0, high = set->function_count;
    *found = false;
    while (low < high && !*found) {
        u32 mid = low + (high - low) / 2;
        int d = compare_nocase(name, bytes_str(set->functions[mid]->name));
        *found = d == 0;
        if (d > 0) low = mid + 1;
        else high = mid;
    }
    return high;
}

struct library *set_library(const struct function_set *set, bytes name)
{
    bool found;
    u32 at = library_place(set, name, &found);
    return found ? set->libraries[at] : NULL;
}

struct function *set_function(const struct function_set *set, bytes name)
{
    bool found;
    u32 at = function_place(set, name, &found);
    return found ? set->functions[at] : NULL;
}

static void *with_gap(void *items, u32 *cap, u32 count, u32 at)
{
    if (count == *cap) {
        *cap = MAX(*cap * 2, 8u);
        items = mem_realloc(items, *cap * sizeof(void *));
    }
    void **v = items;
    memmove(v + at + 1, v + at, (count - at) * sizeof *v);
    return items;
}

static void close_gap(void *items, u32 count, u32 at)
{
    void **v = items;
    memmove(v + at, v + at + 1, (count - at - 1) * sizeof *v);
}

void set_add(struct function_set *set, struct library *lib)
{
    bool found;
    u32 at = library_place(set, bytes_str(lib->name), &found);
    set->libraries = with_gap(set->libraries, &set->cap, set->count++, at);
    set->libraries[at] = lib;
    lib->refs++;
    set->code_bytes += lib->code.n;
    for (u32 i = 0; i < lib->count; i++) {
        at = function_place(set, bytes_str(lib->functions[i].name), &found);
        set->functions = with_gap(set->functions, &set->function_cap, set->function_count++, at);
        set->functions[at] = &lib->functions[i];
    }
}

void set_remove(struct function_set *set, struct library *lib, lua_State *L)
{
    bool found;
    for (u32 i = 0; i < lib->count; i++) {
        u32 at = function_place(set, bytes_str(lib->functions[i].name), &found);
        close_gap(set->functions, set->function_count--, at);
    }
    close_gap(set->libraries, set->count, library_place(set, bytes_str(lib->name), &found));
    set->count--;
    set->code_bytes -= lib->code.n;
    library_drop(lib, L);
}

struct function_set *set_new(void) { return mem_zalloc(sizeof(struct function_set)); }

struct function_set *set_copy(const struct function_set *set)
{
    struct function_set *copy = set_new();
    *copy = *set;
    copy->cap = set->count;
    copy->function_cap = set->function_count;
    copy->libraries = mem_alloc(MAX(copy->cap, 1u) * sizeof *copy->libraries);
    copy->functions = mem_alloc(MAX(copy->function_cap, 1u) * sizeof *copy->functions);
    if (set->count) memcpy(copy->libraries, set->libraries, set->count * sizeof *copy->libraries);
    if (set->function_count)
        memcpy(copy->functions, set->functions, set->function_count * sizeof *copy->functions);
    for (u32 i = 0; i < copy->count; i++) copy->libraries[i]->refs++;
    return copy;
}

void set_free(struct function_set *set, lua_State *L)
{
    if (!set) return;
    for (u32 i = 0; i < set->count; i++) library_drop(set->libraries[i], L);
    mem_free(set->libraries);
    mem_free(set->functions);
    mem_free(set);
}
