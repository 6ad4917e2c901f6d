/* A node: its members, their messages, requests. */
#include "sim/sim.h"

#include "base/alloc.h"

u64 node_wall_ms(const struct node *n)
{
    i64 t = (i64)sim_true_ms(n->sim);
    u64 wall = (u64)(START_MS + t + n->clock_offset_ms + t * n->drift_ppm / 1000000);
    if (wall > n->sim->wall_max_ms) n->sim->wall_max_ms = wall;
    return wall;
}

/* ---- Members. */

/* What raft/group.c, or a crash, may leave of a member in memory. */
static void node_close(struct member *m)
{
    if (m->group) group_close(m->group);
    m->group = NULL;
    mem_free(m->incoming);
    mem_free(m->installing);
    m->incoming = m->installing = NULL;
    m->changes_n = m->open.n = m->reads_n = m->follower_reads_n = 0;
    m->gone = m->campaign = m->to_split = false, m->split_us = 0;
    m->merge_ticks = m->wanted.source = 0;
}

void node_open(struct member *m)
{
    struct node *n = m->node;
    struct sim *s = n->sim;
    struct group_config c = {.id = m->peer,
                             .seed = s->seed + m->region,
                             .nonce = ++s->nonces,
                             .election_ticks = ELECTION_TICKS,
                             .heartbeat_ticks = 2,
                             .sleep_ticks = s->sleep_ticks,
                             .read_retry_ticks = 3,
                             .read_timeout_ticks = 30,
                             .log_entries_max = 100};
    m->opened++;
    m->before = m->at.slots;
    m->group = group_open(&c, &m->log, &m->machine);
    group_plant(m->group, s->plant);
    group_wall(m->group, node_wall_ms(n));
}

struct member *node_make(struct node *n, u64 region, u64 peer)
{
    struct member *m = n->members[region];
    if (!m) {
        m = n->members[region] = mem_zalloc(sizeof(*m));
        m->machine.ops = &MEMBER_OPS, m->log.ops = &DISK_OPS, m->node = n, m->region = region;
    }
    if (m->erase) node_flush_state(n);
    if (m->exists) node_close(m);
    else if (m->peer != peer) disk_erase(m);
    m->exists = true, m->peer = peer;
    return m;
}

static void node_bury(struct node *n, u64 region, u64 peer)
{
    u32 i = 0;
    while (i < n->tombstones_n && n->tombstones[i].region != region) i++;
    if (i == n->tombstones_n) n->tombstones[n->tombstones_n++] = (struct region_tombstone){.region = region};
    n->tombstones[i].peer = MAX(n->tombstones[i].peer, peer);
}

/* It can come back with a crash, with all it had, until the next flush. */
void node_remove(struct member *m)
{
    node_close(m);
    m->exists = false, m->erase = true;
    m->at = (struct raft_applied){0};
}

void node_destroy(struct member *m)
{
    struct node *n = m->node;
    if (m->at.index) store_clear(n, m->at.slots);
    if (!(n->sim->plant & PLANT_REUSE_PEER)) node_bury(n, m->region, m->peer);
    node_remove(m);
    n->sim->destroyed++;
    sim_trace(n->sim, "node %llu destroys its member of region %llu", (unsigned long long)n->id,
              (unsigned long long)m->region);
}

struct regions_here node_here(struct node *n, struct region_here *members)
{
    struct regions_here h = {members, 0, n->tombstones, n->tombstones_n};
    EACH_MEMBER(n, m) {
        if (!m->exists) continue;
        struct region_here *r = &members[h.members_n++];
        *r = (struct region_here){m->region, m->peer, m->at.index || m->installing, m->at.slots,
                                  m->at.epoch.version};
        if (!m->installing) continue;
        struct raft_slots more = m->installing->at.slots;
        if (!m->at.index) r->slots = more;
        r->slots.first = MIN(r->slots.first, more.first), r->slots.last = MAX(r->slots.last, more.last);
    }
    return h;
}

/* ---- Life. */

static bool node_votes(const struct member *m, const struct raft_applied *at)
{
    for (u32 i = 0; i < at->conf.voters_n; i++)
        if (at->conf.voters[i] == m->peer) return true;
    return false;
}

