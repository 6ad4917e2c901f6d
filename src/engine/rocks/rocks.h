/* The rocks engine: the typed primitives on RocksDB, for data larger than memory.
 * Deleting anything is O(1), due keys are found in O(due), and one write batch
 * per tick carries everything the tick's commands did, or nothing of it. */
#ifndef MAYFLY_ENGINE_ROCKS_ROCKS_H
#define MAYFLY_ENGINE_ROCKS_ROCKS_H

#include "base/log.h"
#include "engine/engine.h"

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
    enum disk_sync sync;
    bool load_damaged; /* open although the logs are damaged, without what they hold from there on */
};

/* Whether the folder holds a database, or what is left of one. */
bool rocks_found(const char *dir);

/* Opens or creates. On failure the result is NULL and `why` tells the user what to do. */
struct engine *rocks_engine_open(const struct rocks_options *o, struct buf *why);

/* Walks a database that no server has open and verifies that everything in it agrees: sizes,
 * both families of sorted sets, ranks, deadline rows, counters. Writes what it finds to
 * standard output; returns the exit code: 0 sound, 1 problems, 2 can't be opened. */
int rocks_check(const char *dir);

#endif
