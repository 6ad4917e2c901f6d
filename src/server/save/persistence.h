/* Durability: what is written to disk, and when.
 *
 * - The AOF gets the journal's records. They are written at the end of their tick, before its replies are
 *   sent.
 * - A snapshot (an RDB file, or the base of an AOF) is a long *job*. There is one at a time; it runs in
 *   slices between ticks, after replies are sent, so it never delays a reply by more than a slice. If another
 *   one is requested meanwhile, it is scheduled.
 * - At start loading (loading.h) comes first. */
#ifndef MAYFLY_SERVER_SAVE_PERSISTENCE_H
#define MAYFLY_SERVER_SAVE_PERSISTENCE_H

#include "persist/aof.h"
#include "persist/disk_file.h"
#include "persist/saver.h"
#include "server/save/loading.h"

struct server;
struct net_request;

enum persist_job { JOB_NONE, JOB_SAVE, JOB_REWRITE, JOB_SYNC /* for replicas: primary_sync.c */ };

enum job_stage {
    STAGE_WANTED,  /* begins when this tick is committed */
    STAGE_WALK,    /* keys are written from the engine to the file */
    STAGE_FINISH,  /* everything is written; the file is being put in place */
    STAGE_ABANDON, /* it was given up; the file is being removed */
};

enum aof_state {
    AOF_IS_OFF,
    AOF_IS_NEW, /* on as soon as its first base is written: until then the files don't have the data */
    AOF_IS_ON,
};

struct persistence {
    /* the job */
    enum persist_job job;
    enum job_stage stage;
    bool killed;             /* given up on purpose: not a failure */
    bool reopen;             /* DEBUG LOADAOF: the database is to be opened again after the commit */
    struct saver *saver;     /* STAGE_WALK */
    struct disk_file file;   /* from STAGE_WALK on; none if it goes straight to replicas */
    bool no_file;            /* … in that case */
    struct aof_base_sink base_sink; /* in front of it, if commands are written */
    struct saver_progress progress;
    u64 peak;                /* most bytes it had in memory */
    bool rdb_base;           /* JOB_REWRITE: the base is RDB, not commands */
    i64 job_us, told_us;     /* monotonic times: its start, and its last line in the log */
    u64 dirty_at_moment;
    bool save_scheduled, rewrite_scheduled;
    bool save_next;          /* one begins when the one given up has ended: it was promised */
    bool holding;            /* connections may be held back for it: HOLD_SNAPSHOT */
    i64 resumed_us;          /* when they were last resumed */
    bool turn;               /* the loop must turn once more before it may sleep */

    /* RDB */
    u64 dirty_saved;         /* keyspace.dirty as of the last save */
    i64 last_save_s;         /* Unix time, for LASTSAVE */
    i64 saved_ms, tried_ms;  /* monotonic: the last save, and the last attempt to save in the background */
    i64 save_took_s;         /* -1: none yet */
    bool save_failed;
    u64 saves, save_peak;
    u64 loaded_keys, loaded_dead; /* by the last load */
    bool flushed;            /* FLUSHALL was run in this tick */

    /* AOF */
    struct aof *aof;         /* NULL: none is open */
    enum aof_state aof_state;
    bool appending;          /* it gets the records */
    u64 flushed_seq;         /* number of the last record it was asked to write */
    bool part_failed;        /* it could not write those of the first part of this tick: COMMIT_PART */
    i64 flush_sleep_us;      /* DEBUG AOF-FLUSH-SLEEP: before each write */
    bool rewrite_failed;
    i64 rewrite_took_s;      /* -1: none yet */
    i64 rewrite_after_ms;    /* monotonic; not before, because it failed too often; 0: any time */
    u64 rewrites, rewrite_peak, rewrite_failures; /* failures: in a row */
    i64 rewrite_delay_min;

    struct loading loading;
    uv_prepare_t prepare;    /* between ticks, when replies are sent */
    uv_idle_t busy;          /* active while there is work that does not wait for the disk */
    bool started;            /* the two handles are initialized */
};

/* -- life: persistence.c ------------------------------------------------------------------------ */

