/* One connection of the bus: the greeting, then frames. See bus.h. */
#include <errno.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "cluster/bus_parts.h"

#define FRAME_HEAD 12
#define READ_SIZE (256u << 10)
#define KEEP_BUFFER (1u << 20) /* a buffer that grew beyond this is freed when it is empty */

/* -- life -------------------------------------------------------------------------------- */

struct bus_conn *bus_conn_new(struct bus *b, const struct bus_conn_ops *ops, void *user)
{
    struct bus_conn *c = mem_zalloc(sizeof *c);
    *c = (struct bus_conn){.bus = b, .ops = ops, .user = user, .fd = -1, .next = b->conns};
    c->begun_ms = (i64)uv_now(b->o.loop);
    if (b->conns) b->conns->prev = c;
    b->conns = c;
    return c;
}

static void bus_conn_free(struct bus_conn *c)
{
    buf_release(&c->in);
    buf_release(&c->out);
    buf_release(&c->early);
    mem_free(c);
}

static void bus_conn_on_closed(uv_handle_t *h)
{
    struct bus_conn *c = h->data;
    struct bus *b = c->bus;
    bus_conn_free(c);
    bus_handle_closed(b);
}

static void bus_conn_unlink(struct bus_conn *c)
{
    struct bus *b = c->bus;
    if (c->prev) c->prev->next = c->next;
    else b->conns = c->next;
    if (c->next) c->next->prev = c->prev;
    if (!c->dirty) return;
    struct bus_conn **at = &b->dirty;
    while (*at != c) at = &(*at)->dirty_next;
    *at = c->dirty_next;
    c->dirty = false;
}

/* A close callback frees it, so that callers up the stack can still look at its state. */
static void bus_conn_free_later(struct bus_conn *c)
{
    c->bus->handles++;
    if (c->fd < 0) uv_idle_init(c->bus->o.loop, &c->idle);
    c->idle.data = c;
    uv_close((uv_handle_t *)&c->idle, bus_conn_on_closed);
    if (c->fd >= 0) close(c->fd);
}

void bus_conn_close(struct bus_conn *c, const char *why)
{
    if (c->state == BUS_CLOSED) return;
    bool unproved = !c->dialled && c->state == BUS_HELLO;
    c->state = BUS_CLOSED;
    c->bus->unproved -= unproved;
    if (c->dial) dial_cancel(c->dial);
    c->dial = NULL;
    bus_conn_unlink(c);
    if (c->ops && c->ops->on_closed) c->ops->on_closed(c, why);
    tls_free(c->tls);
    c->tls = NULL;
    bus_conn_free_later(c);
}

void bus_conn_finish(struct bus_conn *c)
{
    c->finishing = true;
    if (c->state == BUS_OPEN) bus_conn_flush(c);
}

/* -- the socket ---------------------------------------------------------------------------- */

static void bus_conn_on_poll(uv_poll_t *p, int status, int events);

static void bus_conn_watch(struct bus_conn *c)
{
    bool wants_write = c->sent < c->out.n || c->drained;
    int events = (c->paused ? 0 : UV_READABLE) | (wants_write ? UV_WRITABLE : 0);
    if (c->state == BUS_CLOSED) return;
    if (c->tls) events = tls_events(c->tls, events);
    if (events == c->polled) return;
    c->polled = events;
    int rc = events ? uv_poll_start(&c->poll, events, bus_conn_on_poll) : uv_poll_stop(&c->poll);
    CHECK(rc == 0); /* uv_poll_init took the socket */
}

static const char *bus_conn_trouble(const struct bus_conn *c)
{
    return c->tls && errno == EPROTO ? tls_trouble(c->tls) : strerror(errno);
}

static void bus_conn_drained(struct bus_conn *c)
{
    c->sent = 0;
    if (c->out.cap > KEEP_BUFFER) buf_release(&c->out);
    else buf_clear(&c->out);
    if (c->state != BUS_OPEN) return;
    if (c->finishing) bus_conn_close(c, "finished");
    else c->drained = c->ops->on_drained != NULL;
}

