/* Reflected polynomial 0x82f63b78, inverted at both ends. x86 has an instruction for it (SSE 4.2);
 * elsewhere a small table is used. */
#include "base/crc32c.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Four bits at a time. */
static u32 by_bytes(u32 crc, const u8 *p, size_t n)
{
    static const u32 table[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
        0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    for (; n > 0; p++, n--) {
        crc ^= *p;
        crc = table[crc & 15] ^ crc >> 4;
        crc = table[crc & 15] ^ crc >> 4;
    }
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static u32 by_words(u32 crc, const u8 *p, size_t n)
{
    u64 sum = crc, word;
    for (; n >= sizeof word; p += sizeof word, n -= sizeof word) {
        memcpy(&word, p, sizeof word);
        sum = _mm_crc32_u64(sum, word);
    }
    return by_bytes((u32)sum, p, n);
}

static bool crc32c_has_instruction(void) { return __builtin_cpu_supports("sse4.2"); }
#else
static u32 by_words(u32 crc, const u8 *p, size_t n) { return by_bytes(crc, p, n); }
static bool crc32c_has_instruction(void) { return false; }
#endif

u32 crc32c(bytes data)
{
    const u8 *p = (const u8 *)data.p;
    return ~(crc32c_has_instruction() ? by_words(~0u, p, data.n) : by_bytes(~0u, p, data.n));
}
