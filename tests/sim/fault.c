/* Faults, changes of membership, splits. */
#include "sim/sim.h"

enum { FAULT_JUMP = 1 << 17 };

static struct node *fault_node(struct sim *s) { return &s->node[1 + sim_below(s, s->nodes_n)]; }

static struct member *fault_member_of(struct node *n, u32 region)
{
    struct member *m = n->members[region];
    return n->alive && !n->paused && m && m->group ? m : NULL;
}

struct member *fault_leader_of(struct sim *s, u32 region)
{
    for (u32 i = 1; i <= s->nodes_n; i++) {
        struct member *m = fault_member_of(&s->node[i], region);
        if (m && group_is_leader(m->group)) return m;
    }
    return NULL;
}

/* The leader of any region. */
static struct member *fault_lead(struct sim *s)
{
    u32 region = 1 + (u32)sim_below(s, s->regions_n);
    for (u32 i = 0; s->region[region].merged && i < REGIONS_MAX; i++) region = 1 + region % s->regions_n;
    return fault_leader_of(s, region);
}

static struct node *fault_leader(struct sim *s)
{
    struct member *m = fault_lead(s);
    return m ? m->node : NULL;
}

/* Most faults prefer a leader: nothing happens to a follower that is seen. */
static struct node *fault_victim(struct sim *s)
{
    struct node *leader = fault_leader(s);
    return leader && sim_chance(s, 50) ? leader : fault_node(s);
}

void fault_heal(struct sim *s)
{
    memset(s->cut, 0, sizeof(s->cut));
    memset(s->deaf, 0, sizeof(s->deaf));
    memset(s->excused, 0, sizeof(s->excused));
    s->loss_percent = s->duplicate_percent = s->slow_percent = 0;
    for (u32 i = 1; i <= s->nodes_n; i++) s->node[i].disk_slowness = s->disk_slowness;
}

static void fault_partition(struct sim *s)
{
    u64 side = sim_below(s, 1u << s->nodes_n);
    for (u32 i = 1; i <= s->nodes_n; i++)
        for (u32 k = 1; k <= s->nodes_n; k++) s->cut[i][k] = ((side >> (i - 1)) ^ (side >> (k - 1))) & 1;
    sim_trace(s, "partition %llx", (unsigned long long)side);
}

/* A leader alone: it goes on for a while, and so do its clients, while another
 * is elected. */
static void fault_isolate(struct sim *s)
{
    struct node *leader = fault_leader(s);
    for (u32 k = 1; leader && k <= s->nodes_n; k++)
        s->cut[k][leader->id] = s->cut[leader->id][k] = k != leader->id;
}

static void fault_one_way(struct sim *s)
{
    struct node *n = fault_victim(s);
    bool in = sim_chance(s, 50);
    for (u32 k = 1; k <= s->nodes_n; k++) {
        if (k == n->id || sim_chance(s, 30)) continue;
        if (in) s->cut[k][n->id] = true;
        else s->cut[n->id][k] = true;
    }
    sim_trace(s, "one-way cut %s %llu", in ? "to" : "from", (unsigned long long)n->id);
}

static void fault_crash(struct sim *s, struct node *n)
{
    if (!n->alive) return;
    node_crash(n);
    sim_post(s,
             (struct event){.at_us = s->now_us + 50000 + sim_below(s, sim_chance(s, 70) ? 3000000 : 20000000),
                            .type = EV_RESTART,
                            .node = (u32)n->id});
}

static void fault_pause_for(struct sim *s, struct node *n, u64 us)
{
    if (!n->alive || n->paused) return;
    n->paused = true;
    sim_trace(s, "pause of %llu", (unsigned long long)n->id);
    sim_post(s, (struct event){.at_us = s->now_us + us,
                               .type = EV_RESUME,
                               .node = (u32)n->id,
                               .incarnation = n->incarnation});
}

static void fault_pause(struct sim *s)
{
    fault_pause_for(s, fault_victim(s), 100000 + sim_below(s, 6000000));
}

