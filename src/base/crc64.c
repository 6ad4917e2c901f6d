/* CRC-64/Jones: reflected polynomial 0x95ac9329ac4bc9b5, no inversion at either end.
 *
 * Eight bytes at a time ("slicing by 8"): table k holds the effect of a byte on the remainder after
 * k more bytes. A CRC is linear, so an entry is the XOR of the entries of its byte's single bits:
 * eight constants define a table, and the compiler computes the rest.
 *
 * Where the processor has carry-less multiplication, long inputs are folded first: sixteen bytes are
 * replaced by sixteen equivalent ones further on, which are added to the data there, until sixteen
 * are left. That is several times as fast. */
#include "base/crc64.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define BIT(i, n, c) (((i) >> (n) & 1) ? (c) : 0)
#define ENTRY(i, a, b, c, d, e, f, g, h)                                                         \
    (BIT(i, 0, a) ^ BIT(i, 1, b) ^ BIT(i, 2, c) ^ BIT(i, 3, d) ^ BIT(i, 4, e) ^ BIT(i, 5, f) ^   \
     BIT(i, 6, g) ^ BIT(i, 7, h))
#define ENTRIES_4(i, ...)                                                                        \
    ENTRY(i, __VA_ARGS__), ENTRY(i + 1, __VA_ARGS__), ENTRY(i + 2, __VA_ARGS__), ENTRY(i + 3, __VA_ARGS__)
#define ENTRIES_16(i, ...)                                                                       \
    ENTRIES_4(i, __VA_ARGS__), ENTRIES_4(i + 4, __VA_ARGS__), ENTRIES_4(i + 8, __VA_ARGS__),     \
    ENTRIES_4(i + 12, __VA_ARGS__)
#define ENTRIES_64(i, ...)                                                                       \
    ENTRIES_16(i, __VA_ARGS__), ENTRIES_16(i + 16, __VA_ARGS__), ENTRIES_16(i + 32, __VA_ARGS__), \
    ENTRIES_16(i + 48, __VA_ARGS__)
#define TABLE(...)                                                                               \
    {ENTRIES_64(0, __VA_ARGS__), ENTRIES_64(64, __VA_ARGS__), ENTRIES_64(128, __VA_ARGS__),      \
     ENTRIES_64(192, __VA_ARGS__)}

static const u64 table[8][256] = {
    TABLE(0x7ad870c830358979, 0xf5b0e190606b12f2, 0xc038e5739841b68f, 0xab28ecb46814fe75,
          0x7d08ff3b88be6f81, 0xfa11fe77117cdf02, 0xdf7adabd7a6e2d6f, 0x95ac9329ac4bc9b5),
    TABLE(0x89e99ffd73bddf69, 0x388a19a9bfec2db9, 0x711433537fd85b72, 0xe22866a6ffb0b6e4,
          0xef09eb1ea7f6fea3, 0xf54af06e177a6e2d, 0xc1ccc68f76634f31, 0xa8c0ab4db4510d09),
    TABLE(0xf4125129ce4038be, 0xc37d8400c417e217, 0xada22e52d0b85745, 0x701d7af6f9e73de1,
          0xe03af5edf3ce7bc2, 0xeb2ccd88bf0b64ef, 0xfd00bd4226815ab5, 0xd1585cd715952601),
    TABLE(0x8ce168638c796306, 0x329bf69440655567, 0x6537ed2880caaace, 0xca6fda510195559c,
          0xbf8692f15bbd3853, 0x545403b1efede3cd, 0xa8a80763dfdbc79a, 0x7a092894e7201c5f),
    TABLE(0x3504e58b9ba6dd1e, 0x6a09cb17374dba3c, 0xd413962e6e9b7478, 0x837e0a0f85a17b9b,
          0x2da5324c53d5645d, 0x5b4a6498a7aac8ba, 0xb694c9314f559174, 0x4670b431c63cb183),
    TABLE(0xe39d1389931b9354, 0xec6301407ea0b5c3, 0xf39f24d3a5d6f8ed, 0xcc676ff4133a62b1,
          0xb397f9bb7ee35609, 0x4c76d525a5513f79, 0x98edaa4b4aa27ef2, 0x1a8272c5cdd36e8f),
    TABLE(0x62a95de6e302eff2, 0xc552bbcdc605dfe4, 0xa1fc51c8d49c2ca3, 0x68a185c2f1afca2d,
          0xd1430b85e35f945a, 0x89df31589e28bbdf, 0x38e744e264c6e4d5, 0x71ce89c4c98dc9aa),
    TABLE(0x381d0015c96f4444, 0x703a002b92de8888, 0xe074005725bd1110, 0xebb126fd13edb14b,
          0xfc3b6ba97f4cf1fd, 0xd32ff101a60e7091, 0x8d06c450148b7249, 0x3154aef3718177f9),
};

static u64 by_table(u64 crc, const u8 *p, size_t n)
{
    for (; n >= 8; p += 8, n -= 8) {
        u64 v;
        memcpy(&v, p, 8);
        crc ^= v; /* little-endian, as in the files */
        crc = table[7][crc & 255] ^ table[6][crc >> 8 & 255] ^ table[5][crc >> 16 & 255] ^
              table[4][crc >> 24 & 255] ^ table[3][crc >> 32 & 255] ^ table[2][crc >> 40 & 255] ^
              table[1][crc >> 48 & 255] ^ table[0][crc >> 56];
    }
    for (; n > 0; p++, n--) crc = table[0][(crc ^ *p) & 255] ^ crc >> 8;
    return crc;
}

#if defined(__x86_64__)

#define FOLD_FROM 64

static bool crc64_can_fold(void) { return __builtin_cpu_supports("pclmul"); }

/* n is a positive multiple of 16. The first eight of sixteen bytes move by 192 bits, the other eight
 * by 128: multiplication by x^192 and x^128 modulo the polynomial. The exponents used are one less,
 * because the product of two reflected numbers is shifted by one bit. */
__attribute__((target("pclmul"))) static u64 by_folding(u64 crc, const u8 *p, size_t n)
{
    const __m128i weights = _mm_set_epi64x((i64)0x381d0015c96f4444, (i64)0xd9d7be7d505da32c);
    __m128i sum = _mm_xor_si128(_mm_loadu_si128((const __m128i *)p), _mm_cvtsi64_si128((i64)crc));
    for (p += 16, n -= 16; n > 0; p += 16, n -= 16) {
        __m128i first = _mm_clmulepi64_si128(sum, weights, 0x00);
        __m128i second = _mm_clmulepi64_si128(sum, weights, 0x11);
        sum = _mm_xor_si128(_mm_xor_si128(first, second), _mm_loadu_si128((const __m128i *)p));
    }
    u8 rest[16];
    _mm_storeu_si128((__m128i *)rest, sum);
    return by_table(0, rest, sizeof rest);
}

#else

#define FOLD_FROM SIZE_MAX

static bool crc64_can_fold(void) { return false; }
static u64 by_folding(u64 crc, const u8 *p, size_t n) { return by_table(crc, p, n); }

#endif

u64 crc64(u64 crc, bytes data)
{
    const u8 *p = (const u8 *)data.p;
    size_t n = data.n, folded = n & ~(size_t)15;
    if (n < FOLD_FROM || !crc64_can_fold()) return by_table(crc, p, n);
    return by_table(by_folding(crc, p, folded), p + folded, n - folded);
}
