/* Staging databases, the replication position and the metadata rows of the rocks engine, beyond what the engine suite asks of every engine: what of
 * them a start finds, with whatever number of databases; what of them compactions take; and that dead keys
 * stay if somebody else decides about them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/rocks/rk.h"
#include "engine/rocks/store/store_impl.h"
#include "unit/rocks_folder.h"

#define HOUR 3600000
#define L(s) BYTES_LIT(s)

/* The checker has nothing to complain of, ever. */
static void open_checked(u32 databases)
{
    bool there = e;
    close_engine();
    if (there) assert_int_equal(rocks_check(path), 0);
    open_engine(databases);
}

static void put(u32 db, const char *key, i64 deadline_ms)
{
    struct key_ref ref;
    e->ops->find(e, db, bytes_str(key), &ref);
    e->ops->str.put(e, db, bytes_str(key), &ref, L("value"), deadline_ms);
}

static bool has(u32 db, const char *key)
{
    struct key_ref ref;
    return e->ops->find(e, db, bytes_str(key), &ref);
}

static void put_hash(u32 db, const char *key, i64 field_deadline_ms)
{
    struct key_ref ref;
    e->ops->create(e, db, bytes_str(key), TYPE_HASH, &ref);
    e->ops->map.put(e, &ref, L("a"), L("1"), false);
    e->ops->map.put(e, &ref, L("b"), L("2"), false);
    e->ops->map.set_field_deadline(e, &ref, L("a"), field_deadline_ms);
}

/* As a full sync does. */
static void load_and_swap(const char *key)
{
    u32 n = e->databases;
    for (u32 db = 0; db < n; db++) put(n + db, key, NOW + HOUR + db);
    put_hash(n, "hash", NOW + HOUR);
    tick(NOW);
    for (u32 db = 0; db < n; db++) e->ops->swap(e, db, n + db);
    for (u32 db = 0; db < n; db++) e->ops->flush(e, n + db);
    tick(NOW);
}

static void compact_all(void)
{
    struct store_session *s = rk_of(e)->session;
    rocksdb_compactoptions_t *o = rocksdb_compactoptions_create();
    rocksdb_compactoptions_set_bottommost_level_compaction(o, 2);
    for (int f = 0; f < FAM_COUNT; f++) rocksdb_compact_range_cf_opt(s->db, s->cf[f], o, NULL, 0, NULL, 0);
    rocksdb_compactoptions_destroy(o);
}

static u32 rows_of(enum family f)
{
    u32 n = 0;
    struct store_iter *it = store_iter(rk_of(e)->session, f, (bytes){0}, (bytes){0}, STORE_ONCE);
    for (store_seek_first(it); store_valid(it); store_next(it)) n++;
    store_iter_done(it);
    return n;
}

/* -- starts --------------------------------------------------------------------------------------------- */

/* What a crash leaves there is gone, and in nobody's way. */
static void gone_after_a_start(void **state)
{
    (void)state;
    open_checked(4);
    put(0, "ordinary", NOW + HOUR);
    put(4, "spare", NOW + HOUR);
    put_hash(7, "spare", NOW + HOUR);
    tick(NOW);
    assert_int_equal(e->ops->count(e, 4), 1);
    open_checked(4);
    assert_true(has(0, "ordinary"));
    for (u32 db = 4; db < 8; db++) assert_int_equal(e->ops->count(e, db), 0);
    assert_false(has(4, "spare") || has(7, "spare"));
    assert_int_equal(rows_of(FAM_META), 1);
    assert_int_equal(rows_of(FAM_DATA) + rows_of(FAM_FIELD), 0);
    put(7, "spare", 0);
    tick(NOW);
    assert_int_equal(e->ops->count(e, 7), 1);
}

/* The number of databases changes: what is spare with one is not with the other. */
static void other_numbers(void **state)
{
    (void)state;
    open_checked(4);
    put(3, "ordinary", 0);
    put(4, "spare", 0);
    tick(NOW);
    open_checked(16);
    assert_true(has(3, "ordinary"));
    for (u32 db = 4; db < 32; db++) assert_int_equal(e->ops->count(e, db), 0);
    put(5, "five", 0);
    put(16, "spare", 0);
    put(31, "spare", 0);
    tick(NOW);
    expect_refusal(4, "database 5 has keys");
    expect_refusal(5, "set 'databases' to 6 or more");
    open_checked(6);
    assert_true(has(3, "ordinary") && has(5, "five"));
    assert_int_equal(rows_of(FAM_META), 2);
}

