/* The server's services for scripts: a clock, the log, and serving other clients while a script takes too
 * long. */
#include "server/script_host.h"

#include "base/clock.h"
#include "script/functions.h"
#include "script/script.h"
#include "server/client/monitor.h"
#include "server/commit.h"
#include "server/tick.h"
#include "server/client/users.h"

#define SERVE_EVERY_US 10000 /* how often other clients are served … */
#define SERVE_SHARE 10       /* … unless that took more than 1/SERVE_SHARE of the time */
#define AUTH_EVERY_US 1000000
#define LOOK_EVERY_US 10000
#define STOP_AFTER_US 100000 /* on a signal, a script that has changed nothing may run this long */

static i64 now_us(void *owner UNUSED) { return clock_mono_us(); }
static i64 cpu_us(void *owner UNUSED) { return clock_thread_us(); }

static void script_host_show(void *owner, int argc, const bytes *argv)
{
    struct server *s = owner;
    const struct net_request *running = s->monitor_count ? net_running(&s->net) : NULL;
    if (running) monitor_show(s, running->conn, argc, argv);
}

static void log_text(void *owner, int level, const char *text)
{
    const struct server *s = owner;
    log_line(&s->log, (enum log_level)level, "%s", text);
}

/* Like cron, which does not run meanwhile: a client that wants to kill the script may have to authenticate
 * first. */
static void let_log_in(struct server *s, i64 at_us)
{
    if (at_us - s->script_auth_us < AUTH_EVERY_US) return;
    s->script_auth_us = at_us;
    users_next_try(s);
}

/* -- signals ---------------------------------------------------------------------------------------- */

/* Whether the changes of a script can be left out of what is saved. A snapshot of the memory includes
 * them. */
static bool can_undo(const struct server *s)
{
    const struct region *r = s->node.script->c->region;
    return r->eng->caps.durable || s->persist.aof_state == AOF_IS_ON || expiry_follows(r->mode);
}

/* A script has changed something, and does not end. The server ends at once: no client may see half of its
 * changes. Where they can't be undone they are kept as after an error, by replicas, too. The same if the
 * server can't end at the moment (its files are not complete): cron tries again. */
static void end_within(struct server *s)
{
    u32 how = server_signal_means(s, s->stop_signal) | SHUTDOWN_NOW;
    bool undo = can_undo(s);
    if (undo) how = (how & ~(u32)SHUTDOWN_SAVE) | SHUTDOWN_NOSAVE;
    else journal_close(&s->node.script->c->region->journal, s->now_ms, s->node.script->c->seed);
    undo = server_shutdown(s, how) && undo;
    log_line(&s->log, LOG_WARNING,
             "A script that had written did not end. It is stopped, and what it did is %s.",
             undo ? "undone" : "kept");
}

/* A signal asks the server to end: a script that has changed nothing is stopped, one that has may finish
 * within half of shutdown-timeout. One from the primary must not stop halfway either. */
static void heed_signal(struct server *s, i64 now_us)
{
    struct script_run *run = s->node.script;
    bool changes = run->wrote || expiry_follows(run->c->region->mode);
    i64 patience_us = changes ? s->config.shutdown_timeout * 500000 : STOP_AFTER_US;
    if (now_us - MAX(s->stop_us, run->start_us) < patience_us) return;
    if (changes) end_within(s);
    run->stopped = true;
}

static void end_with_server(struct server *s)
{
    if (s->shutting_down) s->node.script->stopped = s->node.script->dropped = true;
}

static void script_host_look(void *owner)
{
    struct server *s = owner;
    i64 now_us = clock_mono_us();
    if (LIKELY(now_us < s->script_look_us)) return;
    s->script_look_us = now_us + LOOK_EVERY_US;
    server_hear_signals(s);
    if (UNLIKELY(s->stop_signal) && !s->shutting_down) heed_signal(s, now_us);
    end_with_server(s);
    if (s->node.held && !script_takes_long(&s->node)) node_held(&s->node);
}

/* -- other clients ---------------------------------------------------------------------------------- */

static void script_host_serve(void *owner)
{
    struct server *s = owner;
    i64 start = clock_mono_us();
    if (start < s->script_serve_us) return;
    let_log_in(s, start);
    net_serve_busy(&s->net, server_commit_part(s), tick_run);
    i64 end = clock_mono_us();
    s->script_serve_us = end + MAX(SERVE_EVERY_US, (end - start) * SERVE_SHARE);
    end_with_server(s);
}

struct script_usage script_usage(const struct server *s)
{
    struct script_usage u = {0};
    const struct scripts *scripts = s->node.scripts;
    const struct functions *functions = s->node.functions;
    if (scripts) {
        u.eval_vm = scripts->vm.used;
        u.eval = scripts->memory;
        u.cached = scripts->cached;
    }
    if (functions) {
        u.functions_vm = functions->vm.used;
        u.functions = functions->live->code_bytes;
        u.function_count = functions->live->function_count;
        u.libraries = functions->live->count;
    }
    return u;
}

void script_host_apply(struct server *s)
{
    s->node.host = (struct script_host){
        .now_us = now_us,
        .cpu_us = cpu_us,
        .look = script_host_look,
        .serve = script_host_serve,
        .begins = script_host_show,
        .log = log_text,
        .busy_after_ms = s->config.busy_reply_threshold,
        .memory = (u64)s->config.script_memory_limit,
    };
}
