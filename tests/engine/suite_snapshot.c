/* Snapshots: whatever changes meanwhile, every key of the moment comes out exactly once, as it was. */
#include <stdlib.h>

#include "base/alloc.h"
#include "suite.h"
#include "suite_model.h"

static engine_open_fn open_engine;
static struct world w;

/* The data of the moment, as the model had it, and what has come out of it. */
static struct {
    struct world at; /* its engine is the one that reads the key in hand */
    bool taken[DBS][IDS], companion_taken[DBS][IDS];
    u32 left;
    struct key_ref given; /* handed out last … */
    struct engine *given_of;
    bool is_given;        /* … and still as it was */
    u32 kept;
} snap;

static int setup(void **state)
{
    (void)state;
    suite_seed();
    world_open(&w, open_engine(DBS, 12345));
    memset(&snap, 0, sizeof snap);
    suite_ring = 0;
    return 0;
}

static void moment_clear(void)
{
    for (u32 db = 0; db < DBS; db++)
        for (u32 id = 0; id < IDS; id++) {
            mval_clear(&snap.at.key[db][id]);
            mval_clear(&snap.at.companion[db][id]);
        }
}

static int teardown(void **state)
{
    (void)state;
    world_close(&w); /* perhaps with a snapshot under way */
    moment_clear();
    return 0;
}

/* -- what comes out --------------------------------------------------------------------------- */

/* One that stays comes by itself: what the key shows of it may be newer. */
static void check_companion_of_key(struct engine *of, struct key_ref *ref, struct mval *companion)
{
    bytes head;
    if (!of->ops->companion.head) return;
    if (companion->type != TYPE_NONE && !companion->size) compare_companion(&snap.at, ref, companion);
    else assert_int_equal(of->ops->companion.head(of, ref, &head), of->ops->companion.kept(of, ref));
}

/* All of the value, or of a companion that stays, read as of the moment. */
static void check_as_it_was(struct engine *of, struct key_ref *ref)
{
    u32 id = text_id(ref->key);
    struct mval *m = &snap.at.key[ref->db][id], *companion = &snap.at.companion[ref->db][id];
    i64 now_ms = of->now_ms;
    snap.at.e = of;
    snap.at.ops = of->ops;
    if (ref->type == TYPE_NONE) {
        assert_true(companion->type != TYPE_NONE && companion->size);
        compare_companion(&snap.at, ref, companion);
        return;
    }
    assert_true(m->type != TYPE_NONE);
    of->now_ms = snap.at.now_ms;
    assert_int_equal(ref->type, m->type);
    assert_int_equal(ref->deadline_ms, m->deadline_ms);
    check_value(&snap.at, ref, m);
    check_companion_of_key(of, ref, companion);
    of->now_ms = now_ms;
}

static void take(struct engine *of, struct key_ref *ref)
{
    assert_true(ref->db < DBS);
    bool *taken = &(ref->type == TYPE_NONE ? snap.companion_taken : snap.taken)[ref->db][text_id(ref->key)];
    assert_false(*taken);
    *taken = true;
    snap.left--;
    check_as_it_was(of, ref);
}

static void keep(void *arg, struct key_ref *ref)
{
    assert_ptr_equal(arg, &snap);
    suite_ring = 1;
    snap.kept++;
    bool same_kind = (ref->type == TYPE_NONE) == (snap.given.type == TYPE_NONE);
    if (snap.is_given && same_kind && ref->db == snap.given.db && bytes_eq(ref->key, snap.given.key)) {
        check_as_it_was(w.e, ref);
        snap.is_given = false;
    } else {
        take(w.e, ref);
    }
    suite_ring = 0;
}

/* False if the engine can't just now. */
static bool begin(void)
{
    if (!w.ops->snapshot.begin(w.e, keep, &snap)) return false;
    moment_clear();
    memset(snap.taken, 0, sizeof snap.taken);
    memset(snap.companion_taken, 0, sizeof snap.companion_taken);
    snap.is_given = false;
    snap.left = snap.kept = 0;
    snap.at.now_ms = w.now_ms;
    for (u32 db = 0; db < DBS; db++) {
        for (u32 id = 0; id < IDS; id++) {
            const struct mval *companion = &w.companion[db][id];
            mval_copy(&snap.at.companion[db][id], companion, INT64_MIN);
            if (companion->type != TYPE_NONE && companion->size) snap.left++;
            if (w.key[db][id].type == TYPE_NONE) continue;
            mval_copy(&snap.at.key[db][id], &w.key[db][id], INT64_MIN); /* dead fields too */
            snap.left++;
        }
    }
    return true;
}

/* Right after a commit, when what a snapshot left behind is cleared away, it always can. */
static void begin_surely(void)
{
    while (w.ops->reclaim(w.e, 100)) {}
    world_tick(&w, 1);
    assert_true(begin());
}

