/* A full sync from our primary: its data is received into a file, off the loop, and loaded from there.
 *
 * - Our own data is untouched until the file is complete and our snapshot, if one is under way, has ended.
 * - If the old data is dropped before the new data is complete (repl-diskless-load swapdb and the rocksdb
 *   engine keep it), our replication ID changes first, so that we never resume from a position whose data is
 *   gone.
 * - The new position is adopted in the transaction that swaps in the new data. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "repl/link.h"
#include "server/commit.h"

#define READ_BYTES (256u << 10)

/* -- the file --------------------------------------------------------------------------------------- */

static bool wanted_as_dump(const struct server *s)
{
    const struct config *c = &s->config;
    if (lone_region(s)->eng->caps.durable || strcmp(c->repl_diskless_load.p, "disabled") != 0) return false;
    return !c->rdb_del_sync_files || c->save.n || c->appendonly;
}

/* The received file is what a BGSAVE would write now: as in Redis it replaces dump.rdb. The old file is held
 * open until a worker closes it, because the rename would otherwise free its space on the loop. */
static void keep_as_dump(struct server *s, const char *path)
{
    const struct config *c = &s->config;
    char dump[8192];
    snprintf(dump, sizeof dump, "%s/%s", c->dir.p, c->dbfilename.p);
    int old = open(dump, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (rename(path, dump) == 0) {
        s->persist.dirty_saved = lone_region(s)->ks.dirty;
        persistence_note_save(&s->persist);
    } else {
        log_line(&s->log, LOG_WARNING,
                 "Failed trying to rename the temp DB into %s in MASTER <-> REPLICA synchronization: %s",
                 c->dbfilename.p, strerror(errno));
        disk_remove_later(&s->loop, path);
    }
    if (old >= 0) disk_close_later(&s->loop, old);
}

static void link_sync_on_file_done(void *arg, bool ok);

static bool link_sync_open_file(struct link *l)
{
    struct server *s = l->server;
    struct link_file *f = mem_alloc(sizeof *f);
    f->server = s;
    f->link = l;
    snprintf(f->path, sizeof f->path, "%s/temp-sync-%u-%d.rdb", s->config.dir.p, ++s->repl.sync_files,
             (int)getpid());
    if (disk_file_open(&f->file, &s->loop, f->path, f->path)) {
        l->file = f;
        return true;
    }
    log_line(&s->log, LOG_WARNING, "Opening the temp file needed for MASTER <-> REPLICA synchronization: %s",
             f->file.error);
    mem_free(f);
    return false;
}

void sync_drop(struct link *l)
{
    struct link_file *f = l->file;
    if (l->stage == SYNC_LOAD) loading_sync_stop(l->server);
    l->file = NULL;
    if (!f) return;
    f->link = NULL;
    if (l->stage == SYNC_RECEIVE) {
        disk_file_abandon(&f->file, link_sync_on_file_done, f);
    } else if (l->stage != SYNC_FINISH) {
        disk_remove_later(&l->server->loop, f->path);
        mem_free(f);
    }
}

/* -- loading ---------------------------------------------------------------------------------------- */

/* Our data is about to belong to no history. */
static bool forget_history(struct server *s)
{
    char id[REPL_ID + 1];
    server_random_id(id);
    replication_drop_replicas(s);
    repl_stream_restart(&s->repl.stream, id, 0);
    s->repl.stream_db = 0;
    region_follow_begin(lone_region(s));
    replication_note(s);
    return server_commit(s, COMMIT_POSITION);
}

static void adopt(struct server *s)
{
    struct link *l = s->repl.link;
    replication_drop_replicas(s);
    repl_stream_restart(&s->repl.stream, l->id, l->position);
    s->repl.stream_db = s->repl.loaded_db; /* as the file says, if the primary is a replica itself */
    l->adopted = true;
    replication_note(s);
}

static void link_sync_loaded(struct server *s, bool ok)
{
    struct link *l = s->repl.link;
    struct link_file *f = l->file;
    l->file = NULL;
    l->stage = SYNC_RECEIVE; /* no load is under way */
    if (ok && wanted_as_dump(s)) keep_as_dump(s, f->path);
    else disk_remove_later(&s->loop, f->path);
    mem_free(f);
    if (ok) {
        log_line(&s->log, LOG_NOTICE, "MASTER <-> REPLICA sync: Finished with success");
        link_up(l);
        return;
    }
    log_line(&s->log, LOG_WARNING,
             "Failed trying to load the MASTER synchronization DB from disk, check server logs");
    if (l->adopted) { /* the engine did not commit: it has another position */
        l->adopted = false;
        (void)!forget_history(s);
    }
    link_close(l, false);
}

static void link_sync_load(struct link *l)
{
    struct server *s = l->server;
    bool keep_old = strcmp(s->config.repl_diskless_load.p, "swapdb") == 0;
    if (!keep_old && s->config.engine == ENGINE_MEMORY && !forget_history(s)) {
        log_line(&s->log, LOG_WARNING, "The storage accepts no new data: the full sync is aborted");
        link_close(l, false);
        return;
    }
    replication_drop_replicas(s);
    if (!keep_old) log_line(&s->log, LOG_NOTICE, "MASTER <-> REPLICA sync: Flushing old data");
    log_line(&s->log, LOG_NOTICE, "MASTER <-> REPLICA sync: Loading DB in memory");
    l->stage = SYNC_LOAD;
    l->adopted = false;
    s->repl.loaded_db = 0;
    loading_sync(s, l->file->path, keep_old, adopt, link_sync_loaded);
}

/* The file is complete: loads it, or waits for our snapshot to end. */
static void load_when_possible(struct link *l)
{
    struct server *s = l->server;
    bool first = l->stage != SYNC_WAIT;
    l->stage = SYNC_WAIT;
    if (first && s->persist.job != JOB_NONE) {
        log_line(&s->log, LOG_NOTICE, "Replica is about to load the RDB file received from the master, but "
                                      "there is a snapshot under way: giving it up");
        snapshot_kill(s);
    }
    link_wait(l, s->persist.job != JOB_NONE);
    if (s->persist.job == JOB_NONE) link_sync_load(l);
}

/* -- receiving -------------------------------------------------------------------------------------- */

static void tell_write_error(const struct link_file *f)
{
    log_line(&f->server->log, LOG_WARNING, "Write error or short write writing to the DB dump file needed "
                                           "for MASTER <-> REPLICA synchronization: %s", f->file.error);
}

static void link_sync_on_file_done(void *arg, bool ok)
{
    struct link_file *f = arg;
    struct link *l = f->link;
    if (l && ok) {
        load_when_possible(l);
        return;
    }
    if (l) {
        tell_write_error(f);
        l->file = NULL;
        link_close(l, false);
    } else if (ok) {
        disk_remove_later(&f->server->loop, f->path);
    }
    mem_free(f);
}

static void tell_header(const struct link *l)
{
    const struct transfer *t = &l->transfer;
    if (t->stage == TRANSFER_SIZED || (t->stage == TRANSFER_DONE && t->line[1] != 'E'))
        log_line(&l->server->log, LOG_NOTICE,
                 "MASTER <-> REPLICA sync: receiving %llu bytes from master to disk",
                 (unsigned long long)t->size);
    else
        log_line(&l->server->log, LOG_NOTICE,
                 "MASTER <-> REPLICA sync: receiving streamed RDB from master with EOF to disk");
}

static void bad_header(struct link *l)
{
    const struct transfer *t = &l->transfer;
    const struct log *log = &l->server->log;
    char text[BYTES_LEGIBLE + 4];
    if (t->line[0] == '-')
        log_line(log, LOG_WARNING, "MASTER aborted replication with an error: %s", t->line + 1);
    else
        log_line(log, LOG_WARNING, "Bad protocol from MASTER, the first byte is not '$' (we received '%s'), "
                                   "are you sure the host and port are right?",
                 bytes_legible(bytes_of(t->line, t->line_n), text));
    link_close(l, false);
}

static void link_sync_take(struct link *l, bytes in)
{
    bool headless = l->transfer.stage == TRANSFER_HEADER;
    size_t used;
    err e = transfer_take(&l->transfer, in, &l->file->file.sink, &used);
    if (headless && l->transfer.stage != TRANSFER_HEADER) tell_header(l);
    if (e == OK) {
        buf_append(&l->inbox.in, in.p + used, in.n - used);
        buf_release(&l->in);
        l->stage = SYNC_FINISH;
        link_watch(l, 0);
        disk_file_finish(&l->file->file, link_sync_on_file_done, l->file);
    } else if (e == ERR_SYNTAX) {
        bad_header(l);
    } else if (e == ERR_LIMIT) {
        tell_write_error(l->file);
        link_close(l, false);
    } else if (disk_file_full(&l->file->file)) {
        link_watch(l, l->conn->events & ~UV_READABLE);
        link_wait(l, true);
    }
}

void sync_begin(struct link *l)
{
    struct buf first = l->in;
    if (!link_sync_open_file(l)) {
        link_close(l, false);
        return;
    }
    l->in = (struct buf){0};
    l->state = LINK_SYNC;
    l->stage = SYNC_RECEIVE;
    transfer_init(&l->transfer);
    if (first.n) link_sync_take(l, buf_bytes(&first));
    buf_release(&first);
}

void sync_readable(struct link *l)
{
    if (l->stage != SYNC_RECEIVE || !(l->conn->events & UV_READABLE)) return;
    buf_clear(&l->in);
    size_t n = link_read(l, buf_reserve(&l->in, READ_BYTES), READ_BYTES);
    if (n) link_sync_take(l, bytes_of(l->in.p, n));
}

void sync_waited(struct link *l)
{
    if (l->stage == SYNC_WAIT) {
        load_when_possible(l);
    } else if (l->stage == SYNC_RECEIVE && !disk_file_full(&l->file->file)) {
        link_wait(l, false);
        link_watch(l, l->conn->events | UV_READABLE);
    }
}
