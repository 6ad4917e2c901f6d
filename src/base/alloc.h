/* Memory allocation. Every object has one owner, which releases it with mem_free().
 *
 * Allocation never returns NULL: running out of memory stops the process with a message, as in Redis. Sizes
 * that come from a client are bounded before they get here. */
#ifndef MAYFLY_BASE_ALLOC_H
#define MAYFLY_BASE_ALLOC_H

#include "base/types.h"

/* Configures the allocator. Call it once, before any other thread starts. */
void mem_start(void);

void *mem_alloc(size_t n) __attribute__((malloc, alloc_size(1), returns_nonnull));
void *mem_zalloc(size_t n) __attribute__((malloc, alloc_size(1), returns_nonnull));
void *mem_alloc_aligned(size_t align, size_t n) __attribute__((malloc, returns_nonnull));
void *mem_realloc(void *p, size_t n) __attribute__((alloc_size(2), returns_nonnull));
void mem_free(void *p); /* NULL is fine */

/* Bytes the allocator reserved for p, rounding included; 0 for NULL. */
size_t mem_size(const void *p);

/* The bytes that an allocation of n bytes takes: jemalloc's size classes from 16 bytes on, which are
 * multiples of 16 up to 128, and then four per doubling. What grows in these steps loses nothing to
 * rounding. */
static inline size_t mem_room(size_t n)
{
    if (LIKELY(n <= 128)) return (n + 15) & ~(size_t)15;
    size_t step = (size_t)1 << (61 - __builtin_clzll(n - 1));
    return (n + step - 1) & ~(step - 1);
}

static inline bool mem_same_room(size_t a, size_t b)
{
    return LIKELY((a + 15) / 16 == (b + 15) / 16) || mem_room(a) == mem_room(b);
}

/* Measures memory in use: INFO's used_memory.
 *
 * An open meter counts what the opening thread allocated less what it freed. That is cheap enough for every
 * command, and correct as long as no other thread frees this thread's memory, or `others` says by how much.
 * Only the opening thread may read it. A zeroed meter reads the total of the process, which takes about ten
 * microseconds. */
struct mem_meter {
    const u64 *allocated, *freed; /* jemalloc's counters of this thread, or NULL */
    i64 others; /* for the owner: what is to be added for other threads that allocate and free the same
                 * objects */
};
void mem_meter_open(struct mem_meter *m);
size_t mem_used(const struct mem_meter *m);
/* What the calling thread, which opened the meter, has allocated less what it has freed: may be negative. 0:
 * unknown, and mem_used counts the whole process. */
i64 mem_own(const struct mem_meter *m);

/* Has the kernel back the pages inside [p, p + n) now, on this thread, and not when each is first written to.
 * What they contain stays. Kernels before 5.14 can't, and nothing happens. */
void mem_populate(void *p, size_t n);

/* Resident set size as the kernel counts it. */
size_t mem_rss(void);

/* Returns this thread's cache of freed objects to the arena: after a mass deletion a single cached object can
 * keep a whole slab alive. Cheap. */
void mem_flush_cache(void);

/* Returns free pages to the kernel, as many as the allocator's decay curve asks for by now. Called often,
 * each call returns a few, and all are returned within about a second. */
void mem_decay(void);

/* Returns all free pages to the kernel at once. Slow: for MEMORY PURGE. */
void mem_purge(void);

/* "jemalloc-5.3.0" or "libc": INFO's mem_allocator. */
const char *mem_allocator_name(void);

/* Allocator-wide figures for INFO and MEMORY STATS; zeros where unknown. */
struct mem_stats {
    size_t allocated, active, resident, retained;
};
void mem_stats_read(struct mem_stats *out);

#endif
