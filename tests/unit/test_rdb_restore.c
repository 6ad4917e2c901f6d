/* DUMP and RESTORE as commands: what RESTORE leaves in the journal, that replaying it gives the same
 * data, and that a payload which fails in the middle leaves nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/crc64.h"
#include "exec/dataset.h"
#include "exec/generate.h"
#include "exec/harness.h"

static void dump(struct world *w, const char *key, struct buf *payload)
{
    bytes argv[] = {BYTES_LIT("DUMP"), bytes_str(key)};
    run_argv(w, 2, argv);
    assert_true(w->out.p[0] == '$' && w->out.p[1] != '-');
    const char *start = strstr(w->out.p, "\r\n") + 2;
    buf_clear(payload);
    buf_append(payload, start, (size_t)strtol(w->out.p + 1, NULL, 10));
}

static bool restore(struct world *w, const char *key, const char *ttl, bytes payload, const char *option)
{
    bytes argv[] = {BYTES_LIT("RESTORE"), bytes_str(key), bytes_str(ttl), payload,
                    bytes_str(option ? option : "")};
    run_argv(w, option ? 5 : 4, argv);
    return w->out.p[0] == '+';
}

static void seal(struct buf *payload)
{
    u16 version = 10;
    buf_append(payload, &version, 2);
    u64 crc = crc64(0, buf_bytes(payload));
    buf_append(payload, &crc, 8);
}

/* The last command of the last record, with the payload left out: it is not text. */
static void last_effect(void *arg, int argc, const bytes *argv)
{
    struct buf *text = arg;
    buf_clear(text);
    for (int i = 0; i < argc; i++) {
        if (i) buf_append_char(text, ' ');
        buf_append_bytes(text, i == 3 && bytes_is(argv[0], "restore") ? BYTES_LIT("...") : argv[i]);
    }
}

static const char *effect(struct world *w)
{
    buf_clear(&w->text);
    if (w->journal.n) record_each(&w->journal.v[w->journal.n - 1], last_effect, &w->text);
    recorder_clear(&w->journal);
    buf_append_char(&w->text, '\0');
    return w->text.p;
}

static void test_effects(void **state UNUSED)
{
    struct world w;
    struct buf payload = {0};
    world_open(&w);
    run(&w, "SET k v");
    dump(&w, "k", &payload);
    effect(&w);
    assert_true(restore(&w, "a", "5000", buf_bytes(&payload), NULL));
    assert_string_equal(effect(&w), "RESTORE a 1700000005000 ... ABSTTL");
    assert_true(restore(&w, "b", "0", buf_bytes(&payload), NULL));
    assert_string_equal(effect(&w), "RESTORE b 0 ... ABSTTL");
    assert_true(restore(&w, "c", "1700000005000", buf_bytes(&payload), "absttl"));
    assert_string_equal(effect(&w), "RESTORE c 1700000005000 ... absttl");
    run(&w, "DEL c");
    effect(&w);
    assert_true(restore(&w, "new", "1", buf_bytes(&payload), "ABSTTL")); /* dead on arrival */
    assert_string_equal(effect(&w), "");
    bytes replace[] = {BYTES_LIT("RESTORE"), BYTES_LIT("b"),       BYTES_LIT("1"),
                       buf_bytes(&payload),  BYTES_LIT("REPLACE"), BYTES_LIT("ABSTTL")};
    bytes again[] = {BYTES_LIT("RESTORE"), BYTES_LIT("b"), BYTES_LIT("0"), buf_bytes(&payload), BYTES_LIT("REPLACE")};
    run_argv(&w, 5, again);
    assert_string_equal(effect(&w), "RESTORE b 0 ... ABSTTL REPLACE");
    run_argv(&w, 6, replace);
    assert_string_equal(effect(&w), "DEL b");
    assert_false(restore(&w, "a", "0", buf_bytes(&payload), NULL));
    assert_false(restore(&w, "c", "0", BYTES_LIT("garbage"), NULL));
    assert_string_equal(effect(&w), "");
    buf_release(&payload);
    world_close(&w);
}

