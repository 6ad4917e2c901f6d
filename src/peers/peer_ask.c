/* A peer that this site fetches from: connecting, AUTH, SITE.HELLO, and applying its messages. */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "peers/peers_parts.h"
#include "server/commit.h"

#define ASK_READ (64u << 10)
#define ASK_PREFETCH_MAX 256
#define ASK_READ_MORE (1u << 20) /* bytes per read while one long message arrives */
#define ASK_LONGEST (2ll << 30)    /* a message: a value of 512 MB, or much in one command */
#define ASK_GREETING_MAX (16u << 10) /* bytes of replies before the first message */

static void ask_flush(struct peer *x);
static void ask_apply(struct peer *x);

/* -- the connection's handles -------------------------------------------------------------------------- */

static void ask_on_closed(uv_handle_t *h) { mem_free(h->data); }

static void ask_drop_conn(struct peer *x)
{
    struct peer_conn *c = x->conn;
    if (!c) return;
    x->conn = NULL;
    c->peer = NULL;
    tls_free(c->tls);
    uv_close((uv_handle_t *)&c->poll, ask_on_closed);
    close(c->fd);
}

static void ask_on_poll(uv_poll_t *h, int status, int events);

static void ask_watch(struct peer *x, int events)
{
    struct peer_conn *c = x->conn;
    int poll = c->tls ? tls_events(c->tls, events) : events;
    c->events = events;
    if (c->polled == poll) return;
    c->polled = poll;
    int rc = poll ? uv_poll_start(&c->poll, poll, ask_on_poll) : uv_poll_stop(&c->poll);
    CHECK(rc == 0); /* uv_poll_init has checked the descriptor */
}

/* -- its end ------------------------------------------------------------------------------------------- */

void peer_close(struct peer *x, const char *why)
{
    const struct log *log = &x->of->server->log;
    bool was_linked = x->state == PEER_LINKED && x->link.state == LINK_STREAM;
    bool news = why && strncmp(x->reason.text, why, sizeof x->reason.text - 1) != 0;
    if (why) peer_note_reason(&x->reason, why);
    if (why && (news || was_linked || !x->shown))
        log_line(log, LOG_WARNING, "Link to site %d at %s:%d ended: %s", x->gid, x->host, x->port, why);
    x->shown = true;
    if (x->of->merging == x) peers_merge_orphan(x->of);
    if (x->dial) dial_cancel(x->dial);
    x->dial = NULL;
    ask_drop_conn(x);
    if (x->state == PEER_LINKED) {
        x->needs_full = x->link.needs_full;
        site_link_release(&x->link);
    }
    x->link = (struct site_link){0};
    inbox_release(&x->inbox);
    buf_release(&x->out);
    x->sent = 0;
    i64 most = MAX(x->of->server->config.repl_retry_delay, PEER_RETRY_LEAST_MS);
    x->backoff_ms = was_linked || !why ? PEER_RETRY_LEAST_MS
                                       : MIN(MAX(x->backoff_ms * 2, PEER_RETRY_LEAST_MS), most);
    x->retry_ms = peers_now_ms(x->of) + x->backoff_ms;
    x->state = PEER_DOWN;
}

/* -- the socket ---------------------------------------------------------------------------------------- */

static const char *ask_trouble(const struct peer *x)
{
    const struct tls *tls = x->conn->tls;
    return tls && errno == EPROTO ? tls_trouble(tls) : strerror(errno);
}

static void ask_flush(struct peer *x)
{
    struct peer_conn *c = x->conn;
    while (x->sent < x->out.n) {
        const char *p = x->out.p + x->sent;
        size_t left = x->out.n - x->sent;
        ssize_t n = c->tls ? tls_send(c->tls, p, left) : send(c->fd, p, left, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno != EAGAIN) {
            peer_close(x, ask_trouble(x));
            return;
        }
        if (n < 0) break;
        x->sent += (size_t)n;
    }
    if (x->sent == x->out.n) {
        buf_clear(&x->out);
        x->sent = 0;
    }
    ask_watch(x, (c->events & UV_READABLE) | (x->out.n ? UV_WRITABLE : 0));
}

/* This side sends little, only its clock now and then, and not before the last one was sent completely. */
void peer_feed(struct peer *x)
{
    struct peer_conn *c = x->conn;
    bool streams = x->link.state == LINK_STREAM;
    if (x->state != PEER_LINKED || x->sent || !peers_may_tell(x->of)) return;
    peers_pace(x->of, &x->link, x->said_ms);
    if (streams && !x->out.n && !site_link_feed(&x->link, 0, &x->out)) {
        peer_close(x, x->link.why);
        return;
    }
    if (streams) peers_put_reports(x->of, &x->reports, &x->out);
    if (x->link.clock_due) peers_feed_later(x->of);
    if (!x->out.n) return;
    x->said_ms = peers_now_ms(x->of);
    ask_flush(x);
    if (c->peer) ask_watch(x, c->events);
}

