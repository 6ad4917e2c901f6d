/* RDB as the way into the rocks engine and out of it: what the memory engine saved it loads, in many
 * transactions, and what it saves the memory engine loads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "engine/rocks/rocks.h"
#include "exec/dataset.h"
#include "exec/generate.h"
#include "exec/harness.h"
#include "unit/rdb_helpers.h"
#include "unit/rocks_helpers.h"

static char dir[] = "/tmp/mayfly-rdb-XXXXXX";

static struct engine *open_rocks(void)
{
    struct rocks_options o = rocks_small(dir, DBS);
    o.write_buffer = 1 << 20;
    o.blob_size = 1000;
    return rocks_must_open(&o);
}

static void close_rocks(struct engine *e)
{
    e->ops->close(e);
    folder_remove(dir);
}

static u64 chunks;

static void commit_chunk(void *arg)
{
    struct engine *e = arg;
    assert_true(e->ops->commit(e, 1));
    e->ops->begin(e, T0);
    chunks++;
}

/* memory → file → rocks → file → memory */
static void check_through_rocks(struct engine *e, enum rdb_field_ttls ttls, u64 rng)
{
    struct memory_sink first, second;
    struct loading in = {0}, out = {0};
    struct rdb_policy policy = {.checksum = true, .commit_chunk = commit_chunk};
    struct buf before = {0}, between = {0}, after = {0};
    struct engine *rocks = open_rocks(), *twin = memory_engine_new(DBS, 9);
    dataset_dump(e, T0, &before);
    memory_sink_init(&first);
    memory_sink_init(&second);
    save_to(&first, e, T0, ttls, 1000, 1000);
    policy.arg = rocks;
    assert_int_equal(load_file(&in, rocks, T0, buf_bytes(&first.file), &policy, rng), OK);
    assert_true(rocks->ops->commit(rocks, 1));
    dataset_dump(rocks, T0, &between);
    assert_int_equal(before.n, between.n);
    assert_memory_equal(before.p, between.p, before.n);

    save_to(&second, rocks, T0, ttls, 1000, 1000);
    assert_true(rocks->ops->commit(rocks, 2));
    policy.arg = twin;
    assert_int_equal(load_file(&out, twin, T0, buf_bytes(&second.file), &policy, rng), OK);
    dataset_dump(twin, T0, &after);
    assert_int_equal(before.n, after.n);
    assert_memory_equal(before.p, after.p, before.n);
    loading_release(&in);
    loading_release(&out);
    close_rocks(rocks);
    twin->ops->close(twin);
    buf_release(&first.file);
    buf_release(&second.file);
    buf_release(&before);
    buf_release(&between);
    buf_release(&after);
}

static void test_random_datasets(void **state UNUSED)
{
    for (u64 seed = 1; seed <= 3; seed++) {
        struct world w;
        struct gen g = {.rng = seed, .databases = DBS, .now_ms = T0};
        world_open(&w);
        for (int i = 0; i < 8000; i++) {
            gen_next(&g);
            run_argv(&w, g.argc, g.argv);
        }
        check_through_rocks(w.region.eng, seed & 1 ? RDB_TTLS_NATIVE : RDB_TTLS_AUX, seed);
        gen_release(&g);
        world_close(&w);
    }
}

/* A value of several megabytes comes in several transactions. */
static void test_large_values(void **state UNUSED)
{
    static const char *const verbs[] = {"RPUSH", "SADD", "HSET", "ZADD"};
    struct world w;
    world_open(&w);
    for (int i = 0; i < 30000; i++) {
        for (int v = 0; v < 4; v++) {
            char text[64];
            int n = snprintf(text, sizeof text, "%d: an element of some forty bytes or so", i);
            bytes item = bytes_of(text, (size_t)n), number = bytes_of(text, strcspn(text, ":"));
            bytes argv[] = {bytes_str(verbs[v]), bytes_str(verbs[v]), v == 3 ? number : item, item};
            run_argv(&w, v < 2 ? 3 : 4, argv);
        }
    }
    chunks = 0;
    check_through_rocks(w.region.eng, RDB_TTLS_AUX, 0);
    assert_true(chunks >= 4);
    world_close(&w);
}

int main(void)
{
    CHECK(mkdtemp(dir));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_datasets),
        cmocka_unit_test(test_large_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
