/* Lists of the memory engine. Small ones are in their entry (small.h), others a rope of packed chunks.
 *
 * list-max-listpack-size bounds a chunk as it bounds a node of Redis's quicklist, but CHUNK_MAX does so
 * first: an insertion or a pop at the head moves the rest of the chunk, and in a counted
 * tree more and smaller chunks cost nothing. For the same reason a list leaves its entry at SMALL_MAX bytes,
 * far below Redis's limit for a listpack; so a list in its entry is one, unless it has too many elements. It
 * returns there when it is half that size. */
#include "ds/listpack.h"
#include "engine/memory/small.h"

#define CHUNK_MAX 2048
#define SMALL_MAX 1024u /* bytes; a listpack of them takes less than twice that, and less than 4 KB */

static struct mem_seq *seq_of(const struct key_ref *ref)
{
    return entry_is_small(ref->entry) ? NULL : entry_object(ref->entry);
}

static struct mem_seq *mem_seq_new(struct mem_engine *m)
{
    struct mem_seq *s = mem_alloc(sizeof *s);
    i64 limit = m->base.limits.list_max_listpack_size;
    rope_init(&s->rope, CHUNK_MAX, limit < 0 ? 0 : (u32)MIN(MAX(limit, 1), INT16_MAX));
    s->pack_bytes = LISTPACK_EMPTY;
    s->quick = false;
    return s;
}

struct mem_seq *mem_seq_copy(struct mem_engine *m, const struct mem_seq *from)
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

size_t mem_seq_memory(const struct mem_seq *s) { return sizeof *s + rope_memory(&s->rope); }

u64 mem_seq_count(const struct entry *entry)
{
    if (entry_is_small(entry)) return small_of(entry).count;
    return rope_count(&((const struct mem_seq *)entry_object(entry))->rope);
}

/* -- the encoding that Redis would have ----------------------------------------------- */

/* It depends on the bytes that a listpack of the elements takes (ds/listpack.h). They are counted as elements
 * come and go, up to COUNTED_MAX, far above any limit; a longer list that has shrunk is counted once. */
#define COUNTED_MAX (256 << 10)

const char *mem_seq_encoding(const struct entry *entry)
{
    if (entry_is_small(entry)) return "listpack";
    return ((const struct mem_seq *)entry_object(entry))->quick ? "quicklist" : "listpack";
}

static void mem_seq_note_bytes(struct mem_seq *s, u64 pack_bytes)
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
    mem_seq_note_bytes(s, s->pack_bytes + cost);
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
    mem_seq_note_bytes(s, total);
}

/* The elements move from a rope to the entry. */
COLD static void mem_seq_to_entry(struct engine *e, struct key_ref *ref, struct mem_seq *s)
{
    char items[SMALL_MAX], *end = items;
    u32 n = (u32)rope_count(&s->rope);
    struct compact_item it;
    struct rope_pos pos;
    for (bool more = rope_seek(&s->rope, 0, &pos); more; more = rope_next(&pos)) {
        compact_item_text(&it, rope_pos_get(&pos));
        end = compact_write(end, &it, NULL);
    }
    /* cppcheck-suppress uninitvar ; a list has elements, and they are there now */
    memcpy(small_replace(e, ref, n, (u32)(end - items)), items, (size_t)(end - items));
    rope_release(&s->rope);
    mem_free(s);
}

/* Called after elements were erased. A number takes up to 2.5 times as much in a chunk as in a listpack, and
 * no element takes more in an entry. True: the list is in its entry now. */
static bool mem_seq_shrunk(struct engine *e, struct key_ref *ref)
{
    struct mem_seq *s = seq_of(ref);
    i64 limit = e->limits.list_max_listpack_size;
    if (s->quick && s->pack_bytes == 0 && s->rope.blob_memory <= 2 * listpack_bytes_max(limit))
        mem_seq_recount(s);
    if (s->quick && s->pack_bytes && listpack_is_half(limit, s->pack_bytes, rope_count(&s->rope)))
        s->quick = false;
    if (s->quick || s->pack_bytes > SMALL_MAX / 2 || rope_count(&s->rope) == 0) return false;
    mem_seq_to_entry(e, ref, s);
    return true;
}

