/* A member: its disk, its state machine, its crashes. */
#include "sim/sim.h"

#include <stdlib.h>

#include "base/alloc.h"

/* ---- The disk: writes become durable after a while, in order; a crash loses a
 * suffix of those that are not. */

struct disk_write {
    struct disk_write *next;
    u64 number;
    bool reset, compact, has_hard_state;
    u64 index, term;
    struct raft_hard_state hard_state;
    u32 entries_n;
    struct raft_entry entries[];
};

static struct raft_entry disk_copy(const struct raft_entry *e)
{
    struct raft_entry c = *e;
    u8 *data = mem_alloc(e->data.size + 1);
    if (e->data.size) memcpy(data, e->data.data, e->data.size);
    c.data.data = data;
    return c;
}

static void disk_cut(struct disk *d, u64 from_index)
{
    while (d->entries_n && d->point_index + d->entries_n >= from_index)
        mem_free((void *)d->entries[--d->entries_n].data.data);
}

static void disk_forget(struct disk *d, u64 index, u64 term)
{
    if (index <= d->point_index) return;
    u64 n = MIN(index - d->point_index, d->entries_n);
    for (u64 i = 0; i < n; i++) mem_free((void *)d->entries[i].data.data);
    memmove(d->entries, d->entries + n, (d->entries_n - n) * sizeof(*d->entries));
    d->entries_n -= n, d->point_index = index, d->point_term = term;
}

/* Carries out the oldest write that waits. */
static void disk_perform(struct disk *d)
{
    struct disk_write *w = d->pending;
    d->pending = w->next;
    if (w->reset) {
        disk_cut(d, 0);
        d->point_index = w->index, d->point_term = w->term;
    }
    if (w->compact) disk_forget(d, w->index, w->term);
    if (w->entries_n) disk_cut(d, w->entries[0].index);
    for (u32 i = 0; i < w->entries_n; i++) {
        if (w->entries[i].index != d->point_index + d->entries_n + 1)
            sim_fail(d->node->sim, "a gap in a log");
        if (d->entries_n == d->entries_cap) {
            d->entries_cap = d->entries_cap ? d->entries_cap * 2 : 64;
            d->entries = mem_realloc(d->entries, d->entries_cap * sizeof(*d->entries));
        }
        d->entries[d->entries_n++] = w->entries[i];
    }
    if (w->has_hard_state) d->hard_state = w->hard_state;
    mem_free(w);
}

static void disk_load(struct raft_log *log, struct raft_log_state *s)
{
    struct disk *d = (struct disk *)log;
    *s = (struct raft_log_state){d->hard_state, d->point_index, d->point_term, d->point_index + d->entries_n};
}

static void disk_queue(struct disk *d, struct disk_write *w)
{
    struct disk_write **at = &d->pending;
    while (*at) at = &(*at)->next;
    *at = w;
}

static void disk_write(struct raft_log *log, const struct raft_log_write *w)
{
    struct disk *d = (struct disk *)log;
    struct sim *s = d->node->sim;
    struct disk_write *q = mem_zalloc(sizeof(*q) + w->entries_n * sizeof(struct raft_entry));
    q->number = w->number, q->reset = w->reset, q->index = w->reset_index, q->term = w->reset_term;
    if (w->hard_state) q->has_hard_state = true, q->hard_state = *w->hard_state;
    q->entries_n = (u32)w->entries_n;
    for (size_t i = 0; i < w->entries_n; i++) q->entries[i] = disk_copy(&w->entries[i]);
    disk_queue(d, q);
    if (w->number == 0) { /* at the start: the log is made to fit the machine, and
                           nothing else happens before */
        while (d->pending) disk_perform(d);
        return;
    }
    if (!w->sync) return;
    u64 latency = 100 + sim_below(s, 2000) * d->node->disk_slowness;
    d->busy_until_us = MAX(d->busy_until_us, s->now_us) + latency;
    sim_post(s, (struct event){.at_us = d->busy_until_us,
                               .type = EV_DURABLE,
                               .node = (u32)d->node->id,
                               .incarnation = d->node->incarnation,
                               .a = w->number});
}

static bool disk_read(struct raft_log *log, u64 low, u64 high, u64 bytes_max UNUSED,
                      struct raft_core_sink *sink)
{
    struct disk *d = (struct disk *)log;
    if (low <= d->point_index || high > d->point_index + d->entries_n + 1) return false;
    for (u64 i = low; i < high; i++) raft_core_push(sink, &d->entries[i - d->point_index - 1]);
    return true;
}

