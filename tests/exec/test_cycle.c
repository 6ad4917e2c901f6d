/* Reclaiming: what the active cycle takes when, how long it may take for it, and
 * what goes when memory is short. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "harness.h"

#define HOUR 3600000

/* -- what is reclaimed when ------------------------------------------------ */

/* By the index a dead key is gone within the width of the finest bucket, 64 ms. */
static void index_reclaims_within_a_bucket(void **state)
{
    (void)state;
    enum { KEYS = 2000, SPAN = 60000 };
    static i64 deadline[KEYS];
    struct world w;
    char line[64];
    u64 rng = 3;
    world_open(&w);
    for (int i = 0; i < KEYS; i++) {
        deadline[i] = 1 + (i64)rand_below(&rng, SPAN);
        const char *form = i % 5 ? "SET k%d v PX %lld" : "HSETEX k%d PX %lld FIELDS 1 f v";
        snprintf(line, sizeof line, form, i, (long long)deadline[i]);
        run_all(&w, line);
    }
    for (i64 ms = 0; ms <= SPAN + 64; ms += 13) {
        u64 live = 0, may_linger = 0;
        at(&w, ms);
        each_step(&w);
        for (int i = 0; i < KEYS; i++) {
            live += deadline[i] > ms;
            may_linger += deadline[i] > ms - 64;
        }
        assert_in_range(count_of(&w, 0), live, may_linger);
    }
    assert_in_range(w.node.lag.active.max_ms, 0, 64 + 13);
    world_close(&w);
}

/* Cumulative, without what is dead, and exact to the millisecond within the next seconds. */
static void the_forecast_counts_up_to_each_horizon(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    run_all(&w, "SET dead v PX 10;SET alive v PX 50;SET later v PX 1050;SET far v PX 3600000");
    at(&w, 20);
    const char *got = run(&w, "EXPIRY FORECAST");
    assert_non_null(strstr(got, "[within overdue keys 1 from_ms -10 to_ms 0 from_unix_ms 1700000000010 to_unix_ms "));
    assert_non_null(strstr(got, "[within 1s keys 1 from_ms 0 to_ms 1000 from_unix_ms 1700000000020 to_unix_ms "));
    assert_non_null(strstr(got, "[within 10s keys 2 from_ms 0 to_ms 10000 "));
    assert_non_null(strstr(got, "[within 1h keys 3 from_ms 0 to_ms 3600000 "));
    assert_non_null(strstr(got, "[within +Inf keys 3 from_ms 0 from_unix_ms 1700000000020]"));
    at(&w, 50);
    got = run(&w, "EXPIRY FORECAST");
    assert_non_null(strstr(got, "[within overdue keys 2 from_ms -40 "));
    assert_non_null(strstr(got, "[within 1s keys 1 ")); /* at its last millisecond */
    world_close(&w);
}

static void a_forecast_by_database(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    run_all(&w, "SET a v EX 5;SELECT 1;SET b v EX 50;SET c v EX 50;SELECT 0");
    const char *got = run(&w, "EXPIRY FORECAST BY DB");
    const char *second = strstr(got, "[db 1 forecast [[within overdue keys 0 ");
    assert_true(strstr(got, "[[db 0 forecast [[within overdue keys 0 ") == got && second);
    assert_non_null(strstr(second, "[within 1m keys 2 "));
    assert_null(strstr(got, "[db 2"));
    assert_string_equal(run(&w, "EXPIRY FORECAST BY PREFIX"), "-ERR wrong number of arguments for 'expiry|forecast' command");
    world_close(&w);
}

static void the_chart_names_the_peak(void **state)
{
    (void)state;
    struct world w;
    char line[64];
    world_open(&w);
    for (int i = 0; i < 1500; i++) { /* T0 is 22:13:20 */
        snprintf(line, sizeof line, "SET k%d v PX %d", i, i < 1000 ? 61000 + i / 2 : 60000 + 1600 * (i - 1000));
        run_all(&w, line);
    }
    run_all(&w, "SET late v EX 80000;SET later v EX 90000");
    const char *got = run(&w, "EXPIRY CHART");
    assert_non_null(strstr(got, "Next hour: 1,500 keys, peak 1,001/s at 22:14:21 UTC (1,001 keys in 1.0 s)"));
    assert_non_null(strstr(got, "22:13-22:18         1,151 #################################################"));
    assert_non_null(strstr(got, "Next 24 hours: 1,501 keys, peak 1,001/s at 22:14:21 UTC"));
    assert_non_null(strstr(got, "20:13-21:13             1 #"));
    world_close(&w);
}

