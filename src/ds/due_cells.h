/* How the deadlines in a bucket of a deadline index are spread: counts in 64 cells per bucket.
 *
 *     level 2:  |<-------------- bucket, 4.4 min -------------->|
 *     cells:    | 4.1 s | 4.1 s | 4.1 s |         …     | 4.1 s |   64 of them, each {keys, past}
 *
 * A cell is as wide as a bucket of the level below (1 ms at level 0). A deadline in a bucket is at least the
 * bucket's width away (due_place.h), so a cell is at most 1/64 as wide as the time until it begins. Besides
 * the number of keys, a cell has the sum of their offsets from its start. The mean offset tells on which side
 * of a moment within the cell the keys lie; this is exact if all of them share a deadline. */
#ifndef MAYFLY_DS_DUE_CELLS_H
#define MAYFLY_DS_DUE_CELLS_H

#include "ds/due_place.h"
#include "ds/due_span.h"

#define DUE_CELLS 64
#define DUE_CELL_SHIFT(level) (6 * (level)) /* log2 of the cell width in ms */
#define DUE_MEAN_KEYS (1 << 24)             /* cells with more keys have no mean: `past` may overflow */

struct due_cell {
    i32 keys; /* negative only in a bucket whose row on disk predates cells */
    u32 past; /* sum of the keys' offsets from the cell's start, in units of due_unit_shift, modulo 2^32 */
};

/* Offsets are in units of 1/256 of a cell, at least a millisecond. */
static inline u32 due_unit_shift(u32 level) { return level < 2 ? 0 : DUE_CELL_SHIFT(level) - 8; }

static inline struct due_cell *due_cell_of(struct due_cell *cells, u32 level, i64 deadline_ms)
{
    return &cells[MIN(MAX(deadline_ms, 0), DUE_PLACE_LATEST) >> DUE_CELL_SHIFT(level) & (DUE_CELLS - 1)];
}

/* Adds (n = 1) or removes (n = -1) a key. */
static inline void due_cell_count(struct due_cell *c, u32 level, i64 deadline_ms, int n)
{
    u32 unit = due_unit_shift(level), in_cell = (1u << (DUE_CELL_SHIFT(level) - unit)) - 1;
    u32 offset = (u32)(MIN(MAX(deadline_ms, 0), DUE_PLACE_LATEST) >> unit) & in_cell;
    c->keys += n;
    c->past += n > 0 ? offset : -offset;
}

/* Calls fn for each cell of a bucket that has keys. */
void due_cells_each(const struct due_cell *cells, u32 level, i64 bucket, due_span_fn fn, void *arg);

#endif
