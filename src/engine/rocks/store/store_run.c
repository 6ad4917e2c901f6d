/* Syncing the WAL, and cron.
 *
 * `always`: each write waits for the sync. `everysec`, and relaxed sessions: the syncer syncs about once a
 * second if something was written. `no`: left to the kernel. A full WAL file is synced as soon as the next
 * one is started, and what is synced is recorded (store_synced.c). */
#include "engine/rocks/store/store_impl.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define SYNC_PERIOD_S 1

u64 store_number(struct store *s, enum family f, const char *property)
{
    uint64_t n = 0;
    return rocksdb_property_int_cf(s->db, s->cf[f], property, &n) == 0 ? n : 0;
}

u64 store_blob_bytes(struct store *s)
{
    u64 all = store_number(s, FAM_META, "rocksdb.live-blob-file-size");
    return all - MIN(all, store_number(s, FAM_META, "rocksdb.live-blob-file-garbage-size"));
}

/* -- threads --------------------------------------------------------------------------- */

bool worker_start(struct worker *w, void *(*run)(void *), void *arg)
{
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->wake < 0) return false;
    /* Signals are the loop's. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    w->running = pthread_create(&w->thread, NULL, run, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!w->running) close(w->wake);
    return w->running;
}

void worker_wake(struct worker *w)
{
    u64 one = 1;
    if (w->running && write(w->wake, &one, sizeof one) < 0) return; /* full: it is awake */
}

void worker_wait(struct worker *w, int ms)
{
    struct pollfd p = {.fd = w->wake, .events = POLLIN};
    u64 n;
    if (poll(&p, 1, ms) > 0 && read(w->wake, &n, sizeof n) < 0) return;
}

void worker_join(struct worker *w)
{
    if (!w->running) return;
    worker_wake(w);
    pthread_join(w->thread, NULL);
    close(w->wake);
    w->running = false;
}

/* -- sync ------------------------------------------------------------------------------- */

static bool sync_log(struct store *s)
{
    char *err = NULL;
    if (atomic_load_explicit(&s->filters.log_broken, memory_order_acquire)) return false;
    u64 number = atomic_fetch_add(&s->begun, 1) + 1;
    atomic_store(&s->dirty, false);
    struct wal_synced synced = store_before_sync(s);
    rocksdb_flush_wal(s->db, 1, &err);
    if (!err) {
        store_synced_update(s, &synced);
        atomic_fetch_add_explicit(&s->syncs, 1, memory_order_relaxed);
        atomic_store(&s->done, number);
        atomic_store_explicit(&s->sync_failed, false, memory_order_release);
        return true;
    }
    atomic_store_explicit(&s->dirty, true, memory_order_relaxed);
    if (!atomic_load_explicit(&s->sync_failed, memory_order_relaxed)) {
        if (s->log) log_line(s->log, LOG_WARNING, "RocksDB: can't sync its log: %s", err);
        pthread_mutex_lock(&s->trouble);
        snprintf(s->sync_refusal, sizeof s->sync_refusal,
                 "MISCONF RocksDB cannot sync its log: %s. Reads continue; see the log", err);
        pthread_mutex_unlock(&s->trouble);
        atomic_store_explicit(&s->sync_failed, true, memory_order_release);
    }
    rocksdb_free(err);
    return false;
}

bool store_sync(struct store_session *session)
{
    struct store *s = session->store;
    char *err = NULL;
    if (atomic_load_explicit(&s->filters.log_broken, memory_order_acquire)) {
        if (s->log) log_line(s->log, LOG_WARNING, "RocksDB: its log can't be synced after a failed write");
        return false;
    }
    rocksdb_flush_wal(s->db, 1, &err);
    if (LIKELY(!err)) return true;
    store_complain(s, "can't sync its log", err);
    return false;
}

/* The order of the reads matters: if `dirty` is false because a sync has taken it, that sync counts as begun
 * and not done. */
struct sync_state store_sync_state(const struct store *s)
{
    bool dirty = atomic_load(&s->dirty) || atomic_load(&s->sync_failed);
    u64 begun = atomic_load(&s->begun), done = atomic_load(&s->done);
    return (struct sync_state){.begun = begun, .done = done, .clean = !dirty && done == begun};
}

/* Syncs if a sync is due, and runs what waits for one. */
static void sync_round(struct store *s)
{
    u32 drops = atomic_load_explicit(&s->drops_pending, memory_order_acquire);
    bool written = atomic_load_explicit(&s->dirty, memory_order_acquire) || store_synced_is_behind(s);
    bool due = written && (atomic_load_explicit(&s->sync, memory_order_relaxed) != DISK_SYNC_NO ||
                           atomic_load_explicit(&s->closing, memory_order_relaxed));
    bool synced = true;
    if (due || drops || atomic_load_explicit(&s->sync_failed, memory_order_relaxed)) synced = sync_log(s);
    store_run_drops(s, drops, synced);
}

/* The period has its own timer, so that new WAL files can't delay it. */
static bool start_timer(struct store *s)
{
    struct itimerspec every = {.it_interval.tv_sec = SYNC_PERIOD_S, .it_value.tv_sec = SYNC_PERIOD_S};
    s->sync_timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return s->sync_timer >= 0 && timerfd_settime(s->sync_timer, 0, &every, NULL) == 0;
}

/* Waits for the end of the period, for the loop to wake it, or for a new WAL file; false: only the last. */
static bool await_round(struct store *s)
{
    struct pollfd p[] = {{.fd = s->syncer.wake, .events = POLLIN},
                         {.fd = s->sync_timer, .events = POLLIN},
                         {.fd = s->log_watch, .events = POLLIN}};
    u64 n;
    poll(p, ARRAY_LEN(p), -1);
    bool woken = read(s->syncer.wake, &n, sizeof n) > 0, over = read(s->sync_timer, &n, sizeof n) > 0;
    return woken || over;
}

static void *syncer(void *arg)
{
    struct store *s = arg;
    while (!atomic_load_explicit(&s->closing, memory_order_acquire)) {
        bool round = await_round(s);
        if (store_log_begun(s)) store_seal_logs(s);
        if (round) sync_round(s);
    }
    return NULL;
}

void store_set_sync(struct store *s, enum disk_sync sync)
{
    atomic_store_explicit(&s->sync, (int)sync, memory_order_relaxed);
}

bool store_start(struct store *s)
{
    return start_timer(s) && worker_start(&s->syncer, syncer, s) &&
           worker_start(&s->sweeper, store_sweeper, s);
}

void store_stop(struct store *s)
{
    atomic_store_explicit(&s->closing, true, memory_order_release);
    rocksdb_disable_manual_compaction(s->db); /* ends the sweeper's */
    worker_join(&s->sweeper);
    worker_join(&s->syncer);
    if (s->sync_timer >= 0) close(s->sync_timer);
    sync_round(s);
}

/* -- cron -------------------------------------------------------------------------------- */

void store_cron(struct store *s)
{
    atomic_store_explicit(&s->complaints, 0, memory_order_relaxed);
    store_age_views(s);
    if (!s->read_only) store_look_after(s);
}
