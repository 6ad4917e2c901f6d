/* When keys will expire, and how many are overdue: the counters of the deadline index, added up by horizon.
 * It looks at no key and costs the same for any number of them.
 *
 * How exact: every cell of the index (ds/due_cells.h) but the one that a horizon cuts through is counted
 * exactly. That one counts wholly if the mean of its deadlines is within the horizon; so keys that share a
 * deadline are always counted exactly, and of keys spread evenly at most half a cell's, 0.6 % of those within
 * the horizon. Up to four seconds ahead it is exact to the millisecond. */
#ifndef MAYFLY_KEYSPACE_FORECAST_H
#define MAYFLY_KEYSPACE_FORECAST_H

#include "engine/engine.h"

#define FORECAST_HORIZONS 11

struct forecast_horizon {
    const char *name;
    i64 ms; /* from now; INT64_MAX: without end */
};

extern const struct forecast_horizon forecast_horizons[FORECAST_HORIZONS];

struct forecast {
    i64 now_ms;
    i64 oldest_overdue_ms; /* how long the oldest of the overdue keys has been dead for certain; 0: none is */
    double dead;           /* keys whose deadline has passed */
    double whole[FORECAST_HORIZONS]; /* of cells wholly within this horizon, and not within the one before */
    double cut[FORECAST_HORIZONS];   /* of those that it cuts through: the part within */
};

/* Adds a database's counters; `f` starts out as {.now_ms}. */
void forecast_add(struct forecast *f, struct engine *e, u32 db);
void forecast_add_all(struct forecast *f, struct engine *e);

/* Keys that are dead and not reclaimed yet: deadlines up to and including now. */
u64 forecast_overdue(const struct forecast *f);
/* Keys that expire within each horizon: deadlines after now, up to and including now + ms. */
void forecast_within(const struct forecast *f, u64 keys[FORECAST_HORIZONS]);

#endif
