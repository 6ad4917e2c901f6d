/* Reads on the leader and on followers (rules 7 and 8 of group.h). */
#include "raft/group_parts.h"

static void group_drop_read(struct group *g, size_t i) { g->reads[i] = g->reads[--g->reads_n]; }

void group_fail_reads(struct group *g)
{
    while (g->reads_n) {
        struct group_read r = g->reads[--g->reads_n];
        if (!r.from) g->machine->ops->confirmed(g->machine, r.id, false);
    }
}

bool group_owes_reads(const struct group *g)
{
    for (size_t i = 0; i < g->reads_n; i++)
        if (!g->reads[i].from) return true;
    return false;
}

void group_confirm(struct group *g, const struct raft_read_state *s)
{
    if (s->context.size != 16 || get_le64(s->context.data) != g->leader_term) return;
    u64 number = get_le64((const char *)s->context.data + 8);
    for (size_t i = g->reads_n; i-- > 0;) {
        struct group_read r = g->reads[i];
        if (r.number > number) continue;
        group_drop_read(g, i);
        u64 reply[4] = {r.from_nonce, r.from_id, s->index, r.clock_ms};
        if (r.from) group_send_numbers(g, r.from, FRAME_READ_REPLY, reply);
        else g->machine->ops->confirmed(g->machine, r.id, true);
    }
}

/* Starts another ReadIndex, which confirms every read evaluated up to now. */
u64 group_read_index(struct group *g)
{
    struct buf context = {0};
    append_le64(&context, g->leader_term);
    append_le64(&context, ++g->reads_number);
    raft_core_read_index(g->core, (const u8 *)context.p, context.n);
    buf_release(&context);
    g->reads_asked_tick = g->ticks;
    return g->reads_number;
}

void group_ask(struct group *g, struct group_wish *w)
{
    u64 leader = group_leader(g);
    w->asked_tick = g->ticks;
    if (leader && leader != g->config.id)
        group_send_numbers(g, leader, FRAME_READ_REQUEST, (u64[4]){g->config.nonce, w->id});
}

u64 group_follower_read(struct group *g)
{
    group_rouse(g);
    struct group_wish *w = GROUP_PUSH(g, wishes);
    *w = (struct group_wish){.id = ++g->next_id, .born_tick = g->ticks};
    u64 id = w->id;
    group_ask(g, w);
    return id;
}

void group_end_wish(struct group *g, size_t i, bool ok)
{
    u64 id = g->wishes[i].id;
    g->wishes[i] = g->wishes[--g->wishes_n];
    g->machine->ops->readable(g->machine, id, ok);
}

void group_check_wishes(struct group *g)
{
    for (size_t i = g->wishes_n; i-- > 0;) {
        struct group_wish *w = &g->wishes[i];
        if (w->index && g->at.index >= w->index && g->at.clock_ms >= w->clock_ms) group_end_wish(g, i, true);
    }
}

/* On the leader: keys that are due by now must be dead for the follower's read, so the region's clock may
 * have to advance first. */
void group_on_read_request(struct group *g, u64 from, u64 nonce, u64 id)
{
    if (!group_may_propose(g)) return; /* the follower will ask again */
    u64 due = g->machine->ops->next_deadline(g->machine);
    bool unknown = g->flight.active || !group_has_applied_all(g); /* it may lack deadlines */
    bool behind = g->at.clock_ms < g->wall_ms && (unknown || (due && due <= g->wall_ms));
    if (behind && g->proposed_ms < g->wall_ms && !group_propose_clock(g)) return;
    u64 number = group_read_index(g);
    *GROUP_PUSH(g, reads) = (struct group_read){.number = number,
                                                .clock_ms = behind ? g->wall_ms : 0,
                                                .from = from,
                                                .from_nonce = nonce,
                                                .from_id = id};
}

void group_on_read_reply(struct group *g, u64 nonce, u64 id, u64 index, u64 clock_ms)
{
    if (nonce != g->config.nonce) return; /* for this member before it was restarted */
    for (size_t i = 0; i < g->wishes_n; i++)
        if (g->wishes[i].id == id && !g->wishes[i].index)
            g->wishes[i].index = index, g->wishes[i].clock_ms = clock_ms;
}
