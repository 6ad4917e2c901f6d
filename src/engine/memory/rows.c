/* Streams of the memory engine: an ordered map of rows, and a head.
 *
 * The map stores a row in pieces. Slices handed out are contiguous: the value itself if it is one piece,
 * otherwise a copy that lives until commit, or, in a `passing` walk, in a buffer that the walk reuses. */
#include "engine/memory/mem.h"

static struct mem_rows *rows_of(const struct key_ref *ref) { return entry_object(ref->entry); }

struct mem_rows *mem_rows_new(u32 leaf_bytes)
{
    struct mem_rows *r = mem_zalloc(sizeof *r);
    omap_init(&r->map, leaf_bytes);
    return r;
}

void mem_rows_set_head(struct mem_rows *r, bytes head)
{
    if (head.n != r->head_bytes) r->head = mem_realloc(r->head, head.n ? head.n : 1);
    r->head_bytes = (u32)head.n;
    if (head.n) memmove(r->head, head.p, head.n);
}

struct mem_rows *mem_rows_copy(const struct mem_rows *from)
{
    struct mem_rows *r = mem_zalloc(sizeof *r);
    omap_copy(&r->map, &from->map);
    mem_rows_set_head(r, bytes_of(from->head, from->head_bytes));
    r->size = from->size;
    return r;
}

bool mem_rows_free_some(struct mem_rows *r, u32 units)
{
    if (!omap_release_some(&r->map, units)) return false;
    mem_free(r->head);
    mem_free(r);
    return true;
}

size_t mem_rows_memory(const struct mem_rows *r)
{
    return sizeof *r + mem_size(r->head) + omap_memory(&r->map);
}

/* -- primitives --------------------------------------------------------------------- */

static bytes mem_rows_head(struct engine *e UNUSED, struct key_ref *ref)
{
    const struct mem_rows *r = rows_of(ref);
    return bytes_of(r->head, r->head_bytes);
}

static void mem_rows_put_head(struct engine *e, struct key_ref *ref, bytes head, u64 size)
{
    CHECK(head.n <= ROWS_HEAD_MAX);
    mem_keep(e, ref);
    struct mem_rows *r = rows_of(ref);
    mem_rows_set_head(r, head);
    r->size = size;
}

static bytes whole_value(struct engine *e, const struct omap_row *row)
{
    if (row->value[0].n == 0) return row->value[1];
    bytes v = bytes_of(arena_alloc(&mem_of(e)->handed_out, omap_value_size(row)), omap_value_size(row));
    omap_join_value(row, (char *)v.p);
    return v;
}

bool mem_rows_read(struct engine *e, const struct mem_rows *r, bytes name, bytes *value)
{
    struct omap_row row;
    if (!omap_get(&r->map, name, &row)) return false;
    if (value) *value = whole_value(e, &row);
    return true;
}

static bool mem_rows_get(struct engine *e, struct key_ref *ref, bytes name, bytes *value)
{
    return mem_rows_read(e, rows_of(ref), name, value);
}

static void mem_rows_put(struct engine *e, struct key_ref *ref, bytes name, bytes value)
{
    mem_keep(e, ref);
    omap_put(&rows_of(ref)->map, name, value);
}

static bool mem_rows_del(struct engine *e, struct key_ref *ref, bytes name)
{
    mem_keep(e, ref);
    return omap_del(&rows_of(ref)->map, name);
}

static u64 mem_rows_erase(struct engine *e, struct key_ref *ref, bytes from, bytes to)
{
    mem_keep(e, ref);
    return omap_erase(&rows_of(ref)->map, from, to);
}

static void mem_rows_wipe(struct engine *e, struct key_ref *ref, bytes from, bytes to, u64 about UNUSED)
{
    mem_rows_erase(e, ref, from, to);
}

/* -- walks ---------------------------------------------------------------------------- */

/* The layout of an iterator's state. */
struct walk {
    struct omap_pos pos;
    char *place; /* where a `passing` walk joins its rows: in the arena, `room` bytes … */
    size_t room;
    u64 transaction; /* … of this transaction; a snapshot's walk outlives it */
    enum { WALK_END, WALK_FRESH, WALK_GIVEN } at; /* FRESH: pos was not returned yet */
};
_Static_assert(sizeof(struct walk) <= sizeof(((struct rows_iter *)0)->state), "iterator fits");

#define PLACE_MIN 256

void mem_rows_seek(struct engine *e, const struct mem_rows *r, bytes from, bool reverse, struct rows_iter *it)
{
    struct walk *w = (struct walk *)it->state;
    it->eng = e;
    it->reverse = reverse;
    it->passing = false;
    w->room = 0;
    w->at = omap_seek(&r->map, from, reverse, &w->pos) ? WALK_FRESH : WALK_END;
}

static void mem_rows_iter(struct engine *e, struct key_ref *ref, bytes from, bool reverse,
                          struct rows_iter *it)
{
    it->ref = ref;
    mem_rows_seek(e, rows_of(ref), from, reverse, it);
}

static char *mem_rows_walk_place(struct rows_iter *it, size_t n)
{
    struct arena *a = &mem_of(it->eng)->handed_out;
    struct walk *w = (struct walk *)it->state;
    if (!it->passing) return arena_alloc(a, n);
    if (n > w->room || w->transaction != mem_of(it->eng)->transaction) {
        w->transaction = mem_of(it->eng)->transaction;
        w->room = MAX(2 * n, PLACE_MIN);
        w->place = arena_alloc(a, w->room);
    }
    return w->place;
}

static bool mem_rows_next(struct rows_iter *it, bytes *name, bytes *value)
{
    struct walk *w = (struct walk *)it->state;
    if (w->at == WALK_END) return false;
    if (w->at == WALK_GIVEN && !omap_step(&w->pos, it->reverse)) {
        w->at = WALK_END;
        return false;
    }
    w->at = WALK_GIVEN;
    struct omap_row row;
    omap_read(&w->pos, &row);
    size_t n = omap_name_size(&row);
    bool join = value && row.value[0].n;
    char *p = mem_rows_walk_place(it, n + (join ? omap_value_size(&row) : 0));
    char *end = omap_join_name(&row, p);
    *name = bytes_of(p, n);
    if (join) omap_join_value(&row, end);
    if (value) *value = join ? bytes_of(end, omap_value_size(&row)) : row.value[1];
    return true;
}

static void mem_rows_done(struct rows_iter *it) { ((struct walk *)it->state)->at = WALK_END; }

const struct rows_ops mem_rows_ops = {
    .head = mem_rows_head,
    .set_head = mem_rows_put_head,
    .get = mem_rows_get,
    .put = mem_rows_put,
    .del = mem_rows_del,
    .erase = mem_rows_erase,
    .wipe = mem_rows_wipe,
    .iter = mem_rows_iter,
    .next = mem_rows_next,
    .done = mem_rows_done,
};
