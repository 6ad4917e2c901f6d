/* Snapshots written while the data changes: files hold the moment they began, in RDB and as commands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/saver_helpers.h"

static void trial_new(struct trial *t, u64 seed) { trial_open(t, memory_engine_new(DBS, seed), seed); }

/* So that collections of a dozen elements are written element by element. */
static void small_limits(struct trial *t)
{
    struct engine_limits *l = &t->w.region.eng->limits;
    l->hash_max_listpack_entries = l->zset_max_listpack_entries = l->set_max_intset_entries = 8;
}

/* -- everything changes meanwhile ---------------------------------------------------------------------- */

static void check_lively_save(u64 seed, bool commands, u64 budget, u64 pace)
{
    struct trial t;
    trial_new(&t, seed);
    if (seed % 2) small_limits(&t);
    t.o.commands = commands;
    t.o.with_dead = seed % 4 == 0;
    fill_big(&t);
    live(&t, 1500);
    if (t.w.region.eng->ops->count(t.w.region.eng, 0) == 0) fill_big(&t);
    save_begin(&t);
    while (!saver_step(t.saver, 1 + gen_below(&t.g, budget))) live(&t, gen_below(&t.g, pace));
    struct saver_progress p = saver_progress(t.saver);
    assert_int_equal(p.keys, p.keys_total);
    assert_true(p.ahead < p.keys);
    live(&t, 200);
    save_end(&t);
    trial_close(&t);
}

static void test_lively_rdb(void **state UNUSED)
{
    for (u64 seed = 1; seed <= 30; seed++)
        check_lively_save(seed, false, seed % 3 ? 3000 : 300000, 10 * (seed % 5));
}

static void test_lively_commands(void **state UNUSED)
{
    for (u64 seed = 1; seed <= 30; seed++)
        check_lively_save(seed, true, seed % 3 ? 3000 : 300000, 10 * (seed % 5));
}

/* -- keys ahead of their turn ------------------------------------------------------------------------ */

/* One long list and n strings; steps until the list is under way. */
static void begin_long_list(struct trial *t, int n, bool commands)
{
    char key[32];
    trial_new(t, 1);
    t->o.commands = commands;
    t->o.compress = false;
    fill(t->w.region.eng, 2, TYPE_LIST, BYTES_LIT("list"), 20000, 20);
    for (int i = 0; i < n; i++) {
        snprintf(key, sizeof key, "key %d", i);
        put_string(t->w.region.eng, key, BYTES_LIT("value"), 0);
    }
    save_begin(t);
    u64 before = 0, still = 0;
    while (still < 5) {
        assert_false(saver_step(t->saver, 1000));
        u64 keys = saver_progress(t->saver).keys;
        still = keys == before ? still + 1 : 0;
        before = keys;
    }
}

static void test_ahead_of_a_long_one(void **state UNUSED)
{
    for (int commands = 0; commands < 2; commands++) {
        struct trial t;
        char line[64];
        begin_long_list(&t, 200, commands);
        u64 before = saver_progress(t.saver).keys;
        for (int i = 0; i < 200; i++) {
            snprintf(line, sizeof line, i % 2 ? "DEL 'key %d'" : "SET 'key %d' other", i);
            run(&t.w, line);
            run(&t.w, line); /* once is enough */
            if (i % 10 == 0) tick(&t, 1);
        }
        struct saver_progress p = saver_progress(t.saver);
        assert_int_equal(p.ahead, 201 - before); /* all that was not saved yet */
        assert_int_equal(p.keys, 201);
        assert_int_equal(p.waiting > 0, !commands && p.ahead > 0);
        u64 steps = 0;
        while (!saver_step(t.saver, 1000)) steps++;
        assert_true(steps > 100); /* the list was not hurried */
        save_end(&t);
        trial_close(&t);
    }
}

/* The key under way changes: the rest of it is written first. Once it is complete, changes don't matter. */
static void test_change_under_way(void **state UNUSED)
{
    static const char *const changes[] = {"RPUSH list x", "DEL list", "PEXPIREAT list 1900000000000",
                                          "SET list x", "RENAME list other", "LSET list 0 x"};
    for (size_t i = 0; i < 2 * ARRAY_LEN(changes); i++) {
        struct trial t;
        begin_long_list(&t, 3, i % 2);
        run_all(&t.w, "SELECT 2");
        run_all(&t.w, changes[i / 2]);
        tick(&t, 1);
        run_all(&t.w, "RPUSH list2 a; DEL list; RPUSH list x; DEL list");
        t.w.region.eng->ops->reclaim(t.w.region.eng, 1000000);
        while (!saver_step(t.saver, 1000)) {}
        save_end(&t);
        trial_close(&t);
    }
}

