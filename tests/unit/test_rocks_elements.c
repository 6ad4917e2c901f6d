/* The cache of elements, against a model that forgets nothing. */
#include "engine/rocks/type/elements.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/rand.h"
#include "engine/rocks/codec.h"

#define NAMES 4000

static bytes name_of(u32 i, char *room) { return bytes_of(room, (size_t)sprintf(room, "%08u%u", i % 7, i)); }

/* Long and short ones, and some too long to be kept. */
static bytes value_of(u32 i, u32 turn, u32 longest, struct buf *room)
{
    buf_clear(room);
    u32 n = (i * 31 + turn * 17) % longest;
    for (u32 k = 0; k < n; k++) buf_append_char(room, (char)(i + turn + k));
    return buf_bytes(room);
}

/* What it knows is right, whatever was noted and forgotten, and it keeps to its budget. */
static void against_model(u64 budget, u32 longest, u32 least, u32 least_sure)
{
    static u32 turn[NAMES]; /* of the last value; 0: forgotten */
    struct cache_budget b;
    cache_budget_init(&b, budget);
    struct elements *e = elements_new(&b, 7);
    struct buf room = {0};
    char name[32];
    u64 rng = 11;
    u32 found = 0, sure = 0;
    elements_begin(e, 0);
    memset(turn, 0, sizeof turn);
    for (u32 step = 1; step <= 60000; step++) {
        u32 i = (u32)rand_below(&rng, NAMES);
        bytes key = name_of(i, name), value = {0};
        if (elements_find(e, key, &value)) {
            assert_true(turn[i] != 0);
            assert_true(bytes_eq(value, value_of(i, turn[i], longest, &room)));
            found++;
        } else if (elements_whole(e, get_u64(key.p))) {
            assert_int_equal(turn[i], 0); /* every element is in the cache */
            sure++;
        }
        bool forgets = rand_below(&rng, 5) == 0;
        turn[i] = forgets ? 0 : step;
        if (forgets) elements_forget(e, key);
        else elements_remember(e, key, value_of(i, step, longest, &room));
        assert_true(elements_memory(e) <= budget);
    }
    assert_true(found >= least);
    assert_true(sure >= least_sure);
    elements_free(e);
    buf_release(&room);
}

static void test_all_fits(void **state UNUSED) { against_model(64 << 20, 900, 20000, 10000); }
static void test_long_ones(void **state UNUSED) { against_model(64 << 20, 1300, 20000, 0); }
static void test_small(void **state UNUSED) { against_model(100 << 10, 1300, 500, 0); }

static bytes made(char room[9], u64 version)
{
    put_u64(room, version);
    room[8] = 'f';
    return bytes_of(room, 9);
}

/* What one collection loses says nothing of younger ones. */
static void test_whole(void **state UNUSED)
{
    static const char text[1100];
    struct cache_budget b;
    cache_budget_init(&b, 1 << 20);
    struct elements *e = elements_new(&b, 7);
    char room[9];
    assert_false(elements_whole(e, 50)); /* before it begins */
    elements_begin(e, 10);
    assert_false(elements_whole(e, 10));
    assert_true(elements_whole(e, 11));
    elements_remember(e, made(room, 20), bytes_of(text, sizeof text));
    assert_false(elements_whole(e, 20));
    assert_true(elements_whole(e, 21));
    elements_remember(e, made(room, 15), bytes_of(text, sizeof text));
    assert_true(elements_whole(e, 21));
    for (u64 v = 100; v < 3000; v++) elements_remember(e, made(room, v), bytes_of(text, 1000));
    assert_false(elements_whole(e, 1000)); /* it made room */
    assert_true(elements_whole(e, 5000));
    elements_free(e);
}

/* A collection of which not all is remembered; many of them cost those their name that are older. */
static void test_left_out(void **state UNUSED)
{
    struct cache_budget b;
    cache_budget_init(&b, 1 << 20);
    struct elements *e = elements_new(&b, 7);
    elements_begin(e, 10);
    elements_leave_out(e, 5);
    elements_leave_out(e, 30);
    elements_leave_out(e, 30);
    assert_false(elements_whole(e, 30));
    assert_true(elements_whole(e, 29) && elements_whole(e, 31));
    for (u64 v = 40; v < 60; v++) elements_leave_out(e, v);
    for (u64 v = 40; v < 60; v++) assert_false(elements_whole(e, v));
    assert_false(elements_whole(e, 29));
    assert_true(elements_whole(e, 60));
    elements_leave_out(NULL, 1);
    elements_free(e);
}

static void test_none(void **state UNUSED)
{
    bytes value;
    elements_remember(NULL, BYTES_LIT("12345678a"), BYTES_LIT("v"));
    elements_forget(NULL, BYTES_LIT("12345678a"));
    assert_false(elements_find(NULL, BYTES_LIT("12345678a"), &value));
    assert_int_equal(elements_memory(NULL), 0);
    elements_begin(NULL, 0);
    assert_false(elements_whole(NULL, 1));
    elements_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_fits), cmocka_unit_test(test_small), cmocka_unit_test(test_long_ones),
        cmocka_unit_test(test_whole), cmocka_unit_test(test_left_out), cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
