/* Runs the scheduler. About twice a second the leader of region 0 fills the table of cluster/schedule.h from
 * the map of the cluster and the nodes' reports, and sends the steps to the regions' leaders. A leader
 * carries a step out only in the epoch that it was decided for; a refused step is decided again.
 *
 * A step on the wire: region · version · conf_ver · kind · node · peer · gone, each u64. The node of a merge
 * is the region that it is merged into. */
#include <stdio.h>

#include "base/clock.h"
#include "base/endian.h"
#include "cluster/cluster_parts.h"
#include "cluster/schedule.h"

#define SCHEDULE_EVERY_MS \
    300                   /* up to twice as long, not in step with the leaders' own checks of who is active */
#define BEGIN_MS 1500     /* after which the nodes have reported to a new leader */
#define SCHEDULE_STEPS 16 /* at a time */
#define SCHEDULE_MOVES 8  /* learners that catch up, in all … */
#define SCHEDULE_MOVES_NODE 4 /* … and on one node */
#define AWAY_MS 3000          /* without a report: no leadership goes there */
#define SCHEDULE_MERGES 2     /* at a time */
/* A region is not merged sooner after it was split or merged. By then its size and load are known. */
#define SETTLED_MS 10000

struct step_frame {
    u64 region, version, conf_ver, kind, node, peer, gone;
};

/* -- the table --------------------------------------------------------------------------------- */

i64 schedule_silence_ms(const struct cluster *c, const struct cluster_node *n)
{
    if (n == c->nodes) return 0;
    return MAX((i64)uv_now(&c->server->loop) - n->reported_ms, cluster_silence_ms(c, n));
}

static bool schedule_is_away(const struct cluster *c, const struct cluster_node *n)
{
    return schedule_silence_ms(c, n) > MAX(AWAY_MS, 2 * c->server->config.cluster_node_timeout);
}

static struct schedule_node *schedule_nodes(const struct cluster *c, size_t *count)
{
    struct schedule_node *v;
    size_t n = 0;
    for (const struct cluster_node *at = c->nodes; at; at = at->next) n++;
    v = mem_zalloc(n * sizeof *v);
    n = 0;
    for (const struct cluster_node *at = c->nodes; at; at = at->next) {
        if (!cluster_is_member(c, at)) continue;
        v[n++] = (struct schedule_node){
            .node = at->number,
            .heard_ms = (u64)((i64)uv_now(&c->server->loop) - schedule_silence_ms(c, at)),
            .away = schedule_is_away(c, at),
            .draining = at->draining,
        };
    }
    *count = n;
    return v;
}

/* Whether the region's last split or merge is long enough ago for its size and load to be known. */
static bool schedule_settled(struct map_region *row, i64 now_ms)
{
    if (row->looked_version != row->at.epoch.version) row->looked_ms = now_ms;
    row->looked_version = row->at.epoch.version;
    return now_ms - row->looked_ms >= SETTLED_MS;
}

/* A leader that does not report can't take a step. */
static struct schedule_region schedule_region(struct cluster *c, struct map_region *row)
{
    const struct raft_conf *conf = &row->at.conf;
    const struct cluster_node *leader = row->leader ? cluster_node_of(c, row->leader) : NULL;
    struct schedule_region r = {
        .region = row->number,
        .slots = row->at.slots,
        .leader = leader && !schedule_is_away(c, leader) ? row->leader : 0,
        .voters_n = conf->voters_n,
        .learners_n = conf->learners_n,
        .changing = conf->outgoing_n > 0 || row->at.merge.role,
        .merging = row->at.merge.role,
        .bytes = row->bytes,
        .load = row->load,
        .settled = schedule_settled(row, (i64)uv_now(&c->server->loop)),
    };
    memcpy(r.voters, conf->voters, conf->voters_n * sizeof *r.voters);
    memcpy(r.learners, conf->learners, conf->learners_n * sizeof *r.learners);
    return r;
}

/* -- carrying out ------------------------------------------------------------------------------ */

static const char *schedule_verb(enum schedule_kind kind)
{
    switch (kind) {
    case SCHEDULE_ADD: return "new member on";
    case SCHEDULE_PROMOTE: return "becomes a voter:";
    case SCHEDULE_REMOVE: return "no longer a member:";
    case SCHEDULE_MERGE: return "merged into region";
    default: return "leader to";
    }
}

