/* The lag histogram: percentiles are the upper edge of a narrow bucket. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "keyspace/lag.h"

static struct lag_histogram h;

static int setup(void **state)
{
    (void)state;
    memset(&h, 0, sizeof h);
    return 0;
}

static void test_empty(void **state)
{
    (void)state;
    assert_int_equal(lag_percentile(&h, 0.5), 0);
    assert_int_equal(lag_percentile(&h, 1), 0);
}

static void test_small_lags_are_exact(void **state)
{
    (void)state;
    for (i64 ms = 0; ms < 16; ms++) lag_record(&h, ms);
    assert_int_equal(h.count, 16);
    assert_int_equal(h.sum_ms, 120);
    assert_int_equal(h.max_ms, 15);
    assert_int_equal(lag_percentile(&h, 0), 0);
    assert_int_equal(lag_percentile(&h, 0.5), 8);
    assert_int_equal(lag_percentile(&h, 1), 15);
}

static void test_extremes(void **state)
{
    (void)state;
    lag_record(&h, -5); /* the clock stepped back: not late at all */
    assert_int_equal(h.max_ms, 0);
    assert_int_equal(lag_percentile(&h, 1), 0);
    lag_record(&h, INT64_MAX);
    assert_true(h.max_ms == INT64_MAX);
    assert_true(lag_percentile(&h, 1) <= INT64_MAX);
}

/* One value at a time: never below it, and at most a sixteenth above. */
static void test_error_is_bounded(void **state)
{
    (void)state;
    u64 rng = 1;
    for (u32 n = 0; n < 100000; n++) {
        u64 ms = rand_below(&rng, 2ULL << rand_below(&rng, 34)), top = ms + ms / 8 + 2;
        memset(&h, 0, sizeof h);
        lag_record(&h, (i64)ms);
        lag_record(&h, (i64)top); /* or max_ms would cut the answer to the exact value */
        u64 p = lag_percentile(&h, 0.25);
        assert_in_range(p, ms, ms + ms / 16);
    }
}

static int ascending(const void *a, const void *b)
{
    i64 x = *(const i64 *)a, y = *(const i64 *)b;
    return (x > y) - (x < y);
}

static void test_percentiles_of_many(void **state)
{
    (void)state;
    static i64 lag[20000];
    u64 rng = 2;
    for (u32 i = 0; i < ARRAY_LEN(lag); i++) {
        lag[i] = (i64)rand_below(&rng, 2ULL << rand_below(&rng, 20));
        lag_record(&h, lag[i]);
    }
    qsort(lag, ARRAY_LEN(lag), sizeof lag[0], ascending);
    static const double q[] = {0.01, 0.1, 0.5, 0.9, 0.99, 0.999};
    for (u32 i = 0; i < ARRAY_LEN(q); i++) {
        u64 want = (u64)lag[(u32)(q[i] * ARRAY_LEN(lag))];
        assert_in_range(lag_percentile(&h, q[i]), want, want + want / 16);
    }
    assert_int_equal(lag_percentile(&h, 1), h.max_ms);
}

/* Windows of the last minutes: what is older than one, and a fifth of it more, is no longer in it. */
static void test_windows(void **state)
{
    (void)state;
    static struct expiry_lag l;
    struct lag_histogram active, lazy;
    lag_record(&l.active, 7000); /* before the first tick */
    for (i64 s = 1; s <= 3 * 3600; s++) {
        lag_tick(&l, s * 1000);
        lag_record(&l.active, s % 2 ? 10 : 20);
        if (s == 60) lag_record(&l.lazy, 100);
        for (u32 i = 0; i < LAG_WINDOWS; i++) {
            const struct lag_window *w = &lag_windows[i];
            lag_last(&l, i, &active, &lazy);
            i64 counted_s = MIN(s, (w->ms + w->step_ms) / 1000);
            assert_in_range(active.count, MIN(s, w->ms / 1000), counted_s + (s < w->ms / 1000 + w->step_ms / 1000));
            bool first_is_out = s > (w->ms + w->step_ms) / 1000 + 1;
            assert_in_range(active.max_ms, first_is_out ? 20 : 10, first_is_out ? 21 : 7100);
            if (s >= 60 && s - 60 <= w->ms / 1000) assert_int_equal(lazy.count, 1);
            if (s > 60 + (w->ms + w->step_ms) / 1000 + 1) assert_int_equal(lazy.count, 0);
        }
    }
    lag_last(&l, 0, &active, &lazy);
    assert_in_range(lag_percentile(&active, 0.99), 20, 21);
    assert_int_equal(active.sum_ms, active.count / 2 * 30 + (active.count % 2 ? 20 : 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_empty, setup),
        cmocka_unit_test_setup(test_small_lags_are_exact, setup),
        cmocka_unit_test_setup(test_extremes, setup),
        cmocka_unit_test_setup(test_error_is_bounded, setup),
        cmocka_unit_test_setup(test_percentiles_of_many, setup),
        cmocka_unit_test(test_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
