/* The tests themselves. suite_model.c holds the model they compare with, and
 * suite_change.c the random changes. */
#include "suite.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "suite_model.h"

static engine_open_fn open_engine;
static struct world w;

static int setup(void **state)
{
    (void)state;
    suite_seed();
    world_open(&w, open_engine(DBS, 12345));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_close(&w);
    return 0;
}

/* -- everything at once ------------------------------------------------------------------- */

static void move_key(struct key_ref *ref, struct mval *m, bool copy)
{
    struct key_ref out;
    struct mval *to = copy ? copy_key(&w, ref, m, &out) : rename_key(&w, ref, m);
    if (!to) return;
    check_value(&w, copy ? &out : ref, to);
    if (copy) check_value(&w, ref, m);
}

static void swap_or_flush(void)
{
    u32 a = below(DBS), b = below(DBS);
    if (below(2)) {
        swap_dbs(&w, a, b);
    } else {
        flush_db(&w, a);
        assert_int_equal(w.ops->count(w.e, a), 0);
    }
}

static void touch_access(struct key_ref *ref)
{
    u32 bits = below(1u << 24);
    w.ops->set_access(w.e, ref, bits);
    assert_int_equal(w.ops->access(w.e, ref), bits);
}

/* A ref stays good while other keys change. */
static void change_another(struct key_ref *ref, struct mval *m)
{
    u32 db = below(DBS), id = below(IDS);
    struct mval *other = &w.key[db][id];
    struct key_ref second;
    if (other == m) return;
    if (world_find(&w, db, id, &second)) change_value(&w, &second, other, 300);
    else create_value(&w, db, id, TYPE_STRING, &second);
    check_value(&w, ref, m);
}

static void one_step(u32 elements)
{
    u32 db = below(DBS), id = below(IDS), what = below(1000);
    struct mval *m = &w.key[db][id];
    struct key_ref ref;
    w.e->fresh_access = below(1u << 24);
    if (!world_find(&w, db, id, &ref)) {
        create_value(&w, db, id, 1 + below(6), &ref);
        assert_int_equal(w.ops->access(w.e, &ref), w.e->fresh_access);
        return;
    }
    if (what < 700) {
        for (u32 n = 1 + below(10); n > 0 && m->type != TYPE_NONE; n--)
            change_value(&w, &ref, m, elements);
    } else if (what < 780) change_deadline(&w, &ref, m);
    else if (what < 800) drop_key(&w, &ref, m);
    else if (what < 830) move_key(&ref, m, false);
    else if (what < 860) move_key(&ref, m, true);
    else if (what < 890) touch_access(&ref);
    else if (what < 920) change_another(&ref, m);
    else if (what < 921) swap_or_flush();
    else if (what < 960) w.ops->reclaim(w.e, 1 + below(50));
    else check_value(&w, &ref, m);
}

static void test_everything(void **state)
{
    (void)state;
    for (u32 step = 0; step < ROUNDS(60000); step++) {
        one_step(300);
        if (below(10) == 0) world_tick(&w, below(below(10) ? 100 : 20000));
        if (below(50) == 0) for (u32 db = 0; db < DBS; db++) drain_due(&w, db);
        if (step % 1000 == 0) check_world(&w);
    }
    check_world(&w);
}

/* The same with a clock that steps back and forth by an hour. */
static void test_clock_steps(void **state)
{
    (void)state;
    for (u32 step = 0; step < ROUNDS(30000); step++) {
        one_step(300);
        if (below(10) == 0) world_tick(&w, below(100));
        if (below(100) == 0) world_tick(&w, (below(2) ? 3600000 : -3600000) + (i64)below(1000));
        if (below(20) == 0) drain_due(&w, below(DBS));
        if (step % 1000 == 0) check_world(&w);
    }
    for (u32 db = 0; db < DBS; db++) drain_due(&w, db);
    check_world(&w);
}

/* -- one value of each type, and large ------------------------------------------------------ */

