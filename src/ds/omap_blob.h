/* What a leaf of an omap holds: rows in order, in one packed blob, of which only what differs from the
 * blob's model is stored. The model is made of the row a blob begins its life with, and stays as it is when
 * that row goes. */
#ifndef MAYFLY_DS_OMAP_BLOB_H
#define MAYFLY_DS_OMAP_BLOB_H

#include "ds/omap.h"
#include "ds/packed.h"

#define OMAP_BLOB_MAX 2048 /* bytes of a blob with more than one row */

packed *omap_blob_new(bytes name, bytes value); /* with that row */

/* Positions are those of packed.h; the rows are not all of its elements. */
static inline u32 omap_blob_first(const packed *b) { return packed_next(b, packed_first(b)); }
static inline u32 omap_blob_prev(const packed *b, u32 at)
{
    return at == omap_blob_first(b) ? PACKED_END : packed_prev(b, at);
}
static inline u32 omap_blob_rows(const packed *b) { return packed_count(b) - 1; }

void omap_blob_read(const packed *b, u32 at, struct omap_row *row);
int omap_blob_cmp(const packed *b, u32 at, bytes name); /* that row's name with this one */

/* The first row >= name; PACKED_END: there is none. */
u32 omap_blob_find(const packed *b, bytes name, bool *equal);

/* Puts a row before the one at `at`, or, with `replace`, in its place. False, and nothing is changed, if
 * there is no room; for an only row there always is. */
bool omap_blob_put(packed **b, u32 at, bool replace, bytes name, bytes value);

/* Appends the rows of another blob from *at on, as long as there is room; *at is then the first without. */
void omap_blob_append(packed **b, const packed *from, u32 *at);
packed *omap_blob_new_from(const packed *from, u32 *at); /* the same with a blob that begins with them */

#endif
