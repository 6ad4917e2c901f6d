/* A slice of borrowed bytes. It owns nothing: a function that returns one documents how long the memory stays
 * valid. A slice may contain NULs and is not NUL-terminated. */
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

/* Orders by memcmp, then a prefix before its extensions: Redis's order of members. */
static inline int bytes_cmp(bytes a, bytes b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n ? memcmp(a.p, b.p, n) : 0;
    if (c) return c;
    return (a.n > b.n) - (a.n < b.n);
}

/* Compares with a NUL-terminated ASCII word, ignoring case: for option names. */
bool bytes_is(bytes a, const char *word);

#define BYTES_LEGIBLE 64

/* Writes the beginning of b to `text`, with unprintable bytes replaced, for log lines. Returns `text`. */
const char *bytes_legible(bytes b, char text[BYTES_LEGIBLE + 4]);

#endif
