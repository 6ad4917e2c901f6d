/* Invariants that must hold after every step, and at the end. */
#include "sim/sim.h"

#include "base/alloc.h"

/* The record of an index, made if it is the first one. */
static struct applied_record *verify_record(struct region_truth *t, const struct member *m)
{
    while (t->applied_n <= m->at.index) {
        t->applied = mem_realloc(t->applied, (t->applied_n * 2 + 1024) * sizeof(*t->applied));
        memset(t->applied + t->applied_n, 0, (t->applied_n + 1024) * sizeof(*t->applied));
        t->applied_n = t->applied_n * 2 + 1024;
    }
    struct applied_record *r = &t->applied[m->at.index];
    if (!r->term) *r = (struct applied_record){m->at.term, m->at.clock_ms, member_digest(m)};
    return r;
}

/* Every slot belongs to one region, by the newest that anybody knows of each. */
static void verify_slots(struct sim *s)
{
    u32 count = 0;
    for (u32 i = 1; i < s->next_region; i++) {
        const struct raft_applied *a = &s->region[i].newest;
        if (!a->index || s->region[i].merged) continue;
        count += a->slots.last - a->slots.first + 1u;
        for (u32 k = i + 1; k < s->next_region; k++)
            if (s->region[k].newest.index && !s->region[k].merged &&
                raft_slots_overlap(a->slots, s->region[k].newest.slots))
                sim_fail(s, "regions %u and %u have the same slots", i, k);
    }
    if (count != RAFT_SLOTS) sim_fail(s, "some slots belong to no region");
}

/* The data of a slot belong to one member of a node. */
void verify_node(struct node *n)
{
    for (u32 i = 1; i < n->sim->next_region; i++)
        for (u32 k = i + 1; k < n->sim->next_region; k++) {
            const struct member *a = n->members[i], *b = n->members[k];
            if (!a || !b || !a->exists || !b->exists || !a->at.index || !b->at.index) continue;
            if (raft_slots_overlap(a->at.slots, b->at.slots))
                sim_fail(n->sim, "node %llu has the same slots in regions %u and %u", (unsigned long long)n->id, i, k);
        }
}

/* Every member must have been in the same state at the same index. */
void verify_applied(struct member *m)
{
    struct sim *s = m->node->sim;
    struct region_truth *t = &s->region[m->region];
    unsigned long long node = m->node->id, region = m->region, index = m->at.index;
    bool first = t->newest.index == 0;
    if (t->merged && m->at.index > t->newest.index && m->at.merge.role != RAFT_MERGE_SOURCE)
        sim_fail(s, "region %llu lives on after it was merged", region);
    s->rolled_back += m->at.index > t->newest.index && t->newest.merge.role == RAFT_MERGE_SOURCE &&
                      !m->at.merge.role;
    if (m->at.index > t->newest.index) t->newest = m->at;
    struct applied_record *r = verify_record(t, m), own = {m->at.term, m->at.clock_ms, member_digest(m)};
    if (r->term != own.term)
        sim_fail(s, "region %llu: entry %llu has terms %llu and %llu", region, index, (unsigned long long)r->term,
                 (unsigned long long)own.term);
    if (r->clock_ms != own.clock_ms || r->digest != own.digest)
        sim_fail(s, "node %llu differs at entry %llu of region %llu", node, index, region);
    if (m->at.index != RAFT_FIRST_INDEX) return;
    verify_node(m->node);
    if (first) verify_slots(s);
}

void verify_merged(struct member *m, u64 source)
{
    struct sim *s = m->node->sim;
    struct region_truth *t = &s->region[source];
    verify_node(m->node);
    if (t->merged && t->merged != m->region)
        sim_fail(s, "region %llu is merged twice", (unsigned long long)source);
    if (t->newest.merge.role != RAFT_MERGE_SOURCE)
        sim_fail(s, "region %llu is merged after it was rolled back", (unsigned long long)source);
    if (m->at.clock_ms < t->newest.clock_ms)
        sim_fail(s, "the clock of region %llu went back", (unsigned long long)source);
    if (t->merged) return;
    t->merged = m->region;
    s->merged++;
    verify_slots(s);
}

void verify_installed(struct member *m)
{
    struct applied_record *r = &m->node->sim->region[m->region].applied[m->at.index];
    if (r->digest != member_digest(m)) sim_fail(m->node->sim, "a snapshot differs");
    verify_node(m->node);
}

