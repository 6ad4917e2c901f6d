/* A request that waits for keys: BLPOP and its like found nothing.
 *
 * The command calls ctx_wait and returns without a reply. Whoever runs it (exec) takes what it left and, when
 * one of the keys may have something, runs the same arguments again, with ctx.ready naming that key: the
 * command then answers from that key alone, or calls ctx_wait again, which leaves it waiting in its place.
 * When the time is up the answer is a null array, whatever the command. */
#ifndef MAYFLY_COMMAND_WAITING_H
#define MAYFLY_COMMAND_WAITING_H

#include "command/ctx.h"

struct waiting {
    i64 timeout_ms;       /* from now on; 0: for ever */
    int argc;
    bytes *argv;          /* a copy, in this allocation */
    int first, count;     /* the keys it waits for: argv[first .. first + count) */
    enum value_type type; /* it is run again when a key holds this … */
    bool even_gone;       /* … or when one is deleted or replaced by something else: XREADGROUP */
};

/* The command waits for these keys of its arguments to hold a value of this type, or (in a transaction, a
 * script, a replayed record) answers that there is nothing. `argv`, as many as the command's own, may differ
 * from them, where it has to mean the same later on (XREAD's $). timeout_ms 0: for ever. Returns what it
 * left, to be completed, or NULL. */
struct waiting *ctx_wait(struct ctx *c, enum value_type type, const bytes *argv, int first, int count,
                         i64 timeout_ms);

/* The timeout of a blocking command, in seconds with a fraction, as milliseconds; false: error replied. */
NODISCARD bool ctx_timeout_s(struct ctx *c, bytes arg, i64 *out_ms);

/* Whether this key is to be looked at: all are when the command first runs. */
static inline bool ctx_looks_at(const struct ctx *c, bytes key)
{
    return !c->ready || bytes_eq(*c->ready, key);
}

void waiting_free(struct waiting *w);

#endif
