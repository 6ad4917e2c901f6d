/* Full syncs: the data of one moment for all replicas that wait for it, written by the snapshot job
 * (snapshot.c).
 *
 * - Diskless (repl-diskless-sync, and all waiting replicas know the framing): the saver writes into a stream
 *   in which every replica has a cursor. It pauses while the slowest is far behind.
 * - With a disk: into a file that is sent when it is complete. The file is opened and unlinked at once, so
 *   that nothing remains whatever happens.
 *
 * The moment lies between ticks, when everything is published: changes before it are in the data, changes
 * after it come after the replicas' cursors in the server's stream. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "repl/primary.h"

#define BEHIND_MAX (4u << 20)  /* bytes the slowest replica may be behind before the saver pauses */
#define PIECE_BYTES (64u << 10)

static i64 primary_sync_now_s(void) { return clock_mono_ms() / 1000; }

/* -- those who receive it -------------------------------------------------------------------------------- */

static void sync_free(struct server *s, struct sync *y)
{
    repl_stream_release(&y->rdb);
    if (y->fd >= 0) disk_close_later(&s->loop, y->fd);
    mem_free(y->path);
    mem_free(y);
}

/* The replica no longer needs the data. */
static void primary_sync_let_go(struct replica *r)
{
    struct sync *y = r->sync;
    repl_stream_close(&y->rdb, &r->rdb);
    buf_release(&r->piece);
    r->sync = NULL;
    if (--y->users == 0 && !y->working) sync_free(r->server, y);
}

void sync_leave(struct replica *r)
{
    struct sync *y = r->sync;
    struct server *s = r->server;
    if (!y) return;
    bool last = y->users == 1 && y->working;
    primary_sync_let_go(r);
    if (!last) return;
    log_line(&s->log, LOG_NOTICE, "All replicas have left: the full sync is given up");
    snapshot_kill(s);
}

static void tell_position(struct replica *r, u64 position)
{
    const char *id = r->server->repl.stream.id;
    struct reply out = conn_reply(r->conn);
    if (!r->old) buf_printf(out.out, "+FULLRESYNC %s %llu\r\n", id, (unsigned long long)position);
}

static void primary_sync_join(struct replica *r, struct sync *y)
{
    tell_position(r, y->position);
    y->users++;
    r->sync = y;
    r->state = REPLICA_RECEIVES;
    r->acknowledged = 0;
    r->file_at = 0;
    r->piece_sent = 0;
    r->progress_s = 0;
    if (!r->rdb_only) repl_stream_open(&r->server->repl.stream, &r->live, y->position);
    if (!y->disk) repl_stream_open(&y->rdb, &r->rdb, 0);
}

/* The kernel has taken all of the data. */
static void received(struct replica *r)
{
    bool disk = r->sync->disk;
    struct replica_name name = replica_name(r);
    primary_sync_let_go(r);
    if (r->rdb_only) {
        log_line(&r->server->log, LOG_NOTICE,
                 "RDB transfer completed, rdb only replica (%s) should be disconnected asap", name.text);
        r->state = REPLICA_DONE;
        conn_close(r->conn);
        return;
    }
    if (!disk)
        log_line(&r->server->log, LOG_NOTICE, "Streamed replica with %s with socket succeeded. Waiting for "
                                              "REPLCONF ACK from replica to enable streaming", name.text);
    replica_online(r, disk);
}

/* -- what is sent ---------------------------------------------------------------------------------------- */

static bytes peek_file(struct replica *r)
{
    struct sync *y = r->sync;
    if (y->fd < 0) return (bytes){0};
    if (r->piece_sent == r->piece.n) {
        size_t want = (size_t)MIN(y->size - r->file_at, PIECE_BYTES);
        buf_clear(&r->piece);
        r->piece_sent = 0;
        ssize_t n = pread(y->fd, buf_reserve(&r->piece, want), want, (off_t)r->file_at);
        if (n <= 0) {
            log_line(&r->server->log, LOG_WARNING, "Read error sending DB to replica: %s",
                     n ? strerror(errno) : "premature EOF");
            conn_close(r->conn);
            return (bytes){0};
        }
        r->piece.n = (size_t)n;
        r->file_at += (size_t)n;
    }
    return bytes_of(r->piece.p + r->piece_sent, r->piece.n - r->piece_sent);
}

/* A replica that has been sent everything generated so far is not timed out for its silence. */
bytes sync_peek(struct replica *r)
{
    bytes b = r->sync->disk ? peek_file(r) : repl_stream_peek(&r->sync->rdb, &r->rdb);
    if (!b.n) r->progress_s = 0;
    else if (!r->progress_s) r->progress_s = primary_sync_now_s();
    return b;
}

