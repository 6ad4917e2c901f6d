/* A ctree (unkeyed) whose leaves are chunks, each with a packed blob of its own.
 *
 * Invariants:
 * (1) A chunk is never empty, and exceeds its limits only with a single element.
 * (2) Of two neighbours at least one is more than half full, by bytes or by entries.
 * (3) link.count is the blob's count, and blob_memory the sum of the blobs' memory: every change of a blob,
 *     except a push into a roomy one, is between rope_edit_begin and rope_edit_end.
 * (4) Only the end chunks of a long rope are roomy, that is, allocated at their full size: pushes go there,
 *     and growing a blob step by step would cost more than the pushes. The head grows towards its front, so
 *     that a push there moves no bytes either.
 *
 * Merging moves elements from right to left, so a chunk survives the merging of the chunks after it. */
#include "ds/rope.h"

#include "base/alloc.h"
#include "base/err.h"

#define ROOMY_FROM 8 /* chunks: spare room is then small compared with the rest */

struct rope_chunk {
    struct ctree_leaf link;
    packed *blob;
    bool roomy, front; /* front: the spare room is at the front */
};

static struct rope_chunk *chunk_of(struct ctree_leaf *link) { return (struct rope_chunk *)link; }
static struct rope_chunk *rope_prev_of(struct rope_chunk *c) { return chunk_of(c->link.prev); }
static struct rope_chunk *rope_next_of(struct rope_chunk *c) { return chunk_of(c->link.next); }

/* --- limits --- */

static bool rope_fits(const struct rope *r, size_t bytes, u32 entries)
{
    return bytes <= r->chunk_bytes && (r->chunk_entries == 0 || entries <= r->chunk_entries);
}

static bool has_room(const struct rope *r, const struct rope_chunk *c, bytes value)
{
    size_t bytes = packed_bytes(c->blob) + packed_cost(value.n);
    return rope_fits(r, bytes, packed_count(c->blob) + 1);
}

static bool rope_is_small(const struct rope *r, const struct rope_chunk *c)
{
    return rope_fits(r, 2 * packed_bytes(c->blob), 2 * packed_count(c->blob));
}

/* --- chunks --- */

static size_t blob_memory(const struct rope *r, const struct rope_chunk *c)
{
    return c->roomy ? r->chunk_bytes : packed_memory(c->blob);
}

static void rope_edit_begin(struct rope *r, struct rope_chunk *c)
{
    r->blob_memory -= blob_memory(r, c);
    if (c->roomy) c->blob = packed_trim(c->blob, r->chunk_bytes, c->front);
    c->roomy = false;
}

static void rope_edit_end(struct rope *r, struct rope_chunk *c)
{
    r->blob_memory += packed_memory(c->blob);
    c->link.count = packed_count(c->blob);
    ctree_update(&r->tree, &c->link, NULL);
}

/* The chunk is no longer an end: frees its spare room, invariant (4). */
static void chunk_trim(struct rope *r, struct rope_chunk *c)
{
    if (!c->roomy) return;
    rope_edit_begin(r, c);
    rope_edit_end(r, c);
}

/* Takes ownership of the blob. A roomy blob at the head has its room at the front. */
static struct rope_chunk *chunk_add(struct rope *r, struct rope_chunk *after, packed *blob, bool roomy)
{
    struct rope_chunk *c = mem_alloc(sizeof *c);
    c->blob = blob;
    c->roomy = roomy;
    c->front = !after;
    c->link.count = packed_count(blob);
    r->blob_memory += blob_memory(r, c);
    ctree_insert(&r->tree, after ? &after->link : NULL, &c->link, NULL);
    return c;
}

/* Adds a chunk for a value that fits into neither neighbour. */
static void chunk_add_value(struct rope *r, struct rope_chunk *left, struct rope_chunk *right,
                            bytes value)
{
    struct rope_chunk *was_end = !right ? left : !left ? right : NULL;
    bool roomy = was_end && r->tree.leaves >= ROOMY_FROM && r->chunk_entries == 0 &&
                 packed_cost(value.n) <= r->chunk_bytes / 4;
    if (was_end) chunk_trim(r, was_end);
    packed *blob;
    if (roomy) blob = packed_insert_inside(packed_new_roomy(r->chunk_bytes, !left), PACKED_END, value, !left);
    else blob = packed_insert(packed_new(), PACKED_END, value);
    chunk_add(r, left, blob, roomy);
}

static void chunk_drop(struct rope *r, struct rope_chunk *c)
{
    rope_edit_begin(r, c);
    ctree_remove(&r->tree, &c->link);
    packed_free(c->blob);
    mem_free(c);
}

static void chunk_insert(struct rope *r, struct rope_chunk *c, u32 at, bytes value)
{
    if (c->roomy) {
        c->blob = packed_insert_inside(c->blob, at, value, c->front);
        c->link.count++;
        ctree_update(&r->tree, &c->link, NULL);
        return;
    }
    rope_edit_begin(r, c);
    c->blob = packed_insert(c->blob, at, value);
    rope_edit_end(r, c);
}

