/* RDB files: what is written is read back, in whatever slices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "exec/dataset.h"
#include "exec/generate.h"
#include "exec/harness.h"
#include "unit/rdb_helpers.h"

#define NEVER ((i64)1 << 42) /* a deadline beyond all tests */

/* -- round trips ------------------------------------------------------------------------------- */

struct how {
    enum rdb_field_ttls ttls;
    u64 budget;
    size_t compress_max;
    u64 rng;
};

/* A file has the data that were dumped before. */
static void check_file(const struct memory_sink *sink, const struct buf *before, u32 databases, i64 now_ms,
                       u64 rng)
{
    struct loading l = {0};
    struct buf after = {0};
    struct rdb_policy policy = loading_policy(&l);
    struct engine *twin = memory_engine_new(databases, 99);
    err result = load_file(&l, twin, now_ms, buf_bytes(&sink->file), &policy, rng);
    if (result != OK) print_error("%s\n", l.loader.error);
    assert_int_equal(result, OK);
    dataset_dump(twin, now_ms, &after);
    check_equal(before, &after);
    loading_release(&l);
    twin->ops->close(twin);
    buf_release(&after);
}

/* The engine's data survive being written and read in this manner. */
static void check_round_trip(struct engine *e, i64 now_ms, struct how how)
{
    struct memory_sink sink;
    struct buf before = {0};
    dataset_dump(e, now_ms, &before);
    memory_sink_init(&sink);
    save_to(&sink, e, now_ms, how.ttls, how.budget, how.compress_max);
    assert_true(sink.largest <= 2 * RDB_PIECE);
    check_file(&sink, &before, e->databases, now_ms, how.rng);
    buf_release(&sink.file);
    buf_release(&before);
}

static void check_round_trips(struct engine *e, i64 now_ms)
{
    static const struct how ways[] = {
        {RDB_TTLS_AUX, 0, SIZE_MAX, 0},   {RDB_TTLS_NATIVE, 0, SIZE_MAX, 0}, {RDB_TTLS_AUX, 1, 0, 2},
        {RDB_TTLS_NATIVE, 1, 0, 3},       {RDB_TTLS_AUX, 500, 1000, 4},      {RDB_TTLS_NATIVE, 500, 1000, 5},
        {RDB_TTLS_AUX, 100000, 70000, 7},
    };
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) check_round_trip(e, now_ms, ways[i]);
}

static void test_random_datasets(void **state UNUSED)
{
    for (u64 seed = 1; seed <= 8; seed++) {
        struct world w;
        world_open(&w);
        struct gen g = {.rng = seed, .databases = DBS};
        for (int i = 0; i < 6000; i++) {
            if (i % 50 == 0) at(&w, i);
            g.now_ms = now_of(&w);
            gen_next(&g);
            run_argv(&w, g.argc, g.argv);
            if (i % 2000 == 1999) check_round_trips(w.region.eng, now_of(&w));
        }
        gen_release(&g);
        world_close(&w);
    }
}

/* -- every threshold --------------------------------------------------------------------------- */

static void test_thresholds(void **state UNUSED)
{
    static const u64 counts[] = {1, 2, 127, 128, 129, 511, 512, 513, 5000};
    static const size_t sizes[] = {0, 8, 20, 64, 65, 300};
    static const enum value_type types[] = {TYPE_LIST, TYPE_SET, TYPE_ZSET, TYPE_HASH};
    struct engine *e = memory_engine_new(4, 1);
    e->ops->begin(e, T0);
    for (u32 t = 0; t < ARRAY_LEN(types); t++) {
        for (size_t c = 0; c < ARRAY_LEN(counts); c++) {
            for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
                char key[32];
                int n = snprintf(key, sizeof key, "%llu x %zu", (unsigned long long)counts[c], sizes[s]);
                fill(e, t, types[t], bytes_of(key, (size_t)n), counts[c], sizes[s]);
            }
        }
    }
    check_round_trips(e, T0);
    e->ops->close(e);
}

