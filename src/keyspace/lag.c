#include "keyspace/lag.h"

/* Exact below 16 ms, then 16 buckets per doubling: an error of at most 1/16. */
#define SUB 16

static u32 lag_bucket_of(u64 ms)
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
    h->bucket[lag_bucket_of(ms)]++;
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

/* -- the last minutes ------------------------------------------------------------------------------- */

const struct lag_window lag_windows[LAG_WINDOWS] = {
    {"last_1m", 60000, 12000}, {"last_5m", 300000, 60000}, {"last_60m", 3600000, 720000},
};

static void copy_counts(struct lag_counts *to, const struct lag_histogram *h)
{
    for (u32 b = 0; b < LAG_BUCKETS; b++) to->bucket[b] = (u32)h->bucket[b];
    to->sum_ms = h->sum_ms;
}

void lag_tick(struct expiry_lag *l, i64 mono_ms)
{
    l->ticked_ms = mono_ms;
    for (u32 w = 0; w < LAG_WINDOWS; w++) {
        u32 next = l->oldest[w];
        const struct lag_mark *newest = &l->mark[w][(next + LAG_MARKS - 1) % LAG_MARKS];
        if (newest->at_ms && mono_ms - newest->at_ms < lag_windows[w].step_ms) continue;
        struct lag_mark *m = &l->mark[w][next];
        m->at_ms = mono_ms;
        copy_counts(&m->active, &l->active);
        copy_counts(&m->lazy, &l->lazy);
        l->oldest[w] = (next + 1) % LAG_MARKS;
    }
}

static void lag_subtract(struct lag_histogram *out, const struct lag_histogram *h,
                         const struct lag_counts *from)
{
    *out = (struct lag_histogram){.sum_ms = h->sum_ms - (from ? from->sum_ms : 0)};
    for (u32 b = 0; b < LAG_BUCKETS; b++) {
        out->bucket[b] = (u32)h->bucket[b] - (from ? from->bucket[b] : 0);
        out->count += out->bucket[b];
        if (out->bucket[b]) out->max_ms = MIN(bucket_top(b), h->max_ms);
    }
}

void lag_last(const struct expiry_lag *l, u32 window, struct lag_histogram *active,
              struct lag_histogram *lazy)
{
    const struct lag_mark *from = NULL;
    for (u32 i = 0; i < LAG_MARKS; i++) { /* from the oldest: the last one that is old enough */
        const struct lag_mark *m = &l->mark[window][(l->oldest[window] + i) % LAG_MARKS];
        if (m->at_ms && m->at_ms <= l->ticked_ms - lag_windows[window].ms) from = m;
    }
    lag_subtract(active, &l->active, from ? &from->active : NULL);
    lag_subtract(lazy, &l->lazy, from ? &from->lazy : NULL);
}