void node_flush_state(struct node *n)
{
    memcpy(n->flushed, n->store, offsetof(struct store, cell) + n->store->keys * sizeof(struct cell));
    memcpy(n->flushed_tombstones, n->tombstones, sizeof(n->tombstones));
    n->flushed_tombstones_n = n->tombstones_n;
    EACH_MEMBER(n, m) {
        if (m->erase) disk_erase(m);
        m->erase = false;
        m->flushed_exists = m->exists, m->flushed_at = m->at;
        struct raft_applied *durable = &n->sim->region[m->region].durable;
        if (m->at.index > durable->index && node_votes(m, &m->at)) *durable = m->at;
    }
}

static void node_flush(struct node *n)
{
    EACH_MEMBER(n, m)
        if (m->group && sim_chance(n->sim, 50)) member_reclaim(m);
    node_flush_state(n);
    EACH_MEMBER(n, m)
        if (m->group && !m->installing) group_compact(m->group, m->flushed_at.index);
}

void node_start(struct sim *s, u64 id)
{
    struct node *n = &s->node[id];
    if (!n->sim) {
        n->sim = s, n->id = id, n->disk_slowness = s->disk_slowness;
        n->store = mem_zalloc(sizeof(*n->store));
        n->flushed = mem_zalloc(sizeof(*n->flushed));
    }
    n->alive = true, n->paused = false;
    n->incarnation++;
    memset(n->beats, 0, sizeof(n->beats));
    EACH_MEMBER(n, m)
        if (m->exists && !m->group) node_open(m); /* a split may have opened it already */
    sim_post(s, (struct event){.at_us = s->now_us + sim_below(s, TICK_US),
                               .type = EV_TICK,
                               .node = (u32)id,
                               .incarnation = n->incarnation});
    sim_post(s, (struct event){.at_us = s->now_us + sim_below(s, 2000000),
                               .type = EV_FLUSH,
                               .node = (u32)id,
                               .incarnation = n->incarnation});
}

void node_crash(struct node *n)
{
    sim_trace(n->sim, "crash of %llu", (unsigned long long)n->id);
    n->sim->crashes++;
    n->alive = false, n->paused = false;
    disk_crash(n);
    memcpy(n->store, n->flushed, offsetof(struct store, cell) + n->flushed->keys * sizeof(struct cell));
    memcpy(n->tombstones, n->flushed_tombstones, sizeof(n->tombstones));
    n->tombstones_n = n->flushed_tombstones_n;
    EACH_MEMBER(n, m) {
        node_close(m);
        m->exists = m->flushed_exists, m->at = m->flushed_at, m->erase = false;
    }
    n->queue_n = 0;
    for (u32 i = 0; i < n->backlog_n; i++) mem_free(n->backlog[i].data);
    n->backlog_n = 0;
}

void node_free(struct node *n)
{
    if (!n->sim) return;
    if (n->alive) node_crash(n);
    EACH_MEMBER(n, m) {
        disk_erase(m);
        mem_free(m->entries);
        mem_free(m->changes);
    }
    for (u32 i = 1; i <= REGIONS_MAX; i++) mem_free(n->members[i]);
    mem_free(n->store);
    mem_free(n->flushed);
    mem_free(n->backlog);
}

/* ---- Messages. */

/* In front of each. */
struct envelope {
    u64 region, from, to;
    struct raft_slots slots; /* of the sender */
    bool has_data;           /* the sender has */
    bool gone;               /* no message: `to` was removed */
    bool merged;             /* no message: the sender's tombstones of regions that were merged */
    u8 zero;
};

static void node_send_envelope(struct member *m, u64 to, enum event_type type, bool gone, bytes message, u64 delay)
{
    struct envelope e = {m->region, m->peer, to, m->at.slots, m->at.index != 0, gone, false, 0};
    struct buf b = {0};
    buf_append(&b, &e, sizeof(e));
    buf_append_bytes(&b, message);
    sim_send(m->node->sim, m->node->id, node_of(to), type, buf_bytes(&b), 0, delay);
    m->node->sim->region[m->region].messages++;
    buf_release(&b);
}

void node_send(struct member *m, u64 to, enum event_type type, bytes message, u64 delay_us)
{
    node_send_envelope(m, to, type, false, message, delay_us);
}

/* A sender whose region was merged is told so, and all else that is known of merges. */
static void node_tell_merged(struct node *n, const struct envelope *to)
{
    struct region_tombstone t[REGIONS_MAX];
    struct envelope e = {.region = to->region, .from = to->to, .to = to->from, .merged = true};
    struct buf b = {0};
    buf_append(&b, &e, sizeof(e));
    buf_append(&b, t, merge_tombstones(n, t) * sizeof(*t));
    sim_send(n->sim, n->id, node_of(to->from), EV_MESSAGE, buf_bytes(&b), 0, 0);
    buf_release(&b);
}

