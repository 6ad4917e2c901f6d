/* Bugs that the simulator, or a server built with MAYFLY_PLANT, can switch on to prove that tests find them.
 * In every other build PLANTED is false and the compiler leaves nothing of it. */
#ifndef MAYFLY_RAFT_PLANT_H
#define MAYFLY_RAFT_PLANT_H

#include "base/types.h"

enum {
    PLANT_SEND_BEFORE_PERSIST = 1, /* votes and acknowledgements leave before their write is durable */
    PLANT_SKIP_EPOCH = 2,          /* entries of another epoch are applied */
    PLANT_READ_UNCONFIRMED = 4,    /* the leader answers reads without asking a quorum */
    PLANT_EXPIRE_BY_WALL = 8,      /* a machine applies entries at the time of its own clock */
    PLANT_NO_FENCE = 32,           /* a read that found something dead does not wait for the region's clock */
    PLANT_REPLY_EARLY = 64,        /* a server answers writes when they are proposed */
    PLANT_MERGE_NO_FENCE = 1024,   /* the source of a merge continues to serve after its PREPARE */
    PLANT_SLEEP_BEHIND = 65536,    /* a group sleeps whatever its members have */
    PLANT_NEVER_WAKE = 131072      /* the silence of a node wakes no group */
};

#ifdef MAYFLY_PLANT
struct group;
void group_plant(struct group *g, u32 bugs);
bool group_planted(const struct group *g, u32 bug);
#define PLANTED(g, bug) (((g)->planted & (bug)) != 0)
#else
#define PLANTED(g, bug) false
#define group_planted(g, bug) false
#endif

#endif
