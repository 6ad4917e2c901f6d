/* An ordered map from byte strings (names) to byte strings (values), in memcmp order, a prefix before its
 * extensions. It holds the rows of a stream.
 *
 * Rows are packed into leaves of up to `leaf_bytes`: larger ones take less memory, smaller ones less time. A
 * leaf stores only how a row differs from the leaf's model row,
 * so that increasing names and values with a common prefix take little space. Appending at the end is O(1)
 * amortized, finding O(log n) plus a walk inside one leaf, erasing a range O(leaves). A map whose rows fit
 * into one leaf is that leaf's blob, and has no tree.
 *
 * The map owns its rows. A row read from it is a pair of slices per string, valid until the map is
 * modified. */
#ifndef MAYFLY_DS_OMAP_H
#define MAYFLY_DS_OMAP_H

#include "base/bytes.h"
#include "ds/packed.h"

struct omap {
    packed *blob;           /* of the only leaf; NULL: the map is empty, or … */
    struct omap_tree *tree; /* … has these leaves, at least two */
    u32 leaf_bytes;         /* maximum size of a leaf with more than one row */
};

#define OMAP_MASKED_MAX 64 /* length up to which a name is stored as a mask and the differing bytes */

/* Name and value as stored: each is the concatenation of two slices. Do not copy the struct: a slice may
 * point into `text`. */
struct omap_row {
    bytes name[2], value[2];
    char text[OMAP_MASKED_MAX];
};

static inline size_t omap_name_size(const struct omap_row *r) { return r->name[0].n + r->name[1].n; }
static inline size_t omap_value_size(const struct omap_row *r) { return r->value[0].n + r->value[1].n; }

/* Both write the two slices to `to` and return the end. */
char *omap_join_name(const struct omap_row *r, char *to);
char *omap_join_value(const struct omap_row *r, char *to);

#define OMAP_LEAF 2048 /* for what is mostly appended and read in order */
void omap_init(struct omap *o, u32 leaf_bytes);
void omap_copy(struct omap *to, const struct omap *from); /* `to` is not initialized */
void omap_release(struct omap *o);                        /* frees all rows, leaves an empty map */
bool omap_release_some(struct omap *o, u32 max_leaves);   /* from the front; true when the map is empty */

u64 omap_leaves(const struct omap *o);
size_t omap_memory(const struct omap *o); /* bytes of everything below struct omap */

void omap_put(struct omap *o, bytes name, bytes value); /* adds or replaces; both may point into the map */
bool omap_get(const struct omap *o, bytes name, struct omap_row *row);
bool omap_del(struct omap *o, bytes name);
u64 omap_erase(struct omap *o, bytes from, bytes to); /* from <= name < to; returns the number erased */

/* A cursor, valid until the map is modified. */
struct omap_pos {
    struct omap_leaf *leaf; /* NULL: the map has no tree */
    const packed *blob;     /* of the leaf */
    u32 at;
};

/* Seeks the first row >= name, or, backward, the last row <= name. False: none. */
bool omap_seek(const struct omap *o, bytes name, bool backward, struct omap_pos *pos);
bool omap_step(struct omap_pos *pos, bool backward); /* false at the end; pos is then unchanged */
void omap_read(const struct omap_pos *pos, struct omap_row *row);

/* For tests: CHECKs order, limits, memory and that small neighbours were merged. O(n). */
void omap_check(const struct omap *o);

#endif
