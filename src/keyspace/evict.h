/* Eviction: keeps memory below maxmemory. Deletes expired keys first, then, by policy, the best candidate of
 * a pool that is filled by sampling. */
#ifndef MAYFLY_KEYSPACE_EVICT_H
#define MAYFLY_KEYSPACE_EVICT_H

#include "base/alloc.h"
#include "keyspace/keyspace.h"

#define EVICT_POOL 16

struct evict_candidate {
    double score; /* the highest is evicted first */
    u32 db;
    struct buf key;
};

struct evictor {
    u64 maxmemory; /* 0: no limit */
    u32 samples;   /* maxmemory-samples */
    struct mem_meter meter;
    u64 not_counted; /* bytes excluded from the limit: replica and AOF buffers */
    struct evict_candidate pool[EVICT_POOL]; /* ascending score; used from the end */
    u32 pooled;
    u32 next_db; /* for the random policies */
    bool unfinished; /* the limit was lowered, or the last call ended above it */
    u64 rng;
};

void evictor_init(struct evictor *v, u64 seed);
void evictor_release(struct evictor *v);

static inline u64 evictor_used(const struct evictor *v) { return mem_used(&v->meter); }

/* Evicts until memory is below the limit, or a bounded number of keys. False: still above the limit, and the
 * policy allows no further eviction. */
bool evict_as_needed(struct evictor *v, struct keyspace *ks);

/* Continues an unfinished eviction between commands. True: call again. */
bool evict_step(struct evictor *v, struct keyspace *ks);

#endif
