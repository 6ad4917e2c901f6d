/* Deadlines in arguments: SET, GETEX, EXPIRE and the hash-field commands all
 * read them here. */
#ifndef MAYFLY_COMMAND_TTL_H
#define MAYFLY_COMMAND_TTL_H

#include "command/ctx.h"

enum ttl_unit { TTL_MILLISECONDS = 1, TTL_SECONDS = 1000 };

/* The options EX, PX, EXAT and PXAT. */
struct ttl_option {
    const char *name;
    enum ttl_unit unit;
    bool absolute;
};
const struct ttl_option *ttl_option(bytes word); /* NULL: none of them */

/* Turns an argument into an absolute deadline. False: an error was replied ("value is not an integer or out
 * of range", or "invalid expire time in 'x' command" on overflow and, with positive_only, on values <= 0). A
 * deadline in the past is returned unchanged: the caller deletes. */
NODISCARD bool ttl_parse(struct ctx *c, bytes arg, enum ttl_unit unit, bool absolute,
                         bool positive_only, i64 *deadline_ms);

/* How a deadline is stored: 0 means "none" to the engine, so a deadline on or before the epoch is stored as 1
 * ms after it. */
static inline i64 ttl_stored(i64 deadline_ms) { return deadline_ms < 1 ? 1 : deadline_ms; }

/* Whether a deadline has passed, so that it deletes; also one on or before the epoch. For commands of a
 * primary's stream none has: the primary sends deletes itself. */
static inline bool ttl_past(const struct ctx *c, i64 deadline_ms)
{
    return !alive(ttl_stored(deadline_ms), c->ks->dead_by_ms);
}

#endif
