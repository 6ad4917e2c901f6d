/* A request that waits for keys: BLPOP and its like found nothing.
 *
 * The command calls ctx_wait and returns without a reply. Whoever runs it (exec) takes what it left and, when
 * one of the keys may have something, runs the same arguments again, with ctx.ready naming that key: the command
 * then answers from that key alone, or calls ctx_wait again, which leaves it waiting in its place. What it
 * answers when the time is up, is up to the table of those who wait (`nothing`). */
#ifndef MAYFLY_COMMAND_WAITING_H
#define MAYFLY_COMMAND_WAITING_H

#include "command/ctx.h"

struct waiting {
    i64 until_ms;         /* of the server's clock; 0: for ever */
    int argc;
    bytes *argv;          /* a copy, in this allocation */
    int first, count;     /* the keys it waits for: argv[first .. first + count) */
    bool null_array;      /* what it answers at the end of its time: a null array, or a null */
    bool reads;           /* it takes nothing away, so that all who wait get the same: XREAD */
};

/* The command waits for these keys of its arguments, or (a transaction, a script, a replayed record) answers
 * that there is nothing. `argv` may differ from the command's own, where it has to mean the same later on
 * (XREAD's $). timeout_ms 0: for ever. */
void ctx_wait(struct ctx *c, const bytes *argv, int first, int count, i64 timeout_ms, bool null_array);

/* The timeout of a blocking command, in seconds with a fraction, as milliseconds; false: an error was replied. */
NODISCARD bool ctx_timeout_s(struct ctx *c, bytes arg, i64 *out_ms);

/* Whether this key is to be looked at: all are when the command first runs. */
static inline bool ctx_looks_at(const struct ctx *c, bytes key) { return !c->ready || bytes_eq(*c->ready, key); }

void waiting_free(struct waiting *w);

#endif
