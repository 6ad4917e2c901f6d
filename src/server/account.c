#include "server/account.h"

#include "command/commands.h"
#include "server/client/migrate.h"
#include "server/client/monitor.h"

static ALWAYS_INLINE void count_errors(struct server *s, const struct reply *out)
{
    const struct buf *b = out->out;
    if (LIKELY(out->errors == out->counted)) return;
    stats_error(&s->stats, bytes_of(b->p + out->error_at, b->n - out->error_at));
}

static COLD void log_slow(struct server *s, const struct conn *c, const struct request *q, i64 usec)
{
    slowlog_add(&s->slowlog, (u64)s->config.slowlog_max_len, s->now_ms / 1000, usec, q->argc, q->argv,
                bytes_str(c->peer), buf_bytes(&c->session.name));
}

static ALWAYS_INLINE void count_time(struct server *s, struct conn *c, const struct request *q,
                                     const struct outcome *o, i64 usec)
{
    if (s->config.latency_tracking) stats_latency(&s->stats, o->cmd->id, (u64)usec);
    if (UNLIKELY(server_is_slow(s, o->cmd, usec))) log_slow(s, c, q, usec);
}

static COLD void count_rejected(struct server *s, struct conn *c, const struct request *q,
                                const struct command *cmd)
{
    s->stats.commands[cmd->id].rejected++;
    migrate_forget(c); /* it may not finish what it began */
    if (s->monitor_count && cmd->run == cmd_exec) /* MONITOR has shown MULTI, so it shows its end */
        monitor_feed(s, c, cmd, q->argc, q->argv);
}

void account_request(struct server *s, struct conn *c, const struct request *q, const struct outcome *o,
                     i64 usec)
{
    count_errors(s, q->out);
    if (UNLIKELY(!o->cmd || o->queued)) return;
    if (UNLIKELY(o->rejected)) {
        count_rejected(s, c, q, o->cmd);
        return;
    }
    stats_call(&s->stats, o->cmd->id, (u64)usec, o->failed);
    if (UNLIKELY(s->monitor_count)) monitor_feed(s, c, o->cmd, q->argc, q->argv);
    if (UNLIKELY(o->waiting != NULL)) return;
    count_time(s, c, q, o, usec);
    account_latency(s, o->cmd->flags & CMD_FAST ? "fast-command" : "command", usec);
    if (UNLIKELY(o->cmd->run == cmd_flushall)) s->persist.flushed |= !o->failed;
}

void account_deferred(struct server *s, struct conn *c, const struct request *q, const struct outcome *o,
                  i64 usec_before, i64 usec)
{
    struct command_stats *stats = &s->stats.commands[o->cmd->id];
    count_errors(s, q->out);
    stats->usec += (u64)usec;
    stats->failed += o->failed;
    count_time(s, c, q, o, usec_before + usec);
    account_latency(s, "command-unblocking", usec);
}
