/* The Raft library through its C interface: a group of one, refusals,
 * and that timeouts come from the seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/types.h"
#include "raft/raft_core.h"

enum { LOG_MAX = 64 };

struct fixture {
    struct raft_core *core;
    char data[LOG_MAX][32];
    struct raft_entry log[LOG_MAX]; /* by index */
    u64 last, applied, commits, confirmed;
    u32 sent;
    char applied_text[32];
    struct raft_conf conf;
};

static bool fixture_read(void *log, u64 low, u64 high, u64 bytes_max UNUSED, struct raft_core_sink *sink)
{
    struct fixture *f = log;
    for (u64 i = low; i < high; i++) raft_core_push(sink, &f->log[i]);
    return high <= f->last + 1;
}

static u64 fixture_term(void *log, u64 index) { return ((struct fixture *)log)->log[index].term; }

static void fixture_open(struct fixture *f, u64 seed, u32 voters)
{
    struct raft_core_config c = {.id = 1, .seed = seed, .election_ticks = 10, .heartbeat_ticks = 2, .log = f};
    c.message_bytes_max = 1 << 20, c.uncommitted_bytes_max = 64 << 20, c.inflight_messages_max = 64;
    c.cache_bytes_max = 0; /* every read of an old entry goes through the callback */
    for (u32 i = 0; i < voters; i++) c.conf.voters[c.conf.voters_n++] = i + 1;
    c.read = fixture_read, c.term = fixture_term;
    f->core = raft_core_open(&c);
}

static void fixture_apply(struct fixture *f, const struct raft_entry *e)
{
    assert_int_equal(e->index, f->applied + 1);
    f->applied = e->index;
    if (e->type == RAFT_ENTRY_CONF_V2)
        assert_int_equal(raft_core_apply_conf(f->core, e->data.data, e->data.size, &f->conf), RAFT_CORE_OK);
    else if (e->data.size) {
        memcpy(f->applied_text, e->data.data, e->data.size);
        f->applied_text[e->data.size] = 0;
        f->commits++;
    }
}

/* Does what is there to do, with a log that is durable at once. */
static void fixture_run(struct fixture *f)
{
    struct raft_ready r;
    while (raft_core_ready(f->core, &r)) {
        for (size_t i = 0; i < r.entries_n; i++) {
            struct raft_entry e = r.entries[i];
            memcpy(f->data[e.index], e.data.data, e.data.size);
            e.data.data = (const uint8_t *)f->data[e.index];
            f->log[e.index] = e;
            f->last = e.index;
        }
        f->sent += r.now_n + r.after_n;
        f->confirmed += r.reads_n;
        struct raft_entry committed[LOG_MAX];
        char data[LOG_MAX][32];
        size_t n = r.committed_n;
        for (size_t i = 0; i < n; i++) {
            committed[i] = r.committed[i];
            memcpy(data[i], r.committed[i].data.data, r.committed[i].data.size);
            committed[i].data.data = (const uint8_t *)data[i];
        }
        raft_core_advance(f->core);
        raft_core_persisted(f->core, r.number);
        for (size_t i = 0; i < n; i++) fixture_apply(f, &committed[i]);
        if (n) raft_core_applied(f->core, f->applied);
    }
}

static void test_group_of_one(void **state UNUSED)
{
    struct fixture f = {0};
    struct raft_core_status s;
    fixture_open(&f, 7, 1);
    assert_int_equal(raft_core_propose(f.core, (const uint8_t *)"x", 1), RAFT_CORE_NOT_LEADER);
    raft_core_campaign(f.core);
    fixture_run(&f);
    raft_core_status(f.core, &s);
    assert_int_equal(s.role, RAFT_LEADER);
    assert_true(s.applied_own_term);
    assert_int_equal(raft_core_propose(f.core, (const uint8_t *)"hello", 5), RAFT_CORE_OK);
    fixture_run(&f);
    assert_string_equal(f.applied_text, "hello");
    raft_core_read_index(f.core, (const uint8_t *)"r1", 2);
    fixture_run(&f);
    assert_int_equal(f.confirmed, 1);
    assert_int_equal(raft_core_compacted(f.core, 1), 1);
    raft_core_status(f.core, &s);
    assert_int_equal(s.first_index, 2);
    assert_int_equal(s.last_index, 2);
    raft_core_close(f.core);
}

