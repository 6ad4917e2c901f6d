/* Small collections, packed into one blob as in RDB files. */
#ifndef MAYFLY_RDB_RDB_SMALL_H
#define MAYFLY_RDB_RDB_SMALL_H

#include "rdb/rdb_value.h"

#define RDB_NODE_BYTES 8192 /* size of a list's node, as Redis's list-max-listpack-size -2 */
#define RDB_PACK_OVERHEAD 11 /* the most a listpack adds to an element */

/* Packs all of s->ref into s->blob. False: it is too large, and the blob's content is undefined. */
bool rdb_small_list(struct rdb_save *s);
bool rdb_small_ints(struct rdb_save *s); /* false also if it is not a set of integers */
bool rdb_small_zset(struct rdb_save *s);
bool rdb_small_hash(struct rdb_save *s, bool ttls); /* the nearest deadline goes to s->min_deadline_ms */

#endif
