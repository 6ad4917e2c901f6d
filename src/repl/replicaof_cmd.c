/* REPLICAOF, and its old name SLAVEOF. */
#include <stdio.h>

#include "command/commands.h"
#include "exec/region_site.h"
#include "server/client/client.h"
#include "server/server.h"

static void become_primary(struct server *s, struct ctx *c, const char *who)
{
    if (replication_is_replica(&s->repl)) {
        replication_promote(s, false);
        log_line(&s->log, LOG_NOTICE, "MASTER MODE enabled (user request from '%s')", who);
    }
    reply_ok(c->out);
}

static void become_replica(struct server *s, struct ctx *c, const char *who)
{
    char host[256];
    i64 port;
    bytes name = c->argv[1];
    const struct conn *from = conn_of(c->session); /* a replica would be disconnected with the others */
    if (from->class == CONN_REPLICA || from->session.monitor) {
        reply_error(c->out, "ERR Command is not valid when client is a replica.");
        return;
    }
    if (!num_parse_i64(c->argv[2], &port) || port < 0 || port > 65535) {
        reply_error(c->out, "ERR Invalid master port");
        return;
    }
    if (!name.n || name.n >= sizeof host || memchr(name.p, '\0', name.n) || memchr(name.p, ' ', name.n)) {
        reply_error(c->out, "ERR Invalid master host");
        return;
    }
    if (link_is_to(s, name, (int)port)) {
        log_line(&s->log, LOG_NOTICE, "REPLICAOF would result into synchronization with the master we are "
                                      "already connected with. No operation performed.");
        reply_simple(c->out, "OK Already connected to specified master");
        return;
    }
    snprintf(host, sizeof host, "%.*s", (int)name.n, name.p);
    if (!replication_is_replica(&s->repl))
        log_line(&s->log, LOG_NOTICE, "Before turning into a replica, using my own master parameters to "
                                      "synthesize a cached master: I may be able to synchronize with the new "
                                      "master with just a partial transfer.");
    replication_follow(s, host, (int)port);
    log_line(&s->log, LOG_NOTICE, "REPLICAOF %s:%d enabled (user request from '%s')", host, (int)port, who);
    reply_ok(c->out);
}

void cmd_replicaof(struct ctx *c)
{
    struct server *s = c->server;
    struct buf who = {0};
    if (s->cluster) {
        reply_error(c->out, "ERR REPLICAOF not allowed in cluster mode.");
        return;
    }
    if (s->repl.failover.state != FAILOVER_NONE) {
        reply_error(c->out, "ERR REPLICAOF not allowed while failing over.");
        return;
    }
    /* The commands EXEC has run so far belong to the stream. */
    if (UNLIKELY(region_is_site(lone_region(s)))) region_site_ran(lone_region(s));
    journal_close(&lone_region(s)->journal, s->now_ms, c->seed);
    client_describe(conn_of(c->session), &who);
    buf_append_char(&who, '\0');
    if (bytes_is(c->argv[1], "no") && bytes_is(c->argv[2], "one")) become_primary(s, c, who.p);
    else become_replica(s, c, who.p);
    replication_begin_tick(s); /* for the rest of this tick: writes that follow are in no stream */
    buf_release(&who);
}
