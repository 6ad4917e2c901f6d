/* The rules of raft/group.h one by one, with members whose log, machine and network are in this file. Nothing becomes
 * durable and nothing is delivered unless the test says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "raft/split.h"

enum { MEMBERS = 3, LOG_MAX = 128, QUEUE_MAX = 512, WRITES_MAX = 64 };

struct world;

struct write {
    struct raft_log_write w; /* entries and hard state are copies */
    struct raft_hard_state hard_state;
};

struct member {
    struct raft_log log;
    struct raft_machine machine;
    struct world *world;
    u64 id;
    struct group *group;
    bool manual; /* writes become durable by member_sync only */

    struct raft_hard_state hard_state;
    u64 point_index, point_term, last;
    struct raft_entry entries[LOG_MAX]; /* by index; durable */
    struct write writes[WRITES_MAX];
    u32 writes_n;

    struct raft_applied at;
    char state[32], open[32]; /* what was applied last; what the open evaluation wants */
    struct raft_applied child; /* of the last split … */
    u64 child_id;
    u64 deadline_ms, applied_n;
    char events[1024]; /* what the group asked for, in order */

    struct raft_applied incoming_at;
    char incoming[32];
    bool has_incoming;
};

struct message {
    u64 from, to;
    bool snapshot;
    struct raft_applied at;
    char state[32], *data;
    size_t size;
};

struct world {
    struct member member[MEMBERS + 1];
    struct message queue[QUEUE_MAX];
    u32 queue_n;
    bool cut[MEMBERS + 1][MEMBERS + 1];
    u32 silence[MEMBERS + 1]; /* of their nodes, in ticks */
    u64 sent;
};

#define LOG_MEMBER(l) ((struct member *)(void *)((char *)(l) - offsetof(struct member, log)))
#define MACHINE_MEMBER(m) ((struct member *)(void *)((char *)(m) - offsetof(struct member, machine)))

static void note(struct member *m, const char *what, const char *text)
{
    size_t n = strlen(m->events);
    snprintf(m->events + n, sizeof(m->events) - n, "%s%s%s ", what, *text ? ":" : "", text);
}

/* ---- The log. */

static struct raft_entry entry_copy(const struct raft_entry *e)
{
    struct raft_entry c = *e;
    u8 *data = mem_alloc(e->data.size + 1);
    if (e->data.size) memcpy(data, e->data.data, e->data.size);
    c.data.data = data;
    return c;
}

static void log_cut(struct member *m, u64 from)
{
    for (u64 i = MAX(from, m->point_index + 1); i <= m->last; i++) mem_free((void *)m->entries[i].data.data);
    m->last = MIN(m->last, MAX(from, 1) - 1);
}

static void log_load(struct raft_log *l, struct raft_log_state *s)
{
    struct member *m = LOG_MEMBER(l);
    *s = (struct raft_log_state){m->hard_state, m->point_index, m->point_term, m->last};
}

/* Makes the oldest write durable; returns its number. */
static u64 log_perform(struct member *m)
{
    struct write q = m->writes[0];
    m->writes_n--;
    memmove(m->writes, m->writes + 1, m->writes_n * sizeof(q));
    if (q.w.reset) {
        log_cut(m, 0);
        m->point_index = m->last = q.w.reset_index, m->point_term = q.w.reset_term;
    }
    if (q.w.entries_n) log_cut(m, q.w.entries[0].index);
    for (size_t i = 0; i < q.w.entries_n; i++) {
        assert_int_equal(q.w.entries[i].index, m->last + 1);
        assert_true(m->last + 1 < LOG_MAX);
        m->entries[++m->last] = q.w.entries[i];
    }
    if (q.w.hard_state) m->hard_state = q.hard_state;
    mem_free((void *)q.w.entries);
    return q.w.number;
}

static void log_write(struct raft_log *l, const struct raft_log_write *w)
{
    struct member *m = LOG_MEMBER(l);
    struct raft_entry *copy = mem_alloc((w->entries_n + 1) * sizeof(*copy));
    for (size_t i = 0; i < w->entries_n; i++) copy[i] = entry_copy(&w->entries[i]);
    assert_true(m->writes_n < WRITES_MAX);
    struct write *q = &m->writes[m->writes_n++];
    *q = (struct write){.w = *w};
    q->w.entries = copy;
    if (w->hard_state) q->hard_state = *w->hard_state;
    if (w->reset) note(m, "reset", "");
    if (w->number == 0) log_perform(m); /* group_open makes the log fit */
}

static bool log_read(struct raft_log *l, u64 low, u64 high, u64 bytes_max UNUSED, struct raft_core_sink *sink)
{
    struct member *m = LOG_MEMBER(l);
    if (low <= m->point_index || high > m->last + 1) return false;
    for (u64 i = low; i < high; i++) raft_core_push(sink, &m->entries[i]);
    return true;
}

static u64 log_term_of(struct raft_log *l, u64 index)
{
    struct member *m = LOG_MEMBER(l);
    if (index == m->point_index) return m->point_term;
    return index > m->point_index && index <= m->last ? m->entries[index].term : 0;
}

static void log_compact(struct raft_log *l, u64 index, u64 term)
{
    struct member *m = LOG_MEMBER(l);
    for (u64 i = m->point_index + 1; i <= index; i++) mem_free((void *)m->entries[i].data.data);
    m->point_index = index, m->point_term = term;
}

static const struct raft_log_ops LOG_OPS = {log_load, log_write, log_read, log_term_of, log_compact};

/* ---- The machine: its state is the last effects. */

static void machine_load(struct raft_machine *rm, struct raft_applied *at) { *at = MACHINE_MEMBER(rm)->at; }

static void machine_advance(struct member *m, const struct raft_applied *at)
{
    assert_int_equal(at->index, m->at.index + 1);
    assert_true(at->clock_ms >= m->at.clock_ms);
    m->at = *at;
}

static void machine_apply(struct raft_machine *rm, const struct raft_applied *at, const struct raft_command *c)
{
    struct member *m = MACHINE_MEMBER(rm);
    machine_advance(m, at);
    if (!c || c->kind != RAFT_KIND_EFFECTS) return;
    snprintf(m->state, sizeof(m->state), "%.*s", (int)c->payload.n, c->payload.p);
    note(m, "apply", m->state);
    m->applied_n++;
}

static void machine_split(struct raft_machine *rm, const struct raft_applied *at, u64 child,
                          const struct raft_applied *child_at)
{
    struct member *m = MACHINE_MEMBER(rm);
    machine_advance(m, at);
    m->child = *child_at, m->child_id = child;
    note(m, "split", "");
}

static void machine_commit(struct raft_machine *rm, const struct raft_applied *at)
{
    struct member *m = MACHINE_MEMBER(rm);
    machine_advance(m, at);
    if (*m->open) memcpy(m->state, m->open, sizeof(m->state));
    note(m, "commit", m->open);
    m->open[0] = 0;
    m->applied_n++;
}

static void machine_abandon(struct raft_machine *rm, enum group_loss loss)
{
    struct member *m = MACHINE_MEMBER(rm);
    note(m, "abandon", loss == GROUP_LOSS_VOID ? "void" : "unknown");
    m->open[0] = 0;
}

static void machine_confirmed(struct raft_machine *rm, u64 read UNUSED, bool ok)
{
    note(MACHINE_MEMBER(rm), "confirmed", ok ? "yes" : "no");
}

