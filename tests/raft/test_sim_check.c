/* The simulator's checker: valid histories, and each kind of violation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/check.c"

#define NEVER UINT64_MAX

/* type, value, ttl, time, start, end, found, found value */
#define SET(v, ttl, t, a, b)              \
    {                                     \
        OP_SET, v, ttl, t, a, b, false, 0 \
    }
#define GET(t, a, b, found, v)          \
    {                                   \
        OP_GET, 0, 0, t, a, b, found, v \
    }
#define INCR(t, a, b, v)                \
    {                                   \
        OP_INCR, 0, 0, t, a, b, true, v \
    }
#define VERDICT(...)                               \
    check_object((struct check_op[]){__VA_ARGS__}, \
                 sizeof((struct check_op[]){__VA_ARGS__}) / sizeof(struct check_op))

static void test_right(void **state UNUSED)
{
    assert_int_equal(VERDICT(SET(7, 0, 100, 1, 2), GET(101, 3, 4, true, 7)), CHECK_OK);
    /* concurrent: either order */
    assert_int_equal(VERDICT(SET(7, 0, 100, 1, 9), GET(101, 3, 4, true, 7), GET(101, 5, 6, true, 7)),
                     CHECK_OK);
    assert_int_equal(VERDICT(SET(7, 0, 100, 1, 9), GET(101, 3, 4, false, 0), GET(101, 5, 6, true, 7)),
                     CHECK_OK);
    /* a deadline passes */
    assert_int_equal(VERDICT(SET(7, 50, 100, 1, 2), GET(149, 3, 4, true, 7), GET(150, 5, 6, false, 0)),
                     CHECK_OK);
    /* a later leader's slower clock is no violation while nobody has seen the key dead */
    assert_int_equal(VERDICT(SET(7, 50, 100, 1, 2), GET(149, 3, 4, true, 7), GET(120, 5, 6, true, 7)),
                     CHECK_OK);
    /* no reply: it happened late, or never */
    assert_int_equal(VERDICT(SET(7, 0, 100, 1, NEVER), GET(1, 3, 4, false, 0), GET(1, 5, 6, true, 7)),
                     CHECK_OK);
    assert_int_equal(VERDICT(SET(7, 0, 100, 1, NEVER), GET(1, 3, 4, false, 0)), CHECK_OK);
}

static void test_violations(void **state UNUSED)
{
    /* stale read */
    assert_int_equal(VERDICT(SET(7, 0, 1, 1, 2), SET(8, 0, 1, 3, 4), GET(1, 5, 6, true, 7)), CHECK_VIOLATION);
    /* lost write */
    assert_int_equal(VERDICT(SET(7, 0, 1, 1, 2), GET(1, 3, 4, false, 0)), CHECK_VIOLATION);
    /* resurrection */
    assert_int_equal(VERDICT(SET(7, 50, 100, 1, 2), GET(150, 3, 4, false, 0), GET(120, 5, 6, true, 7)),
                     CHECK_VIOLATION);
    /* dead too early, seen too late */
    assert_int_equal(VERDICT(SET(7, 50, 100, 1, 2), GET(149, 3, 4, false, 0)), CHECK_VIOLATION);
    assert_int_equal(VERDICT(SET(7, 50, 100, 1, 2), GET(150, 3, 4, true, 7)), CHECK_VIOLATION);
    /* an increment that is lost, or done twice */
    assert_int_equal(VERDICT(INCR(1, 1, 2, 1), INCR(1, 3, 4, 1)), CHECK_VIOLATION);
    assert_int_equal(VERDICT(INCR(1, 1, 2, 1), INCR(1, 3, 4, 3)), CHECK_VIOLATION);
    /* seen, then gone, without a cause */
    assert_int_equal(VERDICT(SET(7, 0, 1, 1, NEVER), GET(1, 3, 4, true, 7), GET(1, 5, 6, false, 0)),
                     CHECK_VIOLATION);
    /* two conditional writes both say that they were first */
    assert_int_equal(VERDICT({OP_SET_NX, 7, 0, 1, 1, 9, true, 0}, {OP_SET_NX, 8, 0, 1, 1, 9, true, 0}),
                     CHECK_VIOLATION);
}

static void test_long_history(void **state UNUSED)
{
    struct check_op ops[CHECK_OPS_MAX];
    u32 n = 0;
    for (; n < 200;
         n++) /* concurrent increments, replies in any order, no hints: the search must not explode */
        ops[n] = (struct check_op){OP_INCR, 0, 0, 1, n * 10, n * 10 + 35, true, n + 1};
    for (; n < 206; n++) ops[n] = (struct check_op){OP_SET, 1000 + n, 0, 1, n, NEVER, false, 0};
    assert_int_equal(check_object(ops, n), CHECK_OK);
    ops[150].found_value = 7;
    assert_int_equal(check_object(ops, n), CHECK_VIOLATION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),
        cmocka_unit_test(test_violations),
        cmocka_unit_test(test_long_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