/* The elements move from the entry to a rope. */
COLD static struct mem_seq *mem_seq_to_rope(struct engine *e, struct key_ref *ref)
{
    struct mem_seq *seq = mem_seq_new(mem_of(e));
    struct small s = small_of(ref->entry);
    for (const char *at = s.p; at < small_end(&s);) {
        struct compact_slot slot;
        char digits[NUM_I64_LEN];
        at = compact_read(at, &slot);
        bytes v = compact_text(&slot, digits);
        rope_push(&seq->rope, false, v);
        seq->pack_bytes += (u32)listpack_cost(v);
    }
    mem_set_object(e, ref, seq);
    return seq;
}

/* -- in the entry --------------------------------------------------------------------- */

static u32 seq_small_at(const struct small *s, u64 index)
{
    return small_offset(s, compact_skip(s->p, false, (u32)index));
}

/* Whether Redis would have a quicklist because of n more elements. Their bytes alone never make it one. */
static bool seq_small_exceeds(const struct engine *e, const struct small *s, u32 n)
{
    i64 limit = e->limits.list_max_listpack_size;
    return limit >= 0 && listpack_exceeds(limit, 0, (u64)s->count + n);
}

/* The bytes that n elements would take in the entry, if they may be there; otherwise 0. */
static u32 seq_small_fit(const struct engine *e, const struct small *s, const bytes *v, u32 n)
{
    u64 need = 0;
    if (seq_small_exceeds(e, s, n)) return 0;
    for (u32 i = 0; i < n; i++) {
        if (v[i].n >= SMALL_MAX) return 0;
        struct compact_item it;
        compact_item_text(&it, v[i]);
        need += compact_need(&it, NULL);
        if (s->bytes + need > SMALL_MAX) return 0;
    }
    return (u32)need;
}

/* Puts n elements at an offset, the last of them first if `reversed`. False: they don't fit. */
static bool seq_small_put(struct engine *e, struct key_ref *ref, u32 at, const bytes *v, u32 n, bool reversed)
{
    struct small s = small_of(ref->entry);
    u32 need = seq_small_fit(e, &s, v, n);
    if (need == 0) return n == 0;
    char *to = small_splice(e, ref, at, 0, need, (i32)n);
    for (u32 i = 0; i < n; i++) {
        struct compact_item it;
        compact_item_text(&it, v[reversed ? n - 1 - i : i]);
        to = compact_write(to, &it, NULL);
    }
    return true;
}

static void seq_small_erase(struct engine *e, struct key_ref *ref, u32 at, u32 count)
{
    struct small s = small_of(ref->entry);
    u32 end = small_offset(&s, compact_skip(s.p + at, false, count));
    small_splice(e, ref, at, end - at, 0, -(i32)count);
}

/* -- primitives --------------------------------------------------------------------- */

static void mem_seq_push_all(struct engine *e, struct key_ref *ref, bool front, const bytes *v, u32 n)
{
    struct mem_seq *s = seq_of(ref);
    mem_keep(e, ref);
    if (!s) {
        if (seq_small_put(e, ref, front ? 0 : small_of(ref->entry).bytes, v, n, front)) return;
        s = mem_seq_to_rope(e, ref);
    }
    mem_seq_grow(e, s, v, n);
    for (u32 i = 0; i < n; i++) rope_push(&s->rope, front, v[i]);
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
    if (!s) {
        if (seq_small_put(e, ref, small_of(ref->entry).bytes, v, n, false)) return;
        s = mem_seq_to_rope(e, ref);
    }
    mem_seq_grow(e, s, v, n);
    rope_extend(&s->rope, v, n);
    s->quick = mem_seq_exceeds(e, s, s->pack_bytes, rope_count(&s->rope));
}

