/* Counters for INFO. */
#ifndef MAYFLY_SERVER_OBSERVE_STATS_H
#define MAYFLY_SERVER_OBSERVE_STATS_H

#include "base/buf.h"

#define STATS_SAMPLES 16     /* for the instantaneous rates */
#define ERROR_CODE 32        /* bytes of one, with its NUL */
#define STATS_ERRORS 128     /* different error prefixes kept */
#define STATS_HISTOGRAM 512  /* latency buckets per command: see stats_bucket_top_us() … */
#define STATS_EXACT_US 16    /* … each of the first has one microsecond */

struct command_stats {
    u64 calls, usec, rejected, failed;
    u32 *histogram; /* STATS_HISTOGRAM buckets of microseconds, NULL until first used */
};

struct error_stat {
    char prefix[ERROR_CODE];
    u64 count;
};

struct rate {
    u64 last_value, sample[STATS_SAMPLES];
    i64 last_us;
    u32 at;
};

struct stats {
    struct command_stats *commands; /* by command id */
    u32 command_count;
    struct error_stat errors[STATS_ERRORS];
    u32 error_count;
    u64 total_errors, total_commands;
    u64 peak_memory;
    struct rate ops, net_in, net_out, repl_in, repl_out;
    struct rate turns, busy_us; /* of the loop */
};

void stats_init(struct stats *s, u32 commands);
void stats_release(struct stats *s);
void stats_reset(struct stats *s); /* CONFIG RESETSTAT */

void stats_error(struct stats *s, bytes reply_line); /* "-WRONGTYPE Operation …" */
static inline void stats_call(struct stats *s, u32 command_id, u64 usec, bool failed)
{
    struct command_stats *c = &s->commands[command_id];
    c->calls++;
    c->usec += usec;
    c->failed += failed;
    s->total_commands++;
}

/* latency-tracking. Most commands are neither slow nor the first of their name. */
void stats_latency_slow(struct command_stats *c, u64 usec);
static inline void stats_latency(struct stats *s, u32 command_id, u64 usec)
{
    struct command_stats *c = &s->commands[command_id];
    if (LIKELY(c->histogram && usec < STATS_EXACT_US)) c->histogram[usec]++;
    else stats_latency_slow(c, usec);
}

/* The q-quantile (0..1) of a command's execution times, in microseconds. */
u64 stats_percentile_us(const struct command_stats *c, double q);
/* Upper edge of a histogram bucket, in microseconds. */
u64 stats_bucket_top_us(u32 bucket);

void rate_sample(struct rate *r, u64 value, i64 now_us);
double rate_per_second(const struct rate *r);

#endif
