/* A small sorted set of 64-bit integers in flat bytes, which the caller owns:
 *
 *   log of the width (0 to 3) · integers of 1, 2, 4 or 8 bytes each, ascending
 *
 * No bytes are an empty set. All integers have the width of the widest that was ever added. */
#ifndef MAYFLY_DS_INTSET_H
#define MAYFLY_DS_INTSET_H

#include "base/bytes.h"

#define INTSET_HEAD 1u

static inline u32 intset_log(bytes s) { return s.n ? (u8)s.p[0] : 0; }
static inline u32 intset_count(bytes s) { return s.n ? (u32)((s.n - INTSET_HEAD) >> intset_log(s)) : 0; }

u32 intset_log_of(i64 value); /* of the width that this value needs */

i64 intset_at(bytes s, u32 index);
/* Finds a value, or the index at which it would be. */
bool intset_find(bytes s, i64 value, u32 *index);

/* Writes the integer of an index. `log` is that of the set. */
void intset_write(char *s, u32 log, u32 index, i64 value);
/* Rewrites the first `count` integers with a greater width. The bytes for that are there. */
void intset_widen(char *s, u32 count, u32 log);

#endif
