/* Merging regions (raft/merge.h, cluster/merge_rules.h): CLUSTER MERGE and the scheduler's step, the periodic
 * work of leaders, how a target takes its source over, and how nodes exchange information about merges
 * (cluster/region_rules.h, rules 8 to 10).
 *
 * A merge begins on the node that leads the target. Its leader gets the request, and waits until the source's
 * leadership has been transferred to it.
 *
 * A target takes its source over outside of ticks and of the groups' own work, when no code is using a
 * region. Its COMMIT waits until then.
 *
 * Messages:
 *     CLUSTER_MERGE      source · target, each u64: a request to merge
 *     CLUSTER_MERGE_ASK  source · target · its version, each u64: has it been merged, or will it never be?
 *     CLUSTER_MERGED     source · target · its version · whether that merge will never happen, each u64; then
 *                        lines of all merges that the sender knows, "region into version" */
#include <stdio.h>

#include "base/clock.h"
#include "base/endian.h"
#include "cluster/cluster_parts.h"
#include "cluster/merge_rules.h"
#include "cluster/message.h"
#include "cluster/snapshot.h"
#include "repl/primary.h"
#include "server/client/block.h"
#include "server/client/migrate.h"
#include "server/save/persistence.h"

#define MERGE_WISH_TIMEOUTS 4 /* how long a wish waits for leadership */
#define MERGE_ASK_MS 1000

/* -- tombstones -------------------------------------------------------------------------------- */

bool cluster_is_merged(const struct cluster *c, u64 region)
{
    struct regions_here here = {NULL, 0, c->tombstones, c->tombstones_n};
    return c->merged_n && rules_merged(&here, region);
}

void cluster_add_merged(struct cluster *c, u64 region, u64 into, u32 version)
{
    struct member *m = cluster_member_of(c, region);
    if (cluster_is_merged(c, region)) return; /* it never changes */
    struct region_tombstone *t = cluster_add_tombstone(c, region, 0);
    t->into = into, t->version = version;
    c->merged_n++;
    c->may_bury = true;
    if (m) m->merged = true;
}

void cluster_print_merged(const struct cluster *c, struct buf *out)
{
    for (u32 i = 0; i < c->tombstones_n; i++) {
        const struct region_tombstone *t = &c->tombstones[i];
        if (t->into) buf_printf(out, "%llu %llu %u\n", (ull)t->region, (ull)t->into, t->version);
    }
}

void cluster_learn_merged(struct cluster *c, bytes lines)
{
    struct buf text = {0};
    ull region, into;
    unsigned version;
    int used;
    u32 before = c->merged_n;
    buf_append_bytes(&text, lines);
    buf_append_char(&text, '\0');
    for (const char *p = text.p; sscanf(p, "%llu %llu %u\n%n", &region, &into, &version, &used) == 3;
         p += used)
        if (region && into) cluster_add_merged(c, region, into, version);
    buf_release(&text);
    if (c->merged_n == before) return;
    cluster_meta(c)->unsaved = true; /* with the next commit */
    cluster_stir(cluster_meta(c));
}

static void merge_answer(struct cluster *c, const struct cluster_node *to, const u64 about[3], bool refused)
{
    struct buf body = {0};
    for (int i = 0; i < 3; i++) append_le64(&body, about[i]);
    append_le64(&body, refused);
    cluster_print_merged(c, &body);
    if (to && to->link) bus_send(to->link, CLUSTER_MERGED, (bytes){0}, buf_bytes(&body));
    buf_release(&body);
}

bool cluster_was_merged(struct cluster *c, const struct message_head *h)
{
    const u64 about[3] = {h->region, 0, 0};
    if (LIKELY(!c->merged_n)) return false;
    const struct member *m = cluster_member_of(c, h->region);
    if (m ? !m->merged : !cluster_is_merged(c, h->region)) return false;
    merge_answer(c, cluster_node_of(c, h->from), about, false);
    return true;
}

/* -- questions --------------------------------------------------------------------------------- */

/* Rule 10. */
static bool merge_refused(const struct cluster *c, u64 source, u64 target, u32 version)
{
    struct region_here *members = mem_alloc(c->members_n * sizeof *members);
    struct regions_here here = cluster_here(c, members);
    bool refused = rules_merge_refused(&here, source, target, version);
    mem_free(members);
    return refused;
}

void cluster_merge_asked(struct cluster *c, const char *from, bytes body)
{
    if (body.n != 24) return;
    const u64 about[3] = {get_le64(body.p), get_le64(body.p + 8), get_le64(body.p + 16)};
    bool refused = about[1] && merge_refused(c, about[0], about[1], (u32)about[2]);
    if (refused || cluster_is_merged(c, about[0]))
        merge_answer(c, cluster_find(c, from, BUS_NODE_ID), about, refused);
}

