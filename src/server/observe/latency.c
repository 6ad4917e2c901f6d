/* The latency monitor and LATENCY. An event's samples are a ring in which a
 * sample with time 0 was never written. */
#include "server/observe/latency.h"

#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "command/commands.h"
#include "server/server.h"
#include "server/observe/sparkline.h"

/* -- recording ----------------------------------------------------------------------- */

static struct latency_event *find_event(struct latency *l, bytes name)
{
    for (u32 i = 0; i < l->count; i++) {
        if (bytes_eq(bytes_str(l->event[i].name), name)) return &l->event[i];
    }
    return NULL;
}

static struct latency_sample *last_sample(struct latency_event *e)
{
    return &e->sample[(e->at + LATENCY_SAMPLES - 1) % LATENCY_SAMPLES];
}

void latency_add(struct latency *l, const char *event, i64 time_s, u32 ms)
{
    struct latency_event *e = find_event(l, bytes_str(event));
    if (!e) {
        if (l->count == LATENCY_EVENTS) return;
        e = &l->event[l->count++];
        *e = (struct latency_event){0};
        snprintf(e->name, sizeof e->name, "%s", event);
    }
    e->max_ms = MAX(e->max_ms, ms);
    struct latency_sample *last = last_sample(e);
    if (last->time_s == time_s) {
        last->ms = MAX(last->ms, ms);
        return;
    }
    e->sample[e->at] = (struct latency_sample){time_s, ms};
    e->at = (e->at + 1) % LATENCY_SAMPLES;
}

/* The recorded samples, oldest first. */
static u32 latency_collect(const struct latency_event *e, struct latency_sample out[LATENCY_SAMPLES])
{
    u32 n = 0;
    for (u32 i = 0; i < LATENCY_SAMPLES; i++) {
        const struct latency_sample *s = &e->sample[(e->at + i) % LATENCY_SAMPLES];
        if (s->time_s) out[n++] = *s;
    }
    return n;
}

/* -- LATEST, HISTORY, RESET ---------------------------------------------------------- */

void cmd_latency_latest(struct ctx *c)
{
    struct latency *l = &c->server->latency;
    reply_array(c->out, l->count);
    for (u32 i = 0; i < l->count; i++) {
        const struct latency_sample *last = last_sample(&l->event[i]);
        reply_array(c->out, 4);
        reply_bulk_str(c->out, l->event[i].name);
        reply_int(c->out, last->time_s);
        reply_int(c->out, last->ms);
        reply_int(c->out, l->event[i].max_ms);
    }
}

void cmd_latency_history(struct ctx *c)
{
    const struct latency_event *e = find_event(&c->server->latency, c->argv[2]);
    struct latency_sample sample[LATENCY_SAMPLES];
    u32 n = e ? latency_collect(e, sample) : 0;
    reply_array(c->out, n);
    for (u32 i = 0; i < n; i++) {
        reply_array(c->out, 2);
        reply_int(c->out, sample[i].time_s);
        reply_int(c->out, sample[i].ms);
    }
}

void cmd_latency_reset(struct ctx *c)
{
    struct latency *l = &c->server->latency;
    i64 gone = 0;
    if (c->argc == 2) {
        gone = l->count;
        l->count = 0;
    }
    for (int i = 2; i < c->argc; i++) {
        struct latency_event *e = find_event(l, c->argv[i]);
        if (!e) continue;
        *e = l->event[--l->count];
        gone++;
    }
    reply_int(c->out, gone);
}

/* -- GRAPH --------------------------------------------------------------------------- */

static void print_age(char label[SPARK_LABEL], i64 seconds)
{
    static const struct {
        i64 below, unit;
        char letter;
    } steps[] = {
        {60, 1, 's'},
        {3600, 60, 'm'},
        {86400, 3600, 'h'},
        {INT64_MAX, 86400, 'd'},
    };
    u32 i = 0;
    while (seconds >= steps[i].below) i++;
    snprintf(label, SPARK_LABEL, "%lld%c", (long long)(seconds / steps[i].unit), steps[i].letter);
}

