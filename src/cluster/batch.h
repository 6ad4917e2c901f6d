/* Group commit: how long a leader waits for further requests before it makes the next entry.
 *
 * After a commit, the clients that got their replies send their next requests at nearly the same time.
 * Without waiting, the first of these would form an entry alone, and all others would wait for it: entries
 * with few and with many requests would alternate, with twice the syncs and messages and twice the latency.
 * So after a commit the leader waits until there are as many requests as were answered plus those that were
 * waiting. It checks after each period of the commit's duration, and continues as long as most of the new
 * requests must be from these clients (other clients send about as many per period as were waiting at the
 * commit). If the clients don't return, it does not wait for the next commits.
 *
 * All regions of a node wait together, until the entries of all of them are committed and their clients have
 * returned: everything that is evaluated in one tick shares a sync and the messages to each node.
 *
 * This is only the policy: the caller has the clock and the requests. */
#ifndef MAYFLY_CLUSTER_BATCH_H
#define MAYFLY_CLUSTER_BATCH_H

#include "base/types.h"

struct batch {
    bool gathering;
    u32 waiting;  /* requests that were waiting when it began … */
    u32 expected; /* … will be waiting if all answered clients return … */
    u32 seen;     /* … and were waiting at the last check */
    u64 period_us, left_us; /* between two checks; until the last one */
    u32 skip;     /* commits after which it will not wait … */
    u32 next_skip; /* … the next time waiting was in vain; doubles each time in a row */
};

/* An entry of `answered` requests was committed, took_us after it was proposed; `waiting` others are waiting.
 * Returns after how many us to check; 0: don't wait at all. */
u64 batch_committed(struct batch *b, u32 answered, u32 waiting, u64 took_us);

/* An entry of another region was committed meanwhile. */
static inline void batch_add(struct batch *b, u32 answered) { b->expected += answered; }

/* A check: `waiting` requests are waiting now. Returns after how many us to check again; 0: stop waiting. */
u64 batch_look(struct batch *b, u32 waiting);

/* Whether all expected requests have arrived. */
static inline bool batch_complete(const struct batch *b, u32 waiting) { return waiting >= b->expected; }

/* The end of the wait, with `waiting` requests. */
void batch_end(struct batch *b, u32 waiting);

#endif