/* Mostly growing, then mostly shrinking: erase makes the small ones. */
static void large_value(enum value_type type, u32 elements, u32 steps)
{
    struct mval *m = &w.key[0][1];
    struct key_ref ref;
    for (u32 step = 0; step < ROUNDS(steps); step++) {
        if (!world_find(&w, 0, 1, &ref)) create_value(&w, 0, 1, type, &ref);
        for (u32 n = 0; n < 20 && m->type != TYPE_NONE; n++) change_value(&w, &ref, m, elements);
        if (m->type != TYPE_NONE && step % 10 == 0) check_value(&w, &ref, m);
        if (step % 50 == 0) world_tick(&w, below(100));
        if (step % 200 == 0) drain_due(&w, 0);
    }
    check_db(&w, 0);
}

static void test_hash(void **state) { (void)state; large_value(TYPE_HASH, 2000, 2000); }
static void test_set(void **state) { (void)state; large_value(TYPE_SET, 2000, 2000); }
static void test_list(void **state) { (void)state; large_value(TYPE_LIST, 2000, 2000); }
static void test_zset(void **state) { (void)state; large_value(TYPE_ZSET, 2000, 2000); }
static void test_stream(void **state) { (void)state; large_value(TYPE_STREAM, 2000, 2000); }
static void test_string(void **state) { (void)state; large_value(TYPE_STRING, 0, 2000); }

static void test_stream_ranges(void **state)
{
    (void)state;
    struct mval *m = &w.key[0][1];
    struct key_ref ref;
    for (u32 round = 0; round < 40; round++) {
        if (!world_find(&w, 0, 1, &ref)) create_value(&w, 0, 1, TYPE_STREAM, &ref);
        erase_ranges(&w, &ref, m, 2000);
        world_find(&w, 0, 1, &ref);
        check_value(&w, &ref, m);
        if (round % 10 == 9) drop_key(&w, &ref, m);
    }
}

/* From a few integers past any limit, and then a member that is none. */
static void test_set_of_integers(void **state)
{
    (void)state;
    struct mval *m = &w.key[0][1];
    struct key_ref ref;
    for (u32 limit = 2; limit < 1000; limit *= 4) {
        w.e->limits.set_max_intset_entries = limit;
        for (u32 last = 0; last < 2; last++) {
            w.ops->create(w.e, 0, text(1), TYPE_SET, &ref);
            *m = (struct mval){.type = TYPE_SET};
            for (u32 n = 0; n < limit + last; n++) {
                assert_true(w.ops->map.put(w.e, &ref, text(4 * n + 4), text(0), false));
                mval_insert(m, m->n, (struct elem){.id = 4 * n + 4});
            }
            check_value(&w, &ref, m);
            for (u32 n = 0; n < 200 && m->n; n++) change_value(&w, &ref, m, 4000);
            if (m->n) check_value(&w, &ref, m);
            if (m->n) drop_key(&w, &ref, m);
        }
    }
}

static void test_list_of_few_per_chunk(void **state)
{
    (void)state;
    w.e->limits.list_max_listpack_size = 3;
    large_value(TYPE_LIST, 1000, 300);
}

/* A list of many chunks, and a cut right through it. */
static void test_big_list(void **state)
{
    (void)state;
    struct key_ref ref;
    struct mval *m = &w.key[0][2];
    create_value(&w, 0, 2, TYPE_LIST, &ref);
    for (u32 i = 0; i < 20000; i++) {
        w.ops->seq.push(w.e, &ref, false, text(i % 5000));
        mval_insert(m, m->n, (struct elem){.id = i % 5000});
    }
    check_value(&w, &ref, m);
    w.ops->seq.erase(w.e, &ref, 100, 19000);
    mval_erase(m, 100, 19000);
    check_value(&w, &ref, m);
}

