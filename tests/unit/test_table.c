/* The hash table against a plain array: the same random operations on both. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "ds/table.h"

#define IDS 20000 /* items are numbered below this */

struct item {
    u32 id;
    u32 n;
    char key[16];
    u64 seen; /* how often a walk met it */
};

struct world {
    struct table t;
    struct item *item[IDS]; /* NULL: absent */
    u64 count;
};

static u64 rng;

static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

static bytes key_of(const void *item)
{
    const struct item *it = item;
    return bytes_of(it->key, it->n);
}

static bytes name(u32 id, char *buf, size_t size)
{
    return bytes_of(buf, (size_t)snprintf(buf, size, "key:%u", id));
}

static void world_open(struct world *w)
{
    *w = (struct world){0};
    table_init(&w->t, key_of, rand_next(&rng));
}

static void add(struct world *w, u32 id)
{
    if (w->item[id]) return;
    struct item *it = mem_alloc(sizeof *it);
    *it = (struct item){.id = id};
    it->n = (u32)name(id, it->key, sizeof it->key).n;
    w->item[id] = it;
    w->count++;
    table_insert(&w->t, table_hash(&w->t, key_of(it)), it);
}

static void take(struct world *w, u32 id)
{
    struct item *it = w->item[id];
    if (!it) return;
    table_remove(&w->t, table_hash(&w->t, key_of(it)), it);
    w->item[id] = NULL;
    w->count--;
    mem_free(it);
}

static void move(struct world *w, u32 id)
{
    struct item *it = w->item[id];
    if (!it) return;
    struct item *fresh = mem_alloc(sizeof *fresh);
    *fresh = *it;
    table_replace(&w->t, table_hash(&w->t, key_of(it)), it, fresh);
    w->item[id] = fresh;
    mem_free(it);
}

static bool any_item(void *arg, void *item) { return item == arg; }

static void check_find(struct world *w, u32 id)
{
    char buf[16];
    bytes key = name(id, buf, sizeof buf);
    u64 hash = table_hash(&w->t, key);
    struct item *it = w->item[id];
    assert_ptr_equal(table_find(&w->t, key, hash), it);
    if (it) assert_ptr_equal(table_find_hash(&w->t, hash, any_item, it), it);
    table_prefetch_bucket(&w->t, hash);
    table_prefetch_item(&w->t, hash, 128);
}

static void check_walk(struct world *w)
{
    u64 n = 0;
    struct table_iter it = {0};
    for (struct item *i; (i = table_next(&w->t, &it)); n++) {
        assert_ptr_equal(w->item[i->id], i);
        assert_int_equal(i->seen++, 0);
    }
    assert_int_equal(n, w->count);
    assert_int_equal(w->t.count, w->count);
    for (u32 id = 0; id < IDS; id++) {
        if (w->item[id]) w->item[id]->seen = 0;
    }
}

static void drained(void *arg, void *item)
{
    struct world *w = arg;
    struct item *it = item;
    assert_ptr_equal(w->item[it->id], it);
    w->item[it->id] = NULL;
    w->count--;
    mem_free(it);
}

static void world_close(struct world *w)
{
    while (!table_drain(&w->t, 1 + below(500), drained, w)) check_find(w, below(IDS));
    assert_int_equal(w->count, 0);
    assert_int_equal(table_memory(&w->t), 0);
    table_release(&w->t);
}

static void check_empty(struct table *t)
{
    struct table_iter it = {0};
    assert_null(table_find(t, BYTES_LIT("x"), 5));
    assert_null(table_next(t, &it));
    assert_null(table_random(t, &rng));
    assert_int_equal(table_scan(t, 0, NULL, NULL), 0);
    assert_int_equal(table_scan(t, 77, NULL, NULL), 0);
}

static void test_empty(void **state)
{
    (void)state;
    struct table t;
    table_init(&t, key_of, 1);
    check_empty(&t);
    table_reserve(&t, 10000);
    check_empty(&t);
    assert_true(table_drain(&t, 10, NULL, NULL));
    assert_int_equal(table_memory(&t), 0);
    table_release(&t);
}

/* Inserts win for a while, then removals, so that the table grows and shrinks. */
static void test_random_operations(void **state)
{
    (void)state;
    rng = 1;
    struct world w;
    world_open(&w);
    for (u32 step = 0; step < 400000; step++) {
        u32 id = below(IDS), growing = (step / 40000) % 2 == 0;
        switch (below(8)) {
        case 0: check_find(&w, id); break;
        case 1: move(&w, id); break;
        case 2: case 3: growing ? take(&w, id) : add(&w, id); break;
        default: growing ? add(&w, id) : take(&w, id);
        }
        if (step % 5000 == 0) check_walk(&w);
    }
    check_walk(&w);
    for (u32 id = 0; id < IDS; id++) check_find(&w, id);
    world_close(&w);
}

