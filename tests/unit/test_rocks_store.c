/* The store of the rocks engine: reads, the batch, iterators against a model, compaction filters, and bad
 * directories. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "engine/rocks/codec.h"
#include "engine/rocks/store/store_impl.h"
#include "unit/rocks_helpers.h"

#define REGION 1
#define INDEX 1

/* -- a database in a folder of its own ----------------------------------------------------- */

struct bed {
    char dir[256];
    struct rocks_options o;
    struct store_session *s;
    bool failed;
};

static void open_bed(struct bed *b)
{
    struct buf why = {0};
    b->s = store_open_alone(&b->o, false, &b->failed, &why);
    if (!b->s) fail_msg("%.*s", (int)why.n, why.p);
    assert_int_equal(why.n, 0);
}

static int setup(void **state)
{
    struct bed *b = mem_zalloc(sizeof *b);
    assert_true(folder_make(b->dir, sizeof b->dir, "store"));
    b->o = (struct rocks_options){.dir = b->dir, .block_cache = 8 << 20, .write_buffer = 8 << 20};
    open_bed(b);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bed *b = *state;
    store_close_alone(b->s);
    assert_false(b->failed);
    folder_remove(b->dir);
    mem_free(b);
    return 0;
}

static void reopen(struct bed *b)
{
    store_close_alone(b->s);
    b->s = NULL;
    open_bed(b);
}

static void commit(struct store_session *s) { assert_true(store_write(s)); }

static void flush(struct store_session *s, enum family f)
{
    char *err = NULL;
    rocksdb_flushoptions_t *o = rocksdb_flushoptions_create();
    rocksdb_flush_cf(s->db, o, s->cf[f], &err);
    assert_null(err);
    rocksdb_flushoptions_destroy(o);
}

static void compact(struct store_session *s, enum family f)
{
    rocksdb_compactoptions_t *o = rocksdb_compactoptions_create();
    rocksdb_compactoptions_set_bottommost_level_compaction(o, 2);
    rocksdb_compact_range_cf_opt(s->db, s->cf[f], o, NULL, 0, NULL, 0);
    rocksdb_compactoptions_destroy(o);
}

static bool has(struct store_session *s, enum family f, bytes key)
{
    struct store_value v;
    bool found = store_get(s, f, key, &v);
    store_value_release(&v);
    return found;
}

static void expect(struct store_session *s, enum family f, bytes key, bytes value)
{
    struct store_value v;
    assert_true(store_get(s, f, key, &v));
    assert_true(bytes_eq(v.b, value));
    store_value_release(&v);
}

static u64 rng = 1;
static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

/* -- reads and the batch ------------------------------------------------------------------------ */

#define L(s) BYTES_LIT(s)

static void batch_and_reads(void **state)
{
    struct bed *b = *state;
    struct store_session *s = b->s;
    assert_true(store_batch_empty(s));
    store_put(s, FAM_META, L("a"), L("1"));
    store_put2(s, FAM_DATA, L("pre"), L("fix"), L("2"));
    store_put(s, FAM_DATA, L("empty"), L(""));
    store_put(s, FAM_META, bytes_of("\0\xff", 2), bytes_of("\0", 1));
    assert_false(store_batch_empty(s));
    assert_true(store_batch_size(s) > 20);
    assert_false(has(s, FAM_META, L("a"))); /* not before it is written */
    commit(s);
    assert_true(store_batch_empty(s));
    expect(s, FAM_META, L("a"), L("1"));
    expect(s, FAM_DATA, L("prefix"), L("2"));
    expect(s, FAM_DATA, L("empty"), L(""));
    expect(s, FAM_META, bytes_of("\0\xff", 2), bytes_of("\0", 1));
    assert_false(has(s, FAM_DATA, L("a")));

    store_put(s, FAM_META, L("b"), L("x"));
    store_delete(s, FAM_META, L("a"));
    store_discard(s);
    assert_true(store_batch_empty(s));
    commit(s);
    assert_true(has(s, FAM_META, L("a")));
    assert_false(has(s, FAM_META, L("b")));

    store_delete(s, FAM_META, L("a"));
    store_delete2(s, FAM_DATA, L("pre"), L("fix"));
    commit(s);
    assert_false(has(s, FAM_META, L("a")));
    assert_false(has(s, FAM_DATA, L("prefix")));

    for (int i = 0; i < 10; i++) {
        char k = (char)('0' + i);
        store_put(s, FAM_SCORE, bytes_of(&k, 1), L("v"));
    }
    store_delete_range(s, FAM_SCORE, L("3"), L("6"));
    store_put(s, FAM_SCORE, L("4"), L("after"));
    commit(s);
    for (int i = 0; i < 10; i++) {
        char k = (char)('0' + i);
        assert_int_equal(has(s, FAM_SCORE, bytes_of(&k, 1)), i < 3 || i == 4 || i >= 6);
    }
    reopen(b);
    assert_false(has(b->s, FAM_META, L("a")));
    expect(b->s, FAM_SCORE, L("4"), L("after"));
    expect(b->s, FAM_DATA, L("empty"), L(""));
}

