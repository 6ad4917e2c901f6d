#include "site/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "site/room.h"

#define STAGE_PIECE (16u << 10) /* bytes of a part that are in memory */

struct site_stage_part {
    struct buf tail; /* not in the file yet */
    struct stage_piece {
        u64 at;
        size_t n;
    } * pieces;
    u32 n, room;
};

/* In the working directory, where the server's data is. */
static int stage_open(void)
{
    char name[] = "temp-site-XXXXXX";
    int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) return fd;
    fd = mkostemp(name, O_CLOEXEC); /* not every file system has O_TMPFILE */
    if (fd >= 0) unlink(name);
    return fd;
}

static bool stage_write(struct site_stage *g, bytes b)
{
    if (!g->fd && (g->fd = stage_open()) < 0) {
        g->fd = 0;
        return false;
    }
    while (b.n) {
        ssize_t n = pwrite(g->fd, b.p, b.n, (off_t)g->end);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        b = bytes_of(b.p + n, b.n - (size_t)n);
        g->end += (u64)n;
    }
    return true;
}

static bool stage_read(const struct site_stage *g, u64 at, size_t n, struct buf *out)
{
    char *to = buf_reserve(out, n);
    while (n) {
        ssize_t got = pread(g->fd, to, n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = EIO;
        if (got <= 0) return false;
        to += got;
        at += (u64)got;
        n -= (size_t)got;
        out->n += (size_t)got;
    }
    return true;
}

bool site_stage_add(struct site_stage *g, u32 db, bytes name, bytes dump)
{
    if (!g->parts) g->parts = mem_zalloc(STAGE_PARTS * sizeof *g->parts);
    struct site_stage_part *p = &g->parts[(hash_bytes(name, db) >> 32) % STAGE_PARTS];
    site_put_varint(&p->tail, db);
    site_put_bytes(&p->tail, name);
    site_put_bytes(&p->tail, dump);
    if (p->tail.n < STAGE_PIECE) return true;
    struct stage_piece piece = {g->end, p->tail.n};
    if (!stage_write(g, buf_bytes(&p->tail))) return false;
    p->pieces = site_room(p->pieces, p->n, &p->room, sizeof piece);
    p->pieces[p->n++] = piece;
    buf_release(&p->tail);
    return true;
}

bool site_stage_load(struct site_stage *g, u32 part, struct buf *out)
{
    if (!g->parts) return true;
    const struct site_stage_part *p = &g->parts[part];
    for (u32 i = 0; i < p->n; i++)
        if (!stage_read(g, p->pieces[i].at, p->pieces[i].n, out)) return false;
    buf_append_bytes(out, buf_bytes(&p->tail));
    return true;
}

void site_stage_release(struct site_stage *g)
{
    for (u32 i = 0; g->parts && i < STAGE_PARTS; i++) {
        buf_release(&g->parts[i].tail);
        mem_free(g->parts[i].pieces);
    }
    mem_free(g->parts);
    if (g->fd) close(g->fd);
    *g = (struct site_stage){0};
}
