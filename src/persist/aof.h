/* The append-only file: a folder with a base (RDB, or commands), increments (commands), and a manifest that
 * names them, as in Redis 7. docs/decisions/010 and docs/persistence.md give the reasons and the format.
 *
 * Integrity. Our data is framed by annotation lines, which Redis skips, each of 44 bytes:
 *
 *   #MI:<seq, 12 hex>:<before, 16 hex>:<check, 8 hex>\r\n     the first line of an increment
 *   #MF:<length, 12 hex>:<chain, 16 hex>:<check, 8 hex>\r\n   a block: `length` bytes of whole records follow
 *
 * - chain is a crc64 that continues from the previous block (the first block: from the crc64 of the first
 *   line) over the digits of the length and the block's bytes: no block can change, vanish or move.
 * - before is the final chain of the previous increment (0: that one is not ours): no increment can lose its
 *   end or be left out.
 * - seq is the file's number in the manifest: no increment is mistaken for another.
 * - check covers the line itself (the low 32 bits of its crc64 up to there): a whole line that is wrong is
 *   damage, and only what reaches beyond the end of the file is torn.
 *
 * A base of commands begins with #MB: and its number instead. An RDB base has its own checksum, and the
 * manifest has its size and a sum of its end (aof_manifest.h). A file that begins as Redis's do ('*', "#TS:",
 * "REDIS") is loaded without these checks.
 *
 * Steps of a rewrite, each a crash point (aof-rewrite-1 …) after which the data is complete:
 *   1 a new increment is created; it and the previous one are synced
 *   2 the manifest names it
 *   3 appends go there
 *   4 the base is written to a temporary file, 5 synced, 6 renamed (all by disk_file: file-written …)
 *   7 the base was verified
 *   8 the manifest names it, and what it replaces becomes history
 *   9 history is unlinked
 *   10 the manifest forgets it
 * After a failed sync the increment may lose its end, so no other may follow it: step 2 is then a part of 8.
 *
 * Steps of aof_start: aof-start-1 the folder has a manifest, 2 an increment exists, 3 the manifest names it.
 * Steps of adopting an old single file: aof-upgrade-1 the folder exists, 2 the manifest names the file, 3 it
 * was moved. */
#ifndef MAYFLY_PERSIST_AOF_H
#define MAYFLY_PERSIST_AOF_H

#include <uv.h>

#include "base/log.h"
#include "base/sync_state.h"
#include "rdb/rdb_out.h"
#include "exec/region.h"

enum aof_sync { AOF_SYNC_NO, AOF_SYNC_EVERYSEC, AOF_SYNC_ALWAYS };

struct aof_options {
    const char *dir;      /* the server's working directory; this and the following are copied */
    const char *dirname;  /* appenddirname */
    const char *filename; /* appendfilename: prefix of the files' names */
    const struct log *log;
    uv_loop_t *loop;      /* for syncs in the background; NULL: synchronous */
    enum aof_sync sync;
    bool timestamps;      /* aof-timestamp-enabled */
    bool load_truncated;  /* aof-load-truncated */
    bool load_unchecked;  /* accept commands without checksums at the end of a file of ours: Redis appended */
    bool lock;            /* lock the folder against other processes */
    bool disable_gc;      /* aof-disable-auto-gc: history files stay */
    bool skip_unsupported; /* of an RDB base: see rdb_file.h */
};

struct aof;

/* -- start -------------------------------------------------------------------------------------- */

enum aof_found {
    AOF_NONE,   /* nothing there */
    AOF_FILES,  /* a manifest, or an old single file (which becomes a base) */
    AOF_BROKEN, /* the log says what; the server must not start */
};

/* Reads the manifest. Changes nothing, except that an old single file is moved into the folder. *a is always
 * set, and to be freed. */
enum aof_found aof_open(struct aof **a, const struct aof_options *o);
void aof_free(struct aof *a); /* does not flush */

/* Loads in slices. Runs every record at time 0 (nothing dies while loading: the file says what was deleted),
 * with silent journal sinks. OK: all is loaded. ERR_AGAIN: call again. ERR_SYNTAX: the log says what is
 * wrong, where, and what can be done; the server must not start. */
