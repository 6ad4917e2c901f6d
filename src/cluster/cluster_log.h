/* The Raft logs of a node: struct raft_log (raft/raft_log.h) for any number of regions, in the RocksDB
 * database that also holds their data.
 *
 *     struct cluster_logs *logs = cluster_logs_open(loop, db, log);
 *     struct raft_log *l = cluster_log_open(logs, region, on_durable, member);
 *     member->group = group_open(&config, l, machine);        on_durable: group_durable(group, number)
 *     ...
 *     group_close(member->group); cluster_log_close(l); cluster_logs_close(logs);
 *
 * One thread writes for all regions. The loop collects their writes in a batch; the thread takes the batch,
 * writes and syncs it, while the loop fills the next one:
 *
 *     loop     write(1) write(2)   write(3) … write(9)              durable(2)      durable(9)
 *                  \_____________       \___________________         /               /
 *     thread             write 1, 2 · sync            write 3 … 9 · sync           …
 *
 * Rules, referred to by number in cluster_log.c:
 *   1  All regions' writes are in one order, and each batch is atomic. After a crash the logs are as a prefix
 *      of the writes left them.
 *   2  A batch with a write that asks for a sync is written when the loop has done all that this turn of it
 *      brought (cluster_logs_flush): what several regions write shares a sync. Others (a commit index, a
 *      compaction) wait for the next such batch: losing them does no harm.
 *   3  Syncing a batch makes everything durable that engines of the database committed before it, because
 *      they share RocksDB's log. Commits of engines don't wait for the sync.
 *   4  A write or a sync that fails ends the process: nothing can be said about the log then.
 *   5  What load() says is the state after all writes so far. Entries are read from RocksDB, where those
 *      that were reported durable are.
 *
 * Everything is called on the loop's thread, and so is `durable`. */
#ifndef MAYFLY_CLUSTER_CLUSTER_LOG_H
#define MAYFLY_CLUSTER_CLUSTER_LOG_H

#include <uv.h>

#include "base/log.h"
#include "engine/rocks/rocks.h"
#include "raft/raft_log.h"

struct cluster_logs;

/* NULL: no thread could be started, or the loop is out of descriptors; logged. `db` outlives it. */
struct cluster_logs *cluster_logs_open(uv_loop_t *loop, struct rocks *db, const struct log *log);
/* Writes what is queued and stops the thread; `durable` is not called any more. Close the logs of all regions
 * first. The memory is freed when the loop runs next; the database may be closed at once. NULL is fine. */
void cluster_logs_close(struct cluster_logs *logs);

/* The log of a region, empty if there is none. `durable` gets the number of a write: it and all before
 * it would survive a crash. It may write, and close this log or others. A region has one log open at a time.
 * NULL: the rows can't be read, or make no sense; logged. */
struct raft_log *cluster_log_open(struct cluster_logs *logs, u64 region,
                                  void (*durable)(void *arg, u64 number), void *arg);
/* Its writes are kept and become durable later; `durable` is not called for them. */
void cluster_log_close(struct raft_log *log); /* NULL is fine */
/* The same, and the next batch deletes all rows of the region: its member was removed. */
void cluster_log_destroy(struct raft_log *log);

/* Whether a write that asked for a sync is not reported as durable yet. */
bool cluster_log_syncing(const struct raft_log *log);

/* Asks for a sync of everything that engines of the database have committed so far, too (rule 3). It is done
 * when cluster_logs_synced has come to the number returned. */
u64 cluster_log_sync(struct raft_log *log);
u64 cluster_logs_synced(struct cluster_logs *logs);

/* Has what is to be synced written now: to be called before the loop sleeps. */
void cluster_logs_flush(struct cluster_logs *logs);

/* Counters since the start, for INFO. */
struct cluster_logs_stats {
    u64 batches, syncs, writes, entries, bytes; /* bytes: of entries */
};
void cluster_logs_stats(struct cluster_logs *logs, struct cluster_logs_stats *out);

#endif