/* -- messages of the peer ------------------------------------------------------------------------------ */

/* Nothing is applied while it could not be kept: the socket is not read then. */
static bool ask_may_apply(const struct peer *x)
{
    const struct server *s = x->of->server;
    return !server_holds(s, HOLD_STORAGE | HOLD_FAILOVER) && !peers_merging(x->of) && peers_may_tell(x->of) &&
           region_site_may_take(lone_region(s), &x->link);
}

static void ask_arguments(struct peer *x, const struct inbox_command *c)
{
    if (UNLIKELY(c->argc > x->argv_cap)) {
        x->argv_cap = MAX(c->argc, 16u);
        x->argv = mem_realloc(x->argv, x->argv_cap * sizeof *x->argv);
    }
    for (u32 i = 0; i < c->argc; i++) x->argv[i] = inbox_arg(&x->inbox, c, i);
}

static bool ask_take(struct peer *x, const struct inbox_command *c)
{
    struct peers *p = x->of;
    if (!c->argc) return true; /* an empty line */
    ask_arguments(x, c);
    bool effect = bytes_eq(x->argv[0], BYTES_LIT("SITE.EFFECT")); /* as nearly all are */
    if (!effect && bytes_is(x->argv[0], "SITE.FENCE") && x->link.state == LINK_STREAM)
        return peers_take_reports(p, x->argv, c->argc) ||
               site_link_refuse(&x->link, "a malformed SITE.FENCE", &x->out);
    enum site_link_state before = x->link.state;
    u64 effects = x->link.effects;
    if (!region_site_take(lone_region(p->server), &x->link, x->argv, c->argc, &x->out)) return false;
    if (x->link.effects != effects) peers_note_effect(p, &x->link);
    x->effects += x->link.effects - effects;
    if (before == LINK_HELLO && x->link.state == LINK_STREAM) peer_linked(x, false);
    return true;
}

void peer_linked(struct peer *x, bool full)
{
    x->up_ms = clock_wall_ms();
    x->backoff_ms = 0;
    log_line(&x->of->server->log, LOG_NOTICE, "Linked to site %d at %s:%d%s", x->gid, x->host, x->port,
             full ? ", after a full sync" : "");
}

void peer_resume(struct peer *x)
{
    x->heard_ms = peers_now_ms(x->of);
    x->inbox.ready = x->inbox.count;
    if (x->inbox.ready) ask_apply(x);
    if (x->state == PEER_LINKED) peer_feed(x);
    if (x->conn && ask_may_apply(x)) ask_watch(x, x->conn->events | UV_READABLE);
}

static bool ask_goes_on(const struct peer *x)
{
    return x->link.state != LINK_MERGE && region_site_may_take(lone_region(x->of->server), &x->link);
}

/* Prefetches keys for the effects that follow, as a tick does for requests. Returns up to which message. */
static u32 ask_prefetch(const struct peer *x, u32 from)
{
    struct engine *e = lone_region(x->of->server)->eng;
    const struct inbox *b = &x->inbox;
    struct want want[ASK_PREFETCH_MAX];
    u32 wants = 0, end = MIN(b->ready, from + MIN(e->caps.prefetch_ahead, ASK_PREFETCH_MAX));
    for (u32 i = from; i < end; i++) {
        struct want *w = &want[wants];
        bytes *element = e->caps.prefetch_elements ? &w->element : NULL;
        *w = (struct want){0};
        if (b->commands[i].argc != 2) continue;
        bool there = site_effect_key(inbox_arg(b, &b->commands[i], 1), &w->db, &w->key, element);
        wants += there && w->db < e->databases;
    }
    if (wants > 1) e->ops->prefetch(e, want, wants);
    return MAX(end, from + 1);
}

/* The messages of one read are one transaction. Messages after a full sync wait until it is merged, and
 * messages to a site in doubt until the doubt ends: then peer_resume is called. */
