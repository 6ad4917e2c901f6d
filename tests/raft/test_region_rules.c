/* The rules of cluster/region_rules.h one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cluster/peer_id.h"
#include "cluster/region_rules.h"

enum { NODE = 9 };

/* Region 1 has the lower half, region 2 waits for data; members of 3 and 2 were removed. */
static const struct region_here MEMBERS[] = {{1, (u64)NODE << 24 | 1, true, {0, 8191}, 7},
                                             {2, (u64)NODE << 24 | 6, false, {0, 0}, 0}};
static const struct region_tombstone TOMBSTONES[] = {{3, (u64)NODE << 24 | 5, 0, 0},
                                                     {2, (u64)NODE << 24 | 4, 0, 0}};
static const struct regions_here HERE = {MEMBERS, 2, TOMBSTONES, 2};
static const struct raft_slots LOW = {0, 100}, HIGH = {8192, 16383};

static int fate(u64 region, u32 conf_ver, const struct raft_slots *slots)
{
    return (int)rules_message(&HERE, region, peer_of(NODE, conf_ver), slots);
}

static void test_a_message_reaches_its_number_only(void **state UNUSED)
{
    assert_int_equal(fate(1, 1, &LOW), REGION_DELIVER);
    assert_int_equal(fate(2, 6, &HIGH), REGION_DELIVER);
    assert_int_equal(fate(2, 6, NULL), REGION_DELIVER);
    assert_int_equal(fate(1, 0, &LOW), REGION_IGNORE); /* an older member of this node */
    assert_int_equal(fate(1, 2, &LOW), REGION_REPLACE);
}

static void test_a_removed_member_never_comes_back(void **state UNUSED)
{
    for (u32 ver = 0; ver <= 5; ver++) assert_int_equal(fate(3, ver, &HIGH), REGION_IGNORE);
    assert_int_equal(fate(3, 6, &HIGH), REGION_CREATE);
    assert_int_equal(fate(2, 4, &HIGH), REGION_IGNORE);
}

static void test_a_member_is_made_where_its_slots_are_free(void **state UNUSED)
{
    assert_int_equal(fate(4, 1, &HIGH), REGION_CREATE);
    assert_int_equal(fate(4, 1, &LOW), REGION_IGNORE); /* a split of region 1 will make it */
    assert_int_equal(fate(4, 1, &(struct raft_slots){8191, 8192}), REGION_IGNORE);
    assert_int_equal(fate(4, 1, NULL), REGION_IGNORE); /* who knows nothing makes nobody */
}

static void test_a_snapshot_overlaps_nobody(void **state UNUSED)
{
    assert_true(rules_may_install(&HERE, 2, HIGH));
    assert_false(rules_may_install(&HERE, 2, LOW));
    assert_true(rules_may_install(&HERE, 1, (struct raft_slots){0, 16383})); /* region 2 has no data */
}

static void test_a_split_meets_its_child(void **state UNUSED)
{
    assert_int_equal(rules_split(&HERE, 7, MEMBERS[0].peer), REGION_SPLIT_MAKE);
    assert_int_equal(rules_split(&HERE, 2, peer_of(NODE, 6)), REGION_SPLIT_TAKE_OVER);
    assert_int_equal(rules_split(&HERE, 2, peer_of(NODE, 5)), REGION_SPLIT_DISCARD); /* a later one is here */
    assert_int_equal(rules_split(&HERE, 3, peer_of(NODE, 5)), REGION_SPLIT_DISCARD);
    assert_int_equal(rules_split(&HERE, 3, peer_of(NODE, 6)), REGION_SPLIT_MAKE);
}

/* Region 4 was merged into 5, and that into 6, whose members here are in these versions; 0: none has data. */
static struct regions_here merged(struct region_here *members, u32 five, u32 six)
{
    static const struct region_tombstone t[] = {{4, 0, 5, 10}, {5, 0, 6, 20}};
    u64 peer = (u64)NODE << 24;
    members[0] = (struct region_here){4, peer, true, {0, 99}, 3};
    members[1] = (struct region_here){5, peer, five != 0, {100, 199}, five};
    members[2] = (struct region_here){6, peer, six != 0, {200, 299}, six};
    return (struct regions_here){members, 3, t, 2};
}

static void test_a_merged_region_never_speaks_again(void **state UNUSED)
{
    struct region_here members[3];
    struct regions_here h = merged(members, 9, 19);
    assert_int_equal(rules_message(&h, 4, (u64)NODE << 24, &LOW), REGION_IGNORE);
    assert_int_equal(rules_message(&h, 4, (u64)NODE << 24 | 77, &LOW), REGION_IGNORE);
    assert_int_equal(rules_split(&h, 4, (u64)NODE << 24 | 77), REGION_SPLIT_DISCARD);
    assert_int_equal(rules_merged(&h, 4)->into, 5);
    assert_null(rules_merged(&h, 6));
    assert_null(rules_merged(&HERE, 3)); /* a member of it was removed, nothing else */
}

