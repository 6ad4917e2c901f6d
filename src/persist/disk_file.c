/* Files that appear whole.
 *
 * Pieces are copied into blocks on the loop. At most one work request is in flight for a file: it has taken
 * all blocks there were, and owns the fields marked as the worker's. When it is back on the loop, the next
 * one takes the blocks that have come meanwhile; the last one also renames the file, or removes it.
 *
 * Blocks are allocated and freed on the loop only: the memory meter counts by thread. */
#include "persist/disk_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "persist/disk_io.h"

#define BLOCK (256u << 10)
/* Bytes after which writing to the disk is started. On ext4 a sync of any other file waits for what is being
 * written at that moment. */
#define SYNC_EVERY ((u64)512 << 10)

struct block {
    struct block *next;
    size_t n;
    char b[BLOCK];
};

struct disk_file_state {
    struct disk_file *file;
    uv_work_t work;
    char *temp, *path;
    enum { FILLING, FINISHING, ABANDONING } aim;
    void (*done)(void *arg, bool ok);
    void *arg;
    struct block *first, *last; /* not taken yet */
    struct block *spare;
    u64 waiting;                /* bytes in blocks, taken or not */
    bool working;

    /* the worker's, while `working` */
    struct block *taken;
    bool final;         /* no blocks follow: rename the file, or remove it */
    int fd;             /* -1: closed */
    u64 written, begun; /* bytes; and those whose writeback was started */
    const char *failed; /* what failed, or NULL */
    int error;          /* errno of that */
};

/* -- the worker's part --------------------------------------------------------------------------- */

static bool disk_file_fail(struct disk_file_state *st, const char *what)
{
    st->error = errno;
    st->failed = what;
    return false;
}

/* Removes the file at once: the space is needed, and half a file is useless. */
static void disk_file_discard(struct disk_file_state *st)
{
    if (st->fd < 0) return;
    close(st->fd);
    st->fd = -1;
    unlink(st->temp);
}

/* Starts the writeback of new bytes, and waits for what was started before: so at most twice SYNC_EVERY is
 * left to the end. File systems without sync_file_range are no problem: fsync does it all. */
static bool sync_some(struct disk_file_state *st)
{
    if (st->written - st->begun < SYNC_EVERY) return true;
    off_t before = st->begun < SYNC_EVERY ? 0 : (off_t)(st->begun - SYNC_EVERY);
    off_t length = (off_t)st->begun - before;
    unsigned wait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    bool ok = sync_file_range(st->fd, (off_t)st->begun, (off_t)(st->written - st->begun),
                              SYNC_FILE_RANGE_WRITE) == 0;
    if (ok && length) ok = sync_file_range(st->fd, before, length, wait) == 0;
    st->begun = st->written;
    return ok || (errno != EIO && errno != ENOSPC && errno != EDQUOT) ||
           disk_file_fail(st, "writing to disk");
}

static bool write_blocks(struct disk_file_state *st)
{
    for (struct block *b = st->taken; b; b = b->next) {
        if (!disk_write(st->fd, bytes_of(b->b, b->n))) return disk_file_fail(st, "writing");
        st->written += b->n;
        if (!sync_some(st)) return false;
    }
    return true;
}

static bool disk_file_close_file(struct disk_file_state *st)
{
    int fd = st->fd;
    st->fd = -1;
    if (close(fd) == 0 || errno == EINTR) return true;
    disk_file_fail(st, "closing");
    unlink(st->temp);
    return false;
}

/* If the folder can't be synced the file stays: it is complete, but may not survive a power cut. */
static bool put_in_place(struct disk_file_state *st)
{
    crash_point("file-written");
    if (!disk_sync(st->fd)) return disk_file_fail(st, "syncing");
    if (!disk_file_close_file(st)) return false;
    crash_point("file-synced");
    if (rename(st->temp, st->path) != 0) {
        disk_file_fail(st, "renaming");
        unlink(st->temp);
        return false;
    }
    crash_point("file-renamed");
    if (!disk_sync_folder_of(st->path)) return disk_file_fail(st, "syncing the folder");
    crash_point("file-folder-synced");
    return true;
}

static void disk_file_work(uv_work_t *w)
{
    struct disk_file_state *st = w->data;
    bool keep = !st->failed && !(st->final && st->aim == ABANDONING) && write_blocks(st);
    if (keep && st->final) keep = put_in_place(st);
    if (!keep) disk_file_discard(st);
}

/* -- the loop's part ----------------------------------------------------------------------------- */

static void disk_file_free_blocks(struct block *b)
{
    while (b) {
        struct block *next = b->next;
        mem_free(b);
        b = next;
    }
}

static void free_state(struct disk_file_state *st)
{
    disk_file_free_blocks(st->first);
    disk_file_free_blocks(st->taken);
    disk_file_free_blocks(st->spare);
    mem_free(st->temp);
    mem_free(st->path);
    mem_free(st);
}