/* Samples find the few dead among many living, wherever they are. */
static void samples_reach_every_key(void **state)
{
    (void)state;
    struct world w;
    char line[64];
    world_open(&w);
    set_reclaim(&w, BY_SAMPLES);
    for (int i = 0; i < 2000; i++) {
        snprintf(line, sizeof line, "SET k%d v PX %d", i, i % 20 ? HOUR : 1000);
        run_all(&w, line);
    }
    run_all(&w, "HSET h f v g w;HPEXPIRE h 1000 FIELDS 1 f");
    run_all(&w, "HSET hollow f v;HPEXPIRE hollow 1000 FIELDS 1 f");
    w.session.db = 2; /* one with nothing but a hash */
    run_all(&w, "HSET hollow f v;HPEXPIRE hollow 1000 FIELDS 1 f");
    /* Twice around: 20 keys a step, two databases. */
    for (i64 ms = 1000; ms < 1000 + 4 * 110; ms++) {
        at(&w, ms);
        region_expire_step(&w.region);
    }
    assert_int_equal(count_of(&w, 0), 1901);
    assert_int_equal(count_of(&w, 2), 0);
    assert_int_equal(w.region.ks.stats.expired_keys, 100);
    assert_int_equal(w.region.ks.stats.expired_fields, 3);
    world_close(&w);
}

/* While most sampled keys are dead the step asks to continue; then it stops. */
static void samples_go_on_while_many_are_dead(void **state)
{
    (void)state;
    struct world w;
    char line[64];
    world_open(&w);
    set_reclaim(&w, BY_SAMPLES);
    for (int i = 0; i < 2000; i++) {
        snprintf(line, sizeof line, "SET k%d v PX %d", i, i % 10 ? 1000 : HOUR);
        run_all(&w, line);
    }
    at(&w, 1000);
    int steps = 0;
    while (region_expire_step(&w.region)) steps++;
    assert_in_range(steps, 80, 2000);
    assert_in_range(count_of(&w, 0), 200, 250);
    assert_true(w.region.cycle.stale_perc > 0);
    world_close(&w);
}

/* A step of either kind is bounded, whatever waits. */
static void steps_are_small(void **state)
{
    (void)state;
    for (enum reclaim how = BY_INDEX; how <= BY_SAMPLES; how++) {
        struct world w;
        char line[64];
        world_open(&w);
        set_reclaim(&w, how);
        for (int i = 0; i < 1000; i++) {
            snprintf(line, sizeof line, "SET k%d v PX 1000", i);
            run_all(&w, line);
        }
        at(&w, 2000);
        u64 before = count_of(&w, 0);
        assert_true(region_expire_step(&w.region));
        assert_in_range(before - count_of(&w, 0), 1, 100);
        assert_int_equal(w.journal.v[w.journal.n - 1].effects, before - count_of(&w, 0));
        world_close(&w);
    }
}

/* -- how long it may take ---------------------------------------------------- */

/* Uses up the slow cycle's budget at this moment; returns how much it was. */
static i64 spend_slow_budget(struct expire_cycle *c, i64 mono_us, bool more_left)
{
    i64 total = 0, slice;
    while ((slice = expire_cycle_allowance(c, mono_us, false)) > 0 && c->last_fast_us != mono_us) {
        assert_in_range(slice, 1, EXPIRE_SLICE_US);
        expire_cycle_spent(c, slice, more_left);
        total += slice;
    }
    return total;
}

static void slow_budget_per_period(void **state)
{
    (void)state;
    static const struct {
        u32 hz, effort;
        i64 budget_us;
    } cases[] = {{10, 1, 25000}, {10, 5, 33000}, {10, 10, 43000}, {100, 1, 2500}, {500, 10, 860}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct expire_cycle c;
        expire_cycle_init(&c);
        c.hz = cases[i].hz;
        c.effort = cases[i].effort;
        i64 period_us = 1000000 / c.hz, t = 50000000;
        assert_int_equal(spend_slow_budget(&c, t, false), cases[i].budget_us);
        assert_int_equal(spend_slow_budget(&c, t + period_us - 1, false), 0);
        assert_int_equal(spend_slow_budget(&c, t + period_us, false), cases[i].budget_us);
        assert_int_equal(c.spent_us, 2 * cases[i].budget_us);
    }
}

