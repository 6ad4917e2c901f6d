/* Leadership, members, snapshots, compaction, and queries about a group. */
#include "raft/group_parts.h"

enum {
    GROUP_CATCH_UP_ENTRIES = 64,
    GROUP_INSTALL_TICKS = 6000 /* ten minutes, with elections after a second */
};

/* ---- Leadership and membership. */

void group_campaign(struct group *g)
{
    if (group_must_wait(g)) return;
    raft_core_campaign(g->core);
    group_run(g);
}

void group_transfer(struct group *g, u64 to)
{
    u64 leader = group_leader(g);
    if (g->installing || !leader) return;
    group_rouse(g);
    if (!g->leader_term) {
        group_send_numbers(g, leader, FRAME_TRANSFER, (u64[4]){to});
    } else if (to != g->successor && to != g->config.id) {
        g->successor = to, g->successor_tick = g->ticks;
        group_run(g);
    }
}

static bool group_has(const u64 *ids, u32 n, u64 id)
{
    for (u32 i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* The voter with the longest log, to transfer leadership to. */
u64 group_successor(const struct group *g)
{
    u64 best = 0, best_matched = 0;
    for (u32 i = 0; i < g->at.conf.voters_n; i++) {
        struct raft_progress p;
        u64 id = g->at.conf.voters[i];
        if (id == g->config.id || !raft_core_progress(g->core, id, &p) || !p.active) continue;
        if (!best || p.matched > best_matched) best = id, best_matched = p.matched;
    }
    return best;
}

static enum group_change group_check_change(struct group *g, const struct raft_change *c, u64 last_index)
{
    const struct raft_conf *conf = &g->at.conf;
    struct raft_progress p;
    bool voter = group_has(conf->voters, conf->voters_n, c->id);
    bool learner = group_has(conf->learners, conf->learners_n, c->id);
    if (c->id == g->config.id && c->type != RAFT_ADD_VOTER) {
        u64 to = group_successor(g);
        if (to) group_transfer(g, to);
        return conf->voters_n > 1 ? GROUP_CHANGE_LATER : GROUP_CHANGE_INVALID;
    }
    switch (c->type) {
    case RAFT_ADD_LEARNER: return learner ? GROUP_CHANGE_INVALID : GROUP_CHANGE_PROPOSED;
    case RAFT_REMOVE: return voter || learner ? GROUP_CHANGE_PROPOSED : GROUP_CHANGE_INVALID;
    case RAFT_ADD_VOTER:
        if (!learner) return GROUP_CHANGE_INVALID;
        if (!raft_core_progress(g->core, c->id, &p)) return GROUP_CHANGE_INVALID;
        if (!p.active || !p.matched) return GROUP_CHANGE_LATER; /* it has nothing, however short the log is */
        if (p.matched + GROUP_CATCH_UP_ENTRIES < last_index) return GROUP_CHANGE_LATER;
        return GROUP_CHANGE_PROPOSED;
    default: return GROUP_CHANGE_INVALID;
    }
}

/* Whether a change removes the voter, or makes it a learner. */
static bool group_removes(const struct raft_change *changes, size_t n, u64 id)
{
    for (size_t i = 0; i < n; i++)
        if (changes[i].type != RAFT_ADD_VOTER && changes[i].id == id) return true;
    return false;
}

/* Whether a majority of the voters after the change have answered lately. A configuration whose voters are
 * mostly dead can't commit anything, not even a change that would repair it. */
static bool group_majority_remains(const struct group *g, const struct raft_change *changes, size_t n)
{
    const struct raft_conf *conf = &g->at.conf;
    struct raft_progress p;
    u32 voters = 0, active = 0;
    for (u32 i = 0; i < conf->voters_n; i++) {
        u64 id = conf->voters[i];
        if (group_removes(changes, n, id)) continue;
        voters++;
        active += id == g->config.id || (raft_core_progress(g->core, id, &p) && p.active);
    }
    for (size_t i = 0; i < n; i++) /* group_check_change has seen that a new voter is active */
        if (changes[i].type == RAFT_ADD_VOTER) voters++, active++;
    return active * 2 > voters;
}

enum group_change group_change(struct group *g, const struct raft_change *changes, size_t n)
{
    struct raft_core_status s;
    if (!group_may_propose(g)) return GROUP_CHANGE_NOT_LEADER;
    raft_core_status(g->core, &s);
    if (s.conf_pending || g->at.conf.outgoing_n || g->at.merge.role) return GROUP_CHANGE_LATER;
    if (n == 0) return GROUP_CHANGE_INVALID;
    for (size_t i = 0; i < n; i++) {
        enum group_change verdict = group_check_change(g, &changes[i], s.last_index);
        if (verdict != GROUP_CHANGE_PROPOSED) return verdict;
    }
    if (!group_majority_remains(g, changes, n)) return GROUP_CHANGE_UNSAFE;
    int result = raft_core_propose_conf(g->core, changes, n);
    group_run(g);
    switch (result) {
    case RAFT_CORE_OK: return GROUP_CHANGE_PROPOSED;
    case RAFT_CORE_INVALID: return GROUP_CHANGE_INVALID;
    case RAFT_CORE_NOT_LEADER: return GROUP_CHANGE_NOT_LEADER;
    default: return GROUP_CHANGE_LATER;
    }
}

/* ---- Snapshots and compaction. */

void group_receive_snapshot(struct group *g, u64 from UNUSED, bytes message)
{
    bool busy = g->installing;
    group_rouse(g);
    if (!busy) {
        raft_core_step_snapshot(g->core, (const u8 *)message.p, message.n);
        group_run(g);
    }
    if (busy || !g->installing) g->machine->ops->snapshot_discard(g->machine);
}

void group_installed(struct group *g, const struct raft_applied *at)
{
    CHECK(g->installing && at->index == g->install->snapshot_index && at->term == g->install->snapshot_term);
    g->at = *at;
    g->at.conf = g->install->snapshot_conf;
    group_drop_waiting(g);
    group_write(g, g->install, true);
}

void group_snapshot_sent(struct group *g, u64 to, bool ok)
{
    struct raft_progress p;
    if (ok && raft_core_progress(g->core, to, &p) && p.pending_snapshot)
        g->caught_id = to, g->caught_index = p.pending_snapshot, g->caught_tick = g->ticks;
    raft_core_snapshot_sent(g->core, to, ok);
    group_run(g);
}

/* Whether a member that has got a snapshot is still installing it: it would need another one if the log did
 * not keep the entries after it. Its node is heard of meanwhile. */
static bool group_catches_up(const struct group *g)
{
    struct raft_progress p;
    if (!g->caught_id || g->ticks - g->caught_tick > GROUP_INSTALL_TICKS) return false;
    if (g->machine->ops->silence(g->machine, g->caught_id) >= g->config.election_ticks) return false;
    return raft_core_progress(g->core, g->caught_id, &p) && p.matched < g->caught_index;
}

/* The first index to keep: entries that active followers still need, within limits. */
static u64 group_needed_from(const struct group *g, u64 last_index)
{
    u64 needed = last_index;
    const struct raft_conf *conf = &g->at.conf;
    for (u32 i = 0; i < conf->voters_n + conf->learners_n; i++) {
        struct raft_progress p;
        u64 id = i < conf->voters_n ? conf->voters[i] : conf->learners[i - conf->voters_n];
        if (!raft_core_progress(g->core, id, &p) || !p.active) continue;
        u64 has = p.state == 2 ? MAX(p.pending_snapshot, p.matched) : p.matched;
        if (has < needed) needed = has;
    }
    return group_catches_up(g) ? MIN(needed, g->caught_index) : needed;
}

void group_compact(struct group *g, u64 flushed_index)
{
    struct raft_core_status s;
    if (g->installing) return;
    raft_core_status(g->core, &s);
    u64 index = MIN(MIN(flushed_index, g->at.index), s.persisted);
    if (g->leader_term) {
        u64 needed = group_needed_from(g, s.last_index), max = g->config.log_entries_max;
        if (s.last_index - needed > max) needed = s.last_index - max;
        index = MIN(index, needed);
    }
    if (index < s.first_index) return;
    u64 term = raft_core_compacted(g->core, index);
    g->log->ops->compact(g->log, index, term);
}

/* ---- Queries. */

void group_status(const struct group *g, struct group_status *status)
{
    *status = (struct group_status){
        .at = g->at,
        .clock_ahead_ms = g->at.clock_ms > g->wall_ms ? g->at.clock_ms - g->wall_ms : 0,
        .evaluating = g->flight.active,
        .epoch_pending = g->at.index < g->rules_index,
        .installing = g->installing,
        .reads_waiting = g->reads_n + g->wishes_n,
        .entries_void = g->entries_void,
        .evaluations_abandoned = g->evaluations_abandoned,
        .clock_entries = g->clock_entries,
        .reads_retried = g->reads_retried,
    };
    raft_core_status(g->core, &status->core);
}

bool group_is_leader(const struct group *g) { return g->leader_term != 0; }

u64 group_led_term(const struct group *g) { return g->leader_term; }

u64 group_leader(const struct group *g)
{
    struct raft_core_status s;
    raft_core_status(g->core, &s);
    return s.leader;
}

u64 group_matched(const struct group *g, u64 id)
{
    struct raft_progress p;
    return g->leader_term && raft_core_progress(g->core, id, &p) ? p.matched : 0;
}

u32 group_acknowledged(const struct group *g, u64 index)
{
    const struct raft_conf *conf = &g->at.conf;
    u32 count = 0;
    for (u32 i = 0; g->leader_term && i < conf->voters_n + conf->learners_n; i++) {
        struct raft_progress p;
        u64 id = i < conf->voters_n ? conf->voters[i] : conf->learners[i - conf->voters_n];
        if (id == g->config.id || !raft_core_progress(g->core, id, &p)) continue;
        count += p.matched && p.matched >= index;
    }
    return count;
}

u64 group_clock(const struct group *g) { return g->at.clock_ms; }

#ifdef MAYFLY_PLANT
void group_plant(struct group *g, u32 bugs) { g->planted = bugs; }
bool group_planted(const struct group *g, u32 bug) { return PLANTED(g, bug); }
#endif
