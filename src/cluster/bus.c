/* Listening, peers, and what happens by time. See bus.h. */
#include "cluster/bus.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cluster/bus_parts.h"

#define TIMER_MS 100
#define BACKOFF_MIN_MS 50
#define BACKOFF_MAX_MS 1000
#define DEAD_AFTER_MS 10000 /* what the kernel can't deliver for so long ends a connection */
#define LOG_EVERY_MS 10000
#define ACCEPTS 16 /* of a listener in one turn of the loop */
#define MOVES_LEAST (64u << 10) /* less is no reason to be late */
#define UNPROVED_MAX 128 /* connections that may be in the middle of the greeting */

static i64 bus_now_ms(const struct bus *b) { return (i64)uv_now(b->o.loop); }

/* -- connections ---------------------------------------------------------------------------- */

/* A peer that vanished without a word must not be taken for a slow one. */
static void bus_set_options(int fd)
{
    int yes = 1, dead_ms = DEAD_AFTER_MS, idle_s = DEAD_AFTER_MS / 1000;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_ms, sizeof dead_ms);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle_s, sizeof idle_s);
}

static void bus_on_dialled(void *arg, int fd, const char *why)
{
    struct bus_conn *c = arg;
    c->dial = NULL;
    if (fd < 0) {
        bus_conn_close(c, why);
        return;
    }
    bus_set_options(fd);
    bus_conn_adopt(c, fd);
}

struct bus_conn *bus_dial(struct bus *b, const char *host, int port, enum bus_purpose purpose,
                          const char *to, const struct bus_conn_ops *ops, void *user)
{
    struct bus_conn *c = bus_conn_new(b, ops, user);
    c->dialled = true;
    c->state = BUS_CONNECTING;
    c->hello.purpose = purpose;
    snprintf(c->hello.from, sizeof c->hello.from, "%s", b->o.node);
    snprintf(c->hello.to, sizeof c->hello.to, "%s", to);
    c->dial = dial_begin(b->o.loop, host, port, bus_on_dialled, c);
    return c;
}

void bus_refused(struct bus *b, const struct bus_conn *c, const char *why)
{
    i64 now_ms = bus_now_ms(b);
    b->stats.refused++;
    b->unlogged++;
    if (b->logged_ms && now_ms - b->logged_ms < LOG_EVERY_MS) return;
    b->logged_ms = now_ms ? now_ms : 1;
    log_line(b->o.log, LOG_WARNING, "Cluster bus: %s node %.8s was refused: %s (%llu since the last line)",
             c->dialled ? "the connection to" : "a connection from",
             c->dialled ? c->hello.to : c->hello.from, why, (ull)b->unlogged);
    b->unlogged = 0;
}

/* -- listening ------------------------------------------------------------------------------ */

static void bus_on_connection(uv_poll_t *p, int status UNUSED, int events UNUSED)
{
    struct bus_listener *l = p->data;
    for (int i = 0; i < ACCEPTS; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        if (l->bus->unproved >= UNPROVED_MAX) {
            l->bus->stats.refused++;
            close(fd);
            continue;
        }
        bus_set_options(fd);
        bus_conn_adopt(bus_conn_new(l->bus, NULL, NULL), fd);
    }
}

static int bus_bind(const struct addrinfo *a)
{
    int yes = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (a->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 511) == 0) return fd;
    int rc = -errno;
    close(fd);
    return rc;
}

int bus_listen(struct bus *b, const char *address, int port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(address, service, &hints, &found)) return UV_EADDRNOTAVAIL;
    int fd = bus_bind(found);
    freeaddrinfo(found);
    if (fd < 0) return fd;
    struct bus_listener *l = mem_zalloc(sizeof *l);
    *l = (struct bus_listener){.bus = b, .next = b->listeners, .fd = fd};
    CHECK(uv_poll_init(b->o.loop, &l->poll, fd) == 0);
    l->poll.data = l;
    b->listeners = l;
    b->handles++;
    return uv_poll_start(&l->poll, UV_READABLE, bus_on_connection);
}

