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
 * the commit nothing of a tick has left the server, so all of it can be taken back. */
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

/* Returns whether the engine kept the changes. */
bool server_commit(struct server *s, enum commit_kind kind);

/* While a script takes too long: commits what the tick did before it, unless the script has changed anything,
 * because that can only be kept together. Returns whether the replies of before the script may leave. A
 * failure is reported when the tick ends, to every client that has a request in it. */
bool server_commit_part(struct server *s);

#endif
