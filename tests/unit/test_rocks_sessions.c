/* Several sessions and views on one database: on one thread, and each on a thread of its own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>

#include "engine/rocks/codec.h"
#include "engine/rocks/store/store_impl.h"
#include "unit/rocks_helpers.h"

#define L(s) BYTES_LIT(s)
#define ROUNDS 300
#define TOGETHER 8 /* rows in one batch */

static char path[256];
static struct store *store;

static int setup(void **state)
{
    (void)state;
    struct buf why = {0};
    if (!folder_make(path, sizeof path, "sessions")) return -1;
    struct rocks_options o = rocks_small(path, 1);
    store = store_open(&o, false, &why);
    buf_release(&why);
    return store ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    store_close(store);
    folder_remove(path);
    return 0;
}

static bool has(struct store_session *s, bytes key, bytes value)
{
    struct store_value v;
    bool found = store_get(s, FAM_META, key, &v) && bytes_eq(v.b, value);
    store_value_release(&v);
    return found;
}

static void put(struct store_session *s, bytes key, bytes value)
{
    store_put(s, FAM_META, key, value);
    assert_true(store_write(s));
}

/* -- on one thread ------------------------------------------------------------------------------ */

static void batches_are_their_own(void **state)
{
    (void)state;
    bool failed[2] = {0};
    struct store_session *a = store_session_open(store, &failed[0]), *b = store_session_open(store, &failed[1]);
    store_put(a, FAM_META, L("a"), L("1"));
    store_put(b, FAM_META, L("b"), L("1"));
    store_discard(b);
    assert_false(store_batch_empty(a));
    assert_true(store_batch_empty(b));
    assert_true(store_write(a));
    assert_true(has(b, L("a"), L("1")));
    assert_false(has(a, L("b"), L("1")));
    store_damaged(b, "nothing; this is a test");
    assert_true(failed[1] && !failed[0]);
    store_session_close(a);
    store_session_close(b);
}

/* An iterator shows what was written when it was made: a write of another session does not take it back. */
static void iterators_are_their_own(void **state)
{
    (void)state;
    bool failed = false;
    struct store_session *a = store_session_open(store, &failed), *b = store_session_open(store, &failed);
    put(a, L("x"), L("1"));
    struct store_iter *it = store_iter(a, FAM_META, L("x"), L("y"), 0);
    store_seek_first(it);
    put(b, L("x"), L("2"));
    assert_true(store_valid(it) && bytes_eq(store_iter_value(it), L("1")));
    store_end_tick(a);
    assert_true(has(a, L("x"), L("2")));
    store_session_close(a);
    store_session_close(b);
    assert_false(failed);
}

static void each_view_shows_its_moment(void **state)
{
    (void)state;
    enum { VIEWS = 4 };
    bool failed = false;
    char value[VIEWS];
    struct store_session *s = store_session_open(store, &failed), *v[VIEWS];
    for (u32 i = 0; i < VIEWS; i++) {
        value[i] = (char)('a' + i);
        put(s, L("v"), bytes_of(&value[i], 1));
        v[i] = store_view(store, 10 * (i + 1), &failed);
        assert_non_null(v[i]);
    }
    put(s, L("v"), L("last"));
    /* Filters keep what the youngest of them can read, until it has gone. */
    assert_int_equal(atomic_load(&store->filters.kept_version), 40);
    store_view_close(v[3]);
    assert_int_equal(atomic_load(&store->filters.kept_version), 30);
    store_view_close(v[0]);
    for (u32 i = 1; i < 3; i++) assert_true(has(v[i], L("v"), bytes_of(&value[i], 1)));
    assert_int_equal(atomic_load(&store->filters.kept_version), 30);
    store_view_close(v[1]);
    store_view_close(v[2]);
    assert_int_equal(atomic_load(&store->filters.kept_version), 0);
    store_session_close(s);
    assert_false(failed);
}

static i64 dead_ms(void) { return atomic_load(&store->filters.dead_ms); }

