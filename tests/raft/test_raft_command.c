/* The bytes of log entries: vectors that must never change, and damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cluster/cluster_map.h"
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

/* How far a region has come, as text; stored with the member's number, sent without. */
static void test_applied(void **state UNUSED)
{
    struct raft_applied at = {.index = 9, .term = 6, .clock_ms = 1000, .epoch = {3, 4}, .slots = {100, 200}}, back;
    struct buf b = {0};
    u64 peer, peers[] = {0, peer_of(7, 4)};
    at.conf.voters[at.conf.voters_n++] = peer_of(7, 4);
    for (int i = 0; i < 8; i++) {
        at.deaths_from_ms = i & 1 ? 900 : 0;
        if (i == 4) at.merge = (struct raft_merge){RAFT_MERGE_SOURCE, 3, 16484, 8, 6};
        buf_clear(&b);
        member_encode(&at, peers[i / 2 % 2], &b);
        assert_true(member_decode(buf_bytes(&b), &back, &peer));
        assert_memory_equal(&back, &at, sizeof(at));
        assert_int_equal(peer, peers[i / 2 % 2]);
    }
    buf_release(&b);
    assert_false(member_decode(BYTES_LIT("1 9 6 1000 3 4 0 v7 l o n d900"), &back, &peer));
    assert_false(member_decode(BYTES_LIT("1 9 6 1000 3 4 0 v7 l o n s200-100"), &back, &peer));
    assert_false(member_decode(BYTES_LIT("1 9 6 1000 3 4 0 v7 l o n s0-16384"), &back, &peer));
    assert_false(member_decode(BYTES_LIT("1 9 6 1000 3 4 0 v7 l o n s0-5x"), &back, &peer));
    assert_false(member_decode(BYTES_LIT("1 9 6 1000 3 4 0 v7 l o n s0-5 p7x"), &back, &peer));
    assert_false(member_decode(BYTES_LIT("1 9 6 1000 3 4 0 v7 l o n s0-5 m3,1,1,1,1"), &back, &peer));
    assert_false(member_decode(BYTES_LIT("1 9 6 1000 3 4 0 v7 l o n s0-5 m1,1,1,1"), &back, &peer));
}

static struct map_region map_row(u64 number, u32 version, u32 conf_ver, u16 first, u16 last)
{
    return (struct map_region){.number = number, .leader = peer_of(1, 0), .term = 5,
                               .at = {.epoch = {version, conf_ver}, .slots = {first, last}}};
}

/* Rows may come twice and late: older ones change nothing, and of two with a slot the newer counts. */
static void test_map(void **state UNUSED)
{
    struct cluster_map map = {0};
    struct map_region parent = map_row(1, 1, 7, 0, 16383), low = map_row(1, 2, 7, 0, 99),
                      child = map_row(16484, 2, 7, 100, 16383), back, led = low;
    struct buf b = {0};
    assert_null(map_at(&map, 5));
    map_take(&map, &parent);
    map_take(&map, &child);
    assert_int_equal(map_at(&map, 99)->number, 1);
    assert_int_equal(map_at(&map, 100)->number, 16484);
    map_take(&map, &low);
    assert_false(map_is_news(&map, &parent));
    map_take(&map, &parent);
    assert_int_equal(map_find(&map, 1)->at.slots.last, 99);
    assert_int_equal(map_at(&map, 16383)->number, 16484);
    led.leader = peer_of(2, 0);
    assert_false(map_is_news(&map, &led)); /* nobody else leads in the same term */
    led.term = 6;
    assert_true(map_is_news(&map, &led));
    map_take(&map, &led);
    assert_int_equal(map_find(&map, 1)->leader, led.leader);
    led.at.epoch.conf_ver = 6, led.term = 7;
    assert_false(map_is_news(&map, &led));
    child.keys = 12345;
    parent.at.epoch.version = 3; /* they are merged */
    map_take(&map, &parent);
    assert_null(map_find(&map, child.number));
    assert_false(map_is_news(&map, &child));
    assert_int_equal(map_at(&map, 16383)->number, 1);
    parent.at.epoch.version = 5,
    parent.at.slots.last = 199; /* … and split again before anybody heard of it: */
    map_release(&map);
    child.at.epoch.version = 2;
    map_take(&map, &child);
    map_take(&map, &parent); /* the child gave its first slot away */
    assert_null(map_find(&map, child.number));
    for (u64 load = 0; load < 200; load += 99) {
        child.load = load, child.at.merge.role = load ? RAFT_MERGE_TARGET : RAFT_MERGE_NONE;
        buf_clear(&b);
        map_print(&child, &b);
        assert_true(map_parse(buf_bytes(&b), &back));
        assert_memory_equal(&back, &child, sizeof(back));
    }
    assert_false(map_parse(BYTES_LIT("1 2 3 4"), &back));
    buf_release(&b);
    map_release(&map);
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
        cmocka_unit_test(test_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
