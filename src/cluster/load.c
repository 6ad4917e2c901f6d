#include "cluster/load.h"

#include <stdlib.h>

#define SAMPLES_MIN 50

static int load_by_slot(const void *a, const void *b)
{
    return (int)*(const u16 *)a - (int)*(const u16 *)b;
}

/* Samples below a slot. */
static u32 load_below(const u16 *sorted, u32 n, u32 slot)
{
    u32 i = 0;
    while (i < n && sorted[i] < slot) i++;
    return i;
}

u16 load_median(const struct load *l, struct raft_slots slots)
{
    u16 sorted[LOAD_SAMPLES];
    u32 n = MIN(l->n, (u32)LOAD_SAMPLES);
    if (n < SAMPLES_MIN) return 0;
    memcpy(sorted, l->slots, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, load_by_slot);
    u32 middle = sorted[n / 2];
    u32 below = load_below(sorted, n, middle), up_to = load_below(sorted, n, middle + 1);
    u32 slot = n - up_to > below ? middle + 1 : middle; /* the slot in the middle goes to the smaller part */
    u32 lower = slot == middle ? below : up_to;
    if (slot <= slots.first || slot > slots.last || MIN(lower, n - lower) < n / 5) return 0;
    return (u16)slot;
}
