/* A growing byte buffer that owns its memory. A zeroed struct is an empty buffer.
 *
 *     struct buf b = {0};
 *     buf_append_str(&b, "key");
 *     use(buf_bytes(&b));          valid until the next append
 *     buf_release(&b); */
#ifndef MAYFLY_BASE_BUF_H
#define MAYFLY_BASE_BUF_H

#include <stdarg.h>

#include "base/bytes.h"

struct buf {
    char *p;
    size_t n, cap;
};

void buf_release(struct buf *b);               /* frees the memory, leaves an empty buffer */
void buf_grow(struct buf *b, size_t more);     /* makes room for `more` bytes after the end */
void buf_trim(struct buf *b);                  /* frees unused room, once nothing more is appended */
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void buf_vprintf(struct buf *b, const char *fmt, va_list ap);
void buf_append_quoted(struct buf *b, bytes s); /* "s", escaped as in a configuration file */

static inline void buf_clear(struct buf *b) { b->n = 0; }
static inline bytes buf_bytes(const struct buf *b) { return bytes_of(b->p, b->n); }

/* Makes room for `more` bytes and returns a pointer to it. The caller adds the bytes it wrote to b->n. */
static inline char *buf_reserve(struct buf *b, size_t more)
{
    if (UNLIKELY(b->cap - b->n < more)) buf_grow(b, more);
    return b->p + b->n;
}

static inline void buf_append(struct buf *b, const void *p, size_t n)
{
    if (n == 0) return;
    memcpy(buf_reserve(b, n), p, n);
    b->n += n;
}

static inline void buf_append_bytes(struct buf *b, bytes s) { buf_append(b, s.p, s.n); }
static inline void buf_append_str(struct buf *b, const char *s) { buf_append(b, s, strlen(s)); }

static inline void buf_append_char(struct buf *b, char c)
{
    *buf_reserve(b, 1) = c;
    b->n++;
}

#endif
