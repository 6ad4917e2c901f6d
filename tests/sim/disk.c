/* A node's disk: the logs of its members. Writes become durable after a while, in order; a crash loses a suffix of those
 * that are not. */
#include "sim/sim.h"

#include "base/alloc.h"

struct disk_write {
    struct disk_write *next;
    struct member *member;
    u64 order; /* among those of the node */
    bool reset, compact, has_hard_state;
    u64 index, term;
    struct raft_hard_state hard_state;
    u32 entries_n;
    struct raft_entry entries[];
};

static struct member *disk_member(struct raft_log *log)
{
    return (struct member *)(void *)((char *)log - offsetof(struct member, log));
}

static struct raft_entry disk_copy(const struct raft_entry *e)
{
    struct raft_entry c = *e;
    u8 *data = mem_alloc(e->data.size + 1);
    if (e->data.size) memcpy(data, e->data.data, e->data.size);
    c.data.data = data;
    return c;
}

static void disk_cut(struct member *m, u64 from_index)
{
    while (m->entries_n && m->point_index + m->entries_n >= from_index)
        mem_free((void *)m->entries[--m->entries_n].data.data);
}

static void disk_forget(struct member *m, u64 index, u64 term)
{
    if (index <= m->point_index) return;
    u64 n = MIN(index - m->point_index, m->entries_n);
    for (u64 i = 0; i < n; i++) mem_free((void *)m->entries[i].data.data);
    memmove(m->entries, m->entries + n, (m->entries_n - n) * sizeof(*m->entries));
    m->entries_n -= n, m->point_index = index, m->point_term = term;
}

static void disk_append(struct member *m, const struct raft_entry *e)
{
    if (e->index != m->point_index + m->entries_n + 1) sim_fail(m->node->sim, "a gap in a log");
    if (m->entries_n == m->entries_cap) {
        m->entries_cap = m->entries_cap ? m->entries_cap * 2 : 64;
        m->entries = mem_realloc(m->entries, m->entries_cap * sizeof(*m->entries));
    }
    m->entries[m->entries_n++] = *e;
}

/* Carries out the oldest write that waits. What a split has given a member, also one that was there without data, is
 * durable before its log is: all that a node writes is one sequence. */
static void disk_perform(struct node *n)
{
    struct disk_write *w = n->disk.pending;
    struct member *m = w->member;
    n->disk.pending = w->next;
    if (m->exists && m->at.index && !(m->flushed_exists && m->flushed_at.index)) node_flush_state(n);
    if (w->reset) {
        disk_cut(m, 0);
        m->point_index = w->index, m->point_term = w->term;
    }
    if (w->compact) disk_forget(m, w->index, w->term);
    if (w->entries_n) disk_cut(m, w->entries[0].index);
    for (u32 i = 0; i < w->entries_n; i++) disk_append(m, &w->entries[i]);
    if (w->has_hard_state) m->hard_state = w->hard_state;
    mem_free(w);
}

static void disk_drop(struct disk_write *w)
{
    for (u32 i = 0; i < w->entries_n; i++) mem_free((void *)w->entries[i].data.data);
    mem_free(w);
}

void disk_erase(struct member *m)
{
    struct disk_write **at = &m->node->disk.pending;
    while (*at) {
        struct disk_write *w = *at;
        if (w->member != m) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        disk_drop(w);
    }
    disk_cut(m, 0);
    m->hard_state = (struct raft_hard_state){0};
    m->point_index = m->point_term = 0;
}

static void disk_load(struct raft_log *log, struct raft_log_state *s)
{
    struct member *m = disk_member(log);
    *s = (struct raft_log_state){m->hard_state, m->point_index, m->point_term, m->point_index + m->entries_n};
}

static void disk_queue(struct member *m, struct disk_write *w)
{
    struct disk_write **at = &m->node->disk.pending;
    w->member = m, w->order = ++m->node->disk.last;
    while (*at) at = &(*at)->next;
    *at = w;
}

static void disk_write(struct raft_log *log, const struct raft_log_write *w)
{
    struct member *m = disk_member(log);
    struct node *n = m->node;
    struct sim *s = n->sim;
    struct disk_write *q = mem_zalloc(sizeof(*q) + w->entries_n * sizeof(struct raft_entry));
    q->reset = w->reset, q->index = w->reset_index, q->term = w->reset_term;
    if (w->hard_state) q->has_hard_state = true, q->hard_state = *w->hard_state;
    q->entries_n = (u32)w->entries_n;
    for (size_t i = 0; i < w->entries_n; i++) q->entries[i] = disk_copy(&w->entries[i]);
    disk_queue(m, q);
    if (w->number == 0) { /* at the start: the log is made to fit the machine, and
                           nothing else happens before */
        while (n->disk.pending) disk_perform(n);
        return;
    }
    if (!w->sync) return;
    u64 latency = 100 + sim_below(s, 2000) * n->disk_slowness;
    n->disk.busy_until_us = MAX(n->disk.busy_until_us, s->now_us) + latency;
    sim_post(s, (struct event){.at_us = n->disk.busy_until_us,
                               .type = EV_DURABLE,
                               .node = (u32)n->id,
                               .incarnation = n->incarnation,
                               .region = (u32)m->region,
                               .opened = m->opened,
                               .a = w->number,
                               .b = q->order});
}

static bool disk_read(struct raft_log *log, u64 low, u64 high, u64 bytes_max UNUSED, struct raft_core_sink *sink)
{
    struct member *m = disk_member(log);
    if (low <= m->point_index || high > m->point_index + m->entries_n + 1) return false;
    for (u64 i = low; i < high; i++) raft_core_push(sink, &m->entries[i - m->point_index - 1]);
    return true;
}

static u64 disk_term_of(struct raft_log *log, u64 index)
{
    struct member *m = disk_member(log);
    if (index == m->point_index) return m->point_term;
    if (index < m->point_index || index > m->point_index + m->entries_n) return 0;
    return m->entries[index - m->point_index - 1].term;
}

static void disk_compact(struct raft_log *log, u64 index, u64 term)
{
    struct disk_write *q = mem_zalloc(sizeof(*q));
    q->compact = true, q->index = index, q->term = term;
    disk_queue(disk_member(log), q);
}

const struct raft_log_ops DISK_OPS = {disk_load, disk_write, disk_read, disk_term_of, disk_compact};

void disk_durable(struct node *n, u64 order)
{
    while (n->disk.pending && n->disk.pending->order <= order) disk_perform(n);
}

void disk_crash(struct node *n)
{
    u64 keep = sim_below(n->sim, 4); /* some of what was not synced may be there nevertheless */
    while (n->disk.pending && keep-- > 0) disk_perform(n);
    while (n->disk.pending) {
        struct disk_write *w = n->disk.pending;
        n->disk.pending = w->next;
        disk_drop(w);
    }
    n->disk.busy_until_us = 0;
}
