/* Keys that were here before their server became a site. */
#ifndef MAYFLY_EXEC_SITE_ADOPT_H
#define MAYFLY_EXEC_SITE_ADOPT_H

#include "exec/region_site.h"

/* All keys without metadata become the first effect of this site: others get it by full sync. It takes a
 * pass over the data, once, a transaction for some hundred keys; a start that is cut off continues. */
bool site_adopt_all(struct region_site *rs, i64 now_ms);

#endif
