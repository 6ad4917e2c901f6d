/* maxmemory-clients: when the connections of clients together hold more memory than they may, those with most
 * are closed. Replicas and the link to a primary don't count; CLIENT NO-EVICT saves a client from it.
 *
 * What a connection holds is counted whenever something was read from it or written to it, and it is kept in
 * a bucket of others of about its size: closing those with most needs no search. All of this costs nothing
 * while there is no limit. */
#ifndef MAYFLY_SERVER_CLIENT_CLIENT_EVICT_H
#define MAYFLY_SERVER_CLIENT_CLIENT_EVICT_H

#include <uv.h>

#include "base/types.h"

struct server;
struct conn;

#define CLIENT_EVICT_BUCKETS 20 /* up to 32 kb, 64 kb … 8 gb, and beyond */

struct client_evict {
    u64 limit;          /* 0: none */
    u64 total;          /* that all counted connections hold */
    struct conn *buckets[CLIENT_EVICT_BUCKETS];
    uv_prepare_t prepare; /* when answers are out, before the loop sleeps */
    bool started;
    bool warned;        /* that the clients that may not be closed hold too much */
    u64 evicted;
};

/* All memory that a connection holds: buffers, arguments, MULTI, WATCH, subscriptions, tracking. */
size_t client_memory(const struct conn *c);

void client_evict_start(struct server *s);
void client_evict_apply_config(struct server *s);
void client_evict_forget(struct server *s, struct conn *c); /* it goes, or is a replica now */

#endif
