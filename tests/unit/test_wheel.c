/* The deadline index against a plain array of deadlines. The test plays the
 * owner: it keeps a wheel_pos per key and answers visits as the engine does. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "ds/wheel.h"

#define KEYS 3000
#define START 1700000000000LL
#define SECOND 1000LL
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

struct key {
    i64 deadline_ms; /* 0: none */
    wheel_pos pos;
};

struct world {
    struct wheel w;
    struct key key[KEYS];
    u64 live, taken, expired;
    i64 now_ms;
};

static u64 rng;

static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

/* References are hashes; these can be turned back. */
static u64 ref_of(u32 id) { return (u64)id << 40 | 0x5a5a; }

static struct key *key_of(struct world *x, u64 ref)
{
    u64 id = ref >> 40;
    assert_true(id < KEYS && ref_of((u32)id) == ref);
    return &x->key[id];
}

static void world_open(struct world *x)
{
    *x = (struct world){.now_ms = START};
    wheel_init(&x->w);
}

static void add(struct world *x, u32 id, i64 deadline_ms)
{
    struct key *k = &x->key[id];
    if (k->deadline_ms) {
        k->pos = wheel_move(&x->w, k->pos, ref_of(id), k->deadline_ms, deadline_ms, x->now_ms);
    } else {
        k->pos = wheel_add(&x->w, ref_of(id), deadline_ms, x->now_ms);
        x->live++;
    }
    k->deadline_ms = deadline_ms;
}

static void drop(struct world *x, u32 id)
{
    struct key *k = &x->key[id];
    if (!k->deadline_ms) return;
    wheel_drop(&x->w, k->pos, k->deadline_ms);
    k->deadline_ms = 0;
    x->live--;
}

/* Takes one reference and does what the owner has to; false when nothing is due. */
static bool visit(struct world *x)
{
    struct wheel_visit v;
    bool due = wheel_next(&x->w) <= x->now_ms;
    bool got = wheel_take(&x->w, x->now_ms, &v);
    assert_true(got ? due : wheel_next(&x->w) > x->now_ms);
    if (!got) return false;
    x->taken++;
    struct key *k = key_of(x, v.ref);
    if (!k->deadline_ms || !(v.anywhere || wheel_same(k->pos, v.at))) return true; /* stale */
    if (k->deadline_ms <= x->now_ms) {
        drop(x, (u32)(k - x->key));
        x->expired++;
    } else {
        wheel_drop(&x->w, k->pos, k->deadline_ms);
        k->pos = wheel_add(&x->w, v.ref, k->deadline_ms, x->now_ms);
    }
    return true;
}

/* Everything whose finest bucket has ended is gone after this. */
static void drain(struct world *x)
{
    while (visit(x)) {}
    for (u32 id = 0; id < KEYS; id++) {
        i64 d = x->key[id].deadline_ms;
        if (d) assert_true(d >> DUE_PLACE_SHIFT(0) >= x->now_ms >> DUE_PLACE_SHIFT(0));
    }
}

static bool keep(void *arg, u64 ref, wheel_pos at, wheel_pos to)
{
    struct key *k = key_of(arg, ref);
    if (!k->deadline_ms || !wheel_keeps(k->pos, at, to)) return false;
    k->pos = wheel_kept(k->pos, to);
    return true;
}

static void sweep(struct world *x)
{
    for (u32 n = 0; wheel_needs_sweep(&x->w); n++) {
        assert_true(n < 100000);
        wheel_sweep(&x->w, 1 + below(1000), keep, x);
    }
}

/* -- counting -------------------------------------------------------------------- */

struct forecast {
    struct world *x;
    u64 total;
    bool exact;
};

static void forecast_cell(void *arg, const struct due_span *s)
{
    struct forecast *f = arg;
    f->total += s->keys;
    if (!f->exact || s->from_ms == s->to_ms) return;
    u64 n = 0;
    i64 past = 0, width_ms = s->to_ms - s->from_ms;
    for (u32 id = 0; id < KEYS; id++) {
        const struct key *k = &f->x->key[id];
        bool this_width = 1LL << DUE_CELL_SHIFT(k->pos >> 12) == width_ms;
        if (!k->deadline_ms || !this_width || k->deadline_ms < s->from_ms || k->deadline_ms >= s->to_ms) continue;
        n++;
        past += k->deadline_ms - s->from_ms;
    }
    assert_int_equal(n, s->keys);
    assert_true(llabs(s->mean_ms - s->from_ms - past / (i64)n) <= width_ms / 256 + 1);
}

