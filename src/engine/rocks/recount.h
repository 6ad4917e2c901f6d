/* Counts all keys at start where the stored counts can't be used:
 *
 * a database made by another program   has keys but no state at all: counts them, and files their deadlines
 * layout 2                             has counts per database only: counts keys per slot, and per bucket of
 *                                        the deadline index again, because compactions used to delete dead
 *                                        keys without counting them out. One batch writes the counts and the
 *                                        new layout, so a crash before that leaves layout 2 as it was */
#ifndef MAYFLY_ENGINE_ROCKS_RECOUNT_H
#define MAYFLY_ENGINE_ROCKS_RECOUNT_H

#include "engine/rocks/rk.h"

/* in several batches, the last of which writes the state: after a crash it starts over */
bool recount_foreign(struct rk *rk);
bool recount_upgrade(struct rk *rk);

#endif
