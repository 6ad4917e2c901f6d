/* A tick in cluster mode: which requests run here, which wait, and what their replies wait for.
 *
 * A region's part of a tick begins with the first request for it, and ends with the tick, so the cost of a
 * tick depends only on the regions it uses. A request for all data of the node begins all of them; its reply
 * waits for all their fences (struct member_joint). */
#include <stdio.h>

#include "cluster/cluster_parts.h"
#include "command/commands.h"
#include "exec/multi.h"
#include "exec/route.h"

/* DEBUG POPULATE: the rest of DEBUG changes no data, and has to work when there is no quorum. */
static bool is_populate(const struct command *cmd, const bytes *argv)
{
    return cmd->run == cmd_debug && bytes_is(argv[1], "populate");
}

/* Every member of a slot accepts its subscribers and messages, also without a leader: they are not data. */
static bool is_shard_pubsub(const struct command *cmd)
{
    return cmd->run == cmd_ssubscribe || cmd->run == cmd_sunsubscribe || cmd->run == cmd_spublish;
}

/* Whether a command reads or changes the region's data. One that waits in MULTI's queue does not yet. */
static bool touches_data(const struct command *cmd, const struct session *s, const bytes *argv)
{
    if (cmd->run == cmd_exec) return multi_will_run(s);
    if (is_shard_pubsub(cmd) || (s->tx && multi_takes(s, cmd))) return false;
    if (cmd->run == cmd_cluster_keys || cmd->run == cmd_bgsave) return true; /* a backup is confirmed */
    return cmd->flags & CMD_OF_KEYSPACE || cmd->specs[0].begin != SEEK_NONE || is_populate(cmd, argv);
}

/* The command of a request, which may be refused yet; NULL: there is none. */
static const struct command *command_of(const struct server *s, const struct net_request *q)
{
    const bytes *argv = s->net.tick.args + q->argv_at;
    const struct command *cmd = q->argc ? node_find(&s->node, argv[0]) : NULL;
    if (cmd && cmd->sub_count) cmd = q->argc > 1 ? command_find_sub(cmd, argv[1]) : NULL;
    return cmd && command_takes(cmd, (int)q->argc) ? cmd : NULL;
}

/* All nodes have all functions: changing them is an entry of region 0's log. */
static bool is_for_home(const struct command *cmd, const struct session *s)
{
    if (UNLIKELY(cmd->run == cmd_exec)) return multi_open(s) && s->tx->for_home;
    return route_is_for_home(cmd);
}

/* A transaction is in one region. */
static bool is_for_both(const struct request *q, const struct command *cmd)
{
    const struct transaction *tx = q->session->tx;
    if (LIKELY(!multi_open(q->session)) || cmd->run == cmd_exec) return false;
    return (tx->for_home && q->slot >= 0) || (tx->slot >= 0 && route_is_for_home(cmd));
}

/* -- the regions of a tick --------------------------------------------------------------------- */

void cluster_flies(struct cluster *c, bool on) { c->flying += on ? 1u : -1u; }

/* Replies to what was committed in this turn of the loop leave at once: a quorum has it in its logs. Then it
 * is stored, before anything else: housekeeping is to see its deadlines. A request for all regions needs a
 * moment at which none has an entry in flight. New evaluations wait for it, because otherwise there might
 * never be such a moment. */
void cluster_begin_tick(struct server *s, i64 wall_ms UNUSED)
{
    struct cluster *c = s->cluster;
    net_send_released(&s->net);
    cluster_save(c);
    if (c->wants_all && !c->flying) c->wants_all = false;
}

/* The first request for a region begins its tick. */
static void enter(struct member *m)
{
    struct cluster *c = m->cluster;
    if (m->tick == c->server->net.tick.number) return;
    m->tick = c->server->net.tick.number;
    if (c->wants_all) return;
    member_begin_tick(m, c->server->now_ms);
    m->ticking_next = c->ticking;
    c->ticking = m;
}

/* Proposes what the tick's requests so far have changed. Further ones for the region wait. */
void cluster_end_part(struct member *m)
{
    cluster_expire_with_tick(m);
    fence_enforce(&m->server->net, NULL);
    member_end_tick(m);
    cluster_stir(m);
}

static void end_ticks(struct cluster *c)
{
    struct member *m;
    c->joint = NULL;
    while ((m = c->ticking)) {
        c->ticking = m->ticking_next;
        cluster_end_part(m);
    }
}

/* -- requests for all regions ------------------------------------------------------------------ */

