/* Bugs that the test of the site layer can switch on to prove that it finds them (tests/site/replay.c).
 * In every other build PLANTED_SITE is false and the compiler leaves nothing of it. */
#ifndef MAYFLY_SITE_PLANT_H
#define MAYFLY_SITE_PLANT_H

#include "base/types.h"

enum {
    PLANT_EXPIRE_ALL = 1,      /* an expiry deletes what its author had not seen, too */
    PLANT_LONGEST_TTL = 2,     /* of two deadlines the longer one stays, even if the shorter saw it */
    PLANT_EARLY_GARBAGE = 4,   /* garbage goes before everybody is known to have seen it */
    PLANT_PERSIST_ALL = 8,     /* PERSIST ends deadlines that it had not seen */
    PLANT_EARLY_CLOCK = 16,    /* a clock counts before its site's own effects are here */
    PLANT_FIFO = 32,           /* effects of one site are in order, but not after what they depend on */
    PLANT_COARSE_DEL = 64,     /* a DEL does not subtract what it saw of a counter */
    PLANT_LATE_ENDS_ALL = 128, /* a deadline that arrives late ends everything that is here */
    PLANT_NO_REASSERT = 256,   /* content that an expiry took is not written again */
    PLANT_SYNC_REVIVES = 512,  /* a full sync adds what was deleted here */
    PLANT_NO_DELAY = 1024      /* who did not write a key deletes it at once, like its owner */
};

#ifdef MAYFLY_PLANT
#define PLANTED_SITE(s, bug) (((s)->planted & (bug)) != 0)
#else
#define PLANTED_SITE(s, bug) false
#endif

#endif
