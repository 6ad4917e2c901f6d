/* Rules 14 to 17 of raft/merge.h, with members whose logs are durable when the test says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "cluster/merge_rules.h"
#include "cluster/peer_id.h"
#include "raft/merge.h"

enum { SELF = 1, SOURCE = 7, LOG_MAX = 128, MAIL_MAX = 64 };

struct mail {
    u64 to;
    bytes message; /* owned */
};

struct member {
    struct raft_machine machine;
    struct raft_log log;
    u64 id;
    struct mail mail[MAIL_MAX]; /* it has sent, and nobody has got it yet */
    u32 mail_n;
    struct group *group;
    struct raft_applied at;
    struct raft_hard_state hard_state;
    struct raft_entry entries[LOG_MAX]; /* by index, from 6 on */
    u64 last, written;                  /* written: the number of the last write; durable by sync() only */
    bool source_is_ready;
    u64 source; /* that it has taken over */
    u32 committed, abandoned, waits;
};

#define OF_LOG(l) ((struct member *)(void *)((char *)(l)-offsetof(struct member, log)))

static void log_load(struct raft_log *l, struct raft_log_state *s)
{
    *s = (struct raft_log_state){OF_LOG(l)->hard_state, 5, 5, OF_LOG(l)->last};
}

static void log_put(struct member *m, u64 index, u64 term, struct raft_bytes data)
{
    u8 *copy = mem_alloc(data.size + 1);
    assert_true(index == m->last + 1 && index < LOG_MAX);
    if (data.size) memcpy(copy, data.data, data.size);
    m->entries[++m->last] = (struct raft_entry){index, term, RAFT_ENTRY_NORMAL, {copy, data.size}};
}

static void log_write(struct raft_log *l, const struct raft_log_write *w)
{
    struct member *m = OF_LOG(l);
    for (size_t i = 0; i < w->entries_n; i++) {
        log_put(m, w->entries[i].index, w->entries[i].term, w->entries[i].data);
        m->entries[m->last].type = w->entries[i].type;
    }
    if (w->hard_state) m->hard_state = *w->hard_state;
    m->written = w->number;
}

static bool log_read(struct raft_log *l, u64 low, u64 high, u64 max UNUSED, struct raft_core_sink *sink)
{
    for (u64 i = low; i < high; i++) raft_core_push(sink, &OF_LOG(l)->entries[i]);
    return true;
}

static u64 log_term_of(struct raft_log *l, u64 index)
{
    if (index == 5) return 5;
    return index > 5 && index <= OF_LOG(l)->last ? OF_LOG(l)->entries[index].term : 0;
}

static void log_compact(struct raft_log *l UNUSED, u64 index UNUSED, u64 term UNUSED) {}

static const struct raft_log_ops LOG_OPS = {log_load, log_write, log_read, log_term_of, log_compact};

static struct member *of(struct raft_machine *m) { return (struct member *)(void *)m; }

static void load(struct raft_machine *m, struct raft_applied *at) { *at = of(m)->at; }

static void apply(struct raft_machine *m, const struct raft_applied *at, const struct raft_command *c UNUSED)
{
    of(m)->at = *at;
}

static bool source_ready(struct raft_machine *m, const struct raft_merge_commit *c)
{
    assert_int_equal(c->source, SOURCE);
    of(m)->waits += !of(m)->source_is_ready;
    return of(m)->source_is_ready;
}

static void merge(struct raft_machine *m, const struct raft_applied *at, const struct raft_merge_commit *c)
{
    of(m)->at = *at, of(m)->source = c->source;
}

static void commit(struct raft_machine *m, const struct raft_applied *at)
{
    of(m)->at = *at, of(m)->committed++;
}

static void abandon(struct raft_machine *m, enum group_loss loss UNUSED) { of(m)->abandoned++; }
static void confirmed(struct raft_machine *m UNUSED, u64 read UNUSED, bool ok UNUSED) {}
static u64 next_deadline(struct raft_machine *m UNUSED) { return 500; } /* due, always */

