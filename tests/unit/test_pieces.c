/* pieces against one array of bytes: the same random operations on both. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/pieces.h"
#include "base/rand.h"

#define STEPS 20000
#define LONGEST 40

static u64 rng;

static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

/* The same random bytes, with some room behind them, for both. */
static void add(struct pieces *p, struct buf *model)
{
    struct buf b = {0};
    u32 n = 1 + below(LONGEST);
    for (u32 i = 0; i < n; i++) buf_append_char(&b, (char)below(256));
    buf_append_bytes(model, buf_bytes(&b));
    pieces_add(p, &b);
    assert_null(b.p);
    assert_int_equal(b.n + b.cap, 0);
}

static void drop_first(struct pieces *p, struct buf *model)
{
    bytes first = pieces_first(p);
    assert_in_range(first.n, 1, LONGEST);
    assert_true(first.n <= model->n);
    assert_memory_equal(first.p, model->p, first.n);
    model->n -= first.n;
    memmove(model->p, model->p + first.n, model->n);
    pieces_drop_first(p);
}

static void cut(struct pieces *p, struct buf *model, size_t end)
{
    model->n = MIN(model->n, end);
    pieces_cut(p, end);
}

static void assert_counts(const struct pieces *p, const struct buf *model)
{
    assert_int_equal(p->bytes, model->n);
    assert_int_equal(!p->first, model->n == 0); /* none is empty */
    assert_int_equal(!p->last, model->n == 0);
    assert_true(p->count <= p->bytes && p->bytes <= (size_t)p->count * LONGEST);
    assert_true(p->count ? p->memory > p->bytes : p->memory == 0);
}

static void test_model(void **state UNUSED)
{
    struct pieces p = {0};
    struct buf model = {0};
    u32 most = 0;
    rng = 1;
    for (u32 i = 0; i < STEPS; i++) {
        u32 what = below(10);
        if (what < 6) add(&p, &model);
        else if (what < 9 && p.count) drop_first(&p, &model);
        else if (what == 9) cut(&p, &model, below(8) ? model.n - MIN(model.n, below(100)) : below(2000));
        assert_counts(&p, &model);
        most = MAX(most, p.count);
    }
    assert_true(most > 20);
    while (p.count) drop_first(&p, &model);
    assert_counts(&p, &model);
    buf_release(&model);
}

static void test_back_to_where_it_ended(void **state UNUSED)
{
    struct pieces p = {0};
    struct buf model = {0};
    rng = 2;
    add(&p, &model);
    add(&p, &model);
    size_t end = p.bytes;
    cut(&p, &model, end + 1); /* beyond: all stays */
    cut(&p, &model, end);
    assert_int_equal(p.count, 2);
    add(&p, &model);
    cut(&p, &model, end);     /* a piece goes as a whole … */
    assert_int_equal(p.count, 2);
    cut(&p, &model, end - 1); /* … or in part */
    assert_counts(&p, &model);
    drop_first(&p, &model);
    assert_int_equal(p.count, 1);
    pieces_release(&p);
    model.n = 0;
    assert_counts(&p, &model);
    buf_release(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_back_to_where_it_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
