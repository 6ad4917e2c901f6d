/* Lines are compared as text with what we would have printed: any other bit is damage (an upper-case digit, a
 * line feed without its carriage return). */
#include "persist/aof_block.h"

#include "base/crc64.h"

#define NUMBER_DIGITS 12
#define CHAIN_DIGITS 16
#define CHECK_DIGITS 8
#define NUMBER_AT 4 /* after "#MF:" */
#define CHAIN_AT (NUMBER_AT + NUMBER_DIGITS + 1)
#define CHECK_AT (CHAIN_AT + CHAIN_DIGITS + 1)

_Static_assert(AOF_LINE == CHECK_AT + CHECK_DIGITS + 2, "a line is what it is made of");

static void put_hex(char *to, int digits, u64 v)
{
    for (int i = digits; i-- > 0; v >>= 4) to[i] = "0123456789abcdef"[v & 15];
}

static u64 get_hex(const char *from, int digits)
{
    u64 v = 0;
    for (int i = 0; i < digits; i++)
        v = v << 4 | (u64)(from[i] > '9' ? from[i] - 'a' + 10 : from[i] - '0');
    return v; /* anything for other characters: the line then differs from what we print */
}

void aof_line_print(char line[AOF_LINE], enum aof_tag tag, u64 number, u64 chain)
{
    line[0] = '#';
    line[1] = 'M';
    line[2] = (char)tag;
    line[3] = line[CHAIN_AT - 1] = line[CHECK_AT - 1] = ':';
    put_hex(line + NUMBER_AT, NUMBER_DIGITS, number);
    put_hex(line + CHAIN_AT, CHAIN_DIGITS, chain);
    put_hex(line + CHECK_AT, CHECK_DIGITS, crc64(0, bytes_of(line, CHECK_AT)));
    line[AOF_LINE - 2] = '\r';
    line[AOF_LINE - 1] = '\n';
}

bool aof_line_parse(const char line[AOF_LINE], enum aof_tag tag, u64 *number, u64 *chain)
{
    char same[AOF_LINE];
    *number = get_hex(line + NUMBER_AT, NUMBER_DIGITS);
    *chain = get_hex(line + CHAIN_AT, CHAIN_DIGITS);
    aof_line_print(same, tag, *number, *chain);
    return memcmp(line, same, AOF_LINE) == 0;
}

u64 aof_chain_start(const char line[AOF_LINE]) { return crc64(0, bytes_of(line, AOF_LINE)); }

static u64 chain_length(u64 chain, size_t n)
{
    char digits[NUMBER_DIGITS];
    put_hex(digits, NUMBER_DIGITS, n);
    return crc64(chain, bytes_of(digits, NUMBER_DIGITS));
}

u64 aof_chain_next(u64 chain, bytes block) { return crc64(chain_length(chain, block.n), block); }

u64 aof_chain_next_parts(u64 chain, const bytes *parts, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) n += parts[i].n;
    chain = chain_length(chain, n);
    for (size_t i = 0; i < count; i++) chain = crc64(chain, parts[i]);
    return chain;
}
