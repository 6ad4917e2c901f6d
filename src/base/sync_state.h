/* Progress of a log's syncs: the AOF's, or the storage engine's. Syncs are numbered; a sync makes durable all
 * bytes written before it began. */
#ifndef MAYFLY_BASE_SYNC_STATE_H
#define MAYFLY_BASE_SYNC_STATE_H

#include "base/types.h"

struct sync_state {
    u64 begun, done; /* the newest sync that began, and the newest that succeeded */
    bool clean;      /* everything appended is written and synced */
    bool buffered;   /* something appended is not written yet */
};

#endif
