/* Sums over the regions of a node, for INFO, metrics and the commands that count keys. */
#ifndef MAYFLY_EXEC_NODE_SUMS_H
#define MAYFLY_EXEC_NODE_SUMS_H

#include "exec/region.h"
#include "keyspace/forecast.h"

struct node_sums {
    struct keyspace_stats stats;
    struct lag_histogram active, lazy;   /* EXPIRY LAG */
    u64 expire_spent_us, expire_capped;  /* of the expire cycles; as a region's */
    double stale_perc;                   /* the highest of any region */
    struct expire_run last;              /* the most recent of any region */
    u64 stream_told, stream_lost;        /* of expiry-stream */
    u64 watched_keys, waited_keys, waited_even_gone;
    u64 own_keys;                        /* with deadlines that a replica's clients set */
    u64 reclaimed;                       /* values freed by the engines */
};

void node_sum(const struct node *n, struct node_sums *sums);

struct node_db { /* a database, in all regions */
    u64 keys, expires, timed_hashes;
    double mean_deadline; /* of the keys that have one; 0: none has */
};

struct node_db node_db(const struct node *n, u32 db);

void node_forecast(const struct node *n, struct forecast *f); /* adds all databases; start with {.now_ms} */

#endif