static void test_strings(void **state UNUSED)
{
    static const i64 numbers[] = {0, 1, -1, 127, 128, -128, -129, 32767, 32768, -32768, -32769, INT32_MAX,
                                  (i64)INT32_MAX + 1, INT32_MIN, (i64)INT32_MIN - 1, INT64_MAX, INT64_MIN};
    struct engine *e = memory_engine_new(1, 1);
    struct buf space = {0};
    char key[32], digits[NUM_I64_LEN];
    e->ops->begin(e, T0);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        snprintf(key, sizeof key, "number %zu", i);
        put_string(e, key, bytes_of(digits, num_print_i64(digits, numbers[i])), 0);
    }
    for (size_t n = 0; n < 300000; n = n * 3 / 2 + 1) {
        snprintf(key, sizeof key, "text %zu", n);
        put_string(e, key, element(&space, 5, n), NEVER);
    }
    put_string(e, "", BYTES_LIT("no name"), 1 + T0);
    check_round_trips(e, T0);
    buf_release(&space);
    e->ops->close(e);
}

/* Elements of every size up to more than a piece, and several of them. */
static void test_long_elements(void **state UNUSED)
{
    static const size_t sizes[] = {4000, 8170, 8181, 8192, 20000, 65535, 65536, 65537, 200000, 3000000};
    struct engine *e = memory_engine_new(1, 1);
    struct key_ref list, hash;
    struct buf space = {0};
    e->ops->begin(e, T0);
    e->ops->create(e, 0, BYTES_LIT("list"), TYPE_LIST, &list);
    e->ops->create(e, 0, BYTES_LIT("hash"), TYPE_HASH, &hash);
    for (u64 i = 0; i < 30; i++) {
        bytes b = element(&space, i, sizes[i % ARRAY_LEN(sizes)]);
        e->ops->seq.push(e, &list, false, b);
        e->ops->seq.push(e, &list, false, BYTES_LIT("short"));
        if (i % 3 == 0) e->ops->seq.push(e, &list, false, BYTES_LIT("12"));
        e->ops->map.put(e, &hash, bytes_of(b.p, MIN(b.n, 50000)), b, false);
    }
    check_round_trips(e, T0);
    buf_release(&space);
    e->ops->close(e);
}

/* -- slices ------------------------------------------------------------------------------------ */

static void test_steps_are_short(void **state UNUSED)
{
    struct engine *e = memory_engine_new(1, 1);
    struct memory_sink sink;
    struct rdb_out out;
    struct rdb_save s;
    struct key_ref ref;
    e->ops->begin(e, T0);
    fill(e, 0, TYPE_LIST, BYTES_LIT("list"), 20000, 20);
    fill(e, 0, TYPE_SET, BYTES_LIT("set"), 20000, 20);
    fill(e, 0, TYPE_ZSET, BYTES_LIT("zset"), 20000, 20);
    fill(e, 0, TYPE_HASH, BYTES_LIT("hash"), 20000, 20);
    char *text = mem_zalloc(1000000);
    put_string(e, "string", bytes_of(text, 1000000), 0);
    mem_free(text);
    static const char *const keys[] = {"list", "set", "zset", "hash", "string"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        memory_sink_init(&sink);
        rdb_out_init(&out, &sink.sink, 0);
        assert_true(e->ops->find(e, 0, bytes_str(keys[i]), &ref));
        rdb_save_begin(&s, &(struct rdb_job){&out, e, T0, RDB_TTLS_AUX}, &ref);
        u64 steps = 1, before = 0;
        for (; !rdb_save_step(&s, 4096); steps++) {
            assert_true(out.written - before <= 4096 + RDB_PIECE);
            before = out.written;
        }
        assert_false(out.failed);
        assert_true(steps > 10);
        rdb_save_release(&s);
        rdb_out_release(&out);
        buf_release(&sink.file);
    }
    e->ops->close(e);
}

