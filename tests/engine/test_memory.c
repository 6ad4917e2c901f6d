/* The engine suite on the memory engine, and what only this engine promises. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "engine/memory/memory.h"
#include "suite.h"

/* -0 is kept, and equal to 0: it neither moves nor is replaced by it. */
static void test_negative_zero(void **state)
{
    (void)state;
    struct engine *e = memory_engine_new(1, 1);
    for (i64 entries = 128; entries >= 0; entries -= 128) { /* packed, then tree */
        struct key_ref ref;
        bytes member;
        double score;
        struct zset_iter it;
        e->limits.zset_max_listpack_entries = entries;
        e->ops->begin(e, 1);
        e->ops->create(e, 0, BYTES_LIT("z"), TYPE_ZSET, &ref);
        assert_true(e->ops->zset.put(e, &ref, BYTES_LIT("a"), -0.0));
        assert_true(e->ops->zset.put(e, &ref, BYTES_LIT("b"), 0.0));
        assert_false(e->ops->zset.put(e, &ref, BYTES_LIT("a"), 0.0));
        assert_false(e->ops->zset.put(e, &ref, BYTES_LIT("b"), -0.0));
        e->ops->zset.iter(e, &ref, &(struct zset_seek){.by = ZSEEK_SCORE, .score = 0}, &it);
        assert_true(e->ops->zset.next(&it, &member, &score) && member.p[0] == 'a');
        assert_true(signbit(score));
        assert_true(e->ops->zset.next(&it, &member, &score) && member.p[0] == 'b');
        assert_false(signbit(score));
        assert_true(e->ops->zset.score(e, &ref, BYTES_LIT("a"), &score) && signbit(score));
        e->ops->drop(e, &ref);
    }
    e->ops->close(e);
}

/* The entry of a 16-byte key, a 32-byte value and a deadline is 64 bytes. */
static void test_entry_size(void **state)
{
    (void)state;
    struct engine *e = memory_engine_new(1, 1);
    struct key_ref ref;
    e->ops->begin(e, 1000);
    e->ops->find(e, 0, BYTES_LIT("0123456789abcdef"), &ref);
    e->ops->str.put(e, 0, ref.key, &ref, BYTES_LIT("0123456789abcdef0123456789abcdef"), 5000);
    assert_in_range(e->ops->usage(e, &ref, 0), 64, 80);
    e->ops->close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_negative_zero),
        cmocka_unit_test(test_entry_size),
    };
    int failed = engine_suite(memory_engine_new);
    return failed + cmocka_run_group_tests_name("memory engine", tests, NULL, NULL);
}
