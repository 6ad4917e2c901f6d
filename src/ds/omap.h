/* An ordered map: byte strings to byte strings, by name in memcmp order (a shorter name before its
 * extensions). Rows are packed into leaves of about 2 KB, and within a leaf only what differs from the
 * leaf's model row is stored, so that names which count up and values which begin alike cost little.
 * Appending at the end is O(1) amortized, finding O(log n) plus a walk inside one leaf, erasing a range
 * O(leaves).
 *
 * A row handed out is in pieces, which live until the map is next modified. */
#ifndef MAYFLY_DS_OMAP_H
#define MAYFLY_DS_OMAP_H

#include "base/bytes.h"
#include "ds/ctree.h"

struct omap {
    struct ctree tree; /* each leaf counts as one entry */
    size_t blob_memory; /* allocated by all leaves' blobs */
};

#define OMAP_MASKED_MAX 64 /* bytes of a name of which single bytes may be stored */

/* Name and value as they are stored: two pieces each, one after the other. Not to be copied: a piece may be
 * `text`. */
struct omap_row {
    bytes name[2], value[2];
    char text[OMAP_MASKED_MAX];
};

static inline size_t omap_name_size(const struct omap_row *r) { return r->name[0].n + r->name[1].n; }
static inline size_t omap_value_size(const struct omap_row *r) { return r->value[0].n + r->value[1].n; }

/* Both write the pieces one after the other and return where they end. */
char *omap_join_name(const struct omap_row *r, char *to);
char *omap_join_value(const struct omap_row *r, char *to);

void omap_init(struct omap *o);
void omap_copy(struct omap *to, const struct omap *from); /* `to` is not initialized */
void omap_release(struct omap *o);                        /* frees everything, leaves an empty map */
bool omap_release_some(struct omap *o, u32 max_leaves);   /* from the front; true when the map is empty */

static inline u64 omap_leaves(const struct omap *o) { return o->tree.leaves; }
size_t omap_memory(const struct omap *o); /* bytes of everything below struct omap */

void omap_put(struct omap *o, bytes name, bytes value); /* adds or replaces; both may point into the map */
bool omap_get(const struct omap *o, bytes name, struct omap_row *row);
bool omap_del(struct omap *o, bytes name);
u64 omap_erase(struct omap *o, bytes from, bytes to); /* from <= name < to; how many */

/* A place of a walk, good until the map is modified. */
struct omap_pos {
    struct omap_leaf *leaf;
    u32 at;
};

/* The first row >= name, or, backward, the last row <= name. False: there is none. */
bool omap_seek(const struct omap *o, bytes name, bool backward, struct omap_pos *pos);
bool omap_step(struct omap_pos *pos, bool backward); /* false, and pos where it was, at the end */
void omap_read(const struct omap_pos *pos, struct omap_row *row);

/* For tests: CHECKs order, limits, memory and that small neighbours were merged. O(n). */
void omap_check(const struct omap *o);

#endif