void cluster_merge_answered(struct cluster *c, bytes body)
{
    if (body.n < 32) return;
    cluster_learn_merged(c, bytes_of(body.p + 32, body.n - 32));
    struct member *s = cluster_member_of(c, get_le64(body.p));
    const struct raft_merge *merge = s ? &s->at.merge : NULL;
    if (!get_le64(body.p + 24) || !s || s->merged || merge->role != RAFT_MERGE_SOURCE) return;
    bool same = merge->other == get_le64(body.p + 8) && merge->version == get_le64(body.p + 16);
    if (same) s->refused_index = merge->index;
}

static void merge_ask(struct member *m, struct cluster_node *n)
{
    const struct raft_merge *merge = &m->at.merge;
    bool source = merge->role == RAFT_MERGE_SOURCE;
    char body[24];
    put_le64(body, m->number);
    put_le64(body + 8, source ? merge->other : 0);
    put_le64(body + 16, source ? merge->version : 0);
    if (n->link) bus_send(n->link, CLUSTER_MERGE_ASK, (bytes){0}, bytes_of(body, sizeof body));
}

/* Another node, by turns; NULL: there is none. */
static struct cluster_node *merge_whom(struct cluster *c)
{
    u64 n = 0;
    for (const struct cluster_node *o = c->nodes->next; o; o = o->next) n++;
    if (!n) return NULL;
    struct cluster_node *o = c->nodes->next;
    for (u64 i = c->merge_asked++ % n; i; i--) o = o->next;
    return o;
}

/* Whether this node has to ask others about a member's region: it is no longer in the map, or it is a
 * source whose target has left this node. Otherwise a member that never campaigns would wait for ever. */
static bool merge_wonders(const struct member *m)
{
    const struct cluster *c = m->cluster;
    const struct raft_merge *merge = &m->at.merge;
    if (m->merged || !c->map.n) return false;
    const struct member *t = merge->role == RAFT_MERGE_SOURCE ? cluster_member_of(c, merge->other) : m;
    return !t || (t != m && !t->region) || !map_find(&c->map, m->number);
}

static void merge_ask_step(struct cluster *c, i64 now_ms)
{
    if (now_ms - c->merge_ask_ms < MERGE_ASK_MS) return;
    c->merge_ask_ms = now_ms;
    for (u32 i = 1; i < c->members_n; i++) {
        struct member *m = c->members[i];
        struct cluster_node *n = merge_wonders(m) ? merge_whom(c) : NULL;
        if (n) merge_ask(m, n);
    }
}

/* -- the takeover ------------------------------------------------------------------------------ */

bool cluster_source_ready(struct member *m, const struct raft_merge_commit *commit)
{
    const struct member *s = cluster_member_of(m->cluster, commit->source);
    const struct raft_merge *merge = s ? &s->at.merge : NULL;
    bool prepared = s && s->region && !s->install && merge->role == RAFT_MERGE_SOURCE &&
                    merge->index == commit->index && !s->reads_n; /* those are confirmed in a moment */
    m->wanted = *commit;
    m->cluster->merges = true;
    return prepared && m->may_merge;
}

/* Ends other uses of the two regions than requests. Transactions with watched keys fail, and are retried. */
static void merge_end_use(struct member *m, struct member *s)
{
    struct server *server = m->server;
    snapshot_restart(server); /* BGSAVE has views of both */
    cluster_before_split(m);
    cluster_before_split(s);
    snapshot_forget(s);
    check_stop(s);
    migrate_distrust(server);
    watch_distrust(&s->region->watches, 0);
    watch_distrust(&m->region->watches, 0);
}

/* One transaction: the target's state and slots, and the tombstone. It also ends the source's engine. */
static void merge_engines(struct member *m, struct member *s, const struct raft_applied *at)
{
    struct cluster *c = m->cluster;
    struct engine *into = m->region->eng, *from = s->region->eng;
    if (!rocks_align(into, from))
        cluster_die(c, "the storage can't keep a merge that a quorum has committed");
    region_begin(m->region, (i64)at->clock_ms);
    cluster_add_merged(c, s->number, m->number, at->epoch.version);
    member_forget(m, s->number);
    member_adopt(m, at);
    into->relaxed = true;
    crash_point("cluster-merge-1");
    if (!rocks_merge(into, from, at->index))
        cluster_die(c, "the storage can't keep a merge that a quorum has committed");
    crash_point("cluster-merge-2");
    into->relaxed = false;
    s->region->eng = NULL;
}

