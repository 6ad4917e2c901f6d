/* The ordered key-value store under the engine: column families, point reads, iterators and write batches.
 * The only files that call librocksdb are in this folder.
 *
 * `struct store` is a database: families, options, caches, log, background threads. Any number of sessions
 * are open on it, each with a batch, iterators and a failed flag of its own. A session is used by the thread
 * that opened it; sessions of different threads need no lock between them. The database is opened before its
 * first session and closed after its last.
 *
 * Reads don't see the batch before store_write; the engine keeps a transaction's
 * changes in its row cache and deltas (rk.h, delta.h).
 *
 * A read that fails (I/O error, corruption) logs why, sets *failed (engine.failed)
 * and returns "absent". */
#ifndef MAYFLY_ENGINE_ROCKS_STORE_STORE_H
#define MAYFLY_ENGINE_ROCKS_STORE_STORE_H

#include "engine/rocks/rocks.h"

enum family { FAM_META, FAM_DATA, FAM_SCORE, FAM_RANK, FAM_FIELD, FAM_STREAM, FAM_COMPANION, FAM_DEADLINE,
              FAM_RAFT_LOG, FAM_INFO, FAM_COUNT };

struct store;
struct store_session;

/* The sizes in use. Those that the options leave at 0 depend on the memory of the machine. */
struct sizes {
    u64 cache, rows, buffers, memtable; /* bytes; buffers: of all memtables */
    u64 readahead;                      /* of a compaction, for each file it reads */
    u64 budget;                         /* memory the engine may use: INFO's memory_budget */
    u32 threads;
    int files; /* open files */
};
struct sizes store_sizes(const struct rocks_options *o);

/* read_only: for the checker; nothing is created. */
struct store *store_open(const struct rocks_options *o, bool read_only, struct buf *why);
void store_close(struct store *s); /* syncs the log; NULL is fine */

/* *failed is set when a read fails. */
struct store_session *store_session_open(struct store *s, bool *failed);
/* A session for raft_log only: it does not take part in store_set_dead, and its writes don't wait for a sync.
 * Threads may share it under a lock. */
struct store_session *store_log_session_open(struct store *s, bool *failed);
void store_session_close(struct store_session *s); /* NULL is fine */
u64 store_blob_bytes(struct store *s);             /* of strings in blob files that are live */
struct store *store_of(const struct store_session *s);

/* -- reading ---------------------------------------------------------------- */

/* Call it when rows that must exist are missing although RocksDB reported no error: logs it and sets *failed,
 * like a failed read. Where ranges were deleted, iterators before 8.5 may end early on an unreadable file
 * without an error (facebook/rocksdb#11782). */
void store_damaged(struct store_session *s, const char *what);

/* A value in RocksDB's memory, until it is released. */
struct store_value {
    bytes b;
    void *pin; /* NULL: absent */
};
/* False: absent. */
bool store_get(struct store_session *s, enum family f, bytes key, struct store_value *out);
void store_value_release(struct store_value *v);

/* One batched read of n keys; each value is to be released (absent ones may be). */
void store_multi_get(struct store_session *s, enum family f, u32 n, const bytes *keys,
                     struct store_value *out);

/* Iterators see the state as of the last store_write, and are valid until the next
 * one at the latest: store_write and store_end_tick close all that are still open.
 * They are pooled, so opening one is cheap. Keys and values are valid until the
 * iterator moves. Bounds are copied. */
struct store_iter;
enum {
    STORE_ONCE = 1, /* data that will not be read again soon: don't fill the block cache */
    STORE_NEAR = 2, /* becomes invalid instead of skipping more than STORE_NEAR_SKIPS tombstones */
    STORE_KEPT = 4, /* is not closed automatically; only for views, whose state does not change */
};
#define STORE_ITER_KINDS 4 /* by STORE_ONCE and STORE_NEAR */
#define STORE_NEAR_SKIPS 256
struct store_iter *store_iter(struct store_session *s, enum family f, bytes lower, bytes upper, u32 flags);
void store_iter_done(struct store_iter *it);
void store_seek(struct store_iter *it, bytes key);      /* the first key >= this one */
void store_seek_back(struct store_iter *it, bytes key); /* the last key <= this one */
void store_seek_first(struct store_iter *it);
void store_seek_last(struct store_iter *it);
void store_next(struct store_iter *it);
void store_prev(struct store_iter *it);
bool store_valid(const struct store_iter *it); /* false at the end, and after a failure */
/* Deleted and overwritten rows that iterators have skipped so far. */
u64 store_tombstones_skipped(const struct store_session *s);
bytes store_key(const struct store_iter *it);
bytes store_iter_value(const struct store_iter *it);

