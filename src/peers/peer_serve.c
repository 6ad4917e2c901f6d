/* A site that fetches from this one: SITE.HELLO makes its connection a link, which reads from the backlog. */
#include <stdio.h>

#include "base/clock.h"
#include "command/commands.h"
#include "peers/peers_parts.h"

#define SERVE_PIECE (64u << 10)
#define REFUSED_LOG_EVERY_MS 60000 /* the same reason again */

static struct served *served_of(const struct conn_source *source)
{
    return (struct served *)(void *)((char *)(uintptr_t)source - offsetof(struct served, source));
}

/* While a script is interrupted, the site's clock includes uncommitted effects, so nothing is sent. */
static bool served_waits(const struct served *v)
{
    const struct server *s = v->of->server;
    return v->link.state == LINK_OVER || s->node.script || !region_settled(lone_region(s)) ||
           !peers_may_tell(v->of);
}

static bytes serve_peek(struct conn_source *source)
{
    struct served *v = served_of(source);
    if (v->sent < v->piece.n) return bytes_of(v->piece.p + v->sent, v->piece.n - v->sent);
    buf_clear(&v->piece);
    v->sent = 0;
    if (served_waits(v)) return (bytes){0};
    peers_pace(v->of, &v->link, v->clock_ms);
    if (!site_link_feed(&v->link, SERVE_PIECE, &v->piece)) served_over(v);
    else if (v->link.state == LINK_STREAM) peers_put_reports(v->of, &v->reports, &v->piece);
    if (v->link.clock_due) peers_feed_later(v->of);
    if (v->piece.n) v->said_ms = peers_now_ms(v->of);
    if (v->piece.n && !v->link.clock_waits) v->clock_ms = v->said_ms;
    return buf_bytes(&v->piece);
}

static void serve_sent(struct conn_source *source, size_t n)
{
    struct served *v = served_of(source);
    v->sent += n;
    v->bytes_out += n;
    if (v->sent < v->piece.n) return;
    if (v->piece.cap > 4 * SERVE_PIECE) buf_release(&v->piece);
    if (v->link.state == LINK_OVER) conn_close(v->conn);
}

/* Output limits are for output that grows while it is not read. This output does not grow: the next piece is
 * made when the last one was sent. But a piece may contain a message of any size, which must not close the
 * link each time it is sent. */
static u64 serve_pending(const struct conn_source *source UNUSED) { return 0; }

/* -- coming and going ---------------------------------------------------------------------------------- */

void served_over(struct served *v)
{
    struct peers *p = v->of;
    char why[PEER_REASON];
    snprintf(why, sizeof why, "site %d at %s: %s%s", v->link.peer, v->conn->peer,
             v->link.told ? "it refused: " : "", v->link.why ? v->link.why : "closed");
    i64 now = peers_now_ms(p);
    const char *text = v->link.why ? v->link.why : "closed";
    bool again = !strncmp(p->refused_logged, text, sizeof p->refused_logged - 1);
    peer_note_reason(&p->refused, why);
    if (again && now - p->refused_logged_ms < REFUSED_LOG_EVERY_MS) return;
    snprintf(p->refused_logged, sizeof p->refused_logged, "%s", text);
    p->refused_logged_ms = now;
    log_line(&p->server->log, LOG_WARNING, "Link from %s", why);
}

static struct served *serve_begin(struct peers *p, struct conn *c)
{
    struct region_site *rs = peers_region(p);
    struct served *v = mem_zalloc(sizeof *v);
    v->source = (struct conn_source){serve_peek, serve_sent, serve_pending};
    v->of = p;
    v->conn = c;
    v->next = p->served;
    v->since_ms = clock_wall_ms();
    v->heard_ms = v->said_ms = peers_now_ms(p);
    site_link_serve(&v->link, &rs->capture.site, &rs->backlog);
    p->served = v;
    c->peer_link = v;
    c->class = CONN_REPLICA; /* its limits of output, not those of clients */
    return v;
}

void peers_forget(struct server *s, struct conn *c)
{
    struct served *v = c->peer_link, **at;
    if (LIKELY(!v)) return;
    for (at = &s->peers->served; *at != v;) at = &(*at)->next;
    *at = v->next;
    if (v->link.state != LINK_OVER)
        log_line(&s->log, LOG_NOTICE, "Link from site %d at %s ended", v->link.peer, c->peer);
    c->source = NULL;
    c->peer_link = NULL;
    site_link_release(&v->link);
    buf_release(&v->piece);
    mem_free(v);
}

void served_close(struct served *v) { conn_close(v->conn); }

void served_cron(struct served *v)
{
    i64 now = peers_now_ms(v->of), timeout = v->of->server->config.repl_timeout * 1000;
    if (v->conn->closing) return;
    if (v->conn->got_input) v->heard_ms = now; /* empty lines while it takes a full sync */
    v->conn->got_input = false;
    if (now - v->heard_ms > timeout) {
        log_line(&v->of->server->log, LOG_WARNING, "Link from site %d at %s: timeout", v->link.peer,
                 v->conn->peer);
        conn_close(v->conn);
        return;
    }
    if (now - v->said_ms < PEER_HEARTBEAT_MS) return;
    site_link_repeat(&v->link);
    conn_wake(v->conn);
}

/* -- its messages, which are commands ------------------------------------------------------------------ */

/* A message after which the link is over leaves its refusal as the reply. */
static void serve_take(struct ctx *c, struct served *v)
{
    v->heard_ms = peers_now_ms(v->of);
    if (region_site_take(c->region, &v->link, c->argv, (u32)c->argc, c->out->out)) return;
    served_over(v);
    c->session->close_after_reply = true;
}

void cmd_site_hello(struct ctx *c)
{
    struct conn *conn = conn_of(c->session);
    struct peers *p = peers_of(c);
    if (!p) return;
    if (conn->replica || c->session->monitor) {
        reply_error(c->out, "ERR SITE.HELLO is not for the connection of a replica or a monitor");
        return;
    }
    if (!peers_may_tell(p)) {
        reply_error(c->out, aof_refuses(p->server->persist.aof));
        return;
    }
    struct served *v = conn->peer_link ? conn->peer_link : serve_begin(p, conn);
    serve_take(c, v);
    if (v->link.state != LINK_STREAM) return;
    pubsub_forget(p->server, conn);
    tracking_off(p->server, conn);
    conn->source = &v->source;
    log_line(&p->server->log, LOG_NOTICE, "Link from site %d at %s", v->link.peer, conn->peer);
}

/* Messages of an open link are accepted only on its own connection. */
static struct served *serve_link(struct ctx *c)
{
    struct served *v = conn_of(c->session)->peer_link;
    if (!peers_of(c)) return NULL;
    if (!v) reply_error(c->out, "ERR There is no link: SITE.HELLO comes first");
    return v;
}

void cmd_site_clock(struct ctx *c)
{
    struct served *v = serve_link(c);
    if (v) serve_take(c, v);
}

void cmd_site_fence(struct ctx *c)
{
    struct served *v = serve_link(c);
    if (!v) return;
    v->heard_ms = peers_now_ms(v->of);
    if (v->link.state == LINK_STREAM && peers_take_reports(v->of, c->argv, (u32)c->argc)) return;
    site_link_refuse(&v->link, "a malformed SITE.FENCE", c->out->out);
    served_over(v);
    c->session->close_after_reply = true;
}

/* The other side gives up, and says why. */
void cmd_site_refused(struct ctx *c)
{
    struct served *v = serve_link(c);
    if (v) serve_take(c, v);
}
