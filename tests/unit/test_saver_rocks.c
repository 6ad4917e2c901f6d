/* Snapshots of the rocks engine, whose keys are read through another engine: the file holds the moment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ftw.h>
#include <unistd.h>

#include "engine/rocks/rocks.h"
#include "unit/saver_helpers.h"

static char dir[] = "/tmp/mayfly-saver-XXXXXX";
static const struct log quiet = {.level = LOG_NOTHING};

static int remove_one(const char *path, const struct stat *st UNUSED, int kind UNUSED, struct FTW *at_ UNUSED)
{
    return remove(path);
}

static struct engine *open_rocks(void)
{
    struct buf why = {0};
    struct rocks_options o = {
        .dir = dir, .log = &quiet, .databases = DBS, .seed = 3, .background_threads = 2, .block_cache = 8 << 20,
        .row_cache = 1 << 20, .write_buffer = 1 << 20, .blob_size = 1000, .sync = ROCKS_SYNC_NO,
    };
    struct engine *e = rocks_engine_open(&o, &why);
    if (!e) print_error("%.*s\n", (int)why.n, why.p);
    assert_non_null(e);
    buf_release(&why);
    return e;
}

static void check_lively_save(u64 seed, bool commands)
{
    struct trial t;
    trial_open(&t, open_rocks(), seed);
    t.o.commands = commands;
    t.o.keep_dead = seed % 2;
    fill_big(&t);
    tick(&t, 1);
    live(&t, 500);
    tick(&t, 1);
    save_begin(&t);
    while (!saver_step(t.saver, 1 + gen_below(&t.g, 30000))) live(&t, gen_below(&t.g, 10));
    assert_int_equal(saver_progress(t.saver).ahead, 0);
    save_end(&t);
    trial_close(&t);
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
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
        nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
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
