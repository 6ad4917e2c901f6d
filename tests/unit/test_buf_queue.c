/* buf_queue against one flat buffer: the same random operations on both. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf_queue.h"
#include "base/rand.h"

#define STEPS 20000
#define LONGEST 40

static u64 rng;

static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

/* Appends the same random bytes, in a buffer with spare room, to both. */
static void add(struct buf_queue *q, struct buf *model)
{
    struct buf b = {0};
    u32 n = 1 + below(LONGEST);
    for (u32 i = 0; i < n; i++) buf_append_char(&b, (char)below(256));
    buf_append_bytes(model, buf_bytes(&b));
    buf_queue_add(q, &b);
    assert_null(b.p);
    assert_int_equal(b.n + b.cap, 0);
}

static void drop_first(struct buf_queue *q, struct buf *model)
{
    bytes first = buf_queue_first(q);
    assert_in_range(first.n, 1, LONGEST);
    assert_true(first.n <= model->n);
    assert_memory_equal(first.p, model->p, first.n);
    model->n -= first.n;
    memmove(model->p, model->p + first.n, model->n);
    buf_queue_drop_first(q);
}

static void cut(struct buf_queue *q, struct buf *model, size_t end)
{
    model->n = MIN(model->n, end);
    buf_queue_cut(q, end);
}

/* What is behind any place can be copied, as often as one likes. */
static void copy(const struct buf_queue *q, const struct buf *model, size_t begin)
{
    struct buf b = {0};
    buf_append_char(&b, '!');
    buf_queue_copy(q, begin, &b);
    size_t n = begin < model->n ? model->n - begin : 0;
    assert_int_equal(b.n, n + 1);
    if (n) assert_memory_equal(b.p + 1, model->p + begin, n);
    buf_release(&b);
}

static void assert_counts(const struct buf_queue *q, const struct buf *model)
{
    assert_int_equal(q->bytes, model->n);
    assert_int_equal(!q->first, model->n == 0); /* no buffer is empty */
    assert_int_equal(!q->last, model->n == 0);
    assert_true(q->count <= q->bytes && q->bytes <= (size_t)q->count * LONGEST);
    assert_true(q->count ? q->memory > q->bytes : q->memory == 0);
}

static void test_model(void **state UNUSED)
{
    struct buf_queue q = {0};
    struct buf model = {0};
    u32 most = 0;
    rng = 1;
    for (u32 i = 0; i < STEPS; i++) {
        u32 what = below(10);
        if (what < 6) add(&q, &model);
        else if (what < 9 && q.count) drop_first(&q, &model);
        else if (what == 9) cut(&q, &model, below(8) ? model.n - MIN(model.n, below(100)) : below(2000));
        copy(&q, &model, below((u32)model.n + 2));
        assert_counts(&q, &model);
        most = MAX(most, q.count);
    }
    assert_true(most > 20);
    while (q.count) drop_first(&q, &model);
    assert_counts(&q, &model);
    buf_release(&model);
}

static void test_back_to_where_it_ended(void **state UNUSED)
{
    struct buf_queue q = {0};
    struct buf model = {0};
    rng = 2;
    add(&q, &model);
    add(&q, &model);
    size_t end = q.bytes;
    cut(&q, &model, end + 1); /* beyond the end: keeps all */
    cut(&q, &model, end);
    assert_int_equal(q.count, 2);
    add(&q, &model);
    cut(&q, &model, end);     /* drops a whole buffer … */
    assert_int_equal(q.count, 2);
    cut(&q, &model, end - 1); /* … or part of one */
    assert_counts(&q, &model);
    drop_first(&q, &model);
    assert_int_equal(q.count, 1);
    buf_queue_release(&q);
    model.n = 0;
    assert_counts(&q, &model);
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
