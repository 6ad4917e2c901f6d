/* Libraries as the engine stores them: a row of metadata (META_FUNCTIONS) for each, with its name and its
 * code. A commit writes the rows of libraries that have changed, so a change costs the same however many
 * libraries there are.
 *
 * Older versions stored all libraries in one row without a name, in the format of FUNCTION DUMP. It is read
 * at start and stays until the first change of any library, whose transaction replaces it by rows. If it is
 * found beside others it is the newest: an older version wrote it, which does not know the others. */
#include "script/functions.h"

static void library_row_put(struct engine *e, const struct library *lib)
{
    e->ops->meta.put(e, META_FUNCTIONS, bytes_str(lib->name), buf_bytes(&lib->code));
}

static void library_row_delete(void *arg, bytes name, bytes code UNUSED, double score UNUSED)
{
    struct engine *e = arg;
    e->ops->meta.del(e, META_FUNCTIONS, name);
}

static void library_rows_rewrite(struct engine *e, const struct function_set *set)
{
    e->ops->meta.each(e, META_FUNCTIONS, library_row_delete, e);
    for (u32 i = 0; i < set->count; i++) library_row_put(e, set->libraries[i]);
}

/* A library that is in both sets is the same. */
static void library_rows_replace(struct engine *e, const struct function_set *from,
                                 const struct function_set *to)
{
    for (u32 i = 0; i < from->count; i++) {
        bytes name = bytes_str(from->libraries[i]->name);
        if (!set_library(to, name)) e->ops->meta.del(e, META_FUNCTIONS, name);
    }
    for (u32 i = 0; i < to->count; i++) {
        struct library *lib = to->libraries[i];
        if (set_library(from, bytes_str(lib->name)) != lib) library_row_put(e, lib);
    }
}

void functions_write(const struct node *n, struct engine *e)
{
    const struct functions *f = n->functions;
    if (f->one_row) {
        library_rows_rewrite(e, f->live);
        return;
    }
    for (u32 i = 0; i < f->change_count; i++) { /* in order: a library may occur several times */
        const struct library_change *c = &f->changes[i];
        if (c->added) library_row_put(e, c->lib);
        else e->ops->meta.del(e, META_FUNCTIONS, bytes_str(c->lib->name));
    }
    if (f->before) library_rows_replace(e, f->before, f->live);
}

/* -- at start ---------------------------------------------------------------------------------- */

struct recall {
    struct node *node;
    struct buf *error;
    bool one_row;
};

static void library_row_recall(void *arg, bytes name, bytes value, double score UNUSED)
{
    struct recall *c = arg;
    struct buf loaded = {0};
    bool ok = true;
    if (c->one_row || c->error->n) return;
    c->one_row = name.n == 0; /* the first row, if there is one */
    if (c->one_row) ok = functions_restore(c->node, value, RESTORE_FLUSH, 0, c->error);
    else ok = functions_load(c->node, false, value, false, 0, &loaded, c->error);
    if (ok && !c->one_row && !bytes_eq(buf_bytes(&loaded), name))
        buf_printf(c->error, "Library %.*s is kept under another name", (int)loaded.n, loaded.p);
    buf_release(&loaded);
}

bool functions_recall(struct node *n, struct engine *e, struct buf *error)
{
    struct recall c = {n, error, false};
    e->ops->meta.each(e, META_FUNCTIONS, library_row_recall, &c);
    if (e->failed) buf_append_str(error, "the storage can't be read");
    bool ok = error->n == 0;
    if (functions_changed(n)) functions_settle(n, ok);
    if (n->functions) n->functions->one_row = c.one_row;
    return ok;
}
