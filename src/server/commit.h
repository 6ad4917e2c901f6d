/* The one way in which changes become permanent and replies leave. Everything that changes data ends in
 * server_commit: the requests of a tick, blocked clients that were served, what a primary sent, expiry,
 * eviction, loading. (The loader of the AOF, which has no server above it, calls region_commit: it has no
 * stream, no log and no replies.)
 *
 * The order of the steps, and why:
 *
 * 1. Metadata. The functions, if they changed, and the position of replication are written into the engine's
 *    transaction, so that they are kept or lost with the data they belong to.
 * 2. The engine commits. If it can't, nothing of this happened: the journal's numbers and what was staged for
 *    replicas are taken back, caches of clients are told to distrust what they have, and every reply becomes
 *    an error. Nothing below is reached.
 * 3. The stream of replication publishes what was staged. Replicas are sent it at the end of the tick: not
 *    before the engine has it, because a primary that lost what its replicas have would diverge from them.
 * 4. The AOF is written, and synced if `appendfsync` is `always`. It comes after the engine, because a record
 *    can't be taken out of it again. If it fails, the data has changed in memory all the same: clients that
 *    wrote get an error, clients that only read keep their replies, and the next tick refuses writes.
 * 5. Replies leave, when the tick ends. Those that must not are replaced by errors here.
 *
 * Replies, messages and keyspace events wait in the output of connections from where `tick_mark` is: until
 * the commit nothing of a tick has left the server, so all of it can be taken back.
 *
 * The order of release (net/fence.h). Without fences, step 5 is the end of the tick. With them the tick's
 * output is held beyond it, and each connection's leaves in order, as far as its fences have passed:
 *
 *     tick 1: region A → fence 1, region B → fence 2        tick 2: region A → fence 3
 *     fence 2 passes: B's replies leave to connections that wait for nothing of A in front of them
 *     fence 1 passes: A's replies of tick 1 leave, and B's behind them
 *     fence 3 fails:  its requests get errors, "wrote" or "read" each
 *
 * For a Raft leader X, what a fence stands for, is the commit of the entry that the region's tick became, or
 * the confirmation of its reads. It opens a fence for the region's first request in a tick, puts it in force
 * before each request of the region, and ends it from Raft's callbacks: after the engine has committed, or
 * after its transaction was aborted. Changes that are not confirmed must not be visible to a request whose
 * replies wait for less: a read of the region waits for the same fence or a later one.
 *
 * Steps 2 and 3 are the lone server's; housekeeping after the commit, its events, and BCAST invalidations at
 * the end of the tick are written under no fence: an invalidation may come early, but must not be lost. */
#ifndef MAYFLY_SERVER_COMMIT_H
#define MAYFLY_SERVER_COMMIT_H

#include "server/server.h"

/* What is committed decides what a failure means:
 *
 *   kind                 the engine fails                            the AOF fails
 *   COMMIT_TICK          every client of the tick gets an error      clients that wrote get an error
 *   COMMIT_PART          the rest of the tick is given up with it    the tick's end says so
 *   COMMIT_EXPIRY        events of it are taken back                 -
 *   COMMIT_HOUSEKEEPING  writes are refused                          -
 *   COMMIT_PRIMARY       messages of it are taken back               it is logged, and the link waits
 *   COMMIT_POSITION      the caller logs it                          (nothing to write)
 *   COMMIT_LOAD…         loading fails                               (it is not open yet)
 *
 * "-": writes are refused from the next tick on, as after every failure of the AOF. */
enum commit_kind {
    COMMIT_TICK,         /* requests, and blocked clients that were served */
    COMMIT_PART,         /* what a tick did before a script that takes long: server_commit_part */
    COMMIT_EXPIRY,       /* a slice of the expire cycle: need not be synced, what is dead is found again */
    COMMIT_HOUSEKEEPING, /* eviction, and what else was changed without a request */
    COMMIT_PRIMARY,      /* commands of our primary */
    COMMIT_POSITION,     /* bytes of the stream that change no data */
    COMMIT_LOAD_PART,    /* a slice of a file that is loaded: need not be synced before its last one … */
    COMMIT_LOAD_END      /* … which is this */
};

void commit_init(struct server *s); /* net's callbacks for fences */

/* Puts the fence in force that the replies of this connection's next request wait for (NULL: those of
 * blocked clients), and opens it if it is the first of the tick. */
void commit_enforce(struct server *s, const struct conn *c);

/* Its changes are not known to be kept: see fence_fail. */
void commit_fence_failed(struct server *s, struct fence *f, const char *wrote, const char *read);

/* Returns whether the engine kept the changes. */
bool server_commit(struct server *s, enum commit_kind kind);

/* While a script takes too long: commits what the tick did before it, unless the script has changed anything,
 * because that can only be kept together. Returns whether the replies of before the script may leave. A
 * failure is reported when the tick ends, to every client that has a request in it. */
bool server_commit_part(struct server *s);

#endif
