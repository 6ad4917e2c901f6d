/* The regions of this node: finding, opening, making and splitting them. */
#include "base/clock.h"
#include "cluster/cluster_parts.h"
#include "cluster/snapshot.h"
#include "raft/plant.h"
#include "raft/split.h"
#include "server/client/block.h"

#include <stdlib.h>

#define HEARTBEAT_TICKS 2
#define LOG_ENTRIES_MAX 100000 /* a member that is further behind gets a snapshot */

/* -- the table --------------------------------------------------------------------------------- */

/* Where the member of a region is, or would be. */
static u32 regions_place(const struct cluster *c, u64 region)
{
    u32 low = 0, high = c->members_n;
    while (low < high) {
        u32 mid = (low + high) / 2;
        if (c->members[mid]->number < region) low = mid + 1;
        else high = mid;
    }
    return low;
}

struct member *cluster_member_of(const struct cluster *c, u64 region)
{
    u32 at = regions_place(c, region);
    return at < c->members_n && c->members[at]->number == region ? c->members[at] : NULL;
}

struct member *cluster_at_slot(const struct cluster *c, u32 slot)
{
    const struct region *r = region_map_at(&c->server->node.regions, slot);
    return r ? r->member : NULL;
}

static void regions_insert(struct cluster *c, struct member *m)
{
    u32 at = regions_place(c, m->number);
    if (c->members_n == c->members_cap) {
        c->members_cap = c->members_cap ? c->members_cap * 2 : 16;
        c->members = mem_realloc(c->members, c->members_cap * sizeof *c->members);
    }
    memmove(c->members + at + 1, c->members + at, (c->members_n - at) * sizeof *c->members);
    c->members[at] = m;
    c->members_n++;
}

/* -- groups ------------------------------------------------------------------------------------ */

static void regions_on_durable(void *arg, u64 number)
{
    struct member *m = arg;
    if (!m->group) return;
    group_wall(m->group, (u64)clock_wall_ms());
    group_durable(m->group, number);
    if (!m->in_flight) m->slices = 0;
    cluster_stir(m);
    m->cluster->acked = true;
}

static void print_core(void *log UNUSED, int level UNUSED, const char *text UNUSED, size_t size UNUSED) {}

/* In a build that tests the tests. */
static void plant_bugs(struct group *g UNUSED)
{
#ifdef MAYFLY_PLANT
    const char *bugs = getenv("MAYFLY_PLANT");
    group_plant(g, bugs ? (u32)atoi(bugs) : 0);
#endif
}

void cluster_start_member(struct member *m)
{
    struct cluster *c = m->cluster;
    u64 *seeds = &cluster_meta(c)->region->seeds;
    struct group_config config = {
        .id = m->peer,
        .seed = rand_next(seeds),
        .nonce = rand_next(seeds),
        .election_ticks = ELECTION_TICKS,
        .heartbeat_ticks = HEARTBEAT_TICKS,
        .read_retry_ticks = 2,
        .read_timeout_ticks = 2 * ELECTION_TICKS,
        .sleep_ticks = ELECTION_TICKS,
        .log_entries_max = LOG_ENTRIES_MAX,
        .print = print_core,
    };
    m->checked_ms = (i64)uv_now(&c->server->loop);
    member_start(m, &config, cluster_log_open(c->logs, m->number, regions_on_durable, m));
    cluster_awake(m, true);
    plant_bugs(m->group);
    const struct raft_conf *conf = &m->at.conf;
    if (conf->voters_n) member_await_leader(m); /* of a split: its parent's leader campaigns at once */
    if (conf->voters_n == 1 && conf->voters[0] == m->peer) group_campaign(m->group);
    cluster_stir(m);
}

struct member *cluster_new_member(struct cluster *c, u64 number, struct region *r, u64 peer)
{
    struct member *m = mem_alloc(sizeof *m);
    member_open(m, c, r, number, peer);
    m->merged = cluster_is_merged(c, number);
    regions_insert(c, m);
    c->may_bury = true;
    cluster_autosplit_note(m);
    if (c->started) cluster_start_member(m);
    return m;
}

/* -- opening ----------------------------------------------------------------------------------- */

struct region *cluster_new_region(struct cluster *c, const struct rocks_region *of)
{
    struct server *s = c->server;
    struct buf why = {0};
    struct engine *e = rocks_region_open(s->rocks, of, &why);
    if (!e)
        log_line(&s->log, LOG_WARNING, "Region %llu can't be opened: %.*s", (ull)of->id, (int)why.n, why.p);
    buf_release(&why);
    if (!e) return NULL;
    struct region *r = mem_alloc(sizeof *r);
    region_init(r, &s->node, e, rand_next(&cluster_meta(c)->region->seeds));
    region_map_add(&s->node.regions, r, of->first, of->last);
    cluster_unlink(c);
    if (cluster_meta(c)->region->listeners & LISTEN_TRACK) region_listen(r, LISTEN_TRACK, true);
    if (c->started) server_apply_config(s);
    return r;
}

struct regions_found {
    struct rocks_region *v;
    u32 n;
};

