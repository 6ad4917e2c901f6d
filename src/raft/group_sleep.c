/* Idle groups sleep (rules 18 to 20 of group.h). */
#include "raft/group_parts.h"

enum { MESSAGE_HEARTBEAT_ANSWER = 9 }; /* as eraftpb numbers it */

bool group_sleeps(const struct group *g) { return g->asleep; }

/* ---- Falling asleep (rule 18). */

/* Nothing is in progress on this member, and its machine has applied its whole log. */
static bool sleep_settled(const struct group *g, const struct raft_core_status *s)
{
    bool waits = g->installing || g->evaluating || g->flight.active || g->successor || g->reads_n ||
                 g->wishes_n || g->held_n || g->waiting_n || g->at.merge.role;
    bool has_all = s->last_index == g->at.index && s->commit == g->at.index && s->persisted == g->at.index;
    return !waits && has_all && !s->conf_pending && !s->transferee && !g->at.conf.outgoing_n;
}

static u64 sleep_member(const struct raft_conf *c, u32 i)
{
    return i < c->voters_n ? c->voters[i] : c->learners[i - c->voters_n];
}

#define EACH_OTHER(g, id)                                                         \
    for (u32 i_ = 0; i_ < (g)->at.conf.voters_n + (g)->at.conf.learners_n; i_++) \
        for (u64 id = sleep_member(&(g)->at.conf, i_); id && id != (g)->config.id; id = 0)

static bool sleep_hears(struct group *g, u64 id)
{
    return g->machine->ops->silence(g->machine, id) < g->config.election_ticks;
}

/* A silent member keeps the group awake: otherwise its loss would go unnoticed, and it would not catch up. */
static bool sleep_all_have(struct group *g, u64 last_index)
{
    EACH_OTHER(g, id) {
        struct raft_progress p;
        if (!raft_core_progress(g->core, id, &p) || !p.active || !sleep_hears(g, id)) return false;
        if (p.matched != last_index || p.pending_snapshot) return false;
    }
    return true;
}

static void sleep_fall(struct group *g)
{
    g->asleep = true;
    raft_core_rest(g->core);
    buf_release(&g->held_bytes);
    buf_release(&g->frame);
    mem_free(g->held);
    mem_free(g->reads);
    mem_free(g->wishes);
    g->held = NULL, g->reads = NULL, g->wishes = NULL;
    g->held_cap = g->reads_cap = g->wishes_cap = 0;
    g->machine->ops->slept(g->machine, true);
}

static void sleep_tell(struct group *g, u64 to)
{
    if (to && to != g->config.id) group_send_numbers(g, to, FRAME_WAKE, (u64[4]){0});
}

static void sleep_ask(struct group *g)
{
    if (g->ticks - g->heard_tick < g->config.election_ticks) return;
    g->heard_tick = g->ticks;
    sleep_tell(g, group_leader(g));
}

void group_try_sleep(struct group *g)
{
    struct raft_core_status s;
    if (!g->leader_term) sleep_ask(g);
    if (!g->leader_term || !g->config.sleep_ticks || g->ticks - g->busy_tick < g->config.sleep_ticks) return;
    if (g->sent_tick == g->ticks) return; /* a heartbeat that comes later would wake who sleeps already */
    raft_core_status(g->core, &s);
    bool all_have = sleep_all_have(g, s.last_index) || PLANTED(g, PLANT_SLEEP_BEHIND);
    if (!all_have || !sleep_settled(g, &s)) return;
    EACH_OTHER(g, id) group_send_numbers(g, id, FRAME_SLEEP, (u64[4]){s.term, s.last_index});
    sleep_fall(g);
}

void group_on_sleep(struct group *g, u64 from, u64 term, u64 index)
{
    struct raft_core_status s;
    raft_core_status(g->core, &s);
    bool follows = s.role == RAFT_FOLLOWER && s.leader == from && s.term == term;
    bool has_all = s.last_index == index || PLANTED(g, PLANT_SLEEP_BEHIND);
    if (!follows || !has_all || !sleep_settled(g, &s) || !sleep_hears(g, from)) sleep_tell(g, from);
    else if (!g->asleep) sleep_fall(g);
}

/* ---- Waking up (rules 19 and 20). */

void group_rouse(struct group *g)
{
    g->busy_tick = g->ticks;
    if (!g->asleep) return;
    u64 leader = group_leader(g);
    g->asleep = false;
    if (g->leader_term) {
        EACH_OTHER(g, id) {
            if (!sleep_hears(g, id)) raft_core_active(g->core, id, false);
        }
    } else if (leader) {
        u32 silence = g->machine->ops->silence(g->machine, leader);
        raft_core_silence(g->core, MIN(silence, g->config.election_ticks));
    }
    g->machine->ops->slept(g->machine, false);
}

void group_wake(struct group *g)
{
    if (!g->asleep) return;
    group_rouse(g);
    sleep_tell(g, group_leader(g));
}

void group_doubt(struct group *g, u64 peer)
{
    if (!g->asleep || PLANTED(g, PLANT_NEVER_WAKE)) return;
    if (g->leader_term || group_leader(g) == peer) group_wake(g);
}

void group_excuse(struct group *g, u64 peer)
{
    if (g->asleep) return;
    if (g->leader_term) {
        raft_core_active(g->core, peer, true);
    } else if (group_leader(g) == peer) {
        g->heard_tick = g->ticks;
        raft_core_silence(g->core, 0);
    }
}

void group_on_word(struct group *g, u64 from, bytes message)
{
    u64 term;
    g->heard_tick = g->ticks;
    if (message.p[0] == FRAME_WAKE) group_rouse(g);
    if (!g->asleep) return;
    bool core = message.p[0] == FRAME_CORE;
    int type = core ? raft_core_message_type((const u8 *)message.p + 1, message.n - 1, &term) : 0;
    if (core && type == MESSAGE_HEARTBEAT_ANSWER) return;
    if (from == group_leader(g)) group_rouse(g);
    else group_wake(g);
}
