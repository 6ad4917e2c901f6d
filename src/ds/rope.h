/* A list: a sequence of byte strings, cut into packed chunks that are the leaves
 * of a counted tree. Both ends are O(1); the middle is O(log n) plus a walk
 * inside one chunk.
 *
 * A slice handed out lives until the rope is next modified. */
#ifndef MAYFLY_DS_ROPE_H
#define MAYFLY_DS_ROPE_H

#include "base/buf.h"
#include "ds/ctree.h"
#include "ds/packed.h"

struct rope {
    struct ctree tree;
    u32 chunk_bytes, chunk_entries; /* a chunk's limits */
    size_t blob_memory;             /* allocated by all chunks' blobs */
};

/* A chunk holds up to chunk_bytes bytes, overhead included, and chunk_entries
 * elements (0: any number). An element too large for that has a chunk to itself. */
void rope_init(struct rope *r, u32 chunk_bytes, u32 chunk_entries);
void rope_release(struct rope *r); /* frees everything, leaves an empty rope */

/* Frees up to max_chunks chunks from the front; true when the rope is empty. */
bool rope_release_some(struct rope *r, u32 max_chunks);

static inline u64 rope_count(const struct rope *r) { return r->tree.count; }
static inline u64 rope_chunks(const struct rope *r) { return r->tree.leaves; }
size_t rope_memory(const struct rope *r); /* bytes of everything below struct rope */

/* Values passed in must not point into the rope. */
void rope_push(struct rope *r, bool front, bytes value);
void rope_extend(struct rope *r, const bytes *v, u32 n);  /* pushes n values to the back, at once */
void rope_insert(struct rope *r, u64 index, bytes value); /* before index; index <= count */
void rope_set(struct rope *r, u64 index, bytes value);    /* index < count */
bytes rope_get(const struct rope *r, u64 index);          /* index < count */

/* Takes an element off an end and appends it to out (NULL: drops it). False when empty. */
bool rope_pop(struct rope *r, bool front, struct buf *out);

/* Erases n elements from index on, cut to the rope's end. Whole chunks go at once. */
void rope_erase(struct rope *r, u64 index, u64 n);

/* A cursor, good until the rope is modified by anything but rope_pos_erase with it. */
struct rope_pos {
    struct rope_chunk *chunk;
    u32 at; /* the element's position in the chunk */
};

/* Puts the cursor on an element; false, and the cursor useless, when index >= count. */
bool rope_seek(const struct rope *r, u64 index, struct rope_pos *pos);

/* Step. False, and the cursor where it was, when there is no further element. */
bool rope_next(struct rope_pos *pos);
bool rope_prev(struct rope_pos *pos);

bytes rope_pos_get(const struct rope_pos *pos);

/* Erases the element under the cursor and leaves the cursor on the one after it,
 * or before it when walking backward. False, and the cursor useless, when that
 * was the last in this direction. */
bool rope_pos_erase(struct rope *r, struct rope_pos *pos, bool backward);

/* For tests: CHECKs counts, limits, memory and that small neighbours were merged. O(n). */
void rope_check(const struct rope *r);

#endif
