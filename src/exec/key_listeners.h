/* Reports changes of keys to their listeners: a region's only keyspace_watcher. The listeners are WATCH
 * (keyspace/watch.h), commands that wait for keys (exec/waiters.h), keys written by a replica's clients
 * (keyspace/own_keys.h) and, through hooks, the server, for client-side caching.
 *
 * The keyspace reports changes only while there are listeners: a module calls region_listen when it gets its
 * first client and when it loses its last one. */
#ifndef MAYFLY_EXEC_KEY_LISTENERS_H
#define MAYFLY_EXEC_KEY_LISTENERS_H

#include "base/bytes.h"

struct node;
struct region;

enum { LISTEN_WATCH = 1, LISTEN_WAIT = 2, LISTEN_TRACK = 4, LISTEN_OWN = 8 };

/* Set by the server once at start, called with node.owner while LISTEN_TRACK is on. They may not change
 * data. */
struct touch_hooks {
    void (*touched)(void *owner, u32 db, bytes key); /* changed, expired, evicted: cached values are stale */
    void (*flushed)(void *owner, u32 db);            /* the same for all keys of a database */
};

void region_listen(struct region *r, u32 who, bool on);
void node_listen(struct node *n, u32 who, bool on); /* all its regions */

/* Before all data is deleted, and after it was swapped with the staging databases, which are not dropped yet:
 * for code that replaces it without keyspace_flush and keyspace_swap. */
void region_flushing_all(struct region *r);
void region_replaced_all(struct region *r);

#endif
