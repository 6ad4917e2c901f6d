/* The forecast against an exact count of the deadlines: random TTL mixes, at random moments and just before and
 * after buckets of the index begin, while keys come, go, and have their TTLs changed. */
#include <stdio.h>

#include "base/rand.h"
#include "ds/due_place.h"
#include "keyspace/forecast.h"
#include "suite.h"
#include "suite_model.h"

#define KEYS 6000
#define FEW 3 /* keys: what 5 % of a handful is rounded up to */
#define CLUSTERS 12
#define SECOND 1000LL
#define HOUR (3600 * SECOND)
#define DAY (24 * HOUR)

static engine_open_fn open_engine;

static struct {
    struct engine *e;
    const struct engine_ops *ops;
    i64 now_ms;
    u64 seq;
    u32 keys;              /* that there may be; fewer where every moment is a write to a disk */
    i64 deadline_ms[KEYS]; /* 0: the key is not there */
    i64 cluster_ms[CLUSTERS];
} f;

static int setup(void **state UNUSED)
{
    suite_seed();
    f.e = open_engine(1, 12345);
    f.ops = f.e->ops;
    f.seq = 0;
    f.keys = bytes_is(bytes_str(f.ops->name), "rocksdb") ? KEYS / 4 : KEYS;
    memset(f.deadline_ms, 0, sizeof f.deadline_ms);
    f.now_ms = START + (i64)rand_below(&suite_rng, (u64)(400 * DAY));
    f.ops->begin(f.e, f.now_ms);
    return 0;
}

static int teardown(void **state UNUSED)
{
    f.ops->commit(f.e, ++f.seq);
    f.ops->close(f.e);
    return 0;
}

static bytes name_of(u32 id, char name[16]) { return bytes_of(name, (size_t)snprintf(name, 16, "k%u", id)); }

static void set_key(u32 id, i64 deadline_ms)
{
    char name[16];
    struct key_ref ref;
    bytes key = name_of(id, name);
    bool found = f.ops->find(f.e, 0, key, &ref);
    assert_int_equal(found, f.deadline_ms[id] != 0);
    if (!deadline_ms && found) f.ops->drop(f.e, &ref);
    else if (found && below(2)) f.ops->set_deadline(f.e, &ref, deadline_ms);
    else if (deadline_ms) f.ops->str.put(f.e, 0, key, &ref, BYTES_LIT("v"), deadline_ms);
    f.deadline_ms[id] = deadline_ms;
}

/* -- time passes -------------------------------------------------------------------------------- */

static void dead_key(void *arg UNUSED, struct key_ref *ref)
{
    u32 id = 0;
    for (size_t i = 1; i < ref->key.n; i++) id = id * 10 + (u32)(ref->key.p[i] - '0');
    assert_true(f.deadline_ms[id] == ref->deadline_ms && !alive(ref->deadline_ms, f.now_ms));
    f.ops->drop(f.e, ref);
    f.deadline_ms[id] = 0;
}

static void go_to(i64 now_ms)
{
    assert_true(f.ops->commit(f.e, ++f.seq));
    f.now_ms = now_ms;
    f.ops->begin(f.e, f.now_ms);
    while (f.ops->next_due(f.e) <= f.now_ms) {
        while (f.ops->due(f.e, f.now_ms, 1000, dead_key, NULL)) {}
        assert_true(f.ops->commit(f.e, ++f.seq));
        f.ops->begin(f.e, f.now_ms);
    }
}

/* As a server would: whatever is to be visited on the way is, in time. */
static void pass_time(i64 to_ms)
{
    while (f.now_ms < to_ms) go_to(MIN(to_ms, MAX(f.now_ms + 1, f.ops->next_due(f.e))));
}

/* A moment within the next so many milliseconds, often one just before or after a bucket begins. */
static i64 some_moment(i64 within_ms)
{
    i64 at_ms = f.now_ms + 1 + (i64)rand_below(&suite_rng, (u64)within_ms);
    u32 level = below(5);
    i64 start_ms = at_ms >> DUE_PLACE_SHIFT(level) << DUE_PLACE_SHIFT(level);
    if (below(3) && start_ms > f.now_ms + 5) at_ms = start_ms - 3 + below(6);
    return at_ms;
}

/* -- comparing ------------------------------------------------------------------------------------- */

static u64 exact(i64 from_ms, i64 to_ms)
{
    u64 n = 0;
    for (u32 id = 0; id < KEYS; id++) n += f.deadline_ms[id] > from_ms && f.deadline_ms[id] <= to_ms;
    return n;
}

/* Right to 5 %. `slack`: of the horizon itself, where many keys may share a deadline that is close to it. */
static void check(double slack)
{
    struct forecast got = {.now_ms = f.now_ms};
    u64 keys[FORECAST_HORIZONS];
    forecast_add(&got, f.e, 0);
    forecast_within(&got, keys);
    assert_int_equal(forecast_overdue(&got), exact(0, f.now_ms));
    for (u32 i = 0; i < FORECAST_HORIZONS; i++) {
        i64 ms = forecast_horizons[i].ms;
        bool all = ms == INT64_MAX;
        u64 least = exact(f.now_ms, all ? INT64_MAX : f.now_ms + ms - (i64)((double)ms * slack));
        u64 most = exact(f.now_ms, all ? INT64_MAX : f.now_ms + ms + (i64)((double)ms * slack));
        bool right = (double)keys[i] + FEW >= 0.95 * (double)least && (double)keys[i] <= 1.05 * (double)most + FEW;
        if (!right)
            print_error("within %s: %llu, not %llu … %llu\n", forecast_horizons[i].name, (ull)keys[i], (ull)least,
                        (ull)most);
        assert_true(right);
        if (all) assert_int_equal(keys[i], exact(f.now_ms, INT64_MAX));
    }
}

