/* Counting and showing commands: INFO's statistics, the slow log, LATENCY, MONITOR, errors. */
#ifndef MAYFLY_SERVER_ACCOUNT_H
#define MAYFLY_SERVER_ACCOUNT_H

#include "server/server.h"

/* A command has run, or was rejected: counts and shows it. */
void account_request(struct server *s, struct conn *c, const struct request *q, const struct outcome *o,
                     i64 usec);

/* Counts what a blocked command did when it was served; its call was counted when it began. */
void account_deferred(struct server *s, struct conn *c, const struct request *q, const struct outcome *o,
                  i64 usec_before, i64 usec);

/* An event of LATENCY, if it took as long as latency-monitor-threshold says. */
static ALWAYS_INLINE void account_latency(struct server *s, const char *event, i64 usec)
{
    i64 threshold_ms = s->config.latency_monitor_threshold;
    if (UNLIKELY(threshold_ms) && usec / 1000 >= threshold_ms)
        latency_add(&s->latency, event, s->now_ms / 1000, (u32)(usec / 1000));
}

#endif
