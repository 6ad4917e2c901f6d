/* Loading at start: an AOF, or an RDB file, in slices between ticks. Clients can connect meanwhile; all but
 * the commands flagged CMD_LOADING are answered -LOADING. */
#ifndef MAYFLY_SERVER_LOADING_H
#define MAYFLY_SERVER_LOADING_H

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

struct loading {
    enum loading_stage stage;
    struct rdb_input input;    /* LOADING_RDB … */
    struct rdb_loader loader;
    char path[4096];
    u64 used_mem;              /* as the file says */
    i64 start_us, start_s;
    i64 told_us;               /* progress went to the log */
};

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

/* On the spot, for DEBUG: the file's keys come to those that are there. False: the log says why. */
NODISCARD bool loading_rdb_now(struct server *s, bool replace);
NODISCARD bool loading_aof_now(struct server *s);

#endif
