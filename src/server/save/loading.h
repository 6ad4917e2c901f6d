/* Loading at start: an AOF, or an RDB file, in slices between ticks. Clients can connect meanwhile; all but
 * the commands flagged CMD_LOADING are answered -LOADING. And, the same way, the file of a full sync. */
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

/* An RDB file that is open. */
struct rdb_input {
    struct rdb_source source;
    int fd;
    u64 size;
};

/* What loading_sync was asked for. */
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
    bool from_aof;             /* what was loaded last */
    u64 used_mem;              /* as the file says */
    i64 start_us, start_s;
    i64 told_us;               /* progress went to the log */
};

/* A file is being read, which commands may or may not be kept from by node.loading. */
static inline bool loading_busy(const struct loading *l)
{
    return l->stage == LOADING_RDB || l->stage == LOADING_AOF;
}

/* … whose data is not that which is served. */
static inline bool loading_aside(const struct loading *l) { return l->sync.done && l->sync.keep_old; }

/* Chooses what to load. False: the log says why the server can't start. */
NODISCARD bool loading_begin(struct server *s);

/* A slice. True: there is more. When all is loaded, or loading has failed, the server knows. */
bool loading_step(struct server *s);

/* The first base of the AOF was written, or could not be. */
void loading_first_base(struct server *s, bool ok);

/* How far it is. */
void loading_progress(const struct server *s, u64 *loaded, u64 *total);
i64 loading_eta_s(const struct server *s); /* -1: who knows */

void loading_release(struct loading *l);

/* A full sync has brought a file: it is loaded into the spare databases, dead keys and all, and when that
 * is complete they change places with the others in one transaction. Until then the old data is served
 * (keep_old, INFO's async_loading), or is dropped first and clients get -LOADING. No snapshot may be under
 * way; none begins meanwhile, and with an AOF a rewrite is begun at the end. AUX fields go to
 * replication_load_aux.
 * `adopt` is called in the transaction that swaps: the position of the new data is to go with it.
 * `done` is told how it ended; if badly (possibly after `adopt`: the storage may fail to commit), the spare
 * databases are emptied, and the log knows why. The file stays the caller's. */
void loading_sync(struct server *s, const char *path, bool keep_old, void (*adopt)(struct server *),
                  void (*done)(struct server *, bool ok));
void loading_sync_stop(struct server *s); /* gives it up, without telling; nothing happens if there is none */

/* Between loading.c and loading_sync.c: opens a file and begins with it (false: errno tells); a commit, which
 * may be durable later but for the last; what is there to be done with a sync in its last transaction, and
 * after a commit that was the last, or a failure. */
NODISCARD bool loading_open(struct server *s, const char *path);
NODISCARD bool loading_commit(struct server *s, bool last);
void loading_sync_swap(struct server *s);
void loading_sync_end(struct server *s, bool ok);

/* On the spot, for DEBUG: the file's keys come to those that are there. False: the log says why. */
NODISCARD bool loading_rdb_now(struct server *s, bool replace);
NODISCARD bool loading_aof_now(struct server *s);

#endif
