/* Which slots of a region get its requests: a sample, for the slot at which a split halves the load. */
#ifndef MAYFLY_CLUSTER_LOAD_H
#define MAYFLY_CLUSTER_LOAD_H

#include "base/rand.h"
#include "raft/group.h"

#define LOAD_SAMPLES 256

struct load {
    u16 slots[LOAD_SAMPLES]; /* the latest */
    u32 n;                   /* all there were */
    u64 rng;
};

static inline void load_add(struct load *l, u16 slot) { l->slots[l->n++ % LOAD_SAMPLES] = slot; }

/* The slot at which to split so that both parts have about half of the load. 0: there are too few samples, or
 * one part would have less than a fifth, because most requests are for one slot. */
u16 load_median(const struct load *l, struct raft_slots slots);

/* How many requests to skip between two samples, if a period had so many … */
static inline u32 load_gap(u64 requests) { return (u32)MIN(requests / LOAD_SAMPLES + 1, 1u << 16); }
/* … on average: clients may ask for the same keys in turn. */
static inline u32 load_wait(struct load *l, u32 gap) { return (u32)(rand_next(&l->rng) % (2 * gap)); }

#endif
