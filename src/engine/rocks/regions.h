/* Splitting and merging regions: see rocks.h. */
#ifndef MAYFLY_ENGINE_ROCKS_REGIONS_H
#define MAYFLY_ENGINE_ROCKS_REGIONS_H

#include "engine/rocks/rk.h"

void regions_cut(struct rk *rk);   /* the commit has split the region */
void regions_moved(struct rk *rk); /* the commit has emptied the region and given it other slots */

#endif
