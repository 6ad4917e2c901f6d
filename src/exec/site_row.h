/* The state of a site, stored as one row of the engine, by a region that is the site or keeps its metadata:
 *
 *     version · flags · boot (8 bytes) · stamp (8 bytes) · state (site/state.h)
 *
 * boot: the machine's, when it was stored. stamp: of the effect that all keys without metadata are, while
 * they become a site's. The same bytes are in site's logs (exec/site_log.h). */
#ifndef MAYFLY_EXEC_SITE_ROW_H
#define MAYFLY_EXEC_SITE_ROW_H

#include "exec/region_site.h"

enum {
    ROW_SYNCED = 1,   /* commits are */
    ROW_BECOMING = 2,
    ROW_FOLLOWS = 4,  /* of a replica, which has to take the site's place before it can be the site */
    ROW_FORGETS = 8,  /* the metadata is being dropped: some keys may have none any more */
};

struct site_row {
    u8 flags;
    u64 boot, stamp;
    bytes state;
};

void site_row_put(const struct region_site *rs, u8 flags, u64 stamp, bool trail, struct buf *to);
bool site_row_get(bytes raw, struct site_row *row); /* false: malformed */
static inline u8 site_row_gid(const struct site_row *row) { return (u8)row->state.p[1]; }

void site_row_write(struct region_site *rs, u8 flags, u64 stamp);
void site_row_read(struct engine *e, struct buf *to); /* nothing: there is none */
void site_row_delete(struct engine *e);

#endif
