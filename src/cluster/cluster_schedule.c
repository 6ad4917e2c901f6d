/* On the node that leads the first region: leaderships are spread evenly over the nodes.
 *
 * This node has a member of every region, so it knows who leads and who votes. Once a second it makes the
 * table of cluster/schedule.h of that, and carries out what that decides about leaders. Regions are on all
 * nodes: there are no members to move. */
#include <stdio.h>

#include "base/clock.h"
#include "cluster/cluster_parts.h"
#include "cluster/peer_id.h"
#include "cluster/schedule.h"

#define SCHEDULE_EVERY_MS 1000
#define SCHEDULE_STEPS 4 /* at a time: each costs its region a moment */

static bool schedule_reaches(const struct cluster *c, const struct cluster_node *n)
{
    return n == c->nodes || (n->link && bus_peer_up(n->link));
}

static struct schedule_node *schedule_nodes(const struct cluster *c, size_t *count)
{
    struct schedule_node *v;
    size_t n = 0;
    for (const struct cluster_node *at = c->nodes; at; at = at->next) n++;
    v = mem_zalloc(n * sizeof *v);
    n = 0;
    for (const struct cluster_node *at = c->nodes; at; at = at->next) {
        if (!cluster_is_member(c, at->peer)) continue;
        v[n++] = (struct schedule_node){.node = node_of(at->peer), .heard_ms = schedule_reaches(c, at)};
    }
    *count = n;
    return v;
}

static struct schedule_region schedule_region(const struct member *m)
{
    const struct raft_conf *conf = &m->at.conf;
    struct schedule_region r = {
        .region = m->number,
        .slots = m->slots,
        .leader = group_leader(m->group),
        .voters_n = conf->voters_n,
        .changing = conf->outgoing_n || !m->region || m->install,
    };
    memcpy(r.voters, conf->voters, conf->voters_n * sizeof *r.voters);
    return r;
}

static void schedule_carry_out(struct cluster *c, const struct schedule_step *s)
{
    struct member *m = cluster_member_of(c, s->region);
    const struct cluster_node *to = s->kind == SCHEDULE_TRANSFER ? cluster_node_of(c, s->peer) : NULL;
    if (!m || !to) return;
    snprintf(m->decision, sizeof m->decision, "leader to %.8s: %s", to->id, s->reason);
    log_line(&c->server->log, LOG_NOTICE, "Region %llu: leadership goes to node %.8s, because %s.",
             (ull)m->number, to->id, s->reason);
    group_wall(m->group, (u64)clock_wall_ms());
    group_transfer(m->group, to->peer);
    cluster_stir(m);
}

void cluster_schedule_step(struct cluster *c)
{
    struct schedule_step steps[SCHEDULE_STEPS];
    struct schedule_table t = {.now_ms = 2, .dead_after_ms = 1}; /* heard_ms is 1 or 0: reached or not */
    i64 now_ms = (i64)uv_now(&c->server->loop);
    if (!c->server->config.cluster_balance || c->members_n < 2) return;
    if (now_ms - c->scheduled_ms < SCHEDULE_EVERY_MS) return;
    c->scheduled_ms = now_ms;
    struct schedule_region *regions = mem_zalloc(c->members_n * sizeof *regions);
    struct schedule_node *nodes = schedule_nodes(c, &t.nodes_n);
    for (u32 i = 0; i < c->members_n; i++) {
        regions[i] = schedule_region(c->members[i]);
        t.voters = MAX(t.voters, regions[i].voters_n);
    }
    t.nodes = nodes;
    t.regions = regions;
    t.regions_n = c->members_n;
    size_t n = schedule(&t, steps, SCHEDULE_STEPS);
    for (size_t i = 0; i < n; i++) schedule_carry_out(c, &steps[i]);
    mem_free(regions);
    mem_free(nodes);
}