static void mem_seq_get(struct engine *e, struct key_ref *ref, u64 index, bytes *value)
{
    const struct mem_seq *s = seq_of(ref);
    if (s) {
        *value = rope_get(&s->rope, index);
        return;
    }
    struct small small = small_of(ref->entry);
    struct compact_slot slot;
    compact_read(small.p + seq_small_at(&small, index), &slot);
    *value = small_text(e, &slot);
}

static void mem_seq_pop(struct engine *e, struct key_ref *ref, bool front, struct buf *out)
{
    struct mem_seq *s = seq_of(ref);
    u64 index = front ? 0 : mem_seq_count(ref->entry) - 1;
    mem_keep(e, ref);
    if (s) {
        mem_seq_uncount(s, index, 1);
        rope_pop(&s->rope, front, out);
        mem_seq_shrunk(e, ref);
        return;
    }
    struct small small = small_of(ref->entry);
    u32 at = seq_small_at(&small, index);
    struct compact_slot slot;
    char digits[NUM_I64_LEN];
    compact_read(small.p + at, &slot);
    if (out) buf_append_bytes(out, compact_text(&slot, digits));
    seq_small_erase(e, ref, at, 1);
}

/* Replaces an element; false if the list has to leave its entry for that. Redis counts the new element before
 * it removes the old one. */
static bool seq_small_set(struct engine *e, struct key_ref *ref, u64 index, bytes value)
{
    struct small s = small_of(ref->entry);
    u32 at = seq_small_at(&s, index);
    struct compact_item it;
    compact_item_text(&it, value);
    u32 old = (u32)(compact_next(s.p + at, false) - (s.p + at)), need = compact_need(&it, NULL);
    if (seq_small_exceeds(e, &s, 1) || value.n >= SMALL_MAX || s.bytes - old + need > SMALL_MAX) return false;
    compact_write(small_splice(e, ref, at, old, need, 0), &it, NULL);
    return true;
}

static void mem_seq_set(struct engine *e, struct key_ref *ref, u64 index, bytes value)
{
    struct mem_seq *s = seq_of(ref);
    mem_keep(e, ref);
    if (!s) {
        if (seq_small_set(e, ref, index, value)) return;
        s = mem_seq_to_rope(e, ref);
    }
    mem_seq_grow(e, s, &value, 1);
    mem_seq_uncount(s, index, 1);
    rope_set(&s->rope, index, value);
    mem_seq_shrunk(e, ref);
}

static void mem_seq_insert(struct engine *e, struct key_ref *ref, u64 index, bytes value)
{
    struct mem_seq *s = seq_of(ref);
    mem_keep(e, ref);
    if (!s) {
        struct small small = small_of(ref->entry);
        if (seq_small_put(e, ref, seq_small_at(&small, index), &value, 1, false)) return;
        s = mem_seq_to_rope(e, ref);
    }
    mem_seq_grow(e, s, &value, 1);
    rope_insert(&s->rope, index, value);
}

static void mem_seq_erase(struct engine *e, struct key_ref *ref, u64 index, u64 count)
{
    struct mem_seq *s = seq_of(ref);
    u64 size = mem_seq_count(ref->entry);
    if (index >= size) return;
    count = MIN(count, size - index);
    mem_keep(e, ref);
    if (s) {
        mem_seq_uncount(s, index, count);
        rope_erase(&s->rope, index, count);
        mem_seq_shrunk(e, ref);
        return;
    }
    struct small small = small_of(ref->entry);
    seq_small_erase(e, ref, seq_small_at(&small, index), (u32)count);
}

/* -- walks ---------------------------------------------------------------------------- */

