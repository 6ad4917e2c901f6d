/* The tables of primitives that a region puts in place of its engine's when it is a site, or keeps the
 * metadata of one. Each is a copy of the engine's in which those that write are replaced, and call it.
 *
 *   logged   what happens to companions is noted in the site's log (exec/site_log.h). Local writes get here
 *            through the site's capture (site/capture.h), whose own table it is.
 *   told     the same, and each change of data is a canonical effect in the journal and reported as a
 *            command's would be: to WATCH, tracking, blocked clients, as a keyspace event. For effects of
 *            other sites, and for expiry.
 *   kept     no primitive deletes a companion implicitly: the log that follows says what happens to it. For
 *            a region that follows a site's history. */
#ifndef MAYFLY_EXEC_SITE_TABLES_H
#define MAYFLY_EXEC_SITE_TABLES_H

#include "engine/engine.h"

struct region_site;

struct site_tables {
    const struct engine_ops *engine; /* the engine's own */
    struct engine_ops logged, told, kept;
};

/* Says what is left to be said at the end of a record: streams that are told as a whole. */
void site_tables_tell_whole(struct region_site *rs);

void site_tables_init(struct site_tables *t, const struct engine_ops *engine);

#endif