static void many_at_once(void **state)
{
    struct bed *b = *state;
    struct store_session *s = b->s;
    enum { N = 700 };
    static char names[N][16];
    static bytes keys[N];
    static struct store_value values[N];
    for (int i = 0; i < N; i++) {
        keys[i] = bytes_of(names[i], (size_t)snprintf(names[i], sizeof names[i], "%d", i * 7919 % N));
        if (i % 3) store_put(s, FAM_META, keys[i], keys[i]);
        if (i == N / 2) {
            commit(s);
            flush(s, FAM_META);
        }
    }
    commit(s);
    store_multi_get(s, FAM_META, N, keys, values);
    for (int i = 0; i < N; i++) {
        assert_int_equal(values[i].pin != NULL, i % 3 != 0);
        if (values[i].pin) assert_true(bytes_eq(values[i].b, keys[i]));
        store_value_release(&values[i]);
        store_value_release(&values[i]); /* harmless */
    }
    store_multi_get(s, FAM_META, 0, keys, values);
}

/* -- iterators against a model --------------------------------------------------------------------- */

#define KEYS 4000
#define VALUE 120 /* so that a block of 8 KB holds some 60 rows */

struct model {
    struct store_session *s;
    bool there[KEYS];
};

static bytes key_at(u32 i, char out[8])
{
    return bytes_of(out, (size_t)snprintf(out, 8, "k%05u", i)); /* bounds between keys end in odd digits */
}

static void change(struct model *m, u32 times)
{
    char a[8], c[8];
    char value[VALUE] = {0};
    for (u32 t = 0; t < times; t++) {
        u32 i = below(KEYS), kind = below(20);
        if (kind == 0) {
            u32 to = i + below(100);
            to = MIN(to, KEYS - 1);
            store_delete_range(m->s, FAM_DATA, key_at(2 * i, a), key_at(2 * to, c));
            memset(m->there + i, 0, to > i ? to - i : 0);
        } else if (kind < 7) {
            store_delete(m->s, FAM_DATA, key_at(2 * i, a));
            m->there[i] = false;
        } else {
            store_put(m->s, FAM_DATA, key_at(2 * i, a), bytes_of(value, VALUE));
            m->there[i] = true;
        }
    }
    commit(m->s);
}

/* The iterator stands on i (or past the end, if i is out of [lo, hi) or of the model). */
static i64 settle(const struct model *m, i64 i, int step, i64 lo, i64 hi)
{
    while (i >= lo && i < hi && !m->there[i]) i += step;
    return i >= lo && i < hi ? i : -1;
}

static void check_at(struct store_iter *it, i64 i)
{
    char k[8];
    assert_int_equal(store_valid(it), i >= 0);
    if (i < 0) return;
    assert_true(bytes_eq(store_key(it), key_at((u32)(2 * i), k)));
    assert_int_equal(store_iter_value(it).n, VALUE);
}

/* Positions are in halves of keys, so that bounds and seeks also fall between them. */
static void walk(const struct model *m, struct store_iter *it, i64 lo2, i64 hi2)
{
    char k[8];
    i64 lo = (lo2 + 1) / 2, hi = (hi2 + 1) / 2, at;
    for (int round = 0; round < 3; round++) {
        i64 to2 = (i64)below(2 * KEYS);
        switch (below(4)) {
        case 0:
            store_seek(it, key_at((u32)to2, k));
            at = settle(m, MAX((to2 + 1) / 2, lo), 1, lo, hi);
            break;
        case 1:
            store_seek_back(it, key_at((u32)to2, k));
            at = settle(m, MIN(to2 / 2, hi - 1), -1, lo, hi);
            break;
        case 2:
            store_seek_first(it);
            at = settle(m, lo, 1, lo, hi);
            break;
        default:
            store_seek_last(it);
            at = settle(m, hi - 1, -1, lo, hi);
        }
        check_at(it, at);
        bool forward = below(2);
        for (u32 steps = below(120); steps && at >= 0; steps--) {
            if (below(10) == 0) forward = !forward;
            if (forward) store_next(it);
            else store_prev(it);
            at = settle(m, at + (forward ? 1 : -1), forward ? 1 : -1, lo, hi);
            check_at(it, at);
        }
    }
}

static void ranges(const struct model *m, u32 times)
{
    char a[8], c[8];
    struct store_iter *kept[4] = {0};
    i64 kept_lo[4], kept_hi[4];
    for (u32 t = 0; t < times; t++) {
        i64 lo2 = (i64)below(2 * KEYS), width = (i64)below(below(3) ? 200 : 2 * KEYS);
        i64 hi2 = MIN(lo2 + width, 2 * KEYS);
        bool no_lower = below(8) == 0, no_upper = below(8) == 0;
        const bytes none = {0};
        struct store_iter *it =
            store_iter(m->s, FAM_DATA, no_lower ? none : key_at((u32)lo2, a),
                       no_upper ? none : key_at((u32)hi2, c), below(2) ? STORE_ONCE : 0);
        if (no_lower) lo2 = 0;
        if (no_upper) hi2 = 2 * KEYS;
        walk(m, it, lo2, hi2);
        u32 slot = below(4); /* several are out at a time, and used in turn */
        if (kept[slot]) {
            walk(m, kept[slot], kept_lo[slot], kept_hi[slot]);
            store_iter_done(kept[slot]);
        }
        kept[slot] = it;
        kept_lo[slot] = lo2;
        kept_hi[slot] = hi2;
    }
}