void bus_conn_flush(struct bus_conn *c)
{
    while (c->sent < c->out.n) {
        const char *p = c->out.p + c->sent;
        size_t left = c->out.n - c->sent;
        ssize_t n = c->tls ? tls_send(c->tls, p, left) : send(c->fd, p, left, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno != EAGAIN) {
            bus_conn_close(c, bus_conn_trouble(c));
            return;
        }
        if (n < 0) break;
        c->sent += (size_t)n;
        c->written += (u64)n;
        c->bus->stats.bytes_out += (u64)n;
    }
    bool had = c->out.n > 0, all = c->sent == c->out.n;
    if (all && (had || c->finishing)) bus_conn_drained(c);
    bus_conn_watch(c);
}

static void bus_conn_make_dirty(struct bus_conn *c)
{
    if (c->dirty) return;
    c->dirty = true;
    c->dirty_next = c->bus->dirty;
    c->bus->dirty = c;
}

/* -- frames -------------------------------------------------------------------------------- */

static u32 frame_checksum(const char *frame, size_t body)
{
    return crc32c(bytes_of(frame + 4, FRAME_HEAD - 4 + body));
}

void bus_conn_send(struct bus_conn *c, u8 type, bytes head, bytes body)
{
    struct buf *to = c->state == BUS_OPEN ? &c->out : &c->early;
    size_t n = head.n + body.n, at = to->n;
    if (c->state == BUS_CLOSED) return;
    CHECK(n <= c->bus->o.frame_max);
    buf_reserve(to, FRAME_HEAD + n);
    to->n += FRAME_HEAD;
    buf_append_bytes(to, head);
    buf_append_bytes(to, body);
    char *frame = to->p + at;
    put_le32(frame + 4, (u32)n);
    put_le32(frame + 8, type); /* and three zero bytes */
    put_le32(frame, frame_checksum(frame, n));
    c->bus->stats.frames_out++;
    if (c->state == BUS_OPEN) bus_conn_make_dirty(c);
}

/* Delivers the first frame of the input. False: it is not all there, or the connection was closed. */
static bool bus_conn_deliver(struct bus_conn *c)
{
    const char *frame = c->in.p + c->taken;
    size_t have = c->in.n - c->taken;
    if (have < FRAME_HEAD) return false;
    u32 n = get_le32(frame + 4), type = get_le32(frame + 8);
    if (n > c->bus->o.frame_max) {
        bus_conn_close(c, "a frame is longer than allowed");
        return false;
    }
    if (have - FRAME_HEAD < n) return false;
    if (type > UINT8_MAX || get_le32(frame) != frame_checksum(frame, n)) {
        bus_conn_close(c, "a frame has a wrong checksum");
        return false;
    }
    c->taken += FRAME_HEAD + n;
    c->bus->stats.frames_in++;
    c->delivering = true;
    c->ops->on_frame(c, (u8)type, bytes_of(frame + FRAME_HEAD, n));
    c->delivering = false;
    return c->state == BUS_OPEN;
}

static void bus_conn_deliver_all(struct bus_conn *c)
{
    if (c->delivering) return; /* resumed within on_frame: the loop below continues */
    while (!c->paused && bus_conn_deliver(c)) {}
    if (c->state != BUS_OPEN || !c->taken) return;
    c->in.n -= c->taken;
    memmove(c->in.p, c->in.p + c->taken, c->in.n);
    c->taken = 0;
    if (!c->in.n && c->in.cap > KEEP_BUFFER) buf_release(&c->in);
}

void bus_conn_pause(struct bus_conn *c, bool pause)
{
    if (c->paused == pause || c->state == BUS_CLOSED) return;
    c->paused = pause;
    if (!pause && c->state == BUS_OPEN) bus_conn_deliver_all(c);
    if (c->fd >= 0) bus_conn_watch(c);
}

