/* Redis's packed forms: what we write is read back, what Redis wrote is read, what is damaged is
 * refused and never read beyond its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "ds/rdb_blob.h"

/* All elements, each followed by a comma; or "!" and what is wrong. */
static const char *listing(enum rdb_blob_kind kind, bytes raw)
{
    static struct buf text;
    struct rdb_blob b;
    bytes item;
    buf_clear(&text);
    rdb_blob_open(&b, kind, raw);
    while (rdb_blob_next(&b, &item)) {
        buf_append_bytes(&text, item);
        buf_append_char(&text, ',');
    }
    if (b.error) {
        buf_clear(&text);
        buf_printf(&text, "!%s", b.error);
    }
    buf_append_char(&text, '\0');
    return text.p;
}

#define LISTING(kind, lit) listing(kind, BYTES_LIT(lit))

/* -- listpacks --------------------------------------------------------------------------------- */

static void check_pack(const bytes *items, size_t n)
{
    struct buf pack = {0};
    struct rdb_blob b;
    bytes item;
    rdb_pack_begin(&pack);
    for (size_t i = 0; i < n; i++) rdb_pack_add(&pack, items[i]);
    rdb_pack_end(&pack, n);
    char *exact = mem_alloc(pack.n); /* so that a sanitizer sees a step too far */
    memcpy(exact, pack.p, pack.n);
    rdb_blob_open(&b, BLOB_LISTPACK, bytes_of(exact, pack.n));
    for (size_t i = 0; i < n; i++) {
        assert_true(rdb_blob_next(&b, &item));
        assert_true(bytes_eq(item, items[i]));
    }
    assert_false(rdb_blob_next(&b, &item));
    assert_null(b.error);
    mem_free(exact);
    buf_release(&pack);
}

static void test_listpack_numbers(void **state UNUSED)
{
    char digits[NUM_I64_LEN];
    for (int shift = 0; shift < 63; shift++) {
        for (i64 near = -2; near <= 2; near++) {
            for (int sign = -1; sign <= 1; sign += 2) {
                i64 v = sign * ((i64)((u64)1 << shift) + near);
                bytes item = bytes_of(digits, num_print_i64(digits, v));
                check_pack(&item, 1);
            }
        }
    }
    bytes ends[] = {BYTES_LIT("9223372036854775807"), BYTES_LIT("-9223372036854775808"),
                    BYTES_LIT("9223372036854775808"), BYTES_LIT("007"), BYTES_LIT("-0"), BYTES_LIT("")};
    check_pack(ends, ARRAY_LEN(ends));
}

static void test_listpack_lengths(void **state UNUSED)
{
    static const size_t lengths[] = {
        0, 1, 62, 63, 64, 65, 125, 126, 127, 128, 4094, 4095, 4096, 4097, 16375, 16376, 16377, 16378, 16379,
        16380, 16384, 2097140, 2097145, 2097146, 2097147, 2097155,
    };
    char *text = mem_alloc(3000000);
    memset(text, 'x', 3000000);
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        bytes items[] = {BYTES_LIT("before"), bytes_of(text, lengths[i]), BYTES_LIT("after")};
        check_pack(items, 3);

        struct buf head = {0}, tail = {0}, pack = {0};
        size_t size = rdb_pack_around(lengths[i], &head, &tail);
        assert_int_equal(size, head.n + lengths[i] + tail.n);
        assert_true(head.n <= RDB_PACK_HEAD_MAX && tail.n <= RDB_PACK_TAIL_MAX);
        rdb_pack_begin(&pack);
        rdb_pack_add(&pack, items[1]);
        rdb_pack_end(&pack, 1);
        assert_int_equal(pack.n, size);
        assert_memory_equal(pack.p, head.p, head.n);
        assert_memory_equal(pack.p + pack.n - tail.n, tail.p, tail.n);
        buf_release(&head);
        buf_release(&tail);
        buf_release(&pack);
    }
    mem_free(text);
}

static void test_listpack_counts(void **state UNUSED)
{
    size_t n = 70000;
    bytes *items = mem_alloc(n * sizeof *items);
    for (size_t i = 0; i < n; i++) items[i] = BYTES_LIT("e");
    check_pack(items, 65534);
    check_pack(items, 65535); /* the header says "many" from here on */
    check_pack(items, n);
    mem_free(items);
}

/* -- what Redis wrote -------------------------------------------------------------------------- */

