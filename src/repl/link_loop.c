/* Detects replicas in a circle: each is refused by the next one, which has no primary link itself, and they
 * would retry for ever without a sign. So the log names the circle. */
#include <stdio.h>

#include "repl/link.h"
#include "repl/primary.h"

#define REFUSALS 5        /* in a row before a longer circle is suspected */
#define RECENTLY_MS 10000

static void copy_host(char to[NET_ADDRESS], const char *address)
{
    const char *colon = strrchr(address, ':');
    snprintf(to, NET_ADDRESS, "%.*s", (int)(colon ? colon - address : 0), address);
}

static void link_ends(const struct link *l, char peer[NET_ADDRESS], char local[NET_ADDRESS])
{
    *peer = *local = '\0';
    if (l->conn && l->conn->fd >= 0) net_addresses(l->conn->fd, peer, local);
}

void link_refuses(struct server *s, const struct conn *c)
{
    struct link *l = s->repl.link;
    const struct replica *r = c->replica;
    char peer[NET_ADDRESS], local[NET_ADDRESS];
    link_ends(l, peer, local);
    l->circle.self |= strcmp(c->peer, local) == 0;
    l->circle.refused_ms = link_now_ms(l);
    l->circle.port = r ? r->port : 0;
    copy_host(l->circle.host, c->peer);
}

static const char way_out[] = "REPLICAOF NO ONE makes a server a primary.";

void link_is_refused(struct link *l)
{
    const struct log *log = &l->server->log;
    char peer[NET_ADDRESS], local[NET_ADDRESS], host[NET_ADDRESS];
    bool recently = l->circle.refused_ms && link_now_ms(l) - l->circle.refused_ms < RECENTLY_MS;
    link_ends(l, peer, local);
    copy_host(host, peer);
    l->circle.refusals++;
    if (l->circle.logged) return;
    l->circle.logged = true;
    if (l->circle.self)
        log_line(log, LOG_WARNING,
                 "This server is told to be a replica of itself (%s:%d): it will never have a "
                 "primary. %s",
                 l->host, l->port, way_out);
    else if (recently && l->circle.port == l->port && !strcmp(l->circle.host, host))
        log_line(log, LOG_WARNING,
                 "The primary %s:%d is a replica of this server, in a loop: neither will ever "
                 "sync. %s",
                 l->host, l->port, way_out);
    else if (recently && l->circle.refusals >= REFUSALS)
        log_line(log, LOG_WARNING,
                 "The primary %s:%d waits for its own primary, and %s:%d waits for this server: if "
                 "replicas follow each other in a loop, none will ever sync. %s",
                 l->host, l->port, l->circle.host, l->circle.port, way_out);
    else
        l->circle.logged = false;
}
