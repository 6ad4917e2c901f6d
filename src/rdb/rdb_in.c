/* Reading RDB. The buffered bytes are [p, end); if they don't suffice, the rest is moved to the front of the
 * window and the source fills it up. The checksum is updated before bytes leave the window, so it costs no
 * branch per item. */
#include "rdb/rdb_in.h"

#include <liblzf/lzf.h>
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "base/num.h"
#include "rdb/rdb_format.h"

#define WINDOW (128u << 10)
#define GULP (1u << 20)           /* limit of memory allocated ahead of bytes that are only announced */

/* Three bytes of LZF expand to at most 264: a higher ratio is corrupt. */
#define LZF_MOST 88

void rdb_in_memory(struct rdb_in *in, bytes input)
{
    *in = (struct rdb_in){
        .p = input.p, .end = input.p + input.n, .end_offset = input.n, .crc_to = input.p,
        .max_string = RDB_MAX_STRING,
    };
}

void rdb_in_source(struct rdb_in *in, struct rdb_source *source, u64 size)
{
    char *window = mem_alloc(WINDOW);
    *in = (struct rdb_in){
        .p = window, .end = window, .window = window, .crc_to = window, .source = source, .left = size,
        .max_string = RDB_MAX_STRING,
    };
}

void rdb_in_release(struct rdb_in *in)
{
    mem_free(in->window);
    buf_release(&in->packed);
    *in = (struct rdb_in){0};
}

u64 rdb_in_crc(struct rdb_in *in)
{
    in->crc = crc64(in->crc, bytes_of(in->crc_to, (size_t)(in->p - in->crc_to)));
    in->crc_to = in->p;
    return in->crc;
}

bool rdb_fail(struct rdb_in *in, const char *fmt, ...)
{
    if (in->failed) return false;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(in->error, sizeof in->error, fmt, ap);
    va_end(ap);
    for (char *p = in->error; *p; p++) /* names are quoted: keep line breaks out of the log */
        if (*p < ' ' || *p == 127) *p = '?';
    in->error_offset = rdb_offset(in);
    in->failed = true;
    return false;
}

/* -- bytes ------------------------------------------------------------------------------------- */

/* Reads up to n bytes from the source. Returns how many came; 0 at the end or on failure. */
static size_t pull(struct rdb_in *in, char *to, size_t n)
{
    if (!in->source || in->failed) return 0;
    n = (size_t)MIN(n, in->left);
    if (n == 0) return 0;
    i64 got = in->source->read(in->source, to, n);
    if (got < 0) rdb_fail(in, "reading failed: %s", strerror((int)-got));
    if (got <= 0) {
        in->left = 0; /* also if more was announced: it is not coming */
        return 0;
    }
    in->end_offset += (u64)got;
    if (in->left != RDB_IN_UNKNOWN) in->left -= (u64)got;
    return (size_t)got;
}

/* Tries to buffer at least n bytes; n is small. */
static void rdb_in_fill(struct rdb_in *in, size_t n)
{
    if (!in->source) return;
    rdb_in_crc(in);
    size_t have = (size_t)(in->end - in->p);
    memmove(in->window, in->p, have);
    in->p = in->crc_to = in->window;
    in->end = in->window + have;
    while (have < n) {
        size_t got = pull(in, in->window + have, WINDOW - have);
        if (got == 0) return;
        have += got;
        in->end += got;
    }
}

static bool rdb_in_need(struct rdb_in *in, size_t n)
{
    if (LIKELY((size_t)(in->end - in->p) >= n && !in->failed)) return true;
    rdb_in_fill(in, n);
    return (size_t)(in->end - in->p) >= n && !in->failed ? true : rdb_fail(in, "unexpected end");
}

bool rdb_at_end(struct rdb_in *in)
{
    if (in->p == in->end) rdb_in_fill(in, 1);
    return in->p == in->end;
}

/* Reads n bytes, some of which may be buffered: the rest bypasses the window. */
static bool rdb_in_take(struct rdb_in *in, char *to, size_t n)
{
    size_t have = MIN(n, (size_t)(in->end - in->p));
    if (have) memcpy(to, in->p, have);
    in->p += have;
    if (have == n) return !in->failed;
    rdb_in_crc(in);
    in->p = in->end = in->crc_to = in->window;
    while (have < n) {
        size_t got = pull(in, to + have, n - have);
        if (got == 0) return rdb_fail(in, "unexpected end");
        in->crc = crc64(in->crc, bytes_of(to + have, got));
        have += got;
    }
    return true;
}