void sync_sent(struct replica *r, size_t n)
{
    struct sync *y = r->sync;
    r->progress_s = primary_sync_now_s();
    if (y->disk) {
        r->piece_sent += n;
        if (r->file_at == y->size && r->piece_sent == r->piece.n) received(r);
    } else {
        repl_stream_move(&y->rdb, &r->rdb, n);
        repl_stream_trim(&y->rdb, 0);
        if (y->complete && r->rdb.at == y->rdb.end) received(r);
    }
}

/* -- when one begins ------------------------------------------------------------------------------------- */

struct queue {
    u32 waiting;
    bool all_eof;
    i64 longest_ms;
};

static struct queue look_at_queue(const struct server *s)
{
    struct queue q = {.all_eof = true};
    i64 now_ms = clock_mono_ms();
    for (const struct replica *r = s->repl.replicas; r; r = r->next) {
        if (r->state != REPLICA_WAITS || r->conn->closing) continue;
        q.waiting++;
        q.all_eof &= r->eof;
        q.longest_ms = MAX(q.longest_ms, now_ms - r->waits_since_ms);
    }
    return q;
}

/* A diskless sync waits for repl-diskless-sync-delay, so that more replicas can share it; any other begins at
 * once. */
static bool is_time(const struct server *s, const struct queue *q)
{
    const struct config *c = &s->config;
    if (!q->waiting) return false;
    if (!c->repl_diskless_sync || !q->all_eof) return true;
    if (c->repl_diskless_sync_max_replicas && q->waiting >= c->repl_diskless_sync_max_replicas) return true;
    return q->longest_ms >= c->repl_diskless_sync_delay * 1000;
}

void sync_cron(struct server *s)
{
    struct queue q = look_at_queue(s);
    if (s->persist.job != JOB_NONE || s->node.loading || loading_busy(&s->persist.loading)) return;
    if (is_time(s, &q)) snapshot_want(s, JOB_SYNC);
}

/* An RDB file without keys, perhaps with functions, and without a checksum. */
static void put_keyless(struct replica *r, struct buf *to)
{
    struct rdb_out out;
    rdb_out_init(&out, NULL, SIZE_MAX);
    out.checksum = false;
    rdb_put_raw(&out, BYTES_LIT("REDIS0010"));
    if (r->functions) functions_save(functions_live(&r->server->node), &out);
    rdb_file_end(&out);
    buf_append_bytes(to, buf_bytes(&out.buf));
    rdb_out_release(&out);
}

static void send_keyless(struct replica *r)
{
    char mark[REPL_ID + 1];
    server_random_id(mark);
    tell_position(r, r->server->repl.stream.end);
    struct reply out = conn_reply(r->conn);
    buf_printf(out.out, "$EOF:%s\r\n", mark);
    put_keyless(r, out.out);
    buf_append(out.out, mark, REPL_ID);
    if (r->rdb_only) {
        r->state = REPLICA_DONE;
        r->conn->session.close_after_reply = true;
        return;
    }
    replication_stream(r->server);
    repl_stream_open(&r->server->repl.stream, &r->live, r->server->repl.stream.end);
    lone_region(r->server)->journal.db = -1;
    replica_online(r, false);
}

/* Replicas that come while a file is being written can use it, if the stream after it is still kept. (A file
 * that no replica waits for any more may belong to another history.) */
static bool may_join(const struct server *s)
{
    const struct sync *y = s->repl.sync;
    bool wanted = y && y->disk && y->users && s->persist.stage != STAGE_ABANDON;
    return wanted && y->position >= s->repl.stream.begin;
}

void sync_enter(struct replica *r)
{
    struct server *s = r->server;
    s->repl.full_syncs++;
    r->state = REPLICA_WAITS;
    r->waits_since_ms = clock_mono_ms();
    replica_enlist(r);
    if (r->no_data) send_keyless(r);
    else if (may_join(s)) primary_sync_join(r, s->repl.sync);
    else sync_cron(s);
    if (r->state != REPLICA_WAITS) return;
    if (s->persist.job == JOB_NONE) log_line(&s->log, LOG_NOTICE, "Delay next BGSAVE for diskless SYNC");
    else if (s->persist.job != JOB_SYNC || s->persist.stage != STAGE_WANTED)
        log_line(&s->log, LOG_NOTICE, "Waiting for the snapshot under way: the full sync begins after it");
}

/* -- the snapshot job ------------------------------------------------------------------------------------ */

#define PATH_ROOM 8192

/* The file has a name only between being complete and being opened. */
static bool open_temporary(struct server *s, struct sync *y)
{
    char temp[PATH_ROOM];
    y->path = mem_alloc(PATH_ROOM);
    snprintf(temp, sizeof temp, "%s/temp-send-%d.rdb", s->config.dir.p, (int)getpid());
    snprintf(y->path, PATH_ROOM, "%s/temp-sent-%d.rdb", s->config.dir.p, (int)getpid());
    return disk_file_open(&s->persist.file, &s->loop, temp, y->path);
}

