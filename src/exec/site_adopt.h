/* Keys that were here before their server became a site. */
#ifndef MAYFLY_EXEC_SITE_ADOPT_H
#define MAYFLY_EXEC_SITE_ADOPT_H

#include "exec/region_site.h"

/* Makes all keys without metadata the first effect of this site, which others get by full sync. It is a pass
 * over the data, once, with a transaction per some hundred keys; if it is interrupted, the next start
 * continues. */
bool site_adopt_all(struct region_site *rs, i64 now_ms);

#endif
