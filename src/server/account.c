#include "server/account.h"

#include "server/client/migrate.h"

void account_apply_config(struct server *s)
{
    i64 slow_us = s->config.slowlog_log_slower_than, latency_ms = s->config.latency_monitor_threshold;
    s->slow_us = slow_us < 0 ? INT64_MAX : slow_us;
    if (latency_ms) s->slow_us = MIN(s->slow_us, latency_ms * 1000);
}

void account_errors(struct server *s, const struct reply *out)
{
    const struct buf *b = out->out;
    if (out->errors != out->counted)
        stats_error(&s->stats, bytes_of(b->p + out->error_at, b->n - out->error_at));
}

static void account_slowlog(struct server *s, const struct conn *c, const struct request *q,
                            const struct command *cmd, i64 usec)
{
    if (!server_is_slow(s, cmd, usec)) return;
    slowlog_add(&s->slowlog, (u64)s->config.slowlog_max_len, s->now_ms / 1000, usec, q->argc, q->argv,
                bytes_str(c->peer), buf_bytes(&c->session.name));
}

void account_slow(struct server *s, const struct conn *c, const struct request *q, const struct command *cmd,
                  i64 usec)
{
    account_slowlog(s, c, q, cmd, usec);
    account_latency(s, cmd->flags & CMD_FAST ? "fast-command" : "command", usec);
}

void account_rejected(struct server *s, struct conn *c, const struct request *q, const struct outcome *o)
{
    s->stats.commands[o->cmd->id].rejected++;
    migrate_forget(c); /* it may not finish what it began */
    if (s->monitor_count && o->cmd->run == cmd_exec) /* MONITOR has shown MULTI, so it shows its end */
        monitor_feed(s, c, o->cmd, q->argc, q->argv);
}

void account_deferred(struct server *s, struct conn *c, const struct request *q, const struct outcome *o,
                      i64 usec_before, i64 usec)
{
    struct command_stats *stats = &s->stats.commands[o->cmd->id];
    account_errors(s, q->out);
    stats->usec += (u64)usec;
    stats->failed += o->failed;
    if (s->config.latency_tracking) stats_latency(&s->stats, o->cmd->id, (u64)(usec_before + usec));
    account_slowlog(s, c, q, o->cmd, usec_before + usec);
    account_latency(s, "command-unblocking", usec);
}
