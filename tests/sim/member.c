/* A member's state machine, on the cells that its node has for its slots. */
#include "sim/sim.h"

#include "base/alloc.h"

static struct member *member_of(struct raft_machine *rm) { return (struct member *)(void *)rm; }

/* ---- Cells. */

void store_set(struct node *n, u64 key, struct cell c)
{
    struct store *st = n->store;
    if (key >= KEYS_MAX) sim_fail(n->sim, "too many keys");
    for (; st->keys <= key; st->keys++) st->cell[st->keys] = (struct cell){0};
    st->cell[key] = c;
}

void store_clear(struct node *n, struct raft_slots slots)
{
    for (u32 i = 0; i < n->store->keys; i++)
        if (slots_have(slots, slot_of(i))) n->store->cell[i] = (struct cell){0};
}

struct cell member_cell(const struct member *m, u64 key)
{
    const struct store *st = m->node->store;
    for (u32 i = m->changes_n; i-- > 0;) {
        struct cell c = m->changes[i].cell;
        if (m->changes[i].key == key) return c.exists == CELL_DEATH ? (struct cell){0} : c;
    }
    return key < st->keys ? st->cell[key] : (struct cell){0};
}

void member_change(struct member *m, u64 key, struct cell c)
{
    if (m->changes_n == m->changes_cap) {
        m->changes_cap = m->changes_cap ? m->changes_cap * 2 : 64;
        m->changes = mem_realloc(m->changes, m->changes_cap * sizeof(*m->changes));
    }
    m->changes[m->changes_n++] = (struct change){key, c};
}

static u64 conf_digest(const struct raft_conf *c)
{
    const u64 *const lists[] = {c->voters, c->learners, c->outgoing, c->learners_next};
    const u32 lengths[] = {c->voters_n, c->learners_n, c->outgoing_n, c->learners_next_n};
    u64 h = 0;
    for (u32 k = 0; k < 4; k++)
        for (u32 i = 0; i < lengths[k]; i++) h += (lists[k][i] << (8 * k)) * 0x9e3779b97f4a7c15ULL;
    return h ^ h >> 31;
}

u64 member_digest(const struct member *m)
{
    const struct raft_applied *at = &m->at;
    const struct store *st = m->node->store;
    u64 h = conf_digest(&at->conf) + at->epoch.version * 31 + at->epoch.conf_ver;
    h += (u64)at->slots.first << 40 ^ (u64)at->slots.last << 20;
    h += (at->merge.other << 32 ^ at->merge.index << 8 ^ (u64)at->merge.version << 4 ^ at->merge.role) *
         0x2545f491;
    for (u32 i = 0; i < st->keys; i++) {
        const struct cell *c = &st->cell[i];
        if (!c->exists || (c->deadline_ms && c->deadline_ms <= at->clock_ms)) continue;
        if (!slots_have(at->slots, slot_of(i))) continue;
        u64 z = (i + 1) * 0x9e3779b97f4a7c15ULL ^ c->value * 0xbf58476d1ce4e5b9ULL ^
                c->deadline_ms * 0x94d049bb133111ebULL;
        z ^= z >> 29, z *= 0xd6e8feb86659fd93ULL, z ^= z >> 32;
        h += z;
    }
    return h;
}

bool member_owes_death(const struct member *m, const struct cell *c, u64 now_ms)
{
    u64 from = m->at.deaths_from_ms;
    return c->exists && from && c->deadline_ms > from && c->deadline_ms <= now_ms;
}

u32 member_find_dead(struct member *m, u64 now_ms, u32 max)
{
    const struct store *st = m->node->store;
    u32 n = 0;
    for (u32 i = 0; i < st->keys && n < max; i++) {
        struct cell c = member_cell(m, i);
        if (!slots_have(m->at.slots, slot_of(i)) || !member_owes_death(m, &c, now_ms)) continue;
        member_change(m, i, (struct cell){.exists = CELL_DEATH});
        n++;
    }
    return n;
}

void member_reclaim(struct member *m)
{
    struct store *st = m->node->store;
    u64 now = m->node->sim->plant & PLANT_RECLAIM_AHEAD ? node_wall_ms(m->node) : m->at.clock_ms;
    for (u32 i = 0; i < st->keys; i++) {
        struct cell *c = &st->cell[i];
        if (!c->exists || !c->deadline_ms || c->deadline_ms > now || member_owes_death(m, c, now)) continue;
        if (slots_have(m->at.slots, slot_of(i))) *c = (struct cell){0};
    }
}

