#include "persist/aof_read.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

#define WINDOW_KEEP (32u << 20)

bool aof_reader_open(struct aof_reader *r, const char *path)
{
    struct stat st;
    *r = (struct aof_reader){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)}; /* may be a pipe */
    if (r->fd < 0) return false;
    if (fstat(r->fd, &st) == 0 && S_ISREG(st.st_mode)) {
        r->size = r->end = (u64)st.st_size;
        return true;
    }
    close(r->fd);
    r->fd = -1;
    errno = EINVAL;
    return false;
}

void aof_reader_close(struct aof_reader *r)
{
    if (r->fd >= 0) close(r->fd);
    mem_free(r->window);
    *r = (struct aof_reader){.fd = -1};
}

/* Reads up to n bytes at an offset; fewer at the end of the file or on failure. */
static size_t aof_read_read_at(struct aof_reader *r, char *to, size_t n, u64 offset)
{
    size_t got = 0;
    while (got < n && !r->error) {
        ssize_t k = pread(r->fd, to + got, n - got, (off_t)(offset + got));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) r->error = errno;
        if (k <= 0) break;
        got += (size_t)k;
    }
    return got;
}

/* Moves the window to `offset`, keeping the bytes it already has. */
static void slide(struct aof_reader *r, u64 offset, size_t room)
{
    size_t keep = 0;
    if (offset >= r->at && offset < r->at + r->n) {
        keep = (size_t)(r->at + r->n - offset);
        memmove(r->window, r->window + (offset - r->at), keep);
    }
    r->at = offset;
    r->n = keep;
    bool shrink = r->cap > WINDOW_KEEP &&
                  MAX(room, keep) <= AOF_WINDOW; /* shrink after something long */
    if (room > r->cap || shrink) {
        r->cap = shrink ? AOF_WINDOW : room;
        r->window = mem_realloc(r->window, r->cap);
    }
}

bytes aof_reader_at(struct aof_reader *r, u64 offset, size_t want)
{
    u64 left = offset < r->end ? r->end - offset : 0;
    want = MIN(want, left);
    if (offset < r->at || offset + want > r->at + r->n) {
        slide(r, offset, MIN(MAX(want, AOF_WINDOW), left));
        size_t n = MIN(r->cap, left);
        r->n += aof_read_read_at(r, r->window + r->n, n - r->n, offset + r->n);
    }
    size_t from = (size_t)(offset - r->at);
    return r->n > from ? bytes_of(r->window + from, MIN(r->n - from, left)) : (bytes){0};
}

void aof_reader_trim(struct aof_reader *r, u64 from)
{
    char some[4096];
    while (r->end > from) {
        size_t n = MIN(sizeof some, r->end - from);
        if (aof_read_read_at(r, some, n, r->end - n) != n) return;
        size_t zeros = 0;
        while (zeros < n && some[n - 1 - zeros] == 0) zeros++;
        r->end -= zeros;
        if (zeros < n) return;
    }
}
