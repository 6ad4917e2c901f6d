/* Keys of the rocks engine as a whole: walks, copies, databases. */
#ifndef MAYFLY_ENGINE_ROCKS_KEYS_H
#define MAYFLY_ENGINE_ROCKS_KEYS_H

#include "engine/rocks/rk.h"

void rk_key_ops(struct engine_ops *ops);

/* A flushed database: all of it deleted in the batch; and, once that is written, its files. */
void keys_delete_all(struct rk *rk, struct rk_db *db);
void keys_drop_files(struct rk *rk, struct rk_db *db);

#endif
