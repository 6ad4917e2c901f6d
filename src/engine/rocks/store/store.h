/* The ordered key-value store under the engine: column families, point reads, iterators and write batches.
 * The only files that call librocksdb are in this folder.
 *
 * `struct store` is a database: families, options, caches, log, background threads. Any number of sessions
 * are open on it, each with a batch, iterators and a failed flag of its own. A session is used by the thread
 * that opened it; sessions of different threads need no lock between them. The database is opened before its
 * first session and closed after its last.
 *
 * Nothing written to the batch is seen by reads before store_write: what a
 * transaction has changed is the engine's to remember (row.h, delta.h).
 *
 * A read that fails (I/O error, corruption) logs why, sets *failed (engine.failed)
 * and answers "absent". */
#ifndef MAYFLY_ENGINE_ROCKS_STORE_STORE_H
#define MAYFLY_ENGINE_ROCKS_STORE_STORE_H

#include "engine/rocks/rocks.h"

enum family { FAM_META, FAM_DATA, FAM_SCORE, FAM_RANK, FAM_FIELD, FAM_STREAM, FAM_COMPANION, FAM_DEADLINE,
              FAM_RAFT_LOG, FAM_INFO, FAM_COUNT };

struct store;
struct store_session;

/* The sizes in force: what the options leave open is chosen by the memory that there is. */
struct sizes {
    u64 cache, rows, buffers, memtable; /* bytes; buffers: of all memtables */
    u64 readahead;                      /* of a compaction, for each file it reads */
    u64 budget;                         /* what the engine may take in all: INFO's memory_budget */
    u32 threads;
    int files; /* open ones */
};
struct sizes store_sizes(const struct rocks_options *o);

/* read_only: for the checker; nothing is created. */
struct store *store_open(const struct rocks_options *o, bool read_only, struct buf *why);
void store_close(struct store *s); /* syncs the log; NULL is fine */

/* *failed is set when a read fails. */
struct store_session *store_session_open(struct store *s, bool *failed);
/* One that reads and writes raft_log only: it has no say in what is dead (store_set_dead), and its writes
 * don't wait for a sync. Threads may hand it to each other, if a lock orders what they do with it. */
struct store_session *store_log_session_open(struct store *s, bool *failed);
void store_session_close(struct store_session *s); /* NULL is fine */
struct store *store_of(const struct store_session *s);

/* -- reading ---------------------------------------------------------------- */

/* Rows that must be there are not, and RocksDB has not complained: logged, and *failed set, as by a read that
 * fails. Its iterators may end early on a file they can't read, without a word, where ranges were deleted
 * (facebook/rocksdb#11782; before 8.5). */
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

/* Iterators see the state as of the last store_write, and live until the next one
 * at the latest: store_write and store_end_tick take back all that are still out.
 * They are pooled, so that taking one is cheap. Keys and values live until the
 * iterator moves. Bounds are copied. */
struct store_iter;
enum {
    STORE_ONCE = 1, /* data that will not be wanted again: don't fill the cache */
    STORE_NEAR = 2, /* a move that would pass STORE_NEAR_SKIPS tombstones gives up: it is then not valid */
    STORE_KEPT = 4, /* is not taken back; of a view only, whose state does not change */
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
/* What is deleted or overwritten and iterators had to pass, so far. */
u64 store_tombstones_skipped(const struct store_session *s);
bytes store_key(const struct store_iter *it);
bytes store_iter_value(const struct store_iter *it);

/* -- writing ------------------------------------------------------------------ */

/* Into the batch; a key or value may come in two parts that are joined. */
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
/* Makes everything durable that was written before, by any session and in any sync mode. Other sessions may
 * write meanwhile: unlike a write that is synced, this does not make them wait. On failure the reason was
 * logged, and what of it is durable is not known. */
NODISCARD bool store_sync(struct store_session *s);
void store_discard(struct store_session *s);  /* empties the batch */
void store_end_tick(struct store_session *s); /* nothing was written: idle iterators may go */

/* Rows that a dropped collection leaves behind in a family, under a range tombstone or for the
 * compaction filters: a family with much of that, or with many deleted rows, is compacted soon. */
void store_orphaned(struct store *s, enum family f, u64 rows);

/* Whole files inside the range vanish now instead of by compaction; what they held must have been
 * deleted and written before, and nothing put there since. */
void store_drop_files(struct store_session *s, enum family f, bytes from, bytes to);

/* Sees to it that a range full of deleted rows is compacted soon, in the background. */
void store_compact_soon(struct store_session *s, enum family f, bytes from, bytes to);

/* -- views ----------------------------------------------------------------------- */

/* A session for reading only that shows the database as it is now, whatever is written later. There may be
 * several, also on different threads. Of what compactions throw away by themselves they leave it the rows of
 * all collections up to last_version, and the keys that are not dead yet by store_set_dead. NULL: files are
 * just being dropped; try again later. */
struct store_session *store_view(struct store *s, u64 last_version, bool *failed);
void store_view_close(struct store_session *view); /* NULL is fine */

/* -- running ------------------------------------------------------------------- */

void store_set_sync(struct store *s, enum disk_sync sync);
/* Its writes don't wait for a sync meanwhile. The log is in order: the next write that is synced syncs these,
 * too, or the syncer does. */
void store_relax(struct store_session *s, bool relaxed);
const char *store_refuses_writes(struct store_session *s); /* see disk_ops */
u32 store_pressure(struct store *s, bool measure); /* likewise */
u64 store_written(const struct store *s);          /* bytes of all batches so far */
struct sync_state store_sync_state(const struct store *s);
void store_cron(struct store *s); /* once per period, on any thread, and of each session: */
void store_drop_idle(struct store_session *s); /* lets go of files that idle iterators keep */
/* Levels, sizes, stalls, cache, compactions, orphans. */
void store_info(struct store_session *s, struct buf *out);

/* What the compaction filters judge by; sessions publish it, RocksDB's threads read it. A key whose deadline
 * is <= dead_ms may go, if all sessions say so. 0: none may. */
void store_set_dead(struct store_session *s, i64 dead_ms);

#endif