/* Into empty ones; into others test_everything does. */
static void test_fill(void **state)
{
    (void)state;
    struct key_ref ref;
    struct mval *m = &w.key[0][2];
    for (u32 round = 0; round < ROUNDS(2000); round++) {
        enum value_type type = 2 + round % 4;
        w.ops->create(w.e, 0, text(2), type, &ref);
        *m = (struct mval){.type = type};
        if (type != TYPE_LIST && below(3) == 0) {
            fill_twice(&w, &ref, m, 1000);
            continue;
        }
        fill_value(&w, &ref, m, below(2) ? 1000 : 100);
        check_value(&w, &ref, m);
        if (below(2)) fill_value(&w, &ref, m, 1000);
        check_value(&w, &ref, m);
        drop_key(&w, &ref, m);
        if (round % 50 == 0) world_tick(&w, 1);
    }
}

static void test_expect(void **state)
{
    (void)state;
    struct key_ref ref;
    w.ops->expect(w.e, 2, 5000); /* nothing comes */
    for (u32 round = 0; round < 3; round++) {
        w.ops->expect(w.e, 0, 100 * round);
        for (u32 id = 0; id < IDS; id++)
            if (!world_find(&w, 0, id, &ref)) create_value(&w, 0, id, 1 + below(6), &ref);
        w.ops->expect(w.e, 0, 0);
        check_db(&w, 0);
        for (u32 id = 0; id < IDS; id++)
            if (below(4) && world_find(&w, 0, id, &ref)) drop_key(&w, &ref, &w.key[0][id]);
        check_db(&w, 0);
    }
}

/* -- encodings --------------------------------------------------------------------------------- */

static void assert_encoding(struct key_ref *ref, const char *want)
{
    assert_string_equal(w.ops->encoding(w.e, ref), want);
}

static void test_string_encodings(void **state)
{
    (void)state;
    struct key_ref ref;
    char long_text[64];
    memset(long_text, 'x', sizeof long_text);
    w.ops->find(w.e, 0, BYTES_LIT("s"), &ref);
    w.ops->str.put(w.e, 0, BYTES_LIT("s"), &ref, BYTES_LIT("12"), 0);
    assert_encoding(&ref, "int");
    w.ops->str.put(w.e, 0, BYTES_LIT("s"), &ref, BYTES_LIT("012"), 0);
    assert_encoding(&ref, "embstr");
    w.ops->str.edit(w.e, &ref, 4);
    assert_encoding(&ref, "raw");
    w.ops->str.set_int(w.e, &ref, -5);
    assert_encoding(&ref, "int");
    w.ops->str.put(w.e, 0, BYTES_LIT("s"), &ref, bytes_of(long_text, 44), 0);
    assert_encoding(&ref, "embstr");
    w.ops->str.put(w.e, 0, BYTES_LIT("s"), &ref, bytes_of(long_text, 45), 0);
    assert_encoding(&ref, "raw");
    w.ops->drop(w.e, &ref);
}

/* Grows past the limit by one element, shrinks again: the name stays. */
static void by_count(enum value_type type, const char *small, const char *big)
{
    struct key_ref ref;
    w.e->limits.hash_max_listpack_entries = 4;
    w.e->limits.zset_max_listpack_entries = 4;
    w.e->limits.set_max_intset_entries = 4;
    w.ops->create(w.e, 0, BYTES_LIT("c"), type, &ref);
    for (u32 i = 1; i <= 5; i++) {
        bytes number = text(4 * i);
        if (type == TYPE_ZSET) w.ops->zset.put(w.e, &ref, number, i);
        else w.ops->map.put(w.e, &ref, number, text(0), false);
        assert_encoding(&ref, i <= 4 ? small : big);
    }
    for (u32 i = 1; i < 5; i++) {
        if (type == TYPE_ZSET) w.ops->zset.del(w.e, &ref, text(4 * i));
        else w.ops->map.del(w.e, &ref, text(4 * i));
    }
    assert_encoding(&ref, big);
    w.ops->drop(w.e, &ref);
}

