/* command/hll: bytes and estimates are Redis 7.0.15's. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "command/string/hll.h"

#define SPARSE_MAX 3000u

static void add(struct buf *h, const char *element)
{
    u8 rank;
    u32 reg = hll_register(bytes_str(element), &rank);
    assert_int_not_equal(hll_raise(h, SPARSE_MAX, reg, rank), HLL_CORRUPT);
}

static u64 count(const struct buf *h)
{
    u64 n = 0, united;
    assert_true(hll_count(buf_bytes(h), &n));
    static u8 ranks[HLL_REGISTERS];
    memset(ranks, 0, sizeof(ranks));
    assert_true(hll_merge(buf_bytes(h), ranks));
    united = hll_count_ranks(ranks);
    assert_int_equal(n, united);
    return n;
}

static void test_sparse_bytes(void **state)
{
    (void)state;
    static const char *const elements[] = {"a", "b", "c", "a", "hello", "world"};
    static const char want[] = "HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80"
                               "J\xb5\x88V<\x80"
                               "C\n\x80M\xa5\x84K\xfb\x80"
                               "BZ";
    struct buf h = {0};
    hll_init(&h);
    assert_int_equal(count(&h), 0);
    for (size_t i = 0; i < ARRAY_LEN(elements); i++) add(&h, elements[i]);
    hll_drop_cache(h.p);
    assert_int_equal(h.n, sizeof(want) - 1);
    assert_memory_equal(h.p, want, h.n);
    assert_int_equal(count(&h), 5);
    buf_release(&h);
}

static void test_registers(void **state)
{
    (void)state;
    u8 rank;
    assert_int_equal(hll_register(bytes_str("a"), &rank), 12711);
    assert_int_equal(rank, 2);
    assert_int_equal(hll_register(bytes_str("hello"), &rank), 9216);
    assert_int_equal(rank, 1);
    assert_int_equal(hll_register(bytes_str(""), &rank), 5938);
    assert_int_equal(rank, 2);
}

/* Neighbours of one rank share runs of at most four registers. */
static void test_runs_join(void **state)
{
    (void)state;
    struct buf h = {0};
    hll_init(&h);
    for (u32 reg = 0; reg < 5; reg++) assert_int_equal(hll_raise(&h, SPARSE_MAX, reg, 1), HLL_RAISED);
    static const u8 joined[] = {0x83, 0x80, 0x7f, 0xfa}; /* 4 ones, 1 one, 16379 zeros */
    assert_int_equal(h.n, HLL_HEADER + sizeof(joined));
    assert_memory_equal(h.p + HLL_HEADER, joined, sizeof(joined));

    assert_int_equal(hll_raise(&h, SPARSE_MAX, 1, 1), HLL_SAME);
    assert_int_equal(hll_raise(&h, SPARSE_MAX, 1, 3), HLL_RAISED);
    static const u8 split[] = {0x80, 0x88, 0x82, 0x7f, 0xfa};
    assert_int_equal(h.n, HLL_HEADER + sizeof(split));
    assert_memory_equal(h.p + HLL_HEADER, split, sizeof(split));
    buf_release(&h);
}

static void test_becomes_dense(void **state)
{
    (void)state;
    struct buf h = {0};
    hll_init(&h);
    assert_int_equal(hll_raise(&h, SPARSE_MAX, 7, 32), HLL_RAISED);
    assert_false(hll_is_dense(buf_bytes(&h)));
    assert_int_equal(hll_raise(&h, SPARSE_MAX, HLL_REGISTERS - 1, 33), HLL_RAISED);
    assert_true(hll_is_dense(buf_bytes(&h)));
    assert_int_equal(h.n, HLL_DENSE_LEN);
    assert_int_equal(hll_dense_get(h.p, 7), 32);
    assert_int_equal(hll_dense_get(h.p, HLL_REGISTERS - 1), 33);
    assert_int_equal(hll_raise(&h, SPARSE_MAX, 7, 32), HLL_SAME);
    buf_release(&h);

    hll_init(&h);
    char element[32];
    size_t longest = 0;
    for (int i = 0; i < 100000; i++) {
        snprintf(element, sizeof(element), "a:%d", i);
        add(&h, element);
        if (!hll_is_dense(buf_bytes(&h))) longest = h.n;
        if (i + 1 == 1500) assert_int_equal(h.n, 2713);
        if (i + 1 == 1500) assert_int_equal(count(&h), 1506);
        if (i + 1 == 2000) assert_int_equal(count(&h), 2010);
    }
    assert_in_range(longest, SPARSE_MAX - 4, SPARSE_MAX);
    assert_int_equal(count(&h), 100563);
    buf_release(&h);
}