/* A leader that hears nothing and stands still while another is elected: it wakes up as a leader. */
static void fault_stall(struct sim *s)
{
    struct node *leader = fault_leader(s);
    if (!leader) return;
    fault_isolate(s);
    fault_pause_for(s, leader, 1000000 + sim_below(s, 2000000));
}

/* Clocks jump by 400 s on some seeds only: a region whose clock is far ahead
 * stands still for long. */
static void fault_clock(struct sim *s)
{
    struct node *n = fault_victim(s);
    switch (sim_below(s, s->faults & FAULT_JUMP ? 4 : 2)) {
    case 0: n->clock_offset_ms = (i64)sim_below(s, 20000) - 10000; break;
    case 1: n->clock_offset_ms = 0, n->drift_ppm = (i64)sim_below(s, 2000) - 1000; break;
    case 2: n->clock_offset_ms += 400000; break;
    default: n->clock_offset_ms -= 400000;
    }
    if (n->clock_offset_ms > 800000 || n->clock_offset_ms < -800000) n->clock_offset_ms = 0;
    s->stepped_us = s->now_us;
    sim_trace(s, "clock of %llu at %+lld ms", (unsigned long long)n->id, (long long)n->clock_offset_ms);
}

static bool fault_is_dead(struct sim *s, u64 peer) { return s->node[node_of(peer)].retired; }

bool fault_majority(struct sim *s, const u64 *voters, u32 n, u64 without, bool counts)
{
    u32 live = 0, all = n;
    for (u32 i = 0; i < n; i++) {
        if (voters[i] != without) live += !fault_is_dead(s, voters[i]);
        else all -= !counts;
    }
    return live * 2 > all;
}

/* A node without a member of this configuration. */
static u64 fault_outsider(struct sim *s, const struct raft_conf *c)
{
    u64 found = 0, first = sim_below(s, s->nodes_n);
    for (u64 k = 0; k < s->nodes_n && !found; k++) {
        u64 id = 1 + (first + k) % s->nodes_n;
        found = s->node[id].retired ? 0 : id;
        for (u32 i = 0; i < c->voters_n; i++) found = node_of(c->voters[i]) == id ? 0 : found;
        for (u32 i = 0; i < c->learners_n; i++) found = node_of(c->learners[i]) == id ? 0 : found;
    }
    return found;
}

/* A member to remove: of a node that is dead, if there is one. */
static u64 fault_leaver(struct sim *s, const u64 *peers, u32 n)
{
    u64 peer = peers[sim_below(s, n)];
    for (u32 i = 0; i < n; i++)
        if (fault_is_dead(s, peers[i])) peer = peers[i];
    return peer;
}

/* Adds a learner, promotes one, removes a member, or replaces a voter by a
 * learner in one step. */
static void fault_change(struct sim *s, struct member *leader)
{
    if (s->scheduled) return;
    struct group_status st;
    group_status(leader->group, &st);
    const struct raft_conf *c = &st.at.conf;
    struct raft_change change[2];
    size_t n = 0;
    u64 outsider = fault_outsider(s, c), learner = c->learners_n ? fault_leaver(s, c->learners, c->learners_n) : 0;
    if (learner && fault_is_dead(s, learner)) change[n++] = (struct raft_change){learner, RAFT_REMOVE};
    else if (learner && sim_chance(s, 60)) change[n++] = (struct raft_change){learner, RAFT_ADD_VOTER};
    else if (outsider && sim_chance(s, 60)) {
        u32 ver = s->plant & PLANT_REUSE_PEER ? 0 : st.at.epoch.conf_ver;
        change[n++] = (struct raft_change){peer_of(outsider, ver), RAFT_ADD_LEARNER};
    }
    if (c->voters_n > s->voters_min && (n == 0 || sim_chance(s, 30))) {
        u64 leaver = fault_leaver(s, c->voters, c->voters_n);
        if (fault_majority(s, c->voters, c->voters_n, leaver, false))
            change[n++] = (struct raft_change){leaver, RAFT_REMOVE};
    }
    if (n == 0) return;
    enum group_change verdict = group_change(leader->group, change, n);
    if (verdict == GROUP_CHANGE_INVALID) sim_fail(s, "a valid change was refused");
    s->conf_changes += verdict == GROUP_CHANGE_PROPOSED;
    sim_trace(s, "change of %zu members of region %llu: %d", n, (unsigned long long)leader->region, (int)verdict);
}

