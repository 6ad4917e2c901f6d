/* How long a leader's entries take from proposal to commit: a histogram with fixed bounds, so that the counts
 * of all nodes can be added. */
#ifndef MAYFLY_CLUSTER_COMMIT_TIMES_H
#define MAYFLY_CLUSTER_COMMIT_TIMES_H

#include "base/types.h"

#define COMMIT_TIMES_EDGES 15

struct commit_times {
    u64 count[COMMIT_TIMES_EDGES + 1]; /* the last one: of those beyond all edges */
    u64 sum_us;
};

extern const u32 commit_times_edges_us[COMMIT_TIMES_EDGES];

void commit_times_add(struct commit_times *t, u64 took_us);

#endif
