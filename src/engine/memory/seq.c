/* Lists of the memory engine: a rope of packed chunks. list-max-listpack-size
 * bounds a chunk as it bounds a node of Redis's quicklist, but CHUNK_MAX does so
 * first: an insertion or a pop at the head moves the rest of the chunk, and a counted
 * tree makes more and smaller chunks cost nothing. */
#include "engine/memory/mem.h"

#define CHUNK_MAX 2048

static struct rope *rope_of(const struct key_ref *ref)
{
    return &((struct mem_seq *)entry_object(ref->entry))->rope;
}

struct mem_seq *mem_seq_new(struct mem_engine *m)
{
    struct mem_seq *s = mem_alloc(sizeof *s);
    i64 limit = m->base.limits.list_max_listpack_size;
    rope_init(&s->rope, CHUNK_MAX, limit < 0 ? 0 : (u32)MIN(MAX(limit, 1), INT16_MAX));
    return s;
}

struct mem_seq *mem_seq_copy(struct mem_engine *m, struct mem_seq *from)
{
    struct mem_seq *s = mem_seq_new(m);
    struct rope_pos pos;
    for (bool more = rope_seek(&from->rope, 0, &pos); more; more = rope_next(&pos))
        rope_push(&s->rope, false, rope_pos_get(&pos));
    return s;
}

bool mem_seq_free_some(struct mem_seq *s, u32 units)
{
    if (!rope_release_some(&s->rope, units)) return false;
    mem_free(s);
    return true;
}

size_t mem_seq_memory(struct mem_seq *s, u32 samples UNUSED)
{
    return sizeof *s + rope_memory(&s->rope);
}

/* -- primitives --------------------------------------------------------------------- */

static void seq_push(struct engine *e, struct key_ref *ref, bool front, bytes value)
{
    mem_keep(e, ref);
    rope_push(rope_of(ref), front, value);
}

static void seq_pop(struct engine *e, struct key_ref *ref, bool front, struct buf *out)
{
    mem_keep(e, ref);
    rope_pop(rope_of(ref), front, out);
}

static void seq_get(struct engine *e UNUSED, struct key_ref *ref, u64 index, bytes *value)
{
    *value = rope_get(rope_of(ref), index);
}

static void seq_set(struct engine *e, struct key_ref *ref, u64 index, bytes value)
{
    mem_keep(e, ref);
    rope_set(rope_of(ref), index, value);
}

static void seq_insert(struct engine *e, struct key_ref *ref, u64 index, bytes value)
{
    mem_keep(e, ref);
    rope_insert(rope_of(ref), index, value);
}

static void seq_erase(struct engine *e, struct key_ref *ref, u64 index, u64 count)
{
    mem_keep(e, ref);
    rope_erase(rope_of(ref), index, count);
}

/* What an iterator keeps in its state, which is never read or written as what it is declared. */
struct walk {
    struct rope_pos pos;
    enum { WALK_END, WALK_FRESH, WALK_GIVEN } at; /* FRESH: pos was not given yet */
};
_Static_assert(sizeof(struct walk) <= sizeof(((struct seq_iter *)0)->state), "iterator fits");

static void seq_iter(struct engine *e, struct key_ref *ref, u64 index, bool reverse,
                     struct seq_iter *it)
{
    struct walk *w = (struct walk *)it->state;
    it->eng = e;
    it->ref = ref;
    it->reverse = reverse;
    w->at = rope_seek(rope_of(ref), index, &w->pos) ? WALK_FRESH : WALK_END;
}

static bool seq_next(struct seq_iter *it, bytes *value)
{
    struct walk *w = (struct walk *)it->state;
    if (w->at == WALK_END) return false;
    if (w->at == WALK_GIVEN && !(it->reverse ? rope_prev(&w->pos) : rope_next(&w->pos))) {
        w->at = WALK_END;
        return false;
    }
    w->at = WALK_GIVEN;
    *value = rope_pos_get(&w->pos);
    return true;
}

static void seq_erase_current(struct seq_iter *it)
{
    struct walk *w = (struct walk *)it->state;
    CHECK(w->at == WALK_GIVEN);
    mem_keep(it->eng, it->ref);
    w->at = rope_pos_erase(rope_of(it->ref), &w->pos, it->reverse) ? WALK_FRESH : WALK_END;
}

const struct seq_ops mem_seq_ops = {
    .push = seq_push, .fill = mem_seq_fill, .pop = seq_pop, .get = seq_get, .set = seq_set,
    .insert = seq_insert, .erase = seq_erase, .iter = seq_iter, .next = seq_next,
    .erase_current = seq_erase_current,
};