static u64 disk_term_of(struct raft_log *log, u64 index)
{
    struct disk *d = (struct disk *)log;
    if (index == d->point_index) return d->point_term;
    if (index < d->point_index || index > d->point_index + d->entries_n) return 0;
    return d->entries[index - d->point_index - 1].term;
}

static void disk_compact(struct raft_log *log, u64 index, u64 term)
{
    struct disk *d = (struct disk *)log;
    struct disk_write *q = mem_zalloc(sizeof(*q));
    q->compact = true, q->index = index, q->term = term;
    disk_queue(d, q);
}

static const struct raft_log_ops DISK_OPS = {disk_load, disk_write, disk_read, disk_term_of, disk_compact};

static void disk_durable(struct disk *d, u64 number)
{
    while (d->pending && d->pending->number <= number) disk_perform(d);
}

static void disk_crash(struct disk *d)
{
    u64 keep = sim_below(d->node->sim, 4); /* some of what was not synced may be there nevertheless */
    while (d->pending && keep-- > 0) disk_perform(d);
    while (d->pending) {
        struct disk_write *w = d->pending;
        d->pending = w->next;
        for (u32 i = 0; i < w->entries_n; i++) mem_free((void *)w->entries[i].data.data);
        mem_free(w);
    }
    d->busy_until_us = 0;
}

/* ---- The state machine. */

static struct cell machine_cell(const struct machine *m, u64 key)
{
    for (u32 i = m->changes_n; i-- > 0;)
        if (m->changes[i].key == key) return m->changes[i].cell;
    return key < m->store->keys ? m->store->cell[key] : (struct cell){0};
}

static void machine_change(struct machine *m, u64 key, struct cell c)
{
    if (m->changes_n == m->changes_cap) {
        m->changes_cap = m->changes_cap ? m->changes_cap * 2 : 64;
        m->changes = mem_realloc(m->changes, m->changes_cap * sizeof(*m->changes));
    }
    m->changes[m->changes_n++] = (struct change){key, c};
}