/* ---- Applying. */

/* A change of the entry with this stamp. With logged deaths each is told once. */
static void member_put(struct member *m, struct change ch, u64 stamp_ms)
{
    const struct store *st = m->node->store;
    struct cell old = ch.key < st->keys ? st->cell[ch.key] : (struct cell){0};
    bool owed = member_owes_death(m, &old, stamp_ms), told = ch.cell.exists == CELL_DEATH;
    if (told && !owed) sim_fail(m->node->sim, "the death of key %llu is told twice", (unsigned long long)ch.key);
    if (!told && owed) sim_fail(m->node->sim, "the death of key %llu is not told", (unsigned long long)ch.key);
    m->node->sim->told += told;
    store_set(m->node, ch.key, told ? (struct cell){0} : ch.cell);
}

static void member_advance(struct member *m, const struct raft_applied *at)
{
    struct sim *s = m->node->sim;
    if (at->clock_ms < m->at.clock_ms) sim_fail(s, "the clock of %llu went back", (unsigned long long)m->node->id);
    if (at->index != m->at.index + 1)
        sim_fail(s, "entry %llu is applied out of order", (unsigned long long)at->index);
    m->at = *at;
    verify_applied(m);
}

static void machine_load(struct raft_machine *rm, struct raft_applied *at) { *at = member_of(rm)->at; }

static void machine_apply(struct raft_machine *rm, const struct raft_applied *at, const struct raft_command *c)
{
    struct member *m = member_of(rm);
    bool by_wall = m->node->sim->plant & PLANT_EXPIRE_BY_WALL;
    size_t n = c && c->kind == RAFT_KIND_EFFECTS ? c->payload.n / sizeof(struct change) : 0;
    for (size_t i = 0; i < n; i++) {
        struct change ch;
        memcpy(&ch, c->payload.p + i * sizeof(ch), sizeof(ch));
        if (by_wall && ch.cell.deadline_ms && ch.cell.deadline_ms <= node_wall_ms(m->node))
            ch.cell = (struct cell){0};
        member_put(m, ch, at->clock_ms);
    }
    member_advance(m, at);
}

/* The child's member takes the cells of its slots as they are. */
static void machine_split(struct raft_machine *rm, const struct raft_applied *at, u64 child,
                          const struct raft_applied *child_at)
{
    struct member *m = member_of(rm), *c;
    struct node *n = m->node;
    struct region_here members[REGIONS_MAX];
    struct regions_here here = node_here(n, members);
    if (m->open.n && !group_planted(m->group, PLANT_SKIP_EPOCH)) sim_fail(n->sim, "a split within an open evaluation");
    m->before = m->at.slots;
    member_advance(m, at);
    n->sim->regions_n = MAX(n->sim->regions_n, (u32)child);
    sim_trace(n->sim, "node %llu splits region %llu at %u", (unsigned long long)n->id, (unsigned long long)m->region,
              child_at->slots.first);
    enum region_split fate = rules_split(&here, child, m->peer);
    n->sim->overtaken += fate != REGION_SPLIT_MAKE;
    if (fate == REGION_SPLIT_DISCARD) {
        store_clear(n, child_at->slots);
        return;
    }
    c = node_make(n, child, m->peer);
    c->at = *child_at;
    c->campaign = m->group && group_is_leader(m->group); /* without: within group_open */
    verify_applied(c);
    node_open(c);
}

static bool machine_source_ready(struct raft_machine *rm, const struct raft_merge_commit *c)
{
    struct member *m = member_of(rm);
    const struct member *source = m->node->members[c->source];
    bool ready = source && source->exists && source->at.merge.role == RAFT_MERGE_SOURCE &&
                 source->at.merge.index == c->index;
    if (m->node->sim->plant & PLANT_MERGE_NO_CATCH_UP) ready = source && source->exists && source->at.index;
    m->node->sim->waited += !ready && !m->wanted.source;
    m->wanted = ready ? (struct raft_merge_commit){0} : *c;
    return ready;
}

/* The cells stay where they are, and belong to the target. */
static void machine_merge(struct raft_machine *rm, const struct raft_applied *at,
                          const struct raft_merge_commit *c)
{
    struct member *m = member_of(rm);
    struct node *n = m->node;
    sim_trace(n->sim, "node %llu merges region %llu into %llu", (unsigned long long)n->id,
              (unsigned long long)c->source, (unsigned long long)m->region);
    node_remove(n->members[c->source]);
    if (!(n->sim->plant & PLANT_MERGE_NO_TOMBSTONE))
        merge_bury(n, &(struct region_tombstone){c->source, 0, m->region, at->epoch.version});
    member_advance(m, at);
    verify_merged(m, c->source);
}