/* Fields that die while their hash is being written are still in the file: it shows one moment. */
static void test_one_moment(void **state UNUSED)
{
    for (int native = 0; native < 2; native++) {
        struct engine *e = memory_engine_new(1, 1);
        struct memory_sink sink;
        struct rdb_out out;
        struct rdb_save s;
        struct key_ref ref;
        struct buf before = {0};
        struct rdb_job job = {&out, e, T0, native ? RDB_TTLS_NATIVE : RDB_TTLS_AUX};
        e->ops->begin(e, T0);
        fill(e, 0, TYPE_HASH, BYTES_LIT("hash"), 1000, 20);
        assert_true(e->ops->find(e, 0, BYTES_LIT("hash"), &ref));
        struct buf space = {0};
        for (u64 i = 0; i < 1000; i += 3)
            e->ops->map.set_field_deadline(e, &ref, element(&space, i, 20), T0 + 1 + (i64)i);
        dataset_dump(e, T0, &before);

        memory_sink_init(&sink);
        rdb_out_init(&out, &sink.sink, 100);
        rdb_file_begin(&job);
        rdb_file_select(&out, 0);
        rdb_file_key(&s, &job, &ref, (struct rdb_key_use){-1, -1});
        i64 now_ms = T0;
        while (!rdb_save_step(&s, 300)) {
            assert_true(e->ops->commit(e, 1));
            e->ops->begin(e, now_ms += 10);
        }
        assert_true(now_ms > T0 + 500); /* many have died by now */
        rdb_save_release(&s);
        rdb_file_end(&out);
        assert_false(out.failed);

        check_file(&sink, &before, 1, T0, 0);
        rdb_out_release(&out);
        buf_release(&sink.file);
        buf_release(&space);
        buf_release(&before);
        e->ops->close(e);
    }
}

/* A key is written aside while another is under way, and added behind it. */
static void test_ahead_of_its_turn(void **state UNUSED)
{
    struct engine *e = memory_engine_new(2, 1);
    struct memory_sink sink;
    struct rdb_out out, aside;
    struct rdb_save s, other;
    struct key_ref ref, other_ref;
    struct buf before = {0};
    struct rdb_job job = {&out, e, T0, RDB_TTLS_AUX}, job_aside = {&aside, e, T0, RDB_TTLS_AUX};
    struct rdb_key_use use = {-1, -1};
    e->ops->begin(e, T0);
    fill(e, 0, TYPE_LIST, BYTES_LIT("list"), 5000, 20);
    fill(e, 1, TYPE_SET, BYTES_LIT("set"), 600, 20);
    dataset_dump(e, T0, &before);
    memory_sink_init(&sink);
    rdb_out_init(&out, &sink.sink, 1000);
    rdb_out_init(&aside, NULL, 1000);
    rdb_file_begin(&job);
    rdb_file_select(&out, 0);
    assert_true(e->ops->find(e, 0, BYTES_LIT("list"), &ref));
    assert_true(e->ops->find(e, 1, BYTES_LIT("set"), &other_ref));
    rdb_file_key(&s, &job, &ref, use);
    assert_false(rdb_save_step(&s, 1000));
    rdb_file_select(&aside, 1);
    rdb_file_key(&other, &job_aside, &other_ref, use);
    assert_true(rdb_save_step(&other, RDB_SAVE_ALL));
    e->ops->drop(e, &other_ref);
    assert_true(rdb_save_step(&s, RDB_SAVE_ALL));
    rdb_put_raw(&out, buf_bytes(&aside.buf));
    rdb_file_end(&out);
    check_file(&sink, &before, 2, T0, 0);
    rdb_save_release(&s);
    rdb_save_release(&other);
    rdb_out_release(&out);
    rdb_out_release(&aside);
    buf_release(&sink.file);
    buf_release(&before);
    e->ops->close(e);
}

/* A sink that is full stops the writing, wherever that happens. */
static void test_full_sink(void **state UNUSED)
{
    struct engine *e = memory_engine_new(1, 1);
    e->ops->begin(e, T0);
    fill(e, 0, TYPE_LIST, BYTES_LIT("list"), 30000, 30);
    fill(e, 0, TYPE_HASH, BYTES_LIT("hash"), 3000, 30);
    for (size_t room = 0; room < 400000; room += 60000) {
        struct memory_sink sink;
        struct rdb_out out;
        memory_sink_init(&sink);
        sink.room = room;
        rdb_out_init(&out, &sink.sink, 0);
        struct writing w = {.job = {&out, e, T0, RDB_TTLS_AUX}, .budget = 1000, .use = {-1, -1}};
        write_engine(&w);
        assert_true(out.failed);
        rdb_out_release(&out);
        buf_release(&sink.file);
    }
    e->ops->close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_datasets),
        cmocka_unit_test(test_thresholds),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_long_elements),
        cmocka_unit_test(test_steps_are_short),
        cmocka_unit_test(test_one_moment),
        cmocka_unit_test(test_ahead_of_its_turn),
        cmocka_unit_test(test_full_sink),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
