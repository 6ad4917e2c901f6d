/* Invariants: the file holds whole blocks up to at.size. Anything after that is a part of a failed write, and
 * the next attempt, which is never shorter, overwrites it. At most one sync is in flight; it has its own
 * descriptor, so that the file may be closed meanwhile. */
#include "persist/aof_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "persist/aof_block.h"
#include "persist/disk_io.h"

#define BLOCK_ENOUGH \
    (16u << 20) /* a longer block gets no further record: readers hold it in memory */
#define BUF_KEEP (1u << 20)
#define RETRY_MS 1000
#define SYNC_AGE_MS \
    500 /* everysec: age of the oldest unsynced byte at which a sync starts; the sync takes time as well */
#define SYNC_LATE_MS 1000
#define SETTLE_BYTES (4u << 20) /* the most a synchronous sync may have to write */

/* -- increments ------------------------------------------------------------------------------------ */

static bool open_path(struct aof_increment *inc, const char *folder, const char *name, int flags)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    inc->fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0644);
    snprintf(inc->name, sizeof inc->name, "%s", name);
    return inc->fd >= 0;
}

bool aof_increment_create(struct aof_increment *inc, const char *folder, const char *name, u64 seq,
                          u64 before)
{
    char line[AOF_LINE];
    *inc = (struct aof_increment){.seq = seq, .size = AOF_LINE};
    if (!open_path(inc, folder, name, O_CREAT | O_TRUNC)) return false;
    aof_line_print(line, AOF_TAG_INCREMENT, seq, before);
    inc->chain = aof_chain_start(line);
    if (disk_write(inc->fd, bytes_of(line, AOF_LINE)) && disk_sync(inc->fd)) return true;
    int error = errno;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
    close(inc->fd);
    inc->fd = -1;
    errno = error;
    return false;
}

bool aof_increment_open(struct aof_increment *inc, const char *folder, const char *name, u64 seq,
                        u64 size, u64 chain)
{
    struct stat st;
    *inc = (struct aof_increment){.seq = seq, .size = size, .chain = chain};
    if (!open_path(inc, folder, name, 0)) return false;
    bool ok = fstat(inc->fd, &st) == 0;
    if (ok && (u64)st.st_size != size) {
        errno = ESTALE; /* another process writes to it */
        ok = false;
    }
    /* Data a killed server wrote but did not sync counts as written from now on. */
    ok = ok && disk_sync(inc->fd);
    if (ok) return true;
    int error = errno;
    close(inc->fd);
    inc->fd = -1;
    errno = error;
    return false;
}

/* -- failing --------------------------------------------------------------------------------------- */

#define REFUSAL "MISCONF Errors writing to the AOF file: "

static void fail_write(struct aof_log *l, int error)
{
    if (!l->write_failed)
        log_line(l->log, LOG_WARNING,
                 "Error writing to the AOF file %s: %s. Writes are refused until it works "
                 "again; %zu bytes wait.",
                 l->at.name, strerror(error), l->buf.n);
    l->write_failed = true;
    l->retry_ms = l->now_ms + RETRY_MS;
    if (!l->sync_failed) snprintf(l->refusal, sizeof l->refusal, REFUSAL "%s", strerror(error));
}

static void write_works(struct aof_log *l)
{
    if (!l->write_failed) return;
    l->write_failed = false;
    log_line(l->log, LOG_WARNING, "AOF write error looks solved. The server can write again.");
}

void aof_log_distrust(struct aof_log *l, int error, const char *what)
{
    log_line(
        l->log, LOG_WARNING,
        "%s failed: %s. Part of the append only file may be lost on disk, and nobody "
        "can tell which: writes are refused until BGREWRITEAOF has written all data to new files.",
        what, strerror(error));
    l->sync_failed = true;
    l->failed_seq = l->at.seq;
    snprintf(l->refusal, sizeof l->refusal, REFUSAL "%s (%s failed; BGREWRITEAOF helps)",
             strerror(error), what);
}

void aof_log_heal(struct aof_log *l)
{
    if (!l->sync_failed || l->at.seq <= l->failed_seq) return;
    l->sync_failed = false;
    log_line(l->log, LOG_WARNING,
             "All data is in new append only files: writes are accepted again.");
}

const char *aof_log_refuses(const struct aof_log *l)
{
    return l->write_failed || l->sync_failed ? l->refusal : NULL;
}

/* -- records become blocks ------------------------------------------------------------------------- */

static void open_block(struct aof_log *l)
{
    l->open = true;
    l->block_at = l->buf.n;
    buf_reserve(&l->buf, AOF_LINE);
    l->buf.n += AOF_LINE;
}

static void close_block(struct aof_log *l)
{
    if (!l->open) return;
    size_t from = l->block_at + AOF_LINE;
    bytes block = bytes_of(l->buf.p + from, l->buf.n - from);
    CHECK(block.n <= AOF_BLOCK_MAX);
    l->chain = aof_chain_next(l->chain, block);
    aof_line_print(l->buf.p + l->block_at, AOF_TAG_BLOCK, block.n, l->chain);
    l->open = false;
}

