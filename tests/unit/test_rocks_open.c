/* Opening the rocks engine on a database that it can't serve: refused, with a reason. And rows that are dead
 * when they are read. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/rocks/rk.h"
#include "engine/rocks/store/store_impl.h"
#include "unit/rocks_folder.h"

#define L(s) BYTES_LIT(s)

static void put(u32 db, bytes key, bytes value, i64 deadline_ms)
{
    struct key_ref ref;
    e->ops->find(e, db, key, &ref);
    e->ops->str.put(e, db, key, &ref, value, deadline_ms);
}

/* -- fewer databases ----------------------------------------------------------------------------- */

static void fewer_databases(void **state)
{
    (void)state;
    struct key_ref ref;
    open_engine(16);
    put(0, L("a"), L("1"), 0);
    put(9, L("b"), L("2"), 0);
    tick(NOW);
    expect_refusal(9, "database 9 has keys");
    expect_refusal(1, "set 'databases' to 10 or more");
    open_engine(10);
    assert_true(e->ops->find(e, 9, L("b"), &ref));
    open_engine(64);
    e->ops->drop(e, (e->ops->find(e, 9, L("b"), &ref), &ref));
    tick(NOW);
    open_engine(1);
    assert_true(e->ops->find(e, 0, L("a"), &ref));
}

/* Databases that were swapped: what counts is the number a database has, not where its keys lie. */
static void fewer_databases_swapped(void **state)
{
    (void)state;
    struct key_ref ref;
    open_engine(16);
    put(12, L("k"), L("v"), 0);
    e->ops->swap(e, 12, 1);
    tick(NOW);
    open_engine(2);
    assert_true(e->ops->find(e, 1, L("k"), &ref));
    open_engine(16);
    e->ops->swap(e, 1, 14);
    tick(NOW);
    expect_refusal(2, "database 14 has keys");
    e = NULL;
    open_engine(16);
    e->ops->flush(e, 14);
    tick(NOW);
    open_engine(2);
    assert_int_equal(e->ops->count(e, 1), 0);
}

/* -- a state that can't be read -------------------------------------------------------------------- */

/* Breaks the first block of every table. */
static void break_tables(void)
{
    struct dirent *d;
    DIR *dir = opendir(path);
    while ((d = readdir(dir))) {
        char name[600];
        if (!strstr(d->d_name, ".sst")) continue;
        snprintf(name, sizeof name, "%s/%s", path, d->d_name);
        int fd = open(name, O_WRONLY);
        assert_int_equal(pwrite(fd, "broken", 6, 4), 6);
        close(fd);
    }
    closedir(dir);
}

static void unreadable_state(void **state)
{
    (void)state;
    open_engine(4);
    put(0, L("a"), L("1"), 0);
    tick(NOW);
    struct store_session *s = rk_of(e)->session;
    rocksdb_flushoptions_t *o = rocksdb_flushoptions_create();
    char *err = NULL;
    rocksdb_flush_cf(s->db, o, s->cf[FAM_INFO], &err);
    assert_null(err);
    rocksdb_flushoptions_destroy(o);
    close_engine();
    break_tables();
    expect_refusal(4, "state can't be read");
}

/* -- strings that are dead when they are read ------------------------------------------------------ */

static struct row *forgotten(u32 db, bytes key, struct key_ref *ref)
{
    struct rk *rk = rk_of(e);
    cache_share_release(&rk->row_share);
    for (u32 i = 0; i < 3; i++) tick(e->now_ms);
    cache_share_init(&rk->row_share, &rk->db->rows);
    assert_true(e->ops->find(e, db, key, ref));
    return row_of(ref);
}

/* Expiring them reads no values; a caller that asks gets them. */
static void dead_strings(void **state)
{
    (void)state;
    struct key_ref ref;
    struct str_view v;
    i64 number;
    open_engine(2);
    put(0, L("living"), L("value"), NOW + 1000);
    put(0, L("dying"), L("value"), NOW + 10);
    put(0, L("number"), L("12"), NOW + 10);
    put(0, L("empty"), L(""), NOW + 10);
    tick(NOW + 10);
    assert_false(forgotten(0, L("living"), &ref)->unread);
    assert_int_equal(row_of(&ref)->value.n, 5);
    assert_true(forgotten(0, L("dying"), &ref)->unread);
    assert_int_equal(row_of(&ref)->value.n, 0);
    assert_int_equal(e->ops->size(e, &ref), 5);
    e->ops->str.get(e, &ref, &v);
    assert_true(bytes_eq(v.b, L("value")));
    assert_true(forgotten(0, L("number"), &ref)->unread);
    assert_true(e->ops->str.get_int(e, &ref, &number) && number == 12);
    assert_false(forgotten(0, L("empty"), &ref)->unread);

    forgotten(0, L("dying"), &ref); /* its value goes where it goes … */
    e->ops->rename(e, &ref, 1, L("moved"));
    e->ops->set_deadline(e, &ref, 0);
    forgotten(1, L("moved"), &ref);
    e->ops->str.get(e, &ref, &v);
    assert_true(bytes_eq(v.b, L("value")));
    forgotten(0, L("number"), &ref); /* … and stays if only the deadline changes */
    e->ops->set_deadline(e, &ref, NOW + 5000);
    forgotten(0, L("number"), &ref);
    assert_true(e->ops->str.get_int(e, &ref, &number) && number == 12);

    put(0, L("dying"), L("value"), NOW + 11);
    tick(NOW + 20);
    assert_true(forgotten(0, L("dying"), &ref)->unread);
    memcpy(e->ops->str.edit(e, &ref, 7) + 5, "++", 2);
    e->ops->str.get(e, &ref, &v);
    assert_true(bytes_eq(v.b, L("value++")));
    assert_true(forgotten(0, L("dying"), &ref)->unread);
    e->ops->str.put(e, 0, L("dying"), &ref, L("new"), 0);
    e->ops->str.get(e, &ref, &v);
    assert_true(bytes_eq(v.b, L("new")));
    put(0, L("number"), L("7"), NOW + 21);
    tick(NOW + 30);
    assert_true(forgotten(0, L("number"), &ref)->unread);
    e->ops->drop(e, &ref);
    tick(NOW + 30);
    assert_false(e->ops->find(e, 0, L("number"), &ref));
    assert_false(e->failed);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(fewer_databases), TEST(fewer_databases_swapped), TEST(unreadable_state), TEST(dead_strings),
    };
    return cmocka_run_group_tests_name("opening on RocksDB", tests, NULL, NULL);
}