static void fast_cycle_keeps_its_distance(void **state)
{
    (void)state;
    static const struct {
        u32 effort;
        i64 distance_us;
    } cases[] = {{1, 2000}, {5, 4000}, {10, 6500}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct expire_cycle c;
        i64 t = 50000000;
        expire_cycle_init(&c);
        c.hz = 1; /* one long period, so that the slow budget stays used up */
        c.effort = cases[i].effort;
        spend_slow_budget(&c, t, true); /* … with work left: ends with a fast cycle */
        assert_int_equal(c.last_fast_us, t);
        assert_int_equal(expire_cycle_allowance(&c, t + 1, false), 0);
        assert_int_equal(expire_cycle_allowance(&c, t + cases[i].distance_us - 1, false), 0);
        assert_true(expire_cycle_allowance(&c, t + cases[i].distance_us, false) > 0);
        assert_int_equal(expire_cycle_allowance(&c, t + cases[i].distance_us + 1, false), 0);

        /* Without reason there is none: nothing left over, few dead keys seen. */
        expire_cycle_spent(&c, 1, false);
        assert_int_equal(expire_cycle_allowance(&c, t + 500000, false), 0);
        c.stale_perc = 10 - (c.effort - 1) + 0.1;
        assert_true(expire_cycle_allowance(&c, t + 500000, false) > 0);
    }
}

static void idle_time_may_be_used(void **state)
{
    (void)state;
    struct expire_cycle c;
    expire_cycle_init(&c);
    spend_slow_budget(&c, 50000000, false);
    assert_int_equal(expire_cycle_allowance(&c, 50000001, false), 0);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(expire_cycle_allowance(&c, 50000001, true), EXPIRE_SLICE_US);
        expire_cycle_spent(&c, EXPIRE_SLICE_US, true);
    }
    assert_int_equal(c.time_cap_reached, 1); /* one shortage, however many slices it lasted */
    expire_cycle_spent(&c, 1, false);
    expire_cycle_spent(&c, 1, true);
    assert_int_equal(c.time_cap_reached, 2);
}

/* The loop does not sleep while work waits for time: it must not wait for what is off. */
static void what_waits_does_not_wait_when_off(void **state)
{
    (void)state;
    struct expire_cycle c;
    expire_cycle_init(&c);
    assert_false(expire_cycle_waits(&c));
    expire_cycle_spent(&c, 50, true);
    assert_true(expire_cycle_waits(&c));
    c.enabled = false;
    assert_false(expire_cycle_waits(&c));
}

static void the_cycle_can_be_switched_off(void **state)
{
    (void)state;
    struct expire_cycle c;
    expire_cycle_init(&c);
    c.enabled = false; /* DEBUG SET-ACTIVE-EXPIRE 0 */
    assert_int_equal(expire_cycle_allowance(&c, 50000000, false), 0);
    assert_int_equal(expire_cycle_allowance(&c, 60000000, true), 0);
    c.enabled = true;
    assert_true(expire_cycle_allowance(&c, 60000000, false) > 0);
}

/* -- runs -------------------------------------------------------------------------- */

static void runs_keep_their_interval(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    struct expire_cycle *c = &w.region.cycle;
    c->interval_ms = 500;
    assert_true(expire_cycle_due(c, T0));
    expire_cycle_ran(c, &w.region.ks, w.region.ks.now_ms, 3, 50, true);
    assert_true(expire_cycle_due(c, T0)); /* the run continues */
    expire_cycle_ran(c, &w.region.ks, w.region.ks.now_ms, 0, 50, false);
    assert_false(expire_cycle_due(c, T0));
    assert_false(expire_cycle_due(c, T0 + 499));
    assert_true(expire_cycle_due(c, T0 + 500));
    assert_true(expire_cycle_due(c, T0 - 3600000)); /* the clock was set back */
    c->interval_ms = 0;
    assert_false(expire_cycle_due(c, T0 + 500));
    assert_int_equal(expire_cycle_allowance(c, 50000000, true), 0);
    world_close(&w);
}

