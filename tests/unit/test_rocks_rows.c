/* Streams of the rocks engine: what the suite can't see. The bytes in the database, ranges that are erased
 * as such, what is left behind, and databases from before there were streams. */
#include "engine/rocks/delta.h"
#include "engine/rocks/store/store_impl.h"
#include "unit/rocks_helpers.h"

#include "base/rand.h"

#define NOW 1700000000000
#define L(s) BYTES_LIT(s)

static char path[256];
static struct engine *e;

static void close_engine(void)
{
    if (e) e->ops->close(e);
    e = NULL;
}

static void open_engine(void)
{
    struct rocks_options o = rocks_small(path, 2);
    close_engine();
    e = rocks_must_open(&o);
    e->ops->begin(e, NOW);
}

static int setup(void **state)
{
    (void)state;
    if (!folder_make(path, sizeof path, "rows")) return -1;
    open_engine();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    close_engine();
    folder_remove(path);
    return 0;
}

static void tick(void)
{
    assert_false(e->failed);
    assert_true(e->ops->commit(e, e->applied + 1));
    e->ops->begin(e, NOW);
}

static struct store_session *store(void) { return rk_of(e)->session; }

static bytes name_of(u32 i)
{
    static char name[8][5];
    static u32 turn;
    char *p = name[turn++ % 8];
    p[0] = 'e';
    put_u32(p + 1, i);
    return bytes_of(p, 5);
}

static void find(struct key_ref *ref) { assert_true(e->ops->find(e, 0, L("s"), ref)); }

static void make(struct key_ref *ref, u32 rows)
{
    e->ops->create(e, 0, L("s"), TYPE_STREAM, ref);
    for (u32 i = 0; i < rows; i++) e->ops->rows.put(e, ref, name_of(i), L("some value"));
    e->ops->rows.set_head(e, ref, L("head"), rows);
}

static u64 rows_of(enum family f)
{
    u64 n = 0;
    store_drop_idle(store()); /* they show what was before a compaction */
    struct store_iter *it = store_iter(store(), f, (bytes){0}, (bytes){0}, STORE_ONCE);
    for (store_seek_first(it); store_valid(it); store_next(it)) n++;
    store_iter_done(it);
    return n;
}

static void compact(enum family f)
{
    rocksdb_compactoptions_t *o = rocksdb_compactoptions_create();
    rocksdb_compactoptions_set_bottommost_level_compaction(o, 2); /* the filters are to see everything */
    rocksdb_compact_range_cf_opt(store()->db, store()->cf[f], o, NULL, 0, NULL, 0);
    rocksdb_compactoptions_destroy(o);
}

/* -- the bytes --------------------------------------------------------------------------------- */

static void assert_row(enum family f, bytes key, bytes value)
{
    struct store_value v;
    assert_true(store_get(store(), f, key, &v));
    assert_true(bytes_eq(v.b, value));
    store_value_release(&v);
}

static void layout(void **state)
{
    (void)state;
    struct key_ref ref;
    struct buf key = {0}, meta = {0};
    e->ops->create(e, 0, L("s"), TYPE_STREAM, &ref);
    e->ops->rows.put(e, &ref, L("row"), L("value"));
    e->ops->rows.put(e, &ref, L(""), L(""));
    e->ops->rows.set_head(e, &ref, L("head"), 1);
    tick();
    find(&ref);
    u64 version = row_of(&ref)->version;
    codec_key(&key, 1, 1, L("s"));
    buf_append_str(&meta, "\x86");
    append_u64(&meta, 0);
    append_u64(&meta, version);
    append_u64(&meta, 1);
    buf_append_str(&meta, "head");
    assert_row(FAM_META, buf_bytes(&key), buf_bytes(&meta));
    append_u64(&key, version);
    assert_row(FAM_STREAM, buf_bytes(&key), L(""));
    buf_append_str(&key, "row");
    assert_row(FAM_STREAM, buf_bytes(&key), L("value"));
    assert_int_equal(rows_of(FAM_STREAM), 2);
    assert_int_equal(rows_of(FAM_DATA), 0);
    buf_release(&key);
    buf_release(&meta);
}

/* -- what is erased ---------------------------------------------------------------------------- */