static void machine_readable(struct raft_machine *rm, u64 read UNUSED, bool ok)
{
    note(MACHINE_MEMBER(rm), "readable", ok ? MACHINE_MEMBER(rm)->state : "no");
}

static u64 machine_next_deadline(struct raft_machine *rm)
{
    struct member *m = MACHINE_MEMBER(rm);
    return m->deadline_ms > m->at.clock_ms ? m->deadline_ms : 0;
}

static struct message *machine_queue(struct member *m, u64 to, bytes data)
{
    struct world *w = m->world;
    assert_true(w->queue_n < QUEUE_MAX && to >= 1 && to <= MEMBERS);
    w->sent++;
    struct message *q = &w->queue[w->queue_n++];
    *q = (struct message){.from = m->id, .to = to, .size = data.n, .data = mem_alloc(data.n + 1)};
    memcpy(q->data, data.p, data.n);
    return q;
}

static void machine_send(struct raft_machine *rm, u64 to, bytes data)
{
    machine_queue(MACHINE_MEMBER(rm), to, data);
}

static void machine_snapshot_send(struct raft_machine *rm, u64 to, const struct raft_applied *at, bytes data)
{
    struct member *m = MACHINE_MEMBER(rm);
    struct message *q = machine_queue(m, to, data);
    q->snapshot = true, q->at = *at;
    memcpy(q->state, m->state, sizeof(q->state));
}

static void machine_snapshot_install(struct raft_machine *rm, u64 index, u64 term)
{
    struct member *m = MACHINE_MEMBER(rm);
    assert_true(m->has_incoming && m->incoming_at.index == index && m->incoming_at.term == term);
    note(m, "install", "");
}

static void machine_snapshot_discard(struct raft_machine *rm)
{
    MACHINE_MEMBER(rm)->has_incoming = false;
    note(MACHINE_MEMBER(rm), "discard", "");
}

static void machine_slept(struct raft_machine *rm UNUSED, bool asleep UNUSED) {}

static u32 machine_silence(struct raft_machine *rm, u64 peer)
{
    return MACHINE_MEMBER(rm)->world->silence[peer];
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
    .slept = machine_slept,
    .silence = machine_silence,
};

/* ---- The world. */

static void member_open(struct member *m)
{
    struct group_config c = {.id = m->id,
                             .seed = 1,
                             .nonce = 7,
                             .election_ticks = 10,
                             .heartbeat_ticks = 2,
                             .read_retry_ticks = 3,
                             .read_timeout_ticks = 30,
                             .sleep_ticks = 10,
                             .log_entries_max = 4};
    m->group = group_open(&c, &m->log, &m->machine);
}

static void member_init(struct world *w, u64 id)
{
    struct member *m = &w->member[id];
    m->world = w, m->id = id;
    m->log.ops = &LOG_OPS, m->machine.ops = &MACHINE_OPS;
}

static void member_wall(struct member *m, u64 ms) { group_wall(m->group, ms); }

/* The first n writes that wait become durable. */
static void member_sync_some(struct member *m, u32 n)
{
    u64 number = 0;
    while (n-- && m->writes_n) number = log_perform(m);
    if (number) group_durable(m->group, number);
}

static void member_sync(struct member *m)
{
    while (m->writes_n) member_sync_some(m, m->writes_n);
}

static void member_close(struct member *m)
{
    if (m->group) group_close(m->group);
    m->group = NULL;
    for (u32 i = 0; i < m->writes_n; i++) {
        for (size_t k = 0; k < m->writes[i].w.entries_n; k++)
            mem_free((void *)m->writes[i].w.entries[k].data.data);
        mem_free((void *)m->writes[i].w.entries);
    }
    m->writes_n = 0;
}

static void world_deliver(struct world *w, struct message *q)
{
    struct member *to = &w->member[q->to], *from = &w->member[q->from];
    bool lost = w->cut[q->from][q->to] || !to->group;
    if (q->snapshot && !lost) {
        to->has_incoming = true, to->incoming_at = q->at;
        memcpy(to->incoming, q->state, sizeof(q->state));
        group_receive_snapshot(to->group, q->from, bytes_of(q->data, q->size));
    } else if (!lost) {
        group_receive(to->group, q->from, bytes_of(q->data, q->size));
    }
    if (q->snapshot && from->group) group_snapshot_sent(from->group, q->to, !lost);
    mem_free(q->data);
}

static bool world_deliver_one(struct world *w)
{
    if (!w->queue_n) return false;
    struct message q = w->queue[0];
    memmove(w->queue, w->queue + 1, --w->queue_n * sizeof(q));
    world_deliver(w, &q);
    return true;
}

/* Delivers and stores until nothing is left to do. */
static void world_run(struct world *w)
{
    do {
        for (u32 i = 1; i <= MEMBERS; i++)
            if (w->member[i].group && !w->member[i].manual) member_sync(&w->member[i]);
    } while (world_deliver_one(w));
}

static void world_tick(struct world *w, u32 n)
{
    while (n--) {
        for (u32 i = 1; i <= MEMBERS; i++)
            if (w->member[i].group) group_tick(w->member[i].group);
        world_run(w);
    }
}

static void world_isolate(struct world *w, u64 id)
{
    for (u64 i = 1; i <= MEMBERS; i++) w->cut[i][id] = w->cut[id][i] = i != id;
}

static void world_heal(struct world *w) { memset(w->cut, 0, sizeof(w->cut)); }

static void world_lead(struct world *w, u64 id)
{
    for (u32 i = 0; i < 20 && !group_is_leader(w->member[id].group); i++) {
        world_tick(w, 10); /* those who heard from a leader lately do not vote */
        group_campaign(w->member[id].group);
        world_run(w);
    }
    assert_true(group_is_leader(w->member[id].group));
}

static struct world *world_new(u32 voters)
{
    struct world *w = mem_zalloc(sizeof(*w));
    for (u32 i = 1; i <= MEMBERS; i++) member_init(w, i);
    for (u32 i = 1; i <= voters; i++) {
        struct raft_applied *at = &w->member[i].at;
        at->index = 5, at->term = 5, at->clock_ms = 100, at->epoch.version = 1, at->slots.last = RAFT_SLOTS - 1;
        for (u32 k = 1; k <= voters; k++) at->conf.voters[at->conf.voters_n++] = k;
    }
    for (u32 i = 1; i <= MEMBERS; i++) member_open(&w->member[i]);
    for (u32 i = 1; i <= MEMBERS; i++) member_wall(&w->member[i], 1000);
    group_campaign(w->member[1].group);
    world_run(w);
    for (u32 i = 1; i <= MEMBERS; i++) w->member[i].events[0] = 0;
    return w;
}

static void world_free(struct world *w)
{
    for (u32 i = 0; i < w->queue_n; i++) mem_free(w->queue[i].data);
    for (u32 i = 1; i <= MEMBERS; i++) {
        member_close(&w->member[i]);
        log_cut(&w->member[i], 0);
    }
    mem_free(w);
}

static bool split(struct member *m, u64 child, u16 first)
{
    struct buf b = {0};
    raft_split_encode(&b, &(struct raft_split){child, first});
    bool ok = group_propose(m->group, RAFT_KIND_SPLIT, buf_bytes(&b));
    buf_release(&b);
    return ok;
}