static void by_length(enum value_type type, const char *small, const char *big)
{
    struct key_ref ref;
    char member[65];
    memset(member, 'm', sizeof member);
    w.ops->create(w.e, 0, BYTES_LIT("c"), type, &ref);
    for (size_t n = 64; n <= 65; n++) {
        if (type == TYPE_ZSET) w.ops->zset.put(w.e, &ref, bytes_of(member, n), 1);
        else w.ops->map.put(w.e, &ref, BYTES_LIT("f"), bytes_of(member, n), false);
        assert_encoding(&ref, n == 64 ? small : big);
    }
    w.ops->drop(w.e, &ref);
}

static void test_collection_encodings(void **state)
{
    (void)state;
    struct key_ref ref;
    by_count(TYPE_HASH, "listpack", "hashtable");
    by_count(TYPE_ZSET, "listpack", "skiplist");
    by_count(TYPE_SET, "intset", "hashtable");
    by_length(TYPE_HASH, "listpack", "hashtable");
    by_length(TYPE_ZSET, "listpack", "skiplist");
    w.ops->create(w.e, 0, BYTES_LIT("c"), TYPE_SET, &ref);
    w.ops->map.put(w.e, &ref, BYTES_LIT("1"), text(0), false);
    assert_encoding(&ref, "intset");
    w.ops->map.put(w.e, &ref, BYTES_LIT("01"), text(0), false);
    assert_encoding(&ref, "listpack");
    char longer[65];
    memset(longer, 'm', sizeof longer);
    w.ops->map.put(w.e, &ref, bytes_of(longer, sizeof longer), text(0), false);
    assert_encoding(&ref, "hashtable");
    w.ops->drop(w.e, &ref);
}

/* -- walks while things change ----------------------------------------------------------- */

#define MANY 6000

struct presence {
    u8 *stays;       /* below MANY: was there from the start of the scan on */
    u32 missing;
};

static void strike_out(struct presence *p, bytes name)
{
    u32 id = text_id(name);
    assert_true(id < MANY);
    if (p->stays[id]) p->missing--;
    p->stays[id] = 0;
}

static void strike_key(void *arg, struct key_ref *ref) { strike_out(arg, ref->key); }
static void strike_pair(void *arg, bytes member, bytes value, double score)
{
    (void)value;
    (void)score;
    strike_out(arg, member);
}

/* What can be scanned: the keys of database 1, or one collection. */
static void put_one(enum value_type type, struct key_ref *in, u32 id)
{
    struct key_ref ref;
    if (type == TYPE_ZSET) w.ops->zset.put(w.e, in, text(id), id);
    else if (type != TYPE_NONE) w.ops->map.put(w.e, in, text(id), text(0), false);
    else if (!w.ops->find(w.e, 1, text(id), &ref))
        w.ops->str.put(w.e, 1, text(id), &ref, text(id), 0);
}

static void del_one(enum value_type type, struct key_ref *in, u32 id)
{
    struct key_ref ref;
    if (type == TYPE_ZSET) w.ops->zset.del(w.e, in, text(id));
    else if (type != TYPE_NONE) w.ops->map.del(w.e, in, text(id));
    else if (w.ops->find(w.e, 1, text(id), &ref)) w.ops->drop(w.e, &ref);
}

static u64 scan_one(enum value_type type, struct key_ref *in, u64 cursor, u32 count,
                    struct presence *p)
{
    if (type == TYPE_ZSET) return w.ops->zset.scan(w.e, in, cursor, count, strike_pair, p);
    if (type != TYPE_NONE) return w.ops->map.scan(w.e, in, cursor, count, strike_pair, p);
    return w.ops->scan(w.e, 1, cursor, count, strike_key, p);
}