/* The member that the message is for, made if need be; NULL: it is ignored. */
static struct member *node_addressee(struct node *n, const struct envelope *e)
{
    struct region_here members[REGIONS_MAX];
    for (;;) {
        struct regions_here here = node_here(n, members);
        if (rules_merged(&here, e->region)) {
            node_tell_merged(n, e);
            return NULL;
        }
        if (n->sim->plant & PLANT_OVERLAP && !n->members[e->region]) here.members_n = 0;
        switch (rules_message(&here, e->region, e->to, e->has_data ? &e->slots : NULL)) {
        case REGION_DELIVER: return n->members[e->region];
        case REGION_REPLACE: node_destroy(n->members[e->region]); break;
        case REGION_CREATE: node_open(node_make(n, e->region, e->to)); break;
        default: return NULL;
        }
    }
}

/* A sender that was removed is not heard. It is told so when that would survive a crash of a voter: otherwise the
 * others may come back under a configuration that needs its vote. */
static bool node_is_stale(struct member *m, u64 from)
{
    const struct raft_applied *told = &m->flushed_at;
    if (!m->at.index || !rules_removed(from, m->at.epoch.conf_ver, &m->at.conf)) return false;
    if (m->flushed_exists && node_votes(m, told) && rules_removed(from, told->epoch.conf_ver, &told->conf))
        node_send_envelope(m, from, EV_MESSAGE, true, bytes_of(NULL, 0), 0);
    return true;
}

static void node_snapshot(struct member *m, u64 from, const char *p, size_t n)
{
    struct region_here members[REGIONS_MAX];
    u32 size;
    memcpy(&size, p, sizeof(size));
    bytes message = bytes_of(p + sizeof(size), size);
    size_t data_n = n - sizeof(size) - size;
    struct snapshot *snapshot = mem_alloc(data_n);
    memcpy(snapshot, p + sizeof(size) + size, data_n);
    merge_learn(m->node, snapshot->tombstones, snapshot->tombstones_n);
    struct regions_here here = node_here(m->node, members);
    bool may = rules_may_install_over(&here, m->region, snapshot->at.slots, snapshot->at.epoch.version) ||
               m->node->sim->plant & PLANT_OVERLAP;
    if (!may || m->installing) {
        m->node->sim->refused_snapshots++;
        mem_free(snapshot);
        return;
    }
    mem_free(m->incoming);
    m->incoming = snapshot;
    group_receive_snapshot(m->group, from, message);
}

static void node_receive(struct node *n, const struct event *ev)
{
    struct envelope e;
    memcpy(&e, ev->data, sizeof(e));
    const char *p = ev->data + sizeof(e);
    size_t size = ev->size - sizeof(e);
    struct member *m = n->members[e.region];
    if (e.merged) {
        merge_learn(n, (const void *)p, size / sizeof(struct region_tombstone));
        return;
    }
    if (e.gone) {
        if (m && m->exists && m->peer == e.to) m->gone = true;
        return;
    }
    if (n->sim->deaf[n->id] == e.region) return;
    m = node_addressee(n, &e);
    if (!m || m->gone || node_is_stale(m, e.from)) return;
    m->heard_us = n->sim->now_us;
    if (ev->type == EV_SNAPSHOT) node_snapshot(m, e.from, p, size);
    else group_receive(m->group, e.from, bytes_of(p, size));
}

/* A member that hears from nobody asks what the region's newest durable configuration is. It may be one that never looks for
 * another leader: a learner, or one without data. */
static void node_ask(struct member *m)
{
    struct sim *s = m->node->sim;
    const struct raft_applied *newest = &s->region[m->region].durable;
    if (s->now_us < m->heard_us + 2000000 || !sim_chance(s, 10)) return;
    if (rules_removed(m->peer, newest->epoch.conf_ver, &newest->conf)) m->gone = true;
    if (s->merges) merge_ask(m->node);
}

/* ---- Requests. */

struct member *node_route(struct node *n, u32 op)
{
    u16 slot = slot_of(n->sim->objects[n->sim->ops[op].object].key);
    bool stale = n->sim->plant & PLANT_STALE_MAP;
    EACH_MEMBER(n, m) {
        if (!m->group || !m->at.index) continue;
        if (slots_have(m->at.slots, slot)) return m;
        if (stale && slots_have(m->before, slot) && group_is_leader(m->group)) return m;
    }
    return NULL;
}

