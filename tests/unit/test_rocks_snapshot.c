/* Snapshots of the rocks engine, beyond what the engine suite asks of every engine: compactions, dropped
 * files, strings of the old form, memory, and failures while a view is open. What a view shows is compared
 * with what the engine itself said at the moment, as text. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/num.h"
#include "base/rand.h"
#include "engine/rocks/rk.h"
#include "engine/rocks/store/store_impl.h"
#include "unit/rocks_helpers.h"

#define NOW 1700000000000
#define L(s) BYTES_LIT(s)

static char path[256];
static struct engine *e;
static u64 rng;

static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

/* -- an engine in a folder of its own ------------------------------------------------------- */

static struct rocks_options options(void)
{
    struct rocks_options o = rocks_small(path, 4);
    o.blob_size = 1000;
    return o;
}

static void open_engine(void)
{
    struct rocks_options o = options();
    e = rocks_must_open(&o);
    e->ops->begin(e, NOW);
}

static int setup(void **state)
{
    (void)state;
    rng = 11;
    if (!folder_make(path, sizeof path, "snapshot")) return -1;
    open_engine();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (e) e->ops->close(e);
    e = NULL;
    folder_remove(path);
    return 0;
}

static struct store_session *store(void) { return rk_of(e)->session; }

static void tick(i64 now_ms)
{
    assert_true(e->ops->commit(e, e->applied + 1));
    e->ops->begin(e, now_ms);
}

static void compact_all(void)
{
    struct store_session *s = store();
    rocksdb_compactoptions_t *o = rocksdb_compactoptions_create();
    rocksdb_compactoptions_set_bottommost_level_compaction(o, 2);
    for (int f = 0; f < FAM_COUNT; f++) rocksdb_compact_range_cf_opt(s->db, s->cf[f], o, NULL, 0, NULL, 0);
    rocksdb_compactoptions_destroy(o);
}

static u64 dropped(enum family f) { return atomic_load(&store()->store->filters.dropped[f]); }

/* -- data -------------------------------------------------------------------------------------- */

static bytes name(const char *kind, u32 i)
{
    static char text[2][32];
    static u32 turn;
    char *t = text[turn++ % 2];
    return bytes_of(t, (size_t)snprintf(t, sizeof text[0], "%s:%u", kind, i));
}

static const char *const kinds[] = {
    [TYPE_HASH] = "hash", [TYPE_LIST] = "list", [TYPE_SET] = "set", [TYPE_ZSET] = "zset",
};

static void put_string(u32 db, bytes key, bytes value, i64 deadline_ms)
{
    struct key_ref ref;
    e->ops->find(e, db, key, &ref);
    e->ops->str.put(e, db, key, &ref, value, deadline_ms);
}

static void put_collection(u32 db, enum value_type type, bytes key, u32 n)
{
    struct key_ref ref;
    e->ops->create(e, db, key, type, &ref);
    for (u32 i = 0; i < n; i++) {
        bytes element = name("element", i);
        switch (type) {
        case TYPE_HASH:
            e->ops->map.put(e, &ref, element, name("value", below(1000)), false);
            if (i % 3 == 0) e->ops->map.set_field_deadline(e, &ref, element, NOW + 1 + below(2000));
            break;
        case TYPE_SET: e->ops->map.put(e, &ref, element, L(""), false); break;
        case TYPE_LIST: e->ops->seq.push(e, &ref, below(2), element); break;
        default: e->ops->zset.put(e, &ref, element, below(100)); break;
        }
    }
}

static void drop(u32 db, bytes key)
{
    struct key_ref ref;
    if (e->ops->find(e, db, key, &ref)) e->ops->drop(e, &ref);
}

/* Small collections, whose elements become orphans when they go, and big ones, which get range deletions. */
static void fill(void)
{
    struct buf big = {0};
    while (big.n < 5000) buf_append_char(&big, (char)('a' + below(26)));
    for (u32 i = 0; i < 300; i++) {
        u32 db = i % 3;
        put_string(db, name("string", i), i % 10 ? name("v", i) : buf_bytes(&big), i % 4 ? 0 : NOW + 1 + i);
        for (enum value_type t = TYPE_HASH; t <= TYPE_ZSET; t++)
            put_collection(db, t, name(kinds[t], i), i % 50 ? 1 + below(20) : 2000);
        if (i % 20 == 0) tick(NOW);
    }
    buf_release(&big);
    tick(NOW);
}

