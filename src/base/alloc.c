/* One allocator for the whole process. Release builds link jemalloc, whose
 * per-thread counters give used_memory without any accounting of our own;
 * sanitizer builds use the sanitizer's allocator and its counter. */
#include "base/alloc.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/crash.h"

#if MAYFLY_JEMALLOC
#include <jemalloc/jemalloc.h>
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
size_t __sanitizer_get_current_allocated_bytes(void);
#define MAYFLY_SANITIZER_ALLOC 1
#endif

static void *nonnull(void *p, size_t n)
{
    if (UNLIKELY(!p)) crash_panic("Out Of Memory allocating %zu bytes!", n);
    return p;
}

void *mem_alloc(size_t n) { return nonnull(malloc(n ? n : 1), n); }
void *mem_zalloc(size_t n) { return nonnull(calloc(1, n ? n : 1), n); }
void *mem_alloc_aligned(size_t align, size_t n) { return nonnull(aligned_alloc(align, n), n); }
void *mem_realloc(void *p, size_t n) { return nonnull(realloc(p, n ? n : 1), n); }
void mem_free(void *p) { free(p); }
size_t mem_size(const void *p) { return p ? malloc_usable_size((void *)p) : 0; }

/* In pieces: a call holds a lock that other threads need to map memory. */
void mem_populate(void *p UNUSED, size_t n UNUSED)
{
#ifdef MADV_POPULATE_WRITE
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), piece = 4u << 20;
    uintptr_t at = ((uintptr_t)p + page - 1) & ~(page - 1), end = ((uintptr_t)p + n) & ~(page - 1);
    for (; at < end; at += piece) madvise((void *)at, MIN(piece, end - at), MADV_POPULATE_WRITE);
#endif
}

size_t mem_rss(void)
{
    unsigned long pages = 0, rss = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%lu %lu", &pages, &rss) != 2) rss = 0;
    fclose(f);
    return rss * (size_t)sysconf(_SC_PAGESIZE);
}

#if MAYFLY_JEMALLOC

/* By default jemalloc returns a free extent of 8 MB or more to the kernel at once, on the thread that freed
 * its last part. That takes a millisecond per 10 MB and would block the loop, so large extents decay like all
 * others (mem_decay). The first arena is created before malloc_conf's oversize_threshold is read; it keeps
 * the default unless it is set here. */
void mem_start(void)
{
    size_t never = SIZE_MAX;
    mallctl("arena.0.oversize_threshold", NULL, NULL, &never, sizeof never);
}

void mem_meter_open(struct mem_meter *m)
{
    size_t n = sizeof m->allocated;
    *m = (struct mem_meter){0};
    if (mallctl("thread.allocatedp", &m->allocated, &n, NULL, 0)) m->allocated = NULL;
    if (mallctl("thread.deallocatedp", &m->freed, &n, NULL, 0)) m->freed = NULL;
}

size_t mem_used(const struct mem_meter *m)
{
    if (LIKELY(m->allocated && m->freed)) return (size_t)(*m->allocated - *m->freed) + (size_t)m->others;
    struct mem_stats all;
    mem_stats_read(&all);
    return all.allocated;
}

i64 mem_own(const struct mem_meter *m)
{
    return m->allocated && m->freed ? (i64)(*m->allocated - *m->freed) : 0;
}

void mem_flush_cache(void) { mallctl("thread.tcache.flush", NULL, NULL, NULL, 0); }

void mem_decay(void)
{
    char name[40];
    snprintf(name, sizeof name, "arena.%u.decay", (unsigned)MALLCTL_ARENAS_ALL);
    mallctl(name, NULL, NULL, NULL, 0);
}

void mem_purge(void)
{
    char name[40];
    snprintf(name, sizeof name, "arena.%u.purge", (unsigned)MALLCTL_ARENAS_ALL);
    mallctl(name, NULL, NULL, NULL, 0);
}

const char *mem_allocator_name(void)
{
    return "jemalloc-" JEMALLOC_VERSION;
}

void mem_stats_read(struct mem_stats *out)
{
    u64 epoch = 1;
    size_t n = sizeof epoch;
    *out = (struct mem_stats){0};
    mallctl("epoch", &epoch, &n, &epoch, n);
    n = sizeof(size_t);
    mallctl("stats.allocated", &out->allocated, &n, NULL, 0);
    mallctl("stats.active", &out->active, &n, NULL, 0);
    mallctl("stats.resident", &out->resident, &n, NULL, 0);
    mallctl("stats.retained", &out->retained, &n, NULL, 0);
}

#else

void mem_start(void) {}
void mem_meter_open(struct mem_meter *m) { *m = (struct mem_meter){0}; }

size_t mem_used(const struct mem_meter *m UNUSED)
{
#ifdef MAYFLY_SANITIZER_ALLOC
    return __sanitizer_get_current_allocated_bytes();
#else
    return mallinfo2().uordblks;
#endif
}

i64 mem_own(const struct mem_meter *m UNUSED) { return 0; }
void mem_flush_cache(void) {}
void mem_decay(void) {}
void mem_purge(void) { malloc_trim(0); }
const char *mem_allocator_name(void) { return "libc"; }

void mem_stats_read(struct mem_stats *out)
{
    size_t used = mem_used(NULL), rss = mem_rss();
    *out = (struct mem_stats){.allocated = used, .active = used, .resident = rss};
}

#endif