static void fault_membership(struct sim *s)
{
    struct member *leader = fault_lead(s);
    if (leader) fault_change(s, leader);
}

/* Whether a region can do without this node for ever: no change of its members is under way, whoever leads next. */
static bool fault_spares(struct sim *s, u32 region, u64 node)
{
    const struct raft_conf *c = &s->region[region].newest.conf;
    u64 peer = 0;
    if (!s->region[region].newest.index || s->region[region].merged) return true;
    for (u32 i = 0; i < c->voters_n; i++)
        if (node_of(c->voters[i]) == node) peer = c->voters[i];
    for (u32 i = 0; i < c->learners_n; i++)
        if (node_of(c->learners[i]) == node) peer = c->learners[i];
    if (!peer && !c->outgoing_n) return true;
    struct member *leader = fault_leader_of(s, region);
    struct group_status st;
    if (!leader || leader->node->id == node) return false;
    group_status(leader->group, &st);
    bool settled = st.core.applied_own_term && !st.core.conf_pending && !st.at.conf.outgoing_n &&
                   st.at.index == s->region[region].newest.index;
    return settled && fault_majority(s, c->voters, c->voters_n, peer, true);
}

/* A node dies for good, or none does; in any case a new one comes. Members that the dead one has are replaced by changes
 * of members; a node that lives may have been removed from all regions, and be added again. */
static void fault_replace(struct sim *s)
{
    struct node *n = fault_node(s);
    bool spared = !n->retired && sim_chance(s, 70);
    if (s->nodes_n == NODES_MAX) return;
    for (u32 i = 1; i < s->next_region; i++) spared = spared && fault_spares(s, i, n->id);
    if (spared) {
        if (n->alive) node_crash(n);
        n->retired = true;
        s->killed++;
        sim_trace(s, "node %llu is dead", (unsigned long long)n->id);
    }
    if (!spared && !sim_chance(s, 20)) return;
    node_start(s, ++s->nodes_n);
    s->replaced++;
    sim_trace(s, "new node %u", s->nodes_n);
}

static void fault_transfer(struct sim *s)
{
    struct member *leader = fault_lead(s);
    if (!leader || !leader->at.conf.voters_n) return;
    group_transfer(leader->group, leader->at.conf.voters[sim_below(s, leader->at.conf.voters_n)]);
}

/* With an evaluation in flight or without. And a member that was just added may get the parent's snapshot of before the
 * split, when it has heard of the child already. */
static void fault_split(struct sim *s)
{
    struct member *leader = fault_lead(s);
    if (!leader || s->next_region > s->regions_max || regions_live(s) >= REGIONS_LIVE) return;
    group_wall(leader->group, node_wall_ms(leader->node));
    switch (sim_below(s, 4)) {
    case 0: member_split(leader); break;
    case 1:
        fault_change(s, leader);
        leader->split_us = s->now_us + sim_below(s, s->snapshot_us);
        break;
    default: leader->to_split = true;
    }
}

/* ---- Merges. */

/* Members of two regions must be on the same nodes: one change that brings the source's nearer to the target's. */
static void fault_align(struct sim *s, struct member *source, const struct raft_conf *target)
{
    const struct raft_conf *c = &source->at.conf;
    struct raft_change change[2];
    size_t n = 0;
    if (s->scheduled) return;
    for (u32 i = 0; i < target->voters_n && !n; i++) {
        u64 node = node_of(target->voters[i]), peer = 0;
        for (u32 k = 0; k < c->voters_n; k++) peer = node_of(c->voters[k]) == node ? c->voters[k] : peer;
        for (u32 k = 0; k < c->learners_n && !peer; k++)
            if (node_of(c->learners[k]) == node)
                change[n++] = (struct raft_change){c->learners[k], RAFT_ADD_VOTER};
        if (!peer && !n && !c->learners_n)
            change[n++] = (struct raft_change){peer_of(node, source->at.epoch.conf_ver), RAFT_ADD_LEARNER};
    }
    for (u32 i = 0; i < c->voters_n && !n; i++) {
        bool stays = false;
        for (u32 k = 0; k < target->voters_n; k++)
            stays |= node_of(target->voters[k]) == node_of(c->voters[i]);
        if (!stays && c->voters_n > s->voters_min && fault_majority(s, c->voters, c->voters_n, c->voters[i], false))
            change[n++] = (struct raft_change){c->voters[i], RAFT_REMOVE};
    }
    if (n) s->conf_changes += group_change(source->group, change, n) == GROUP_CHANGE_PROPOSED;
}

