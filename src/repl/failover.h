/* FAILOVER: the primary hands its role to a replica, and no write is lost.
 *
 * WAITS: clients' writes are held back, nothing expires and nothing is evicted, until the replica has all
 * there is.
 * HANDS_OVER: we follow it, and ask it by PSYNC … FAILOVER to be the primary. When it agrees that is all;
 * when it refuses we are the primary again. Either way the writes that were held back then run (and learn,
 * in the first case, that this is a replica). */
#ifndef MAYFLY_REPL_FAILOVER_H
#define MAYFLY_REPL_FAILOVER_H

#include "base/bytes.h"

struct server;

enum failover_state { FAILOVER_NONE, FAILOVER_WAITS, FAILOVER_HANDS_OVER };

struct failover {
    enum failover_state state;
    char host[256];  /* of the replica that is to take over; "": the first that has everything */
    int port;
    bool force;      /* when time is up it takes over as it is */
    i64 until_ms;    /* monotonic; 0: there is no limit */
    bool refused;    /* HANDS_OVER: it does not want to be the primary */
};

void failover_cron(struct server *s);
void failover_answered(struct server *s, bool agreed); /* the link's: what PSYNC … FAILOVER was told */
const char *failover_name(enum failover_state state);  /* INFO's master_failover_state */

#endif
