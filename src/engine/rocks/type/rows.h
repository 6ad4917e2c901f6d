/* Streams of the rocks engine (rows.c), and the gaps that walks over them know.
 *
 * A gap is a range of names without a stored row. Streams are queues: rows are deleted at the front, both
 * entries and what is pending in each group, and until compaction removes their tombstones a walk that
 * starts there skips all of them. A walk that skipped many records the gap beside the cached row, and the
 * next walk starts after it. So each tombstone is skipped once. */
#ifndef MAYFLY_ENGINE_ROCKS_TYPE_ROWS_H
#define MAYFLY_ENGINE_ROCKS_TYPE_ROWS_H

#include "engine/rocks/rk.h"

#define GAPS_MAX 16

struct gap {
    struct buf from, to; /* [from, to) has no stored row */
    bool endless;        /* no row is stored at or after `to` either */
    u64 used;            /* gaps.uses when it was last used */
};

/* Gaps may overlap; each is true by itself. When all are taken, the least recently used one is replaced. */
struct gaps {
    struct gap v[GAPS_MAX];
    u32 n;
    u64 uses;
};

/* The gap that contains `name`, or NULL. `g` may be NULL. */
struct gap *gaps_find(struct gaps *g, bytes name);

/* A walk from `from` met no row before `to` (p NULL: no row at all). `known` is the gap that contains
 * `from`, or NULL. Allocates *g if it is NULL. */
void gaps_record(struct gaps **g, struct gap *known, bytes from, bytes to);

void gaps_row_stored(struct gaps *g, bytes name); /* shortens the gaps that contain `name` */
void gaps_free(struct gaps *g);                   /* NULL is fine */

#endif
