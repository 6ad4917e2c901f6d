/* Small collections, packed into one blob as RDB files have them. */
#ifndef MAYFLY_RDB_RDB_SMALL_H
#define MAYFLY_RDB_RDB_SMALL_H

#include "rdb/rdb_value.h"

#define RDB_NODE_BYTES 8192 /* of a list's node, as Redis's list-max-listpack-size -2 */
#define RDB_PACK_OVERHEAD 11 /* most that a listpack adds to an element */

/* The whole of s->ref into s->blob. False: it is too large for that, and the blob holds nothing of use. */
bool rdb_small_list(struct rdb_save *s);
bool rdb_small_ints(struct rdb_save *s); /* or it is not a set of integers */
bool rdb_small_zset(struct rdb_save *s);
bool rdb_small_hash(struct rdb_save *s, bool ttls); /* the nearest goes to s->min_deadline_ms */

#endif