static void check_counts(struct world *x, bool exact)
{
    struct forecast f = {x, 0, exact};
    wheel_forecast(&x->w, forecast_cell, &f);
    assert_int_equal(f.total, x->live);
    assert_int_equal(x->w.live, x->live);
    assert_true(x->w.refs >= x->live);
}

static void world_close(struct world *x)
{
    /* No reference was lost: once time is up, everything comes out. */
    x->now_ms = INT64_MAX / 2;
    drain(x);
    assert_int_equal(x->live, 0);
    check_counts(x, false);
    wheel_release(&x->w);
    assert_int_equal(wheel_memory(&x->w), 0);
}

/* A TTL from a millisecond to some months, each order of magnitude as likely. */
static i64 some_ttl(void) { return 1 + (i64)rand_below(&rng, 2ULL << below(34)); }

static void test_empty(void **state)
{
    (void)state;
    struct wheel w;
    struct wheel_visit v;
    u64 ref;
    wheel_init(&w);
    assert_true(wheel_next(&w) == INT64_MAX);
    assert_false(wheel_take(&w, INT64_MAX / 2, &v));
    assert_false(wheel_random(&w, &rng, &ref));
    assert_false(wheel_needs_sweep(&w));
    wheel_forecast(&w, NULL, NULL);
    wheel_release(&w);
}

/* One key: looked at a few times whatever its TTL, and offered within 64 ms. */
static void test_one_life(void **state)
{
    (void)state;
    rng = 1;
    for (u32 round = 0; round < 5000; round++) {
        struct world x;
        world_open(&x);
        x.now_ms += (i64)rand_below(&rng, DAY);
        i64 deadline_ms = x.now_ms + some_ttl();
        add(&x, 0, deadline_ms);
        while (x.live) {
            x.now_ms = wheel_next(&x.w);
            drain(&x);
        }
        assert_in_range(x.now_ms - deadline_ms, 0, 64);
        assert_in_range(x.taken, 1, 7);
        wheel_release(&x.w);
    }
}

static void test_far_deadlines(void **state)
{
    (void)state;
    struct world x;
    world_open(&x);
    add(&x, 0, INT64_MAX);
    add(&x, 1, INT64_MAX - 1);
    add(&x, 2, INT64_MAX / 2);
    add(&x, 3, 1); /* long past */
    check_counts(&x, false);
    drain(&x);
    assert_int_equal(x.live, 3);
    add(&x, 0, START + 10);
    x.now_ms += 74;
    drain(&x);
    assert_int_equal(x.live, 2);
    drop(&x, 1);
    drop(&x, 2);
    wheel_release(&x.w);
}

/* Random operations; `jump` says how far the clock may step, back and forth. */
static void random_life(u64 seed, u32 steps, i64 jump)
{
    rng = seed;
    struct world x;
    world_open(&x);
    for (u32 step = 0; step < steps; step++) {
        u32 id = below(KEYS), what = below(100);
        if (what < 45) add(&x, id, x.now_ms + some_ttl());
        else if (what < 60) drop(&x, id);
        else if (what < 70) x.now_ms += below(200);
        else if (what < 71) x.now_ms += (i64)rand_below(&rng, 10 * MINUTE);
        else if (what < 72 && jump) x.now_ms += (i64)rand_below(&rng, 2 * (u64)jump) - jump;
        else if (what < 73) drain(&x);
        else if (what < 99) visit(&x);
        else sweep(&x);
        if (step % 500 == 0) check_counts(&x, jump == 0);
    }
    assert_true(x.expired > 100);
    world_close(&x);
}

static void test_random_life(void **state)
{
    (void)state;
    for (u64 seed = 1; seed <= 5; seed++) random_life(seed, 40000, 0);
}

