/* A site's own state as bytes: stored with the data, in the same transaction.
 *
 * `trail`: includes the exact steps at which effects arrived (site.h). This takes some bytes for each effect
 * since the last collection, so it is for an orderly shutdown. Without it older garbage waits until
 * all of it can be collected at once. */
#ifndef MAYFLY_SITE_STATE_H
#define MAYFLY_SITE_STATE_H

#include "site/site.h"

void site_put_state(const struct site *s, bool trail, struct buf *to);
/* Into a site that was just initialised. False: it is damaged, or that of another gid. Effects that
 * waited for others are not part of it: their senders send them again. */
bool site_get_state(struct site *s, bytes state);

#endif