static void test_conf_is_checked(void **state UNUSED)
{
    struct fixture f = {0};
    fixture_open(&f, 7, 1);
    raft_core_campaign(f.core);
    fixture_run(&f);
    struct raft_change alone = {1, RAFT_REMOVE}, learner = {2, RAFT_ADD_LEARNER}, odd = {3, 9};
    assert_int_equal(raft_core_propose_conf(f.core, &alone, 1), RAFT_CORE_INVALID); /* nobody would be left */
    assert_int_equal(raft_core_propose_conf(f.core, &odd, 1), RAFT_CORE_INVALID);
    assert_int_equal(raft_core_propose_conf(f.core, &learner, 1), RAFT_CORE_OK);
    assert_int_equal(raft_core_propose_conf(f.core, &learner, 1), RAFT_CORE_PENDING);
    fixture_run(&f);
    assert_int_equal(f.conf.voters_n, 1);
    assert_int_equal(f.conf.learners_n, 1);
    assert_int_equal(f.conf.learners[0], 2);
    assert_int_equal(f.conf.outgoing_n, 0); /* the joint configuration is left by itself */
    struct raft_progress p;
    assert_true(raft_core_progress(f.core, 2, &p));
    assert_false(raft_core_progress(f.core, 3, &p));
    raft_core_close(f.core);
}

static void test_bad_bytes(void **state UNUSED)
{
    struct fixture f = {0};
    u64 term, rng = 5;
    fixture_open(&f, 7, 3);
    assert_int_equal(raft_core_step(f.core, (const uint8_t *)"\xff\xff\xff", 3), RAFT_CORE_BAD_BYTES);
    assert_int_equal(raft_core_step(f.core, NULL, 0), RAFT_CORE_BAD_BYTES);
    uint8_t propose[] = {8, 2, 24, 2, 32, 1}; /* MsgPropose from 2: proposals are never forwarded */
    assert_int_equal(raft_core_message_type(propose, sizeof(propose), &term), 2);
    assert_int_equal(raft_core_step(f.core, propose, sizeof(propose)), RAFT_CORE_BAD_BYTES);
    uint8_t heartbeat[] = {8, 8, 16, 1, 24, 2, 32, 1}; /* from 2 to 1, in term 1 */
    assert_int_equal(raft_core_step(f.core, heartbeat, sizeof(heartbeat)), RAFT_CORE_OK);
    heartbeat[3] = 3; /* to another member */
    assert_int_equal(raft_core_step(f.core, heartbeat, sizeof(heartbeat)), RAFT_CORE_BAD_BYTES);
    heartbeat[3] = heartbeat[5] = 1; /* from this one */
    assert_int_equal(raft_core_step(f.core, heartbeat, sizeof(heartbeat)), RAFT_CORE_BAD_BYTES);
    for (int i = 0; i < 20000; i++) { /* noise must be refused or ignored, never end the process */
        uint8_t noise[24];
        for (size_t k = 0; k < sizeof(noise); k++) rng = rng * 6364136223846793005u + 1, noise[k] = rng >> 56;
        raft_core_step(f.core, noise, sizeof(noise));
    }
    raft_core_close(f.core);
}

static u32 ticks_to_campaign(u64 seed)
{
    struct fixture f = {0};
    u32 ticks = 0;
    fixture_open(&f, seed, 3);
    for (; f.sent == 0 && ticks < 100; ticks++) raft_core_tick(f.core), fixture_run(&f);
    raft_core_close(f.core);
    return ticks;
}

static void test_timeouts_come_from_the_seed(void **state UNUSED)
{
    u32 differ = 0;
    for (u64 seed = 1; seed <= 20; seed++) {
        u32 ticks = ticks_to_campaign(seed);
        assert_in_range(ticks, 10, 20);
        assert_int_equal(ticks, ticks_to_campaign(seed));
        differ += ticks != ticks_to_campaign(seed + 100);
    }
    assert_true(differ > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group_of_one),
        cmocka_unit_test(test_conf_is_checked),
        cmocka_unit_test(test_bad_bytes),
        cmocka_unit_test(test_timeouts_come_from_the_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
