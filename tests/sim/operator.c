/* On some seeds members are not changed at random but by cluster/schedule.c, every second, as the leader of region 0 does
 * it in a cluster. A node that is down for long counts as dead, and comes back when its members have been replaced. */
#include "sim/sim.h"

#include "cluster/schedule.h"

enum { OPERATOR_DEAD_MS = 8000, OPERATOR_STEPS = 32 };

struct operator_table {
    struct schedule_node nodes[NODES_MAX];
    struct schedule_region regions[REGIONS_MAX];
    struct schedule_table t;
};

static void operator_region(struct operator_table *o, struct sim *s, u32 region)
{
    const struct member *leader = fault_leader_of(s, region);
    struct schedule_region *r = &o->regions[o->t.regions_n];
    struct group_status st;
    if (!s->region[region].newest.index || s->region[region].merged) return;
    o->t.regions_n++;
    *r = (struct schedule_region){.region = region};
    if (!leader) return;
    group_status(leader->group, &st);
    const struct raft_conf *c = &st.at.conf;
    r->slots = st.at.slots, r->leader = leader->peer;
    r->voters_n = c->voters_n, r->learners_n = c->learners_n;
    memcpy(r->voters, c->voters, sizeof(c->voters));
    memcpy(r->learners, c->learners, sizeof(c->learners));
    r->changing = st.core.conf_pending || c->outgoing_n || !st.core.applied_own_term || st.at.merge.role;
}

static void operator_fill(struct operator_table *o, struct sim *s)
{
    u64 now_ms = sim_true_ms(s) + OPERATOR_DEAD_MS;
    *o = (struct operator_table){.t = {.now_ms = now_ms,
                                       .nodes = o->nodes,
                                       .regions = o->regions,
                                       .voters = 3,
                                       .dead_after_ms = OPERATOR_DEAD_MS,
                                       .moves_max = 4,
                                       .moves_node_max = 2}};
    for (u32 i = 1; i <= s->nodes_n; i++) {
        struct node *n = &s->node[i];
        if (n->alive && !n->paused) n->heard_ms = now_ms;
        o->nodes[o->t.nodes_n++] = (struct schedule_node){.node = i, .heard_ms = n->heard_ms};
    }
    for (u32 i = 1; i < s->next_region; i++) operator_region(o, s, i);
}

/* As the region's leader does it. A voter goes only where most of the others will live again: what a leader knows of
 * nodes that died a moment ago is old. */
static void operator_do(struct sim *s, const struct schedule_step *step)
{
    struct member *leader = fault_leader_of(s, (u32)step->region);
    const struct raft_conf *c = &leader->at.conf;
    struct raft_change change[2];
    size_t n = 0;
    sim_trace(s, "region %llu: step %d, %s", (unsigned long long)step->region, (int)step->kind, step->reason);
    if (step->kind == SCHEDULE_TRANSFER) group_transfer(leader->group, step->peer);
    if (step->kind == SCHEDULE_ADD)
        change[n++] = (struct raft_change){peer_of(step->node, leader->at.epoch.conf_ver), RAFT_ADD_LEARNER};
    if (step->kind == SCHEDULE_PROMOTE) change[n++] = (struct raft_change){step->peer, RAFT_ADD_VOTER};
    if (step->gone) change[n++] = (struct raft_change){step->gone, RAFT_REMOVE};
    if (n == 0 || (step->gone && !fault_majority(s, c->voters, c->voters_n, step->gone, false))) return;
    enum group_change verdict = group_change(leader->group, change, n);
    if (verdict == GROUP_CHANGE_INVALID) sim_fail(s, "the scheduler asks for what can't be: %s", step->reason);
    s->conf_changes += verdict == GROUP_CHANGE_PROPOSED;
}

/* Not in step with the leaders' ticks: right after each check of its quorum a leader calls nobody active. */
void operator_event(struct sim *s)
{
    struct operator_table o;
    struct schedule_step steps[OPERATOR_STEPS];
    sim_post(s, (struct event){.at_us = s->now_us + 700000 + sim_below(s, 600000), .type = EV_OPERATOR});
    operator_fill(&o, s);
    size_t n = schedule(&o.t, steps, OPERATOR_STEPS);
    for (size_t i = 0; i < n; i++) operator_do(s, &steps[i]);
}

/* At the end every region is whole, and all is even. */
void operator_check(struct sim *s)
{
    struct operator_table o;
    struct schedule_step steps[OPERATOR_STEPS];
    if (!s->scheduled) return;
    operator_fill(&o, s);
    if (schedule(&o.t, steps, OPERATOR_STEPS) == 0) return;
    sim_fail(s, "region %llu is left as it is: %s", (unsigned long long)steps[0].region, steps[0].reason);
}