/* -- slices ------------------------------------------------------------------------------------------ */

static void test_steps_are_short(void **state UNUSED)
{
    for (int commands = 0; commands < 2; commands++) {
        struct trial t;
        u64 bytes_before = 0, keys_before = 0, steps = 0;
        trial_new(&t, 1);
        t.o.commands = commands;
        fill_big(&t);
        for (int i = 0; i < 20000; i++) {
            char key[32];
            snprintf(key, sizeof key, "key %d", i);
            i64 deadline_ms = i % 2 ? 0 : T0 - 1; /* the dead take time, too */
            put_string(t.w.region.eng, key, BYTES_LIT("abcabcabcabcabcabcabcabcabcabcabcabc"), deadline_ms);
        }
        save_begin(&t);
        for (; !saver_step(t.saver, 4096); steps++) {
            struct saver_progress p = saver_progress(t.saver);
            assert_true(p.bytes - bytes_before <= 4096 + RDB_PIECE + 5000);
            assert_true(p.keys - keys_before <= 4096 / 128 + 1);
            bytes_before = p.bytes;
            keys_before = p.keys;
        }
        assert_true(steps > 600);
        save_end(&t);
        trial_close(&t);
    }
}

/* A budget that is never enough for anything still gets there. */
static void test_tiny_steps(void **state UNUSED)
{
    for (int commands = 0; commands < 2; commands++) {
        struct trial t;
        trial_new(&t, 3);
        t.o.commands = commands;
        live(&t, 500);
        save_begin(&t);
        while (!saver_step(t.saver, 1)) {}
        save_end(&t);
        trial_close(&t);
    }
}

/* -- the end before the end ----------------------------------------------------------------------------- */

/* The sink refuses at every place; the engine is then free for the next. */
static void test_failing_sink(void **state UNUSED)
{
    for (int commands = 0; commands < 2; commands++) {
        struct trial t;
        trial_new(&t, 5);
        t.o.commands = commands;
        fill_big(&t);
        live(&t, 300);
        for (size_t room = 0; room < 300000; room = room * 2 + 1) {
            save_begin(&t);
            t.sink.memory.room = room;
            while (!saver_step(t.saver, 5000)) live(&t, 3);
            assert_true(saver_failed(t.saver));
            assert_true(saver_step(t.saver, 5000)); /* and stays so */
            live(&t, 20);
            while (t.w.region.eng->ops->reclaim(t.w.region.eng, 1000)) {} /* remains of the snapshot */
            saver_free(t.saver);
            t.saver = NULL;
            run_all(&t.w, "FLUSHALL");
            fill_big(&t);
        }
        trial_close(&t);
    }
}

static void test_freed_early(void **state UNUSED)
{
    for (int commands = 0; commands < 2; commands++) {
        struct trial t;
        begin_long_list(&t, 20, commands);
        run_all(&t.w, "DEL 'key 1' 'key 2' 'key 3' 'key 4' 'key 5' 'key 6'");
        assert_null(saver_begin(&t.w.region.ks, &t.o, &t.sink.memory.sink)); /* one at a time */
        saver_free(t.saver);
        live(&t, 100);
        while (t.w.region.eng->ops->reclaim(t.w.region.eng, 1000)) {}
        save_begin(&t);
        assert_true(saver_step(t.saver, RDB_SAVE_ALL));
        save_end(&t);
        trial_close(&t);
    }
}

/* -- at once ------------------------------------------------------------------------------------------- */

static void check_save_now(struct trial *t)
{
    struct piece_sink sink;
    struct buf now = {0};
    piece_sink_init(&sink, t->o.commands);
    assert_true(saver_save_now(&t->w.region.ks, &t->o, &sink.memory.sink));
    dataset_dump(t->w.region.eng, now_of(&t->w), &now);
    check_saved(buf_bytes(&sink.memory.file), t->o.commands, &now);
    assert_true(sink.memory.largest <= 2 * RDB_PIECE + 1000);
    for (size_t room = 0; room < sink.memory.file.n; room = room * 2 + 1000) {
        struct piece_sink small;
        piece_sink_init(&small, t->o.commands);
        small.memory.room = room;
        assert_false(saver_save_now(&t->w.region.ks, &t->o, &small.memory.sink));
        buf_release(&small.memory.file);
    }
    buf_release(&sink.memory.file);
    buf_release(&now);
}

