/* Output of connections: replies and pushes, gathered in a tick and written at its end; and the limits on
 * it. */
#include <errno.h>
#include <sys/socket.h>

#include "net/io.h"

#define SOURCE_AT_ONCE (256u << 10)
#define SEND_AT_ONCE (1u << 20) /* by an I/O thread, before other connections have their turn */
#define UNAUTHENTICATED_OUTPUT_MAX (NET_BUFFER + 1024) /* output an unauthenticated client may have */

/* -- gathering ----------------------------------------------------------------------------- */

/* Not inlined into conn_reply, which is called for every request and rarely needs it. */
static COLD void output_begin(struct conn *c)
{
    if (!c->out.p) net_borrow_output(c);
    net_make_ready(c);
    if (c->net->fences.count) fence_enter(c);
}

struct reply conn_reply(struct conn *c)
{
    if (UNLIKELY(!c->out.p || !c->ready || c->net->fences.count)) output_begin(c);
    return (struct reply){.out = &c->out, .proto = c->session.proto};
}

void conn_answer_deferred(struct conn *c, bool silent)
{
    c->waits = false;
    c->deferred_reply = !silent && c->blocked_tick != c->net->tick.number;
}

struct reply conn_push(struct conn *c, enum push_place place)
{
    struct reply r = conn_reply(c);
    bool first = place == PUSH_BEFORE && c->session.proto > 2 && c->out.n == c->answer_at;
    if (UNLIKELY(c->answering)) r.out = first ? &c->before : &c->after;
    return r;
}

/* Moves the reply to make room for the messages before it. */
static void insert_before(struct conn *c, size_t begin)
{
    size_t n = c->before.n;
    buf_reserve(&c->out, n);
    memmove(c->out.p + begin + n, c->out.p + begin, c->out.n - begin);
    memcpy(c->out.p + begin, c->before.p, n);
    c->out.n += n;
}

void conn_answer_join(struct conn *c, size_t begin)
{
    if (c->before.n) insert_before(c, begin);
    buf_append_bytes(&c->out, buf_bytes(&c->after));
    buf_release(&c->before);
    buf_release(&c->after);
}

void net_keep_output(struct net *n)
{
    for (struct conn *c = n->tick.ready; c; c = c->ready_next) {
        if (UNLIKELY(c->held != NULL)) fence_close_part(c);
        c->tick_mark = conn_output_end(c);
    }
}

void net_take_back(struct net *n)
{
    for (struct conn *c = n->tick.ready; c; c = c->ready_next)
        if (!c->closing) conn_cut_output(c, c->tick_mark);
}

size_t conn_output_bytes(const struct conn *c)
{
    size_t written = conn_output_end(c) - c->sent + c->before.n + c->after.n;
    return written + (c->source ? c->source->pending(c->source) : 0);
}

/* -- limits -------------------------------------------------------------------------------- */

static bool over_output_limit(struct conn *c)
{
    struct net *n = c->net;
    const struct output_limit *l = &n->config.output[c->class];
    size_t used = conn_output_bytes(c);
    if (l->hard && used > l->hard) return true;
    if (used > UNAUTHENTICATED_OUTPUT_MAX && UNLIKELY(net_is_unauthenticated(c))) return true;
    if (!l->soft || used <= l->soft) {
        c->over_soft_since_ms = 0;
        return false;
    }
    i64 now = (i64)uv_now(n->loop);
    if (!c->over_soft_since_ms) c->over_soft_since_ms = now;
    return now - c->over_soft_since_ms > (i64)l->soft_seconds * 1000;
}

static void close_if_over(struct conn *c)
{
    if (!over_output_limit(c)) return;
    c->net->own.stats.output_buffer_kills++;
    conn_close(c);
}

void conn_check_output(struct conn *c)
{
    if (!c->closing && conn_output_bytes(c)) close_if_over(c);
}

void net_check_output(struct net *n)
{
    for (struct conn *c = n->conns; c; c = c->next) conn_check_output(c);
}

/* -- freeing --------------------------------------------------------------------------------- */

void conn_set_aside(struct conn *c) { buf_queue_add(&c->waiting, &c->out); }

void conn_cut_output(struct conn *c, size_t end)
{
    size_t before = c->waiting.bytes;
    c->out.n = end < before ? 0 : MIN(c->out.n, end - before);
    buf_queue_cut(&c->waiting, end);
}

void conn_copy_output(const struct conn *c, size_t begin, struct buf *to)
{
    size_t before = c->waiting.bytes;
    if (begin < before) buf_queue_copy(&c->waiting, begin, to);
    size_t skip = begin < before ? 0 : begin - before;
    if (skip < c->out.n) buf_append(to, c->out.p + skip, c->out.n - skip);
}

void net_drop_output(struct conn *c)
{
    fence_drop(c);
    buf_queue_release(&c->waiting);
    net_give_back(c->io, &c->out);
    c->sent = c->tick_mark = 0;
    buf_release(&c->before);
    buf_release(&c->after);
}

/* -- writing ------------------------------------------------------------------------------- */

/* Like send. */
static inline ssize_t give_bytes(struct conn *c, const void *p, size_t n)
{
    ssize_t sent = LIKELY(!c->tls) ? send(c->fd, p, n, MSG_NOSIGNAL) : tls_send(c->tls, p, n);
    if (LIKELY(sent > 0)) net_moved(c);
    return sent;
}

