/* Where a split halves the load. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cluster/load.h"

static const struct raft_slots all = {0, RAFT_SLOTS - 1};

static void add(struct load *l, u32 times, u16 slot)
{
    while (times-- > 0) load_add(l, slot);
}

static void test_too_few(void **state)
{
    (void)state;
    struct load l = {0};
    for (u16 i = 0; i < 49; i++) load_add(&l, i);
    assert_int_equal(load_median(&l, all), 0);
}

static void test_even(void **state)
{
    (void)state;
    struct load l = {0};
    for (u16 i = 0; i < 100; i++) load_add(&l, (u16)(5000 + i * 37 % 100));
    assert_int_equal(load_median(&l, all), 5050);
}

static void test_the_middle_slot_goes_to_the_smaller_part(void **state)
{
    (void)state;
    struct load l = {0};
    add(&l, 10, 1), add(&l, 40, 2), add(&l, 50, 3);
    assert_int_equal(load_median(&l, all), 3);
    l = (struct load){0};
    add(&l, 30, 1), add(&l, 30, 2), add(&l, 40, 3);
    assert_int_equal(load_median(&l, all), 3);
    l = (struct load){0};
    add(&l, 40, 1), add(&l, 30, 2), add(&l, 30, 3);
    assert_int_equal(load_median(&l, all), 2);
}

static void test_one_slot_has_most(void **state)
{
    (void)state;
    struct load l = {0};
    add(&l, 90, 7), add(&l, 5, 1), add(&l, 5, 9);
    assert_int_equal(load_median(&l, all), 0);
    l = (struct load){0};
    add(&l, 100, 7);
    assert_int_equal(load_median(&l, all), 0);
    assert_int_equal(load_median(&l, (struct raft_slots){7, 7}), 0);
}

static void test_only_the_latest_count(void **state)
{
    (void)state;
    struct load l = {0};
    add(&l, 10000, 3);
    add(&l, LOAD_SAMPLES / 2, 100), add(&l, LOAD_SAMPLES / 2, 200);
    assert_int_equal(load_median(&l, all), 200);
    assert_int_equal(load_median(&l, (struct raft_slots){200, 300}), 0); /* of before a split */
    assert_int_equal(load_gap(0), 1);
    assert_int_equal(load_gap(256 * 100), 101);
}

static void test_waits_differ(void **state)
{
    (void)state;
    struct load l = {.rng = 1};
    u32 sum = 0, most = 0;
    for (u32 i = 0; i < 1000; i++) {
        u32 n = load_wait(&l, 50);
        sum += n;
        most = MAX(most, n);
    }
    assert_in_range(sum, 45000, 55000);
    assert_in_range(most, 90, 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_too_few),
        cmocka_unit_test(test_even),
        cmocka_unit_test(test_the_middle_slot_goes_to_the_smaller_part),
        cmocka_unit_test(test_one_slot_has_most),
        cmocka_unit_test(test_only_the_latest_count),
        cmocka_unit_test(test_waits_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