static void iterators_keep_their_bounds(void **state)
{
    struct bed *b = *state;
    struct model *m = mem_zalloc(sizeof *m);
    m->s = b->s;
    for (int phase = 0; phase < 12; phase++) {
        change(m, 1500);
        if (phase % 3 == 1) flush(b->s, FAM_DATA);
        if (phase % 6 == 5) compact(b->s, FAM_DATA);
        ranges(m, 60);
        store_end_tick(b->s);
        ranges(m, 60);
        if (phase % 4 == 3) store_drop_idle(b->s);
    }
    assert_true(b->s->iterators_reused > 4 * b->s->iterators_made);
    mem_free(m);
}

static void iterators_see_what_was_written(void **state)
{
    struct bed *b = *state;
    struct store_session *s = b->s;
    struct store_iter *it = store_iter(s, FAM_META, L("a"), L("c"), 0);
    store_put(s, FAM_META, L("b"), L("1"));
    store_seek_first(it);
    assert_false(store_valid(it)); /* still in the batch */
    commit(s); /* takes it back */
    it = store_iter(s, FAM_META, L("a"), L("c"), 0);
    assert_int_equal(s->iterators_made, 2);
    store_seek_first(it);
    assert_true(store_valid(it));
    assert_true(bytes_eq(store_iter_value(it), L("1")));
    store_iter_done(it);
    it = store_iter(s, FAM_META, L("b"), L("b"), 0);
    store_seek_first(it);
    assert_false(store_valid(it));
    it = store_iter(s, FAM_META, L("b\0"), L("c"), 0);
    store_seek_last(it);
    assert_false(store_valid(it));
    store_end_tick(s);
    it = store_iter(s, FAM_META, (bytes){0}, (bytes){0}, 0);
    store_seek_last(it);
    assert_true(store_valid(it));
    assert_int_equal(s->iterators_made, 3);
}

/* -- compaction filters ---------------------------------------------------------------------------- */

static void put_meta(struct store_session *s, bytes name, enum value_type type, u64 version, i64 deadline_ms)
{
    struct buf key = {0}, value = {0};
    codec_key(&key, REGION, INDEX, name);
    struct codec_meta meta = {.type = type, .version = version, .size = 1, .deadline_ms = deadline_ms,
                              .head = 1, .tail = 2, .payload = BYTES_LIT("text")};
    codec_meta(&value, &meta);
    store_put(s, FAM_META, buf_bytes(&key), buf_bytes(&value));
    buf_release(&key);
    buf_release(&value);
}

static bytes sub_key(struct buf *key, bytes name, u64 version, const char *sub)
{
    buf_clear(key);
    codec_key(key, REGION, INDEX, name);
    if (version) append_u64(key, version);
    buf_append_str(key, sub);
    return buf_bytes(key);
}

static void orphans_go(void **state)
{
    struct bed *b = *state;
    struct store_session *s = b->s;
    static const enum family families[] = {FAM_DATA, FAM_SCORE, FAM_RANK, FAM_FIELD, FAM_STREAM};
    struct buf k = {0};
    put_meta(s, L("alive"), TYPE_HASH, 7, 0);
    put_meta(s, L("newer"), TYPE_ZSET, 9, 0);
    put_meta(s, L("text"), TYPE_STRING, 0, 0);
    for (u32 i = 0; i < ARRAY_LEN(families); i++) {
        enum family f = families[i];
        for (char c = 'a'; c < 'f'; c++) {
            char sub[2] = {c};
            store_put(s, f, sub_key(&k, L("alive"), 7, sub), L(""));
            store_put(s, f, sub_key(&k, L("newer"), 8, sub), L("")); /* of the one before */
            store_put(s, f, sub_key(&k, L("newer"), 9, sub), L(""));
            store_put(s, f, sub_key(&k, L("gone"), 7, sub), L(""));
            store_put(s, f, sub_key(&k, L("text"), 7, sub), L(""));
        }
        store_put(s, f, L("not a P"), L(""));
    }
    store_put(s, FAM_DATA, sub_key(&k, L("old"), 0, "S"), L("12345678legacy"));
    store_put(s, FAM_DATA, sub_key(&k, L("alive"), 0, "S"), L("12345678legacy"));
    commit(s);
    for (u32 i = 0; i < ARRAY_LEN(families); i++) {
        enum family f = families[i];
        compact(s, f);
        for (char c = 'a'; c < 'f'; c++) {
            char sub[2] = {c};
            assert_true(has(s, f, sub_key(&k, L("alive"), 7, sub)));
            assert_true(has(s, f, sub_key(&k, L("newer"), 9, sub)));
            assert_false(has(s, f, sub_key(&k, L("newer"), 8, sub)));
            assert_false(has(s, f, sub_key(&k, L("gone"), 7, sub)));
            assert_false(has(s, f, sub_key(&k, L("text"), 7, sub)));
        }
        assert_true(has(s, f, L("not a P")));
        assert_int_equal(atomic_load(&s->store->filters.dropped[f]), 15);
    }
    assert_true(has(s, FAM_DATA, sub_key(&k, L("old"), 0, "S")));
    assert_true(has(s, FAM_DATA, sub_key(&k, L("alive"), 0, "S")));
    buf_release(&k);
}

