/* Which changes are synced to disk: WAITAOF waits for this, and a replica reports it to its primary.
 *
 * The log is the AOF (memory engine) or the engine's own log (rocksdb, whatever `appendonly` says). No change
 * is recorded by itself: a mark of the current position is taken now and then, and counts as synced when a
 * sync that began after it has succeeded. */
#ifndef MAYFLY_REPL_DURABLE_H
#define MAYFLY_REPL_DURABLE_H

#include "base/types.h"

struct server;

struct durable_mark {
    u64 seq;      /* journal sequence: everything up to it is committed … */
    u64 position; /* … and is in the replication stream up to this position */
};

struct durable {
    struct durable_mark synced;
    struct durable_mark pending; /* becomes synced by the first sync after number `after` */
    bool waits;                  /* `pending` is set */
    u64 after;
};

bool durable_enabled(const struct server *s); /* there is a log, or there will be one: appendonly is yes */

/* Asks the log what has been synced since the last call. True: `synced` has moved. */
bool durable_look(struct server *s);

/* All data was replaced: earlier positions belong to another history. */
void durable_reset(struct server *s);

static inline bool durable_has(const struct durable *d, u64 seq) { return d->synced.seq >= seq; }

#endif
