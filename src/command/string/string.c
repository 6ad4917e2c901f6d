/* Strings and counters.
 *
 * GET, SET and INCR are the server's hot path: one lookup, one engine call, no allocation and no copy but the
 * engine's own; options are parsed only if there are any. */
#include <math.h>

#include "command/commands.h"
#include "command/string/strval.h"
#include "command/ttl.h"

/* -- options of SET and GETEX ------------------------------------------------ */

struct options {
    bool nx, xx, get, keep_ttl, persist;
    const struct ttl_option *time; /* NULL: none given */
    bytes time_arg;
};

enum option_user { FOR_SET, FOR_GETEX };

/* Options that exclude each other are refused; one given twice is not, and the
 * last time wins. */
static bool string_parse_options(struct ctx *c, int from, enum option_user user, struct options *o)
{
    *o = (struct options){0};
    for (int i = from; i < c->argc; i++) {
        bytes word = c->argv[i];
        const struct ttl_option *t = ttl_option(word);
        if (t && i + 1 < c->argc && !o->keep_ttl && !o->persist && (!o->time || o->time == t)) {
            o->time = t;
            o->time_arg = c->argv[++i];
        } else if (user == FOR_SET && bytes_is(word, "NX") && !o->xx) {
            o->nx = true;
        } else if (user == FOR_SET && bytes_is(word, "XX") && !o->nx) {
            o->xx = true;
        } else if (user == FOR_SET && bytes_is(word, "GET")) {
            o->get = true;
        } else if (user == FOR_SET && bytes_is(word, "KEEPTTL") && !o->time) {
            o->keep_ttl = true;
        } else if (user == FOR_GETEX && bytes_is(word, "PERSIST") && !o->time) {
            o->persist = true;
        } else {
            ctx_syntax_error(c);
            return false;
        }
    }
    return true;
}

/* -- SET and the like ------------------------------------------------------------------------ */

static void reply_value(struct ctx *c, struct key_ref *ref)
{
    struct str_view view;
    c->eng->ops->str.get(c->eng, ref, &view);
    reply_bulk(c->out, view.b);
}

/* A new value: the deadline is removed, and options don't matter. */
static inline void set_plain(struct ctx *c, bytes key, struct key_ref *ref, bytes value)
{
    strval_put(c, key, ref, value, 0);
    ctx_changed(c, key, NOTIFY_STRING, "set");
}

static void set_until(struct ctx *c, bytes key, struct key_ref *ref, bytes value, i64 deadline_ms)
{
    char digits[NUM_I64_LEN];
    strval_put(c, key, ref, value, ttl_stored(deadline_ms));
    ctx_changed(c, key, NOTIFY_STRING, "set");
    keyspace_notify(c->ks, c->db, key, NOTIFY_GENERIC, "expire");
    size_t n = num_print_i64(digits, ttl_stored(deadline_ms));
    CTX_EFFECT(c, BYTES_LIT("SET"), key, value, BYTES_LIT("PXAT"), bytes_of(digits, n));
}

static void set_with_options(struct ctx *c, bytes key, bytes value, const struct options *o)
{
    struct key_ref ref;
    i64 deadline_ms = 0;
    if (o->time && !ttl_parse(c, o->time_arg, o->time->unit, o->time->absolute, true, &deadline_ms))
        return;
    err found = o->get ? ctx_read(c, key, TYPE_STRING, &ref) : ctx_write(c, key, TYPE_NONE, &ref);
    if (found == ERR_TYPE) return;

    bool exists = found == OK;
    bool refused = o->nx ? exists : o->xx && !exists;
    if (o->get && exists)
        reply_value(c, &ref);
    else if (o->get || refused)
        reply_null(c->out);
    if (refused) return;

    if (o->time) {
        set_until(c, key, &ref, value, deadline_ms);
    } else if (o->keep_ttl) {
        if (exists && ref.type == TYPE_STRING) c->eng->intent = INTENT_IN_PLACE;
        strval_put(c, key, &ref, value, exists ? ref.deadline_ms : 0);
        ctx_changed(c, key, NOTIFY_STRING, "set");
        CTX_EFFECT(c, BYTES_LIT("SET"), key, value, BYTES_LIT("KEEPTTL"));
    } else {
        set_plain(c, key, &ref, value);
        CTX_EFFECT(c, BYTES_LIT("SET"), key, value);
    }
    if (!o->get) reply_ok(c->out);
}

