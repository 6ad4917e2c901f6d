/* A borrowed slice of bytes. It owns nothing: whoever hands one out says how
 * long the memory behind it lives. A slice may hold NULs and need not end in one. */
#ifndef MAYFLY_BASE_BYTES_H
#define MAYFLY_BASE_BYTES_H

#include <string.h>

#include "base/types.h"

typedef struct bytes {
    const char *p;
    size_t n;
} bytes;

#define BYTES_LIT(s) ((bytes){(s), sizeof(s) - 1})

static inline bytes bytes_of(const void *p, size_t n) { return (bytes){(const char *)p, n}; }
static inline bytes bytes_str(const char *s) { return (bytes){s, strlen(s)}; }

static inline bool bytes_eq(bytes a, bytes b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* memcmp order, a shorter slice before its extensions: Redis's order of members. */
static inline int bytes_cmp(bytes a, bytes b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n ? memcmp(a.p, b.p, n) : 0;
    if (c) return c;
    return (a.n > b.n) - (a.n < b.n);
}

/* Compare with a NUL-terminated ASCII word, ignoring case: option names. */
bool bytes_is(bytes a, const char *word);

#define BYTES_LEGIBLE 64

/* The beginning of anything, fit for a line of the log; returns `text`. */
const char *bytes_legible(bytes b, char text[BYTES_LEGIBLE + 4]);

#endif
