/* The tables of primitives that replace the engine's when a region is a site, or keeps the metadata of one.
 * Each is a copy of the engine's table in which the writing primitives are wrapped.
 *
 *   logged   records changes of companions in the site's log (exec/site_log.h). Local writes use it through
 *            the site's capture (site/capture.h), for which it is the engine's own table.
 *   told     the same; also journals each change of data as a canonical effect, and reports it as a command
 *            would: to WATCH, tracking, blocked clients, and as a keyspace event. For effects of other sites,
 *            and for expiry.
 *   kept     no primitive deletes a companion implicitly, because a log that follows says what happens to it.
 *            For a region that follows a site's history. */
#ifndef MAYFLY_EXEC_SITE_TABLES_H
#define MAYFLY_EXEC_SITE_TABLES_H

#include "engine/engine.h"

struct region_site;

struct site_tables {
    const struct engine_ops *engine; /* the engine's own */
    struct engine_ops logged, told, kept;
};

/* Call it at the end of a record: journals streams that are journalled as a whole. */
void site_tables_tell_whole(struct region_site *rs);

void site_tables_init(struct site_tables *t, const struct engine_ops *engine);

#endif
