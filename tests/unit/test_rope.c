/* rope against an array of strings: the same random operations on both. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "ds/rope.h"

#define MODEL_MAX 3000
#define MODEL_ROOM (MODEL_MAX + 1)
#define VALUE_MAX 65536

#include "unit/list_model.h"

static u64 rng;

static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

static bytes random_value(u32 usual)
{
    static char buf[VALUE_MAX];
    u32 n = below(1000) == 0 ? below(VALUE_MAX) : below(50) == 0 ? below(usual * 20) : below(usual);
    for (u32 i = 0; i < MIN(n, 16); i++) buf[i] = (char)below(n < 3 ? 2 : 256);
    return bytes_of(buf, n);
}

static void assert_same(const struct rope *r, const struct model *m)
{
    struct rope_pos pos;
    rope_check(r);
    assert_int_equal(rope_count(r), m->n);
    assert_int_equal(rope_seek(r, 0, &pos), m->n > 0);
    for (u32 i = 0; i < m->n; i++) {
        assert_bytes(rope_pos_get(&pos), m->v[i]);
        assert_int_equal(rope_next(&pos), i + 1 < m->n);
    }
    for (u32 i = m->n; i-- > 0;) {
        assert_bytes(rope_pos_get(&pos), m->v[i]);
        assert_int_equal(rope_prev(&pos), i > 0);
    }
}

/* --- operations --- */

static void push(struct rope *r, struct model *m, u32 usual)
{
    bytes v = random_value(usual);
    bool front = below(2);
    rope_push(r, front, v);
    model_insert(m, front ? 0 : m->n, v);
}

static void extend(struct rope *r, struct model *m, u32 usual)
{
    u32 n = below(below(10) ? 10 : 300), from = m->n;
    n = MIN(n, MODEL_MAX - from);
    for (u32 i = 0; i < n; i++) model_insert(m, m->n, random_value(usual));
    rope_extend(r, &m->v[from], n);
}

static void pop(struct rope *r, struct model *m)
{
    struct buf out = {0};
    bool front = below(2);
    u32 i = front || m->n == 0 ? 0 : m->n - 1;
    assert_int_equal(rope_pop(r, front, below(4) ? &out : NULL), m->n > 0);
    if (m->n > 0) {
        if (out.n) assert_bytes(buf_bytes(&out), m->v[i]);
        model_erase(m, i, 1);
    }
    buf_release(&out);
}

static void insert(struct rope *r, struct model *m, u32 usual)
{
    bytes v = random_value(usual);
    u32 i = below(m->n + 1);
    rope_insert(r, i, v);
    model_insert(m, i, v);
}

static void set(struct rope *r, struct model *m, u32 usual)
{
    if (m->n == 0) return;
    bytes v = random_value(usual);
    u32 i = below(m->n);
    rope_set(r, i, v);
    model_erase(m, i, 1);
    model_insert(m, i, v);
    assert_bytes(rope_get(r, i), v);
}

static void erase(struct rope *r, struct model *m, u32 n)
{
    u32 i = below(m->n + 2);
    u32 real = i < m->n ? MIN(n, m->n - i) : 0;
    rope_erase(r, i, n);
    model_erase(m, MIN(i, m->n), real);
}

/* Like LREM: walks from a place in one direction and erases here and there. */
static void erase_walking(struct rope *r, struct model *m, u32 one_in)
{
    if (m->n == 0) return;
    bool backward = below(2);
    i64 i = below(m->n);
    struct rope_pos pos;
    assert_true(rope_seek(r, (u64)i, &pos));
    for (bool more = true; more;) {
        assert_bytes(rope_pos_get(&pos), m->v[i]);
        if (below(one_in) == 0) {
            model_erase(m, (u32)i, 1);
            more = rope_pos_erase(r, &pos, backward);
            if (backward) i--;
        } else {
            more = backward ? rope_prev(&pos) : rope_next(&pos);
            i += backward ? -1 : 1;
        }
        assert_int_equal(more, i >= 0 && i < m->n);
    }
}

static void drain(struct rope *r, struct model *m)
{
    while (!rope_release_some(r, 3)) rope_check(r);
    assert_int_equal(rope_count(r), 0);
    assert_int_equal(rope_memory(r), 0);
    assert_int_equal(rope_chunks(r), 0);
    model_erase(m, 0, m->n);
}

static void step(struct rope *r, struct model *m, u32 usual)
{
    u32 op = below(100);
    if (op < 60 && m->n >= MODEL_MAX) op = 60;
    if (op < 24)
        push(r, m, usual);
    else if (op == 24)
        extend(r, m, usual);
    else if (op < 60)
        insert(r, m, usual);
    else if (op < 70)
        pop(r, m);
    else if (op < 85)
        set(r, m, usual);
    else if (op < 95)
        erase(r, m, 1);
    else if (op == 95)
        erase(r, m, below(20));
    else if (op == 96 && below(40) == 0)
        erase(r, m, below(MODEL_MAX / 2));
    else if (op == 97 && below(10) == 0)
        erase_walking(r, m, 1 + below(20));
    else if (m->n > 0) {
        u32 i = below(m->n);
        assert_bytes(rope_get(r, i), m->v[i]);
    }
}

