/* When writes fail: a full disk, a broken one. Reads continue in either case. (A backlog of flushes or
 * compactions makes no write fail: store_pressure.c.)
 *
 * A full disk. Writes are refused while less than a reserve is free, which is looked at by cron and
 * after every few megabytes. If RocksDB comes to feel it nevertheless, it writes out its memtables once
 * there is room, begins a new log, and goes on; cron finds that out. (7.8 begins no new log if all
 * memtables happen to be empty, and the next write to the old one would fail for good, or end the
 * process if RocksDB was built with its assertions, as Debian's is. The engine writes to meta_info in
 * each batch, so that this hardly happens; nothing is written to the old log in any case.)
 *
 * A broken disk. RocksDB takes no writes then until it is opened anew, because what the log on the
 * disk holds is not known: the server has to be restarted. A write that failed has not been applied;
 * only after a restart can it turn up, if its record had reached the disk when the sync failed. */
#include "engine/rocks/store/store_impl.h"

#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define RESERVE_MAX (256u << 20)
#define RESERVE_SHARE 20 /* of the disk */
#define TRIES 300 /* crons in which RocksDB should have recovered */

/* -- the disk's free space --------------------------------------------------------------- */

static void look_at_disk(struct store *s)
{
    struct statvfs v;
    s->unlooked = 0;
    if (statvfs(s->dir, &v) != 0) return;
    u64 total = (u64)v.f_blocks * v.f_frsize, free = (u64)v.f_bavail * v.f_frsize;
    s->reserve = MIN(total / RESERVE_SHARE, RESERVE_MAX);
    /* Not to and fro: what resumes must find half as much again. */
    bool low = free < (s->disk_low ? s->reserve + s->reserve / 2 : s->reserve);
    if (low == s->disk_low) return;
    s->disk_low = low;
    snprintf(s->disk_refusal, sizeof s->disk_refusal,
             "MISCONF RocksDB cannot write: the disk is full (%llu MB are kept free). Reads go on; "
             "free disk space, and writes will resume",
             (unsigned long long)(s->reserve >> 20));
    if (s->log) log_line(s->log, LOG_WARNING, low ? "The disk of %s is full: writes are refused"
                                                  : "The disk of %s has room again: writes go on", s->dir);
}

void store_wrote(struct store *s, size_t n)
{
    s->unlooked += n;
    if (UNLIKELY(s->unlooked > s->reserve / 16)) look_at_disk(s);
}

/* -- failures -------------------------------------------------------------------------------- */

void store_write_failed(struct store *s, char *err)
{
    if (strstr(err, ".log")) s->broken_log = store_newest_log(s);
    atomic_store_explicit(&s->filters.log_broken, true, memory_order_release);
    s->write_failures++;
    s->write_failed = true;
    s->tries = 0;
    snprintf(s->refusal, sizeof s->refusal, "MISCONF RocksDB cannot write: %.300s. Reads go on; %s", err,
             strstr(err, "No space") ? "free disk space, and writes will resume"
                                     : "see the log, and restart the server when the disk is well");
    store_complain(s, "can't write", err);
}

/* An empty write is refused as any other would be. RocksDB's error, or NULL. */
static char *write_nothing(struct store *s)
{
    char *err = NULL;
    rocksdb_writebatch_t *nothing = rocksdb_writebatch_create();
    rocksdb_write(s->db, s->write, nothing, &err);
    rocksdb_writebatch_destroy(nothing);
    return err;
}

static void try_again(struct store *s)
{
    if (s->broken_log && store_newest_log(s) <= s->broken_log) {
        if (++s->tries == TRIES)
            snprintf(s->refusal, sizeof s->refusal,
                     "MISCONF RocksDB cannot go on with its log. Reads go on; restart the server");
        return;
    }
    char *err = write_nothing(s);
    if (err) {
        if (strstr(err, ".log")) s->broken_log = store_newest_log(s);
        rocksdb_free(err);
        return;
    }
    s->write_failed = false;
    s->broken_log = 0;
    atomic_store_explicit(&s->filters.log_broken, false, memory_order_release);
    if (s->log) log_line(s->log, LOG_WARNING, "RocksDB takes writes again");
}

/* While writers wait, no write would notice that flushes fail. */
static void try_while_full(struct store *s)
{
    char *err = s->pressure == DISK_PRESSURE_MAX ? write_nothing(s) : NULL;
    if (UNLIKELY(err != NULL)) store_write_failed(s, err);
}

void store_look_after(struct store *s)
{
    look_at_disk(s);
    if (s->pressure) store_measure_pressure(s);
    if (s->write_failed && !s->disk_low) try_again(s);
    else if (!s->write_failed) try_while_full(s);
}

const char *store_refuses_writes(struct store *s)
{
    if (UNLIKELY(s->disk_low)) return s->disk_refusal;
    if (UNLIKELY(s->write_failed)) return s->refusal;
    if (LIKELY(!atomic_load_explicit(&s->sync_failed, memory_order_acquire))) return NULL;
    pthread_mutex_lock(&s->lock);
    memcpy(s->refusal, s->sync_refusal, sizeof s->refusal);
    pthread_mutex_unlock(&s->lock);
    return s->refusal;
}
