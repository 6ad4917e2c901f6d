/* The end of a run, without requests: groups must fall asleep, and then send nothing. When their leader's
 * node fails, they must elect another leader soon, without any request. */
#include "sim/sim.h"

enum {
    HUSH_DEAF_US = 2000000,
    HUSH_SLEEP_US = 20000000, /* until all sleep: longer than keys live */
    HUSH_AWAKE_US = 3000000,  /* a deadline wakes a group for no longer */
    HUSH_SILENT_US = 10000000,
    HUSH_LEADER_US = 8000000,
    HUSH_TRANSFER_US = 1000000 /* in which a leader that the scheduler has just moved arrives */
};

static const struct raft_applied *hush_region(const struct sim *s, u32 region)
{
    const struct raft_applied *at = &s->region[region].newest;
    return at->index && !s->region[region].merged ? at : NULL;
}

static bool hush_lives(const struct sim *s, const u64 *peers, u32 n)
{
    for (u32 i = 0; i < n; i++)
        if (s->node[node_of(peers[i])].retired) return false;
    return true;
}

/* A node whose member is awake; 0: there is none. */
static u32 hush_awake(const struct sim *s, u32 region)
{
    for (u32 i = 1; i <= s->nodes_n; i++) {
        const struct member *m = s->node[i].members[region];
        if (!s->node[i].retired && m && m->group && !group_sleeps(m->group)) return i;
    }
    return 0;
}

/* A group sleeps only with all of its members. Its leader may have a slow clock, by which keys die only now. */
static void hush_check_asleep(struct sim *s, u32 region)
{
    const struct raft_applied *at = hush_region(s, region);
    if (!at || !hush_lives(s, at->conf.voters, at->conf.voters_n)) return;
    if (!hush_lives(s, at->conf.learners, at->conf.learners_n)) return;
    u64 clock_ms = at->clock_ms, moved_us = s->now_us;
    for (u32 node; (node = hush_awake(s, region)); sim_run_until(s, s->now_us + TICK_US)) {
        if (at->clock_ms != clock_ms) clock_ms = at->clock_ms, moved_us = s->now_us;
        if (s->now_us - moved_us > HUSH_AWAKE_US)
            sim_fail(s, "node %u: region %u has nothing to do and does not sleep", node, region);
    }
    for (u32 i = 0; i < at->conf.voters_n; i++) {
        const struct member *m = s->node[node_of(at->conf.voters[i])].members[region];
        if (!m || m->at.index != at->index) sim_fail(s, "region %u sleeps while a member is behind", region);
    }
}

/* Only a deadline may wake a group. */
static void hush_check_silent(struct sim *s)
{
    u64 clock_ms[REGIONS_MAX + 1] = {0}, sent[REGIONS_MAX + 1];
    for (u32 i = 1; i <= REGIONS_MAX; i++) {
        const struct raft_applied *at = hush_region(s, i);
        sent[i] = s->region[i].messages;
        if (at && hush_lives(s, at->conf.voters, at->conf.voters_n) &&
            hush_lives(s, at->conf.learners, at->conf.learners_n))
            clock_ms[i] = at->clock_ms;
    }
    sim_run_until(s, s->now_us + HUSH_SILENT_US);
    for (u32 i = 1; i <= REGIONS_MAX; i++)
        if (clock_ms[i] == s->region[i].newest.clock_ms && sent[i] != s->region[i].messages)
            sim_fail(s, "region %u sends messages in its sleep", i);
}

/* What happens to a node: it is cut off, in both directions or one, dies, or is started again. */
static void hush_disturb(struct sim *s, struct node *n)
{
    u64 kind = sim_below(s, 5);
    sim_trace(s, "disturbance %llu of node %llu", (unsigned long long)kind, (unsigned long long)n->id);
    for (u32 i = 1; i <= s->nodes_n; i++) {
        if (i == n->id) continue;
        s->cut[n->id][i] = kind == 0 || kind == 1;
        s->cut[i][n->id] = kind == 0 || kind == 2;
    }
    if (kind >= 3) node_crash(n);
    if (kind == 4) node_start(s, n->id);
    n->retired = kind != 4;
}

static bool hush_is_led(const struct sim *s, u32 region)
{
    for (u32 i = 1; i <= s->nodes_n; i++) {
        const struct member *m = s->node[i].members[region];
        if (!s->node[i].retired && m && m->group && group_is_leader(m->group)) return true;
    }
    return false;
}

static void hush_check_leader(struct sim *s, u32 region)
{
    const struct raft_applied *at = hush_region(s, region);
    if (!at || !fault_majority(s, at->conf.voters, at->conf.voters_n, 0, true)) return;
    for (u64 end_us = s->now_us + HUSH_TRANSFER_US; !hush_is_led(s, region);
         sim_run_until(s, s->now_us + TICK_US))
        if (s->now_us >= end_us) sim_fail(s, "region %u has no leader after a node was lost in its sleep", region);
}

void hush_run(struct sim *s)
{
    if (!s->sleep_ticks) return;
    s->lossy = 1 + (u32)sim_below(s, s->nodes_n); /* misses entries, but perhaps not what tells it to sleep */
    sim_run_until(s, s->now_us + HUSH_DEAF_US);
    s->hush = true;
    sim_run_until(s, s->now_us + HUSH_DEAF_US);
    s->lossy = 0;
    sim_run_until(s, s->now_us + HUSH_SLEEP_US);
    for (u32 i = 1; i <= REGIONS_MAX; i++) hush_check_asleep(s, i);
    hush_check_silent(s);
    struct member *leader = fault_leader_of(s, 1 + (u32)sim_below(s, s->regions_n));
    if (!leader) return;
    hush_disturb(s, leader->node);
    sim_run_until(s, s->now_us + HUSH_LEADER_US);
    for (u32 i = 1; i <= REGIONS_MAX; i++) hush_check_leader(s, i);
}
