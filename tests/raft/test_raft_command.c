/* The bytes of log entries: vectors that must never change, and damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cluster/member.h"
#include "cluster/peer_id.h"
#include "raft/split.h"

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

static void test_split(void **state UNUSED)
{
    static const char bytes10[] = "\x08\x07\x06\x05\x04\x03\x02\x01\x70\x17";
    struct raft_split s = {0x0102030405060708, 6000}, back;
    struct buf b = {0};
    raft_split_encode(&b, &s);
    assert_int_equal(b.n, 10);
    assert_memory_equal(b.p, bytes10, 10);
    assert_int_equal(raft_split_decode(buf_bytes(&b), &back), OK);
    assert_int_equal(back.child, s.child);
    assert_int_equal(back.first, s.first);
    buf_append_char(&b, 0);
    for (size_t n = 0; n <= 11; n++)
        assert_int_equal(raft_split_decode(bytes_of(b.p, n), &back), n == 10 ? OK : ERR_SYNTAX);
    static const struct raft_split wrong[] = {{0, 100}, {2, RAFT_SLOTS}, {2, UINT16_MAX}};
    for (size_t i = 0; i < 3; i++) {
        buf_clear(&b);
        raft_split_encode(&b, &wrong[i]);
        assert_int_equal(raft_split_decode(buf_bytes(&b), &back), ERR_SYNTAX);
    }
    buf_release(&b);
}

static void test_split_fits(void **state UNUSED)
{
    struct raft_slots slots = {100, 200}, one = {100, 100};
    assert_false(raft_split_fits(&(struct raft_split){2, 99}, slots));
    assert_false(raft_split_fits(&(struct raft_split){2, 100}, slots));
    assert_true(raft_split_fits(&(struct raft_split){2, 101}, slots));
    assert_true(raft_split_fits(&(struct raft_split){2, 200}, slots));
    assert_false(raft_split_fits(&(struct raft_split){2, 201}, slots));
    assert_false(raft_split_fits(&(struct raft_split){2, 100}, one));
    assert_true(raft_slots_overlap(slots, one));
    assert_true(raft_slots_overlap(slots, (struct raft_slots){200, 300}));
    assert_false(raft_slots_overlap(slots, (struct raft_slots){201, 300}));
    assert_false(raft_slots_overlap(slots, (struct raft_slots){0, 99}));
}

static void test_peer_ids(void **state UNUSED)
{
    assert_int_equal(peer_of(0xabcdef0123, 7), 0xabcdef0123000007);
    assert_int_equal(node_of(peer_of(PEER_NODE_MAX, UINT32_MAX)), PEER_NODE_MAX);
    assert_int_equal(node_of(peer_of(1, 1 << 24)), 1);
    assert_true(peer_of(5, 1) != peer_of(5, 2));
}

/* How far a region has come, as text: the present form, and the one before regions had slots. */
static void test_applied(void **state UNUSED)
{
    struct raft_applied at = {.index = 9, .term = 6, .clock_ms = 1000, .epoch = {3, 4}, .slots = {100, 200}}, back;
    struct buf b = {0};
    at.conf.voters[at.conf.voters_n++] = peer_of(7, 4);
    for (int deaths = 0; deaths < 2; deaths++) {
        at.deaths_from_ms = deaths ? 900 : 0;
        buf_clear(&b);
        member_encode(&at, &b);
        assert_true(member_decode(buf_bytes(&b), &back));
        assert_memory_equal(&back, &at, sizeof(at));
    }
    buf_release(&b);
    assert_true(member_decode(BYTES_LIT("1 9 6 1000 3 4 0 v7 l o n d900"), &back));
    assert_int_equal(back.slots.first, 0);
    assert_int_equal(back.slots.last, RAFT_SLOTS - 1);
    assert_int_equal(back.deaths_from_ms, 900);
    assert_false(member_decode(BYTES_LIT("1 9 6 1000 3 4 0 v7 l o n s200-100"), &back));
    assert_false(member_decode(BYTES_LIT("1 9 6 1000 3 4 0 v7 l o n s0-16384"), &back));
    assert_false(member_decode(BYTES_LIT("1 9 6 1000 3 4 0 v7 l o n s0-5x"), &back));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vector),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_fits),
        cmocka_unit_test(test_peer_ids),
        cmocka_unit_test(test_applied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
