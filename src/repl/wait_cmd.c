/* WAIT and WAITAOF: block a client until enough replicas have acknowledged its last write, or until enough
 * disks have it. In cluster mode the other members of the group are the replicas, and what one has
 * acknowledged is on its disk. */
#include "base/alloc.h"
#include "base/clock.h"
#include "cluster/cluster.h"
#include "command/commands.h"
#include "peers/peers.h"
#include "repl/primary.h"

struct ack_waiter {
    uv_timer_t timer; /* the timeout; not active: none */
    struct server *server;
    struct conn *conn;
    struct goal {
        bool sites;      /* SITE WAIT: other sites, not replicas */
        bool synced;     /* WAITAOF: on disk */
        bool local;      /* … on ours as well */
        u32 replicas;
        u64 position, seq; /* after its last write; in cluster mode `seq` is the region it was in */
    } goal;
    struct ack_waiter *next; /* list repl.waiters */
};

static void wait_cmd_on_closed(uv_handle_t *h) { mem_free(h->data); }

static void remove_waiter(struct ack_waiter **at)
{
    struct ack_waiter *w = *at;
    *at = w->next;
    w->server->repl.waiting--;
    w->server->repl.waiting_local -= w->goal.local && !w->server->cluster;
    uv_close((uv_handle_t *)&w->timer, wait_cmd_on_closed);
}

static struct ack_waiter **waiter_of(struct server *s, const struct conn *c)
{
    struct ack_waiter **at = &s->repl.waiters;
    while (*at && (*at)->conn != c) at = &(*at)->next;
    return at;
}

#define NO_LOG "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."

static u32 replicas_there(const struct server *s, const struct goal *g)
{
    if (g->sites) return s->peers ? peers_acknowledged(s, g->position) : 0;
    if (s->cluster) return cluster_acknowledged(s, g->seq, g->position);
    return g->synced ? primary_synced(s, g->position) : primary_acknowledged(s, g->position);
}

static bool wait_cmd_is_local(const struct server *s, const struct goal *g)
{
    if (s->cluster) return cluster_synced(s, g->seq, g->position);
    return durable_enabled(s) && durable_has(&s->durable, g->seq);
}

static bool is_reached(const struct server *s, const struct goal *g)
{
    return replicas_there(s, g) >= g->replicas && (!g->local || wait_cmd_is_local(s, g));
}

static void wait_cmd_tell(const struct server *s, const struct goal *g, struct reply *out)
{
    if (g->synced) {
        reply_array(out, 2);
        reply_int(out, wait_cmd_is_local(s, g));
    }
    reply_int(out, replicas_there(s, g));
}

/* Replies with the counts, or with an error, and unblocks the client. */
static void wait_cmd_answer(struct ack_waiter **at, const char *error)
{
    struct ack_waiter *w = *at;
    struct conn *c = w->conn;
    if (!c->closing) {
        struct reply out = conn_reply(c);
        size_t mark = reply_mark(&out);
        if (error) reply_error(&out, error);
        else wait_cmd_tell(w->server, &w->goal, &out);
        if (c->session.reply_mode != REPLY_ON) out.out->n = mark;
        conn_answer_deferred(c, out.out->n == mark);
    }
    remove_waiter(at);
    conn_resume(c, HOLD_WAIT);
}

static void wait_cmd_on_time(uv_timer_t *t)
{
    struct ack_waiter *w = t->data;
    wait_cmd_answer(waiter_of(w->server, w->conn), NULL);
}

void wait_check(struct server *s)
{
    for (struct ack_waiter **at = &s->repl.waiters; *at;) {
        const struct goal *g = &(*at)->goal;
        if (g->local && !s->cluster && !durable_enabled(s)) wait_cmd_answer(at, NO_LOG);
        else if (is_reached(s, g)) wait_cmd_answer(at, NULL);
        else at = &(*at)->next;
    }
}

void wait_look(struct server *s)
{
    if (durable_look(s) || !durable_enabled(s)) wait_check(s);
}

void wait_forget(struct server *s, struct conn *c)
{
    if (!s->repl.waiting || !(c->hold & HOLD_WAIT)) return;
    struct ack_waiter **at = waiter_of(s, c);
    if (!*at) return;
    remove_waiter(at);
    conn_resume(c, HOLD_WAIT);
}

static void wait_cmd_refuse(struct ack_waiter **at)
{
    struct conn *c = (*at)->conn;
    wait_cmd_answer(at, "UNBLOCKED force unblock from blocking operation, instance state changed "
                        "(master -> replica?)");
    c->session.close_after_reply = true;
}