/* A new second begins a new block, so that a file cut there ends with a whole one. */
static void stamp(struct aof_log *l, i64 now_ms)
{
    i64 now_s = now_ms / 1000;
    if (!l->timestamps || now_s == l->stamp_s) return;
    l->stamp_s = now_s;
    close_block(l);
    open_block(l);
    buf_printf(&l->buf, "#TS:%lld\r\n", (long long)now_s);
}

/* -- syncing --------------------------------------------------------------------------------------- */

struct aof_sync_job {
    uv_work_t work;
    uv_sem_t over;
    struct aof_log *owner; /* NULL: cancelled */
    i64 since_ms;          /* the oldest byte it syncs was written then */
    u64 bytes;             /* how many bytes it syncs */
    u64 number;            /* of the sync */
    int fd, error;
    bool late;
};

static int sync_data(int fd)
{
    int result;
    do result = fdatasync(fd);
    while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : errno;
}

static void aof_log_in_worker(uv_work_t *work)
{
    struct aof_sync_job *job = work->data;
    job->error = sync_data(job->fd);
    uv_sem_post(&job->over);
}

static void take_result(struct aof_sync_job *job)
{
    struct aof_log *l = job->owner;
    l->job = NULL;
    job->owner = NULL;
    if (job->error) aof_log_distrust(l, job->error, "fdatasync");
    else l->done = job->number;
}

static void aof_log_on_loop(uv_work_t *work, int status UNUSED)
{
    struct aof_sync_job *job = work->data;
    if (job->owner) take_result(job);
    close(job->fd);
    uv_sem_destroy(&job->over);
    mem_free(job);
}

/* Waits for the sync in flight, or cancels it if it has not begun. */
static void await_job(struct aof_log *l)
{
    struct aof_sync_job *job = l->job;
    if (!job) return;
    if (uv_cancel((uv_req_t *)&job->work) == 0) {
        l->unsynced_ms = job->since_ms;
        l->unsynced += job->bytes;
        l->job = NULL;
        job->owner = NULL;
    } else {
        uv_sem_wait(&job->over);
        take_result(job);
    }
}

static void clear_unsynced(struct aof_log *l)
{
    l->unsynced_ms = 0;
    l->unsynced = 0;
}

static bool sync_now(struct aof_log *l)
{
    await_job(l);
    if (l->sync_failed) return false;
    if (!l->unsynced_ms) return true;
    u64 number = ++l->begun;
    int error = sync_data(l->at.fd);
    if (error) {
        aof_log_distrust(l, error, "fdatasync");
        return false;
    }
    clear_unsynced(l);
    l->done = number;
    return true;
}

