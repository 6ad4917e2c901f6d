/* A site in doubt (exec/region_site.h): when it is, and when that ends. */
#ifndef MAYFLY_EXEC_SITE_DOUBT_H
#define MAYFLY_EXEC_SITE_DOUBT_H

#include "exec/region_site.h"

/* When it starts: whether it may have sent more than it remembers. */
bool site_in_doubt(const struct region_site *rs);
void site_set_doubt(struct region_site *rs, bool on);
/* Call it when something has arrived that may end the doubt, in the open transaction. */
void site_look_at_doubt(struct region_site *rs);

#endif
