/* Files and a real redis-server: it loads what we wrote, redis-check-rdb accepts it, and what it then
 * saves of it, in its own encodings, we load to the same data. Skipped where there is no Redis. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "exec/dataset.h"
#include "exec/generate.h"
#include "exec/harness.h"
#include "unit/rdb_helpers.h"
#include "unit/redis_helpers.h"

static void check_through_redis(struct engine *e, i64 now_ms, size_t compress_max, struct rdb_key_use use)
{
    struct memory_sink sink;
    struct rdb_out out;
    struct buf before = {0}, after = {0}, file = {0};
    struct loading l = {0};
    struct rdb_policy policy = loading_policy(&l);
    struct engine *twin = memory_engine_new(e->databases, 3);
    memory_sink_init(&sink);
    rdb_out_init(&out, &sink.sink, compress_max);
    struct writing w = {.job = {&out, e, now_ms, RDB_TTLS_AUX}, .budget = 1000, .use = use};
    write_engine(&w);
    assert_false(out.failed);
    write_file("ours.rdb", buf_bytes(&sink.file));
    through_redis("ours.rdb", "theirs.rdb");
    read_file("theirs.rdb", &file);
    err result = load_file(&l, twin, now_ms, buf_bytes(&file), &policy, 2);
    if (result != OK) print_error("%s\n", l.loader.error);
    assert_int_equal(result, OK);
    e->ops->begin(e, now_ms);
    far_off(e, false); /* what Redis 7.0 cannot know */
    dataset_dump(e, now_ms, &before);
    dataset_dump(twin, now_ms, &after);
    if (!bytes_eq(buf_bytes(&before), buf_bytes(&after))) {
        write_file("before", buf_bytes(&before));
        write_file("after", buf_bytes(&after));
        print_error("differences: diff %s/before %s/after\n", dir, dir);
        fail();
    }
    loading_release(&l);
    twin->ops->close(twin);
    rdb_out_release(&out);
    buf_release(&sink.file);
    buf_release(&before);
    buf_release(&after);
    buf_release(&file);
}

static void test_random_datasets(void **state UNUSED)
{
    static const struct { size_t compress_max; struct rdb_key_use use; } how[] = {
        {SIZE_MAX, {-1, -1}}, {0, {77, -1}}, {500, {-1, 9}}};
    for (u64 seed = 0; seed < ARRAY_LEN(how); seed++) {
        struct world w;
        world_open(&w);
        struct gen g = {.rng = seed + 100, .databases = DBS};
        for (int i = 0; i < 8000; i++) {
            if (i % 50 == 0) at(&w, i);
            g.now_ms = now_of(&w);
            gen_next(&g);
            run_argv(&w, g.argc, g.argv);
        }
        far_off(w.region.eng, true);
        check_through_redis(w.region.eng, now_of(&w), how[seed].compress_max, how[seed].use);
        gen_release(&g);
        world_close(&w);
    }
}

static void test_sizes(void **state UNUSED)
{
    static const u64 counts[] = {1, 127, 128, 129, 512, 513, 20000};
    static const size_t sizes[] = {1, 8, 64, 65, 5000};
    struct world w;
    world_open(&w);
    char *text = mem_zalloc(300000);
    memset(text, 'x', 300000);
    for (size_t c = 0; c < ARRAY_LEN(counts); c++) {
        for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
            if (counts[c] * sizes[s] > 3000000) continue;
            for (u64 i = 0; i < counts[c]; i++) {
                char key[64], digits[NUM_I64_LEN];
                int n = snprintf(key, sizeof key, "%llu x %zu", (unsigned long long)counts[c], sizes[s]);
                bytes number = bytes_of(digits, num_print_i64(digits, (i64)(i * 7919)));
                memcpy(text, number.p, number.n);
                bytes item = bytes_of(text, sizes[s] == 1 ? number.n : MAX(sizes[s], number.n));
                static const char *const verbs[] = {"RPUSH", "SADD", "HSET", "ZADD"};
                for (int v = 0; v < 4; v++) {
                    key[n] = verbs[v][0];
                    bytes three[] = {bytes_str(verbs[v]), bytes_of(key, (size_t)n + 1), item, item};
                    if (v == 3) three[2] = number;
                    run_argv(&w, v < 2 ? 3 : 4, three);
                    assert_true(w.out.p[0] == ':');
                }
            }
        }
    }
    bytes longest[] = {BYTES_LIT("RPUSH"),   BYTES_LIT("long"),     bytes_of(text, 300000), BYTES_LIT("7"),
                       bytes_of(text, 9000), bytes_of(text, 70000), BYTES_LIT("")};
    run_argv(&w, ARRAY_LEN(longest), longest);
    bytes string[] = {BYTES_LIT("SET"), BYTES_LIT("string"), bytes_of(text, 300000)};
    run_argv(&w, 3, string);
    check_through_redis(w.region.eng, now_of(&w), SIZE_MAX, (struct rdb_key_use){-1, -1});
    check_through_redis(w.region.eng, now_of(&w), 0, (struct rdb_key_use){-1, -1});
    mem_free(text);
    world_close(&w);
}

int main(void)
{
    if (!redis_open()) return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_datasets),
        cmocka_unit_test(test_sizes),
    };
    return redis_close(cmocka_run_group_tests(tests, NULL, NULL));
}
