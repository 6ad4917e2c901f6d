/* When writes fail: a full or a broken disk. Reads continue in either case. (A backlog of flushes or
 * compactions makes no write fail: store_pressure.c.)
 *
 * A full disk. Writes are refused while less than a reserve is free, which is checked by cron and after every
 * few megabytes. If RocksDB runs into a full disk nevertheless, it flushes its memtables once there is room,
 * starts a new WAL file, and continues; cron notices that. (7.8 starts no new file if all memtables happen to
 * be empty. The next write to the old one would then fail for good, or abort the process if RocksDB was built
 * with assertions, as Debian's is. The engine writes to meta_info in each batch, so that this hardly happens;
 * nothing is written to the old file in any case.)
 *
 * A broken disk. RocksDB accepts no writes until it is opened again, because the contents of the WAL on disk
 * are unknown: the server has to be restarted. A failed write was not applied, but may be there after the
 * restart, if its record had reached the disk when the sync failed. */
#include "base/alloc.h"
#include "engine/rocks/store/store_impl.h"

#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define RESERVE_MAX (256u << 20)
#define RESERVE_SHARE 20 /* of the disk */
#define TRIES 300 /* crons in which RocksDB should have recovered */

/* -- the disk's free space --------------------------------------------------------------- */

static void say_low(struct store *s, bool low)
{
    atomic_store_explicit(&s->disk_low, low, memory_order_relaxed);
    snprintf(s->disk_refusal, sizeof s->disk_refusal,
             "MISCONF RocksDB cannot write: the disk is full (%llu MB are kept free). Reads continue; "
             "free disk space, and writes will resume",
             (unsigned long long)(atomic_load_explicit(&s->reserve, memory_order_relaxed) >> 20));
    if (s->log) log_line(s->log, LOG_WARNING, low ? "The disk of %s is full: writes are refused"
                                                  : "The disk of %s has room again: writes continue", s->dir);
}

static bool disk_low(const struct store *s)
{
    return atomic_load_explicit(&s->disk_low, memory_order_relaxed);
}

/* Under `trouble`. */
static void look_at_disk(struct store *s)
{
    struct statvfs v;
    atomic_store_explicit(&s->unlooked, 0, memory_order_relaxed);
    if (statvfs(s->dir, &v) != 0) return;
    u64 total = (u64)v.f_blocks * v.f_frsize, free = (u64)v.f_bavail * v.f_frsize;
    u64 reserve = MIN(total / RESERVE_SHARE, RESERVE_MAX);
    atomic_store_explicit(&s->reserve, reserve, memory_order_relaxed);
    /* Hysteresis: writes resume only when half as much again is free. */
    bool low = free < (disk_low(s) ? reserve + reserve / 2 : reserve);
    if (low != disk_low(s)) say_low(s, low);
}

void store_wrote(struct store *s, size_t n)
{
    u64 unlooked = atomic_fetch_add_explicit(&s->unlooked, n, memory_order_relaxed) + n;
    if (LIKELY(unlooked <= atomic_load_explicit(&s->reserve, memory_order_relaxed) / 16)) return;
    pthread_mutex_lock(&s->trouble);
    look_at_disk(s);
    pthread_mutex_unlock(&s->trouble);
}

/* -- failures -------------------------------------------------------------------------------- */

static bool write_failed(const struct store *s)
{
    return atomic_load_explicit(&s->write_failed, memory_order_relaxed);
}

/* The number of the log that an error is about ("… /000064.log: …"); 0: it is about something else. It need
 * not be the newest: RocksDB may have recovered and begun another before the writer notes its failure. */
static u64 trouble_log_of(const char *err)
{
    const char *end = strstr(err, ".log"), *p = end;
    u64 number = 0;
    while (p && p > err && p[-1] >= '0' && p[-1] <= '9') p--;
    for (; p && p < end; p++) number = number * 10 + (u64)(*p - '0');
    return number;
}

