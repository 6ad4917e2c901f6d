/* The libraries of a node, and their changes. */
#include "script/functions.h"

#include "base/alloc.h"
#include "rdb/rdb_value.h"

struct functions *functions_of(struct node *n)
{
    struct functions *f = n->functions;
    if (f) return f;
    f = n->functions = mem_zalloc(sizeof *f);
    script_vm_init(&f->vm, n);
    f->live = set_new();
    functions_open_env(f);
    return f;
}

void functions_release(struct node *n)
{
    struct functions *f = n->functions;
    if (!f) return;
    set_free(f->live, f->vm.L);
    for (u32 i = 0; i < f->change_count; i++) library_drop(f->changes[i].lib, f->vm.L);
    mem_free(f->changes);
    set_free(f->before, f->vm.L);
    set_free(f->staged, f->vm.L);
    script_vm_release(&f->vm);
    mem_free(f);
    n->functions = NULL;
}

bool functions_only_read(const struct node *n, bytes name)
{
    const struct function_set *set = functions_live(n);
    const struct function *f = set ? set_function(set, name) : NULL;
    return f && f->flags & SCRIPT_NO_WRITES;
}

/* -- changes ----------------------------------------------------------------------------------- */

#define COLLECT_STEP 256 /* of Lua's collector, after libraries were removed */

/* Once the whole previous set is kept, a failed commit restores that: single changes need not be recorded. */
static void functions_note_change(struct functions *f, struct library *lib, bool added)
{
    if (f->before) return;
    if (f->change_count == f->change_cap) {
        f->change_cap = MAX(f->change_cap * 2, 8u);
        f->changes = mem_realloc(f->changes, f->change_cap * sizeof *f->changes);
    }
    lib->refs++;
    f->changes[f->change_count++] = (struct library_change){lib, added};
}

static void remove_library(struct functions *f, struct library *lib)
{
    functions_note_change(f, lib, false);
    set_remove(f->live, lib, f->vm.L);
}

static void add_library(struct functions *f, struct library *lib)
{
    struct library *old = set_library(f->live, bytes_str(lib->name));
    if (old) remove_library(f, old);
    functions_note_change(f, lib, true);
    set_add(f->live, lib);
}

static void take_back(struct functions *f, const struct library_change *c)
{
    if (c->added) set_remove(f->live, c->lib, f->vm.L);
    else set_add(f->live, c->lib);
}

void functions_settle(struct node *n, bool kept)
{
    struct functions *f = n->functions;
    bool removed = f->before;
    if (f->before) {
        set_free(kept ? f->before : f->live, f->vm.L);
        if (!kept) f->live = f->before;
        f->before = NULL;
    }
    while (f->change_count) {
        const struct library_change *c = &f->changes[--f->change_count];
        if (!kept) take_back(f, c);
        removed |= c->added != kept;
        library_drop(c->lib, f->vm.L);
    }
    if (kept) f->one_row = false;
    if (removed) lua_gc(f->vm.L, LUA_GCSTEP, COLLECT_STEP);
}

/* Replaces all libraries by a set. */
static void replace_all(struct functions *f, struct function_set *by)
{
    if (!f->before) f->before = f->live;
    else set_free(f->live, f->vm.L);
    f->live = by;
}

/* Whether a library can be added to the set, which may have its predecessor. */
static bool fits(const struct function_set *set, const struct library *lib, const struct library *old,
                 struct buf *error)
{
    for (u32 i = 0; i < lib->count; i++) {
        bytes name = bytes_str(lib->functions[i].name);
        if (!set_function(set, name) || (old && library_find(old, name))) continue;
        buf_printf(error, "Function %s already exists", lib->functions[i].name);
        return false;
    }
    if (set->code_bytes - (old ? old->code.n : 0) + lib->code.n <= FUNCTIONS_MAX) return true;
    buf_printf(error, "Functions may not have more than %zu bytes of code", FUNCTIONS_MAX);
    return false;
}

struct wish {
    const struct function_set *set;
    bool replace;
};

static bool name_taken(void *arg, bytes name, struct buf *error)
{
    const struct wish *w = arg;
    if (w->replace || !set_library(w->set, name)) return false;
    buf_printf(error, "Library '%.*s' already exists", (int)name.n, name.p);
    return true;
}

/* Loads a library that can be added to the set, possibly replacing one; NULL: see error. */
static struct library *load_for(struct node *n, const struct function_set *set, bytes code, bool replace,
                                u32 limit_ms, struct buf *error)
{
    struct wish wish = {set, replace};
    struct library *lib = library_load(n, code, limit_ms, error, name_taken, &wish);
    if (!lib || fits(set, lib, set_library(set, bytes_str(lib->name)), error)) return lib;
    library_drop(lib, n->functions->vm.L);
    return NULL;
}

static void functions_put(struct functions *f, struct function_set *set, struct library *lib)
{
    struct library *old = set_library(set, bytes_str(lib->name));
    if (old) set_remove(set, old, f->vm.L);
    set_add(set, lib);
    library_drop(lib, f->vm.L);
}

