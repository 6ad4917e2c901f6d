/* The content of an omap leaf: rows in order, in one packed blob. A row is stored as its difference from the
 * blob's model. The model is a copy of the first row the blob was created with; it stays when that row is
 * erased. */
#ifndef MAYFLY_DS_OMAP_BLOB_H
#define MAYFLY_DS_OMAP_BLOB_H

#include "ds/omap.h"
#include "ds/packed.h"

packed *omap_blob_new(bytes name, bytes value); /* with that row */

/* Positions are those of packed.h. Element 0 is the model, the others are the rows. */
static inline u32 omap_blob_first(const packed *b) { return packed_next(b, packed_first(b)); }
static inline u32 omap_blob_prev(const packed *b, u32 at)
{
    return at == omap_blob_first(b) ? PACKED_END : packed_prev(b, at);
}
static inline u32 omap_blob_rows(const packed *b) { return packed_count(b) - 1; }

void omap_blob_read(const packed *b, u32 at, struct omap_row *row);
int omap_blob_cmp(const packed *b, u32 at, bytes name); /* compares the row's name with `name` */

/* The first row >= name; PACKED_END: none. */
u32 omap_blob_find(const packed *b, bytes name, bool *equal);

/* Inserts a row before the one at `at`, or, with `replace`, replaces that one. False: there is no room in
 * `max` bytes, and nothing has changed. A single row always has room. */
bool omap_blob_put(packed **b, u32 max, u32 at, bool replace, bytes name, bytes value);

/* Appends rows of another blob from *at on while there is room. Sets *at to the first row that was not
 * appended. */
void omap_blob_append(packed **b, u32 max, const packed *from, u32 *at);
packed *omap_blob_new_from(const packed *from, u32 max, u32 *at); /* the same into a new blob */

#endif
