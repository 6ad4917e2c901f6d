/* Drawing an element at random from a collection that is too big to be counted through: HRANDFIELD,
 * SRANDMEMBER, SPOP. Costs a few seeks, and now and then some dozens to learn about the names. Each
 * element has about the same chance where names are made in a regular way (numbers, hexadecimal
 * or base64 identifiers, times, random bytes, with any prefix); other names by and large. */
#ifndef MAYFLY_ENGINE_ROCKS_TYPE_DRAW_H
#define MAYFLY_ENGINE_ROCKS_TYPE_DRAW_H

#include "engine/rocks/delta.h"

/* Stands on the drawn element. False: there is none. */
bool draw_element(struct walk *w, struct rk *rk, struct row *r, u64 *rng);

void draws_free(struct draws *d); /* what was learned (rk->draws); NULL is fine */

#endif
