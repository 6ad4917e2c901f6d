/* Where deadlines are filed: the rule, and a drain in random steps against a model that records where
 * everything was filed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/rand.h"
#include "engine/rocks/due/due_counts.h"

#define START 1700000000000LL
#define DAY (24 * 3600 * 1000LL)
#define KEYS 300

static u64 rng;
static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

/* From a millisecond to some months, each order of magnitude as likely. */
static i64 some_ttl(void) { return 1 + (i64)rand_below(&rng, 2ULL << below(34)); }

/* -- the rule -------------------------------------------------------------------------- */

static void assert_same(struct due_place a, struct due_place b)
{
    assert_true(a.due_ms == b.due_ms && a.level == b.level && a.bucket == b.bucket);
}

static i64 any_time(void) { return (i64)(rand_next(&rng) >> (1 + below(63))); }

static void test_rule(void **state)
{
    (void)state;
    rng = 1;
    for (u32 round = 0; round < 1000000; round++) {
        i64 drained_ms = below(8) ? START + (i64)rand_below(&rng, 400 * DAY) : any_time();
        i64 deadline_ms = below(8) ? drained_ms + some_ttl() : any_time();
        drained_ms = MIN(drained_ms, DUE_PLACE_LATEST);
        deadline_ms = MIN(deadline_ms, DUE_PLACE_LATEST);
        struct due_place p = due_place_of(deadline_ms, drained_ms);
        i64 width = 1LL << DUE_PLACE_SHIFT(p.level);
        assert_true(p.level < DUE_PLACE_LEVELS);
        assert_true(p.bucket == deadline_ms / width);
        assert_true(p.due_ms <= deadline_ms + 64);
        if (p.level == 0) assert_true(p.due_ms > deadline_ms);
        else assert_true(p.due_ms == (p.bucket - 1) * width && deadline_ms - drained_ms > width);
        assert_true((deadline_ms - drained_ms) / 130 <= width);

        bool overdue = deadline_ms >> 6 < drained_ms >> 6;
        if (overdue) assert_true(p.level == 0);
        else assert_true(p.due_ms > drained_ms);
        /* It is the same until it is visited. */
        u64 room = overdue ? DAY : (u64)(p.due_ms - drained_ms);
        assert_same(p, due_place_of(deadline_ms, drained_ms + (i64)rand_below(&rng, room)));
    }
}

/* Visited whenever it is due, a deadline goes down the levels and is met at most 64 ms late. */
static void test_life(void **state)
{
    (void)state;
    rng = 2;
    u64 visits = 0, lives = 100000;
    for (u64 n = 0; n < lives; n++) {
        i64 now_ms = START + (i64)rand_below(&rng, 400 * DAY), deadline_ms = now_ms + some_ttl();
        u32 level = DUE_PLACE_LEVELS;
        for (;;) {
            struct due_place p = due_place_of(deadline_ms, now_ms);
            assert_true(p.due_ms > now_ms && p.level < level);
            now_ms = p.due_ms;
            level = p.level;
            visits++;
            if (now_ms >= deadline_ms) break;
        }
        assert_true(now_ms - deadline_ms <= 64);
    }
    assert_true(visits < 5 * lives);
}

static void test_extremes(void **state)
{
    (void)state;
    static const i64 at[] = {INT64_MIN,        -1,       0, 1, 63, 64, START, DUE_PLACE_LATEST - 1,
                             DUE_PLACE_LATEST, INT64_MAX};
    for (u32 i = 0; i < ARRAY_LEN(at); i++) {
        for (u32 j = 0; j < ARRAY_LEN(at); j++) {
            i64 drained_ms = MIN(MAX(at[j], 0), DUE_PLACE_LATEST); /* what a drain can be at */
            struct due_place p = due_place_of(at[i], drained_ms);
            assert_true(p.level < DUE_PLACE_LEVELS && p.due_ms > 0 && p.bucket >= 0);
        }
    }
    assert_int_equal(due_place_of(-5, START).bucket, 0);
    assert_same(due_place_of(INT64_MAX, START), due_place_of(DUE_PLACE_LATEST, START));
}

