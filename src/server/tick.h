/* One turn of the loop: run the tick's requests, commit once (commit.h), then do a slice of housekeeping
 * (housekeeping.h). */
#ifndef MAYFLY_SERVER_TICK_H
#define MAYFLY_SERVER_TICK_H

#include "server/server.h"

void server_tick(struct net *n); /* net's on_tick */

/* Runs one of the tick's requests. While a script runs too long, those of others (net_serve_busy): they are
 * told BUSY, or run if they may. */
void tick_run(struct net *n, u32 at);

/* CLIENT REPLY: what was written from `mark` on may have to be taken back. `before` is the mode it was in. */
void tick_filter_reply(struct conn *c, size_t mark, enum session_reply before);

/* The node's on_nested: what ran within EXEC or a script counts and shows as a request of its client. */
void tick_nested(void *owner, const struct request *q, const struct outcome *o);

/* The node's holds: what CLIENT PAUSE, FAILOVER and a storage that is behind keep waiting. */
u32 tick_holds(void *owner, const struct request *q, const struct command *cmd, bool may_write);

#endif
