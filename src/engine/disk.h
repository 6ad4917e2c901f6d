/* Operations of an engine that keeps its data on disk itself. */
#ifndef MAYFLY_ENGINE_DISK_H
#define MAYFLY_ENGINE_DISK_H

#include "base/buf.h"
#include "base/sync_state.h"

struct engine;

enum disk_sync { DISK_SYNC_NO, DISK_SYNC_EVERYSEC, DISK_SYNC_ALWAYS }; /* appendfsync */

#define DISK_GRACE_MS 60000
#define DISK_PRESSURE_MAX 1000
#define DISK_TOGETHER 64

struct disk_ops {
    /* What CONFIG SET may change. set_grace: how long a key has to be dead (default DISK_GRACE_MS) before
     * the engine may delete it by itself while it rewrites its files. INT64_MAX: never. 0: at once (the
     * cleaner is off). */
    void (*set_sync)(struct engine *, enum disk_sync);
    void (*set_grace)(struct engine *, i64 grace_ms);

    /* The error text of writes that are refused now (disk full …); NULL: they are not. Cheap. */
    const char *(*refuses_writes)(struct engine *);

    /* The compaction backlog: 0 up to the soft limits, from which writers should slow down;
     * DISK_PRESSURE_MAX from the hard limits on, where they should wait. A commit neither waits nor fails
     * because of it. `measure`: as of now, which takes about 20 us; otherwise as of some megabytes ago, which
     * is cheap. */
    u32 (*write_pressure)(struct engine *, bool measure);
    u64 (*bytes_written)(const struct engine *); /* since it was opened */
    struct sync_state (*sync_state)(const struct engine *); /* of what was committed */

    /* Commits the open transactions of several engines of one database, DISK_TOGETHER at most, each with its
     * sequence number: in one write if that pays. False: the storage failed, and it is not known which of
     * them were kept. */
    bool (*commit_all)(struct engine *const *e, const u64 *seq, u32 n);

    void (*cron)(struct engine *); /* ten times a second or so: free space, background errors */
    /* Now and then, but not while a command runs: gives memory to the caches of other engines of the
     * database, if they need it more. Bounded. */
    void (*share_memory)(struct engine *);
    /* Between transactions, if no other is expected soon: gives back memory that only they need, and closes
     * idle iterators. */
    void (*rest)(struct engine *);
    void (*info)(struct engine *, struct buf *out); /* lines for INFO, "name:value\r\n" */
};

#endif