static bool regions_note(void *arg, const struct rocks_region *r)
{
    struct regions_found *f = arg;
    if (r->id == CLUSTER_META) return true;
    f->v = mem_realloc(f->v, (f->n + 1) * sizeof *f->v);
    f->v[f->n++] = *r;
    return true;
}

bool cluster_open_regions(struct cluster *c)
{
    struct regions_found f = {0};
    bool ok = true;
    cluster_empty_discarded(c);
    rocks_regions_each(c->server->rocks, regions_note, &f);
    for (u32 i = 0; i < f.n && ok; i++) {
        struct region *r = cluster_new_region(c, &f.v[i]);
        ok = r != NULL;
        if (ok) region_begin(r, member_clock(cluster_new_member(c, f.v[i].id, r, 0)));
    }
    mem_free(f.v);
    return ok;
}

/* -- splitting --------------------------------------------------------------------------------- */

/* A number that no other region ever has. It contains the child's first slot and its version: two regions
 * that begin at the same slot never have the same version, because the version of the region that has a slot
 * only grows. The initial regions of a cluster have smaller numbers. */
static u64 regions_child_number(const struct member *m, u32 slot)
{
    return (u64)(m->at.epoch.version + 1) << 14 | slot;
}

/* The lower region keeps the log, each child starts as its parent is. */
void cluster_make_regions(struct cluster *c)
{
    struct member *m = cluster_member_of(c, CLUSTER_REGION);
    u32 n = (u32)c->server->config.cluster_regions;
    for (u32 i = n; i-- > 1;) {
        struct raft_split split = {i + 1, (u16)(i * RAFT_SLOTS / n)};
        struct raft_applied at = m->at, child = raft_split_apply(&split, &at);
        member_split(m, &at, split.child, &child);
    }
}

/* Their data is that of one region. What BGSAVE saves stays as it was. */
void cluster_before_split(struct member *m)
{
    check_end_view(m);
    snapshot_give_up(m);
}

/* A member that messages have made before its parent was split here: its log may hold a vote. */
static void regions_replace_early(struct cluster *c, u64 number)
{
    struct member *m = cluster_member_of(c, number);
    if (!m) return;
    CHECK(!m->region);
    snapshot_give_up(m);
    snapshot_forget(m);
    member_close(m);
    cluster_drop_member(m);
}

void cluster_add_child(struct member *m, const struct rocks_region *child, const struct raft_applied *at)
{
    struct cluster *c = m->cluster;
    regions_replace_early(c, child->id);
    struct region *r = cluster_new_region(c, child);
    if (!r) cluster_die(c, "a region that was split off can't be opened");
    struct member *made = cluster_new_member(c, child->id, r, m->peer);
    m->splits++;
    m->looked_ms = 0;                 /* both are smaller now … */
    cluster_autosplit_note(m);
    m->requests_before = m->requests; /* … and get less */
    region_begin(r, (i64)MAX(at->clock_ms, 1u));
    if (!c->started) return;
    watch_distrust(&m->region->watches, 0); /* watched keys may be the child's now: transactions run again */
    block_split(c->server, m->region, r);
    log_line(&c->server->log, LOG_NOTICE, "Region %llu has the slots %u to %u of region %llu.",
             (ull)child->id, child->first, child->last, (ull)m->number);
    if (m->led) group_campaign(made->group);
    cluster_moved_on(c);
}

const char *cluster_split(struct cluster *c, u32 slot)
{
    struct member *m = cluster_at_slot(c, slot);
    if (!m || !member_leads(m)) return "ERR Ask the node that leads the slot's region: see CLUSTER REGIONS";
    struct raft_split split = {regions_child_number(m, slot), (u16)slot};
    struct buf payload = {0};
    if (m->at.merge.role) return "TRYAGAIN Not just now"; /* it would be void */
    if (!raft_split_fits(&split, m->at.slots)) return "ERR A region begins at this slot already";
    cluster_end_part(m);
    group_wall(m->group, (u64)clock_wall_ms());
    raft_split_encode(&payload, &split);
    bool ok = group_propose(m->group, RAFT_KIND_SPLIT, buf_bytes(&payload));
    buf_release(&payload);
    cluster_stir(m);
    return ok ? NULL : "TRYAGAIN Not just now";
}

const char *cluster_transfer(struct cluster *c, u64 region, const char *id, size_t n)
{
    struct member *m = cluster_member_of(c, region);
    const struct cluster_node *to = cluster_find(c, id, n);
    if (!m) return "ERR No such region on this node";
    if (!to) return "ERR Unknown node";
    if (!member_leads(m)) return "ERR Ask the node that leads the region: see CLUSTER REGIONS";
    if (to == c->nodes) return NULL;
    u64 peer = conf_peer_on(&m->at.conf, to->number);
    if (!peer || !group_matched(m->group, peer)) return "ERR The node has no member of the region";
    group_wall(m->group, (u64)clock_wall_ms());
    group_transfer(m->group, peer);
    cluster_stir(m);
    return NULL;
}