/* A session of the Raft log knows of no keys: others decide, and without them nothing is dead. */
static void logs_have_no_say_in_it(void **state)
{
    (void)state;
    bool failed = false;
    struct store_session *l = store_log_session_open(store, &failed);
    assert_int_equal(dead_ms(), 0);
    struct store_session *a = store_session_open(store, &failed);
    store_set_dead(a, 500);
    assert_int_equal(dead_ms(), 500);
    struct store_session *m = store_log_session_open(store, &failed);
    assert_int_equal(dead_ms(), 500);
    store_session_close(a);
    assert_int_equal(dead_ms(), 0);
    store_session_close(m);
    store_session_close(l);
}

/* A compaction may take what is dead for every session, and nothing more while there is a view. */
static void dead_is_what_all_say(void **state)
{
    (void)state;
    bool failed = false;
    struct store_session *a = store_session_open(store, &failed);
    store_set_dead(a, 500);
    assert_int_equal(dead_ms(), 500);
    struct store_session *b = store_session_open(store, &failed); /* which has said nothing yet */
    assert_int_equal(dead_ms(), 0);
    store_set_dead(b, 300);
    assert_int_equal(dead_ms(), 300);
    struct store_session *v = store_view(store, 1, &failed), *w = store_view(store, 1, &failed);
    store_set_dead(b, 400);
    assert_int_equal(dead_ms(), 300);
    store_view_close(v);
    assert_int_equal(dead_ms(), 300);
    store_view_close(w);
    assert_int_equal(dead_ms(), 400);
    store_session_close(b);
    assert_int_equal(dead_ms(), 500);
    store_session_close(a);
}

static void relaxing_is_the_sessions(void **state)
{
    (void)state;
    bool failed = false;
    struct store_session *a = store_session_open(store, &failed), *b = store_session_open(store, &failed);
    store_set_sync(store, DISK_SYNC_ALWAYS);
    store_relax(a, true);
    put(a, L("r"), L("1"));
    put(b, L("s"), L("1"));
    assert_false(a->syncs);
    assert_true(b->syncs);
    store_relax(a, false);
    put(a, L("r"), L("2"));
    assert_true(a->syncs);
    store_session_close(a);
    store_session_close(b);
}

/* Batches that are written together: small ones, empty ones, and ones that are too large to be joined. */
static void batches_together(void **state)
{
    (void)state;
    enum { SESSIONS = 5, LARGE = 200 << 10 };
    bool failed = false;
    struct store_session *s[SESSIONS];
    char *large = calloc(1, LARGE);
    for (u32 i = 0; i < SESSIONS; i++) s[i] = store_session_open(store, &failed);
    for (u32 round = 0; round < 3; round++) {
        u64 written = store_written(store);
        for (u32 i = 0; i < SESSIONS; i++) {
            char key[] = {'t', (char)('a' + i)}, value = (char)('0' + round);
            if (i == 2) continue; /* it has nothing to write */
            store_put(s[i], FAM_META, L("t"), bytes_of(&value, 1)); /* the last one counts */
            store_put(s[i], FAM_META, bytes_of(key, 2), round == 1 ? bytes_of(large, LARGE) : bytes_of(&value, 1));
            if (round == 2 && i == 4) store_delete(s[i], FAM_META, L("ta"));
        }
        assert_true(store_write_all(s, SESSIONS));
        assert_true(store_written(store) > written);
        for (u32 i = 0; i < SESSIONS; i++) assert_true(store_batch_empty(s[i]));
    }
    assert_true(has(s[2], L("t"), L("2")) && has(s[2], L("tb"), L("2")) && has(s[2], L("te"), L("2")));
    assert_false(has(s[2], L("ta"), L("2")) || has(s[2], L("tc"), L("2")));
    assert_true(store_session_written(s[2]) == 0 && store_session_written(s[0]) > LARGE);
    for (u32 i = 0; i < SESSIONS; i++) store_session_close(s[i]);
    free(large);
    assert_false(failed);
}

/* -- on a thread each ------------------------------------------------------------------------------ */

struct writer {
    pthread_t thread;
    u16 slot; /* its rows are in this one */
    u32 written;
    bool ok;
};

static bytes row_name(char *out, u16 slot, u32 i)
{
    return bytes_of(out, (size_t)snprintf(out, 32, "%05u:%u", slot, i));
}

