/* Writing RDB. */
#include "rdb/rdb_out.h"

#include <liblzf/lzf.h>

#include "base/crc64.h"
#include "base/num.h"
#include "rdb/rdb_format.h"

#define COMPRESS_MIN 20 /* as Redis: shorter strings don't shrink */

void rdb_out_init(struct rdb_out *out, struct rdb_sink *sink, size_t compress_max)
{
    *out = (struct rdb_out){
        .sink = sink, .compress_max = MIN(compress_max, (size_t)UINT32_MAX), .checksum = true,
    };
}

void rdb_out_release(struct rdb_out *out)
{
    buf_release(&out->buf);
    buf_release(&out->packed);
}

static void rdb_out_hand_over(struct rdb_out *out, bytes piece)
{
    if (out->checksum) out->crc = crc64(out->crc, piece);
    if (!out->failed && !out->sink->write(out->sink, piece)) out->failed = true;
}

void rdb_out_flush(struct rdb_out *out)
{
    if (!out->sink || out->buf.n == 0) return;
    rdb_out_hand_over(out, buf_bytes(&out->buf));
    buf_clear(&out->buf);
}

void rdb_put_raw(struct rdb_out *out, bytes b)
{
    out->written += b.n;
    if (out->sink && b.n >= RDB_PIECE) { /* large: passed on without a copy */
        rdb_out_flush(out);
        for (; b.n > RDB_PIECE; b = bytes_of(b.p + RDB_PIECE, b.n - RDB_PIECE))
            rdb_out_hand_over(out, bytes_of(b.p, RDB_PIECE));
    }
    buf_append_bytes(&out->buf, b);
    if (out->buf.n >= RDB_PIECE) rdb_out_flush(out);
}

void rdb_put_byte(struct rdb_out *out, u8 b) { rdb_put_raw(out, bytes_of(&b, 1)); }
void rdb_put_u64(struct rdb_out *out, u64 v) { rdb_put_raw(out, bytes_of(&v, 8)); }
void rdb_put_double(struct rdb_out *out, double v) { rdb_put_raw(out, bytes_of(&v, 8)); }

static void put_big_endian(struct rdb_out *out, u8 first, u64 v, int size)
{
    u8 raw[9] = {first};
    for (int i = 0; i < size; i++) raw[1 + i] = (u8)(v >> 8 * (size - 1 - i));
    rdb_put_raw(out, bytes_of(raw, 1 + (size_t)size));
}

void rdb_put_len(struct rdb_out *out, u64 n)
{
    if (n < 1 << 6) rdb_put_byte(out, (u8)n);
    else if (n < 1 << 14) put_big_endian(out, (u8)(RDB_LEN_14 << 6 | n >> 8), n & 255, 1);
    else if (n <= UINT32_MAX) put_big_endian(out, RDB_LEN_32, n, 4);
    else put_big_endian(out, RDB_LEN_64, n, 8);
}

/* Integers of up to 32 bits in canonical form. */
static bool put_int(struct rdb_out *out, bytes s)
{
    i64 v;
    if (s.n > 11 || !num_parse_i64(s, &v) || v < INT32_MIN || v > INT32_MAX) return false;
    int size = v >= INT8_MIN && v <= INT8_MAX ? 1 : v >= INT16_MIN && v <= INT16_MAX ? 2 : 4;
    int encoding = size == 1 ? RDB_ENC_INT8 : size == 2 ? RDB_ENC_INT16 : RDB_ENC_INT32;
    u8 raw[5] = {(u8)(RDB_LEN_ENCODED << 6 | encoding)};
    for (int i = 0; i < size; i++) raw[1 + i] = (u8)((u64)v >> 8 * i);
    rdb_put_raw(out, bytes_of(raw, 1 + (size_t)size));
    return true;
}

static bool put_lzf(struct rdb_out *out, bytes s)
{
    if (s.n <= COMPRESS_MIN || s.n > out->compress_max) return false;
    buf_clear(&out->packed);
    u32 room = (u32)s.n - 4; /* otherwise the second length costs more than is saved */
    u32 n = lzf_compress(s.p, (u32)s.n, buf_reserve(&out->packed, room), room);
    if (n == 0) return false;
    rdb_put_byte(out, RDB_LEN_ENCODED << 6 | RDB_ENC_LZF);
    rdb_put_len(out, n);
    rdb_put_len(out, s.n);
    rdb_put_raw(out, bytes_of(out->packed.p, n));
    return true;
}

void rdb_put_string(struct rdb_out *out, bytes s)
{
    if (put_int(out, s) || put_lzf(out, s)) return;
    rdb_put_len(out, s.n);
    rdb_put_raw(out, s);
}
