#include "cluster/region_rules.h"

#include "cluster/peer_id.h"
#include "raft/split.h"

static const struct region_here *rules_find(const struct regions_here *h, u64 region)
{
    for (size_t i = 0; i < h->members_n; i++)
        if (h->members[i].region == region) return &h->members[i];
    return NULL;
}

/* Rules 2 and 8. */
static bool rules_buried(const struct regions_here *h, u64 region, u64 peer)
{
    for (size_t i = 0; i < h->tombstones_n; i++) {
        const struct region_tombstone *t = &h->tombstones[i];
        if (t->region == region && (t->into || peer <= t->peer)) return true;
    }
    return false;
}

const struct region_tombstone *rules_merged(const struct regions_here *h, u64 region)
{
    for (size_t i = 0; i < h->tombstones_n; i++)
        if (h->tombstones[i].region == region && h->tombstones[i].into) return &h->tombstones[i];
    return NULL;
}

/* Rule 9, when the member of region `jumps` will have at least this version. */
static bool rules_over(const struct regions_here *h, u64 region, u64 jumps, u32 version)
{
    const struct region_tombstone *t;
    while ((t = rules_merged(h, region))) { /* each target's version is greater */
        const struct region_here *into = rules_find(h, t->into);
        u32 has = into ? into->version : 0;
        if (!into || !into->has_data) return true;
        if ((t->into == jumps ? MAX(has, version) : has) >= t->version) return true;
        region = t->into;
    }
    return false;
}

bool rules_superseded(const struct regions_here *h, u64 region) { return rules_over(h, region, 0, 0); }

bool rules_merge_refused(const struct regions_here *h, u64 source, u64 target, u32 version)
{
    const struct region_here *t = rules_find(h, target);
    if (rules_merged(h, source)) return false;
    return (t && t->version > version) || rules_merged(h, target);
}

/* Whether another region has some of these slots here (rule 1). */
static bool rules_taken(const struct regions_here *h, u64 region, struct raft_slots slots, u32 version)
{
    for (size_t i = 0; i < h->members_n; i++) {
        const struct region_here *m = &h->members[i];
        if (m->region == region || !m->has_data || !raft_slots_overlap(m->slots, slots)) continue;
        if (!rules_over(h, m->region, region, version)) return true;
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
    return slots && !rules_taken(h, region, *slots, 0) ? REGION_CREATE : REGION_IGNORE;
}

bool rules_may_install_over(const struct regions_here *h, u64 region, struct raft_slots slots, u32 version)
{
    return !rules_taken(h, region, slots, version);
}

bool rules_may_install(const struct regions_here *h, u64 region, struct raft_slots slots)
{
    return rules_may_install_over(h, region, slots, 0);
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

static bool rules_voter_on(const struct raft_conf *c, u64 node)
{
    for (u32 i = 0; i < c->voters_n; i++)
        if (node_of(c->voters[i]) == node) return true;
    return false;
}

bool rules_same_nodes(const struct raft_conf *a, const struct raft_conf *b)
{
    bool others = a->learners_n || a->outgoing_n || a->learners_next_n || b->learners_n || b->outgoing_n ||
                  b->learners_next_n;
    if (others || a->voters_n != b->voters_n) return false;
    for (u32 i = 0; i < a->voters_n; i++)
        if (!rules_voter_on(b, node_of(a->voters[i]))) return false;
    return true;
}
