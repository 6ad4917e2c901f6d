#include "base/sha1.h"

#include "base/sha.h"

static u32 sha1_rotate(u32 v, int n) { return v << n | v >> (32 - n); }

static void sha1_expand(const u8 *block, u32 w[80])
{
    sha_words(block, w);
    for (int i = 16; i < 80; i++) w[i] = sha1_rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
}

static void sha1_add_block(u32 *h, const u8 *block)
{
    static const u32 k[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    u32 w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    sha1_expand(block, w);
    for (int i = 0; i < 80; i++) {
        u32 f = i < 20              ? (b & c) | (~b & d)
                : i < 40 || i >= 60 ? b ^ c ^ d
                                    : (b & c) | (b & d) | (c & d);
        u32 next = sha1_rotate(a, 5) + f + e + k[i / 20] + w[i];
        e = d;
        d = c;
        c = sha1_rotate(b, 30);
        b = a;
        a = next;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

void sha1(bytes data, u8 out[SHA1_BYTES])
{
    u32 h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    sha_digest(data, sha1_add_block, h, 5, out);
}

void sha1_hex(const u8 digest[SHA1_BYTES], char out[2 * SHA1_BYTES + 1])
{
    for (int i = 0; i < SHA1_BYTES; i++) {
        out[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    out[2 * SHA1_BYTES] = '\0';
}
