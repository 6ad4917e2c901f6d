/* Ranges of a collection that a transaction has erased: what is stored there is gone, whether there is a
 * change record for it or not, and only what was changed since counts. So a walk need not pass what was
 * erased, and where it was much it takes no record for each: such ranges go into the batch as range
 * deletions, before anything that is put. A delta has them (delta->cuts), in the transaction's arena. */
#ifndef MAYFLY_ENGINE_ROCKS_CUTS_H
#define MAYFLY_ENGINE_ROCKS_CUTS_H

#include "engine/rocks/delta.h"

struct cut {
    bytes from, to; /* [from, to) */
    bool whole;     /* to be deleted as a range; else all that is stored in it has a change record */
};

struct cuts {
    struct cut *v; /* ascending, never touching each other */
    u32 n, cap;
};

/* Both live as long as the transaction. */
void cuts_add(struct rk *rk, struct row *r, bytes from, bytes to, bool whole);

/* The one an element is in; NULL: none. `c` may be NULL. */
const struct cut *cuts_find(const struct cuts *c, bytes sub);

void cuts_write(struct rk *rk, struct row *r, enum family f); /* into the batch */

#endif