void cmd_set(struct ctx *c)
{
    struct options options;
    if (LIKELY(c->argc == 3)) {
        struct key_ref ref;
        keyspace_find(c->ks, c->db, c->argv[1], LOOKUP_WRITE, &ref);
        set_plain(c, c->argv[1], &ref, c->argv[2]);
        reply_ok(c->out);
    } else if (string_parse_options(c, 3, FOR_SET, &options)) {
        set_with_options(c, c->argv[1], c->argv[2], &options);
    }
}

void cmd_setnx(struct ctx *c)
{
    struct key_ref ref;
    bool exists = ctx_write(c, c->argv[1], TYPE_NONE, &ref) == OK;
    if (!exists) set_plain(c, c->argv[1], &ref, c->argv[2]);
    reply_int(c->out, !exists);
}

static void set_for_time(struct ctx *c, enum ttl_unit unit)
{
    struct key_ref ref;
    i64 deadline_ms;
    if (!ttl_parse(c, c->argv[2], unit, false, true, &deadline_ms)) return;
    keyspace_find(c->ks, c->db, c->argv[1], LOOKUP_WRITE, &ref);
    set_until(c, c->argv[1], &ref, c->argv[3], deadline_ms);
    reply_ok(c->out);
}

void cmd_setex(struct ctx *c) { set_for_time(c, TTL_SECONDS); }
void cmd_psetex(struct ctx *c) { set_for_time(c, TTL_MILLISECONDS); }

/* -- GET and the like ------------------------------------------------------------------------ */

/* Replies the value or null. True when there is one; false also on WRONGTYPE. */
static inline bool get_and_reply(struct ctx *c, struct key_ref *ref)
{
    err found = ctx_read(c, c->argv[1], TYPE_STRING, ref);
    if (found == ERR_NOT_FOUND) reply_null(c->out);
    if (found != OK) return false;
    reply_value(c, ref);
    return true;
}

void cmd_get(struct ctx *c)
{
    struct key_ref ref;
    get_and_reply(c, &ref);
}

void cmd_getset(struct ctx *c)
{
    struct key_ref ref;
    err found = ctx_read(c, c->argv[1], TYPE_STRING, &ref);
    if (found == ERR_TYPE) return;
    if (found == OK)
        reply_value(c, &ref);
    else
        reply_null(c->out);
    set_plain(c, c->argv[1], &ref, c->argv[2]);
    CTX_EFFECT(c, BYTES_LIT("SET"), c->argv[1], c->argv[2]);
}

static void delete_key(struct ctx *c, bytes key, struct key_ref *ref)
{
    ctx_drop(c, ref);
    ctx_changed(c, key, NOTIFY_GENERIC, "del");
    CTX_EFFECT(c, BYTES_LIT("DEL"), key);
}

void cmd_getdel(struct ctx *c)
{
    struct key_ref ref;
    if (get_and_reply(c, &ref)) delete_key(c, c->argv[1], &ref);
}

static void getex_deadline(struct ctx *c, bytes key, struct key_ref *ref, i64 deadline_ms)
{
    if (ttl_past(c, deadline_ms)) {
        delete_key(c, key, ref);
        return;
    }
    char digits[NUM_I64_LEN];
    c->eng->ops->set_deadline(c->eng, ref, deadline_ms);
    ctx_changed(c, key, NOTIFY_GENERIC, "expire");
    size_t n = num_print_i64(digits, deadline_ms);
    CTX_EFFECT(c, BYTES_LIT("PEXPIREAT"), key, bytes_of(digits, n));
}

