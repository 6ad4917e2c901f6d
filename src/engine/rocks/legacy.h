/* Strings of the old form (data row P · 'S'), as databases of NeoKV's first phase have them. They
 * are read where there is no metadata row, and removed by any write of their key (row.c); a pass in
 * the background moves the rest, so that nothing stays in the old form for ever. */
#ifndef MAYFLY_ENGINE_ROCKS_LEGACY_H
#define MAYFLY_ENGINE_ROCKS_LEGACY_H

#include "engine/rocks/rk.h"

/* Whether there may be such strings: a database that Mayfly made has none. */
bool legacy_open(struct rk *rk, struct buf *why);
/* `it` stands on a row of `data`, and is moved to the old string of that row's key. False: there is none.
 * In any case `from` becomes where the next key begins. */
bool legacy_visit(struct store_iter *it, struct buf *from, struct codec_key *k);
/* Moves some, as part of the transaction. */
void legacy_step(struct rk *rk, u32 rows);
void legacy_abandon(struct rk *rk); /* the transaction failed: back to what is stored */
void legacy_info(struct rk *rk, struct buf *out);

#endif