static void test_position(void **state)
{
    (void)state;
    struct buf b = {0};
    struct due_position got, d = {.from_ms = START, .to_ms = START, .low_ms = START + 64};
    due_position_append(&b, &d);
    assert_int_equal(b.n, 24);
    assert_true(due_position_read(buf_bytes(&b), &got));
    assert_memory_equal(&got, &d, sizeof d);

    d.to_ms += 1000;
    d.last = (struct codec_due){1, START + 64, 0, 1, 7, BYTES_LIT("key")};
    buf_clear(&b);
    due_position_append(&b, &d);
    assert_true(due_position_read(buf_bytes(&b), &got));
    assert_true(got.from_ms == d.from_ms && got.to_ms == d.to_ms && got.low_ms == d.low_ms);
    assert_true(got.last.due_ms == d.last.due_ms && bytes_eq(got.last.key, d.last.key));
    for (size_t n = 0; n < 24 + 27; n++) assert_int_equal(due_position_read(bytes_of(b.p, n), &got), n == 24);
    put_u64(b.p + 8, START - 1); /* ends before it begins */
    assert_false(due_position_read(buf_bytes(&b), &got));
    buf_release(&b);
}

/* -- a drain --------------------------------------------------------------------------------- */

/* The model of a key: where its row lies, and how often it was visited. */
struct key {
    i64 deadline_ms; /* 0: none */
    struct due_place at;
    u64 index;
    u16 slot;
    char name[8];
    u32 visits;
};

struct world {
    struct due_position d;
    struct due_counts counts;
    struct key key[KEYS];
    char last[8];
    u64 files, visits, expired;
    i64 now_ms;
};

static bytes name(const struct key *k) { return bytes_str(k->name); }

static struct due_place place(struct world *w, const struct key *k)
{
    return due_place_now(&w->d, k->deadline_ms, k->index, k->slot, name(k));
}

static void unfile(struct world *w, struct key *k)
{
    if (!k->deadline_ms) return;
    assert_same(place(w, k), k->at); /* the place is computed, not stored */
    due_counts_add(&w->counts, k->index, k->at, k->deadline_ms, -1);
    k->deadline_ms = 0;
}

static void file(struct world *w, struct key *k, i64 deadline_ms)
{
    k->deadline_ms = deadline_ms;
    k->at = place(w, k);
    due_counts_add(&w->counts, k->index, k->at, deadline_ms, 1);
    w->files++;
}

static int order(const struct key *a, const struct key *b)
{
    struct due_position d = {.last = {1, b->at.due_ms, b->at.level, b->index, b->slot, name(b)}};
    return due_position_compare(&d, a->at, a->index, a->slot, name(a));
}

/* The first row of all that is due by limit_ms. */
static struct key *first(struct world *w, i64 limit_ms)
{
    struct key *best = NULL;
    for (u32 i = 0; i < KEYS; i++) {
        struct key *k = &w->key[i];
        if (k->deadline_ms && k->at.due_ms <= limit_ms && (!best || order(k, best) < 0)) best = k;
    }
    return best;
}

static void end_round(struct world *w)
{
    w->d.from_ms = w->d.to_ms;
    w->d.last = (struct codec_due){0};
}

/* Visits one row; false: there is none. */
static bool step(struct world *w)
{
    if (w->d.from_ms == w->d.to_ms) w->d.to_ms = MAX(w->d.to_ms, w->now_ms);
    struct key *k = first(w, MIN(w->now_ms, w->d.to_ms));
    if (!k) {
        if (w->now_ms >= w->d.to_ms) end_round(w);
        return false;
    }
    i64 deadline_ms = k->deadline_ms, due_ms = k->at.due_ms;
    unfile(w, k);
    if (due_ms > w->d.from_ms && due_position_compare(&w->d, k->at, k->index, k->slot, name(k)) > 0) {
        memcpy(w->last, k->name, sizeof w->last);
        w->d.last = (struct codec_due){1, due_ms, k->at.level, k->index, k->slot, bytes_str(w->last)};
    }
    k->visits++;
    w->visits++;
    if (deadline_ms <= w->now_ms) {
        w->expired++;
        return true;
    }
    file(w, k, deadline_ms);
    assert_true(k->at.due_ms > w->d.to_ms || deadline_ms <= w->d.to_ms);
    return true;
}

static void check(struct world *w)
{
    struct due_counts want;
    struct table_iter it = {0}, other = {0};
    u64 buckets = 0;
    due_counts_init(&want, 1);
    for (u32 i = 0; i < KEYS; i++) {
        struct key *k = &w->key[i];
        if (!k->deadline_ms) continue;
        assert_same(place(w, k), k->at);
        due_counts_add(&want, k->index, k->at, k->deadline_ms, 1);
    }
    for (struct due_bucket *b; (b = due_counts_next(&want, &it, 0)); buckets++) {
        bytes key = bytes_of(&b->name, sizeof b->name);
        struct due_bucket *got = table_find(&w->counts.buckets, key, table_hash(&w->counts.buckets, key));
        assert_non_null(got);
        assert_true(got->keys == b->keys && got->past_start == b->past_start);
    }
    while (due_counts_next(&w->counts, &other, 0)) buckets--;
    assert_int_equal(buckets, 0);
    due_counts_clear(&want);
}

