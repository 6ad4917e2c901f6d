/* The inside of net: for net.c and busy.c alone. */
#ifndef MAYFLY_NET_NET_PARTS_H
#define MAYFLY_NET_NET_PARTS_H

#include "net/net.h"

struct listener {
    uv_poll_t poll;
    int fd;
    bool is_unix, tls;
    struct listener *next;
};

/* libuv's callbacks of connections and listeners. */
void net_on_poll(uv_poll_t *p, int status, int events);
void net_on_connection(uv_poll_t *p, int status, int events);

/* Writes what connections were answered, and takes up the requests that were left. */
void net_end_tick(struct net *n);

/* Whether the connection has requests in this tick. */
static inline bool net_asks(const struct conn *c)
{
    const struct net *n = c->net;
    return c->first_request < n->request_count && n->requests[c->first_request].conn == c;
}

/* Takes a connection out of the tick, which has answered it nothing: its requests are for the next one. */
void net_withdraw(struct conn *c);

#endif
