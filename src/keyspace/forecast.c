#include "keyspace/forecast.h"

#define SECOND_MS 1000LL
#define HOUR_MS (3600 * SECOND_MS)
#define DAY_MS (24 * HOUR_MS)

const struct forecast_interval forecast_intervals[FORECAST_SPANS] = {
    {"1s", SECOND_MS},       {"10s", 10 * SECOND_MS}, {"1m", 60 * SECOND_MS},
    {"10m", 600 * SECOND_MS}, {"1h", HOUR_MS},        {"6h", 6 * HOUR_MS},
    {"1d", DAY_MS},          {"7d", 7 * DAY_MS},      {"30d", 30 * DAY_MS},
    {"365d", 365 * DAY_MS},  {"later", INT64_MAX},
};

static void span_add(struct forecast_span *s, i64 from_ms, i64 to_ms, u64 keys)
{
    if (s->keys == 0 || from_ms < s->from_ms) s->from_ms = from_ms;
    if (s->keys == 0 || to_ms > s->to_ms) s->to_ms = to_ms;
    s->keys += keys;
}

/* The index's own list of what is overdue has no bounds: {0, 0}. */
static void overdue_add(struct forecast *f, i64 from_ms, i64 to_ms, u64 keys)
{
    span_add(&f->overdue, from_ms > 0 ? from_ms - f->now_ms : 0, 0, keys);
    if (to_ms > 0) f->oldest_overdue_ms = MAX(f->oldest_overdue_ms, f->now_ms - to_ms);
}

static void add_bucket(void *arg, i64 from_ms, i64 to_ms, u64 keys)
{
    struct forecast *f = arg;
    if (keys == 0) return;
    if (to_ms <= f->now_ms) {
        overdue_add(f, from_ms, to_ms, keys);
        return;
    }
    size_t i = 0;
    while (to_ms - f->now_ms > forecast_intervals[i].end_ms) i++;
    span_add(&f->span[i], from_ms - f->now_ms, to_ms - f->now_ms, keys);
}

void forecast_add(struct forecast *f, struct engine *e, u32 db) { e->ops->forecast(e, db, add_bucket, f); }

void forecast_add_all(struct forecast *f, struct engine *e)
{
    for (u32 db = 0; db < e->databases; db++) forecast_add(f, e, db);
}
