/* What the collections of the memory engine share for filling them with many elements at once, when data is
 * loaded. One that is empty, and stays small enough for its entry, gets all of them with one allocation;
 * nothing is moved, and names are compared only if a small filter can't tell them apart. Any other gets its
 * elements one by one, but their buckets are prefetched. */
#include "engine/memory/mem.h"

#define FILTER_WORDS 512

u32 mem_find_twice(const bytes *v, u32 n, u32 stride)
{
    u64 filter[FILTER_WORDS];
    u32 words = 1;
    while (words < FILTER_WORDS && words < n / stride) words *= 2; /* 64 bits for each, at best */
    memset(filter, 0, words * sizeof *filter);
    for (u32 i = 0; i < n; i += stride) {
        u64 hash = hash_bytes(v[i], 0), bit = 1ULL << (hash >> 58), *word = &filter[hash & (words - 1)];
        if (UNLIKELY(*word & bit)) {
            for (u32 k = 0; k < i; k += stride)
                if (bytes_eq(v[k], v[i])) return i;
        }
        *word |= bit;
    }
    return n;
}

void mem_fetch_places(const struct table *t, const bytes *v, u32 n, u32 stride)
{
    for (u32 i = 0; i < n; i += stride) table_prefetch_bucket(t, table_hash(t, v[i]));
}
