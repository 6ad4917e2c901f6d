/* Streams as the site layer changes them: entries are added and replaced anywhere. Nodes and counts stay right,
 * and IDs of sites end in their gid. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/memory/memory.h"
#include "rounds.h"
#include "xstream/xstream.h"

static u64 seed = 1;

static u32 below(u32 n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (u32)((seed >> 11) % n);
}

#define IDS 200 /* 1-0 … 200-0 */

static struct stream_id id_of(u32 i) { return (struct stream_id){i + 1, 0}; }

/* Nodes don't overlap, and each has the entries that it says. */
static void assert_nodes(struct xstream *s)
{
    struct xnode_walk nodes;
    struct xnode node;
    struct stream_id before = STREAM_ID_MIN, id;
    u64 live = 0;
    u32 n = 0;
    for (xnode_walk(&nodes, s); xnode_next(&nodes, &node); n++) {
        struct xwalk entries;
        u64 here = 0;
        assert_true(n == 0 || stream_id_cmp(node.id, before) > 0);
        for (xstream_walk(&entries, s, node.id, node.last, false); xwalk_next(&entries, &id, NULL);) here++;
        assert_int_equal(here, node.live);
        before = node.last;
        live += here;
    }
    assert_int_equal(live, s->length);
    assert_int_equal(n, s->nodes);
}

/* The entries are those of `there`, with these values, and the head says so. */
static void assert_entries(struct xstream *s, const u8 there[IDS])
{
    struct xwalk walk;
    struct xentry e;
    struct stream_id id;
    bytes packed, name, value;
    u32 i = 0, first = IDS;
    u64 n = 0;
    for (xstream_walk(&walk, s, STREAM_ID_MIN, STREAM_ID_MAX, false); xwalk_next(&walk, &id, &packed); i++, n++) {
        while (i < IDS && !there[i]) i++;
        assert_true(i < IDS);
        if (first == IDS) first = i;
        assert_int_equal(stream_id_cmp(id, id_of(i)), 0);
        xentry_open(&e, packed);
        assert_true(xentry_next(&e, &name, &value));
        assert_int_equal(value.p[0], there[i]);
    }
    while (i < IDS) assert_int_equal(there[i++], 0);
    assert_int_equal(s->length, n);
    assert_int_equal(stream_id_cmp(s->first, n ? id_of(first) : STREAM_ID_MIN), 0);
}

static void test_insert(void **state)
{
    (void)state;
    for (u32 round = 0; round < ROUNDS(100); round++) {
        struct engine *e = memory_engine_new(1, 1);
        struct key_ref ref;
        struct xstream s;
        struct buf packed = {0};
        u8 there[IDS] = {0};
        u32 highest = 0;
        e->ops->begin(e, 1);
        assert_false(e->ops->find(e, 0, BYTES_LIT("s"), &ref));
        e->ops->create(e, 0, BYTES_LIT("s"), TYPE_STREAM, &ref);
        xstream_open(&s, e, &ref);
        for (u32 step = 0; step < 300; step++) {
            u32 i = below(IDS);
            char letter = (char)('a' + below(26));
            if (below(3)) {
                buf_clear(&packed);
                xentry_pack(&packed, (bytes[]){BYTES_LIT("f"), bytes_of(&letter, 1)}, 1);
                xstream_insert(&s, (struct xnode_limits){.bytes = 4096, .entries = 1 + below(8)}, id_of(i),
                               buf_bytes(&packed));
                there[i] = (u8)letter;
                highest = MAX(highest, i + 1);
            } else {
                assert_int_equal(xstream_delete(&s, id_of(i)), there[i] != 0);
                there[i] = 0;
            }
            xstream_save(&s);
            xstream_open(&s, e, &ref);
            assert_int_equal(s.last.ms, highest);
            if (step % 10 == 0) assert_entries(&s, there), assert_nodes(&s);
        }
        u64 keep = below(IDS);
        xstream_trim(&s, &(struct xtrim){.by = TRIM_MAXLEN, .maxlen = keep});
        assert_true(s.length <= keep);
        assert_nodes(&s);
        buf_release(&packed);
        e->ops->close(e);
    }
}

/* -- the head ------------------------------------------------------------------------------------------- */

static struct stream_id some_id(void) { return (struct stream_id){below(3), below(3)}; }