static void dead_values_go(void **state)
{
    struct bed *b = *state;
    struct store_session *s = b->s;
    struct buf k = {0};
    put_meta(s, L("at"), TYPE_STRING, 0, 1000);
    put_meta(s, L("before"), TYPE_HASH, 1, 999);
    put_meta(s, L("after"), TYPE_STRING, 0, 1001);
    put_meta(s, L("never"), TYPE_STRING, 0, 0);
    commit(s);
    compact(s, FAM_META); /* no time was published: all stay */
    assert_int_equal(atomic_load(&s->store->filters.dropped[FAM_META]), 0);
    store_set_dead(s, 1000);
    compact(s, FAM_META);
    assert_true(has(s, FAM_META, sub_key(&k, L("at"), 0, "")));
    assert_true(has(s, FAM_META, sub_key(&k, L("after"), 0, "")));
    assert_true(has(s, FAM_META, sub_key(&k, L("never"), 0, "")));
    assert_int_equal(atomic_load(&s->store->filters.dropped[FAM_META]), 2);
    struct store_value v;
    struct codec_meta m;
    assert_true(store_get(s, FAM_META, sub_key(&k, L("before"), 0, ""), &v) && codec_meta_read(v.b, &m));
    assert_true(m.type == TYPE_HASH && m.deadline_ms == 999 && m.version == 0 && m.size == 0);
    store_value_release(&v);
    compact(s, FAM_META); /* once is enough */
    assert_int_equal(atomic_load(&s->store->filters.dropped[FAM_META]), 2);
    buf_release(&k);
}

/* -- space ---------------------------------------------------------------------------------------- */

static void fill(struct store_session *s, enum family f, const char *prefix, u32 n)
{
    char key[32], value[1000];
    memset(value, 'v', sizeof value);
    for (u32 i = 0; i < n; i++) {
        for (u32 at = 0; at < sizeof value; at += 8) memcpy(value + at, &(u64){rand_next(&rng)}, 8);
        store_put(s, f, bytes_of(key, (size_t)snprintf(key, sizeof key, "%s%07u", prefix, i)),
                  bytes_of(value, sizeof value));
        if (i % 500 == 499) commit(s);
    }
    commit(s);
}

static bool eventually(bool (*done)(struct store_session *), struct store_session *s)
{
    for (int i = 0; i < 1200; i++) {
        if (done(s)) return true;
        usleep(50000);
    }
    return false;
}

static bool small(struct store_session *s)
{
    return store_number(s->store, FAM_SCORE, "rocksdb.total-sst-files-size") < 16 << 20;
}

/* (FAM_SCORE's filter keeps rows that are not of its form.) */
static void files_are_dropped(void **state)
{
    struct bed *b = *state;
    struct store_session *s = b->s;
    fill(s, FAM_SCORE, "a", 1000);
    fill(s, FAM_SCORE, "b", 40000);
    fill(s, FAM_SCORE, "c", 1000);
    compact(s, FAM_SCORE);
    assert_false(small(s));
    store_delete_range(s, FAM_SCORE, L("b"), L("c"));
    commit(s);
    assert_false(has(s, FAM_SCORE, L("b0020000")));
    store_drop_files(s, FAM_SCORE, L("b"), L("c"));
    assert_int_equal(atomic_load(&s->store->sweeps), 0);
    store_put(s, FAM_SCORE, L("b0020000"), L("new")); /* waits */
    commit(s);
    assert_true(eventually(small, s));
    expect(s, FAM_SCORE, L("b0020000"), L("new"));
    assert_true(has(s, FAM_SCORE, L("a0000999")));
    assert_true(has(s, FAM_SCORE, L("c0000000")));
    struct store_iter *it = store_iter(s, FAM_SCORE, L("b"), L("c"), 0);
    store_seek_first(it);
    assert_true(store_valid(it));
    assert_true(bytes_eq(store_key(it), L("b0020000")));
    store_next(it);
    assert_false(store_valid(it)); /* nothing came back from files at the edges */
    reopen(b);
    expect(b->s, FAM_SCORE, L("b0020000"), L("new"));
}

/* What is put in the batch that deletes the range stays; compaction does the rest. */
static void refilled_ranges_are_compacted(void **state)
{
    struct bed *b = *state;
    struct store_session *s = b->s;
    fill(s, FAM_SCORE, "b", 40000);
    compact(s, FAM_SCORE);
    store_delete_range(s, FAM_SCORE, L("b"), L("c"));
    store_put(s, FAM_SCORE, L("b0000001"), L("new"));
    commit(s);
    store_drop_files(s, FAM_SCORE, L("b"), L("c"));
    assert_int_equal(atomic_load(&s->store->drops_pending), 0);
    assert_true(eventually(small, s));
    expect(s, FAM_SCORE, L("b0000001"), L("new"));
}

