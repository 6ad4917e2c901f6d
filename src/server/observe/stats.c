#include "server/observe/stats.h"

#include "base/alloc.h"

void stats_init(struct stats *s, u32 commands)
{
    *s = (struct stats){.command_count = commands};
    s->commands = mem_zalloc(commands * sizeof *s->commands);
}

void stats_release(struct stats *s)
{
    for (u32 i = 0; i < s->command_count; i++) mem_free(s->commands[i].histogram);
    mem_free(s->commands);
}

void stats_reset(struct stats *s)
{
    u32 n = s->command_count;
    u64 peak = s->peak_memory;
    stats_release(s);
    stats_init(s, n);
    s->peak_memory = peak;
}

/* The code of an error is its first word, if there is another one. A script may have made it up: characters
 * that are special in INFO are removed. */
static void error_code(bytes line, char code[ERROR_CODE])
{
    size_t n = 1, most = MIN(line.n, (size_t)ERROR_CODE);
    while (n < most && line.p[n] != ' ' && line.p[n] != '\r') n++;
    bytes word = n < most && line.p[n] == ' ' ? bytes_of(line.p + 1, n - 1) : BYTES_LIT("ERR");
    for (size_t i = 0; i < word.n; i++) code[i] = word.p[i] == ':' || word.p[i] == '#' ? '_' : word.p[i];
    code[word.n] = '\0';
}

/* Kept sorted by code. */
void stats_error(struct stats *s, bytes line)
{
    char code[ERROR_CODE];
    u32 at = 0;
    error_code(line, code);
    s->total_errors++;
    while (at < s->error_count && strcmp(s->errors[at].prefix, code) < 0) at++;
    struct error_stat *e = &s->errors[at];
    if (at == s->error_count || strcmp(e->prefix, code) != 0) {
        if (s->error_count == STATS_ERRORS) return;
        memmove(e + 1, e, (s->error_count++ - at) * sizeof *e);
        *e = (struct error_stat){0};
        memcpy(e->prefix, code, strlen(code));
    }
    e->count++;
}

/* Buckets of at most 1/8 width: exact below 16 us, then 8 per doubling. */
static u32 histogram_bucket(u64 usec)
{
    if (usec < STATS_EXACT_US) return (u32)usec;
    u32 octave = 63u - (u32)__builtin_clzll(usec);
    u32 b = STATS_EXACT_US + (octave - 4) * 8 + (u32)((usec >> (octave - 3)) & 7);
    return MIN(b, STATS_HISTOGRAM - 1u);
}

void stats_latency_slow(struct command_stats *c, u64 usec)
{
    if (!c->histogram) c->histogram = mem_zalloc(STATS_HISTOGRAM * sizeof *c->histogram);
    c->histogram[histogram_bucket(usec)]++;
}

u64 stats_bucket_top_us(u32 b)
{
    if (b < STATS_EXACT_US) return b;
    u32 octave = (b - STATS_EXACT_US) / 8 + 4;
    return (((u64)8 + (b - STATS_EXACT_US) % 8 + 1) << (octave - 3)) - 1;
}

u64 stats_percentile_us(const struct command_stats *c, double q)
{
    if (!c->histogram) return 0;
    u64 total = 0, seen = 0;
    for (u32 b = 0; b < STATS_HISTOGRAM; b++) total += c->histogram[b];
    u64 want = MIN((u64)(q * (double)total), total - 1);
    for (u32 b = 0; b < STATS_HISTOGRAM; b++) {
        seen += c->histogram[b];
        if (seen > want) return stats_bucket_top_us(b);
    }
    return 0;
}

void rate_sample(struct rate *r, u64 value, i64 now_us)
{
    i64 took = now_us - r->last_us;
    if (r->last_us && took > 0) {
        r->sample[r->at] = (u64)((double)(value - r->last_value) * 1e6 / (double)took);
        r->at = (r->at + 1) % STATS_SAMPLES;
    }
    r->last_us = now_us;
    r->last_value = value;
}

double rate_per_second(const struct rate *r)
{
    u64 sum = 0;
    for (u32 i = 0; i < STATS_SAMPLES; i++) sum += r->sample[i];
    return (double)sum / STATS_SAMPLES;
}
