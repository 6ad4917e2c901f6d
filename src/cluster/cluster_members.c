/* The members of a node: created by messages, destroyed after they were removed. The decisions are made by
 * cluster/region_rules.h, whose rules are referred to by number and which the simulator runs, too.
 *
 * Durability. One transaction of the engine destroys a member: it deletes its data, its state and its slots,
 * and writes its tombstone. A later write of the same write-ahead log deletes its log, so a crash can
 * leave a log without a member, but not a member without a log. Such a log is deleted at start if it has
 * anything but a vote. */
#include "base/clock.h"
#include "cluster/cluster_parts.h"
#include "cluster/message.h"
#include "cluster/snapshot.h"
#include "raft/split.h"
#include "repl/primary.h"
#include "server/client/block.h"
#include "server/client/migrate.h"
#include "server/save/persistence.h"

/* -- what is here ------------------------------------------------------------------------------ */

struct regions_here cluster_here(const struct cluster *c, struct region_here *members)
{
    struct regions_here h = {members, 0, c->tombstones, c->tombstones_n};
    for (u32 i = 1; i < c->members_n; i++) {
        const struct member *m = c->members[i];
        members[h.members_n++] = (struct region_here){m->number, m->peer, m->region != NULL, m->slots,
                                                      m->at.epoch.version};
    }
    return h;
}

static enum region_message members_verdict(const struct cluster *c, const struct message_head *h)
{
    struct region_here *members = mem_alloc(c->members_n * sizeof *members);
    struct regions_here here = cluster_here(c, members);
    struct raft_slots slots = {h->first, h->last};
    enum region_message verdict = rules_message(&here, h->region, h->to, h->has_data ? &slots : NULL);
    mem_free(members);
    return verdict;
}

enum region_split cluster_split_fate(const struct cluster *c, u64 child, u64 peer)
{
    struct region_here *members = mem_alloc(c->members_n * sizeof *members);
    struct regions_here here = cluster_here(c, members);
    enum region_split fate = rules_split(&here, child, peer);
    mem_free(members);
    return fate;
}

bool cluster_may_install(const struct cluster *c, const struct member *m, const struct raft_applied *at)
{
    if (cluster_is_meta(m)) return true; /* region 0 has no slots */
    struct region_here *members = mem_alloc(c->members_n * sizeof *members);
    struct regions_here here = cluster_here(c, members);
    bool may = rules_may_install_over(&here, m->number, at->slots, at->epoch.version);
    mem_free(members);
    return may;
}

/* -- tombstones -------------------------------------------------------------------------------- */

struct region_tombstone *cluster_add_tombstone(struct cluster *c, u64 region, u64 peer)
{
    u32 i = 0;
    while (i < c->tombstones_n && c->tombstones[i].region != region) i++;
    if (i == c->tombstones_n) {
        if (c->tombstones_n == c->tombstones_cap) {
            c->tombstones_cap = c->tombstones_cap ? c->tombstones_cap * 2 : 16;
            c->tombstones = mem_realloc(c->tombstones, c->tombstones_cap * sizeof *c->tombstones);
        }
        c->tombstones[c->tombstones_n++] = (struct region_tombstone){region, 0};
    }
    c->tombstones[i].peer = MAX(c->tombstones[i].peer, peer);
    c->unsaved_tombstones = true;
    return &c->tombstones[i];
}

/* -- destroying -------------------------------------------------------------------------------- */

/* Takes it out of a list, if it is there. */
#define MEMBERS_UNLINK(list, m, next)                            \
    do {                                                         \
        struct member **at_ = (list);                            \
        while (*at_ && *at_ != (m)) at_ = &(*at_)->next;         \
        if (*at_) *at_ = (m)->next;                              \
    } while (0)