static void a_run_is_summed_up(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    struct expire_cycle *c = &w.region.cycle;
    run_all(&w, "SET a v PX 100; SET b v PX 200; SET c v PX 100000");
    at(&w, 1200);
    bool more = true;
    for (u32 slice = 0; more; slice++) {
        u64 before = expire_total(&w.region.ks);
        more = region_expire_step(&w.region);
        expire_cycle_ran(c, &w.region.ks, w.region.ks.now_ms, expire_total(&w.region.ks) - before, 10, more);
        if (more) assert_int_equal(c->last.at_ms, 0);
    }
    assert_int_equal(c->last.cleaned, 2);
    assert_int_equal(c->last.at_ms, T0 + 1200);
    assert_int_equal(c->last.lag_ms, 1100);
    assert_true(c->last.took_us >= 10);
    at(&w, 2000); /* a run that finds nothing leaves the last one's figures */
    expire_cycle_ran(c, &w.region.ks, w.region.ks.now_ms, 0, 10, false);
    assert_int_equal(c->last.cleaned, 2);
    world_close(&w);
}

static void steps_keep_to_the_batch(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    w.region.cycle.batch = 2;
    run_all(&w, "SET a v PX 100; SET b v PX 100; SET c v PX 100");
    at(&w, 1000);
    assert_true(region_expire_step(&w.region));
    assert_int_equal(count_of(&w, 0), 1);
    world_close(&w);
}

/* -- eviction ---------------------------------------------------------------------------- */

static void fill(struct world *w, const char *name, int n, const char *options)
{
    char *line = mem_alloc(5000);
    for (int i = 0; i < n; i++) {
        int len = snprintf(line, 100, "SET %s%d ", name, i);
        memset(line + len, 'x', 4000);
        snprintf(line + len + 4000, 900, " %s", options);
        assert_string_equal(run(w, line), "OK");
    }
    mem_free(line);
}

static u64 used(struct world *w) { return evictor_used(&w->node.evictor); }

static u64 live_of(struct world *w, const char *name, int n)
{
    u64 found = 0;
    for (int i = 0; i < n; i++) {
        char key[32];
        struct key_ref ref;
        snprintf(key, sizeof key, "%s%d", name, i);
        found += w->region.eng->ops->find(w->region.eng, 0, bytes_str(key), &ref);
    }
    return found;
}

static void the_dead_go_before_the_living(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    w.region.ks.policy = EVICT_ALLKEYS_LRU;
    fill(&w, "live", 100, "");
    fill(&w, "dead", 100, "PX 1000");
    at(&w, 2000);
    w.node.evictor.maxmemory = used(&w) - 50 * 4000;
    for (int i = 0; i < 10; i++) run(&w, "GET x");
    assert_int_equal(w.region.ks.stats.evicted_keys, 0);
    assert_int_equal(live_of(&w, "live", 100), 100);
    assert_in_range(live_of(&w, "dead", 100), 0, 50);

    w.node.evictor.maxmemory = used(&w) - 60 * 4000;
    for (int i = 0; i < 10; i++) run(&w, "GET x");
    assert_int_equal(live_of(&w, "dead", 100), 0);
    assert_in_range(w.region.ks.stats.evicted_keys, 1, 65);
    assert_int_equal(live_of(&w, "live", 100), 100 - w.region.ks.stats.evicted_keys);
    world_close(&w);
}

/* volatile-ttl takes the nearest deadlines, as far as it samples. */
static void nearest_deadlines_go_first(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    w.region.ks.policy = EVICT_VOLATILE_TTL;
    w.node.evictor.samples = 2000;
    fill(&w, "far", 50, "PX 9000000");
    fill(&w, "near", 50, "PX 5000");
    fill(&w, "never", 50, "");
    w.node.evictor.maxmemory = used(&w) - 30 * 4000;
    for (int i = 0; i < 10; i++) run(&w, "GET x");
    assert_in_range(w.region.ks.stats.evicted_keys, 1, 40);
    assert_int_equal(live_of(&w, "far", 50) + live_of(&w, "never", 50), 100);
    w.node.evictor.maxmemory = 1; /* nothing helps: what has no deadline stays */
    for (int i = 0; i < 10; i++) run(&w, "GET x");
    assert_int_equal(live_of(&w, "far", 50) + live_of(&w, "near", 50), 0);
    assert_int_equal(live_of(&w, "never", 50), 50);
    world_close(&w);
}