static void bus_listener_closed(uv_handle_t *h)
{
    struct bus_listener *l = h->data;
    struct bus *b = l->bus;
    mem_free(l);
    bus_handle_closed(b);
}

/* -- peers ---------------------------------------------------------------------------------- */

static void bus_peer_opened(struct bus_conn *c)
{
    struct bus_peer *p = c->user;
    struct bus *b = p->bus;
    p->backoff_ms = 0;
    if (b->o.on_peer) b->o.on_peer(b->o.owner, p, true);
}

/* Connections for messages are one-way. */
static void bus_peer_frame(struct bus_conn *c, u8 type UNUSED, bytes body UNUSED)
{
    bus_conn_close(c, "a message on a connection that has none");
}

static void bus_peer_closed(struct bus_conn *c, const char *why)
{
    struct bus_peer *p = c->user;
    struct bus *b = p->bus;
    bool was_up = *c->node;
    p->conn = NULL;
    p->retry_ms = bus_now_ms(b) + p->backoff_ms;
    p->backoff_ms = p->backoff_ms ? MIN(p->backoff_ms * 2, BACKOFF_MAX_MS) : BACKOFF_MIN_MS;
    log_line(b->o.log, LOG_VERBOSE, "Cluster bus: no connection to node %.8s at %s:%d: %s", p->node, p->host,
             p->port, why);
    if (was_up && b->o.on_peer) b->o.on_peer(b->o.owner, p, false);
}

static const struct bus_conn_ops bus_peer_ops = {
    .on_open = bus_peer_opened, .on_frame = bus_peer_frame, .on_closed = bus_peer_closed,
};

static struct bus_peer *bus_peer_find(struct bus *b, const char *node)
{
    struct bus_peer *p = b->peers;
    while (p && strcmp(p->node, node) != 0) p = p->next;
    return p;
}

struct bus_peer *bus_peer_add(struct bus *b, const char *node, const char *host, int port)
{
    struct bus_peer *p = bus_peer_find(b, node);
    CHECK(bus_is_node_id(node));
    if (p && p->port == port && strcmp(p->host, host) == 0) return p;
    if (!p) {
        p = mem_zalloc(sizeof *p);
        p->bus = b;
        memcpy(p->node, node, sizeof p->node);
        p->next = b->peers;
        b->peers = p;
    }
    snprintf(p->host, sizeof p->host, "%s", host);
    p->port = port;
    p->retry_ms = p->backoff_ms = 0;
    if (p->conn) bus_conn_close(p->conn, "the peer has another address");
    return p;
}

void bus_peer_remove(struct bus_peer *p)
{
    struct bus *b = p->bus;
    if (p->conn) bus_conn_close(p->conn, "the peer was removed");
    for (struct bus_peer **at = &b->peers; *at; at = &(*at)->next) {
        if (*at != p) continue;
        *at = p->next;
        break;
    }
    mem_free(p);
}

static bool bus_peer_ready(struct bus_peer *p)
{
    struct bus *b = p->bus;
    if (p->conn) return true;
    if (b->closing || bus_now_ms(b) < p->retry_ms) return false;
    p->conn = bus_dial(b, p->host, p->port, BUS_MESSAGES, p->node, &bus_peer_ops, p);
    return true;
}

bool bus_send(struct bus_peer *p, u8 type, bytes head, bytes body)
{
    struct bus *b = p->bus;
    size_t n = head.n + body.n;
    bool fits = n <= b->o.frame_max && bus_peer_ready(p);
    size_t queued = fits ? bus_conn_queued(p->conn) : 0;
    if (!fits || (queued && queued + n > b->o.queue_max)) {
        b->stats.dropped++;
        return false;
    }
    bus_conn_send(p->conn, type, head, body);
    return true;
}

