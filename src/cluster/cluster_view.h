/* The regions of the whole cluster, as this node knows them: from its own members, which are most up to date,
 * or from the map. */
#ifndef MAYFLY_CLUSTER_CLUSTER_VIEW_H
#define MAYFLY_CLUSTER_CLUSTER_VIEW_H

#include "cluster/cluster_parts.h"

struct region_view {
    struct cluster *cluster;
    u64 number;
    u32 first, last;               /* slots */
    const struct raft_applied *at; /* epoch and members */
    u64 leader;                    /* the member that leads; 0: unknown */
    const struct member *member;   /* this node's, if it has data; or NULL */
    const struct map_region *row;  /* or NULL */
};

bool view_at(struct cluster *c, u32 slot, struct region_view *v); /* false: nothing is known of the slot */
/* In the order of slots. */
void view_each(struct cluster *c, void (*fn)(void *arg, const struct region_view *v), void *arg);

struct cluster_node *view_leader(const struct region_view *v); /* NULL: unknown */
static inline bool view_has(const struct region_view *v, const struct cluster_node *n)
{
    return conf_peer_on(&v->at->conf, n->number) != 0;
}

#endif