/* At most one leader per term. Looks when leadership has changed, or again. */
void verify_leader(struct member *m, bool again)
{
    bool leads = m->group && group_is_leader(m->group), look = leads && (again || !m->led);
    m->led = leads;
    if (!look) return;
    struct sim *s = m->node->sim;
    struct region_truth *t = &s->region[m->region];
    struct group_status st;
    group_status(m->group, &st);
    u64 term = st.core.term, node = m->node->id;
    while (t->leaders_n <= term) {
        t->leaders = mem_realloc(t->leaders, (t->leaders_n * 2 + 64) * sizeof(u64));
        memset(t->leaders + t->leaders_n, 0, (t->leaders_n + 64) * sizeof(u64));
        t->leaders_n = t->leaders_n * 2 + 64;
    }
    if (!t->leaders[term]) {
        t->leaders[term] = node;
        sim_trace(s, "%llu leads region %llu in term %llu", (unsigned long long)node, (unsigned long long)m->region,
                  (unsigned long long)term);
    }
    if (t->leaders[term] != node) sim_fail(s, "two leaders in term %llu", (unsigned long long)term);
}

/* Logs that have an entry of the same index and term have the same entries up
 * to it. */
static void verify_pair(struct sim *s, const struct member *a, const struct member *b)
{
    u64 low = MAX(a->point_index, b->point_index) + 1;
    u64 high = MIN(a->point_index + a->entries_n, b->point_index + b->entries_n);
    bool same = false;
    for (u64 i = high; i >= low; i--) {
        const struct raft_entry *x = &a->entries[i - a->point_index - 1],
                                *y = &b->entries[i - b->point_index - 1];
        bool equal = x->term == y->term && x->data.size == y->data.size &&
                     !memcmp(x->data.data, y->data.data, x->data.size);
        if (x->term == y->term) same = true;
        if (same && !equal) sim_fail(s, "logs differ at entry %llu", (unsigned long long)i);
    }
}

void verify_logs(struct sim *s)
{
    for (u32 r = 1; r < s->next_region; r++)
        for (u32 i = 1; i <= s->nodes_n; i++)
            for (u32 k = i + 1; k <= s->nodes_n; k++) {
                const struct member *a = s->node[i].members[r], *b = s->node[k].members[r];
                if (a && b) verify_pair(s, a, b);
            }
}

/* A region works again, its members agree, and those that were removed have gone. */
static void verify_region(struct sim *s, u32 region)
{
    struct group_status st, best = {0};
    for (u32 i = 1; i <= s->nodes_n; i++) {
        const struct member *m = s->node[i].members[region];
        if (s->node[i].retired || !m || !m->group) continue;
        group_status(m->group, &st);
        if (group_is_leader(m->group) && st.core.term > best.core.term) best = st;
    }
    if (!best.core.term) sim_fail(s, "region %u has no leader after all faults have ended", region);
    if (best.at.merge.role) sim_fail(s, "a merge of region %u does not end", region);
    for (u32 i = 0; i < best.at.conf.voters_n; i++) {
        u64 peer = best.at.conf.voters[i];
        const struct member *m = s->node[node_of(peer)].members[region];
        if (s->node[node_of(peer)].retired) continue;
        if (!m || !m->exists || m->peer != peer || m->at.index + 50 < best.at.index)
            sim_fail(s, "the member of region %u on node %llu does not catch up", region,
                     (unsigned long long)node_of(peer));
    }
    for (u32 i = 1; i <= s->nodes_n; i++) {
        const struct member *m = s->node[i].members[region];
        if (s->node[i].retired || !m || !m->exists || rules_has_peer(&best.at.conf, m->peer)) continue;
        sim_fail(s, "the member of region %u on node %u was removed and does not go", region, i);
    }
}

static void verify_gone(struct sim *s, u32 region)
{
    for (u32 i = 1; i <= s->nodes_n; i++) {
        const struct member *m = s->node[i].members[region];
        if (!s->node[i].retired && m && m->exists)
            sim_fail(s, "the member of region %u on node %u was merged and does not go", region, i);
    }
}

void verify_end(struct sim *s)
{
    if (s->late_replies_ok == 0) sim_fail(s, "no reply after all faults have ended");
    for (u32 i = 1; i < s->next_region; i++) {
        if (s->region[i].merged) verify_gone(s, i);
        else if (s->region[i].newest.index) verify_region(s, i);
    }
    verify_slots(s);
    verify_logs(s);
    clients_check(s);
}

void verify_free(struct sim *s)
{
    for (u32 i = 1; i <= REGIONS_MAX; i++) {
        mem_free(s->region[i].leaders);
        mem_free(s->region[i].applied);
    }
}