/* How many bytes of the output no fence holds back; what was already sent of the first buffer counts. */
static size_t output_free(const struct conn *c)
{
    return conn_output_end(c) - (UNLIKELY(c->held != NULL) ? c->held->bytes : 0);
}

/* Writes as much of the first buffer as the kernel takes; other connections are served before the next
 * buffer. False: the connection has been closed. */
static ALWAYS_INLINE bool send_output(struct conn *c)
{
    bytes first = c->waiting.first ? buf_queue_first(&c->waiting) : buf_bytes(&c->out);
    if (UNLIKELY(c->held != NULL)) {
        first.n = MIN(first.n, output_free(c));
        if (first.n == c->sent) return true;
    }
    ssize_t n = give_bytes(c, first.p + c->sent, first.n - c->sent);
    c->io->stats.writes++;
    if (n < 0) {
        if (errno == EAGAIN || errno == EINTR) return true;
        conn_close(c);
        return false;
    }
    c->sent += (size_t)n;
    c->io->stats.bytes_out += (u64)n;
    return true;
}

/* Removes what was sent. A small rest is moved to the front once it is the smaller part, so that each byte is
 * moved at most once on average; a large one becomes a buffer of the queue. */
static ALWAYS_INLINE void compact_output(struct conn *c)
{
    if (c->waiting.first && c->sent == buf_queue_first(&c->waiting).n) {
        buf_queue_drop_first(&c->waiting);
        c->sent = 0;
    }
    size_t sent = c->waiting.first ? 0 : c->sent; /* of `out` */
    if (sent == c->out.n) {
        c->wide = c->out.n > NET_SMALL;
        net_give_back(c->io, &c->out);
        c->sent -= sent;
    } else if (c->out.n - sent >= OUT_PIECE) {
        conn_set_aside(c);
    } else if (sent > c->out.n / 2) {
        memmove(c->out.p, c->out.p + sent, c->out.n - sent);
        c->out.n -= sent;
        c->sent = 0;
    }
    c->tick_mark = conn_output_end(c); /* for the next one */
}

/* Sends the source's bytes until the kernel takes no more or other connections should be served. True: there
 * is more. */
static bool send_source(struct conn *c)
{
    size_t total = 0;
    while (!c->closing && total < SOURCE_AT_ONCE) {
        bytes b = c->source->peek(c->source);
        if (c->closing || !b.n) return false;
        ssize_t n = give_bytes(c, b.p, b.n);
        c->io->stats.writes++;
        if (n < 0) {
            if (errno == EAGAIN || errno == EINTR) return true;
            conn_close(c);
            return false;
        }
        c->io->stats.bytes_out += (u64)n;
        total += (size_t)n;
        c->source->sent(c->source, (size_t)n);
        if ((size_t)n < b.n) return true;
    }
    return !c->closing;
}

/* Call it after writing output. more: there is output left that may be sent. */
static inline void flush_end(struct conn *c, bool more)
{
    net_watch(c, more ? c->events | UV_WRITABLE : c->events & ~UV_WRITABLE);
    if (UNLIKELY(more || c->source || c->held)) close_if_over(c);
    else c->over_soft_since_ms = 0;
    if (c->session.close_after_reply && !conn_has_output(c)) conn_close(c);
    if (UNLIKELY(c->net->on_moved != NULL)) c->net->on_moved(c->net, c);
}

static ALWAYS_INLINE void write_now(struct conn *c)
{
    bool more = false;
    if (conn_has_output(c)) {
        if (!send_output(c)) return;
        compact_output(c);
        more = output_free(c) > c->sent;
    } else if (c->out.p) {
        net_give_back(c->io, &c->out); /* a request that is answered later, or not at all */
    }
    if (UNLIKELY(c->source) && !conn_has_output(c)) more = send_source(c);
    if (c->closing) return;
    flush_end(c, more);
    if (UNLIKELY(more && c->io->thread)) io_retry_output(c);
}

void net_flush(struct conn *c)
{
    if (c->closing) return;
    if (UNLIKELY(c->held != NULL)) fence_end_part(c);
    write_now(c);
}

void net_write(struct conn *c) { write_now(c); }

void net_send_released(struct net *n)
{
    for (struct conn *c = n->tick.ready, *next; c; c = next) {
        next = c->ready_next;
        bool later = c->closing || c->read_this_tick || c->io->thread || !c->held;
        if (later || conn_output_end(c) != c->tick_mark) continue; /* a part that is open: see fence.h */
        if (output_free(c) > c->sent) write_now(c);
    }
}

enum net_sent net_send_some(struct conn *c)
{
    size_t left = SEND_AT_ONCE;
    while (conn_has_output(c)) {
        size_t first = c->waiting.first ? buf_queue_first(&c->waiting).n : c->out.n;
        size_t before = c->sent;
        if (!send_output(c)) return NET_SENT_BROKEN;
        bool full = c->tls ? c->sent == before : c->sent < first; /* TLS writes a record at a time */
        left -= MIN(left, c->sent - before);
        compact_output(c);
        if (full) return NET_SENT_FULL;
        if (!left) break;
    }
    return conn_has_output(c) ? NET_SENT_SOME : NET_SENT_ALL;
}

void net_flushed(struct conn *c) { flush_end(c, conn_has_output(c)); }

void conn_wake(struct conn *c)
{
    if (!c->closing) net_make_ready(c);
}

void conn_pump(struct conn *c) { net_flush(c); }
