/* The manifest of an AOF: what Redis writes is read, what we write is what Redis would, and no bit of it may
 * change. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "persist/aof_manifest.h"

static bool parse(struct aof_manifest *m, const char *text)
{
    char error[256];
    return aof_manifest_parse(m, bytes_str(text), error);
}

static void refused(const char *text, const char *why)
{
    struct aof_manifest m;
    char error[256] = "";
    if (aof_manifest_parse(&m, bytes_str(text), error)) fail_msg("taken: %s", text);
    if (!strstr(error, why)) fail_msg("%s: refused as %s", text, error);
    assert_int_equal(m.n, 0);
}

static void test_redis_writes(void **state UNUSED)
{
    struct aof_manifest m;
    assert_true(parse(&m, "file appendonly.aof.2.base.rdb seq 2 type b\n"
                          "file appendonly.aof.1.incr.aof seq 1 type h\n"
                          "# a comment\n"
                          "file appendonly.aof.4.incr.aof seq 4 type i\n"
                          "seq 5 file \"a b\\x41\\\"\" type i   other thing\r\n"));
    assert_int_equal(m.n, 4);
    assert_string_equal(aof_manifest_base(&m)->name, "appendonly.aof.2.base.rdb");
    assert_int_equal(aof_manifest_base(&m)->seq, 2);
    assert_string_equal(aof_manifest_last(&m)->name, "a bA\"");
    assert_int_equal(aof_manifest_last(&m)->seq, 5);
    assert_int_equal(aof_manifest_count(&m, AOF_HISTORY), 1);
    assert_int_equal(aof_manifest_next_seq(&m, AOF_INCREMENT), 6);
    assert_int_equal(aof_manifest_next_seq(&m, AOF_BASE), 3);
    assert_false(m.base_known);
    aof_manifest_release(&m);
}

static void test_refused(void **state UNUSED)
{
    refused("", "empty");
    refused("file a seq 1 type b", "does not end");
    refused("\n", "the line is empty");
    refused("file a seq 1\n", "not \"file");
    refused("file a seq 1 type b x\n", "not \"file");
    refused("file a seq 0 type b\n", "positive");
    refused("file a seq -1 type b\n", "positive");
    refused("file a seq x type b\n", "positive");
    refused("file a seq 100000000000000 type b\n", "positive");
    refused("file a seq 1 type b\nfile b seq 1 type i\nfile a seq 1 type h\n", "a file is named twice");
    refused("file a seq 1 type x\n", "type b, h or i");
    refused("file a seq 1 type bb\n", "type b, h or i");
    refused("file a/b seq 1 type b\n", "not a path");
    refused("file .. seq 1 type b\n", "not a path");
    refused("file \"\" seq 1 type b\n", "not a path");
    refused("file \"a seq 1 type b\n", "quotes");
    refused("file a file b seq 1 type b\n", "twice");
    refused("file a seq 1 type b\nfile b seq 2 type b\n", "more than one base");
    refused("file a seq 2 type i\nfile b seq 2 type i\n", "do not rise");
    refused("file a seq 1 type b\n#MF:0000000000000000\n", "checksum is wrong");
    refused("#MF:base:0000000000000000:0000000000000000\n", "does not name");
    struct buf longest = {0};
    buf_append_str(&longest, "file ");
    while (longest.n < 1100) buf_append_char(&longest, 'a');
    buf_append_str(&longest, " seq 1 type b\n");
    buf_append_char(&longest, '\0');
    refused(longest.p, "too long");
    buf_release(&longest);
}

static void make(struct aof_manifest *m)
{
    *m = (struct aof_manifest){
        .base_known = true, .base_size = 0x1234, .base_tail = 0xfedcba9876543210};
    aof_manifest_add(m, AOF_BASE, 3, "with blank and 'quotes' \" \\ \n\x01.rdb");
    aof_manifest_add(m, AOF_INCREMENT, 7, "plain.7.incr.aof");
    aof_manifest_add(m, AOF_HISTORY, 6, "old");
    aof_manifest_add(m, AOF_INCREMENT, 8, "plain.8.incr.aof");
}

static void test_round_trip(void **state UNUSED)
{
    struct aof_manifest m, n;
    struct buf text = {0}, again = {0};
    char error[256];
    make(&m);
    aof_manifest_print(&m, &text);
    assert_true(aof_manifest_parse(&n, buf_bytes(&text), error));
    assert_string_equal(aof_manifest_base(&n)->name, aof_manifest_base(&m)->name);
    assert_true(n.base_known && n.base_size == m.base_size && n.base_tail == m.base_tail);
    aof_manifest_print(&n, &again);
    assert_int_equal(text.n, again.n);
    assert_memory_equal(text.p, again.p, text.n);
    buf_append_char(&text, '\0');
    static const char start[] =
        "file \"with blank and 'quotes' \\\" \\\\ \\n\\x01.rdb\" seq 3 type b\n"
        "file old seq 6 type h\n"
        "file plain.7.incr.aof seq 7 type i\n";
    assert_memory_equal(text.p, start, sizeof start - 1);
    buf_release(&text);
    buf_release(&again);
    aof_manifest_release(&m);
    aof_manifest_release(&n);
}

/* Every bit of it, and every byte of its end: refused, or it says the same. */
static void test_damage(void **state UNUSED)
{
    struct aof_manifest m, n;
    struct buf text = {0}, again = {0};
    char error[256];
    u32 same = 0;
    make(&m);
    aof_manifest_print(&m, &text);
    for (size_t bit = 0; bit < text.n * 8; bit++) {
        text.p[bit / 8] ^= (char)(1 << bit % 8);
        bool taken = aof_manifest_parse(&n, buf_bytes(&text), error);
        text.p[bit / 8] ^= (char)(1 << bit % 8);
        if (!taken) continue;
        same++;
        n.base_known = true; /* known or not */
        n.base_size = m.base_size;
        n.base_tail = m.base_tail;
        buf_clear(&again);
        aof_manifest_print(&n, &again);
        assert_int_equal(text.n, again.n);
        assert_memory_equal(text.p, again.p, text.n);
        aof_manifest_release(&n);
    }
    assert_in_range(same, 1, 32); /* the mark of the checksum became another comment */
    buf_release(&text);
    buf_release(&again);
    aof_manifest_release(&m);
}

