/* How the site layer writes numbers and bytes: in effects on the wire, in dumps of keys, in companions.
 * The input is not trusted: a reader that finds something malformed is marked `bad` and yields
 * zeros from then on. */
#ifndef MAYFLY_SITE_CODE_H
#define MAYFLY_SITE_CODE_H

#include "base/buf.h"
#include "base/endian.h"

struct site_reader {
    const char *p, *end;
    bool bad;
};

static inline struct site_reader site_reader_of(bytes b)
{
    return (struct site_reader){b.p, b.p + b.n, false};
}
static inline size_t site_left(const struct site_reader *r) { return r->bad ? 0 : (size_t)(r->end - r->p); }

static inline void site_put_u8(struct buf *to, u8 v) { buf_append_char(to, (char)v); }

/* Writes at `p`, where there is room for it, and returns the end. */
static inline char *site_write_varint(char *p, u64 v)
{
    for (; v >= 0x80; v >>= 7) *p++ = (char)(v | 0x80);
    *p++ = (char)v;
    return p;
}

static inline char *site_write_u64(char *p, u64 v)
{
    v = htole64(v);
    memcpy(p, &v, sizeof v);
    return p + sizeof v;
}

static inline char *site_write_bytes(char *p, bytes b)
{
    p = site_write_varint(p, b.n);
    if (b.n) memcpy(p, b.p, b.n);
    return p + b.n;
}

static inline void site_put_varint(struct buf *to, u64 v)
{
    char *p = buf_reserve(to, 10);
    to->n += (size_t)(site_write_varint(p, v) - p);
}

static inline void site_put_u64(struct buf *to, u64 v)
{
    v = htole64(v);
    buf_append(to, &v, sizeof v);
}

static inline void site_put_bytes(struct buf *to, bytes b)
{
    site_put_varint(to, b.n);
    buf_append_bytes(to, b);
}

static inline u8 site_get_u8(struct site_reader *r)
{
    if (site_left(r) == 0) r->bad = true;
    return r->bad ? 0 : (u8)*r->p++;
}

static inline u64 site_get_varint(struct site_reader *r)
{
    const char *p = r->p;
    u64 v = 0;
    for (u32 shift = 0; shift < 64 && p < r->end && !r->bad; shift += 7) {
        u8 byte = (u8)*p++;
        if (shift == 63 && byte > 1) break;
        v |= (u64)(byte & 0x7f) << shift;
        if (byte & 0x80) continue;
        r->p = p;
        return v;
    }
    r->bad = true;
    return 0;
}

static inline u64 site_get_u64(struct site_reader *r)
{
    u64 v = 0;
    if (site_left(r) < sizeof v) r->bad = true;
    if (r->bad) return 0;
    memcpy(&v, r->p, sizeof v);
    r->p += sizeof v;
    return le64toh(v);
}

static inline bytes site_get_bytes(struct site_reader *r)
{
    u64 n = site_get_varint(r);
    if (n > site_left(r)) r->bad = true;
    if (r->bad) return (bytes){"", 0};
    bytes b = bytes_of(r->p, n);
    r->p += n;
    return b;
}

#endif