static void assert_id(struct stream_id a, struct stream_id b) { assert_true(a.ms == b.ms && a.seq == b.seq); }

static void assert_same_head(const struct xstream *a, const struct xstream *b)
{
    assert_int_equal(a->length, b->length);
    assert_id(a->last, b->last);
    assert_id(a->first, b->first);
    assert_id(a->max_deleted, b->max_deleted);
    assert_int_equal(a->added, b->added);
    assert_int_equal(a->groups, b->groups);
    assert_int_equal(a->next_group, b->next_group);
    assert_int_equal(a->nodes, b->nodes);
    if (!a->nodes) return;
    assert_id(a->tail.id, b->tail.id);
    assert_id(a->tail.last, b->tail.last);
    assert_int_equal(a->tail.live, b->tail.live);
    assert_int_equal(a->tail.gone, b->tail.gone);
    assert_int_equal(a->tail.bytes, b->tail.bytes);
    assert_int_equal(a->tail.fields, b->tail.fields);
}

/* Whatever is in a head, and whichever parts of it are left out when it is stored, it is read as it was. */
static void test_head(void **state)
{
    (void)state;
    struct engine *e = memory_engine_new(1, 1);
    struct key_ref ref;
    e->ops->begin(e, 1);
    assert_false(e->ops->find(e, 0, BYTES_LIT("s"), &ref));
    e->ops->create(e, 0, BYTES_LIT("s"), TYPE_STREAM, &ref);
    for (u32 round = 0; round < 10000; round++) {
        struct xstream s = {
            .eng = e, .ref = &ref, .length = below(2), .last = some_id(), .first = some_id(),
            .max_deleted = some_id(), .added = below(2), .groups = below(2), .next_group = below(2),
            .nodes = below(3),
            .tail = {some_id(), some_id(), below(9), below(9), below(9), below(9)},
        };
        struct xstream again;
        xstream_save(&s);
        xstream_open(&again, e, &ref);
        assert_same_head(&s, &again);
        assert_id(xstream_head_last(e->ops->rows.head(e, &ref)), s.last);
    }
    e->ops->close(e);
}

/* -- IDs ---------------------------------------------------------------------------------------------- */

static void assert_next(u8 gid, struct stream_id last, u64 ms, struct stream_id want)
{
    struct engine *e = memory_engine_new(1, 1);
    struct xstream s = {.eng = e, .last = last};
    struct stream_id got;
    e->gid = gid;
    assert_true(xstream_next_id(&s, ms, &got));
    assert_true(got.ms == want.ms && got.seq == want.seq);
    e->ops->close(e);
}

static void test_next_id(void **state)
{
    (void)state;
    assert_next(0, (struct stream_id){5, 7}, 9, (struct stream_id){9, 0}); /* as Redis */
    assert_next(0, (struct stream_id){5, 7}, 5, (struct stream_id){5, 8});
    assert_next(0, (struct stream_id){5, 7}, 3, (struct stream_id){5, 8});
    assert_next(0, (struct stream_id){5, UINT64_MAX}, 3, (struct stream_id){6, 0});
    assert_next(3, (struct stream_id){5, 7}, 9, (struct stream_id){9, 3});
    assert_next(3, (struct stream_id){5, 2}, 5, (struct stream_id){5, 3});
    assert_next(3, (struct stream_id){5, 3}, 5, (struct stream_id){5, 259});
    assert_next(3, (struct stream_id){5, 7}, 4, (struct stream_id){5, 259});
    assert_next(255, (struct stream_id){5, 254}, 5, (struct stream_id){5, 255});
    assert_next(3, (struct stream_id){0, 0}, 0, (struct stream_id){0, 3});
    assert_next(3, (struct stream_id){5, UINT64_MAX - 1}, 5, (struct stream_id){6, 3});
    struct engine *e = memory_engine_new(1, 1);
    struct xstream s = {.eng = e, .last = {UINT64_MAX, UINT64_MAX - 1}};
    struct stream_id got;
    e->gid = 3;
    assert_false(xstream_next_id(&s, 1, &got));
    e->ops->close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_insert), cmocka_unit_test(test_head),
                                       cmocka_unit_test(test_next_id)};
    return cmocka_run_group_tests_name("xstream", tests, NULL, NULL);
}