u64 node_hint(struct node *n, u32 op)
{
    struct sim *s = n->sim;
    struct member *m = node_route(n, op);
    u16 slot = slot_of(s->objects[s->ops[op].object].key);
    if (m && group_leader(m->group)) return node_of(group_leader(m->group));
    for (u32 r = 1; r < s->next_region; r++) {
        const struct raft_applied *at = &s->region[r].newest;
        if (!at->index || s->region[r].merged || !slots_have(at->slots, slot) || !at->conf.voters_n) continue;
        return node_of(at->conf.voters[sim_below(s, at->conf.voters_n)]);
    }
    return 0;
}

static void node_tell(struct member *m, u64 key, struct cell *c)
{
    *c = (struct cell){0};
    member_change(m, key, (struct cell){.exists = CELL_DEATH});
}

static void node_evaluate_op(struct member *m, u32 index, u64 now, u64 *depends, u64 hint)
{
    struct sim *s = m->node->sim;
    struct op *op = &s->ops[index];
    u32 key = s->objects[op->object].key;
    struct cell one = member_cell(m, key), two = member_cell(m, key + 1), was, was2;
    if (one.exists && one.deadline_ms && one.deadline_ms <= now) *depends = MAX(*depends, one.deadline_ms);
    if (member_owes_death(m, &one, now)) node_tell(m, key, &one);
    if (op->pair && member_owes_death(m, &two, now)) node_tell(m, key + 1, &two);
    was = one, was2 = two;
    op_run(op, now, &one, &two);
    if (memcmp(&one, &was, sizeof(one))) member_change(m, key, one);
    if (op->pair && memcmp(&two, &was2, sizeof(two))) member_change(m, key + 1, two);
    op_evaluated(m, index, now, hint);
}

/* Takes the requests for this member out of the queue. */
static void node_collect(struct member *m, struct batch *b)
{
    struct node *n = m->node;
    u32 left = 0;
    for (u32 i = 0; i < n->queue_n; i++) {
        if (node_route(n, n->queue[i]) == m) b->ops[b->n++] = n->queue[i];
        else n->queue[left++] = n->queue[i];
    }
    n->queue_n = left;
}

/* Runs what waits for a member, as one evaluation; at some ticks, what has died. */
static void node_evaluate(struct member *m, bool cycle)
{
    struct node *n = m->node;
    cycle = cycle && m->at.deaths_from_ms && (n->sim->hush || sim_chance(n->sim, 30));
    if ((n->queue_n == 0 && !cycle) || !group_may_evaluate(m->group)) return;
    if (m->reads_n == sizeof(m->reads) / sizeof(*m->reads)) return; /* it is cut off, and takes others for late */
    u64 depends = 0, read = 0;
    struct batch b = {0};
    node_collect(m, &b);
    if (b.n == 0 && !cycle) return;
    u64 now = group_evaluation_time(m->group);
    for (u32 i = 0; i < b.n; i++) node_evaluate_op(m, b.ops[i], now, &depends, op_hint(m, 100 + i));
    if (cycle && member_find_dead(m, now, 8) == 0 && b.n == 0) {
        group_drop_evaluation(m->group);
        return;
    }
    m->open = b;
    bytes effects = bytes_of(m->changes, m->changes_n * sizeof(*m->changes));
    enum group_wait wait = group_evaluated(m->group, now, effects, depends, &read);
    if (m->to_split) member_split(m);
    if (wait == GROUP_WAIT_READ) {
        bool confirmed = m->open.read == read;
        m->open.n = 0, m->open.read = 0, b.read = read;
        for (u32 i = 0; i < b.n && confirmed; i++) op_done(n, b.ops[i], 0);
        if (confirmed) return;
        m->reads[m->reads_n++] = b;
    } else if (wait == GROUP_REFUSED) {
        member_abandon(m, GROUP_LOSS_VOID);
    }
}

static void node_request(struct node *n, u32 index)
{
    struct op *op = &n->sim->ops[index];
    struct member *m = node_route(n, index);
    if (m && group_is_leader(m->group)) {
        if (n->queue_n < 64) n->queue[n->queue_n++] = index;
        return;
    }
    if (!m || !op->follower || m->follower_reads_n == 64) {
        op_moved(n, index);
        return;
    }
    struct batch *b = &m->follower_reads[m->follower_reads_n++];
    b->n = 1, b->ops[0] = index;
    b->read = group_follower_read(m->group);
}