static enum group_wait propose(struct member *m, const char *text, u64 depends_ms)
{
    u64 read = 0;
    u64 now = group_evaluation_time(m->group);
    snprintf(m->open, sizeof(m->open), "%s", text);
    return group_evaluated(m->group, now, bytes_of(text, strlen(text)), depends_ms, &read);
}

/* Evaluates a write on a leader. */
static enum group_wait evaluate(struct member *m, const char *text, u64 depends_ms)
{
    assert_true(group_may_evaluate(m->group));
    return propose(m, text, depends_ms);
}

static struct group_status status(struct member *m)
{
    struct group_status s;
    group_status(m->group, &s);
    return s;
}

/* ---- Rule 1. */

static void test_promises_wait_for_the_log(void **unused UNUSED)
{
    struct world *w = mem_zalloc(sizeof(*w));
    for (u32 i = 1; i <= MEMBERS; i++) member_init(w, i);
    for (u32 i = 1; i <= 2; i++)
        w->member[i].at = (struct raft_applied){.index = 5, .term = 5, .conf = {.voters = {1, 2}, .voters_n = 2}};
    for (u32 i = 1; i <= MEMBERS; i++) member_open(&w->member[i]);
    struct member *a = &w->member[1], *b = &w->member[2];
    b->manual = true;
    group_campaign(a->group);
    world_run(w);
    assert_false(group_is_leader(a->group)); /* b's vote is not durable */
    assert_true(b->writes_n > 0);
    member_sync(b);
    world_run(w);
    assert_true(group_is_leader(a->group));
    member_sync(b);
    world_run(w);
    assert_int_equal(evaluate(a, "x", 0), GROUP_WAIT_COMMIT);
    world_run(w);
    assert_string_equal(a->events, "reset "); /* of the start; b has the entry, but not durably */
    member_sync(b);
    world_run(w);
    assert_string_equal(a->events, "reset commit:x ");
    world_free(w);
}

/* Acknowledgements leave in the order of writes, also when there is always one more on its way. */
static void test_messages_that_wait_are_sent_once(void **unused UNUSED)
{
    struct world *w = world_new(2);
    struct member *a = &w->member[1], *b = &w->member[2];
    b->manual = true;
    for (u32 i = 0; i < 40; i++) {
        assert_true(group_propose(a->group, RAFT_KIND_DIGEST, bytes_of("", 0)));
        world_run(w);
        while (b->writes_n > 1) member_sync_some(b, 1);
    }
    u64 before = a->at.index;
    assert_true(before >= 5 + 1 + 39 - 1);
    member_sync(b);
    world_run(w);
    assert_int_equal(a->at.index, 5 + 1 + 40);
    world_free(w);
}

/* ---- Rule 2. */

static void test_entries_are_applied_in_order_and_once(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1], *c = &w->member[3];
    struct raft_applied first = c->at;
    for (u32 i = 0; i < 5; i++) {
        char text[8];
        snprintf(text, sizeof(text), "%u", i);
        assert_int_equal(evaluate(a, text, 0), GROUP_WAIT_COMMIT);
        world_run(w);
    }
    world_tick(w, 2); /* followers hear that the last one is committed */
    assert_string_equal(a->events, "commit:0 commit:1 commit:2 commit:3 commit:4 ");
    assert_string_equal(c->events, "apply:0 apply:1 apply:2 apply:3 apply:4 ");
    member_close(c); /* its machine comes back without what it had not stored */
    c->at = first, c->events[0] = 0;
    member_open(c);
    world_tick(w, 4);
    assert_string_equal(c->events, "apply:0 apply:1 apply:2 apply:3 apply:4 ");
    world_free(w);
}

/* ---- Rule 3. */

static void test_an_entry_that_survives_its_leader_is_applied(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    w->cut[2][1] = w->cut[3][1] = true; /* it is heard, and hears nothing */
    evaluate(a, "x", 0);
    world_run(w);
    assert_false(group_may_evaluate(a->group)); /* one evaluation at a time */
    w->cut[1][2] = w->cut[1][3] = true;
    world_lead(w, 2);
    world_heal(w);
    world_tick(w, 4);
    assert_string_equal(a->events, "abandon:unknown apply:x ");
    assert_string_equal(a->state, "x");
    assert_string_equal(w->member[2].state, "x");
    world_free(w);
}

static void test_an_entry_that_is_lost_is_given_up(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    world_isolate(w, 1);
    evaluate(a, "x", 0);
    world_lead(w, 2);
    evaluate(&w->member[2], "y", 0);
    world_run(w);
    world_heal(w);
    world_tick(w, 4);
    assert_string_equal(a->events, "abandon:unknown apply:y ");
    assert_int_equal(status(a).evaluations_abandoned, 1);
    world_free(w);
}

/* ---- Rule 4. */

static void test_an_entry_of_another_epoch_is_void(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    assert_true(split(a, 2, 100));
    propose(a, "x", 0); /* its evaluation was open before */
    world_run(w);
    world_tick(w, 2);
    assert_string_equal(a->events, "split abandon:void ");
    for (u32 i = 1; i <= 3; i++) {
        assert_int_equal(w->member[i].at.epoch.version, 2);
        assert_int_equal(status(&w->member[i]).entries_void, 1);
        assert_string_equal(w->member[i].state, "");
    }
    evaluate(a, "y", 0);
    world_run(w);
    assert_string_equal(a->state, "y");
    world_free(w);
}

static void test_a_void_clock_entry_is_proposed_again(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    a->deadline_ms = 1500;
    member_wall(a, 2000);
    assert_true(split(a, 2, 100));
    a->deadline_ms = 2500;
    member_wall(a, 3000);
    assert_true(group_clock_due(a->group));
    assert_false(group_clock_due(a->group)); /* once is enough */
    world_run(w);
    assert_int_equal(status(a).entries_void, 1);
    assert_int_equal(group_clock(a->group), 2000);
    assert_true(group_clock_due(a->group)); /* the first one was void: the deadline is still due */
    world_run(w);
    assert_int_equal(group_clock(a->group), 3000);
    assert_false(group_clock_due(a->group));
    world_free(w);
}

/* ---- Rule 5. */

static void test_stamps_never_decrease(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1], *b = &w->member[2];
    member_wall(a, 9000);
    evaluate(a, "x", 0);
    world_run(w);
    member_wall(a, 4000); /* set back */
    assert_int_equal(group_evaluation_time(a->group), 9000);
    evaluate(a, "y", 0);
    world_run(w);
    assert_int_equal(group_clock(a->group), 9000);
    member_wall(b, 300);
    world_isolate(w, 1);
    world_lead(w, 2);
    assert_int_equal(group_evaluation_time(b->group), 9000);
    evaluate(b, "z", 0);
    world_run(w);
    assert_int_equal(group_clock(b->group), 9000);
    assert_int_equal(status(b).clock_ahead_ms, 8700);
    world_free(w);
}

static void test_what_is_proposed_during_an_evaluation_has_its_time(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    u64 read;
    member_wall(a, 5000);
    u64 now_ms = group_evaluation_time(a->group);
    member_wall(a, 6000); /* it takes long */
    assert_true(group_propose(a->group, RAFT_KIND_DIGEST, (bytes){0}));
    snprintf(a->open, sizeof(a->open), "x");
    assert_int_equal(group_evaluated(a->group, now_ms, BYTES_LIT("x"), 0, &read), GROUP_WAIT_COMMIT);
    world_run(w);
    assert_string_equal(a->events, "commit:x ");
    assert_int_equal(group_clock(a->group), 5000);
    assert_int_equal(group_evaluation_time(a->group), 6000);
    world_free(w);
}

