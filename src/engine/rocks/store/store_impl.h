/* Internals of the store, shared by store.c (reads, the batch), store_iter.c (iterators), store_session.c
 * (sessions and views), store_options.c, store_open.c, store_run.c (sync, cron), store_pressure.c (backlogs),
 * store_trouble.c (failures), store_space.c (reclaiming space) and store_info.c.
 *
 * Threads. A session belongs to the thread that opened it, and nothing in it is locked. The store is shared
 * by the threads of its sessions, by the syncer and the sweeper (struct worker), and by RocksDB's own
 * threads, which call the compaction filters. Fields that change after store_open are atomic, under a lock,
 * or used by the syncer alone. No thread holds both locks at once. */
#ifndef MAYFLY_ENGINE_ROCKS_STORE_STORE_IMPL_H
#define MAYFLY_ENGINE_ROCKS_STORE_STORE_IMPL_H

#include <pthread.h>
#include <rocksdb/c.h>
#include <stdatomic.h>

#include "engine/rocks/store/filter.h"
#include "engine/rocks/store/store.h"
#include "engine/rocks/wal/wal_synced.h"

#define STORE_LEVELS 7
#define STORE_REFUSAL 512 /* bytes of a text for clients */

/* A thread that works when it is woken, and about once a second. It waits in poll() with a timeout, so that
 * nothing here reads a clock. */
struct worker {
    pthread_t thread;
    bool running;
    int wake; /* eventfd */
};

/* Files to be dropped: store_drop_files. */
struct file_drop {
    struct file_drop *next;
    enum family family;
    struct buf from, to;
};

/* The range of a family that is to be compacted; under `lock`. */
struct sweep {
    bool wanted;
    struct buf from, to; /* empty: no bound */
};

/* Backlogs that writers are slowed down for: store_pressure.c. */
struct store_limits {
    u64 budget;                     /* of memory: INFO */
    u64 unflushed;                  /* bytes of memtables that wait to be flushed */
    u32 level0[FAM_COUNT];          /* files in L0: the soft limit; the hard one is twice that */
    u64 pending_soft, pending_hard; /* bytes of a family to be compacted */
};

struct store {
    rocksdb_t *db;
    rocksdb_column_family_handle_t *cf[FAM_COUNT];
    rocksdb_column_family_handle_t **others; /* "default", and families that are not ours */
    size_t others_n;
    rocksdb_cache_t *cache;
    char *dir;
    bool read_only;
    const struct log *log;
    _Atomic u32 complaints; /* logged since the last cron: a broken disk must not fill the log */

    /* Sessions: under `lock`. */
    struct store_session *sessions, *views;
    _Atomic u32 views_open;

    /* Trouble: under `trouble`, but for what is atomic. */
    pthread_mutex_t trouble;
    _Atomic bool disk_low, write_failed;
    _Atomic u64 reserve, unlooked; /* bytes to be kept free; bytes written since the last check */
    u64 write_failures;            /* how often writes began to fail */
    u32 tries;                     /* attempts to write again since the last failure */
    u64 broken_log;                /* number of the log that could not be written; 0: it was not the log */
    char refusal[STORE_REFUSAL], disk_refusal[STORE_REFUSAL], sync_refusal[STORE_REFUSAL];

    /* Pressure. */
    struct store_limits limits;
    _Atomic u32 pressure;    /* 0 … DISK_PRESSURE_MAX, as last measured … */
    _Atomic u64 stalls;      /* … and how often it has reached that */
    _Atomic u64 written;     /* bytes of all batches so far … */
    _Atomic u64 measured_at; /* … and when pressure was last measured */

    /* Sync. */
    struct worker syncer;
    _Atomic int sync; /* enum disk_sync */
    _Atomic bool dirty, sync_failed;
    _Atomic u64 syncs;
    _Atomic u64 begun, done; /* numbers of syncs: see sync_state.h. begun grows before dirty is cleared */
    struct wal_synced synced; /* the syncer's, once it runs */
    int synced_fd;
    int sync_timer, log_watch; /* wake the syncer: every second, and when a WAL file is started (inotify) */
    _Atomic u32 drops_pending; /* grows under `lock` */
    struct file_drop *drops, **drops_end; /* under `lock`; the head is being worked on */
    pthread_cond_t dropped;

    /* Space. */
    struct worker sweeper;
    struct sweep sweep[FAM_COUNT]; /* under `lock` */
    _Atomic u64 garbage[FAM_COUNT]; /* rows deleted or orphaned since the family was last swept */
    _Atomic u64 sweeps;
    _Atomic bool closing;
    pthread_mutex_t lock;

