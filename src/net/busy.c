/* A nested turn of the loop: while one command takes very long (an endless script), other clients are served.
 *
 * The running tick is set aside, with every connection in it: their replies are not certain before the tick's
 * changes are committed (the caller says so by `settled`). Other connections are polled here with poll(),
 * because libuv's loop is not reentrant, and their requests form a small tick of their own. */
#include <poll.h>

#include "base/alloc.h"
#include "net/io.h"

/* Returns the tick that is running, and puts an empty one with the same number in its place. */
static struct net_tick set_aside(struct net *n)
{
    struct net_tick outer = n->tick;
    n->tick = (struct net_tick){.number = outer.number, .nested = true};
    return outer;
}

static void put_back(struct net *n, const struct net_tick *outer)
{
    net_tick_release(&n->tick);
    n->tick = *outer;
}

/* Whether the tick has not run any of the connection's requests, or it has none. */
static bool may_withdraw(const struct conn *c)
{
    const struct net *n = c->net;
    bool answered = conn_output_end(c) != c->tick_mark || c->before.n || c->after.n;
    if (c->closing || c->hold || c->replica || c->peer_link || answered) return false;
    if (!net_has_requests(c)) return true;
    return c->first_request > n->tick.running && n->tick.requests[c->first_request].raw;
}

/* Whether all its requests of this tick were answered, before the one that runs. */
static bool is_answered(const struct conn *c)
{
    const struct net *n = c->net;
    if (c->closing || c->hold || c->replica || c->peer_link || !net_has_requests(c)) return false;
    return c->first_request < n->tick.running && n->tick.requests[n->tick.running].conn != c;
}

/* The tick is over for this connection: its replies are sent, or wait for their fence. It may send requests
 * again. */
static void busy_release_conn(struct conn *c)
{
    const struct net *n = c->net;
    if (UNLIKELY(c->held != NULL)) fence_close_part(c);
    for (u32 i = c->first_request; n->tick.requests[i].conn == c; i++) n->tick.requests[i].conn = NULL;
    net_withdraw(c);
    net_flush(c);
}

/* Removes from the tick the connections it has not reached, so that they don't wait for its end: they are
 * read again in the nested turn. */
static u32 withdraw_all(struct net *n, bool settled, struct conn **out)
{
    u32 count = 0;
    for (struct conn *c = n->tick.ready, *next; c; c = next) {
        next = c->ready_next;
        if (settled && is_answered(c)) busy_release_conn(c);
        else if (may_withdraw(c)) net_withdraw(c);
        else continue;
        if (!c->closing) out[count++] = c;
    }
    return count;
}

/* A replica's connection waits, because the data it gets does. */
static bool takes_part(const struct conn *c)
{
    return !c->closing && !c->ready && !c->hold && !c->replica && !c->peer_link;
}

/* What to poll: listeners first, then connections. */
static u32 busy_gather(const struct net *n, struct pollfd *fds, struct conn **conns)
{
    u32 count = 0;
    for (const struct listener *l = n->listeners; l; l = l->next)
        fds[count++] = (struct pollfd){.fd = l->fd, .events = POLLIN};
    for (struct conn *c = n->conns; c; c = c->next) {
        if (!takes_part(c)) continue;
        int events = ((c->polled & UV_READABLE) ? POLLIN : 0) | ((c->polled & UV_WRITABLE) ? POLLOUT : 0);
        conns[count] = c;
        fds[count++] = (struct pollfd){.fd = c->fd, .events = (short)events};
    }
    return count;
}

static void read_all(struct net *n)
{
    u32 listeners = 0;
    for (const struct listener *l = n->listeners; l; l = l->next) listeners++;
    struct pollfd *fds = mem_alloc((n->count + listeners + 1) * sizeof *fds);
    struct conn **conns = mem_alloc((n->count + listeners + 1) * sizeof(struct conn *));
    u32 count = busy_gather(n, fds, conns), i = 0;
    if (poll(fds, count, 0) <= 0) count = 0;
    for (struct listener *l = n->listeners; l && i < count; l = l->next, i++)
        if (fds[i].revents && !n->no_files) net_on_connection(&l->poll, 0, UV_READABLE);
    for (; i < count; i++) {
        if (!fds[i].revents) continue;
        int events = ((fds[i].revents & (POLLIN | POLLHUP | POLLERR)) ? UV_READABLE : 0) |
                     ((fds[i].revents & POLLOUT) ? UV_WRITABLE : 0);
        net_on_events(conns[i], 0, events);
    }
    mem_free(fds);
    mem_free(conns);
}

void net_serve_busy(struct net *n, bool settled, void (*run)(struct net *n, u32 request))
{
    struct conn **withdrawn = mem_alloc((n->count + 1) * sizeof(struct conn *));
    u32 count = withdraw_all(n, settled, withdrawn);
    struct net_tick outer = set_aside(n);
    for (u32 i = 0; i < count; i++) conn_wake(withdrawn[i]);
    mem_free(withdrawn);
    io_write_here(n);
    uv_update_time(n->loop); /* the loop does not do it meanwhile */
    read_all(n);
    while (n->tick.ready) {
        struct net_tick *t = &n->tick;
        for (t->running = 0; t->running < t->request_count; t->running++) run(n, t->running);
        net_end_tick(n);
    }
    put_back(n, &outer);
}
