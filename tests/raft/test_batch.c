/* When a leader waits for more requests before it makes an entry of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cluster/batch.h"

static void test_one_client_never_waits(void **state UNUSED)
{
    struct batch b = {0};
    assert_int_equal(batch_committed(&b, 1, 0, 1000), 0);
    assert_int_equal(batch_committed(&b, 0, 0, 1000), 0);
    assert_int_equal(batch_committed(&b, 0, 5, 1000), 0); /* an entry of nobody's request */
    assert_false(b.gathering);
}

static void test_all_come_back(void **state UNUSED)
{
    struct batch b = {0};
    u64 us = batch_committed(&b, 30, 34, 1000);
    assert_in_range(us, 1, 1001);
    assert_true(b.gathering);
    assert_false(batch_complete(&b, 34));
    assert_false(batch_complete(&b, 63));
    assert_true(batch_complete(&b, 64));
    batch_end(&b, 64);
    assert_false(b.gathering);
    assert_true(batch_committed(&b, 64, 0, 1000) > 0); /* and again after the next commit */
}

static void test_clients_of_several_regions(void **state UNUSED)
{
    struct batch b = {0};
    assert_true(batch_committed(&b, 5, 11, 1000) > 0);
    batch_add(&b, 4);
    batch_add(&b, 0);
    batch_add(&b, 7);
    assert_false(batch_complete(&b, 26));
    assert_true(batch_complete(&b, 27));
    batch_end(&b, 18); /* not half of those that were answered */
    assert_int_equal(batch_committed(&b, 5, 11, 1000), 0);
}

static void test_a_slow_commit_is_no_reason_to_wait_long(void **state UNUSED)
{
    struct batch b = {0};
    assert_in_range(batch_committed(&b, 2, 2, 10000000), 1, 10000);
}

/* 64 clients take longer to come back than their commit took. */
static void test_as_long_as_they_come_back(void **state UNUSED)
{
    struct batch b = {0};
    u64 us = batch_committed(&b, 60, 4, 200), all = us;
    for (u32 waiting = 24; us && waiting < 64; waiting += 20, all += us) us = batch_look(&b, waiting);
    assert_in_range(us, 200, 201);
    assert_in_range(all, 600, 603);
    assert_true(b.gathering && batch_complete(&b, 64));
    us = batch_committed(&b, 60, 4, 200);
    assert_true(batch_look(&b, 30) > 0);
    assert_int_equal(batch_look(&b, 32), 0); /* hardly any */
}

/* Requests that come at any time are no sign of clients that come back. */
static void test_others_that_come_at_any_time(void **state UNUSED)
{
    struct batch b = {0};
    assert_true(batch_committed(&b, 40, 20, 200) > 0);
    assert_int_equal(batch_look(&b, 40), 0);
}

static void test_gathering_ends(void **state UNUSED)
{
    for (u64 took = 1; took < 100000; took *= 3) {
        struct batch b = {0};
        u64 all = batch_committed(&b, 1000000, 0, took);
        for (u64 us = all, n = 10; us; n += 10, all += us) us = batch_look(&b, (u32)n);
        assert_in_range(all, took < 1000 ? took : 1000, took < 500 ? 9 * took + 9 : 5001);
    }
}

/* Clients that ask now and then cost the others one wait in many commits. */
static void test_those_that_stay_away(void **state UNUSED)
{
    struct batch b = {0};
    u32 waits = 0;
    for (u32 i = 0; i < 1000; i++) {
        if (!batch_committed(&b, 4, 2, 1000)) continue;
        waits++;
        batch_end(&b, 3);
    }
    assert_in_range(waits, 2, 25);
    while (!batch_committed(&b, 4, 2, 1000)) continue;
    batch_end(&b, 6);
    assert_true(batch_committed(&b, 4, 2, 1000) > 0); /* they are back: so is the leader's patience */
}

static void test_half_of_them_are_worth_it(void **state UNUSED)
{
    struct batch b = {0};
    for (u32 i = 0; i < 10; i++) {
        assert_true(batch_committed(&b, 4, 2, 1000) > 0);
        batch_end(&b, 4);
    }
    assert_true(batch_committed(&b, 4, 2, 1000) > 0);
    batch_end(&b, 1); /* some that waited have left */
    assert_int_equal(batch_committed(&b, 4, 2, 1000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_client_never_waits),
        cmocka_unit_test(test_all_come_back),
        cmocka_unit_test(test_as_long_as_they_come_back),
        cmocka_unit_test(test_others_that_come_at_any_time),
        cmocka_unit_test(test_gathering_ends),
        cmocka_unit_test(test_clients_of_several_regions),
        cmocka_unit_test(test_a_slow_commit_is_no_reason_to_wait_long),
        cmocka_unit_test(test_those_that_stay_away),
        cmocka_unit_test(test_half_of_them_are_worth_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
