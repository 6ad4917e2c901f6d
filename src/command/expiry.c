/* EXPIRY: Mayfly's own commands about when keys expire and how late they are deleted.
 *
 * All replies come from counters that are kept anyway (the cells of the deadline index, the lag histograms):
 * none looks at a key. */
#include "command/commands.h"
#include "command/expiry.h"
#include "keyspace/forecast.h"

bool expiry_database(struct ctx *c, u32 *db)
{
    i64 n = c->db;
    if (c->argc > 3) {
        ctx_wrong_arity(c);
        return false;
    }
    if (c->argc == 3 && !ctx_int(c, c->argv[2], &n)) return false;
    if (n < 0 || n >= c->eng->databases) {
        reply_error(c->out, "ERR DB index is out of range");
        return false;
    }
    *db = (u32)n;
    return true;
}

/* -- EXPIRY FORECAST ---------------------------------------------------------- */

/* The keys of a range of deadlines, given in milliseconds from now; INT64_MAX: without end. */
static void forecast_reply_range(struct ctx *c, const char *name, u64 keys, i64 from_ms, i64 to_ms)
{
    bool ends = to_ms < INT64_MAX;
    reply_map(c->out, ends ? 6 : 4);
    reply_bulk_str(c->out, "within");
    reply_bulk_str(c->out, name);
    reply_bulk_str(c->out, "keys");
    reply_int(c->out, (i64)keys);
    reply_bulk_str(c->out, "from_ms");
    reply_int(c->out, from_ms);
    if (ends) {
        reply_bulk_str(c->out, "to_ms");
        reply_int(c->out, to_ms);
    }
    reply_bulk_str(c->out, "from_unix_ms");
    reply_int(c->out, c->now_ms + from_ms);
    if (ends) {
        reply_bulk_str(c->out, "to_unix_ms");
        reply_int(c->out, c->now_ms + to_ms);
    }
}

static void reply_forecast(struct ctx *c, u32 db)
{
    struct forecast f = {.now_ms = c->now_ms};
    u64 keys[FORECAST_HORIZONS];
    struct keyspace *ks;
    KEYSPACES_EACH(c->ks, ks) forecast_add(&f, ks->eng, db);
    forecast_within(&f, keys);
    reply_array(c->out, 1 + FORECAST_HORIZONS);
    forecast_reply_range(c, "overdue", forecast_overdue(&f), -f.oldest_overdue_ms, 0);
    for (u32 i = 0; i < FORECAST_HORIZONS; i++)
        forecast_reply_range(c, forecast_horizons[i].name, keys[i], 0, forecast_horizons[i].ms);
}

static void forecast_by_db(struct ctx *c)
{
    struct keyspace *ks;
    size_t shown = 0, mark = reply_mark(c->out);
    for (u32 db = 0; db < c->eng->databases; db++) {
        u64 keys = 0;
        KEYSPACES_EACH(c->ks, ks) keys += ks->eng->ops->expires(ks->eng, db);
        if (keys == 0) continue;
        reply_map(c->out, 2);
        reply_bulk_str(c->out, "db");
        reply_int(c->out, db);
        reply_bulk_str(c->out, "forecast");
        reply_forecast(c, db);
        shown++;
    }
    reply_array_at(c->out, mark, shown);
}

void cmd_expiry_forecast(struct ctx *c)
{
    u32 db;
    if (c->argc == 4 && bytes_is(c->argv[2], "by") && bytes_is(c->argv[3], "db")) forecast_by_db(c);
    else if (expiry_database(c, &db)) reply_forecast(c, db);
}

/* -- EXPIRY LAG --------------------------------------------------------------- */

static void reply_lag(struct ctx *c, const char *name, const struct lag_histogram *h)
{
    reply_bulk_str(c->out, name);
    reply_map(c->out, 5);
    reply_bulk_str(c->out, "count");
    reply_int(c->out, (i64)h->count);
    reply_bulk_str(c->out, "mean_ms");
    reply_int(c->out, h->count ? (i64)((h->sum_ms + h->count / 2) / h->count) : 0);
    reply_bulk_str(c->out, "p50_ms");
    reply_int(c->out, (i64)lag_percentile(h, 0.50));
    reply_bulk_str(c->out, "p99_ms");
    reply_int(c->out, (i64)lag_percentile(h, 0.99));
    reply_bulk_str(c->out, "max_ms");
    reply_int(c->out, (i64)h->max_ms);
}

static void reply_both(struct ctx *c, const struct lag_histogram *active, const struct lag_histogram *lazy)
{
    reply_lag(c, "active", active);
    reply_lag(c, "lazy", lazy);
}

static void reply_windows(struct ctx *c)
{
    struct lag_histogram active, lazy;
    for (u32 i = 0; i < LAG_WINDOWS; i++) {
        lag_last(c->ks->lag, i, &active, &lazy);
        reply_bulk_str(c->out, lag_windows[i].name);
        reply_map(c->out, 2);
        reply_both(c, &active, &lazy);
    }
}

void cmd_expiry_lag(struct ctx *c)
{
    if (c->argc > 2) {
        ctx_wrong_arity(c);
        return;
    }
    struct forecast f = {.now_ms = c->now_ms};
    struct keyspace *ks;
    KEYSPACES_EACH(c->ks, ks) forecast_add_all(&f, ks->eng);
    reply_map(c->out, 4 + LAG_WINDOWS);
    reply_both(c, &c->ks->lag->active, &c->ks->lag->lazy);
    reply_bulk_str(c->out, "overdue_keys");
    reply_int(c->out, (i64)forecast_overdue(&f));
    reply_bulk_str(c->out, "oldest_overdue_ms");
    reply_int(c->out, f.oldest_overdue_ms);
    reply_windows(c);
}

void cmd_expiry_help(struct ctx *c)
{
    static const char *const lines[] = {
        "CHART [<db>]",
        "    Show when the keys of the database (default: the selected one) will expire",
        "    as bars: the next hour and the next day, each with its peak. Times are UTC.",
        "FORECAST [<db> | BY DB]",
        "    Return how many keys of the database (default: the selected one) will",
        "    expire when. First the keys that are overdue (dead, not visible, waiting to",
        "    be reclaimed), then one entry per horizon, each a map:",
        "    * within: overdue, or the horizon: 1s, 10s, 1m, 10m, 1h, 6h, 1d, 7d, 30d,",
        "      365d, +Inf.",
        "    * keys: how many keys expire between now and the horizon. Each entry includes",
        "      the ones before it, but for overdue.",
        "    * from_ms, to_ms: that range of deadlines in milliseconds from now.",
        "    * from_unix_ms, to_unix_ms: the same as Unix times.",
        "    With BY DB: an array with a map of db and forecast for each database that has",
        "    keys with a TTL. Costs the same for any number of keys.",
        "LAG",
        "    Return how long after their deadlines keys were deleted, as a map:",
        "    * active: those the server deleted by itself: count, mean_ms, p50_ms,",
        "      p99_ms, max_ms (percentiles are exact to about 6 percent).",
        "    * lazy: likewise those a command found dead first.",
        "    * overdue_keys: dead keys of all databases that wait to be deleted. They are",
        "      never visible, however long they wait.",
        "    * oldest_overdue_ms: how long the oldest of them has been waiting; 0 if none is.",
        "    * last_1m, last_5m, last_60m: active and lazy of the last minutes. Such a window",
        "      is up to a fifth longer than its name (max_ms is exact to 6 percent).",
        NULL,
    };
    ctx_help(c, lines);
}
