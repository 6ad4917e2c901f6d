/* WAIT: a client that waits until enough replicas have acknowledged what it wrote. */
#include "base/alloc.h"
#include "base/clock.h"
#include "command/commands.h"
#include "server/primary.h"

struct ack_waiter {
    uv_timer_t timer; /* when it has waited long enough; not active: it waits for ever */
    struct server *server;
    struct conn *conn;
    u32 wanted;
    u64 position;
    struct ack_waiter *next; /* of repl.waiters */
};

static void on_closed(uv_handle_t *h) { mem_free(h->data); }

static void remove_waiter(struct ack_waiter **at)
{
    struct ack_waiter *w = *at;
    *at = w->next;
    w->server->repl.waiting--;
    uv_close((uv_handle_t *)&w->timer, on_closed);
}

static struct ack_waiter **waiter_of(struct server *s, const struct conn *c)
{
    struct ack_waiter **at = &s->repl.waiters;
    while (*at && (*at)->conn != c) at = &(*at)->next;
    return at;
}

/* Replies how many there are, or why it is over, and lets the client go on. */
static void answer(struct ack_waiter **at, const char *error)
{
    struct ack_waiter *w = *at;
    struct conn *c = w->conn;
    if (!c->closing) {
        struct reply out = conn_reply(c);
        size_t mark = reply_mark(&out);
        if (error) reply_error(&out, error);
        else reply_int(&out, primary_acknowledged(w->server, w->position));
        if (c->session.reply_mode != REPLY_ON) out.out->n = mark;
        conn_late(c);
    }
    remove_waiter(at);
    conn_resume(c, HOLD_WAIT);
}

static void on_time(uv_timer_t *t)
{
    struct ack_waiter *w = t->data;
    answer(waiter_of(w->server, w->conn), NULL);
}

void wait_check(struct server *s)
{
    for (struct ack_waiter **at = &s->repl.waiters; *at;) {
        if (primary_acknowledged(s, (*at)->position) >= (*at)->wanted) answer(at, NULL);
        else at = &(*at)->next;
    }
}

void wait_forget(struct server *s, struct conn *c)
{
    if (!s->repl.waiting || !(c->hold & HOLD_WAIT)) return;
    struct ack_waiter **at = waiter_of(s, c);
    if (!*at) return;
    remove_waiter(at);
    conn_resume(c, HOLD_WAIT);
}

void wait_refuse_all(struct server *s)
{
    while (s->repl.waiters) {
        struct conn *c = s->repl.waiters->conn;
        answer(&s->repl.waiters, "UNBLOCKED force unblock from blocking operation, instance state changed "
                                 "(master -> replica?)");
        c->session.close_after_reply = true;
    }
}

bool primary_unblock(struct server *s, struct conn *c, bool with_error)
{
    struct ack_waiter **at = waiter_of(s, c);
    if (!*at) return false;
    answer(at, with_error ? "UNBLOCKED client unblocked via CLIENT UNBLOCK" : NULL);
    return true;
}

/* -- the command ----------------------------------------------------------------------------------------- */

static void begin_waiting(struct ctx *c, u32 wanted, i64 timeout_ms)
{
    struct server *s = c->server;
    struct ack_waiter *w = mem_zalloc(sizeof *w);
    w->server = s;
    w->conn = conn_of(c->session);
    w->wanted = wanted;
    w->position = w->conn->wrote_to;
    w->next = s->repl.waiters;
    s->repl.waiters = w;
    s->repl.waiting++;
    uv_timer_init(&s->loop, &w->timer);
    w->timer.data = w;
    uv_update_time(&s->loop);
    if (timeout_ms) uv_timer_start(&w->timer, on_time, (u64)timeout_ms, 0);
    conn_block(&s->net, w->conn, HOLD_WAIT);
    s->repl.ask_acks = true;
}

void cmd_wait(struct ctx *c)
{
    i64 wanted, timeout_ms;
    if (c->server->repl.link) {
        reply_error(c->out, "ERR WAIT cannot be used with replica instances. Please also note that since "
                            "Redis 4.0 if a replica is configured to be writable (which is not the default) "
                            "writes to replicas are just local and are not propagated.");
        return;
    }
    if (!ctx_int(c, c->argv[1], &wanted) || !ctx_timeout_ms(c, c->argv[2], &timeout_ms)) return;
    u32 have = primary_acknowledged(c->server, conn_of(c->session)->wrote_to);
    if ((i64)have >= wanted || !c->may_wait) reply_int(c->out, have);
    else begin_waiting(c, (u32)MIN(wanted, (i64)UINT32_MAX), timeout_ms);
}
