/* Keys with a deadline that clients of a writable replica wrote. A replica leaves a dead key to its primary's
 * DEL, but the primary knows nothing of these: the replica deletes them itself.
 *
 * Only names are kept here, ordered by deadline; what counts is what the engine says when one is due. A key
 * that the primary writes is the primary's from then on. */
#ifndef MAYFLY_KEYSPACE_OWN_KEYS_H
#define MAYFLY_KEYSPACE_OWN_KEYS_H

#include "ds/heap.h"
#include "ds/table.h"
#include "keyspace/keyspace.h"

struct own_keys {
    struct table names; /* struct own_key */
    struct heap due;    /* the same, by deadline */
    struct buf noted;   /* what has changed and was not looked at yet */
};

void own_keys_init(struct own_keys *o, u64 seed);
void own_keys_release(struct own_keys *o);

/* For the keyspace's watcher: a client, or the primary, has changed a key; a database is emptied; two have
 * changed places. */
void own_keys_changed(struct own_keys *o, u32 db, bytes key, bool by_primary);
void own_keys_flushed(struct own_keys *o, u32 db);
void own_keys_swapped(struct own_keys *o, u32 a, u32 b);
void own_keys_clear(struct own_keys *o);

/* How many there are. */
u64 own_keys_count(struct own_keys *o, struct keyspace *ks);

/* Whether any may have to be deleted at some time, and when the first is; INT64_MAX: never. */
static inline bool own_keys_any(const struct own_keys *o) { return o->due.n || o->noted.n; }
i64 own_keys_next_due(const struct own_keys *o);

/* Deletes a handful of dead ones; true: there may be more. */
bool own_keys_step(struct own_keys *o, struct keyspace *ks);

#endif
