#include "base/key_slot.h"

#include <string.h>

/* CRC16/XMODEM, four bytes at a time: crc_table[k][b] is the checksum of b and k zeros after it. The
 * checksum is linear, so that an entry is the sum of those of its bits, and a table is told by
 * eight of them. */
#define IF_BIT(x, n, v) ((x) >> (n) & 1 ? (v) : 0)
#define ENTRY(x, a, b, c, d, e, f, g, h)                                                        \
    (IF_BIT(x, 0, a) ^ IF_BIT(x, 1, b) ^ IF_BIT(x, 2, c) ^ IF_BIT(x, 3, d) ^ IF_BIT(x, 4, e) ^ \
     IF_BIT(x, 5, f) ^ IF_BIT(x, 6, g) ^ IF_BIT(x, 7, h))
#define ENTRIES_4(x, ...)                                                                      \
    ENTRY((x), __VA_ARGS__), ENTRY((x) + 1, __VA_ARGS__), ENTRY((x) + 2, __VA_ARGS__), \
        ENTRY((x) + 3, __VA_ARGS__)
#define ENTRIES_16(x, ...)                                                                        \
    ENTRIES_4(x, __VA_ARGS__), ENTRIES_4((x) + 4, __VA_ARGS__), ENTRIES_4((x) + 8, __VA_ARGS__), \
        ENTRIES_4((x) + 12, __VA_ARGS__)
#define ENTRIES_64(x, ...)                                                                            \
    ENTRIES_16(x, __VA_ARGS__), ENTRIES_16((x) + 16, __VA_ARGS__), ENTRIES_16((x) + 32, __VA_ARGS__), \
        ENTRIES_16((x) + 48, __VA_ARGS__)
#define ENTRIES_256(...)                                                                         \
    ENTRIES_64(0, __VA_ARGS__), ENTRIES_64(64, __VA_ARGS__), ENTRIES_64(128, __VA_ARGS__), \
        ENTRIES_64(192, __VA_ARGS__)

static const u16 crc_table[4][256] = {
    {ENTRIES_256(0x1021, 0x2042, 0x4084, 0x8108, 0x1231, 0x2462, 0x48c4, 0x9188)},
    {ENTRIES_256(0x3331, 0x6662, 0xccc4, 0x89a9, 0x0373, 0x06e6, 0x0dcc, 0x1b98)},
    {ENTRIES_256(0x3730, 0x6e60, 0xdcc0, 0xa9a1, 0x4363, 0x86c6, 0x1dad, 0x3b5a)},
    {ENTRIES_256(0x76b4, 0xed68, 0xcaf1, 0x85c3, 0x1ba7, 0x374e, 0x6e9c, 0xdd38)},
};

static u16 crc16(const u8 *p, size_t n)
{
    u32 crc = 0;
    for (; n >= 4; p += 4, n -= 4) {
        crc = crc_table[3][p[0] ^ crc >> 8] ^ crc_table[2][p[1] ^ (crc & 0xFF)] ^ crc_table[1][p[2]] ^
              crc_table[0][p[3]];
    }
    for (; n > 0; p++, n--) crc = (crc << 8 & 0xFFFF) ^ crc_table[0][p[0] ^ crc >> 8];
    return (u16)crc;
}

static bytes hash_tag(bytes key)
{
    const char *open = key.n ? memchr(key.p, '{', key.n) : NULL;
    if (LIKELY(!open)) return key;
    const char *tag = open + 1;
    size_t left = (size_t)(key.p + key.n - tag);
    const char *close = left ? memchr(tag, '}', left) : NULL;
    return close && close > tag ? bytes_of(tag, (size_t)(close - tag)) : key;
}

u16 key_slot(bytes key)
{
    bytes tag = hash_tag(key);
    return crc16((const u8 *)tag.p, tag.n) & (KEY_SLOTS - 1);
}
