/* The histogram of how long entries take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cluster/commit_times.h"

static void test_an_edge_belongs_to_what_is_below(void **state UNUSED)
{
    struct commit_times t = {0};
    commit_times_add(&t, 0);
    commit_times_add(&t, 100);
    commit_times_add(&t, 101);
    commit_times_add(&t, 5000000);
    commit_times_add(&t, 5000001);
    assert_int_equal(t.count[0], 2);
    assert_int_equal(t.count[1], 1);
    assert_int_equal(t.count[COMMIT_TIMES_EDGES - 1], 1);
    assert_int_equal(t.count[COMMIT_TIMES_EDGES], 1);
    assert_int_equal(t.sum_us, 10000202);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_an_edge_belongs_to_what_is_below)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
