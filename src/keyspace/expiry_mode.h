/* Expiry modes: who hides dead keys, who deletes them, and by which clock. A region is in one mode at a time,
 * which changes only between ticks (`region.mode`). A transaction that applies another server's history runs
 * in EXPIRY_APPLY, whatever the region's own mode is (`keyspace.mode`).
 *
 *   mode             when                    dead by      a read     a write    the cycle   eviction treats
 *                                                         deletes    deletes    deletes     a dead key
 *   ACTIVE           a primary, or alone     wall clock   yes (1)    yes        yes         as expired
 *   PAUSED           loading, CLIENT PAUSE,  wall clock   no         yes (2)    no          there is none
 *                    failover, no writes
 *                    can be kept
 *   REPLICA          a replica               wall clock   no         yes (3)    own keys    like any other
 *   REPLICA_SERVES   … that serves dead      nothing is   no         no         own keys    like any other
 *                    keys                    dead
 *   APPLY            a primary's stream,     nothing is   no         no         no          like any other
 *                    an AOF                  dead
 *
 * A key that is dead by the clock is hidden from every command.
 *   (1) Not on an engine whose reads never write (engine.caps.reads_only): there the cycle deletes.
 *   (2) No new write runs; this is for writes that were admitted before.
 *   (3) On a writable replica, so that a write never adds to a dead value. Other dead keys wait for the
 *       primary's DEL.
 *
 * Compactions delete dead keys only where no expiry has to be reported: engine.report_expiry.
 *
 * A Raft member will delete by its region's clock, in every role; a site will keep the metadata it must send
 * to others. Both get a row here. */
#ifndef MAYFLY_KEYSPACE_EXPIRY_MODE_H
#define MAYFLY_KEYSPACE_EXPIRY_MODE_H

#include "base/types.h"

enum expiry_mode {
    EXPIRY_ACTIVE,
    EXPIRY_PAUSED,
    EXPIRY_REPLICA,
    EXPIRY_REPLICA_SERVES,
    EXPIRY_APPLY,
};

/* Whether dead keys are hidden at all. */
static inline bool expiry_hides(enum expiry_mode m) { return m <= EXPIRY_REPLICA; }

/* Whether the region follows a primary, which decides on deletions. */
static inline bool expiry_follows(enum expiry_mode m)
{
    return m == EXPIRY_REPLICA || m == EXPIRY_REPLICA_SERVES;
}

/* Whether a command deletes the dead keys it finds. */
static inline bool expiry_deletes(enum expiry_mode m, bool writes, bool reads_only)
{
    return writes || (m == EXPIRY_ACTIVE && !reads_only);
}

#endif
