/* EXPIRY: Mayfly's own commands about when keys expire and how late they go.
 *
 * Both answers come from counters that are kept anyway (the deadline index's
 * buckets, the lag histograms): neither looks at a key. */
#include "command/commands.h"
#include "keyspace/forecast.h"

/* -- EXPIRY FORECAST ---------------------------------------------------------- */

static void reply_span(struct ctx *c, const char *name, const struct forecast_span *s)
{
    reply_map(c->out, 6);
    reply_bulk_str(c->out, "within");
    reply_bulk_str(c->out, name);
    reply_bulk_str(c->out, "keys");
    reply_int(c->out, (i64)s->keys);
    reply_bulk_str(c->out, "from_ms");
    reply_int(c->out, s->from_ms);
    reply_bulk_str(c->out, "to_ms");
    reply_int(c->out, s->to_ms);
    reply_bulk_str(c->out, "from_unix_ms");
    reply_int(c->out, c->now_ms + s->from_ms);
    reply_bulk_str(c->out, "to_unix_ms");
    reply_int(c->out, c->now_ms + s->to_ms);
}

static bool forecast_database(struct ctx *c, u32 *db)
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

void cmd_expiry_forecast(struct ctx *c)
{
    struct forecast f = {.now_ms = c->now_ms};
    u32 db;
    size_t shown = 1;
    if (!forecast_database(c, &db)) return;
    forecast_add(&f, c->eng, db);

    size_t mark = reply_mark(c->out);
    reply_span(c, "overdue", &f.overdue);
    for (size_t i = 0; i < FORECAST_SPANS; i++) {
        if (f.span[i].keys == 0) continue;
        reply_span(c, forecast_intervals[i].name, &f.span[i]);
        shown++;
    }
    reply_array_at(c->out, mark, shown);
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

void cmd_expiry_lag(struct ctx *c)
{
    if (c->argc > 2) {
        ctx_wrong_arity(c);
        return;
    }
    struct forecast f = {.now_ms = c->now_ms};
    forecast_add_all(&f, c->eng);
    reply_map(c->out, 4);
    reply_lag(c, "active", &c->ks->lag.active);
    reply_lag(c, "lazy", &c->ks->lag.lazy);
    reply_bulk_str(c->out, "overdue_keys");
    reply_int(c->out, (i64)f.overdue.keys);
    reply_bulk_str(c->out, "oldest_overdue_ms");
    reply_int(c->out, f.oldest_overdue_ms);
}

void cmd_expiry_help(struct ctx *c)
{
    static const char *const lines[] = {
        "FORECAST [<db>]",
        "    Return how many keys of the database (default: the selected one) will",
        "    expire when. First the keys that are overdue for certain and wait to be",
        "    reclaimed, then one entry per interval with keys in it, each a map:",
        "    * within: the interval (overdue, 1s, 10s, 1m, 10m, 1h, 6h, 1d, 7d, 30d,",
        "      365d, later). Every key of an entry expires within that time and was not",
        "      certain to within the interval before.",
        "    * keys: how many keys.",
        "    * from_ms, to_ms: their deadlines lie between these, in milliseconds from",
        "      now; as exact as the deadline index, so neighbours may overlap a little.",
        "      Where from_ms is negative some may be dead already: keys of the last 64 ms",
        "      are overdue from the end of these on (more while reclaim is late, or off).",
        "    * from_unix_ms, to_unix_ms: the same as Unix times.",
        "    Costs the same for any number of keys.",
        "LAG",
        "    Return how long after their deadlines keys were deleted, as a map:",
        "    * active: those the server deleted by itself: count, mean_ms, p50_ms,",
        "      p99_ms, max_ms (percentiles are exact to about 6 percent).",
        "    * lazy: likewise those a command found dead first.",
        "    * overdue_keys: dead keys of all databases that wait to be deleted. They are",
        "      never visible, however long they wait.",
        "    * oldest_overdue_ms: how long the oldest of them has been waiting, as exact",
        "      as the deadline index; 0 if none is.",
        NULL,
    };
    ctx_help(c, lines);
}