static void test_a_source_stays_while_its_target_may_need_it(void **state UNUSED)
{
    struct region_here members[3];
    struct regions_here h = merged(members, 9, 19);
    assert_false(rules_superseded(&h, 4));
    h = merged(members, 10, 19);
    assert_true(rules_superseded(&h, 4));
    h = merged(members, 0, 19); /* the target's member has gone, or is new */
    assert_true(rules_superseded(&h, 4));
    h = merged(members, 9, 20); /* the target itself is not needed any more */
    assert_true(rules_superseded(&h, 4));
    assert_true(rules_superseded(&h, 5));
    assert_false(rules_superseded(&h, 6));
}

static void test_a_snapshot_replaces_what_was_merged(void **state UNUSED)
{
    struct region_here members[3];
    struct regions_here h = merged(members, 9, 19);
    assert_true(rules_may_install_over(&h, 5, (struct raft_slots){0, 199}, 10));
    assert_false(rules_may_install_over(&h, 5, (struct raft_slots){0, 199}, 9)); /* of before */
    assert_true(rules_may_install_over(&h, 6, (struct raft_slots){0, 299}, 20));
    assert_false(rules_may_install_over(&h, 6, (struct raft_slots){0, 299}, 19));
    assert_false(rules_may_install_over(&h, 7, (struct raft_slots){0, 99}, 100)); /* of neither target */
    h.tombstones_n = 0;
    assert_false(rules_may_install_over(&h, 5, (struct raft_slots){0, 199}, 10));
}

static void test_a_merge_is_refused_when_the_target_went_on_without(void **state UNUSED)
{
    struct region_here members[3];
    struct regions_here h = merged(members, 9, 19);
    assert_false(rules_merge_refused(&h, 4, 5, 8)); /* it has a tombstone: it was merged */
    assert_true(rules_merge_refused(&h, 7, 6, 18));
    assert_false(rules_merge_refused(&h, 7, 6, 19));
    assert_true(rules_merge_refused(&h, 7, 5, 100)); /* the target itself was merged */
    assert_false(rules_merge_refused(&h, 7, 8, 1));  /* nothing is known about it */
}

static void test_regions_merge_on_the_same_nodes(void **state UNUSED)
{
    struct raft_conf a = {.voters = {peer_of(1, 0), peer_of(2, 1)}, .voters_n = 2}, b = a;
    b.voters[0] = peer_of(2, 5), b.voters[1] = peer_of(1, 3);
    assert_true(rules_same_nodes(&a, &b));
    b.voters[0] = peer_of(3, 5);
    assert_false(rules_same_nodes(&a, &b));
    b = a, b.voters_n = 1;
    assert_false(rules_same_nodes(&a, &b));
    assert_false(rules_same_nodes(&b, &a));
    u32 *others[] = {&b.learners_n, &b.outgoing_n, &b.learners_next_n};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        b = a, *others[i] = 1;
        assert_false(rules_same_nodes(&a, &b));
        assert_false(rules_same_nodes(&b, &a));
    }
}

static void test_a_newer_configuration_proves_removal(void **state UNUSED)
{
    struct raft_conf conf = {.voters = {peer_of(1, 0), peer_of(2, 1)}, .voters_n = 2};
    conf.outgoing[conf.outgoing_n++] = peer_of(3, 2);
    conf.learners[conf.learners_n++] = peer_of(4, 3);
    conf.learners_next[conf.learners_next_n++] = peer_of(5, 4);
    for (u32 i = 1; i <= 5; i++) assert_false(rules_removed(peer_of(i, i - 1), 100, &conf));
    assert_true(rules_removed(peer_of(6, 5), 6, &conf));
    assert_false(rules_removed(peer_of(6, 5), 5, &conf)); /* it may be added by the next change */
    assert_true(rules_removed(peer_of(4, 2), 6, &conf)); /* the same node, another member */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_message_reaches_its_number_only),
        cmocka_unit_test(test_a_removed_member_never_comes_back),
        cmocka_unit_test(test_a_member_is_made_where_its_slots_are_free),
        cmocka_unit_test(test_a_snapshot_overlaps_nobody),
        cmocka_unit_test(test_a_split_meets_its_child),
        cmocka_unit_test(test_a_merged_region_never_speaks_again),
        cmocka_unit_test(test_a_source_stays_while_its_target_may_need_it),
        cmocka_unit_test(test_a_snapshot_replaces_what_was_merged),
        cmocka_unit_test(test_a_merge_is_refused_when_the_target_went_on_without),
        cmocka_unit_test(test_regions_merge_on_the_same_nodes),
        cmocka_unit_test(test_a_newer_configuration_proves_removal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