bool rdb_read_raw(struct rdb_in *in, void *to, size_t n)
{
    if (n > WINDOW / 2) return rdb_in_take(in, to, n);
    if (!rdb_in_need(in, n)) return false;
    if (n) memcpy(to, in->p, n);
    in->p += n;
    return true;
}

bool rdb_skip_raw(struct rdb_in *in, u64 n)
{
    if (n > rdb_left(in)) return rdb_fail(in, "%llu bytes announced where %llu are left",
                                          (unsigned long long)n, (unsigned long long)rdb_left(in));
    while (n > 0) {
        if (!rdb_in_need(in, 1)) return false;
        size_t step = (size_t)MIN(n, (u64)(in->end - in->p));
        in->p += step;
        n -= step;
    }
    return true;
}

/* -- numbers ----------------------------------------------------------------------------------- */

bool rdb_read_byte(struct rdb_in *in, u8 *out)
{
    if (!rdb_in_need(in, 1)) return false;
    *out = (u8)*in->p++;
    return true;
}

bool rdb_read_u64(struct rdb_in *in, u64 *out) { return rdb_read_raw(in, out, 8); }

bool rdb_read_double(struct rdb_in *in, double *out)
{
    if (!rdb_read_raw(in, out, 8)) return false;
    return isnan(*out) ? rdb_fail(in, "a score that is not a number") : true;
}

bool rdb_read_score(struct rdb_in *in, double *out)
{
    u8 n;
    char text[256];
    if (!rdb_read_byte(in, &n)) return false;
    if (n == 253) return rdb_fail(in, "a score that is not a number");
    if (n >= 254) {
        *out = n == 254 ? INFINITY : -INFINITY;
        return true;
    }
    if (!rdb_read_raw(in, text, n)) return false;
    return num_parse_double(bytes_of(text, n), out) ? true : rdb_fail(in, "a score that is not a number");
}

static u64 big_endian(const char *p, int n)
{
    u64 v = 0;
    for (int i = 0; i < n; i++) v = v << 8 | (u8)p[i];
    return v;
}

/* A length, or with *encoded the encoding of the string that follows. */
static bool read_len(struct rdb_in *in, u64 *out, bool *encoded)
{
    if (!rdb_in_need(in, 1)) return false;
    u8 first = (u8)*in->p;
    int more = 0;
    *encoded = false;
    switch (first >> 6) {
    case RDB_LEN_6: *out = first; break;
    case RDB_LEN_14: more = 1; break;
    case RDB_LEN_ENCODED:
        *encoded = true;
        *out = first & 63;
        break;
    default:
        if (first != RDB_LEN_32 && first != RDB_LEN_64) return rdb_fail(in, "0x%02x begins no length", first);
        more = first == RDB_LEN_32 ? 4 : 8;
    }
    if (!rdb_in_need(in, 1 + (size_t)more)) return false;
    if (more) *out = big_endian(in->p + 1, more) | (more == 1 ? (u64)(first & 63) << 8 : 0);
    in->p += 1 + more;
    return true;
}

bool rdb_read_len(struct rdb_in *in, u64 *out)
{
    bool encoded;
    if (!read_len(in, out, &encoded)) return false;
    return encoded ? rdb_fail(in, "a number where its encoding is that of a string") : true;
}

/* -- strings ----------------------------------------------------------------------------------- */

static bool rdb_in_fits(struct rdb_in *in, u64 n)
{
    if (n > rdb_left(in)) return rdb_fail(in, "a string of %llu bytes where %llu are left",
                                          (unsigned long long)n, (unsigned long long)rdb_left(in));
    if (n > in->max_string)
        return rdb_fail(in, "a string of %llu bytes is too long", (unsigned long long)n);
    return true;
}

/* n may be a lie, so memory is allocated as the bytes arrive. */
static bool rdb_in_read_plain(struct rdb_in *in, u64 n, struct buf *to)
{
    if (!rdb_in_fits(in, n)) return false;
    while (n > 0) {
        size_t step = (size_t)(in->left == RDB_IN_UNKNOWN ? MIN(n, GULP) : n);
        if (!rdb_read_raw(in, buf_reserve(to, step), step)) return false;
        to->n += step;
        n -= step;
    }
    return true;
}

