/* The only path on which changes become permanent and replies are sent. Everything that changes data ends in
 * server_commit: the requests of a tick, blocked clients that were served, commands from a primary, expiry,
 * eviction, loading. (The AOF loader, which runs without a server, calls region_commit: it has no replication
 * stream, no AOF and no replies.)
 *
 * The order of the steps, and why:
 *
 * 1. Metadata. The functions, if they changed, and the replication position are written into the engine's
 *    transaction, so that they are kept or lost together with the data.
 * 2. The engine commits. If it fails, the tick is undone: the journal's numbers and what was staged for
 *    replicas are taken back, clients with tracking on get invalidations, and every reply becomes an error.
 *    The steps below are skipped.
 * 3. The replication stream publishes what was staged; it is sent to replicas at the end of the tick. Not
 *    before the engine has it: a primary that loses data its replicas have would diverge from them.
 * 4. The AOF is written, and synced if `appendfsync` is `always`. After the engine, because a record can't be
 *    removed from it again. If it fails, the data in memory has changed nevertheless: clients that wrote get
 *    an error, clients that only read keep their replies, and the next tick refuses writes.
 * 5. Replies are sent when the tick ends. Those that must not be are replaced by errors here.
 *
 * Replies, messages and keyspace events wait in the output of connections from where `tick_mark` is: until
 * the commit nothing of a tick has been sent, so all of it can be taken back.
 *
 * The order of release (net/fence.h). Without fences, step 5 is the end of the tick. With them the tick's
 * output is held beyond it, and each connection's output is sent in order, as far as its fences have passed:
 *
 *     tick 1: region A → fence 1, region B → fence 2        tick 2: region A → fence 3
 *     fence 2 passes: B's replies are sent on connections that have no reply of A before them
 *     fence 1 passes: A's replies of tick 1 are sent, and B's after them
 *     fence 3 fails:  its requests get errors, one text for those that wrote and one for those that read
 *
 * On a Raft leader a fence stands for the commit of the entry that holds the region's tick, or for the
 * confirmation of its reads. The leader opens a fence for the region's first request in a tick, puts it in
 * force before each request of the region, and ends it from Raft's callbacks: after the engine has committed,
 * or after its transaction was aborted. Unconfirmed changes must not be visible to a request whose replies
 * wait for less: a read of the region waits for the same fence or a later one.
 *
 * Steps 2 and 3 are those of a server without cluster mode. Housekeeping after the commit, its events, and
 * BCAST invalidations at the end of the tick are written without a fence: an invalidation may be early, but
 * must not be lost. */
#ifndef MAYFLY_SERVER_COMMIT_H
#define MAYFLY_SERVER_COMMIT_H

#include "server/server.h"

/* What is committed, and what a failure means:
 *
 *   kind                 the engine fails                            the AOF fails
 *   COMMIT_TICK          every client of the tick gets an error      clients that wrote get an error
 *   COMMIT_PART          the rest of the tick is aborted with it     reported at the end of the tick
 *   COMMIT_EXPIRY        events of it are taken back                 -
 *   COMMIT_HOUSEKEEPING  writes are refused                          -
 *   COMMIT_PRIMARY       messages of it are taken back               it is logged, and the link waits
 *   COMMIT_SITE          messages of it are taken back, links end    it is logged, and links wait
 *   COMMIT_POSITION      the caller logs it                          (nothing to write)
 *   COMMIT_LOAD…         loading fails                               (it is not open yet)
 *
 * "-": writes are refused from the next tick on, as after every failure of the AOF. */
enum commit_kind {
    COMMIT_TICK,         /* requests, and blocked clients that were served */
    COMMIT_PART,         /* what a tick did before a script that takes long: server_commit_part */
    COMMIT_EXPIRY,       /* a slice of the expire cycle: need not be synced, what is dead is found again */
    COMMIT_HOUSEKEEPING, /* eviction, and other changes without a request */
    COMMIT_PRIMARY,      /* commands of our primary */
    COMMIT_SITE,         /* what other sites sent, garbage of a site */
    COMMIT_POSITION,     /* bytes of the stream that change no data */
    COMMIT_LOAD_PART,    /* a slice of a file that is loaded: need not be synced before its last one … */
    COMMIT_LOAD_END      /* … which is this */
};

void commit_init(struct server *s); /* net's callbacks for fences */

/* DEBUG FENCE HOLD: from now on replies wait for so many fences per tick. 0: for none, in the next tick. */
void commit_debug_fences(struct server *s, u32 count);

/* It is unknown whether its changes are kept: see fence_fail. */
void commit_fence_failed(struct server *s, struct fence *f, const char *wrote, const char *read);

/* Returns whether the engine kept the changes. */
bool server_commit(struct server *s, enum commit_kind kind);

/* While a script runs too long: commits what the tick did before it, unless the script has changed anything,
 * because both can only be kept together. Returns whether the replies from before the script may be sent. A
 * failure is reported when the tick ends, to every client that has a request in it. On a node of a cluster
 * nothing is committed: replies that depend on the tick wait for its fence. */
bool server_commit_part(struct server *s);

#endif
