/* How late reclaim was: a histogram of (reclaim time - deadline) with
 * buckets of about 6 % width, so that EXPIRY LAG answers p50 and p99 without
 * keeping samples.
 *
 * For the last 1, 5 and 60 minutes, copies of the counts are kept from time to time (lag_tick): what was
 * counted since then is the difference. So recording costs nothing more. */
#ifndef MAYFLY_KEYSPACE_LAG_H
#define MAYFLY_KEYSPACE_LAG_H

#include "base/types.h"

#define LAG_BUCKETS 512

struct lag_histogram {
    u64 count, sum_ms, max_ms;
    u64 recent_max_ms; /* since somebody set it to 0 */
    u64 bucket[LAG_BUCKETS];
};

#define LAG_WINDOWS 3
#define LAG_MARKS 7 /* copies per window, of different ages */

struct lag_window {
    const char *name;
    i64 ms, step_ms; /* it covers ms to ms + step_ms */
};
extern const struct lag_window lag_windows[LAG_WINDOWS];

struct lag_counts { /* modulo 2^32, which differences don't mind */
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
u64 lag_percentile(const struct lag_histogram *h, double q); /* q in 0..1; its bucket's upper edge, or 0 */
u64 lag_within(const struct lag_histogram *h, u64 ms); /* how many were no later; as exact as the buckets */

/* To be called a few times a second, with the time of a clock that never steps. */
void lag_tick(struct expiry_lag *l, i64 mono_ms);
/* What was recorded within the window that ends with the last tick; since the start if that was later. */
void lag_last(const struct expiry_lag *l, u32 window, struct lag_histogram *active,
              struct lag_histogram *lazy);

#endif
