/* The connection to our primary: name resolution, connecting, reading and writing, closing. See link.h. */
#include "repl/link.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

static void link_connect_next(struct link *l);

/* -- handles ---------------------------------------------------------------------------------------- */

static void link_let_go(struct link_conn *c)
{
    if (--c->open) return;
    if (c->addresses) uv_freeaddrinfo(c->addresses);
    mem_free(c);
}

static void link_on_closed(uv_handle_t *h) { link_let_go(h->data); }

static void link_on_check(uv_check_t *h)
{
    struct link_conn *c = h->data;
    if (c->link && c->link->state == LINK_SYNC) sync_waited(c->link);
}

static struct link_conn *new_conn(struct link *l)
{
    struct link_conn *c = mem_zalloc(sizeof *c);
    c->link = l;
    c->fd = -1;
    c->open = 1;
    c->poll.data = c->check.data = c->resolve.data = c;
    uv_check_init(&l->server->loop, &c->check);
    return c;
}

static void close_conn(struct link_conn *c)
{
    c->link = NULL;
    uv_close((uv_handle_t *)&c->check, link_on_closed);
    if (c->fd < 0) {
        uv_cancel((uv_req_t *)&c->resolve); /* if too late, its callback still runs */
        return;
    }
    tls_free(c->tls);
    c->tls = NULL;
    uv_close((uv_handle_t *)&c->poll, link_on_closed);
    close(c->fd);
}

void link_close(struct link *l, bool soon)
{
    i64 now = link_now_ms(l);
    if (l->state == LINK_SYNC) sync_drop(l);
    if (l->state == LINK_UP) l->down_ms = now;
    l->state = LINK_DOWN;
    l->retry_ms = soon ? now : now + l->server->config.repl_retry_delay;
    if (l->conn) close_conn(l->conn);
    l->conn = NULL;
    buf_release(&l->in);
    buf_release(&l->out);
    l->sent = 0;
    l->asked = false;
    inbox_release(&l->inbox);
}

/* -- the socket ------------------------------------------------------------------------------------- */

static void link_lost(struct link *l, const char *why)
{
    const struct log *log = &l->server->log;
    bool no_tls = l->conn->tls && *tls_trouble(l->conn->tls);
    switch (no_tls && l->state == LINK_HANDSHAKE ? LINK_CONNECTING : l->state) {
    case LINK_HANDSHAKE:
        log_line(log, LOG_WARNING, l->answer == ANSWER_PSYNC
                                       ? "Master did not reply to PSYNC, will try later"
                                       : "Master did not respond to command during SYNC handshake");
        break;
    case LINK_SYNC:
        log_line(log, LOG_WARNING, l->transfer.stage == TRANSFER_HEADER
                                       ? "I/O error reading bulk count from MASTER: %s"
                                       : "I/O error trying to sync with MASTER: %s", why);
        break;
    case LINK_UP:
        log_line(log, LOG_NOTICE, "Connection with master lost.");
        log_line(log, LOG_NOTICE, "Caching the disconnected master state.");
        break;
    default:
        log_line(log, LOG_WARNING, "Error condition on socket for SYNC: %s", why);
    }
    link_close(l, l->state == LINK_UP && link_now_ms(l) - l->up_ms > l->server->config.repl_retry_delay);
}

/* Same results as recv and send. */
static ssize_t link_take_bytes(struct link *l, void *to, size_t n)
{
    struct link_conn *c = l->conn;
    if (!c->tls) return recv(c->fd, to, n, 0);
    ssize_t got = tls_recv(c->tls, to, n);
    int code = errno;
    link_watch(l, c->events);
    errno = code;
    return got;
}

static ssize_t link_give_bytes(struct link *l, const void *p, size_t n)
{
    struct link_conn *c = l->conn;
    return c->tls ? tls_send(c->tls, p, n) : send(c->fd, p, n, MSG_NOSIGNAL);
}

