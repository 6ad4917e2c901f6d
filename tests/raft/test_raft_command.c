/* The bytes of log entries: vectors that must never change, and damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "raft/command.h"

static const char VECTOR[] = "\x01\x01\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00"
                             "\x15\xcd\x5b\x07\x01\x00\x00\x00SET k v";

static void test_vector(void **state UNUSED)
{
    struct raft_command c = {RAFT_KIND_EFFECTS, {7, 3}, 0x1075bcd15, BYTES_LIT("SET k v")}, back;
    struct buf b = {0};
    raft_command_encode(&b, &c);
    assert_int_equal(b.n, sizeof(VECTOR) - 1);
    assert_memory_equal(b.p, VECTOR, b.n);
    assert_int_equal(raft_command_decode(buf_bytes(&b), &back), OK);
    assert_int_equal(back.kind, RAFT_KIND_EFFECTS);
    assert_int_equal(back.epoch.version, 7);
    assert_int_equal(back.epoch.conf_ver, 3);
    assert_int_equal(back.stamp_ms, 0x1075bcd15);
    assert_true(bytes_eq(back.payload, c.payload));
    buf_release(&b);
}

static void test_limits(void **state UNUSED)
{
    struct raft_command c = {RAFT_KIND_CLOCK, {UINT32_MAX, UINT32_MAX}, UINT64_MAX, {NULL, 0}}, back;
    struct buf b = {0};
    raft_command_encode(&b, &c);
    assert_int_equal(b.n, RAFT_COMMAND_HEADER);
    assert_int_equal(raft_command_decode(buf_bytes(&b), &back), OK);
    assert_int_equal(back.stamp_ms, UINT64_MAX);
    assert_int_equal(back.epoch.version, UINT32_MAX);
    assert_int_equal(back.payload.n, 0);
    buf_release(&b);
}

static void test_damage(void **state UNUSED)
{
    struct raft_command back;
    char copy[sizeof(VECTOR) - 1];
    for (size_t n = 0; n < RAFT_COMMAND_HEADER; n++)
        assert_int_equal(raft_command_decode(bytes_of(VECTOR, n), &back), ERR_SYNTAX);
    static const struct {
        u8 at, value;
    } damage[] = {{0, 0}, {0, 2}, {1, 0}, {1, RAFT_KIND_MAX + 1}, {1, 255}, {2, 1}, {3, 1}};
    for (size_t i = 0; i < sizeof(damage) / sizeof(*damage); i++) {
        memcpy(copy, VECTOR, sizeof(copy));
        copy[damage[i].at] = (char)damage[i].value;
        assert_int_equal(raft_command_decode(bytes_of(copy, sizeof(copy)), &back), ERR_SYNTAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vector),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
