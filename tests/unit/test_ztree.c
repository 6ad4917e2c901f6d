/* ztree against a sorted array: the same random operations on both. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "ds/ztree.h"

#define MODEL_MAX 6000

struct item {
    double score;
    u32 n;
    char member[12];
};

static u64 rng;

static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

static bytes member_of(const void *item)
{
    const struct item *it = item;
    return bytes_of(it->member, it->n);
}

static int compare(double score, bytes member, const struct item *b)
{
    if (score != b->score) return score < b->score ? -1 : 1;
    return bytes_cmp(member, member_of(b));
}

/* --- the model: items in order; it owns them --- */

struct model {
    struct item *v[MODEL_MAX];
    u32 n;
};

static u32 model_rank(const struct model *m, double score, bytes member)
{
    u32 low = 0, high = m->n;
    while (low < high) {
        u32 mid = (low + high) / 2;
        if (compare(score, member, m->v[mid]) > 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void model_insert(struct model *m, struct item *it)
{
    u32 i = model_rank(m, it->score, member_of(it));
    memmove(&m->v[i + 1], &m->v[i], (m->n - i) * sizeof m->v[0]);
    m->v[i] = it;
    m->n++;
}

static void model_erase(struct model *m, u32 i, u32 n)
{
    memmove(&m->v[i], &m->v[i + n], (m->n - i - n) * sizeof m->v[0]);
    m->n -= n;
}

static struct item *item_new(double score)
{
    static u64 serial; /* makes every member unique; the random part mixes the order */
    struct item *it = mem_zalloc(sizeof *it);
    it->score = score;
    it->n = 8 + below(5);
    u64 bits = (u64)below(256) << 56 | serial++;
    for (u32 i = 0; i < 8; i++) it->member[i] = (char)(bits >> (56 - 8 * i));
    return it;
}

/* Few distinct values when spread is small: then members decide. */
static double random_score(u32 spread)
{
    switch (below(64)) {
    case 0: return INFINITY;
    case 1: return -INFINITY;
    case 2: return -0.0;
    case 3: return 0.0;
    default: return (double)below(spread) / 4 - (double)spread / 8;
    }
}

/* --- comparing --- */

static void assert_same(const struct ztree *t, const struct model *m)
{
    struct ztree_pos pos;
    ztree_check(t);
    assert_int_equal(ztree_count(t), m->n);
    if (m->n == 0) {
        assert_false(ztree_at(t, 0, &pos));
        return;
    }
    assert_true(ztree_at(t, 0, &pos));
    for (u32 i = 0; i < m->n; i++) {
        assert_ptr_equal(ztree_item(&pos), m->v[i]);
        assert_true(ztree_score(&pos) == m->v[i]->score);
        assert_int_equal(ztree_next(&pos), i + 1 < m->n);
    }
    for (u32 i = m->n; i-- > 0;) {
        assert_ptr_equal(ztree_item(&pos), m->v[i]);
        assert_int_equal(ztree_prev(&pos), i > 0);
    }
}

static void assert_pos(bool found, const struct ztree_pos *pos, const struct model *m, u32 rank)
{
    assert_int_equal(found, rank < m->n);
    if (found) assert_ptr_equal(ztree_item(pos), m->v[rank]);
}

static void check_queries(const struct ztree *t, const struct model *m, u32 spread)
{
    struct ztree_pos pos;
    double score = random_score(spread);
    struct item *probe = m->n && below(2) ? m->v[below(m->n)] : NULL;
    if (probe) score = probe->score;
    bytes member = probe ? member_of(probe) : BYTES_LIT("\x40");

    u32 rank = model_rank(m, score, member);
    assert_int_equal(ztree_rank(t, score, member), rank);
    assert_pos(ztree_seek(t, score, member, &pos), &pos, m, rank);

    u32 under = 0, upto = 0;
    for (u32 i = 0; i < m->n; i++) {
        under += m->v[i]->score < score;
        upto += m->v[i]->score <= score;
    }
    assert_int_equal(ztree_rank_score(t, score, false), under);
    assert_int_equal(ztree_rank_score(t, score, true), upto);

    u32 any = below(m->n + 2);
    assert_pos(ztree_at(t, any, &pos), &pos, m, any);
}

/* --- operations --- */

static void add(struct ztree *t, struct model *m, double score)
{
    struct item *it = item_new(score);
    ztree_insert(t, score, it);
    model_insert(m, it);
}

static void remove_one(struct ztree *t, struct model *m)
{
    if (m->n == 0) return;
    u32 i = below(m->n);
    struct item *it = m->v[i];
    assert_false(ztree_remove(t, it->score + 0.1, BYTES_LIT("absent")));
    assert_true(ztree_remove(t, it->score, member_of(it)));
    assert_false(ztree_remove(t, it->score, member_of(it)));
    model_erase(m, i, 1);
    mem_free(it); /* a separator still pointing to it would be found by ASan */
}

struct taken {
    struct item *const *next;
};

static void take_next(void *item, void *arg)
{
    struct taken *taken = arg;
    assert_ptr_equal(item, *taken->next++);
    mem_free(item);
}

static void erase_range(struct ztree *t, struct model *m, u32 from, u32 n)
{
    struct taken taken = {.next = &m->v[from]};
    u32 real = from < m->n ? MIN(n, m->n - from) : 0;
    ztree_erase(t, from, from + n - 1, take_next, &taken);
    assert_ptr_equal(taken.next, &m->v[from + real]);
    model_erase(m, MIN(from, m->n), real);
}

static void drain(struct ztree *t, struct model *m)
{
    struct taken taken = {.next = m->v};
    while (!ztree_release_some(t, 100, take_next, &taken)) ztree_check(t);
    assert_ptr_equal(taken.next, &m->v[m->n]);
    assert_int_equal(ztree_memory(t), 0);
    m->n = 0;
}

static void run(u64 seed, u32 spread, u32 grow_of_10)
{
    static struct model m;
    struct ztree t;
    rng = seed;
    ztree_init(&t, member_of);
    for (u32 i = 0; i < 12000; i++) {
        u32 op = below(11);
        if (op < grow_of_10 && m.n < MODEL_MAX)
            add(&t, &m, random_score(spread));
        else if (op < 10)
            remove_one(&t, &m);
        else if (below(100) == 0)
            erase_range(&t, &m, below(m.n + 1), 1 + below(300));
        else if (below(4) == 0)
            check_queries(&t, &m, spread);
        if (i % 256 == 0) assert_same(&t, &m);
    }
    assert_same(&t, &m);
    drain(&t, &m);
    ztree_release(&t);
}

static void test_random(void **state)
{
    (void)state;
    const u32 spreads[] = {1, 7, 1000, 1u << 30};
    for (u32 i = 0; i < ARRAY_LEN(spreads); i++) {
        run(i + 1, spreads[i], 8); /* growing */
        run(i + 9, spreads[i], 5); /* small */
    }
}

/* Grow large, then shrink by single removals: merges at every level. */
static void test_grow_and_shrink(void **state)
{
    (void)state;
    static struct model m;
    struct ztree t;
    rng = 5;
    ztree_init(&t, member_of);
    for (u32 i = 0; i < MODEL_MAX; i++) add(&t, &m, random_score(1000));
    assert_same(&t, &m);
    while (m.n > 0) {
        remove_one(&t, &m);
        if (m.n % 97 == 0) ztree_check(&t);
    }
    assert_same(&t, &m);
    assert_int_equal(ztree_memory(&t), 0);
}

static void test_empty(void **state)
{
    (void)state;
    struct ztree t;
    struct ztree_pos pos;
    ztree_init(&t, member_of);
    assert_int_equal(ztree_count(&t), 0);
    assert_int_equal(ztree_memory(&t), 0);
    assert_int_equal(ztree_rank(&t, 1, BYTES_LIT("a")), 0);
    assert_int_equal(ztree_rank_score(&t, INFINITY, true), 0);
    assert_false(ztree_seek(&t, 1, BYTES_LIT(""), &pos));
    assert_false(ztree_remove(&t, 1, BYTES_LIT("a")));
    ztree_erase(&t, 0, 10, NULL, NULL);
    assert_true(ztree_release_some(&t, 10, NULL, NULL));
    ztree_release(&t);
    ztree_check(&t);
}

static void test_zero_has_no_sign(void **state)
{
    (void)state;
    struct item a = {.score = 0.0, .n = 1, .member = "a"};
    struct item b = {.score = -0.0, .n = 1, .member = "b"};
    struct ztree t;
    ztree_init(&t, member_of);
    ztree_insert(&t, b.score, &b);
    ztree_insert(&t, a.score, &a);
    assert_int_equal(ztree_rank(&t, -0.0, BYTES_LIT("a")), 0);
    assert_int_equal(ztree_rank(&t, 0.0, BYTES_LIT("b")), 1);
    assert_true(ztree_remove(&t, 0.0, BYTES_LIT("b")));
    assert_true(ztree_remove(&t, -0.0, BYTES_LIT("a")));
    assert_int_equal(ztree_count(&t), 0);
}

/* Bytes per entry after n inserts: in ascending or descending order, or at random. */
static double bytes_per_entry(u32 n, int order)
{
    struct ztree t;
    struct item *items = mem_zalloc(n * sizeof *items);
    rng = 11;
    ztree_init(&t, member_of);
    for (u32 i = 0; i < n; i++) {
        double score = order ? (double)i * order : (double)below(1u << 31);
        memcpy(items[i].member, &i, sizeof i);
        items[i].n = sizeof i;
        ztree_insert(&t, score, &items[i]);
    }
    ztree_check(&t);
    double per_entry = (double)ztree_memory(&t) / n;
    ztree_release(&t);
    assert_int_equal(ztree_memory(&t), 0);
    mem_free(items);
    return per_entry;
}

static void test_memory(void **state)
{
    (void)state;
    assert_true(bytes_per_entry(100000, 1) < 17.5);
    assert_true(bytes_per_entry(100000, -1) < 17.5);
    assert_true(bytes_per_entry(100000, 0) < 22);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_zero_has_no_sign),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_grow_and_shrink),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
