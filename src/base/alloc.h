/* Memory. Allocation never returns NULL: running out of memory stops the
 * process with a message, as in Redis, because sizes that come from a client
 * are bounded before they get here. */
#ifndef MAYFLY_BASE_ALLOC_H
#define MAYFLY_BASE_ALLOC_H

#include "base/types.h"

/* Sets the allocator up for the process; before anything else. */
void mem_start(void);

void *mem_alloc(size_t n) __attribute__((malloc, alloc_size(1), returns_nonnull));
void *mem_zalloc(size_t n) __attribute__((malloc, alloc_size(1), returns_nonnull));
void *mem_alloc_aligned(size_t align, size_t n) __attribute__((malloc, returns_nonnull));
void *mem_realloc(void *p, size_t n) __attribute__((alloc_size(2), returns_nonnull));
void mem_free(void *p); /* NULL is fine */

/* Bytes the allocator really set aside for p (0 for NULL). */
size_t mem_size(const void *p);

/* Reads how much memory is in use: INFO's used_memory. Once opened, it is that of the opening thread: cheap
 * enough for every command, and right as long as others free nothing that this thread has allocated. To be
 * read by the same thread. One that is not opened (zeroed) reads that of the whole process, which takes some
 * ten microseconds. */
struct mem_meter {
    const u64 *allocated, *freed; /* jemalloc's counters of this thread, or NULL */
};
void mem_meter_open(struct mem_meter *m);
size_t mem_used(const struct mem_meter *m);

/* Resident set size as the kernel counts it. */
size_t mem_rss(void);

/* Let go of freed pieces the allocator keeps at hand for this thread: each may hold a
 * whole slab back after a mass deletion. Cheap. */
void mem_flush_cache(void);

/* Give as many free pages back to the kernel as are due by now: all are within about
 * a second, a few with each call if it is called often. */
void mem_decay(void);

/* Give all free pages back to the kernel at once. Costs time: MEMORY PURGE. */
void mem_purge(void);

/* "jemalloc-5.3.0" or "libc": INFO's mem_allocator. */
const char *mem_allocator_name(void);

/* Allocator-wide figures for INFO and MEMORY STATS; zeros where unknown. */
struct mem_stats {
    size_t allocated, active, resident, retained;
};
void mem_stats_read(struct mem_stats *out);

#endif