static const char *trouble(const struct link *l)
{
    const struct link_conn *c = l->conn;
    return c->tls && errno == EPROTO ? tls_trouble(c->tls) : strerror(errno);
}

size_t link_read(struct link *l, char *to, size_t room)
{
    ssize_t n = link_take_bytes(l, to, room);
    if (n > 0) {
        l->io_ms = link_now_ms(l);
        l->server->repl.bytes_in += (u64)n;
        return (size_t)n;
    }
    if (n == 0) link_lost(l, "connection lost");
    else if (errno != EAGAIN && errno != EINTR) link_lost(l, trouble(l));
    return 0;
}

void link_flush(struct link *l)
{
    int events = l->conn->events & UV_READABLE;
    size_t left = l->out.n - l->sent;
    ssize_t n = left ? link_give_bytes(l, l->out.p + l->sent, left) : 0;
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        link_lost(l, trouble(l));
        return;
    }
    l->sent += n > 0 ? (size_t)n : 0;
    if (l->sent == l->out.n) {
        buf_clear(&l->out);
        l->sent = 0;
    }
    link_watch(l, l->out.n ? events | UV_WRITABLE : events);
}

void link_command_bytes(struct link *l, int argc, const bytes *argv)
{
    buf_printf(&l->out, "*%d\r\n", argc);
    for (int i = 0; i < argc; i++) {
        buf_printf(&l->out, "$%zu\r\n", argv[i].n);
        buf_append_bytes(&l->out, argv[i]);
        buf_append_str(&l->out, "\r\n");
    }
}

void link_command(struct link *l, int argc, const char *const *argv)
{
    bytes words[8];
    for (int i = 0; i < argc; i++) words[i] = bytes_str(argv[i]);
    link_command_bytes(l, argc, words);
}

/* Sends no acknowledgement while the kernel has not taken the previous one. */
void link_acknowledge(struct link *l, u64 position)
{
    struct server *s = l->server;
    char text[32], synced[32];
    if (l->old_primary || l->out.n) return;
    durable_look(s);
    snprintf(text, sizeof text, "%llu", (ull)position);
    snprintf(synced, sizeof synced, "%llu", (ull)s->durable.synced.position);
    link_command(l, durable_enabled(s) ? 5 : 3,
                 (const char *const[]){"REPLCONF", "ACK", text, "FACK", synced});
    l->sent_ms = link_now_ms(l);
    link_flush(l);
}

/* An empty line, so that the primary does not time us out while we are busy loading. An error is ignored
 * here: what has been received is still worth loading, and the next read will report the error. */
static void link_send_keepalive(struct link *l)
{
    l->sent_ms = link_now_ms(l);
    if (l->out.n || link_give_bytes(l, "\n", 1) >= 0) return;
    /* TLS has kept the byte and requires the next write to repeat it. */
    if (l->conn->tls && errno == EAGAIN) buf_append_char(&l->out, '\n');
}

/* -- what the socket says --------------------------------------------------------------------------- */

static void link_connected(struct link *l);

/* The errno of a failure is found when the socket is used. */
static void on_poll(uv_poll_t *p, int status UNUSED, int events)
{
    struct link_conn *c = p->data;
    struct link *l = c->link;
    if (!l) return;
    if (l->state == LINK_CONNECTING) {
        link_connected(l);
        return;
    }
    if (events & UV_WRITABLE || c->tls) link_flush(l);
    if (c->link != l) return;
    if (c->tls && !(c->events & UV_READABLE)) return;
    if (l->state == LINK_HANDSHAKE) greet_readable(l);
    else if (l->state == LINK_SYNC) sync_readable(l);
    else follow_readable(l);
}

void link_watch(struct link *l, int events)
{
    struct link_conn *c = l->conn;
    int poll = c->tls ? tls_events(c->tls, events) : events;
    c->events = events;
    if (c->polled == poll) return;
    c->polled = poll;
    int rc = poll ? uv_poll_start(&c->poll, poll, on_poll) : uv_poll_stop(&c->poll);
    CHECK(rc == 0); /* uv_poll_init has checked the descriptor */
}

