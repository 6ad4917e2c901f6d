/* A table of items by database and key name: for clients that watch keys (watch.h) or wait for them
 * (exec/waiters.h). */
#ifndef MAYFLY_KEYSPACE_KEY_TABLE_H
#define MAYFLY_KEYSPACE_KEY_TABLE_H

#include "ds/table.h"

struct named_key { /* first member of every item */
    bytes name;
    u32 db;
};

void key_table_init(struct table *t, u64 seed);

void *key_table_find(const struct table *t, u32 db, bytes name); /* NULL: absent */
void *key_table_add(struct table *t, u32 db, bytes name, size_t size); /* adds a zeroed item */
void key_table_drop(struct table *t, struct named_key *k);             /* removes and frees it */

#endif