/* ---- Rule 6. */

static void test_a_death_that_was_seen_is_logged(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    member_wall(a, 5000);
    world_isolate(w, 1);
    assert_int_equal(evaluate(a, "", 4000), GROUP_WAIT_COMMIT);
    world_run(w);
    assert_string_equal(a->events, "");
    world_heal(w);
    world_tick(w, 4);
    assert_string_equal(a->events, "commit ");
    for (u32 i = 1; i <= 3; i++) assert_int_equal(w->member[i].at.clock_ms, 5000);
    assert_int_equal(evaluate(a, "", 4000), GROUP_WAIT_READ); /* known to all by now */
    world_free(w);
}

/* ---- Rule 7. */

static void test_a_read_waits_for_a_quorum_and_is_asked_again(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    assert_int_equal(evaluate(a, "", 0), GROUP_WAIT_READ);
    assert_string_equal(a->events, "");
    world_run(w);
    assert_string_equal(a->events, "confirmed:yes ");
    world_isolate(w, 1);
    evaluate(a, "", 0);
    world_tick(w, 4); /* the question is lost, and asked again */
    assert_string_equal(a->events, "confirmed:yes ");
    assert_int_equal(status(a).reads_retried, 1);
    assert_int_equal(status(a).reads_waiting, 1);
    world_heal(w);
    world_tick(w, 4);
    assert_string_equal(a->events, "confirmed:yes confirmed:yes ");
    world_free(w);
}

static void test_a_read_of_a_replaced_leader_fails(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    world_isolate(w, 1);
    evaluate(a, "", 0);
    world_lead(w, 2);
    evaluate(&w->member[2], "new", 0);
    world_run(w);
    world_heal(w);
    world_tick(w, 4);
    assert_string_equal(a->events, "confirmed:no apply:new ");
    world_free(w);
}

/* ---- Rule 8. */

static void test_a_follower_reads_what_was_committed_when_it_asked(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1], *c = &w->member[3];
    w->cut[1][3] = true;
    evaluate(a, "x", 0);
    world_run(w);
    w->cut[1][3] = false;
    group_follower_read(c->group);
    assert_string_equal(c->events, "");
    world_tick(w, 4);
    assert_string_equal(c->events, "apply:x readable:x ");
    world_free(w);
}

static void test_a_follower_read_moves_the_clock_past_deadlines(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1], *c = &w->member[3];
    a->deadline_ms = 2000;
    member_wall(a, 3000);
    group_follower_read(c->group);
    world_tick(w, 2);
    assert_string_equal(c->events, "readable ");
    assert_int_equal(group_clock(c->group), 3000);
    world_free(w);
}

static void test_a_follower_read_without_a_leader_fails(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *c = &w->member[3];
    world_isolate(w, 3);
    group_follower_read(c->group);
    world_tick(w, 30);
    assert_string_equal(c->events, "");
    world_tick(w, 2);
    assert_string_equal(c->events, "readable:no ");
    world_free(w);
}

/* ---- Rule 9. */

/* Member 3 has missed entries that the log of the leader, member 1, no longer has: it installs a snapshot. */
static struct world *world_installing(void)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1], *c = &w->member[3];
    world_isolate(w, 3);
    for (u32 i = 0; i < 12; i++) {
        evaluate(a, "x", 0);
        world_run(w);
    }
    group_compact(a->group, a->at.index);
    world_heal(w);
    c->manual = true;
    for (u32 i = 0; i < 30 && !status(c).installing; i++) {
        member_sync(c);
        world_tick(w, 1);
    }
    assert_true(status(c).installing);
    return w;
}

static void test_a_snapshot_is_installed_before_the_log_is_emptied(void **unused UNUSED)
{
    struct world *w = world_installing();
    struct member *a = &w->member[1], *c = &w->member[3];
    u64 term = status(c).core.term;
    member_sync(c);
    group_tick(c->group);
    group_campaign(c->group); /* nothing happens meanwhile */
    assert_int_equal(status(c).core.term, term);
    assert_string_equal(c->events, "install ");
    assert_int_equal(c->writes_n, 0);
    c->at = c->incoming_at;
    memcpy(c->state, c->incoming, sizeof(c->state));
    group_installed(c->group, &c->incoming_at);
    assert_string_equal(c->events, "install reset ");
    assert_true(status(c).installing); /* until the log is durable, too */
    member_sync(c);
    assert_false(status(c).installing);
    assert_int_equal(c->point_index, c->at.index);
    c->manual = false;
    evaluate(a, "y", 0);
    world_tick(w, 4);
    assert_string_equal(c->state, "y");
    assert_string_equal(c->events, "install reset apply:y ");
    world_free(w);
}

static void test_the_log_waits_for_a_member_that_installs_a_snapshot(void **unused UNUSED)
{
    struct world *w = world_installing();
    struct member *a = &w->member[1], *c = &w->member[3];
    world_tick(w, 30); /* it has not answered for long */
    for (u32 i = 0; i < 3; i++) { /* log_entries_max is 4 */
        evaluate(a, "y", 0);
        world_run(w);
    }
    group_compact(a->group, a->at.index);
    assert_int_equal(a->point_index, c->incoming_at.index);
    c->at = c->incoming_at;
    memcpy(c->state, c->incoming, sizeof(c->state));
    group_installed(c->group, &c->incoming_at);
    member_sync(c);
    c->manual = false;
    evaluate(a, "z", 0);
    world_tick(w, 12);
    assert_string_equal(c->state, "z"); /* without another snapshot: it would have to be installed */
    world_free(w);
}

static void test_the_log_does_not_wait_for_a_node_that_is_gone(void **unused UNUSED)
{
    struct world *w = world_installing();
    struct member *a = &w->member[1];
    world_isolate(w, 3);
    world_tick(w, 30);
    evaluate(a, "y", 0);
    world_run(w);
    group_compact(a->group, a->at.index);
    assert_int_not_equal(a->point_index, a->at.index); /* its node is still heard of */
    w->silence[3] = 10;
    group_compact(a->group, a->at.index);
    assert_int_equal(a->point_index, a->at.index);
    world_free(w);
}

static void test_the_log_waits_for_a_snapshot_of_the_same_leadership_only(void **unused UNUSED)
{
    struct world *w = world_installing();
    struct member *a = &w->member[1], *b = &w->member[2];
    world_isolate(w, 3); /* it is gone before it has answered */
    group_transfer(a->group, 2);
    world_tick(w, 20);
    assert_true(group_is_leader(b->group));
    group_transfer(b->group, 1);
    world_tick(w, 20);
    assert_true(group_is_leader(a->group));
    world_tick(w, 20);
    evaluate(a, "y", 0);
    world_run(w);
    group_compact(a->group, a->at.index);
    assert_int_equal(a->point_index, a->at.index);
    world_free(w);
}

/* ---- Membership. */

static enum group_change change(struct member *m, u64 id, enum raft_change_type type)
{
    struct raft_change c = {id, type};
    return group_change(m->group, &c, 1);
}

