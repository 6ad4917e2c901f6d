/* Snapshots for Redis: redis-check-rdb and redis-check-aof accept them, redis-server loads them, and what it
 * then saves of them is the data of the moment. Skipped where there is no Redis. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "persist/disk_file.h"
#include "unit/redis_helpers.h"
#include "unit/saver_helpers.h"

#define BASE "appendonlydir/appendonly.aof.1.base.aof"

static void note_done(void *arg, bool ok)
{
    bool *done = arg;
    *done = ok;
}

/* Saved while commands run, through a file written off the loop. */
static void save_file(struct trial *t, const char *name)
{
    char temp[64], path[64];
    uv_loop_t loop;
    struct disk_file file;
    bool done = false;
    path_of("temp", temp);
    path_of(name, path);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_true(disk_file_open(&file, &loop, temp, path));
    t->saver = saver_begin(&t->w.region.ks, &t->o, &file.sink);
    assert_non_null(t->saver);
    while (!saver_step(t->saver, 2000)) {
        live(t, gen_below(&t->g, 10));
        if (gen_below(&t->g, 10) == 0) uv_run(&loop, UV_RUN_NOWAIT);
    }
    assert_false(saver_failed(t->saver));
    disk_file_finish(&file, note_done, &done);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(done);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* What Redis made of it is what was there, but for the fields' deadlines it can't know. */
static void check_theirs(const struct buf *wanted)
{
    struct buf file = {0}, got = {0};
    struct engine *twin = memory_engine_new(DBS, 3);
    read_file("theirs.rdb", &file);
    load_rdb(buf_bytes(&file), twin, NULL);
    dataset_dump(twin, 0, &got);
    check_equal(wanted, &got);
    twin->ops->close(twin);
    buf_release(&file);
    buf_release(&got);
}

/* Data whose deadlines are far off, as many as there may be. */
static void trial_fill(struct trial *t, u64 seed)
{
    trial_open(t, memory_engine_new(DBS, seed), seed);
    fill_big(t);
    live(t, 3000);
    if (count_of(&t->w, 0) == 0) fill_big(t);
    far_off(t->w.region.eng, true);
}

/* The moment as Redis 7.0 keeps it: without deadlines of fields. */
static void note_moment(struct trial *t)
{
    struct world copy;
    struct memory_sink sink;
    struct engine *e = memory_engine_new(DBS, 5);
    memory_sink_init(&sink);
    save_to(&sink, t->w.region.eng, now_of(&t->w), RDB_TTLS_AUX, 0, 0);
    world_open_on(&copy, e);
    load_rdb(buf_bytes(&sink.file), e, NULL);
    far_off(e, false);
    dataset_dump(e, 0, &t->moment);
    world_close(&copy);
    buf_release(&sink.file);
}

static void test_rdb(void **state UNUSED)
{
    for (u64 seed = 1; seed <= 4; seed++) {
        struct trial t;
        trial_fill(&t, seed);
        t.o.compress = seed % 2;
        t.o.checksum = seed != 3;
        t.o.mayfly_version = "0.1";
        t.o.keep_use = true;
        t.w.region.ks.policy = seed % 2 ? EVICT_ALLKEYS_LRU : EVICT_ALLKEYS_LFU;
        note_moment(&t);
        save_file(&t, "ours.rdb");
        through_redis("ours.rdb", "theirs.rdb");
        check_theirs(&t.moment);
        trial_close(&t);
    }
}

static void test_commands(void **state UNUSED)
{
    for (u64 seed = 1; seed <= 3; seed++) {
        struct trial t;
        trial_fill(&t, seed);
        far_off(t.w.region.eng, false); /* HPEXPIREAT is no command of Redis 7.0 */
        t.o.commands = true;
        note_moment(&t);
        assert_int_equal(sh("rm -rf appendonlydir; mkdir appendonlydir"), 0);
        save_file(&t, BASE);
        write_file("appendonlydir/appendonly.aof.manifest",
                   BYTES_LIT("file appendonly.aof.1.base.aof seq 1 type b\n"));
        assert_int_equal(sh("redis-check-aof appendonlydir/appendonly.aof.manifest"), 0);
        redis_saves("--appendonly yes", "theirs.rdb");
        check_theirs(&t.moment);
        trial_close(&t);
    }
}

int main(void)
{
    if (!redis_open()) return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rdb),
        cmocka_unit_test(test_commands),
    };
    return redis_close(cmocka_run_group_tests(tests, NULL, NULL));
}