static void draw_event(struct buf *out, const struct latency_event *e, i64 now_s)
{
    struct latency_sample sample[LATENCY_SAMPLES];
    struct spark spark[LATENCY_SAMPLES];
    u32 n = latency_collect(e, sample), low = sample[0].ms, high = low;
    for (u32 i = 0; i < n; i++) {
        low = MIN(low, sample[i].ms);
        high = MAX(high, sample[i].ms);
        spark[i].value = sample[i].ms;
        print_age(spark[i].label, MAX(now_s - sample[i].time_s, 0));
    }
    buf_printf(out, "%s - high %u ms, low %u ms (all time high %u ms)\n", e->name, high, low,
               e->max_ms);
    for (u32 i = 0; i < SPARK_COLUMNS; i++) buf_append_char(out, '-');
    buf_append_char(out, '\n');
    sparkline(out, spark, n);
}

void cmd_latency_graph(struct ctx *c)
{
    const struct latency_event *e = find_event(&c->server->latency, c->argv[2]);
    if (!e) {
        reply_errorf(c->out, "ERR No samples available for event '%.*s'", (int)c->argv[2].n,
                     c->argv[2].p);
        return;
    }
    struct buf text = {0};
    draw_event(&text, e, c->now_ms / 1000);
    reply_verbatim(c->out, buf_bytes(&text), "txt");
    buf_release(&text);
}

/* -- DOCTOR -------------------------------------------------------------------------- */

struct diagnosis {
    u32 samples;
    double mean_ms, deviation_ms, period_s;
};

static struct diagnosis diagnose(const struct latency_event *e, i64 now_s)
{
    struct latency_sample sample[LATENCY_SAMPLES];
    struct diagnosis d = {.samples = latency_collect(e, sample)};
    double off = 0;
    for (u32 i = 0; i < d.samples; i++) d.mean_ms += sample[i].ms;
    d.mean_ms /= d.samples;
    for (u32 i = 0; i < d.samples; i++) off += fabs(sample[i].ms - d.mean_ms);
    d.deviation_ms = off / d.samples;
    d.period_s = (double)MAX(now_s - sample[0].time_s, 1) / d.samples;
    return d;
}

/* Advice for an event, by its name. */
static const struct {
    const char *event, *advice;
} advices[] = {
    {"command",
     "- Some commands are slow. SLOWLOG GET shows which; CONFIG SET slowlog-log-slower-than sets "
     "from how many microseconds on. Prefer SCAN to KEYS and ranges to whole collections.\n"},
    {"fast-command",
     "- Commands that take constant time were slow: the machine is busy, swapping, or a virtual "
     "machine that lost its processor for a while. Look at its load and its steal time.\n"},
    {"expire-cycle",
     "- A slice of reclaiming expired keys took long, though it is made to end within a "
     "fraction of a millisecond: the machine is busy, or some value is slow to free.\n"},
};

static void append_advice(struct buf *out, const struct latency *l)
{
    buf_append_str(out, "\nWhat may help:\n\n");
    for (u32 i = 0; i < l->count; i++) {
        for (u32 a = 0; a < ARRAY_LEN(advices); a++) {
            if (!strcmp(advices[a].event, l->event[i].name)) buf_append_str(out, advices[a].advice);
        }
    }
    buf_append_str(
        out, "- Keys that expire together, and big values that are deleted, are reclaimed in small "
             "slices here and need no spreading: see EXPIRY LAG and INFO expiry.\n");
}

static void append_report(struct buf *out, struct server *s, i64 now_s)
{
    const struct latency *l = &s->latency;
    if (l->count == 0 && s->config.latency_monitor_threshold == 0) {
        buf_append_str(
            out,
            "The latency monitor is off, so there is nothing to report. Turn it on with CONFIG SET "
            "latency-monitor-threshold <milliseconds>.\n");
        return;
    }
    if (l->count == 0) {
        buf_printf(out,
                   "All quiet: nothing took %lld ms or longer since the monitor was turned on.\n",
                   (long long)s->config.latency_monitor_threshold);
        return;
    }
    buf_append_str(out, "There were latency spikes:\n\n");
    for (u32 i = 0; i < l->count; i++) {
        struct diagnosis d = diagnose(&l->event[i], now_s);
        buf_printf(
            out,
            "%u. %s: %u latency spikes (average %.0fms, mean deviation %.0fms, period %.2f sec). "
            "Worst all time event %ums.\n",
            i + 1, l->event[i].name, d.samples, d.mean_ms, d.deviation_ms, d.period_s,
            l->event[i].max_ms);
    }
    append_advice(out, l);
}

