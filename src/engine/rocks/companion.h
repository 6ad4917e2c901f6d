/* Companions (engine/companion.h) on RocksDB. A head and its rows are in the family `companion`:
 *
 *   P                     flags [· u64 version · u64 rows] · head           (codec.h)
 *   P · u64 version · name                                    value
 *
 * and one that stays has a mark, an empty row of meta_info: 'k' · P.
 *
 * A companion is a struct row of type ROW_COMPANION in a database of its own (rk_db.side), which has the
 * index of the keys' database. So cache, changes, walks, commit and abort are those of keys, and rows are
 * those of streams. It has a version from its first row on. Dropping it deletes the head; its rows are
 * orphans then, which compactions drop.
 *
 * A key's metadata has a flag if there is a companion that goes with it: drop() checks it. Compactions
 * leave such keys to due(), however long they are dead. */
#ifndef MAYFLY_ENGINE_ROCKS_COMPANION_H
#define MAYFLY_ENGINE_ROCKS_COMPANION_H

#include "engine/rocks/rk.h"

#define COMPANION_MARK 'k'

/* Finds out at start whether there are any; called before the others. */
void companion_open_all(struct rk *rk);
void companion_abandon(struct rk *rk); /* the transaction failed: restores the flags of databases */
void companion_release(struct rk_db *db); /* its rows were flushed */

/* The key was dropped or renamed, and has a companion that goes with it. */
void companion_after_drop(struct rk *rk, struct row *key);
void companion_flush(struct rk *rk, struct rk_db *db); /* drops the rows, as row_flush does */
void companion_write(struct rk *rk, struct row *r);    /* into the batch; row_write.c handles its orphans */
size_t companion_usage(struct rk *rk, const struct key_ref *ref, u32 samples);

/* The bounds of a database's marks; appended. */
void companion_marks(const struct rk *rk, const struct rk_db *db, struct buf *from, struct buf *to);
/* The companion that a mark names; not in a table. */
struct row *companion_marked_row(struct rk *rk, struct rk_db *db, bytes key);

extern const struct companion_ops rk_companion_ops;

#endif
