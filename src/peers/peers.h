/* Sites as processes: a server with site-id, and its connections to other sites (docs/sites.md).
 *
 * The layers below (site/, exec/region_site.h) handle effects; here are sockets, time, commands and metrics.
 * A site fetches what it lacks from each of its peers (site-peer, PEEROF), over one connection per peer, and
 * serves the sites that fetch from it. So two sites have two connections, one in each direction.
 *
 *     peer_ask.c     a peer that we fetch from: connecting, AUTH, SITE.HELLO, applying its messages
 *     peer_serve.c   a site that fetches from us: SITE.HELLO and SITE.CLOCK are commands of its connection,
 *                    which then reads the missing effects from the backlog (conn_source)
 *     peer_merge.c   merging a full sync that has arrived
 *     peer_evict.c   evictions
 *     peers.c        starting, founding and joining, evictions, time
 *     peers_cmd.c    PEEROF, SITE …
 *     peers_info.c   INFO sites, SITE INFO, metrics
 *
 * Effects are sent only after their tick is committed: links are fed from the backlog, which gets only
 * committed effects. A failed commit closes all links, because messages that were applied are needed
 * again. */
#ifndef MAYFLY_PEERS_PEERS_H
#define MAYFLY_PEERS_PEERS_H

#include "base/buf.h"

struct server;
struct conn;
struct peers;

/* Call it before any data is loaded: afterwards site metadata is kept. False: the log says why not. */
bool peers_prepare(struct server *s);
/* When all data is loaded: makes the server a site, as configured, unless it is to be a replica. False: the
 * log says why it can't be. */
bool peers_open(struct server *s);
/* With site-id, a replica keeps the metadata of its primary, which is that site; it has no peers
 * (server.peers is NULL). When it is promoted it takes the site's place, at the next peers_cron. */
void peers_follow(struct server *s);                  /* becomes a replica */
void peers_promote(struct server *s, bool complete); /* complete: it has all that the site has sent */
void peers_stop(struct server *s);
void peers_apply_config(struct server *s);

/* Why clients may not write, of what is known before a tick begins; NULL: they may. */
const char *peers_deny_writes(const struct server *s);
void peers_begin_tick(struct server *s);
void peers_committed(struct server *s, bool kept); /* wakes the links that have something to send */
void peers_cron(struct server *s);
void peers_forget(struct server *s, struct conn *c); /* it is being freed */

/* SITE WAIT: the number of this site's last effect, and how many members have it. */
u64 peers_position(const struct server *s);
u32 peers_acknowledged(const struct server *s, u64 position);

void peers_info(struct server *s, struct buf *out); /* INFO sites */
void peers_metrics(struct server *s, struct buf *out);

#endif
