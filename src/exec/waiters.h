/* Who waits for which key, and which keys may have something for them.
 *
 * First come, first served: the waiters of a key stand in the order in which they came. A key that anybody
 * waits for becomes ready when it changes and holds a type of value that anybody waits for, at most once
 * until it is served; keys are served in the order in which they became ready. Serving may make others ready
 * (BLMOVE): it ends when none is. */
#ifndef MAYFLY_EXEC_WAITERS_H
#define MAYFLY_EXEC_WAITERS_H

#include "command/waiting.h"
#include "ds/table.h"

struct region;
struct waited_key;

/* One place in the line before a key. */
struct wait_place {
    struct waiter *who;
    struct waited_key *key;
    struct wait_place *prev, *next; /* of the key's */
};

struct waiter {
    struct region *region;   /* which has all its keys */
    void *client;            /* the caller's */
    struct waiting *what;
    u32 db;
    u32 count;
    struct wait_place places[]; /* one for each different key */
};

struct waiters { /* one per region */
    struct table keys;       /* struct waited_key by name: those anybody waits for, once per database */
    u32 count;               /* waiters … */
    u32 of_type[TYPE_STREAM + 1]; /* … by what they wait for */
    u32 even_gone;           /* keys that somebody waits for whom any change concerns */
    struct waited_key *ready, *ready_tail; /* in the order of becoming so */
};

void waiters_init(struct waiters *all, u64 seed);
void waiters_release(struct waiters *all); /* when nobody waits any more */
u32 waiters_ready(const struct waiters *all); /* how many keys are ready: its part of node.keys_ready */

/* Puts somebody in line before all keys of `what`, which is taken over. */
struct waiter *waiters_add(struct region *r, u32 db, struct waiting *what, void *client);

/* Takes it out of all lines, and frees it and what it waited for. */
void waiters_remove(struct waiter *w);

/* Offers the ready keys of a region (node.keys_ready counts those of all) to those who wait for them, until
 * no key is ready. `serve` runs w->what again for this key (region_retry). True: it was answered, and will be
 * removed; it may not remove anybody itself. Not within a command. */
typedef bool (*waiter_fn)(void *arg, struct waiter *w, bytes key);
void waiters_serve(struct region *r, waiter_fn serve, void *arg);

/* For the region's watcher (exec/key_listeners.h), while LISTEN_WAIT is on. */
void waiters_changed(struct region *r, u32 db, bytes key);
void waiters_flushing(struct region *r, u32 db);
void waiters_swapped(struct region *r, u32 a, u32 b);

#endif
