/* A file that appears under its name whole or not at all, written off the loop.
 *
 * libuv's worker threads write the bytes to a temporary file beside it, one piece at a time and in order; the
 * loop never waits for the disk. Every MB is synced on the way, so that little is left to sync at the
 * end. finish() syncs the file, renames it, and syncs the folder. */
#ifndef MAYFLY_PERSIST_DISK_FILE_H
#define MAYFLY_PERSIST_DISK_FILE_H

#include <uv.h>

#include "rdb/rdb_out.h"

#define DISK_FILE_AHEAD (16u << 20) /* bytes that may wait for the disk before it is `full` */

struct disk_file {
    struct rdb_sink sink;  /* write here */
    char error[256];       /* why it failed; "": it has not */
    /* private */
    uv_loop_t *loop;
    struct disk_file_state *state;
};

/* Begins to write `temp`, which will become `path`; both are copied. With loop NULL everything is
 * synchronous: SAVE, shutdown, tests. False: `error` says why. */
NODISCARD bool disk_file_open(struct disk_file *f, uv_loop_t *loop, const char *temp, const char *path);

/* Whether so many bytes wait that the source should pause. */
bool disk_file_full(const struct disk_file *f);
u64 disk_file_waiting(const struct disk_file *f); /* bytes that wait: memory that belongs to no client */

/* No more bytes will come: writes the rest, syncs, renames; then calls done(arg, ok) on the loop, or before
 * returning if there is none. The struct must stay until then. */
void disk_file_finish(struct disk_file *f, void (*done)(void *arg, bool ok), void *arg);

/* Gives up and removes the temporary file. done may be NULL; otherwise as above, with ok false. (A file that
 * failed has removed it already, but still has to be finished or abandoned.) */
void disk_file_abandon(struct disk_file *f, void (*done)(void *arg, bool ok), void *arg);

/* -- files that go: a big one takes its time, which is not the loop's ------------------------------- */

void disk_remove_later(uv_loop_t *loop, const char *path);
void disk_close_later(uv_loop_t *loop, int fd); /* it may be the last descriptor of an unlinked file */

/* -- small things that have to survive a power cut; on the spot ---------------------------------- */

/* Replaces a file's content atomically and durably. `dir` is its folder. False: see errno. */
NODISCARD bool disk_replace(const char *dir, const char *name, bytes content);
NODISCARD bool disk_sync_folder(const char *dir);

/* Crash points for tests: MAYFLY_CRASH_AT=name[:n] in the environment kills the process when it reaches the
 * named point for the n-th time (default 1). Otherwise does nothing. A disk_file has, at its end and in this
 * order: file-written, file-synced, file-renamed, file-folder-synced; disk_replace: replace-written … */
void crash_point(const char *name);

#endif