static void evictions_are_journalled(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    w.region.ks.policy = EVICT_ALLKEYS_RANDOM;
    fill(&w, "a", 1, "");
    journal_text(&w);
    w.node.evictor.maxmemory = used(&w) - 1000;
    run(&w, "SET b 1");
    assert_string_equal(journal_text(&w), "MULTI; DEL a0; SET b 1; EXEC");
    w.region.mode = EXPIRY_PAUSED; /* nothing is evicted, either */
    at(&w, 0);
    w.node.evictor.maxmemory = 1;
    run(&w, "GET b");
    assert_string_equal(journal_text(&w), "");
    assert_int_equal(count_of(&w, 0), 1);
    world_close(&w);
}

/* A limit that was lowered is reached although no command comes. */
static void eviction_goes_on_without_commands(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    fill(&w, "a", 500, "");
    journal_text(&w);
    w.node.evictor.maxmemory = used(&w) - 200000;
    w.node.evictor.unfinished = true;
    assert_false(region_evict_step(&w.region)); /* noeviction: there is nothing to be done */
    assert_int_equal(count_of(&w, 0), 500);
    w.region.ks.policy = EVICT_ALLKEYS_LRU;
    w.node.evictor.unfinished = true;
    assert_true(region_evict_step(&w.region));
    assert_int_equal(w.journal.n, 1);
    while (region_evict_step(&w.region)) recorder_clear(&w.journal);
    assert_in_range(count_of(&w, 0), 400, 460);
    assert_in_range(used(&w), 0, w.node.evictor.maxmemory);
    world_close(&w);
}

/* -- rests ------------------------------------------------------------------ */

static i64 rest_after_slice(i64 took_us, bool committed, i64 late_ms)
{
    struct expire_pace p = {0};
    assert_false(expire_pace_rests(&p, 0));
    expire_pace_spent(&p, 1000000, took_us, committed, late_ms);
    i64 us = 0;
    while (expire_pace_rests(&p, 1000000 + us)) us += 10;
    return us;
}

static i64 rest_after(i64 took_us, i64 late_ms) { return rest_after_slice(took_us, true, late_ms); }

static void a_slice_is_followed_by_a_rest(void **state)
{
    (void)state;
    assert_int_equal(rest_after(300, 0), 900);
    assert_int_equal(rest_after(300, -5), 900); /* a clock that was set back */
    assert_int_equal(rest_after(1000000, 0), 20000);
}

static void a_commit_that_comes_later_counts(void **state)
{
    (void)state;
    assert_int_equal(rest_after_slice(100, false, 0), 1200);
    assert_int_equal(rest_after_slice(100, false, 2000), 600);
    assert_int_equal(rest_after_slice(100, false, 4000), 0);
}

static void the_later_the_shorter_the_rests(void **state)
{
    (void)state;
    assert_int_equal(rest_after(300, 2000), 450);
    assert_int_equal(rest_after(300, 4000), 0);
    assert_int_equal(rest_after(300, HOUR), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(index_reclaims_within_a_bucket),
        cmocka_unit_test(the_forecast_counts_up_to_each_horizon),
        cmocka_unit_test(a_forecast_by_database),
        cmocka_unit_test(the_chart_names_the_peak),
        cmocka_unit_test(samples_reach_every_key),
        cmocka_unit_test(samples_go_on_while_many_are_dead),
        cmocka_unit_test(steps_are_small),
        cmocka_unit_test(slow_budget_per_period),
        cmocka_unit_test(fast_cycle_keeps_its_distance),
        cmocka_unit_test(idle_time_may_be_used),
        cmocka_unit_test(the_cycle_can_be_switched_off),
        cmocka_unit_test(what_waits_does_not_wait_when_off),
        cmocka_unit_test(a_slice_is_followed_by_a_rest),
        cmocka_unit_test(a_commit_that_comes_later_counts),
        cmocka_unit_test(the_later_the_shorter_the_rests),
        cmocka_unit_test(runs_keep_their_interval),
        cmocka_unit_test(a_run_is_summed_up),
        cmocka_unit_test(steps_keep_to_the_batch),
        cmocka_unit_test(the_dead_go_before_the_living),
        cmocka_unit_test(nearest_deadlines_go_first),
        cmocka_unit_test(evictions_are_journalled),
        cmocka_unit_test(eviction_goes_on_without_commands),
    };
    return cmocka_run_group_tests_name("cycle", tests, NULL, NULL);
}