/* `done` may free the struct. */
static void conclude(struct disk_file *f)
{
    struct disk_file_state *st = f->state;
    bool ok = st->aim == FINISHING && !st->failed;
    void (*done)(void *arg, bool ok) = st->done;
    void *arg = st->arg;
    f->state = NULL;
    free_state(st);
    if (done) done(arg, ok);
}

static void recycle(struct disk_file_state *st)
{
    while (st->taken) {
        struct block *b = st->taken;
        st->taken = b->next;
        st->waiting -= b->n;
        b->next = st->spare;
        st->spare = b;
    }
}

/* Nothing more will be written: a source that waits for room must be woken. */
static void disk_file_note_failure(struct disk_file *f)
{
    struct disk_file_state *st = f->state;
    if (!f->error[0])
        snprintf(f->error, sizeof f->error, "%s %s: %s", st->failed, st->temp, strerror(st->error));
    disk_file_free_blocks(st->first);
    st->first = st->last = NULL;
    st->waiting = 0;
}

static void disk_file_start(struct disk_file_state *st);

static void back_on_loop(struct disk_file *f)
{
    struct disk_file_state *st = f->state;
    st->working = false;
    recycle(st);
    if (st->failed) disk_file_note_failure(f);
    if (st->final) conclude(f);
    else if (st->aim != FILLING || (st->first && st->first->n == BLOCK)) disk_file_start(st);
}

static void after_work(uv_work_t *w, int status UNUSED)
{
    struct disk_file_state *st = w->data;
    back_on_loop(st->file);
}

static void disk_file_start(struct disk_file_state *st)
{
    struct disk_file *f = st->file;
    st->taken = st->first;
    st->first = st->last = NULL;
    st->final = st->aim != FILLING;
    st->working = true;
    if (f->loop) {
        CHECK(uv_queue_work(f->loop, &st->work, disk_file_work, after_work) == 0);
    } else {
        disk_file_work(&st->work);
        back_on_loop(f);
    }
}

static struct block *block_for_more(struct disk_file_state *st)
{
    if (st->last && st->last->n < BLOCK) return st->last;
    struct block *b = st->spare;
    if (b) st->spare = b->next;
    else b = mem_alloc(sizeof *b);
    b->next = NULL;
    b->n = 0;
    if (st->last) st->last->next = b;
    else st->first = b;
    return st->last = b;
}

static bool take_piece(struct rdb_sink *sink, bytes piece)
{
    struct disk_file *f = (struct disk_file *)(void *)sink; /* sink is its first member */
    struct disk_file_state *st = f->state;
    while (piece.n && !f->error[0]) {
        struct block *b = block_for_more(st);
        size_t n = MIN(piece.n, BLOCK - b->n);
        memcpy(b->b + b->n, piece.p, n);
        b->n += n;
        st->waiting += n;
        piece = bytes_of(piece.p + n, piece.n - n);
        if (!st->working && b->n == BLOCK) disk_file_start(st);
    }
    return !f->error[0];
}

static char *copy_string(const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(mem_alloc(n), s, n);
}

bool disk_file_open(struct disk_file *f, uv_loop_t *loop, const char *temp, const char *path)
{
    *f = (struct disk_file){.sink.write = take_piece, .loop = loop};
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        snprintf(f->error, sizeof f->error, "opening %s: %s", temp, strerror(errno));
        return false;
    }
    struct disk_file_state *st = mem_zalloc(sizeof *st);
    *st = (struct disk_file_state){.file = f, .fd = fd, .temp = copy_string(temp), .path = copy_string(path)};
    st->work.data = st;
    f->state = st;
    return true;
}

u64 disk_file_waiting(const struct disk_file *f) { return f->state ? f->state->waiting : 0; }

bool disk_file_full(const struct disk_file *f) { return disk_file_waiting(f) >= DISK_FILE_AHEAD; }

static void disk_file_end(struct disk_file *f, int aim, void (*done)(void *arg, bool ok), void *arg)
{
    struct disk_file_state *st = f->state;
    CHECK(st && st->aim == FILLING);
    st->aim = aim;
    st->done = done;
    st->arg = arg;
    if (!st->working) disk_file_start(st);
}

void disk_file_finish(struct disk_file *f, void (*done)(void *arg, bool ok), void *arg)
{
    disk_file_end(f, FINISHING, done, arg);
}

void disk_file_abandon(struct disk_file *f, void (*done)(void *arg, bool ok), void *arg)
{
    disk_file_end(f, ABANDONING, done, arg);
}

/* -- files that go --------------------------------------------------------------------------------- */

static void on_gone(uv_fs_t *r)
{
    uv_fs_req_cleanup(r);
    mem_free(r);
}

void disk_remove_later(uv_loop_t *loop, const char *path)
{
    uv_fs_t *r = mem_alloc(sizeof *r);
    if (uv_fs_unlink(loop, r, path, on_gone)) on_gone(r);
}

void disk_close_later(uv_loop_t *loop, int fd)
{
    uv_fs_t *r = mem_alloc(sizeof *r);
    if (uv_fs_close(loop, r, fd, on_gone)) on_gone(r);
}
