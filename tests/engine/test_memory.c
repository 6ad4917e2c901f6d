/* The engine suite on the memory engine, and what only this engine promises. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/memory/memory.h"
#include "suite.h"

/* -0 is kept, and equal to 0: it neither moves nor is replaced by it. */
static void test_negative_zero(void **state)
{
    (void)state;
    struct engine *e = memory_engine_new(1, 1);
    for (i64 entries = 128; entries >= 0; entries -= 128) { /* packed, then tree */
        struct key_ref ref;
        bytes member;
        double score;
        struct zset_iter it;
        e->limits.zset_max_listpack_entries = entries;
        e->ops->begin(e, 1);
        e->ops->create(e, 0, BYTES_LIT("z"), TYPE_ZSET, &ref);
        assert_true(e->ops->zset.put(e, &ref, BYTES_LIT("a"), -0.0));
        assert_true(e->ops->zset.put(e, &ref, BYTES_LIT("b"), 0.0));
        assert_false(e->ops->zset.put(e, &ref, BYTES_LIT("a"), 0.0));
        assert_false(e->ops->zset.put(e, &ref, BYTES_LIT("b"), -0.0));
        e->ops->zset.iter(e, &ref, &(struct zset_seek){.by = ZSEEK_SCORE, .score = 0}, &it);
        assert_true(e->ops->zset.next(&it, &member, &score) && member.p[0] == 'a');
        assert_true(signbit(score));
        assert_true(e->ops->zset.next(&it, &member, &score) && member.p[0] == 'b');
        assert_false(signbit(score));
        assert_true(e->ops->zset.score(e, &ref, BYTES_LIT("a"), &score) && signbit(score));
        e->ops->drop(e, &ref);
    }
    e->ops->close(e);
}

/* The entry of a 16-byte key, a 32-byte value and a deadline is 64 bytes. */
static void test_entry_size(void **state)
{
    (void)state;
    struct engine *e = memory_engine_new(1, 1);
    struct key_ref ref;
    e->ops->begin(e, 1000);
    e->ops->find(e, 0, BYTES_LIT("0123456789abcdef"), &ref);
    e->ops->str.put(e, 0, ref.key, &ref, BYTES_LIT("0123456789abcdef0123456789abcdef"), 5000);
    assert_in_range(e->ops->usage(e, &ref, 0), 64, 80);
    e->ops->close(e);
}

/* -- snapshots ---------------------------------------------------------------------------- */

static u32 kept; /* by the snapshot in progress */

static void count_kept(void *arg, struct key_ref *ref)
{
    (void)arg, (void)ref;
    kept++;
}

static struct key_ref make_list(struct engine *e, bytes key, u32 n)
{
    struct key_ref ref;
    e->ops->create(e, 0, key, TYPE_LIST, &ref);
    while (n--) e->ops->seq.push(e, &ref, false, BYTES_LIT("element"));
    return ref;
}

static bool heavy(struct engine *e, bytes key) { return e->ops->snapshot.heavy(e, 0, key); }

/* Only what is not saved yet, and would take long, is heavy. */
static void test_heavy(void **state)
{
    (void)state;
    struct engine *e = memory_engine_new(1, 1), *of;
    struct key_ref ref;
    char *blob = calloc(1, 2 << 20);
    e->ops->begin(e, 1);
    make_list(e, BYTES_LIT("long"), 10000);
    make_list(e, BYTES_LIT("short"), 100);
    e->ops->find(e, 0, BYTES_LIT("blob"), &ref);
    e->ops->str.put(e, 0, BYTES_LIT("blob"), &ref, bytes_of(blob, 2 << 20), 0);
    e->ops->create(e, 0, BYTES_LIT("wide"), TYPE_HASH, &ref); /* few fields, much in them */
    e->ops->map.put(e, &ref, BYTES_LIT("f"), bytes_of(blob, 2 << 20), false);
    assert_false(heavy(e, BYTES_LIT("long")));
    assert_true(e->ops->snapshot.begin(e, count_kept, NULL));
    assert_true(heavy(e, BYTES_LIT("long")));
    assert_true(heavy(e, BYTES_LIT("blob")));
    assert_true(heavy(e, BYTES_LIT("wide")));
    assert_false(heavy(e, BYTES_LIT("short")));
    assert_false(heavy(e, BYTES_LIT("absent")));
    make_list(e, BYTES_LIT("later"), 10000);
    assert_false(heavy(e, BYTES_LIT("later")));
    for (u32 n = 0; n < 3; n++) { /* what is waited for comes first */
        assert_true(e->ops->snapshot.next(e, &ref, &of));
        assert_false(bytes_eq(ref.key, BYTES_LIT("short")));
        assert_true(heavy(e, ref.key)); /* still, while it is in hand */
    }
    while (e->ops->snapshot.next(e, &ref, &of) && ref.type == TYPE_NONE) {}
    assert_true(bytes_eq(ref.key, BYTES_LIT("short")));
    assert_false(heavy(e, BYTES_LIT("long")));
    assert_false(e->ops->snapshot.next(e, &ref, &of));
    e->ops->snapshot.end(e);
    assert_false(heavy(e, BYTES_LIT("long")));
    e->ops->close(e);
    free(blob);
}

