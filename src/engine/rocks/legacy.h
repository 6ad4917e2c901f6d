/* Legacy strings: data rows P · 'S', as databases written before metadata rows existed have them
 * (docs/format.md). They are read where there is no metadata row, and deleted by any write of their key
 * (row.c); a background migration converts the rest. */
#ifndef MAYFLY_ENGINE_ROCKS_LEGACY_H
#define MAYFLY_ENGINE_ROCKS_LEGACY_H

#include "engine/rocks/rk.h"

/* Sets rk->legacy: whether there may be legacy strings; databases created by Mayfly have none. Counts the
 * keys of one that was created elsewhere, if the region has all slots. False: see `why`. */
bool legacy_open(struct rk *rk, struct buf *why);
/* Moves `it` from a row of `data` to the legacy string of that row's key. False: there is none. `from`
 * becomes the start of the next key in either case. */
bool legacy_visit(struct store_iter *it, struct buf *from, struct codec_key *k);
/* Migrates legacy strings as part of the open transaction; looks at up to `rows` keys. */
void legacy_step(struct rk *rk, u32 rows);
void legacy_abandon(struct rk *rk); /* the transaction failed: back to what is stored */
void legacy_info(struct rk *rk, struct buf *out);

#endif
