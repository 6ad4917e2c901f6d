/* Staging databases: databases like all others, but hidden until they are swapped with one. */
#include <stdlib.h>

#include "suite.h"
#include "suite_model.h"

#define SEEN 2 /* databases; of the model's, the last one is the staging database of the first */

static engine_open_fn open_engine;
static struct world w;

static int setup(void **state)
{
    (void)state;
    suite_seed();
    world_open(&w, open_engine(SEEN, 12345));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_close(&w);
    return 0;
}

static void one_step(void)
{
    u32 db = below(DBS), id = below(IDS), what = below(1000);
    struct mval *m = &w.key[db][id];
    struct key_ref ref;
    if (below(8) == 0) {
        change_companion(&w, db, id);
    } else if (!world_find(&w, db, id, &ref)) {
        create_value(&w, db, id, 1 + below(6), &ref);
    } else if (what < 800) {
        for (u32 n = 1 + below(10); n > 0 && m->type != TYPE_NONE; n--) change_value(&w, &ref, m, 300);
    } else if (what < 900) {
        change_deadline(&w, &ref, m);
    } else if (what < 940) {
        drop_key(&w, &ref, m);
    } else if (what < 985) {
        rename_key(&w, &ref, m);
    } else if (what < 993) {
        swap_dbs(&w, below(DBS), below(DBS));
    } else if (what < 996) {
        flush_db(&w, below(DBS));
    } else {
        w.ops->reclaim(w.e, 1 + below(50));
    }
}

static void drain(void)
{
    world_tick(&w, below(below(10) ? 100 : 20000));
    for (u32 db = 0; db < SEEN; db++) drain_due(&w, db);
}

/* All primitives, of which only due() is not to show what is in the staging one. */
static void test_like_any_other(void **state)
{
    (void)state;
    for (u32 round = 0; round < 20; round++) {
        for (u32 n = 0; n < 500; n++) {
            one_step();
            if (below(10) == 0) world_tick(&w, below(below(10) ? 100 : 20000));
            if (below(50) == 0) drain();
        }
        check_world(&w);
    }
}

static void put(u32 db, u32 id, i64 deadline_ms)
{
    struct key_ref ref;
    struct mval *m = &w.key[db][id];
    if (!world_find(&w, db, id, &ref)) create_value(&w, db, id, TYPE_STRING, &ref);
    m->deadline_ms = deadline_ms;
    w.ops->set_deadline(w.e, &ref, deadline_ms);
}

/* What a full sync does: loads a dataset aside, swaps, drops the old one, all of it with dead keys. */
static void test_new_dataset(void **state)
{
    (void)state;
    for (u32 round = 0; round < 5; round++) {
        for (u32 id = 0; id < IDS; id++) {
            put(SEEN, id, id % 3 ? 0 : w.now_ms - 5000 + (i64)below(10000));
            if (below(10) == 0) world_tick(&w, 1);
        }
        assert_int_equal(w.ops->count(w.e, SEEN), IDS);
        swap_dbs(&w, 0, SEEN);
        flush_db(&w, SEEN);
        assert_int_equal(w.ops->count(w.e, 0), IDS);
        assert_int_equal(w.ops->count(w.e, SEEN), 0);
        world_tick(&w, 0);
        check_world(&w);
        drain(); /* now they are due */
        check_world(&w);
        for (u32 id = 0; id < IDS; id++) {
            i64 deadline_ms = w.key[0][id].deadline_ms;
            assert_true(!deadline_ms || alive(deadline_ms + 64, w.now_ms));
        }
    }
}

static void test_flush(void **state)
{
    (void)state;
    struct key_ref ref;
    for (u32 db = 0; db < DBS; db++) put(db, db, w.now_ms + 100);
    flush_db(&w, SEEN);
    w.ops->flush(w.e, SEEN + 1); /* the other staging one, in which nothing ever was */
    assert_false(w.ops->find(w.e, SEEN, text(SEEN), &ref));
    world_tick(&w, 0);
    check_world(&w);
    put(SEEN, 5, 0);
    put(SEEN, 6, w.now_ms + 50);
    world_tick(&w, 1000);
    check_world(&w);
    flush_db(&w, SEEN);
    put(SEEN, 7, w.now_ms + 50); /* in the same transaction */
    check_world(&w);
    world_tick(&w, 1000);
    check_world(&w);
    drain();
    check_world(&w);
    assert_int_equal(w.key[SEEN][7].type, TYPE_STRING);
}

/* -- snapshots ------------------------------------------------------------------------------------- */

static u32 came[SEEN][IDS];

static void came_out(void *arg, struct key_ref *ref)
{
    (void)arg;
    assert_true(ref->db < SEEN);
    came[ref->db][text_id(ref->key)]++;
}

static void hand_out(u32 most)
{
    struct key_ref ref;
    struct engine *of;
    for (; most && w.ops->snapshot.next(w.e, &ref, &of); most--)
        if (ref.type != TYPE_NONE) came_out(NULL, &ref);
}

static bool begin(void)
{
    while (w.ops->reclaim(w.e, 100)) {}
    world_tick(&w, 0);
    memset(came, 0, sizeof came);
    return w.ops->snapshot.begin(w.e, came_out, NULL);
}

static void test_snapshot(void **state)
{
    (void)state;
    if (!w.ops->snapshot.begin) skip();
    for (u32 id = 0; id < IDS; id += 2) put(1, id, 0);
    for (u32 id = 0; id < IDS; id++) put(SEEN, id, 0);
    if (begin()) { /* or it says: not now */
        hand_out(UINT32_MAX);
        w.ops->snapshot.end(w.e);
        for (u32 id = 0; id < IDS; id++) assert_int_equal(came[1][id], id % 2 == 0);
    }
    flush_db(&w, SEEN);
    assert_true(begin());
    hand_out(10);
    for (u32 id = 0; id < IDS; id++) put(SEEN, id, w.now_ms + 1000);
    hand_out(10);
    swap_dbs(&w, 1, SEEN);
    flush_db(&w, SEEN);
    world_tick(&w, 0);
    hand_out(10);
    for (u32 id = 0; id < IDS; id += 3) put(1, id, 0);
    hand_out(UINT32_MAX);
    w.ops->snapshot.end(w.e);
    for (u32 id = 0; id < IDS; id++) {
        assert_int_equal(came[0][id], 0);
        assert_int_equal(came[1][id], id % 2 == 0);
    }
    world_tick(&w, 0);
    check_world(&w);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int staging_suite(engine_open_fn open)
{
    open_engine = open;
    const struct CMUnitTest tests[] = {
        TEST(test_like_any_other), TEST(test_new_dataset), TEST(test_flush), TEST(test_snapshot),
    };
    return cmocka_run_group_tests_name("staging databases", tests, NULL, NULL);
}
