/* Bits of a string: SETBIT GETBIT BITCOUNT BITPOS BITOP.
 *
 * Whole words are taken eight bytes at a time wherever a range is long. Bit 0 is
 * the highest bit of byte 0, so a word read big-endian has the bits in order. */
#include "command/string/bitmap.h"

#include "command/commands.h"
#include "command/string/strval.h"

bool bitmap_offset(struct ctx *c, bytes arg, u32 field_bits, u64 *offset)
{
    i64 n;
    bool fields = field_bits > 0 && arg.n > 0 && arg.p[0] == '#';
    bool ok = num_parse_i64(bytes_of(arg.p + fields, arg.n - fields), &n);
    if (ok && fields) n = (i64)((u64)n * field_bits); /* Redis lets it wrap */
    if (!ok || n < 0 || (u64)n / 8 >= c->ks->max_string) {
        reply_error(c->out, "ERR bit offset is not an integer or out of range");
        return false;
    }
    *offset = (u64)n;
    return true;
}

static bool bit_at(bytes s, u64 offset)
{
    return offset / 8 < s.n && ((u8)s.p[offset / 8] >> (7 - offset % 8) & 1);
}

/* -- SETBIT GETBIT -------------------------------------------------------------- */

void cmd_setbit(struct ctx *c)
{
    bytes key = c->argv[1];
    struct key_ref ref;
    u64 offset;
    i64 bit;
    if (!bitmap_offset(c, c->argv[2], 0, &offset)) return;
    if (!num_parse_i64(c->argv[3], &bit) || (bit & ~1)) {
        reply_error(c->out, "ERR bit is not an integer or out of range");
        return;
    }
    err found = ctx_write(c, key, TYPE_STRING, &ref);
    if (found == ERR_TYPE) return;

    size_t old_len = found == OK ? c->eng->ops->str.length(c->eng, &ref) : 0;
    size_t len = MAX(old_len, offset / 8 + 1);
    u8 *byte = (u8 *)strval_edit(c, key, &ref, len) + offset / 8;
    u8 mask = (u8)(0x80 >> offset % 8);
    bool old = *byte & mask;
    if (old != bit) *byte ^= mask;
    if (old != bit || len > old_len) ctx_changed(c, key, NOTIFY_STRING, "setbit");
    reply_int(c->out, old);
}

void cmd_getbit(struct ctx *c)
{
    struct key_ref ref;
    struct str_view view;
    u64 offset;
    if (!bitmap_offset(c, c->argv[2], 0, &offset)) return;
    if (ctx_read(c, c->argv[1], TYPE_STRING, &ref) == ERR_TYPE) return;
    reply_int(c->out, bit_at(strval_get(c, &ref, &view), offset));
}

/* -- ranges --------------------------------------------------------------------- */

/* Bits [first, last] of a string, empty when first > last. */
struct bit_range {
    i64 first, last;
};

/* Reads BYTE or BIT. False: a syntax error was replied. */
static bool parse_unit(struct ctx *c, bytes arg, i64 *unit_bits)
{
    if (bytes_is(arg, "BIT"))
        *unit_bits = 1;
    else if (bytes_is(arg, "BYTE"))
        *unit_bits = 8;
    else {
        ctx_syntax_error(c);
        return false;
    }
    return true;
}

/* Clamps start and end, which may count from the end, to a string of n bytes. */
static struct bit_range range_of(i64 start, i64 end, i64 unit_bits, size_t n)
{
    i64 units = (i64)n * 8 / unit_bits;
    if (start < 0) start = MAX(start + units, 0);
    if (end < 0) end = MAX(end + units, 0);
    if (end >= units) end = units - 1;
    if (start > end) return (struct bit_range){0, -1};
    return (struct bit_range){start * unit_bits, (end + 1) * unit_bits - 1};
}

/* A range in three parts: whole bytes, and before and after them a byte of
 * which only some bits belong to the range; the foreign ones are overwritten. */
struct ragged {
    bool has_head, has_tail;
    u8 head, tail; /* 0 where there is none */
    bytes whole;
    i64 whole_at; /* position of its first bit */
};

static struct ragged range_split(bytes s, struct bit_range r, bool fill)
{
    struct ragged out = {0};
    const u8 *p = (const u8 *)s.p;
    i64 from = r.first / 8, to = r.last / 8;
    u8 before = (u8) ~(0xFF >> r.first % 8);      /* foreign bits of the first byte */
    u8 after = (u8)((1 << (7 - r.last % 8)) - 1); /* … and of the last */

    if (before) {
        u8 foreign = from == to ? before | after : before;
        out.has_head = true;
        out.head = fill ? p[from] | foreign : p[from] & (u8)~foreign;
        from++;
    }
    if (after && from <= to) {
        out.has_tail = true;
        out.tail = fill ? p[to] | after : p[to] & (u8)~after;
        to--;
    }
    out.whole = bytes_of(s.p + from, from <= to ? (size_t)(to - from + 1) : 0);
    out.whole_at = from * 8;
    return out;
}