static void ask_apply(struct peer *x)
{
    struct server *s = x->of->server;
    struct region *r = lone_region(s);
    bool over = false;
    s->now_ms = node_begin(&s->node, clock_wall_ms());
    net_keep_output(&s->net); /* replies to requests of earlier ticks */
    u32 n = 0, fetched = 0;
    while (n < x->inbox.ready && !r->doomed && !over && ask_goes_on(x)) {
        if (n == fetched) fetched = ask_prefetch(x, n);
        over = !ask_take(x, &x->inbox.commands[n++]);
    }
    x->inbox.ready = n;
    bool kept = server_commit(s, COMMIT_SITE);
    if (x->state != PEER_LINKED) return; /* a commit that failed has ended all links */
    if (!kept) {
        peer_close(x, "the storage did not take what it sent");
        return;
    }
    inbox_applied(&x->inbox);
    if (x->link.state == LINK_MERGE) peers_merge_begin(x->of, x);
    if (!ask_goes_on(x)) ask_watch(x, x->conn->events & ~UV_READABLE);
    if (!over) return;
    ask_flush(x); /* the refusal, if the kernel takes it */
    if (x->state == PEER_LINKED) peer_close(x, x->link.why ? x->link.why : "it said goodbye");
}

/* A line that is not a message: an error of the other server, such as -NOAUTH or -LOADING. */
static void ask_bad_line(struct peer *x)
{
    char why[PEER_REASON], text[BYTES_LEGIBLE + 4];
    const struct inbox *b = &x->inbox;
    bytes line = bytes_of(b->in.p + b->parsed, b->in.n - b->parsed);
    const char *end = memchr(line.p, '\r', line.n);
    if (end) line.n = (size_t)(end - line.p);
    if (line.n && line.p[0] == '-') snprintf(why, sizeof why, "it answered: %s", bytes_legible(line, text));
    else snprintf(why, sizeof why, "garbage: %s", b->parser.error);
    peer_close(x, why);
}

/* Replies to AUTH come before the first message. False: not all are here, or the connection is closed. */
static bool ask_greeted(struct peer *x)
{
    struct buf *in = &x->inbox.in;
    char why[PEER_REASON], text[BYTES_LEGIBLE + 4];
    while (x->greetings) {
        const char *end = in->n ? memchr(in->p, '\n', in->n) : NULL;
        if (!end && in->n > ASK_GREETING_MAX) peer_close(x, "garbage: a line without end");
        if (!end) return false;
        bytes line = bytes_of(in->p, (size_t)(end - in->p) - (end > in->p && end[-1] == '\r'));
        if (!line.n || line.p[0] != '+') {
            snprintf(why, sizeof why, "it answered AUTH with: %s", bytes_legible(line, text));
            peer_close(x, why);
            return false;
        }
        in->n -= (size_t)(end - in->p) + 1;
        memmove(in->p, end + 1, in->n);
        x->greetings--;
    }
    x->state = PEER_LINKED;
    return true;
}

static void ask_took(struct peer *x, size_t n)
{
    x->heard_ms = peers_now_ms(x->of);
    x->bytes_in += n;
    if (x->state == PEER_GREETING) {
        x->inbox.in.n += n;
        n = 0;
        if (!ask_greeted(x)) return;
        n = x->inbox.in.n;
        x->inbox.in.n = 0;
    }
    err e = inbox_took(&x->inbox, n, MAX(x->of->server->net.config.max_bulk, ASK_LONGEST));
    if (x->inbox.ready) ask_apply(x);
    if (x->state != PEER_LINKED) return;
    if (e || x->inbox.in_block) ask_bad_line(x);
    else peer_feed(x);
}

static void ask_read(struct peer *x)
{
    struct peer_conn *c = x->conn;
    size_t room, needed = request_needed(&x->inbox.parser), have = x->inbox.in.n - x->inbox.parsed;
    size_t least = needed <= have + ASK_READ ? ASK_READ : MIN(needed - have, (size_t)ASK_READ_MORE);
    if (!ask_may_apply(x)) {
        ask_watch(x, c->events & ~UV_READABLE);
        return;
    }
    char *to = inbox_room(&x->inbox, least, &room);
    ssize_t n = c->tls ? tls_recv(c->tls, to, least) : recv(c->fd, to, least, 0);
    if (n > 0) ask_took(x, (size_t)n);
    else if (n == 0) peer_close(x, "the other side closed it");
    else if (errno != EAGAIN && errno != EINTR) peer_close(x, ask_trouble(x));
    if (c->peer) ask_watch(x, c->events);
}

static void ask_on_poll(uv_poll_t *h, int status UNUSED, int events)
{
    struct peer_conn *c = h->data;
    struct peer *x = c->peer;
    if (!x) return;
    if (events & UV_WRITABLE || c->tls) ask_flush(x);
    if (c->peer && (c->events & UV_READABLE)) ask_read(x);
}

/* -- connecting ---------------------------------------------------------------------------------------- */