NODISCARD err aof_load_step(struct aof *a, struct region *r, struct server *server, u64 budget);
void aof_load_progress(const struct aof *a, u64 *loaded, u64 *total);

/* -- appending ------------------------------------------------------------------------------------ */

/* After loading: attaches to the region's journal and appends to the newest increment. With no files yet (and
 * no data) it creates the first increment. False: the log says why. */
NODISCARD bool aof_start(struct aof *a, struct journal *j);

/* aof_start and aof_rewrite_begin in one, for data that is not in the existing files, if any: it was loaded
 * from a dump.rdb, or appendonly was no for a while. Appends go to a new increment that enters the manifest
 * together with the base, in aof_rewrite_end: a crash before that leaves the old files in force.
 * aof_rewrite_paths, _end and _abandon follow as usual; abandoning detaches and removes the increment. False:
 * the log says why, and nothing has changed. */
NODISCARD bool aof_start_rewriting(struct aof *a, struct journal *j);

void aof_stop(struct aof *a); /* flushes, syncs, detaches: appendonly no, shutdown */

/* At the end of a tick, before its replies are sent: writes the tick's records, and with `always` syncs them.
 * False: that failed. No write of this tick may be answered with OK, though it has happened in memory and
 * will be written as soon as writing works again. True also if there is nothing to write. now_ms is
 * monotonic, here and below. */
NODISCARD bool aof_flush(struct aof *a, i64 now_ms);

/* Ten times a second: syncs for everysec, and retries after a failure. */
void aof_cron(struct aof *a, i64 now_ms);

/* Why writes must be refused now, as an error text ("MISCONF Errors writing to the AOF file: …"), or NULL.
 * After a failed write: until one succeeds. After a failed sync the kernel may have dropped the data, and a
 * later sync would not report it: until a rewrite has succeeded, which facts.wants_rewrite requests. */
const char *aof_refuses(const struct aof *a);

void aof_set_options(struct aof *a, enum aof_sync sync, bool timestamps); /* CONFIG SET */

/* -- rewriting ------------------------------------------------------------------------------------ */

/* Whether aof_rewrite_begin, which syncs what was appended, would return soon. False: a sync in the
 * background does it first, and its end wakes the loop. */
NODISCARD bool aof_rewrite_ready(struct aof *a);
/* Steps 1 to 3. False: the log says why, and nothing has changed. If not started (appendonly no), the base
 * alone will replace the old files. */
NODISCARD bool aof_rewrite_begin(struct aof *a);
/* Between begin and end: where the base is to be written (steps 4 to 6 are done by a disk_file or a saver,
 * from temp to path). */
void aof_rewrite_paths(const struct aof *a, bool rdb, char temp[4096], char path[4096]);

/* Frames a base of commands: whole commands come in, blocks go out. (An RDB base needs no frame, but its
 * checksum, whatever rdbchecksum says.) */
struct aof_base_sink {
    struct rdb_sink sink;
    struct rdb_sink *to; /* borrowed */
    u64 seq, chain;      /* private */
    bool begun;
};
void aof_base_sink_init(struct aof_base_sink *s, const struct aof *a, struct rdb_sink *to);

/* Steps 7 to 10, once the base is in place; base_bytes is the size of an RDB base (0: not known). False: the
 * log says why, and the rewrite was abandoned. */
NODISCARD bool aof_rewrite_end(struct aof *a, bool rdb, u64 base_bytes);
void aof_rewrite_abandon(struct aof *a); /* the base failed: the new increment stays, and is valid */

struct aof_facts { /* for INFO */
    u64 base_size, current_size; /* current: base and increments */
    u64 buffer;                  /* bytes not written yet */
    u64 pending_sync, delayed_sync;
    bool write_failed;
    bool wants_rewrite; /* a sync failed, or loaded files hold commands without checksums */
};
struct aof_facts aof_facts(const struct aof *a);
struct sync_state aof_sync_state(const struct aof *a);

#endif
