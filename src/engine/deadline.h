/* Deadlines: the one predicate that decides whether something is alive.
 *
 * deadline_ms is a Unix time in milliseconds; 0 means "none". The moment the
 * clock reads the deadline the key is dead: `now == deadline` is already past. */
#ifndef MAYFLY_ENGINE_DEADLINE_H
#define MAYFLY_ENGINE_DEADLINE_H

#include "base/types.h"

static inline bool alive(i64 deadline_ms, i64 now_ms)
{
    return deadline_ms == 0 || now_ms < deadline_ms;
}

#endif