static void send_to(struct raft_machine *m, u64 to, bytes message)
{
    char *copy = mem_alloc(message.n + 1);
    memcpy(copy, message.p, message.n);
    assert_true(of(m)->mail_n < MAIL_MAX);
    of(m)->mail[of(m)->mail_n++] = (struct mail){to, bytes_of(copy, message.n)};
}

static const struct raft_machine_ops MACHINE_OPS = {.load = load,
                                                    .apply = apply,
                                                    .source_ready = source_ready,
                                                    .merge = merge,
                                                    .commit = commit,
                                                    .abandon = abandon,
                                                    .confirmed = confirmed,
                                                    .readable = confirmed,
                                                    .next_deadline = next_deadline,
                                                    .send = send_to};

static void sync_log(struct member *m)
{
    for (u64 durable = 0; durable != m->written;) {
        durable = m->written;
        group_durable(m->group, durable);
    }
}

static void open_group(struct member *m)
{
    struct group_config c = {.id = m->id, .seed = 1, .nonce = 1, .election_ticks = 10, .heartbeat_ticks = 2};
    c.read_retry_ticks = 3, c.read_timeout_ticks = 30;
    m->group = group_open(&c, &m->log, &m->machine);
    group_wall(m->group, 1000);
}

static struct member *member_new(u32 voters)
{
    struct member *m = mem_zalloc(sizeof *m);
    m->id = SELF;
    m->machine.ops = &MACHINE_OPS, m->log.ops = &LOG_OPS, m->last = 5;
    m->at = (struct raft_applied){.index = 5, .term = 5, .clock_ms = 100, .epoch = {3, 1}, .slots = {0, 99}};
    for (u32 i = 1; i <= voters; i++) m->at.conf.voters[m->at.conf.voters_n++] = i;
    m->hard_state = (struct raft_hard_state){5, 0, 5};
    return m;
}

/* The only voter, which leads. */
static struct member *leader_of(u16 first, u16 last)
{
    struct member *m = member_new(1);
    m->at.slots = (struct raft_slots){first, last};
    open_group(m);
    group_campaign(m->group);
    sync_log(m);
    assert_true(group_is_leader(m->group));
    return m;
}

static struct member *leader(void) { return leader_of(0, 99); }

static void member_free(struct member *m)
{
    if (m->group) group_close(m->group);
    for (u32 i = 0; i < m->mail_n; i++) mem_free((void *)m->mail[i].message.p);
    for (u64 i = 6; i <= m->last; i++) mem_free((void *)m->entries[i].data.data);
    mem_free(m);
}

static void receive(struct member *const *members, u32 n, u64 from, const struct mail *mail)
{
    for (u32 i = 0; i < n; i++)
        if (members[i]->id == mail->to) group_receive(members[i]->group, from, mail->message);
}

/* Delivers the next message of each member; those to others are lost. Returns how many there were. */
static u32 deliver_one(struct member *const *members, u32 n)
{
    u32 sent = 0;
    for (u32 i = 0; i < n; i++) {
        struct member *m = members[i];
        sync_log(m);
        if (!m->mail_n) continue;
        struct mail mail = m->mail[0];
        memmove(m->mail, m->mail + 1, --m->mail_n * sizeof *m->mail);
        receive(members, n, m->id, &mail);
        mem_free((void *)mail.message.p);
        sent++;
    }
    return sent;
}

static void deliver(struct member *const *members, u32 n)
{
    while (deliver_one(members, n)) {}
}

/* A group of these voters; the first one leads. */
static void group_of(struct member **members, const u64 *ids, u32 n, u16 first, u16 last)
{
    for (u32 i = 0; i < n; i++) {
        members[i] = member_new(n);
        members[i]->at.slots = (struct raft_slots){first, last};
        memcpy(members[i]->at.conf.voters, ids, n * sizeof *ids);
        members[i]->id = ids[i];
        open_group(members[i]);
    }
    group_campaign(members[0]->group);
    deliver(members, n);
    assert_true(group_is_leader(members[0]->group));
}

