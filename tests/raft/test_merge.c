/* The entries of a merge (raft/merge.h): their bytes, when they are void, and what they make of a region's state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "raft/merge.h"

static struct raft_applied region(u16 first, u16 last, u32 version)
{
    struct raft_applied at = {
        .index = 40, .term = 3, .clock_ms = 1000, .epoch = {version, 2}, .slots = {first, last}};
    for (u32 i = 1; i <= 3; i++) at.conf.voters[at.conf.voters_n++] = i << 24;
    return at;
}

static const struct raft_merge_commit COMMIT = {.source = 0x123456789abcull,
                                                .index = 77,
                                                .term = 9,
                                                .clock_ms = 5000,
                                                .deaths_from_ms = 0,
                                                .version = 12,
                                                .slots = {100, 199}};

static void test_payloads_come_back(void **state UNUSED)
{
    struct buf b = {0};
    struct raft_merge_prepare p = {RAFT_MERGE_SOURCE, 0x123456789abcull, 6}, p2;
    struct raft_merge_commit c;
    raft_merge_prepare_encode(&b, &p);
    assert_int_equal(raft_merge_prepare_decode(buf_bytes(&b), &p2), OK);
    assert_int_equal(p2.role, p.role);
    assert_int_equal(p2.other, p.other);
    assert_int_equal(p2.version, p.version);
    b.p[0] = 3;
    assert_int_equal(raft_merge_prepare_decode(buf_bytes(&b), &p2), ERR_SYNTAX);
    assert_int_equal(raft_merge_prepare_decode(bytes_of(b.p, b.n - 1), &p2), ERR_SYNTAX);
    buf_clear(&b);
    raft_merge_commit_encode(&b, &COMMIT);
    assert_int_equal(raft_merge_commit_decode(buf_bytes(&b), &c), OK);
    assert_memory_equal(&c, &COMMIT, sizeof c);
    assert_int_equal(raft_merge_commit_decode(bytes_of(b.p, b.n - 1), &c), ERR_SYNTAX);
    buf_release(&b);
}

static void test_a_region_prepares_when_nothing_else_is_under_way(void **state UNUSED)
{
    struct raft_applied at = region(0, 99, 4), busy = at;
    assert_true(raft_merge_may_prepare(&at));
    busy.conf.learners[busy.conf.learners_n++] = 4 << 24;
    assert_false(raft_merge_may_prepare(&busy));
    busy = at, busy.conf.outgoing_n = 1;
    assert_false(raft_merge_may_prepare(&busy));
    busy = at, busy.merge.role = RAFT_MERGE_TARGET;
    assert_false(raft_merge_may_prepare(&busy));
}

static void test_only_what_was_prepared_is_committed(void **state UNUSED)
{
    struct raft_applied at = region(0, 99, 4);
    assert_false(raft_merge_may_commit(&at, &COMMIT));
    raft_merge_apply_prepare(&at, &(struct raft_merge_prepare){RAFT_MERGE_TARGET, COMMIT.source, 0});
    assert_int_equal(at.epoch.version, 5);
    assert_int_equal(at.merge.version, 5);
    assert_true(raft_merge_may_commit(&at, &COMMIT));
    struct raft_merge_commit other = COMMIT, apart = COMMIT;
    other.source++, apart.slots.first++;
    assert_false(raft_merge_may_commit(&at, &other));
    assert_false(raft_merge_may_commit(&at, &apart));
    raft_merge_apply_rollback(&at);
    assert_int_equal(at.epoch.version, 6);
    assert_false(raft_merge_may_commit(&at, &COMMIT));
}

static void test_a_source_never_commits(void **state UNUSED)
{
    struct raft_applied at = region(0, 99, 4);
    raft_merge_apply_prepare(&at, &(struct raft_merge_prepare){RAFT_MERGE_SOURCE, COMMIT.source, 9});
    assert_int_equal(at.merge.version, 9);
    assert_int_equal(at.merge.index, 40);
    assert_int_equal(at.merge.term, 3);
    assert_false(raft_merge_may_commit(&at, &COMMIT));
}

/* The result of a COMMIT at `stamp_ms`, for a target on either side. */
static struct raft_applied committed(struct raft_applied at, u64 stamp_ms, u64 deaths_from_ms)
{
    struct raft_merge_commit c = COMMIT;
    c.deaths_from_ms = deaths_from_ms;
    raft_merge_apply_prepare(&at, &(struct raft_merge_prepare){RAFT_MERGE_TARGET, c.source, 0});
    assert_true(raft_merge_may_commit(&at, &c));
    raft_merge_apply_commit(&at, &c, stamp_ms);
    return at;
}

static void test_a_target_takes_slots_version_and_clock(void **state UNUSED)
{
    struct raft_applied low = committed(region(0, 99, 4), 2000, 0),
                        high = committed(region(200, 300, 40), 9000, 0);
    assert_int_equal(low.slots.first, 0);
    assert_int_equal(low.slots.last, 199);
    assert_int_equal(low.epoch.version, 13);  /* above the source's … */
    assert_int_equal(high.epoch.version, 42); /* … and its own */
    assert_int_equal(low.clock_ms, 5000);
    assert_int_equal(high.clock_ms, 9000);
    assert_int_equal(high.slots.first, 100);
    assert_int_equal(high.slots.last, 300);
    assert_int_equal(low.merge.role, RAFT_MERGE_NONE);
}

static void test_logged_deaths_begin_where_both_have_all(void **state UNUSED)
{
    struct raft_applied logs = region(0, 99, 4);
    logs.deaths_from_ms = 700;
    assert_int_equal(committed(region(0, 99, 4), 6000, 0).deaths_from_ms, 0);
    assert_int_equal(committed(logs, 6000, 800).deaths_from_ms, 800);
    assert_int_equal(committed(logs, 6000, 600).deaths_from_ms, 700);
    assert_int_equal(committed(logs, 6000, 0).deaths_from_ms, 6000);
    assert_int_equal(committed(region(0, 99, 4), 6000, 600).deaths_from_ms, 6000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_payloads_come_back),
        cmocka_unit_test(test_a_region_prepares_when_nothing_else_is_under_way),
        cmocka_unit_test(test_only_what_was_prepared_is_committed),
        cmocka_unit_test(test_a_source_never_commits),
        cmocka_unit_test(test_a_target_takes_slots_version_and_clock),
        cmocka_unit_test(test_logged_deaths_begin_where_both_have_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
