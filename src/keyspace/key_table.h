/* A table of keys that somebody wants to hear of (watch.h, exec/waiters.h): the same name may be there once
 * per database. */
#ifndef MAYFLY_KEYSPACE_KEY_TABLE_H
#define MAYFLY_KEYSPACE_KEY_TABLE_H

#include "ds/table.h"

struct named_key { /* what an item of such a table begins with */
    bytes name;
    u32 db;
};

void key_table_init(struct table *t, u64 seed);

void *key_table_find(const struct table *t, u32 db, bytes name); /* NULL: not there */
void *key_table_add(struct table *t, u32 db, bytes name, size_t size); /* an item of that size, zeroed */
void key_table_drop(struct table *t, struct named_key *k);             /* takes it out and frees it */

#endif
