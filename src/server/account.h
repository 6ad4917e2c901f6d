/* Counting and showing commands: INFO's statistics, the slow log, LATENCY, MONITOR, errors. */
#ifndef MAYFLY_SERVER_ACCOUNT_H
#define MAYFLY_SERVER_ACCOUNT_H

#include "command/commands.h"
#include "server/client/monitor.h"
#include "server/server.h"

void account_apply_config(struct server *s);

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

/* -- what account_request rarely needs -- */

void account_errors(struct server *s, const struct reply *out); /* those not counted yet */
void account_rejected(struct server *s, struct conn *c, const struct request *q, const struct outcome *o);
/* It took server.slow_us or more: for the slow log, LATENCY, or both. */
void account_slow(struct server *s, const struct conn *c, const struct request *q, const struct command *cmd,
                  i64 usec);

/* A command has run, or was rejected: counts and shows it. Every request comes here. */
static ALWAYS_INLINE void account_request(struct server *s, struct conn *c, const struct request *q,
                                          const struct outcome *o, i64 usec)
{
    const struct command *cmd = o->cmd;
    if (UNLIKELY(q->out->errors != q->out->counted)) account_errors(s, q->out);
    if (UNLIKELY(!cmd || o->queued)) return;
    if (UNLIKELY(o->rejected)) {
        account_rejected(s, c, q, o);
        return;
    }
    stats_call(&s->stats, cmd->id, (u64)usec, o->failed);
    if (UNLIKELY(s->monitor_count)) monitor_feed(s, c, cmd, q->argc, q->argv);
    if (UNLIKELY(o->waiting != NULL)) return;
    if (s->config.latency_tracking) stats_latency(&s->stats, cmd->id, (u64)usec);
    if (UNLIKELY(usec >= s->slow_us)) account_slow(s, c, q, cmd, usec);
    if (UNLIKELY(cmd->run == cmd_flushall)) s->persist.flushed |= !o->failed;
}

#endif