/* A big value that goes is not offered, but held back, and handed out before anything else. */
static void test_held_back(void **state)
{
    (void)state;
    struct engine *e = memory_engine_new(1, 1), *of;
    struct key_ref ref;
    u32 keys = 0;
    e->ops->begin(e, 1);
    make_list(e, BYTES_LIT("dropped"), 10000);
    make_list(e, BYTES_LIT("overwritten"), 10000);
    make_list(e, BYTES_LIT("small"), 10);
    make_list(e, BYTES_LIT("stays"), 10);
    kept = 0;
    assert_true(e->ops->snapshot.begin(e, count_kept, NULL));
    e->ops->find(e, 0, BYTES_LIT("dropped"), &ref);
    e->ops->drop(e, &ref);
    e->ops->find(e, 0, BYTES_LIT("overwritten"), &ref);
    e->ops->str.put(e, 0, BYTES_LIT("overwritten"), &ref, BYTES_LIT("x"), 0);
    assert_int_equal(kept, 0);
    assert_in_range(e->held, 2 * 10000 * 7, 2 * 10000 * 10);
    assert_int_equal(e->ops->reclaim(e, 1000), 0); /* nothing that it could do */
    e->ops->find(e, 0, BYTES_LIT("small"), &ref);
    e->ops->drop(e, &ref);
    assert_int_equal(kept, 1);
    while (e->ops->snapshot.next(e, &ref, &of)) {
        if (ref.type == TYPE_NONE) continue;
        assert_int_equal(e->ops->size(e, &ref), ++keys <= 2 ? 10000 : 10);
    }
    assert_int_equal(keys, 3);
    assert_int_equal(e->held, 0);
    e->ops->snapshot.end(e);
    e->ops->close(e);
}

/* A flushed database goes when it has come out. */
static void test_flushed_is_held(void **state)
{
    (void)state;
    struct engine *e = memory_engine_new(2, 1), *of;
    struct key_ref ref;
    u32 keys = 0;
    e->ops->begin(e, 1);
    make_list(e, BYTES_LIT("a"), 10000);
    make_list(e, BYTES_LIT("b"), 10000);
    kept = 0;
    assert_true(e->ops->snapshot.begin(e, count_kept, NULL));
    assert_false(e->ops->snapshot.begin(e, count_kept, NULL)); /* one at a time */
    e->ops->flush(e, 0);
    assert_int_equal(e->ops->count(e, 0), 0);
    assert_true(e->held > 2 * 10000 * 7);
    assert_int_equal(e->ops->reclaim(e, 1000), 0);
    while (e->ops->snapshot.next(e, &ref, &of)) keys += e->ops->size(e, &ref) == 10000;
    assert_int_equal(keys, 2);
    assert_int_equal(kept, 0);
    assert_int_equal(e->held, 0);
    assert_int_equal(e->reclaimed, 0);
    while (e->ops->reclaim(e, 10)) {}
    assert_true(e->reclaimed > 0);
    e->ops->snapshot.end(e);
    e->ops->close(e);
}

static void count_offer(void *arg, struct key_ref *ref)
{
    assert_int_equal(ref->type, TYPE_HASH);
    ++*(u32 *)arg;
}

/* Dead fields of a huge hash stay until it is saved. */
static void test_huge_hash_is_reaped_later(void **state)
{
    (void)state;
    struct engine *e = memory_engine_new(1, 1), *of;
    struct key_ref ref;
    char field[16];
    u32 offers = 0;
    e->ops->begin(e, 1);
    e->ops->create(e, 0, BYTES_LIT("h"), TYPE_HASH, &ref);
    for (int i = 0; i < 10000; i++)
        e->ops->map.put(e, &ref, bytes_of(field, (size_t)sprintf(field, "%d", i)), BYTES_LIT("v"), false);
    e->ops->map.set_field_deadline(e, &ref, BYTES_LIT("7"), 1000);
    kept = 0;
    assert_true(e->ops->snapshot.begin(e, count_kept, NULL));
    for (i64 now_ms = 1100; now_ms < 2000; now_ms += 50) {
        e->ops->begin(e, now_ms);
        while (e->ops->due(e, now_ms, 100, count_offer, &offers)) {}
        assert_int_equal(offers, 0);
        assert_int_equal(e->ops->size(e, &ref), 9999);
        assert_true(e->ops->next_due(e) < now_ms + 300);
    }
    assert_true(e->ops->snapshot.next(e, &ref, &of));
    assert_false(e->ops->snapshot.next(e, &ref, &of));
    e->ops->begin(e, 2200);
    while (e->ops->due(e, 2200, 100, count_offer, &offers)) {}
    assert_int_equal(offers, 1);
    assert_int_equal(kept, 0);
    e->ops->snapshot.end(e);
    e->ops->close(e);
}

