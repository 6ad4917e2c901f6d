/* Keys with a deadline written by clients of a writable replica. A replica waits for its primary's DEL of a
 * dead key, but the primary does not have these keys: the replica deletes them itself.
 *
 * This module keeps only names, ordered by deadline. When one is due, the engine's deadline decides. Once the
 * primary writes a key, the key belongs to the primary. */
#ifndef MAYFLY_KEYSPACE_OWN_KEYS_H
#define MAYFLY_KEYSPACE_OWN_KEYS_H

#include "ds/heap.h"
#include "ds/table.h"
#include "keyspace/keyspace.h"

struct own_keys {
    struct table names; /* struct own_key */
    struct heap due;    /* the same, by deadline */
    struct buf noted;   /* changed keys whose deadlines have not been read yet */
};

void own_keys_init(struct own_keys *o, u64 seed);
void own_keys_release(struct own_keys *o);

/* Called by the keyspace watcher: a client or the primary has changed a key; a database is emptied; two are
 * swapped. */
void own_keys_changed(struct own_keys *o, u32 db, bytes key, bool by_primary);
void own_keys_flushed(struct own_keys *o, u32 db);
void own_keys_swapped(struct own_keys *o, u32 a, u32 b);
void own_keys_clear(struct own_keys *o);

/* The number of keys. */
u64 own_keys_count(struct own_keys *o, struct keyspace *ks);

/* Whether there may be any, and the deadline of the first; INT64_MAX: none. */
static inline bool own_keys_any(const struct own_keys *o) { return o->due.n || o->noted.n; }
i64 own_keys_next_due(const struct own_keys *o);

/* Deletes a few dead keys. True: there may be more. */
bool own_keys_step(struct own_keys *o, struct keyspace *ks);

#endif
