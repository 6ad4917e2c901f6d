/* Operations of the rocks engine on whole keys and databases: walks, copies, flushes. */
#ifndef MAYFLY_ENGINE_ROCKS_KEYS_H
#define MAYFLY_ENGINE_ROCKS_KEYS_H

#include "engine/rocks/rk.h"

void rk_key_ops(struct engine_ops *ops);

/* Appends the bounds of a database's keys, within the region's slots, for families whose keys begin with
 * P. */
void keys_range(const struct rk *rk, const struct rk_db *db, struct buf *from, struct buf *to);

/* engine_ops.scan and .random: scan.c. */
u64 keys_scan(struct engine *e, u32 db_number, u64 cursor, u32 count, key_fn fn, void *arg);
bool keys_random(struct engine *e, u32 db_number, u64 *rng, struct key_ref *ref);

/* Of a flushed database: deletes all keys in the batch; after the batch is written, drops whole files. */
void keys_delete_all(struct rk *rk, struct rk_db *db);
void keys_drop_files(struct rk *rk, struct rk_db *db);

#endif