static void fault_merge_wish(struct sim *s)
{
    u32 source = 0;
    struct member *target = fault_lead(s);
    for (u32 i = 1; target && i < s->next_region; i++) {
        const struct region_truth *t = &s->region[i];
        bool near = t->newest.index && !t->merged && raft_slots_adjoin(t->newest.slots, target->at.slots);
        if (near && (!source || sim_chance(s, 50))) source = i;
    }
    if (!source) return;
    s->wish.target = (u32)target->region, s->wish.source = source, s->wish.tries = 12;
}

/* A merge begins where both regions are led; now and then it begins though it can't succeed. */
static void fault_merge(struct sim *s)
{
    struct member *target = fault_leader_of(s, s->wish.target), *source = fault_leader_of(s, s->wish.source);
    s->wish.tries--;
    if (!target || !source) return;
    struct merge_member t = {target->region, target->group}, from = {source->region, source->group};
    group_wall(target->group, node_wall_ms(target->node));
    if (sim_chance(s, 3)) {
        struct buf b = {0};
        raft_merge_prepare_encode(&b, &(struct raft_merge_prepare){RAFT_MERGE_TARGET, source->region, 0});
        group_propose(target->group, RAFT_KIND_MERGE_PREPARE, buf_bytes(&b));
        buf_release(&b);
    }
    if (!rules_same_nodes(&target->at.conf, &source->at.conf)) {
        fault_align(s, source, &target->at.conf);
        return;
    }
    for (u32 i = 0; i < source->at.conf.voters_n && source->node != target->node; i++)
        if (node_of(source->at.conf.voters[i]) == target->node->id)
            group_transfer(source->group, source->at.conf.voters[i]);
    if (source->node != target->node || merge_begin(&t, &from) != MERGE_BEGUN) return;
    s->merges_begun++, s->wish.tries = 0;
    if (sim_chance(s, 60))
        sim_post(s, (struct event){.at_us = s->now_us + sim_below(s, 400000), .type = EV_FAULT, .a = true});
    sim_trace(s, "region %llu is to be merged into %llu", (unsigned long long)source->region,
              (unsigned long long)target->region);
}

static void fault_merges(struct sim *s)
{
    if (!s->wish.tries && sim_chance(s, s->merge_often ? 90 : 40)) fault_merge_wish(s);
    if (s->wish.tries) fault_merge(s);
}

/* A node whose member of one region hears nothing: most interesting is one that is being merged. */
static void fault_deaf(struct sim *s)
{
    u32 region = 1 + (u32)sim_below(s, s->regions_n);
    for (u32 i = 1; i < s->next_region && sim_chance(s, 80); i++)
        if (!s->region[i].merged && s->region[i].newest.merge.role) region = i;
    s->deaf[1 + sim_below(s, s->nodes_n)] = region;
}

/* A node takes others for late (rule 21 of group.h), whatever they are: that may cost time, but nothing else. */
static void fault_excuse(struct sim *s)
{
    s->excused[fault_victim(s)->id] = (u32)sim_below(s, 2u << s->nodes_n);
}

static void fault_network(struct sim *s)
{
    s->loss_percent = (u32)sim_below(s, 30);
    s->duplicate_percent = (u32)sim_below(s, 20);
    s->slow_percent = (u32)sim_below(s, 30);
}