static void ruin(void)
{
    for (u32 i = 0; i < 300; i++) {
        u32 db = i % 3;
        if (i % 5 == 0) put_string(db, name("string", i), L("changed"), 0);
        else drop(db, name("string", i));
        for (enum value_type t = TYPE_HASH; t <= TYPE_ZSET; t++) {
            drop(db, name(kinds[t], i));
            if (i % 2) put_collection(db, t, name(kinds[t], i), 3);
        }
        if (i % 20 == 0) tick(e->now_ms);
    }
    tick(e->now_ms);
}

/* -- what an engine shows, as text -------------------------------------------------------------- */

struct dump {
    char **line;
    u32 n, cap;
    struct engine *of;
};

static void show_bytes(struct buf *b, bytes v)
{
    buf_printf(b, " %zu,%.*s", v.n, (int)MIN(v.n, 40), v.p);
}

static void show_map(struct buf *b, struct engine *of, struct key_ref *ref)
{
    struct map_iter it;
    bytes field, value;
    of->ops->map.iter(of, ref, &it);
    it.passing = true;
    while (of->ops->map.next(&it, &field, &value)) {
        i64 deadline_ms = 0;
        show_bytes(b, field);
        show_bytes(b, value);
        if (ref->type != TYPE_HASH) continue;
        assert_true(of->ops->map.field_deadline(of, ref, field, &deadline_ms));
        buf_printf(b, "@%lld", (long long)deadline_ms);
    }
}

static void show_list(struct buf *b, struct engine *of, struct key_ref *ref)
{
    struct seq_iter it;
    bytes value;
    of->ops->seq.iter(of, ref, 0, false, &it);
    it.passing = true;
    while (of->ops->seq.next(&it, &value)) show_bytes(b, value);
}

static void show_zset(struct buf *b, struct engine *of, struct key_ref *ref)
{
    struct zset_seek from = {.by = ZSEEK_RANK};
    struct zset_iter it;
    bytes member;
    double score;
    of->ops->zset.iter(of, ref, &from, &it);
    it.passing = true;
    while (of->ops->zset.next(&it, &member, &score)) {
        show_bytes(b, member);
        buf_printf(b, "=%g", score);
    }
}