/* A big range is one tombstone, not one for each row; and what was put back into it stays. */
static void ranges(void **state)
{
    (void)state;
    struct key_ref ref;
    make(&ref, 5000);
    tick();
    find(&ref);
    size_t empty = store_batch_size(store());
    assert_int_equal(e->ops->rows.erase(e, &ref, name_of(0), name_of(4000)), 4000);
    assert_int_equal(e->ops->rows.erase(e, &ref, name_of(0), name_of(4000)), 0);
    e->ops->rows.put(e, &ref, name_of(1000), L("back"));
    e->ops->rows.set_head(e, &ref, L("head"), 1001);
    row_write_all(rk_of(e));
    assert_in_range(store_batch_size(store()) - empty, 1, 300 * 60);
    store_discard(store());
    tick();
    assert_int_equal(rows_of(FAM_STREAM), 1001);
    compact(FAM_STREAM);
    assert_int_equal(rows_of(FAM_STREAM), 1001);
    open_engine();
    find(&ref);
    assert_true(e->ops->rows.get(e, &ref, name_of(1000), NULL));
    assert_false(e->ops->rows.get(e, &ref, name_of(999), NULL));
    assert_true(e->ops->rows.get(e, &ref, name_of(4000), NULL));
}

/* What was trimmed away is given back. */
static void trimmed(void **state)
{
    (void)state;
    struct key_ref ref;
    make(&ref, 20000);
    tick();
    for (u32 i = 0; i < 19000; i += 100) {
        find(&ref);
        assert_int_equal(e->ops->rows.erase(e, &ref, name_of(i), name_of(i + 100)), 100);
        e->ops->rows.set_head(e, &ref, L("head"), 0);
        tick();
    }
    assert_true(atomic_load(&store()->store->garbage[FAM_STREAM]) >= 19000); /* so that it is swept */
    compact(FAM_STREAM);
    u64 left = store_number(store()->store, FAM_STREAM, "rocksdb.estimate-num-keys");
    assert_in_range(left, 1000, 1100);
}

/* A dropped stream goes at once, big or small, and its rows by range or with the next compaction. */
static void dropped(void **state)
{
    (void)state;
    struct key_ref ref;
    for (u32 rows = 10; rows <= 1000; rows += 990) {
        make(&ref, rows);
        tick();
        find(&ref);
        e->ops->drop(e, &ref);
        tick();
        assert_false(e->ops->find(e, 0, L("s"), &ref));
        assert_int_equal(rows_of(FAM_STREAM), rows == 10 ? 10 : 0);
        compact(FAM_STREAM);
        assert_int_equal(rows_of(FAM_STREAM), 0);
        make(&ref, 3); /* another of the same name has nothing of it */
        tick();
        find(&ref);
        assert_false(e->ops->rows.get(e, &ref, name_of(5), NULL));
        assert_int_equal(rows_of(FAM_STREAM), 3);
        e->ops->drop(e, &ref);
        tick();
        compact(FAM_STREAM);
    }
    make(&ref, 300);
    tick();
    e->ops->flush(e, 0);
    tick();
    assert_int_equal(rows_of(FAM_STREAM), 0);
}

/* A queue: rows come at the end and go at the front. A reader there passes what has gone since
 * somebody last did, not all that ever went. */
static void queue(void **state)
{
    (void)state;
    enum { LONG = 3000, LENGTH = 10 };
    struct key_ref ref;
    struct rows_iter it;
    bytes name;
    make(&ref, LENGTH);
    tick();
    u64 skipped = store_tombstones_skipped(store());
    for (u32 i = 0; i < LONG; i++) {
        find(&ref);
        e->ops->rows.put(e, &ref, name_of(i + LENGTH), L("value"));
        assert_int_equal(e->ops->rows.erase(e, &ref, L("e"), name_of(i + 1)), 1);
        e->ops->rows.iter(e, &ref, L("e"), false, &it);
        assert_true(e->ops->rows.next(&it, &name, NULL));
        assert_true(bytes_eq(name, name_of(i + 1)));
        tick();
    }
    assert_in_range(store_tombstones_skipped(store()) - skipped, LONG / 2, 40 * LONG);
    find(&ref);
    assert_int_equal(e->ops->rows.erase(e, &ref, L("e"), L("f")), LENGTH);
    tick();
    e->ops->rows.iter(e, &ref, L("e"), false, &it); /* nothing is left: that is known, too … */
    assert_false(e->ops->rows.next(&it, &name, NULL));
    e->ops->rows.put(e, &ref, name_of(5), L("value"));
    tick();
    find(&ref);
    e->ops->rows.iter(e, &ref, L("e"), false, &it); /* … until there is something */
    assert_true(e->ops->rows.next(&it, &name, NULL));
    assert_true(bytes_eq(name, name_of(5)));
    e->ops->rows.iter(e, &ref, L("ee"), true, &it);
    assert_true(e->ops->rows.next(&it, &name, NULL));
    assert_false(e->ops->rows.next(&it, &name, NULL));
}

