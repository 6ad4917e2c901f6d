/* Snapshots of the rocks engine, whose keys are read through another engine: the file holds the moment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "engine/rocks/rocks.h"
#include "unit/saver_helpers.h"
#include "unit/rocks_helpers.h"

static char dir[] = "/tmp/mayfly-saver-XXXXXX";

static struct engine *open_rocks(void)
{
    struct rocks_options o = rocks_small(dir, DBS);
    o.write_buffer = 1 << 20;
    o.blob_size = 1000;
    return rocks_must_open(&o);
}

static void check_lively_save(u64 seed, bool commands)
{
    struct trial t;
    trial_open(&t, open_rocks(), seed);
    t.o.commands = commands;
    t.o.with_dead = seed % 2;
    fill_big(&t);
    tick(&t, 1);
    live(&t, 500);
    tick(&t, 1);
    save_begin(&t);
    while (!saver_step(t.saver, 1 + gen_below(&t.g, 30000))) live(&t, gen_below(&t.g, 10));
    assert_int_equal(saver_progress(t.saver).ahead, 0);
    save_end(&t);
    trial_close(&t);
    folder_remove(dir);
}

static void test_lively_rdb(void **state UNUSED)
{
    for (u64 seed = 1; seed <= 4; seed++) check_lively_save(seed, false);
}

static void test_lively_commands(void **state UNUSED)
{
    for (u64 seed = 1; seed <= 4; seed++) check_lively_save(seed, true);
}

static void test_save_now(void **state UNUSED)
{
    for (int commands = 0; commands < 2; commands++) {
        struct trial t;
        trial_open(&t, open_rocks(), 9);
        t.o.commands = commands;
        fill_big(&t);
        live(&t, 300);
        piece_sink_init(&t.sink, commands);
        assert_true(saver_save_now(&t.w.region.ks, &t.o, &t.sink.memory.sink));
        dataset_dump(t.w.region.eng, now_of(&t.w), &t.moment);
        check_saved(buf_bytes(&t.sink.memory.file), commands, &t.moment);
        trial_close(&t);
        folder_remove(dir);
    }
}

int main(void)
{
    CHECK(mkdtemp(dir));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lively_rdb),
        cmocka_unit_test(test_lively_commands),
        cmocka_unit_test(test_save_now),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