void link_wait(struct link *l, bool on)
{
    if (on) uv_check_start(&l->conn->check, link_on_check);
    else uv_check_stop(&l->conn->check);
}

/* -- connecting ------------------------------------------------------------------------------------- */

static void set_options(const struct server *s, int fd)
{
    int yes = 1, idle = (int)s->config.tcp_keepalive;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (!idle) return;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
}

/* bind-source-addr */
static bool bind_source(const struct server *s, int fd, int family)
{
    struct addrinfo *list, hints = {.ai_family = family, .ai_socktype = SOCK_STREAM};
    if (!s->config.bind_source_addr.n) return true;
    hints.ai_flags = AI_NUMERICHOST; /* no name lookup */
    if (getaddrinfo(s->config.bind_source_addr.p, NULL, &hints, &list)) {
        errno = EADDRNOTAVAIL;
        return false;
    }
    bool ok = bind(fd, list->ai_addr, list->ai_addrlen) == 0;
    freeaddrinfo(list);
    return ok;
}

static bool try_address(struct link *l, const struct addrinfo *a)
{
    struct link_conn *c = l->conn;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    set_options(l->server, fd);
    bool begun = bind_source(l->server, fd, a->ai_family) &&
                 (connect(fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS);
    if (!begun || uv_poll_init(&l->server->loop, &c->poll, fd)) {
        int code = errno;
        close(fd);
        errno = code;
        return false;
    }
    c->fd = fd;
    c->open++;
    l->state = LINK_CONNECTING;
    link_watch(l, UV_WRITABLE);
    return true;
}

static void link_connect_next(struct link *l)
{
    struct link_conn *c = l->conn;
    errno = EADDRNOTAVAIL;
    while (c->next_address) {
        const struct addrinfo *a = c->next_address;
        c->next_address = a->ai_next;
        if (try_address(l, a)) return;
    }
    log_line(&l->server->log, LOG_WARNING, "Unable to connect to MASTER: %s", strerror(errno));
    link_close(l, false);
}

static void link_on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
    struct link_conn *c = req->data;
    struct link *l = c->link;
    c->addresses = c->next_address = list;
    link_let_go(c);
    if (!l) return;
    if (status == 0) {
        link_connect_next(l);
        return;
    }
    log_line(&l->server->log, LOG_WARNING, "Unable to connect to MASTER: %s", uv_strerror(status));
    link_close(l, false);
}

static void begin_connecting(struct link *l)
{
    char port[16];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const struct log *log = &l->server->log;
    log_line(log, LOG_NOTICE, "Connecting to MASTER %s:%d", l->host, l->port);
    snprintf(port, sizeof port, "%d", l->port);
    l->conn = new_conn(l);
    l->state = LINK_RESOLVING;
    l->io_ms = link_now_ms(l);
    int rc = uv_getaddrinfo(&l->server->loop, &l->conn->resolve, link_on_resolved, l->host, port, &hints);
    if (rc) {
        log_line(log, LOG_WARNING, "Unable to connect to MASTER: %s", uv_strerror(rc));
        link_close(l, false);
        return;
    }
    l->conn->open++;
    log_line(log, LOG_NOTICE, "MASTER <-> REPLICA sync started");
}

/* The name has more addresses than the one that failed: a new connection tries the rest. */
static void next_address(struct link *l)
{
    struct link_conn *old = l->conn;
    l->conn = new_conn(l);
    l->conn->addresses = old->addresses;
    l->conn->next_address = old->next_address;
    old->addresses = NULL;
    close_conn(old);
    link_connect_next(l);
}

