/* Durability: what is written to disk, and when.
 *
 * - The AOF takes the journal's records. They are written at the end of their tick, before its replies leave.
 * - A snapshot (an RDB file, or the base of an AOF) is the only big thing there is to write. There is one
 *   at a time, the *job*; it advances in slices between ticks, when replies are out, and so never holds one
 *   up for longer than a slice. Another one that is asked for meanwhile is scheduled.
 * - Loading (loading.h) comes before all that. */
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
    STAGE_WALK,    /* keys go from the engine to the file */
    STAGE_FINISH,  /* all has been given; the file is being put in place */
    STAGE_ABANDON, /* it was given up; the file is being removed */
};

enum aof_state {
    AOF_IS_OFF,
    AOF_IS_NEW, /* on as soon as its first base is written: until then the files don't hold the data */
    AOF_IS_ON,
};

struct persistence {
    /* the job */
    enum persist_job job;
    enum job_stage stage;
    bool killed;             /* given up on purpose: no failure */
    struct saver *saver;     /* STAGE_WALK */
    struct disk_file file;   /* from STAGE_WALK on; none if it goes straight to replicas */
    bool no_file;            /* … then */
    struct aof_base_sink base_sink; /* before it, if commands are written */
    struct saver_progress progress;
    u64 peak;                /* of the bytes it kept in memory */
    bool rdb_base;           /* JOB_REWRITE: the base is RDB, not commands */
    i64 job_us, told_us;     /* monotonic times: it began, and the log heard of it */
    u64 dirty_at_moment;
    bool save_scheduled, rewrite_scheduled;
    bool save_next;          /* one begins as soon as what was given up has ended: a client was told so */
    bool holding;            /* connections may wait for it: HOLD_SNAPSHOT */
    i64 resumed_us;          /* they were last let go on */
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
    u64 flushed_seq;         /* of the last record it was asked to write */
    bool part_failed;        /* it could not take those of the first part of this tick: COMMIT_PART */
    i64 flush_sleep_us;      /* DEBUG AOF-FLUSH-SLEEP: before each write */
    bool rewrite_failed;
    i64 rewrite_took_s;      /* -1: none yet */
    i64 rewrite_after_ms;    /* monotonic; not before: it has failed too often; 0: any time */
    u64 rewrites, rewrite_peak, rewrite_failures; /* failures: in a row */
    i64 rewrite_delay_min;

    struct loading loading;
    uv_prepare_t prepare;    /* between ticks, when their replies are out */
    uv_idle_t busy;          /* active while there is work that does not wait for the disk */
    bool started;            /* the two handles are */
};

/* -- life: persistence.c ------------------------------------------------------------------------ */

/* Begins to load, or goes straight to readiness. False: the log says why; the server can't start. */
NODISCARD bool persistence_start(struct server *s);
void persistence_stop(struct server *s);    /* before the loop is closed */
void persistence_release(struct server *s); /* after that */

/* What CONFIG SET may have changed; switches the AOF on and off. */
void persistence_apply_config(struct server *s);
void persistence_cron(struct server *s); /* ten times a second */

/* All data is loaded: the AOF goes on, or is begun. False: the log says why. */
NODISCARD bool persistence_loaded(struct server *s, bool from_aof);

/* All data was replaced, by so many keys of a full sync, which no file holds: what the AOF has is of
 * before. */
void persistence_replaced(struct server *s, u64 keys);

/* Opens the AOF as configured. */
enum aof_found persistence_open_aof(struct server *s, struct aof **a);

/* For the job: records of what comes from now on go to a new increment, and a rewrite has ended. */
NODISCARD bool persistence_switch_aof(struct server *s);
void persistence_rewritten(struct server *s, bool ok);
void persistence_note_save(struct persistence *p); /* the data was saved just now */

/* Saves as SHUTDOWN_* say (config.h) and as configured, and ends the AOF. False: the server must stay. */
NODISCARD bool persistence_shutdown(struct server *s, u32 how);

/* -- around a tick -------------------------------------------------------------------------------- */

/* At its start: why writes are refused goes to the node. */
void persistence_begin_tick(struct server *s);

/* For server_commit: writes the records of what was committed to the AOF. False: they could not be written
 * (or synced, with appendfsync always); no client that wrote may be told OK. */
NODISCARD bool persistence_log(struct server *s);

/* Likewise, if FLUSHALL was run: what a BGSAVE would save is gone, and so should be what is on disk. */
void persistence_after_flushall(struct server *s);

/* While a job is under way: whether a request has to wait, either for a huge key to be saved before it is
 * changed, or for a file to be put in place. The caller holds the connection by HOLD_SNAPSHOT. */
bool persistence_must_wait(struct server *s, const struct net_request *q);

static inline bool persistence_busy(const struct persistence *p) { return p->job != JOB_NONE; }

/* -- the job: snapshot.c -------------------------------------------------------------------------- */

/* Wants one, to begin after this tick. There must be none. */
void snapshot_want(struct server *s, enum persist_job job);

/* A slice of work. True: there is more that does not wait for the disk. */
bool snapshot_work(struct server *s);

/* Gives the job up, unless its file is complete (STAGE_FINISH). */
void snapshot_kill(struct server *s);

/* The data is being read for a job of this kind, or soon will be, or its file is being put in place. */
static inline bool snapshot_active(const struct persistence *p, enum persist_job job)
{
    return (p->job == job && p->stage != STAGE_ABANDON) || (job == JOB_SAVE && p->save_next);
}

/* Lets all connections that wait for the job try again. */
void snapshot_resume_all(struct server *s);

/* At start: removes what a crash has left of snapshots. */
void snapshot_sweep(struct server *s);

/* SAVE: on the spot. False: the log says why. */
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

/* Bytes that wait to be written: no data, and nothing that eviction could help. */
u64 persistence_buffers(const struct persistence *p);

#endif
