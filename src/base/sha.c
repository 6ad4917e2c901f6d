#include "base/sha.h"

static void store_be(u8 *to, u64 v, int bytes_wanted)
{
    for (int i = 0; i < bytes_wanted; i++) to[i] = (u8)(v >> 8 * (bytes_wanted - 1 - i));
}

void sha_words(const u8 *block, u32 w[16])
{
    for (int i = 0; i < 16; i++, block += 4)
        w[i] = (u32)block[0] << 24 | (u32)block[1] << 16 | (u32)block[2] << 8 | block[3];
}

/* Builds the last block or two: the rest of the data, a 1 bit, zeros, the length in bits. Returns their
 * size. */
static size_t make_tail(u8 tail[2 * SHA_BLOCK], bytes rest, u64 total)
{
    size_t n = rest.n + 9 <= SHA_BLOCK ? SHA_BLOCK : 2 * SHA_BLOCK;
    memset(tail, 0, n);
    if (rest.n) memcpy(tail, rest.p, rest.n);
    tail[rest.n] = 0x80;
    store_be(tail + n - 8, total * 8, 8);
    return n;
}

void sha_digest(bytes data, void (*add_block)(u32 *h, const u8 *block), u32 *h, int n, u8 *out)
{
    u8 tail[2 * SHA_BLOCK];
    size_t at = 0;
    for (; data.n - at >= SHA_BLOCK; at += SHA_BLOCK) add_block(h, (const u8 *)data.p + at);
    size_t end = make_tail(tail, bytes_of(data.p + at, data.n - at), data.n);
    for (at = 0; at < end; at += SHA_BLOCK) add_block(h, tail + at);
    for (int i = 0; i < n; i++) store_be(out + 4 * i, h[i], 4);
}
