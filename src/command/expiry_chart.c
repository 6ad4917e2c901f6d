/* EXPIRY CHART: when keys expire, as bars for humans.
 *
 * The peak is the second in which most keys expire. Beyond some minutes ahead the index counts in wider cells
 * (four seconds within the next hours, four minutes within the next days): there it is the mean rate of the
 * densest cell, and the line says over how long. */
#include <stdio.h>

#include "command/commands.h"
#include "command/expiry.h"

#define SECOND_MS 1000LL
#define FINE_S 600 /* cells narrower than a second are not further ahead, unless reclaim is behind */
#define BAR_WIDTH 50
#define BARS_MAX 24
#define LINE_MAX_BYTES 160

struct chart {
    const char *title;
    i64 bar_ms;
    u32 bars;
    i64 now_ms;
    u64 keys[BARS_MAX];
    struct due_span peak; /* from_ms … to_ms is at least a second; no keys: there is no peak */
    u64 second[FINE_S];   /* keys in each second of the near future, as far as cells are finer */
};

static double rate_of(const struct due_span *s)
{
    return (double)s->keys * 1000 / (double)(s->to_ms - s->from_ms);
}

static void see_peak(struct chart *h, const struct due_span *s)
{
    if (s->keys && (!h->peak.keys || rate_of(s) > rate_of(&h->peak))) h->peak = *s;
}

/* A cell is counted where the mean of its deadlines is. */
static void chart_span(void *arg, const struct due_span *s)
{
    struct chart *h = arg;
    i64 ahead_ms = s->mean_ms - h->now_ms;
    if (ahead_ms <= 0 || ahead_ms > h->bar_ms * h->bars) return;
    h->keys[(ahead_ms - 1) / h->bar_ms] += s->keys;
    i64 second = s->mean_ms / SECOND_MS - h->now_ms / SECOND_MS;
    if (s->to_ms - s->from_ms >= SECOND_MS) see_peak(h, s);
    else if (second < FINE_S) h->second[second] += s->keys;
}

static void see_seconds(struct chart *h)
{
    for (u32 i = 0; i < FINE_S; i++) {
        i64 from_ms = (h->now_ms / SECOND_MS + i) * SECOND_MS;
        see_peak(h, &(struct due_span){from_ms, from_ms + SECOND_MS, from_ms, h->second[i]});
    }
}

/* -- as text -------------------------------------------------------------------------- */

/* 1234567 as 1,234,567. */
static const char *grouped(char text[32], u64 n)
{
    char *p = text + 31;
    *p = '\0';
    for (u32 digits = 0; n || digits == 0; n /= 10) {
        if (digits && digits % 3 == 0) *--p = ',';
        *--p = (char)('0' + n % 10);
        digits++;
    }
    return p;
}

static const char *clock_text(char text[16], i64 unix_ms, bool seconds)
{
    u32 s = (u32)(unix_ms / SECOND_MS % 86400);
    if (seconds) snprintf(text, 16, "%02u:%02u:%02u", s / 3600, s / 60 % 60, s % 60);
    else snprintf(text, 16, "%02u:%02u", s / 3600, s / 60 % 60);
    return text;
}

static void reply_title(struct ctx *c, const struct chart *h, u64 total)
{
    char line[LINE_MAX_BYTES], keys[32], rate[32], at[32], of[32];
    int n = snprintf(line, sizeof line, "%s: %s keys", h->title, grouped(keys, total));
    if (h->peak.keys)
        snprintf(line + n, sizeof line - (size_t)n, ", peak %s/s at %s UTC (%s keys in %.1f s)",
                 grouped(rate, (u64)(rate_of(&h->peak) + 0.5)), clock_text(at, h->peak.mean_ms, true),
                 grouped(of, h->peak.keys), (double)(h->peak.to_ms - h->peak.from_ms) / 1000);
    reply_simple(c->out, line);
}

static void reply_bar(struct ctx *c, const struct chart *h, u32 i, u64 most)
{
    char line[LINE_MAX_BYTES], bar[BAR_WIDTH + 1] = "", from[16], to[16], keys[32];
    u32 width = most ? (u32)((double)h->keys[i] * BAR_WIDTH / (double)most + 0.5) : 0;
    memset(bar, '#', h->keys[i] && !width ? 1 : width);
    i64 start_ms = h->now_ms + i * h->bar_ms;
    snprintf(line, sizeof line, "%s-%s %*s %s", clock_text(from, start_ms, false),
             clock_text(to, start_ms + h->bar_ms, false), 13, grouped(keys, h->keys[i]), bar);
    reply_simple(c->out, line);
}

static void reply_chart(struct ctx *c, struct chart *h, u32 db)
{
    u64 total = 0, most = 0;
    c->eng->ops->forecast(c->eng, db, chart_span, h);
    see_seconds(h);
    for (u32 i = 0; i < h->bars; i++) {
        total += h->keys[i];
        most = MAX(most, h->keys[i]);
    }
    reply_title(c, h, total);
    for (u32 i = 0; i < h->bars; i++) reply_bar(c, h, i, most);
}

void cmd_expiry_chart(struct ctx *c)
{
    struct chart hour = {.title = "Next hour", .bar_ms = 300 * SECOND_MS, .bars = 12, .now_ms = c->now_ms};
    struct chart day = {
        .title = "Next 24 hours", .bar_ms = 3600 * SECOND_MS, .bars = 24, .now_ms = c->now_ms};
    u32 db;
    if (!expiry_database(c, &db)) return;
    reply_array(c->out, 2 + hour.bars + day.bars);
    reply_chart(c, &hour, db);
    reply_chart(c, &day, db);
}