static bool next(void)
{
    if (snap.is_given) check_as_it_was(snap.given_of, &snap.given);
    snap.is_given = false;
    if (!w.ops->snapshot.next(w.e, &snap.given, &snap.given_of)) return false;
    if (snap.given.type == TYPE_NONE && !snap.given.entry) return true;
    take(snap.given_of, &snap.given);
    snap.is_given = true;
    return true;
}

static void end(void)
{
    snap.is_given = false;
    w.ops->snapshot.end(w.e);
}

static void finish(void)
{
    while (next()) {}
    assert_int_equal(snap.left, 0);
    end();
}

/* -- what changes meanwhile --------------------------------------------------------------------- */

static void overwrite(struct key_ref *ref, struct mval *m)
{
    struct buf value = {0};
    u32 n = below(4) ? below(100) : below(150000);
    i64 deadline_ms = below(2) ? 0 : w.now_ms + 1 + below(50000);
    while (value.n < n) buf_append_char(&value, (char)('a' + below(26)));
    w.ops->str.put(w.e, ref->db, text(text_id(ref->key)), ref, buf_bytes(&value), deadline_ms);
    mval_clear(m);
    *m = (struct mval){.type = TYPE_STRING, .deadline_ms = deadline_ms, .str = value};
}

static void one_step(void)
{
    u32 db = below(DBS), id = below(IDS), what = below(1000);
    struct mval *m = &w.key[db][id];
    struct key_ref ref;
    if (below(6) == 0) {
        change_companion(&w, db, id);
    } else if (!world_find(&w, db, id, &ref)) {
        create_value(&w, db, id, 1 + below(6), &ref);
    } else if (what < 600) {
        for (u32 n = 1 + below(below(5) ? 5 : 300); n > 0 && m->type != TYPE_NONE; n--)
            change_value(&w, &ref, m, 300);
    } else if (what < 700) {
        change_deadline(&w, &ref, m);
    } else if (what < 780) {
        drop_key(&w, &ref, m);
    } else if (what < 900) {
        struct key_ref out;
        if (below(2)) copy_key(&w, &ref, m, &out);
        else rename_key(&w, &ref, m);
    } else if (what < 970) {
        overwrite(&ref, m);
    } else if (what < 975) {
        swap_dbs(&w, db, below(DBS));
    } else if (what < 977) {
        flush_db(&w, db);
    } else {
        w.ops->reclaim(w.e, 1 + below(50));
    }
}

static void some_steps(u32 n)
{
    while (n--) {
        one_step();
        if (below(20) == 0) world_tick(&w, below(below(10) ? 100 : 20000));
        if (below(50) == 0) drain_due(&w, below(DBS));
    }
}

/* -- tests ---------------------------------------------------------------------------------------- */

static bool none_here(void)
{
    if (w.ops->snapshot.begin) return false;
    skip();
    return true;
}

static void test_while_all_changes(void **state)
{
    (void)state;
    if (none_here()) return;
    for (u32 round = 0; round < ROUNDS(60); round++) {
        some_steps(below(round % 10 ? 400 : 3000));
        if (below(2) || !begin()) begin_surely();
        u32 pace = 1 + below(20); /* from much slower to much faster than the walk */
        while (next()) some_steps(below(2) ? 0 : below(pace));
        assert_int_equal(snap.left, 0);
        some_steps(below(50)); /* none of it is the snapshot's business any more */
        end();
        check_world(&w);
    }
}

/* The rest is forgotten; and the next one knows nothing of it. */
static void test_early_end(void **state)
{
    (void)state;
    if (none_here()) return;
    for (u32 round = 0; round < ROUNDS(60); round++) {
        some_steps(below(400));
        begin_surely();
        for (u32 n = below(300); n > 0 && next(); n--) some_steps(below(3));
        end();
        u32 kept = snap.kept;
        some_steps(below(200));
        assert_int_equal(snap.kept, kept);
        if (below(2)) {
            while (!begin()) {
                some_steps(below(3));
                w.ops->reclaim(w.e, 10);
                world_tick(&w, 0);
            }
        } else {
            begin_surely();
        }
        some_steps(below(100));
        finish();
        check_world(&w);
    }
}

static void test_flush_and_swap(void **state)
{
    (void)state;
    if (none_here()) return;
    for (u32 round = 0; round < ROUNDS(30); round++) {
        some_steps(500);
        begin_surely();
        for (u32 n = below(100); n > 0 && next(); n--) {}
        swap_dbs(&w, 0, 1);
        some_steps(below(20));
        flush_db(&w, 1); /* where the walk is, or was, or has not been yet */
        some_steps(below(20));
        swap_dbs(&w, 1, 2);
        for (u32 n = below(50); n > 0 && next(); n--) {}
        flush_db(&w, below(DBS));
        while (w.ops->reclaim(w.e, 10)) {} /* frees nothing that is still to come out */
        if (below(3)) finish();
        else end();
        check_world(&w);
    }
}

