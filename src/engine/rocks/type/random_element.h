/* A random element of a collection that is too big to be counted through: HRANDFIELD, SRANDMEMBER, SPOP.
 *
 * Costs a few seeks, and now and then some dozens to learn what the names look like. Each element has about
 * the same chance where names follow a pattern (numbers, hexadecimal or base64 identifiers, times, random
 * bytes, with any prefix); with other names the chances are roughly equal. */
#ifndef MAYFLY_ENGINE_ROCKS_TYPE_RANDOM_ELEMENT_H
#define MAYFLY_ENGINE_ROCKS_TYPE_RANDOM_ELEMENT_H

#include "engine/rocks/delta.h"

/* Moves the walk to a random element. False: there is none. */
bool draw_element(struct walk *w, struct rk *rk, struct row *r, u64 *rng);

void draws_free(struct draws *d); /* what was learned (rk->draws); NULL is fine */

#endif