static void scan_while_changing(enum value_type type, struct key_ref *in, u32 stay)
{
    struct presence p = {mem_zalloc(MANY), stay};
    for (u32 id = 0; id < stay; id++) {
        put_one(type, in, id);
        p.stays[id] = 1;
    }
    for (u32 n = below(MANY); n > 0; n--) put_one(type, in, stay + below(MANY - stay));
    u32 growth = below(101);
    u64 cursor = 0;
    do {
        cursor = scan_one(type, in, cursor, 1 + below(20), &p);
        for (u32 n = below(300); n > 0; n--) {
            u32 id = stay + below(MANY - stay);
            below(100) < growth ? put_one(type, in, id) : del_one(type, in, id);
        }
    } while (cursor);
    assert_int_equal(p.missing, 0);
    mem_free(p.stays);
}

static void test_scan_guarantee(void **state)
{
    (void)state;
    static const enum value_type types[] = {TYPE_NONE, TYPE_HASH, TYPE_SET, TYPE_ZSET};
    for (u32 round = 0; round < ROUNDS(80); round++) {
        enum value_type type = types[round % ARRAY_LEN(types)];
        struct key_ref ref = {0};
        if (type != TYPE_NONE) w.ops->create(w.e, 1, BYTES_LIT("collection"), type, &ref);
        scan_while_changing(type, &ref, 1 + below(below(2) ? 100 : 3000));
        w.ops->flush(w.e, 1);
        while (w.ops->reclaim(w.e, 1000)) {}
    }
}

/* -- expiry ---------------------------------------------------------------------------------- */

struct offers {
    u32 keys;
    i64 latest_ms;
};

static void take_offer(void *arg, struct key_ref *ref)
{
    struct offers *o = arg;
    assert_true(ref->deadline_ms <= w.now_ms);
    o->keys++;
    o->latest_ms = MAX(o->latest_ms, ref->deadline_ms);
    w.ops->drop(w.e, ref);
}

static void put_volatile(u32 id, i64 deadline_ms)
{
    struct key_ref ref;
    w.ops->find(w.e, 1, text(id), &ref);
    w.ops->str.put(w.e, 1, text(id), &ref, text(id), deadline_ms);
}

/* A few due keys among many others: the work is about the due ones, not the others. */
static void test_due_costs_what_is_due(void **state)
{
    (void)state;
    enum { FAR = ROUNDS(20000) };
    struct offers o = {0};
    for (u32 id = 0; id < FAR; id++) put_volatile(id, START + 7200000 + (i64)below(1u << 30));
    for (u32 id = FAR; id < FAR + 100; id++) put_volatile(id, START + 1000);
    world_tick(&w, 999);
    assert_int_equal(w.ops->due(w.e, w.now_ms, NONE, take_offer, &o), 0);
    world_tick(&w, 66);
    u64 seen = w.ops->due(w.e, w.now_ms, NONE, take_offer, &o);
    assert_int_equal(o.keys, 100);
    assert_in_range(seen, 100, 110);
    assert_int_equal(w.ops->due(w.e, w.now_ms, NONE, take_offer, &o), 0);
    assert_int_equal(w.ops->count(w.e, 1), FAR);

    /* And over its whole life a key is looked at a handful of times. */
    seen = 0;
    while (w.ops->count(w.e, 1)) {
        i64 next = w.ops->next_due(w.e);
        assert_true(next > w.now_ms && next < INT64_MAX);
        world_tick(&w, next - w.now_ms);
        seen += w.ops->due(w.e, w.now_ms, NONE, take_offer, &o);
    }
    assert_int_equal(o.keys, FAR + 100);
    assert_true(seen < FAR * 6);
    assert_true(w.ops->next_due(w.e) == INT64_MAX);
}

/* Up to max, not more; the rest is offered by the next call. */
static void test_due_in_slices(void **state)
{
    (void)state;
    struct offers o = {0};
    for (u32 id = 0; id < 10000; id++) put_volatile(id, START + 1 + below(1000));
    world_tick(&w, 1064);
    for (u32 calls = 0; w.ops->count(w.e, 1); calls++) {
        u32 before = o.keys;
        assert_true(w.ops->due(w.e, w.now_ms, 64, take_offer, &o) <= 64);
        assert_true(o.keys - before <= 64 && calls < 10000 / 64 + 10);
    }
    assert_int_equal(o.keys, 10000);
}

