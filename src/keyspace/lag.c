#include "keyspace/lag.h"

/* Exact below 16 ms, then 16 buckets per doubling: an error of at most 1/16. */
#define SUB 16

static u32 bucket_of(u64 ms)
{
    if (ms < SUB) return (u32)ms;
    u32 octave = 63u - (u32)__builtin_clzll(ms); /* >= 4 */
    u32 b = (octave - 3) * SUB + (u32)((ms >> (octave - 4)) & (SUB - 1));
    return b < LAG_BUCKETS ? b : LAG_BUCKETS - 1;
}

static u64 bucket_top(u32 b)
{
    if (b < SUB) return b;
    u32 octave = b / SUB + 3;
    return (((u64)SUB + b % SUB + 1) << (octave - 4)) - 1;
}

void lag_record(struct lag_histogram *h, i64 lag_ms)
{
    u64 ms = lag_ms > 0 ? (u64)lag_ms : 0;
    h->count++;
    h->sum_ms += ms;
    if (ms > h->max_ms) h->max_ms = ms;
    if (ms > h->recent_max_ms) h->recent_max_ms = ms;
    h->bucket[bucket_of(ms)]++;
}

u64 lag_percentile(const struct lag_histogram *h, double q)
{
    if (h->count == 0) return 0;
    u64 want = (u64)(q * (double)h->count), seen = 0;
    if (want >= h->count) want = h->count - 1;
    for (u32 b = 0; b < LAG_BUCKETS; b++) {
        seen += h->bucket[b];
        if (seen > want) return MIN(bucket_top(b), h->max_ms);
    }
    return h->max_ms;
}

u64 lag_within(const struct lag_histogram *h, u64 ms)
{
    u64 n = 0;
    for (u32 b = 0; b < LAG_BUCKETS && bucket_top(b) <= ms; b++) n += h->bucket[b];
    return n;
}