/* Redis checks the time's value only after the key and its type. */
void cmd_getex(struct ctx *c)
{
    bytes key = c->argv[1];
    struct options o;
    struct key_ref ref;
    i64 deadline_ms = 0;
    if (!string_parse_options(c, 2, FOR_GETEX, &o)) return;
    err found = ctx_read(c, key, TYPE_STRING, &ref);
    if (found == ERR_NOT_FOUND) reply_null(c->out);
    if (found != OK) return;
    if (o.time && !ttl_parse(c, o.time_arg, o.time->unit, o.time->absolute, true, &deadline_ms))
        return;

    reply_value(c, &ref);
    if (o.time) {
        getex_deadline(c, key, &ref, deadline_ms);
    } else if (o.persist && ref.deadline_ms != 0) {
        c->eng->ops->set_deadline(c->eng, &ref, 0);
        ctx_changed(c, key, NOTIFY_GENERIC, "persist");
        CTX_EFFECT(c, BYTES_LIT("PERSIST"), key);
    }
}

/* -- MGET MSET MSETNX ---------------------------------------------------------- */

void cmd_mget(struct ctx *c)
{
    reply_array(c->out, (size_t)c->argc - 1);
    for (int i = 1; i < c->argc; i++) {
        struct key_ref ref;
        if (ctx_read(c, c->argv[i], TYPE_NONE, &ref) == OK && ref.type == TYPE_STRING)
            reply_value(c, &ref);
        else
            reply_null(c->out);
    }
}

static void mset_all(struct ctx *c)
{
    for (int i = 1; i < c->argc; i += 2) {
        struct key_ref ref;
        keyspace_find(c->ks, c->db, c->argv[i], LOOKUP_WRITE, &ref);
        set_plain(c, c->argv[i], &ref, c->argv[i + 1]);
    }
}

void cmd_mset(struct ctx *c)
{
    if (c->argc % 2 == 0) {
        ctx_wrong_arity(c);
        return;
    }
    mset_all(c);
    reply_ok(c->out);
}

void cmd_msetnx(struct ctx *c)
{
    if (c->argc % 2 == 0) {
        ctx_wrong_arity(c);
        return;
    }
    for (int i = 1; i < c->argc; i += 2) {
        struct key_ref ref;
        if (ctx_write(c, c->argv[i], TYPE_NONE, &ref) == OK) {
            reply_int(c->out, 0);
            return;
        }
    }
    mset_all(c);
    reply_int(c->out, 1);
}

/* -- parts of a value ---------------------------------------------------------- */

void cmd_strlen(struct ctx *c)
{
    struct key_ref ref;
    err found = ctx_read(c, c->argv[1], TYPE_STRING, &ref);
    if (found == ERR_TYPE) return;
    reply_int(c->out, found == OK ? (i64)c->eng->ops->str.length(c->eng, &ref) : 0);
}

void cmd_getrange(struct ctx *c)
{
    struct key_ref ref;
    struct str_view view;
    i64 start, end;
    if (!ctx_int(c, c->argv[2], &start) || !ctx_int(c, c->argv[3], &end)) return;
    if (ctx_read(c, c->argv[1], TYPE_STRING, &ref) == ERR_TYPE) return;

    bytes value = strval_get(c, &ref, &view);
    i64 len = (i64)value.n;
    bool backwards = start < 0 && end < 0 && start > end;
    if (start < 0) start = MAX(start + len, 0);
    if (end < 0) end = MAX(end + len, 0);
    if (end >= len) end = len - 1;
    if (backwards || start > end)
        reply_bulk(c->out, BYTES_LIT(""));
    else
        reply_bulk(c->out, bytes_of(value.p + start, (size_t)(end - start + 1)));
}

void cmd_substr(struct ctx *c) { cmd_getrange(c); }

