/* The active expire cycle: its time budget and its steps. The rules are Redis's (hz, active-expire-effort,
 * fast and slow cycle), with two differences: the slow cycle's budget is spent in slices of at most
 * EXPIRE_SLICE_US between ticks, and while the loop is idle the cycle may exceed the budget.
 *
 * This module reads no clock: the caller passes the time in and measures the slices. */
#ifndef MAYFLY_KEYSPACE_EXPIRE_H
#define MAYFLY_KEYSPACE_EXPIRE_H

#include "keyspace/keyspace.h"

#define EXPIRE_SLICE_US 50 /* maximum delay of a waiting request */

#define EXPIRE_PACED_SLICE_US 100 /* of a cycle that rests between slices */

#define EXPIRE_RETRY_MS 1000 /* delay after a run in which the storage failed */

#define EXPIRE_CURSORS 16

enum expire_source { EXPIRE_INDEX, EXPIRE_SAMPLE };

/* A run: the slices from when something was due until nothing was left. */
struct expire_run {
    i64 at_ms;   /* when it began; 0: none yet */
    u64 cleaned; /* keys and hash fields */
    i64 took_us; /* time spent on it */
    u64 lag_ms;  /* the longest time between a deadline and its deletion */
};

struct expire_cycle {
    enum expire_source source;
    u32 hz, effort;  /* effort 1 … 10 */
    bool enabled;    /* DEBUG SET-ACTIVE-EXPIRE */
    i64 interval_ms; /* minimum time between two runs; 0: no runs */
    u32 batch;       /* maximum keys and fields of one slice, deleted in one transaction */

    i64 period_start_us, period_spent_us; /* the slow cycle's budget of this 1/hz second */
    i64 last_fast_us;
    bool cut_short;     /* the last period ended with work left */
    double stale_perc;  /* running estimate: share of dead keys among those looked at */
    u32 db;             /* where the last step stopped */
    u64 cursor[EXPIRE_CURSORS]; /* … and, when sampling, where in database n mod 16 */
    u64 time_cap_reached, spent_us;

    i64 next_ms; /* earliest time of the next run */
    struct expire_run run, last; /* under way, finished */
};

void expire_cycle_init(struct expire_cycle *c);

/* Whether the next run may start. */
bool expire_cycle_due(const struct expire_cycle *c, i64 now_ms);

/* Whether the cycle is active at all. */
static inline bool expire_cycle_active(const struct expire_cycle *c) { return c->enabled && c->interval_ms; }

/* How long the next slice may take: 0 = not now. `idle`: the loop has nothing else to do. */
i64 expire_cycle_allowance(struct expire_cycle *c, i64 mono_us, bool idle);

/* Whether work is left that waits for an allowance. */
bool expire_cycle_waits(const struct expire_cycle *c);

/* Reclaims a small bounded number of keys. True: there may be more to do right now.
 * It has work only where expiry_cycles() says so. */
bool expire_cycle_step(struct expire_cycle *c, struct keyspace *ks);

/* The slice took this long and, if more_left, stopped for lack of time. */
void expire_cycle_spent(struct expire_cycle *c, i64 took_us, bool more_left);

/* Adds a slice to the run. The run ends unless more_left. now_ms: by the clock that expire_cycle_due is asked
 * with; the keyspace's may stand still. */
void expire_cycle_ran(struct expire_cycle *c, struct keyspace *ks, i64 now_ms, u64 cleaned, i64 took_us,
                      bool more_left);

/* Rests between slices, for members of a cluster. All of them reclaim the same keys from the same moment on,
 * in processes that may share cores, and a request needs several of their loops. So a slice is followed by a
 * rest of three times its length, in wall time: where cores are contended, slices take longer and so do the
 * rests. The later reclaiming is, the shorter they are: from EXPIRE_PACE_LATE_MS on there are none. */
#define EXPIRE_PACE_REST 3
/* If the deletions of a slice can't be committed with it, but are later, with an entry that is in flight, the
 * commit takes this many times as long as the slice. */
#define EXPIRE_PACE_COMMIT 3
#define EXPIRE_PACE_REST_MAX_US 20000
#define EXPIRE_PACE_LATE_MS 4000

struct expire_pace {
    i64 rest_until_us; /* by the monotonic clock */
};

static inline bool expire_pace_rests(const struct expire_pace *p, i64 mono_us)
{
    return mono_us < p->rest_until_us;
}

/* A slice that took this long, with its commit if it is `committed`, ended at mono_us. The first of what is
 * still due has been for late_ms. */
void expire_pace_spent(struct expire_pace *p, i64 mono_us, i64 took_us, bool committed, i64 late_ms);

/* Keys and fields reclaimed since the start, by the cycle or by commands. */
static inline u64 expire_total(const struct keyspace *ks)
{
    return ks->stats.expired_keys + ks->stats.expired_fields;
}

/* Walks over all keys and expires every dead one, in either mode: for callers that must be certain. Start
 * with a zeroed struct. True: call again. */
struct expire_sweep {
    u32 db;
    u64 cursor;
};
bool expire_sweep_step(struct expire_sweep *w, struct keyspace *ks);

#endif