    struct filters filters;
};

struct store_session {
    struct store *store;
    rocksdb_t *db;                                 /* the store's … */
    rocksdb_column_family_handle_t *cf[FAM_COUNT]; /* … likewise: each call needs them */
    bool *failed;
    rocksdb_readoptions_t *read;
    rocksdb_writeoptions_t *write; /* NULL in a view, as all of the batch */
    bool syncs, relaxed;           /* what `write` says; store_relax */
    bool keyless;                  /* store_log_session_open */
    u64 written;                   /* bytes of its batches so far */
    rocksdb_perfcontext_t *perf;   /* of the session's thread */
    struct store_session *next, **at; /* in store.sessions or store.views */

    /* The batch. */
    rocksdb_writebatch_t *batch;
    struct buf joined; /* scratch: two parts joined */
    u32 rows;
    u32 deletes[FAM_COUNT];
    bool ranged[FAM_COUNT];  /* it deletes a range … */
    bool refilled[FAM_COUNT]; /* … and then puts something: of the last written batch, too */

    /* Of a view. */
    const rocksdb_snapshot_t *snapshot; /* NULL: not a view */
    u64 last_version;                   /* the highest version it can read */

    /* Iterators. Idle ones are pooled by family and kind, which are fixed when one is made. */
    struct store_iter *idle[FAM_COUNT][STORE_ITER_KINDS];
    struct store_iter *out;
    u64 iterators_made, iterators_reused;
    _Atomic u32 age; /* iterators made at another age are recreated before they move */

    i64 dead_ms; /* store_set_dead; under store.lock */
    char *refusal; /* store_refuses_writes: of STORE_REFUSAL bytes; NULL: there was none so far */
};

extern const char *const store_family_names[FAM_COUNT];

static inline bool store_syncs_always(const struct store *s)
{
    return atomic_load_explicit(&s->sync, memory_order_relaxed) == DISK_SYNC_ALWAYS;
}

/* Logs an error of RocksDB's and frees its text. */
void store_complain(struct store *s, const char *doing, char *err);
/* The same, and sets *failed. */
void store_read_failed(struct store_session *s, const char *doing, char *err);

/* store_options.c */
rocksdb_options_t *store_database_options(const struct rocks_options *o, const struct sizes *z);
rocksdb_options_t *store_family_options(struct store *s, enum family f, const struct rocks_options *o,
                                        const struct sizes *z, rocksdb_options_t *database);
rocksdb_cache_t *store_new_cache(u64 capacity);
struct store_limits store_limits(const struct sizes *z);

/* store_iter.c */
void store_take_back(struct store_session *s); /* returns all open iterators to the pool */

/* store_session.c */
void store_age_views(struct store *s); /* has their iterators recreated, which unpins old files */

/* store_run.c */
bool store_start(struct store *s);
void store_stop(struct store *s);
bool worker_start(struct worker *w, void *(*run)(void *), void *arg);
void worker_wake(struct worker *w);
void worker_wait(struct worker *w, int ms);
void worker_join(struct worker *w);

/* store_pressure.c */
u32 store_measure_pressure(struct store *s);          /* and stores it in s->pressure */
void store_count_written(struct store *s, size_t n);  /* bytes: measures now and then */

/* store_synced.c: which logs are synced (wal_synced.h). For the syncer only, but for the first and last. */
void store_synced_begin(struct store *s);
void store_synced_end(struct store *s);
bool store_log_begun(struct store *s); /* since the last call */
void store_seal_logs(struct store *s); /* syncs all logs but the newest, and records it */
struct wal_synced store_before_sync(struct store *s); /* what a sync that begins now will make durable … */
void store_synced_update(struct store *s, const struct wal_synced *n); /* … recorded when it is done */
bool store_synced_is_behind(struct store *s); /* something was written since */
u64 store_newest_log(struct store *s); /* its number; 0: none */

/* store_trouble.c */
void store_write_failed(struct store *s, char *err); /* logs; writes are refused from now on */
void store_wrote(struct store *s, size_t n);         /* bytes: looks at the disk now and then */
void store_look_after(struct store *s);              /* cron: does the trouble last? */
void store_trouble_info(struct store *s, struct buf *out);

/* store_space.c */
void *store_sweeper(void *store);
void store_run_drops(struct store *s, u32 n, bool synced); /* syncer: the n drops queued before its sync */
void store_await_drop(struct store *s, enum family f, bytes key);

u64 store_number(struct store *s, enum family f, const char *property); /* 0 if there is no such one */

#endif