static void swapped_in(void **state)
{
    (void)state;
    open_checked(4);
    put(2, "old", 0);
    load_and_swap("new");
    open_checked(4);
    for (u32 db = 0; db < 4; db++) assert_true(has(db, "new") && !has(db, "old"));
    expect_refusal(2, " has keys"); /* which of the two comes first, nobody knows */
    open_checked(9);
    for (u32 db = 0; db < 4; db++) assert_true(has(db, "new"));
    for (u32 db = 4; db < 18; db++) assert_int_equal(e->ops->count(e, db), 0);
    load_and_swap("newer");
    e->ops->flush(e, 3);
    for (u32 db = 5; db < 9; db++) e->ops->flush(e, db);
    e->ops->swap(e, 4, 1);
    tick(NOW);
    e->ops->flush(e, 4);
    tick(NOW);
    open_checked(3);
    for (u32 db = 0; db < 3; db++) assert_true(has(db, "newer"));
    assert_int_equal(e->ops->count(e, 3), 0);
    open_checked(9);
    for (u32 db = 0; db < 9; db++) assert_int_equal(has(db, "newer"), db < 3);
}

/* Swapped without being emptied at once, the old data is what is spare. */
static void old_data_is_in_staging(void **state)
{
    (void)state;
    open_checked(2);
    put(0, "old", NOW + HOUR);
    put(2, "new", 0);
    tick(NOW);
    e->ops->swap(e, 0, 2);
    tick(NOW);
    assert_true(has(0, "new") && has(2, "old"));
    open_checked(2);
    assert_true(has(0, "new") && !has(0, "old"));
    assert_int_equal(e->ops->count(e, 2), 0);
    open_checked(40); /* where the old data was, there is no database now */
    for (u32 db = 0; db < 80; db++) assert_int_equal(e->ops->count(e, db), db == 0);
    put(2, "another", 0);
    tick(NOW);
    open_checked(40);
    assert_true(has(0, "new") && has(2, "another"));
}

static void abandoned_swap(void **state)
{
    (void)state;
    open_checked(2);
    put(0, "old", 0);
    put(2, "new", NOW + HOUR);
    tick(NOW);
    e->ops->swap(e, 0, 2);
    e->ops->flush(e, 2);
    put(0, "more", 0);
    assert_true(has(0, "new") && !has(0, "old"));
    e->ops->abort(e);
    e->ops->begin(e, NOW);
    assert_true(has(0, "old") && !has(0, "new") && !has(0, "more") && has(2, "new"));
    assert_int_equal(e->ops->expires(e, 2), 1);
    e->ops->swap(e, 0, 2);
    tick(NOW);
    assert_true(has(0, "new") && has(2, "old"));
}

/* -- deadlines --------------------------------------------------------------------------------------------- */

/* Nobody drains the index of a replica: what the data of former syncs leaves there goes all the same. */
static void index_does_not_grow(void **state)
{
    (void)state;
    open_checked(2);
    for (u32 i = 0; i < 5; i++) {
        load_and_swap(i % 2 ? "odd" : "even");
        for (u32 n = 0; n < 20; n++) {
            char key[16];
            snprintf(key, sizeof key, "%u-%u", i, n);
            put(0, key, NOW + HOUR + i * 1000 + n);
        }
        tick(NOW);
    }
    compact_all();
    assert_int_equal(rows_of(FAM_DEADLINE), 20 + 2 + 1);
    assert_true(atomic_load(&rk_of(e)->session->store->filters.dropped[FAM_DEADLINE]) > 60);
    open_checked(2);
    assert_int_equal(e->ops->expires(e, 0), 21);
}

static u32 offered;

static void count_offer(void *arg, struct key_ref *ref)
{
    (void)arg;
    assert_true(ref->db < e->databases);
    offered++;
}

static u32 due(i64 now_ms)
{
    offered = 0;
    while (e->ops->due(e, now_ms, 10, count_offer, NULL)) {}
    return offered;
}

/* What came dead, or died aside, is due once it is in its place; also after a start. */
static void due_after_the_swap(void **state)
{
    (void)state;
    open_checked(2);
    put(0, "old", NOW - 1000);
    put(2, "dead", NOW - HOUR);
    put(2, "dying", NOW + 1000);
    put_hash(3, "hash", NOW - HOUR);
    tick(NOW + HOUR);
    assert_int_equal(due(NOW + HOUR), 0);
    assert_true(e->ops->next_due(e) > NOW + HOUR);
    for (u32 db = 0; db < 2; db++) e->ops->swap(e, db, db + 2);
    for (u32 db = 2; db < 4; db++) e->ops->flush(e, db);
    tick(NOW + HOUR);
    assert_true(e->ops->next_due(e) <= NOW + HOUR);
    assert_int_equal(due(NOW + HOUR), 3); /* left alone they are due again */
    tick(NOW + HOUR);
    open_checked(2);
    e->ops->begin(e, NOW + HOUR);
    assert_int_equal(due(NOW + HOUR), 3);
}

/* Compactions take values of what has been dead for long, but not of a replica; and the other way round, at once. */
static void dead_keys_stay(void **state)
{
    (void)state;
    open_checked(2);
    put(0, "dead", NOW - HOUR);
    put(1, "other", NOW - HOUR);
    put(0, "living", 0);
    e->report_expiry = true;
    tick(NOW);
    compact_all();
    assert_int_equal(rows_of(FAM_META), 3);
    e->report_expiry = false;
    tick(NOW);
    e->report_expiry = true;
    tick(NOW);
    compact_all();
    assert_int_equal(rows_of(FAM_META), 3);
    open_checked(2); /* before anybody has said what it is */
    compact_all();
    assert_int_equal(rows_of(FAM_META), 3);
    assert_int_equal(atomic_load(&rk_of(e)->store->filters.dropped[FAM_META]), 0);
    tick(NOW);
    compact_all();
    assert_int_equal(rows_of(FAM_META), 3); /* until the cleaner comes by, but without values */
    assert_int_equal(atomic_load(&rk_of(e)->store->filters.dropped[FAM_META]), 2);
}