/* The key in hand changes or goes: keep() hears of it, or it stays readable. */
static void change_given(void)
{
    u32 id = text_id(snap.given.key), db = snap.given.db; /* no swaps here: it is where it was */
    struct mval *m = &w.key[db][id];
    struct key_ref ref;
    u32 what = below(7);
    if (what == 6) {
        change_companion(&w, db, id);
    } else if (what == 0) {
        flush_db(&w, db);
    } else if (world_find(&w, db, id, &ref)) {
        if (what < 3) drop_key(&w, &ref, m);
        else if (what < 5) overwrite(&ref, m);
        else change_value(&w, &ref, m, 300);
    }
    if (what < 3 && below(2) && m->type == TYPE_NONE) create_value(&w, db, id, 1 + below(6), &ref);
    while (w.ops->reclaim(w.e, 10)) {}
}

static void test_given_changes(void **state)
{
    (void)state;
    if (none_here()) return;
    for (u32 round = 0; round < ROUNDS(40); round++) {
        for (u32 n = 0; n < 300; n++) {
            u32 db = below(DBS), id = below(IDS);
            struct mval *m = &w.key[db][id];
            struct key_ref ref;
            if (!world_find(&w, db, id, &ref)) create_value(&w, db, id, 1 + below(6), &ref);
            while (m->type > TYPE_STRING && m->n < 100) change_value(&w, &ref, m, 300);
        }
        begin_surely();
        while (next()) {
            if (snap.is_given && below(3) == 0) change_given();
        }
        assert_int_equal(snap.left, 0);
        end();
        check_world(&w);
    }
}

static void test_nothing_there(void **state)
{
    (void)state;
    if (none_here()) return;
    begin_surely();
    some_steps(100);
    finish();
    assert_int_equal(snap.kept, 0);
    for (u32 db = 0; db < DBS; db++) flush_db(&w, db);
    begin_surely();
    finish();
}

/* Many keys, in a table that shrinks and grows under the walk. */
#define MANY 6000

static u8 came[MANY];
static u32 given; /* handed out last, and not kept since */

static void came_out(void *arg, struct key_ref *ref)
{
    (void)arg;
    suite_ring = 1;
    u32 id = text_id(ref->key);
    suite_ring = 0;
    assert_true(id < MANY);
    assert_int_equal(ref->db, 1);
    if (id == given) given = NONE;
    else came[id]++;
}

static void put_or_drop(u32 id, bool put)
{
    struct key_ref ref;
    bool found = w.ops->find(w.e, 1, text(id), &ref);
    if (put) w.ops->str.put(w.e, 1, text(id), &ref, text(id), 0);
    else if (found) w.ops->drop(w.e, &ref);
}

static void test_table_changes(void **state)
{
    (void)state;
    if (none_here()) return;
    struct key_ref ref;
    struct engine *of;
    for (u32 round = 0; round < 6; round++) {
        memset(came, 0, sizeof came);
        for (u32 id = 0; id < 4 * MANY; id++) put_or_drop(id, id < MANY);
        while (w.ops->reclaim(w.e, 1000)) {}
        world_tick(&w, 1);
        assert_true(w.ops->snapshot.begin(w.e, came_out, NULL));
        given = NONE;
        for (u32 n = 0; w.ops->snapshot.next(w.e, &ref, &of); n++) {
            u32 id = given = ref.type == TYPE_NONE ? NONE : text_id(ref.key);
            if (id != NONE) came[id]++;
            if (id != NONE && of == w.e && below(8) == 0) {
                put_or_drop(id, below(2));
                assert_int_equal(given, NONE); /* keep() was told */
            }
            id = below(4 * MANY);
            bool shrinking = n / 1000 % 2 == round % 2;
            for (u32 k = 0; k < round; k++) put_or_drop((id + k) % (4 * MANY), !shrinking);
        }
        w.ops->snapshot.end(w.e);
        for (u32 id = 0; id < MANY; id++) assert_int_equal(came[id], 1);
    }
    w.ops->flush(w.e, 1);
}

/* An engine may be closed with a snapshot under way. */
static void test_left_open(void **state)
{
    (void)state;
    if (none_here()) return;
    some_steps(2000);
    begin_surely();
    for (u32 n = 0; n < 50; n++) {
        some_steps(3);
        next();
    }
    if (strcmp(w.ops->name, "memory") != 0) end(); /* a view of RocksDB is closed by who opened it */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int snapshot_suite(engine_open_fn open)
{
    open_engine = open;
    const struct CMUnitTest tests[] = {
        TEST(test_while_all_changes), TEST(test_early_end), TEST(test_flush_and_swap),
        TEST(test_given_changes), TEST(test_nothing_there), TEST(test_table_changes), TEST(test_left_open),
    };
    return cmocka_run_group_tests_name("snapshots", tests, NULL, NULL);
}