/* -- the greeting -------------------------------------------------------------------------- */

static void bus_conn_opened(struct bus_conn *c)
{
    c->state = BUS_OPEN;
    c->open_ms = clock_wall_ms();
    buf_append_bytes(&c->out, buf_bytes(&c->early));
    buf_release(&c->early);
    if (c->ops->on_open) c->ops->on_open(c);
    if (c->state != BUS_OPEN) return;
    bus_conn_make_dirty(c);
}

void bus_conn_refuse(struct bus_conn *c, const char *why)
{
    bus_refused(c->bus, c, why);
    bus_conn_close(c, why);
}

static const char *bus_greeting_error(err e)
{
    return e == ERR_TYPE ? "it has another cluster-secret" : "it does not speak this version of the bus";
}

static bool bus_same_cluster(const struct bus *b, u64 other)
{
    return !b->o.cluster || !other || b->o.cluster == other;
}

static void bus_take_challenge(struct bus_conn *c, bytes in)
{
    const struct bus *b = c->bus;
    err e = bus_challenge_read(in, &c->nonces);
    if (e) {
        bus_conn_refuse(c, bus_greeting_error(e));
        return;
    }
    c->hello.cluster = b->o.cluster;
    bus_hello_write(&c->out, &c->hello, &c->nonces, b->o.secret);
    c->state = BUS_WELCOME;
    bus_conn_make_dirty(c);
}

static void bus_take_welcome(struct bus_conn *c, bytes in)
{
    u64 cluster;
    err e = bus_welcome_read(in, c->node, &cluster, &c->nonces, c->bus->o.secret);
    if (e) bus_conn_refuse(c, bus_greeting_error(e));
    else if (!bus_same_cluster(c->bus, cluster)) bus_conn_refuse(c, "it belongs to another cluster");
    else if (*c->hello.to && strcmp(c->node, c->hello.to) != 0) bus_conn_refuse(c, "it is another node");
    else bus_conn_opened(c);
}

static const char *bus_unwanted(const struct bus *b, const struct bus_hello *h)
{
    if (!bus_same_cluster(b, h->cluster)) return "it belongs to another cluster";
    if (*h->to && strcmp(h->to, b->o.node) != 0) return "it looks for another node";
    if (strcmp(h->from, b->o.node) == 0) return "it is this node itself";
    return NULL;
}

static void bus_take_hello(struct bus_conn *c, bytes in)
{
    struct bus *b = c->bus;
    err e = bus_hello_read(in, &c->hello, &c->nonces, b->o.secret);
    const char *why = e ? bus_greeting_error(e) : bus_unwanted(b, &c->hello);
    if (!why) c->ops = b->o.on_accept(b->o.owner, &c->hello, &c->user, &why);
    if (!c->ops) {
        bus_conn_refuse(c, why);
        return;
    }
    b->unproved--;
    memcpy(c->node, c->hello.from, sizeof c->node);
    bus_welcome_write(&c->out, b->o.node, b->o.cluster, &c->nonces, b->o.secret);
    bus_conn_opened(c);
}

/* Processes the next message of the handshake, if it has arrived. */
static void bus_conn_greet(struct bus_conn *c)
{
    static const size_t sizes[] = {[BUS_CHALLENGE] = BUS_CHALLENGE_SIZE, [BUS_WELCOME] = BUS_WELCOME_SIZE,
                                   [BUS_HELLO] = BUS_HELLO_SIZE};
    while (c->state != BUS_OPEN && c->state != BUS_CLOSED) {
        size_t size = sizes[c->state];
        bytes in = bytes_of(c->in.p + c->taken, size);
        if (c->in.n - c->taken < size) return;
        c->taken += size;
        if (c->state == BUS_CHALLENGE) bus_take_challenge(c, in);
        else if (c->state == BUS_WELCOME) bus_take_welcome(c, in);
        else bus_take_hello(c, in);
    }
}