static void test_clock_steps(void **state)
{
    (void)state;
    for (u64 seed = 1; seed <= 5; seed++) random_life(seed, 40000, HOUR);
    for (u64 seed = 1; seed <= 3; seed++) random_life(seed, 40000, 400 * DAY);
}

/* After a step back and forth nothing is late. */
static void test_step_back_and_forth(void **state)
{
    (void)state;
    rng = 7;
    for (u32 round = 0; round < 200; round++) {
        struct world x;
        world_open(&x);
        for (u32 id = 0; id < 200; id++) add(&x, id, x.now_ms + some_ttl());
        for (u32 n = 0; n < 10; n++) {
            x.now_ms += below(2) ? HOUR : -HOUR;
            drain(&x);
            for (u32 id = 0; id < 20; id++) add(&x, below(200), x.now_ms + some_ttl());
            check_counts(&x, false);
        }
        world_close(&x);
    }
}

/* SET k v EX 1000 · DEL k, for ever: what is left behind is swept. */
static void test_stale_references_are_swept(void **state)
{
    (void)state;
    rng = 8;
    struct world x;
    world_open(&x);
    for (u32 id = 0; id < 1000; id++) add(&x, id, x.now_ms + DAY + below(1000000));
    for (u32 n = 0; n < 300000; n++) {
        u32 id = 1000 + below(2000);
        add(&x, id, x.now_ms + some_ttl());
        drop(&x, id);
        if (n % 50 == 0) {
            x.now_ms++;
            wheel_sweep(&x.w, 200, keep, &x);
        }
        assert_true(x.w.refs < 20000);
    }
    sweep(&x);
    assert_true(x.w.refs <= 2 * x.live + 4096);
    assert_true(wheel_memory(&x.w) - x.w.celled * DUE_CELLS * sizeof(struct due_cell) < 300000);
    check_counts(&x, false);
    world_close(&x);
}

/* Keys that come, go and move in a slot while it is being swept are not lost. */
static void test_changes_while_sweeping(void **state)
{
    (void)state;
    rng = 12;
    for (u32 round = 0; round < 30; round++) {
        struct world x;
        world_open(&x);
        for (u32 n = 0; n < 30000; n++) {
            add(&x, below(KEYS), x.now_ms + DAY + below(1000));
            if (below(8)) drop(&x, below(KEYS));
            if (n % 10 == 0) wheel_sweep(&x.w, 1 + below(40), keep, &x);
        }
        check_counts(&x, true);
        for (u32 n = 0; n < 20; n++) wheel_sweep(&x.w, 1 + below(500), keep, &x);
        world_close(&x);
    }
}

/* A replica never takes anything: its primary's deletes arrive as drops. Old
 * buckets are overrun by new ones, and those references are swept too. */
static void test_never_visited(void **state)
{
    (void)state;
    rng = 9;
    struct world x;
    world_open(&x);
    for (u32 n = 0; n < 400000; n++) {
        x.now_ms += below(100);
        u32 id = below(KEYS);
        if (below(2)) add(&x, id, x.now_ms + some_ttl() % (10 * MINUTE));
        else drop(&x, id);
        if (n % 20 == 0) wheel_sweep(&x.w, 100, keep, &x);
        assert_true(x.w.refs < 4 * KEYS + 10000);
    }
    sweep(&x);
    check_counts(&x, false);
    world_close(&x);
}

/* A session whose TTL every request renews. */
static void test_refreshed_ttl(void **state)
{
    (void)state;
    rng = 10;
    struct world x;
    world_open(&x);
    for (u32 n = 0; n < 1000000; n++) {
        x.now_ms += below(20);
        add(&x, 0, x.now_ms + 30 * MINUTE);
        if (n % 16 == 0) while (visit(&x)) {}
        assert_true(x.w.refs <= 4);
    }
    assert_int_equal(x.live, 1);
    assert_true(x.taken < 20000);
    world_close(&x);
}

