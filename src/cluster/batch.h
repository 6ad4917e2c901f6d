/* How long a leader waits for requests before it makes the next entry of them.
 *
 * Clients that wait for their replies come back together, a moment after their entry was committed. Without
 * this the first of them would make an entry alone, and all others would wait for it: entries of few requests
 * in turn with entries of many, twice the syncs and messages, and twice the wait. So after a commit the
 * leader waits until as many requests are there as were answered or waited then. It looks each time another
 * period of the commit's length has passed, and goes on while most of what came in it must be clients that
 * come back: others send as many in a period as were waiting at the commit. If those that were answered don't
 * come back, it does not wait for a while.
 *
 * All regions of a node gather together, until the entries of all of them are committed and their clients are
 * back: what one tick evaluates shares a sync and the messages to each node.
 *
 * A policy only: the caller has the clock and the requests. */
#ifndef MAYFLY_CLUSTER_BATCH_H
#define MAYFLY_CLUSTER_BATCH_H

#include "base/types.h"

struct batch {
    bool gathering;
    u32 waiting;  /* requests that waited when it began … */
    u32 expected; /* … and that will, if all clients that were answered come back */
    u32 seen;     /* … and that did at the last look */
    u64 period_us, left_us; /* from look to look; until the last one */
    u32 skip;     /* commits after which not to wait … */
    u32 next_skip; /* … as of the last time it was in vain: twice as many each time in a row */
};

/* An entry of `answered` requests was committed, took_us after it was proposed; `waiting` others are there.
 * Returns after how many us to look; 0: not to gather at all. */
u64 batch_committed(struct batch *b, u32 answered, u32 waiting, u64 took_us);

/* An entry of another region was committed meanwhile. */
static inline void batch_add(struct batch *b, u32 answered) { b->expected += answered; }

/* So long later, so many wait. Returns after how many us to look again; 0: not to gather any more. */
u64 batch_look(struct batch *b, u32 waiting);

/* Whether there is nothing to wait for any more. */
static inline bool batch_complete(const struct batch *b, u32 waiting) { return waiting >= b->expected; }

/* The end of gathering: so many wait now. */
void batch_end(struct batch *b, u32 waiting);

#endif