static bool prepare_with(struct member *m, enum raft_merge_role role, u64 other, u32 version)
{
    struct buf b = {0};
    raft_merge_prepare_encode(&b, &(struct raft_merge_prepare){role, other, version});
    bool ok = group_propose(m->group, RAFT_KIND_MERGE_PREPARE, buf_bytes(&b));
    buf_release(&b);
    return ok;
}

static bool prepare(struct member *m, enum raft_merge_role role) { return prepare_with(m, role, SOURCE, 9); }

static const struct raft_merge_commit COMMIT = {
    .source = SOURCE, .index = 40, .term = 6, .clock_ms = 5000, .version = 8, .slots = {100, 199}};

static bool write_something(struct member *m)
{
    u64 read;
    if (!group_may_evaluate(m->group)) return false;
    u64 now = group_evaluation_time(m->group);
    group_evaluated(m->group, now, BYTES_LIT("x"), 0, &read);
    sync_log(m);
    return true;
}

static void test_a_target_serves_until_it_has_committed(void **state UNUSED)
{
    struct member *m = leader();
    assert_true(prepare(m, RAFT_MERGE_TARGET));
    assert_false(group_may_evaluate(m->group)); /* rule 12 */
    sync_log(m);
    assert_int_equal(m->at.merge.role, RAFT_MERGE_TARGET);
    assert_int_equal(m->at.epoch.version, 4);
    assert_true(write_something(m));
    m->source_is_ready = true;
    assert_true(group_propose_commit(m->group, &COMMIT));
    sync_log(m);
    assert_int_equal(m->source, SOURCE);
    assert_int_equal(m->at.slots.last, 199);
    assert_int_equal(m->at.epoch.version, 9);
    assert_int_equal(m->at.clock_ms, 5000); /* rule 17 */
    assert_true(write_something(m));
    assert_int_equal(group_clock(m->group), 5000); /* the wall clock is behind */
    member_free(m);
}

static void test_of_a_rollback_and_a_commit_the_first_counts(void **state UNUSED)
{
    struct member *m = leader();
    m->source_is_ready = true;
    assert_true(prepare(m, RAFT_MERGE_TARGET));
    sync_log(m);
    assert_true(group_propose(m->group, RAFT_KIND_MERGE_ROLLBACK, (bytes){0}));
    assert_true(group_propose_commit(m->group, &COMMIT)); /* not applied yet, so of the same version */
    sync_log(m);
    assert_int_equal(m->source, 0);
    assert_int_equal(m->at.slots.last, 99);
    assert_int_equal(m->at.epoch.version, 5);
    assert_int_equal(m->at.merge.role, RAFT_MERGE_NONE);
    member_free(m);
}

static void test_a_target_waits_for_its_source(void **state UNUSED)
{
    struct member *m = leader();
    assert_true(prepare(m, RAFT_MERGE_TARGET));
    sync_log(m);
    u64 before = m->at.index;
    assert_true(group_propose_commit(m->group, &COMMIT));
    assert_true(group_propose(m->group, RAFT_KIND_CLOCK, (bytes){0})); /* behind it, and void */
    sync_log(m);
    group_tick(m->group);
    assert_int_equal(m->at.index, before);
    assert_true(m->waits > 0);
    assert_false(group_may_evaluate(m->group));
    m->source_is_ready = true;
    group_tick(m->group);
    assert_int_equal(m->source, SOURCE);
    assert_int_equal(m->at.index, m->last);
    assert_true(write_something(m));
    member_free(m);
}

