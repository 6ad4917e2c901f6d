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

/* Opens or creates. On failure the result is NULL and `why` tells the user what to do. This is a database
 * with one engine, that of region 1 with all slots, which closes the database with itself. */
struct engine *rocks_engine_open(const struct rocks_options *o, struct buf *why);

/* -- several regions in one database ----------------------------------------------------------------------
 *
 *     struct rocks *db = rocks_open(&options, &why);
 *     struct engine *low  = rocks_region_open(db, &(struct rocks_region){1, 1, 0, 8191}, &why);
 *     struct engine *high = rocks_region_open(db, &(struct rocks_region){2, 1, 8192, 16383}, &why);
 *     ...
 *     low->ops->close(low); high->ops->close(high); rocks_close(db);
 *
 * Each region has an engine, with transactions of its own; engines are used by one thread each, which may be
 * different ones. A key belongs to the region whose slot range it is in: an engine is never asked for others,
 * and its walks, counts, flushes and snapshots keep to its range.
 *
 * The prefix is the first part of every key that is stored. Regions split off from one another share it, so
 * that a split or a merge moves no data. */
struct rocks;

struct rocks_region {
    u64 id;          /* names the rows that are the region's alone: sequence number, note, position */
    u64 prefix;
    u16 first, last; /* slots, inclusive */
};
#define ROCKS_SLOTS 16384

struct rocks *rocks_open(const struct rocks_options *o, struct buf *why);
void rocks_close(struct rocks *db); /* after its engines; NULL is fine */
/* Opens a region that rocks_split has made, or that was open before; or a new one whose slots hold no
 * keys. */
struct engine *rocks_region_open(struct rocks *db, const struct rocks_region *r, struct buf *why);

/* Cuts a region in two: with the commit of the open transaction `e` keeps the slots before child->first, and
 * the child can be opened, at sequence number child_seq. O(slots), whatever the data. Until that commit the
 * region still answers for all of its slots. No snapshot may be under way. The child has the rest of the
 * slots. */
void rocks_split(struct engine *e, const struct rocks_region *child, u64 child_seq);

/* Joins two regions with the same prefix whose ranges meet: `into` gets the slots of `from`, which is
 * closed, in a transaction of its own with sequence number `seq`. Neither may have an open change or a
 * snapshot. Both on this thread. False: nothing was joined, both stay open. */
bool rocks_merge(struct engine *into, struct engine *from, u64 seq);

/* As ops->due, of several engines of one database (and one thread) that each have a transaction open: the
 * index is read once, and each key is offered by the engine of its slot. ops->due of one of them offers its
 * keys only. until_ms: per engine. Returns how many references were looked at. */
u32 rocks_due(struct engine *const *engines, const i64 *until_ms, u32 n, u32 max, key_fn fn, void *arg);

/* Keys in a slot of the engine's range, as the open transaction sees it. O(1 + keys it has touched). */
u64 rocks_slot_count(struct engine *e, u32 db, u16 slot);

/* Walks a database that no server has open and verifies that everything in it agrees: sizes,
 * both families of sorted sets, ranks, deadline rows, counters. Writes what it finds to
 * standard output; returns the exit code: 0 sound, 1 problems, 2 can't be opened. */
int rocks_check(const char *dir);

#endif
