/* maxmemory-clients: when client connections together use more memory than allowed, the largest are closed.
 * Replicas and the link to a primary don't count; CLIENT NO-EVICT protects a client.
 *
 * A connection's memory is counted whenever it was read from or written to, and the connection is kept in a
 * bucket of similar size: closing the largest needs no search. All of this costs nothing while there is no
 * limit. */
#ifndef MAYFLY_SERVER_CLIENT_CLIENT_EVICT_H
#define MAYFLY_SERVER_CLIENT_CLIENT_EVICT_H

#include <uv.h>

#include "base/types.h"

struct server;
struct conn;

#define CLIENT_EVICT_BUCKETS 20 /* up to 32 kb, 64 kb … 8 gb, and beyond */

struct client_evict {
    u64 limit;          /* 0: none */
    u64 total;          /* of all counted connections */
    struct conn *buckets[CLIENT_EVICT_BUCKETS];
    uv_prepare_t prepare; /* when replies are sent, before the loop sleeps */
    bool started;
    bool warned;        /* it was logged that clients that may not be closed use too much */
    u64 evicted;
};

/* All memory that a connection uses: buffers, arguments, MULTI, WATCH, subscriptions, tracking. */
size_t client_memory(const struct conn *c);

void client_evict_start(struct server *s);
void client_evict_apply_config(struct server *s);
void client_evict_forget(struct server *s, struct conn *c); /* it is closed, or is a replica now */

#endif