static void test_retire(void **state UNUSED)
{
    struct aof_manifest m, n;
    make(&m);
    aof_manifest_copy(&n, &m);
    aof_manifest_retire(&n, 8);
    assert_null(aof_manifest_base(&n));
    assert_false(n.base_known);
    assert_int_equal(aof_manifest_last(&n)->seq, 8);
    assert_int_equal(aof_manifest_count(&n, AOF_HISTORY), 3);
    aof_manifest_forget(&n, "plain.8.incr.aof"); /* not history */
    aof_manifest_forget(&n, "old");
    assert_int_equal(n.n, 3);
    assert_int_equal(aof_manifest_next_seq(&n, AOF_BASE), 4); /* no name of history is used again */
    aof_manifest_retire(&n, 0);
    assert_int_equal(aof_manifest_next_seq(&n, AOF_INCREMENT), 9);
    aof_manifest_release(&n);
    aof_manifest_release(&m);
}

/* Somebody has given files other numbers than their names say: no new file takes one of their names. */
static void test_numbers_in_names(void **state UNUSED)
{
    struct aof_manifest m;
    assert_true(parse(&m, "file a.aof.9.base.rdb seq 2 type b\nfile a.aof.7.incr.aof seq 3 type i\n"
                          "file a.aof.12.incr.aof seq 1 type h\nfile b.5.base.x.incr.y seq 4 type i\n"));
    assert_int_equal(aof_manifest_next_seq(&m, AOF_INCREMENT), 13);
    assert_int_equal(aof_manifest_next_seq(&m, AOF_BASE), 10);
    aof_manifest_release(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redis_writes), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_damage),
        cmocka_unit_test(test_retire),       cmocka_unit_test(test_numbers_in_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
