/* Bugs that the simulator can switch on to prove that it finds them. In every other build PLANTED is false
 * and the compiler leaves nothing of it. */
#ifndef MAYFLY_RAFT_PLANT_H
#define MAYFLY_RAFT_PLANT_H

#include "base/types.h"

enum {
    PLANT_SEND_BEFORE_PERSIST = 1, /* votes and acknowledgements leave before their write is durable */
    PLANT_SKIP_EPOCH = 2,          /* entries of another epoch are applied */
    PLANT_READ_UNCONFIRMED = 4,    /* the leader answers reads without asking a quorum */
    PLANT_NO_FENCE = 32            /* a read that found something dead does not wait for the region's clock */
};

#ifdef MAYFLY_PLANT
struct group;
void group_plant(struct group *g, u32 bugs);
#define PLANTED(g, bug) (((g)->planted & (bug)) != 0)
#else
#define PLANTED(g, bug) false
#endif

#endif