static void link_connected(struct link *l)
{
    int code = 0;
    socklen_t n = sizeof code;
    if (getsockopt(l->conn->fd, SOL_SOCKET, SO_ERROR, &code, &n)) code = errno;
    if (code && l->conn->next_address) {
        next_address(l);
        return;
    }
    if (code) {
        link_lost(l, strerror(code));
        return;
    }
    struct server *s = l->server;
    if (s->config.tls_replication && !(l->conn->tls = tls_connect(s->net.tls, l->conn->fd))) {
        link_lost(l, "TLS is not configured");
        return;
    }
    log_line(&l->server->log, LOG_NOTICE, "Non blocking connect for SYNC fired the event.");
    greet_begin(l);
}

/* -- up --------------------------------------------------------------------------------------------- */

/* Bytes of the stream that followed the reply, or the data, are already here: the loop must come back to them
 * without waiting for the socket. */
void link_up(struct link *l)
{
    struct link_conn *c = l->conn;
    l->state = LINK_UP;
    l->up_ms = l->io_ms = link_now_ms(l);
    l->no_partial = false;
    l->session.db = l->server->repl.stream_db;
    buf_append_bytes(&l->inbox.in, buf_bytes(&l->in));
    buf_release(&l->in);
    link_acknowledge(l, l->server->repl.stream.end);
    if (l->conn == c) link_watch(l, UV_READABLE | UV_WRITABLE);
}

bool link_is_up(const struct server *s) { return s->repl.link && s->repl.link->state == LINK_UP; }

/* -- time ------------------------------------------------------------------------------------------- */

static bool is_late(const struct link *l)
{
    return link_now_ms(l) - l->io_ms > l->server->config.repl_timeout * 1000;
}

static void timed_out(struct link *l, const char *text)
{
    log_line(&l->server->log, LOG_WARNING, "%s", text);
    link_close(l, false);
}

static void sync_cron(struct link *l)
{
    bool reading = l->stage == SYNC_RECEIVE && l->conn->events & UV_READABLE;
    if (!reading) {
        l->io_ms = link_now_ms(l); /* the delay is ours, not the primary's */
        if (link_now_ms(l) - l->sent_ms >= 1000) link_send_keepalive(l);
    } else if (is_late(l)) {
        timed_out(l, "Timeout receiving bulk data from MASTER... If the problem persists try to set the "
                     "'repl-timeout' parameter in redis.conf to a larger value.");
    }
}

static void up_cron(struct link *l)
{
    if (!(l->conn->events & UV_READABLE)) {
        l->io_ms = link_now_ms(l);
        follow_resume(l);
    } else if (is_late(l)) {
        timed_out(l, "MASTER timeout: no data nor PING received...");
        return;
    }
    if (link_now_ms(l) - l->sent_ms >= 1000) link_acknowledge(l, l->server->repl.stream.end);
}

void link_break(struct server *s)
{
    if (s->repl.link && s->repl.link->conn) link_close(s->repl.link, true);
}

void link_cron(struct server *s)
{
    struct link *l = s->repl.link;
    switch (l->state) {
    case LINK_DOWN:
        if (link_now_ms(l) >= l->retry_ms) begin_connecting(l);
        break;
    case LINK_SYNC: sync_cron(l); break;
    case LINK_UP: up_cron(l); break;
    default:
        if (is_late(l)) timed_out(l, "Timeout connecting to the MASTER...");
    }
}

/* -- life ------------------------------------------------------------------------------------------- */

void link_start(struct server *s, const char *host, int port)
{
    struct link *l = mem_zalloc(sizeof *l);
    l->server = s;
    snprintf(l->host, sizeof l->host, "%s", host);
    l->port = port;
    inbox_init(&l->inbox);
    session_init(&l->session, ++s->net.next_id, true);
    s->repl.link = l;
    begin_connecting(l);
}

void link_drop(struct server *s)
{
    struct link *l = s->repl.link;
    link_close(l, false);
    inbox_release(&l->inbox);
    session_release(&l->session);
    buf_release(&l->ignored);
    buf_release(&l->logged);
    mem_free(l->argv);
    mem_free(l);
    s->repl.link = NULL;
}