static void test_ziplist(void **state UNUSED)
{
    assert_string_equal(LISTING(BLOB_ZIPLIST, "\x0b\0\0\0\x0a\0\0\0\0\0\xff"), "");
    /* the example of Redis's own comment: "2", "5" */
    assert_string_equal(LISTING(BLOB_ZIPLIST, "\x0f\0\0\0\x0c\0\0\0\x02\0\x00\xf3\x02\xf6\xff"), "2,5,");
    assert_string_equal(LISTING(BLOB_ZIPLIST,
                                "\x2f\0\0\0\x2b\0\0\0\x09\0"
                                "\x00\x05hello"
                                "\x07\xc0\xff\x7f" /* 16 bits */
                                "\x04\xd0\xff\xff\xff\x7f"
                                "\x06\xf0\x00\x00\x80" /* 24 bits */
                                "\x05\xfe\x80"
                                "\x03\xf1"
                                "\x02\xfd"
                                "\x02\x40\x01x" /* the long form of a short length */
                                "\x04\xfe\x7f"
                                "\xff"),
                        "hello,32767,2147483647,-8388608,-128,0,12,x,127,");
}

static void test_ziplist_with_long_entries(void **state UNUSED)
{
    struct buf z = {0};
    buf_append(&z, "\0\0\0\0\0\0\0\0\x03\0", 10);
    buf_append(&z, "\x00\x41\x2c", 3); /* 300 bytes; this entry has 303 */
    for (int i = 0; i < 300; i++) buf_append_char(&z, 'a');
    buf_append(&z, "\xfe\x2f\x01\0\0\x80\0\0\0\x02xy", 12); /* this one 12 */
    buf_append(&z, "\xfe\x0c\0\0\0\xe0\0\0\0\0\0\0\0\x80\xff", 15);
    u32 total = (u32)z.n;
    memcpy(z.p, &total, 4);
    const char *text = listing(BLOB_ZIPLIST, buf_bytes(&z));
    assert_int_equal(strlen(text), 301 + 3 + 21);
    assert_string_equal(text + 300, ",xy,-9223372036854775808,");
    buf_release(&z);
}

static void test_zipmap(void **state UNUSED)
{
    assert_string_equal(LISTING(BLOB_ZIPMAP, "\0\xff"), "");
    assert_string_equal(LISTING(BLOB_ZIPMAP, "\x02\x03" "foo\x03\0bar\x05" "hello\x05\0world\xff"),
                        "foo,bar,hello,world,");
    assert_string_equal(LISTING(BLOB_ZIPMAP, "\x01\x01" "f\x01\x02" "vxx\xff"), "f,v,"); /* spare bytes */
    assert_string_equal(LISTING(BLOB_ZIPMAP, "\xfe\xfe\x01\0\0\0" "f\xfe\x02\0\0\0\0vw\xff"), "f,vw,");
    assert_string_equal(LISTING(BLOB_ZIPMAP, "\x02\x01" "f\x01\0v\xff"), "!the count in its header is wrong");
    assert_string_equal(LISTING(BLOB_ZIPMAP, "\x01\x01" "f\x01\x03vxx\xff"), "!it has no end mark");
    assert_string_equal(LISTING(BLOB_ZIPMAP, "\x01\x01"
                                             "f\x01\x04vxx\xff"),
                        "!an element goes beyond its end");
}

static void test_intset(void **state UNUSED)
{
    assert_string_equal(LISTING(BLOB_INTSET, "\x02\0\0\0\0\0\0\0"), "");
    assert_string_equal(LISTING(BLOB_INTSET, "\x02\0\0\0\x02\0\0\0\xff\xff\x07\0"), "-1,7,");
    assert_string_equal(LISTING(BLOB_INTSET, "\x04\0\0\0\x01\0\0\0\0\0\0\x80"), "-2147483648,");
    assert_string_equal(LISTING(BLOB_INTSET, "\x08\0\0\0\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f"),
                        "9223372036854775807,");
    assert_string_equal(LISTING(BLOB_INTSET, "\x02\0\0\0\x02\0\0\0\x07\0\x07\0"),
                        "!its integers are not in order");
    assert_string_equal(LISTING(BLOB_INTSET, "\x02\0\0\0\x03\0\0\0\x07\0\x08\0"),
                        "!the count in its header is wrong");
    assert_string_equal(LISTING(BLOB_INTSET, "\x03\0\0\0\x02\0\0\0\x07\0\x08\0"),
                        "!it holds integers of an odd size");
    assert_string_equal(LISTING(BLOB_INTSET, "\x02\0\0\0\xff\xff\xff\xff"),
                        "!the count in its header is wrong");
}

static void test_our_intsets(void **state UNUSED)
{
    struct buf set = {0};
    i64 small[] = {5, -3, 1}, middle[] = {40000, -5}, large[] = {INT64_MAX, INT64_MIN, 0};
    rdb_intset(&set, small, 3);
    assert_string_equal(listing(BLOB_INTSET, buf_bytes(&set)), "-3,1,5,");
    assert_int_equal(set.n, 8 + 3 * 2);
    rdb_intset(&set, middle, 2);
    assert_string_equal(listing(BLOB_INTSET, buf_bytes(&set)), "-5,40000,");
    assert_int_equal(set.n, 8 + 2 * 4);
    rdb_intset(&set, large, 3);
    assert_string_equal(listing(BLOB_INTSET, buf_bytes(&set)), "-9223372036854775808,0,9223372036854775807,");
    buf_release(&set);
}

