/* packed against an array of strings: the same random operations on both. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "ds/packed.h"

#define MODEL_MAX 300
#define MODEL_ROOM (2 * MODEL_MAX)
#define VALUE_MAX 40000

#include "unit/list_model.h"

static u64 rng;

static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

/* Mostly short, around the varint's steps now and then; binary. */
static bytes random_value(void)
{
    static char buf[VALUE_MAX];
    static const u32 lens[] = {0, 1, 126, 127, 128, 129, 16383, 16384, 20000};
    u32 n = below(50) == 0 ? lens[below(ARRAY_LEN(lens))] : below(20);
    for (u32 i = 0; i < n; i++) buf[i] = (char)below(n < 4 ? 3 : 256);
    return bytes_of(buf, n);
}

static void assert_same(const packed *p, const struct model *m)
{
    packed_check(p);
    assert_int_equal(packed_count(p), m->n);
    assert_true(packed_memory(p) >= packed_bytes(p));
    assert_true(mem_size(p) >= packed_memory(p));
    assert_true(mem_size(p) < packed_memory(p) + 32); /* what libc may round up by */
    u32 pos = packed_first(p), i = 0;
    for (; pos != PACKED_END; pos = packed_next(p, pos), i++)
        assert_bytes(packed_get(p, pos), m->v[i]);
    assert_int_equal(i, m->n);
    for (pos = packed_last(p); pos != PACKED_END; pos = packed_prev(p, pos))
        assert_bytes(packed_get(p, pos), m->v[--i]);
    assert_int_equal(i, 0);
}

static void check_find(const packed *p, const struct model *m)
{
    u32 stride = 1 + below(3);
    bytes needle = m->n && below(4) ? m->v[below(m->n)] : random_value();
    u32 from = m->n ? below(m->n) : 0, want = from;
    while (want < m->n && !bytes_eq(m->v[want], needle)) want += stride;
    u32 pos = packed_find(p, packed_at(p, from), needle, stride);
    if (want >= m->n)
        assert_int_equal(pos, PACKED_END);
    else
        assert_int_equal(pos, packed_at(p, want));
}

/* Cuts the blob in two somewhere and joins it again. */
static packed *split_and_join(packed *p, const struct model *m)
{
    packed *tail;
    u32 at = below(m->n + 1);
    p = packed_split(p, packed_at(p, at), &tail);
    assert_int_equal(packed_count(p), at);
    assert_int_equal(packed_count(tail), m->n - at);
    packed_check(p);
    packed_check(tail);
    p = packed_append_all(p, tail);
    packed_free(tail);
    return p;
}

static packed *extend(packed *p, struct model *m)
{
    u32 n = below(20), from = m->n;
    for (u32 i = 0; i < n; i++) model_insert(m, m->n, random_value());
    return packed_extend(p, &m->v[from], n);
}

static packed *step(packed *p, struct model *m)
{
    u32 i = below(m->n + 1);
    u32 pos = packed_at(p, i);
    u32 op = below(10);
    if (op < 4 && m->n < MODEL_MAX) {
        bytes v = random_value();
        p = packed_insert(p, pos, v);
        model_insert(m, i, v);
        assert_bytes(packed_get(p, packed_at(p, i)), v);
    } else if (op < 6 && i < m->n) {
        bytes v = random_value();
        bool over = below(2) && packed_overwrite(p, pos, v);
        assert_true(!over || v.n == m->v[i].n);
        if (!over) p = packed_replace(p, pos, v);
        mem_free((char *)m->v[i].p);
        m->v[i] = keep(v);
    } else if (op < 8 && i < m->n) {
        u32 n = below(20) ? 1 : below(20);
        u32 real = MIN(n, m->n - i);
        p = packed_erase(p, pos, n);
        model_erase(m, i, real);
        assert_int_equal(packed_here(p, pos), packed_at(p, i));
    } else if (op == 8) {
        p = below(4) || m->n >= MODEL_MAX ? split_and_join(p, m) : extend(p, m);
    } else {
        check_find(p, m);
    }
    return p;
}

static void test_random(void **state)
{
    (void)state;
    for (u32 seed = 1; seed <= 20; seed++) {
        rng = seed;
        static struct model m;
        packed *p = packed_new();
        for (u32 i = 0; i < 2500; i++) {
            p = step(p, &m);
            if (i % 16 == 0) assert_same(p, &m);
        }
        packed *copy = packed_copy(p);
        assert_same(copy, &m);
        packed_free(copy);
        if (m.n) p = packed_erase(p, packed_first(p), m.n);
        model_erase(&m, 0, m.n);
        assert_same(p, &m);
        packed_free(p);
    }
}