/* Requests that waited, and whose region is led elsewhere by now. */
static void node_redirect(struct node *n)
{
    u32 left = 0;
    for (u32 i = 0; i < n->queue_n; i++) {
        struct member *m = node_route(n, n->queue[i]);
        if (m && group_is_leader(m->group)) n->queue[left++] = n->queue[i];
        else op_moved(n, n->queue[i]);
    }
    n->queue_n = left;
}

/* ---- Events. */

/* Deaths become entries of the log; now and then they cease to be. */
static void node_log_deaths(struct member *m)
{
    bool on = !m->at.deaths_from_ms || sim_chance(m->node->sim, 80);
    group_propose(m->group, RAFT_KIND_DEATHS, on ? BYTES_LIT("\1") : BYTES_LIT("\0"));
}

/* fn for each member of another node in the groups of this one. */
static void node_each_peer(struct node *n, u64 node, void (*fn)(struct group *g, u64 peer))
{
    EACH_MEMBER(n, m) {
        const struct raft_conf *c = &m->at.conf;
        for (u32 i = 0; m->group && i < c->voters_n; i++)
            if (node_of(c->voters[i]) == node) fn(m->group, c->voters[i]);
        for (u32 i = 0; m->group && i < c->learners_n; i++)
            if (node_of(c->learners[i]) == node) fn(m->group, c->learners[i]);
    }
}

static void node_beat(struct node *n)
{
    n->ticks++;
    for (u32 i = 1; i <= n->sim->nodes_n; i++) {
        if (i == n->id) continue;
        if (n->ticks % BEAT_TICKS == 0) sim_send(n->sim, n->id, i, EV_BEAT, bytes_of(NULL, 0), n->incarnation, 0);
        if (beat_lost(&n->beats[i], n->ticks, ELECTION_TICKS)) node_each_peer(n, i, group_doubt);
        if (n->sim->excused[n->id] >> i & 1) node_each_peer(n, i, group_excuse);
    }
}

static void node_tick(struct node *n)
{
    node_beat(n);
    EACH_MEMBER(n, m) {
        if (!m->group) continue;
        group_tick(m->group);
        if (!n->sim->idle || n->sim->hush || sim_chance(n->sim, 2)) group_clock_due(m->group);
        node_ask(m);
        if (n->sim->merges) merge_tick(m);
        if (n->sim->deaths && !n->sim->hush && sim_chance(n->sim, 3)) node_log_deaths(m);
    }
    node_redirect(n);
}

/* An event of one member: not of the member that was here before. */
static void node_member_event(struct node *n, struct event *e)
{
    struct member *m = n->members[e->region];
    bool same = m->group && m->opened == e->opened;
    if (e->type == EV_DURABLE) disk_durable(n, e->b);
    if (!same) return;
    switch (e->type) {
    case EV_DURABLE: group_durable(m->group, e->a); break;
    case EV_SNAPSHOT_SENT: group_snapshot_sent(m->group, e->a, e->b); break;
    default: member_installed(m);
    }
}

/* What an event has left to do. */
static void node_settle(struct node *n, bool tick)
{
    if (n->sim->merges) merge_destroy_superseded(n);
    EACH_MEMBER(n, m) {
        if (m->gone) node_destroy(m);
        if (!m->group) continue;
        if (m->wanted.source) merge_catch_up(m);
        if (m->campaign) {
            m->campaign = false;
            group_campaign(m->group);
        }
        if (m->split_us && m->split_us <= n->sim->now_us) member_split(m);
        node_evaluate(m, tick);
        verify_leader(m, tick);
    }
}

void node_event(struct node *n, struct event *e)
{
    u64 wall = node_wall_ms(n);
    EACH_MEMBER(n, m)
        if (m->group) group_wall(m->group, wall);
    switch (e->type) {
    case EV_TICK: node_tick(n); break;
    case EV_BEAT:
        if (beat_heard(&n->beats[e->b], n->ticks, e->a)) node_each_peer(n, e->b, group_doubt);
        break;
    case EV_MESSAGE:
    case EV_SNAPSHOT: node_receive(n, e); break;
    case EV_DURABLE:
    case EV_SNAPSHOT_SENT:
    case EV_INSTALLED: node_member_event(n, e); break;
    case EV_FLUSH: node_flush(n); break;
    case EV_REQUEST: node_request(n, (u32)e->a); break;
    default: sim_fail(n->sim, "an event of type %d for a node", (int)e->type);
    }
    node_settle(n, e->type == EV_TICK);
}