void wait_refuse_all(struct server *s)
{
    while (s->repl.waiters) wait_cmd_refuse(&s->repl.waiters);
}

void wait_refuse_region(struct server *s, u64 region)
{
    bool leads = cluster_leads(s);
    for (struct ack_waiter **at = &s->repl.waiters; *at;) {
        u64 of = (*at)->goal.seq; /* 0: it has written nothing */
        if (of == region || (!of && !leads)) wait_cmd_refuse(at);
        else at = &(*at)->next;
    }
}

bool primary_unblock(struct server *s, struct conn *c, bool with_error)
{
    struct ack_waiter **at = waiter_of(s, c);
    if (!*at) return false;
    wait_cmd_answer(at, with_error ? "UNBLOCKED client unblocked via CLIENT UNBLOCK" : NULL);
    return true;
}

/* -- the command ---------------------------------------------------------------------------------------- */

static void begin_waiting(struct ctx *c, const struct goal *goal, i64 timeout_ms)
{
    struct server *s = c->server;
    struct ack_waiter *w = mem_zalloc(sizeof *w);
    w->server = s;
    w->conn = conn_of(c->session);
    w->goal = *goal;
    w->next = s->repl.waiters;
    s->repl.waiters = w;
    s->repl.waiting++;
    s->repl.waiting_local += goal->local && !s->cluster; /* the log's thread tells when it has synced */
    uv_timer_init(&s->loop, &w->timer);
    w->timer.data = w;
    uv_update_time(&s->loop);
    if (timeout_ms) uv_timer_start(&w->timer, wait_cmd_on_time, (u64)timeout_ms, 0);
    conn_block(&s->net, w->conn, HOLD_WAIT);
    s->repl.ask_acks = true;
}

static void wait_for(struct ctx *c, struct goal goal, i64 timeout_ms)
{
    const struct conn *conn = conn_of(c->session);
    goal.position = goal.sites ? conn->wrote_site : conn->wrote_to;
    goal.seq = conn->wrote_seq;
    if (is_reached(c->server, &goal) || !c->may_wait) wait_cmd_tell(c->server, &goal, c->out);
    else begin_waiting(c, &goal, timeout_ms);
}

static u32 count_of(i64 wanted) { return (u32)MIN(MAX(wanted, 0), (i64)UINT32_MAX); }

static bool follows_another(const struct server *s)
{
    return s->repl.link || (s->cluster && !cluster_leads(s));
}

void cmd_wait(struct ctx *c)
{
    i64 wanted, timeout_ms;
    if (follows_another(c->server)) {
        reply_error(c->out, "ERR WAIT cannot be used with replica instances. Please also note that since "
                            "Redis 4.0 if a replica is configured to be writable (which is not the default) "
                            "writes to replicas are just local and are not propagated.");
        return;
    }
    if (!ctx_int(c, c->argv[1], &wanted) || !ctx_timeout_ms(c, c->argv[2], &timeout_ms)) return;
    wait_for(c, (struct goal){.replicas = count_of(wanted)}, timeout_ms);
}

void cmd_site_wait(struct ctx *c)
{
    i64 wanted, timeout_ms;
    if (!c->server->peers) {
        reply_error(c->out, "ERR This server is no site: it was started without site-id");
        return;
    }
    if (!ctx_int(c, c->argv[2], &wanted) || !ctx_timeout_ms(c, c->argv[3], &timeout_ms)) return;
    wait_for(c, (struct goal){.sites = true, .replicas = count_of(wanted)}, timeout_ms);
}

void cmd_waitaof(struct ctx *c)
{
    i64 local, wanted, timeout_ms;
    if (!ctx_int_range(c, c->argv[1], 0, 1, &local) ||
        !ctx_int_min(c, c->argv[2], 0, "ERR value is out of range, must be positive", &wanted) ||
        !ctx_timeout_ms(c, c->argv[3], &timeout_ms))
        return;
    if (follows_another(c->server)) {
        reply_error(c->out,
                    "ERR WAITAOF cannot be used with replica instances. Please also note that writes to "
                    "replicas are just local and are not propagated.");
        return;
    }
    if (local && !durable_enabled(c->server)) {
        reply_error(c->out, NO_LOG);
        return;
    }
    durable_look(c->server);
    wait_for(c, (struct goal){.synced = true, .local = local, .replicas = count_of(wanted)}, timeout_ms);
}