/* Moves the elements from `at` on into a new chunk after c and returns it. */
static struct rope_chunk *chunk_split(struct rope *r, struct rope_chunk *c, u32 at)
{
    packed *tail;
    rope_edit_begin(r, c);
    c->blob = packed_split(c->blob, at, &tail);
    rope_edit_end(r, c);
    return chunk_add(r, c, tail, false);
}

/* Moves everything in right to the end of left. The cursor, if any, stays on its element. */
static void chunk_merge(struct rope *r, struct rope_chunk *left, struct rope_chunk *right,
                        struct rope_pos *cursor)
{
    if (cursor && cursor->chunk == right) {
        u32 header = packed_first(right->blob);
        cursor->chunk = left;
        cursor->at += (u32)packed_bytes(left->blob) - header;
    }
    rope_edit_begin(r, left);
    left->blob = packed_append_all(left->blob, right->blob);
    rope_edit_end(r, left);
    chunk_drop(r, right);
}

/* Restores invariant (2) around c after it shrank or got a new neighbour. */
static void rope_merge_small(struct rope *r, struct rope_chunk *c, struct rope_pos *cursor)
{
    if (!rope_is_small(r, c)) return;
    struct rope_chunk *prev = rope_prev_of(c);
    if (prev && rope_is_small(r, prev)) {
        chunk_merge(r, prev, c, cursor);
        c = prev;
    }
    struct rope_chunk *next = rope_next_of(c);
    if (next && rope_is_small(r, c) && rope_is_small(r, next)) chunk_merge(r, c, next, cursor);
}

/* Erases n elements of a chunk, and the chunk if it becomes empty. */
static void chunk_erase(struct rope *r, struct rope_chunk *c, u32 at, u32 n,
                        struct rope_pos *cursor)
{
    if (n < c->link.count) {
        rope_edit_begin(r, c);
        c->blob = packed_erase(c->blob, at, n);
        rope_edit_end(r, c);
    } else {
        struct rope_chunk *gone = c;
        c = rope_prev_of(gone);
        chunk_drop(r, gone);
    }
    if (c) rope_merge_small(r, c, cursor);
}

/* Puts a value before the element at `at` of chunk c, or after c's last if that is
 * PACKED_END. If c has no room, the value goes between c's two parts, or between
 * c and its neighbour: into the left one, the right one, or a chunk of its own. */
static void insert_at(struct rope *r, struct rope_chunk *c, u32 at, bytes value)
{
    if (has_room(r, c, value)) {
        chunk_insert(r, c, at, value);
        return;
    }
    struct rope_chunk *left = c, *right;
    if (at == PACKED_END) {
        right = rope_next_of(c);
    } else if (at == packed_first(c->blob)) {
        left = rope_prev_of(c);
        right = c;
    } else {
        right = chunk_split(r, c, at);
    }
    if (left && has_room(r, left, value)) {
        chunk_insert(r, left, PACKED_END, value);
    } else if (right && has_room(r, right, value)) {
        chunk_insert(r, right, packed_first(right->blob), value);
    } else {
        chunk_add_value(r, left, right, value);
    }
    if (right) rope_merge_small(r, right, NULL);
    if (left) rope_merge_small(r, left, NULL);
}

/* --- the rope --- */

void rope_init(struct rope *r, u32 chunk_bytes, u32 chunk_entries)
{
    *r = (struct rope){.chunk_bytes = chunk_bytes, .chunk_entries = chunk_entries};
}

void rope_release(struct rope *r)
{
    while (!rope_release_some(r, UINT32_MAX)) {}
}

bool rope_release_some(struct rope *r, u32 max_chunks)
{
    for (; r->tree.head && max_chunks > 0; max_chunks--) chunk_drop(r, chunk_of(r->tree.head));
    return r->tree.head == NULL;
}

size_t rope_memory(const struct rope *r)
{
    size_t chunks = r->tree.leaves * sizeof(struct rope_chunk);
    return chunks + r->blob_memory + ctree_memory(&r->tree);
}

void rope_push(struct rope *r, bool front, bytes value)
{
    struct rope_chunk *c = chunk_of(front ? r->tree.head : r->tree.tail);
    if (c)
        insert_at(r, c, front ? packed_first(c->blob) : PACKED_END, value);
    else
        chunk_add_value(r, NULL, NULL, value);
}

/* The number of values that fit into the chunk together. */
static u32 how_many_fit(const struct rope *r, const packed *blob, const bytes *v, u32 n)
{
    size_t size = packed_bytes(blob);
    u32 k = 0;
    while (k < n && rope_fits(r, size += packed_cost(v[k].n), packed_count(blob) + k + 1)) k++;
    return k;
}

/* Fills a chunk before it starts the next one. Invariant (2) holds: a value that does not fit into a small
 * chunk is large, so its own chunk is not small. */
