/* Files and a real redis-server: it loads what we wrote, redis-check-rdb accepts it, and what it then
 * saves of it, in its own encodings, we load to the same data. Skipped where there is no Redis. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "exec/dataset.h"
#include "exec/generate.h"
#include "exec/harness.h"
#include "unit/rdb_helpers.h"

#define NEVER ((i64)1 << 42)

static char dir[] = "/tmp/mayfly-rdb-XXXXXX";

/* Runs a shell command in the directory; its exit code. */
static int sh(const char *command)
{
    char line[512];
    CHECK(snprintf(line, sizeof line, "cd %s && { %s; } >>log 2>&1", dir, command) < (int)sizeof line);
    return system(line);
}

static void path_of(const char *name, char path[64]) { snprintf(path, 64, "%s/%s", dir, name); }

static void write_file(const char *name, bytes data)
{
    char path[64];
    path_of(name, path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data.p, 1, data.n, f), data.n);
    assert_int_equal(fclose(f), 0);
}

static void read_file(const char *name, struct buf *data)
{
    char path[64];
    path_of(name, path);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    for (size_t n = 1; n;) data->n += n = fread(buf_reserve(data, 1 << 16), 1, 1 << 16, f);
    fclose(f);
}

/* Has Redis load `from` and save it again as `to`. */
static void through_redis(const char *from, const char *to)
{
    char line[256];
    snprintf(line, sizeof line, "redis-check-rdb %s", from);
    assert_int_equal(sh(line), 0);
    snprintf(
        line, sizeof line,
        "redis-server --port 0 --unixsocket sock --pidfile pid --daemonize yes --logfile server.log "
        "--save '' --enable-protected-configs yes --databases %d --dbfilename %s",
        DBS, from);
    assert_int_equal(sh(line), 0);
    assert_int_equal(sh("for i in $(seq 300); do redis-cli -s sock ping | grep -q PONG && exit 0; "
                        "sleep 0.05; done; cat server.log; exit 1"), 0);
    snprintf(line, sizeof line,
             "redis-cli -s sock config set dbfilename %s | grep OK && redis-cli -s sock save | grep OK; "
             "r=$?; redis-cli -s sock shutdown nosave; exit $r",
             to);
    assert_int_equal(sh(line), 0);
    assert_int_equal(sh("for i in $(seq 300); do [ -e sock ] || exit 0; sleep 0.05; done; exit 1"), 0);
}

/* Deadlines that no wall clock reaches. Field deadlines likewise, or with none none. */
static void far_off(struct engine *e, bool fields)
{
    for (u32 db = 0; db < e->databases; db++) {
        struct dump_items keys = dump_keys(e, db);
        for (size_t i = 0; i < keys.n; i++) {
            struct key_ref ref;
            assert_true(e->ops->find(e, db, keys.v[i].name, &ref));
            if (ref.deadline_ms && ref.deadline_ms < NEVER)
                e->ops->set_deadline(e, &ref, NEVER + ref.deadline_ms % 1000);
            if (ref.type != TYPE_HASH || !e->ops->map.has_field_deadlines(e, &ref)) continue;
            struct dump_items names = {0};
            struct map_iter it;
            struct dump_item f = {0};
            e->ops->map.iter(e, &ref, &it);
            while (e->ops->map.next(&it, &f.name, &f.value)) {
                e->ops->map.field_deadline(e, &ref, f.name, &f.deadline_ms);
                char *name = mem_alloc(MAX(f.name.n, 1)); /* a changed field may move */
                memcpy(name, f.name.p, f.name.n);
                f.name.p = name;
                dump_items_add(&names, f);
            }
            for (size_t k = 0; k < names.n; k++) {
                i64 to_ms = names.v[k].deadline_ms && fields ? NEVER + names.v[k].deadline_ms % 1000 : 0;
                e->ops->map.set_field_deadline(e, &ref, names.v[k].name, to_ms);
                mem_free((char *)names.v[k].name.p);
            }
            mem_free(names.v);
        }
        mem_free(keys.v);
    }
}

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
    if (system("command -v redis-server redis-check-rdb redis-cli >/dev/null 2>&1") != 0) {
        printf("[  PASSED  ] 0 test(s): there is no redis-server\n");
        return 0;
    }
    CHECK(mkdtemp(dir));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_datasets),
        cmocka_unit_test(test_sizes),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char line[64];
    snprintf(line, sizeof line, "rm -rf %s", dir);
    if (!failed && system(line) != 0) failed = 1;
    return failed;
}