static void test_a_member_that_does_not_vote_takes_nothing_over(void **state UNUSED)
{
    struct member *m = member_new(3);
    struct buf b = {0};
    struct raft_command c = {RAFT_KIND_MERGE_COMMIT, {4, 1}, 6000, {0}};
    struct buf payload = {0};
    m->at.conf.voters[0] = 9; /* it was removed, and does not know */
    m->at.epoch.version = 4, m->at.merge = (struct raft_merge){RAFT_MERGE_TARGET, 4, SOURCE, 5, 5};
    raft_merge_commit_encode(&payload, &COMMIT);
    c.payload = buf_bytes(&payload);
    raft_command_encode(&b, &c);
    log_put(m, 6, 5, (struct raft_bytes){(const u8 *)b.p, b.n});
    m->hard_state.commit = 6, m->source_is_ready = true;
    open_group(m);
    group_tick(m->group);
    assert_int_equal(m->at.index, 5);
    assert_int_equal(m->source, 0);
    buf_release(&b);
    buf_release(&payload);
    member_free(m);
}

static void test_behind_the_prepare_of_a_source_all_is_void(void **state UNUSED)
{
    struct member *m = leader();
    struct raft_change add = {2, RAFT_ADD_LEARNER};
    struct group_status s;
    assert_true(prepare(m, RAFT_MERGE_SOURCE));
    assert_true(group_propose(m->group, RAFT_KIND_CLOCK, (bytes){0})); /* in the same version … */
    assert_int_equal(group_change(m->group, &add, 1), GROUP_CHANGE_PROPOSED);
    sync_log(m);
    assert_int_equal(m->at.merge.role, RAFT_MERGE_SOURCE);
    assert_int_equal(m->at.conf.learners_n, 0); /* … and the members stay */
    u64 clock = m->at.clock_ms, index = m->at.index;
    assert_false(group_may_evaluate(m->group));
    assert_false(group_propose(m->group, RAFT_KIND_CLOCK, (bytes){0}));
    assert_false(group_clock_due(m->group));
    assert_false(prepare(m, RAFT_MERGE_TARGET));
    assert_int_equal(group_change(m->group, &add, 1), GROUP_CHANGE_NOT_LEADER);
    sync_log(m);
    assert_int_equal(m->at.index, index);
    assert_int_equal(m->at.clock_ms, clock);
    group_status(m->group, &s);
    assert_true(s.entries_void >= 1);
    assert_true(group_propose(m->group, RAFT_KIND_MERGE_ROLLBACK, (bytes){0}));
    sync_log(m);
    assert_int_equal(m->at.epoch.version, 5);
    assert_true(write_something(m));
    assert_int_equal(group_change(m->group, &add, 1), GROUP_CHANGE_PROPOSED);
    member_free(m);
}

/* A follower that has an entry and does not know that it is committed. */
static void test_what_a_commit_proves_is_applied(void **state UNUSED)
{
    struct member *m = member_new(3);
    struct buf b = {0}, payload = {0};
    struct raft_command c = {RAFT_KIND_MERGE_PREPARE, {3, 1}, 200, {0}};
    raft_merge_prepare_encode(&payload, &(struct raft_merge_prepare){RAFT_MERGE_SOURCE, SOURCE, 9});
    c.payload = buf_bytes(&payload);
    raft_command_encode(&b, &c);
    log_put(m, 6, 5, (struct raft_bytes){(const u8 *)b.p, b.n});
    log_put(m, 7, 5, (struct raft_bytes){NULL, 0});
    open_group(m);
    assert_int_equal(m->at.index, 5);
    group_committed(m->group, 6, 4); /* of another term: not this entry */
    group_committed(m->group, 9, 5); /* it has none */
    assert_int_equal(m->at.index, 5);
    group_committed(m->group, 6, 5);
    assert_int_equal(m->at.index, 6);
    assert_int_equal(m->at.merge.role, RAFT_MERGE_SOURCE);
    assert_int_equal(m->at.merge.index, 6);
    group_committed(m->group, 6, 5);
    assert_int_equal(m->at.index, 6);
    buf_release(&b);
    buf_release(&payload);
    member_free(m);
}