static void sync_soon(struct aof_log *l)
{
    int fd = l->loop ? fcntl(l->at.fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (fd < 0) {
        (void)sync_now(l);
        return;
    }
    struct aof_sync_job *job = mem_alloc(sizeof *job);
    *job = (struct aof_sync_job){
        .owner = l, .since_ms = l->unsynced_ms, .bytes = l->unsynced, .number = ++l->begun, .fd = fd,
        .work.data = job};
    CHECK(uv_sem_init(&job->over, 0) == 0);
    CHECK(uv_queue_work(l->loop, &job->work, aof_log_in_worker, aof_log_on_loop) == 0);
    l->job = job;
    clear_unsynced(l);
}

/* -- writing --------------------------------------------------------------------------------------- */

static bool write_at(int fd, bytes b, u64 offset)
{
    while (b.n) {
        ssize_t n = pwrite(fd, b.p, b.n, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC;
        if (n <= 0) return false;
        b = bytes_of(b.p + n, b.n - (size_t)n);
        offset += (u64)n;
    }
    return true;
}

static void written(struct aof_log *l, size_t n)
{
    l->at.size += n;
    l->unsynced += n;
    if (!l->unsynced_ms) l->unsynced_ms = MAX(l->now_ms, 1);
}

static bool write_out(struct aof_log *l)
{
    close_block(l);
    if (!l->buf.n) return true;
    if (!write_at(l->at.fd, buf_bytes(&l->buf), l->at.size)) {
        int error = errno;
        /* Frees the space of the partial write; if that fails, the next attempt overwrites it. */
        if (ftruncate(l->at.fd, (off_t)l->at.size) != 0)
            log_line(l->log, LOG_WARNING,
                     "Could not remove a partial write from the AOF file %s: %s", l->at.name,
                     strerror(errno));
        fail_write(l, error);
        return false;
    }
    l->at.chain = l->chain;
    written(l, l->buf.n);
    buf_clear(&l->buf);
    if (l->buf.cap > BUF_KEEP) buf_release(&l->buf);
    write_works(l);
    return true;
}

/* Writes a long record straight to the file as a block of its own, because another copy would delay all
 * clients. False: it could not be written completely, and is to be appended like any other. */
static bool write_through(struct aof_log *l, const bytes part[JOURNAL_PARTS], size_t n)
{
    char line[AOF_LINE];
    if (l->at.fd < 0 || l->write_failed || !write_out(l)) return false;
    u64 chain = aof_chain_next_parts(l->chain, part, JOURNAL_PARTS), at = l->at.size + AOF_LINE;
    aof_line_print(line, AOF_TAG_BLOCK, n, chain);
    if (!write_at(l->at.fd, bytes_of(line, AOF_LINE), l->at.size)) return false;
    for (int i = 0; i < JOURNAL_PARTS; at += part[i++].n)
        if (!write_at(l->at.fd, part[i], at)) return false;
    l->at.chain = l->chain = chain;
    written(l, AOF_LINE + n);
    return true;
}

static COLD void append_long(struct aof_log *l, const struct journal_record *record)
{
    bytes part[JOURNAL_PARTS];
    journal_parts(record, buf_bytes(&record->resp), part);
    if (write_through(l, part, record->resp.n + record->lent.n)) return;
    if (!l->open) open_block(l);
    for (int i = 0; i < JOURNAL_PARTS; i++) buf_append_bytes(&l->buf, part[i]);
    close_block(l);
}

static void append(struct journal_sink *sink, const struct journal_record *record)
{
    struct aof_log *l = (struct aof_log *)(void *)sink;
    bytes resp = buf_bytes(&record->resp);
    if (UNLIKELY(journal_is_message(record))) return;
    stamp(l, record->now_ms);
    l->fresh = true;
    if (UNLIKELY(record->lent.n || resp.n > BLOCK_ENOUGH)) {
        append_long(l, record);
        return;
    }
    if (!l->open) open_block(l);
    buf_append_bytes(&l->buf, resp);
    if (UNLIKELY(l->buf.n - l->block_at > BLOCK_ENOUGH)) close_block(l);
}

bool aof_log_flush(struct aof_log *l, i64 now_ms)
{
    bool fresh = l->fresh;
    l->now_ms = now_ms;
    l->fresh = false;
    if (LIKELY(!fresh)) return true;
    if (l->write_failed && now_ms < l->retry_ms) return false; /* aof_log_cron tries again */
    if (!write_out(l)) return false;
    if (l->sync == AOF_SYNC_ALWAYS) (void)sync_now(l);
    return !l->sync_failed;
}

static void note_late(struct aof_log *l, i64 now_ms)
{
    struct aof_sync_job *job = l->job;
    i64 age = now_ms - job->since_ms;
    if (job->late || age <= SYNC_LATE_MS) return;
    job->late = true;
    l->delayed++;
    log_line(l->log, LOG_NOTICE,
             "Asynchronous AOF fsync is taking too long (disk is busy?). What was "
             "written in the last %lld ms is not on disk yet.",
             (long long)age);
}

void aof_log_cron(struct aof_log *l, i64 now_ms)
{
    if (l->at.fd < 0) return;
    l->now_ms = now_ms;
    if (l->write_failed && now_ms >= l->retry_ms) (void)write_out(l);
    if (l->job) note_late(l, now_ms);
    if (!l->unsynced_ms || l->sync_failed || l->sync == AOF_SYNC_NO) return;
    if (l->sync == AOF_SYNC_ALWAYS) (void)sync_now(l);
    else if (!l->job && now_ms - l->unsynced_ms >= SYNC_AGE_MS) sync_soon(l);
}

bool aof_log_settle(struct aof_log *l) { return write_out(l) && sync_now(l); }

bool aof_log_nearly_settled(struct aof_log *l)
{
    if (l->sync_failed || l->at.fd < 0) return true;
    if (!l->job && l->unsynced > SETTLE_BYTES) sync_soon(l);
    return !l->job;
}

struct sync_state aof_log_sync_state(const struct aof_log *l)
{
    return (struct sync_state){
        .begun = l->begun,
        .done = l->done,
        .clean = !l->buf.n && !l->unsynced_ms && !l->job && !l->sync_failed,
        .buffered = l->buf.n > 0,
    };
}

/* -- opening and closing --------------------------------------------------------------------------- */

void aof_log_init(struct aof_log *l, const struct log *log, uv_loop_t *loop, enum aof_sync sync,
                  bool timestamps)
{
    *l = (struct aof_log){.sink.append = append,
                          .log = log,
                          .loop = loop,
                          .sync = sync,
                          .timestamps = timestamps,
                          .at.fd = -1};
}

static void aof_log_close_file(struct aof_log *l)
{
    if (l->job) { /* let it run: it has its own descriptor, and its result no longer matters */
        l->job->owner = NULL;
        l->job = NULL;
    }
    if (l->at.fd >= 0) close(l->at.fd);
    l->at.fd = -1;
}

void aof_log_release(struct aof_log *l)
{
    aof_log_close_file(l);
    buf_release(&l->buf);
    l->open = l->fresh = false;
}

void aof_log_switch(struct aof_log *l, const struct aof_increment *inc)
{
    CHECK(l->buf.n == 0 && !l->open);
    aof_log_close_file(l);
    l->at = *inc;
    l->chain = inc->chain;
    clear_unsynced(l);
    l->stamp_s = 0;
    l->write_failed = false;
}
