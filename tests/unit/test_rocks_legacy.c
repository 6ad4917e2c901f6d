/* Foreign databases: strings in the old format (data row P · 'S'), and metadata without counts. They are
 * written row by row with the store, and then opened like any other. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/rocks/codec.h"
#include "engine/rocks/store/store.h"
#include "unit/rocks_helpers.h"

#define NOW 1700000000000
#define OLD_STRINGS 500

static char path[256];

static int setup(void **state)
{
    (void)state;
    return folder_make(path, sizeof path, "legacy") ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    folder_remove(path);
    return 0;
}

static struct rocks_options options(void)
{
    struct rocks_options o = rocks_small(path, 4);
    o.background_threads = 1;
    o.write_buffer = 1 << 20;
    return o;
}

static bytes name(u32 i)
{
    static char text[32];
    return bytes_of(text, (size_t)snprintf(text, sizeof text, "old:%u", i));
}

static void put_hash(struct store_session *s, bytes key, u64 version)
{
    struct buf k = {0}, v = {0};
    struct codec_meta m = {.type = TYPE_HASH, .version = version, .size = 1, .deadline_ms = NOW + 5000};
    codec_key(&k, 1, 1, key);
    codec_meta(&v, &m);
    store_put(s, FAM_META, buf_bytes(&k), buf_bytes(&v));
    append_u64(&k, version);
    buf_append_char(&k, 'f');
    store_put(s, FAM_DATA, buf_bytes(&k), BYTES_LIT("v"));
    buf_release(&k);
    buf_release(&v);
}

static void make_database(void)
{
    bool failed = false;
    struct buf why = {0};
    struct rocks_options o = options();
    struct store_session *s = store_open_alone(&o, false, &failed, &why);
    assert_non_null(s);
    for (u32 i = 0; i < OLD_STRINGS; i++)
        put_old(s, 1, name(i), i % 3 ? 0 : NOW + 1000 + i, BYTES_LIT("value"));
    put_hash(s, BYTES_LIT("hash"), 77);
    /* Both forms of one key: the newer one counts. */
    put_hash(s, BYTES_LIT("both"), 78);
    put_old(s, 1, BYTES_LIT("both"), 0, BYTES_LIT("stale"));
    assert_true(store_write(s));
    store_close_alone(s);
}

static struct engine *open_engine(void)
{
    struct rocks_options o = options();
    struct engine *e = rocks_must_open(&o);
    e->ops->begin(e, NOW);
    return e;
}

static void tick(struct engine *e, i64 now_ms)
{
    assert_true(e->ops->commit(e, e->applied + 1));
    e->ops->begin(e, now_ms);
}

static bool is_there(struct engine *e, bytes key, const char *value)
{
    struct key_ref ref;
    struct str_view v;
    if (!e->ops->find(e, 0, key, &ref)) return false;
    assert_int_equal(ref.type, TYPE_STRING);
    e->ops->str.get(e, &ref, &v);
    assert_true(bytes_eq(v.b, bytes_str(value)));
    return true;
}

static bool info_says(struct engine *e, const char *line)
{
    struct buf out = {0};
    e->ops->disk->info(e, &out);
    buf_append_char(&out, '\0');
    bool found = strstr(out.p, line) != NULL;
    buf_release(&out);
    return found;
}

/* Is the old row of a key still stored? */
static bool old_row_left(bytes key)
{
    bool failed = false;
    struct buf why = {0}, k = {0};
    struct rocks_options o = options();
    struct store_session *s = store_open_alone(&o, true, &failed, &why);
    struct store_value v;
    assert_non_null(s);
    codec_key(&k, 1, 1, key);
    buf_append_char(&k, CODEC_LEGACY);
    bool left = store_get(s, FAM_DATA, buf_bytes(&k), &v);
    store_value_release(&v);
    store_close_alone(s);
    buf_release(&k);
    return left;
}

static void drop_due(void *arg, struct key_ref *ref)
{
    struct engine *e = arg;
    if (!alive(ref->deadline_ms, e->now_ms)) e->ops->drop(e, ref);
}

