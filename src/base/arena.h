/* Memory for things that all go at the same time. A zeroed struct is empty. */
#ifndef MAYFLY_BASE_ARENA_H
#define MAYFLY_BASE_ARENA_H

#include "base/types.h"

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks;
};

void *arena_alloc(struct arena *a, size_t n); /* 8-byte aligned; lives until clear or release */
void arena_clear(struct arena *a);            /* keeps one chunk for the next round */
void arena_release(struct arena *a);

#endif
