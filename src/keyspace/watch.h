/* WATCH: who wants to know whether any of a few keys changes before its transaction runs.
 *
 * A watcher becomes dirty with the first change of a key it watches, and then watches nothing any more. A key
 * that was dead when WATCH looked at it counts as absent: that it is deleted is no change. A key that dies
 * while it is watched has changed, whether or not anybody has deleted it yet; so has a hash of which a field
 * dies. */
#ifndef MAYFLY_KEYSPACE_WATCH_H
#define MAYFLY_KEYSPACE_WATCH_H

#include "ds/table.h"
#include "keyspace/keyspace.h"

struct watch;

struct watches { /* one per region */
    struct table keys; /* struct watched, by name: each with its watchers */
    u64 clients;       /* watchers that watch anything */
};

struct watcher { /* one per client; zeroed to start */
    struct watch *first;
    u32 count;
    size_t name_bytes; /* of the keys */
    bool dirty;
};

void watches_init(struct watches *all, u64 seed);
void watches_release(struct watches *all); /* when nobody watches any more */

/* Watching a key twice is watching it once. */
void watch_key(struct watches *all, struct keyspace *ks, struct watcher *who, u32 db, bytes key);
void watch_none(struct watches *all, struct watcher *who); /* UNWATCH; clears `dirty`, too */

/* Whether a key it watches has changed, or it or a field of it has died since. */
bool watch_broken(const struct watcher *who, struct keyspace *ks);

size_t watch_memory(const struct watcher *who); /* bytes, about */

/* For the keyspace's watcher: what happened. */
void watch_changed(struct watches *all, struct keyspace *ks, u32 db, bytes key);
void watch_flushing(struct watches *all, struct keyspace *ks, u32 db);
void watch_swapped(struct watches *all, struct keyspace *ks, u32 a, u32 b);

#endif
