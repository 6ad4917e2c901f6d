/* See monitor.h. */
#include "server/client/monitor.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "command/commands.h"
#include "script/script.h"

static void monitor_enter(struct server *s, struct session *session)
{
    session->monitor = true;
    s->monitors = mem_realloc(s->monitors, (s->monitor_count + 1) * sizeof(struct conn *));
    s->monitors[s->monitor_count++] = conn_of(session);
}

void monitor_leave(struct server *s, struct session *session)
{
    if (!session->monitor) return;
    session->monitor = false;
    u32 at = 0;
    while (s->monitors[at] != conn_of(session)) at++;
    s->monitors[at] = s->monitors[--s->monitor_count];
}

void cmd_monitor(struct ctx *c)
{
    if (!c->may_wait) {
        reply_error(c->out, "ERR MONITOR isn't allowed for DENY BLOCKING client");
        return;
    }
    bool replica = conn_of(c->session)->class == CONN_REPLICA;
    if (replica || c->session->monitor) return; /* it gets no reply */
    monitor_enter(c->server, c->session);
    reply_ok(c->out);
}

void monitor_feed(struct server *s, const struct conn *from, const struct command *cmd, int argc,
                  const bytes *argv)
{
    if (monitor_shows(cmd)) monitor_show(s, from, argc, argv);
}

void monitor_show(struct server *s, const struct conn *from, int argc, const bytes *argv)
{
    const struct script_run *script = s->node.script;
    bool by_script = script && script->c->session == &from->session; /* others may send commands meanwhile */
    char path[NET_ADDRESS + 8];
    if (from->is_unix) {
        size_t n = strlen(from->peer);
        if (n > 2 && memcmp(from->peer + n - 2, ":0", 2) == 0) n -= 2;
        snprintf(path, sizeof path, "unix:%.*s", (int)n, from->peer);
    }
    monitor_tell(s, from->session.db, by_script ? "lua" : from->is_unix ? path : from->peer, argc, argv);
}

void monitor_tell(struct server *s, u32 db, const char *from, int argc, const bytes *argv)
{
    struct buf line = {0};
    i64 us = clock_wall_us();
    buf_printf(&line, "+%lld.%06lld [%u %s]", (long long)(us / 1000000), (long long)(us % 1000000), db, from);
    for (int i = 0; i < argc; i++) {
        buf_append_char(&line, ' ');
        buf_append_quoted(&line, argv[i]);
    }
    buf_append_str(&line, "\r\n");
    for (u32 i = 0; i < s->monitor_count; i++) {
        if (s->monitors[i]->closing) continue;
        struct reply r = conn_reply(s->monitors[i]);
        buf_append_bytes(r.out, buf_bytes(&line));
    }
    buf_release(&line);
}
