/* Bugs that the test of the site layer can switch on to prove that it finds them (tests/site/replay.c).
 * In every other build PLANTED_SITE is false and the compiler leaves nothing of it. */
#ifndef MAYFLY_SITE_PLANT_H
#define MAYFLY_SITE_PLANT_H

#include "base/types.h"

enum {
    PLANT_EXPIRE_ALL = 1,      /* an expiry deletes what its author had not seen, too */
    PLANT_LONGEST_TTL = 2,     /* of two deadlines the longer one stays, even if the shorter saw it */
    PLANT_EARLY_GARBAGE = 4,   /* garbage is collected before all members are known to have seen it */
    PLANT_PERSIST_ALL = 8,     /* PERSIST ends deadlines that it had not seen */
    PLANT_EARLY_CLOCK = 16,    /* a clock counts before its site's own effects are here */
    PLANT_FIFO = 32,           /* effects of one site are in order, but not after what they depend on */
    PLANT_COARSE_DEL = 64,     /* a DEL does not subtract what it saw of a counter */
    PLANT_LATE_ENDS_ALL = 128, /* a deadline that arrives late ends everything that is here */
    PLANT_NO_REASSERT = 256,   /* content that an expiry took is not written again */
    PLANT_SYNC_REVIVES = 512,  /* a full sync adds what was deleted here */
    PLANT_NO_DELAY = 1024,     /* who did not write a key deletes it at once, like its owner */
    PLANT_PARTS = 2048,        /* an effect is applied although others that belong to it are not here */
    PLANT_LAST_ID = 4096,      /* XDEL of the highest entry does not say what the last id was */
    PLANT_XDEL_ALL = 8192,     /* XDEL and XTRIM remove entries that they had not seen */
    /* of captured writes */
    PLANT_ADD_PUTS = 16384,    /* an increment is told as the value that it made */
    PLANT_NO_KEEP = 32768,     /* a write in place does not carry the deadline along */
    PLANT_DEL_FORGETS = 65536, /* a DEL keeps nothing of the counters that it saw */
    PLANT_DEAD_DEL = 131072,   /* a key that is past its deadline is deleted, and not expired */
    PLANT_NO_BIRTH = 262144,   /* APPEND and the like are as a SET, whose deadline goes its own way */
    PLANT_FAST_SET = 524288,   /* the fast path of SET is taken whatever there was */
    /* of another site's writes */
    PLANT_FAST_RECEIVE = 1048576, /* the fast path replaces what the author of a SET, HSET … had not seen */
    /* of captured writes, too */
    PLANT_FAST_PUT = 2097152, /* the fast path of elements is taken whatever was in the key */
    /* of hash fields */
    PLANT_FIELD_LAST = 4194304,       /* the last HEXPIRE or HPERSIST replaces all others */
    PLANT_FIELD_EXPIRE_ALL = 8388608, /* the expiry of a field deletes what its author had not seen, too */
    PLANT_HSET_STAYS = 16777216,      /* HSET leaves the field its deadline elsewhere (captured) */
    /* of torn sites */
    PLANT_TORN_SPENDS = 33554432, /* they refer to deadlines that their clocks do not cover */
    PLANT_TORN_COUNTS = 67108864, /* they expire counters of which their clocks cover a part */
    PLANT_TORN_TAKES = 134217728, /* an interrupted full sync takes what would have been written again */
    /* of another site's writes, on the fast path: it is taken although … */
    PLANT_FAST_DEL = 268435456,    /* … the author of a DEL had not seen what it deletes */
    PLANT_FAST_EXPIRE = 536870912, /* … the author of an EXPIRE had not seen the deadline that it replaces */
    PLANT_FAST_REM = 1073741824,   /* … the author of an HDEL and the like had not seen the key as it is */
    PLANT_FAST_ADD = 2147483648,   /* … the author of an increment had not seen the key as it is */
    PLANT_FAST_PUSH = 4294967296,  /* … an element is not at the end of its list */
    PLANT_FAST_KEEP = 8589934592   /* a write in place does not carry the deadline along */
};

#ifdef MAYFLY_PLANT
#define PLANTED_SITE(s, bug) (((s)->planted & (bug)) != 0)
#else
#define PLANTED_SITE(s, bug) false
#endif

#endif