/* -- damage ------------------------------------------------------------------------------------ */

static void test_damaged_listpacks(void **state UNUSED)
{
    assert_string_equal(LISTING(BLOB_LISTPACK, "\x09\0\0\0\x01\0\x01\x01\xff"), "1,");
    assert_string_equal(LISTING(BLOB_LISTPACK, "\x09\0\0\0\x02\0\x01\x01\xff"),
                        "!the count in its header is wrong");
    assert_string_equal(LISTING(BLOB_LISTPACK, "\x0a\0\0\0\x01\0\x01\x01\xff"),
                        "!the size in its header is wrong");
    assert_string_equal(LISTING(BLOB_LISTPACK, "\x09\0\0\0\x01\0\x01\x02\xff"),
                        "!an element tells a wrong size of its own");
    assert_string_equal(LISTING(BLOB_LISTPACK, "\x0a\0\0\0\x01\0\x01\x01\xff\xff"),
                        "!there are bytes after its end mark");
    assert_string_equal(LISTING(BLOB_LISTPACK, "\x08\0\0\0\x01\0\x01\x01"), "!it has no end mark");
    assert_string_equal(LISTING(BLOB_LISTPACK, "\x09\0\0\0\x01\0\xf5\x01\xff"),
                        "!an element's encoding is unknown");
    assert_string_equal(LISTING(BLOB_LISTPACK, "\x09\0\0\0\x01\0\xbf\x01\xff"),
                        "!an element goes beyond its end");
    assert_string_equal(LISTING(BLOB_LISTPACK, ""), "!the size in its header is wrong");
}

/* Mutations of good blobs, each in memory of its exact size. What matters is that nothing is read beyond
 * the end (a sanitizer would tell), and that slices stay inside. */
static void test_mutations(void **state UNUSED)
{
    u64 rng = 7;
    static const struct { enum rdb_blob_kind kind; bytes raw;
    } good[] = {
        {BLOB_LISTPACK,
         BYTES_LIT("\x1d\0\0\0\x05\0\x01\x01\x85hello\x06\xf1\x00\x80\x03\xdf\xff\x02\xe0\x02hi\x04\xff")},
        {BLOB_ZIPLIST,
         BYTES_LIT("\x1c\0\0\0\x19\0\0\0\x04\0\x00\x05hello\x07\xc0\xff\x7f\x04\xfe\x80\x03\xf1\xff")},
        {BLOB_ZIPMAP, BYTES_LIT("\x02\x03"
                                "foo\x03\0bar\x05"
                                "hello\x05\0world\xff")},
        {BLOB_INTSET, BYTES_LIT("\x02\0\0\0\x02\0\0\0\xff\xff\x07\0")},
    };
    for (int round = 0; round < 40000; round++) {
        size_t which = rand_below(&rng, ARRAY_LEN(good));
        size_t n = good[which].raw.n - (rand_below(&rng, 4) ? 0 : rand_below(&rng, good[which].raw.n));
        char *copy = mem_alloc(MAX(n, 1));
        memcpy(copy, good[which].raw.p, n);
        for (u64 flips = rand_below(&rng, 4); n && flips > 0; flips--) {
            static const u8 odd[] = {0, 1, 0x7f, 0x80, 0xc0, 0xf0, 0xf1, 0xf4, 0xfd, 0xfe, 0xff};
            size_t at = rand_below(&rng, n);
            copy[at] = (char)(rand_below(&rng, 2) ? odd[rand_below(&rng, ARRAY_LEN(odd))] : rand_next(&rng));
        }
        struct rdb_blob b;
        bytes item;
        u64 items = 0;
        rdb_blob_open(&b, good[which].kind, bytes_of(copy, n));
        for (; rdb_blob_next(&b, &item); items++) {
            bool digits = item.p >= (char *)b.digits && item.p < (char *)b.digits + sizeof b.digits;
            assert_true(digits || (item.p >= copy && item.p + item.n <= copy + n));
        }
        assert_true(items <= n);
        mem_free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listpack_numbers),
        cmocka_unit_test(test_listpack_lengths),
        cmocka_unit_test(test_listpack_counts),
        cmocka_unit_test(test_ziplist),
        cmocka_unit_test(test_ziplist_with_long_entries),
        cmocka_unit_test(test_zipmap),
        cmocka_unit_test(test_intset),
        cmocka_unit_test(test_our_intsets),
        cmocka_unit_test(test_damaged_listpacks),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