static void test_changes_that_make_no_sense_are_refused(void **unused UNUSED)
{
    struct world *w = world_new(2);
    struct member *a = &w->member[1], *b = &w->member[2];
    assert_int_equal(change(b, 3, RAFT_ADD_LEARNER), GROUP_CHANGE_NOT_LEADER);
    assert_int_equal(group_change(a->group, NULL, 0), GROUP_CHANGE_INVALID);
    assert_int_equal(change(a, 3, RAFT_ADD_VOTER), GROUP_CHANGE_INVALID); /* a learner first */
    assert_int_equal(change(a, 3, RAFT_REMOVE), GROUP_CHANGE_INVALID);
    assert_int_equal(a->at.epoch.conf_ver, 0);
    assert_int_equal(change(a, 3, RAFT_ADD_LEARNER), GROUP_CHANGE_PROPOSED);
    assert_int_equal(change(a, 2, RAFT_REMOVE), GROUP_CHANGE_LATER); /* one at a time */
    world_free(w);
}

static void test_a_voter_becomes_a_learner(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    world_isolate(w, 3);
    world_tick(w, 25);
    assert_int_equal(change(a, 3, RAFT_ADD_LEARNER), GROUP_CHANGE_PROPOSED); /* its vote is not needed for that */
    world_tick(w, 4);
    assert_int_equal(a->at.conf.voters_n, 2);
    assert_int_equal(a->at.conf.learners_n, 1);
    assert_int_equal(a->at.conf.outgoing_n, 0);
    assert_int_equal(change(a, 3, RAFT_ADD_LEARNER), GROUP_CHANGE_INVALID);
    assert_int_equal(change(a, 1, RAFT_ADD_LEARNER), GROUP_CHANGE_LATER); /* leadership is handed on first */
    world_heal(w);
    world_tick(w, 10);
    assert_false(group_is_leader(a->group));
    world_free(w);
}

/* A log that is short because the first member's data is older than it is not caught up with by having nothing. */
static void test_a_learner_without_data_does_not_vote(void **unused UNUSED)
{
    struct world *w = world_new(2);
    struct member *a = &w->member[1], *c = &w->member[3];
    world_isolate(w, 3);
    assert_int_equal(change(a, 3, RAFT_ADD_LEARNER), GROUP_CHANGE_PROPOSED);
    world_tick(w, 1);
    assert_int_equal(a->at.conf.learners_n, 1);
    assert_int_equal(change(a, 3, RAFT_ADD_VOTER), GROUP_CHANGE_LATER);
    world_heal(w);
    for (u32 i = 0; i < 30 && !status(c).installing; i++) world_tick(w, 1);
    assert_int_equal(change(a, 3, RAFT_ADD_VOTER), GROUP_CHANGE_LATER);
    c->at = c->incoming_at;
    group_installed(c->group, &c->incoming_at);
    world_tick(w, 4);
    assert_int_equal(change(a, 3, RAFT_ADD_VOTER), GROUP_CHANGE_PROPOSED);
    world_free(w);
}

static void test_a_leader_that_is_removed_hands_on_first(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    assert_int_equal(change(a, 1, RAFT_REMOVE), GROUP_CHANGE_LATER);
    world_tick(w, 4);
    assert_false(group_is_leader(a->group));
    u64 leader = group_leader(a->group);
    assert_true(leader == 2 || leader == 3);
    assert_int_equal(change(&w->member[leader], 1, RAFT_REMOVE), GROUP_CHANGE_PROPOSED);
    world_tick(w, 4);
    assert_int_equal(w->member[leader].at.conf.voters_n, 2);
    assert_int_equal(w->member[leader].at.conf.outgoing_n, 0); /* left by itself */
    world_free(w);

    w = world_new(1);
    assert_int_equal(change(&w->member[1], 1, RAFT_REMOVE), GROUP_CHANGE_INVALID); /* nobody would be left */
    world_free(w);
}

static void test_a_change_leaves_a_majority_that_answers(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    world_isolate(w, 3);
    world_tick(w, 25); /* until the leader has noticed */
    assert_true(group_is_leader(a->group));
    assert_int_equal(change(a, 2, RAFT_REMOVE), GROUP_CHANGE_UNSAFE); /* 1 and 3 would be left */
    assert_int_equal(a->at.conf.voters_n, 3);
    assert_int_equal(change(a, 3, RAFT_REMOVE), GROUP_CHANGE_PROPOSED);
    world_tick(w, 4);
    assert_int_equal(a->at.conf.voters_n, 2);
    assert_int_equal(change(a, 2, RAFT_REMOVE), GROUP_CHANGE_PROPOSED); /* a sole voter is its own majority */
    world_free(w);
}

static void test_a_follower_asks_for_leadership(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1], *b = &w->member[2];
    evaluate(a, "x", 0);
    world_tick(w, 4);
    assert_true(group_is_leader(a->group));
    group_transfer(b->group, 2);
    world_tick(w, 4);
    assert_true(group_is_leader(b->group));
    assert_int_equal(group_leader(a->group), 2);
    world_isolate(w, 1);
    group_transfer(a->group, 1); /* nobody hears it */
    world_tick(w, 4);
    assert_true(group_is_leader(b->group));
    world_free(w);
}

/* ---- Rule 13. */

/* Member 2 has the entry, durably, before the leader itself does. */
static void test_leadership_is_handed_on_when_nothing_is_owed(void **unused UNUSED)
{
    for (int asked = 0; asked < 2; asked++) {
        struct world *w = world_new(3);
        struct member *a = &w->member[1], *b = &w->member[2];
        a->manual = true;
        w->cut[3][1] = true;
        evaluate(a, "x", 0);
        group_transfer(asked ? b->group : a->group, 2);
        world_run(w);
        assert_int_equal(status(b).core.persisted, status(a).core.last_index);
        assert_true(group_is_leader(a->group));
        member_sync(a);
        world_run(w);
        assert_string_equal(a->events, "commit:x ");
        a->manual = false;
        world_tick(w, 2);
        assert_true(group_is_leader(b->group));
        world_free(w);
    }
}

static void test_a_read_is_confirmed_before_leadership_is_handed_on(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1], *b = &w->member[2];
    u64 read;
    evaluate(a, "x", 0);
    world_tick(w, 2);
    group_evaluation_time(a->group);
    group_transfer(a->group, 2); /* by a request that is among those evaluated */
    w->cut[2][1] = w->cut[3][1] = true;
    assert_int_equal(group_evaluated(a->group, 1000, bytes_of(NULL, 0), 0, &read), GROUP_WAIT_READ);
    assert_false(group_may_evaluate(a->group));
    world_run(w);
    assert_true(group_is_leader(a->group));
    world_heal(w);
    world_tick(w, 4);
    assert_string_equal(a->events, "commit:x confirmed:yes ");
    assert_true(group_is_leader(b->group));
    world_free(w);
}

static void test_leadership_that_can_not_be_handed_on_stays(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    world_isolate(w, 1);
    evaluate(a, "x", 0);
    group_transfer(a->group, 2);
    world_tick(w, 4);
    world_heal(w);
    world_isolate(w, 2);
    group_tick(a->group), group_tick(a->group); /* the quorum does not answer yet */
    for (u32 i = 0; i < 8; i++) group_tick(a->group);
    world_run(w);
    world_tick(w, 2);
    assert_true(group_is_leader(a->group));
    assert_string_equal(a->events, "commit:x ");
    assert_true(group_may_evaluate(a->group));
    world_free(w);
}

