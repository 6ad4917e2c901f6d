#include "command/ctx.h"

#include <stdio.h>

/* -- looking up --------------------------------------------------------------- */

static err lookup(struct ctx *c, bytes key, enum value_type type, enum lookup_intent intent,
                  struct key_ref *ref)
{
    if (!keyspace_find(c->ks, c->db, key, intent, ref)) return ERR_NOT_FOUND;
    if (type != TYPE_NONE && ref->type != type) {
        ctx_wrong_type(c);
        return ERR_TYPE;
    }
    return OK;
}

err ctx_read(struct ctx *c, bytes key, enum value_type type, struct key_ref *ref)
{
    return lookup(c, key, type, LOOKUP_READ, ref);
}

err ctx_write(struct ctx *c, bytes key, enum value_type type, struct key_ref *ref)
{
    return lookup(c, key, type, LOOKUP_WRITE, ref);
}

err ctx_peek(struct ctx *c, bytes key, enum value_type type, struct key_ref *ref)
{
    err e = lookup(c, key, type, LOOKUP_PEEK, ref);
    if (e == ERR_NOT_FOUND) keyspace_notify(c->ks, c->db, key, NOTIFY_MISS, "keymiss");
    return e;
}

static void ctx_create(struct ctx *c, bytes key, enum value_type type, struct key_ref *ref)
{
    c->eng->ops->create(c->eng, c->db, key, type, ref);
    keyspace_notify(c->ks, c->db, key, NOTIFY_NEW, "new");
}

bool ctx_open(struct ctx *c, bytes key, enum value_type type, struct key_ref *ref)
{
    err e = ctx_write(c, key, type, ref);
    if (e == ERR_NOT_FOUND) ctx_create(c, key, type, ref);
    return e != ERR_TYPE;
}

void ctx_replace(struct ctx *c, bytes key, enum value_type type, struct key_ref *ref)
{
    if (ctx_write(c, key, TYPE_NONE, ref) == ERR_NOT_FOUND) {
        ctx_create(c, key, type, ref);
        return;
    }
    ctx_drop(c, ref);
    c->eng->ops->create(c->eng, c->db, key, type, ref); /* overwritten: no `new` */
}

/* -- changing ----------------------------------------------------------------- */

void ctx_changed(struct ctx *c, bytes key, u32 class, const char *event)
{
    keyspace_changed(c->ks, c->db, key, class, event);
}

void ctx_changed_by(struct ctx *c, u64 changes, bytes key, u32 class, const char *event)
{
    ctx_changed(c, key, class, event);
    c->ks->dirty += changes - 1;
}

void ctx_drop(struct ctx *c, struct key_ref *ref) { c->eng->ops->drop(c->eng, ref); }

bool ctx_drop_if_empty(struct ctx *c, struct key_ref *ref)
{
    if (c->eng->ops->size(c->eng, ref) != 0) return false;
    keyspace_notify(c->ks, ref->db, ref->key, NOTIFY_GENERIC, "del");
    ctx_drop(c, ref);
    return true;
}

/* -- effects ------------------------------------------------------------------ */

void ctx_effect(struct ctx *c, int argc, const bytes *argv)
{
    c->effects_given = true;
    journal_effect(c->ks->journal, c->db, argc, argv);
}

void ctx_no_effect(struct ctx *c) { c->effects_given = true; }

/* -- arguments ---------------------------------------------------------------- */

bool ctx_int(struct ctx *c, bytes arg, i64 *out)
{
    if (num_parse_i64(arg, out)) return true;
    reply_error(c->out, "ERR value is not an integer or out of range");
    return false;
}

bool ctx_int_range(struct ctx *c, bytes arg, i64 min, i64 max, i64 *out)
{
    if (!ctx_int(c, arg, out)) return false;
    if (*out >= min && *out <= max) return true;
    reply_errorf(c->out, "ERR value is out of range, value must between %lld and %lld", (long long)min,
                 (long long)max);
    return false;
}

bool ctx_int_min(struct ctx *c, bytes arg, i64 min, const char *error, i64 *out)
{
    if (num_parse_i64(arg, out) && *out >= min) return true;
    reply_error(c->out, error);
    return false;
}

bool ctx_double(struct ctx *c, bytes arg, double *out)
{
    if (num_parse_double(arg, out)) return true;
    reply_error(c->out, "ERR value is not a valid float");
    return false;
}

bool ctx_positive(struct ctx *c, bytes arg, i64 *out)
{
    return ctx_int_min(c, arg, 0, "ERR value is out of range, must be positive", out);
}

#define MAX_REPEATS ((i64)1 << 28)

bool ctx_repeats_fit(struct ctx *c, i64 count)
{
    if (count >= -MAX_REPEATS) return true;
    reply_error(c->out, "ERR value is out of range");
    return false;
}

/* -- replies ------------------------------------------------------------------ */

bool ctx_refuse(struct ctx *c, const char *error)
{
    reply_error(c->out, error);
    return false;
}

void ctx_syntax_error(struct ctx *c) { reply_error(c->out, "ERR syntax error"); }

void ctx_wrong_type(struct ctx *c)
{
    reply_error(c->out, "WRONGTYPE Operation against a key holding the wrong kind of value");
}

void ctx_wrong_arity(struct ctx *c)
{
    reply_errorf(c->out, "ERR wrong number of arguments for '%s' command", c->cmd->name);
}

/* "OBJECT" for object and for object|freq. */
static void container_name(const struct command *cmd, char upper[64])
{
    size_t n = 0;
    for (; cmd->name[n] && cmd->name[n] != '|' && n < 63; n++) {
        char ch = cmd->name[n];
        upper[n] = ch >= 'a' && ch <= 'z' ? (char)(ch - 32) : ch;
    }
    upper[n] = '\0';
}

void ctx_unknown_subcommand(struct ctx *c)
{
    char upper[64];
    container_name(c->cmd, upper);
    reply_errorf(c->out, "ERR unknown subcommand '%.*s'. Try %s HELP.", (int)MIN(c->argv[1].n, 128u),
                 c->argv[1].p, upper);
}

void ctx_wrong_subcommand(struct ctx *c)
{
    char upper[64];
    container_name(c->cmd, upper);
    reply_errorf(c->out, "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try %s HELP.",
                 (int)MIN(c->argv[1].n, 128u), c->argv[1].p, upper);
}

void ctx_help(struct ctx *c, const char *const *lines)
{
    char upper[64];
    size_t count = 0;
    container_name(c->cmd, upper);
    while (lines[count]) count++;
    reply_array(c->out, count + 3);
    char head[160];
    snprintf(head, sizeof head, "%s <subcommand> [<arg> [value] [opt] ...]. Subcommands are:", upper);
    reply_simple(c->out, head);
    for (size_t i = 0; i < count; i++) reply_simple(c->out, lines[i]);
    reply_simple(c->out, "HELP");
    reply_simple(c->out, "    Prints this help.");
}

bool ctx_timeout_fits(struct ctx *c, i64 ms)
{
    if (ms < 0) reply_error(c->out, "ERR timeout is negative");
    else if (ms > INT64_MAX - c->now_ms) reply_error(c->out, "ERR timeout is out of range");
    else return true;
    return false;
}

bool ctx_timeout_ms(struct ctx *c, bytes arg, i64 *out)
{
    if (num_parse_i64(arg, out)) return ctx_timeout_fits(c, *out);
    reply_error(c->out, "ERR timeout is not an integer or out of range");
    return false;
}
