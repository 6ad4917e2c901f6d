/* How far the syncs of a log have come: the AOF's, or the storage's own. Syncs are numbered; one makes
 * durable what was written before it began. */
#ifndef MAYFLY_BASE_SYNC_STATE_H
#define MAYFLY_BASE_SYNC_STATE_H

#include "base/types.h"

struct sync_state {
    u64 begun, done; /* the newest sync that was begun, and the newest that succeeded */
    bool clean;      /* everything that was appended is written and synced */
    bool buffered;   /* something that was appended is not even written */
};

#endif