/* The layout of an iterator's state. */
struct walk {
    u8 at; /* one of these */
    bool small;
    u32 before; /* of a small one, in reverse: where the element returned last is, or the end */
    union {
        u64 index;     /* of the element at pos, in a rope */
        const char *p; /* of a small one: the next element; in reverse: the first */
    };
    union {
        struct rope_pos pos;
        struct compact_back back; /* in reverse */
        struct {
            const char *end, *given; /* given: the element returned last */
            char digits[NUM_I64_LEN]; /* its text, if it.passing */
        };
    };
};
enum { WALK_END, WALK_FRESH, WALK_GIVEN }; /* FRESH: pos was not returned yet */
_Static_assert(sizeof(struct walk) <= sizeof(((struct seq_iter *)0)->state), "iterator fits");

static void seq_small_start(struct walk *w, const struct entry *entry, u64 index, bool reverse)
{
    struct small s = small_of(entry);
    const char *at = compact_skip(s.p, false, (u32)index + reverse);
    w->at = WALK_GIVEN;
    w->small = true;
    w->before = small_offset(&s, at);
    w->p = reverse ? s.p : at;
    w->back.n = w->back.top = 0;
    if (!reverse) w->end = small_end(&s);
}

static void mem_seq_iter(struct engine *e, struct key_ref *ref, u64 index, bool reverse, struct seq_iter *it)
{
    const struct mem_seq *s = seq_of(ref);
    struct walk *w = (struct walk *)it->state;
    it->eng = e;
    it->ref = ref;
    it->reverse = reverse;
    it->passing = false;
    w->at = WALK_END;
    w->small = !s;
    if (s) {
        if (rope_seek(&s->rope, index, &w->pos)) w->at = WALK_FRESH;
        w->index = index;
        return;
    }
    if (index < small_of(ref->entry).count) seq_small_start(w, ref->entry, index, reverse);
}

static bool seq_small_next(struct seq_iter *it, struct walk *w, bytes *value)
{
    struct compact_slot slot;
    char *digits = NULL;
    if (it->reverse ? !compact_prev(&w->back, w->p, w->before, false, &w->before) : w->p == w->end) {
        w->at = WALK_END;
        return false;
    }
    if (it->reverse) {
        compact_read(w->p + w->before, &slot);
    } else {
        w->given = w->p;
        w->p = compact_read(w->p, &slot);
        if (it->passing) digits = w->digits;
    }
    *value = digits ? compact_text(&slot, digits) : small_text(it->eng, &slot);
    return true;
}

static bool mem_seq_next(struct seq_iter *it, bytes *value)
{
    struct walk *w = (struct walk *)it->state;
    if (w->at == WALK_END) return false;
    if (w->small) return seq_small_next(it, w, value);
    if (w->at == WALK_GIVEN) {
        w->index += it->reverse ? (u64)-1 : 1;
        if (!(it->reverse ? rope_prev(&w->pos) : rope_next(&w->pos))) {
            w->at = WALK_END;
            return false;
        }
    }
    w->at = WALK_GIVEN;
    *value = rope_pos_get(&w->pos);
    return true;
}

/* The walk continues in the entry if the elements have moved there. */
static void mem_seq_erase_current(struct seq_iter *it)
{
    struct walk *w = (struct walk *)it->state;
    CHECK(w->at == WALK_GIVEN);
    mem_keep(it->eng, it->ref);
    if (w->small) {
        struct small small = small_of(it->ref->entry);
        u32 at = it->reverse ? w->before : small_offset(&small, w->given);
        seq_small_erase(it->eng, it->ref, at, 1);
        small = small_of(it->ref->entry);
        w->p = it->reverse ? small.p : small.p + at;
        if (!it->reverse) w->end = small_end(&small);
        return;
    }
    struct mem_seq *s = seq_of(it->ref);
    if (s->pack_bytes) s->pack_bytes -= (u32)listpack_cost(rope_pos_get(&w->pos));
    w->at = rope_pos_erase(&s->rope, &w->pos, it->reverse) ? WALK_FRESH : WALK_END;
    w->index -= it->reverse;
    if (mem_seq_shrunk(it->eng, it->ref) && w->at != WALK_END)
        seq_small_start(w, it->ref->entry, w->index, it->reverse);
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