/* Deadlines shortened, lengthened, removed and put back, by TTLs of every size. */
static void test_every_deadline_is_met(void **state)
{
    (void)state;
    for (u32 round = 0; round < 30; round++) {
        i64 latest = w.now_ms;
        for (u32 id = 1; id < IDS; id++) {
            struct mval *m = &w.key[0][id];
            struct key_ref ref;
            if (!world_find(&w, 0, id, &ref)) create_value(&w, 0, id, 1 + below(6), &ref);
            for (u32 n = below(4); n > 0; n--) {
                m->deadline_ms = below(4) ? w.now_ms + 1 + below(2u << below(30)) : 0;
                w.ops->set_deadline(w.e, &ref, m->deadline_ms);
            }
            latest = MAX(latest, m->deadline_ms);
        }
        while (w.now_ms < latest + 64) {
            i64 next = w.ops->next_due(w.e), step = 1 + below(2u << below(28));
            world_tick(&w, below(2) && next < latest + 64 ? next - w.now_ms : step);
            drain_due(&w, 0);
        }
        check_db(&w, 0);
    }
}

/* The time of a transaction may move on, for members of a group and sites: 100 stored fields and 100 of the
 * transaction die at 1 to 100 ms. */
static void test_field_time_moves_on(void **state)
{
    (void)state;
    struct key_ref ref;
    w.ops->create(w.e, 0, BYTES_LIT("h"), TYPE_HASH, &ref);
    for (u32 i = 0; i < 201; i++) {
        if (i == 101) {
            world_tick(&w, 0);
            assert_true(w.ops->find(w.e, 0, BYTES_LIT("h"), &ref));
        }
        w.ops->map.put(w.e, &ref, text(i), text(i), false);
        if (i) w.ops->map.set_field_deadline(w.e, &ref, text(i), w.now_ms + 1 + (i - 1) % 100);
    }
    assert_int_equal(w.ops->map.dead_fields(w.e, &ref), 0);
    for (u32 ms = 10; ms <= 100; ms += 10) {
        w.e->now_ms = w.now_ms + ms;
        assert_int_equal(w.ops->map.dead_fields(w.e, &ref), 2 * ms);
        assert_int_equal(w.ops->size(w.e, &ref), 201 - 2 * ms);
    }
    w.e->now_ms = w.now_ms;
    w.ops->drop(w.e, &ref);
}

/* -- freeing --------------------------------------------------------------------------------- */

static void fill(struct key_ref *ref, enum value_type type, u32 n)
{
    char value[300] = {0};
    for (u32 i = 0; i < n; i++) {
        memcpy(value, &i, 4);
        bytes v = bytes_of(value, 4 + i % 296);
        if (type == TYPE_ZSET) w.ops->zset.put(w.e, ref, v, i);
        else if (type == TYPE_LIST) w.ops->seq.push(w.e, ref, i & 1, v);
        else if (type == TYPE_STREAM) w.ops->rows.put(w.e, ref, v, v);
        else w.ops->map.put(w.e, ref, v, type == TYPE_SET ? text(0) : v, false);
        if (type == TYPE_HASH && i % 3 == 0)
            w.ops->map.set_field_deadline(w.e, ref, v, w.now_ms + 1 + i);
    }
}

/* Reclaim goes by small pieces, and ends. */
static void test_reclaim(void **state)
{
    (void)state;
    static const enum value_type types[] = {TYPE_HASH, TYPE_SET, TYPE_LIST, TYPE_ZSET, TYPE_STREAM};
    struct key_ref ref;
    for (u32 i = 0; i < ARRAY_LEN(types); i++) {
        w.ops->create(w.e, 2, text(i), types[i], &ref);
        fill(&ref, types[i], 20000);
        w.ops->drop(w.e, &ref);
        assert_false(w.ops->find(w.e, 2, text(i), &ref));
    }
    char *big = mem_zalloc(1 << 20);
    w.ops->str.put(w.e, 2, text(1), &ref, bytes_of(big, 1 << 20), w.now_ms + 5);
    w.ops->str.put(w.e, 2, text(1), &ref, bytes_of(big, 10), 0);
    mem_free(big);
    u32 calls = 0;
    while (w.ops->reclaim(w.e, 100)) assert_true(++calls < 100000);
    w.ops->drop(w.e, &ref);
    assert_int_equal(w.ops->count(w.e, 2), 0);
}