/* Commands for all data of the node cover all regions that it leads. In MULTI and scripts they cover the
 * region in which these run. */
static bool is_for_all(const struct command *cmd, const struct session *s, const bytes *argv)
{
    if (!cmd || s->tx) return false;
    return cmd->run == cmd_keys || cmd->run == cmd_scan || cmd->run == cmd_dbsize ||
           cmd->run == cmd_cluster_keys || cmd->run == cmd_randomkey || cmd->run == cmd_flushall ||
           cmd->run == cmd_flushdb || cmd->run == cmd_bgsave || is_populate(cmd, argv);
}

/* Links the keyspaces of the regions that evaluate, in the order of their slots; if there are none, those of
 * all that have data. Returns the first region. */
static struct region *link_regions(struct cluster *c)
{
    const struct region_map *map = &c->server->node.regions;
    struct region *first = NULL, *last = NULL;
    bool any = false;
    for (u32 i = 1; i < c->members_n && !any; i++) any = c->members[i]->evaluating;
    for (u32 slot = 0; slot < REGION_SLOTS;) {
        struct region *r = region_map_at(map, slot);
        slot = r ? r->member->slots.last + 1u : slot + 1;
        if (!r || (any && !r->member->evaluating) || r->member->install) continue;
        if (last) last->ks.next = &r->ks;
        else first = r;
        last = r;
    }
    if (!last) return map->first;
    last->ks.next = &first->ks;
    return first;
}

static void unlink_ring(struct keyspace *first)
{
    for (struct keyspace *ks = first, *next; ks->next != ks; ks = next) {
        next = ks->next;
        ks->next = ks;
    }
}

void cluster_unlink(struct cluster *c) { unlink_ring(&c->server->node.regions.first->ks); }

/* A fence that passes when the evaluations of all regions are committed or confirmed. */
static struct fence *fence_of_all(struct cluster *c)
{
    struct member_joint *j = c->joint;
    if (j) return j->fence;
    for (u32 i = 1; i < c->members_n; i++) {
        if (!c->members[i]->evaluating) continue;
        if (!j) j = mem_zalloc(sizeof *j);
        c->members[i]->replies.joint = j;
        j->regions++;
    }
    if (!j) return NULL;
    c->joint = j;
    return j->fence = fence_open(&c->server->net);
}

static struct region *enter_all(struct cluster *c)
{
    for (u32 i = 1; i < c->members_n; i++)
        if (c->members[i]->region) enter(c->members[i]);
    for (u32 i = 1; i < c->members_n; i++)
        if (c->members[i]->led && !c->members[i]->evaluating) return NULL;
    fence_enforce(&c->server->net, fence_of_all(c));
    return link_regions(c);
}

/* -- one request ------------------------------------------------------------------------------- */

/* A request of a nested turn must not wait for this tick's outcome. */
struct region *cluster_enforce(struct server *s, const struct net_request *q, struct request *to)
{
    struct cluster *c = s->cluster;
    fence_enforce(&s->net, NULL);
    if (!q) return s->node.regions.first; /* blocked clients: cluster_serve */
    const struct command *cmd = q->argc ? command_of(s, q) : NULL;
    struct region *r = q->argc ? route_request(&s->node, to) : s->node.regions.first;
    if (cmd && is_for_home(cmd, to->session)) r = region_map_home(&s->node.regions);
    if (!r->member || s->node.script || (to->slot >= 0 && !cluster_at_slot(c, (u32)to->slot))) return r;
    if (cluster_slots_regions(c) > 1 && is_for_all(cmd, to->session, to->argv)) {
        struct region *first = enter_all(c);
        return first ? first : r;
    }
    if (!cmd || !touches_data(cmd, to->session, to->argv)) return r;
    enter(r->member);
    if (r->member->evaluating) cluster_autosplit_count(r->member, to->slot); /* else it does not run */
    if (!r->member->in_flight) member_enforce(r->member, true);
    return r;
}

void cluster_ran(struct region *r)
{
    if (r->ks.next != &r->ks) unlink_ring(&r->ks);
}

bool cluster_serve(struct server *s, struct region *r)
{
    if (!r->member || s->node.script) return false;
    enter(r->member);
    if (!r->member->evaluating) return false;
    member_enforce(r->member, true);
    return true;
}

/* -- WAIT -------------------------------------------------------------------------------------- */

bool cluster_leads(const struct server *s)
{
    const struct cluster *c = s->cluster;
    for (u32 i = 1; i < c->members_n; i++)
        if (member_leads(c->members[i])) return true;
    return false;
}