static void test_all_are_moved(void **state)
{
    (void)state;
    make_database();
    struct engine *e = open_engine();
    assert_int_equal(e->ops->expires(e, 0) >= 2, true); /* the hashes were counted at once */
    assert_true(is_there(e, name(499), "value"));       /* and old strings can be read at once */
    for (u32 n = 0; info_says(e, "legacy_migration:running"); n++) {
        assert_true(n < 1000);
        tick(e, NOW);
    }
    assert_true(info_says(e, "legacy_migration:done\r\nlegacy_migration_perc:100.00\r\nlegacy_moved:500"));
    assert_int_equal(e->ops->count(e, 0), OLD_STRINGS + 2);
    assert_int_equal(e->ops->expires(e, 0), (OLD_STRINGS + 2) / 3 + 2);
    e->ops->close(e);
    assert_false(old_row_left(name(1)));
    assert_false(old_row_left(BYTES_LIT("both")));

    e = open_engine();
    assert_true(info_says(e, "legacy_migration:done"));
    for (u32 i = 0; i < OLD_STRINGS; i++) assert_true(is_there(e, name(i), "value"));
    tick(e, NOW + 10000);
    while (e->ops->due(e, e->now_ms, 100, drop_due, e)) {}
    assert_int_equal(e->ops->expires(e, 0), 0); /* deadlines went along */
    assert_int_equal(e->ops->count(e, 0), OLD_STRINGS - (OLD_STRINGS + 2) / 3);
    e->ops->close(e);
}

/* Whatever is written over an old string, the string never comes back. */
static void test_nothing_comes_back(void **state)
{
    (void)state;
    struct key_ref ref;
    make_database();
    struct engine *e = open_engine();
    bytes key = BYTES_LIT("old:499");
    assert_true(e->ops->find(e, 0, key, &ref));
    e->ops->drop(e, &ref);
    e->ops->create(e, 0, key, TYPE_HASH, &ref);
    e->ops->map.put(e, &ref, BYTES_LIT("f"), BYTES_LIT("v"), false);
    tick(e, NOW);
    assert_true(e->ops->find(e, 0, key, &ref) && ref.type == TYPE_HASH);
    e->ops->drop(e, &ref);
    tick(e, NOW);
    assert_false(e->ops->find(e, 0, key, &ref));
    e->ops->close(e);
    assert_false(old_row_left(key));
    e = open_engine();
    for (u32 n = 0; n < 50; n++) tick(e, NOW);
    assert_false(e->ops->find(e, 0, key, &ref));
    assert_int_equal(e->ops->count(e, 0), OLD_STRINGS + 1);
    e->ops->close(e);
}

/* Transactions that were given up moved nothing: the pass goes back and misses no string. */
static void test_given_up(void **state)
{
    (void)state;
    make_database();
    struct engine *e = open_engine();
    for (u32 n = 0; info_says(e, "legacy_migration:running"); n++) {
        assert_true(n < 1000);
        e->ops->abort(e);
        e->ops->begin(e, NOW);
        tick(e, NOW);
    }
    assert_int_equal(e->ops->count(e, 0), OLD_STRINGS + 2);
    for (u32 i = 0; i < OLD_STRINGS; i++) assert_true(is_there(e, name(i), "value"));
    e->ops->close(e);
    assert_false(old_row_left(name(1)));
}

/* Strings of a database that would not be served must not be taken for moved. */
static void test_fewer_databases(void **state)
{
    (void)state;
    bool failed = false;
    struct buf why = {0};
    struct rocks_options o = options();
    struct store_session *s = store_open_alone(&o, false, &failed, &why);
    put_old(s, 4, BYTES_LIT("far"), 0, BYTES_LIT("value"));
    assert_true(store_write(s));
    store_close_alone(s);
    o.databases = 3;
    for (u32 i = 0; i < 2; i++) {
        buf_clear(&why);
        assert_null(rocks_engine_open(&o, &why));
        buf_append_char(&why, '\0');
        assert_non_null(strstr(why.p, "database 3 has keys"));
    }
    buf_release(&why);
    struct engine *e = open_engine();
    struct key_ref ref;
    assert_true(e->ops->find(e, 3, BYTES_LIT("far"), &ref));
    e->ops->close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_are_moved, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_given_up, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fewer_databases, setup, teardown),
    };
    return cmocka_run_group_tests_name("old strings", tests, NULL, NULL);
}