/* Member 1 leads and removes itself, because another leader had proposed it. What it appended after that is in the log of
 * member 2, not durable yet, when 2 becomes the sole voter. The core would take that log for durable in an election. */
static void test_a_sole_voter_waits_for_its_log(void **unused UNUSED)
{
    struct world *w = world_new(2);
    struct member *a = &w->member[1], *b = &w->member[2];
    world_lead(w, 1);
    group_transfer(a->group, 2);
    world_tick(w, 3);
    assert_true(group_is_leader(b->group));
    w->cut[1][2] = true; /* 1 has the change, and 2 does not know */
    assert_int_equal(change(b, 1, RAFT_REMOVE), GROUP_CHANGE_PROPOSED);
    world_run(w);
    world_heal(w);
    w->cut[2][1] = true;
    for (u32 i = 0; i < 40 && group_is_leader(b->group); i++) group_tick(b->group), world_run(w);
    world_heal(w);
    group_campaign(a->group);
    b->manual = true;
    for (u32 i = 0; i < 200 && !(group_is_leader(a->group) && a->at.conf.outgoing_n); i++) {
        world_run(w);
        member_sync_some(b, 1);
    }
    assert_true(group_is_leader(a->group));
    assert_int_equal(a->at.conf.outgoing_n, 2); /* and the end of it is in the log */
    for (u32 i = 0; i < 3; i++) group_tick(a->group); /* sends it, in a message of its own */
    world_run(w);
    u64 leave_index = status(a).core.last_index;
    evaluate(a, "x", 0);
    for (u32 i = 0; i < 20 && b->at.index < leave_index; i++) {
        world_run(w);
        if (b->last < leave_index) member_sync_some(b, 1);
    }
    assert_int_equal(b->at.conf.voters_n, 1);
    assert_int_equal(b->at.conf.outgoing_n, 0);
    assert_int_equal(b->last, leave_index); /* without x */
    assert_int_equal(status(b).core.last_index, leave_index + 1);
    group_campaign(b->group);
    for (u32 i = 0; i < 30; i++) group_tick(b->group);
    assert_false(group_is_leader(b->group));
    member_sync(b);
    b->manual = false;
    group_campaign(b->group);
    world_run(w);
    assert_true(group_is_leader(b->group));
    assert_string_equal(b->state, "x");
    world_free(w);
}

/* ---- Restarts. */

static void member_restart(struct member *m, u64 index, u64 term, u64 commit)
{
    m->at = (struct raft_applied){.index = index, .term = term, .conf = {.voters = {1}, .voters_n = 1}};
    m->hard_state.commit = commit;
    member_open(m);
}

/* Entries 1 … n of term 1. */
static void member_fill(struct member *m, u64 n)
{
    struct buf b = {0};
    raft_command_encode(&b, &(struct raft_command){.kind = RAFT_KIND_EFFECTS, .payload = bytes_of("e", 1)});
    for (u64 i = 1; i <= n; i++) {
        struct raft_entry e = {i, 1, RAFT_ENTRY_NORMAL, {(const u8 *)b.p, b.n}};
        m->entries[i] = entry_copy(&e);
    }
    m->last = n;
    m->hard_state = (struct raft_hard_state){1, 0, 0};
    buf_release(&b);
}

static void test_a_machine_ahead_of_its_log_counts(void **unused UNUSED)
{
    struct world *w = mem_zalloc(sizeof(*w));
    struct member *m = &w->member[1];
    member_init(w, 1);
    member_fill(m, 3);
    member_restart(m, 7, 2, 3);
    assert_string_equal(m->events, "reset ");
    assert_int_equal(m->point_index, 7);
    assert_int_equal(m->point_term, 2);
    assert_int_equal(m->last, 7);
    assert_int_equal(status(m).core.commit, 7);
    assert_int_equal(status(m).core.term, 2);
    world_free(w);
}

static void test_a_log_ahead_of_its_machine_is_applied(void **unused UNUSED)
{
    struct world *w = mem_zalloc(sizeof(*w));
    struct member *m = &w->member[1];
    member_init(w, 1);
    member_fill(m, 5);
    member_restart(m, 2, 1, 4);
    assert_string_equal(m->events, "apply:e apply:e "); /* 3 and 4; nobody knows about 5 yet */
    assert_int_equal(m->at.index, 4);
    assert_int_equal(m->last, 5);
    group_campaign(m->group);
    world_run(w);
    assert_int_equal(m->at.index, 6); /* 5, and the entry that starts a term */
    world_free(w);
}

static void test_a_log_that_a_snapshot_overruled_is_dropped(void **unused UNUSED)
{
    struct world *w = mem_zalloc(sizeof(*w));
    struct member *m = &w->member[1];
    member_init(w, 1);
    member_fill(m, 9);
    member_restart(m, 7, 3, 2); /* entry 7 of the log has term 1 */
    assert_string_equal(m->events, "reset ");
    assert_int_equal(m->last, 7);
    assert_int_equal(m->at.index, 7);
    world_free(w);
}

/* ---- Rules 10 and 12. */

static void assert_slots(const struct raft_applied *at, u16 first, u16 last)
{
    assert_int_equal(at->slots.first, first);
    assert_int_equal(at->slots.last, last);
}

static void test_a_split_makes_the_same_child_everywhere(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    assert_true(group_propose(a->group, RAFT_KIND_DEATHS, bytes_of("\1", 1)));
    struct raft_change learner = {3, RAFT_REMOVE};
    assert_int_equal(group_change(a->group, &learner, 1), GROUP_CHANGE_PROPOSED);
    world_tick(w, 4);
    assert_true(split(a, 77, 6000));
    world_run(w);
    world_tick(w, 2);
    for (u32 i = 1; i <= 2; i++) {
        const struct member *m = &w->member[i];
        assert_int_equal(m->child_id, 77);
        assert_int_equal(m->child.index, RAFT_FIRST_INDEX);
        assert_int_equal(m->child.term, RAFT_FIRST_TERM);
        assert_int_equal(m->child.clock_ms, m->at.clock_ms);
        assert_int_equal(m->child.deaths_from_ms, m->at.deaths_from_ms);
        assert_true(m->child.deaths_from_ms > 0);
        assert_memory_equal(&m->child.epoch, &m->at.epoch, sizeof(m->at.epoch));
        assert_memory_equal(&m->child.conf, &m->at.conf, sizeof(m->at.conf));
        assert_int_equal(m->child.conf.voters_n, 2);
        assert_int_equal(m->at.epoch.version, 2);
        assert_slots(&m->at, 0, 5999);
        assert_slots(&m->child, 6000, RAFT_SLOTS - 1);
        assert_memory_equal(&m->child, &w->member[1].child, sizeof(m->child));
    }
    world_free(w);
}

