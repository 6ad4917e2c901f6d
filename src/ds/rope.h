/* A list: a sequence of byte strings in packed chunks, which are the leaves of a counted tree. Pushing and
 * popping at both ends is O(1); access in the middle is O(log n) plus a walk inside one chunk.
 *
 * The rope owns its elements. A slice read from it is valid until the rope is modified. */
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
 * elements (0: any number). An element too large for that gets its own chunk. */
void rope_init(struct rope *r, u32 chunk_bytes, u32 chunk_entries);
void rope_release(struct rope *r); /* frees all elements, leaves an empty rope */

/* Frees up to max_chunks chunks from the front; true when the rope is empty. */
bool rope_release_some(struct rope *r, u32 max_chunks);

static inline u64 rope_count(const struct rope *r) { return r->tree.count; }
static inline u64 rope_chunks(const struct rope *r) { return r->tree.leaves; }
size_t rope_memory(const struct rope *r); /* bytes of everything below struct rope */

/* Values passed in must not point into the rope. */
void rope_push(struct rope *r, bool front, bytes value);
void rope_extend(struct rope *r, const bytes *v, u32 n);  /* pushes n values to the back */
void rope_insert(struct rope *r, u64 index, bytes value); /* before index; index <= count */
void rope_set(struct rope *r, u64 index, bytes value);    /* index < count */
bytes rope_get(const struct rope *r, u64 index);          /* index < count */

/* Removes an element from an end and appends it to out (NULL: discards it). False when empty. */
bool rope_pop(struct rope *r, bool front, struct buf *out);

/* Erases n elements from index on, or fewer at the end. Frees whole chunks without visiting their
 * elements. */
void rope_erase(struct rope *r, u64 index, u64 n);

/* A cursor, valid until the rope is modified other than by rope_pos_erase with this cursor. */
struct rope_pos {
    struct rope_chunk *chunk;
    u32 at; /* the element's position in the chunk */
};

/* Moves the cursor to an element. False: index >= count, and the cursor is invalid. */
bool rope_seek(const struct rope *r, u64 index, struct rope_pos *pos);

/* Moves by one element. False: no further element, and the cursor is unchanged. */
bool rope_next(struct rope_pos *pos);
bool rope_prev(struct rope_pos *pos);

bytes rope_pos_get(const struct rope_pos *pos);

/* Erases the element at the cursor and moves to the next one, or to the previous one when walking backward.
 * False: it was the last in this direction, and the cursor is invalid. */
bool rope_pos_erase(struct rope *r, struct rope_pos *pos, bool backward);

/* For tests: CHECKs counts, limits, memory and that small neighbours were merged. O(n). */
void rope_check(const struct rope *r);

#endif