/* Under `trouble`. */
static void store_record_failure(struct store *s, const char *err)
{
    s->broken_log = MAX(s->broken_log, trouble_log_of(err));
    atomic_store_explicit(&s->filters.log_broken, true, memory_order_release);
    s->write_failures++;
    s->tries = 0;
    snprintf(s->refusal, sizeof s->refusal, "MISCONF RocksDB cannot write: %.300s. Reads continue; %s", err,
             strstr(err, "No space") ? "free disk space, and writes will resume"
                                     : "see the log, and restart the server when the disk is well");
    atomic_store_explicit(&s->write_failed, true, memory_order_relaxed);
}

void store_write_failed(struct store *s, char *err)
{
    pthread_mutex_lock(&s->trouble);
    store_record_failure(s, err);
    pthread_mutex_unlock(&s->trouble);
    store_complain(s, "can't write", err);
}

/* Tries an empty write, which fails like any other would. Returns RocksDB's error, or NULL. */
static char *write_nothing(struct store *s)
{
    char *err = NULL;
    rocksdb_writebatch_t *nothing = rocksdb_writebatch_create();
    rocksdb_writeoptions_t *o = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(o, store_syncs_always(s));
    rocksdb_write(s->db, o, nothing, &err);
    rocksdb_writeoptions_destroy(o);
    rocksdb_writebatch_destroy(nothing);
    return err;
}

static void try_again(struct store *s)
{
    if (s->broken_log && store_newest_log(s) <= s->broken_log) {
        if (++s->tries == TRIES)
            snprintf(s->refusal, sizeof s->refusal,
                     "MISCONF RocksDB cannot continue its log. Reads continue; restart the server");
        return;
    }
    char *err = write_nothing(s);
    if (err) {
        s->broken_log = MAX(s->broken_log, trouble_log_of(err));
        rocksdb_free(err);
        return;
    }
    atomic_store_explicit(&s->write_failed, false, memory_order_relaxed);
    s->broken_log = 0;
    atomic_store_explicit(&s->filters.log_broken, false, memory_order_release);
    if (s->log) log_line(s->log, LOG_WARNING, "RocksDB takes writes again");
}

/* While clients that write are held back, no write would notice that flushes fail: try one. */
static void try_while_full(struct store *s)
{
    char *err = store_pressure(s, false) == DISK_PRESSURE_MAX ? write_nothing(s) : NULL;
    if (LIKELY(!err)) return;
    store_record_failure(s, err);
    store_complain(s, "can't write", err);
}

void store_look_after(struct store *s)
{
    if (store_pressure(s, false)) store_measure_pressure(s);
    pthread_mutex_lock(&s->trouble);
    look_at_disk(s);
    if (write_failed(s) && !disk_low(s)) try_again(s);
    else if (!write_failed(s)) try_while_full(s);
    pthread_mutex_unlock(&s->trouble);
}

const char *store_refuses_writes(struct store_session *session)
{
    struct store *s = session->store;
    bool unsynced = atomic_load_explicit(&s->sync_failed, memory_order_acquire);
    if (LIKELY(!disk_low(s) && !write_failed(s) && !unsynced)) return NULL;
    pthread_mutex_lock(&s->trouble);
    const char *text = disk_low(s) ? s->disk_refusal : write_failed(s) ? s->refusal : s->sync_refusal;
    if (!session->refusal) session->refusal = mem_alloc(STORE_REFUSAL);
    memcpy(session->refusal, text, STORE_REFUSAL);
    pthread_mutex_unlock(&s->trouble);
    return session->refusal;
}

void store_trouble_info(struct store *s, struct buf *out)
{
    pthread_mutex_lock(&s->trouble);
    buf_printf(out, "write_failing:%d\r\ndisk_full:%d\r\ndisk_reserve_bytes:%llu\r\nwrite_failures:%llu\r\n",
               write_failed(s), disk_low(s),
               (unsigned long long)atomic_load_explicit(&s->reserve, memory_order_relaxed),
               (unsigned long long)s->write_failures);
    pthread_mutex_unlock(&s->trouble);
}