/* -- mixes of TTLs ------------------------------------------------------------------------------------ */

typedef i64 (*ttl_fn)(i64 longest_ms);

static i64 uniform(i64 longest_ms) { return 1 + (i64)rand_below(&suite_rng, (u64)longest_ms); }
static i64 any_magnitude(i64 longest_ms) { return 1 + (i64)rand_below(&suite_rng, (u64)MAX(longest_ms >> below(24), 2)); }

static i64 clustered(i64 longest_ms)
{
    i64 *at_ms = &f.cluster_ms[below(CLUSTERS)];
    if (*at_ms <= f.now_ms) *at_ms = f.now_ms + any_magnitude(longest_ms);
    return *at_ms + below(3) - f.now_ms;
}

static void change_some(u32 n, ttl_fn ttl, i64 longest_ms)
{
    while (n--) set_key(below(f.keys), below(8) ? f.now_ms + ttl(longest_ms) : 0);
}

static u32 moments(u32 n) { return f.keys < KEYS ? (n + 3) / 4 : ROUNDS(n); }

static void live_through(ttl_fn ttl, i64 longest_ms, double slack, u32 most)
{
    memset(f.cluster_ms, 0, sizeof f.cluster_ms);
    for (u32 id = 0; id < f.keys; id++) set_key(id, f.now_ms + ttl(longest_ms));
    for (u32 step = 0; step < moments(most); step++) {
        check(slack); /* with what the open transaction has changed */
        pass_time(some_moment(below(2) ? longest_ms / 4 : 20 * SECOND));
        check(slack);
        change_some(f.keys / 4, ttl, longest_ms);
    }
}

static void test_spread(void **state UNUSED)
{
    static const i64 longest_ms[] = {10 * SECOND, 600 * SECOND, 2 * HOUR, 2 * DAY, 30 * DAY, 800 * DAY};
    for (u32 i = 0; i < ARRAY_LEN(longest_ms); i++) {
        live_through(uniform, longest_ms[i], 0, 9);
        live_through(any_magnitude, longest_ms[i], 0, 9);
    }
}

/* Keys of one deadline that is within 1/64 of the horizon may be on either side of it, if there are other such
 * clusters as close. */
static void test_clusters(void **state UNUSED)
{
    static const i64 longest_ms[] = {600 * SECOND, 2 * HOUR, 30 * DAY};
    for (u32 i = 0; i < ARRAY_LEN(longest_ms); i++) live_through(clustered, longest_ms[i], 1 / 64., 30);
}

static void check_one_cluster(u32 horizon, bool within)
{
    struct forecast got = {.now_ms = f.now_ms};
    u64 keys[FORECAST_HORIZONS];
    forecast_add(&got, f.e, 0);
    forecast_within(&got, keys);
    assert_int_equal(keys[horizon], within ? exact(0, INT64_MAX) : 0);
    assert_int_equal(keys[horizon + 1], exact(0, INT64_MAX));
}

/* Many keys set at the same moment with a horizon for TTL: each horizon is right to the key, also when it
 * comes near (to 0.01 % of it). */
static void test_one_cluster(void **state UNUSED)
{
    for (u32 i = 0; i + 1 < FORECAST_HORIZONS; i++) {
        for (u32 id = 0; id < 500; id++) set_key(id, f.now_ms + forecast_horizons[i].ms);
        check_one_cluster(i, true);
        for (u32 h = i; h-- > 0;) {
            i64 at_ms = f.deadline_ms[0] - forecast_horizons[h].ms;
            pass_time(at_ms - forecast_horizons[h].ms / 10000 - 1);
            check_one_cluster(h, false);
            pass_time(at_ms);
            check_one_cluster(h, true);
        }
        pass_time(f.deadline_ms[0] + 64);
        assert_int_equal(f.deadline_ms[0], 0);
    }
}

/* Renewing a TTL files nothing, but the key is counted by the new deadline. */
static void test_renewed(void **state UNUSED)
{
    for (u32 step = 0; step < moments(40); step++) {
        for (u32 id = 0; id < 1000; id++)
            if (step == 0 || below(2)) set_key(id, f.now_ms + HOUR + below(600000));
        check(0);
        pass_time(some_moment(300 * SECOND));
        check(0);
    }
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int forecast_suite(engine_open_fn open)
{
    open_engine = open;
    const struct CMUnitTest tests[] = {
        TEST(test_spread), TEST(test_clusters), TEST(test_one_cluster), TEST(test_renewed),
    };
    return cmocka_run_group_tests_name("forecast", tests, NULL, NULL);
}
