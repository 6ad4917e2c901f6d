/* BITFIELD and BITFIELD_RO: integers of any width at any bit of a string.
 *
 * All operations are parsed before the first runs, so that an invalid one changes nothing, and the string is
 * made long enough once. Arithmetic is done in 128 bits: a result is in range or it is not, and nothing
 * overflows. */
#include "base/alloc.h"
#include "command/string/bitmap.h"
#include "command/commands.h"
#include "command/string/strval.h"

enum field_verb { FIELD_GET, FIELD_SET, FIELD_INCRBY };
enum overflow { OVERFLOW_WRAP, OVERFLOW_SAT, OVERFLOW_FAIL };

struct field_op {
    enum field_verb verb;
    enum overflow overflow;
    bool is_signed;
    u32 bits;
    u64 offset;
    i64 operand;
};

struct field_ops {
    struct field_op *ops;
    u32 n;
    bool writes;
    u64 last_written_bit; /* highest bit any write touches */
};

/* -- reading the request --------------------------------------------------------- */

static bool parse_type(struct ctx *c, bytes arg, struct field_op *op)
{
    i64 bits;
    op->is_signed = arg.n > 0 && arg.p[0] == 'i';
    if ((op->is_signed || (arg.n > 0 && arg.p[0] == 'u')) &&
        num_parse_i64(bytes_of(arg.p + 1, arg.n - 1), &bits) && bits >= 1 &&
        bits <= (op->is_signed ? 64 : 63)) {
        op->bits = (u32)bits;
        return true;
    }
    reply_error(c->out, "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is "
                        "not supported but i64 is.");
    return false;
}

static bool parse_overflow(struct ctx *c, bytes arg, enum overflow *overflow)
{
    if (bytes_is(arg, "WRAP"))
        *overflow = OVERFLOW_WRAP;
    else if (bytes_is(arg, "SAT"))
        *overflow = OVERFLOW_SAT;
    else if (bytes_is(arg, "FAIL"))
        *overflow = OVERFLOW_FAIL;
    else {
        reply_error(c->out, "ERR Invalid OVERFLOW type specified");
        return false;
    }
    return true;
}

/* Type, offset and operand of the operation whose verb is argv[at]. */
static bool bitfield_parse_op(struct ctx *c, int at, struct field_op *op)
{
    if (!parse_type(c, c->argv[at + 1], op)) return false;
    if (!bitmap_offset(c, c->argv[at + 2], op->bits, &op->offset)) return false;
    return op->verb == FIELD_GET || ctx_int(c, c->argv[at + 3], &op->operand);
}

static bool parse_ops(struct ctx *c, struct field_ops *out)
{
    enum overflow overflow = OVERFLOW_WRAP;
    for (int i = 2; i < c->argc; i++) {
        bytes verb = c->argv[i];
        int left = c->argc - i - 1;
        struct field_op *op = &out->ops[out->n];
        if (bytes_is(verb, "OVERFLOW") && left >= 1) {
            if (!parse_overflow(c, c->argv[++i], &overflow)) return false;
            continue;
        }
        if (bytes_is(verb, "GET") && left >= 2) {
            op->verb = FIELD_GET;
        } else if (bytes_is(verb, "SET") && left >= 3) {
            op->verb = FIELD_SET;
        } else if (bytes_is(verb, "INCRBY") && left >= 3) {
            op->verb = FIELD_INCRBY;
        } else {
            ctx_syntax_error(c);
            return false;
        }
        if (!bitfield_parse_op(c, i, op)) return false;
        op->overflow = overflow;
        if (op->verb != FIELD_GET) {
            out->writes = true;
            out->last_written_bit = MAX(out->last_written_bit, op->offset + op->bits - 1);
        }
        out->n++;
        i += op->verb == FIELD_GET ? 2 : 3;
    }
    return true;
}

/* -- fields ------------------------------------------------------------------------ */

/* The up to 9 bytes a field lies in, as one number; bytes past the end are zero. */
static unsigned __int128 load_field_bytes(bytes s, u64 byte)
{
    unsigned __int128 w = 0;
    for (u64 i = byte; i < byte + 9; i++) w = w << 8 | (i < s.n ? (u8)s.p[i] : 0);
    return w;
}

static u32 field_shift(const struct field_op *op)
{
    return 72 - (u32)(op->offset % 8) - op->bits;
}

static u64 field_mask(const struct field_op *op)
{
    return op->bits == 64 ? UINT64_MAX : (1ULL << op->bits) - 1;
}

/* A field's bits as the number they mean. */
static i64 field_value(const struct field_op *op, u64 raw)
{
    raw &= field_mask(op);
    if (op->is_signed) return (i64)(raw << (64 - op->bits)) >> (64 - op->bits);
    return (i64)raw;
}

