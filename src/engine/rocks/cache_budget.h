/* The memory of caches of one kind: a database has one budget, of which the cache of each of its regions has
 * a share.
 *
 * A cache fills its share, then takes a step more of what nobody has. If nothing is left, it evicts, and
 * notes that memory was short. Now and then each cache is asked to give: one that was not used lately gives
 * a part of its share to those that were short, and one that has more than an equal part gives to those that
 * have less.
 *
 * Invariant: the shares and what nobody has add up to the budget. A cache is larger than its share by at most
 * what one transaction has added.
 *
 * A share belongs to one thread, the budget to all. */
#ifndef MAYFLY_ENGINE_ROCKS_CACHE_BUDGET_H
#define MAYFLY_ENGINE_ROCKS_CACHE_BUDGET_H

#include <stdatomic.h>

#include "base/types.h"

struct cache_budget {
    u64 total, step;
    _Atomic u64 left;    /* nobody's */
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

/* The cache takes `bytes`, which is more than its limit: raises that as far as it may. */
void cache_take(struct cache_share *s, u64 bytes);
/* Now and then. Returns to what size the cache is to be evicted now, which its owner does as far as it can;
 * then cache_gave says what it came to. uses: a number that grows when the cache is used. */
u64 cache_asked(struct cache_share *s, u64 bytes, u64 uses);
void cache_gave(struct cache_share *s, u64 bytes, u64 wanted);

#endif