/* The same key again and again in the same bucket: offered once. */
static void test_duplicates(void **state)
{
    (void)state;
    struct world x;
    world_open(&x);
    for (u32 n = 0; n < 100; n++) {
        add(&x, 5, START + 2000);
        if (n < 99) drop(&x, 5);
    }
    assert_int_equal(x.w.refs, 100);
    x.now_ms += 2064;
    drain(&x);
    assert_int_equal(x.expired, 1);
    assert_int_equal(x.w.refs, 0);

    /* A sweep keeps one of them. */
    for (u32 id = 0; id < 100; id++) {
        for (u32 n = 0; n < 100; n++) {
            add(&x, id, x.now_ms + DAY);
            if (n < 99) drop(&x, id);
        }
    }
    while (x.w.refs > 100) {
        add(&x, 2000, x.now_ms + DAY); /* enough refuse to make a sweep worthwhile */
        for (u32 n = 0; n < 5000; n++) {
            drop(&x, 2000);
            add(&x, 2000, x.now_ms + DAY);
        }
        drop(&x, 2000);
        u64 before = x.w.refs;
        sweep(&x);
        assert_true(x.w.refs < before);
        if (x.w.refs <= 4296) break;
    }
    x.now_ms += DAY + 64;
    drain(&x);
    assert_int_equal(x.expired, 101);
    wheel_release(&x.w);
}

/* A million keys in one bucket come out one by one, and nothing else does. */
static void test_storm(void **state)
{
    (void)state;
    struct wheel w;
    wheel_init(&w);
    wheel_pos pos = 0;
    for (u64 ref = 0; ref < 1000000; ref++) pos = wheel_add(&w, ref, START + 60000, START);
    wheel_add(&w, 1000000, START + 180000, START);
    struct wheel_visit v;
    u8 *seen = mem_zalloc(1000000);
    for (u64 n = 0; n < 1000000; n++) {
        assert_true(wheel_take(&w, START + 60064, &v));
        assert_int_equal(seen[v.ref]++, 0);
        assert_true(wheel_same(v.at, pos));
        wheel_drop(&w, pos, START + 60000);
    }
    assert_false(wheel_take(&w, START + 60064, &v));
    mem_free(seen);
    wheel_release(&w);
}

static void test_release_in_slices(void **state)
{
    (void)state;
    struct wheel w;
    wheel_init(&w);
    for (u64 ref = 0; ref < 100000; ref++) wheel_add(&w, ref, START + 1 + (i64)ref * 10, START);
    int slices = 1;
    while (!wheel_release_some(&w, 10)) slices++;
    assert_in_range(slices, 20, 1000);
    assert_int_equal(wheel_next(&w), INT64_MAX);
    wheel_add(&w, 1, START + 1, START); /* it is as good as new */
    wheel_release(&w);
}

static bool is_live(void *arg, u64 ref) { return key_of(arg, ref)->deadline_ms != 0; }

static void test_random_reference(void **state)
{
    (void)state;
    rng = 11;
    struct world x;
    world_open(&x);
    for (u32 id = 0; id < 1000; id++) add(&x, id, x.now_ms + some_ttl());
    for (u32 id = 0; id < 1000; id += 2) drop(&x, id);
    u32 seen[1000] = {0}, distinct = 0, hits = 0;
    for (u32 n = 0; n < 100000; n++) {
        u64 ref;
        assert_true(wheel_random(&x.w, &rng, &ref));
        if (!is_live(&x, ref)) continue;
        hits++;
        distinct += seen[ref >> 40]++ == 0;
    }
    assert_true(hits > 30000);
    assert_true(distinct > 450);

    /* One live key among many stale references. */
    for (u32 id = 2; id < 1000; id++) drop(&x, id);
    assert_int_equal(x.live, 1);
    assert_true(wheel_any(&x.w, is_live, &x));
    drop(&x, 1);
    assert_false(wheel_any(&x.w, is_live, &x));
    wheel_release(&x.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_one_life),
        cmocka_unit_test(test_far_deadlines),
        cmocka_unit_test(test_random_life),
        cmocka_unit_test(test_clock_steps),
        cmocka_unit_test(test_step_back_and_forth),
        cmocka_unit_test(test_stale_references_are_swept),
        cmocka_unit_test(test_changes_while_sweeping),
        cmocka_unit_test(test_never_visited),
        cmocka_unit_test(test_refreshed_ttl),
        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_release_in_slices),
        cmocka_unit_test(test_storm),
        cmocka_unit_test(test_random_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