/* Whether `more` bytes from `at` on would make the string too long; then the error was replied. */
static bool too_long(struct ctx *c, u64 at, u64 more)
{
    if (at + more <= c->ks->max_string) return false;
    reply_error(c->out, "ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    return true;
}

void cmd_setrange(struct ctx *c)
{
    bytes key = c->argv[1], value = c->argv[3];
    struct key_ref ref;
    i64 offset;
    if (!ctx_int(c, c->argv[2], &offset)) return;
    if (offset < 0) {
        reply_error(c->out, "ERR offset is out of range");
        return;
    }
    err found = ctx_write(c, key, TYPE_STRING, &ref);
    if (found == ERR_TYPE) return;

    size_t len = found == OK ? c->eng->ops->str.length(c->eng, &ref) : 0;
    if (value.n == 0) { /* nothing happens, not even padding */
        reply_int(c->out, (i64)len);
        return;
    }
    if (too_long(c, (u64)offset, value.n)) return;
    len = MAX(len, (size_t)offset + value.n);
    memcpy(strval_edit(c, key, &ref, len) + offset, value.p, value.n);
    ctx_changed(c, key, NOTIFY_STRING, "setrange");
    reply_int(c->out, (i64)len);
}

void cmd_append(struct ctx *c)
{
    bytes key = c->argv[1], value = c->argv[2];
    struct key_ref ref;
    size_t len = 0;
    err found = ctx_write(c, key, TYPE_STRING, &ref);
    if (found == ERR_TYPE) return;
    if (found == OK) {
        len = c->eng->ops->str.length(c->eng, &ref);
        if (too_long(c, len, value.n)) return;
        char *p = c->eng->ops->str.edit(c->eng, &ref, len + value.n);
        if (value.n) memcpy(p + len, value.p, value.n);
    } else {
        strval_put(c, key, &ref, value, 0);
    }
    ctx_changed(c, key, NOTIFY_STRING, "append");
    reply_int(c->out, (i64)(len + value.n));
}

/* -- counters ------------------------------------------------------------------ */

static void counter_add(struct ctx *c, i64 step)
{
    bytes key = c->argv[1];
    struct key_ref ref;
    i64 value = 0;
    err found = ctx_write(c, key, TYPE_STRING, &ref);
    if (found == ERR_TYPE) return;
    if (found == OK && !c->eng->ops->str.get_int(c->eng, &ref, &value)) {
        reply_error(c->out, "ERR value is not an integer or out of range");
        return;
    }
    if (__builtin_add_overflow(value, step, &value)) {
        reply_error(c->out, "ERR increment or decrement would overflow");
        return;
    }
    c->eng->intent = INTENT_ADD;
    if (found == OK) {
        c->eng->ops->str.set_int(c->eng, &ref, value);
    } else {
        char digits[NUM_I64_LEN];
        size_t n = num_print_i64(digits, value);
        strval_put(c, key, &ref, bytes_of(digits, n), 0);
    }
    ctx_changed(c, key, NOTIFY_STRING, "incrby");
    reply_int(c->out, value);
}

void cmd_incr(struct ctx *c) { counter_add(c, 1); }
void cmd_decr(struct ctx *c) { counter_add(c, -1); }

void cmd_incrby(struct ctx *c)
{
    i64 step;
    if (ctx_int(c, c->argv[2], &step)) counter_add(c, step);
}

void cmd_decrby(struct ctx *c)
{
    i64 step;
    if (!ctx_int(c, c->argv[2], &step)) return;
    if (step == INT64_MIN) { /* can't be negated */
        reply_error(c->out, "ERR decrement would overflow");
        return;
    }
    counter_add(c, -step);
}

/* Journalled as the result: another machine may add floats differently. */
void cmd_incrbyfloat(struct ctx *c)
{
    bytes key = c->argv[1];
    struct key_ref ref;
    struct str_view view;
    long double value = 0, step;
    err found = ctx_write(c, key, TYPE_STRING, &ref);
    if (found == ERR_TYPE) return;
    if ((found == OK && !num_parse_long_double(strval_get(c, &ref, &view), &value)) ||
        !num_parse_long_double(c->argv[2], &step)) {
        reply_error(c->out, "ERR value is not a valid float");
        return;
    }
    value += step;
    if (!isfinite(value)) {
        reply_error(c->out, "ERR increment would produce NaN or Infinity");
        return;
    }
    char digits[NUM_DOUBLE_LEN];
    bytes result = bytes_of(digits, num_print_long_double(digits, value));
    c->eng->intent = INTENT_ADD;
    strval_put_text(c, key, &ref, result, found == OK ? ref.deadline_ms : 0);
    ctx_changed(c, key, NOTIFY_STRING, "incrbyfloat");
    CTX_EFFECT(c, BYTES_LIT("SET"), key, result, BYTES_LIT("KEEPTTL"));
    reply_bulk(c->out, result);
}
