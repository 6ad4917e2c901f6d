/* The rocks engine: the typed primitives on RocksDB, for data larger than memory.
 * Deleting anything is O(1), due keys are found in O(due), and one write batch
 * per tick carries everything the tick's commands did, or nothing of it. */
#ifndef MAYFLY_ENGINE_ROCKS_ROCKS_H
#define MAYFLY_ENGINE_ROCKS_ROCKS_H

#include "base/log.h"
#include "base/sync_state.h"
#include "engine/engine.h"

enum rocks_sync { ROCKS_SYNC_NO, ROCKS_SYNC_EVERYSEC, ROCKS_SYNC_ALWAYS }; /* appendfsync */
enum rocks_compression { ROCKS_PLAIN, ROCKS_LZ4, ROCKS_ZSTD, ROCKS_SNAPPY };

/* Sizes in bytes. 0 means: chosen by the memory there is (machine_memory). */
struct rocks_options {
    const char *dir; /* RocksDB's own folder; made if it is missing */
    const struct log *log; /* may be NULL; RocksDB's threads log through it too */
    u32 databases;
    u64 seed; /* keys the hash tables */
    u64 block_cache, row_cache, write_buffer;
    u64 rate_limit; /* bytes a second of background writes; 0: no limit */
    u64 blob_size;  /* strings from this size on live in blob files; 0: none do */
    u32 background_threads; /* 0: one per core */
    enum rocks_compression compression;
    enum rocks_sync sync;
    bool load_damaged; /* open although the logs are damaged, without what they hold from there on */
};

/* Whether the folder holds a database, or what is left of one. */
bool rocks_found(const char *dir);

/* Opens or creates. On failure the result is NULL and `why` tells the user what to do. */
struct engine *rocks_engine_open(const struct rocks_options *o, struct buf *why);

/* What CONFIG SET may change. */
void rocks_set_sync(struct engine *e, enum rocks_sync sync);

#define ROCKS_GRACE_MS 60000

/* How far back from the region's clock (ROCKS_GRACE_MS unless told otherwise) a compaction may take dead
 * keys by itself. INT64_MAX: never (a replica). 0: at once (the cleaner is off). */
void rocks_set_compaction_grace(struct engine *e, i64 grace_ms);

/* Writes fail because of an error in the background (disk full …): the text of the error they get, or NULL
 * when all is well. Cheap. */
const char *rocks_refuses_writes(struct engine *e);

/* How much of what was written waits for flushes and compactions: 0 up to the soft limits, where writers are
 * to slow down; ROCKS_PRESSURE_MAX from the hard ones on, where they are to wait. A commit never waits and never
 * fails for it. `measure`: now, which takes about 20 us; else as of some megabytes ago, which is cheap. */
#define ROCKS_PRESSURE_MAX 1000
u32 rocks_write_pressure(struct engine *e, bool measure);
u64 rocks_bytes_written(const struct engine *e); /* since it was opened */
struct sync_state rocks_sync_state(const struct engine *e); /* of what was committed */

/* Ten times a second or so, from the loop: looks after free space and background errors. */
void rocks_cron(struct engine *e);

/* The lines of `INFO rocksdb`, "name:value\r\n". */
void rocks_info(struct engine *e, struct buf *out);

/* Walks a database that no server has open and verifies that everything in it agrees: sizes,
 * both families of sorted sets, ranks, deadline rows, counters. Writes what it finds to
 * standard output; returns the exit code: 0 sound, 1 problems, 2 can't be opened. */
int rocks_check(const char *dir);

#endif
