/* The append-only file: a folder with a base (RDB, or commands), increments (commands), and a manifest that
 * names them, as Redis 7 has it. docs/decisions/010 and docs/persistence.md give the reasons and the format.
 *
 * Integrity. What we write is framed by annotation lines, which Redis skips, each of 44 bytes:
 *
 *   #MI:<seq, 12 hex>:<before, 16 hex>:<check, 8 hex>\r\n     the first line of an increment
 *   #MF:<length, 12 hex>:<chain, 16 hex>:<check, 8 hex>\r\n   a block: `length` bytes of whole records follow
 *
 * chain is the crc64 that goes on from the block before (the first block: from the crc64 of the first line)
 * over the digits of the length and the block's bytes, so that a block can't change, vanish or move. before
 * is the chain that the increment before ended with (0: it is not ours), so that none can lose its end or
 * be left out; seq is the file's number in the manifest, so that none is taken for another. check is of the
 * line itself (the low 32 bits of its crc64 up to there): a whole line that is wrong is damage, and only
 * what reaches beyond the end of the file is torn. A base of commands begins with #MB: and its number
 * instead; one in RDB has a checksum of its own, and the manifest knows its size and its end
 * (aof_manifest.h). A file that begins as Redis's do ('*', "#TS:", "REDIS") is loaded without these checks.
 *
 * Steps of a rewrite (crash points aof-rewrite-1 … in this order; after a crash at any of them the data is
 * complete):
 *   1 a new increment is created; it and the one before are synced, 2 the manifest names it, 3 appends go
 *   there, 4 the base is written to a temporary file, 5 synced, 6 renamed (4 to 6 are the disk_file's:
 *   file-written …), 7 the base was looked at, 8 the manifest names it, and what it replaces is history,
 *   9 history is unlinked, 10 the manifest forgets it.
 * After a sync that failed the increment may lose its end, and none may come after it: step 2 is a part of 8.
 * Of aof_start: aof-start-1 there is a folder with a manifest, 2 an increment, 3 the manifest names it; of
 * moving an old single file in: aof-upgrade-1 there is a folder, 2 the manifest names the file, 3 it was
 * moved. */
#ifndef MAYFLY_PERSIST_AOF_H
#define MAYFLY_PERSIST_AOF_H

#include <uv.h>

#include "base/log.h"
#include "base/sync_state.h"
#include "rdb/rdb_out.h"
#include "exec/region.h"

enum aof_sync { AOF_SYNC_NO, AOF_SYNC_EVERYSEC, AOF_SYNC_ALWAYS };

struct aof_options {
    const char *dir;      /* the server's working folder; this and the following are copied */
    const char *dirname;  /* appenddirname */
    const char *filename; /* appendfilename: how the files' names begin */
    const struct log *log;
    uv_loop_t *loop;      /* for syncing in the background; NULL: on the spot */
    enum aof_sync sync;
    bool timestamps;      /* aof-timestamp-enabled */
    bool load_truncated;  /* aof-load-truncated */
    bool load_unchecked;  /* accept commands without checksums at the end of a file of ours: Redis appended */
    bool lock;            /* no other process may use the folder meanwhile */
    bool disable_gc;      /* aof-disable-auto-gc: history files stay */
    bool skip_unsupported; /* of a base in RDB: see rdb_file.h */
};

struct aof;

/* -- start -------------------------------------------------------------------------------------- */

enum aof_found {
    AOF_NONE,   /* nothing there */
    AOF_FILES,  /* a manifest, or an old single file (which becomes a base) */
    AOF_BROKEN, /* the log says what; the server must not start */
};

/* Looks, changes nothing but moving an old single file in. Always gives an aof, to be freed. */
enum aof_found aof_open(struct aof **a, const struct aof_options *o);
void aof_free(struct aof *a); /* does not flush */

/* Loading, in slices. Runs every record at time 0 (nothing dies while loading: the file says what went), with
 * journal sinks silent. OK: all is loaded. ERR_AGAIN: call again. ERR_SYNTAX: the log says what is wrong,
 * where, and what can be done; the server must not start. */