static i64 field_get(bytes s, const struct field_op *op)
{
    return field_value(op, (u64)(load_field_bytes(s, op->offset / 8) >> field_shift(op)));
}

/* The string must reach to the field's end. */
static void field_set(char *p, size_t n, const struct field_op *op, i64 value)
{
    u64 byte = op->offset / 8;
    unsigned __int128 w = load_field_bytes(bytes_of(p, n), byte);
    unsigned __int128 mask = (unsigned __int128)field_mask(op) << field_shift(op);
    w = (w & ~mask) | ((unsigned __int128)(u64)value << field_shift(op) & mask);
    for (u32 i = 0; i < 9 && byte + i < n; i++) p[byte + i] = (char)(w >> (64 - 8 * i));
}

/* Redis subtracts a SET's operand from the maximum in 64 bits. Far below zero
 * that wraps, and the operand counts as too large instead of too small. */
static bool looks_too_large(const struct field_op *op, __int128 max)
{
    return op->verb == FIELD_SET && op->is_signed && op->bits < 64 &&
           max - op->operand > INT64_MAX;
}

/* Brings a value into the field's range. False: OVERFLOW FAIL forbids it. */
static bool field_fit(const struct field_op *op, __int128 wanted, i64 *fitted)
{
    __int128 max = op->is_signed ? field_mask(op) >> 1 : field_mask(op);
    __int128 min = op->is_signed ? -max - 1 : 0;
    if (wanted >= min && wanted <= max)
        *fitted = (i64)wanted;
    else if (op->overflow == OVERFLOW_FAIL)
        return false;
    else if (op->overflow == OVERFLOW_WRAP)
        *fitted = field_value(op, (u64)wanted);
    else
        *fitted = (i64)(wanted > max || looks_too_large(op, max) ? max : min);
    return true;
}

/* -- running ------------------------------------------------------------------------- */

/* True when the string changed. An unsigned SET takes a negative operand as the
 * huge number its bits are. */
static bool bitfield_run_write(struct ctx *c, char *p, size_t n, const struct field_op *op)
{
    i64 old = field_get(bytes_of(p, n), op), value;
    __int128 wanted = op->verb == FIELD_INCRBY ? (__int128)old + op->operand
                      : op->is_signed          ? (__int128)op->operand
                                               : (__int128)(u64)op->operand;
    if (!field_fit(op, wanted, &value)) {
        reply_null(c->out);
        return false;
    }
    field_set(p, n, op, value);
    reply_int(c->out, op->verb == FIELD_SET ? old : value);
    return value != old;
}

static void run_reads(struct ctx *c, bytes key, const struct field_ops *all)
{
    struct key_ref ref;
    struct str_view view;
    if (ctx_read(c, key, TYPE_STRING, &ref) == ERR_TYPE) return;
    bytes value = strval_get(c, &ref, &view);
    reply_array(c->out, all->n);
    for (u32 i = 0; i < all->n; i++) reply_int(c->out, field_get(value, &all->ops[i]));
}

static void run_all(struct ctx *c, bytes key, const struct field_ops *all)
{
    struct key_ref ref;
    err found = ctx_write(c, key, TYPE_STRING, &ref);
    if (found == ERR_TYPE) return;
    size_t old_len = found == OK ? c->eng->ops->str.length(c->eng, &ref) : 0;
    size_t len = MAX(old_len, all->last_written_bit / 8 + 1);
    char *p = strval_edit(c, key, &ref, len);

    u64 changed = 0;
    reply_array(c->out, all->n);
    for (u32 i = 0; i < all->n; i++) {
        const struct field_op *op = &all->ops[i];
        if (op->verb == FIELD_GET)
            reply_int(c->out, field_get(bytes_of(p, len), op));
        else changed += bitfield_run_write(c, p, len, op);
    }
    /* Growing alone is a change, even if every write fails: Redis forgets to
     * report that one, and its replicas differ. */
    if (len > old_len) changed = MAX(changed, (u64)1);
    if (changed) ctx_changed_by(c, changed, key, NOTIFY_STRING, "setbit");
}

static void bitfield(struct ctx *c, bool read_only)
{
    /* Every operation takes at least three arguments. */
    struct field_ops all = {.ops = mem_alloc(((size_t)c->argc / 3 + 1) * sizeof(*all.ops))};
    if (parse_ops(c, &all)) {
        if (!all.writes)
            run_reads(c, c->argv[1], &all);
        else if (read_only)
            reply_error(c->out, "ERR BITFIELD_RO only supports the GET subcommand");
        else
            run_all(c, c->argv[1], &all);
    }
    mem_free(all.ops);
}

void cmd_bitfield(struct ctx *c) { bitfield(c, false); }
void cmd_bitfield_ro(struct ctx *c) { bitfield(c, true); }