static void garbage_is_swept(void **state)
{
    struct bed *b = *state;
    struct store_session *s = b->s;
    char key[32];
    fill(s, FAM_SCORE, "b", 40000);
    for (u32 i = 0; i < 30000; i++)
        store_delete(s, FAM_SCORE, bytes_of(key, (size_t)snprintf(key, sizeof key, "b%07u", i)));
    commit(s);
    assert_true(eventually(small, s));
    assert_true(has(s, FAM_SCORE, L("b0030000")));
    assert_false(has(s, FAM_SCORE, L("b0029999")));
}

/* -- running ------------------------------------------------------------------------------------------ */

static bool synced(struct store_session *s) { return atomic_load(&s->store->syncs) > 0; }

static void the_log_is_synced(void **state)
{
    struct bed *b = *state;
    store_set_sync(store_of(b->s), DISK_SYNC_ALWAYS);
    store_put(b->s, FAM_INFO, L("a"), L("1"));
    commit(b->s);
    assert_false(atomic_load(&b->s->store->dirty)); /* the write did it */
    store_relax(b->s, true);
    store_put(b->s, FAM_INFO, L("a"), L("2"));
    commit(b->s);
    assert_true(atomic_load(&b->s->store->dirty));
    store_relax(b->s, false);
    assert_true(eventually(synced, b->s));
    atomic_store(&b->s->store->syncs, 0);
    store_set_sync(store_of(b->s), DISK_SYNC_EVERYSEC);
    store_put(b->s, FAM_INFO, L("a"), L("3"));
    commit(b->s);
    assert_true(eventually(synced, b->s));
    assert_false(atomic_load(&b->s->store->dirty));
    assert_null(store_refuses_writes(b->s));
}

static bool flows(struct store_session *s)
{
    store_cron(store_of(s));
    return !store_refuses_writes(s);
}

static bool at_ease(struct store_session *s) { return store_pressure(store_of(s), true) == 0; }

/* Flushes are slower than writes: that is reported, and no write waits for it or fails. */
static void a_backlog_is_told_and_stops_nothing(void **state)
{
    struct bed *b = *state;
    b->o.rate_limit = 1000000;
    b->o.write_buffer = 1 << 20;
    reopen(b);
    struct store_session *s = b->s;
    u64 before = store_written(store_of(s)), wrote = 3000u * 1000;
    assert_int_equal(store_pressure(store_of(s), true), 0);
    fill(s, FAM_DATA, "x", 3000);
    assert_true(store_written(store_of(s)) - before > wrote && store_written(store_of(s)) - before < 2 * wrote);
    assert_int_equal(store_pressure(store_of(s), true), DISK_PRESSURE_MAX);
    assert_int_equal(s->store->stalls, 1);
    store_cron(store_of(s));
    assert_null(store_refuses_writes(s));
    assert_true(has(s, FAM_DATA, L("x0000000")) && has(s, FAM_DATA, L("x0002999")));
    assert_true(eventually(at_ease, s));
}

static void files_in_level_0_are_pressure(void **state)
{
    struct bed *b = *state;
    struct store_session *s = b->s;
    char *err = NULL;
    const char *name = "disable_auto_compactions", *value = "true";
    rocksdb_set_options_cf(s->db, s->cf[FAM_DATA], 1, &name, &value, &err);
    assert_null(err);
    s->store->limits.level0[FAM_DATA] = 2;
    for (u32 n = 1; n <= 5; n++) {
        fill(s, FAM_DATA, "x", 10);
        flush(s, FAM_DATA);
        u32 expected = n <= 2 ? 0 : n == 3 ? DISK_PRESSURE_MAX / 2 : DISK_PRESSURE_MAX;
        assert_int_equal(store_pressure(store_of(s), true), expected);
    }
    compact(s, FAM_DATA);
    assert_int_equal(store_pressure(store_of(s), true), 0);
}

static bool blobs_are_small(struct store_session *s)
{
    return store_number(s->store, FAM_META, "rocksdb.total-blob-file-size") < 8 << 20;
}

/* Garbage in blob files is collected when there is much of it. */
static void garbage_in_blobs_goes(void **state)
{
    struct bed *b = *state;
    b->o.blob_size = 500;
    reopen(b);
    struct store_session *s = b->s;
    char key[32];
    fill(s, FAM_META, "x", 12000);
    compact(s, FAM_META);
    assert_false(blobs_are_small(s));
    for (u32 i = 0; i < 12000; i++)
        if (i % 3) store_delete(s, FAM_META, bytes_of(key, (size_t)snprintf(key, sizeof key, "x%07u", i)));
    commit(s);
    compact(s, FAM_META); /* which drops the rows, and makes what they had in blob files garbage */
    assert_true(eventually(blobs_are_small, s));
    assert_true(has(s, FAM_META, L("x0000000")) && has(s, FAM_META, L("x0011997")));
}