/* The node that cluster-recover leaves: its log of the target may lack what its log of the source knows of. */
static void test_a_source_whose_target_has_lost_entries_rolls_back(void **state UNUSED)
{
    struct member *source = leader(), *target = leader();
    struct merge_member s = {1, source->group}, t = {SOURCE, target->group}, none = {SOURCE, NULL};
    assert_true(prepare(source, RAFT_MERGE_SOURCE));
    sync_log(source);
    assert_int_equal(source->at.merge.role, RAFT_MERGE_SOURCE);
    assert_true(merge_lost(&s, &t, true));
    assert_true(merge_lost(&s, &none, false));
    assert_false(merge_lost(&s, &none, true)); /* it has a member that gets its data just now */
    while (target->at.epoch.version < 9) {     /* the one that the source names */
        assert_true(merge_lost(&s, &t, true));
        assert_true(prepare(target, RAFT_MERGE_TARGET));
        sync_log(target);
        if (target->at.epoch.version == 9) break;
        group_propose(target->group, RAFT_KIND_MERGE_ROLLBACK, (bytes){0});
        sync_log(target);
    }
    assert_false(merge_lost(&s, &t, true));
    merge_source(&s, &t, true);
    sync_log(source);
    assert_int_equal(source->at.merge.role, RAFT_MERGE_NONE);
    member_free(source);
    member_free(target);
}

/* Whether a target with this state here proves to the only member of its source, prepared for version 9, that entries
 * were lost. */
static bool proves_loss(const struct member *target)
{
    struct member *source = leader();
    struct merge_member s = {1, source->group}, t = {SOURCE, target->group};
    assert_true(prepare(source, RAFT_MERGE_SOURCE));
    sync_log(source);
    bool lost = merge_lost(&s, &t, true);
    member_free(source);
    return lost;
}

/* The log of such a target may still contain the version that the source names, and its COMMIT. */
static void test_a_target_that_has_not_applied_its_log_proves_no_loss(void **state UNUSED)
{
    struct member *t = member_new(1);
    open_group(t);
    assert_false(proves_loss(t)); /* it does not lead */
    group_campaign(t->group);
    assert_true(group_is_leader(t->group));
    assert_false(proves_loss(t)); /* it has not applied anything of its own */
    sync_log(t);
    assert_true(proves_loss(t));
    assert_true(prepare(t, RAFT_MERGE_TARGET));
    sync_log(t);
    assert_true(proves_loss(t)); /* of another merge */
    assert_true(group_propose_commit(t->group, &COMMIT));
    sync_log(t);
    assert_false(proves_loss(t)); /* a COMMIT waits for its source, and all behind it */
    t->source_is_ready = true;
    group_tick(t->group);
    assert_int_equal(t->at.index, t->last);
    member_free(t);
}

/* Without others there is no later leader. */
static void test_a_member_that_is_not_alone_proves_no_loss(void **state UNUSED)
{
    struct member *two[2], *joint[2];
    const u64 ids[] = {1, 2};
    group_of(two, ids, 2, 0, 99);
    assert_false(proves_loss(two[0])); /* it may have been deposed, and not know it */
    assert_true(prepare(two[0], RAFT_MERGE_SOURCE));
    deliver(two, 2);
    struct merge_member s = {1, two[0]->group}, none = {SOURCE, NULL};
    assert_false(merge_lost(&s, &none, false)); /* the target was moved away, to live there */
    for (u32 i = 0; i < 2; i++) { /* the first member is to be removed, and leads */
        joint[i] = member_new(1);
        joint[i]->id = ids[i], joint[i]->at.conf.voters[0] = 2;
        joint[i]->at.conf.outgoing[0] = 1, joint[i]->at.conf.outgoing[1] = 2, joint[i]->at.conf.outgoing_n = 2;
        open_group(joint[i]);
    }
    group_campaign(joint[0]->group);
    struct group_status st = {.core.applied_own_term = false};
    while (!st.core.applied_own_term && deliver_one(joint, 2)) group_status(joint[0]->group, &st);
    assert_true(group_is_leader(joint[0]->group) && st.at.conf.outgoing_n);
    assert_int_equal(st.at.index, st.core.commit);
    assert_false(proves_loss(joint[0]));
    for (u32 i = 0; i < 2; i++) {
        member_free(two[i]);
        member_free(joint[i]);
    }
}

