/* A file that appears under its name whole or not at all, written off the loop.
 *
 * Bytes go to a temporary file beside it by libuv's worker threads, one piece at a time and in order; the
 * loop never waits for the disk. Every few MB are synced on the way, so that the end does not come as one
 * flood. finish() syncs the file, renames it, and syncs the folder. */
#ifndef MAYFLY_PERSIST_DISK_FILE_H
#define MAYFLY_PERSIST_DISK_FILE_H

#include <uv.h>

#include "rdb/rdb_out.h"

#define DISK_FILE_AHEAD (16u << 20) /* bytes that may wait for the disk: then `full` */

struct disk_file {
    struct rdb_sink sink;  /* give it bytes here */
    char error[256];       /* why it failed; "" while it has not */
    /* own */
    uv_loop_t *loop;
    struct disk_file_state *state;
};

/* Begins to write `temp`, which is to become `path`; both are copied. With loop NULL everything is done on
 * the spot: SAVE, shutdown, tests. False: `error` says why. */
NODISCARD bool disk_file_open(struct disk_file *f, uv_loop_t *loop, const char *temp, const char *path);

/* Whether so much waits to be written that the source should pause. */
bool disk_file_full(const struct disk_file *f);
u64 disk_file_waiting(const struct disk_file *f); /* how much that is: in memory, and not a client's */

/* Everything was given: what is left is written, synced and put in place; then done(arg, ok), on the loop, or
 * before this returns if there is none. The struct must stay until then. */
void disk_file_finish(struct disk_file *f, void (*done)(void *arg, bool ok), void *arg);

/* Gives up: the temporary file goes. done may be NULL; otherwise as above, with ok false. (A file that failed
 * by itself removed it at once, but has to be finished or abandoned all the same.) */
void disk_file_abandon(struct disk_file *f, void (*done)(void *arg, bool ok), void *arg);

/* -- files that go: a big one takes its time, which is not the loop's ------------------------------- */

void disk_remove_later(uv_loop_t *loop, const char *path);
void disk_close_later(uv_loop_t *loop, int fd); /* the last one to hold it open, perhaps */

/* -- small things that have to survive a power cut; on the spot ---------------------------------- */

/* A file's whole content, replaced atomically and durably. `dir` is its folder. False: errno tells. */
NODISCARD bool disk_replace(const char *dir, const char *name, bytes content);
NODISCARD bool disk_sync_folder(const char *dir);

/* Named places where a test lets the process die: MAYFLY_CRASH_AT=name[:n] in the environment kills it at the
 * n-th time it comes by (default 1). Nothing in any other case. Those of a disk_file, at its end, in this
 * order: file-written, file-synced, file-renamed, file-folder-synced; of disk_replace: replace-written … */
void crash_point(const char *name);

#endif
