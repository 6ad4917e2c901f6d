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
static const struct region_here MEMBERS[] = {{1, (u64)NODE << 24 | 1, true, {0, 8191}},
                                             {2, (u64)NODE << 24 | 6, false, {0, 0}}};
static const struct region_tombstone TOMBSTONES[] = {{3, (u64)NODE << 24 | 5}, {2, (u64)NODE << 24 | 4}};
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
        cmocka_unit_test(test_a_newer_configuration_proves_removal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