static void test_empty(void **state)
{
    (void)state;
    packed *p = packed_new();
    assert_int_equal(packed_count(p), 0);
    assert_int_equal(packed_first(p), PACKED_END);
    assert_int_equal(packed_last(p), PACKED_END);
    assert_int_equal(packed_at(p, 0), PACKED_END);
    assert_int_equal(packed_at(p, -1), PACKED_END);
    assert_int_equal(packed_find(p, packed_first(p), BYTES_LIT(""), 1), PACKED_END);
    packed_free(p);
    packed_free(NULL);
}

static void test_index_from_both_ends(void **state)
{
    (void)state;
    packed *p = packed_new();
    for (char c = 'a'; c <= 'g'; c++) p = packed_insert(p, PACKED_END, bytes_of(&c, 1));
    for (i64 i = 0; i < 7; i++) {
        assert_int_equal(packed_get(p, packed_at(p, i)).p[0], 'a' + i);
        assert_int_equal(packed_at(p, i - 7), packed_at(p, i));
    }
    assert_int_equal(packed_at(p, 7), PACKED_END);
    assert_int_equal(packed_at(p, -8), PACKED_END);
    packed_free(p);
}

static void test_size_is_two_bytes_over(void **state)
{
    (void)state;
    packed *p = packed_new();
    size_t empty = packed_bytes(p);
    for (u32 i = 0; i < 100; i++) p = packed_insert(p, PACKED_END, BYTES_LIT("0123456789"));
    assert_int_equal(packed_bytes(p), empty + 1200);
    assert_int_equal(packed_cost(10), 12);
    assert_int_equal(packed_cost(127), 129);
    assert_int_equal(packed_cost(128), 132);
    assert_true(packed_memory(p) <= packed_bytes(p) * 5 / 4);
    p = packed_erase(p, packed_first(p), 99);
    assert_true(packed_memory(p) <= 32); /* memory comes back */
    packed_free(p);
}

static void test_large_element(void **state)
{
    (void)state;
    const size_t n = 3 << 20; /* a four-byte length */
    char *big = mem_zalloc(n);
    packed *p = packed_insert(packed_new(), PACKED_END, BYTES_LIT("a"));
    p = packed_insert(p, PACKED_END, bytes_of(big, n));
    p = packed_insert(p, PACKED_END, BYTES_LIT("z"));
    packed_check(p);
    assert_int_equal(packed_get(p, packed_at(p, 1)).n, n);
    assert_int_equal(packed_find(p, packed_first(p), BYTES_LIT("z"), 2), packed_at(p, 2));
    assert_false(packed_overwrite(p, packed_at(p, 2), BYTES_LIT("zz")));
    assert_true(packed_overwrite(p, packed_at(p, 2), BYTES_LIT("y")));
    assert_bytes(packed_get(p, packed_at(p, 2)), BYTES_LIT("y"));
    packed_check(p);
    p = packed_replace(p, packed_at(p, 1), BYTES_LIT("m"));
    assert_true(packed_memory(p) <= 32);
    assert_bytes(packed_get(p, packed_at(p, -2)), BYTES_LIT("m"));
    packed_free(p);
    mem_free(big);
}

/* A roomy blob: grown to its full room at random places, read on the way, and trimmed. */
static void test_roomy(void **state)
{
    (void)state;
    static struct model m;
    rng = 3;
    for (u32 round = 0; round < 200; round++) {
        bool front = round % 2, at_end = round % 4 < 2;
        size_t room = 8 + below(600);
        packed *p = packed_new_roomy(room, front);
        for (;;) {
            bytes v = random_value();
            if (packed_bytes(p) + packed_cost(v.n) > room) break;
            u32 i = !at_end ? below(m.n + 1) : front ? 0 : m.n;
            p = packed_insert_inside(p, packed_at(p, i), v, front);
            model_insert(&m, i, v);
            packed_check(p);
            assert_bytes(packed_get(p, packed_at(p, i)), v);
        }
        p = packed_trim(p, room, front);
        assert_same(p, &m);
        p = packed_insert(p, PACKED_END, BYTES_LIT("more")); /* an ordinary one again */
        packed_free(p);
        model_erase(&m, 0, m.n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_index_from_both_ends),
        cmocka_unit_test(test_size_is_two_bytes_over),
        cmocka_unit_test(test_large_element),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_roomy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