/* At time 0, as a replica follows, nothing is dead, and deadlines are filed as ever. */
static void followed_at_time_0(void **state)
{
    (void)state;
    open_checked(2);
    put(0, "first", NOW + 100);
    tick(NOW + 10 * HOUR);
    e->ops->begin(e, 0);
    put(0, "second", NOW + 10 * HOUR + 5000);
    put(0, "dead", NOW + 200);
    tick(NOW + 10 * HOUR);
    assert_int_equal(due(NOW + 10 * HOUR), 2);
    tick(NOW + 10 * HOUR);
    close_engine();
    assert_int_equal(rocks_check(path), 0);
    struct rocks_options o = rocks_small(path, 2);
    e = rocks_must_open(&o);
    assert_int_equal(rk_of(e)->clock_ms, NOW + 10 * HOUR);
}

/* -- the replication position ------------------------------------------------------------------------------------ */

static void set_position(const char *text)
{
    struct engine_repl_position *position = &e->repl_position;
    buf_clear(&position->text);
    buf_append_str(&position->text, text);
    position->changed = true;
}

static void expect_position(const char *text)
{
    const struct engine_repl_position *position = &e->repl_position;
    assert_true(bytes_eq(buf_bytes(&position->text), bytes_str(text)));
    assert_false(position->changed);
}

static void replication_position(void **state)
{
    (void)state;
    open_checked(1);
    expect_position("");
    set_position("one");
    tick(NOW); /* with nothing else */
    expect_position("one");
    open_checked(1);
    expect_position("one");
    set_position("two");
    put(0, "k", 0);
    e->ops->abort(e);
    expect_position("one");
    e->ops->begin(e, NOW);
    put(0, "k", 0);
    tick(NOW);
    expect_position("one");
    set_position("three");
    tick(NOW);
    set_position("lost");
    open_checked(1); /* not committed */
    expect_position("three");
    set_position("");
    tick(NOW);
    open_checked(1);
    expect_position("");
}

/* -- metadata rows ------------------------------------------------------------------------------------------ */

static void meta_put(const char *name, const char *value)
{
    e->ops->meta.put(e, META_FUNCTIONS, bytes_str(name), bytes_str(value));
}

static void meta_list(void *arg, bytes name, bytes value, double score UNUSED)
{
    buf_printf(arg, "%.*s=%.*s ", (int)name.n, name.p, (int)value.n, value.p);
    e->ops->meta.del(e, META_FUNCTIONS, name); /* not seen by the walk, and taken back below */
}

static void expect_meta(const char *rows)
{
    struct buf found = {0};
    e->ops->meta.each(e, META_FUNCTIONS, meta_list, &found);
    assert_true(bytes_eq(buf_bytes(&found), bytes_str(rows)));
    buf_release(&found);
    e->ops->abort(e);
    e->ops->begin(e, NOW);
}

static void metadata(void **state)
{
    (void)state;
    open_checked(1);
    expect_meta("");
    meta_put("b", "1");
    meta_put("a", "2");
    meta_put("", "3"); /* a name may be empty */
    meta_put("a\xff", "");
    set_position("other");
    tick(NOW); /* with nothing else */
    open_checked(1);
    expect_meta("=3 a=2 a\xff= b=1 ");
    meta_put("b", "lost");
    meta_put("new", "lost");
    put(0, "k", 0);
    e->ops->abort(e);
    e->ops->begin(e, NOW);
    expect_meta("=3 a=2 a\xff= b=1 ");
    assert_false(has(0, "k"));
    e->ops->meta.del(e, META_FUNCTIONS, L("b"));
    meta_put("b", "4"); /* the last change counts */
    meta_put("a", "5");
    e->ops->meta.del(e, META_FUNCTIONS, L("a"));
    e->ops->meta.del(e, META_FUNCTIONS, L(""));
    e->ops->meta.del(e, META_FUNCTIONS, L("absent"));
    e->ops->flush(e, 0); /* it is no data */
    tick(NOW);
    meta_put("c", "not committed");
    open_checked(1);
    expect_meta("a\xff= b=4 ");
    expect_position("other");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gone_after_a_start), TEST(other_numbers), TEST(swapped_in), TEST(old_data_is_in_staging),
        TEST(abandoned_swap), TEST(index_does_not_grow), TEST(due_after_the_swap), TEST(dead_keys_stay),
        TEST(followed_at_time_0), TEST(replication_position), TEST(metadata),
    };
    return cmocka_run_group_tests_name("staging databases of RocksDB", tests, NULL, NULL);
}
