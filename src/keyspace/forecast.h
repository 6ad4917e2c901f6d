/* EXPIRY FORECAST: how many keys expire within given horizons, and how many are overdue. It adds up the
 * counters of the deadline index and reads no key, so its cost does not depend on the number of keys.
 *
 * Accuracy: every cell of the index (ds/due_cells.h) is counted exactly, except the one a horizon falls into.
 * That cell is counted as a whole if the mean of its deadlines is within the horizon. So keys that share a
 * deadline are always counted exactly, and for evenly spread keys the error is at most half a cell, 0.6 % of
 * the keys within the horizon. Up to four seconds ahead the count is exact to the millisecond. */
#ifndef MAYFLY_KEYSPACE_FORECAST_H
#define MAYFLY_KEYSPACE_FORECAST_H

#include "engine/engine.h"

#define FORECAST_HORIZONS 11

struct forecast_horizon {
    const char *name;
    i64 ms; /* from now; INT64_MAX: unbounded */
};

extern const struct forecast_horizon forecast_horizons[FORECAST_HORIZONS];

struct forecast {
    i64 now_ms;
    i64 oldest_overdue_ms; /* lower bound of the age of the oldest overdue key; 0: none is overdue */
    double dead;           /* keys whose deadline has passed */
    double whole[FORECAST_HORIZONS]; /* keys in cells wholly within this horizon but not the previous one */
    double cut[FORECAST_HORIZONS];   /* keys in the cell it falls into: the part within the horizon */
};

/* Adds a database's counters. Start with {.now_ms}. */
void forecast_add(struct forecast *f, struct engine *e, u32 db);
void forecast_add_all(struct forecast *f, struct engine *e);

/* Keys that are dead and not reclaimed yet: deadlines up to and including now. */
u64 forecast_overdue(const struct forecast *f);
/* Keys that expire within each horizon: deadlines after now, up to and including now + ms. */
void forecast_within(const struct forecast *f, u64 keys[FORECAST_HORIZONS]);

#endif
