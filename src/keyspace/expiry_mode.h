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
 *   RAFT             a member of a group     its region's no         yes (4)    yes (4)     there is none
 *                                            clock (4)
 *   RAFT_LEADER      its leader, while it    its region's no         yes (5)    yes (5)     there is none
 *                    evaluates, and deaths   clock (4)
 *                    are entries of the log
 *   SITE             a site of active-      the site's    no         yes (6)    own rules   there is none
 *                    active replication      time (6)                            (6)
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
 *   (4) The clock is the stamp of the last applied entry, the same on every member at the same place of the
 *       log. Keys that are dead by it are dead for all later entries, so each member deletes them by itself
 *       at any time, and journals nothing for it. A leader that evaluates a request may be ahead of the
 *       clock: keyspace.found_dead_ms records what it found dead then.
 *
 *   (5) With expiry-stream every expired key is reported exactly once, whichever member leads. So the
 *       deletion is an effect in the log, together with the stream's entry, and no member deletes unreported
 *       keys.
 *
 *   (6) The time is the later of the wall clock and the stamps of other sites. Deleting a dead key is an
 *       effect, which ends only what this site has seen. The cycle deletes at once keys that this site wrote
 *       last, and after a delay keys of other sites, if these have not (exec/region_site.h). Evicting would
 *       delete a key at all sites because one of them lacks memory: at the limit a site refuses writes.
 *
 * Compactions delete dead keys only where no expiry has to be reported: engine.report_expiry.
 */
#ifndef MAYFLY_KEYSPACE_EXPIRY_MODE_H
#define MAYFLY_KEYSPACE_EXPIRY_MODE_H

#include "base/types.h"

enum expiry_mode {
    EXPIRY_ACTIVE,
    EXPIRY_PAUSED,
    EXPIRY_REPLICA,
    EXPIRY_RAFT,
    EXPIRY_RAFT_LEADER,
    EXPIRY_SITE,
    EXPIRY_REPLICA_SERVES,
    EXPIRY_APPLY,
};

/* Whether dead keys are hidden at all. */
static inline bool expiry_hides(enum expiry_mode m) { return m <= EXPIRY_SITE; }

/* Whether the region follows a primary, which decides on deletions. */
static inline bool expiry_follows(enum expiry_mode m)
{
    return m == EXPIRY_REPLICA || m == EXPIRY_REPLICA_SERVES;
}

/* Whether the clock is that of a group. */
static inline bool expiry_of_group(enum expiry_mode m)
{
    return m == EXPIRY_RAFT || m == EXPIRY_RAFT_LEADER;
}

/* Whether the cycle deletes dead keys. */
static inline bool expiry_cycles(enum expiry_mode m)
{
    return m == EXPIRY_ACTIVE || m == EXPIRY_SITE || expiry_of_group(m);
}

/* Whether deleting a dead key is an effect that must be sent to others. */
static inline bool expiry_is_recorded(enum expiry_mode m) { return m != EXPIRY_RAFT; }

/* Whether a command that only reads deletes the dead keys it finds; one that writes always does. */
static inline bool expiry_reads_delete(enum expiry_mode m, bool engine_reads_only)
{
    return m == EXPIRY_ACTIVE && !engine_reads_only;
}

#endif