#define WAITED 40 /* more than are remembered */

/* What is waited for may change all the same: it comes out once. */
static void test_waited_for(void **state)
{
    (void)state;
    struct engine *e = memory_engine_new(2, 1), *of;
    struct key_ref ref;
    char name[16];
    bytes key;
    u32 given = 0;
    e->ops->begin(e, 1);
    for (int i = 0; i < WAITED; i++) make_list(e, bytes_of(name, (size_t)sprintf(name, "%d", i)), 5000);
    kept = 0;
    assert_true(e->ops->snapshot.begin(e, count_kept, NULL));
    for (int i = 0; i < 2 * WAITED; i++)
        assert_true(heavy(e, bytes_of(name, (size_t)sprintf(name, "%d", i % WAITED))));
    for (int i = 0; i < WAITED; i += 2) {
        key = bytes_of(name, (size_t)sprintf(name, "%d", i));
        e->ops->find(e, 0, key, &ref);
        if (i % 4) e->ops->drop(e, &ref);
        else e->ops->seq.push(e, &ref, false, key);
    }
    assert_int_equal(kept, WAITED / 4);
    assert_true(e->ops->snapshot.next(e, &ref, &of));
    given++;
    e->ops->swap(e, 0, 1);
    e->ops->flush(e, 1);
    while (e->ops->snapshot.next(e, &ref, &of)) {
        if (ref.type == TYPE_NONE) continue;
        given++;
        assert_int_equal(ref.db, 0);
        assert_int_equal(e->ops->size(e, &ref), 5000);
        e->ops->reclaim(e, 10);
    }
    assert_int_equal(given + kept, WAITED);
    assert_int_equal(e->held, 0);
    e->ops->snapshot.end(e);
    e->ops->close(e);
}

/* Once every key was saved ahead, the table is not walked for nothing. */
static void test_all_kept(void **state)
{
    (void)state;
    struct engine *e = memory_engine_new(1, 1), *of;
    struct key_ref ref;
    char name[16];
    e->ops->begin(e, 1);
    for (int i = 0; i < 1000; i++) make_list(e, bytes_of(name, (size_t)sprintf(name, "%d", i)), 1);
    kept = 0;
    assert_true(e->ops->snapshot.begin(e, count_kept, NULL));
    for (int i = 0; i < 1000; i++) {
        e->ops->find(e, 0, bytes_of(name, (size_t)sprintf(name, "%d", i)), &ref);
        e->ops->set_deadline(e, &ref, 5000);
    }
    assert_int_equal(kept, 1000);
    assert_false(e->ops->snapshot.next(e, &ref, &of));
    e->ops->snapshot.end(e);
    assert_true(e->ops->snapshot.begin(e, count_kept, NULL)); /* nothing was left to be done */
    e->ops->close(e);
}

/* A snapshot's walk over a stream continues across transactions. */
static void test_walk_across_transactions(void **state)
{
    (void)state;
    struct engine *e = memory_engine_new(1, 1);
    struct key_ref ref;
    struct rows_iter it;
    bytes row, value;
    char name[32];
    e->ops->begin(e, 1);
    e->ops->create(e, 0, BYTES_LIT("s"), TYPE_STREAM, &ref);
    for (int i = 0; i < 2000; i++) {
        bytes b = bytes_of(name, (size_t)sprintf(name, "entry:%08d", i));
        e->ops->rows.put(e, &ref, b, b);
    }
    e->ops->rows.iter(e, &ref, (bytes){0}, false, &it);
    it.passing = true;
    for (int i = 0; i < 2000; i++) {
        bytes want = bytes_of(name, (size_t)sprintf(name, "entry:%08d", i));
        assert_true(e->ops->rows.next(&it, &row, &value));
        assert_true(bytes_eq(row, want) && bytes_eq(value, want));
        if (i % 3) continue;
        for (int more = 0; more < 40; more++) /* others have text handed out, too */
            assert_true(e->ops->rows.get(e, &ref, BYTES_LIT("entry:00001000"), &value));
        assert_true(e->ops->commit(e, 0));
        e->ops->begin(e, 2);
    }
    assert_false(e->ops->rows.next(&it, &row, &value));
    e->ops->close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_negative_zero),
        cmocka_unit_test(test_entry_size),
        cmocka_unit_test(test_heavy),
        cmocka_unit_test(test_held_back),
        cmocka_unit_test(test_flushed_is_held),
        cmocka_unit_test(test_waited_for),
        cmocka_unit_test(test_huge_hash_is_reaped_later),
        cmocka_unit_test(test_all_kept),
        cmocka_unit_test(test_walk_across_transactions),
    };
    int failed = engine_suite(memory_engine_new);
    return failed + cmocka_run_group_tests_name("memory engine", tests, NULL, NULL);
}
