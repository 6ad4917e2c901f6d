/* A sequence of byte strings in one flat allocation: the body of a small hash,
 * set or sorted set, and a chunk of a list. Two bytes of overhead per element
 * shorter than 128 bytes, eight per blob, and no pointers; every search is a walk.
 *
 * A position is the byte offset of an element in the blob. It stays valid until
 * the blob is modified at or before it. A slice from packed_get is invalidated
 * by any modification, which may move the whole blob. Functions that modify
 * return the blob, possibly moved: p = packed_insert(p, ...). */
#ifndef MAYFLY_DS_PACKED_H
#define MAYFLY_DS_PACKED_H

#include "base/bytes.h"

typedef struct packed packed;

#define PACKED_END 0u             /* "no element" */
#define PACKED_MAX ((u32)1 << 31) /* a blob stays smaller than this */
#define PACKED_SAFE ((u32)1 << 30) /* a collection should change its encoding before it grows beyond this */

packed *packed_new(void);
packed *packed_copy(const packed *p);
void packed_free(packed *p); /* NULL is fine */

u32 packed_count(const packed *p);     /* elements */
size_t packed_bytes(const packed *p);  /* bytes in use, including the header */
size_t packed_memory(const packed *p); /* bytes allocated, including spare room */
size_t packed_cost(size_t n);          /* bytes an element of n bytes adds to packed_bytes */

/* Navigation. Each returns PACKED_END if there is no such element. packed_at counts
 * from the head (0, 1, ...) or from the tail (-1, -2, ...) and walks from the
 * nearer end. */
u32 packed_first(const packed *p);
u32 packed_last(const packed *p);
u32 packed_next(const packed *p, u32 pos);
u32 packed_prev(const packed *p, u32 pos);
u32 packed_at(const packed *p, i64 index);
bytes packed_get(const packed *p, u32 pos);

/* The position of the first element equal to needle, from the one at `from` on: of that one and every
 * stride-th after it (PACKED_END: of none). Stride 2 looks only at the fields of field-value pairs. */
u32 packed_find(const packed *p, u32 from, bytes needle, u32 stride);

/* Inserts an element at pos, before the one that is there; PACKED_END appends it, and packed_last finds it.
 * The slice must not point into the blob. */
NODISCARD packed *packed_insert(packed *p, u32 pos, bytes value);
NODISCARD packed *packed_replace(packed *p, u32 pos, bytes value);
/* Replaces the element at pos by one of the same length, which may be in the blob. False: it has another. */
bool packed_overwrite(packed *p, u32 pos, bytes value);

/* Appends n elements with one allocation at most. */
NODISCARD packed *packed_extend(packed *p, const bytes *v, u32 n);

/* A roomy blob has spare room at its front or at its back, up to `room` bytes in total (at least an empty
 * blob's): packed_insert_inside allocates nothing, and moves only the bytes between that end and pos. The
 * only operations allowed are reading, packed_insert_inside, and trimming, which makes it an ordinary blob.
 * The caller passes the same `room` and `front` each time. packed_memory does not include the spare room. */
packed *packed_new_roomy(size_t room, bool front);
NODISCARD packed *packed_insert_inside(packed *p, u32 pos, bytes value, bool front);
NODISCARD packed *packed_trim(packed *p, size_t room, bool front);

/* Erases up to count elements from pos on. The element after them, if any (packed_here), is then at pos. */
NODISCARD packed *packed_erase(packed *p, u32 pos, u32 count);

/* pos if there is an element, PACKED_END at the end of the blob. */
u32 packed_here(const packed *p, u32 pos);

/* Moves the elements from pos on (PACKED_END: none) into a new blob, *tail. */
NODISCARD packed *packed_split(packed *p, u32 pos, packed **tail);

/* Appends a copy of b's elements to a. A position in b grows by the old packed_bytes(a) less packed_bytes of
 * an empty blob. */
NODISCARD packed *packed_append_all(packed *a, const packed *b);

/* For tests: CHECKs that the blob is well formed. O(n). */
void packed_check(const packed *p);

#endif
