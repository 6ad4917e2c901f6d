/* WATCH: detects whether a watched key changes before the client's transaction runs.
 *
 * (1) The first change of a watched key makes the watcher dirty and removes all its watches.
 * (2) A key that was dead at WATCH counts as absent: deleting it is no change.
 * (3) A key that dies while it is watched has changed, whether or not it has been deleted. So has a hash one
 *     of whose fields dies. */
#ifndef MAYFLY_KEYSPACE_WATCH_H
#define MAYFLY_KEYSPACE_WATCH_H

#include "ds/table.h"
#include "keyspace/keyspace.h"

struct watch;

struct watches { /* one per region */
    struct table keys; /* struct watched, by name: each with its watchers */
    struct keyspace *ks; /* they are in */
    u64 *clients;        /* watchers with at least one key, in all regions: the node's count */
};

struct watcher { /* one per client, with keys of any region; zeroed to start */
    struct watch *first;
    u32 count;
    size_t name_bytes; /* of the keys */
    bool dirty;
};

void watches_init(struct watches *all, struct keyspace *ks, u64 *clients, u64 seed);
void watches_release(struct watches *all); /* no watcher may be left */

/* Watching a key again has no effect. */
void watch_key(struct watches *all, struct watcher *who, u32 db, bytes key);
void watch_none(struct watcher *who); /* UNWATCH; also clears `dirty` */

/* Whether a watched key has changed, or a watched key or a field of it has died since. */
bool watch_broken(const struct watcher *who);

size_t watch_memory(const struct watcher *who); /* approximate bytes */

/* Called by the keyspace watcher. */
void watch_changed(struct watches *all, u32 db, bytes key);
void watch_flushing(struct watches *all, u32 db);
void watch_swapped(struct watches *all, u32 a, u32 b);

/* Changes may go unnoticed from now on: all keys of the database count as changed. */
void watch_distrust(struct watches *all, u32 db);

static inline bool watches_any(const struct watches *all) { return all->keys.count > 0; }

#endif