/* A tick's changes are proposed at its end, and nothing else is meanwhile. */
u64 cluster_next_index(struct server *s, struct region *r)
{
    struct member *m = r->member;
    struct group_status st;
    if (m->next_index && m->next_index_tick == s->net.tick.number) return m->next_index;
    group_status(m->group, &st);
    m->next_index_tick = s->net.tick.number;
    return m->next_index = st.core.last_index + 1;
}

/* The data of a merged region is in the logs of all members. */
static u64 merged_into(const struct cluster *c, u64 region, u64 *index)
{
    struct regions_here here = {NULL, 0, c->tombstones, c->tombstones_n};
    for (const struct region_tombstone *t; c->merged_n && (t = rules_merged(&here, region)); *index = 1)
        region = t->into;
    return region;
}

u32 cluster_acknowledged(const struct server *s, u64 region, u64 index)
{
    const struct cluster *c = s->cluster;
    region = merged_into(c, region, &index);
    const struct member *m = index ? cluster_member_of(c, region) : NULL;
    for (u32 i = 1; i < c->members_n && !m; i++) /* it has written nothing yet */
        if (member_leads(c->members[i])) m = c->members[i];
    return m ? group_acknowledged(m->group, index) : 0;
}

bool cluster_synced(const struct server *s, u64 region, u64 index)
{
    const struct member *m = cluster_member_of(s->cluster, region);
    struct group_status st;
    if (!m) return true;
    group_status(m->group, &st);
    return st.core.persisted >= index;
}

/* -- committing -------------------------------------------------------------------------------- */

/* A slice of the expire cycle is over. */
static bool commit_reclaimed(struct cluster *c)
{
    struct member *m = c->reclaiming;
    c->reclaiming = NULL;
    if (!m) return true;
    cluster_stir(m);
    if (m->expiring) {
        cluster_end_expiry(m);
        return true;
    }
    return m->in_flight || m->evaluating || member_commit_reclaim(m);
}

bool cluster_unsettled(const struct region *r)
{
    const struct member *m = r->member;
    return !region_settled(r) && !(m && (m->in_flight || m->evaluating || m->install || m->unsaved));
}

static bool commit_others(struct cluster *c)
{
    bool kept = true;
    for (u32 i = 0; i < c->members_n; i++) {
        struct member *m = c->members[i];
        if (!m->region || region_settled(m->region) || m->install) continue;
        kept &= m->in_flight || m->evaluating || member_commit_reclaim(m);
    }
    return kept;
}

bool cluster_commit(struct server *s, enum commit_kind kind)
{
    struct region *r = s->node.regions.first;
    switch (kind) {
    case COMMIT_TICK:
        end_ticks(s->cluster);
        return true;
    case COMMIT_PART:
        return false; /* what a tick did is one entry: a long script's part of it can't be split off */
    case COMMIT_LOAD_PART:
    case COMMIT_LOAD_END: /* a snapshot that is installed: aside, then with member_adopt */
        r->eng->relaxed = kind == COMMIT_LOAD_PART;
        bool kept = region_commit(r);
        r->eng->relaxed = false;
        return kept;
    case COMMIT_EXPIRY: return commit_reclaimed(s->cluster);
    default: return commit_others(s->cluster);
    }
}

/* -- may it run here? -------------------------------------------------------------------------- */

static bool writes(const struct request *q, const struct command *cmd)
{
    u32 flags = multi_flags(q->session, cmd);
    if (cmd->run == cmd_exec) return flags & (CMD_WRITE | CMD_MAY_REPLICATE); /* … a script that may write */
    return flags & CMD_WRITE || is_populate(cmd, q->argv);
}

/* A READONLY connection may read on any member. */
static bool may_follow(const struct request *q, const struct command *cmd)
{
    return q->session->readonly && multi_flags(q->session, cmd) & CMD_READONLY && !writes(q, cmd);
}

static bool may_be_stale(const struct server *s) { return s->config.cluster_allow_stale_reads; }

static const struct cluster_node *leader_of(const struct member *m)
{
    const struct cluster *c = m->cluster;
    u64 leader = c->started ? group_leader(m->group) : 0;
    const struct cluster_node *n = leader ? cluster_node_of(m->cluster, leader) : NULL;
    return n && n != c->nodes ? n : NULL;
}

static struct member *member_for(const struct cluster *c, const struct request *q, const struct command *cmd)
{
    struct member *m = q->slot >= 0 ? cluster_at_slot(c, (u32)q->slot) : NULL;
    if (is_for_home(cmd, q->session)) m = cluster_meta(c);
    return m ? m : cluster_first(c);
}

