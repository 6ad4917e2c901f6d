/* A count of deadlines, as the deadline indexes report them. */
#ifndef MAYFLY_DS_DUE_SPAN_H
#define MAYFLY_DS_DUE_SPAN_H

#include "base/types.h"

/* Keys whose deadlines lie in from_ms … to_ms - 1. All times zero: overdue for an unknown time. */
struct due_span {
    i64 from_ms, to_ms, mean_ms;
    u64 keys;
};

typedef void (*due_span_fn)(void *arg, const struct due_span *s);

#endif