bool functions_load(struct node *n, bool aside, bytes code, bool replace, u32 limit_ms, struct buf *name,
                    struct buf *error)
{
    struct functions *f = functions_of(n);
    struct library *lib = load_for(n, aside ? f->staged : f->live, code, replace, limit_ms, error);
    if (!lib) return false;
    if (name) buf_append_str(name, lib->name);
    if (aside) {
        functions_put(f, f->staged, lib);
    } else {
        add_library(f, lib);
        library_drop(lib, f->vm.L);
    }
    return true;
}

bool functions_delete(struct node *n, bytes name)
{
    const struct function_set *live = functions_live(n);
    if (!live || !set_library(live, name)) return false;
    remove_library(n->functions, set_library(live, name));
    return true;
}

void functions_flush(struct node *n)
{
    if (n->functions) replace_all(n->functions, set_new());
}

/* -- as bytes ---------------------------------------------------------------------------------- */

void functions_save(const struct function_set *set, struct rdb_out *out)
{
    for (u32 i = 0; set && i < set->count; i++) {
        rdb_put_byte(out, RDB_OP_FUNCTION);
        rdb_put_string(out, buf_bytes(&set->libraries[i]->code));
    }
}

void functions_dump(const struct function_set *set, size_t compress_max, struct buf *payload)
{
    struct rdb_out out;
    rdb_out_init(&out, NULL, compress_max);
    functions_save(set, &out);
    rdb_payload_end(&out.buf, RDB_VERSION_PLAIN);
    buf_clear(payload);
    buf_append_bytes(payload, buf_bytes(&out.buf));
    rdb_out_release(&out);
}

/* Loads all libraries of a payload into an empty set. */
static bool read_payload(struct node *n, struct function_set *set, bytes payload, u32 limit_ms,
                         struct buf *error)
{
    struct rdb_in in;
    struct buf code = {0};
    struct library *lib;
    bool ok = true;
    rdb_in_memory(&in, payload);
    while (ok && !rdb_at_end(&in)) {
        u8 op;
        if (!rdb_read_byte(&in, &op)) buf_append_str(error, "can not read data type");
        else if (op == RDB_OP_FUNCTION_EARLY) buf_append_str(error, "Pre-GA function format not supported");
        else if (op != RDB_OP_FUNCTION) buf_append_str(error, "given type is not a function");
        else if (!rdb_read_string(&in, &code)) buf_append_str(error, "Failed loading library data");
        else if ((lib = load_for(n, set, buf_bytes(&code), false, limit_ms, error)))
            functions_put(n->functions, set, lib);
        ok = error->n == 0;
    }
    buf_release(&code);
    rdb_in_release(&in);
    return ok;
}

/* A new set with the libraries of both; NULL: error says why they conflict. */
static struct function_set *functions_join(struct functions *f, const struct function_set *a,
                                 const struct function_set *b, bool replace, struct buf *error)
{
    struct function_set *all = set_copy(a);
    for (u32 i = 0; i < b->count && error->n == 0; i++) {
        struct library *old = set_library(all, bytes_str(b->libraries[i]->name));
        if (old && !replace) buf_printf(error, "Library %s already exists", old->name);
        else if (old) set_remove(all, old, f->vm.L);
    }
    for (u32 i = 0; i < b->count && error->n == 0; i++)
        if (fits(all, b->libraries[i], NULL, error)) set_add(all, b->libraries[i]);
    if (error->n == 0) return all;
    set_free(all, f->vm.L);
    return NULL;
}

bool functions_restore(struct node *n, bytes payload, enum restore_policy policy, u32 limit_ms,
                       struct buf *error)
{
    struct functions *f = functions_of(n);
    bytes body;
    if (!rdb_payload_body(payload, false, &body)) {
        buf_append_str(error, "DUMP payload version or checksum are wrong");
        return false;
    }
    struct function_set *loaded = set_new();
    bool ok = read_payload(n, loaded, body, limit_ms, error);
    if (ok && policy == RESTORE_FLUSH) {
        replace_all(f, loaded);
        return true;
    }
    struct function_set *joined = ok ? functions_join(f, f->live, loaded, policy == RESTORE_REPLACE, error)
                                     : NULL;
    set_free(loaded, f->vm.L);
    if (joined) replace_all(f, joined);
    return joined != NULL;
}

/* -- a full sync ------------------------------------------------------------------------------- */

void functions_stage(struct node *n)
{
    struct functions *f = functions_of(n);
    functions_unstage(n);
    f->staged = set_new();
}

void functions_adopt(struct node *n)
{
    struct functions *f = n->functions;
    struct function_set *staged = f->staged;
    f->staged = NULL;
    replace_all(f, staged);
}

void functions_unstage(struct node *n)
{
    struct functions *f = n->functions;
    if (!f) return;
    set_free(f->staged, f->vm.L);
    f->staged = NULL;
}