static const char *send_elsewhere(struct member *m, i32 slot)
{
    struct cluster *c = m->cluster;
    const struct cluster_node *n = leader_of(m);
    if (!n) return "CLUSTERDOWN The cluster is down";
    if (cluster_is_meta(m)) slot = 0; /* functions: clients follow, and who leads region 0 leads slot 0 */
    if (slot == SLOT_NONE) return "READONLY You can't write against a read only replica.";
    snprintf(c->moved, sizeof c->moved, "MOVED %d %s:%d", slot, n->host, n->port);
    return c->moved;
}

/* The follower read that the session waits for. It is invalid if a split or a merge has given the slot to
 * another region since. */
static u64 *read_wanted(struct session *s, const struct member *m)
{
    if (s->read_region != m->number) s->read_wanted = 0;
    s->read_region = m->number;
    return &s->read_wanted;
}

/* No region of this node has the slot: to the leader that the map knows, or a member that will know one. A
 * member that comes later knows nothing of the reads of the one that was here. */
static const char *send_by_map(struct cluster *c, struct session *s, i32 slot)
{
    const struct map_region *row = map_at(&c->map, (u32)slot);
    const struct cluster_node *n = row && row->leader ? cluster_node_of(c, row->leader) : NULL;
    s->read_wanted = 0;
    for (u32 i = 0; row && i < row->at.conf.voters_n && (!n || n == c->nodes); i++)
        n = cluster_node_of(c, row->at.conf.voters[i]);
    if (!n || n == c->nodes) return ROUTE_UNSERVED;
    snprintf(c->moved, sizeof c->moved, "MOVED %d %s:%d", slot, n->host, n->port);
    return c->moved;
}

const char *cluster_elsewhere(void *owner, const struct request *q, const struct command *cmd)
{
    struct server *s = owner;
    struct cluster *c = s->cluster;
    if (is_for_both(q, cmd))
        return "CROSSSLOT A transaction can't be about functions and keys in cluster mode";
    if (q->slot >= 0 && !cluster_at_slot(c, (u32)q->slot)) return send_by_map(c, q->session, q->slot);
    struct member *m = member_for(c, q, cmd);
    bool queued = q->session->tx && cmd->flags & CMD_OF_KEYSPACE;
    if (!queued && !touches_data(cmd, q->session, q->argv)) return NULL;
    if (c->diverged) return "CLUSTERDOWN The data of this node differs from that of the others";
    if (cluster_slots_regions(c) > 1 && is_for_all(cmd, q->session, q->argv) && cluster_leads(s)) return NULL;
    if (m->in_flight || m->evaluating || member_leads(m))
        return NULL; /* a leader that can't evaluate yet: it waits */
    if (q->slot == SLOT_NONE && !writes(q, cmd)) return NULL; /* KEYS, DBSIZE …: what this node has */
    bool failed = member_read_failed(m, read_wanted(q->session, m));
    bool readable = (!failed && group_leader(m->group)) || may_be_stale(s);
    if (may_follow(q, cmd) && readable && !m->install) return NULL;
    return member_awaits_leader(m) ? NULL : send_elsewhere(m, q->slot); /* it waits */
}

static u32 holds_for_all(struct cluster *c)
{
    for (u32 i = 1; i < c->members_n; i++) {
        const struct member *m = c->members[i];
        if (!member_leads(m) || m->evaluating) continue;
        c->wants_all = c->flying > 0;
        return HOLD_RAFT;
    }
    return 0;
}

u32 cluster_holds(struct server *s, const struct request *q, const struct command *cmd)
{
    struct cluster *c = s->cluster;
    if (!touches_data(cmd, q->session, q->argv)) return 0;
    if (cluster_slots_regions(c) > 1 && is_for_all(cmd, q->session, q->argv)) return holds_for_all(c);
    struct member *m = member_for(c, q, cmd);
    if (m->evaluating) return 0;
    if (m->in_flight || member_leads(m)) return HOLD_RAFT;
    if (q->slot == SLOT_NONE && !writes(q, cmd)) return 0;
    bool follows = may_follow(q, cmd);
    if (follows && may_be_stale(s) && !m->install) return 0;
    if (member_awaits_leader(m)) return HOLD_RAFT;
    if (!follows) return 0;
    cluster_stir(m);
    return member_may_read(m, read_wanted(q->session, m)) ? 0 : HOLD_RAFT;
}
