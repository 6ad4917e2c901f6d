/* An arena: objects with the same lifetime, allocated by advancing a pointer and freed together. A zeroed
 * struct is an empty arena. The arena owns everything it hands out. */
#ifndef MAYFLY_BASE_ARENA_H
#define MAYFLY_BASE_ARENA_H

#include "base/types.h"

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks;
};

void *arena_alloc(struct arena *a, size_t n); /* 8-byte aligned; valid until clear or release */
void arena_clear(struct arena *a);            /* frees all objects, keeps one chunk for reuse */
void arena_release(struct arena *a);

#endif
