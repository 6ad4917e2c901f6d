/* Lists of the memory engine: a rope of packed chunks. list-max-listpack-size
 * bounds a chunk as it bounds a node of Redis's quicklist, but CHUNK_MAX does so
 * first: an insertion or a pop at the head moves the rest of the chunk, and in a counted
 * tree more and smaller chunks cost nothing. */
#include "ds/listpack.h"
#include "engine/memory/mem.h"

#define CHUNK_MAX 2048

static struct mem_seq *seq_of(const struct key_ref *ref) { return entry_object(ref->entry); }
static struct rope *rope_of(const struct key_ref *ref) { return &seq_of(ref)->rope; }

struct mem_seq *mem_seq_new(struct mem_engine *m)
{
    struct mem_seq *s = mem_alloc(sizeof *s);
    i64 limit = m->base.limits.list_max_listpack_size;
    rope_init(&s->rope, CHUNK_MAX, limit < 0 ? 0 : (u32)MIN(MAX(limit, 1), INT16_MAX));
    s->pack_bytes = LISTPACK_EMPTY;
    s->quick = false;
    return s;
}

struct mem_seq *mem_seq_copy(struct mem_engine *m, struct mem_seq *from)
{
    struct mem_seq *s = mem_seq_new(m);
    struct rope_pos pos;
    for (bool more = rope_seek(&from->rope, 0, &pos); more; more = rope_next(&pos))
        rope_push(&s->rope, false, rope_pos_get(&pos));
    s->pack_bytes = from->pack_bytes;
    s->quick = from->quick;
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

/* -- the encoding that Redis would have ----------------------------------------------- */

/* It depends on the bytes that a listpack of the elements takes (ds/listpack.h). They are counted as elements
 * come and go, up to COUNTED_MAX, far above any limit; a longer list that has shrunk is counted once. */
#define COUNTED_MAX (256 << 10)

const char *mem_seq_encoding(const struct mem_seq *s) { return s->quick ? "quicklist" : "listpack"; }

static void mem_seq_count(struct mem_seq *s, u64 pack_bytes)
{
    s->pack_bytes = pack_bytes > COUNTED_MAX ? 0 : (u32)pack_bytes;
    if (s->pack_bytes == 0) s->quick = true;
}

static bool mem_seq_exceeds(const struct engine *e, const struct mem_seq *s, u64 pack_bytes, u64 count)
{
    return s->pack_bytes == 0 || listpack_exceeds(e->limits.list_max_listpack_size, pack_bytes, count);
}

/* Called before n elements are added. Redis adds their lengths, not the bytes they will take. */
static void mem_seq_grow(const struct engine *e, struct mem_seq *s, const bytes *v, u32 n)
{
    u64 length = 0, cost = 0;
    if (s->pack_bytes == 0) return;
    for (u32 i = 0; i < n; i++) {
        length += v[i].n;
        cost += listpack_cost(v[i]);
    }
    if (mem_seq_exceeds(e, s, s->pack_bytes + length, rope_count(&s->rope) + n)) s->quick = true;
    mem_seq_count(s, s->pack_bytes + cost);
}

/* Called before elements are erased; few, if the list is counted. */
static void mem_seq_uncount(struct mem_seq *s, u64 index, u64 n)
{
    struct rope_pos pos;
    if (s->pack_bytes == 0) return;
    for (bool more = rope_seek(&s->rope, index, &pos); more && n > 0; more = rope_next(&pos), n--)
        s->pack_bytes -= (u32)listpack_cost(rope_pos_get(&pos));
}

static void mem_seq_recount(struct mem_seq *s)
{
    u64 total = LISTPACK_EMPTY;
    struct rope_pos pos;
    for (bool more = rope_seek(&s->rope, 0, &pos); more; more = rope_next(&pos))
        total += listpack_cost(rope_pos_get(&pos));
    mem_seq_count(s, total);
}

/* Called after elements were erased. A number takes up to 2.5 times as much in a chunk as in a listpack. */
static void mem_seq_shrunk(const struct engine *e, struct mem_seq *s)
{
    i64 limit = e->limits.list_max_listpack_size;
    if (!s->quick) return;
    if (s->pack_bytes == 0 && s->rope.blob_memory <= 2 * listpack_bytes_max(limit)) mem_seq_recount(s);
    if (s->pack_bytes && listpack_is_half(limit, s->pack_bytes, rope_count(&s->rope))) s->quick = false;
}

/* -- primitives --------------------------------------------------------------------- */

static void mem_seq_push_all(struct engine *e, struct key_ref *ref, bool front, const bytes *v, u32 n)
{
    mem_keep(e, ref);
    mem_seq_grow(e, seq_of(ref), v, n);
    for (u32 i = 0; i < n; i++) rope_push(rope_of(ref), front, v[i]);
}

static void mem_seq_push(struct engine *e, struct key_ref *ref, bool front, bytes value)
{
    mem_seq_push_all(e, ref, front, &value, 1);
}

/* A loaded list gets the encoding of its contents, whatever its history. */
static void mem_seq_fill(struct engine *e, struct key_ref *ref, const bytes *v, u32 n)
{
    struct mem_seq *s = seq_of(ref);
    mem_keep(e, ref);
    mem_seq_grow(e, s, v, n);
    rope_extend(&s->rope, v, n);
    s->quick = mem_seq_exceeds(e, s, s->pack_bytes, rope_count(&s->rope));
}

static void mem_seq_pop(struct engine *e, struct key_ref *ref, bool front, struct buf *out)
{
    mem_keep(e, ref);
    mem_seq_uncount(seq_of(ref), front ? 0 : rope_count(rope_of(ref)) - 1, 1);
    rope_pop(rope_of(ref), front, out);
    mem_seq_shrunk(e, seq_of(ref));
}

static void mem_seq_get(struct engine *e UNUSED, struct key_ref *ref, u64 index, bytes *value)
{
    *value = rope_get(rope_of(ref), index);
}

static void mem_seq_set(struct engine *e, struct key_ref *ref, u64 index, bytes value)
{
    mem_keep(e, ref);
    mem_seq_grow(e, seq_of(ref), &value, 1);
    mem_seq_uncount(seq_of(ref), index, 1);
    rope_set(rope_of(ref), index, value);
    mem_seq_shrunk(e, seq_of(ref));
}

static void mem_seq_insert(struct engine *e, struct key_ref *ref, u64 index, bytes value)
{
    mem_keep(e, ref);
    mem_seq_grow(e, seq_of(ref), &value, 1);
    rope_insert(rope_of(ref), index, value);
}

static void mem_seq_erase(struct engine *e, struct key_ref *ref, u64 index, u64 count)
{
    mem_keep(e, ref);
    mem_seq_uncount(seq_of(ref), index, count);
    rope_erase(rope_of(ref), index, count);
    mem_seq_shrunk(e, seq_of(ref));
}

/* The layout of an iterator's state. */
struct walk {
    struct rope_pos pos;
    enum { WALK_END, WALK_FRESH, WALK_GIVEN } at; /* FRESH: pos was not returned yet */
};
_Static_assert(sizeof(struct walk) <= sizeof(((struct seq_iter *)0)->state), "iterator fits");

static void mem_seq_iter(struct engine *e, struct key_ref *ref, u64 index, bool reverse, struct seq_iter *it)
{
    struct walk *w = (struct walk *)it->state;
    it->eng = e;
    it->ref = ref;
    it->reverse = reverse;
    w->at = rope_seek(rope_of(ref), index, &w->pos) ? WALK_FRESH : WALK_END;
}

static bool mem_seq_next(struct seq_iter *it, bytes *value)
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

static void mem_seq_erase_current(struct seq_iter *it)
{
    struct walk *w = (struct walk *)it->state;
    CHECK(w->at == WALK_GIVEN);
    struct mem_seq *s = seq_of(it->ref);
    mem_keep(it->eng, it->ref);
    if (s->pack_bytes) s->pack_bytes -= (u32)listpack_cost(rope_pos_get(&w->pos));
    w->at = rope_pos_erase(&s->rope, &w->pos, it->reverse) ? WALK_FRESH : WALK_END;
    mem_seq_shrunk(it->eng, s);
}

const struct seq_ops mem_seq_ops = {
    .push = mem_seq_push,
    .push_all = mem_seq_push_all,
    .fill = mem_seq_fill,
    .pop = mem_seq_pop,
    .get = mem_seq_get,
    .set = mem_seq_set,
    .insert = mem_seq_insert,
    .erase = mem_seq_erase,
    .iter = mem_seq_iter,
    .next = mem_seq_next,
    .erase_current = mem_seq_erase_current,
};
