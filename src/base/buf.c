#include "base/buf.h"

#include <stdio.h>

#include "base/alloc.h"

void buf_release(struct buf *b)
{
    mem_free(b->p);
    *b = (struct buf){0};
}

/* Grows geometrically, so that appending copies each byte a few times at most. */
void buf_grow(struct buf *b, size_t more)
{
    size_t grown = b->cap + (b->cap < (64u << 20) ? MAX(b->cap, 64u) : b->cap / 2);
    b->cap = MAX(grown, b->n + more);
    b->p = mem_realloc(b->p, b->cap);
}

void buf_trim(struct buf *b)
{
    if (b->cap == b->n) return;
    b->p = mem_realloc(b->p, b->n);
    b->cap = b->n;
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n <= 0) return;
    vsnprintf(buf_reserve(b, (size_t)n + 1), (size_t)n + 1, fmt, ap);
    b->n += (size_t)n;
}

void buf_append_quoted(struct buf *b, bytes s)
{
    static const char raw[] = "\\\"\n\r\t\a\b", shown[] = "\\\"nrtab";
    buf_append_char(b, '"');
    for (size_t i = 0; i < s.n; i++) {
        char ch = s.p[i];
        const char *at = ch ? strchr(raw, ch) : NULL;
        if (at) buf_printf(b, "\\%c", shown[at - raw]);
        else if (ch >= ' ' && ch <= '~') buf_append_char(b, ch);
        else buf_printf(b, "\\x%02x", (u8)ch);
    }
    buf_append_char(b, '"');
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}
