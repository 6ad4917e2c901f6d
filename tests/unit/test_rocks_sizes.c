/* How much disk space slots take, and where a region is halved. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "base/key_slot.h"
#include "base/rand.h"
#include "engine/rocks/rk.h"
#include "unit/rocks_helpers.h"

#define NOW 1700000000000
#define LAST (ROCKS_SLOTS - 1)

static char path[256];
static struct engine *e;
static u64 rng = 1;

static void open_engine(void)
{
    struct rocks_options o = rocks_small(path, 1);
    o.blob_size = 16 << 10;
    e = rocks_must_open(&o);
    e->ops->begin(e, NOW);
}

static int setup(void **state)
{
    (void)state;
    if (!folder_make(path, sizeof path, "sizes")) return -1;
    open_engine();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    e->ops->close(e);
    folder_remove(path);
    return 0;
}

static void commit(void)
{
    assert_true(e->ops->commit(e, e->applied + 1));
    e->ops->begin(e, NOW);
}

/* Opening replays the log into files. */
static void flush(void)
{
    commit();
    e->ops->close(e);
    open_engine();
}

/* A key of random slot, or of the slot that the tag has; its value can't be compressed. */
static void put(const char *tag, u32 i, size_t n)
{
    char key[64], value[32 << 10];
    struct key_ref ref;
    int key_n = snprintf(key, sizeof key, "%s%u", tag, i);
    for (size_t at = 0; at < n; at += 8) {
        u64 r = rand_next(&rng);
        memcpy(value + at, &r, 8);
    }
    bytes k = bytes_of(key, (size_t)key_n);
    e->ops->find(e, 0, k, &ref);
    e->ops->str.put(e, 0, k, &ref, bytes_of(value, n), 0);
    if (i % 16 == 0) commit();
}

static u64 size_of(u32 first, u32 last)
{
    return rocks_slots_bytes(e, (u16)first, (u16)last, e->ops->count(e, 0));
}

static void assert_near(u64 n, u64 wanted) /* within an eighth */
{
    assert_in_range(n, wanted - wanted / 8, wanted + wanted / 8);
}

static void test_sizes_are_those_of_files(void **state)
{
    (void)state;
    assert_int_equal(size_of(0, LAST), 0);
    assert_int_equal(rocks_half(e, 0), 0);
    for (u32 i = 0; i < 4000; i++) put("k", i, 2048);
    commit();
    u64 written = rocks_written(e);
    assert_in_range(written, 4000 * 2048, 4000 * 2300);
    flush();
    u64 all = size_of(0, LAST);
    assert_near(all, written);
    assert_near(size_of(0, LAST / 2), all / 2);
    assert_near(size_of(0, 1000) + size_of(1001, LAST), all);
    assert_near(rocks_half(e, 4000), ROCKS_SLOTS / 2);
}

static void test_a_heavy_slot_is_one_side(void **state)
{
    (void)state;
    u16 slot = key_slot(BYTES_LIT("{heavy}"));
    for (u32 i = 0; i < 1000; i++) put("k", i, 512);
    for (u32 i = 0; i < 4000; i++) put("{heavy}", i, 2048);
    flush();
    u16 half = rocks_half(e, 5000);
    assert_true(half == slot || half == slot + 1);
    assert_near(size_of(slot, slot), 4000 * 2100);
}

static void test_long_strings_are_shared_out_by_keys(void **state)
{
    (void)state;
    for (u32 i = 0; i < 400; i++) put("k", i, 32 << 10);
    flush();
    u64 all = size_of(0, LAST);
    assert_near(all, 400 * (32 << 10));
    assert_near(size_of(0, LAST / 2), all / 2);
    assert_near(rocks_half(e, 400), ROCKS_SLOTS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sizes_are_those_of_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_heavy_slot_is_one_side, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_strings_are_shared_out_by_keys, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
