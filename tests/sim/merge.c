/* Merges: the part of leaders, and messages between nodes. */
#include "sim/sim.h"

#include "base/alloc.h"

u32 regions_live(const struct sim *s)
{
    u32 n = 0;
    for (u32 i = 1; i < s->next_region; i++) n += s->region[i].newest.index && !s->region[i].merged;
    return n;
}

/* ---- Tombstones. */

void merge_bury(struct node *n, const struct region_tombstone *t)
{
    u32 i = 0;
    while (i < n->tombstones_n && n->tombstones[i].region != t->region) i++;
    if (i == n->tombstones_n) n->tombstones[n->tombstones_n++] = *t;
    n->tombstones[i].into = t->into, n->tombstones[i].version = t->version;
}

u64 merge_tombstones(const struct node *n, struct region_tombstone *out)
{
    u64 count = 0;
    for (u32 i = 0; i < n->tombstones_n; i++)
        if (n->tombstones[i].into) out[count++] = n->tombstones[i];
    return count;
}

void merge_learn(struct node *n, const struct region_tombstone *t, u64 count)
{
    for (u64 i = 0; i < count && !(n->sim->plant & PLANT_MERGE_UNTOLD); i++) merge_bury(n, &t[i]);
}

/* Another node that can be reached, at random; NULL: it can't. */
static struct node *merge_other(struct node *n)
{
    struct sim *s = n->sim;
    struct node *o = &s->node[1 + sim_below(s, s->nodes_n)];
    bool cut = s->cut[n->id][o->id] || s->cut[o->id][n->id];
    return o != n && o->alive && !o->paused && !cut ? o : NULL;
}

void merge_ask(struct node *n)
{
    struct region_tombstone t[REGIONS_MAX];
    struct node *o = merge_other(n);
    if (o) merge_learn(n, t, merge_tombstones(o, t));
}

void merge_destroy_superseded(struct node *n)
{
    struct region_here members[REGIONS_MAX];
    u32 i = 0;
    while (i < n->tombstones_n && !n->tombstones[i].into) i++;
    if (i == n->tombstones_n) return;
    struct regions_here here = node_here(n, members);
    EACH_MEMBER(n, m)
    if (m->exists && rules_superseded(&here, m->region)) node_destroy(m);
}

/* ---- Each tick. */

/* Of the nodes that have a member of the target: whether one knows that it will not take the source over. */
static bool merge_refused_there(struct node *n, u64 source, const struct raft_merge *merge)
{
    struct region_tombstone t[REGIONS_MAX];
    struct region_here members[REGIONS_MAX];
    struct node *o = merge_other(n);
    if (!o) return false;
    merge_learn(n, t, merge_tombstones(o, t));
    struct regions_here there = node_here(o, members);
    return rules_merge_refused(&there, source, merge->other, merge->version);
}

static bool merge_refused(struct member *m)
{
    struct region_here members[REGIONS_MAX];
    struct regions_here here = node_here(m->node, members);
    const struct raft_merge *merge = &m->at.merge;
    if (m->node->sim->plant & PLANT_MERGE_ROLLBACK && m->merge_ticks > 3) return true;
    if (rules_merge_refused(&here, m->region, merge->other, merge->version)) return true;
    const struct member *target = m->node->members[merge->other];
    bool absent = !target || !target->exists || !target->at.index;
    return absent && sim_chance(m->node->sim, 20) && merge_refused_there(m->node, m->region, merge);
}

/* Planted: the source's members may lack anything. */
static void merge_commit_early(struct member *m, const struct member *source)
{
    const struct raft_merge *of = &source->at.merge;
    if (of->role != RAFT_MERGE_SOURCE || of->other != m->region || of->version != m->at.epoch.version) return;
    struct raft_merge_commit c = {
        source->region,           of->index,       of->term, source->at.clock_ms, source->at.deaths_from_ms,
        source->at.epoch.version, source->at.slots};
    group_propose_commit(m->group, &c);
}

void merge_tick(struct member *m)
{
    const struct raft_merge *merge = &m->at.merge;
    m->merge_ticks = merge->role && merge->index == m->merge_index ? m->merge_ticks + 1 : 0;
    m->merge_index = merge->index;
    if (!merge->role || !group_is_leader(m->group)) return;
    const struct member *other = m->node->members[merge->other];
    struct merge_member own = {m->region, m->group}, its = {merge->other, other ? other->group : NULL};
    if (merge->role == RAFT_MERGE_SOURCE) {
        merge_source(&own, &its, merge_refused(m));
        return;
    }
    if (m->node->sim->plant & PLANT_MERGE_EARLY && its.group) merge_commit_early(m, other);
    merge_target(&own, &its, m->merge_ticks);
}

void merge_catch_up(struct member *m)
{
    struct member *source = m->node->members[m->wanted.source];
    if (source && source->group) group_committed(source->group, m->wanted.index, m->wanted.term);
    m->wanted.source = 0;
}
