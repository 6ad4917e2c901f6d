/* Commands that wait for keys, and the keys that may have something for them.
 *
 * First come, first served: a key's waiters are queued in the order in which they came. A key with waiters
 * becomes ready when it changes and holds a type of value that any waiter waits for, at most once until it is
 * served; keys are served in the order in which they became ready. Serving may make others ready (BLMOVE): it
 * ends when none is.
 *
 * A *waiter* is a command here; the server's side, the connection, is called *blocked*
 * (server/client/block.h). */
#ifndef MAYFLY_EXEC_WAITERS_H
#define MAYFLY_EXEC_WAITERS_H

#include "command/waiting.h"
#include "ds/table.h"

struct region;
struct waited_key;

/* A waiter's place in the queue of one key. */
struct wait_place {
    struct waiter *who;
    struct waited_key *key;
    struct wait_place *prev, *next; /* in the key's queue */
};

struct waiter {
    struct region *region;   /* the one that has all its keys */
    void *client;            /* for the caller */
    struct waiting *what;
    u32 db;
    u32 count;
    struct wait_place places[]; /* one for each different key */
};

struct waiters { /* one per region */
    struct table keys;       /* struct waited_key by name: keys with waiters, once per database */
    u32 count;               /* waiters … */
    u32 of_type[TYPE_STREAM + 1]; /* … by the type they wait for */
    u32 even_gone;           /* keys with a waiter that any change concerns, even deletion */
    struct waited_key *ready, *ready_tail; /* in the order in which they became ready */
};

void waiters_init(struct waiters *all, u64 seed);
void waiters_release(struct waiters *all); /* when there are no waiters any more */
u32 waiters_ready(const struct waiters *all); /* how many keys are ready: its part of node.keys_ready */

/* Queues a waiter for all keys of `what`, which is taken over. */
struct waiter *waiters_add(struct region *r, u32 db, struct waiting *what, void *client);

/* Removes it from all queues, and frees it with w->what. */
void waiters_remove(struct waiter *w);

/* Its keys are in another region now. Returns the waiter there. */
struct waiter *waiters_move(struct waiter *w, struct region *to);

/* Offers the ready keys of a region (node.keys_ready counts those of all regions) to their waiters, until no
 * key is ready. `serve` runs w->what again for this key (region_retry). True: it was answered, and will be
 * removed; `serve` itself may not remove waiters. Not within a command. */
typedef bool (*waiter_fn)(void *arg, struct waiter *w, bytes key);
void waiters_serve(struct region *r, waiter_fn serve, void *arg);

/* For the region's watcher (exec/key_listeners.h), while LISTEN_WAIT is on. */
void waiters_changed(struct region *r, u32 db, bytes key);
void waiters_flushing(struct region *r, u32 db);
void waiters_swapped(struct region *r, u32 a, u32 b);

#endif
