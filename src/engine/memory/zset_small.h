/* Sorted sets whose elements are in their entry (small.h): pairs of member and score, in order. */
#ifndef MAYFLY_ENGINE_MEMORY_ZSET_SMALL_H
#define MAYFLY_ENGINE_MEMORY_ZSET_SMALL_H

#include "engine/memory/small.h"

bool zset_small_score(const struct entry *, bytes member, double *score);
bool zset_small_rank(const struct entry *, bytes member, u64 *rank);

/* False if this element doesn't fit into a small one, which the caller makes a table then. */
bool zset_small_put(struct engine *, struct key_ref *, bytes member, double score, bool *added);
bool zset_small_del(struct engine *, struct key_ref *, bytes member);
void zset_small_erase(struct engine *, struct key_ref *, u32 from, u32 count, pair_fn, void *arg);

/* How many elements precede a bound, including those equal to it if `through`. Lex bounds look at members
 * only. In reverse it counts from the high end: should the scores differ after all, the walk starts where
 * Redis's would. */
u32 zset_small_before(const struct entry *, const struct zset_seek *, bool through, bool reverse);

/* Reads the element at `at`; returns the next one. digits: room for an integer's text; NULL: it is made to
 * last until commit. */
const char *zset_small_read(struct engine *, const char *at, char *digits, bytes *member, double *score);

/* Fills an empty one: zset_ops.fill. UINT32_MAX: these elements need another way. */
u32 zset_small_fill(struct engine *, struct key_ref *, const bytes *members, const double *scores, u32 n);

#endif