/* The slots are checked when it is applied: its leader may have known no better when it proposed. */
static void test_a_split_that_does_not_fit_is_void(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    assert_true(split(a, 2, 6000));
    world_run(w);
    struct raft_applied before = a->at;
    assert_true(split(a, 3, 0)); /* nothing would stay */
    assert_true(split(a, 3, 6000)); /* nothing would go */
    assert_true(group_propose(a->group, RAFT_KIND_SPLIT, bytes_of("damaged", 7)));
    world_run(w);
    assert_int_equal(a->at.epoch.version, before.epoch.version);
    assert_slots(&a->at, 0, 5999);
    assert_int_equal(status(a).entries_void, 3);
    assert_int_equal(a->child_id, 2);
    assert_int_equal(evaluate(a, "x", 0), GROUP_WAIT_COMMIT); /* the leader waits for none of them */
    world_run(w);
    assert_string_equal(a->state, "x");
    world_free(w);
}

static void test_of_two_splits_of_an_epoch_the_second_is_void(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    world_isolate(w, 1);
    assert_true(split(a, 2, 8000));
    assert_true(split(a, 3, 4000));
    assert_false(group_may_evaluate(a->group));
    world_heal(w);
    world_tick(w, 4);
    assert_int_equal(a->at.epoch.version, 2);
    assert_slots(&a->at, 0, 7999);
    assert_int_equal(a->child_id, 2);
    assert_true(group_may_evaluate(a->group));
    world_free(w);
}

/* Its changes would be committed with the split, and be void. */
static void test_no_split_is_proposed_during_an_evaluation(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    u64 read = 0, now = group_evaluation_time(a->group);
    assert_false(split(a, 2, 8000));
    assert_false(group_propose(a->group, RAFT_KIND_DEATHS, bytes_of("\1", 1)));
    assert_true(group_propose(a->group, RAFT_KIND_DIGEST, bytes_of("", 0)));
    snprintf(a->open, sizeof(a->open), "x");
    assert_int_equal(group_evaluated(a->group, now, bytes_of("x", 1), 0, &read), GROUP_WAIT_COMMIT);
    assert_true(split(a, 2, 8000));
    world_run(w);
    assert_string_equal(a->state, "x");
    assert_int_equal(a->child_id, 2);
    assert_int_equal(status(a).entries_void, 0);
    world_free(w);
}

/* A split that was lost with its leader keeps nobody from evaluating. */
static void test_a_lost_split_is_forgotten(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    world_isolate(w, 1);
    assert_true(split(a, 2, 8000));
    world_run(w);
    assert_false(group_may_evaluate(a->group));
    world_lead(w, 2);
    world_heal(w);
    world_tick(w, 4);
    world_isolate(w, 2);
    world_lead(w, 1);
    assert_true(group_may_evaluate(a->group));
    assert_slots(&a->at, 0, RAFT_SLOTS - 1);
    world_free(w);
}

/* What dies between two entries that switch it on is logged; nothing is evaluated under the rule before. */
/* ---- Sleep (rules 18 to 20). */

enum { SLEEP_SOON = 16 };

static u32 sleepers(const struct world *w)
{
    u32 n = 0;
    for (u32 i = 1; i <= MEMBERS; i++) n += w->member[i].group && group_sleeps(w->member[i].group);
    return n;
}

static void test_an_idle_group_sleeps_until_a_write(void **unused UNUSED)
{
    struct world *w = world_new(3);
    world_tick(w, SLEEP_SOON);
    assert_int_equal(sleepers(w), 3);
    u64 sent = w->sent;
    world_tick(w, 100);
    assert_int_equal(w->sent, sent);
    assert_int_equal(evaluate(&w->member[1], "x", 0), GROUP_WAIT_COMMIT);
    world_run(w);
    assert_int_equal(sleepers(w), 0);
    world_tick(w, 1);
    for (u32 i = 1; i <= 3; i++) assert_int_equal(w->member[i].at.index, w->member[1].at.index);
    world_tick(w, SLEEP_SOON);
    assert_int_equal(sleepers(w), 3);
    world_free(w);
}

static void test_a_group_sleeps_with_all_members_or_not_at_all(void **unused UNUSED)
{
    struct world *w = world_new(3);
    world_isolate(w, 3);
    assert_int_equal(evaluate(&w->member[1], "x", 0), GROUP_WAIT_COMMIT);
    world_run(w);
    world_tick(w, 50);
    assert_int_equal(sleepers(w), 0);
    world_heal(w);
    world_tick(w, 30);
    assert_int_equal(sleepers(w), 3);
    w->silence[3] = 10; /* its node is lost, too */
    world_isolate(w, 3);
    group_doubt(w->member[1].group, 3);
    world_tick(w, 50);
    assert_int_equal(sleepers(w), 1);
    world_free(w);
}

/* A follower that missed the message sleeps as little as the one that others wake. */
static void test_who_is_awake_wakes_the_leader(void **unused UNUSED)
{
    struct world *w = world_new(3);
    world_tick(w, SLEEP_SOON);
    group_wake(w->member[2].group);
    assert_int_equal(sleepers(w), 2);
    world_run(w);
    assert_false(group_sleeps(w->member[1].group));
    world_tick(w, 30);
    assert_int_equal(sleepers(w), 3);
    assert_true(group_is_leader(w->member[1].group));
    world_free(w);
}

static void test_a_leader_that_is_lost_in_its_sleep_is_replaced(void **unused UNUSED)
{
    struct world *w = world_new(3);
    world_tick(w, SLEEP_SOON);
    assert_int_equal(sleepers(w), 3);
    member_close(&w->member[1]);
    w->silence[1] = 10;
    for (u32 i = 2; i <= 3; i++) group_doubt(w->member[i].group, 2); /* that is not the leader's node */
    assert_int_equal(sleepers(w), 2);
    for (u32 i = 2; i <= 3; i++) group_doubt(w->member[i].group, 1);
    world_tick(w, 25);
    assert_true(group_is_leader(w->member[2].group) || group_is_leader(w->member[3].group));
    world_free(w);
}

static void test_a_follower_read_wakes_a_group(void **unused UNUSED)
{
    struct world *w = world_new(3);
    world_tick(w, SLEEP_SOON);
    w->member[2].events[0] = 0;
    group_follower_read(w->member[2].group);
    world_run(w);
    assert_non_null(strstr(w->member[2].events, "readable"));
    assert_false(group_sleeps(w->member[1].group));
    world_free(w);
}

/* ---- Rule 21. */

/* The loop of member 1, the leader, stands still. Every 5 ticks the others hear a beat of the node of `from`. */
static bool replaced_within(struct world *w, u64 from, u32 ticks)
{
    for (u32 t = 0; t < ticks; t++) {
        for (u32 i = 2; i <= 3; i++) {
            if (t % 5 == 0) group_excuse(w->member[i].group, from);
            group_tick(w->member[i].group);
        }
        world_run(w);
    }
    return group_is_leader(w->member[2].group) || group_is_leader(w->member[3].group);
}

static void test_a_leader_that_is_held_up_is_not_replaced(void **unused UNUSED)
{
    struct world *w = world_new(3);
    world_isolate(w, 1);
    assert_false(replaced_within(w, 1, 100));
    world_heal(w);
    assert_int_equal(evaluate(&w->member[1], "a", 0), GROUP_WAIT_COMMIT);
    world_run(w);
    assert_non_null(strstr(w->member[1].events, "commit"));
    world_isolate(w, 1);
    assert_true(replaced_within(w, 2, 40)); /* not the leader's node */
    world_free(w);
}

