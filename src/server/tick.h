/* One turn of the loop: run the tick's requests, commit once, then spend a
 * bounded slice on reclaiming. */
#ifndef MAYFLY_SERVER_TICK_H
#define MAYFLY_SERVER_TICK_H

#include "server/server.h"

void server_tick(struct net *n); /* net's on_tick */

#endif
