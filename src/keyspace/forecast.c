#include "keyspace/forecast.h"

#define SECOND_MS 1000LL
#define HOUR_MS (3600 * SECOND_MS)
#define DAY_MS (24 * HOUR_MS)

/* A cell wider than 1/NARROW of the time until the horizon is divided in proportion, not counted by its mean:
 * it is that wide because reclaim is off or late, and its keys have not been filed at a finer level. */
#define NARROW 48

const struct forecast_horizon forecast_horizons[FORECAST_HORIZONS] = {
    {"1s", SECOND_MS},        {"10s", 10 * SECOND_MS}, {"1m", 60 * SECOND_MS},
    {"10m", 600 * SECOND_MS}, {"1h", HOUR_MS},         {"6h", 6 * HOUR_MS},
    {"1d", DAY_MS},           {"7d", 7 * DAY_MS},      {"30d", 30 * DAY_MS},
    {"365d", 365 * DAY_MS},   {"+Inf", INT64_MAX},
};

static i64 edge_ms(const struct forecast *f, i64 horizon_ms)
{
    return horizon_ms > INT64_MAX - f->now_ms ? INT64_MAX : f->now_ms + horizon_ms;
}

/* The number of a cell's keys that expire at or before edge_ms, which lies within the cell. */
static double part_by(const struct due_span *s, i64 edge_ms, i64 now_ms)
{
    i64 width_ms = s->to_ms - s->from_ms;
    if (width_ms <= (edge_ms - now_ms) / NARROW) return s->mean_ms <= edge_ms ? (double)s->keys : 0;
    return (double)s->keys * (double)(edge_ms + 1 - s->from_ms) / (double)width_ms;
}

static void add_dead(struct forecast *f, const struct due_span *s)
{
    if (s->from_ms > f->now_ms) return;
    bool all = s->to_ms - 1 <= f->now_ms;
    f->dead += all ? (double)s->keys : part_by(s, f->now_ms, f->now_ms);
    if (all && s->to_ms) f->oldest_overdue_ms = MAX(f->oldest_overdue_ms, f->now_ms - (s->to_ms - 1));
}

static void add_span(void *arg, const struct due_span *s)
{
    struct forecast *f = arg;
    add_dead(f, s);
    for (u32 i = 0; i < FORECAST_HORIZONS; i++) {
        i64 edge = edge_ms(f, forecast_horizons[i].ms);
        if (s->to_ms - 1 <= edge) {
            f->whole[i] += (double)s->keys;
            return;
        }
        if (s->from_ms <= edge) f->cut[i] += part_by(s, edge, f->now_ms);
    }
}

void forecast_add(struct forecast *f, struct engine *e, u32 db) { e->ops->forecast(e, db, add_span, f); }

void forecast_add_all(struct forecast *f, struct engine *e)
{
    for (u32 db = 0; db < e->databases; db++) forecast_add(f, e, db);
}

static u64 rounded(double keys) { return keys > 0 ? (u64)(keys + 0.5) : 0; }

u64 forecast_overdue(const struct forecast *f) { return rounded(f->dead); }

void forecast_within(const struct forecast *f, u64 keys[FORECAST_HORIZONS])
{
    double whole = 0;
    for (u32 i = 0; i < FORECAST_HORIZONS; i++) {
        whole += f->whole[i];
        keys[i] = rounded(whole + f->cut[i] - f->dead);
    }
}
