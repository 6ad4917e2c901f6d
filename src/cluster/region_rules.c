#include "cluster/region_rules.h"

#include "cluster/peer_id.h"
#include "raft/split.h"

static const struct region_here *rules_find(const struct regions_here *h, u64 region)
{
    for (size_t i = 0; i < h->members_n; i++)
        if (h->members[i].region == region) return &h->members[i];
    return NULL;
}

/* Rule 2. */
static bool rules_buried(const struct regions_here *h, u64 region, u64 peer)
{
    for (size_t i = 0; i < h->tombstones_n; i++)
        if (h->tombstones[i].region == region && peer <= h->tombstones[i].peer) return true;
    return false;
}

/* Whether another region has some of these slots here (rule 1). */
static bool rules_taken(const struct regions_here *h, u64 region, struct raft_slots slots)
{
    for (size_t i = 0; i < h->members_n; i++) {
        const struct region_here *m = &h->members[i];
        if (m->region != region && m->has_data && raft_slots_overlap(m->slots, slots)) return true;
    }
    return false;
}

enum region_message rules_message(const struct regions_here *h, u64 region, u64 to,
                                   const struct raft_slots *slots)
{
    const struct region_here *m = rules_find(h, region);
    if (rules_buried(h, region, to)) return REGION_IGNORE;
    if (m && m->peer == to) return REGION_DELIVER;
    if (m) return m->peer < to ? REGION_REPLACE : REGION_IGNORE;
    return slots && !rules_taken(h, region, *slots) ? REGION_CREATE : REGION_IGNORE;
}

bool rules_may_install(const struct regions_here *h, u64 region, struct raft_slots slots)
{
    return !rules_taken(h, region, slots);
}

enum region_split rules_split(const struct regions_here *h, u64 child, u64 peer)
{
    const struct region_here *m = rules_find(h, child);
    if (rules_buried(h, child, peer) || (m && m->peer > peer)) return REGION_SPLIT_DISCARD;
    return m ? REGION_SPLIT_TAKE_OVER : REGION_SPLIT_MAKE;
}

static bool rules_has(const u64 *ids, u32 n, u64 id)
{
    for (u32 i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

bool rules_has_peer(const struct raft_conf *c, u64 peer)
{
    return rules_has(c->voters, c->voters_n, peer) || rules_has(c->learners, c->learners_n, peer) ||
           rules_has(c->outgoing, c->outgoing_n, peer) ||
           rules_has(c->learners_next, c->learners_next_n, peer);
}

bool rules_removed(u64 peer, u32 conf_ver, const struct raft_conf *conf)
{
    return peer_conf_ver(peer) < (conf_ver & PEER_CONF_VER_MAX) && !rules_has_peer(conf, peer);
}