static void test_dense_registers(void **state)
{
    (void)state;
    struct buf h = {0};
    hll_init(&h);
    assert_true(hll_make_dense(&h));
    for (u32 reg = 0; reg < HLL_REGISTERS; reg++) hll_dense_set(h.p, reg, (u8)(reg % 52));
    for (u32 reg = 0; reg < HLL_REGISTERS; reg++)
        assert_int_equal(hll_dense_get(h.p, reg), reg % 52);
    for (u32 reg = 0; reg < HLL_REGISTERS; reg += 2) hll_dense_set(h.p, reg, 0);
    for (u32 reg = 0; reg < HLL_REGISTERS; reg++)
        assert_int_equal(hll_dense_get(h.p, reg), reg % 2 ? reg % 52 : 0);
    static u8 ranks[HLL_REGISTERS];
    assert_true(hll_merge(buf_bytes(&h), ranks));
    for (u32 reg = 0; reg < HLL_REGISTERS; reg++)
        assert_int_equal(ranks[reg], reg % 2 ? reg % 52 : 0);
    buf_release(&h);
}

static void test_corrupt(void **state)
{
    (void)state;
    static const struct {
        const char *registers;
        size_t n;
    } bad[] = {{"", 0}, {"\x40", 1}, {"\x7f", 1}, {"\x7f\xfe", 2}, {"\x80", 1}, {"\x7f\xff\x00", 3}, {"\x7f\xff\x80", 3}};
    static u8 ranks[HLL_REGISTERS];
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct buf h = {0};
        u64 n;
        hll_init(&h);
        h.n = HLL_HEADER;
        buf_append(&h, bad[i].registers, bad[i].n);
        assert_true(hll_check(buf_bytes(&h)));
        assert_false(hll_count(buf_bytes(&h), &n));
        assert_false(hll_merge(buf_bytes(&h), ranks));
        assert_false(hll_make_dense(&h));
        if (bad[i].n < 3) assert_int_equal(hll_raise(&h, SPARSE_MAX, HLL_REGISTERS - 1, 1), HLL_CORRUPT);
        buf_release(&h);
    }
    assert_false(hll_check(bytes_str("HYLL")));
    assert_false(hll_check(bytes_of("HYLLx\0\0\0\0\0\0\0\0\0\0\0", 16)));
    assert_false(hll_check(bytes_of("HYLL\0\0\0\0\0\0\0\0\0\0\0\0", 16)));
    assert_true(hll_check(bytes_of("HYLL\1\0\0\0\0\0\0\0\0\0\0\0", 16)));
}

static void test_cache(void **state)
{
    (void)state;
    struct buf h = {0};
    u64 n = 1;
    hll_init(&h);
    assert_true(hll_cached(buf_bytes(&h), &n));
    assert_int_equal(n, 0);
    hll_drop_cache(h.p);
    assert_false(hll_cached(buf_bytes(&h), &n));
    hll_set_cache(h.p, 0x0102030405060708);
    assert_true(hll_cached(buf_bytes(&h), &n));
    assert_int_equal(n, 0x0102030405060708);
    buf_release(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sparse_bytes),
        cmocka_unit_test(test_registers),
        cmocka_unit_test(test_runs_join),
        cmocka_unit_test(test_becomes_dense),
        cmocka_unit_test(test_dense_registers),
        cmocka_unit_test(test_corrupt),
        cmocka_unit_test(test_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
