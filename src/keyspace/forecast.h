/* When keys will expire, and what is overdue: the counters of the deadline index, summed up by interval. It
 * looks at no key and costs the same for any number of them. */
#ifndef MAYFLY_KEYSPACE_FORECAST_H
#define MAYFLY_KEYSPACE_FORECAST_H

#include "engine/engine.h"

#define FORECAST_SPANS 11

struct forecast_interval {
    const char *name;
    i64 end_ms; /* from now; INT64_MAX: later than all others */
};

/* Finer the nearer. */
extern const struct forecast_interval forecast_intervals[FORECAST_SPANS];

struct forecast_span {
    i64 from_ms, to_ms; /* from now; of the buckets it took in, not the interval's own. One that has begun
                         * starts before now: what died in it can't be told from what lives. */
    u64 keys;
};

struct forecast {
    i64 now_ms;
    struct forecast_span overdue; /* of buckets that have ended: dead for certain, and not reclaimed yet */
    i64 oldest_overdue_ms;        /* how long the oldest of those has been dead for certain; 0: none */
    /* A bucket of the index belongs to the first interval that it ends in, so that "all within 1h" is never
     * too hopeful. */
    struct forecast_span span[FORECAST_SPANS];
};

/* Adds a database's counters; `f` starts out as {.now_ms}. */
void forecast_add(struct forecast *f, struct engine *e, u32 db);
void forecast_add_all(struct forecast *f, struct engine *e);

#endif
