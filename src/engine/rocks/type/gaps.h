/* Where a stream has no stored rows: what a walk has found out the hard way, it does not have to find out
 * again.
 *
 * Streams are queues. Rows go at the front, of the entries and of what is pending in each group, and until
 * they are compacted away a walk that begins there has to pass the tombstones of all of them. So where a
 * walk had to pass many it leaves a note with the row in the cache, and the next one begins behind. Then
 * each tombstone is passed once. */
#ifndef MAYFLY_ENGINE_ROCKS_TYPE_GAPS_H
#define MAYFLY_ENGINE_ROCKS_TYPE_GAPS_H

#include "base/buf.h"

#define GAPS_MAX 16

struct gap {
    struct buf from, to; /* [from, to) has no stored row */
    bool endless;        /* nor has anything from `to` on */
    u64 used;            /* when it was, by gaps.uses */
};

struct gaps {
    struct gap v[GAPS_MAX];
    u32 n;
    u64 uses;
};

/* The one a name is in, or NULL. `g` may be NULL. */
struct gap *gaps_find(struct gaps *g, bytes name);

/* From `from` on, which is in `known` (NULL: in none), a walk met no row before `to`; p NULL: none at all. */
void gaps_note(struct gaps **g, struct gap *known, bytes from, bytes to);

void gaps_put(struct gaps *g, bytes name); /* a row was stored */
void gaps_free(struct gaps *g);            /* NULL is fine */

#endif
