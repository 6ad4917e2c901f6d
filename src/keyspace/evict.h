/* Eviction: keeping the memory below maxmemory. Due keys go first; then, by the
 * policy, the best candidate of a pool that is fed by sampling. */
#ifndef MAYFLY_KEYSPACE_EVICT_H
#define MAYFLY_KEYSPACE_EVICT_H

#include "base/alloc.h"
#include "keyspace/keyspace.h"

#define EVICT_POOL 16

struct evict_candidate {
    double score; /* higher goes first */
    u32 db;
    struct buf key;
};

struct evictor {
    u64 maxmemory; /* 0: no limit */
    u32 samples;   /* maxmemory-samples */
    struct mem_meter meter;
    u64 not_counted; /* bytes that don't count: replica and AOF buffers */
    struct evict_candidate pool[EVICT_POOL]; /* ascending score; used from the end */
    u32 pooled;
    u32 next_db; /* for the random policies */
    bool unfinished; /* the limit was lowered, or an effort ended above it */
    u64 rng;
};

void evictor_init(struct evictor *v, u64 seed);
void evictor_release(struct evictor *v);

static inline u64 evictor_used(const struct evictor *v) { return mem_used(&v->meter); }

/* Brings the memory below the limit, or as near as a bounded effort gets. False:
 * still above, and nothing left that the policy lets go. */
bool evict_as_needed(struct evictor *v, struct keyspace *ks);

/* Goes on with what is unfinished, without a command that needs it. True: call again. */
bool evict_step(struct evictor *v, struct keyspace *ks);

#endif
