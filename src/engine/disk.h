/* What an engine adds that keeps its data on disk by itself. */
#ifndef MAYFLY_ENGINE_DISK_H
#define MAYFLY_ENGINE_DISK_H

#include "base/buf.h"
#include "base/sync_state.h"

struct engine;

enum disk_sync { DISK_SYNC_NO, DISK_SYNC_EVERYSEC, DISK_SYNC_ALWAYS }; /* appendfsync */

#define DISK_GRACE_MS 60000
#define DISK_PRESSURE_MAX 1000

struct disk_ops {
    /* What CONFIG SET may change. set_grace: how long a key has to be dead (DISK_GRACE_MS at first) before
     * the engine may delete it by itself while it rewrites its files. INT64_MAX: never. 0: at once (the
     * cleaner is off). */
    void (*set_sync)(struct engine *, enum disk_sync);
    void (*set_grace)(struct engine *, i64 grace_ms);

    /* Why writes fail (disk full …), as the text of the error they get; NULL: they don't. Cheap. */
    const char *(*refuses_writes)(struct engine *);

    /* How much of what was written waits to be put in order: 0 up to the soft limits, where writers are to
     * slow down; DISK_PRESSURE_MAX from the hard ones on, where they are to wait. A commit never waits and
     * never fails for it. `measure`: now, which takes about 20 us; else as of some megabytes ago, which is
     * cheap. */
    u32 (*write_pressure)(struct engine *, bool measure);
    u64 (*bytes_written)(const struct engine *); /* since it was opened */
    struct sync_state (*sync_state)(const struct engine *); /* of what was committed */

    void (*cron)(struct engine *); /* ten times a second or so: free space, background errors */
    void (*info)(struct engine *, struct buf *out); /* lines for INFO, "name:value\r\n" */
};

#endif