static enum merge_refusal begin(const struct member *target, const struct member *source)
{
    struct merge_member t = {1, target->group}, s = {SOURCE, source->group};
    return merge_begin(&t, &s);
}

static void test_what_a_merge_needs_to_begin(void **state UNUSED)
{
    struct member *t = leader(), *s = leader_of(100, 199), *far = leader_of(101, 199);
    struct member *follower = member_new(1), *elsewhere = member_new(2), *changes = leader_of(100, 199);
    struct raft_change add = {2, RAFT_ADD_LEARNER};
    follower->at.slots = elsewhere->at.slots = s->at.slots;
    open_group(follower);
    open_group(elsewhere);
    assert_int_equal(begin(t, far), MERGE_NOT_NEIGHBOURS);
    assert_int_equal(begin(t, elsewhere), MERGE_OTHER_NODES);
    assert_int_equal(begin(t, follower), MERGE_LEADERS);
    assert_int_equal(begin(follower, t), MERGE_LEADERS);
    assert_int_equal(group_change(changes->group, &add, 1), GROUP_CHANGE_PROPOSED);
    assert_int_equal(begin(t, changes), MERGE_BUSY);
    assert_int_equal(begin(changes, t), MERGE_BUSY);
    for (u32 i = 0; i < 70; i++) assert_true(group_propose(s->group, RAFT_KIND_CLOCK, (bytes){0}));
    assert_int_equal(begin(t, s), MERGE_LATER); /* its disk is that far behind */
    sync_log(s);
    assert_int_equal(begin(t, s), MERGE_BEGUN);
    assert_int_equal(begin(t, s), MERGE_BUSY); /* it is not committed yet … */
    assert_int_equal(begin(s, t), MERGE_BUSY);
    sync_log(t);
    assert_int_equal(begin(t, s), MERGE_BUSY); /* … and now the target is prepared */
    assert_int_equal(begin(s, t), MERGE_BUSY);
    struct member *all[] = {t, s, far, follower, elsewhere, changes};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) member_free(all[i]);
}

static struct member *source_of(u16 first, u64 target, u32 version)
{
    struct member *s = leader_of(first, 199);
    assert_true(prepare_with(s, RAFT_MERGE_SOURCE, target, version));
    sync_log(s);
    return s;
}

static bool has_facts(const struct member *target, const struct member *source)
{
    struct merge_member t = {1, target->group}, s = {SOURCE, source->group};
    struct raft_merge_commit c;
    bool has = merge_facts(&t, &s, &c);
    if (has) assert_int_equal(c.index, source->at.merge.index);
    return has;
}

/* The target has region number 1, and is prepared in version 4. */
static void test_what_a_target_takes_over_is_prepared_for_it(void **state UNUSED)
{
    struct member *t = leader(), *s = leader_of(100, 199), *follower = member_new(1);
    assert_int_equal(begin(t, s), MERGE_BEGUN);
    sync_log(t);
    assert_false(has_facts(t, s));
    follower->at.slots = s->at.slots;
    follower->at.merge = (struct raft_merge){RAFT_MERGE_SOURCE, 4, 1, 5, 5};
    open_group(follower);
    struct member *others[] = {s, follower, source_of(100, 5, 4), source_of(100, 1, 3), source_of(101, 1, 4)};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        assert_false(has_facts(t, others[i]));
        member_free(others[i]);
    }
    s = leader_of(100, 199);
    assert_true(prepare_with(s, RAFT_MERGE_TARGET, 1, 0)); /* the other way round */
    sync_log(s);
    assert_false(has_facts(t, s));
    member_free(s);
    s = source_of(100, 1, 4);
    assert_true(has_facts(t, s));
    member_free(s);
    member_free(t);
}

