/* How late reclaim was: a histogram of (reclaim time - deadline) with
 * buckets of about 6 % width, so that EXPIRY LAG answers p50 and p99 without
 * keeping samples. */
#ifndef MAYFLY_KEYSPACE_LAG_H
#define MAYFLY_KEYSPACE_LAG_H

#include "base/types.h"

#define LAG_BUCKETS 512

struct lag_histogram {
    u64 count, sum_ms, max_ms;
    u64 recent_max_ms; /* since somebody set it to 0 */
    u64 bucket[LAG_BUCKETS];
};

struct expiry_lag {
    struct lag_histogram active, lazy;
};

void lag_record(struct lag_histogram *h, i64 lag_ms);
u64 lag_percentile(const struct lag_histogram *h, double q); /* q in 0..1; its bucket's upper edge, or 0 */
u64 lag_within(const struct lag_histogram *h, u64 ms); /* how many were no later; as exact as the buckets */

#endif
