/* What of the changes is synced to disk: what WAITAOF waits for, and what a replica reports to its primary.
 *
 * The log is the AOF's (memory engine) or the storage's own (rocksdb engine: always there, whatever
 * `appendonly` says). Nothing is noted per change: a mark of where we are is taken now and then, and counts
 * when a sync that began after it has succeeded. */
#ifndef MAYFLY_REPL_DURABLE_H
#define MAYFLY_REPL_DURABLE_H

#include "base/types.h"

struct server;

struct durable_mark {
    u64 seq;      /* of the journal: everything up to it is committed … */
    u64 position; /* … and is in the stream of replication up to here */
};

struct durable {
    struct durable_mark synced;
    struct durable_mark pending; /* to be synced by the first sync after number `after` */
    bool waits;                  /* there is such a one */
    u64 after;
};

bool durable_enabled(const struct server *s); /* there is a log, or is to be: appendonly is yes */

/* Finds out what has been synced since. True: `synced` has moved. */
bool durable_look(struct server *s);

/* All data was replaced: positions are of another history. */
void durable_reset(struct server *s);

static inline bool durable_has(const struct durable *d, u64 seq) { return d->synced.seq >= seq; }

#endif