static bool read_int(struct rdb_in *in, int size, struct buf *to)
{
    u8 raw[4];
    i64 v;
    if (!rdb_read_raw(in, raw, (size_t)size)) return false;
    /* NOLINTNEXTLINE(bugprone-signed-char-misuse): an integer, not a character */
    if (size == 1) v = (int8_t)raw[0];
    else if (size == 2) v = (int16_t)(raw[0] | raw[1] << 8);
    else v = (i32)(raw[0] | (u32)raw[1] << 8 | (u32)raw[2] << 16 | (u32)raw[3] << 24);
    to->n += num_print_i64(buf_reserve(to, NUM_I64_LEN), v);
    return true;
}

static bool read_lzf_lens(struct rdb_in *in, u64 *packed, u64 *plain)
{
    if (!rdb_read_len(in, packed) || !rdb_read_len(in, plain)) return false;
    if (!rdb_in_fits(in, *packed)) return false;
    if (*plain == 0 || *plain > *packed * LZF_MOST || *plain > MIN(in->max_string, UINT32_MAX))
        return rdb_fail(in, "%llu compressed bytes cannot stand for %llu", (unsigned long long)*packed,
                        (unsigned long long)*plain);
    return true;
}

static bool read_lzf(struct rdb_in *in, struct buf *to)
{
    u64 packed = 0, plain = 0;
    if (!read_lzf_lens(in, &packed, &plain)) return false;
    const char *from = in->p; /* valid if all of it is buffered */
    if (packed <= (u64)(in->end - in->p)) {
        in->p += packed;
    } else {
        buf_clear(&in->packed);
        if (!rdb_in_read_plain(in, packed, &in->packed)) return false;
        from = in->packed.p;
    }
    u32 n = lzf_decompress(from, (u32)packed, buf_reserve(to, plain), (u32)plain);
    to->n += n;
    return n == plain ? true : rdb_fail(in, "a compressed string is damaged");
}

static bool read_encoded(struct rdb_in *in, u64 encoding, struct buf *to)
{
    switch (encoding) {
    case RDB_ENC_INT8: return read_int(in, 1, to);
    case RDB_ENC_INT16: return read_int(in, 2, to);
    case RDB_ENC_INT32: return read_int(in, 4, to);
    case RDB_ENC_LZF: return read_lzf(in, to);
    default: return rdb_fail(in, "a string of unknown encoding %llu", (unsigned long long)encoding);
    }
}

bool rdb_append_string(struct rdb_in *in, struct buf *to)
{
    u64 n;
    bool encoded;
    if (!read_len(in, &n, &encoded)) return false;
    return encoded ? read_encoded(in, n, to) : rdb_in_read_plain(in, n, to);
}

bool rdb_read_string(struct rdb_in *in, struct buf *to)
{
    buf_clear(to);
    return rdb_append_string(in, to);
}

bool rdb_view_string(struct rdb_in *in, struct buf *space, bytes *out)
{
    u64 n;
    bool encoded;
    if (!read_len(in, &n, &encoded)) return false;
    if (!encoded && n <= WINDOW / 2) {
        if (!rdb_in_fits(in, n) || !rdb_in_need(in, (size_t)n)) return false;
        *out = bytes_of(in->p, (size_t)n);
        in->p += n;
        return true;
    }
    buf_clear(space);
    if (!(encoded ? read_encoded(in, n, space) : rdb_in_read_plain(in, n, space))) return false;
    *out = buf_bytes(space);
    return true;
}

bool rdb_skip_string(struct rdb_in *in)
{
    u64 n = 0, plain = 0;
    bool encoded;
    if (!read_len(in, &n, &encoded)) return false;
    if (!encoded) return rdb_skip_raw(in, n);
    switch (n) {
    case RDB_ENC_INT8: return rdb_skip_raw(in, 1);
    case RDB_ENC_INT16: return rdb_skip_raw(in, 2);
    case RDB_ENC_INT32: return rdb_skip_raw(in, 4);
    case RDB_ENC_LZF: return read_lzf_lens(in, &n, &plain) && rdb_skip_raw(in, n);
    default: return rdb_fail(in, "a string of unknown encoding %llu", (unsigned long long)n);
    }
}
