/* EXPIRY LAG: a histogram of (deletion time - deadline), with buckets about 6 % wide, so that percentiles
 * need no samples.
 *
 * For the last 1, 5 and 60 minutes, lag_tick keeps copies of the counts; the counts since then are the
 * difference. So windows add no cost to recording. */
#ifndef MAYFLY_KEYSPACE_LAG_H
#define MAYFLY_KEYSPACE_LAG_H

#include "base/types.h"

#define LAG_BUCKETS 512

struct lag_histogram {
    u64 count, sum_ms, max_ms;
    u64 bucket[LAG_BUCKETS];
};

#define LAG_WINDOWS 3
#define LAG_MARKS 7 /* copies per window, of different ages */

struct lag_window {
    const char *name;
    i64 ms, step_ms; /* it covers ms to ms + step_ms */
};
extern const struct lag_window lag_windows[LAG_WINDOWS];

struct lag_counts { /* modulo 2^32: differences are still right */
    u32 bucket[LAG_BUCKETS];
    u64 sum_ms;
};

struct lag_mark {
    i64 at_ms; /* 0: not taken yet */
    struct lag_counts active, lazy;
};

struct expiry_lag {
    struct lag_histogram active, lazy;
    i64 ticked_ms; /* monotonic time of the last lag_tick */
    struct lag_mark mark[LAG_WINDOWS][LAG_MARKS];
    u32 oldest[LAG_WINDOWS]; /* the mark that is overwritten next */
};

void lag_record(struct lag_histogram *h, i64 lag_ms);
u64 lag_percentile(const struct lag_histogram *h, double q); /* q in 0..1; the bucket's upper edge, or 0 */
u64 lag_within(const struct lag_histogram *h, u64 ms); /* entries <= ms, as exact as the buckets */

/* Call it a few times a second, with monotonic time. */
void lag_tick(struct expiry_lag *l, i64 mono_ms);
/* The lag recorded in the window that ends with the last tick, or since the start if that is shorter. */
void lag_last(const struct expiry_lag *l, u32 window, struct lag_histogram *active,
              struct lag_histogram *lazy);

#endif