/* A target of these voters that is prepared for the source in version 4. */
static struct member *target_of(const u64 *voters, u32 n)
{
    struct member *t = member_new(n);
    memcpy(t->at.conf.voters, voters, n * sizeof *voters);
    t->at.epoch.version = 4, t->at.merge = (struct raft_merge){RAFT_MERGE_TARGET, 4, SOURCE, 5, 5};
    open_group(t);
    return t;
}

/* Every member of the target finds the source's member on its node, with the PREPARE. */
static void test_a_target_takes_over_what_all_its_nodes_have(void **state UNUSED)
{
    const u64 ids[] = {peer_of(1, 0), peer_of(2, 0), peer_of(3, 0)};
    const u64 elsewhere[] = {peer_of(1, 0), peer_of(2, 0), peer_of(4, 0)};
    struct member *t = target_of(ids, 3), *other = target_of(elsewhere, 3), *fewer = target_of(ids, 2), *s[3];
    group_of(s, ids, 3, 100, 199);
    assert_true(prepare_with(s[0], RAFT_MERGE_SOURCE, 1, 4));
    deliver(s, 2); /* it is committed, and the third member has not heard of it */
    assert_int_equal(s[0]->at.merge.role, RAFT_MERGE_SOURCE);
    assert_false(has_facts(t, s[0]));
    for (u32 i = 0; i < 4; i++) {
        group_tick(s[0]->group);
        deliver(s, 3);
    }
    assert_true(has_facts(t, s[0]));
    assert_false(has_facts(t, s[1])); /* which does not know what others have */
    assert_false(has_facts(other, s[0]));
    assert_false(has_facts(fewer, s[0]));
    struct member *all[] = {t, other, fewer, s[0], s[1], s[2]};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) member_free(all[i]);
}

static u64 last_index(const struct member *m)
{
    struct group_status s;
    group_status(m->group, &s);
    return s.core.last_index;
}

static void test_a_merge_is_given_up_in_time(void **state UNUSED)
{
    struct member *target = leader(), *source = leader_of(100, 199);
    struct merge_member t = {1, target->group}, s = {SOURCE, source->group}, none = {SOURCE, NULL};
    u64 last = last_index(target), source_last = last_index(source);
    merge_target(&t, &s, MERGE_PATIENCE_TICKS + 1);
    assert_int_equal(last_index(target), last); /* it is not prepared */
    assert_int_equal(begin(target, source), MERGE_BEGUN);
    sync_log(target);
    merge_target(&t, &none, 1); /* another node has the source's leader; this one has no member yet */
    merge_target(&t, &s, MERGE_PATIENCE_TICKS / 2 + 1); /* too late to stop the source */
    assert_int_equal(last_index(source), source_last);
    merge_target(&t, &s, 1);
    merge_target(&t, &s, 2); /* not twice */
    assert_int_equal(last_index(source), source_last + 1);
    sync_log(source);
    merge_source(&s, &t, false);
    sync_log(source);
    assert_int_equal(source->at.merge.role, RAFT_MERGE_SOURCE);
    source_last = last_index(source);
    merge_source(&s, &t, true);
    merge_source(&s, &t, true); /* not twice */
    assert_int_equal(last_index(source), source_last + 1);
    sync_log(source);
    assert_int_equal(source->at.merge.role, RAFT_MERGE_NONE);
    merge_target(&t, &s, MERGE_PATIENCE_TICKS);
    sync_log(target);
    assert_int_equal(target->at.merge.role, RAFT_MERGE_TARGET);
    merge_target(&t, &s, MERGE_PATIENCE_TICKS + 1);
    sync_log(target);
    assert_int_equal(target->at.merge.role, RAFT_MERGE_NONE);
    member_free(target);
    member_free(source);
}