/* Whom or what a step is about, besides its region. */
static void schedule_whom(struct cluster *c, const struct schedule_step *s, char out[24])
{
    u64 about = s->kind == SCHEDULE_ADD ? s->node : node_of(s->peer ? s->peer : s->gone);
    const struct cluster_node *n = cluster_node_numbered(c, about);
    if (s->kind == SCHEDULE_MERGE) snprintf(out, 24, "%llu", (ull)s->into);
    else snprintf(out, 24, "%.8s", n ? n->id : "?");
}

static void schedule_send(struct cluster *c, const struct schedule_step *s)
{
    struct map_region *row = map_find(&c->map, s->region);
    const struct cluster_node *leader = row ? cluster_node_of(c, row->leader) : NULL;
    struct buf body = {0};
    char text[160], whom[24];
    if (!leader || s->kind == SCHEDULE_SPLIT) return;
    schedule_whom(c, s, whom);
    snprintf(text, sizeof text, "%s %s: %.100s", schedule_verb(s->kind), whom, s->reason);
    if (strcmp(text, row->decision) != 0)
        log_line(&c->server->log, LOG_NOTICE, "Region %llu: %s %s, because %s.", (ull)s->region,
                 schedule_verb(s->kind), whom, s->reason);
    memcpy(row->decision, text, sizeof text);
    u64 node = s->kind == SCHEDULE_MERGE ? s->into : s->node;
    u64 fields[] = {s->region, row->at.epoch.version, row->at.epoch.conf_ver, s->kind, node, s->peer,
                    s->gone};
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) append_le64(&body, fields[i]);
    if (leader == c->nodes) cluster_take_step(c, buf_bytes(&body));
    else bus_send(leader->link, CLUSTER_STEP, (bytes){0}, buf_bytes(&body));
    buf_release(&body);
}

static size_t step_changes(const struct member *m, const struct step_frame *f, struct raft_change change[2])
{
    size_t n = 0;
    if (f->kind == SCHEDULE_ADD)
        change[n++] = (struct raft_change){peer_of(f->node, m->at.epoch.conf_ver), RAFT_ADD_LEARNER};
    if (f->kind == SCHEDULE_PROMOTE) change[n++] = (struct raft_change){f->peer, RAFT_ADD_VOTER};
    if (f->gone && f->kind != SCHEDULE_ADD) change[n++] = (struct raft_change){f->gone, RAFT_REMOVE};
    return n;
}

/* A node that is being removed, or is not known here, gets nothing. */
static bool step_fits(const struct member *m, const struct step_frame *f)
{
    const struct cluster_node *n = f->kind == SCHEDULE_ADD ? cluster_node_numbered(m->cluster, f->node)
                                                           : NULL;
    struct raft_epoch at = m->at.epoch;
    if (at.version != f->version || at.conf_ver != f->conf_ver || m->at.conf.outgoing_n) return false;
    if (m->at.merge.role) return false; /* leadership of both stays where it is */
    return f->kind != SCHEDULE_ADD || (n && !n->draining && !member_has(m, f->node));
}

/* Leadership is not offered to a silent node: requests would wait in vain for it to be taken. */
static bool step_reaches(struct cluster *c, u64 peer)
{
    const struct cluster_node *n = cluster_node_of(c, peer);
    return n && cluster_silence_ms(c, n) < c->server->config.cluster_node_timeout;
}

static void step_log(const struct member *m, const struct step_frame *f)
{
    const struct cluster_node *n = cluster_node_numbered(
        m->cluster, f->kind == SCHEDULE_ADD ? f->node : node_of(f->peer ? f->peer : f->gone));
    const struct cluster_node *gone = f->peer && f->gone ? cluster_node_of(m->cluster, f->gone) : NULL;
    log_line(&m->server->log, LOG_NOTICE, "Node %.8s %s of region %llu%s%.8s.", n ? n->id : "?",
             f->kind == SCHEDULE_ADD       ? "becomes a member"
             : f->kind == SCHEDULE_PROMOTE ? "has caught up and becomes a voter"
                                           : "is no longer a member",
             (ull)m->number, gone ? ", in place of node " : "", gone ? gone->id : "");
}

