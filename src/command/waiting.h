/* A request that waits for keys: BLPOP and the like found nothing.
 *
 * The command calls ctx_wait and returns without a reply. Its caller (exec) takes the struct waiting and,
 * when one of the keys may have something, runs the same arguments again, with ctx.ready naming that key: the
 * command then replies from that key alone, or calls ctx_wait again, and keeps its place. On timeout the
 * reply is a null array, whatever the command. */
#ifndef MAYFLY_COMMAND_WAITING_H
#define MAYFLY_COMMAND_WAITING_H

#include "command/ctx.h"

struct waiting {
    i64 timeout_ms;       /* from now on; 0: no timeout */
    int argc;
    bytes *argv;          /* a copy, in this allocation */
    int first, count;     /* the keys it waits for: argv[first .. first + count) */
    enum value_type type; /* it is run again when a key holds this … */
    bool even_gone;       /* … or when one is deleted or replaced by something else: XREADGROUP */
};

/* The command waits until one of these keys holds a value of this type, or (in a transaction, a script, a
 * replayed record) replies that there is nothing. `argv` has as many arguments as the command's own, and may
 * differ where they have to mean the same later (XREAD's $). timeout_ms 0: no timeout. Returns the struct
 * waiting, to be completed, or NULL. */
struct waiting *ctx_wait(struct ctx *c, enum value_type type, const bytes *argv, int first, int count,
                         i64 timeout_ms);

/* The timeout of a blocking command, in seconds with a fraction, as milliseconds; false: error replied. */
NODISCARD bool ctx_timeout_s(struct ctx *c, bytes arg, i64 *out_ms);

/* Whether to look at this key: at all of them when the command first runs. */
static inline bool ctx_looks_at(const struct ctx *c, bytes key)
{
    return !c->ready || bytes_eq(*c->ready, key);
}

void waiting_free(struct waiting *w);

#endif
