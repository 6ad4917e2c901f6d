/* How long a leader waits for requests before it makes the next entry of them.
 *
 * Clients that wait for their replies come back together, a moment after their entry was committed. Without
 * this the first of them would make an entry alone, and all others would wait for it: entries of few requests
 * in turn with entries of many, twice the syncs and messages, and twice the wait. So after a commit the
 * leader waits until as many connections have a request as were answered or waited then, or for as long as
 * the commit took. If those that were answered don't come back, it does not wait for a while.
 *
 * A policy only: the caller has the clock and the requests. */
#ifndef MAYFLY_CLUSTER_BATCH_H
#define MAYFLY_CLUSTER_BATCH_H

#include "base/types.h"

struct batch {
    bool gathering;
    u32 waiting;  /* connections that waited when it began … */
    u32 expected; /* … and that will, if all that were answered come back */
    u32 skip;     /* commits after which not to wait … */
    u32 next_skip; /* … as of the last time it was in vain: twice as many each time in a row */
};

/* An entry with requests of `answered` connections was committed, took_us after it was proposed; `waiting`
 * others have requests. Returns how long to gather in us; 0: not at all. */
u64 batch_committed(struct batch *b, u32 answered, u32 waiting, u64 took_us);

/* Whether there is nothing to wait for any more. */
static inline bool batch_complete(const struct batch *b, u32 waiting) { return waiting >= b->expected; }

/* The end of gathering: so many wait now. */
void batch_end(struct batch *b, u32 waiting);

#endif
