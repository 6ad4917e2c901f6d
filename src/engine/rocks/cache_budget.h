/* The memory budget of one kind of cache: each database has one, and the cache of each region gets a share of
 * it.
 *
 * A full cache increases its share by a step, if there is unassigned memory. If there is none, it evicts, and
 * records that it was short of memory. Periodically each cache is checked: one that was not used lately gives
 * a part of its share to those that were short, and one with more than an equal share gives to those with
 * less.
 *
 * Invariant: the shares and the unassigned memory add up to the budget. A cache exceeds its share by at most
 * what one transaction has added.
 *
 * A share belongs to one thread, the budget to all. */
#ifndef MAYFLY_ENGINE_ROCKS_CACHE_BUDGET_H
#define MAYFLY_ENGINE_ROCKS_CACHE_BUDGET_H

#include <stdatomic.h>

#include "base/types.h"

struct cache_budget {
    u64 total, step;
    _Atomic u64 left;    /* unassigned */
    _Atomic u32 active;  /* shares that are in use, as of their last look */
    _Atomic u32 short_of; /* enum cache_short, of those that found nothing left */
};

enum cache_short { CACHE_SHORT_LESS = 1, CACHE_SHORT_MORE = 2 }; /* with less than an equal part; with more */

struct cache_share {
    struct cache_budget *of; /* NULL: the limit stays as it is */
    u64 limit;
    u64 uses; /* of its cache, at the last look … */
    bool active; /* … and whether there were any since the one before */
};

void cache_budget_init(struct cache_budget *b, u64 total);
void cache_share_init(struct cache_share *s, struct cache_budget *of);
void cache_share_release(struct cache_share *s); /* its cache is empty */

/* The cache uses `bytes`, more than its limit: raises the limit as far as allowed. */
void cache_take(struct cache_share *s, u64 bytes);
/* Call it periodically. Returns the size to which the owner should evict the cache, as far as it can; then
 * call cache_gave with the size reached. uses: a number that increases when the cache is used. */
u64 cache_asked(struct cache_share *s, u64 bytes, u64 uses);
void cache_gave(struct cache_share *s, u64 bytes, u64 wanted);

#endif