const char *bus_peer_node(const struct bus_peer *p) { return p->node; }
bool bus_peer_up(const struct bus_peer *p) { return p->conn && p->conn->state == BUS_OPEN; }
size_t bus_peer_queued(const struct bus_peer *p) { return p->conn ? bus_conn_queued(p->conn) : 0; }

bool bus_peer_moves(struct bus_peer *p)
{
    int unacked = 0; /* sent, and not yet acknowledged by the other side's kernel */
    u64 before = p->moved;
    if (!p->conn || p->conn->state != BUS_OPEN || ioctl(p->conn->fd, SIOCOUTQ, &unacked) < 0) return false;
    p->moved = p->conn->written - (u64)unacked;
    return p->moved != before && bus_peer_queued(p) + (size_t)unacked >= MOVES_LEAST;
}

void bus_each_link(const struct bus *b, void (*fn)(void *arg, const struct bus_link *l), void *arg)
{
    for (const struct bus_conn *c = b->conns; c; c = c->next) {
        if (c->state != BUS_OPEN || c->hello.purpose != BUS_MESSAGES) continue;
        fn(arg, &(struct bus_link){c->node, c->dialled, c->open_ms, bus_conn_queued(c), c->out.cap});
    }
}

/* -- time ----------------------------------------------------------------------------------- */

void bus_flush(struct bus *b)
{
    while (b->dirty) {
        struct bus_conn *c = b->dirty;
        b->dirty = c->dirty_next;
        c->dirty = false;
        bus_conn_flush(c);
    }
}

static void bus_on_prepare(uv_prepare_t *h)
{
    struct bus *b = h->data;
    if (!b->o.late) bus_flush(b);
}

static void bus_on_timer(uv_timer_t *h)
{
    struct bus *b = h->data;
    i64 now_ms = bus_now_ms(b);
    for (struct bus_conn *c = b->conns, *next; c; c = next) {
        next = c->next;
        if (c->state >= BUS_OPEN || now_ms - c->begun_ms < b->o.greet_timeout_ms) continue;
        bus_conn_close(c, "the greeting took too long");
        next = b->conns; /* on_closed may have closed others */
    }
}

/* -- life ----------------------------------------------------------------------------------- */

struct bus *bus_new(const struct bus_options *o)
{
    struct bus *b = mem_zalloc(sizeof *b);
    CHECK(bus_is_node_id(o->node));
    b->o = *o;
    b->handles = 2;
    uv_prepare_init(o->loop, &b->prepare);
    uv_prepare_start(&b->prepare, bus_on_prepare);
    uv_timer_init(o->loop, &b->timer);
    uv_timer_start(&b->timer, bus_on_timer, TIMER_MS, TIMER_MS);
    b->prepare.data = b->timer.data = b;
    uv_unref((uv_handle_t *)&b->prepare);
    uv_unref((uv_handle_t *)&b->timer);
    return b;
}

void bus_handle_closed(struct bus *b)
{
    if (--b->handles == 0) mem_free(b);
}

static void bus_own_handle_closed(uv_handle_t *h) { bus_handle_closed(h->data); }

void bus_free(struct bus *b)
{
    b->closing = true;
    while (b->conns) bus_conn_close(b->conns, "this node shuts down");
    while (b->peers) bus_peer_remove(b->peers);
    while (b->listeners) {
        struct bus_listener *l = b->listeners;
        b->listeners = l->next;
        uv_close((uv_handle_t *)&l->poll, bus_listener_closed);
        close(l->fd);
    }
    uv_close((uv_handle_t *)&b->prepare, bus_own_handle_closed);
    uv_close((uv_handle_t *)&b->timer, bus_own_handle_closed);
}

void bus_set_cluster(struct bus *b, u64 cluster) { b->o.cluster = cluster; }
const struct bus_stats *bus_stats(const struct bus *b) { return &b->stats; }