static void fault_campaign(struct sim *s)
{
    struct member *m = fault_member_of(fault_node(s), 1 + (u32)sim_below(s, s->regions_n));
    if (m) group_campaign(m->group);
}

static void fault_unreachable(struct sim *s)
{
    struct member *leader = fault_lead(s);
    if (!leader || !leader->at.conf.voters_n) return;
    group_unreachable(leader->group, leader->at.conf.voters[sim_below(s, leader->at.conf.voters_n)]);
}

static void fault_power_cut(struct sim *s)
{
    for (u32 i = 1; i <= s->nodes_n; i++) fault_crash(s, &s->node[i]);
}

static void fault_one_crash(struct sim *s) { fault_crash(s, fault_victim(s)); }
static void fault_slow_disk(struct sim *s) { fault_victim(s)->disk_slowness = 1 + (u32)sim_below(s, 100); }

enum {
    FAULT_CRASH = 1 << 0,
    FAULT_POWER_CUT = 1 << 1,
    FAULT_PARTITION = 1 << 3,
    FAULT_NETWORK = 1 << 5,
    FAULT_SLOW_DISK = 1 << 6,
    FAULT_CLOCK = 1 << 7,
    FAULT_MEMBERSHIP = 1 << 8,
    FAULT_TRANSFER = 1 << 9,
    FAULT_CAMPAIGN = 1 << 10,
    FAULT_ISOLATE = 1 << 11,
    FAULT_REPLACE = 1 << 13,
    FAULT_STALL = 1 << 14,
    FAULT_DEAF = 1 << 15
};

/* How often each comes, in relation to the others. The bit in sim.faults is the
 * place in this table. */
static const struct {
    void (*make)(struct sim *s);
    u32 weight;
} FAULTS[] = {
    {fault_one_crash, 12},  {fault_power_cut, 2}, {fault_pause, 8},     {fault_partition, 8},
    {fault_one_way, 6},     {fault_network, 8},   {fault_slow_disk, 6}, {fault_clock, 10},
    {fault_membership, 10}, {fault_transfer, 6},  {fault_campaign, 3},  {fault_isolate, 12},
    {fault_unreachable, 2}, {fault_replace, 4},   {fault_stall, 6},     {fault_deaf, 6},
    {fault_excuse, 6},
};

/* Members that promise too early are caught by crashes between the promise and a slow fsync. */
static void fault_fit_promises(struct sim *s)
{
    s->faults = FAULT_CRASH | FAULT_POWER_CUT | FAULT_SLOW_DISK | FAULT_TRANSFER | FAULT_CAMPAIGN;
    s->idle = false;
    s->disk_slowness = 100, s->fault_gap_us = 500000;
    s->voters_first = s->nodes_n, s->voters_min = 3;
}

/* Reads that nobody confirmed are wrong on a leader that does not know about the next one. */
static void fault_fit_reads(struct sim *s)
{
    s->faults = FAULT_STALL | FAULT_ISOLATE;
    s->idle = true; /* a write that can't be committed would keep the old leader from reading */
    s->fault_gap_us = 1000000;
    s->voters_first = s->nodes_n, s->voters_min = 3;
}

/* A clock that goes back shows when leadership moves between members whose clocks differ, while nothing is written. */
static void fault_fit_time(struct sim *s)
{
    s->faults = FAULT_CLOCK | FAULT_TRANSFER | FAULT_CAMPAIGN | FAULT_ISOLATE;
    s->idle = true;
    s->fault_gap_us = 1000000;
    s->voters_first = s->nodes_n, s->voters_min = 3;
}

/* A number that is used again does harm to who remembers what its first owner has promised. */
static void fault_fit_numbers(struct sim *s)
{
    s->faults = FAULT_NETWORK | FAULT_MEMBERSHIP | FAULT_TRANSFER | FAULT_CRASH;
    s->idle = false;
    s->fault_gap_us = 300000;
    s->voters_first = s->nodes_n, s->voters_min = 3;
}

