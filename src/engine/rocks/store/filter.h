/* What compactions may drop, beyond what RocksDB knows to be deleted:
 *
 *   redis_metadata        values of keys that are dead by the region's clock: a stub with type and deadline
 *                         is left (codec_meta_stub), until reclaim has counted the key out and reported its
 *                         expiry
 *   data, redis_zset_score, zset_rank, field_deadline, redis_stream, companion
 *                         orphans: rows whose collection is gone or has another version
 *   deadline              rows of former staging databases: such an index has counts (state.h)
 *                         from its first key on until it is emptied, and is never reused. A
 *                         replica, which drains nothing, would collect them with each full sync
 *
 * Versions are never reused, so an orphan stays one. A row's metadata is written in the same batch or
 * before, so a filter that sees a row also sees its metadata.
 *
 * A filter decides by the current state of RocksDB, which a power cut may partly undo. So each compaction
 * that dropped something syncs the WAL before its result is used: what is deleted stays deleted.
 *
 * RocksDB ignores snapshots when it applies filters. So a view (store_view) sets what they have to keep:
 * dead_ms no longer grows, and orphans up to a version, which only the view can still read, stay. What
 * compactions dropped before that was an orphan already. */
#ifndef MAYFLY_ENGINE_ROCKS_STORE_FILTER_H
#define MAYFLY_ENGINE_ROCKS_STORE_FILTER_H

#include <rocksdb/c.h>
#include <stdatomic.h>

#include "engine/rocks/store/store.h"

/* Shared by the loop and RocksDB's threads; zeroed to start with. Outlives the database. */
struct filters {
    _Atomic(rocksdb_t *) db; /* NULL: not open yet, or closing: everything is kept */
    rocksdb_column_family_handle_t *meta, *info, *companion; /* set before db */
    _Atomic i64 dead_ms;
    _Atomic u64 kept_version; /* orphans up to this one stay; 0: none do */
    /* A write has failed: the WAL must not be synced before one succeeds. (RocksDB's assertions, which
     * Debian's build enables, forbid any call on a file that has seen an error.) */
    _Atomic bool log_broken;
    /* FAM_META: values of dead keys; FAM_DEADLINE: its own; others: orphans */
    _Atomic u64 dropped[FAM_COUNT];
};

/* Sets the family's filter, if it has one, in its options. */
void filter_attach(struct filters *fs, enum family f, rocksdb_options_t *options);

#endif