/* -- BITCOUNT ------------------------------------------------------------------- */

static inline u64 load_word(const char *p)
{
    u64 w;
    memcpy(&w, p, sizeof(w));
    return w;
}

/* The processor's own instruction where there is one. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("popcnt", "default")))
#endif
static u64 popcount(const char *p, size_t n)
{
    u64 a = 0, b = 0, last = 0;
    for (; n >= 16; p += 16, n -= 16) {
        a += (u64)__builtin_popcountll(load_word(p));
        b += (u64)__builtin_popcountll(load_word(p + 8));
    }
    for (; n >= 8; p += 8, n -= 8) a += (u64)__builtin_popcountll(load_word(p));
    if (n) memcpy(&last, p, n);
    return a + b + (u64)__builtin_popcountll(last);
}

static u64 count_ones(bytes s, struct bit_range r)
{
    if (r.first > r.last) return 0;
    struct ragged part = range_split(s, r, false);
    return (u64)__builtin_popcount(part.head) + (u64)__builtin_popcount(part.tail) +
           popcount(part.whole.p, part.whole.n);
}

/* A range as given in the arguments, which are parsed before the key is looked up. */
struct range_args {
    i64 start, end, unit_bits;
};

/* False: an error was replied. */
static bool bitcount_args(struct ctx *c, struct range_args *a)
{
    *a = (struct range_args){.end = -1, .unit_bits = 8};
    if (c->argc == 3 || c->argc > 5) {
        ctx_syntax_error(c);
        return false;
    }
    if (c->argc == 2) return true;
    if (!ctx_int(c, c->argv[2], &a->start) || !ctx_int(c, c->argv[3], &a->end)) return false;
    return c->argc == 4 || parse_unit(c, c->argv[4], &a->unit_bits);
}

void cmd_bitcount(struct ctx *c)
{
    struct key_ref ref;
    struct str_view view;
    struct range_args a;
    if (!bitcount_args(c, &a)) return;
    err found = ctx_read(c, c->argv[1], TYPE_STRING, &ref);
    if (found == ERR_NOT_FOUND) reply_int(c->out, 0);
    if (found != OK) return;
    bytes value = strval_get(c, &ref, &view);
    bool backwards = a.start < 0 && a.end < 0 && a.start > a.end; /* also where both are before the start */
    reply_int(c->out, backwards ? 0 : (i64)count_ones(value, range_of(a.start, a.end, a.unit_bits, value.n)));
}

/* -- BITPOS --------------------------------------------------------------------- */

/* Position of the first such bit, or -1. */
static i64 first_bit_in_byte(u8 byte, bool bit)
{
    u32 wanted = bit ? byte : (u8)~byte;
    return wanted ? __builtin_clz(wanted) - 24 : -1;
}

static i64 first_bit_in_bytes(bytes s, bool bit)
{
    size_t i = 0;
    u64 skip = bit ? 0 : UINT64_MAX;
    while (s.n - i >= 8 && load_word(s.p + i) == skip) i += 8;
    for (; i < s.n; i++) {
        i64 pos = first_bit_in_byte((u8)s.p[i], bit);
        if (pos >= 0) return (i64)i * 8 + pos;
    }
    return -1;
}

/* Position of the first such bit of a range that is not empty, or -1. */
static i64 find_bit(bytes s, struct bit_range r, bool bit)
{
    struct ragged part = range_split(s, r, !bit);
    i64 pos;
    if (part.has_head && (pos = first_bit_in_byte(part.head, bit)) >= 0)
        return part.whole_at - 8 + pos;
    if ((pos = first_bit_in_bytes(part.whole, bit)) >= 0) return part.whole_at + pos;
    if (part.has_tail && (pos = first_bit_in_byte(part.tail, bit)) >= 0)
        return part.whole_at + (i64)part.whole.n * 8 + pos;
    return -1;
}

/* The unit is parsed before the end. False: an error was replied. */
static bool bitpos_args(struct ctx *c, struct range_args *a)
{
    *a = (struct range_args){.end = -1, .unit_bits = 8};
    if (c->argc > 6) {
        ctx_syntax_error(c);
        return false;
    }
    if (c->argc > 3 && !ctx_int(c, c->argv[3], &a->start)) return false;
    if (c->argc > 5 && !parse_unit(c, c->argv[5], &a->unit_bits)) return false;
    return c->argc <= 4 || ctx_int(c, c->argv[4], &a->end);
}