/* Batches of TOGETHER rows that all have the number of their round, then reads them back. */
static void *write_rounds(void *arg)
{
    struct writer *w = arg;
    bool failed = false, ok = true;
    struct store_session *s = store_session_open(store, &failed);
    char name[32], round[32];
    for (u32 n = 1; n <= ROUNDS && ok; n++) {
        bytes value = bytes_of(round, (size_t)snprintf(round, sizeof round, "%u", n));
        for (u32 i = 0; i < TOGETHER; i++) store_put(s, FAM_META, row_name(name, w->slot, i), value);
        if (n % 10 == 0) store_delete_range(s, FAM_DATA, row_name(name, w->slot, 0), L("~"));
        ok = store_write(s);
        store_set_dead(s, (i64)n);
        store_orphaned(store, FAM_META, 1);
        for (u32 i = 0; i < TOGETHER && ok; i++) ok = has(s, row_name(name, w->slot, i), value);
        ok = ok && !store_refuses_writes(s);
        w->written += ok;
    }
    store_session_close(s);
    w->ok = ok && !failed;
    return NULL;
}

/* A view must show whole batches: all rows of a slot have the same value, however often they are looked at. */
static bool view_is_whole(struct store_session *v, u16 slot)
{
    char first[32], last[32];
    struct buf value = {0};
    u32 rows = 0;
    bool same = true;
    struct store_iter *it = store_iter(v, FAM_META, row_name(first, slot, 0), row_name(last, slot, TOGETHER), 0);
    for (store_seek_first(it); store_valid(it) && same; store_next(it), rows++) {
        if (!rows) buf_append_bytes(&value, store_iter_value(it));
        same = bytes_eq(store_iter_value(it), buf_bytes(&value));
    }
    store_iter_done(it);
    same = same && (rows == 0 || (rows == TOGETHER && has(v, row_name(first, slot, 0), buf_bytes(&value))));
    buf_release(&value);
    return same;
}

static void *read_views(void *arg)
{
    bool *ok = arg, failed = false;
    for (u32 n = 0; n < 50 && *ok; n++) {
        struct store_session *older = store_view(store, n, &failed), *younger = store_view(store, n, &failed);
        *ok = older && younger;
        for (u16 slot = 1; slot <= 2 && *ok; slot++)
            *ok = view_is_whole(older, slot) && view_is_whole(younger, slot);
        store_view_close(older);
        store_view_close(younger);
    }
    *ok = *ok && !failed;
    return NULL;
}

static void a_thread_each(void **state)
{
    (void)state;
    struct writer w[2] = {{.slot = 1}, {.slot = 2}};
    bool views_ok = true;
    pthread_t reader;
    struct buf info = {0};
    for (u32 i = 0; i < 2; i++) assert_int_equal(pthread_create(&w[i].thread, NULL, write_rounds, &w[i]), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_views, &views_ok), 0);
    bool failed = false;
    struct store_session *own = store_session_open(store, &failed);
    for (u32 i = 0; i < 20; i++) { /* what the loop does meanwhile */
        store_cron(store);
        store_info(own, &info);
        store_pressure(store, true);
    }
    store_session_close(own);
    for (u32 i = 0; i < 2; i++) pthread_join(w[i].thread, NULL);
    pthread_join(reader, NULL);
    buf_release(&info);
    for (u32 i = 0; i < 2; i++) assert_true(w[i].ok && w[i].written == ROUNDS);
    assert_true(views_ok);
    assert_true(!store->sessions && !store->views && !failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(batches_are_their_own, setup, teardown),
        cmocka_unit_test_setup_teardown(iterators_are_their_own, setup, teardown),
        cmocka_unit_test_setup_teardown(each_view_shows_its_moment, setup, teardown),
        cmocka_unit_test_setup_teardown(dead_is_what_all_say, setup, teardown),
        cmocka_unit_test_setup_teardown(logs_have_no_say_in_it, setup, teardown),
        cmocka_unit_test_setup_teardown(relaxing_is_the_sessions, setup, teardown),
        cmocka_unit_test_setup_teardown(batches_together, setup, teardown),
        cmocka_unit_test_setup_teardown(a_thread_each, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