void cluster_drop_member(struct member *m)
{
    struct cluster *c = m->cluster;
    u32 at = 0;
    MEMBERS_UNLINK(&c->untold, m, untold_next);
    MEMBERS_UNLINK(&c->stirred, m, stirred_next);
    MEMBERS_UNLINK(&c->saved_later, m, saved_later_next);
    MEMBERS_UNLINK(&c->to_report, m, to_report_next);
    MEMBERS_UNLINK(&c->to_look, m, to_look_next);
    while (c->members[at] != m) at++;
    c->members_n--;
    memmove(c->members + at, c->members + at + 1, (c->members_n - at) * sizeof *c->members);
    if (c->reclaiming == m) c->reclaiming = NULL;
    mem_free(m);
}

/* Ends everything that uses the region, before its data is deleted. */
static void members_end_use(struct member *m)
{
    struct server *s = m->server;
    snapshot_give_up(m);
    snapshot_forget(m);
    check_stop(m);
    install_stop(m);
    if (!m->region) return;
    snapshot_restart(s);
    migrate_distrust(s);
    block_refuse_region(s, m->region);
    wait_refuse_region(s, m->number);
    watch_distrust(&m->region->watches, 0);
}

void cluster_release_region(struct cluster *c, struct region *r)
{
    region_map_remove(&c->server->node.regions, r);
    cluster_unlink(c);
    region_release(r);
    mem_free(r);
}

/* Data, state and tombstone: one transaction. */
static void members_erase(struct cluster *c, struct member *m, struct region *r)
{
    region_begin(r, member_clock(m));
    member_erase(m);
    install_erase(m, r->eng);
    cluster_write_nodes(c, r->eng);
    r->eng->relaxed = true;
    if (!rocks_region_drop(r->eng)) cluster_die(c, "the storage can't remove a region's data");
    cluster_release_region(c, r);
}

bool cluster_members_used(const struct cluster *c)
{
    return c->ticking || c->server->node.script || loading_busy(&c->server->persist.loading);
}

static void members_destroy(struct member *m)
{
    struct cluster *c = m->cluster;
    struct region *r = m->region;
    log_line(&c->server->log, LOG_NOTICE,
             "This node's member of region %llu was removed: its data is deleted.", (ull)m->number);
    members_end_use(m);
    struct raft_log *log = m->log;
    m->log = NULL; /* member_close would keep it */
    member_close(m);
    cluster_add_tombstone(c, m->number, m->peer);
    if (r) members_erase(c, m, r);
    else cluster_meta(c)->unsaved = true; /* the tombstone comes with the next commit */
    if (log) cluster_log_destroy(log);
    cluster_drop_member(m);
    cluster_stir(cluster_meta(c));
    cluster_moved_on(c);
}

void cluster_bury(struct member *m)
{
    m->cluster->may_bury = true;
    if (!cluster_is_meta(m)) {
        m->gone = true;
        return;
    }
    if (!m->gone)
        log_line(&m->server->log, LOG_WARNING,
                 "This node was removed from the cluster. It can join again with an empty folder.");
    m->gone = true;
}

/* Rule 9. */
static bool members_is_superseded(const struct cluster *c, const struct member *m)
{
    if (LIKELY(!m->merged)) return false;
    struct region_here *members = mem_alloc(c->members_n * sizeof *members);
    struct regions_here here = cluster_here(c, members);
    bool superseded = rules_superseded(&here, m->number);
    mem_free(members);
    return superseded;
}

/* Rule 6: a member that receives no messages learns from the map that it was removed. */
static bool members_is_gone(const struct cluster *c, const struct member *m)
{
    if (m->gone || members_is_superseded(c, m)) return true;
    const struct map_region *row = map_find(&c->map, m->number);
    return row && rules_removed(m->peer, row->at.epoch.conf_ver, &row->at.conf);
}

void cluster_destroy_superseded(struct cluster *c)
{
    for (u32 i = c->members_n; i-- > 1;)
        if (members_is_superseded(c, c->members[i])) members_destroy(c->members[i]);
}

void cluster_bury_step(struct cluster *c)
{
    if (LIKELY(!c->may_bury) || cluster_members_used(c)) return;
    c->may_bury = false;
    for (u32 i = c->members_n; i-- > 1;) {
        struct member *m = c->members[i];
        c->may_bury |= m->merged; /* until its target is there */
        if (members_is_gone(c, m)) members_destroy(m);
    }
}