static bool steps_down_within(struct world *w, bool excused, u32 ticks)
{
    for (u32 t = 0; t < ticks; t++) {
        if (excused && t % 5 == 0) group_excuse(w->member[1].group, 2);
        group_tick(w->member[1].group);
        world_run(w);
    }
    return !group_is_leader(w->member[1].group);
}

static void test_a_leader_whose_messages_are_long_stays(void **unused UNUSED)
{
    struct world *w = world_new(3);
    world_isolate(w, 1);
    assert_int_equal(evaluate(&w->member[1], "a", 0), GROUP_WAIT_COMMIT);
    assert_false(steps_down_within(w, true, 100));
    assert_null(strstr(w->member[1].events, "commit"));
    assert_true(steps_down_within(w, false, 30));
    world_free(w);
}

/* ---- What is told, and what is stored, of commits. */

static void test_a_commit_is_told_with_the_next_entry(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1], *b = &w->member[2];
    world_lead(w, 1);
    world_tick(w, 3);
    for (u32 i = 0; i < 3; i++) {
        evaluate(a, i ? "y" : "x", 0);
        world_run(w);
        assert_int_equal(a->at.index, status(a).core.last_index);
        assert_int_equal(b->at.index, a->at.index - 1);
    }
    group_tell(a->group);
    world_run(w);
    assert_int_equal(b->at.index, a->at.index);
    assert_string_equal(b->state, "y");
    assert_true(split(a, 7, 100)); /* this, and all before, at once */
    world_run(w);
    assert_int_equal(b->at.index, a->at.index);
    assert_int_equal(b->child_id, 7);
    evaluate(a, "z", 0);
    world_run(w);
    world_tick(w, 1);
    assert_string_equal(b->state, "z");
    world_free(w);
}

/* After a crash it would otherwise ask the old members for their votes. */
static void test_a_change_of_members_is_stored_as_committed(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1], *b = &w->member[2];
    world_lead(w, 1);
    world_tick(w, 3);
    for (u32 i = 0; i < 3; i++) evaluate(a, "x", 0), world_run(w);
    u64 commit = b->hard_state.commit;
    for (u32 i = 0; i < 3; i++) evaluate(a, "x", 0), world_run(w);
    assert_true(b->at.index > commit);
    assert_int_equal(b->hard_state.commit, commit); /* of no use: not written */
    u64 joint = status(a).core.last_index + 1;
    assert_int_equal(change(a, 3, RAFT_REMOVE), GROUP_CHANGE_PROPOSED);
    world_run(w);
    world_tick(w, 3);
    assert_true(b->last > joint && b->entries[b->last].type != RAFT_ENTRY_NORMAL); /* the end of it */
    assert_true(b->hard_state.commit >= joint);
    world_free(w);
}

static void test_deaths_are_logged_from_the_first_entry_on(void **unused UNUSED)
{
    struct world *w = world_new(3);
    struct member *a = &w->member[1];
    member_wall(a, 2000);
    assert_true(group_propose(a->group, RAFT_KIND_DEATHS, bytes_of("\1", 1)));
    assert_false(group_may_evaluate(a->group));
    world_run(w);
    assert_true(group_may_evaluate(a->group));
    assert_int_equal(a->at.deaths_from_ms, 2000);
    member_wall(a, 3000);
    assert_true(group_propose(a->group, RAFT_KIND_DEATHS, bytes_of("\1", 1)));
    world_run(w);
    assert_int_equal(a->at.deaths_from_ms, 2000);
    assert_true(group_propose(a->group, RAFT_KIND_DEATHS, bytes_of("\0", 1)));
    world_run(w);
    assert_int_equal(a->at.deaths_from_ms, 0);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_promises_wait_for_the_log),
        cmocka_unit_test(test_messages_that_wait_are_sent_once),
        cmocka_unit_test(test_entries_are_applied_in_order_and_once),
        cmocka_unit_test(test_an_entry_that_survives_its_leader_is_applied),
        cmocka_unit_test(test_an_entry_that_is_lost_is_given_up),
        cmocka_unit_test(test_an_entry_of_another_epoch_is_void),
        cmocka_unit_test(test_a_void_clock_entry_is_proposed_again),
        cmocka_unit_test(test_stamps_never_decrease),
        cmocka_unit_test(test_what_is_proposed_during_an_evaluation_has_its_time),
        cmocka_unit_test(test_a_death_that_was_seen_is_logged),
        cmocka_unit_test(test_a_read_waits_for_a_quorum_and_is_asked_again),
        cmocka_unit_test(test_a_read_of_a_replaced_leader_fails),
        cmocka_unit_test(test_a_follower_reads_what_was_committed_when_it_asked),
        cmocka_unit_test(test_a_follower_read_moves_the_clock_past_deadlines),
        cmocka_unit_test(test_a_follower_read_without_a_leader_fails),
        cmocka_unit_test(test_a_snapshot_is_installed_before_the_log_is_emptied),
        cmocka_unit_test(test_the_log_waits_for_a_member_that_installs_a_snapshot),
        cmocka_unit_test(test_the_log_does_not_wait_for_a_node_that_is_gone),
        cmocka_unit_test(test_the_log_waits_for_a_snapshot_of_the_same_leadership_only),
        cmocka_unit_test(test_changes_that_make_no_sense_are_refused),
        cmocka_unit_test(test_a_voter_becomes_a_learner),
        cmocka_unit_test(test_a_learner_without_data_does_not_vote),
        cmocka_unit_test(test_a_leader_that_is_removed_hands_on_first),
        cmocka_unit_test(test_a_change_leaves_a_majority_that_answers),
        cmocka_unit_test(test_a_follower_asks_for_leadership),
        cmocka_unit_test(test_leadership_is_handed_on_when_nothing_is_owed),
        cmocka_unit_test(test_a_read_is_confirmed_before_leadership_is_handed_on),
        cmocka_unit_test(test_leadership_that_can_not_be_handed_on_stays),
        cmocka_unit_test(test_a_sole_voter_waits_for_its_log),
        cmocka_unit_test(test_a_machine_ahead_of_its_log_counts),
        cmocka_unit_test(test_a_log_ahead_of_its_machine_is_applied),
        cmocka_unit_test(test_a_log_that_a_snapshot_overruled_is_dropped),
        cmocka_unit_test(test_a_split_makes_the_same_child_everywhere),
        cmocka_unit_test(test_a_split_that_does_not_fit_is_void),
        cmocka_unit_test(test_of_two_splits_of_an_epoch_the_second_is_void),
        cmocka_unit_test(test_no_split_is_proposed_during_an_evaluation),
        cmocka_unit_test(test_a_lost_split_is_forgotten),
        cmocka_unit_test(test_an_idle_group_sleeps_until_a_write),
        cmocka_unit_test(test_a_group_sleeps_with_all_members_or_not_at_all),
        cmocka_unit_test(test_who_is_awake_wakes_the_leader),
        cmocka_unit_test(test_a_leader_that_is_lost_in_its_sleep_is_replaced),
        cmocka_unit_test(test_a_leader_that_is_held_up_is_not_replaced),
        cmocka_unit_test(test_a_leader_whose_messages_are_long_stays),
        cmocka_unit_test(test_a_follower_read_wakes_a_group),
        cmocka_unit_test(test_a_commit_is_told_with_the_next_entry),
        cmocka_unit_test(test_a_change_of_members_is_stored_as_committed),
        cmocka_unit_test(test_deaths_are_logged_from_the_first_entry_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