/* -- reading --------------------------------------------------------------------------------- */

/* Before the other side has proved itself it can't make us hold more than a greeting. */
static size_t bus_conn_room(const struct bus_conn *c)
{
    return c->state == BUS_OPEN ? READ_SIZE : BUS_HELLO_SIZE;
}

static void bus_conn_read(struct bus_conn *c)
{
    size_t room = bus_conn_room(c);
    char *to = buf_reserve(&c->in, room);
    ssize_t n = c->tls ? tls_recv(c->tls, to, room) : recv(c->fd, to, room, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        const char *why = n == 0 ? "the other side closed it" : bus_conn_trouble(c);
        if (c->state != BUS_OPEN && !c->dialled) bus_refused(c->bus, c, why);
        bus_conn_close(c, why);
        return;
    }
    if (n < 0) return;
    c->in.n += (size_t)n;
    c->bus->stats.bytes_in += (u64)n;
    if (c->state != BUS_OPEN) bus_conn_greet(c);
    if (c->state == BUS_OPEN) bus_conn_deliver_all(c);
    if (c->state == BUS_OPEN && c->in.n && c->ops->on_part) c->ops->on_part(c);
}

/* After a reset libuv stops polling and reports no events: reading tells what happened. */
static void bus_conn_on_poll(uv_poll_t *p, int status, int events)
{
    struct bus_conn *c = p->data;
    if (c->state == BUS_CLOSED) return;
    if (status < 0) {
        c->polled = 0;
        bus_conn_read(c);
        if (c->state != BUS_CLOSED) bus_conn_watch(c);
        return;
    }
    if (c->tls || events & UV_WRITABLE) bus_conn_flush(c);
    if (c->state == BUS_OPEN && c->drained && c->sent == c->out.n) {
        c->drained = false;
        c->ops->on_drained(c);
    }
    if (c->state == BUS_CLOSED) return;
    if (!c->paused && (c->tls || events & UV_READABLE)) bus_conn_read(c);
    if (c->state != BUS_CLOSED) bus_conn_watch(c);
}

void bus_conn_adopt(struct bus_conn *c, int fd)
{
    struct bus *b = c->bus;
    u8 *nonce = c->dialled ? c->nonces.connector : c->nonces.acceptor;
    if (!c->dialled) b->unproved++;
    c->state = c->dialled ? BUS_CHALLENGE : BUS_HELLO;
    if (uv_poll_init(b->o.loop, &c->poll, fd)) {
        close(fd);
        bus_conn_close(c, "the loop does not take the socket");
        return;
    }
    c->fd = fd;
    c->poll.data = c;
    CHECK(getrandom(nonce, BUS_NONCE, 0) == BUS_NONCE);
    if (b->o.tls) {
        c->tls = c->dialled ? tls_connect(b->o.tls, fd) : tls_accept(b->o.tls, fd, TLS_VERIFY_YES);
        if (!c->tls) {
            bus_conn_close(c, "TLS is not configured");
            return;
        }
    }
    if (!c->dialled) bus_challenge_write(&c->out, &c->nonces);
    bus_conn_flush(c);
    if (c->state == BUS_CLOSED || !c->tls || !c->dialled) return;
    bus_conn_read(c); /* the connector begins the TLS handshake */
    bus_conn_watch(c);
}

/* -- facts ------------------------------------------------------------------------------------ */

size_t bus_conn_queued(const struct bus_conn *c) { return c->out.n - c->sent + c->early.n; }
void *bus_conn_user(const struct bus_conn *c) { return c->user; }
struct bus *bus_conn_bus(const struct bus_conn *c) { return c->bus; }
const char *bus_conn_node(const struct bus_conn *c) { return c->node; }
enum bus_purpose bus_conn_purpose(const struct bus_conn *c) { return c->hello.purpose; }