static void machine_set(struct machine *m, u64 key, struct cell c)
{
    struct store *st = m->store;
    if (key >= KEYS_MAX) sim_fail(m->node->sim, "too many keys");
    for (; st->keys <= key; st->keys++) st->cell[st->keys] = (struct cell){0};
    st->cell[key] = c;
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

u64 node_digest(const struct store *st)
{
    u64 h = conf_digest(&st->at.conf) + st->at.epoch.version * 31 + st->at.epoch.conf_ver;
    for (u32 i = 0; i < st->keys; i++) {
        const struct cell *c = &st->cell[i];
        if (!c->exists || (c->deadline_ms && c->deadline_ms <= st->at.clock_ms)) continue;
        u64 z = (i + 1) * 0x9e3779b97f4a7c15ULL ^ c->value * 0xbf58476d1ce4e5b9ULL ^
                c->deadline_ms * 0x94d049bb133111ebULL;
        z ^= z >> 29, z *= 0xd6e8feb86659fd93ULL, z ^= z >> 32;
        h += z;
    }
    return h;
}

/* The record of an index, made if it is the first one. */
static struct applied_record *machine_record(struct sim *s, const struct store *st)
{
    while (s->applied_n <= st->at.index) {
        s->applied = mem_realloc(s->applied, (s->applied_n * 2 + 1024) * sizeof(*s->applied));
        memset(s->applied + s->applied_n, 0, (s->applied_n + 1024) * sizeof(*s->applied));
        s->applied_n = s->applied_n * 2 + 1024;
    }
    struct applied_record *r = &s->applied[st->at.index];
    if (!r->term) *r = (struct applied_record){st->at.term, st->at.clock_ms, node_digest(st)};
    return r;
}

/* Every member must have been in the same state at the same index. */
static void machine_advance(struct machine *m, const struct raft_applied *at)
{
    struct sim *s = m->node->sim;
    if (at->clock_ms < m->store->at.clock_ms)
        sim_fail(s, "the clock of %llu went back", (unsigned long long)m->node->id);
    if (at->index != m->store->at.index + 1)
        sim_fail(s, "entry %llu is applied out of order", (unsigned long long)at->index);
    m->store->at = *at;
    if (at->index > s->newest.index) s->newest = *at;
    struct applied_record *r = machine_record(s, m->store),
                          own = {at->term, at->clock_ms, node_digest(m->store)};
    if (r->term != own.term)
        sim_fail(s, "entry %llu has terms %llu and %llu", (unsigned long long)at->index,
                 (unsigned long long)r->term, (unsigned long long)own.term);
    else if (r->clock_ms != own.clock_ms || r->digest != own.digest)
        sim_fail(s, "node %llu differs at entry %llu", (unsigned long long)m->node->id,
                 (unsigned long long)at->index);
}

static void machine_load(struct raft_machine *rm, struct raft_applied *at)
{
    *at = ((struct machine *)rm)->store->at;
}

static void machine_apply(struct raft_machine *rm, const struct raft_applied *at,
                          const struct raft_command *c)
{
    struct machine *m = (struct machine *)rm;
    struct sim *s = m->node->sim;
    if (c && c->kind == RAFT_KIND_EFFECTS) {
        for (size_t i = 0; i + sizeof(struct change) <= c->payload.n; i += sizeof(struct change)) {
            struct change ch;
            memcpy(&ch, c->payload.p + i, sizeof(ch));
            if ((s->plant & PLANT_EXPIRE_BY_WALL) && ch.cell.deadline_ms &&
                ch.cell.deadline_ms <= node_wall_ms(m->node))
                ch.cell = (struct cell){0};
            machine_set(m, ch.key, ch.cell);
        }
    }
    machine_advance(m, at);
}

static void machine_split(struct raft_machine *rm, const struct raft_applied *at, u64 child,
                          const struct raft_applied *child_at UNUSED)
{
    struct machine *m = (struct machine *)rm;
    struct sim *s = m->node->sim;
    const struct clear *clear = &s->clears[child - 2];
    for (u32 i = 0; i < clear->n; i++) machine_set(m, clear->keys[i], (struct cell){0});
    op_cleared(s, clear, at->clock_ms, at->index << 8);
    machine_advance(m, at);
}

static void machine_commit(struct raft_machine *rm, const struct raft_applied *at)
{
    struct machine *m = (struct machine *)rm;
    for (u32 i = 0; i < m->changes_n; i++) machine_set(m, m->changes[i].key, m->changes[i].cell);
    m->changes_n = 0;
    machine_advance(m, at);
    for (u32 i = 0; i < m->open.n; i++) op_done(m->node, m->open.ops[i], (at->index << 8) + i);
    m->open.n = 0;
}

static void machine_abandon(struct raft_machine *rm, enum group_loss loss)
{
    struct machine *m = (struct machine *)rm;
    m->changes_n = 0;
    for (u32 i = 0; i < m->open.n && loss == GROUP_LOSS_VOID; i++) op_moved(m->node, m->open.ops[i]);
    m->open.n = 0;
}

static void machine_confirmed(struct raft_machine *rm, u64 read, bool ok)
{
    struct machine *m = (struct machine *)rm;
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

static void machine_readable(struct raft_machine *rm, u64 read, bool ok)
{
    struct machine *m = (struct machine *)rm;
    for (u32 i = 0; i < m->follower_reads_n; i++) {
        struct batch b = m->follower_reads[i];
        if (b.read != read) continue;
        m->follower_reads[i] = m->follower_reads[--m->follower_reads_n];
        for (u32 k = 0; k < b.n; k++) {
            if (!ok) {
                op_moved(m->node, b.ops[k]);
                continue;
            }
            u64 hint = (m->store->at.index << 8) + 200 + k;
            struct op *op = &m->node->sim->ops[b.ops[k]];
            u32 key = m->node->sim->objects[op->object].key;
            struct cell one = machine_cell(m, key), two = machine_cell(m, key + 1);
            op_run(m->node, op, m->store->at.clock_ms, &one, &two);
            op_evaluated(m->node, b.ops[k], m->store->at.clock_ms, hint);
            op_done(m->node, b.ops[k], hint);
        }
        return;
    }
}

static u64 machine_next_deadline(struct raft_machine *rm)
{
    const struct store *st = ((struct machine *)rm)->store;
    u64 next = 0;
    for (u32 i = 0; i < st->keys; i++) {
        const struct cell *c = &st->cell[i];
        if (c->exists && c->deadline_ms > st->at.clock_ms && (!next || c->deadline_ms < next))
            next = c->deadline_ms;
    }
    return next;
}

static void machine_send(struct raft_machine *rm, u64 to, bytes message)
{
    struct node *n = ((struct machine *)rm)->node;
    sim_send(n->sim, n->id, to, EV_MESSAGE, message, n->id, 0);
}

static size_t store_size(const struct store *st)
{
    return offsetof(struct store, cell) + st->keys * sizeof(struct cell);
}

static struct store *store_copy(const void *data, size_t size)
{
    struct store *st = mem_alloc(sizeof(*st));
    memcpy(st, data, size);
    return st;
}

static void machine_snapshot_send(struct raft_machine *rm, u64 to, const struct raft_applied *at,
                                  bytes message)
{
    struct machine *m = (struct machine *)rm;
    struct sim *s = m->node->sim;
    if (at->index != m->store->at.index) sim_fail(s, "a snapshot of another index");
    struct buf b = {0};
    u32 size = (u32)message.n;
    buf_append(&b, &size, sizeof(size));
    buf_append_bytes(&b, message);
    buf_append(&b, m->store, store_size(m->store));
    u64 delay = 5000 + sim_below(s, 300000);
    sim_send(s, m->node->id, to, EV_SNAPSHOT, buf_bytes(&b), m->node->id, delay);
    bool ok = !s->cut[m->node->id][to] && !sim_chance(s, s->loss_percent);
    sim_post(s, (struct event){.at_us = s->now_us + delay + 1000,
                               .type = EV_SNAPSHOT_SENT,
                               .node = (u32)m->node->id,
                               .incarnation = m->node->incarnation,
                               .a = to,
                               .b = ok});
    s->snapshots++;
    buf_release(&b);
}

static void machine_snapshot_install(struct raft_machine *rm, u64 index, u64 term)
{
    struct machine *m = (struct machine *)rm;
    struct sim *s = m->node->sim;
    mem_free(m->installing);
    m->installing = m->incoming, m->incoming = NULL;
    if (m->installing->at.index != index || m->installing->at.term != term) sim_fail(s, "the wrong snapshot");
    sim_post(s, (struct event){.at_us = s->now_us + 1000 + sim_below(s, 100000),
                               .type = EV_INSTALLED,
                               .node = (u32)m->node->id,
                               .incarnation = m->node->incarnation});
}

static void machine_snapshot_discard(struct raft_machine *rm)
{
    struct machine *m = (struct machine *)rm;
    mem_free(m->incoming);
    m->incoming = NULL;
}

static const struct raft_machine_ops MACHINE_OPS = {
    .load = machine_load,
    .apply = machine_apply,
    .split = machine_split,
    .commit = machine_commit,
    .abandon = machine_abandon,
    .confirmed = machine_confirmed,
    .readable = machine_readable,
    .next_deadline = machine_next_deadline,
    .send = machine_send,
    .snapshot_send = machine_snapshot_send,
    .snapshot_install = machine_snapshot_install,
    .snapshot_discard = machine_snapshot_discard,
};

/* Each member reclaims dead keys when it likes, by the region's clock. */
static void machine_reclaim(struct machine *m)
{
    u64 now = m->node->sim->plant & PLANT_RECLAIM_AHEAD ? node_wall_ms(m->node) : m->store->at.clock_ms;
    for (u32 i = 0; i < m->store->keys; i++) {
        struct cell *c = &m->store->cell[i];
        if (c->exists && c->deadline_ms && c->deadline_ms <= now) *c = (struct cell){0};
    }
}

/* ---- The member. */

u64 node_wall_ms(const struct node *n)
{
    i64 t = (i64)sim_true_ms(n->sim);
    u64 wall = (u64)(START_MS + t + n->clock_offset_ms + t * n->drift_ppm / 1000000);
    if (wall > n->sim->wall_max_ms) n->sim->wall_max_ms = wall;
    return wall;
}

void node_start(struct sim *s, u64 id, const struct raft_conf *conf)
{
    struct node *n = &s->node[id];
    struct machine *m = &n->machine;
    if (!n->sim) {
        n->sim = s, n->id = id, n->disk_slowness = s->disk_slowness;
        n->disk.log.ops = &DISK_OPS, n->disk.node = n;
        m->machine.ops = &MACHINE_OPS, m->node = n;
        m->store = mem_zalloc(sizeof(*m->store));
        m->flushed = mem_zalloc(sizeof(*m->flushed));
        m->store->at.clock_ms = START_MS - 1000000;
        if (conf) {
            m->store->at.conf = *conf;
            m->store->at.index = RAFT_FIRST_INDEX, m->store->at.term = RAFT_FIRST_TERM;
            m->store->at.slots = (struct raft_slots){0, RAFT_SLOTS - 1};
            machine_record(s, m->store);
        }
        memcpy(m->flushed, m->store, store_size(m->store));
    }
    n->alive = true, n->paused = n->to_split = false;
    n->incarnation++;
    struct group_config c = {.id = id,
                             .seed = s->seed,
                             .nonce = n->incarnation,
                             .election_ticks = 10,
                             .heartbeat_ticks = 2,
                             .read_retry_ticks = 3,
                             .read_timeout_ticks = 30,
                             .log_entries_max = 100};
    n->group = group_open(&c, &n->disk.log, &m->machine);
    group_plant(n->group, s->plant);
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
    struct machine *m = &n->machine;
    sim_trace(n->sim, "crash of %llu", (unsigned long long)n->id);
    n->sim->crashes++;
    n->alive = false, n->paused = false;
    group_close(n->group);
    n->group = NULL;
    disk_crash(&n->disk);
    memcpy(m->store, m->flushed, store_size(m->flushed));
    mem_free(m->incoming);
    mem_free(m->installing);
    m->incoming = m->installing = NULL;
    m->changes_n = m->open.n = m->reads_n = m->follower_reads_n = n->queue_n = 0;
    for (u32 i = 0; i < n->backlog_n; i++) mem_free(n->backlog[i].data);
    n->backlog_n = 0;
}

void node_free(struct node *n)
{
    struct machine *m = &n->machine;
    if (!n->sim) return;
    if (n->group) node_crash(n);
    disk_cut(&n->disk, 0);
    mem_free(n->disk.entries);
    mem_free(m->store);
    mem_free(m->flushed);
    mem_free(m->changes);
    mem_free(n->backlog);
}

/* Proposes that the last slot goes. */
void node_split(struct node *n)
{
    struct group_status st;
    struct buf b = {0};
    group_status(n->group, &st);
    n->to_split = false;
    raft_split_encode(&b, &(struct raft_split){op_clear(n->sim), st.at.slots.last});
    group_propose(n->group, RAFT_KIND_SPLIT, buf_bytes(&b));
    buf_release(&b);
}

/* Runs what waits, as one evaluation. */
static void node_evaluate(struct node *n)
{
    struct machine *m = &n->machine;
    if (n->queue_n == 0 || !group_may_evaluate(n->group)) return;
    u64 now = group_evaluation_time(n->group), depends = 0, read = 0;
    struct batch b = {.n = n->queue_n};
    memcpy(b.ops, n->queue, n->queue_n * sizeof(u32));
    n->queue_n = 0;
    for (u32 i = 0; i < b.n; i++) {
        struct op *op = &n->sim->ops[b.ops[i]];
        u32 key = n->sim->objects[op->object].key;
        struct cell one = machine_cell(m, key), two = machine_cell(m, key + 1), was = one, was2 = two;
        if (one.exists && one.deadline_ms && one.deadline_ms <= now) depends = MAX(depends, one.deadline_ms);
        op_run(n, op, now, &one, &two);
        if (memcmp(&one, &was, sizeof(one))) machine_change(m, key, one);
        if (op->pair && memcmp(&two, &was2, sizeof(two))) machine_change(m, key + 1, two);
        op_evaluated(n, b.ops[i], now, (m->store->at.index << 8) + 100 + i);
    }
    m->open = b;
    if (n->to_split) node_split(n);
    bytes effects = bytes_of(m->changes, m->changes_n * sizeof(*m->changes));
    enum group_wait wait = group_evaluated(n->group, now, effects, depends, &read);
    if (wait == GROUP_WAIT_READ) {
        bool confirmed = m->open.read == read;
        m->open.n = 0, m->open.read = 0, b.read = read;
        for (u32 i = 0; i < b.n && confirmed; i++) op_done(n, b.ops[i], 0);
        if (confirmed) return;
        if (m->reads_n == 64) sim_fail(n->sim, "too many reads wait");
        m->reads[m->reads_n++] = b;
    } else if (wait == GROUP_REFUSED) {
        machine_abandon(&m->machine, GROUP_LOSS_VOID);
    }
}

static void node_request(struct node *n, u32 index)
{
    struct op *op = &n->sim->ops[index];
    struct machine *m = &n->machine;
    if (group_is_leader(n->group)) {
        if (n->queue_n < 64) n->queue[n->queue_n++] = index;
        return;
    }
    if (!op->follower || m->follower_reads_n == 64) {
        op_moved(n, index);
        return;
    }
    struct batch *b = &m->follower_reads[m->follower_reads_n++];
    b->n = 1, b->ops[0] = index;
    b->read = group_follower_read(n->group);
}

static void node_flush(struct node *n)
{
    struct machine *m = &n->machine;
    if (sim_chance(n->sim, 50)) machine_reclaim(m);
    memcpy(m->flushed, m->store, store_size(m->store));
    group_compact(n->group, m->flushed->at.index);
}

static void node_snapshot(struct node *n, struct event *e)
{
    u32 size;
    memcpy(&size, e->data, sizeof(size));
    bytes message = bytes_of(e->data + sizeof(size), size);
    mem_free(n->machine.incoming);
    n->machine.incoming = store_copy(e->data + sizeof(size) + size, e->size - sizeof(size) - size);
    group_receive_snapshot(n->group, e->a, message);
}

static void node_installed(struct node *n)
{
    struct machine *m = &n->machine;
    memcpy(m->store, m->installing, store_size(m->installing));
    memcpy(m->flushed, m->store, store_size(m->store));
    mem_free(m->installing);
    m->installing = NULL;
    struct applied_record *r = &n->sim->applied[m->store->at.index];
    if (r->digest != node_digest(m->store)) sim_fail(n->sim, "a snapshot differs");
    group_installed(n->group, &m->store->at);
}

static void node_tick(struct node *n)
{
    group_tick(n->group);
    if (!n->sim->idle || sim_chance(n->sim, 2)) group_clock_due(n->group);
    if (!group_is_leader(n->group)) {
        for (u32 i = 0; i < n->queue_n; i++) op_moved(n, n->queue[i]);
        n->queue_n = 0;
    }
}

/* At most one leader per term. */
static void node_check_leader(struct node *n)
{
    struct sim *s = n->sim;
    struct group_status st;
    if (!group_is_leader(n->group)) return;
    group_status(n->group, &st);
    u64 term = st.core.term;
    while (s->leaders_n <= term) {
        s->leaders = mem_realloc(s->leaders, (s->leaders_n * 2 + 64) * sizeof(u64));
        memset(s->leaders + s->leaders_n, 0, (s->leaders_n + 64) * sizeof(u64));
        s->leaders_n = s->leaders_n * 2 + 64;
    }
    if (!s->leaders[term]) {
        s->leaders[term] = n->id;
        sim_trace(s, "%llu leads in term %llu", (unsigned long long)n->id, (unsigned long long)term);
    }
    if (s->leaders[term] != n->id) sim_fail(s, "two leaders in term %llu", (unsigned long long)term);
}

void node_event(struct node *n, struct event *e)
{
    group_wall(n->group, node_wall_ms(n));
    switch (e->type) {
    case EV_TICK: node_tick(n); break;
    case EV_MESSAGE: group_receive(n->group, e->a, bytes_of(e->data, e->size)); break;
    case EV_DURABLE:
        disk_durable(&n->disk, e->a);
        group_durable(n->group, e->a);
        break;
    case EV_SNAPSHOT: node_snapshot(n, e); break;
    case EV_SNAPSHOT_SENT: group_snapshot_sent(n->group, e->a, e->b); break;
    case EV_INSTALLED: node_installed(n); break;
    case EV_FLUSH: node_flush(n); break;
    case EV_REQUEST: node_request(n, (u32)e->a); break;
    default: sim_fail(n->sim, "an event of type %d for a node", (int)e->type);
    }
    node_evaluate(n);
    node_check_leader(n);
}

/* Logs that have an entry of the same index and term have the same entries up
 * to it. */
static void node_check_pair(struct sim *s, const struct disk *a, const struct disk *b)
{
    u64 low = MAX(a->point_index, b->point_index) + 1;
    u64 high = MIN(a->point_index + a->entries_n, b->point_index + b->entries_n);
    bool same = false;
    for (u64 i = high; i >= low; i--) {
        const struct raft_entry *x = &a->entries[i - a->point_index - 1],
                                *y = &b->entries[i - b->point_index - 1];
        bool equal = x->term == y->term && x->data.size == y->data.size &&
                     !memcmp(x->data.data, y->data.data, x->data.size);
        if (x->term == y->term) same = true;
        if (same && !equal) sim_fail(s, "logs differ at entry %llu", (unsigned long long)i);
    }
}

void nodes_check_logs(struct sim *s)
{
    for (u32 i = 1; i <= s->nodes_n; i++)
        for (u32 k = i + 1; k <= s->nodes_n; k++) node_check_pair(s, &s->node[i].disk, &s->node[k].disk);
}