/* If the caller wants no count, no row is read; rows changed by the transaction go, too. */
static void wiped(void **state)
{
    (void)state;
    struct key_ref ref;
    make(&ref, 5000);
    tick();
    find(&ref);
    assert_true(e->ops->rows.get(e, &ref, name_of(7), NULL));
    e->ops->rows.put(e, &ref, name_of(8), L("changed"));
    u64 made = store()->iterators_made, reused = store()->iterators_reused;
    e->ops->rows.wipe(e, &ref, name_of(0), name_of(4000), 4000);
    assert_int_equal(store()->iterators_made + store()->iterators_reused, made + reused);
    for (u32 i = 6; i < 9; i++) assert_false(e->ops->rows.get(e, &ref, name_of(i), NULL));
    e->ops->rows.put(e, &ref, name_of(9), L("back"));
    e->ops->rows.set_head(e, &ref, L("head"), 1001);
    tick();
    assert_int_equal(rows_of(FAM_STREAM), 1001);
}

/* A walk that is ended leaves its iterator to the next one. */
static void ended_walks(void **state)
{
    (void)state;
    struct key_ref ref;
    struct rows_iter it;
    bytes name;
    make(&ref, 100);
    tick();
    find(&ref);
    u64 made = store()->iterators_made;
    for (u32 i = 0; i < 100; i++) {
        e->ops->rows.iter(e, &ref, name_of(i), false, &it);
        assert_true(e->ops->rows.next(&it, &name, NULL));
        assert_true(bytes_eq(name, name_of(i)));
        e->ops->rows.done(&it);
    }
    assert_int_equal(store()->iterators_made, made + 1);
}

/* Many ranges, in any order, against an array. */
static void erased_ranges(void **state)
{
    (void)state;
    enum { N = 200 };
    struct rk *rk = rk_of(e);
    struct key_ref ref;
    u64 rng = 1;
    for (u32 round = 0; round < 200; round++) {
        bool gone[N] = {false};
        e->ops->create(e, 0, L("s"), TYPE_STREAM, &ref);
        struct row *r = row_of(&ref);
        for (u32 n = rand_below(&rng, 20); n > 0; n--) {
            u32 from = (u32)rand_below(&rng, N), to = from + 1 + (u32)rand_below(&rng, 20);
            delta_erase_range(rk, r, delta_keep(rk, name_of(from)), delta_keep(rk, name_of(to)), false);
            for (u32 i = from; i < MIN(to, N); i++) gone[i] = true;
            const struct erased_ranges *c = r->delta->erased;
            for (u32 i = 0; i + 1 < c->n; i++) assert_true(bytes_cmp(c->v[i].to, c->v[i + 1].from) < 0);
            for (u32 i = 0; i < N; i++) assert_int_equal(delta_erased_range(r->delta, name_of(i)) != NULL, gone[i]);
        }
        e->ops->drop(e, &ref);
    }
}

/* -- opening --------------------------------------------------------------------------------------- */

/* A database from before there were streams has no such family: it gets one. */
static void older_database(void **state)
{
    (void)state;
    struct key_ref ref;
    char *err = NULL;
    e->ops->find(e, 0, L("k"), &ref);
    e->ops->str.put(e, 0, L("k"), &ref, L("v"), 0);
    tick();
    rocksdb_drop_column_family(store()->db, store()->cf[FAM_STREAM], &err);
    assert_null(err);
    open_engine();
    assert_true(e->ops->find(e, 0, L("k"), &ref));
    make(&ref, 10);
    tick();
    open_engine();
    find(&ref);
    assert_int_equal(e->ops->size(e, &ref), 10);
    assert_true(e->ops->rows.get(e, &ref, name_of(9), NULL));
    close_engine();
    assert_int_equal(rocks_check(path), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(layout), TEST(ranges), TEST(trimmed), TEST(dropped), TEST(queue), TEST(wiped),
        TEST(ended_walks), TEST(erased_ranges), TEST(older_database),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