/* Begins to load, or becomes ready at once. False: the log says why; the server can't start. */
NODISCARD bool persistence_start(struct server *s);
void persistence_stop(struct server *s);    /* before the loop is closed */
void persistence_release(struct server *s); /* after that */

/* Applies CONFIG SET; switches the AOF on and off. */
void persistence_apply_config(struct server *s);
void persistence_cron(struct server *s); /* ten times a second */

/* All data is loaded: continues the AOF, or begins one. False: the log says why. */
NODISCARD bool persistence_loaded(struct server *s, bool from_aof);

/* All data was replaced by the keys of a full sync, which no file has: the AOF's contents are out of date. */
void persistence_replaced(struct server *s, u64 keys);

/* Opens the AOF as configured. */
enum aof_found persistence_open_aof(struct server *s, struct aof **a);

/* For the job: switches to a new increment for further records; and: a rewrite has ended. */
NODISCARD bool persistence_switch_aof(struct server *s);
void persistence_rewritten(struct server *s, bool ok);
void persistence_note_save(struct persistence *p); /* the data was saved just now */
u64 persistence_dirty(const struct server *s);     /* changes of all regions since the start */

/* Saves as SHUTDOWN_* say (config.h) and as configured, and closes the AOF. False: the server must stay. */
NODISCARD bool persistence_shutdown(struct server *s, u32 how);

/* -- around a tick -------------------------------------------------------------------------------- */

/* At the start of a tick: tells the node why writes are refused. */
void persistence_begin_tick(struct server *s);

/* For server_commit: writes the records of what was committed to the AOF. False: they could not be written
 * (or synced, with appendfsync always); no client that wrote may get OK. */
NODISCARD bool persistence_log(struct server *s);

/* For server_commit, if FLUSHALL was run: the dataset that a BGSAVE is saving was deleted, so the file on
 * disk must be deleted, too. */
void persistence_after_flushall(struct server *s);

/* While there is a job: whether a request has to wait, either until a huge key is saved before it changes it,
 * or until a file is put in place. The caller holds the connection back with HOLD_SNAPSHOT. */
bool persistence_must_wait(struct server *s, const struct net_request *q);

static inline bool persistence_busy(const struct persistence *p) { return p->job != JOB_NONE; }

/* -- the job: snapshot.c -------------------------------------------------------------------------- */

/* Requests a job, to begin after this tick. There must be none. */
void snapshot_want(struct server *s, enum persist_job job);

/* A slice of work. True: there is more that does not wait for the disk. */
bool snapshot_work(struct server *s);

/* Gives the job up, unless its file is complete (STAGE_FINISH). */
void snapshot_kill(struct server *s);
/* The same; but a BGSAVE begins again, of the data as it is then. */
void snapshot_restart(struct server *s);

/* The data is being read for a job of this kind, or soon will be, or its file is being put in place. */
static inline bool snapshot_active(const struct persistence *p, enum persist_job job)
{
    return (p->job == job && p->stage != STAGE_ABANDON) || (job == JOB_SAVE && p->save_next);
}

/* Lets all connections that are held back for the job try again. */
void snapshot_resume_all(struct server *s);

/* At start: removes files that a crash left of snapshots. */
void snapshot_sweep(struct server *s);

/* SAVE: at once. False: the log says why. */
NODISCARD bool snapshot_save_now(struct server *s);

/* Whether the file of a BGSAVE is being put in place: nothing else may be put there meanwhile. */
static inline bool snapshot_finishing_save(const struct persistence *p)
{
    return p->job == JOB_SAVE && p->stage == STAGE_FINISH;
}

/* Whether the server should not be stopped before the job has ended: the above, or the first base of an
 * AOF. */
static inline bool snapshot_must_finish(const struct persistence *p)
{
    return snapshot_finishing_save(p) || (p->aof_state == AOF_IS_NEW && snapshot_active(p, JOB_REWRITE));
}

/* -- INFO: persistence_info.c --------------------------------------------------------------------- */

struct buf;
void persistence_info(struct server *s, struct buf *out);

/* Bytes to be written: they are not data, and eviction could not free them. */
u64 persistence_buffers(const struct persistence *p);

#endif