static bool write_rdb(struct rdb_sink *sink, bytes piece)
{
    struct sync *y = (struct sync *)(void *)((char *)sink - offsetof(struct sync, sink));
    repl_stream_append(&y->rdb, piece);
    return true;
}

static struct sync *sync_new(bool disk)
{
    struct sync *y = mem_zalloc(sizeof *y);
    *y = (struct sync){.disk = disk, .working = true, .fd = -1, .sink = {write_rdb}};
    server_random_id(y->mark);
    repl_stream_init(&y->rdb, y->mark, 0);
    return y;
}

bool sync_open(struct server *s)
{
    struct queue q = look_at_queue(s);
    struct sync *y = sync_new(!s->config.repl_diskless_sync || !q.all_eof);
    s->repl.sync = y;
    s->persist.file.error[0] = '\0';
    if (y->disk) {
        if (!open_temporary(s, y)) return false;
    } else {
        repl_stream_append(&y->rdb, BYTES_LIT("$EOF:"));
        repl_stream_append(&y->rdb, bytes_of(y->mark, REPL_ID));
        repl_stream_append(&y->rdb, BYTES_LIT("\r\n"));
    }
    replication_stream(s);
    lone_region(s)->journal.db = -1; /* a reader that begins here has seen no SELECT */
    y->position = s->repl.stream.end;
    CHECK(!s->repl.stream.staged);
    return true;
}

struct rdb_sink *sync_sink(struct server *s)
{
    return s->repl.sync->disk ? &s->persist.file.sink : &s->repl.sync->sink;
}

void sync_begun(struct server *s)
{
    struct sync *y = s->repl.sync;
    log_line(&s->log, LOG_NOTICE, "Starting BGSAVE for SYNC with target: %s",
             y->disk ? "disk" : "replicas sockets");
    for (struct replica *r = s->repl.replicas; r; r = r->next)
        if (r->state == REPLICA_WAITS && !r->conn->closing) primary_sync_join(r, y);
    if (!y->users) snapshot_kill(s); /* the replicas left since it was requested */
}

bool sync_takes_more(const struct server *s)
{
    const struct sync *y = s->repl.sync;
    u64 slowest = y->rdb.end;
    if (y->disk) return !disk_file_full(&s->persist.file) || s->persist.file.error[0];
    for (const struct repl_stream_cursor *c = y->rdb.cursors; c; c = c->next) slowest = MIN(slowest, c->at);
    return y->rdb.end - slowest < BEHIND_MAX;
}

void sync_walked(struct server *s, bool all)
{
    struct sync *y = s->repl.sync;
    if (y->disk) return;
    if (all) repl_stream_append(&y->rdb, bytes_of(y->mark, REPL_ID));
    y->complete = all;
    repl_stream_publish(&y->rdb);
    for (struct replica *r = s->repl.replicas; r; r = r->next)
        if (r->sync == y && !(r->conn->events & UV_WRITABLE)) conn_pump(r->conn);
    repl_stream_trim(&y->rdb, 0);
}

/* -- its end --------------------------------------------------------------------------------------------- */

/* The file is complete: opens it for sending. */
static bool primary_sync_open_file(struct server *s, struct sync *y)
{
    struct stat st;
    y->fd = open(y->path, O_RDONLY | O_CLOEXEC);
    bool ok = y->fd >= 0 && fstat(y->fd, &st) == 0;
    if (!ok) log_line(&s->log, LOG_WARNING, "Can't open/stat DB after BGSAVE: %s", strerror(errno));
    else y->size = (u64)st.st_size;
    unlink(y->path);
    return ok;
}

static void send_file(struct replica *r)
{
    if (r->conn->closing) return;
    struct reply out = conn_reply(r->conn);
    buf_printf(out.out, "$%llu\r\n", (unsigned long long)r->sync->size);
}

/* The sync failed: replicas that wait for it or have received a part of it have to start again. */
static void give_up_on(struct server *s, const struct sync *y, bool killed)
{
    if (!killed) log_line(&s->log, LOG_WARNING, "SYNC failed: %s", s->persist.file.error);
    for (struct replica *r = s->repl.replicas; r; r = r->next)
        if (r->sync == y || (r->state == REPLICA_WAITS && !killed)) conn_close(r->conn);
}

void sync_ended(struct server *s, bool ok, bool killed)
{
    struct sync *y = s->repl.sync;
    s->repl.sync = NULL;
    y->working = false;
    if (ok && y->disk) ok = primary_sync_open_file(s, y);
    if (!ok) give_up_on(s, y, killed);
    for (struct replica *r = s->repl.replicas; ok && y->disk && r; r = r->next)
        if (r->sync == y) send_file(r);
    if (!y->users) sync_free(s, y);
}

u64 sync_memory(const struct server *s) { return s->repl.sync ? s->repl.sync->rdb.memory : 0; }
