#include "cluster/merge_rules.h"

#include "cluster/peer_id.h"
#include "cluster/region_rules.h"

enum { MERGE_BEHIND_ENTRIES = 64 };

static enum merge_refusal merge_may_begin(const struct group_status *t, const struct group_status *s)
{
    if (!raft_slots_adjoin(t->at.slots, s->at.slots)) return MERGE_NOT_NEIGHBOURS;
    if (t->at.merge.role || t->core.conf_pending || t->epoch_pending) return MERGE_BUSY;
    if (s->at.merge.role || s->core.conf_pending || s->epoch_pending) return MERGE_BUSY;
    return rules_same_nodes(&t->at.conf, &s->at.conf) ? MERGE_BEGUN : MERGE_OTHER_NODES;
}

static bool merge_prepare(struct group *g, const struct raft_merge_prepare *p)
{
    struct buf b = {0};
    raft_merge_prepare_encode(&b, p);
    bool ok = group_propose(g, RAFT_KIND_MERGE_PREPARE, buf_bytes(&b));
    buf_release(&b);
    return ok;
}

enum merge_refusal merge_begin(const struct merge_member *target, const struct merge_member *source)
{
    struct group_status t, s;
    group_status(target->group, &t);
    group_status(source->group, &s);
    enum merge_refusal refusal = merge_may_begin(&t, &s);
    if (refusal != MERGE_BEGUN) return refusal;
    if (!group_is_leader(target->group) || !group_is_leader(source->group)) return MERGE_LEADERS;
    u64 near = s.core.last_index - MIN(s.core.last_index, MERGE_BEHIND_ENTRIES);
    if (!group_all_have(source->group, near)) return MERGE_LATER;
    struct raft_merge_prepare p = {RAFT_MERGE_TARGET, source->region, 0};
    return merge_prepare(target->group, &p) ? MERGE_BEGUN : MERGE_LATER;
}

bool merge_facts(const struct merge_member *target, const struct merge_member *source,
                 struct raft_merge_commit *c)
{
    struct group_status t, s;
    if (!source->group) return false;
    group_status(target->group, &t);
    group_status(source->group, &s);
    const struct raft_merge *of = &s.at.merge;
    if (of->role != RAFT_MERGE_SOURCE || of->other != target->region) return false;
    if (of->version != t.at.epoch.version || !raft_slots_adjoin(t.at.slots, s.at.slots)) return false;
    if (!rules_same_nodes(&t.at.conf, &s.at.conf) || !group_all_have(source->group, of->index)) return false;
    *c = (struct raft_merge_commit){.source = source->region,
                                    .index = of->index,
                                    .term = of->term,
                                    .clock_ms = s.at.clock_ms,
                                    .deaths_from_ms = s.at.deaths_from_ms,
                                    .version = s.at.epoch.version,
                                    .slots = s.at.slots};
    return true;
}

void merge_target(const struct merge_member *target, const struct merge_member *source, u64 waited_ticks)
{
    struct group_status t, s;
    struct raft_merge_commit c;
    group_status(target->group, &t);
    if (t.at.merge.role != RAFT_MERGE_TARGET || t.epoch_pending) return;
    if (merge_facts(target, source, &c)) {
        group_propose_commit(target->group, &c);
        return;
    }
    if (waited_ticks > MERGE_PATIENCE_TICKS)
        group_propose(target->group, RAFT_KIND_MERGE_ROLLBACK, (bytes){0});
    if (waited_ticks > MERGE_PATIENCE_TICKS / 2 || !source->group) return;
    group_status(source->group, &s);
    if (s.at.merge.role || s.epoch_pending) return;
    merge_prepare(source->group,
                  &(struct raft_merge_prepare){RAFT_MERGE_SOURCE, target->region, t.at.epoch.version});
}

/* A leader without which no majority exists, so that there is no later leader, and which has applied
 * everything in its log that is or can be committed. */
static bool merge_is_alone(const struct group_status *s)
{
    const struct raft_conf *c = &s->at.conf;
    return c->voters_n == 1 && c->voters[0] == s->core.id && s->core.applied_own_term &&
           s->at.index == s->core.commit;
}

bool merge_lost(const struct merge_member *source, const struct merge_member *target, bool target_here)
{
    struct group_status t, s;
    group_status(source->group, &s);
    if (!merge_is_alone(&s)) return false;
    if (!target->group) return !target_here;
    group_status(target->group, &t);
    return group_is_leader(target->group) && merge_is_alone(&t) && t.at.epoch.version < s.at.merge.version;
}

/* The source's voter on a node. */
static u64 merge_voter_on(const struct raft_conf *c, u64 node)
{
    for (u32 i = 0; i < c->voters_n; i++)
        if (node_of(c->voters[i]) == node) return c->voters[i];
    return 0;
}

void merge_source(const struct merge_member *source, const struct merge_member *target, bool refused)
{
    struct group_status s;
    group_status(source->group, &s);
    if (s.epoch_pending) return;
    if (refused) {
        group_propose(source->group, RAFT_KIND_MERGE_ROLLBACK, (bytes){0});
        return;
    }
    u64 leader = target->group ? group_leader(target->group) : 0;
    u64 to = leader ? merge_voter_on(&s.at.conf, node_of(leader)) : 0;
    if (to) group_transfer(source->group, to);
}
