/* The append-only file: a folder with a base (RDB, or commands), increments (commands), and a manifest that
 * names them, as Redis 7 has it. docs/decisions/010 and docs/persistence.md give the reasons and the format.
 *
 * Integrity. Every write of ours is a block: an annotation line, which Redis skips, and the records it covers:
 *
 *   #MF:<length, 8 hex>:<crc64, 16 hex>:<check, 8 hex>\r\n   followed by `length` bytes
 *
 * crc64 goes on from the block before (the file's first block: from 0) over the digits of the length and the
 * block's bytes, so that a block can't change, vanish or move; check is of the line itself (the low 32 bits of
 * its crc64 up to there), so that a line that is complete and wrong is damage, never taken for a torn end.
 * A file whose first byte is not ours ('*', "#TS:", or an RDB preamble) was written by Redis: it is loaded
 * without checks.
 *
 * Steps of a rewrite (crash points aof-rewrite-1 … in this order; after a crash at any of them the data is
 * complete):
 *   1 a new increment is created and synced, 2 the manifest names it, 3 appends go there, 4 the base is written
 *   to a temporary file, 5 synced, 6 renamed, 7 the increment is synced, 8 the manifest names the new base, what
 *   it replaces is history, 9 history is unlinked, 10 the manifest forgets it. */
#ifndef MAYFLY_PERSIST_AOF_H
#define MAYFLY_PERSIST_AOF_H

#include <uv.h>

#include "base/log.h"
#include "exec/region.h"

enum aof_sync { AOF_SYNC_NO, AOF_SYNC_EVERYSEC, AOF_SYNC_ALWAYS };

struct aof_options {
    const char *dir;      /* the server's working folder */
    const char *dirname;  /* appenddirname */
    const char *filename; /* appendfilename: how the files' names begin */
    const struct log *log;
    uv_loop_t *loop;      /* for syncing in the background; NULL: on the spot */
    enum aof_sync sync;
    bool timestamps;      /* aof-timestamp-enabled */
    bool load_truncated;  /* aof-load-truncated */
    bool load_unchecked;  /* accept commands without checksums in the middle of a file of ours: Redis appended */
    bool disable_gc;      /* aof-disable-auto-gc: history files stay */
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

/* Attaches to the region's journal and appends to the newest increment. With no files yet, an empty base and
 * the first increment are made (data that is there already needs a rewrite next). False: the log says why. */
NODISCARD bool aof_start(struct aof *a, struct journal *j);
void aof_stop(struct aof *a); /* flushes, syncs, detaches: appendonly no, shutdown */

/* At the end of a tick, before its replies leave: what the tick's records are is written, and with `always`
 * synced. False: it could not be; no writer of this tick may be told OK. Nothing to write: true. */
NODISCARD bool aof_flush(struct aof *a, i64 now_ms);

/* Ten times a second: the sync of everysec, trying again after a failure. */
void aof_cron(struct aof *a, i64 now_ms);

/* Why writes must be refused just now, as the text of an error ("MISCONF Errors writing to the AOF file: …"),
 * or NULL. */
const char *aof_refuses(const struct aof *a);

void aof_set_options(struct aof *a, enum aof_sync sync, bool timestamps); /* CONFIG SET */

/* -- rewriting ------------------------------------------------------------------------------------ */

/* Steps 1 to 3. False: the log says why, and nothing has changed. */
NODISCARD bool aof_rewrite_begin(struct aof *a);
/* Where the base is to be written (step 4 to 6 are a disk_file's, or a saver's, from temp to path). */
void aof_rewrite_paths(const struct aof *a, bool rdb, char temp[4096], char path[4096]);
/* Steps 7 to 10, the base being in place. False: the log says why; the files of before go on. */
NODISCARD bool aof_rewrite_end(struct aof *a, bool rdb, u64 base_bytes);
void aof_rewrite_abandon(struct aof *a); /* the base failed: the additional increment stays, and is right */

struct aof_facts { /* for INFO */
    u64 base_size, current_size; /* current: base and increments */
    u64 buffer;                  /* bytes not written yet */
    u64 pending_sync, delayed_sync;
    bool write_failed;
};
struct aof_facts aof_facts(const struct aof *a);

#endif
