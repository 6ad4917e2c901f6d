/* Deadlines of keys: EXPIRE and the like, TTL and the like, PERSIST.
 *
 * Whatever unit and base a client used, one absolute deadline in milliseconds is stored and journalled. A
 * deadline that has already passed is a delete: it happens now, as DEL, not at the next cycle. */
#include "command/commands.h"
#include "command/ttl.h"

const struct ttl_option *ttl_option(bytes word)
{
    static const struct ttl_option options[] = {
        {"ex", TTL_SECONDS, false},
        {"px", TTL_MILLISECONDS, false},
        {"exat", TTL_SECONDS, true},
        {"pxat", TTL_MILLISECONDS, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        if (bytes_is(word, options[i].name)) return &options[i];
    return NULL;
}

bool ttl_parse(struct ctx *c, bytes arg, enum ttl_unit unit, bool absolute, bool positive_only,
               i64 *deadline_ms)
{
    i64 value;
    if (!ctx_int(c, arg, &value)) return false;
    i64 base_ms = absolute ? 0 : c->now_ms;
    if ((positive_only && value <= 0) || __builtin_mul_overflow(value, (i64)unit, &value) ||
        __builtin_add_overflow(value, base_ms, &value)) {
        reply_errorf(c->out, "ERR invalid expire time in '%s' command", c->cmd->name);
        return false;
    }
    *deadline_ms = value;
    return true;
}

/* -- EXPIRE PEXPIRE EXPIREAT PEXPIREAT -------------------------------------- */

enum { EXPIRE_NX = 1, EXPIRE_XX = 2, EXPIRE_GT = 4, EXPIRE_LT = 8 };

static bool expire_options(struct ctx *c, u32 *flags)
{
    *flags = 0;
    for (int i = 3; i < c->argc; i++) {
        bytes opt = c->argv[i];
        if (bytes_is(opt, "nx")) *flags |= EXPIRE_NX;
        else if (bytes_is(opt, "xx")) *flags |= EXPIRE_XX;
        else if (bytes_is(opt, "gt")) *flags |= EXPIRE_GT;
        else if (bytes_is(opt, "lt")) *flags |= EXPIRE_LT;
        else {
            reply_errorf(c->out, "ERR Unsupported option %.*s", (int)opt.n, opt.p);
            return false;
        }
    }
    if ((*flags & EXPIRE_NX) && (*flags & ~(u32)EXPIRE_NX)) {
        reply_error(c->out,
                    "ERR NX and XX, GT or LT options at the same time are not compatible");
        return false;
    }
    if ((*flags & EXPIRE_GT) && (*flags & EXPIRE_LT)) {
        reply_error(c->out, "ERR GT and LT options at the same time are not compatible");
        return false;
    }
    return true;
}

/* No deadline is later than any: nothing is greater, everything is less. */
static bool expire_allowed(u32 flags, i64 current_ms, i64 wanted_ms)
{
    if ((flags & EXPIRE_NX) && current_ms != 0) return false;
    if ((flags & EXPIRE_XX) && current_ms == 0) return false;
    if ((flags & EXPIRE_GT) && (current_ms == 0 || wanted_ms <= current_ms)) return false;
    if ((flags & EXPIRE_LT) && current_ms != 0 && wanted_ms >= current_ms) return false;
    return true;
}

static void expire_apply(struct ctx *c, struct key_ref *ref, i64 deadline_ms)
{
    bytes key = c->argv[1];
    if (ttl_past(c, deadline_ms)) {
        ctx_drop(c, ref);
        ctx_changed(c, key, NOTIFY_GENERIC, "del");
        CTX_EFFECT(c, BYTES_LIT("DEL"), key);
        return;
    }
    deadline_ms = ttl_stored(deadline_ms);
    c->eng->ops->set_deadline(c->eng, ref, deadline_ms);
    ctx_changed(c, key, NOTIFY_GENERIC, "expire");
    char digits[NUM_I64_LEN];
    size_t n = num_print_i64(digits, deadline_ms);
    CTX_EFFECT(c, BYTES_LIT("PEXPIREAT"), key, bytes_of(digits, n));
}

static void key_expire_command(struct ctx *c, enum ttl_unit unit, bool absolute)
{
    u32 flags;
    i64 deadline_ms;
    struct key_ref ref;
    if (!expire_options(c, &flags)) return;
    if (!ttl_parse(c, c->argv[2], unit, absolute, false, &deadline_ms)) return;
    if (ctx_write(c, c->argv[1], TYPE_NONE, &ref) != OK ||
        !expire_allowed(flags, ref.deadline_ms, deadline_ms)) {
        reply_int(c->out, 0);
        return;
    }
    expire_apply(c, &ref, deadline_ms);
    reply_int(c->out, 1);
}

void cmd_expire(struct ctx *c) { key_expire_command(c, TTL_SECONDS, false); }
void cmd_pexpire(struct ctx *c) { key_expire_command(c, TTL_MILLISECONDS, false); }
void cmd_expireat(struct ctx *c) { key_expire_command(c, TTL_SECONDS, true); }
void cmd_pexpireat(struct ctx *c) { key_expire_command(c, TTL_MILLISECONDS, true); }

/* -- TTL PTTL EXPIRETIME PEXPIRETIME ---------------------------------------- */

static void key_ttl_command(struct ctx *c, enum ttl_unit unit, bool absolute)
{
    struct key_ref ref;
    if (ctx_peek(c, c->argv[1], TYPE_NONE, &ref) != OK) {
        reply_int(c->out, -2);
        return;
    }
    if (ref.deadline_ms == 0) {
        reply_int(c->out, -1);
        return;
    }
    i64 ms = absolute ? ref.deadline_ms : ref.deadline_ms - c->now_ms;
    if (ms < 0) ms = 0; /* a replica that serves dead keys shows them with no time left */
    /* Seconds are rounded; unsigned, for INT64_MAX is a legal deadline. */
    reply_int(c->out, unit == TTL_SECONDS ? (i64)(((u64)ms + 500) / 1000) : ms);
}

void cmd_ttl(struct ctx *c) { key_ttl_command(c, TTL_SECONDS, false); }
void cmd_pttl(struct ctx *c) { key_ttl_command(c, TTL_MILLISECONDS, false); }
void cmd_expiretime(struct ctx *c) { key_ttl_command(c, TTL_SECONDS, true); }
void cmd_pexpiretime(struct ctx *c) { key_ttl_command(c, TTL_MILLISECONDS, true); }

void cmd_persist(struct ctx *c)
{
    struct key_ref ref;
    if (ctx_write(c, c->argv[1], TYPE_NONE, &ref) != OK || ref.deadline_ms == 0) {
        reply_int(c->out, 0);
        return;
    }
    c->eng->ops->set_deadline(c->eng, &ref, 0);
    ctx_changed(c, c->argv[1], NOTIFY_GENERIC, "persist");
    reply_int(c->out, 1);
}