static void forget(void *arg UNUSED, const struct due_bucket *b) { assert_true((i64)b->keys >= 0); }

static void random_drain(u64 seed, bool clock_steps)
{
    static struct world w;
    rng = seed;
    w = (struct world){.now_ms = START, .d = {.from_ms = START, .to_ms = START}};
    due_counts_init(&w.counts, seed);
    for (u32 i = 0; i < KEYS; i++) {
        w.key[i] = (struct key){.index = 1 + i % 2, .slot = (u16)(i % 5)};
        snprintf(w.key[i].name, sizeof w.key[i].name, "%u", i);
    }
    for (u32 n = 0; n < 30000; n++) {
        u32 what = below(1000);
        struct key *k = &w.key[below(KEYS)];
        if (what < 400) {
            unfile(&w, k);
            file(&w, k, w.now_ms + some_ttl());
        } else if (what < 500) unfile(&w, k);
        else if (what < 560) w.now_ms += below(200);
        else if (what < 570) w.now_ms += (i64)rand_below(&rng, 10 * 60000);
        else if (what < 572) w.now_ms += (i64)rand_below(&rng, 10 * DAY);
        else if (what < 574 && clock_steps) w.now_ms += (i64)rand_below(&rng, 2 * DAY) - DAY;
        else if (what < 990) step(&w);
        else {
            for (u32 turns = 0; turns < 2 || w.d.to_ms < w.now_ms; turns++)
                while (step(&w)) {}
            for (u32 i = 0; i < KEYS; i++)
                assert_true(!w.key[i].deadline_ms || w.key[i].deadline_ms + 64 > w.now_ms);
        }
        if (n % 100 == 0) check(&w);
        if (n % 1000 == 0) due_counts_settle(&w.counts, forget, NULL);
    }
    assert_true(w.expired > 300);
    assert_true(w.visits < 4 * w.files); /* filing again included */
    due_counts_clear(&w.counts);
}

static void test_drain(void **state)
{
    (void)state;
    for (u64 seed = 1; seed <= 8; seed++) random_drain(seed, false);
}

static void test_drain_clock_steps(void **state)
{
    (void)state;
    for (u64 seed = 11; seed <= 18; seed++) random_drain(seed, true);
}

/* -- as stored: the vectors of docs/format.md ------------------------------------------------- */

static void assert_hex(const struct buf *got, const char *want)
{
    struct buf hex = {0};
    for (size_t i = 0; i < got->n; i++) buf_printf(&hex, "%02x", (u8)got->p[i]);
    buf_append_char(&hex, '\0');
    assert_string_equal(hex.p, want);
    buf_release(&hex);
}

/* Three keys in a bucket of level 2: two share a cell. */
static void test_vectors_bucket(void **state)
{
    (void)state;
    static const i64 deadline_ms[] = {START, START + 1000, START + 60000};
    struct due_counts t;
    struct table_iter it = {0};
    struct buf b = {0};
    struct due_place p = {.level = 2, .bucket = START >> DUE_PLACE_SHIFT(2)};
    due_counts_init(&t, 1);
    for (u32 i = 0; i < ARRAY_LEN(deadline_ms); i++) due_counts_add(&t, 1, p, deadline_ms[i], 1);
    due_counts_append(&b, due_counts_next(&t, &it, 1));
    assert_hex(&b, "0000000000000003" "0000000000052648" "0000002000400000" "02be02" "0126");
    buf_release(&b);
    due_counts_clear(&t);
}

static void test_vectors_position(void **state)
{
    (void)state;
    struct due_position d = {.from_ms = START, .to_ms = START, .low_ms = START - 64};
    struct buf b = {0};
    due_position_append(&b, &d);
    assert_hex(&b, "0000018bcfe56800" "0000018bcfe56800" "0000018bcfe567c0");
    buf_clear(&b);
    d.to_ms += 1000;
    d.last = (struct codec_due){1, START + 64, 0, 1, 0x2f96, BYTES_LIT("foo")};
    due_position_append(&b, &d);
    assert_hex(&b, "0000018bcfe56800" "0000018bcfe56be8" "0000018bcfe567c0"
                   "0000000000000001" "0000018bcfe56840" "00" "0000000000000001" "2f96" "666f6f");
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule),
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_position),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_drain_clock_steps),
        cmocka_unit_test(test_vectors_bucket),
        cmocka_unit_test(test_vectors_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