static void machine_commit(struct raft_machine *rm, const struct raft_applied *at)
{
    struct member *m = member_of(rm);
    for (u32 i = 0; i < m->changes_n; i++) member_put(m, m->changes[i], at->clock_ms);
    m->changes_n = 0;
    member_advance(m, at);
    for (u32 i = 0; i < m->open.n; i++) op_done(m->node, m->open.ops[i], op_hint(m, i));
    m->open.n = 0;
}

void member_abandon(struct member *m, enum group_loss loss)
{
    m->changes_n = 0;
    m->node->sim->voids += loss == GROUP_LOSS_VOID;
    for (u32 i = 0; i < m->open.n && loss == GROUP_LOSS_VOID; i++) op_moved(m->node, m->open.ops[i]);
    m->open.n = 0;
}

static void machine_abandon(struct raft_machine *rm, enum group_loss loss) { member_abandon(member_of(rm), loss); }

/* ---- Reads. */

static void machine_confirmed(struct raft_machine *rm, u64 read, bool ok)
{
    struct member *m = member_of(rm);
    for (u32 i = 0; i < m->reads_n; i++) {
        struct batch b = m->reads[i];
        if (b.read != read) continue;
        m->reads[i] = m->reads[--m->reads_n];
        for (u32 k = 0; k < b.n; k++) {
            if (ok) op_done(m->node, b.ops[k], 0);
            else op_moved(m->node, b.ops[k]);
        }
        return;
    }
    if (ok) m->open.read = read; /* confirmed before group_evaluated returned */
}

/* A split may have taken the slot away while the read waited. */
static void member_read(struct member *m, u32 index, u64 hint)
{
    struct op *op = &m->node->sim->ops[index];
    u32 key = m->node->sim->objects[op->object].key;
    if (node_route(m->node, index) != m) {
        op_moved(m->node, index);
        return;
    }
    struct cell one = member_cell(m, key), two = member_cell(m, key + 1);
    op_run(op, m->at.clock_ms, &one, &two);
    op_evaluated(m, index, m->at.clock_ms, hint);
    op_done(m->node, index, hint);
}

static void machine_readable(struct raft_machine *rm, u64 read, bool ok)
{
    struct member *m = member_of(rm);
    for (u32 i = 0; i < m->follower_reads_n; i++) {
        struct batch b = m->follower_reads[i];
        if (b.read != read) continue;
        m->follower_reads[i] = m->follower_reads[--m->follower_reads_n];
        for (u32 k = 0; k < b.n; k++) {
            if (ok) member_read(m, b.ops[k], op_hint(m, 200 + k));
            else op_moved(m->node, b.ops[k]);
        }
        return;
    }
}

static u64 machine_next_deadline(struct raft_machine *rm)
{
    struct member *m = member_of(rm);
    const struct store *st = m->node->store;
    u64 next = 0;
    for (u32 i = 0; i < st->keys; i++) {
        const struct cell *c = &st->cell[i];
        if (!c->exists || c->deadline_ms <= m->at.clock_ms || (next && c->deadline_ms >= next)) continue;
        if (slots_have(m->at.slots, slot_of(i))) next = c->deadline_ms;
    }
    return next;
}

/* ---- Messages and snapshots. */

static void machine_send(struct raft_machine *rm, u64 to, bytes message)
{
    node_send(member_of(rm), to, EV_MESSAGE, message, 0);
}

static void member_pack(const struct member *m, struct buf *b)
{
    const struct store *st = m->node->store;
    struct snapshot head = {.at = m->at};
    head.tombstones_n = merge_tombstones(m->node, head.tombstones);
    size_t start = b->n;
    buf_append(b, &head, sizeof(head));
    for (u32 i = 0; i < st->keys; i++) {
        struct change c = {i, st->cell[i]};
        if (!c.cell.exists || !slots_have(m->at.slots, slot_of(i))) continue;
        buf_append(b, &c, sizeof(c));
        head.n++;
    }
    memcpy(b->p + start, &head, sizeof(head));
}

