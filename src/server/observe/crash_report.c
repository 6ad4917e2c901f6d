/* The running command is found where it is kept anyway: nothing is recorded per request for this. For a
 * script it is the EVAL or FCALL. */
#include "server/observe/crash_report.h"

#include <ctype.h>
#include <stdio.h>

#include "base/crash.h"
#include "server/observe/info.h"
#include "repl/link.h"
#include "server/server.h"

#define ARGS_MAX 32
#define ARG_BYTES 128

struct running {
    const struct session *session;
    const struct conn *conn; /* NULL: the link to our primary */
    int argc;
    const bytes *argv;
};

static bool find_running(const struct server *s, struct running *r)
{
    const struct net_request *request = net_running(&s->net);
    const struct conn *served = s->blocking.served;
    if (served) { /* it was blocked */
        const struct waiting *w = block_served(s);
        *r = (struct running){&served->session, served, w->argc, w->argv};
    } else if (s->repl.link && s->repl.link->running) {
        const struct request *q = s->repl.link->running;
        *r = (struct running){q->session, NULL, q->argc, q->argv};
    } else if (request) {
        const bytes *argv = s->net.tick.args + request->argv_at;
        *r = (struct running){&request->conn->session, request->conn, (int)request->argc, argv};
    } else {
        return false;
    }
    return true;
}

/* On one line, at most ARG_BYTES of it. */
static void write_arg(struct crash_out *out, int at, bytes arg)
{
    char text[4 * ARG_BYTES + 1];
    size_t n = 0;
    for (size_t i = 0; i < MIN(arg.n, (size_t)ARG_BYTES); i++) {
        u8 ch = (u8)arg.p[i];
        bool plain = isprint(ch) && ch != '"' && ch != '\\';
        n += (size_t)snprintf(text + n, sizeof text - n, plain ? "%c" : "\\x%02x", ch);
    }
    crash_printf(out, "argv[%d]: \"%.*s\"", at, (int)n, text);
    if (arg.n > ARG_BYTES) crash_printf(out, "... (%zu bytes)", arg.n);
    crash_printf(out, "\n");
}

static void write_command(void *owner, struct crash_out *out)
{
    const struct server *s = owner;
    struct running r;
    if (!find_running(s, &r)) {
        crash_printf(out, "none\n");
        return;
    }
    crash_printf(out, "argc: %d\n", r.argc);
    for (int i = 0; i < MIN(r.argc, ARGS_MAX); i++) {
        if (i && s->config.hide_user_data_from_log) crash_printf(out, "argv[%d]: *redacted*\n", i);
        else write_arg(out, i, r.argv[i]);
    }
    if (r.argc > ARGS_MAX) crash_printf(out, "(and %d more)\n", r.argc - ARGS_MAX);
}

static void write_text(struct crash_out *out, const char *name, bytes text, bool hidden)
{
    if (hidden) crash_printf(out, " %s=*redacted*", name);
    else crash_printf(out, " %s=%.*s", name, (int)MIN(text.n, (size_t)ARG_BYTES), text.n ? text.p : "");
}

static void write_client(void *owner, struct crash_out *out)
{
    const struct server *s = owner;
    struct running r;
    bool hidden = s->config.hide_user_data_from_log;
    if (!find_running(s, &r)) {
        crash_printf(out, "none\n");
        return;
    }
    crash_printf(out, "id=%llu db=%u resp=%u", (ull)r.session->id, r.session->db, r.session->proto);
    if (r.conn) crash_printf(out, " addr=%s laddr=%s fd=%d", r.conn->peer, r.conn->local, r.conn->fd);
    else crash_printf(out, " (the link to our primary)");
    write_text(out, "name", buf_bytes(&r.session->name), hidden);
    if (r.session->user) write_text(out, "user", buf_bytes(&r.session->user->name), hidden);
    crash_printf(out, "\n");
}

static void write_info(void *owner, struct crash_out *out)
{
    struct buf text = {0};
    for (u32 i = 0; info_section(owner, i, &text); i++) { /* one by one: a crash leaves the complete ones */
        crash_write(out, buf_bytes(&text));
        buf_clear(&text);
    }
    buf_release(&text);
}

static const struct crash_section sections[] = {
    {"CURRENT COMMAND", write_command}, {"CURRENT CLIENT", write_client}, {"INFO OUTPUT", write_info}, {0},
};

void crash_report_apply_config(struct server *s)
{
    const struct config *c = &s->config;
    crash_configure(&(struct crash_options){
        .enabled = c->crash_log_enabled, .exit_on_panic = c->use_exit_on_panic, .version =
        "Mayfly " MAYFLY_VERSION " (Redis " REDIS_VERSION ")", .log_path = c->logfile.n ? c->logfile.p : NULL,
        .pidfile = c->pidfile.n ? c->pidfile.p : NULL, .owner = s, .sections = sections,
    });
    if (!c->watchdog_period) crash_watchdog(0);
}