/* Clients that wait for keys of the source wait for the target now, if it may serve them. */
static void merge_regions(struct member *m, struct region *from, const struct raft_applied *at,
                          const struct raft_merge_commit *commit)
{
    struct cluster *c = m->cluster;
    region_map_give(&m->server->node.regions, m->region, at->slots.first, at->slots.last);
    if (member_leads(m)) block_split(m->server, from, m->region);
    else wait_refuse_region(m->server, commit->source);
    block_refuse_region(m->server, from);
    m->slots = at->slots;
    m->region->ks.first_slot = at->slots.first;
    keyspace_add_stats(&m->region->ks, &from->ks);
    cluster_release_region(c, from);
}

static void merge_note(struct member *m, u64 source)
{
    m->merges++;
    m->looked_ms = 0;
    cluster_autosplit_note(m);
    m->one_slot = m->one_slot_load = false;
    if (!m->decision[0] || m->led)
        snprintf(m->decision, sizeof m->decision, "has taken over region %llu", (ull)source);
    log_line(&m->server->log, LOG_NOTICE,
             "Region %llu was merged into region %llu, which has the slots %u to %u.", (ull)source,
             (ull)m->number, m->slots.first, m->slots.last);
}

void cluster_take_source(struct member *m, const struct raft_applied *at,
                         const struct raft_merge_commit *commit)
{
    struct cluster *c = m->cluster;
    struct member *s = cluster_member_of(c, commit->source);
    struct region *from = s->region;
    struct raft_log *log = s->log;
    CHECK(!m->in_flight && !m->evaluating && !s->in_flight && !s->evaluating);
    CHECK(s->at.merge.role == RAFT_MERGE_SOURCE && s->at.merge.index == commit->index);
    member_save(m);
    member_save(s);
    merge_end_use(m, s);
    m->requests += s->requests, m->requests_before += s->requests_before; /* its load is the sum */
    s->log = NULL; /* member_close would keep it */
    member_close(s);
    merge_engines(m, s, at);
    merge_regions(m, from, at, commit);
    member_took(m, at);
    cluster_log_destroy(log); /* after the transaction: a crash never leaves only this */
    merge_note(m, s->number);
    cluster_drop_member(s);
    cluster_moved_on(c);
}

/* A target's COMMIT proves that its source's PREPARE is committed. */
static void merge_catch_up(struct member *m)
{
    struct cluster *c = m->cluster;
    struct member *s = cluster_member_of(c, m->wanted.source);
    group_wall(m->group, (u64)clock_wall_ms());
    if (s && s->group && !s->install) {
        group_wall(s->group, (u64)clock_wall_ms());
        group_committed(s->group, m->wanted.index, m->wanted.term);
        cluster_stir(s);
    }
    m->wanted.source = 0;
    m->may_merge = true;
    group_retry(m->group);
    m->may_merge = false;
    cluster_stir(m);
}

/* -- leaders ----------------------------------------------------------------------------------- */

static struct merge_member merge_side(const struct cluster *c, u64 region)
{
    const struct member *m = cluster_member_of(c, region);
    return (struct merge_member){region, m && m->region && !m->install && !m->gone ? m->group : NULL};
}

static void merge_lead(struct member *m, u64 ticks)
{
    struct cluster *c = m->cluster;
    const struct raft_merge *merge = &m->at.merge;
    struct merge_member own = {m->number, m->group}, other = merge_side(c, merge->other);
    bool news = merge->index != m->merge_index;
    m->merge_ticks = news ? 0 : m->merge_ticks + ticks;
    m->merge_index = merge->index;
    if (!member_leads(m) || m->install) return;
    group_wall(m->group, (u64)clock_wall_ms());
    if (other.group) group_wall(other.group, (u64)clock_wall_ms());
    if (merge->role == RAFT_MERGE_TARGET) {
        merge_target(&own, &other, m->merge_ticks);
        if (other.group) cluster_stir(cluster_member_of(c, merge->other));
    } else if (news || ticks) {
        bool refused = m->refused_index == merge->index ||
                       merge_lost(&own, &other, cluster_member_of(c, merge->other) != NULL) ||
                       merge_refused(c, m->number, merge->other, merge->version);
        merge_source(&own, &other, refused);
    }
    cluster_stir(m);
}

static void merge_begin_wished(struct member *t)
{
    struct cluster *c = t->cluster;
    struct merge_member target = merge_side(c, t->number), source = merge_side(c, t->wish);
    enum merge_refusal why = MERGE_LEADERS;
    if (target.group && source.group && group_is_leader(source.group) && group_is_leader(target.group)) {
        group_wall(target.group, (u64)clock_wall_ms());
        why = merge_begin(&target, &source);
        cluster_stir(t);
    }
    bool later = why == MERGE_LEADERS || why == MERGE_BUSY || why == MERGE_LATER;
    if (!later || (i64)uv_now(&c->server->loop) > t->wish_until_ms) t->wish = 0;
}

