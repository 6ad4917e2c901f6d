/* FAILOVER: the primary hands its role to a replica, and no write is lost.
 *
 * - WAITS: clients' writes are paused, and nothing expires or is evicted, until the replica has acknowledged
 *   everything.
 * - HANDS_OVER: this server follows the replica and asks it by PSYNC … FAILOVER to become the primary. If the
 *   replica refuses, this server is the primary again. Either way the paused writes then run; after a
 *   successful failover they are answered as on any replica. */
#ifndef MAYFLY_REPL_FAILOVER_H
#define MAYFLY_REPL_FAILOVER_H

#include "base/bytes.h"

struct server;

enum failover_state { FAILOVER_NONE, FAILOVER_WAITS, FAILOVER_HANDS_OVER };

struct failover {
    enum failover_state state;
    char host[256];  /* the replica that takes over; "": the first that has everything */
    int port;
    bool force;      /* at the timeout it takes over even if it lags */
    i64 until_ms;    /* monotonic; 0: no limit */
    bool refused;    /* HANDS_OVER: the replica refused to become the primary */
};

void failover_cron(struct server *s);
void failover_answered(struct server *s, bool agreed); /* called by the link: the reply to PSYNC … FAILOVER */
const char *failover_name(enum failover_state state);  /* INFO's master_failover_state */

#endif
