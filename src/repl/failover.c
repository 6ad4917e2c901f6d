#include "repl/failover.h"

#include <stdio.h>

#include "base/clock.h"
#include "command/commands.h"
#include "server/client/client.h"
#include "repl/primary.h"

const char *failover_name(enum failover_state state)
{
    switch (state) {
    case FAILOVER_WAITS: return "waiting-for-sync";
    case FAILOVER_HANDS_OVER: return "failover-in-progress";
    default: return "no-failover";
    }
}

/* -- its end ---------------------------------------------------------------------------------------- */

static void failover_end(struct server *s)
{
    s->repl.failover = (struct failover){0};
    replication_hold(s);
    net_resume(&s->net, HOLD_FAILOVER);
}

static void failover_give_up(struct server *s, const char *why)
{
    bool follows = s->repl.failover.state == FAILOVER_HANDS_OVER;
    log_line(&s->log, LOG_NOTICE, "Aborting failover: %s", why);
    s->repl.failover.state = FAILOVER_NONE; /* the old link's state no longer matters */
    replication_hold(s);
    if (follows) replication_promote(s, false);
    failover_end(s);
}

void failover_answered(struct server *s, bool agreed)
{
    if (s->repl.failover.state != FAILOVER_HANDS_OVER) return;
    if (agreed) failover_end(s);
    else s->repl.failover.refused = true; /* the link itself calls this, so it can't be dropped here */
}

/* -- the replica ------------------------------------------------------------------------------------ */

/* Whether it would be what this server is. */
static bool failover_fits(const struct replica *r) { return r->site == r->server->config.site_id; }

static bool is_called(const struct replica *r, const char *host, i64 port)
{
    char own[REPLICA_HOST];
    replica_host(r, own);
    return r->port == port && strcasecmp(own, host) == 0;
}

static struct replica *failover_named(const struct server *s, const char *host, i64 port)
{
    for (struct replica *r = s->repl.replicas; r; r = r->next)
        if (is_called(r, host, port)) return r;
    return NULL;
}

static struct replica *has_everything(const struct server *s, const struct failover *f)
{
    for (struct replica *r = s->repl.replicas; r; r = r->next) {
        bool wanted = failover_fits(r) && (!f->host[0] || is_called(r, f->host, f->port));
        if (wanted && r->state == REPLICA_ONLINE && r->acknowledged == s->repl.stream.end) return r;
    }
    return NULL;
}

static void hand_over(struct server *s, const char *host, int port)
{
    s->repl.failover.state = FAILOVER_HANDS_OVER;
    replication_follow(s, host, port);
}

void failover_cron(struct server *s)
{
    struct failover *f = &s->repl.failover;
    char host[REPLICA_HOST];
    if (f->refused) failover_give_up(s, "Failover target rejected psync request");
    if (f->state != FAILOVER_WAITS) return;
    struct replica *r = has_everything(s, f);
    if (r) {
        replica_host(r, host);
        log_line(&s->log, LOG_NOTICE, "Failover target %s:%d is synced, failing over.", host, r->port);
        hand_over(s, host, r->port);
    } else if (f->until_ms && clock_mono_us() / 1000 >= f->until_ms) {
        log_line(&s->log, LOG_NOTICE, "Failover to %s:%d timed out%s.", f->host[0] ? f->host : "any replica",
                 f->port, f->force ? ", failing over all the same" : "");
        if (f->force) hand_over(s, f->host, f->port);
        else failover_give_up(s, "Replica never caught up before timeout");
    }
}

/* -- the command ------------------------------------------------------------------------------------ */

struct wish {
    bool abort, force, to;
    i64 timeout_ms; /* 0: none */
    char host[256];
    i64 port;
};

static bool take_target(struct ctx *c, int at, struct wish *w)
{
    if (at + 2 >= c->argc || c->argv[at + 1].n >= sizeof w->host) {
        ctx_syntax_error(c);
        return false;
    }
    snprintf(w->host, sizeof w->host, "%.*s", (int)c->argv[at + 1].n, c->argv[at + 1].p);
    if (!num_parse_i64(c->argv[at + 2], &w->port)) {
        reply_error(c->out, "ERR value is not an integer or out of range");
        return false;
    }
    w->to = true;
    return true;
}

static bool take_timeout(struct ctx *c, int at, struct wish *w)
{
    if (at + 1 >= c->argc) {
        ctx_syntax_error(c);
        return false;
    }
    if (!num_parse_i64(c->argv[at + 1], &w->timeout_ms)) {
        reply_error(c->out, "ERR value is not an integer or out of range");
        return false;
    }
    if (w->timeout_ms > 0) return true;
    reply_error(c->out, "ERR FAILOVER timeout must be greater than 0");
    return false;
}

static bool failover_parse(struct ctx *c, struct wish *w)
{
    for (int i = 1; i < c->argc; i++) {
        bytes word = c->argv[i];
        if (bytes_is(word, "abort") && c->argc == 2) {
            w->abort = true;
        } else if (bytes_is(word, "timeout") && !w->timeout_ms) {
            if (!take_timeout(c, i++, w)) return false;
        } else if (bytes_is(word, "to") && !w->to) {
            if (!take_target(c, i, w)) return false;
            i += 2;
        } else if (bytes_is(word, "force") && !w->force) {
            w->force = true;
        } else {
            ctx_syntax_error(c);
            return false;
        }
    }
    return true;
}

/* Why the failover is not possible; NULL: it is. */
static const char *objection(const struct server *s, const struct wish *w)
{
    const struct replication *r = &s->repl;
    if (w->abort) return r->failover.state == FAILOVER_NONE ? "ERR No failover in progress." : NULL;
    if (r->failover.state != FAILOVER_NONE) return "ERR FAILOVER already in progress.";
    if (r->link) return "ERR FAILOVER is not valid when server is a replica.";
    if (!r->replicas) return "ERR FAILOVER requires connected replicas.";
    if (w->force && (!w->to || !w->timeout_ms))
        return "ERR FAILOVER with force option requires both a timeout and target HOST and IP options.";
    if (!w->to) return NULL;
    const struct replica *target = failover_named(s, w->host, w->port);
    if (!target) return "ERR FAILOVER target HOST and PORT is not a replica.";
    if (!failover_fits(target))
        return "ERR FAILOVER target has no site-id: it can't take the place of a site.";
    return target->state == REPLICA_ONLINE ? NULL : "ERR FAILOVER target replica is not online.";
}

void cmd_failover(struct ctx *c)
{
    struct server *s = c->server;
    struct wish w = {0};
    if (!failover_parse(c, &w)) return;
    const char *why = objection(s, &w);
    if (why) {
        reply_error(c->out, why);
        return;
    }
    reply_ok(c->out);
    if (w.abort) {
        failover_give_up(s, "Failover manually aborted");
        return;
    }
    struct failover *f = &s->repl.failover;
    *f = (struct failover){.state = FAILOVER_WAITS, .port = (int)w.port, .force = w.force};
    memcpy(f->host, w.host, sizeof f->host);
    replication_hold(s);
    if (w.timeout_ms) f->until_ms = clock_mono_us() / 1000 + w.timeout_ms;
    log_line(&s->log, LOG_NOTICE, "FAILOVER requested to %s.", w.to ? w.host : "any replica");
}