static void machine_snapshot_send(struct raft_machine *rm, u64 to, const struct raft_applied *at, bytes message)
{
    struct member *m = member_of(rm);
    struct sim *s = m->node->sim;
    if (at->index != m->at.index) sim_fail(s, "a snapshot of another index");
    struct buf b = {0};
    u32 size = (u32)message.n;
    buf_append(&b, &size, sizeof(size));
    buf_append_bytes(&b, message);
    member_pack(m, &b);
    u64 delay = 5000 + sim_below(s, s->snapshot_us);
    node_send(m, to, EV_SNAPSHOT, buf_bytes(&b), delay);
    bool ok = !s->cut[m->node->id][node_of(to)] && !sim_chance(s, s->loss_percent);
    sim_post(s, (struct event){.at_us = s->now_us + delay + 1000,
                               .type = EV_SNAPSHOT_SENT,
                               .node = (u32)m->node->id,
                               .incarnation = m->node->incarnation,
                               .region = (u32)m->region,
                               .opened = m->opened,
                               .a = to,
                               .b = ok});
    s->snapshots++;
    buf_release(&b);
}

static void machine_snapshot_install(struct raft_machine *rm, u64 index, u64 term)
{
    struct member *m = member_of(rm);
    struct sim *s = m->node->sim;
    mem_free(m->installing);
    m->installing = m->incoming, m->incoming = NULL;
    if (m->installing->at.index != index || m->installing->at.term != term) sim_fail(s, "the wrong snapshot");
    sim_post(s, (struct event){.at_us = s->now_us + 1000 + sim_below(s, 100000),
                               .type = EV_INSTALLED,
                               .node = (u32)m->node->id,
                               .incarnation = m->node->incarnation,
                               .region = (u32)m->region,
                               .opened = m->opened});
}

static void machine_snapshot_discard(struct raft_machine *rm)
{
    struct member *m = member_of(rm);
    mem_free(m->incoming);
    m->incoming = NULL;
}

void member_installed(struct member *m)
{
    struct snapshot *in = m->installing;
    if (m->at.index) store_clear(m->node, m->at.slots);
    m->at = in->at;
    merge_destroy_superseded(m->node);
    store_clear(m->node, in->at.slots);
    for (u64 i = 0; i < in->n; i++) store_set(m->node, in->cells[i].key, in->cells[i].cell);
    m->installing = NULL;
    mem_free(in);
    verify_installed(m);
    node_flush_state(m->node);
    group_installed(m->group, &m->at);
}

static void machine_slept(struct raft_machine *rm, bool asleep)
{
    struct member *m = member_of(rm);
    sim_trace(m->node->sim, "node %llu: region %llu %s", (unsigned long long)m->node->id,
              (unsigned long long)m->region, asleep ? "sleeps" : "is awake");
    m->node->sim->sleeps += asleep;
}

static u32 machine_silence(struct raft_machine *rm, u64 peer)
{
    struct node *n = member_of(rm)->node;
    return beat_silence(&n->beats[node_of(peer)], n->ticks);
}

const struct raft_machine_ops MEMBER_OPS = {
    .load = machine_load,
    .apply = machine_apply,
    .split = machine_split,
    .source_ready = machine_source_ready,
    .merge = machine_merge,
    .commit = machine_commit,
    .abandon = machine_abandon,
    .confirmed = machine_confirmed,
    .readable = machine_readable,
    .next_deadline = machine_next_deadline,
    .send = machine_send,
    .snapshot_send = machine_snapshot_send,
    .snapshot_install = machine_snapshot_install,
    .snapshot_discard = machine_snapshot_discard,
    .slept = machine_slept,
    .silence = machine_silence,
};

/* ---- Splits. */

/* Where: between live keys if it can be, so that there is something on both sides. */
static u16 member_split_point(struct member *m)
{
    struct sim *s = m->node->sim;
    u16 first = m->at.slots.first, last = m->at.slots.last;
    for (u32 i = 0; i < 8; i++) {
        u16 slot = slot_of(s->objects[s->live[sim_below(s, OBJECTS_LIVE)]].key);
        if (first < slot && slot <= last) return slot;
    }
    return (u16)(first + 1 + sim_below(s, last - first));
}

/* The id of the child is used for no other split, whatever becomes of this one. */
void member_split(struct member *m)
{
    struct sim *s = m->node->sim;
    struct buf b = {0};
    m->to_split = false, m->split_us = 0;
    if (s->next_region > s->regions_max || regions_live(s) >= REGIONS_LIVE ||
        m->at.slots.first == m->at.slots.last)
        return;
    raft_split_encode(&b, &(struct raft_split){s->next_region++, member_split_point(m)});
    if (!group_propose(m->group, RAFT_KIND_SPLIT, buf_bytes(&b))) s->next_region--;
    buf_release(&b);
}