/* Values wander between random keys; a follower that only has the journal ends up with the same. */
static void test_replay(void **state UNUSED)
{
    for (u64 seed = 1; seed <= 4; seed++) {
        struct world w, follower;
        struct gen g = {.rng = seed, .databases = DBS};
        struct buf payload = {0}, a = {0}, b = {0};
        world_open(&w);
        world_open(&follower);
        size_t applied = 0;
        u64 restored = 0;
        for (int i = 0; i < 12000; i++) {
            if (i % 20 == 0) at(&w, i);
            g.now_ms = now_of(&w);
            gen_next(&g);
            run_argv(&w, g.argc, g.argv);
            if (i % 7 == 0 && strcmp(run(&w, "RANDOMKEY"), "nil") != 0) {
                char key[256];
                snprintf(key, sizeof key, "%s", w.text.p);
                bytes argv[] = {BYTES_LIT("DUMP"), bytes_str(key)};
                run_argv(&w, 2, argv);
                if (w.out.p[1] == '-') continue; /* a name with a NUL */
                dump(&w, key, &payload);
                static const char *const to[] = {"s1", "h1", "l1", "t1", "z1", "other"};
                static const char *const ttl[] = {"0", "5", "100", "100000"};
                assert_true(restore(&w, to[rand_below(&g.rng, 6)], ttl[rand_below(&g.rng, 4)],
                                    buf_bytes(&payload), "REPLACE"));
                restored++;
            }
        }
        for (; applied < w.journal.n; applied++)
            assert_int_equal(region_apply(&follower.region, &follower.session, NULL, &w.journal.v[applied]),
                             OK);
        assert_true(restored > 500);
        i64 now_ms = now_of(&w);
        dataset_dump(w.region.eng, now_ms, &a);
        dataset_dump(follower.region.eng, now_ms, &b);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.p, b.p, a.n);
        buf_release(&payload);
        buf_release(&a);
        buf_release(&b);
        gen_release(&g);
        world_close(&w);
        world_close(&follower);
    }
}

/* Every prefix of a value, sealed with a good checksum: refused, and nothing has changed. */
static void test_broken_in_the_middle(void **state UNUSED)
{
    static const char *const fill[] = {
        "RPUSH k a b 12345 c ddddddddddddddddddddddddddddddddd",
        "SADD k a b c",
        "SADD k 1 2 30000",
        "HSET k f v g w",
        "ZADD k 1 a 2.5 b inf c",
        "SET k 123456",
        "SET k aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "HSETEX k PXAT 1800000000000 FIELDS 2 f v g w",
    };
    for (size_t i = 0; i < ARRAY_LEN(fill); i++) {
        struct world w;
        struct buf payload = {0}, cut = {0}, before = {0}, after = {0};
        world_open(&w);
        run(&w, fill[i]);
        dump(&w, "k", &payload);
        run_all(&w, "DEL k;RPUSH k old value");
        dataset_dump(w.region.eng, T0, &before);
        for (size_t n = 0; n < payload.n - 10; n++) {
            buf_clear(&cut);
            buf_append(&cut, payload.p, n);
            seal(&cut);
            assert_false(restore(&w, "k", "0", buf_bytes(&cut), "REPLACE"));
            assert_false(restore(&w, "new", "0", buf_bytes(&cut), NULL));
            dataset_dump(w.region.eng, T0, &after);
            assert_int_equal(before.n, after.n);
            assert_memory_equal(before.p, after.p, before.n);
        }
        assert_true(restore(&w, "k", "0", buf_bytes(&payload), "REPLACE"));
        assert_int_equal(count_of(&w, 0), 1);
        buf_release(&payload);
        buf_release(&cut);
        buf_release(&before);
        buf_release(&after);
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_effects),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_broken_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
