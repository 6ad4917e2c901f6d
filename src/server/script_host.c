/* What scripts need of the server: a clock, the log, and somebody who answers others while one of them takes
 * too long. */
#include "server/script_host.h"

#include "base/clock.h"
#include "exec/functions.h"
#include "exec/script.h"
#include "server/monitor.h"
#include "server/tick.h"
#include "server/users.h"

#define SERVE_EVERY_US 10000 /* how often others are served … */
#define SERVE_SHARE 10       /* … unless that took more than this part of the time */
#define AUTH_EVERY_US 1000000

static i64 now_us(void *owner UNUSED) { return clock_mono_us(); }

static void show(void *owner, int argc, const bytes *argv)
{
    struct server *s = owner;
    const struct net *n = &s->net;
    if (UNLIKELY(s->monitor_count) && n->running < n->request_count && n->requests[n->running].conn)
        monitor_show(s, n->requests[n->running].conn, argc, argv);
}

static void log_text(void *owner, int level, const char *text)
{
    const struct server *s = owner;
    log_line(&s->log, (enum log_level)level, "%s", text);
}

/* As cron, which does not run meanwhile: who is to end the script may have to log in first. */
static void let_log_in(struct server *s, i64 at_us)
{
    if (at_us - s->script_auth_us < AUTH_EVERY_US) return;
    s->script_auth_us = at_us;
    users_next_try(s);
}

static void serve(void *owner)
{
    struct server *s = owner;
    i64 start = clock_mono_us();
    if (start < s->script_serve_us) return;
    let_log_in(s, start);
    server_hear_signals(s);
    net_serve_busy(&s->net, tick_settle(s), tick_run);
    i64 end = clock_mono_us();
    s->script_serve_us = end + MAX(SERVE_EVERY_US, (end - start) * SERVE_SHARE);
    if (s->shutting_down) s->region.script->stopped = true;
}

struct script_usage script_usage(const struct server *s)
{
    struct script_usage u = {0};
    const struct scripts *scripts = s->region.scripts;
    const struct functions *functions = s->region.functions;
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
    s->region.host = (struct script_host){
        .now_us = now_us, .serve = serve, .begins = show, .log = log_text,
        .busy_after_ms = s->config.busy_reply_threshold,
        .memory = (u64)s->config.script_memory_limit,
    };
}