void rope_extend(struct rope *r, const bytes *v, u32 n)
{
    while (n > 0) {
        struct rope_chunk *c = chunk_of(r->tree.tail);
        u32 k = c ? how_many_fit(r, c->blob, v, n) : 0;
        if (k > 0) {
            rope_edit_begin(r, c);
            c->blob = packed_extend(c->blob, v, k);
            rope_edit_end(r, c);
        } else {
            packed *blob = packed_new();
            k = how_many_fit(r, blob, v, n);
            if (k == 0) k = 1; /* too large for any chunk */
            if (c) chunk_trim(r, c);
            chunk_add(r, c, packed_extend(blob, v, k), false);
        }
        v += k;
        n -= k;
    }
}

bool rope_pop(struct rope *r, bool front, struct buf *out)
{
    struct rope_chunk *c = chunk_of(front ? r->tree.head : r->tree.tail);
    if (!c) return false;
    u32 at = front ? packed_first(c->blob) : packed_last(c->blob);
    if (out) buf_append_bytes(out, packed_get(c->blob, at));
    chunk_erase(r, c, at, 1, NULL);
    return true;
}

static struct rope_pos rope_locate(const struct rope *r, u64 index)
{
    u32 offset;
    struct rope_chunk *c = chunk_of(ctree_at(&r->tree, index, &offset));
    return (struct rope_pos){.chunk = c, .at = packed_at(c->blob, offset)};
}

bytes rope_get(const struct rope *r, u64 index)
{
    struct rope_pos pos = rope_locate(r, index);
    return rope_pos_get(&pos);
}

void rope_insert(struct rope *r, u64 index, bytes value)
{
    if (index == rope_count(r)) {
        rope_push(r, false, value);
        return;
    }
    struct rope_pos pos = rope_locate(r, index);
    insert_at(r, pos.chunk, pos.at, value);
}

void rope_set(struct rope *r, u64 index, bytes value)
{
    struct rope_pos pos = rope_locate(r, index);
    struct rope_chunk *c = pos.chunk;
    size_t old = packed_cost(packed_get(c->blob, pos.at).n);
    size_t bytes = packed_bytes(c->blob) - old + packed_cost(value.n);
    bool alone = c->link.count == 1;
    rope_edit_begin(r, c);
    if (alone || bytes <= r->chunk_bytes) {
        c->blob = packed_replace(c->blob, pos.at, value);
        rope_edit_end(r, c);
        rope_merge_small(r, c, NULL);
    } else {
        c->blob = packed_erase(c->blob, pos.at, 1);
        rope_edit_end(r, c);
        insert_at(r, c, packed_here(c->blob, pos.at), value);
    }
}

void rope_erase(struct rope *r, u64 index, u64 n)
{
    if (index >= rope_count(r)) return;
    n = MIN(n, rope_count(r) - index);
    while (n > 0) {
        u32 offset;
        struct rope_chunk *c = chunk_of(ctree_at(&r->tree, index, &offset));
        u32 here = (u32)MIN(n, c->link.count - offset);
        chunk_erase(r, c, packed_at(c->blob, offset), here, NULL);
        n -= here;
    }
}

/* --- cursors --- */

bool rope_seek(const struct rope *r, u64 index, struct rope_pos *pos)
{
    if (index >= rope_count(r)) return false;
    *pos = rope_locate(r, index);
    return true;
}

bool rope_next(struct rope_pos *pos)
{
    struct rope_chunk *c = pos->chunk;
    u32 at = packed_next(c->blob, pos->at);
    if (at == PACKED_END) {
        c = rope_next_of(c);
        if (!c) return false;
        at = packed_first(c->blob);
    }
    *pos = (struct rope_pos){.chunk = c, .at = at};
    return true;
}

bool rope_prev(struct rope_pos *pos)
{
    struct rope_chunk *c = pos->chunk;
    u32 at = packed_prev(c->blob, pos->at);
    if (at == PACKED_END) {
        c = rope_prev_of(c);
        if (!c) return false;
        at = packed_last(c->blob);
    }
    *pos = (struct rope_pos){.chunk = c, .at = at};
    return true;
}

bytes rope_pos_get(const struct rope_pos *pos) { return packed_get(pos->chunk->blob, pos->at); }

bool rope_pos_erase(struct rope *r, struct rope_pos *pos, bool backward)
{
    struct rope_chunk *c = pos->chunk;
    u32 at = pos->at;
    bool more = backward ? rope_prev(pos) : rope_next(pos);
    if (!backward && pos->chunk == c) pos->at = at; /* the next element has moved here */
    chunk_erase(r, c, at, 1, pos);
    return more;
}

/* --- checking --- */

void rope_check(const struct rope *r)
{
    size_t memory = 0;
    ctree_check(&r->tree, NULL);
    for (struct ctree_leaf *link = r->tree.head; link; link = link->next) {
        struct rope_chunk *c = chunk_of(link);
        packed_check(c->blob);
        CHECK(link->count == packed_count(c->blob));
        CHECK(link->count == 1 || rope_fits(r, packed_bytes(c->blob), link->count));
        CHECK(!link->next || !rope_is_small(r, c) || !rope_is_small(r, rope_next_of(c)));
        CHECK(!c->roomy || !link->prev || !link->next);
        memory += blob_memory(r, c);
    }
    CHECK(memory == r->blob_memory);
}