void cmd_bitpos(struct ctx *c)
{
    struct key_ref ref;
    struct str_view view;
    struct range_args a;
    i64 bit;
    if (!ctx_int(c, c->argv[2], &bit)) return;
    if (bit != 0 && bit != 1) {
        reply_error(c->out, "ERR The bit argument must be 1 or 0.");
        return;
    }
    if (!bitpos_args(c, &a)) return;
    err found = ctx_read(c, c->argv[1], TYPE_STRING, &ref);
    if (found == ERR_NOT_FOUND) reply_int(c->out, bit ? -1 : 0);
    if (found != OK) return;

    bytes value = strval_get(c, &ref, &view);
    struct bit_range range = range_of(a.start, a.end, a.unit_bits, value.n);
    i64 pos = -1;
    if (range.first <= range.last) {
        pos = find_bit(value, range, bit);
        /* Without an end, the string continues with zeros. */
        if (pos < 0 && !bit && c->argc < 5) pos = range.last + 1;
    }
    reply_int(c->out, pos);
}

/* -- BITOP ---------------------------------------------------------------------- */

enum bit_op { OP_AND, OP_OR, OP_XOR, OP_NOT };

static bool bitop_parse_op(struct ctx *c, enum bit_op *op)
{
    static const char *const names[] = {"AND", "OR", "XOR", "NOT"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (!bytes_is(c->argv[1], names[i])) continue;
        *op = (enum bit_op)i;
        if (*op == OP_NOT && c->argc != 4) {
            reply_error(c->out, "ERR BITOP NOT must be called with a single source key.");
            return false;
        }
        return true;
    }
    ctx_syntax_error(c);
    return false;
}

static inline u64 apply_op(enum bit_op op, u64 a, u64 b)
{
    switch (op) {
    case OP_AND: return a & b;
    case OP_OR: return a | b;
    case OP_XOR: return a ^ b;
    case OP_NOT: break;
    }
    return ~a;
}

/* Inlined with a constant op, so that the choice is made once and not per word. */
static inline __attribute__((always_inline)) void combine_words(enum bit_op op, char *d,
                                                                const char *s, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        u64 w = apply_op(op, load_word(d + i), load_word(s + i));
        memcpy(d + i, &w, sizeof(w));
    }
    for (; i < n; i++) d[i] = (char)apply_op(op, (u8)d[i], (u8)s[i]);
}

/* acc op= s, where s is extended with zeros to acc's length. */
static void bitop_combine(enum bit_op op, struct buf *acc, bytes s)
{
    switch (op) {
    case OP_AND:
        combine_words(OP_AND, acc->p, s.p, s.n);
        memset(acc->p + s.n, 0, acc->n - s.n);
        break;
    case OP_OR: combine_words(OP_OR, acc->p, s.p, s.n); break;
    case OP_XOR: combine_words(OP_XOR, acc->p, s.p, s.n); break;
    case OP_NOT: combine_words(OP_NOT, acc->p, acc->p, acc->n); break;
    }
}

/* Makes acc at least n bytes long, with zeros. */
static void pad(struct buf *acc, size_t n)
{
    if (acc->n >= n) return;
    size_t more = n - acc->n;
    memset(buf_reserve(acc, more), 0, more);
    acc->n = n;
}

/* False: WRONGTYPE was replied. */
static bool bitop_compute(struct ctx *c, enum bit_op op, struct buf *acc)
{
    for (int i = 3; i < c->argc; i++) {
        struct key_ref ref;
        struct str_view view;
        if (ctx_read(c, c->argv[i], TYPE_STRING, &ref) == ERR_TYPE) return false;
        bytes s = strval_get(c, &ref, &view);
        if (i == 3) {
            buf_append_bytes(acc, s);
            continue;
        }
        pad(acc, s.n);
        if (acc->n) bitop_combine(op, acc, s);
    }
    if (op == OP_NOT) bitop_combine(op, acc, buf_bytes(acc));
    return true;
}

/* An empty result deletes the target. A short one goes through edit, after which
 * it is plain bytes even if it reads as a number; a long one is that anyway. */
static void bitop_store(struct ctx *c, bytes key, bytes result)
{
    struct key_ref ref;
    bool exists = keyspace_find(c->ks, c->db, key, LOOKUP_WRITE, &ref);
    if (result.n) {
        bool is_short = result.n < 64;
        strval_put(c, key, &ref, is_short ? BYTES_LIT("") : result, 0);
        if (is_short) memcpy(strval_edit(c, key, &ref, result.n), result.p, result.n);
        ctx_changed(c, key, NOTIFY_STRING, "set");
    } else if (exists) {
        ctx_drop(c, &ref);
        ctx_changed(c, key, NOTIFY_GENERIC, "del");
    }
}

void cmd_bitop(struct ctx *c)
{
    struct buf acc = {0};
    enum bit_op op;
    if (!bitop_parse_op(c, &op)) return;
    if (bitop_compute(c, op, &acc)) {
        bitop_store(c, c->argv[2], buf_bytes(&acc));
        reply_int(c->out, (i64)acc.n);
    }
    buf_release(&acc);
}