static void test_save_now(void **state UNUSED)
{
    for (u64 seed = 1; seed <= 6; seed++) {
        struct trial t;
        trial_new(&t, seed);
        t.o.commands = seed % 2;
        t.o.compress = seed % 3 != 0;
        check_save_now(&t); /* nothing there */
        fill_big(&t);
        live(&t, 1000);
        check_save_now(&t);
        save_begin(&t); /* and in the middle of a snapshot, which it does not disturb */
        for (int i = 0; i < 50 && !saver_step(t.saver, 3000); i++) live(&t, 10);
        check_save_now(&t);
        while (!saver_step(t.saver, 3000)) live(&t, 10);
        save_end(&t);
        trial_close(&t);
    }
}

/* -- what is around the values --------------------------------------------------------------------------- */

static void more_aux(void *arg, struct rdb_out *out) { rdb_file_aux(out, "more", bytes_str(arg)); }

static void test_aux_fields(void **state UNUSED)
{
    struct trial t;
    struct buf notes = {0};
    char wanted[256];
    trial_new(&t, 1);
    t.o.aof_base = true;
    t.o.mayfly_version = "1.2.3";
    t.o.aux = more_aux;
    t.o.arg = "fields";
    run_all(&t.w, "SET a b");
    save_begin(&t);
    assert_true(saver_step(t.saver, RDB_SAVE_ALL));
    struct engine *twin = memory_engine_new(DBS, 9);
    load_rdb(buf_bytes(&t.sink.memory.file), twin, &notes);
    twin->ops->close(twin);
    buf_append_char(&notes, '\0');
    snprintf(wanted, sizeof wanted, "redis-ver=7.0.15\nredis-bits=64\nctime=%lld\nused-mem=", T0 / 1000);
    assert_memory_equal(notes.p, wanted, strlen(wanted));
    assert_non_null(strstr(notes.p, "\nmore=fields\naof-base=1\nmayfly-ver=1.2.3\n"));
    save_end(&t);
    buf_release(&notes);
    trial_close(&t);
}

static void test_checksum_and_compression(void **state UNUSED)
{
    size_t sizes[2];
    for (int with = 0; with < 2; with++) {
        struct trial t;
        trial_new(&t, 1);
        t.o.compress = t.o.checksum = with;
        fill(t.w.region.eng, 0, TYPE_LIST, BYTES_LIT("list"), 3000, 30);
        save_begin(&t);
        assert_true(saver_step(t.saver, RDB_SAVE_ALL));
        bytes file = buf_bytes(&t.sink.memory.file);
        assert_int_equal(memcmp(file.p + file.n - 8, "\0\0\0\0\0\0\0\0", 8) != 0, with);
        sizes[with] = file.n;
        save_end(&t);
        trial_close(&t);
    }
    assert_true(sizes[1] < sizes[0] / 2);
}

static void check_use(enum maxmemory_policy policy, i64 idle_s, i64 frequency)
{
    struct trial t;
    struct key_ref ref;
    trial_new(&t, 1);
    struct keyspace *ks = &t.w.region.ks;
    ks->policy = policy;
    t.o.keep_use = true;
    tick(&t, 5000000);
    run_all(&t.w, "SET a b");
    assert_true(ks->eng->ops->find(ks->eng, 0, BYTES_LIT("a"), &ref));
    access_restore(ks, &ref, 1234, 77);
    save_begin(&t);
    assert_true(saver_step(t.saver, RDB_SAVE_ALL));

    struct loading l = {0};
    struct rdb_policy load_policy = loading_policy(&l);
    struct engine *twin = memory_engine_new(DBS, 9);
    keyspace_init(&l.ks, twin, &l.journal);
    bytes file = buf_bytes(&t.sink.memory.file);
    l.source = (struct memory_source){.source.read = memory_source_read, .left = file};
    keyspace_begin(&l.ks, now_of(&t.w), EXPIRY_ACTIVE);
    l.ks.policy = policy ? policy : EVICT_ALLKEYS_LRU;
    rdb_loader_init(&l.loader, &l.ks, &l.source.source, RDB_IN_UNKNOWN, &load_policy);
    assert_int_equal(rdb_loader_step(&l.loader, UINT64_MAX), OK);
    assert_true(twin->ops->find(twin, 0, BYTES_LIT("a"), &ref));
    u32 bits = twin->ops->access(twin, &ref);
    if (idle_s >= 0) assert_int_equal(access_idle_ms(&l.ks, bits) / 1000, idle_s);
    if (frequency >= 0) assert_int_equal(access_frequency(&l.ks, bits), frequency);
    loading_release(&l);
    twin->ops->close(twin);
    trial_close(&t);
}

static void test_use(void **state UNUSED)
{
    check_use(EVICT_ALLKEYS_LRU, 1234, -1);
    check_use(EVICT_VOLATILE_LRU, 1234, -1);
    check_use(EVICT_ALLKEYS_LFU, -1, 77);
    check_use(EVICT_NONE, 0, -1);
}