NODISCARD err aof_load_step(struct aof *a, struct region *r, struct server *server, u64 budget);
void aof_load_progress(const struct aof *a, u64 *loaded, u64 *total);

/* -- appending ------------------------------------------------------------------------------------ */

/* Attaches to the region's journal and appends to the newest increment, after all was loaded; with no files
 * yet (and no data), the first increment is made. False: the log says why. */
NODISCARD bool aof_start(struct aof *a, struct journal *j);

/* aof_start and aof_rewrite_begin in one, for data that the files there, if any, don't hold: it was loaded
 * from a dump.rdb, or appendonly was no for a while. Appends go to a new increment that no manifest names
 * before aof_rewrite_end does, together with the base: a crash in between leaves the files of before.
 * aof_rewrite_paths, _end and _abandon follow as ever; abandoned, it is as if it had not been started
 * (detached, the increment gone). False: the log says why, and nothing has changed. */
NODISCARD bool aof_start_anew(struct aof *a, struct journal *j);

void aof_stop(struct aof *a); /* flushes, syncs, detaches: appendonly no, shutdown */

/* At the end of a tick, before its replies leave: what the tick's records are is written, and with `always`
 * synced. False: it could not be; no writer of this tick may be told OK, though what it did has happened in
 * memory, and is written as soon as that works again. Nothing to write: true. now_ms is monotonic, here and
 * below. */
NODISCARD bool aof_flush(struct aof *a, i64 now_ms);

/* Ten times a second: the sync of everysec, trying again after a failure. */
void aof_cron(struct aof *a, i64 now_ms);

/* Why writes must be refused just now, as the text of an error ("MISCONF Errors writing to the AOF file:
 * …"), or NULL. After a write that failed: until one works. After a sync that failed, whose data the kernel
 * may have dropped (a later sync would not tell): until a rewrite has succeeded, which facts.wants_rewrite
 * asks for. */
const char *aof_refuses(const struct aof *a);

void aof_set_options(struct aof *a, enum aof_sync sync, bool timestamps); /* CONFIG SET */

/* -- rewriting ------------------------------------------------------------------------------------ */

/* Whether aof_rewrite_begin would return soon: it syncs what was appended. False: that is being done in the
 * background, and its end wakes the loop. */
NODISCARD bool aof_rewrite_ready(struct aof *a);
/* Steps 1 to 3. False: the log says why, and nothing has changed. Not started (appendonly no): the files of
 * before will be replaced by the base alone. */
NODISCARD bool aof_rewrite_begin(struct aof *a);
/* Between begin and end: where the base is to be written (step 4 to 6 are a disk_file's, or a saver's, from
 * temp to path). */
void aof_rewrite_paths(const struct aof *a, bool rdb, char temp[4096], char path[4096]);

/* Frames a base of commands: what comes in pieces of whole commands goes on in blocks. (An RDB base needs no
 * frame, but its checksum: rdbchecksum does not count here.) */
struct aof_base_sink {
    struct rdb_sink sink;
    struct rdb_sink *to; /* borrowed */
    u64 seq, chain;      /* own */
    bool begun;
};
void aof_base_sink_init(struct aof_base_sink *s, const struct aof *a, struct rdb_sink *to);

/* Steps 7 to 10, the base being in place; an RDB one is of base_bytes (0: not known). False: the log says
 * why, and it was abandoned. */
NODISCARD bool aof_rewrite_end(struct aof *a, bool rdb, u64 base_bytes);
void aof_rewrite_abandon(struct aof *a); /* the base failed: the additional increment stays, and is right */

struct aof_facts { /* for INFO */
    u64 base_size, current_size; /* current: base and increments */
    u64 buffer;                  /* bytes not written yet */
    u64 pending_sync, delayed_sync;
    bool write_failed;
    bool wants_rewrite; /* a sync failed, or files were loaded that hold commands without checksums */
};
struct aof_facts aof_facts(const struct aof *a);
struct sync_state aof_sync_state(const struct aof *a);

#endif
