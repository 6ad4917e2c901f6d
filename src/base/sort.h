/* Sorting what is often sorted already. */
#ifndef MAYFLY_BASE_SORT_H
#define MAYFLY_BASE_SORT_H

#include <stdlib.h>

#include "base/types.h"

/* qsort, after one pass that finds out whether it is needed. */
static inline void sort_unless_sorted(void *v, size_t n, size_t size,
                                      int (*compare)(const void *, const void *))
{
    const char *p = v;
    for (size_t i = 1; i < n; i++, p += size) {
        if (compare(p, p + size) <= 0) continue;
        qsort(v, n, size, compare);
        return;
    }
}

#endif
