/* Expiry modes: who hides what is dead, who deletes it, and by which clock. A region is in one mode at a
 * time; it changes between ticks (`region.mode`). A transaction that applies somebody else's history runs in
 * EXPIRY_APPLY, whatever the region's own mode is (`keyspace.mode`).
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
 * What is dead by the clock is hidden from every command. (1) Not on an engine whose reads stay reads
 * (engine.caps.reads_only): there the cycle does it. (2) None runs, except those that were admitted before.
 * (3) In a replica that takes writes: nothing new may be put beside a dead key. Everything else waits for the
 * primary's DEL.
 *
 * Compactions delete by themselves only where nobody has to hear of it: engine.report_expiry.
 *
 * A Raft member will delete by its region's clock, in every role; a site will keep what it must tell others.
 * Both get a row here. */
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

/* Whether anything is dead at all. */
static inline bool expiry_hides(enum expiry_mode m) { return m <= EXPIRY_REPLICA; }

/* Whether the region is a replica's: its primary decides what is deleted. */
static inline bool expiry_follows(enum expiry_mode m)
{
    return m == EXPIRY_REPLICA || m == EXPIRY_REPLICA_SERVES;
}

/* Whether a command deletes what it finds dead. */
static inline bool expiry_deletes(enum expiry_mode m, bool writes, bool reads_only)
{
    return writes || (m == EXPIRY_ACTIVE && !reads_only);
}

#endif
