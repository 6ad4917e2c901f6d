/* The cache of elements, against a model that forgets nothing. */
#include "engine/rocks/elements.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/rand.h"

#define NAMES 4000

static bytes name_of(u32 i, char *room) { return bytes_of(room, (size_t)sprintf(room, "%08u%u", i % 7, i)); }

/* Long and short ones, and some too long to be kept. */
static bytes value_of(u32 i, u32 turn, struct buf *room)
{
    buf_clear(room);
    u32 n = (i * 31 + turn * 17) % 1300;
    for (u32 k = 0; k < n; k++) buf_append_char(room, (char)(i + turn + k));
    return buf_bytes(room);
}

/* What it knows is right, whatever was noted and forgotten, and it keeps to its budget. */
static void against_model(u64 budget, u32 least)
{
    static u32 turn[NAMES]; /* of the last value; 0: forgotten */
    struct elements *e = elements_new(budget, 7);
    struct buf room = {0};
    char name[32];
    u64 rng = 11;
    u32 found = 0;
    memset(turn, 0, sizeof turn);
    for (u32 step = 1; step <= 60000; step++) {
        u32 i = (u32)rand_below(&rng, NAMES);
        bytes key = name_of(i, name), value = {0};
        if (elements_find(e, key, &value)) {
            assert_true(turn[i] != 0);
            assert_true(bytes_eq(value, value_of(i, turn[i], &room)));
            found++;
        }
        bool forgets = rand_below(&rng, 5) == 0;
        turn[i] = forgets ? 0 : step;
        if (forgets) elements_forget(e, key);
        else elements_note(e, key, value_of(i, step, &room));
        assert_true(elements_memory(e) <= budget);
    }
    assert_true(found >= least);
    elements_free(e);
    buf_release(&room);
}

static void test_all_fits(void **state UNUSED) { against_model(64 << 20, 20000); }
static void test_small(void **state UNUSED) { against_model(100 << 10, 500); }

static void test_none(void **state UNUSED)
{
    bytes value;
    elements_note(NULL, BYTES_LIT("12345678a"), BYTES_LIT("v"));
    elements_forget(NULL, BYTES_LIT("12345678a"));
    assert_false(elements_find(NULL, BYTES_LIT("12345678a"), &value));
    assert_int_equal(elements_memory(NULL), 0);
    elements_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_fits), cmocka_unit_test(test_small), cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