static void ask_auth(struct peer *x)
{
    const struct config *c = &x->of->server->config;
    bytes user = buf_bytes(&c->masteruser), password = buf_bytes(&c->masterauth);
    if (!password.n) return;
    buf_printf(&x->out, "*%d\r\n$4\r\nAUTH\r\n", user.n ? 3 : 2);
    for (int i = !user.n; i < 2; i++) {
        bytes word = i ? password : user;
        buf_printf(&x->out, "$%zu\r\n", word.n);
        buf_append_bytes(&x->out, word);
        buf_append_str(&x->out, "\r\n");
    }
    x->greetings = 1;
}

static void ask_socket_options(const struct server *s, int fd)
{
    int yes = 1, idle = (int)s->config.tcp_keepalive;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (!idle) return;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
}

static void ask_on_dialled(void *arg, int fd, const char *why)
{
    struct peer *x = arg;
    struct server *s = x->of->server;
    struct region_site *rs = peers_region(x->of);
    char text[PEER_REASON];
    x->dial = NULL;
    if (fd < 0) {
        snprintf(text, sizeof text, "can't connect: %s", why);
        peer_close(x, text);
        return;
    }
    struct peer_conn *c = mem_zalloc(sizeof *c);
    *c = (struct peer_conn){.peer = x, .fd = fd};
    c->poll.data = c;
    CHECK(uv_poll_init(&s->loop, &c->poll, fd) == 0);
    ask_socket_options(s, fd);
    x->conn = c;
    x->state = PEER_GREETING;
    x->greetings = 0;
    x->reports = 0;
    x->heard_ms = x->said_ms = peers_now_ms(x->of);
    inbox_init(&x->inbox);
    if (s->config.tls_replication && !(c->tls = tls_connect(s->net.tls, fd))) {
        peer_close(x, "TLS is not configured");
        return;
    }
    ask_auth(x);
    site_link_ask(&x->link, &rs->capture.site, &rs->backlog, x->gid, x->needs_full, &x->out);
    c->events = UV_READABLE;
    if (!x->greetings) x->state = PEER_LINKED;
    ask_flush(x);
}

static void ask_connect(struct peer *x)
{
    x->state = PEER_CONNECTING;
    x->heard_ms = peers_now_ms(x->of);
    x->dial = dial_begin(&x->of->server->loop, x->host, x->port, ask_on_dialled, x);
}

void peer_cron(struct peer *x)
{
    i64 now = peers_now_ms(x->of), timeout = x->of->server->config.repl_timeout * 1000;
    if (x->state == PEER_DOWN) {
        if (now >= x->retry_ms && !peers_merging(x->of) && peers_may_tell(x->of)) ask_connect(x);
        return;
    }
    if (x->conn && !(x->conn->events & UV_READABLE)) {
        x->heard_ms = now; /* the delay is ours */
        if (ask_may_apply(x)) peer_resume(x);
    }
    if (now - x->heard_ms > timeout) {
        peer_close(x, "timeout: nothing was heard of it");
        return;
    }
    if (x->state != PEER_LINKED || now - x->said_ms < PEER_HEARTBEAT_MS) return;
    if (x->link.state == LINK_FULL && !x->out.n) buf_append_str(&x->out, "\r\n"); /* a sign of life */
    site_link_repeat(&x->link);
    peer_feed(x);
    x->said_ms = now;
}

/* -- peers --------------------------------------------------------------------------------------------- */

struct peer *peer_of(const struct peers *p, u8 gid)
{
    for (struct peer *x = p->list; x; x = x->next)
        if (x->gid == gid) return x;
    return NULL;
}

void peer_add(struct peers *p, u8 gid, const char *host, int port)
{
    struct peer *x = peer_of(p, gid);
    if (x && x->port == port && !strcmp(x->host, host)) return;
    if (!x) {
        x = mem_zalloc(sizeof *x);
        *x = (struct peer){.of = p, .next = p->list, .gid = gid};
        inbox_init(&x->inbox);
        p->list = x;
    } else {
        peer_close(x, NULL);
    }
    snprintf(x->host, sizeof x->host, "%s", host);
    x->port = port;
    x->shown = false;
    x->reason = (struct peer_reason){0};
    x->retry_ms = 0;
}

void peer_remove(struct peers *p, u8 gid)
{
    struct peer **at = &p->list, *x;
    while (*at && (*at)->gid != gid) at = &(*at)->next;
    if (!(x = *at)) return;
    peer_close(x, NULL);
    *at = x->next;
    inbox_release(&x->inbox);
    mem_free(x->argv);
    mem_free(x);
}
