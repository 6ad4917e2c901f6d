/* EXPIRY: Mayfly's own commands about when keys expire and how late they go.
 *
 * Both answers come from counters that are kept anyway (the deadline index's
 * buckets, the lag histograms): neither looks at a key. */
#include "command/commands.h"

/* -- EXPIRY FORECAST ---------------------------------------------------------- */

/* The intervals of the answer, finer the nearer; a bucket belongs to the first
 * one that it ends in, so "all within 1h" is never too hopeful. */
#define SECOND_MS 1000LL
#define HOUR_MS (3600 * SECOND_MS)
#define DAY_MS (24 * HOUR_MS)

static const struct {
    const char *name;
    i64 end_ms;
} intervals[] = {
    {"1s", SECOND_MS},       {"10s", 10 * SECOND_MS}, {"1m", 60 * SECOND_MS},
    {"10m", 600 * SECOND_MS}, {"1h", HOUR_MS},        {"6h", 6 * HOUR_MS},
    {"1d", DAY_MS},          {"7d", 7 * DAY_MS},      {"30d", 30 * DAY_MS},
    {"365d", 365 * DAY_MS},  {"later", INT64_MAX},
};

struct span {
    i64 from_ms, to_ms; /* from now; of the buckets it took in, not the interval's own */
    u64 keys;
};

struct forecast {
    i64 now_ms;
    struct span overdue;
    struct span span[ARRAY_LEN(intervals)];
};

static void span_add(struct span *s, i64 from_ms, i64 to_ms, u64 keys)
{
    if (s->keys == 0 || from_ms < s->from_ms) s->from_ms = from_ms;
    if (s->keys == 0 || to_ms > s->to_ms) s->to_ms = to_ms;
    s->keys += keys;
}

static void forecast_bucket(void *arg, i64 from_ms, i64 to_ms, u64 keys)
{
    struct forecast *f = arg;
    if (keys == 0) return;
    if (to_ms <= f->now_ms) {
        /* The index's own overdue list has no bounds: {0, 0}. */
        span_add(&f->overdue, from_ms > 0 ? from_ms - f->now_ms : 0, 0, keys);
        return;
    }
    size_t i = 0;
    while (to_ms - f->now_ms > intervals[i].end_ms) i++;
    span_add(&f->span[i], MAX(from_ms - f->now_ms, 0), to_ms - f->now_ms, keys);
}

static void reply_span(struct ctx *c, const char *name, const struct span *s)
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
    c->eng->ops->forecast(c->eng, db, forecast_bucket, &f);

    size_t mark = reply_mark(c->out);
    reply_span(c, "overdue", &f.overdue);
    for (size_t i = 0; i < ARRAY_LEN(intervals); i++) {
        if (f.span[i].keys == 0) continue;
        reply_span(c, intervals[i].name, &f.span[i]);
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

struct overdue {
    i64 now_ms;
    u64 keys;
    i64 oldest_ms; /* how long the oldest has been dead for certain */
};

static void overdue_bucket(void *arg, i64 from_ms, i64 to_ms, u64 keys)
{
    struct overdue *o = arg;
    (void)from_ms;
    if (keys == 0 || to_ms > o->now_ms) return;
    o->keys += keys;
    if (to_ms > 0) o->oldest_ms = MAX(o->oldest_ms, o->now_ms - to_ms);
}

void cmd_expiry_lag(struct ctx *c)
{
    if (c->argc > 2) {
        ctx_wrong_arity(c);
        return;
    }
    struct overdue o = {.now_ms = c->now_ms};
    for (u32 db = 0; db < c->eng->databases; db++)
        c->eng->ops->forecast(c->eng, db, overdue_bucket, &o);
    reply_map(c->out, 4);
    reply_lag(c, "active", &c->ks->lag.active);
    reply_lag(c, "lazy", &c->ks->lag.lazy);
    reply_bulk_str(c->out, "overdue_keys");
    reply_int(c->out, (i64)o.keys);
    reply_bulk_str(c->out, "oldest_overdue_ms");
    reply_int(c->out, o.oldest_ms);
}

void cmd_expiry_help(struct ctx *c)
{
    static const char *const lines[] = {
        "FORECAST [<db>]",
        "    Return how many keys of the database (default: the selected one) will",
        "    expire when. First the keys that are overdue and wait to be reclaimed, then",
        "    one entry per interval with keys in it, each a map:",
        "    * within: the interval (overdue, 1s, 10s, 1m, 10m, 1h, 6h, 1d, 7d, 30d,",
        "      365d, later). Every key of an entry expires within that time and was not",
        "      certain to within the interval before.",
        "    * keys: how many keys.",
        "    * from_ms, to_ms: their deadlines lie between these, in milliseconds from",
        "      now; as exact as the deadline index, so neighbours may overlap a little.",
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
