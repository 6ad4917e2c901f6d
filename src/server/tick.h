/* One turn of the loop: run the tick's requests, commit once (commit.h), then do a slice of housekeeping
 * (housekeeping.h). */
#ifndef MAYFLY_SERVER_TICK_H
#define MAYFLY_SERVER_TICK_H

#include "server/server.h"

void server_tick(struct net *n); /* net's on_tick */

/* Runs one of the tick's requests or, while a script runs too long, one of another client (net_serve_busy):
 * that is answered BUSY, or run if it may. */
void tick_run(struct net *n, u32 at);

/* CLIENT REPLY: drops what was written from `mark` on, if it must not be sent. `before` is the mode before
 * the request. */
void tick_filter_reply(struct conn *c, size_t mark, enum session_reply before);

/* The node's on_nested: counts and shows what ran within EXEC or a script like a request of its client. */
void tick_nested(void *owner, const struct request *q, const struct outcome *o);

/* The node's holds: whether CLIENT PAUSE, FAILOVER or write pressure holds the request back. */
u32 tick_holds(void *owner, const struct request *q, const struct command *cmd, bool may_write);

#endif