/* A flush hides everything at once; what was there does not disturb what comes. */
static void test_flush(void **state)
{
    (void)state;
    struct key_ref ref;
    struct offers o = {0};
    for (u32 id = 0; id < 20000; id++) put_volatile(id, w.now_ms + 1 + below(5000));
    w.ops->create(w.e, 1, BYTES_LIT("h"), TYPE_HASH, &ref);
    fill(&ref, TYPE_HASH, 5000);
    w.ops->flush(w.e, 1);
    assert_int_equal(w.ops->count(w.e, 1), 0);
    assert_int_equal(w.ops->expires(w.e, 1), 0);
    assert_false(w.ops->find(w.e, 1, text(5), &ref));
    assert_false(w.ops->random(w.e, 1, &suite_rng, &ref));
    assert_false(w.ops->random_volatile(w.e, 1, &suite_rng, &ref));
    put_volatile(5, w.now_ms + 10);
    world_tick(&w, 10000);
    for (u32 n = 0; n < 10; n++) w.ops->reclaim(w.e, 50);
    while (w.ops->due(w.e, w.now_ms, 100, take_offer, &o)) {}
    assert_int_equal(o.keys, 1);
    while (w.ops->reclaim(w.e, 1000)) {}
}

/* An endless SET EX · DEL leaves nothing behind once reclaim had its turn. */
static void test_volatile_churn(void **state)
{
    (void)state;
    struct key_ref ref;
    put_volatile(1, w.now_ms + 100000000);
    for (u32 n = 0; n < 100000; n++) {
        put_volatile(2 + n % 1000, w.now_ms + 1 + below(2u << below(28)));
        w.ops->find(w.e, 1, text(2 + n % 1000), &ref);
        w.ops->drop(w.e, &ref);
        if (n % 100 == 0) w.ops->reclaim(w.e, 100);
    }
    assert_int_equal(w.ops->expires(w.e, 1), 1);
    assert_true(w.ops->random_volatile(w.e, 1, &suite_rng, &ref));
    assert_int_equal(text_id(ref.key), 1);
    u32 calls = 0;
    while (w.ops->reclaim(w.e, 100)) assert_true(++calls < 10000);
    w.ops->drop(w.e, &ref);
    assert_false(w.ops->random_volatile(w.e, 1, &suite_rng, &ref));
}

static void new_field_deadline(u32 id, i64 at_least_ms)
{
    struct elem *el = &w.key[0][id].v[0];
    struct key_ref ref;
    world_find(&w, 0, id, &ref);
    el->deadline_ms = at_least_ms ? w.now_ms + at_least_ms + below(100000000) : 0;
    w.ops->map.set_field_deadline(w.e, &ref, text(el->id), el->deadline_ms);
}

/* The same with the deadlines of fields: changed again and again, and still met. */
static void test_field_churn(void **state)
{
    (void)state;
    struct key_ref ref;
    for (u32 id = 0; id < IDS; id++) {
        create_value(&w, 0, id, TYPE_HASH, &ref);
        new_field_deadline(id, 10000);
    }
    for (u32 n = 0; n < 60000; n++) {
        new_field_deadline(below(20), below(5) ? 10000 : 0); /* the other hashes keep theirs */
        if (n % 100 == 0) w.ops->reclaim(w.e, 100);
    }
    while (w.ops->reclaim(w.e, 100)) {}
    check_db(&w, 0);
    for (u32 n = 0; n < 200; n++) {
        world_tick(&w, below(1000000));
        drain_due(&w, 0);
    }
    check_db(&w, 0);
}