/* -- writing ------------------------------------------------------------------ */

/* Adds to the batch. A key or value may be given in two parts, which are joined. */
void store_put(struct store_session *s, enum family f, bytes key, bytes value);
void store_put2(struct store_session *s, enum family f, bytes key_a, bytes key_b, bytes value);
void store_put_value2(struct store_session *s, enum family f, bytes key, bytes value_a, bytes value_b);
void store_delete(struct store_session *s, enum family f, bytes key);
void store_delete2(struct store_session *s, enum family f, bytes key_a, bytes key_b);
void store_delete_range(struct store_session *s, enum family f, bytes from, bytes to); /* [from, to) */

bool store_batch_empty(const struct store_session *s);
size_t store_batch_size(const struct store_session *s); /* bytes */

/* Applies the batch, all or nothing, and empties it; durable as the sync mode says.
 * On failure nothing was applied and the reason was logged. */
NODISCARD bool store_write(struct store_session *s);
/* The same for several sessions of this thread, as one write if that pays, with the options of the first. On
 * failure it is unknown which of them were applied. */
#define STORE_TOGETHER 64
NODISCARD bool store_write_all(struct store_session *const *s, u32 n); /* STORE_TOGETHER at most */
/* Makes all earlier writes durable, of any session and in any sync mode. Other sessions may write meanwhile:
 * unlike a synced write, this does not make them wait. On failure the reason was logged, and it is unknown
 * how much is durable. */
NODISCARD bool store_sync(struct store_session *s);
void store_discard(struct store_session *s);  /* empties the batch */
void store_end_tick(struct store_session *s); /* for a tick without a write: closes idle iterators */

/* About how many bytes a range takes in the files of a family: reads at most a block of the index of each
 * file. Memtables and blob files are not counted. */
u64 store_range_bytes(struct store_session *s, enum family f, bytes from, bytes to); /* [from, to) */

/* Reports rows that a dropped collection leaves behind in a family, under a range tombstone or for the
 * compaction filters. A family with many orphans or deleted rows is compacted soon. */
void store_orphaned(struct store *s, enum family f, u64 rows);

/* Drops whole files inside the range now, instead of by compaction. The range must have been deleted and
 * written before, and nothing put there since. */
void store_drop_files(struct store_session *s, enum family f, bytes from, bytes to);

bool store_drops_files(const struct store *s); /* any range's files are yet to go: puts there would wait */

/* Has a range full of deleted rows compacted soon, in the background. */
void store_compact_soon(struct store_session *s, enum family f, bytes from, bytes to);

/* -- views ----------------------------------------------------------------------- */

/* A read-only session that shows the database as it is now, whatever is written later. There may be several,
 * also on different threads. While it is open, compaction filters keep the rows of all collections up to
 * last_version, and keys that are not dead yet by store_set_dead. NULL: files are being dropped just now; try
 * again later. */
struct store_session *store_view(struct store *s, u64 last_version, bool *failed);
void store_view_close(struct store_session *view); /* NULL is fine */

/* -- running ------------------------------------------------------------------- */

void store_set_sync(struct store *s, enum disk_sync sync);
/* While relaxed, the session's writes don't wait for a sync. The WAL is sequential: the next synced write, or
 * the syncer, makes them durable, too. */
void store_relax(struct store_session *s, bool relaxed);
const char *store_refuses_writes(struct store_session *s); /* see disk_ops */
u32 store_pressure(struct store *s, bool measure); /* likewise */
u64 store_written(const struct store *s);          /* bytes of all batches so far … */
u64 store_session_written(const struct store_session *s); /* … and of this session's */
struct sync_state store_sync_state(const struct store *s);
void store_cron(struct store *s); /* call it once per period, on any thread; and for each session: */
void store_drop_idle(struct store_session *s); /* closes idle iterators, which pin files */
void store_rest(struct store_session *s); /* … and gives back the memory of a batch that is empty */
/* Levels, sizes, stalls, cache, compactions, orphans. */
void store_info(struct store_session *s, struct buf *out);

/* Publishes to the compaction filters which keys are dead: they may drop the value of a key whose deadline is
 * <= dead_ms of all sessions. 0: of none. */
void store_set_dead(struct store_session *s, i64 dead_ms);

#endif
