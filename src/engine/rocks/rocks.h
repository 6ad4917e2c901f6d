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
    u64 id;          /* names the region's own rows: sequence number, replication position, drain position */
    u64 prefix;
    u16 first, last; /* slots, inclusive */
};
#define ROCKS_SLOTS 16384

struct rocks *rocks_open(const struct rocks_options *o, struct buf *why);
void rocks_close(struct rocks *db); /* after its engines; NULL is fine */
/* Opens a region that rocks_split has made, or that was open before; or a new one whose slots hold no
 * keys. */
struct engine *rocks_region_open(struct rocks *db, const struct rocks_region *r, struct buf *why);

/* The regions that are stored, in the order of their ids, until `each` returns false. Not in the lone form of
 * older versions: a database that is new, or has region 1 with all slots, may have none. */
void rocks_regions_each(struct rocks *db, bool (*each)(void *arg, const struct rocks_region *r), void *arg);

struct rocks_region rocks_region_of(struct engine *e); /* as of the last commit */

/* Splits a region when the open transaction commits: `e` keeps the slots before child->first, the child gets
 * the rest and can be opened, at sequence number child_seq. O(slots), independent of the data. Until the
 * commit the region still serves all of its slots, and a snapshot that is under way keeps them. */
void rocks_split(struct engine *e, const struct rocks_region *child, u64 child_seq);

/* Whether a full sync can be loaded beside the data: if the region had all slots when it was opened. */
bool rocks_stages(struct engine *e);

/* Empties the region and gives it other slots, which hold no keys, when the open transaction commits. No
 * snapshot may be under way. */
void rocks_region_move(struct engine *e, u16 first, u16 last);

/* Prepares a merge: brings the positions of two regions in the deadline index together, in transactions of
 * their own. Neither may have uncommitted changes. False: the storage failed. */
NODISCARD bool rocks_align(struct engine *a, struct engine *b);
/* Merges two regions that have the same prefix and adjacent slots and were aligned just before: `into` gets
 * the slots of `from`, which is closed. This is one transaction, with sequence number `seq`, that of `into`:
 * rows of metadata that were put since are part of it. Neither may have other uncommitted changes or a
 * snapshot, and both must belong to this thread. False: nothing was merged, and both stay open. */
NODISCARD bool rocks_merge(struct engine *into, struct engine *from, u64 seq);

/* Removes a region from the database, with its keys and all that is stored about it, in the open
 * transaction, which this commits. All its engine can do after that is to be closed. False: the storage
 * failed, and nothing was removed. */
NODISCARD bool rocks_region_drop(struct engine *e);

/* ops->due for several engines of one database (on one thread), each with an open transaction: reads the
 * index once and offers each key through the engine of its slot, while ops->due of one engine offers only its
 * own keys. until_ms: per engine. Returns how many rows were visited. */
u32 rocks_due(struct engine *const *engines, const i64 *until_ms, u32 n, u32 max, key_fn fn, void *arg);

/* Keys in a slot of the engine's range, as the open transaction sees it. O(1 + keys it has touched). */
u64 rocks_slot_count(struct engine *e, u32 db, u16 slot);
/* About how many bytes these slots of the region take on disk. Reads no data. Strings in blob files are
 * shared out by keys, of which all regions have `keys`; what is in memtables so far is not counted. */
u64 rocks_slots_bytes(struct engine *e, u16 first, u16 last, u64 keys);
/* Where a split halves the region: the first slot of the upper part. 0: it has one slot, or nothing on
 * disk. */
u16 rocks_half(struct engine *e, u64 keys);
u64 rocks_written(struct engine *e); /* bytes that the region has committed since it was opened … */
u64 rocks_written_all(const struct rocks *db); /* … and all of the database, Raft logs included */
/* Files of deleted ranges are yet to be removed: rows put into such a range wait for that. */
bool rocks_drops_files(const struct rocks *db);
/* Calls fn for the keys of a slot, as the open transaction sees them, until it returns false. */
void rocks_slot_keys(struct engine *e, u32 db, u16 slot, bool (*fn)(void *arg, struct key_ref *ref),
                     void *arg);

/* -- Raft logs of regions ----------------------------------------------------------------------------------
 *
 * The entries of many Raft logs in the same database, with the hard state and the compaction point of each.
 * This stores rows; cluster/cluster_log.c has the rules of a log.
 *
 * Writing. A batch collects changes of any regions, in order. One thread may fill it and another write it, if
 * a lock orders that. rocks_log_write applies it atomically: reads see all of it from then on. With `sync` it
 * is durable on return, and so is everything written before by any engine of the database, because they share
 * one WAL; commits of engines do not wait for it meanwhile. Without, it becomes durable with the next sync.
 * After a failure the stored state is unknown.
 *
 * Reading. By the thread that opened the rocks_log, while another may write. */
struct rocks_log;
struct rocks_log_batch;

struct rocks_log_entry {
    u64 index, term;
    u8 type;
    bytes data;
};

struct rocks_log_state {
    u64 term, vote, commit; /* the hard state */
    u64 point_index, point_term;
    u64 last_index; /* point_index if there are no entries */
};

struct rocks_log_batch *rocks_log_batch_open(struct rocks *db);
void rocks_log_batch_close(struct rocks_log_batch *b); /* NULL is fine; what was not written is lost */
void rocks_log_put(struct rocks_log_batch *b, u64 region, const struct rocks_log_entry *e); /* copies */
void rocks_log_delete(struct rocks_log_batch *b, u64 region, u64 first, u64 last); /* entries; inclusive */
void rocks_log_put_hard_state(struct rocks_log_batch *b, u64 region, u64 term, u64 vote, u64 commit);
void rocks_log_put_point(struct rocks_log_batch *b, u64 region, u64 index, u64 term);
void rocks_log_delete_region(struct rocks_log_batch *b, u64 region); /* all there is of it */
NODISCARD bool rocks_log_write(struct rocks_log_batch *b, bool sync); /* and empties it */

struct rocks_log *rocks_log_open(struct rocks *db);
void rocks_log_close(struct rocks_log *l); /* NULL is fine */
/* False: it can't be read, or is damaged; the reason was logged. */
NODISCARD bool rocks_log_load(struct rocks_log *l, u64 region, struct rocks_log_state *out);
/* Hands out the entries [low, high) in order, until `each` returns false. False: one is missing or can't be
 * read; logged. Data lives during the call. */
NODISCARD bool rocks_log_read(struct rocks_log *l, u64 region, u64 low, u64 high,
                              bool (*each)(void *arg, const struct rocks_log_entry *e), void *arg);
u64 rocks_log_term(struct rocks_log *l, u64 region, u64 index); /* of an entry; 0: it is not there */

/* Verifies a database that no server has open: sizes of collections, both families of sorted sets, ranks,
 * deadline rows, counters. Prints what it finds; returns the exit code: 0 sound, 1 problems, 2 can't be
 * opened. */
int rocks_check(const char *dir);

#endif
