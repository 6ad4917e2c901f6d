/* Loading at start: an AOF, or an RDB file, in slices between ticks. Clients can connect meanwhile; all
 * commands not flagged CMD_LOADING are answered -LOADING. The file of a full sync is loaded the same way. */
#ifndef MAYFLY_SERVER_SAVE_LOADING_H
#define MAYFLY_SERVER_SAVE_LOADING_H

#include "persist/rdb_file.h"

struct server;
struct ctx;

enum loading_stage {
    LOADING_NOTHING,
    LOADING_RDB,
    LOADING_AOF,
    LOADING_DONE, /* but the first base of the AOF is still being written */
};

/* An open RDB file. */
struct rdb_input {
    struct rdb_source source;
    int fd;
    u64 size;
};

/* The arguments of loading_sync. */
struct sync_plan {
    bool keep_old;
    void (*adopt)(struct server *);
    void (*done)(struct server *, bool ok); /* NULL: no sync is being loaded */
};

struct loading {
    enum loading_stage stage;
    struct sync_plan sync;
    struct rdb_input input;    /* LOADING_RDB … */
    struct rdb_loader loader;
    char path[4096];
    bool from_aof;             /* of the last load */
    u64 used_mem;              /* from the file */
    i64 start_us, start_s;
    i64 told_us;               /* when progress was last logged */
};

/* A file is being read; node.loading says whether commands are refused meanwhile. */
static inline bool loading_busy(const struct loading *l)
{
    return l->stage == LOADING_RDB || l->stage == LOADING_AOF;
}

/* … and its data is not the data that is served. */
static inline bool loading_aside(const struct loading *l) { return l->sync.done && l->sync.keep_old; }

/* Decides what to load. False: the log says why the server can't start. */
NODISCARD bool loading_begin(struct server *s);

/* Loads a slice. True: there is more. At the end, or on failure, it tells the server. */
bool loading_step(struct server *s);

/* The first base of the AOF was written, or could not be. */
void loading_first_base(struct server *s, bool ok);

/* Progress in bytes. */
void loading_progress(const struct server *s, u64 *loaded, u64 *total);
i64 loading_eta_s(const struct server *s); /* -1: unknown */

void loading_release(struct loading *l);

/* Loads the file of a full sync into the staging databases, including dead keys; when it is complete, they
 * are swapped with the others in one transaction. Until then the old data is served (keep_old, INFO's
 * async_loading), or is dropped first and clients get -LOADING. No snapshot may be in progress; none begins
 * meanwhile, and with an AOF a rewrite is begun at the end. AUX fields go to replication_load_aux. `adopt` is
 * called in the transaction that swaps, so that the position of the new data is stored with it. `done` gets
 * the outcome; on failure (possibly after `adopt`: the storage may fail to commit) the staging databases are
 * emptied, and the log says why. The file belongs to the caller. */
void loading_sync(struct server *s, const char *path, bool keep_old, void (*adopt)(struct server *),
                  void (*done)(struct server *, bool ok));
void loading_sync_stop(struct server *s); /* gives up without calling `done`; a no-op without a sync */

/* Shared by loading.c and loading_sync.c: opening a file and starting with it (false: see errno); a commit,
 * which need not be durable unless it is the last; and the steps of a sync in its last transaction, and after
 * the last commit or a failure. */
NODISCARD bool loading_open(struct server *s, const char *path);
NODISCARD bool loading_commit(struct server *s, bool last);
void loading_sync_swap(struct server *s);
void loading_sync_end(struct server *s, bool ok);

/* At once, for DEBUG: adds the file's keys to the existing ones. False: the log says why. */
NODISCARD bool loading_rdb_now(struct server *s, bool replace);
NODISCARD bool loading_aof_now(struct server *s);

#endif