static void info_is_well_formed(void **state)
{
    struct bed *b = *state;
    struct buf out = {0};
    fill(b->s, FAM_DATA, "x", 100);
    compact(b->s, FAM_DATA);
    assert_true(has(b->s, FAM_DATA, L("x0000001")));
    store_info(b->s, &out);
    buf_append_char(&out, 0);
    static const char *const wanted[] = {
        "sst_bytes:", "block_cache_hits:", "block_cache_misses:", "pending_compaction_bytes:0",
        "write_stalled:0", "background_errors:0", "wal_sync:no", "wal_last_sync_status:ok",
        "orphans_dropped:0", "dead_keys_dropped:0",
        "family_data:level_files=0:0:0:0:0:0:1,level_bytes=", "family_deadline:", "garbage_rows=0",
    };
    for (u32 i = 0; i < ARRAY_LEN(wanted); i++)
        if (!strstr(out.p, wanted[i])) fail_msg("%s is not in %s", wanted[i], out.p);
    for (char *line = strtok(out.p, "\n"); line; line = strtok(NULL, "\n")) {
        assert_non_null(strchr(line, ':'));
        assert_true(line[strlen(line) - 1] == '\r');
    }
    buf_release(&out);
}

/* -- opening, and what may be in the way --------------------------------------------------------------- */

static void refuses(const struct rocks_options *o, bool read_only, const char *says)
{
    struct buf why = {0};
    bool failed = false;
    struct store_session *s = store_open_alone(o, read_only, &failed, &why);
    assert_null(s);
    buf_append_char(&why, 0);
    if (!strstr(why.p, says)) fail_msg("\"%s\" is not in \"%s\"", says, why.p);
    buf_release(&why);
}

static void families_of_others_stay(void **state)
{
    struct bed *b = *state;
    char *err = NULL;
    rocksdb_options_t *o = rocksdb_options_create();
    rocksdb_writeoptions_t *w = rocksdb_writeoptions_create();
    rocksdb_column_family_handle_t *cf = rocksdb_create_column_family(b->s->db, o, "of_others", &err);
    assert_null(err);
    rocksdb_put_cf(b->s->db, w, cf, "entry", 5, "1", 1, &err);
    assert_null(err);
    rocksdb_column_family_handle_destroy(cf);
    reopen(b);
    assert_int_equal(b->s->store->others_n, 2);
    store_put(b->s, FAM_META, L("a"), L("1"));
    commit(b->s);
    reopen(b);
    rocksdb_readoptions_t *r = rocksdb_readoptions_create();
    size_t n;
    char *value = rocksdb_get_cf(b->s->db, r, b->s->store->others[1], "entry", 5, &n, &err);
    assert_non_null(value);
    rocksdb_free(value);
    rocksdb_readoptions_destroy(r);
    rocksdb_writeoptions_destroy(w);
    rocksdb_options_destroy(o);
}