static void run(u64 seed, u32 chunk_bytes, u32 chunk_entries, u32 usual)
{
    static struct model m;
    struct rope r;
    rng = seed;
    rope_init(&r, chunk_bytes, chunk_entries);
    for (u32 i = 0; i < 8000; i++) {
        step(&r, &m, usual);
        if (i % 8 == 0) rope_check(&r);
        if (i % 256 == 0) assert_same(&r, &m);
    }
    assert_same(&r, &m);
    drain(&r, &m);
    rope_release(&r);
}

static void test_random(void **state)
{
    (void)state;
    run(1, 8192, 0, 20);
    run(2, 8192, 0, 300);
    run(3, 64, 0, 12);  /* many chunks: a tall tree */
    run(4, 0, 0, 12);   /* every element alone */
    run(5, 8192, 2, 8); /* limited by entries */
    run(6, 256, 7, 50);
    run(7, 100, 1, 20);
    run(8, 256, 0, 20); /* roomy ends */
}

static void test_empty(void **state)
{
    (void)state;
    struct rope r;
    struct rope_pos pos;
    rope_init(&r, 8192, 0);
    assert_int_equal(rope_count(&r), 0);
    assert_int_equal(rope_memory(&r), 0);
    assert_false(rope_pop(&r, true, NULL));
    assert_false(rope_seek(&r, 0, &pos));
    rope_erase(&r, 0, 5);
    rope_insert(&r, 0, BYTES_LIT(""));
    assert_int_equal(rope_get(&r, 0).n, 0);
    assert_true(rope_seek(&r, 0, &pos));
    assert_false(rope_pos_erase(&r, &pos, false));
    assert_int_equal(rope_chunks(&r), 0);
    rope_release(&r);
}

static void test_large_elements_sit_alone(void **state)
{
    (void)state;
    static char big[VALUE_MAX];
    struct rope r;
    rope_init(&r, 8192, 0);
    for (u32 i = 0; i < 10; i++) rope_push(&r, false, BYTES_LIT("small"));
    rope_insert(&r, 5, bytes_of(big, sizeof big));
    assert_int_equal(rope_chunks(&r), 3);
    rope_check(&r);
    rope_set(&r, 5, BYTES_LIT("small")); /* and the two halves join again */
    assert_int_equal(rope_chunks(&r), 1);
    rope_set(&r, 0, bytes_of(big, sizeof big));
    rope_set(&r, 10, bytes_of(big, sizeof big));
    assert_int_equal(rope_chunks(&r), 3);
    rope_check(&r);
    rope_release(&r);
}

/* A queue moves through memory without keeping any. */
static void test_queue(void **state)
{
    (void)state;
    struct rope r;
    struct buf out = {0};
    rope_init(&r, 8192, 0);
    u32 head = 0;
    for (u32 i = 0; i < 50000; i++) {
        rope_push(&r, false, bytes_of(&i, sizeof i));
        if (i % 3 == 0) continue;
        buf_clear(&out);
        assert_true(rope_pop(&r, true, &out));
        assert_memory_equal(out.p, &head, sizeof head);
        head++;
    }
    rope_check(&r);
    assert_true(rope_memory(&r) < 8 * rope_count(&r));
    rope_erase(&r, 1, rope_count(&r) - 2);
    assert_int_equal(rope_count(&r), 2);
    assert_int_equal(rope_chunks(&r), 1);
    assert_true(rope_memory(&r) < 128);
    rope_release(&r);
    buf_release(&out);
}

/* Pushes at both ends of a long rope, with an edit near an end now and then: what is roomy and
 * what the tree leaves out of its counts changes all the time. */
static void test_ends(void **state)
{
    (void)state;
    static struct model m;
    struct rope r;
    rng = 9;
    rope_init(&r, 128, 0);
    for (u32 round = 0; round < 400; round++) {
        u32 pushes = below(60), pops = below(60);
        for (u32 i = 0; i < pushes && m.n < MODEL_MAX; i++) push(&r, &m, 12);
        rope_check(&r);
        if (m.n) {
            u32 near = below(MIN(m.n, 12u)), i = below(2) ? near : m.n - 1 - near;
            bytes v = random_value(12);
            assert_bytes(rope_get(&r, i), m.v[i]);
            rope_insert(&r, i, v);
            model_insert(&m, i, v);
        }
        rope_check(&r);
        for (u32 i = 0; i < pops && m.n; i++) pop(&r, &m);
        rope_check(&r);
        assert_same(&r, &m);
    }
    drain(&r, &m);
    rope_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_large_elements_sit_alone),
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
