/* Keeps mayfly-synced (wal_synced.h) up to date, and syncs a WAL file when the next one is started.
 *
 * RocksDB starts a new WAL file when a memtable is full. The old one is synced by the flush of that memtable,
 * which may come late; until then the kernel may write the new file first, and after a power cut the new one
 * may be there without the old one. So the syncer is woken when a file appears and syncs the older ones at
 * once, whatever appendfsync says. That is no extra work: the flush finds it done. Records written to the new
 * file meanwhile are recognized by mayfly-synced, and not replayed across the gap. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/rocks/store/store_impl.h"
#include "engine/rocks/wal/wal_manifest.h"

/* -- logs in the folder ------------------------------------------------------------------------- */

/* The number in the name of a log; 0: it is not a log. */
static u64 log_number(const char *name)
{
    char *end;
    u64 n = strtoull(name, &end, 10);
    return end != name && strcmp(end, ".log") == 0 ? n : 0;
}

/* The lowest number of a log above one, and the highest of all. */
static void find_logs(struct store *s, u64 above, u64 *next, u64 *newest)
{
    DIR *d = opendir(s->dir);
    *next = UINT64_MAX;
    *newest = 0;
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        u64 n = log_number(e->d_name);
        *newest = MAX(*newest, n);
        if (n > above) *next = MIN(*next, n);
    }
    closedir(d);
}

static u64 oldest_above(struct store *s, u64 above)
{
    u64 next, newest;
    find_logs(s, above, &next, &newest);
    return next;
}

u64 store_newest_log(struct store *s)
{
    u64 next, newest;
    find_logs(s, 0, &next, &newest);
    return newest;
}

static int open_log(struct store *s, u64 number)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%06llu.log", s->dir, (unsigned long long)number);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static u64 store_log_size(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 ? (u64)st.st_size : 0;
}

static bool store_sync_folder(struct store *s)
{
    int fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0) close(fd);
    return ok;
}

/* -- mayfly-synced ------------------------------------------------------------------------------------ */

static void synced_write(struct store *s)
{
    s->synced.manifest = wal_manifest_current(s->dir);
    if (s->synced_fd >= 0 && wal_synced_write(s->synced_fd, &s->synced)) return;
    if (s->synced_fd >= 0) close(s->synced_fd);
    s->synced_fd = -1; /* the old contents are still true, they only promise less */
}

void store_synced_begin(struct store *s)
{
    u64 newest = store_newest_log(s), sequence = rocksdb_get_latest_sequence_number(s->db);
    s->synced = (struct wal_synced){
        .first_log = newest, .before = sequence, .log = newest, .sequence = sequence};
    s->synced_fd = wal_synced_open(s->dir);
    synced_write(s);
    bool kept = s->synced_fd >= 0 && fdatasync(s->synced_fd) == 0 && store_sync_folder(s);
    if (!kept && s->log) log_line(s->log, LOG_WARNING, "Can't write %s/" WAL_SYNCED_NAME, s->dir);
    s->log_watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (s->log_watch >= 0 && inotify_add_watch(s->log_watch, s->dir, IN_CREATE) < 0) {
        close(s->log_watch);
        s->log_watch = -1; /* the next sync is within a second */
    }
}

void store_synced_end(struct store *s)
{
    if (s->synced_fd >= 0) close(s->synced_fd);
    if (s->log_watch >= 0) close(s->log_watch);
    s->synced_fd = s->log_watch = -1;
}

bool store_synced_is_behind(struct store *s)
{
    return rocksdb_get_latest_sequence_number(s->db) != s->synced.sequence;
}

/* The order matters: the file with the last sequence number is not newer than the newest one found after it,
 * and its contents by now are covered by a sync that begins afterwards. */
struct wal_synced store_before_sync(struct store *s)
{
    struct wal_synced n = s->synced;
    n.sequence = rocksdb_get_latest_sequence_number(s->db);
    n.log = store_newest_log(s);
    int fd = open_log(s, n.log);
    n.size = fd >= 0 ? store_log_size(fd) : 0;
    if (fd >= 0) close(fd);
    return n;
}

void store_synced_update(struct store *s, const struct wal_synced *n)
{
    s->synced = *n;
    synced_write(s);
}

/* -- logs that are complete ------------------------------------------------------------------------ */

bool store_log_begun(struct store *s)
{
    _Alignas(struct inotify_event) char events[4096];
    bool begun = false;
    for (ssize_t n; s->log_watch >= 0 && (n = read(s->log_watch, events, sizeof events)) > 0;) {
        for (const char *p = events; p < events + n;) {
            const struct inotify_event *e = (const void *)p;
            begun |= e->len > 0 && log_number(e->name) > 0;
            p += sizeof *e + e->len;
        }
    }
    return begun;
}

/* Syncs the WAL files numbered [from, below), the oldest first, so that after a power cut none is there
 * without those before it. A file that is gone needs no sync: its contents are in tables. */
static bool sync_logs(struct store *s, u64 from, u64 below, struct wal_synced *n)
{
    for (u64 log = from; (log = oldest_above(s, log)) < below;) {
        int fd = open_log(s, log);
        if (fd < 0) continue;
        bool ok = fdatasync(fd) == 0;
        n->sealed_log = log;
        n->sealed_size = store_log_size(fd);
        close(fd);
        if (!ok) return false;
    }
    return true;
}

void store_seal_logs(struct store *s)
{
    if (atomic_load_explicit(&s->filters.log_broken, memory_order_acquire)) return;
    struct wal_synced n = s->synced;
    n.log = store_newest_log(s);
    n.size = 0;
    /* If a sync fails, the flush does the same and reports it. */
    if (sync_logs(s, s->synced.sealed_log, n.log, &n) && store_sync_folder(s)) store_synced_update(s, &n);
}