/* -- the form of commands ----------------------------------------------------------------------------- */

/* The data as commands, in one line. */
static void commands_of(struct trial *t, struct buf *text)
{
    struct piece_sink sink;
    piece_sink_init(&sink, true);
    t->o.commands = true;
    assert_true(saver_save_now(&t->w.region.ks, &t->o, &sink.memory.sink));
    struct journal_record record = {.resp = sink.memory.file};
    buf_clear(text);
    record_text(&record, text);
    buf_append_char(text, '\0');
    buf_release(&sink.memory.file);
}

static void check_commands(const char *make, const char *wanted)
{
    struct trial t;
    struct buf text = {0};
    trial_new(&t, 1);
    run_all(&t.w, make);
    commands_of(&t, &text);
    assert_string_equal(text.p, wanted);
    buf_release(&text);
    trial_close(&t);
}

static u64 occurrences(const char *text, const char *word)
{
    u64 n = 0;
    for (; (text = strstr(text, word)); text++) n++;
    return n;
}

static void test_commands(void **state UNUSED)
{
    check_commands("GET a", "");
    check_commands("SET a 12", "SELECT 0; SET a 12");
    check_commands("SET a ''", "SELECT 0; SET a ");
    check_commands("SELECT 3; SET a b PXAT 1900000000001", "SELECT 3; SET a b; PEXPIREAT a 1900000000001");
    check_commands("RPUSH l a b; LPUSH l c", "SELECT 0; RPUSH l c a b");
    check_commands("SADD s 3 1 2", "SELECT 0; SADD s 1 2 3");
    check_commands("ZADD z 1.5 a -inf b 3 c", "SELECT 0; ZADD z -inf b 1.5 a 3 c");
    check_commands("HSET h a 1 b 2; PEXPIREAT h 1900000000001",
                   "SELECT 0; HSET h a 1 b 2; PEXPIREAT h 1900000000001");
    check_commands("SET a b; SELECT 2; SET c d", "SELECT 0; SET a b; SELECT 2; SET c d");
}

/* 64 elements a command; fields with one deadline together; long strings in pieces. */
static void test_long_commands(void **state UNUSED)
{
    struct trial t;
    struct buf text = {0}, space = {0};
    struct key_ref ref;
    trial_new(&t, 1);
    struct engine *e = t.w.region.eng;
    fill(e, 0, TYPE_SET, BYTES_LIT("set"), 130, 0);
    fill(e, 0, TYPE_ZSET, BYTES_LIT("zset"), 64, 10);
    fill(e, 0, TYPE_LIST, BYTES_LIT("list"), 65, 10);
    fill(e, 0, TYPE_LIST, BYTES_LIT("long"), 4, 65000); /* two of them are enough */
    fill(e, 0, TYPE_HASH, BYTES_LIT("hash"), 200, 10);
    assert_true(e->ops->find(e, 0, BYTES_LIT("hash"), &ref));
    for (u64 i = 0; i < 64; i++)
        e->ops->map.set_field_deadline(e, &ref, element(&space, i, 10), T0 + 1000 + (i64)(i % 3));
    put_string(e, "string", element(&space, 1, 3 * RDB_PIECE), 0);
    commands_of(&t, &text);
    assert_int_equal(occurrences(text.p, "SADD set"), 3);
    assert_int_equal(occurrences(text.p, "ZADD zset"), 1);
    assert_int_equal(occurrences(text.p, "RPUSH list"), 2);
    assert_int_equal(occurrences(text.p, "RPUSH long"), 2);
    assert_int_equal(occurrences(text.p, "HSET hash"), 4);
    assert_int_equal(occurrences(text.p, "HPEXPIREAT hash"), 3);
    assert_int_equal(occurrences(text.p, " FIELDS 22 "), 1);
    assert_int_equal(occurrences(text.p, " FIELDS 21 "), 2);
    assert_int_equal(occurrences(text.p, "SET string"), 1);
    assert_int_equal(occurrences(text.p, "APPEND string"), 2);
    buf_release(&text);
    buf_release(&space);
    trial_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_long_commands),
        cmocka_unit_test(test_lively_rdb),
        cmocka_unit_test(test_lively_commands),
        cmocka_unit_test(test_ahead_of_a_long_one),
        cmocka_unit_test(test_change_under_way),
        cmocka_unit_test(test_steps_are_short),
        cmocka_unit_test(test_tiny_steps),
        cmocka_unit_test(test_failing_sink),
        cmocka_unit_test(test_freed_early),
        cmocka_unit_test(test_save_now),
        cmocka_unit_test(test_aux_fields),
        cmocka_unit_test(test_checksum_and_compression),
        cmocka_unit_test(test_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