static void test_a_merge_is_committed_once(void **state UNUSED)
{
    struct member *target = leader(), *source = leader_of(100, 199);
    struct merge_member t = {1, target->group}, s = {SOURCE, source->group};
    assert_int_equal(begin(target, source), MERGE_BEGUN);
    sync_log(target);
    merge_target(&t, &s, 1);
    sync_log(source);
    u64 last = last_index(target);
    merge_target(&t, &s, 2);
    merge_target(&t, &s, 3);
    assert_int_equal(last_index(target), last + 1);
    target->source_is_ready = true;
    sync_log(target);
    assert_int_equal(target->source, SOURCE);
    member_free(target);
    member_free(source);
}

/* It would be void, each time. */
static void test_a_source_that_is_a_target_itself_is_not_asked_to_prepare(void **state UNUSED)
{
    struct member *target = leader(), *source = leader_of(100, 199);
    struct merge_member t = {1, target->group}, s = {SOURCE, source->group};
    assert_int_equal(begin(target, source), MERGE_BEGUN);
    sync_log(target);
    assert_true(prepare_with(source, RAFT_MERGE_TARGET, 5, 0));
    sync_log(source);
    u64 last = last_index(source);
    merge_target(&t, &s, 1);
    assert_int_equal(last_index(source), last);
    member_free(target);
    member_free(source);
}

/* Both are led from one node in the end. */
static void test_a_source_follows_its_targets_leader(void **state UNUSED)
{
    const u64 ids[] = {peer_of(1, 0), peer_of(2, 0)}, other_way[] = {peer_of(2, 3), peer_of(1, 3)};
    struct member *source[2], *target[2];
    group_of(source, ids, 2, 100, 199);
    group_of(target, other_way, 2, 0, 99);
    assert_true(prepare_with(source[0], RAFT_MERGE_SOURCE, 1, 4));
    deliver(source, 2);
    struct merge_member s = {SOURCE, source[0]->group}, t = {1, target[1]->group}, none = {1, NULL};
    merge_source(&s, &none, false);
    deliver(source, 2);
    assert_true(group_is_leader(source[0]->group));
    merge_source(&s, &t, false);
    deliver(source, 2);
    assert_true(group_is_leader(source[1]->group));
    s.group = source[1]->group, t.group = target[0]->group;
    merge_source(&s, &t, false); /* it has arrived */
    deliver(source, 2);
    assert_true(group_is_leader(source[1]->group));
    for (u32 i = 0; i < 2; i++) {
        member_free(source[i]);
        member_free(target[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_target_serves_until_it_has_committed),
        cmocka_unit_test(test_of_a_rollback_and_a_commit_the_first_counts),
        cmocka_unit_test(test_a_target_waits_for_its_source),
        cmocka_unit_test(test_a_member_that_does_not_vote_takes_nothing_over),
        cmocka_unit_test(test_behind_the_prepare_of_a_source_all_is_void),
        cmocka_unit_test(test_what_a_commit_proves_is_applied),
        cmocka_unit_test(test_a_source_whose_target_has_lost_entries_rolls_back),
        cmocka_unit_test(test_what_a_merge_needs_to_begin),
        cmocka_unit_test(test_what_a_target_takes_over_is_prepared_for_it),
        cmocka_unit_test(test_a_target_that_has_not_applied_its_log_proves_no_loss),
        cmocka_unit_test(test_a_member_that_is_not_alone_proves_no_loss),
        cmocka_unit_test(test_a_target_takes_over_what_all_its_nodes_have),
        cmocka_unit_test(test_a_merge_is_given_up_in_time),
        cmocka_unit_test(test_a_merge_is_committed_once),
        cmocka_unit_test(test_a_source_that_is_a_target_itself_is_not_asked_to_prepare),
        cmocka_unit_test(test_a_source_follows_its_targets_leader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
