/* Counting all keys once, where the counts that are stored can't be used:
 *
 *   a database that was made elsewhere   has keys but no state at all: they are counted, and their
 *                                        deadlines filed
 *   layout 2                             has counts per database only: keys are counted per slot, and
 *                                        per bucket of the deadline index again, because compactions used to
 *                                        delete dead keys without a word. One batch writes the counts and
 *                                        the new layout, so a crash before that leaves layout 2 as it was */
#ifndef MAYFLY_ENGINE_ROCKS_RECOUNT_H
#define MAYFLY_ENGINE_ROCKS_RECOUNT_H

#include "engine/rocks/rk.h"

/* in pieces, the last of which carries the state: a crash starts it over */
bool recount_foreign(struct rk *rk);
bool recount_upgrade(struct rk *rk);

#endif