static void show(void *arg, struct key_ref *ref)
{
    struct dump *d = arg;
    struct buf b = {0};
    struct str_view v;
    buf_printf(&b, "%u %.*s type %d until %lld:", ref->db, (int)ref->key.n, ref->key.p, ref->type,
               (long long)ref->deadline_ms);
    buf_printf(&b, " size %llu", (unsigned long long)d->of->ops->size(d->of, ref));
    switch (ref->type) {
    case TYPE_STRING:
        d->of->ops->str.get(d->of, ref, &v);
        show_bytes(&b, v.b);
        break;
    case TYPE_LIST: show_list(&b, d->of, ref); break;
    case TYPE_ZSET: show_zset(&b, d->of, ref); break;
    default: show_map(&b, d->of, ref);
    }
    buf_append_char(&b, '\0');
    if (d->n == d->cap) d->line = mem_realloc(d->line, (d->cap = MAX(2 * d->cap, 64)) * sizeof *d->line);
    d->line[d->n++] = b.p;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void dump_release(struct dump *d)
{
    for (u32 i = 0; i < d->n; i++) mem_free(d->line[i]);
    mem_free(d->line);
    *d = (struct dump){0};
}

static void dump_engine(struct dump *d)
{
    *d = (struct dump){.of = e};
    for (u32 db = 0; db < e->databases; db++)
        for (u64 cursor = 0; (cursor = e->ops->scan(e, db, cursor, 1000, show, d));) {}
    if (d->n) qsort(d->line, d->n, sizeof *d->line, by_text);
}

static void begin(void) { assert_true(e->ops->snapshot.begin(e, NULL, NULL)); }

/* False at the end. */
static bool step(struct dump *d)
{
    struct key_ref ref;
    bool more = e->ops->snapshot.next(e, &ref, &d->of);
    if (more && ref.type != TYPE_NONE) show(d, &ref);
    assert_false(d->of->failed);
    return more;
}

static void expect_same(struct dump *was, struct dump *is)
{
    if (is->n) qsort(is->line, is->n, sizeof *is->line, by_text);
    for (u32 i = 0; i < MIN(was->n, is->n); i++) assert_string_equal(is->line[i], was->line[i]);
    assert_int_equal(is->n, was->n);
}

static void expect_rest(struct dump *was, struct dump *is)
{
    while (step(is)) {}
    e->ops->snapshot.end(e);
    expect_same(was, is);
    dump_release(was);
    dump_release(is);
}

/* -- tests ---------------------------------------------------------------------------------------- */

/* Elements whose collection has gone are orphans for the filters, and keys die by the region's clock: none of
 * it may vanish under a view, and all of it goes when the view has. */
static void compactions(void **state)
{
    (void)state;
    struct dump was, is = {0};
    fill();
    e->ops->disk->set_grace(e, 0);
    dump_engine(&was);
    begin();
    for (u32 n = 0; n < 100; n++) step(&is);
    e->ops->begin(e, NOW + 1000000);
    ruin();
    compact_all();
    e->ops->disk->cron(e);
    for (u32 n = 0; n < 100; n++) step(&is);
    compact_all();
    u64 orphans = dropped(FAM_DATA);
    expect_rest(&was, &is);
    tick(NOW + 1000000);
    compact_all();
    assert_true(dropped(FAM_DATA) > orphans + 1000);
}

/* A key that outlived the moment and then died, but was not reclaimed: a compaction would take it. */
static void keys_that_die_later(void **state)
{
    (void)state;
    struct dump was, is = {0};
    e->ops->disk->set_grace(e, 0);
    for (u32 i = 0; i < 100; i++) put_string(0, name("mortal", i), L("v"), NOW + 1 + i);
    tick(NOW);
    dump_engine(&was);
    begin();
    tick(NOW + 500);
    put_string(0, L("another"), L("v"), 0);
    tick(NOW + 500);
    compact_all();
    assert_int_equal(dropped(FAM_META), 0);
    expect_rest(&was, &is);
    tick(NOW + 500);
    compact_all();
    assert_int_equal(dropped(FAM_META), 100);
}

/* What was dead at the moment may vanish any time, also where the walk stands: nothing else is missed. */
static void the_dead_may_go(void **state)
{
    (void)state;
    struct dump was, is = {0};
    e->ops->disk->set_grace(e, 0);
    for (u32 i = 0; i < 400; i++) put_string(0, name("key", i), L("v"), i % 2 ? NOW + 1 : 0);
    tick(NOW + 5);
    put_string(0, L("another"), L("v"), 0);
    tick(NOW + 5);
    dump_engine(&was);
    begin();
    u32 alive_keys = 0;
    while (alive_keys < 201) {
        u32 n = is.n;
        assert_true(step(&is));
        if (is.n == n) continue;
        alive_keys += strstr(is.line[n], "until 0:") != NULL;
        if (is.n == 50) compact_all();
        if (is.n >= 50) e->ops->disk->cron(e);
    }
    assert_int_equal(dropped(FAM_META), 200);
    while (step(&is)) {}
    e->ops->snapshot.end(e);
    assert_int_equal(is.n, was.n);
    for (u32 i = 0; i < is.n; i++) /* of the dead ones only the key is left */
        if (strstr(is.line[i], "until 0:"))
            assert_non_null(bsearch(&is.line[i], was.line, was.n, sizeof *was.line, by_text));
    dump_release(&was);
    dump_release(&is);
}

/* What came and went since the moment is no concern of the view's: compactions may drop it. */
static void orphans_made_since(void **state)
{
    (void)state;
    struct dump was, is = {0};
    fill();
    dump_engine(&was);
    begin();
    tick(NOW + 1000);
    for (u32 i = 0; i < 500; i++) put_collection(3, TYPE_SET, name("new", i), 20);
    tick(NOW + 1000);
    for (u32 i = 0; i < 500; i++) drop(3, name("new", i));
    tick(NOW + 1000);
    compact_all();
    assert_true(dropped(FAM_DATA) >= 500 * 20);
    expect_rest(&was, &is);
}

/* Whole files are dropped with a flushed database; not while a view needs them. */
static void flushed_files(void **state)
{
    (void)state;
    struct dump was, is = {0};
    struct buf value = {0};
    for (u32 i = 0; i < 25000; i++) {
        buf_clear(&value);
        while (value.n < 900) buf_append_char(&value, (char)('a' + below(26)));
        put_string(1, name("big", i), buf_bytes(&value), 0);
        if (i % 500 == 0) tick(NOW);
    }
    buf_release(&value);
    put_string(2, L("other"), L("v"), 0);
    tick(NOW);
    compact_all();
    dump_engine(&was);
    assert_int_equal(was.n, 25001);
    begin();
    e->ops->flush(e, 1);
    tick(NOW);
    e->ops->swap(e, 1, 2);
    tick(NOW);
    put_string(2, L("after"), L("v"), 0);
    tick(NOW);
    for (u32 n = 0; n < 10; n++) {
        step(&is);
        usleep(20000); /* the threads that would do it have had their chance */
    }
    compact_all();
    e->ops->disk->cron(e); /* iterators that hold the old files go */
    expect_rest(&was, &is);
    assert_int_equal(e->ops->count(e, 1), 1);
    assert_int_equal(e->ops->count(e, 2), 1);
}

/* Also inside a collection iterators are recreated once a second, so that they pin no old file. */
static void iterators_renewed(void **state)
{
    (void)state;
    struct key_ref ref;
    struct engine *of;
    put_collection(0, TYPE_SET, L("set"), 5000);
    tick(NOW);
    begin();
    assert_true(e->ops->snapshot.next(e, &ref, &of));
    struct map_iter it;
    bytes member;
    struct buf before = {0};
    u32 n = 0;
    of->ops->map.iter(of, &ref, &it);
    it.passing = true;
    for (; of->ops->map.next(&it, &member, NULL); n++) {
        if (n) assert_true(bytes_cmp(buf_bytes(&before), member) < 0);
        buf_clear(&before);
        buf_append_bytes(&before, member);
        if (n % 500) continue;
        drop(0, L("set"));
        put_collection(0, TYPE_SET, L("set"), 10);
        tick(NOW);
        e->ops->disk->cron(e);
        if (n % 1000 == 0) compact_all();
    }
    buf_release(&before);
    assert_int_equal(n, 5000);
    assert_true(rk_of(of)->session->iterators_made >= 10);
    assert_false(e->ops->snapshot.next(e, &ref, &of));
    e->ops->snapshot.end(e);
}

static void nothing_pending(void **state)
{
    (void)state;
    struct dump was, is = {0};
    put_string(0, L("a"), L("1"), 0);
    assert_false(e->ops->snapshot.begin(e, NULL, NULL));
    tick(NOW);
    e->ops->swap(e, 0, 1);
    assert_false(e->ops->snapshot.begin(e, NULL, NULL));
    e->ops->abort(e);
    e->ops->begin(e, NOW);
    e->ops->flush(e, 0);
    assert_false(e->ops->snapshot.begin(e, NULL, NULL));
    e->ops->abort(e);
    e->ops->begin(e, NOW);
    dump_engine(&was);
    begin(); /* and what the tick does afterwards is not seen */
    put_string(0, L("a"), L("2"), 0);
    put_string(0, L("b"), L("2"), 0);
    expect_rest(&was, &is);
    tick(NOW);
}

/* Of the last commit, whatever the transaction has changed. */
static void stored_only(void **state)
{
    (void)state;
    struct dump was, is = {0};
    fill();
    dump_engine(&was);
    put_string(0, L("a"), L("not stored"), 0);
    e->ops->flush(e, 1);
    assert_true(e->ops->snapshot.begin_stored(e));
    tick(NOW);
    expect_rest(&was, &is);
}

/* One after the other, and over a restart; an engine may be closed with one under way. */
static void again_and_again(void **state)
{
    (void)state;
    fill();
    for (u32 round = 0; round < 5; round++) {
        struct dump was, is = {0};
        dump_engine(&was);
        begin();
        for (u32 n = 0; n < 50 * round; n++) step(&is);
        put_string(0, name("round", round), L("v"), 0);
        tick(e->now_ms);
        expect_rest(&was, &is);
        begin();
        struct dump some = {0};
        for (u32 n = 0; n < 20; n++) step(&some);
        dump_release(&some);
        e->ops->close(e);
        open_engine();
    }
}

/* Field deadlines, and the fields that were dead at the moment: hidden, also as time passes. */
static void fields(void **state)
{
    (void)state;
    struct key_ref ref;
    struct engine *of;
    i64 deadline_ms;
    bytes value;
    e->ops->create(e, 0, L("h"), TYPE_HASH, &ref);
    for (u32 i = 0; i < 1000; i++) {
        e->ops->map.put(e, &ref, name("f", i), L("v"), false);
        if (i % 2) e->ops->map.set_field_deadline(e, &ref, name("f", i), NOW + 1 + i);
    }
    tick(NOW + 500);
    begin();
    tick(NOW + 100000);
    drop(0, L("h"));
    tick(NOW + 100000);
    assert_true(e->ops->snapshot.next(e, &ref, &of));
    assert_int_equal(of->now_ms, NOW + 500);
    assert_true(of->ops->map.has_field_deadlines(of, &ref));
    assert_int_equal(of->ops->size(of, &ref), 1000 - 250);
    for (u32 i = 0; i < 1000; i++) {
        bool lives = i % 2 == 0 || i >= 500;
        assert_int_equal(of->ops->map.get(of, &ref, name("f", i), &value), lives);
        assert_int_equal(of->ops->map.field_deadline(of, &ref, name("f", i), &deadline_ms), lives);
        assert_int_equal(deadline_ms, i % 2 && lives ? NOW + 1 + i : 0);
    }
    assert_false(of->ops->map.field_deadline(of, &ref, L("none"), &deadline_ms));
    assert_false(of->failed);
    e->ops->snapshot.end(e);
}

/* -- memory ------------------------------------------------------------------------------------------ */

static void bounded_memory(void **state)
{
    (void)state;
    struct mem_meter meter;
    struct key_ref ref;
    struct engine *of;
    u64 seen = 0, most = 0;
    char value[200] = {0};
    mem_meter_open(&meter);
    u32 strings = meter.allocated ? 100000 : 5000, sets = strings / 5; /* few if it can't be measured: sanitizers */
    for (u32 i = 0; i < strings; i++) {
        put_string(0, name("string", i), bytes_of(value, sizeof value), 0);
        if (i % 1000 == 0) tick(NOW);
    }
    for (u32 i = 0; i < sets; i++) {
        put_collection(2, TYPE_SET, name("set", i), 3);
        if (i % 1000 == 0) tick(NOW);
    }
    put_collection(1, TYPE_HASH, L("hash"), strings);
    tick(NOW);
    begin();
    size_t before = mem_used(&meter);
    while (e->ops->snapshot.next(e, &ref, &of)) {
        struct dump d = {.of = of};
        seen++;
        if (ref.type == TYPE_HASH) {
            struct map_iter it;
            bytes field;
            i64 deadline_ms;
            of->ops->map.iter(of, &ref, &it);
            it.passing = true;
            while (of->ops->map.next(&it, &field, NULL)) {
                assert_true(of->ops->map.field_deadline(of, &ref, field, &deadline_ms));
                most = MAX(most, mem_used(&meter) - MIN(before, mem_used(&meter)));
            }
        } else {
            show(&d, &ref);
        }
        dump_release(&d);
        most = MAX(most, mem_used(&meter) - MIN(before, mem_used(&meter)));
    }
    assert_int_equal(seen, strings + sets + 1);
    if (meter.allocated) assert_true(most < 4u << 20); /* of 30 MB */
    e->ops->snapshot.end(e);
}

/* -- strings of the old form ---------------------------------------------------------------------------- */

#define OLD 400

/* A database in which old strings lie among collections, orphans, and keys that have both forms. */
static void make_old(void)
{
    bool failed = false;
    struct buf why = {0}, orphan = {0};
    fill();
    e->ops->close(e);
    e = NULL;
    struct rocks_options o = options();
    struct store_session *s = store_open_alone(&o, false, &failed, &why);
    assert_non_null(s);
    for (u32 i = 0; i < OLD; i++) put_old(s, 1 + i % 2, name("old", i), i % 3 ? 0 : NOW + i, L("value"));
    for (u32 i = 0; i < 40; i++) put_old(s, 1 + i % 3, name("string", i), 0, L("stale"));
    for (u32 i = 0; i < 300; i++) {
        buf_clear(&orphan);
        codec_key(&orphan, 1, 1, name("orphan", i));
        append_u64(&orphan, 5);
        buf_append_char(&orphan, 'f');
        store_put(s, FAM_DATA, buf_bytes(&orphan), L("v"));
    }
    store_put(s, FAM_INFO, L("l"), (bytes){0}); /* a migration that has just begun */
    assert_true(store_write(s));
    store_close_alone(s);
    buf_release(&orphan);
    open_engine();
}

/* The text of every key of the moment; old strings can't be listed, but are found by name. */
static void dump_with_old(struct dump *d)
{
    dump_engine(d);
    for (u32 i = 0; i < OLD; i++) {
        struct key_ref ref;
        assert_true(e->ops->find(e, i % 2, name("old", i), &ref));
        show(d, &ref);
    }
    qsort(d->line, d->n, sizeof *d->line, by_text);
}

static void old_strings(void **state)
{
    (void)state;
    struct dump was, is = {0};
    make_old();
    dump_with_old(&was);
    e->ops->abort(e); /* the first step of the migration is pending since begin */
    begin();
    for (u32 n = 0; n < 200; n++) step(&is);
    for (u32 n = 0; n < 100; n++) { /* the migration continues to its end */
        e->ops->begin(e, NOW + 5000);
        tick(NOW + 5000);
    }
    assert_false(rk_of(e)->legacy);
    ruin();
    for (u32 i = 0; i < OLD; i += 2) drop(i % 2, name("old", i));
    tick(NOW + 5000);
    compact_all();
    expect_rest(&was, &is);
    dump_engine(&was); /* all of it in today's form */
    begin();
    expect_rest(&was, &is);
}

/* -- failures ------------------------------------------------------------------------------------------ */

static void damaged_key(void **state)
{
    (void)state;
    struct key_ref ref;
    struct engine *of = NULL;
    struct buf key = {0};
    u32 n = 0;
    fill();
    codec_key(&key, 1, 2, L("string:1"));
    store_put(store(), FAM_META, buf_bytes(&key), L("?"));
    tick(NOW);
    begin();
    while (e->ops->snapshot.next(e, &ref, &of)) n++;
    assert_true(e->failed && of->failed); /* not just the end */
    assert_true(n < 1500);
    e->failed = false;
    assert_false(e->ops->snapshot.next(e, &ref, &of));
    assert_true(e->failed);
    e->ops->snapshot.end(e);
    e->failed = false;
    buf_release(&key);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(compactions),     TEST(keys_that_die_later),
        TEST(the_dead_may_go), TEST(orphans_made_since),
        TEST(flushed_files),   TEST(iterators_renewed),
        TEST(nothing_pending), TEST(stored_only),
        TEST(again_and_again), TEST(fields),
        TEST(bounded_memory),  TEST(old_strings),
        TEST(damaged_key),
    };
    return cmocka_run_group_tests_name("snapshots on RocksDB", tests, NULL, NULL);
}