/* False: there is nothing more to do for this member. */
static bool merge_step(struct member *m, u64 ticks)
{
    if (m->wish) merge_begin_wished(m);
    if (m->at.merge.role) merge_lead(m, ticks);
    else m->merge_index = m->merge_ticks = 0;
    return m->wish || m->at.merge.role || m->wanted.source;
}

void cluster_merge_step(struct cluster *c, u64 ticks)
{
    bool more = false;
    if (ticks) merge_ask_step(c, (i64)uv_now(&c->server->loop));
    if (LIKELY(!c->merges)) return;
    for (u32 i = 1; i < c->members_n; i++) more |= merge_step(c->members[i], ticks);
    c->merges = more;
    if (cluster_members_used(c)) return;
    for (u32 i = 1; i < c->members_n; i++) /* it may take a member away: one that moves up is next */
        if (c->members[i]->wanted.source && c->members[i]->group) merge_catch_up(c->members[i]);
}

/* -- wishes ------------------------------------------------------------------------------------ */

void cluster_take_wish(struct cluster *c, bytes body)
{
    struct member *t = body.n == 16 ? cluster_member_of(c, get_le64(body.p + 8)) : NULL;
    if (!t || cluster_is_meta(t) || !t->region) return;
    t->wish = get_le64(body.p);
    t->wish_until_ms = (i64)uv_now(&c->server->loop) +
                       MERGE_WISH_TIMEOUTS * c->server->config.cluster_node_timeout;
    c->merges = true;
}

/* Both are led here. */
static const char *merge_begin_here(struct member *s, struct member *t)
{
    struct merge_member target = {t->number, t->group}, source = {s->number, s->group};
    cluster_end_part(s);
    cluster_end_part(t);
    group_wall(t->group, (u64)clock_wall_ms());
    enum merge_refusal why = merge_begin(&target, &source);
    cluster_stir(t);
    t->cluster->merges = true;
    return why == MERGE_BEGUN ? NULL : "TRYAGAIN Not just now";
}

static const char *merge_wish(struct member *s, struct member *t)
{
    struct cluster *c = s->cluster;
    u64 leader = group_leader(t->group), to = leader ? conf_peer_on(&s->at.conf, node_of(leader)) : 0;
    const struct cluster_node *n = to ? cluster_node_of(c, to) : NULL;
    char body[16];
    if (!raft_slots_adjoin(s->at.slots, t->at.slots)) return "ERR The regions are not neighbours";
    if (!rules_same_nodes(&t->at.conf, &s->at.conf))
        return "ERR Both regions must have their members on the same nodes";
    if (!n || s->at.merge.role || t->at.merge.role) return "TRYAGAIN Not just now";
    if (n == c->nodes) return member_leads(t) ? merge_begin_here(s, t) : "TRYAGAIN Not just now";
    put_le64(body, s->number);
    put_le64(body + 8, t->number);
    if (!n->link || !bus_send(n->link, CLUSTER_MERGE, (bytes){0}, bytes_of(body, sizeof body)))
        return "TRYAGAIN Not just now";
    group_wall(s->group, (u64)clock_wall_ms());
    group_transfer(s->group, to);
    cluster_stir(s);
    return NULL;
}

/* The neighbour that a region is merged into: one on the same nodes, preferably the one below. */
static struct member *merge_neighbour(const struct cluster *c, const struct member *m)
{
    struct raft_slots own = m->at.slots;
    struct member *below = own.first ? cluster_at_slot(c, own.first - 1u) : NULL;
    struct member *above = own.last + 1u < RAFT_SLOTS ? cluster_at_slot(c, own.last + 1u) : NULL;
    bool fits = below && rules_same_nodes(&below->at.conf, &m->at.conf);
    return fits || !above ? below : above;
}

const char *cluster_merge(struct cluster *c, u64 region)
{
    struct member *s = cluster_member_of(c, region);
    if (!s || cluster_is_meta(s) || !s->region || !member_leads(s))
        return "ERR Ask the node that leads the region: see CLUSTER REGIONS";
    struct member *t = merge_neighbour(c, s);
    if (s->at.slots.first == 0 && s->at.slots.last == RAFT_SLOTS - 1)
        return "ERR The region has no neighbour";
    return t ? merge_wish(s, t) : "ERR Both regions must have their members on the same nodes";
}

const char *cluster_merge_into(struct member *s, u64 into)
{
    struct member *t = cluster_member_of(s->cluster, into);
    return t && t->region && !cluster_is_meta(t) ? merge_wish(s, t) : "ERR No such region on this node";
}
