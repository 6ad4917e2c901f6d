/* Hits of a geo search: a growing array, sorted fully or partially.
 *
 * The partial sort is Bentley and McIlroy's quicksort ("Engineering a sort function", 1993), which leaves
 * unsorted the parts that are not needed. Many members may share a place, and the sort decides which of them
 * a COUNT keeps; so the choice of pivots and the order of swaps must stay as published, as in Redis. */
#include "command/collection/geo_hits.h"

#include <stdlib.h>

#include "base/alloc.h"

#define INSERTION_MAX 7
#define NINTHER_MIN 40
#define DEPTH_MAX 100 /* beyond it the data was made to give bad pivots */

void geo_hits_release(struct geo_hits *l)
{
    mem_free(l->v);
    *l = (struct geo_hits){0};
}

void geo_hits_add(struct geo_hits *l, struct geo_hit hit)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 16;
        l->v = mem_realloc(l->v, l->cap * sizeof(*l->v));
    }
    hit.found = l->n;
    l->v[l->n++] = hit;
}

/* -- the whole ------------------------------------------------------------------------- */

static int compare_near(const void *x, const void *y)
{
    const struct geo_hit *a = x, *b = y;
    if (a->distance != b->distance) return a->distance < b->distance ? -1 : 1;
    return (a->found > b->found) - (a->found < b->found);
}

static int compare_far(const void *x, const void *y)
{
    const struct geo_hit *a = x, *b = y;
    if (a->distance != b->distance) return a->distance > b->distance ? -1 : 1;
    return (a->found > b->found) - (a->found < b->found);
}

static void sort_all(struct geo_hit *v, size_t n, bool descending)
{
    qsort(v, n, sizeof(*v), descending ? compare_far : compare_near);
}

/* -- a part ------------------------------------------------------------------------------ */

static int order(const struct geo_hit *a, const struct geo_hit *b, bool descending)
{
    int cmp = (a->distance > b->distance) - (a->distance < b->distance);
    return descending ? -cmp : cmp;
}

static void geo_hits_swap(struct geo_hit *a, struct geo_hit *b)
{
    struct geo_hit t = *a;
    *a = *b;
    *b = t;
}

static void swap_runs(struct geo_hit *a, struct geo_hit *b, size_t n)
{
    for (size_t i = 0; i < n; i++) geo_hits_swap(a + i, b + i);
}

static void insertion_sort(struct geo_hit *v, size_t n, bool descending)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = i; k > 0 && order(&v[k - 1], &v[k], descending) > 0; k--)
            geo_hits_swap(&v[k], &v[k - 1]);
}

static struct geo_hit *median(struct geo_hit *a, struct geo_hit *b, struct geo_hit *c,
                              bool descending)
{
    if (order(a, b, descending) < 0) {
        if (order(b, c, descending) < 0) return b;
        return order(a, c, descending) < 0 ? c : a;
    }
    if (order(b, c, descending) > 0) return b;
    return order(a, c, descending) < 0 ? a : c;
}

static struct geo_hit *choose_pivot(struct geo_hit *v, size_t n, bool descending)
{
    struct geo_hit *low = v, *mid = v + n / 2, *high = v + n - 1;
    if (n == INSERTION_MAX) return mid;
    if (n > NINTHER_MIN) {
        size_t d = n / 8;
        low = median(low, low + d, low + 2 * d, descending);
        mid = median(mid - d, mid, mid + d, descending);
        high = median(high - 2 * d, high - d, high, descending);
    }
    return median(low, mid, high, descending);
}

/* Arranges v as smaller, equal, larger than a pivot; says how many are smaller and
 * how many larger. Equal ones are gathered at both ends first, then moved inside. */
static void partition(struct geo_hit *v, size_t n, bool descending, size_t *smaller,
                      size_t *larger)
{
    geo_hits_swap(v, choose_pivot(v, n, descending));
    size_t left = 1, i = 1;          /* v[0, left) equal, v[left, i) smaller */
    size_t right = n, k = n;         /* v[k, right) larger, v[right, n) equal */
    for (;;) {
        for (int cmp; i < k && (cmp = order(&v[i], v, descending)) <= 0; i++)
            if (cmp == 0) geo_hits_swap(&v[left++], &v[i]);
        for (int cmp; i < k && (cmp = order(&v[k - 1], v, descending)) >= 0; k--)
            if (cmp == 0) geo_hits_swap(&v[k - 1], &v[--right]);
        if (i >= k) break;
        geo_hits_swap(&v[i++], &v[--k]);
    }
    *smaller = i - left;
    *larger = right - k;
    size_t run = MIN(left, *smaller);
    swap_runs(v, v + i - run, run);
    run = MIN(*larger, n - right);
    swap_runs(v + i, v + n - run, run);
}

/* Sorts v until its first `wanted` are right. */
static void sort_front(struct geo_hit *v, size_t n, size_t wanted, bool descending, int depth)
{
    while (n >= INSERTION_MAX) {
        if (depth++ == DEPTH_MAX) {
            sort_all(v, n, descending);
            return;
        }
        size_t smaller, larger;
        partition(v, n, descending, &smaller, &larger);
        if (smaller > 1) sort_front(v, smaller, wanted, descending, depth);
        size_t done = n - larger;
        if (larger <= 1 || wanted <= done) return;
        v += done;
        wanted -= done;
        n = larger;
    }
    insertion_sort(v, n, descending);
}

void geo_hits_sort(struct geo_hits *l, size_t wanted, bool descending)
{
    if (l->n < 2 || wanted == 0) return;
    if (wanted >= l->n) sort_all(l->v, l->n, descending);
    else sort_front(l->v, l->n, wanted, descending, 0);
}