void cluster_sweep_logs(struct cluster *c)
{
    for (u32 i = 0; i < c->tombstones_n; i++) {
        u64 region = c->tombstones[i].region;
        struct raft_log *log = cluster_member_of(c, region) ? NULL
                                                            : cluster_log_open(c->logs, region, NULL, NULL);
        struct raft_log_state st = {0};
        if (!log) continue;
        log->ops->load(log, &st);
        if (st.last_index) cluster_log_destroy(log);
        else cluster_log_close(log); /* the vote of a member that has no data yet */
    }
}

/* -- messages ---------------------------------------------------------------------------------- */

/* On a node that joins, the member of region 0 gets its number from the first message to it. */
static struct member *members_number_meta(struct member *m, u64 peer)
{
    if (m->at.index || m->peer >= peer) return NULL;
    group_close(m->group);
    cluster_log_close(m->log);
    m->group = NULL;
    m->log = NULL;
    m->peer = peer;
    cluster_start_member(m);
    return m;
}

struct member *cluster_addressee(struct cluster *c, const struct message_head *h)
{
    struct member *m = cluster_member_of(c, h->region);
    if (m && m->peer == h->to) return m->gone ? NULL : m;
    if (m && cluster_is_meta(m)) return members_number_meta(m, h->to);
    switch (members_verdict(c, h)) {
    case REGION_CREATE: return cluster_new_member(c, h->region, NULL, h->to);
    case REGION_REPLACE: CHECK(m); cluster_bury(m); return NULL; /* the message comes again */
    default: return NULL;
    }
}

/* Only a durable removal is announced: if the other members forgot in a crash that it was committed, they
 * would need the vote of the removed member. */
bool cluster_is_stale(struct member *m, u64 from)
{
    struct cluster *c = m->cluster;
    if (LIKELY(!m->at.index || !rules_removed(from, m->at.epoch.conf_ver, &m->at.conf))) return false;
    const struct cluster_node *n = cluster_node_of(c, from);
    char head[MESSAGE_HEAD];
    message_put(head, &(struct message_head){.region = m->number, .from = m->peer, .to = from});
    if (n && n->link && member_conf_is_durable(m))
        bus_send(n->link, CLUSTER_GONE, (bytes){0}, bytes_of(head, sizeof head));
    return true;
}

/* -- splits whose child has no member here ----------------------------------------------------- */

/* Rule 5. The transaction of the split has moved the data to a region of its own, which is dropped here or,
 * after a crash, at start. */
void cluster_drop_slots(struct cluster *c, const struct rocks_region *of)
{
    struct buf why = {0};
    struct engine *e = rocks_region_open(c->server->rocks, of, &why);
    buf_release(&why);
    if (!e) cluster_die(c, "slots that were split off can't be emptied");
    e->ops->begin(e, clock_wall_ms());
    e->relaxed = true;
    if (!rocks_region_drop(e)) cluster_die(c, "slots that were split off can't be emptied");
    e->ops->close(e);
}

void cluster_discard_slots(struct member *m, const struct rocks_region *child)
{
    cluster_drop_slots(m->cluster, child);
    region_map_keep(&m->server->node.regions, m->region, m->slots.first, m->slots.last);
    watch_distrust(&m->region->watches, 0);
    block_refuse_region(m->server, m->region);
    cluster_moved_on(m->cluster);
}

static bool members_find_discarded(void *arg, const struct rocks_region *r)
{
    struct rocks_region *found = arg;
    if (r->id == CLUSTER_NO_REGION) *found = *r;
    return r->id != CLUSTER_NO_REGION;
}

void cluster_empty_discarded(struct cluster *c)
{
    struct rocks_region found = {0};
    rocks_regions_each(c->server->rocks, members_find_discarded, &found);
    if (found.id == CLUSTER_NO_REGION) cluster_drop_slots(c, &found);
}