static void one_process_only(void **state)
{
    struct bed *b = *state;
    for (int read_only = 0; read_only < 2; read_only++) {
        fflush(NULL);
        pid_t child = fork(); /* has the threads of neither, but asks for the lock as another process would */
        if (child == 0) {
            struct buf why = {0};
            bool failed;
            struct store_session *s = store_open_alone(&b->o, read_only, &failed, &why);
            buf_append_char(&why, 0);
            _exit(!s && strstr(why.p, "another process has it open") ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    refuses(&b->o, false, "another process has it open"); /* nor in this one, once more */
}

static void reading_only(void **state)
{
    struct bed *b = *state;
    store_put(b->s, FAM_RANK, L("a"), L("1"));
    commit(b->s);
    store_close_alone(b->s);
    struct buf why = {0};
    struct store_session *s = store_open_alone(&b->o, true, &b->failed, &why);
    assert_non_null(s);
    expect(s, FAM_RANK, L("a"), L("1")); /* from the log */
    struct store_iter *it = store_iter(s, FAM_RANK, (bytes){0}, (bytes){0}, STORE_ONCE);
    store_seek_first(it);
    assert_true(store_valid(it));
    store_cron(store_of(s));
    store_close_alone(s);
    open_bed(b);
}

static void path(struct buf *out, const struct bed *b, const char *name)
{
    buf_clear(out);
    buf_printf(out, "%s/%s", b->dir, name);
    buf_append_char(out, 0);
}

static void bad_directories(void **state)
{
    struct bed *b = *state;
    struct buf p = {0};
    struct rocks_options o = b->o;
    path(&p, b, "IDENTITY"); /* a file */
    o.dir = p.p;
    refuses(&o, false, "must be a directory");
    refuses(&o, true, "there is no RocksDB database");
    o.dir = "/proc/1/nothing/here";
    refuses(&o, false, "can't open the RocksDB database in /proc/1");
    store_close_alone(b->s);
    b->s = NULL;
    path(&p, b, "CURRENT");
    FILE *f = fopen(p.p, "w");
    fputs("MANIFEST-999999\n", f);
    fclose(f);
    refuses(&b->o, false, "CURRENT names MANIFEST-999999, which is missing");
    refuses(&b->o, true, "CURRENT names MANIFEST-999999, which is missing");
    buf_release(&p);
}

/* The newest file with this ending. */
static void newest(const struct bed *b, const char *ending, struct buf *out)
{
    char best[300] = "";
    DIR *d = opendir(b->dir);
    for (struct dirent *e; (e = readdir(d));) {
        const char *dot = strrchr(e->d_name, '.');
        bool matches = dot && strcmp(dot, ending) == 0;
        if (matches && strcmp(e->d_name, best) > 0) snprintf(best, sizeof best, "%s", e->d_name);
    }
    closedir(d);
    assert_true(best[0]);
    path(out, b, best);
}

/* As if nothing had been synced since the database was opened. */
static void forget_syncs(const struct bed *b)
{
    struct wal_synced n;
    assert_true(wal_synced_read(b->dir, &n));
    n.sequence = n.before;
    n.sealed_log = n.size = 0;
    int fd = wal_synced_open(b->dir);
    assert_true(wal_synced_write(fd, &n));
    close(fd);
}

static void a_torn_tail_is_cut(void **state)
{
    struct bed *b = *state;
    struct buf p = {0};
    struct stat st;
    for (int i = 0; i < 3; i++) {
        char k = (char)('0' + i);
        store_put(b->s, FAM_META, bytes_of(&k, 1), L("x"));
        store_put(b->s, FAM_DATA, bytes_of(&k, 1), L("y"));
        commit(b->s);
    }
    store_close_alone(b->s);
    newest(b, ".log", &p);
    assert_int_equal(stat(p.p, &st), 0);
    assert_int_equal(truncate(p.p, st.st_size - 3), 0);
    refuses(&b->o, false, "more had been written and synced");
    refuses(&b->o, true, "more had been written and synced");
    forget_syncs(b);
    open_bed(b);
    assert_true(has(b->s, FAM_META, L("1")) && has(b->s, FAM_DATA, L("1")));
    assert_false(has(b->s, FAM_META, L("2")) || has(b->s, FAM_DATA, L("2"))); /* as a whole */
    buf_release(&p);
}

/* What is damaged in the middle is refused. If the loss is accepted it ends there: no hole, never quietly,
 * and the log is kept. */
static void a_damaged_log_is_refused(void **state)
{
    struct bed *b = *state;
    struct buf p = {0}, text = {0};
    char value[5000], log_path[300];
    memset(value, 'v', sizeof value);
    snprintf(log_path, sizeof log_path, "%s/our.txt", b->dir);
    struct log log = {.level = LOG_NOTICE, .path = log_path};
    for (int i = 0; i < 9; i++) {
        char k = (char)('0' + i);
        store_put(b->s, FAM_META, bytes_of(&k, 1), bytes_of(value, sizeof value));
        commit(b->s);
    }
    store_close_alone(b->s);
    newest(b, ".log", &p);
    int fd = open(p.p, O_WRONLY);
    assert_int_equal(pwrite(fd, "\x02", 1, 22000), 1);
    close(fd);
    refuses(&b->o, false, "a bad record at offset 20100 with sound ones behind it");
    refuses(&b->o, true, "a bad record at offset 20100 with sound ones behind it");
    forget_syncs(b);
    refuses(&b->o, false, "--rocksdb-load-damaged-log yes");
    b->o.log = &log;
    b->o.load_damaged = true;
    open_bed(b);
    b->o.load_damaged = false;
    for (int i = 0; i < 9; i++) {
        char k = (char)('0' + i);
        assert_int_equal(has(b->s, FAM_META, bytes_of(&k, 1)), i < 4);
    }
    fd = open(log_path, O_RDONLY);
    text.n = (size_t)read(fd, buf_reserve(&text, 4000), 3999);
    close(fd);
    buf_append_char(&text, 0);
    assert_non_null(strstr(text.p, "damaged part"));
    path(&p, b, "lost-logs/000004.log.0");
    assert_int_equal(access(p.p, F_OK), 0);
    reopen(b); /* once only */
    store_put(b->s, FAM_META, L("x"), L("1"));
    commit(b->s);
    store_close_alone(b->s);
    b->o.log = NULL;
    open_bed(b);
    assert_true(has(b->s, FAM_META, L("x")));
    buf_release(&p);
    buf_release(&text);
}

static void a_broken_file_fails_reads(void **state)
{
    struct bed *b = *state;
    struct buf p = {0};
    fill(b->s, FAM_SCORE, "x", 2000);
    compact(b->s, FAM_SCORE);
    reopen(b); /* nothing of it is cached */
    newest(b, ".sst", &p);
    int fd = open(p.p, O_WRONLY);
    char junk[4096] = {1};
    for (off_t at = 100000; at < 1500000; at += 50000) assert_true(pwrite(fd, junk, sizeof junk, at) > 0);
    close(fd);
    struct store_iter *it = store_iter(b->s, FAM_SCORE, (bytes){0}, (bytes){0}, 0);
    u32 n = 0;
    for (store_seek_first(it); store_valid(it); store_next(it)) n++;
    assert_true(n < 2000);
    assert_true(b->failed); /* "absent", but not quietly */
    b->failed = false;
    struct store_value v;
    char key[32];
    for (u32 i = 0; i < 2000 && !b->failed; i++)
        if (store_get(b->s, FAM_SCORE, bytes_of(key, (size_t)snprintf(key, sizeof key, "x%07u", i)), &v))
            store_value_release(&v);
    assert_true(b->failed);
    b->failed = false;
    assert_null(store_refuses_writes(b->s));
    buf_release(&p);
}

/* -- logs that can't be written ------------------------------------------------------------------ */

static void fail_on_log(struct store *s, u64 number)
{
    struct buf err = {0};
    buf_printf(&err, "IO error: No space left on device: While appending to file: %s/%06llu.log: No space", s->dir,
               (unsigned long long)number);
    buf_append_char(&err, 0);
    store_write_failed(s, strdup(err.p));
    buf_release(&err);
}

/* RocksDB may have begun a new log before the writer notes that the old one failed: then nothing is waited for. */
static void only_the_log_that_failed_is_left(void **state)
{
    struct bed *b = *state;
    struct store *s = store_of(b->s);
    u64 newest = store_newest_log(s);
    assert_true(newest > 1);
    fail_on_log(s, newest);
    store_cron(s);
    assert_non_null(store_refuses_writes(b->s)); /* until there is another */
    s->broken_log = 0;
    store_cron(s);
    assert_null(store_refuses_writes(b->s));
    fail_on_log(s, newest - 1);
    assert_non_null(store_refuses_writes(b->s));
    store_cron(s);
    assert_null(store_refuses_writes(b->s));
}

/* -- a full disk, where we may mount one --------------------------------------------------------- */

static int full_disk(const char *dir)
{
    struct rocks_options o = {.dir = dir, .block_cache = 1 << 20, .write_buffer = 1 << 20};
    o.sync = DISK_SYNC_EVERYSEC;
    struct buf why = {0}, big = {0};
    bool failed = false;
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", dir, "tmpfs", 0, "size=48m"))
        return 77;
    struct store_session *s = store_open_alone(&o, false, &failed, &why);
    if (!s) return 1;
    store_put(s, FAM_META, L("before"), L("1"));
    if (!store_write(s)) return 2;
    buf_printf(&big, "%s/ballast", dir);
    buf_append_char(&big, 0);
    int fd = open(big.p, O_CREAT | O_WRONLY, 0600);
    char block[65536] = {0};
    while (write(fd, block, sizeof block) > 0) continue;
    store_cron(store_of(s));
    const char *text = store_refuses_writes(s);
    if (!text || strncmp(text, "MISCONF RocksDB cannot write: the disk is full", 46)) return 10;
    char key[32];
    bool ok = true; /* writes beyond that are delayed */
    for (u32 i = 0; i < 100000 && ok; i++) {
        size_t n = (size_t)snprintf(key, sizeof key, "k%u", i);
        store_put(s, FAM_META, bytes_of(key, n), bytes_of(block, 1000));
        store_put(s, FAM_INFO, L("sequence"), L("1")); /* as the engine does */
        ok = store_write(s);
    }
    if (ok || !s->store->write_failed || !strstr(s->store->refusal, "No space")) return 3;
    if (!has(s, FAM_META, L("before")) || !has(s, FAM_META, L("k0")) || failed) return 4;
    store_cron(store_of(s));
    if (!store_refuses_writes(s)) return 5;
    if (ftruncate(fd, 0)) return 6;
    close(fd);
    if (!eventually(flows, s)) return 7; /* RocksDB looks every five seconds */
    store_put(s, FAM_META, L("after"), L("1"));
    if (!store_write(s)) return 8;
    store_close_alone(s);
    s = store_open_alone(&o, false, &failed, &why);
    if (!s || !has(s, FAM_META, L("before"))) return 9;
    if (!has(s, FAM_META, L("k0")) || !has(s, FAM_META, L("after"))) return 9;
    store_close_alone(s);
    umount(dir);
    buf_release(&big);
    return 0;
}

static void a_full_disk_stops_writes_only(void **state UNUSED)
{
    char dir[256];
    assert_true(folder_make(dir, sizeof dir, "full"));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(full_disk(dir));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    rmdir(dir);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_disk_stops_writes_only), /* first: forks before RocksDB has threads */
        T(batch_and_reads), T(many_at_once),
        T(iterators_keep_their_bounds), T(iterators_see_what_was_written),
        T(orphans_go), T(dead_values_go),
        T(files_are_dropped), T(refilled_ranges_are_compacted), T(garbage_is_swept),
        T(the_log_is_synced), T(a_backlog_is_told_and_stops_nothing), T(files_in_level_0_are_pressure),
        T(garbage_in_blobs_goes), T(info_is_well_formed),
        T(families_of_others_stay), T(one_process_only), T(reading_only), T(bad_directories),
        T(a_torn_tail_is_cut), T(a_damaged_log_is_refused), T(a_broken_file_fails_reads),
        T(only_the_log_that_failed_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