static void test_random_is_even(void **state)
{
    (void)state;
    u32 seen[200] = {0}, volatiles[200] = {0};
    struct key_ref ref;
    for (u32 id = 0; id < 200; id++) put_volatile(id, id % 2 ? w.now_ms + 60000 + below(60000) : 0);
    for (u32 n = 0; n < 200 * 200; n++) {
        assert_true(w.ops->random(w.e, 1, &suite_rng, &ref));
        seen[text_id(ref.key)]++;
        assert_true(w.ops->random_volatile(w.e, 1, &suite_rng, &ref));
        volatiles[text_id(ref.key)]++;
    }
    for (u32 id = 0; id < 200; id++) {
        assert_in_range(seen[id], 100, 300);
        if (id % 2) assert_in_range(volatiles[id], 50, 1600); /* roughly will do for eviction */
        else assert_int_equal(volatiles[id], 0);
    }
}

/* Eviction asks for any key with a deadline: the first of very many that die at about the same time must come
 * up as often as the last, and those whose deadlines were moved as often as the others. */
static void test_random_volatile_knows_no_age(void **state)
{
    (void)state;
    const u32 groups = 10, size = 10000, draws = 2000;
    u32 seen[10] = {0};
    struct key_ref ref;
    for (u32 id = 0; id < groups * size; id++) {
        put_volatile(id, w.now_ms + 86400000 + below(1000));
        if (id % size == 0) world_tick(&w, 100);
    }
    for (u32 id = 3 * size; id < 5 * size; id++) {
        i64 moved_ms = w.now_ms + (id < 4 * size ? 864000000 : 3600000);
        assert_true(w.ops->find(w.e, 1, text(id), &ref));
        w.ops->set_deadline(w.e, &ref, moved_ms);
    }
    world_tick(&w, 100);
    for (u32 n = 0; n < groups * draws; n++) {
        assert_true(w.ops->random_volatile(w.e, 1, &suite_rng, &ref));
        seen[text_id(ref.key) / size]++;
    }
    for (u32 g = 0; g < groups; g++) assert_in_range(seen[g], draws / 2, draws * 2);
}

static void test_prefetch(void **state)
{
    (void)state;
    struct want want[20];
    for (u32 i = 0; i < 10; i++) put_volatile(i, 0);
    for (u32 i = 0; i < 15; i++) want[i] = (struct want){1, text(i)};
    for (u32 i = 15; i < 20; i++) want[i] = (struct want){2, BYTES_LIT("x")};
    w.ops->prefetch(w.e, want, 20);
    w.ops->prefetch(w.e, want, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int engine_suite(engine_open_fn open)
{
    open_engine = open;
    const struct CMUnitTest tests[] = {
        TEST(test_string), TEST(test_hash), TEST(test_set), TEST(test_list), TEST(test_zset),
        TEST(test_stream), TEST(test_stream_ranges),
        TEST(test_set_of_integers), TEST(test_list_of_few_per_chunk), TEST(test_big_list),
        TEST(test_fill), TEST(test_expect),
        TEST(test_everything), TEST(test_clock_steps),
        TEST(test_string_encodings), TEST(test_collection_encodings), TEST(test_scan_guarantee),
        TEST(test_due_costs_what_is_due), TEST(test_due_in_slices),
        TEST(test_every_deadline_is_met), TEST(test_field_time_moves_on), TEST(test_reclaim),
        TEST(test_flush),
        TEST(test_volatile_churn), TEST(test_field_churn),
        TEST(test_random_is_even),
        TEST(test_random_volatile_knows_no_age), TEST(test_prefetch),
    };
    return cmocka_run_group_tests_name("engine suite", tests, NULL, NULL) + snapshot_suite(open) +
           staging_suite(open) + forecast_suite(open) + companion_suite(open);
}