void cluster_take_step(struct cluster *c, bytes body)
{
    if (body.n < 56) return;
    struct step_frame f = {get_le64(body.p),      get_le64(body.p + 8),  get_le64(body.p + 16),
                           get_le64(body.p + 24), get_le64(body.p + 32), get_le64(body.p + 40),
                           get_le64(body.p + 48)};
    struct member *m = f.region ? cluster_member_of(c, f.region) : NULL;
    struct raft_change change[2];
    if (!m || !member_leads(m) || !step_fits(m, &f)) return;
    if (f.kind == SCHEDULE_MERGE) {
        (void)cluster_merge_into(m, f.node); /* if it is refused it comes again */
        return;
    }
    group_wall(m->group, (u64)clock_wall_ms());
    if (f.kind == SCHEDULE_TRANSFER && step_reaches(c, f.peer)) group_transfer(m->group, f.peer);
    size_t n = step_changes(m, &f, change);
    if (n && group_change(m->group, change, n) == GROUP_CHANGE_PROPOSED) step_log(m, &f);
    cluster_stir(m);
}

/* -- now and then ------------------------------------------------------------------------------ */

/* No node has reported to a new leader yet: all count as having just reported, if their beats are heard.
 * Until their reports arrive it decides nothing: what it knows of leaders may be old, and if it was cut off,
 * nodes that it could not hear may be back. */
static void schedule_begin(struct cluster *c, i64 now_ms)
{
    c->schedule_ms = now_ms + MAX(BEGIN_MS, c->server->config.cluster_node_timeout / 2);
    for (struct cluster_node *n = c->nodes; n; n = n->next) n->reported_ms = now_ms;
    for (u32 i = 0; i < c->map.n; i++) c->map.rows[i].looked_version = 0;
    c->leads_meta = true;
}

static void schedule_now(struct cluster *c, i64 now_ms)
{
    const struct config *cf = &c->server->config;
    struct schedule_step steps[SCHEDULE_STEPS];
    struct schedule_table t = {
        .now_ms = (u64)now_ms,
        .voters = (u32)cf->cluster_replicas,
        .dead_after_ms = (u64)cf->cluster_node_dead_after * 1000,
        .moves_max = SCHEDULE_MOVES,
        .moves_node_max = SCHEDULE_MOVES_NODE,
        .uneven = !cf->cluster_balance,
        .merge_bytes = (u64)cf->cluster_region_min_size,
        .merged_bytes = (u64)cf->cluster_region_max_size / 2,
        .merged_load = (u64)cf->cluster_region_max_load / 2,
        .regions_min = (u32)cf->cluster_regions,
        .merges_max = SCHEDULE_MERGES,
    };
    struct schedule_region *regions = mem_zalloc((c->map.n + 1) * sizeof *regions);
    struct schedule_node *nodes = schedule_nodes(c, &t.nodes_n);
    for (u32 i = 0; i < c->map.n; i++) regions[i] = schedule_region(c, &c->map.rows[i]);
    t.nodes = nodes;
    t.regions = regions;
    t.regions_n = c->map.n;
    size_t n = schedule(&t, steps, SCHEDULE_STEPS);
    for (size_t i = 0; i < n; i++) schedule_send(c, &steps[i]);
    mem_free(regions);
    mem_free(nodes);
}

/* Region 0 is led where the first slots are: a cluster of one region has one leader for everything. */
static void schedule_meta(struct cluster *c)
{
    struct member *m = cluster_meta(c);
    const struct map_region *row = map_at(&c->map, 0);
    const struct cluster_node *n = row && row->leader ? cluster_node_of(c, row->leader) : NULL;
    u64 peer = n ? conf_peer_on(&m->at.conf, n->number) : 0;
    if (!n || n == c->nodes || n->draining || schedule_is_away(c, n) || !peer) return;
    group_wall(m->group, (u64)clock_wall_ms());
    if (cluster_meta_votes(c, peer)) group_transfer(m->group, peer);
    else cluster_meta_give_vote(c, peer);
    cluster_stir(m);
}

void cluster_schedule_step(struct cluster *c)
{
    i64 now_ms = (i64)uv_now(&c->server->loop);
    if (!member_leads(cluster_meta(c))) {
        c->leads_meta = false;
        return;
    }
    if (!c->leads_meta) schedule_begin(c, now_ms);
    if (now_ms < c->schedule_ms) return;
    c->schedule_ms = now_ms + SCHEDULE_EVERY_MS +
                     (i64)(rand_next(&cluster_meta(c)->region->seeds) % SCHEDULE_EVERY_MS);
    cluster_admit_step(c);
    schedule_now(c, now_ms);
    schedule_meta(c);
}