void cmd_latency_doctor(struct ctx *c)
{
    struct buf text = {0};
    append_report(&text, c->server, c->now_ms / 1000);
    reply_verbatim(c->out, buf_bytes(&text), "txt");
    buf_release(&text);
}

/* -- HISTOGRAM ----------------------------------------------------------------------- */

/* Upper edges double. They are the edges of Redis's histogram, which keeps two digits of the nanoseconds: 1 2
 * 4 8 16 33 66 132 264 … */
static u64 edge_us(u32 i) { return ((129ull << (3 + i)) - 1) / 1000; }

static size_t reply_edges(struct ctx *c, const struct command_stats *s)
{
    size_t shown = 0;
    u64 seen = 0, told = 0;
    u32 bucket = 0;
    for (u32 i = 0; seen < s->calls && bucket < STATS_HISTOGRAM && i < 40; i++) {
        while (bucket < STATS_HISTOGRAM && stats_bucket_top_us(bucket) <= edge_us(i))
            seen += s->histogram[bucket++];
        if (seen == told) continue;
        reply_int(c->out, (i64)edge_us(i));
        reply_int(c->out, (i64)seen);
        told = seen;
        shown++;
    }
    return shown;
}

static size_t reply_histogram(struct ctx *c, const struct command *cmd)
{
    const struct command_stats *s = &c->server->stats.commands[cmd->id];
    if (!s->histogram) return 0;
    reply_bulk_str(c->out, cmd->name);
    reply_map(c->out, 2);
    reply_bulk_str(c->out, "calls");
    reply_int(c->out, (i64)s->calls);
    reply_bulk_str(c->out, "histogram_usec");
    size_t mark = reply_mark(c->out);
    reply_map_at(c->out, mark, reply_edges(c, s));
    return 1;
}

/* "ping", "config" (all its subcommands) or "config|set". */
static size_t reply_named(struct ctx *c, bytes name)
{
    const char *bar = memchr(name.p, '|', name.n);
    size_t head = bar ? (size_t)(bar - name.p) : name.n;
    const struct command *cmd = command_find(bytes_of(name.p, head));
    size_t shown = 0;
    if (cmd && bar) cmd = command_find_sub(cmd, bytes_of(bar + 1, name.n - head - 1));
    if (!cmd) return 0;
    shown += reply_histogram(c, cmd);
    for (u32 i = 0; i < cmd->sub_count; i++)
        shown += reply_histogram(c, command_at(cmd->first_sub + i));
    return shown;
}

void cmd_latency_histogram(struct ctx *c)
{
    size_t mark = reply_mark(c->out), shown = 0;
    for (u32 i = 0; c->argc == 2 && i < command_count(); i++)
        shown += reply_histogram(c, command_at(i));
    for (int i = 2; i < c->argc; i++) shown += reply_named(c, c->argv[i]);
    reply_map_at(c->out, mark, shown);
}

void cmd_latency_help(struct ctx *c)
{
    static const char *const lines[] = {
        "DOCTOR",
        "    A report on the latency events in plain words.",
        "GRAPH <event>",
        "    The samples of an event as a drawing.",
        "HISTORY <event>",
        "    The samples of an event: time and milliseconds.",
        "LATEST",
        "    The last sample of every event, and its worst.",
        "RESET [<event> ...]",
        "    Forget the samples of these events (default: of all).",
        "HISTOGRAM [COMMAND ...]",
        "    How many calls took up to how many microseconds, for these commands",
        "    (default: all that were called).",
        NULL,
    };
    ctx_help(c, lines);
}