static void test_reserve(void **state)
{
    (void)state;
    rng = 3;
    for (u32 n = 0; n < IDS; n = n * 3 + 1) {
        struct world w;
        world_open(&w);
        for (u32 id = 0; id < n / 4; id++) add(&w, id);
        table_reserve(&w.t, n);
        u64 buckets = w.t.buckets;
        check_walk(&w);
        for (u32 id = n / 4; id < n; id++) add(&w, id);
        assert_int_equal(w.t.buckets, buckets);
        check_walk(&w);
        for (u32 id = 0; id < n; id++) check_find(&w, id);
        for (u32 id = 0; id + 1 < n; id++) take(&w, id);
        assert_true(w.t.buckets <= 2); /* it has shrunk */
        world_close(&w);
    }
}

static void see(void *arg, void *item)
{
    (void)arg;
    ((struct item *)item)->seen++;
}

/* Items below `stay` are there throughout; the others come and go during the scan. */
static void scan_while(struct world *w, u32 stay, u32 grow_percent)
{
    for (u32 id = 0; id < IDS; id++) {
        if (w->item[id]) w->item[id]->seen = 0;
    }
    u64 cursor = 0, calls = 0;
    do {
        cursor = table_scan(&w->t, cursor, see, NULL);
        for (u32 i = below(30); i > 0 && stay < IDS; i--) {
            u32 id = stay + below(IDS - stay);
            below(100) < grow_percent ? add(w, id) : take(w, id);
        }
        assert_true(++calls < 1000000);
    } while (cursor);
    for (u32 id = 0; id < stay; id++) assert_true(w->item[id]->seen > 0);
}

static void test_scan_sees_what_stays(void **state)
{
    (void)state;
    rng = 2;
    static const u32 stays[] = {1, 5, 100, 1000, 3000};
    for (u32 round = 0; round < 60; round++) {
        struct world w;
        u32 stay = stays[round % ARRAY_LEN(stays)];
        world_open(&w);
        for (u32 id = 0; id < stay; id++) add(&w, id);
        for (u32 i = below(IDS); i > 0; i--) add(&w, stay + below(IDS - stay));
        scan_while(&w, stay, below(101));
        world_close(&w);
    }
}

static void test_quiet_scan_sees_all_once(void **state)
{
    (void)state;
    rng = 3;
    struct world w;
    world_open(&w);
    for (u32 n = 1; n < 3000; n = n + 1 + n / 5) {
        while (w.count < n) add(&w, below(IDS));
        u64 cursor = 0, calls = 0;
        do {
            cursor = table_scan(&w.t, cursor, see, NULL);
            calls++;
        } while (cursor);
        assert_int_equal(calls, w.t.buckets);
        for (u32 id = 0; id < IDS; id++) {
            if (!w.item[id]) continue;
            assert_int_equal(w.item[id]->seen, 1);
            w.item[id]->seen = 0;
        }
    }
    world_close(&w);
}

static void test_random_is_even(void **state)
{
    (void)state;
    rng = 4;
    static const u32 sizes[] = {1, 2, 7, 8, 9, 40, 333, 1000};
    for (u32 s = 0; s < ARRAY_LEN(sizes); s++) {
        struct world w;
        world_open(&w);
        u32 n = sizes[s], draws = n * 400;
        for (u32 id = 0; id < n; id++) add(&w, id);
        for (u32 i = 0; i < draws; i++) ((struct item *)table_random(&w.t, &rng))->seen++;
        /* 400 expected, standard deviation 20. */
        for (u32 id = 0; id < n; id++) assert_in_range(w.item[id]->seen, 290, 510);
        world_close(&w);
    }
}

static void test_memory(void **state)
{
    (void)state;
    rng = 5;
    struct world w;
    world_open(&w);
    for (u32 id = 0; id < IDS; id++) add(&w, id);
    assert_true(table_memory(&w.t) < IDS * 20u);
    for (u32 id = 10; id < IDS; id++) take(&w, id);
    assert_true(table_memory(&w.t) < 2048);
    assert_in_range(w.t.buckets, 1, 6);
    for (u32 id = 0; id < 10; id++) take(&w, id);
    assert_int_equal(table_memory(&w.t), 0);

    add(&w, 1); /* a set of one member is one cache line */
    assert_true(table_memory(&w.t) <= 64 + sizeof(void *));
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_random_operations), cmocka_unit_test(test_reserve),
        cmocka_unit_test(test_scan_sees_what_stays),
        cmocka_unit_test(test_quiet_scan_sees_all_once),
        cmocka_unit_test(test_random_is_even),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
