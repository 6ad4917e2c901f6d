/* Who hears of changed keys: a region's one keyspace_watcher. It passes on to WATCH (keyspace/watch.h), to
 * the commands that wait for keys (exec/waiters.h), to the keys of a replica's own (keyspace/own_keys.h) and,
 * by a hook, to the server, whose clients cache what they read.
 *
 * The keyspace tells it anything only while somebody listens: whoever keeps a table of interested clients
 * says so when its first one comes, and when its last one goes. */
#ifndef MAYFLY_EXEC_KEY_LISTENERS_H
#define MAYFLY_EXEC_KEY_LISTENERS_H

#include "base/bytes.h"

struct node;
struct region;

enum { LISTEN_WATCH = 1, LISTEN_WAIT = 2, LISTEN_TRACK = 4, LISTEN_OWN = 8 };

/* The server's part, set once at its start, called with node.owner while LISTEN_TRACK is on. They may not
 * change data. */
struct touch_hooks {
    void (*touched)(void *owner, u32 db, bytes key); /* changed, expired, evicted: a cache is old */
    void (*flushed)(void *owner, u32 db);            /* the same of all keys of a database */
};

void region_listen(struct region *r, u32 who, bool on);
void node_listen(struct node *n, u32 who, bool on); /* all its regions */

/* All data is about to go; or it has changed places with the spare databases', which are not dropped yet. For
 * those who replace it without keyspace_flush and keyspace_swap. */
void region_flushing_all(struct region *r);
void region_replaced_all(struct region *r);

#endif