/* Merges succeed often, and some member is behind. */
static void fault_fit_merges(struct sim *s)
{
    s->faults = FAULT_CRASH | FAULT_PARTITION | FAULT_ISOLATE | FAULT_TRANSFER | FAULT_SLOW_DISK | FAULT_DEAF;
    s->idle = false;
    s->fault_gap_us = 500000;
    s->voters_first = s->nodes_n, s->voters_min = 3;
    s->merge_often = true;
}

void fault_choose(struct sim *s)
{
    s->disk_slowness = 1, s->fault_gap_us = 2500000;
    s->snapshot_us = sim_chance(s, 70) ? 300000 : 6000000;
    s->faults = (u32)(sim_below(s, 1u << 18) | sim_below(s, 1u << 18)); /* three of four */
    s->idle = sim_chance(s, 40);
    if (sim_chance(s, 60)) s->faults &= ~(u32)FAULT_JUMP;
    s->voters_first = sim_chance(s, 30) ? 1 + (u32)sim_below(s, s->nodes_n) : s->nodes_n;
    s->voters_min = sim_chance(s, 30) ? 1 : 3;
    s->regions_max = s->regions || sim_chance(s, 45) ? 2 + (u32)sim_below(s, REGIONS_LIVE - 1) : 1;
    s->merges = (!s->plant && s->regions_max > 1 && (s->regions || sim_chance(s, 60))) || s->plant & PLANTS_OF_MERGES;
    if (s->regions) s->faults |= FAULT_MEMBERSHIP | FAULT_REPLACE;
    if (s->merges) s->regions_max = REGIONS_MAX;
    s->merge_often = s->merges && sim_chance(s, 50);
    if (s->merge_often) s->fault_gap_us = 1500000;
    s->scheduled = !s->plant && s->regions_max > 1 && sim_chance(s, 50);
    s->deaths = !s->plant && sim_chance(s, 25);
    if (s->plant & PLANT_SEND_BEFORE_PERSIST) fault_fit_promises(s);
    if (s->plant & PLANT_READ_UNCONFIRMED) fault_fit_reads(s);
    if (s->plant & PLANT_NO_FENCE) fault_fit_time(s);
    if (s->plant & (PLANT_SKIP_EPOCH | PLANT_OVERLAP | PLANT_STALE_MAP)) s->regions_max = REGIONS_LIVE;
    if (s->plant & PLANT_REUSE_PEER) fault_fit_numbers(s);
    if (s->plant & PLANTS_OF_MERGES) fault_fit_merges(s);
    s->sleep_ticks = sim_chance(s, 80) || s->plant & PLANT_NEVER_WAKE ? 1 + (u32)sim_below(s, 10) : 0;
    s->rest_us = !s->plant && sim_chance(s, 30) ? 6000000 : 0;
    if (s->plant & PLANT_SLEEP_BEHIND) s->sleep_ticks = 2, s->rest_us = 3000000;
}

/* r: less than the sum of the weights; 0: none. */
static void fault_make(struct sim *s, u64 r)
{
    for (u32 i = 0; r && i < sizeof(FAULTS) / sizeof(*FAULTS); i++) {
        if (r <= FAULTS[i].weight) {
            if (s->faults >> i & 1) FAULTS[i].make(s);
            return;
        }
        r -= FAULTS[i].weight;
    }
}

void fault_event(struct sim *s, bool once)
{
    enum { HEAL = 16, SPLIT = 12, ALL = 144 };
    u64 r = sim_below(s, ALL);
    if (once) {
        fault_make(s, 1 + r % (ALL - HEAL - SPLIT - 1));
        return;
    }
    sim_post(s, (struct event){.at_us = s->now_us + sim_below(s, s->fault_gap_us), .type = EV_FAULT});
    if (s->regions_n > 1 && !s->merge_often && sim_chance(s, 40))
        fault_membership(s); /* there are more to change */
    if (s->merges) fault_merges(s);
    if (r < HEAL) fault_heal(s);
    else if (r < HEAL + SPLIT || (s->merge_often && sim_chance(s, 20))) fault_split(s);
    else fault_make(s, r - HEAL - SPLIT);
}
