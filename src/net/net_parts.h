/* Internals of net, for the files of this folder only. */
#ifndef MAYFLY_NET_NET_PARTS_H
#define MAYFLY_NET_NET_PARTS_H

#include "net/fence.h"

struct listener {
    uv_poll_t poll;
    int fd;
    bool is_unix, tls;
    struct listener *next;
};

/* Creates a connection for the socket, which it takes over. NULL: it failed, and the socket is closed. */
NODISCARD struct conn *conn_new(struct net *n, int fd, const struct listener *l);

/* libuv's callbacks of connections and listeners. */
void net_on_poll(uv_poll_t *p, int status, int events);
void net_on_events(struct conn *c, int status, int events);
void net_on_connection(uv_poll_t *p, int status, int events);

/* Reads a connection, if this tick has not done so yet. ended: the peer has closed its side. */
void net_read(struct conn *c, bool ended);
/* Reads a connection that is held back. False: it must not be read, or has ended. */
bool net_read_on(struct conn *c);
void net_end_hold(struct conn *c);   /* it is no longer held back */
void net_take_input(struct conn *c); /* parses its input into requests of the tick */
void net_flush(struct conn *c);      /* writes what the kernel takes; c may be closed on return */
void net_write(struct conn *c);      /* … after its part in the tick has ended */
void net_drop_output(struct conn *c);
void net_no_tls(struct conn *c); /* its TLS handshake failed: tells the owner */

/* net_send_some writes output, on an I/O thread; the connection has no fence and no source. BROKEN: it must
 * be closed. FULL: the kernel takes no more. net_flushed does the rest, on the main thread. */
enum net_sent { NET_SENT_ALL, NET_SENT_SOME, NET_SENT_FULL, NET_SENT_BROKEN };
enum net_sent net_send_some(struct conn *c);
void net_flushed(struct conn *c);

/* Writes the replies, and parses input that was left unparsed. */
void net_end_tick(struct net *n);
void net_tick_release(struct net_tick *t); /* frees its contents */

/* -- fences: fence.h ------------------------------------------------------------------------ */

/* Call it before writing to a connection that is in the tick. */
void fence_enter(struct conn *c);
void fence_close_part(struct conn *c); /* c->held exists: what the tick wrote to it becomes a segment … */
void fence_end_part(struct conn *c);   /* … and the tick is over for it; c->held may be gone */
void fence_drop(struct conn *c);       /* its output is dropped */
void fence_settle_all(struct net *n);  /* fences that ended while a request ran */
void fence_release_all(struct net *n); /* when there are no connections any more */

/* -- the tick ------------------------------------------------------------------------------- */

/* Whether the connection has requests in this tick. */
static inline bool net_has_requests(const struct conn *c)
{
    const struct net *n = c->net;
    return c->first_request < n->tick.request_count && n->tick.requests[c->first_request].conn == c;
}

/* Removes a connection without replies yet from the tick: its requests will run in the next one. */
void net_withdraw(struct conn *c);

/* Adds the connection to this tick; net_unready undoes it. */
static inline void net_make_ready_in(struct net_tick *t, struct conn *c)
{
    if (c->ready) return;
    c->ready = true;
    c->deferred_reply = c->deferred_wrote = false;
    c->tick_mark = conn_output_end(c);
    c->ready_next = NULL;
    if (t->ready_tail) t->ready_tail->ready_next = c;
    else t->ready = c;
    t->ready_tail = c;
}
static inline void net_make_ready(struct conn *c) { net_make_ready_in(&c->net->tick, c); }
void net_unready(struct conn *c);

void net_poll(struct conn *c, int events);
void net_poll_now(struct conn *c, int events); /* exactly these */

/* With libuv's level-triggered polling the kernel looks at a connection once more after every read, nearly
 * always in vain. A connection whose polling has not changed for some reads is polled edge-triggered
 * (EPOLLET) instead: each arrival is reported once, and code that leaves something unread has to ask for
 * another report. libuv does not know, and returns to level-triggered when it polls for other events: the
 * code is correct with either (decision 016). */
#define NET_EDGE_AFTER 2
void net_poll_edge(struct conn *c);

/* After a read; rest: something may be left, including end of file. */
static inline void net_was_read(struct conn *c, bool rest)
{
    if (UNLIKELY(rest || c->steady_reads < NET_EDGE_AFTER)) net_poll_edge(c);
}

/* Not yet authenticated, and a password is needed. */
static inline bool net_is_unauthenticated(const struct conn *c)
{
    return !c->session.authenticated && !c->net->config.open;
}

/* Waits for exactly these events. If it waits for input, end of file is always reported. */
static inline void net_watch(struct conn *c, int events)
{
    if (c->closing) return;
    int poll = (events & UV_READABLE) ? events | UV_DISCONNECT : events;
    if (UNLIKELY(c->tls)) poll = tls_events(c->tls, events);
    c->events = events;
    if (c->polled != poll) net_poll(c, poll);
}

/* Call it after reading or writing. */
static inline void net_moved(struct conn *c) { c->active_ms = (i64)uv_now(c->net->loop); }

/* Borrow an empty buffer for output or for input; give it back to its pool. */
void net_borrow_output(struct conn *c);
struct buf net_borrow(struct net_io *io);
void net_give_back(struct net_io *io, struct buf *b);
void net_io_init(struct net_io *io, struct net *n);
void net_io_release(struct net_io *io);
void net_trim_pools(struct net_io *io);

/* Input of a tick, from many connections. A read gets room for NET_BUFFER bytes; the next read begins after
 * the bytes it has read. */
#define NET_BLOCK ((64u << 10) - 16)
struct net_block {
    struct net_block *next;
    size_t used;
    char data[NET_BLOCK];
};
void net_next_block(struct net_tick *t);
/* Make room for requests (which are counted), and for arguments (which the caller counts). */
struct net_request *net_add_requests(struct net_tick *t, u32 count);
bytes *net_reserve_args(struct net_tick *t, u32 more);

void net_clear_input(struct net_tick *t); /* the tick is over: its requests, their arguments and blocks */
void net_trim_tick(struct net_tick *t);   /* frees memory it has not needed lately */

static inline char *net_block_room(struct net_tick *t)
{
    if (UNLIKELY(!t->block || NET_BLOCK - t->block->used < NET_BUFFER)) net_next_block(t);
    return t->block->data + t->block->used;
}

#endif
