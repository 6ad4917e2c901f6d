#include "site/place.h"

#include <endian.h>

#define N_BYTES 8
#define N_MAX ((i64)1 << 62) /* far beyond any stamp: neighbours of n can be computed */
#define SIGN ((u64)1 << 63)

/* The length byte is above 0x80 for non-negative numbers and below for negative ones, so that lengths sort,
 * too. */
static void place_put_int(struct buf *to, i64 v)
{
    u64 raw = htobe64((u64)v), pad = v < 0 ? 0xff : 0;
    const u8 *p = (const u8 *)&raw;
    u32 skip = 0;
    while (skip < 8 && p[skip] == pad) skip++;
    site_put_u8(to, (u8)(v < 0 ? 0x80 - (9 - skip) : 0x80 + (8 - skip)));
    buf_append(to, p + skip, 8 - skip);
}

static bool skip_int(struct site_reader *r)
{
    int head = site_get_u8(r) - 0x80;
    int n = head < 0 ? -head - 1 : head;
    if (n > 8 || (size_t)n > site_left(r)) r->bad = true;
    if (!r->bad) r->p += n;
    return !r->bad;
}

static i64 get_n(const char *part)
{
    u64 raw;
    memcpy(&raw, part, sizeof raw);
    return (i64)(be64toh(raw) ^ SIGN);
}

/* Steps over a part. */
static bool next_part(struct site_reader *r)
{
    if (site_left(r) < N_BYTES + 1 || get_n(r->p) > N_MAX || get_n(r->p) < -N_MAX) r->bad = true;
    if (r->bad) return false;
    r->p += N_BYTES + 1;
    return skip_int(r) && skip_int(r);
}

void site_put_place(struct buf *to, i64 n, struct site_dot dot, i64 i)
{
    u64 raw = htobe64((u64)n ^ SIGN);
    buf_append(to, &raw, sizeof raw);
    site_put_u8(to, dot.gid);
    place_put_int(to, (i64)dot.seq);
    place_put_int(to, i);
}

i64 site_place_n(bytes place) { return get_n(place.p); }

bool site_place_ok(bytes place)
{
    struct site_reader r = site_reader_of(place);
    if (place.n == 0 || place.n > SITE_PLACE_MAX) return false;
    while (site_left(&r) && next_part(&r)) {}
    return !r.bad;
}

static size_t last_part(bytes place)
{
    struct site_reader r = site_reader_of(place);
    size_t at = 0;
    while (site_left(&r)) {
        at = (size_t)(r.p - place.p);
        next_part(&r);
    }
    return at;
}

static bool starts_with(bytes place, bytes prefix)
{
    return place.n > prefix.n && memcmp(place.p, prefix.p, prefix.n) == 0;
}

void site_put_place_between(struct buf *to, bytes before, bytes after, struct site_dot dot)
{
    if (before.n == 0) {
        site_put_place(to, get_n(after.p) - 1, dot, 0);
        return;
    }
    if (starts_with(after, before)) { /* just before the first that was inserted there */
        buf_append_bytes(to, before);
        site_put_place(to, get_n(after.p + before.n) - 1, dot, 0);
        return;
    }
    size_t start = to->n, last = last_part(before);
    buf_append(to, before.p, last);
    site_put_place(to, get_n(before.p + last) + 1, dot, 0);
    bytes step = bytes_of(to->p + start, to->n - start);
    if (after.n && last > 0 && bytes_cmp(step, after) < 0) return;
    to->n = start;
    buf_append_bytes(to, before);
    site_put_place(to, 0, dot, 0);
}
