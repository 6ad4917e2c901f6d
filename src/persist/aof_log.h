/* The increment that is appended to: records become blocks, blocks are written once per tick and synced as
 * configured.
 *
 * A failed write is retried every second; the data stays in memory, and writes are refused meanwhile. A
 * failed sync is different: the kernel may have dropped the data, and a later sync of the same file would not
 * report it. So it is never retried, and writes are refused until a rewrite has put everything into new files
 * (aof_log_heal). */
#ifndef MAYFLY_PERSIST_AOF_LOG_H
#define MAYFLY_PERSIST_AOF_LOG_H

#include "journal/journal.h"
#include "persist/aof.h"
#include "persist/aof_manifest.h"

/* An increment of ours, open for appending. */
struct aof_increment {
    int fd;
    u64 seq, size, chain; /* size: end of its last whole block; chain: after that block */
    char name[AOF_NAME_MAX + 1];
};

/* Creates an increment that holds only its first line, on disk; the folder is not synced. `before`: the final
 * chain of the previous increment, 0 if that is not ours. False: see errno; no file is left. */
NODISCARD bool aof_increment_create(struct aof_increment *inc, const char *folder, const char *name,
                                    u64 seq, u64 before);
/* Opens one that was read to its end. False: see errno. */
NODISCARD bool aof_increment_open(struct aof_increment *inc, const char *folder, const char *name,
                                  u64 seq, u64 size, u64 chain);

struct aof_sync_job;

struct aof_log {
    struct journal_sink sink; /* first: append() finds the log by it */
    const struct log *log;
    uv_loop_t *loop;
    enum aof_sync sync;
    bool timestamps;

    struct aof_increment at; /* fd -1: closed */
    struct buf buf;          /* blocks not written yet; the last one may be open */
    size_t block_at;         /* offset of the open block's line */
    bool open;
    bool fresh;  /* something was appended since the last flush */
    u64 chain;   /* after the complete blocks in buf */
    i64 stamp_s; /* of the last #TS */

    i64 now_ms;      /* monotonic, as of the last flush or cron */
    i64 unsynced_ms; /* when the oldest byte without a sync was written; 0: none */
    u64 unsynced;    /* how many bytes */
    struct aof_sync_job *job; /* in flight */
    u64 delayed;
    u64 begun, done; /* numbers of syncs: see sync_state.h */

    bool write_failed, sync_failed;
    u64 failed_seq; /* the increment in use when the last sync failed */
    i64 retry_ms;
    char refusal[256];
};

void aof_log_init(struct aof_log *l, const struct log *log, uv_loop_t *loop, enum aof_sync sync,
                  bool timestamps);
void aof_log_release(struct aof_log *l); /* closes; does not flush */

/* Switches to another increment and takes it over; the previous one, if any, is closed. The buffer must be
 * empty. */
void aof_log_switch(struct aof_log *l, const struct aof_increment *inc);

NODISCARD bool aof_log_flush(struct aof_log *l, i64 now_ms); /* see aof_flush */
void aof_log_cron(struct aof_log *l, i64 now_ms);

/* Writes and syncs everything, synchronously. False: refusal says why. */
NODISCARD bool aof_log_settle(struct aof_log *l);
/* Whether that takes no longer than syncing a few megabytes. If not, a sync is in flight, and its end wakes
 * the loop. */
NODISCARD bool aof_log_nearly_settled(struct aof_log *l);

/* Records that the data on disk can't be relied on, for this reason. */
void aof_log_distrust(struct aof_log *l, int error, const char *what);
/* All data is in new files: earlier failures no longer matter. */
void aof_log_heal(struct aof_log *l);

const char *aof_log_refuses(const struct aof_log *l);
struct sync_state aof_log_sync_state(const struct aof_log *l);

#endif
